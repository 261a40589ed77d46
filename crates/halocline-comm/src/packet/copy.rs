//! Copies of payloads on a device, in the order of a stream of the library's own.

use super::PacketError;
use crate::mappings::Mapping;
use crate::memory_resource::{Buffer, DeviceMemory, HostMemory, MemoryError, MemoryResource, PinnedMemory};
use halocline_device::{Address, Device, DeviceError, Event, EventPool, Priority, Stream};
use std::sync::{Arc, Mutex, PoisonError};

/// The stream for copies of one device, and the host memory that they pass through.
pub(super) struct Copier {
    device: Device,
    stream: Stream,
    events: EventPool,
    pinned: PinnedMemory,
    mailboxes: DeviceMemory,
}

/// The copies of each device that a rank has used. All operations share them: a new stream and newly pinned memory cost more than
/// most copies.
#[derive(Default)]
pub(super) struct Copiers(Mutex<Vec<Arc<Copier>>>);

impl Copiers {
    /// Those of a device, made at first use.
    pub(super) fn of(&self, device: &Device, host: &HostMemory) -> Result<Arc<Copier>, DeviceError> {
        // The list is always whole.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copier) = known.iter().find(|copier| copier.device == *device) {
            return Ok(Arc::clone(copier));
        }
        let made = Arc::new(Copier::new(device, host)?);
        known.push(Arc::clone(&made));
        Ok(made)
    }
}

impl Copier {
    fn new(device: &Device, host: &HostMemory) -> Result<Self, DeviceError> {
        let stream = device.stream(Priority::Normal)?;
        let (events, pinned) = (device.events(), PinnedMemory::over(host.clone(), device));
        Ok(Self {
            device: device.clone(),
            stream,
            events,
            pinned,
            mailboxes: DeviceMemory::of_library(device),
        })
    }

    /// Pinned memory, which peers of the node can map.
    pub(super) fn stage(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        self.pinned.allocate(bytes)
    }

    /// Memory of the device that peers of the node can map; of the host if the device has none left.
    pub(super) fn mailbox(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        self.mailboxes.allocate(bytes).or_else(|_| self.stage(bytes))
    }

    /// Buffers made so far: mailboxes, and pinned memory.
    #[cfg(test)]
    pub(super) fn allocations(&self) -> [u64; 2] {
        [self.mailboxes.statistics(), self.pinned.statistics()].map(|statistics| statistics.allocations)
    }

    /// Orders later copies after what the content of a buffer waits for.
    pub(super) fn after(&self, buffer: &Buffer) -> Result<(), DeviceError> {
        buffer.order(&self.stream)
    }

    /// Begins a copy. The returned event happens once it is done.
    ///
    /// # Safety
    /// The contract of [`halocline_device::Driver::copy`] holds for both ranges.
    pub(super) unsafe fn copy(
        &self,
        target: Address,
        source: Address,
        bytes: usize,
    ) -> Result<Arc<Event>, DeviceError> {
        let event = self.events.take()?;
        // SAFETY: the caller keeps the contract.
        unsafe { self.stream.copy(target, source, bytes) }?;
        self.stream.record(&event)?;
        Ok(Arc::new(event))
    }
}

/// A copy in flight with all that it uses.
pub(super) struct Copying {
    event: Arc<Event>,
    /// Where the bytes come from, and where they go to.
    pub(super) source: Source,
    pub(super) target: Target,
}

/// The source of a copy.
pub(super) enum Source {
    /// Memory of the sender. It is not written before the copy ends.
    Mapped(#[expect(dead_code, reason = "held for its drop")] Mapping),
    /// Memory of this rank.
    Own(#[expect(dead_code, reason = "held for its drop")] Vec<Buffer>),
}

/// The target of a copy.
pub(super) enum Target {
    /// The packet's payload: device memory, given to the user with the event, and kept here.
    Given(#[expect(dead_code, reason = "held for its drop")] crate::memory_resource::Kept),
    /// The packet's payload, which the host reads once the copy is done.
    Payload(Buffer),
    /// Pinned memory, from which the host copies to the payload afterwards.
    Staged { staging: Buffer, payload: Buffer },
}

impl Copying {
    pub(super) fn new(event: Arc<Event>, source: Source, target: Target) -> Self {
        Self { event, source, target }
    }

    pub(super) fn is_done(&self) -> Result<bool, PacketError> {
        Ok(self.event.query()?)
    }

    /// The payload, if the user does not have it yet. The copy is done.
    pub(super) fn finish(self) -> Option<Buffer> {
        match self.target {
            Target::Given(_) => None,
            Target::Payload(payload) => Some(payload),
            Target::Staged { staging, mut payload } => {
                if let (Some(to), Some(from)) = (payload.bytes_mut(), staging.bytes()) {
                    to.copy_from_slice(from);
                }
                Some(payload)
            }
        }
    }
}
