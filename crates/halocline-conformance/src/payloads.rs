//! Payloads of packets where a stage has its fields: made on streams that finish in any order, and read again.

use crate::Trouble;
use crate::stage::Stage;
use halocline::device::Priority;
use halocline::{Communicator, Device, Stream};
use halocline_comm::memory_resource::{Buffer, DeviceMemory, HostMemory, MemoryKind, MemoryResource};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The streams that write payloads on a device, in turn.
const STREAMS: usize = 3;

/// How often the first of them writes a payload, so that it is late.
const REPEATED: usize = 6;

/// Memory for payloads.
pub struct Payloads {
    resource: Arc<dyn MemoryResource>,
    on_device: Option<(Device, Vec<Stream>)>,
    made: AtomicUsize,
}

impl Payloads {
    /// Payloads where a stage has its fields.
    pub fn of(stage: &Stage<'_>) -> Result<Self, Trouble> {
        Self::new(stage, stage.device())
    }

    /// Payloads in memory of a device, or of the host.
    pub fn new(comm: &Communicator, device: Option<&Device>) -> Result<Self, Trouble> {
        let made = AtomicUsize::new(0);
        let Some(device) = device else {
            return Ok(Self { resource: Arc::new(HostMemory::of(comm)), on_device: None, made });
        };
        let streams = (0..STREAMS).map(|_| device.stream(Priority::Normal)).collect::<Result<_, _>>()?;
        Ok(Self {
            resource: Arc::new(DeviceMemory::new(device)),
            on_device: Some((device.clone(), streams)),
            made,
        })
    }

    /// The resource, which allocates memory that other ranks may map.
    pub fn resource(&self) -> Arc<dyn MemoryResource> {
        Arc::clone(&self.resource)
    }

    /// The streams that write payloads on a device, in the order in which they are used.
    pub fn streams(&self) -> &[Stream] {
        self.on_device.as_ref().map_or(&[], |(_, streams)| streams)
    }

    /// A payload with some content. On a device, a stream may still write it.
    pub fn make(&self, bytes: &[u8]) -> Result<Buffer, Trouble> {
        let mut buffer = self.resource.allocate(bytes.len())?;
        let Some((device, streams)) = self.on_device.as_ref().filter(|_| !bytes.is_empty()) else {
            if let Some(to) = buffer.bytes_mut() {
                to.copy_from_slice(bytes);
            }
            return Ok(buffer);
        };
        let at = self.made.fetch_add(1, Ordering::Relaxed) % STREAMS;
        let (stream, address) = (&streams[at], buffer.address());
        let staging = device.allocate_pinned(bytes.len())?;
        // SAFETY: fresh memory that nothing else uses.
        unsafe { staging.bytes_mut(0..bytes.len()) }.copy_from_slice(bytes);
        for _ in 0..if at == 0 { REPEATED } else { 1 } {
            // SAFETY: memory of one length that nothing else uses; the payload holds both until the stream is there.
            unsafe { stream.copy(address, staging.at(0), bytes.len()) }?;
        }
        // SAFETY: memory of the device, held by its owner; only the stream writes it.
        let payload = unsafe { Buffer::foreign_device(address, bytes.len(), device, (buffer, staging)) };
        Ok(payload.ready_after(stream)?)
    }

    /// The content of a payload.
    pub fn read(&self, payload: &Buffer) -> Result<Vec<u8>, Trouble> {
        if payload.kind() != MemoryKind::Device || payload.is_empty() {
            return payload.to_vec().ok_or_else(|| Trouble::new("a payload of the host is not there"));
        }
        let Some((device, streams)) = &self.on_device else {
            return Err(Trouble::new("a payload lies on a device instead of on the host"));
        };
        let (stream, target) = (&streams[STREAMS - 1], device.allocate_pinned(payload.len())?);
        payload.order(stream)?;
        // SAFETY: the payload and fresh memory, both of which live until the stream is synchronised.
        unsafe { stream.copy(target.at(0), payload.address(), payload.len()) }?;
        stream.synchronise()?;
        // SAFETY: the copy is done.
        Ok(unsafe { target.bytes(0..payload.len()) }.to_vec())
    }
}
