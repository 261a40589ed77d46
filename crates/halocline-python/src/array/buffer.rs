//! The buffer protocol, as NumPy reads it.

use super::{Described, element, is_instance};
use crate::error;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyType};

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
    check_codes(&format)?;
    let record = if format.starts_with("T{") { record_of_ctypes(&view)? } else { None };
    if let Some(record) = &record
        && has_addresses(record)?
    {
        return Err(addresses(&format));
    }
    let numpy = py.import("numpy")?;
    let read = read(&numpy, &view, record.as_ref()).map_err(|error| not_read(py, &format, error))?;
    let described = super::describe(&read)?;
    Ok(Some(Described { owner: Some(read.unbind()), ..described }))
}

/// The type codes of a format. The names of members stand between colons.
fn codes(format: &str) -> impl Iterator<Item = &str> {
    format.split(':').step_by(2)
}

/// Refuses Python objects and addresses.
fn check_codes(format: &str) -> PyResult<()> {
    if codes(format).any(|codes| codes.contains('O')) {
        return Err(element::objects());
    }
    let is_address = |codes: &str, at: usize, code: char| match code {
        'P' | 'z' | '&' | 'X' => true,
        // `Z` is an address, unless it makes the next code complex.
        'Z' => !codes[at + 1..].starts_with(['f', 'd', 'g']),
        _ => false,
    };
    if codes(format).any(|codes| codes.char_indices().any(|(at, code)| is_address(codes, at, code))) {
        return Err(addresses(format));
    }
    Ok(())
}

fn addresses(format: &str) -> PyErr {
    error::type_error(format!(
        "elements of the buffer format {format} contain addresses, which mean nothing in another process; give elements without \
         addresses, or numpy.frombuffer(array, dtype) if they are numbers"
    ))
}

/// The record type of an array of ctypes, or of a record of ctypes; none for other exporters.
fn record_of_ctypes<'py>(view: &Bound<'py, PyMemoryView>) -> PyResult<Option<Bound<'py, PyType>>> {
    let py = view.py();
    let exporter = view.getattr(intern!(py, "obj"))?;
    if !is_instance(&exporter, "ctypes", "Array")? && !is_instance(&exporter, "ctypes", "Structure")? {
        return Ok(None);
    }
    let array = py.import("ctypes")?.getattr("Array")?;
    let mut class = exporter.get_type();
    while class.is_subclass(&array)? {
        class = class.getattr("_type_")?.cast_into::<PyType>()?;
    }
    Ok(Some(class))
}

/// Whether elements of a type of ctypes contain addresses. A format does not describe members that are unions or packed records, and NumPy
/// reads addresses there as numbers.
fn has_addresses(class: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = class.py();
    let mut is_record = false;
    for base in class.getattr(intern!(py, "__mro__"))?.try_iter()? {
        let Some(members) = base?.getattr_opt(intern!(py, "_fields_"))? else { continue };
        is_record = true;
        for member in members.try_iter()? {
            if has_addresses(&member?.get_item(1)?)? {
                return Ok(true);
            }
        }
    }
    match class.getattr_opt(intern!(py, "_type_"))? {
        _ if is_record => Ok(false),
        Some(element) if class.hasattr(intern!(py, "_length_"))? => has_addresses(&element),
        // A number has a code; the type of a pointer is a class.
        Some(code) => Ok(code.extract::<String>().map_or(true, |code| "PzZXO".contains(&code))),
        // A pointer to a function.
        None => Ok(true),
    }
}

/// The NumPy array of a buffer; it holds the buffer.
fn read<'py>(
    numpy: &Bound<'py, PyModule>,
    view: &Bound<'py, PyMemoryView>,
    record: Option<&Bound<'py, PyType>>,
) -> PyResult<Bound<'py, PyAny>> {
    // The format of ctypes may omit the padding at the end of a record. `asarray` warns of that, and a filter may make the warning an
    // error. A filter of this package would be shared with all other threads.
    if let Some(record) = record
        && view.getattr("c_contiguous")?.is_truthy()?
    {
        let dtype = numpy.call_method1("dtype", (record,))?;
        let size: usize = view.getattr("itemsize")?.extract()?;
        let size_in_numpy: usize = dtype.getattr("itemsize")?.extract()?;
        if size_in_numpy != size {
            let why = format!("records of {size} bytes have {size_in_numpy} as NumPy reads their type");
            return Err(PyValueError::new_err(why));
        }
        let elements = numpy.call_method1("frombuffer", (view, dtype))?;
        return elements.call_method1("reshape", (view.getattr("shape")?,));
    }
    numpy.call_method1("asarray", (view,))
}

/// The refusal of a buffer that NumPy does not read.
fn not_read(py: Python<'_>, format: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let refusal = error::type_error(format!(
        "NumPy does not read the buffer format {format} ({}); give numpy.frombuffer(array, dtype)",
        error.value(py)
    ));
    refusal.set_cause(py, Some(error));
    refusal
}
