//! Payloads in parts, each of which is sent once the receiver has posted memory for it.

use super::send::EVENT_POLL;
use super::{PacketContext, PacketError};
use crate::borrowed::Borrowed;
use crate::endpoint::Endpoint;
use crate::inbox::Tag;
use crate::memory_resource::{Buffer, MemoryKind};
use crate::mpi::TRAILER;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of a part; with its trailer it fits into one MPI message.
pub(super) const PART: usize = (1 << 30) - 4096;

/// A transport may write a trailer behind each part: over the first bytes of the next part, or over spare bytes.
fn has_space(buffer: &Buffer, part: &Range<usize>) -> bool {
    buffer.len() + buffer.spare() >= part.end + TRAILER && buffer.kind() != MemoryKind::Device
}

fn pointer(buffer: &Buffer, at: usize) -> NonNull<u8> {
    let first = std::ptr::with_exposed_provenance_mut::<u8>(buffer.address() as usize);
    NonNull::new(first.wrapping_add(at)).unwrap_or(NonNull::dangling())
}

/// Passes a part to the transport, which borrows it.
///
/// # Safety
/// The buffer is host memory that only the caller accesses, which does not access the part and the trailer behind it until
/// `out` is 0. There is space for the trailer ([`has_space`]).
unsafe fn borrow(buffer: &Buffer, part: &Range<usize>, out: &Arc<AtomicUsize>) -> Borrowed {
    // SAFETY: the buffer's memory is initialised and held by its owner, the caller promises the rest.
    unsafe { Borrowed::new(pointer(buffer, part.start), part.len(), out, buffer.kept().into_owner()) }
}

/// The sender's side; its payload lies on the host.
pub(super) struct PartsSend {
    payload: Buffer,
    /// Bytes of each part but the last.
    part: usize,
    sent: usize,
    /// Buffers that the transport borrows.
    out: Arc<AtomicUsize>,
    /// The transport used the payload when the last step ended. Another thread may have ended that since.
    was_lending: bool,
    /// The bytes that the trailer of the part in flight overwrites, and where they belong.
    saved: Option<([u8; TRAILER], usize)>,
}

impl PartsSend {
    /// In parts of so many bytes, as the receiver knows.
    pub(super) fn new(payload: Buffer, part: usize) -> Self {
        Self { payload, part, sent: 0, out: Arc::default(), was_lending: false, saved: None }
    }

    /// Whether the transport still uses the payload.
    pub(super) fn is_lending(&self) -> bool {
        self.out.load(Ordering::Acquire) > 0
    }

    /// Sends the next part if it `is_asked` for. True once all were sent and the payload is free.
    pub(super) fn step(
        &mut self,
        context: &PacketContext,
        to: usize,
        tag: Tag,
        is_asked: bool,
    ) -> Result<bool, PacketError> {
        if is_asked {
            self.restore();
            self.send(context, to, tag)?;
        }
        self.was_lending = self.is_lending();
        Ok(self.sent == self.payload.len() && !self.was_lending)
    }

    /// When to look again although no message has come: no bell rings when the transport has sent a part.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        self.was_lending.then_some(now + EVENT_POLL)
    }

    fn send(&mut self, context: &PacketContext, to: usize, tag: Tag) -> Result<(), PacketError> {
        let len = self.payload.len();
        let part = self.sent..len.min(self.sent + self.part);
        self.sent = part.end;
        if part.len() == len
            && let Some(vec) = self.payload.take_vec()
        {
            self.sent = 0;
            return Ok(context.comm().send(to, tag, vec)?);
        }
        if has_space(&self.payload, &part) && self.payload.is_exclusive() {
            if part.end < len {
                // SAFETY: `TRAILER` bytes follow the part within the buffer and its spare bytes, which are initialised, and
                // only this value accesses them.
                let saved = unsafe { pointer(&self.payload, part.end).cast().read_unaligned() };
                self.saved = Some((saved, part.end));
            }
            // SAFETY: a writable buffer of the host that nothing else holds, moved into this value, which does not access it
            // until `out` is 0.
            let borrowed = unsafe { borrow(&self.payload, &part, &self.out) };
            return Ok(context.comm().send_borrowed(to, tag, borrowed)?);
        }
        let mut message = context.message(part.len())?;
        message.extend_from_slice(self.payload.bytes().and_then(|bytes| bytes.get(part)).unwrap_or_default());
        Ok(context.comm().send(to, tag, message)?)
    }

    /// Undoes what the trailer of the last part has overwritten.
    fn restore(&mut self) {
        if let Some((saved, at)) = self.saved.take() {
            // SAFETY: the bytes were read from there, only this value accesses them, and the transport borrows nothing any more: a part is
            // asked for once the one before has arrived, and `PacketSend::poll` asks for no reply while one is borrowed.
            unsafe { pointer(&self.payload, at).cast().write_unaligned(saved) };
        }
    }
}

