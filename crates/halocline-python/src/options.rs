//! What a bind is told.

use crate::comm::seconds;
use crate::error;
use crate::given::Given;
use crate::stream::{Streams, handles};
use halocline::{BindOptions, CopyEngine, Flags, LinkChoice};
use pyo3::prelude::*;
use pyo3::types::PyBool;

pub(crate) fn options(
    py: Python<'_>,
    link: Given<String>,
    deadline: Option<Given<f64>>,
    name: Option<Given<String>>,
    checked: Option<Given<bool>>,
) -> PyResult<BindOptions> {
    let link = match &*link.get(py, "link")? {
        "auto" => LinkChoice::Auto,
        "push" => LinkChoice::Push,
        "pull" => LinkChoice::Pull,
        "device-mailbox" => LinkChoice::DeviceMailbox,
        "mailbox" => LinkChoice::Mailbox,
        "message" => LinkChoice::Message,
        other => {
            return Err(error::value(format!(
                "there is no link {other:?}; choose auto, push, pull, device-mailbox, mailbox or message"
            )));
        }
    };
    let deadline = seconds(deadline.map(|deadline| deadline.get(py, "deadline")).transpose()?)?;
    let name = name.map(|name| name.get(py, "name")).transpose()?;
    let checked = checked.map(|checked| checked.get(py, "checked")).transpose()?;
    Ok(BindOptions { link, deadline, name, checked, ..BindOptions::default() })
}

/// What a bind is told of fields in memory of devices.
pub(crate) struct OfDevices<'a, 'py> {
    pub(crate) streams: Option<&'a Bound<'py, PyAny>>,
    pub(crate) inline: Given<bool>,
    pub(crate) stream_waits: Given<bool>,
    pub(crate) copy_engine: Given<Engine>,
    pub(crate) flags: Given<Words>,
}

impl OfDevices<'_, '_> {
    /// With the other options, where the fields are on the devices of `known`.
    pub(crate) fn beside(
        self,
        py: Python<'_>,
        options: BindOptions,
        known: &Streams,
    ) -> PyResult<BindOptions> {
        let streams = known.get(&self.streams.map_or(Ok(Vec::new()), handles)?)?;
        let inline = self.inline.get(py, "inline")?;
        let stream_waits = self.stream_waits.get(py, "stream_waits")?;
        let Engine(copy_engine) = self.copy_engine.get(py, "copy_engine")?;
        let Words(flags) = self.flags.get(py, "flags")?;
        Ok(BindOptions { streams, inline, stream_waits, copy_engine, flags, ..options })
    }
}

/// Which regions go by copy engines, as Python says it.
pub(crate) struct Engine(CopyEngine);

/// Which messages go as words with flags, as Python says it.
pub(crate) struct Words(Flags);

impl From<CopyEngine> for Engine {
    fn from(engine: CopyEngine) -> Self {
        Self(engine)
    }
}

impl From<Flags> for Words {
    fn from(flags: Flags) -> Self {
        Self(flags)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Engine {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        bytes_or(&object, [CopyEngine::Auto, CopyEngine::Never], CopyEngine::From).map(Self)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Words {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        bytes_or(&object, [Flags::Auto, Flags::Never], Flags::UpTo).map(Self)
    }
}

/// A number of bytes, or one of the two words.
fn bytes_or<T>(object: &Bound<'_, PyAny>, [auto, never]: [T; 2], of: impl FnOnce(usize) -> T) -> PyResult<T> {
    let wanted = "a number of bytes, from 1, \"never\" or \"auto\" is wanted";
    if let Ok(name) = object.extract::<String>() {
        return match &*name {
            "auto" => Ok(auto),
            "never" => Ok(never),
            other => Err(error::value(format!("{wanted}, not {other:?}"))),
        };
    }
    match object.call_method0("__index__") {
        Ok(whole) if !object.is_instance_of::<PyBool>() => match whole.extract::<usize>() {
            Ok(bytes @ 1..) => Ok(of(bytes)),
            _ => Err(error::value(format!("{wanted}, not {whole}"))),
        },
        _ => Err(error::kind(format!("{wanted}, not {}", object.get_type().fully_qualified_name()?))),
    }
}

/// Names of the two ways of a link.
pub(crate) fn direction(name: &str) -> PyResult<halocline::Direction> {
    match name {
        "send" => Ok(halocline::Direction::Send),
        "receive" => Ok(halocline::Direction::Receive),
        other => Err(error::value(format!("there is no direction {other:?}; choose send or receive"))),
    }
}

pub(crate) fn ways(
    ways: impl Iterator<Item = (usize, halocline::Direction, halocline::Way)>,
) -> Vec<(usize, &'static str, String)> {
    let named = |(peer, direction, way): (usize, halocline::Direction, halocline::Way)| {
        let direction = match direction {
            halocline::Direction::Send => "send",
            halocline::Direction::Receive => "receive",
        };
        (peer, direction, way.to_string())
    };
    ways.map(named).collect()
}

pub(crate) fn counts(
    py: Python<'_>,
    counts: halocline::LinkCounts,
) -> PyResult<Bound<'_, pyo3::types::PyDict>> {
    let dict = pyo3::types::PyDict::new(py);
    dict.set_item("direct", counts.direct)?;
    dict.set_item("mailbox", counts.mailbox)?;
    dict.set_item("message", counts.message)?;
    Ok(dict)
}
