//! DLPack, with and without a version. The capsule is held, not consumed; dropping it frees the tensor.

use super::{Described, element, library_of};
use crate::argument::shown_in_message;
use crate::error;
use halocline::ElementType;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi::c_str;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::c_void;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned`, up to the tensor.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

const READ_ONLY: u64 = 1;
const COPIED: u64 = 2;
const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

/// The names in `ml_dtypes` of the one-byte floats, which have the codes 7 to 14.
fn float8(code: u8) -> Option<&'static str> {
    const NAMES: [&str; 8] = [
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ];
    NAMES.get(usize::from(code.checked_sub(7)?)).copied()
}

/// Whether an array is a PyTorch tensor of one-byte floats; some versions do not export these by DLPack.
fn is_float8_of_torch(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_of_torch = library_of(array, &["torch"])?.is_some();
    let dtype = array.getattr_opt(intern!(array.py(), "dtype"))?;
    Ok(is_of_torch
        && dtype.map_or(Ok(false), |dtype| Ok::<_, PyErr>(dtype.str()?.to_string().contains("float8")))?)
}

/// The type and number of an array's device.
fn device_of(array: &Bound<'_, PyAny>) -> PyResult<(i32, i64)> {
    let refused = |error| error::refused(array.py(), error, "the array refuses __dlpack_device__");
    let device = array.call_method0("__dlpack_device__").map_err(refused)?;
    device.extract().map_err(|_| {
        error::type_error(format!(
            "__dlpack_device__ must return two whole numbers, not {}",
            shown_in_message(&device)
        ))
    })
}

/// The ordinal of an array's GPU; none for other devices.
pub(super) fn gpu_of(array: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let (kind, ordinal) = device_of(array)?;
    Ok(matches!(kind, CUDA | CUDA_MANAGED).then(|| u32::try_from(ordinal).unwrap_or(0)))
}

pub(super) fn describe(array: &Bound<'_, PyAny>) -> PyResult<Described> {
    let capsule = capsule_of(array)?;
    let (tensor, flags) = tensor_of(&capsule)?;
    if flags & COPIED != 0 {
        return Err(error::type_error(
            "DLPack gives only a copy of the array, which an exchange would write to no effect; give the array itself",
        ));
    }
    let size = match (tensor.bits, tensor.lanes) {
        (bits, 1) if bits % 8 == 0 => usize::from(bits / 8),
        (bits, lanes) => {
            return Err(error::type_error(format!(
                "DLPack elements of {bits} bits in {lanes} lanes are not supported"
            )));
        }
    };
    let as_given = format!("DLPack code {} of {} bits", tensor.code, tensor.bits);
    let dimensions = usize::try_from(tensor.ndim).unwrap_or(0);
    let list = |first: *const i64| match dimensions {
        0 => Vec::new(),
        // SAFETY: by DLPack the pointer has `ndim` entries while the capsule lives, which `capsule` holds.
        _ => unsafe { std::slice::from_raw_parts(first, dimensions) }.to_vec(),
    };
    let in_bytes = |stride: i64| stride as isize * size as isize;
    let device = match tensor.device_type {
        CPU | CUDA_HOST => None,
        CUDA | CUDA_MANAGED => Some(u32::try_from(tensor.device_id).unwrap_or(0)),
        other => {
            return Err(error::type_error(format!(
                "memory of DLPack's device type {other} is not supported; the host's and CUDA's is"
            )));
        }
    };
    Ok(Described {
        base: tensor.data.addr().wrapping_add(tensor.byte_offset as usize),
        element: element_of(tensor.code, size, &as_given)?,
        extents: list(tensor.shape).into_iter().map(|n| usize::try_from(n).unwrap_or(0)).collect(),
        strides: (!tensor.strides.is_null())
            .then(|| list(tensor.strides).into_iter().map(in_bytes).collect()),
        name: Some(float8(tensor.code).map_or(as_given, str::to_owned)),
        is_writable: flags & READ_ONLY == 0,
        device,
        owner: Some(capsule.into_any().unbind()),
        is_tensor: false,
    })
}

/// The capsule of an array.
fn capsule_of<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = array.py();
    let (device, _) = device_of(array)?;
    let arguments = PyDict::new(py);
    arguments.set_item("max_version", (1, 0))?;
    if device == CUDA || device == CUDA_MANAGED {
        // -1: the producer does not synchronise; exchanges are ordered by their own streams.
        arguments.set_item("stream", -1)?;
    }
    let capsule = match array.call_method("__dlpack__", (), Some(&arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            // The library predates versions of DLPack.
            arguments.del_item("max_version")?;
            array.call_method("__dlpack__", (), Some(&arguments))
        }
        other => other,
    };
    let capsule = capsule.map_err(|error| {
        let refusal = error::refused(py, error, "the array refuses __dlpack__");
        match is_float8_of_torch(array) {
            Ok(true) => error::suffixed(py, refusal, "; give its bytes: tensor.view(torch.uint8)"),
            Ok(false) => refusal,
            Err(error) => error,
        }
    })?;
    capsule.cast_into().map_err(|refused| {
        let shown = shown_in_message(&refused.into_inner());
        error::type_error(format!("__dlpack__ must return a capsule, not {shown}"))
    })
}

/// The tensor in a capsule, and its flags.
fn tensor_of<'a>(capsule: &'a Bound<'_, PyCapsule>) -> PyResult<(&'a Tensor, u64)> {
    let versioned = c_str!("dltensor_versioned");
    if capsule.is_valid_checked(Some(versioned)) {
        let managed = capsule.pointer_checked(Some(versioned))?.cast::<Versioned>();
        // SAFETY: by DLPack a capsule of this name points to this struct while it lives, and the result borrows the capsule. The
        // fields up to the version are the same in all versions.
        let Versioned { major, flags, tensor, .. } = unsafe { managed.as_ref() };
        return match major {
            1 => Ok((tensor, *flags)),
            _ => Err(error::type_error(format!(
                "DLPack version {major} is not supported; give an array of a library that supports version 1"
            ))),
        };
    }
    // A consumed capsule has another name.
    let unversioned = c_str!("dltensor");
    if !capsule.is_valid_checked(Some(unversioned)) {
        return Err(error::type_error(format!(
            "__dlpack__ returns a capsule that is no tensor, or was consumed: {capsule}"
        )));
    }
    let pointer = capsule.pointer_checked(Some(unversioned))?.cast::<Tensor>();
    // SAFETY: by DLPack a capsule of this name points to a struct that begins with the tensor, while the capsule lives, and the result
    // borrows the capsule.
    Ok((unsafe { pointer.as_ref() }, 0))
}

fn element_of(code: u8, size: usize, as_given: &str) -> PyResult<ElementType> {
    match (code, size) {
        (0, _) => element::of('i', size, as_given),
        (1, _) => element::of('u', size, as_given),
        (2, _) => element::of('f', size, as_given),
        (4, 2) => Ok(ElementType::Bf16),
        (5, _) => element::of('c', size, as_given),
        (6, _) => element::of('b', size, as_given),
        (7..=14, 1) => Ok(ElementType::Opaque(1)),
        _ => Err(error::type_error(format!("{as_given} is no type of elements that can be exchanged"))),
    }
}
