//! What a bind is told.

use crate::comm::seconds;
use crate::error;
use crate::given::Given;
use halocline::{BindOptions, LinkChoice};
use pyo3::prelude::*;

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
        "mailbox" => LinkChoice::Mailbox,
        "message" => LinkChoice::Message,
        other => {
            return Err(error::value(format!(
                "there is no link {other:?}; choose auto, push, pull, mailbox or message"
            )));
        }
    };
    let deadline = seconds(deadline.map(|deadline| deadline.get(py, "deadline")).transpose()?)?;
    let name = name.map(|name| name.get(py, "name")).transpose()?;
    let checked = checked.map(|checked| checked.get(py, "checked")).transpose()?;
    Ok(BindOptions { link, deadline, name, checked, ..BindOptions::default() })
}

/// Whether a bind with these options is in checked mode, if the library takes them.
pub(crate) fn is_checked(options: &BindOptions) -> bool {
    options.checked.unwrap_or_else(|| std::env::var_os("HALOCLINE_CHECK").is_some_and(|value| value == "1"))
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
