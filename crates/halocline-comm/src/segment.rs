//! Memory that ranks share: allocated here, or memory of another rank mapped here.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A range of bytes with shared ownership and an identity that is never reused.
///
/// Plain bytes: the protocol above decides which side reads or writes them when. A segment never moves.
///
/// ```
/// use halocline_comm::{CommError, Communicator, SEGMENT_ALIGN};
///
/// // Zeroed memory that other ranks of the node can map.
/// let segment = Communicator::single().allocate(100)?;
/// assert!(segment.len() >= 100 && segment.base().addr().get() % SEGMENT_ALIGN == 0);
/// // SAFETY: the segment has at least one byte, and no other rank has received it.
/// assert_eq!(unsafe { segment.base().read() }, 0);
/// # Ok::<(), CommError>(())
/// ```
pub struct Segment {
    id: u64,
    base: NonNull<u8>,
    len: usize,
    home: Home,
}

enum Home {
    /// Allocated by the global allocator.
    Heap(std::alloc::Layout),
    /// Memory of another owner, alive as long as the value is held.
    Foreign(#[allow(dead_code)] Arc<dyn Any + Send + Sync>),
    /// A memfd mapped here: allocated by this process (with the descriptor, to give away), or imported.
    Mapped(Option<rustix::fd::OwnedFd>),
    /// No bytes: a descriptor that is sent to another process, for a driver to open.
    Handle(rustix::fd::OwnedFd),
}

/// The segments that this process has allocated, by their addresses.
static ALLOCATED: Mutex<BTreeMap<usize, Weak<Segment>>> = Mutex::new(BTreeMap::new());

fn allocated() -> MutexGuard<'static, BTreeMap<usize, Weak<Segment>>> {
    ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: a segment owns an address range, or keeps its owner, and is not bound to a thread. It exposes only its address;
// code that dereferences it keeps to the grants of the exchange.
unsafe impl Send for Segment {}
// SAFETY: nothing in a segment changes after it was made. It exposes only its address; code that dereferences it keeps to
// the grants of the exchange.
unsafe impl Sync for Segment {}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({:#x}, {} bytes)", self.id, self.len)
    }
}

/// Alignment of allocated segments: enough for a counter and for any element.
pub const SEGMENT_ALIGN: usize = 4096;

impl Segment {
    /// Zeroed memory of this process that only its own threads can reach.
    pub fn heap(len: usize) -> Option<Arc<Self>> {
        let layout = std::alloc::Layout::from_size_align(len.max(1), SEGMENT_ALIGN).ok()?;
        // SAFETY: `layout` has a size of at least 1.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Self { id: fresh_id(), base, len, home: Home::Heap(layout) }.known())
    }

    /// A descriptor to send with a message.
    pub(crate) fn handle(id: Option<u64>, fd: rustix::fd::OwnedFd) -> Arc<Self> {
        let id = id.unwrap_or_else(fresh_id);
        Arc::new(Self { id, base: NonNull::dangling(), len: 0, home: Home::Handle(fd) })
    }

    /// The live segment of this process that contains an address.
    pub(crate) fn around(address: usize) -> Option<Arc<Self>> {
        // Dropping the last reference takes the lock, so that it is released first.
        let nearest = allocated().range(..=address).next_back().map(|(_, segment)| Weak::clone(segment));
        nearest?.upgrade().filter(|segment| address - segment.base.addr().get() < segment.len)
    }

    /// Registers it for [`Segment::around`].
    fn known(self) -> Arc<Self> {
        let segment = Arc::new(self);
        allocated().insert(segment.base.addr().get(), Arc::downgrade(&segment));
        segment
    }

    /// Memory of another owner.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len` bytes as long as `keepalive` is held: on the host, or, if the host
    /// does not dereference the address, on the device that owns the memory.
    pub unsafe fn foreign(base: NonNull<u8>, len: usize, keepalive: Arc<dyn Any + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { id: fresh_id(), base, len, home: Home::Foreign(keepalive) })
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The identity, unique among all segments of all processes of a job.
    pub fn id(&self) -> u64 {
        self.id
    }
}

mod mapped {
    use super::*;
    use crate::error::CommError;
    use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
    use rustix::fs::{MemfdFlags, SealFlags};
    use rustix::mm::{MapFlags, ProtFlags};

    /// The seals of a shared memfd: no process can shrink it while another reads it (SIGBUS).
    const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

