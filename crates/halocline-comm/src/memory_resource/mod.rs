//! Where payloads lie: buffers of host and device memory, and the resources that allocate them.
//!
//! A [`MemoryResource`] is an argument of every operation that receives payloads. [`HostMemory`] is host memory that the
//! ranks of a node can map, [`DeviceMemory`] that of a device, [`PinnedMemory`] what both reach. [`Limited`] puts a limit on another resource: on shortage its user waits until buffers are given
//! back, then spills to a second resource if there is one, then fails with [`MemoryError::Shortage`].
//!
//! ```
//! use halocline_comm::memory_resource::{HostMemory, Limited, MemoryError, MemoryResource};
//! use halocline_comm::Communicator;
//! use std::sync::Arc;
//!
//! let comm = Communicator::single();
//! let limited = Limited::new(Arc::new(HostMemory::of(&comm)), 1 << 20);
//! let buffer = limited.allocate(1 << 19)?;
//! assert_eq!((buffer.len(), limited.statistics().in_use), (1 << 19, 1 << 19));
//! assert!(matches!(limited.allocate(1 << 20), Err(MemoryError::Shortage { limit: 0x100000, .. })));
//! drop(buffer);
//! assert_eq!(limited.statistics().in_use, 0);
//! # Ok::<(), MemoryError>(())
//! ```

mod account;
mod buffer;
mod device;
mod host;
mod limited;
mod pool;
mod reserve;
#[cfg(test)]
mod tests;

pub use account::MemoryAccount;
pub use buffer::Buffer;
pub(crate) use buffer::Kept;
pub use device::{DeviceMemory, PinnedMemory};
pub use host::HostMemory;
pub(crate) use host::SMALL;
pub use limited::Limited;
pub use reserve::Reservation;

use crate::error::CommError;
use halocline_device::{Device, DeviceError};
use std::fmt;
use std::task::Waker;
use std::time::Duration;

/// The kind of memory that a buffer lies in.
///
/// ```
/// use halocline_comm::Communicator;
/// use halocline_comm::memory_resource::{Buffer, HostMemory, MemoryError, MemoryKind, MemoryResource};
///
/// /// The bytes of a buffer, without a copy where the host can read it.
/// fn bytes_of(buffer: &Buffer) -> Option<&[u8]> {
///     match buffer.kind() {
///         MemoryKind::Host | MemoryKind::Pinned => buffer.bytes(),
///         MemoryKind::Device => None,
///     }
/// }
///
/// let memory = HostMemory::of(&Communicator::single());
/// assert_eq!(memory.kind(), MemoryKind::Host);
/// assert_eq!(bytes_of(&memory.allocate(8)?).map(<[u8]>::len), Some(8));
/// # Ok::<(), MemoryError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKind {
    /// Memory of the host.
    Host,
    /// Memory of the host that devices access directly.
    Pinned,
    /// Memory of a device.
    Device,
}

impl MemoryKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Host, Self::Pinned, Self::Device];
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Pinned => "pinned host",
            Self::Device => "device",
        })
    }
}

/// Allocates the memory of received payloads. Implement it to use an allocator of your own: [`Buffer::foreign_mut`] and
/// [`Buffer::foreign_device`] make buffers of its memory.
///
/// ```
/// use halocline_comm::memory_resource::{Buffer, MemoryAccount, MemoryError, MemoryKind, MemoryResource, MemoryStatistics};
/// use std::sync::Arc;
/// use std::task::Waker;
///
/// /// Memory of the program's own pool.
/// struct Pool(Arc<MemoryAccount>);
///
/// impl MemoryResource for Pool {
///     fn kind(&self) -> MemoryKind {
///         MemoryKind::Host
///     }
///
///     fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
///         self.0.count(bytes, || Ok(vec![0; bytes].into()))
///     }
///
///     fn watch(&self, waker: &Waker) {
///         self.0.watch(waker);
///     }
///
///     fn statistics(&self) -> MemoryStatistics {
///         self.0.statistics()
///     }
/// }
///
/// let pool = Pool(MemoryAccount::new(MemoryKind::Host));
/// let buffer = pool.allocate(100)?;
/// assert_eq!((buffer.len(), pool.statistics().in_use), (100, 100));
/// # Ok::<(), MemoryError>(())
/// ```
pub trait MemoryResource: Send + Sync {
    /// The kind of memory that it allocates, spilled buffers aside.
    fn kind(&self) -> MemoryKind;

    /// The device whose memory it allocates; `None` for memory of the host.
    fn device(&self) -> Option<&Device> {
        None
    }

    /// Allocates a buffer of so many bytes with any content. One of device memory with an event ([`Buffer::ready_after`]) is written after
    /// that, as memory of a stream-ordered pool has to be. Never waits. May be called on any thread, also on the progress thread;
    /// after [`MemoryError::Postponed`] the caller calls [`MemoryResource::watch`] and tries again later, however long that takes.
    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError>;

