//! Streams of other libraries.

use crate::error;
use crate::given::Typed;
use halocline::device::{RawStream, cuda};
use halocline::{Device, Stream};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A stream given by its handle.
#[pyclass(frozen, module = "halocline", name = "Stream")]
pub(crate) struct PyStream {
    #[pyo3(get)]
    ptr: usize,
}

#[pymethods]
impl PyStream {
    #[new]
    fn new(handle: Typed<usize>) -> Self {
        let Typed(handle) = handle;
        Self { ptr: handle }
    }

    fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.ptr)
    }

    fn __repr__(&self) -> String {
        format!("Stream({:#x})", self.ptr)
    }
}

/// The handle of anything that is a stream.
fn handle(stream: &Bound<'_, PyAny>) -> PyResult<usize> {
    if stream.is_none() {
        return Ok(0);
    }
    if let Ok(stream) = stream.cast::<PyStream>() {
        return Ok(stream.get().ptr);
    }
    if let Some(protocol) = stream.getattr_opt("__cuda_stream__")? {
        // A method; numba and older drafts have a property.
        let pair = if protocol.is_callable() { protocol.call0()? } else { protocol };
        return match pair.extract::<(i64, usize)>() {
            Ok((0, handle)) => Ok(handle),
            Ok((version, _)) => {
                Err(error::kind(format!("version {version} of __cuda_stream__ is not known, version 0 is")))
            }
            Err(_) => Err(error::kind("__cuda_stream__ is to give (0, handle)")),
        };
    }
    for name in ["ptr", "cuda_stream"] {
        if let Some(number) = stream.getattr_opt(name)?
            && let Ok(number) = number.extract::<usize>()
        {
            return Ok(number);
        }
    }
    Err(error::kind(format!(
        "{} is no stream; give None (the null stream), an object with __cuda_stream__() (version 0), with .ptr (CuPy) or \
         .cuda_stream (PyTorch), or halocline.Stream(handle)",
        stream.get_type().fully_qualified_name()?
    )))
}

/// Refuses what is no stream.
#[pyfunction(name = "_check_stream")]
pub(crate) fn check_stream(stream: &Bound<'_, PyAny>) -> PyResult<()> {
    handle(stream).map(drop)
}

/// How many GPUs CUDA has here; starts its driver, and makes no context.
#[pyfunction(name = "_gpus")]
pub(crate) fn gpus(py: Python<'_>) -> usize {
    py.detach(|| cuda::inventory().map_or(0, |inventory| inventory.gpus.len()))
}

/// One stream or a sequence of them.
pub(crate) fn handles(streams: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    if streams.is_instance_of::<pyo3::types::PyList>() || streams.is_instance_of::<pyo3::types::PyTuple>() {
        return streams.try_iter()?.map(|stream| handle(&stream?)).collect();
    }
    Ok(vec![handle(streams)?])
}

/// Streams met before, of the devices that an object has fields on.
#[derive(Default)]
pub(crate) struct Streams {
    devices: Vec<Device>,
    met: Mutex<Vec<(usize, Vec<Arc<Stream>>)>>,
}

impl Streams {
    /// Streams that are remembered.
    const REMEMBERED: usize = 8;

    pub(crate) fn of(devices: Vec<Device>) -> Self {
        Self { devices, met: Mutex::default() }
    }

    /// What handles stand for: the null stream is that of each device. Nothing where there are only host fields.
    pub(crate) fn get(&self, handles: &[usize]) -> PyResult<Vec<Arc<Stream>>> {
        let mut streams = Vec::new();
        if self.devices.is_empty() {
            return Ok(streams);
        }
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        for &handle in handles {
            let known = match met.iter().find(|(known, _)| *known == handle) {
                Some((_, known)) => known.clone(),
                None => {
                    let found = self.find(handle)?;
                    if met.len() == Self::REMEMBERED {
                        met.remove(0);
                    }
                    met.push((handle, found.clone()));
                    found
                }
            };
            streams.extend(known);
        }
        Ok(streams)
    }

    fn find(&self, handle: usize) -> PyResult<Vec<Arc<Stream>>> {
        // SAFETY: whoever gives a stream keeps it as long as he uses it; a handle that is none is refused by the driver.
        let borrow = |device: &Device| unsafe { device.borrow_stream(RawStream(handle)) }.map(Arc::new);
        let found = self.devices.iter().map(borrow);
        if handle == 0 {
            return found.collect::<Result<_, _>>().map_err(|error| error::of(halocline::Error::from(error)));
        }
        let mut last = None;
        for stream in found {
            match stream {
                Ok(stream) => return Ok(vec![stream]),
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(
            || error::value("there is no device"),
            |error| error::of(halocline::Error::from(error)),
        ))
    }
}
