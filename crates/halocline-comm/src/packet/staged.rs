//! Payloads of devices in parts, through pinned memory of the host. While one part travels, the device copies the next one.

use super::copy::{Copying, Source, Target};
use super::parts::{PartsReceive, PartsSend};
use super::{PacketContext, PacketError};
use crate::inbox::Tag;
use crate::memory_resource::Buffer;
use halocline_device::{Device, Event};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a part that is staged: large beside the latency of a message, small beside a payload for which bandwidth counts.
/// With its trailer it fits into a size class of memory.
pub(super) const STAGED_PART: usize = (8 << 20) - 4096;

/// Parts that a device copies at once.
const AHEAD: usize = 2;

/// A part in pinned memory, which a device copies.
struct Part {
    memory: Buffer,
    event: Arc<Event>,
}

/// The sender's side; its payload lies on a device.
pub(super) struct StagedSend {
    payload: Buffer,
    device: Device,
    part: usize,
    /// Bytes whose copy to the host has begun.
    begun: usize,
    copies: VecDeque<Part>,
    travelling: Option<PartsSend>,
    /// The last look found a device that copies a part.
    awaits_copy: bool,
    /// No further part is copied.
    failed: Option<PacketError>,
}

impl StagedSend {
    /// In parts of so many bytes, as the receiver knows.
    pub(super) fn new(payload: Buffer, device: Device, part: usize) -> Self {
        let (begun, copies, travelling, awaits_copy, failed) = (0, VecDeque::new(), None, false, None);
        Self { payload, device, part, begun, copies, travelling, awaits_copy, failed }
    }

    /// When to look again although no message has come.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        // No bell rings when an event happens, which is soon.
        let copied = self.awaits_copy.then_some(now);
        copied.or_else(|| self.travelling.as_ref().and_then(|travelling| travelling.due(now)))
    }

    /// As [`StagedSend::is_copying`], noted for [`StagedSend::due`].
    pub(super) fn look_for_copies(&mut self) -> bool {
        self.awaits_copy = self.is_copying();
        self.awaits_copy
    }

    /// Whether a device copies a part.
    pub(super) fn is_copying(&self) -> bool {
        // A failed device copies nothing.
        self.copies.iter().any(|part| part.event.query() == Ok(false))
    }

    /// Gives up. The error is returned once no device copies a part.
    pub(super) fn fail(&mut self, error: PacketError) {
        self.failed.get_or_insert(error);
    }

    /// Copies the next parts. True if one is ready to be sent.
    pub(super) fn copy(&mut self, context: &PacketContext) -> Result<bool, PacketError> {
        if self.failed.is_none()
            && let Err(error) = self.begin_copies(context)
        {
            self.fail(error);
        }
        if self.failed.is_some() {
            let is_copying = self.look_for_copies();
            return self.failed.take_if(|_| !is_copying).map_or(Ok(false), Err);
        }
        let is_idle = self.travelling.is_none();
        let Some(first) = self.copies.front().filter(|_| is_idle) else {
            self.awaits_copy = false;
            return Ok(false);
        };
        let is_copied = first.event.query()?;
        self.awaits_copy = !is_copied;
        Ok(is_copied)
    }

    fn begin_copies(&mut self, context: &PacketContext) -> Result<(), PacketError> {
        while self.copies.len() < AHEAD && self.begun < self.payload.len() {
            let bytes = self.part.min(self.payload.len() - self.begun);
            let copier = context.copier(&self.device)?;
            let (from, whole) = (context.comm().rank(), self.payload.len() as u64);
            let memory = copier.stage(bytes);
            let memory = memory.map_err(|error| PacketError::Memory { from, bytes: whole, error })?;
            let source = self.payload.address() + self.begun as u64;
            // SAFETY: the content of the payload is there, and fresh pinned memory of so many bytes is the target. This value keeps
            // both until the event has happened.
            let event = unsafe { copier.copy(memory.address(), source, bytes) }?;
            self.copies.push_back(Part { memory, event });
            self.begun += bytes;
        }
        Ok(())
    }

    /// Sends the part that is ready if it `is_asked` for. True once all were sent and the memory is free.
    pub(super) fn step(
        &mut self,
        context: &PacketContext,
        to: usize,
        tag: Tag,
        is_asked: bool,
    ) -> Result<bool, PacketError> {
        if is_asked && let Some(Part { memory, .. }) = self.copies.pop_front() {
            self.travelling = Some(PartsSend::new(memory, self.part));
        }
        if let Some(travelling) = &mut self.travelling
            && travelling.step(context, to, tag, is_asked)?
        {
            self.travelling = None;
        }
        Ok(self.travelling.is_none() && self.copies.is_empty() && self.begun == self.payload.len())
    }
}

