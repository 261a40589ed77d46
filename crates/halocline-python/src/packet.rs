//! Packets: metadata and a payload in memory of the program, sent from where it lies.

use crate::argument::{Argument, Bytes, Get, accept};
use crate::array::{PayloadMemory, payload_of};
use crate::error;
use crate::process_local::{DropMayBlock, KeepAlive, ProcessLocal};
use crate::stream::Handles;
use halocline::device::{RawStream, cuda};
use halocline::{Buffer, Device, DeviceError, MemoryKind, Packet};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ptr::NonNull;

#[doc = doc!("Packet")]
#[pyclass(frozen, module = "halocline", name = "Packet")]
pub(crate) struct PyPacket {
    #[doc = doc!("Packet.metadata")]
    #[pyo3(get)]
    metadata: Py<PyBytes>,
    #[doc = doc!("Packet.payload")]
    #[pyo3(get)]
    payload: Option<Py<PyAny>>,
    /// Where the payload lies.
    memory: Option<PayloadMemory>,
    /// The streams that write a payload on a device.
    streams: Vec<usize>,
}

impl PyPacket {
    /// A packet with a payload alone.
    fn of_payload(payload: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = Some(payload_of(payload)?);
        let metadata = PyBytes::new(payload.py(), &[]).unbind();
        Ok(Self { metadata, payload: Some(payload.clone().unbind()), memory, streams: vec![0] })
    }

    /// A packet as the library has it, whose payload lies in the memory of this object's.
    fn to_send(this: &Bound<'_, Self>) -> PyResult<Packet> {
        let packet = this.get();
        let metadata = packet.metadata.as_bytes(this.py()).to_vec();
        let Some(memory) = &packet.memory else { return Ok(Packet::new(metadata, None)) };
        if memory.is_resizable
            && let Some(payload) = &packet.payload
        {
            // A tensor may have moved since.
            let found = payload_of(payload.bind(this.py()))?;
            if (found.address, found.bytes) != (memory.address, memory.bytes) {
                return Err(error::value_error(
                    "payload: the array has moved or was resized since the packet was made; make another packet",
                ));
            }
        }
        let owner = KeepAlive::plain(this.as_any());
        let payload = match memory.device {
            None => {
                let first = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(memory.address));
                // SAFETY: by the array's protocol the bytes are valid as long as the array, which the packet holds and `owner`
                // holds the packet. The documentation of the package obliges the program not to write them meanwhile.
                unsafe { Buffer::foreign(first.unwrap_or(NonNull::dangling()), memory.bytes, owner) }
            }
            Some(ordinal) => packet.on_device(ordinal, memory, owner)?,
        };
        Ok(Packet::new(metadata, Some(payload)))
    }

    /// The payload on a device, ready after what its streams have now.
    fn on_device(&self, ordinal: u32, memory: &PayloadMemory, owner: KeepAlive) -> PyResult<Buffer> {
        let device = cuda::device(ordinal).map_err(error::of)?;
        let address = memory.address as halocline::device::Address;
        // SAFETY: by the array's protocol the memory is valid as long as the array, which the packet holds and `owner` holds the
        // packet. The documentation of the package obliges the program to order its accesses by the packet's streams.
        let buffer = unsafe { Buffer::foreign_device(address, memory.bytes, &device, owner) };
        ready_after(buffer, &device, &self.streams).map_err(error::of)
    }

    /// A received packet.
    pub(crate) fn received(py: Python<'_>, packet: Packet) -> PyResult<Py<Self>> {
        let metadata = PyBytes::new(py, &packet.metadata).unbind();
        let payload = packet.payload.map(|buffer| Py::new(py, PyPayload::new(buffer))).transpose()?;
        let memory = payload.as_ref().map(|payload| payload.get().memory()).transpose()?;
        let payload = payload.map(Py::into_any);
        Py::new(py, Self { metadata, payload, memory, streams: vec![0] })
    }
}

/// A buffer of a device, to be used after what streams of the program have now. The program keeps its streams alive, as the documentation
/// says.
pub(crate) fn ready_after(buffer: Buffer, device: &Device, streams: &[usize]) -> Result<Buffer, DeviceError> {
    let (Some((&last, others)), false) = (streams.split_last(), buffer.is_empty()) else {
        return Ok(buffer);
    };
    // SAFETY: the program keeps its streams alive; the driver refuses a number that is no handle.
    let borrow = |handle: usize| unsafe { device.borrow_stream(RawStream(handle)) };
    let last = borrow(last)?;
    for &other in others {
        // The last stream waits for the others.
        let event = device.events().take()?;
        borrow(other)?.record(&event)?;
        last.wait(&event)?;
    }
    buffer.ready_after(&last)
}