    impl Segment {
        /// Zeroed memory that other processes can map. It has no file name: a killed process leaves nothing behind.
        pub fn shared(len: usize) -> Result<Arc<Self>, CommError> {
            let size = len.max(1).next_multiple_of(SEGMENT_ALIGN);
            let fail = |what| move |errno| CommError::Memory { what, bytes: len, errno };
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let fd = rustix::fs::memfd_create("halocline", flags).map_err(fail("create a memfd"))?;
            rustix::fs::ftruncate(&fd, size as u64).map_err(fail("size a memfd"))?;
            rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(fail("seal a memfd"))?;
            let base = map(fd.as_fd(), size).map_err(fail("map a memfd"))?;
            Ok(Self { id: fresh_id(), base, len, home: Home::Mapped(Some(fd)) }.known())
        }

        /// Maps the memfd of another process, after checking that it is what was announced.
        pub(crate) fn import(id: u64, len: usize, fd: OwnedFd) -> Result<Arc<Self>, CommError> {
            let fail = |what| move |errno| CommError::Memory { what, bytes: len, errno };
            let size = len.max(1).checked_next_multiple_of(SEGMENT_ALIGN).unwrap_or(usize::MAX);
            let seals = rustix::fs::fcntl_get_seals(&fd).map_err(fail("read the seals of a memfd"))?;
            let stat = rustix::fs::fstat(&fd).map_err(fail("inspect a memfd"))?;
            if !seals.contains(SEALS) || stat.st_size as u64 != size as u64 {
                return Err(CommError::BadSegment { announced: len, found: stat.st_size as u64 });
            }
            let base = map(fd.as_fd(), size).map_err(fail("map a peer's memfd"))?;
            Ok(Arc::new(Self { id, base, len, home: Home::Mapped(None) }))
        }

        /// The descriptor by which another process can map it, if it has one.
        pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            match &self.home {
                Home::Mapped(fd) => fd.as_ref().map(AsFd::as_fd),
                Home::Handle(fd) => Some(fd.as_fd()),
                _ => None,
            }
        }

        /// The length in the announcement to a receiver.
        pub(crate) fn announced(&self) -> u64 {
            if let Home::Handle(_) = self.home { Self::HANDLE } else { self.len as u64 }
        }

        /// The length that is announced for a [`Segment::handle`]; no memory is that long.
        pub(crate) const HANDLE: u64 = u64::MAX;
    }

    fn map(fd: BorrowedFd<'_>, size: usize) -> rustix::io::Result<NonNull<u8>> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses a free address range, so that no memory of the process is replaced.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, prot, flags, fd, 0)? };
        NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)
    }

    pub(super) fn unmap(base: NonNull<u8>, len: usize) {
        let size = len.max(1).next_multiple_of(SEGMENT_ALIGN);
        // SAFETY: `map` mapped so many bytes at `base`. Only the drop of the segment calls this, once, and code that
        // dereferences an address of the segment holds it.
        let unmapped = unsafe { rustix::mm::munmap(base.as_ptr().cast(), size) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Home::Heap(_) | Home::Mapped(Some(_)) = self.home {
            // Before another segment can have the addresses.
            allocated().remove(&self.base.addr().get());
        }
        match &self.home {
            // SAFETY: `heap` allocated the memory with this layout, and only the drop of the segment frees it. Code that
            // dereferences an address of the segment holds it.
            Home::Heap(layout) => unsafe { std::alloc::dealloc(self.base.as_ptr(), *layout) },
            Home::Foreign(_) | Home::Handle(_) => {}
            Home::Mapped(_) => mapped::unmap(self.base, self.len),
        }
    }
}

/// Ids count from a random number of the process, so that those of different processes do not collide, even if a
/// process id was reused.
fn fresh_id() -> u64 {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: OnceLock<AtomicU64> = OnceLock::new();
    NEXT.get_or_init(|| {
        use std::hash::{BuildHasher, Hasher};
        let random = std::hash::RandomState::new().build_hasher().finish();
        AtomicU64::new(random & !0xffff_ffff)
    })
    .fetch_add(1, Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::CommError;

    #[test]
    fn memory_of_another_length_than_announced_is_refused() {
        let segment = Segment::shared(SEGMENT_ALIGN).unwrap();
        let descriptor = segment.descriptor().unwrap();
        let import =
            |announced| Segment::import(1, announced, descriptor.try_clone_to_owned().unwrap()).err();
        assert!(import(SEGMENT_ALIGN).is_none());
        let (announced, found) = (SEGMENT_ALIGN + 1, SEGMENT_ALIGN as u64);
        let error = import(announced);
        let is_refused = |error: &CommError| matches!(error, CommError::BadSegment { announced: expected, found: actual } if (*expected, *actual) == (announced, found));
        assert!(error.as_ref().is_some_and(is_refused), "{error:?}");
    }
}
