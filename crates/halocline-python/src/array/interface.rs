//! `__array_interface__` and `__cuda_array_interface__`, both version 3.

use super::{Described, dlpack, element};
use crate::error;
use crate::given::{Get, Given, List};
use crate::owned::Owned;
use halocline::device::{Address, MemorySpace, Place, cuda};
use halocline::{Device, DeviceError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The stream that it may name is that of its producer; who exchanges says which streams count.
pub(super) fn cuda(array: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>) -> PyResult<Described> {
    let mut described = host(interface)?;
    described.device = Some(match described.extents.contains(&0) {
        // Its address is 0, or that of something else.
        true => device_of_nothing(array)?,
        false if described.base == 0 => return Err(super::at_address_0()),
        false => device_of(interface.py(), described.base)?,
    });
    Ok(described)
}

/// A GPU whose memory was asked for before, and kept open for that.
type Kept = Option<Owned<Arc<Device>>>;

fn kept() -> MutexGuard<'static, Kept> {
    // Held for a moment by threads that are attached, so that no fork meets it locked.
    static KEPT: Mutex<Kept> = Mutex::new(None);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which GPU an array without elements is on: as DLPack says, else the one that had memory before, else GPU 0.
fn device_of_nothing(array: &Bound<'_, PyAny>) -> PyResult<u32> {
    if array.hasattr(intern!(array.py(), "__dlpack_device__"))?
        && let Some(device) = dlpack::gpu_of(array)?
    {
        return Ok(device);
    }
    let known = kept().as_ref().and_then(|device| device.get().ok().cloned());
    Ok(known.map_or(0, |device| device.ordinal()))
}

/// Which GPU an address belongs to. A GPU that had memory before is asked, and kept open for that: to open one takes long, and makes
/// a context where there is none. Only the first time, and where that one has failed, it is GPU 0, whoever uses that.
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
        let before = kept().replace(Owned::new(Arc::new(opened)));
        drop(before);
    }
    match place.space {
        MemorySpace::Device(ordinal) => Ok(ordinal),
        other => {
            Err(error::kind(format!("__cuda_array_interface__ tells of {other}, not of a GPU's memory")))
        }
    }
}

/// What both say alike; of the host it is all.
pub(super) fn host<'py>(interface: &Bound<'py, PyAny>) -> PyResult<Described> {
    let py = interface.py();
    let interface = interface.cast::<PyDict>().map_err(|_| error::kind("an array interface is a dict"))?;
    let item = |name: &Bound<'py, PyString>| -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(interface.get_item(name)?.filter(|value| !value.is_none()))
    };
    let wanted = |name: &Bound<'py, PyString>| -> PyResult<Bound<'py, PyAny>> {
        item(name)?.ok_or_else(|| error::kind(format!("the array interface has no \"{name}\"")))
    };
    if item(intern!(py, "mask"))?.is_some() {
        return Err(error::kind("an array with a mask is two arrays; exchange them as two fields"));
    }
    let extents = Given::<List<usize>>::from(&wanted(intern!(py, "shape"))?).get("shape")?.0;
    let strides = item(intern!(py, "strides"))?
        .map(|strides| Given::<List<isize>>::from(&strides).get("strides").map(|list| list.0));
    let strides = strides.transpose()?;
    let typestr = Given::<String>::from(&wanted(intern!(py, "typestr"))?).get("typestr")?;
    let element = element::of_typestr(&typestr)?;
    let members = item(intern!(py, "descr"))?;
    let name = element::name(&typestr, members.as_ref())?;
    let (base, is_read_only) = wanted(intern!(py, "data"))?.extract::<(usize, bool)>().map_err(|_| {
        error::kind("an array interface without an address (data: a buffer) is not supported")
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