/// The packet that a call sends: a packet, an object with bytes (without metadata), or none.
pub(crate) fn packet_of(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Packet>> {
    if given.is_none() {
        return Ok(None);
    }
    let py = given.py();
    if let Ok(packet) = given.cast::<PyPacket>() {
        return PyPacket::to_send(packet).map(Some).map_err(|error| error::prefixed(py, error, name));
    }
    let packet = PyPacket::of_payload(given).map_err(|error| error::prefixed(py, error, name))?;
    PyPacket::to_send(&Bound::new(py, packet)?).map(Some)
}

#[pymethods]
impl PyPacket {
    #[new]
    #[pyo3(signature = (metadata = None, payload = None, *, stream = None), text_signature = "(metadata=b'', payload=None, *, stream=None)")]
    fn new(
        py: Python<'_>,
        metadata: Option<Argument<Bytes>>,
        payload: Option<&Bound<'_, PyAny>>,
        stream: Option<Argument<Handles>>,
    ) -> PyResult<Self> {
        let has_stream = stream.is_some();
        accept!(metadata);
        let metadata = PyBytes::new(py, &metadata.map(|Bytes(bytes)| bytes).unwrap_or_default()).unbind();
        let memory = payload.map(payload_of).transpose();
        let memory = memory.map_err(|error| error::prefixed(py, error, "payload"))?;
        if has_stream && memory.as_ref().is_none_or(|memory| memory.device.is_none()) {
            return Err(error::value_error(
                "stream: the payload is not in GPU memory, so no stream writes it; leave `stream` out",
            ));
        }
        let streams = Handles::of_call(stream)?;
        Ok(Self { metadata, payload: payload.map(|payload| payload.clone().unbind()), memory, streams })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let bytes = self.metadata.as_bytes(py).len();
        match &self.memory {
            None => format!("Packet({bytes} bytes of metadata)"),
            Some(memory) => format!("Packet({bytes} bytes of metadata, a payload of {} bytes)", memory.bytes),
        }
    }
}

impl DropMayBlock for Buffer {
    fn let_go(self) -> Option<impl Send + 'static> {
        // Gives memory back to its pool or its owner.
        drop(self);
        None::<()>
    }
}

#[doc = doc!("Payload")]
#[pyclass(frozen, module = "halocline", name = "Payload", weakref)]
pub(crate) struct PyPayload {
    buffer: ProcessLocal<Buffer>,
    bytes: usize,
    kind: MemoryKind,
    is_writable: bool,
}

impl PyPayload {
    fn new(mut buffer: Buffer) -> Self {
        let (bytes, kind, is_writable) = (buffer.len(), buffer.kind(), buffer.bytes_mut().is_some());
        Self { buffer: ProcessLocal::new(buffer), bytes, kind, is_writable }
    }

    fn memory(&self) -> PyResult<PayloadMemory> {
        let (address, device) = (self.buffer.get()?.address() as usize, self.device()?);
        Ok(PayloadMemory { address, bytes: self.bytes, device, held: [None, None], is_resizable: false })
    }

    fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.bytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.buffer.get()?.address(), !self.is_writable))?;
        Ok(interface)
    }
}

#[pymethods]
impl PyPayload {
    #[doc = doc!("Payload.__array_interface__")]
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.kind {
            MemoryKind::Device => Err(pyo3::exceptions::PyAttributeError::new_err(
                "the payload is in GPU memory; use cupy.asarray",
            )),
            _ => self.interface(py),
        }
    }

    #[doc = doc!("Payload.__cuda_array_interface__")]
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.kind != MemoryKind::Device {
            return Err(pyo3::exceptions::PyAttributeError::new_err(
                "the payload is in host memory; use numpy.asarray",
            ));
        }
        let interface = self.interface(py)?;
        let buffer = self.buffer.get()?;
        if let (false, Some(device)) = (buffer.is_ready().map_err(error::of)?, buffer.device()) {
            // SAFETY: handle 0 is the null stream, which exists as long as the device.
            let stream = unsafe { device.borrow_stream(RawStream(0)) }.map_err(error::of)?;
            buffer.order(&stream).map_err(error::of)?;
            // The number of the null stream in this interface: the user's stream waits for it.
            interface.set_item("stream", 1)?;
        }
        Ok(interface)
    }

    #[doc = doc!("Payload.nbytes")]
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes
    }

    #[doc = doc!("Payload.device")]
    #[getter]
    fn device(&self) -> PyResult<Option<u32>> {
        let device = self.buffer.get()?.device().map(halocline::Device::ordinal);
        Ok(device.filter(|_| self.kind == MemoryKind::Device))
    }

    fn __len__(&self) -> usize {
        self.bytes
    }

    #[doc = doc!("Payload.__bytes__")]
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let Some(bytes) = self.buffer.get()?.bytes() else {
            return Err(error::type_error(
                "the payload is in GPU memory; copy it with cupy.asnumpy(cupy.asarray(payload))",
            ));
        };
        Ok(PyBytes::new(py, bytes))
    }

    fn __repr__(&self) -> String {
        format!("Payload({} bytes of {} memory)", self.bytes, self.kind)
    }
}
