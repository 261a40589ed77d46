//! The Python package `halocline`: foreign arrays, streams and communicators, and nothing else.

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _core(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