/// The receiver's side; its memory lies on a device.
pub(super) struct StagedReceive {
    target: Buffer,
    device: Device,
    part: usize,
    received: usize,
    arriving: Option<PartsReceive>,
    copies: VecDeque<Part>,
}

impl StagedReceive {
    /// In parts of so many bytes, as the sender knows.
    pub(super) fn new(target: Buffer, device: Device, part: usize) -> Self {
        Self { target, device, part, received: 0, arriving: None, copies: VecDeque::new() }
    }

    /// When to look again although no message has come.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        // A part is received while the ones before are copied. No bell rings when an event happens, which is soon.
        let is_held_up = self.arriving.is_none() && !self.copies.is_empty();
        let is_settling = self.arriving.as_ref().is_some_and(PartsReceive::is_settling);
        (is_held_up || is_settling).then_some(now)
    }

    /// Does what is possible now. `ready` tells the sender that there is memory for the next part. True once all have come.
    pub(super) fn step(
        &mut self,
        context: &PacketContext,
        from: usize,
        tag: Tag,
        ready: impl Fn() -> Result<(), PacketError>,
    ) -> Result<bool, PacketError> {
        while self.received < self.target.len() {
            let copier = context.copier(&self.device)?;
            let whole = self.target.len();
            if self.arriving.is_none() {
                while let Some(first) = self.copies.front()
                    && first.event.query()?
                {
                    self.copies.pop_front();
                }
                if self.copies.len() == AHEAD {
                    return Ok(false);
                }
                let memory = copier.stage(self.part.min(whole - self.received));
                let bytes = whole as u64;
                let memory = memory.map_err(|error| PacketError::Memory { from, bytes, error })?;
                self.arriving = Some(PartsReceive::new(memory, self.part));
            }
            let arrived = match &mut self.arriving {
                Some(arriving) => arriving.step(context, from, tag, &ready)?,
                None => false,
            };
            let Some(arrived) = self.arriving.take_if(|_| arrived) else { return Ok(false) };
            let memory = arrived.into_buffer();
            let (target, bytes) = (self.target.address() + self.received as u64, memory.len());
            // SAFETY: pinned memory and fresh memory of the device, of so many bytes each. This value keeps both until the event
            // has happened, and the user reads the payload after the event of the last part.
            let event = unsafe { copier.copy(target, memory.address(), bytes) }?;
            self.copies.push_back(Part { memory, event });
            self.received += bytes;
        }
        Ok(true)
    }

    /// Withdraws the posted memory.
    pub(super) fn withdraw(&self, context: &PacketContext, from: usize, tag: Tag) {
        if let Some(arriving) = &self.arriving {
            arriving.withdraw(context, from, tag);
        }
    }

    /// The payload, and the copies that are in flight. The last one is over once all are: they are on one stream.
    pub(super) fn into_payload(self) -> (Buffer, Option<Copying>) {
        let Some(event) = self.copies.back().map(|part| Arc::clone(&part.event)) else {
            return (self.target, None);
        };
        let kept = self.target.kept();
        let parts = self.copies.into_iter().map(|part| part.memory).collect();
        let copying = Copying::new(Arc::clone(&event), Source::Own(parts), Target::Given(kept));
        (self.target.with_event(event), Some(copying))
    }
}
