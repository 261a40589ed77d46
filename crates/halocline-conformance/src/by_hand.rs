//! Packs and unpacks messages by hand, in host or device memory.

use crate::{Outcome, Trouble};
use halocline::device::Memory;
use halocline::{Device, DeviceError, Direction, HaloExchange, Stream};

/// A message's buffer that devices reach.
pub struct Buffer {
    /// What the device packs into: memory of its own, or the pinned one.
    device: Option<Memory>,
    pinned: Memory,
    lead: usize,
    bytes: usize,
}

impl Buffer {
    /// One of so many bytes, which begin at any multiple of a byte; pinned or in memory of the device.
    pub fn new(device: &Device, bytes: usize, is_pinned: bool) -> Result<Self, DeviceError> {
        let lead = bytes % 16;
        let memory = if is_pinned { None } else { Some(device.allocate(lead + bytes.max(1))?) };
        let pinned = device.allocate_pinned(lead + bytes.max(1))?;
        Ok(Self { device: memory, pinned, lead, bytes })
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.device.as_ref().unwrap_or(&self.pinned).at(self.lead)
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its contents after all work of the stream. Blocks until then.
    pub fn read(&self, stream: &Stream) -> Result<Vec<u8>, DeviceError> {
        self.copy(stream, |memory| (self.pinned.at(self.lead), memory.at(self.lead)))?;
        stream.synchronise()?;
        // SAFETY: this buffer alone uses the memory, and the stream is idle.
        Ok(unsafe { self.pinned.bytes(self.lead..self.lead + self.bytes) }.to_vec())
    }

    /// Fills it, in the order of the stream; nothing that uses it is in flight.
    pub fn write(&self, stream: &Stream, message: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: this buffer alone uses the pinned memory, and the stream has finished with it.
        unsafe { self.pinned.bytes_mut(self.lead..self.lead + self.bytes) }.copy_from_slice(message);
        self.copy(stream, |memory| (memory.at(self.lead), self.pinned.at(self.lead)))
    }

    fn copy(&self, stream: &Stream, ends: impl FnOnce(&Memory) -> (u64, u64)) -> Result<(), DeviceError> {
        let Some(memory) = self.device.as_ref().filter(|_| self.bytes > 0) else { return Ok(()) };
        let (target, source) = ends(memory);
        // SAFETY: both lie in memory of this buffer. The caller keeps it until the stream is idle.
        unsafe { stream.copy(target, source, self.bytes) }
    }
}

/// The message for a peer. Device fields are packed in stream order; the stream is idle afterwards.
pub fn pack(halo: &HaloExchange, peer: usize, stream: Option<&Stream>) -> Result<Vec<u8>, Trouble> {
    let bytes = halo.message_bytes(peer, Direction::Send)?;
    let Some(stream) = stream else {
        let mut message = vec![0; bytes];
        halo.pack(peer, &mut message)?;
        return Ok(message);
    };
    let buffer = Buffer::new(stream.device(), bytes, peer.is_multiple_of(2))?;
    // SAFETY: the buffer outlives the work on it, and nobody else uses it.
    unsafe { halo.pack_on(peer, buffer.address(), bytes, stream) }?;
    Ok(buffer.read(stream)?)
}

/// Unpacks the message of a peer. Device fields are unpacked in stream order; the stream is idle afterwards.
pub fn unpack(halo: &HaloExchange, peer: usize, message: &[u8], stream: Option<&Stream>) -> Outcome {
    let Some(stream) = stream else { return Ok(halo.unpack(peer, message)?) };
    let buffer = Buffer::new(stream.device(), message.len(), peer.is_multiple_of(2))?;
    buffer.write(stream, message)?;
    // SAFETY: the buffer outlives the work on it, and nobody else uses it.
    unsafe { halo.unpack_on(peer, buffer.address(), message.len(), stream) }?;
    Ok(stream.synchronise()?)
}
