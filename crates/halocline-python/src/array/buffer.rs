//! The buffer protocol, as NumPy reads it.

use super::Described;
use crate::error;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// Describes an array by the buffer protocol; none if it has no buffer. The owner holds the buffer: the exporter must not move or free its
/// memory before the owner is dropped.
pub(super) fn describe(array: &Bound<'_, PyAny>) -> PyResult<Option<Described>> {
    let py = array.py();
    let view = match PyMemoryView::from(array) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => return Ok(None),
        view => view.map_err(|error| error::refused(py, error, "the array refuses its buffer"))?,
    };
    // NumPy before 1.23 takes the pointers for elements.
    if view.getattr(intern!(py, "suboffsets"))?.len()? != 0 {
        return Err(error::type_error(
            "the buffer has suboffsets: its elements lie behind pointers; give an array whose elements lie in one block of memory, as \
             those of NumPy do",
        ));
    }
    let format: String = view.getattr(intern!(py, "format"))?.extract()?;
    let size: usize = view.getattr(intern!(py, "itemsize"))?.extract()?;
    if format == "B" && size != 1 {
        return Err(error::type_error(format!(
            "elements of {size} bytes that are a union, or a packed record, of ctypes may have addresses: the buffer does not say what \
             they are; give numpy.frombuffer(array, dtype), which does"
        )));
    }
    let read = py.import("numpy")?.call_method1("asarray", (&view,)).map_err(|error| {
        if !error.is_instance_of::<PyException>(py) {
            return error;
        }
        let refusal = error::type_error(format!(
            "NumPy cannot read the buffer of elements of format {format}, which may contain addresses ({}); if they contain none, give \
             numpy.frombuffer(array, dtype)",
            error.value(py)
        ));
        refusal.set_cause(py, Some(error));
        refusal
    })?;
    let described = super::describe(&read)?;
    Ok(Some(Described { owner: Some(read.unbind()), ..described }))
}
