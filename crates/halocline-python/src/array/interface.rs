//! `__array_interface__` and `__cuda_array_interface__`, both version 3.

use super::{Described, dlpack, element};
use crate::argument::{Argument, Get, List, shown_in_message};
use crate::error;
use crate::process_local::ProcessLocal;
use halocline::device::{Address, MemorySpace, Place, cuda};
use halocline::{Device, DeviceError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ignores the producer's stream that the interface may name: exchanges are ordered by the streams of their call.
pub(super) fn cuda(array: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>) -> PyResult<Described> {
    let mut described = host(array, interface)?;
    described.device = Some(match described.extents.contains(&0) {
        // The address of an empty array means nothing.
        true => device_of_nothing(array)?,
        false if described.base == 0 => return Err(super::null_address()),
        false => device_of(interface.py(), described.base)?,
    });
    Ok(described)
}

/// The GPU of the last array, kept open for later queries.
type Kept = Option<ProcessLocal<Arc<Device>>>;

fn kept() -> MutexGuard<'static, Kept> {
    // Locked only briefly and by attached threads, so no fork happens while it is locked.
    static KEPT: Mutex<Kept> = Mutex::new(None);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The GPU of an empty array: as DLPack says, else the GPU of the last array, else GPU 0.
fn device_of_nothing(array: &Bound<'_, PyAny>) -> PyResult<u32> {
    if array.hasattr(intern!(array.py(), "__dlpack_device__"))?
        && let Some(device) = dlpack::gpu_of(array)?
    {
        return Ok(device);
    }
    let known = kept().as_ref().and_then(|device| device.get().ok().cloned());
    Ok(known.map_or(0, |device| device.ordinal()))
}

/// The GPU of an address. The query uses the GPU of the last array, which is kept open, since opening a GPU is slow and may create a
/// context. The first query, or one after a failure, uses GPU 0.
fn device_of(py: Python<'_>, base: usize) -> PyResult<u32> {
    let of = |error: DeviceError| error::of(halocline::Error::from(error));
    let known = kept().as_ref().and_then(|device| device.get().ok().cloned());
    let find = |device: &Device| device.place_of(base as Address);
    let (place, opened) = py
        .detach(|| match known.as_deref().map(find) {
            Some(Ok(place)) => Ok((place, None)),
            // The first call starts CUDA.
            _ => match cuda::device(0).and_then(|device| find(&device))? {
                place @ Place { space: MemorySpace::Device(ordinal), .. } => {
                    Ok((place, Some(cuda::device(ordinal)?)))
                }
                place => Ok((place, None)),
            },
        })
        .map_err(of)?;
    if let Some(opened) = opened {
        let before = kept().replace(ProcessLocal::new(Arc::new(opened)));
        drop(before);
    }
    match place.space {
        MemorySpace::Device(ordinal) => Ok(ordinal),
        other => {
            Err(error::type_error(format!("__cuda_array_interface__ describes {other}, not GPU memory")))
        }
    }
}

/// The part that is common to both interfaces, which is all of the host's.
pub(super) fn host<'py>(array: &Bound<'_, PyAny>, interface: &Bound<'py, PyAny>) -> PyResult<Described> {
    let py = interface.py();
    let interface = interface.cast::<PyDict>().map_err(|_| {
        error::type_error(format!("the array interface must be a dict, not {}", shown_in_message(interface)))
    })?;
    let item = |name: &Bound<'py, PyString>| -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(interface.get_item(name)?.filter(|value| !value.is_none()))
    };
    let wanted = |name: &Bound<'py, PyString>| -> PyResult<Bound<'py, PyAny>> {
        item(name)?.ok_or_else(|| {
            error::type_error(format!("the array interface lacks \"{name}\", which version 3 requires"))
        })
    };
    if item(intern!(py, "mask"))?.is_some() {
        return Err(error::type_error(
            "the array interface has a \"mask\"; give the data and the mask as two fields",
        ));
    }
    let extents = Argument::<List<usize>>::from(&wanted(intern!(py, "shape"))?).get("shape")?.0;
    let strides = item(intern!(py, "strides"))?
        .map(|strides| Argument::<List<isize>>::from(&strides).get("strides").map(|list| list.0));
    let strides = strides.transpose()?;
    let typestr = Argument::<String>::from(&wanted(intern!(py, "typestr"))?).get("typestr")?;
    let element = element::of_typestr(&typestr)?;
    let name = match item(intern!(py, "descr"))? {
        // A dtype says more: see `describe`.
        Some(members) if typestr.contains('V') && super::dtype_of(array)?.is_none() => {
            element::name_of(&element::dtype_of_members(&members)?)?
        }
        _ => element::name(&typestr),
    };
    let (base, is_read_only) = wanted(intern!(py, "data"))?.extract::<(usize, bool)>().map_err(|_| {
        error::type_error("the \"data\" of the array interface must be (address, is_read_only); an interface of a buffer is not supported")
    })?;
    let is_writable = !is_read_only;
    Ok(Described {
        base,
        element,
        name,
        extents,
        strides,
        is_writable,
        device: None,
        owner: None,
        is_tensor: false,
    })
}
