//! Streams of other libraries.

use crate::array::library_of;
use crate::error;
use crate::given::{Argument, Get, Given, Refusal, class_of};
use halocline::device::{RawStream, cuda};
use halocline::{Device, Stream};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};
use std::sync::{Arc, Mutex, PoisonError};

#[doc = doc!("Stream")]
#[pyclass(frozen, module = "halocline", name = "Stream")]
pub(crate) struct PyStream {
    #[doc = doc!("Stream.ptr")]
    #[pyo3(get)]
    ptr: usize,
}

#[pymethods]
impl PyStream {
    #[new]
    fn new(handle: Given<usize>) -> PyResult<Self> {
        Ok(Self { ptr: handle.get("handle")? })
    }

    #[doc = doc!("Stream.__cuda_stream__")]
    fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.ptr)
    }

    fn __repr__(&self) -> String {
        format!("Stream({:#x})", self.ptr)
    }
}

/// Attributes that are the handle of a stream, by which of them the streams of a class have it: those of CuPy, and of PyTorch.
#[derive(Clone, Copy)]
enum Attribute {
    Ptr,
    CudaStream,
}

impl Attribute {
    fn of(self, stream: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let py = stream.py();
        let name = match self {
            Self::Ptr => intern!(py, "ptr"),
            Self::CudaStream => intern!(py, "cuda_stream"),
        };
        Ok(stream.getattr_opt(name)?.and_then(|number| number.extract().ok()))
    }
}

/// Classes whose streams have an attribute. An attribute that is not there costs an exception, a method a call: each more than all
/// else of an exchange that comes from Python.
static CLASSES: Mutex<Vec<(Py<PyType>, Attribute)>> = Mutex::new(Vec::new());

/// Classes that are remembered.
const REMEMBERED: usize = 8;

fn attribute_of_class(stream: &Bound<'_, PyAny>) -> Option<Attribute> {
    let classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = classes.iter().find(|(class, _)| class.as_ptr() == stream.get_type_ptr().cast());
    known.map(|(_, attribute)| *attribute)
}

fn remember(stream: &Bound<'_, PyAny>, attribute: Attribute) {
    let entry = (stream.get_type().unbind(), attribute);
    let mut classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
    let oldest = (classes.len() == REMEMBERED).then(|| classes.remove(0));
    classes.push(entry);
    drop(classes);
    // The end of a class may run any Python: with no lock held.
    drop(oldest);
}

/// The handle of anything that is a stream.
fn handle(stream: &Bound<'_, PyAny>) -> Result<usize, Refusal> {
    if stream.is_none() {
        return Ok(0);
    }
    if let Ok(stream) = stream.cast::<PyStream>() {
        return Ok(stream.get().ptr);
    }
    let attribute = attribute_of_class(stream);
    if let Some(attribute) = attribute
        && let Some(handle) = attribute.of(stream)?
    {
        return Ok(handle);
    }
    let handle = handle_by_protocol(stream)?;
    // The method of other libraries may say something else than an attribute of such a name.
    let own = match library_of(stream, &["cupy", "torch"])? {
        Some("cupy") => Some(Attribute::Ptr),
        Some(_) => Some(Attribute::CudaStream),
        None => None,
    };
    if attribute.is_none()
        && let Some(own) = own
        && own.of(stream)? == Some(handle)
    {
        remember(stream, own);
    }
    Ok(handle)
}

fn handle_by_protocol(stream: &Bound<'_, PyAny>) -> Result<usize, Refusal> {
    if let Ok(class) = stream.cast::<PyType>() {
        let name = class.fully_qualified_name().or_else(|_| class.qualname())?;
        return Err(Refusal::kind(format!("the class {name} is no stream; give one that was made of it")));
    }
    if let Some(protocol) = stream.getattr_opt(intern!(stream.py(), "__cuda_stream__"))? {
        // A method; numba and older drafts have a property.
        let pair = if protocol.is_callable() { protocol.call0()? } else { protocol };
        return match pair.extract::<(i64, usize)>() {
            Ok((0, handle)) => Ok(handle),
            Ok((version, _)) => {
                Err(Refusal::kind(format!("version {version} of __cuda_stream__ is not known, version 0 is")))
            }
            Err(_) => Err(Refusal::kind("__cuda_stream__ is to give (0, handle)")),
        };
    }
    for attribute in [Attribute::Ptr, Attribute::CudaStream] {
        if let Some(handle) = attribute.of(stream)? {
            return Ok(handle);
        }
    }
    Err(Refusal::kind(format!(
        "{} is no stream; give None (the null stream), an object with __cuda_stream__() (version 0), with .ptr (CuPy) or \
         .cuda_stream (PyTorch), or halocline.Stream(handle)",
        class_of(stream)
    )))
}

/// Refuses what is no stream.
#[pyfunction(name = "_check_stream")]
pub(crate) fn check_stream(stream: &Bound<'_, PyAny>) -> PyResult<()> {
    handle(stream).map(drop).map_err(|refusal| refusal.of("stream"))
}

/// How many GPUs CUDA has here; starts its driver, and makes no context.
#[pyfunction(name = "_gpus")]
pub(crate) fn gpus(py: Python<'_>) -> usize {
    py.detach(|| cuda::inventory().map_or(0, |inventory| inventory.gpus.len()))
}

/// One stream or a sequence of them.
pub(crate) struct Handles(pub(crate) Vec<usize>);

impl Handles {
    /// Of the stream of a call: the null stream where none is given.
    #[inline]
    pub(crate) fn of_call(stream: Option<Given<Self>>) -> PyResult<Vec<usize>> {
        Ok(stream.get("stream")?.map_or_else(|| vec![0], |handles| handles.0))
    }
}

impl<'py> Argument<'py> for Handles {
    fn several() -> String {
        "streams".to_owned()
    }

    fn of(streams: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        if streams.is_instance_of::<PyList>() || streams.is_instance_of::<PyTuple>() {
            let handles = streams.try_iter()?.enumerate();
            let handle =
                |(at, stream): (usize, PyResult<_>)| handle(&stream?).map_err(|refusal| refusal.at(at));
            return handles.map(handle).collect::<Result<_, _>>().map(Self);
        }
        Ok(Self(vec![handle(streams)?]))
    }
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
            if let Some((_, known)) = met.iter().find(|(known, _)| *known == handle) {
                streams.extend_from_slice(known);
                continue;
            }
            let found = self.find(handle)?;
            streams.extend_from_slice(&found);
            if met.len() == Self::REMEMBERED {
                met.remove(0);
            }
            met.push((handle, found));
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
