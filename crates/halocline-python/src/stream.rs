//! Streams of other libraries.

use crate::argument::{Argument, ArgumentType, Get, Refusal, class_of, shown_in_message};
use crate::array::library_of;
use crate::error;
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
    fn new(handle: Argument<usize>) -> PyResult<Self> {
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

/// The attribute that holds the handle of a stream: `ptr` (CuPy) or `cuda_stream` (PyTorch).
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

/// Classes of streams and their attribute, most recent last. A missing attribute costs an exception and a method costs a call, each more
/// than all other Python work of an exchange.
static CLASSES: Mutex<Vec<(Py<PyType>, Attribute)>> = Mutex::new(Vec::new());

/// The most classes in [`CLASSES`].
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
    // Dropping a class may run any Python code, so no lock is held.
    drop(oldest);
}

/// The handle of a stream object of any library.
pub(crate) fn handle(stream: &Bound<'_, PyAny>) -> Result<usize, Refusal> {
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
    // Only the attributes of CuPy and PyTorch are known to equal what `__cuda_stream__` returns.
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
        return Err(Refusal::wrong_type(format!("the class {name} is no stream; give an instance")));
    }
    if let Some(protocol) = stream.getattr_opt(intern!(stream.py(), "__cuda_stream__"))? {
        // A method; in numba and older drafts of the protocol a property.
        let pair = if protocol.is_callable() { protocol.call0()? } else { protocol };
        return match pair.extract::<(i64, usize)>() {
            Ok((0, handle)) => Ok(handle),
            Ok((version, _)) => Err(Refusal::wrong_type(format!(
                "__cuda_stream__ returns version {version}; only version 0 is supported, so return (0, handle)"
            ))),
            Err(_) => Err(Refusal::wrong_type(format!(
                "__cuda_stream__ must return (0, handle), not {}",
                shown_in_message(&pair)
            ))),
        };
    }
    for attribute in [Attribute::Ptr, Attribute::CudaStream] {
        if let Some(handle) = attribute.of(stream)? {
            return Ok(handle);
        }
    }
    Err(Refusal::wrong_type(format!(
        "{} is no stream; give None (the null stream), an object with __cuda_stream__() (version 0), with .ptr (CuPy) or \
         .cuda_stream (PyTorch), or halocline.Stream(handle)",
        class_of(stream)
    )))
}

/// Refuses an object that is no stream.
#[pyfunction(name = "_check_stream")]
pub(crate) fn check_stream(stream: &Bound<'_, PyAny>) -> PyResult<()> {
    handle(stream).map(drop).map_err(|refusal| refusal.of("stream"))
}

/// The number of GPUs; initialises the CUDA driver, but makes no context.
#[pyfunction(name = "_gpus")]
pub(crate) fn gpus(py: Python<'_>) -> usize {
    py.detach(|| cuda::inventory().map_or(0, |inventory| inventory.gpus.len()))
}

/// One stream.
pub(crate) struct Handle(pub(crate) usize);

impl<'py> ArgumentType<'py> for Handle {
    const PLURAL: &'static str = "streams";

    fn of(stream: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        handle(stream).map(Self)
    }
}

/// The stream of a handle on a GPU.
pub(crate) fn borrow(handle: usize, gpu: u32) -> PyResult<Stream> {
    let device = cuda::device(gpu).map_err(error::of)?;
    // SAFETY: the program keeps a stream alive while it uses it, as the documentation says; the driver refuses a number that is no handle.
    unsafe { device.borrow_stream(RawStream(handle)) }.map_err(error::of)
}

/// One stream or a sequence of them.
pub(crate) struct Handles(pub(crate) Vec<usize>);

impl Handles {
    /// The streams of a call; the null stream by default.
    #[inline]
    pub(crate) fn of_call(stream: Option<Argument<Self>>) -> PyResult<Vec<usize>> {
        Ok(stream.get("stream")?.map_or_else(|| vec![0], |handles| handles.0))
    }
}

impl<'py> ArgumentType<'py> for Handles {
    const PLURAL: &'static str = "streams";

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

/// The devices of an object's fields, and the streams used with it so far.
#[derive(Default)]
pub(crate) struct Streams {
    devices: Vec<Device>,
    met: Mutex<Vec<(usize, Vec<Arc<Stream>>)>>,
}

impl Streams {
    /// The most handles that are remembered.
    const REMEMBERED: usize = 8;

    pub(crate) fn of(devices: Vec<Device>) -> Self {
        Self { devices, met: Mutex::default() }
    }

    /// The streams of these handles; the null stream stands for that of each device. Empty if all fields are host fields.
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
        // SAFETY: the program keeps a stream alive while it uses it with the exchange, as the documentation says; the driver refuses
        // a number that is no handle.
        let borrow = |device: &Device| unsafe { device.borrow_stream(RawStream(handle)) }.map(Arc::new);
        if handle == 0 {
            return self.devices.iter().map(borrow).collect::<Result<_, _>>().map_err(error::of);
        }
        let Some((first, others)) = self.devices.split_first() else { return Ok(Vec::new()) };
        let found = others.iter().fold(borrow(first), |tried, device| tried.or_else(|_| borrow(device)));
        Ok(vec![found.map_err(error::of)?])
    }
}
