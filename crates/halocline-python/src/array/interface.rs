//! `__array_interface__` and `__cuda_array_interface__`, both version 3.

use super::{Described, element};
use crate::error;
use crate::given::{Given, List};
use crate::owned::Owned;
use halocline::device::{Address, MemorySpace, Place, cuda};
use halocline::{Device, DeviceError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) fn host(interface: &Bound<'_, PyAny>) -> PyResult<Described> {
    let described = common(interface)?;
    if described.owner.is_some() {
        return Err(error::kind("an array interface without an address (data: a buffer) is not supported"));
    }
    Ok(described)
}

/// The stream that it may name is that of its producer; who exchanges says which streams count.
pub(super) fn cuda(interface: &Bound<'_, PyAny>) -> PyResult<Described> {
    let mut described = common(interface)?;
    described.device = Some(device_of(interface.py(), described.base)?);
    Ok(described)
}

/// Which GPU an address belongs to. A GPU that had memory before is asked, and kept open for that: to open one takes long, and makes
/// a context where there is none. Only the first time, and where that one has failed, it is GPU 0, whoever uses that.
fn device_of(py: Python<'_>, base: usize) -> PyResult<u32> {
    // Held for a moment by threads that are attached, so that no fork meets it locked.
    static KEPT: Mutex<Option<Owned<Arc<Device>>>> = Mutex::new(None);
    let of = |error: DeviceError| error::of(halocline::Error::from(error));
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
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
        other => Err(error::kind(format!(
            "__cuda_array_interface__ tells of memory that is {other:?}, not a GPU's"
        ))),
    }
}

fn common<'py>(interface: &Bound<'py, PyAny>) -> PyResult<Described> {
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
    let extents = wanted(intern!(py, "shape"))?.extract::<Given<List<usize>>>()?.get(py, "shape")?.0;
    let strides = item(intern!(py, "strides"))?
        .map(|strides| strides.extract::<Given<List<isize>>>()?.get(py, "strides").map(|list| list.0));
    let strides = strides.transpose()?;
    let typestr = wanted(intern!(py, "typestr"))?.extract::<Given<String>>()?.get(py, "typestr")?;
    let element = element::of_typestr(&typestr)?;
    let members = item(intern!(py, "descr"))?;
    let name = element::name(&typestr, members.as_ref())?;
    let data = item(intern!(py, "data"))?;
    let (base, is_read_only, owner) = match data.as_ref().map(|data| data.extract::<(usize, bool)>()) {
        Some(Ok((base, is_read_only))) => (base, is_read_only, None),
        _ => (0, false, data.clone().map(Bound::unbind)),
    };
    if data.is_none() {
        return Err(error::kind("the array interface has no \"data\""));
    }
    Ok(Described { base, element, name, extents, strides, is_writable: !is_read_only, device: None, owner })
}
