//! Host memory that the ranks of a node can map.

use super::account::MemoryAccount;
use super::pool::{Pool, class};
use super::{Buffer, MemoryError, MemoryKind, MemoryResource, MemoryStatistics};
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::segment::Segment;
use halocline_device::Address;
use std::sync::{Arc, OnceLock, Weak};

/// Buffers up to this size travel as messages: no peer maps them. Larger ones are faster where they are mapped: a round of 64 KiB takes
/// 10 us instead of 40 us.
pub(crate) const SMALL: usize = 16 << 10;

/// The most idle bytes that a rank keeps for later buffers.
const KEEP: usize = 512 << 20;

/// Host memory from which peers of the node can copy. All resources of a rank share one pool, so that repeated rounds
/// allocate nothing.
///
/// ```
/// use halocline_comm::memory_resource::{HostMemory, MemoryError, MemoryResource};
/// use halocline_comm::Communicator;
///
/// let memory = HostMemory::of(&Communicator::single());
/// let first = memory.allocate(1 << 20)?;
/// let address = first.address();
/// drop(first);
/// // The pool gives the same memory again.
/// assert_eq!(memory.allocate(1 << 20)?.address(), address);
/// # Ok::<(), MemoryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct HostMemory {
    shared: Arc<Shared>,
    account: Arc<MemoryAccount>,
}

struct Shared {
    transport: Weak<dyn crate::transport::Transport>,
    segments: Pool<Arc<Segment>>,
    small: Pool<Vec<u8>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

/// The pool of a rank.
#[derive(Default)]
struct Pools(OnceLock<Arc<Shared>>);

/// Memory of one buffer, put back into its pool when it is dropped.
struct Block<T> {
    shared: Arc<Shared>,
    class: usize,
    memory: Option<T>,
    put: fn(&Shared, usize, T),
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            (self.put)(&self.shared, self.class, memory);
        }
    }
}

impl HostMemory {
    /// The host memory of this rank. Local.
    pub fn of(comm: &Communicator) -> Self {
        let make = || {
            let (segments, small) = (Pool::new(KEEP), Pool::new(KEEP / 64));
            Arc::new(Shared { transport: comm.weak_transport(), segments, small })
        };
        let shared = Arc::clone(comm.extension::<Pools>().0.get_or_init(make));
        Self { shared, account: MemoryAccount::new(MemoryKind::Host) }
    }

    fn small(&self, bytes: usize, class: usize) -> Buffer {
        let mut memory = self.shared.small.take(class).unwrap_or_else(|| vec![0; class]);
        let address = memory.as_mut_ptr().expose_provenance() as Address;
        let put: fn(&Shared, usize, Vec<u8>) = |shared, class, memory| drop(shared.small.put(class, memory));
        let block = Block { shared: Arc::clone(&self.shared), class, memory: Some(memory), put };
        // SAFETY: the vector has `class` initialised bytes, which only this buffer accesses until it drops the block.
        unsafe { Buffer::owned(address, (bytes, class - bytes), MemoryKind::Host, Box::new(block)) }
    }

    fn segment(&self, bytes: usize, class: usize) -> Result<Buffer, MemoryError> {
        let pages = self.pages(class)?;
        let address = pages.address();
        // SAFETY: the segment has `class` initialised bytes. Peers read them only while the buffer is being sent, and only
        // this buffer accesses them until it drops the pages.
        Ok(unsafe { Buffer::owned(address, (bytes, class - bytes), MemoryKind::Host, Box::new(pages)) })
    }

    /// Memory of a size class that peers can map.
    pub(super) fn pages(&self, class: usize) -> Result<Pages, MemoryError> {
        let fresh = || match self.shared.transport.upgrade() {
            Some(transport) => transport.allocate(class),
            // The rank has ended: no peer will map it.
            None => Segment::heap(class).ok_or(CommError::OutOfMemory(class)),
        };
        let segment = self.shared.segments.take(class).map_or_else(fresh, Ok)?;
        if segment.len() < class {
            return Err(CommError::OutOfMemory(class).into());
        }
        let put: fn(&Shared, usize, Arc<Segment>) =
            |shared, class, memory| drop(shared.segments.put(class, memory));
        Ok(Pages(Block { shared: Arc::clone(&self.shared), class, memory: Some(segment), put }))
    }
}

/// A segment of the pool, put back when it is dropped.
pub(super) struct Pages(Block<Arc<Segment>>);

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pages({} bytes)", self.0.class)
    }
}

impl Pages {
    pub(super) fn address(&self) -> Address {
        self.0.memory.as_ref().map_or(0, |segment| segment.base().as_ptr().expose_provenance() as Address)
    }
}

impl MemoryResource for HostMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        let too_large = || CommError::OutOfMemory(bytes);
        let with_spare = bytes.checked_add(Communicator::SPARE).ok_or_else(too_large)?;
        let charge = self.account.charge(bytes)?;
        let buffer = match bytes {
            0 => Buffer::default(),
            _ if bytes <= SMALL => self.small(bytes, class(with_spare, 4096).ok_or_else(too_large)?),
            _ => self.segment(bytes, class(with_spare, 2 * SMALL).ok_or_else(too_large)?)?,
        };
        Ok(buffer.charged(charge))
    }

    fn adopt(&self, message: Vec<u8>) -> Result<Buffer, Vec<u8>> {
        match self.account.charge(message.len()) {
            Ok(charge) => Ok(Buffer::from(message).charged(charge)),
            Err(_) => Err(message),
        }
    }

    fn trim(&self) {
        drop((self.shared.segments.drain(), self.shared.small.drain()));
    }

    fn statistics(&self) -> MemoryStatistics {
        self.account.statistics()
    }
}
