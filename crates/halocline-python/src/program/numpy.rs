//! Arrays of NumPy, read where NumPy keeps them: the start of `PyArrayObject` and `PyArray_Descr`, which its C API promises to every
//! compiled extension. A test array shows once whether they are as expected; if not, arrays are described by their protocol.

use halocline_program::{Device, RawArray, ScalarType};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use std::ffi::{c_char, c_int, c_void};

/// The start of NumPy's `PyArrayObject_fields`.
#[repr(C)]
struct Array {
    head: ffi::PyObject,
    data: *mut c_void,
    dimensions: c_int,
    extents: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    descr: *const Descr,
    flags: c_int,
}

/// The start of NumPy's `PyArray_Descr`.
#[repr(C)]
struct Descr {
    head: ffi::PyObject,
    class: *mut ffi::PyObject,
    kind: c_char,
    code: c_char,
    byte_order: c_char,
    flags: c_char,
    number: c_int,
}

/// `NPY_ARRAY_WRITEABLE`.
const WRITEABLE: c_int = 0x400;

/// `numpy.ndarray`, if its instances are as expected; known once NumPy is imported.
static CLASS: PyOnceLock<Option<Py<PyType>>> = PyOnceLock::new();

/// Whether an object is an array of NumPy that [`parts`] can read: no subclass, which may mean something else by it.
#[inline]
pub(super) fn is_array(object: &Bound<'_, PyAny>) -> bool {
    let class = match CLASS.get(object.py()) {
        Some(class) => class.as_ref(),
        None => first(object.py()),
    };
    class.is_some_and(|class| class.as_ptr() == object.get_type_ptr().cast())
}

/// Whether an object is an instance of a subclass of `numpy.ndarray`.
#[cold]
pub(super) fn is_of_subclass(object: &Bound<'_, PyAny>) -> bool {
    let class = CLASS.get(object.py()).and_then(Option::as_ref);
    class.is_some_and(|class| object.get_type().is_subclass(class.bind(object.py())).unwrap_or(false))
}

/// Looks NumPy up: it is not imported by this package, so that nothing may be known yet.
#[cold]
fn first(py: Python<'_>) -> Option<&Py<PyType>> {
    let find = || -> PyResult<Option<Bound<'_, PyAny>>> {
        py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.get_item("numpy")
    };
    let numpy = find().ok().flatten()?;
    // Another thread may be importing it.
    let class = numpy.getattr("ndarray").ok()?.cast_into::<PyType>().ok()?;
    numpy.getattr("arange").ok()?;
    CLASS.get_or_init(py, || is_expected(&numpy).unwrap_or(false).then(|| class.unbind())).as_ref()
}

/// Whether the parts of a test array are where they are read.
fn is_expected(numpy: &Bound<'_, PyAny>) -> PyResult<bool> {
    let array = numpy.call_method1("zeros", ((3, 5, 7), "int16"))?.call_method1("transpose", ((1, 2, 0),))?;
    let interface = array.getattr("__array_interface__")?;
    let (address, is_read_only): (usize, bool) = interface.get_item("data")?.extract()?;
    let strides: Vec<isize> = array.getattr("strides")?.extract()?;
    let raw = parts(array.as_borrowed());
    let frozen = array.call_method0("copy")?;
    frozen.getattr("flags")?.setattr("writeable", false)?;
    let swapped = numpy.call_method1("zeros", (2, ">f8"))?;
    Ok(!is_read_only
        && raw.address.addr() == address
        && raw.extents == [5, 7, 3]
        && raw.strides == strides
        && raw.is_writable
        && type_of(&array) == Some(ScalarType::Int16)
        && !parts(frozen.as_borrowed()).is_writable
        && type_of(&swapped).is_none())
}

/// The parts of an array; its element type is of [`type_of`].
///
/// The references are to the array's own memory: they are valid while the GIL is held and nothing changes its shape.
#[inline]
pub(super) fn parts<'a>(array: Borrowed<'a, '_, PyAny>) -> RawArray<'a> {
    // SAFETY: the object is an instance of `ndarray`, which begins with these fields.
    let fields = unsafe { &*array.as_ptr().cast::<Array>() };
    let list = |first: *const isize| match usize::try_from(fields.dimensions) {
        // SAFETY: NumPy keeps so many extents and strides in the array.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(first, count) },
        _ => &[],
    };
    RawArray {
        address: fields.data,
        element: ScalarType::UInt8,
        extents: list(fields.extents),
        strides: list(fields.strides),
        device: Device::Host,
        is_writable: fields.flags & WRITEABLE != 0,
    }
}

/// The description of an array at one time.
pub(super) struct Snapshot {
    address: *mut c_void,
    descr: *const Descr,
    flags: c_int,
    extents_and_strides: Box<[isize]>,
}

// SAFETY: the addresses are compared, and never read.
unsafe impl Send for Snapshot {}
// SAFETY: nothing of it changes.
unsafe impl Sync for Snapshot {}

impl Snapshot {
    pub(super) fn of(array: Borrowed<'_, '_, PyAny>) -> Self {
        let parts = parts(array);
        // SAFETY: the object is an instance of `ndarray`, which begins with these fields.
        let fields = unsafe { &*array.as_ptr().cast::<Array>() };
        let extents_and_strides = parts.extents.iter().chain(parts.strides).copied().collect();
        Self { address: fields.data, descr: fields.descr, flags: fields.flags, extents_and_strides }
    }

    /// Whether an array has the same memory, type, extents and strides.
    #[inline]
    pub(super) fn is_of(&self, array: Borrowed<'_, '_, PyAny>) -> bool {
        // SAFETY: the object is an instance of `ndarray`, which begins with these fields.
        let fields = unsafe { &*array.as_ptr().cast::<Array>() };
        if fields.data != self.address || fields.descr != self.descr || fields.flags != self.flags {
            return false;
        }
        let parts = parts(array);
        let (extents, strides) = self.extents_and_strides.split_at(self.extents_and_strides.len() / 2);
        parts.extents.len() == extents.len()
            && parts.extents.iter().zip(extents).all(|(now, then)| now == then)
            && parts.strides.iter().zip(strides).all(|(now, then)| now == then)
    }
}

/// The type of an array's elements; `None` for foreign byte orders, structures, objects and what no program takes.
#[inline]
pub(super) fn type_of(array: &Bound<'_, PyAny>) -> Option<ScalarType> {
    // SAFETY: the object is an instance of `ndarray`, which begins with these fields and has a descriptor.
    let descr = unsafe { &*(*array.as_ptr().cast::<Array>()).descr };
    if descr.byte_order as u8 == if cfg!(target_endian = "little") { b'>' } else { b'<' } {
        return None;
    }
    // `NPY_TYPES`; a long has 64 bits on Linux.
    Some(match descr.number {
        0 => ScalarType::Bool,
        1 => ScalarType::Int8,
        2 => ScalarType::UInt8,
        3 => ScalarType::Int16,
        4 => ScalarType::UInt16,
        5 => ScalarType::Int32,
        6 => ScalarType::UInt32,
        7 | 9 => ScalarType::Int64,
        8 | 10 => ScalarType::UInt64,
        11 => ScalarType::Float32,
        12 => ScalarType::Float64,
        14 => ScalarType::Complex64,
        15 => ScalarType::Complex128,
        23 => ScalarType::Float16,
        _ => return None,
    })
}
