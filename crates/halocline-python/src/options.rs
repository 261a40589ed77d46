//! What a bind is told.

use crate::given::{Argument, Get, Given, Refusal, choose, named, told};
use crate::stream::{Handles, Streams};
use halocline::{BindOptions, Direction, Flags, LinkChoice};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::time::Duration;

/// Links, as Python says them.
const LINKS: [(&str, LinkChoice); 6] = [
    ("auto", LinkChoice::Auto),
    ("push", LinkChoice::Push),
    ("pull", LinkChoice::Pull),
    ("device-mailbox", LinkChoice::DeviceMailbox),
    ("mailbox", LinkChoice::Mailbox),
    ("message", LinkChoice::Message),
];

/// The directions of a link, as Python says them.
const DIRECTIONS: [(&str, Direction); 2] = [("send", Direction::Send), ("receive", Direction::Receive)];

pub(crate) fn options(
    link: Given<String>,
    deadline: Option<Given<Duration>>,
    name: Option<Given<String>>,
    checked: Option<Given<bool>>,
) -> PyResult<BindOptions> {
    named!(link, deadline, name, checked);
    let link = choose("link", &link, &LINKS)?;
    let options = BindOptions::default().link(link).deadline(deadline).checked(checked);
    Ok(name.into_iter().fold(options, BindOptions::name))
}

/// What a bind is told of fields in memory of devices.
pub(crate) struct OfDevices {
    pub(crate) streams: Option<Given<Handles>>,
    pub(crate) inline: Given<bool>,
    pub(crate) stream_waits: Given<bool>,
    pub(crate) flags: Given<Words>,
}

impl OfDevices {
    /// With the other options, where the fields are on the devices of `known`.
    pub(crate) fn beside(self, options: BindOptions, known: &Streams) -> PyResult<BindOptions> {
        let Self { streams, inline, stream_waits, flags } = self;
        named!(streams, inline, stream_waits, flags);
        let streams = known.get(&streams.map_or_else(Vec::new, |streams| streams.0))?;
        let Words(flags) = flags;
        Ok(options
            .streams(streams)
            .inline(inline)
            .stream_waits(stream_waits.then_some(true))
            .flags((flags != Flags::Auto).then_some(flags)))
    }
}

/// Which messages go as words with flags, as Python says it.
pub(crate) struct Words(Flags);

impl From<Flags> for Words {
    fn from(flags: Flags) -> Self {
        Self(flags)
    }
}

impl<'py> Argument<'py> for Words {
    fn several() -> String {
        "numbers of bytes".to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        bytes_or(object, [Flags::Auto, Flags::Never], Flags::UpTo).map(Self)
    }
}

/// A number of bytes, or one of the two words.
fn bytes_or<T>(
    object: &Bound<'_, PyAny>,
    [auto, never]: [T; 2],
    of: impl FnOnce(usize) -> T,
) -> Result<T, Refusal> {
    const WANTED: &str = "a number of bytes, from 1, 'never' or 'auto'";
    let value = || Refusal::value(format!("{WANTED} is wanted, not {}", told(object)));
    if object.is_instance_of::<PyString>() {
        return match &*String::of(object)? {
            "auto" => Ok(auto),
            "never" => Ok(never),
            _ => Err(value()),
        };
    }
    match usize::of(object) {
        Ok(bytes @ 1..) => Ok(of(bytes)),
        Ok(_) | Err(Refusal::Ours { is_value: true, .. }) => Err(value()),
        Err(Refusal::Ours { .. }) => Err(Refusal::wanted(WANTED, object)),
        Err(theirs) => Err(theirs),
    }
}

/// The path of a link by its name.
pub(crate) fn direction(name: &str) -> PyResult<Direction> {
    choose("direction", name, &DIRECTIONS)
}

pub(crate) fn paths(
    paths: impl Iterator<Item = (usize, Direction, halocline::LinkPath)>,
) -> Vec<(usize, &'static str, String)> {
    let named = |(peer, direction, path): (usize, Direction, halocline::LinkPath)| {
        let direction = match direction {
            Direction::Send => "send",
            Direction::Receive => "receive",
        };
        (peer, direction, path.to_string())
    };
    paths.map(named).collect()
}

/// Numbers of links, for people.
pub(crate) fn shown(links: halocline::LinkCounts) -> String {
    format!("{} direct, {} mailbox, {} message", links.direct, links.mailbox, links.message)
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