/// The receiver's side; its memory lies on the host.
pub(super) struct PartsReceive {
    buffer: Buffer,
    /// Bytes of each part but the last.
    part: usize,
    received: usize,
    is_posted: bool,
    out: Arc<AtomicUsize>,
    /// A message that came without use of the posted memory, which the transport has not given back yet.
    message: Option<Arrived>,
}

enum Arrived {
    Landed,
    Bytes(Vec<u8>),
}

impl PartsReceive {
    /// In parts of so many bytes, as the sender knows.
    pub(super) fn new(buffer: Buffer, part: usize) -> Self {
        Self { buffer, part, received: 0, is_posted: false, out: Arc::default(), message: None }
    }

    /// The received payload.
    pub(super) fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Whether the transport may still write into the memory.
    fn is_lending(&self) -> bool {
        self.out.load(Ordering::Acquire) > 0
    }

    /// Whether a message has come, and the transport gives the memory back soon. No bell rings then.
    pub(super) fn is_settling(&self) -> bool {
        self.message.is_some()
    }

    /// Withdraws the posted memory.
    pub(super) fn withdraw(&self, context: &PacketContext, from: usize, tag: Tag) {
        context.comm().cancel_receives(Some(from), |posted| posted == tag);
    }

    /// Does what is possible now. `ready` tells the sender that memory for the next part is posted. True once all is there.
    pub(super) fn step(
        &mut self,
        context: &PacketContext,
        from: usize,
        tag: Tag,
        ready: impl Fn() -> Result<(), PacketError>,
    ) -> Result<bool, PacketError> {
        loop {
            let part = self.received..self.buffer.len().min(self.received + self.part);
            if part.is_empty() {
                return Ok(true);
            }
            if !self.is_posted {
                self.is_posted = true;
                if has_space(&self.buffer, &part) && self.buffer.is_exclusive() {
                    // SAFETY: a writable buffer of the host that nothing else holds, moved into this value, which does not
                    // access it until `out` is 0. The bytes behind the part are spare, or belong to a later part.
                    context.comm().post_receive(from, tag, unsafe { borrow(&self.buffer, &part, &self.out) });
                }
                ready()?;
            }
            if self.message.is_none() {
                let Some(message) = context.comm().link().inbox().take(tag, Some(from)) else {
                    return Ok(false);
                };
                self.message = Some(match message.in_place {
                    true => Arrived::Landed,
                    false => Arrived::Bytes(message.payload),
                });
                self.withdraw(context, from, tag);
            }
            if self.is_lending() {
                return Ok(false);
            }
            if let Some(Arrived::Bytes(bytes)) = self.message.take() {
                let (announced, found) = (part.len() as u64, bytes.len() as u64);
                if announced != found {
                    return Err(PacketError::Length { from, announced, found });
                }
                if let Some(to) = self.buffer.bytes_mut().and_then(|to| to.get_mut(part.clone())) {
                    to.copy_from_slice(&bytes);
                }
                crate::buffers::put(bytes);
            }
            (self.received, self.is_posted) = (part.end, false);
        }
    }
}