    /// Takes a message of the host as a buffer without a copy, counted as if it was allocated. Gives it back if it is short
    /// of memory or has other memory. Never waits.
    fn adopt(&self, message: Vec<u8>) -> Result<Buffer, Vec<u8>> {
        Err(message)
    }

    /// Allocates a buffer elsewhere after a shortage; `None` if the resource has no other memory. Never waits.
    fn spill(&self, _bytes: usize) -> Option<Result<Buffer, MemoryError>> {
        None
    }

    /// How long a caller waits on a shortage for buffers to be given back, before it spills or fails.
    fn patience(&self, _bytes: usize) -> Duration {
        Duration::ZERO
    }

    /// Wakes `waker` once, when memory is given back after this call, or when a postponed request can be tried again. Called
    /// repeatedly with the same waker ([`Waker::will_wake`]) while a request waits: keep it once, as [`MemoryAccount::watch`] does. A resource
    /// that does nothing here lets requests of a [`Limited`] on it wait up to twice as long as they have to: they ask again
    /// after 1 ms, 2 ms, 4 ms and so on.
    fn watch(&self, _waker: &Waker) {}

    /// Frees idle memory that it keeps for later buffers.
    fn trim(&self) {}

    /// The statistics.
    fn statistics(&self) -> MemoryStatistics;
}

/// Statistics of a memory resource.
///
/// ```
/// use halocline_comm::memory_resource::{HostMemory, MemoryError, MemoryResource};
/// use halocline_comm::Communicator;
///
/// let memory = HostMemory::of(&Communicator::single());
/// drop(memory.allocate(300)?);
/// let buffer = memory.allocate(100)?;
/// let statistics = memory.statistics();
/// assert_eq!((statistics.in_use, statistics.peak, statistics.allocations), (100, 300, 2));
/// # Ok::<(), MemoryError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// Bytes of buffers that are in use.
    pub in_use: usize,
    /// The most bytes that were in use at once.
    pub peak: usize,
    /// Buffers allocated so far.
    pub allocations: u64,
    /// Bytes that were allocated elsewhere because of a shortage.
    pub spilled: u64,
}

/// Why memory was not allocated.
///
/// ```
/// use halocline_comm::Communicator;
/// use halocline_comm::memory_resource::{HostMemory, Limited, MemoryError, MemoryResource};
/// use std::sync::Arc;
///
/// let memory = Limited::new(Arc::new(HostMemory::of(&Communicator::single())), 1000);
/// let first = memory.allocate(800)?;
/// let Err(error) = memory.allocate(300) else { panic!("800 of 1000 bytes are in use") };
/// let MemoryError::Shortage { asked, in_use, limit, .. } = error else { panic!("{error}") };
/// assert_eq!((asked, in_use, limit), (300, 800, 1000));
///
/// // After a shortage the same request succeeds once enough buffers are dropped.
/// assert!(error.is_shortage());
/// drop(first);
/// memory.allocate(300)?;
/// # Ok::<(), MemoryError>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The limit of the resource is reached.
    #[error(
        "{asked} bytes of {kind} memory were asked for, and {in_use} of at most {limit} are in use; free buffers, raise the limit, \
         or let the resource spill"
    )]
    Shortage {
        /// The kind of memory.
        kind: MemoryKind,
        /// Bytes asked for.
        asked: usize,
        /// Bytes in use.
        in_use: usize,
        /// The most bytes.
        limit: usize,
    },
    /// A resource of the program could not allocate.
    #[error(
        "the memory resource of the program cannot allocate {asked} bytes: {why}; free some of its memory"
    )]
    Foreign {
        /// Bytes asked for.
        asked: usize,
        /// Its message.
        why: String,
    },
    /// A resource of the program gave other memory than was asked for, or panicked.
    #[error(
        "the memory resource of the program is faulty: asked for {asked} bytes, {why}; correct the resource"
    )]
    Faulty {
        /// Bytes asked for.
        asked: usize,
        /// The fault.
        why: String,
    },
    /// A resource of the program allocates in threads of the program alone, and this is another one.
    #[error(
        "the memory resource allocates within calls of the program only: the next one allocates the {asked} bytes \
         that are asked for; wait for the operation"
    )]
    Postponed {
        /// Bytes asked for.
        asked: usize,
    },
    /// Host memory could not be allocated.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Device memory could not be allocated.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

halocline_plan::debug_as_text!(MemoryError);

impl MemoryError {
    /// Whether the resource waits for a call of the program.
    fn is_postponed(&self) -> bool {
        matches!(self, Self::Postponed { .. })
    }

    /// Whether memory that is given back may let the same request succeed.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Shortage { .. } | Self::Foreign { .. } => true,
            Self::Faulty { .. } | Self::Postponed { .. } => false,
            Self::Comm(error) => matches!(error, CommError::OutOfMemory(_) | CommError::Memory { .. }),
            Self::Device(error) => matches!(error, DeviceError::OutOfMemory { .. }),
        }
    }
}
