//! Host memory that the library has allocated, as sealed memfds: no process can shrink one while others map it, and a killed
//! process leaves nothing behind.

use crate::error::CommError;
use crate::segment::Segment;
use halocline_device::Address;
use halocline_device::remote::{Allocation, DeviceId, Export, Kind, Opened, Provider, Refusal};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The host's provider.
#[derive(Default)]
pub(super) struct HostMemory {
    opened: Mutex<Mappings>,
}

#[derive(Default)]
struct Mappings {
    segments: HashMap<u64, Arc<Segment>>,
    last: u64,
}

impl HostMemory {
    fn opened(&self) -> MutexGuard<'_, Mappings> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address_of(segment: &Segment) -> Address {
    segment.base().as_ptr().expose_provenance() as Address
}

/// The refusal of a mapping that follows from a failure to receive or map memory.
pub(super) fn refusal(error: &CommError) -> Refusal {
    match error {
        CommError::Memory { errno, .. } | CommError::System { errno, .. } => (*errno).into(),
        _ => Refusal::BadHandle,
    }
}

/// The segment of an allocation, if it still exists.
fn segment_of(allocation: &Allocation) -> Option<Arc<Segment>> {
    let segment = Segment::around(usize::try_from(allocation.base).ok()?)?;
    (of(&segment) == Some(*allocation)).then_some(segment)
}

fn of(segment: &Segment) -> Option<Allocation> {
    let (base, bytes) = (address_of(segment), segment.len() as u64);
    let (id, device, kind) = (segment.id(), DeviceId::HOST, Kind::Memfd);
    (bytes > 0).then_some(Allocation { base, bytes, id, device, kind })
}

// SAFETY: allocations are segments that this process has allocated, found with their bounds and identity; an imported memfd must have
// the announced length and seals, and stays mapped until it is closed.
unsafe impl Provider for HostMemory {
    fn device(&self) -> DeviceId {
        DeviceId::HOST
    }

    fn find(&self, address: Address, _bytes: u64) -> Option<Allocation> {
        of(&*Segment::around(usize::try_from(address).ok()?)?)
    }

    fn still(&self, allocation: &Allocation) -> bool {
        segment_of(allocation).is_some()
    }

    fn export(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        let segment = segment_of(allocation).ok_or(Refusal::BadHandle)?;
        // Heap memory, of ranks that are threads, has no descriptor and needs none.
        let copies = segment.descriptor().into_iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0));
        let descriptors = copies.collect::<Result<_, Errno>>()?;
        Ok(Export { handle: Vec::new(), descriptors })
    }

    fn open(&self, allocation: &Allocation, mut export: Export) -> Result<Opened, Refusal> {
        let (Kind::Memfd, DeviceId::HOST) = (allocation.kind, allocation.device) else {
            return Err(Refusal::NoPeerAccess);
        };
        let (Some(descriptor), Ok(len)) = (export.descriptors.pop(), usize::try_from(allocation.bytes))
        else {
            return Err(Refusal::BadHandle);
        };
        let segment = Segment::import(allocation.id, len, descriptor).map_err(|error| refusal(&error))?;
        let address = address_of(&segment);
        let mut opened = self.opened();
        opened.last += 1;
        let key = opened.last;
        opened.segments.insert(key, segment);
        Ok(Opened { address, key })
    }

    unsafe fn close(&self, opened: Opened) -> Result<(), Refusal> {
        let segment = self.opened().segments.remove(&opened.key);
        segment.map(drop).ok_or(Refusal::BadHandle)
    }

    fn adopt(&self, allocation: &Allocation) -> Result<(), Refusal> {
        segment_of(allocation).map(drop).ok_or(Refusal::BadHandle)
    }
}
