//! Buffers that a transport sends from, or receives into, without a copy.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A buffer that a transport sends from or receives into without a copy, if it can, with space
/// behind it for the transport's trailer (`mpi::TRAILER`). The owner may use it again once all buffers with the
/// same count are dropped.
pub struct Borrowed {
    first: NonNull<u8>,
    len: usize,
    out: Arc<AtomicUsize>,
    /// Keeps the bytes there.
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the bytes are not bound to a thread, and only the holder of the `Borrowed` accesses them, as the caller of
// `Borrowed::new` promises. `out` and the owner are `Send` and `Sync`.
unsafe impl Send for Borrowed {}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Borrowed({} bytes)", self.len)
    }
}

impl Borrowed {
    /// Borrows `len` bytes. `out` counts the buffers that are not dropped yet.
    ///
    /// # Safety
    /// - The bytes, and as many behind them as `mpi::TRAILER` says, are initialised and valid for
    ///   reads and writes as long as `owner` is held. Nothing else accesses them before this is dropped.
    /// - They are memory of the host. Those that are only given to [`crate::Transport::post_bulk`] or
    ///   [`crate::Bulk::post_receive`] may be memory of a device that the transport accepts, and need no space behind them.
    pub unsafe fn new(
        first: NonNull<u8>,
        len: usize,
        out: &Arc<AtomicUsize>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        out.fetch_add(1, Ordering::Relaxed);
        Self { first, len, out: Arc::clone(out), _owner: owner }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the caller of `Borrowed::new` promises that the bytes are initialised memory of the host that nothing else
        // accesses, and `self` holds their owner. (Those that may be memory of a device are given to a transport, which
        // does not call this for them.)
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// The bytes, and the trailer behind them, once both were written.
    pub(crate) fn parts(&self) -> (&[u8], &[u8; crate::mpi::TRAILER]) {
        // SAFETY: the caller of `Borrowed::new` promises that there is initialised space behind the bytes, which nothing
        // else accesses, and `self` holds their owner.
        (self.bytes(), unsafe { self.first.add(self.len).cast().as_ref() })
    }

    /// Writes a trailer behind the bytes, and includes it.
    pub(crate) fn extended(mut self, trailer: [u8; crate::mpi::TRAILER]) -> Self {
        // SAFETY: the caller of `Borrowed::new` promises that there is space behind the bytes, which nothing else accesses,
        // and `self` holds their owner.
        unsafe {
            self.first.as_ptr().add(self.len).cast::<[u8; crate::mpi::TRAILER]>().write_unaligned(trailer)
        };
        self.len += trailer.len();
        self
    }

    /// A copy with capacity for a trailer.
    pub(crate) fn copied(&self) -> Vec<u8> {
        let mut copy = crate::buffers::take(self.len + crate::mpi::TRAILER);
        copy.extend_from_slice(self.bytes());
        copy
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.out.fetch_sub(1, Ordering::Release);
    }
}

/// The bytes of a message.
#[derive(Debug)]
pub(crate) enum Payload {
    /// Bytes of its own.
    Owned(Vec<u8>),
    /// Bytes that stay where they are.
    Borrowed(Borrowed),
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Borrowed(buffer) => buffer.bytes(),
        }
    }

    /// Releases the bytes after they were sent.
    pub(crate) fn give_back(self) {
        match self {
            Self::Owned(bytes) => crate::buffers::put(bytes),
            Self::Borrowed(buffer) => drop(buffer),
        }
    }
}
