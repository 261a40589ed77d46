//! Options of a bind.

use crate::argument::{Argument, ArgumentType, Get, Refusal, accept, choose, shown_in_message};
use crate::stream::{Handles, Streams};
use halocline::{BindOptions, Direction, LinkChoice, LinkCounts, LinkInfo, Ll};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::time::Duration;

/// The words for `link=`.
const LINKS: [(&str, LinkChoice); 5] = [
    ("auto", LinkChoice::Auto),
    ("push", LinkChoice::Push),
    ("pull", LinkChoice::Pull),
    ("mailbox", LinkChoice::Mailbox),
    ("message", LinkChoice::Message),
];

/// The words for `direction`.
const DIRECTIONS: [(&str, Direction); 2] = [("send", Direction::Send), ("receive", Direction::Receive)];

pub(crate) fn options(
    link: Argument<String>,
    deadline: Option<Argument<Duration>>,
    name: Option<Argument<String>>,
    checked: Option<Argument<bool>>,
) -> PyResult<BindOptions> {
    accept!(link, deadline, name, checked);
    let link = choose("link", &link, &LINKS)?;
    let options = BindOptions::default().link(link).deadline(deadline).checked(checked);
    Ok(name.into_iter().fold(options, BindOptions::name))
}

/// The options for device fields.
pub(crate) struct OfDevices {
    pub(crate) streams: Option<Argument<Handles>>,
    pub(crate) inline: Argument<bool>,
    pub(crate) stream_waits: Argument<bool>,
    pub(crate) ll: Argument<LlOption>,
}

impl OfDevices {
    /// Adds these to the other options; `known` has the devices of the fields.
    pub(crate) fn beside(self, options: BindOptions, known: &Streams) -> PyResult<BindOptions> {
        let Self { streams, inline, stream_waits, ll } = self;
        accept!(streams, inline, stream_waits, ll);
        let streams = known.get(&streams.map_or_else(Vec::new, |streams| streams.0))?;
        let LlOption(ll) = ll;
        Ok(options
            .streams(streams)
            .inline(inline)
            .stream_waits(stream_waits.then_some(true))
            .ll((ll != Ll::Auto).then_some(ll)))
    }
}

/// The value of `ll=`: which messages use the LL (low-latency) protocol.
pub(crate) struct LlOption(Ll);

impl From<Ll> for LlOption {
    fn from(ll: Ll) -> Self {
        Self(ll)
    }
}

impl<'py> ArgumentType<'py> for LlOption {
    fn plural() -> String {
        "numbers of bytes".to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        bytes_or(object, [Ll::Auto, Ll::Never], Ll::UpTo).map(Self)
    }
}

/// A number of bytes, or one of the two words.
fn bytes_or<T>(
    object: &Bound<'_, PyAny>,
    [auto, never]: [T; 2],
    of: impl FnOnce(usize) -> T,
) -> Result<T, Refusal> {
    const WANTED: &str = "a number of bytes, from 1, 'never' or 'auto'";
    let value = || Refusal::wrong_value(format!("{WANTED} is wanted, not {}", shown_in_message(object)));
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
