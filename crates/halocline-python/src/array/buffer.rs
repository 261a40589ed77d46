//! The buffer protocol. The stable ABI contains it only from Python 3.11 on, but it is unchanged since 3.0, so it is declared here.

use super::{Described, element};
use crate::error;
use halocline::ElementType;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_int, c_void};

#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: isize,
    itemsize: isize,
    readonly: c_int,
    ndim: c_int,
    format: *const c_char,
    shape: *const isize,
    strides: *const isize,
    suboffsets: *const isize,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(exporter: *mut PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

const FORMAT: c_int = 0x4;
const STRIDES: c_int = 0x18;

/// A held buffer; its owner must not move or free the memory before the release.
#[pyclass(frozen, module = "halocline")]
struct Export(Box<View>);

// SAFETY: nobody changes the view after it was filled, and only the drop follows its pointers into Python's memory,
// attached to the interpreter. What else is read of it was copied before.
unsafe impl Send for Export {}
// SAFETY: nobody changes the view after it was filled, and only the drop follows its pointers into Python's memory,
// attached to the interpreter. What else is read of it was copied before.
unsafe impl Sync for Export {}

impl Drop for Export {
    fn drop(&mut self) {
        // SAFETY: `PyObject_GetBuffer` filled the view, which is released once, here. Python drops its objects in
        // threads that are attached.
        unsafe { PyBuffer_Release(&mut *self.0) };
    }
}

/// The meaning of elements that are plain bytes: as NumPy reads their format, or the format itself.
fn name_of(array: &Bound<'_, PyAny>, format: &str) -> PyResult<Option<String>> {
    let py = array.py();
    let read = py.import("numpy")?.call_method1("asarray", (array,)).and_then(|read| read.getattr("dtype"));
    match read {
        Ok(dtype) => element::name_of(&dtype),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(Some(format.to_owned())),
        Err(error) => Err(error),
    }
}

/// Describes an array by the buffer protocol; none if it has no buffer.
pub(super) fn describe(array: &Bound<'_, PyAny>) -> PyResult<Option<Described>> {
    let py = array.py();
    // SAFETY: the struct has numbers and pointers alone, for which zeros are values.
    let mut view = Box::new(unsafe { std::mem::zeroed::<View>() });
    // SAFETY: `array` proves that this thread is attached. The view is in a box, where it stays until it is released.
    let code = unsafe { PyObject_GetBuffer(array.as_ptr(), &mut *view, STRIDES | FORMAT) };
    if code != 0 {
        let error = PyErr::fetch(py);
        return match error.is_instance_of::<PyTypeError>(py) {
            true => Ok(None),
            false => Err(error::refused(py, error, "the array refuses its buffer")),
        };
    }
    let export = Export(view);
    let view = &*export.0;
    let dimensions = view.ndim.max(0) as usize;
    let list = |first: *const isize| match dimensions {
        _ if first.is_null() => None,
        0 => Some(Vec::new()),
        // SAFETY: a buffer whose pointer is not null has as many entries as dimensions, by the buffer protocol, while
        // the view is held.
        _ => Some(unsafe { std::slice::from_raw_parts(first, dimensions) }.to_vec()),
    };
    let itemsize = view.itemsize.max(0) as usize;
    let extents = match list(view.shape) {
        Some(shape) => shape.into_iter().map(|n| n.max(0) as usize).collect(),
        None if dimensions == 0 => Vec::new(),
        // A buffer without a shape is flat.
        None => vec![(view.len.max(0) as usize).checked_div(itemsize).unwrap_or(0)],
    };
    let format = match view.format.is_null() {
        true => "B".into(),
        // SAFETY: by the buffer protocol the format is a C string that lives as long as the view, which `export` holds.
        false => unsafe { CStr::from_ptr(view.format) }.to_string_lossy(),
    };
    let element = element::of_format(&format, itemsize)?;
    let name = match element {
        ElementType::Opaque(_) => name_of(array, &format)?,
        _ => None,
    };
    let described = Described {
        base: view.buf.addr(),
        element,
        name,
        extents,
        strides: list(view.strides),
        is_writable: view.readonly == 0,
        device: None,
        owner: None,
        is_tensor: false,
    };
    Ok(Some(Described { owner: Some(Py::new(py, export)?.into_any()), ..described }))
}
