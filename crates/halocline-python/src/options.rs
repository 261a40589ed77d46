//! Options of a bind.

use crate::argument::{Argument, ArgumentType, Get, Refusal, choose, shown_in_message};
use crate::stream::{Handles, Streams};
use halocline::{BindOptions, Direction, LinkChoice, LinkCounts, LinkInfo, Ll};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::time::Duration;

/// The words for `link=`.
const LINKS: [(&str, LinkChoice); 6] = [
    ("auto", LinkChoice::Auto),
    ("push", LinkChoice::Push),
    ("pull", LinkChoice::Pull),
    ("mailbox", LinkChoice::Mailbox),
    ("message", LinkChoice::Message),
    ("nccl", LinkChoice::Nccl),
];

/// The words for `direction`.
const DIRECTIONS: [(&str, Direction); 2] = [("send", Direction::Send), ("receive", Direction::Receive)];

/// The options of host fields, and those of device fields, by their keywords.
const PLAIN: [&str; 4] = ["link", "deadline", "name", "checked"];
const OF_DEVICES: [&str; 4] = ["streams", "inline", "stream_waits", "ll"];

/// The options of a bind as the keywords of a call.
pub(crate) struct Keywords<'a, 'py>(Option<&'a Bound<'py, PyDict>>);

impl<'a, 'py> Keywords<'a, 'py> {
    /// All options. Refuses other keywords, as Python does.
    pub(crate) fn all(call: &str, given: Option<&'a Bound<'py, PyDict>>) -> PyResult<Self> {
        Self::among(call, given, &[PLAIN, OF_DEVICES].concat())
    }

    /// The options of the unbound form.
    pub(crate) fn unbound(call: &str, given: Option<&'a Bound<'py, PyDict>>) -> PyResult<Self> {
        Self::among(call, given, &[&PLAIN[..], &["device"], &OF_DEVICES[..3]].concat())
    }

    /// The GPU of the fields of the unbound form.
    pub(crate) fn device(&self) -> PyResult<Option<u32>> {
        self.optional("device")
    }

    fn among(call: &str, given: Option<&'a Bound<'py, PyDict>>, known: &[&str]) -> PyResult<Self> {
        for (name, _) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            if !known.contains(&&*name) {
                let text = format!("{call}() got an unexpected keyword argument '{name}'");
                return Err(PyTypeError::new_err(text));
            }
        }
        Ok(Self(given))
    }

    fn get<T: ArgumentType<'py>>(&self, name: &str) -> PyResult<Option<T>> {
        let given = self.0.map_or(Ok(None), |given| given.get_item(name))?;
        given.map(|given| Argument::from(&given).get(name)).transpose()
    }

    /// As [`Keywords::get`], where `None` is the default.
    fn optional<T: ArgumentType<'py>>(&self, name: &str) -> PyResult<Option<T>> {
        let given = self.0.map_or(Ok(None), |given| given.get_item(name))?;
        given.filter(|given| !given.is_none()).map_or(Ok(None), |_| self.get(name))
    }

    /// The options of host fields.
    pub(crate) fn options(&self) -> PyResult<BindOptions> {
        let link =
            self.get("link")?.map_or(Ok(LinkChoice::Auto), |link: String| choose("link", &link, &LINKS))?;
        let options = BindOptions::default().link(link).deadline(self.optional::<Duration>("deadline")?);
        let (name, checked) = (self.optional::<String>("name")?, self.optional::<bool>("checked")?);
        Ok(name.into_iter().fold(options.checked(checked), BindOptions::name))
    }

    /// All options; `known` has the devices of the fields.
    pub(crate) fn options_with(&self, known: &Streams) -> PyResult<BindOptions> {
        let streams = self.optional("streams")?.map_or_else(Vec::new, |Handles(streams)| streams);
        let flag = |name| Ok::<_, PyErr>(self.get::<bool>(name)?.unwrap_or(false));
        let ll = self.optional("ll")?.map(|LlOption(ll)| ll);
        let options = self.options()?.streams(known.get(&streams)?).inline(flag("inline")?);
        Ok(options.stream_waits(self.optional("stream_waits")?).ll(ll))
    }
}

/// The value of `ll=`: which messages use the LL (low-latency) protocol.
struct LlOption(Ll);

impl<'py> ArgumentType<'py> for LlOption {
    const PLURAL: &'static str = "numbers of bytes";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        const WANTED: &str = "a number of bytes, from 1, 'never' or 'auto'";
        let value = || Refusal::wrong_value(format!("{WANTED} is wanted, not {}", shown_in_message(object)));
        if object.is_instance_of::<PyString>() {
            return match &*String::of(object)? {
                "auto" => Ok(Self(Ll::Auto)),
                "never" => Ok(Self(Ll::Never)),
                _ => Err(value()),
            };
        }
        match usize::of(object) {
            Ok(bytes @ 1..) => Ok(Self(Ll::UpTo(bytes))),
            Ok(_) | Err(Refusal::Ours { is_value: true, .. }) => Err(value()),
            Err(Refusal::Ours { .. }) => Err(Refusal::wanted(WANTED, object)),
            Err(theirs) => Err(theirs),
        }
    }
}

/// The direction of a link by its word.
pub(crate) fn direction(name: &str) -> PyResult<Direction> {
    choose("direction", name, &DIRECTIONS)
}

/// The links of an object: peer, direction, path.
pub(crate) fn links(links: impl Iterator<Item = LinkInfo>) -> Vec<(usize, &'static str, String)> {
    let named = |LinkInfo { peer, direction, path }: LinkInfo| {
        let direction = match direction {
            Direction::Send => "send",
            Direction::Receive => "receive",
        };
        (peer, direction, path.to_string())
    };
    links.map(named).collect()
}

/// The numbers of links as text.
pub(crate) fn shown(links: LinkCounts) -> String {
    format!("{} direct, {} mailbox, {} message", links.direct, links.mailbox, links.message)
}
