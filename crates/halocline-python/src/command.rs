//! `python -m halocline`, and what the library has to say.

use pyo3::prelude::*;
use std::ffi::OsString;
use std::sync::Once;

/// Runs the command; the first argument is its name. `again`: how to start it again.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>, again: Vec<OsString>) -> u8 {
    py.detach(|| halocline_cli::run(args, Some(again)))
}

/// Sends the messages of the library to stderr from now on: warnings, or the level in `HALOCLINE_LOG`.
pub(crate) fn listen() -> PyResult<()> {
    static LISTEN: Once = Once::new();
    let mut outcome = Ok(());
    LISTEN.call_once(|| {
        outcome = halocline_cli::listen().map_err(|error| crate::error::value_error(error.to_string()))
    });
    outcome
}
