//! Memory of other processes: a device exports an allocation, and opens and closes an allocation that
//! another process exported. The mapping cache decides when.

use crate::deferred_free;
use crate::driver::Address;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A device by its UUID, which is the same in every process. Ordinals differ (`CUDA_VISIBLE_DEVICES`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId(pub [u8; 16]);

impl DeviceId {
    /// The host.
    pub const HOST: Self = Self([0; 16]);
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::HOST {
            return f.write_str("the host");
        }
        f.write_str("GPU")?;
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// How an allocation is shared with another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Host memory: a sealed memfd.
    Memfd,
    /// `cudaMalloc`: a legacy IPC handle of the base.
    Legacy,
    /// `cuMemCreate`: file descriptors of the adjacent physical memories, which must have been created
    /// exportable.
    Vmm,
    /// `cudaMallocAsync` from an exportable pool: a file descriptor of the pool, and the export data of the
    /// pointer.
    Pool,
    /// Memory of a simulated device: a memfd, or another address in a world that simulates several
    /// processes.
    Simulated,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Memfd => "memfd",
            Kind::Legacy => "legacy IPC handle",
            Kind::Vmm => "VMM descriptor",
            Kind::Pool => "memory pool",
            Kind::Simulated => "simulation",
        })
    }
}

/// An allocation that may be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Allocation {
    /// Its first byte, in its own process.
    pub base: Address,
    /// Its length in bytes; `base + bytes` does not overflow.
    pub bytes: u64,
    /// Its identity, never reused in its process (CUDA's buffer id).
    pub id: u64,
    /// The device that it belongs to.
    pub device: DeviceId,
    /// How it is exported.
    pub kind: Kind,
}

impl Allocation {
    /// The address after its last byte.
    pub fn end(&self) -> Address {
        self.base.saturating_add(self.bytes)
    }

    /// Whether the two allocations share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    /// Whether one of the two must have been freed, because they overlap and differ. Any part of virtual
    /// memory may be exported.
    pub fn conflicts(&self, other: &Self) -> bool {
        let is_part = self.kind == Kind::Vmm && other.kind == Kind::Vmm;
        self != other && self.overlaps(other) && !is_part
    }
}

/// The data that another process needs to open an allocation.
#[derive(Debug, Default)]
pub struct Export {
    /// Opaque bytes from the driver; at most [`Export::MOST`].
    pub handle: Vec<u8>,
    /// File descriptors that travel with them; at most [`Export::MOST_DESCRIPTORS`].
    pub descriptors: Vec<OwnedFd>,
}

impl Export {
    /// Maximum length of a handle.
    pub const MOST: usize = 8 * Self::MOST_DESCRIPTORS;

    /// Maximum number of descriptors.
    pub const MOST_DESCRIPTORS: usize = 128;
}

/// A mapping made by [`Provider::open`].
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// Address of the allocation's first byte in this process.
    pub address: Address,
    /// The provider's key of the mapping.
    pub key: u64,
}

/// Why an allocation cannot be exported or opened. Its bytes are then staged.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No provider can export it.
    #[error("only its own process can access it; allocate host memory through the library to map it")]
    Private,
    /// It belongs to a memory pool that cannot be exported: the default pool, or one created without a
    /// POSIX handle type.
    #[error(
        "it comes from the default memory pool, or one without the handle type for POSIX file descriptors, which cannot be exported; a \
         pool that has it or cudaMalloc can"
    )]
    DefaultPool,
    /// It was created without an exportable handle type.
    #[error("it was created without the handle type for POSIX file descriptors")]
    NoHandleType,
    /// It consists of too many physical memories.
    #[error("it consists of more than {} physical memories", Export::MOST_DESCRIPTORS)]
    TooManyPieces,
    /// An allocation of a pool that is larger than drivers import safely.
    #[error("it is larger than 4 GiB, the most that an allocation of a pool can have to be imported safely")]
    TooLarge,
    /// The peer has overlapping memory open.
    #[error("the peer already has memory open that overlaps it")]
    AlreadyOpen,
    /// The opening process or device is out of memory or address space.
    #[error("no memory or address space is left to map it")]
    OutOfMemory,
    /// The opening device has no peer access to the owner.
    #[error("the opening device has no peer access to its device")]
    NoPeerAccess,
    /// The device of the opening process, or the owner's device, is not visible to that process.
    #[error("its device is not visible to the opening process")]
    NoDevice,
    /// The handle is invalid, or refers to another allocation than announced.
    #[error("its handle does not refer to the announced memory")]
    BadHandle,
    /// The exporting or the opening process has reached its limit of open files.
    #[error(
        "the limit of open files of its process, or of the one that opens it, is reached; raise it (`ulimit -n`)"
    )]
    TooManyFiles,
    /// The process that should open it is exiting.
    #[error("the process that should open it is exiting")]
    Ending,
    /// Another error code of the driver or the system.
    #[error("the driver or the system returned error {0}")]
    Other(i32),
}

halocline_plan::debug_as_text!(Refusal);

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOMEM => Self::OutOfMemory,
            Errno::MFILE | Errno::NFILE => Self::TooManyFiles,
            other => Self::Other(other.raw_os_error()),
        }
    }
}

/// Exports the memory of one device, or of the host, and opens for that device the memory that other
/// processes exported.
///
/// Calls may take milliseconds and may wait for the device; make them when objects are bound. They may come
/// from any thread, concurrently.
///
/// # Safety
/// Callers hand out the addresses that a provider returns, and devices dereference them.
/// - [`Provider::find`] returns the bounds and the identity of an allocation that contains the address.
///   Memory that is freed and allocated again has another identity.
/// - [`Provider::export`] exports that allocation and nothing else.
/// - From the address that [`Provider::open`] returns, all bytes of the allocation are mapped until
///   [`Provider::close`]. `open` refuses a handle that it cannot verify to be the announced allocation.
/// - [`Provider::close_waits`] is true if closing waits for the device.
pub unsafe trait Provider: Send + Sync {
    /// The device whose memory it exports, and for which it opens memory.
    fn device(&self) -> DeviceId;

    /// The allocation around an address, if it is memory of this device. For virtual memory, the physical
    /// memories that hold `bytes` bytes from the address. Cheap.
    fn find(&self, address: Address, bytes: u64) -> Option<Allocation>;

    /// Whether an allocation that was found still exists. One driver call, where [`Provider::find`] makes
    /// several. A false negative only costs another `find`.
    fn still(&self, allocation: &Allocation) -> bool {
        self.find(allocation.base, allocation.bytes) == Some(*allocation)
    }

    /// The data that others need to open an allocation of this device.
    fn export(&self, allocation: &Allocation) -> Result<Export, Refusal>;

    /// Maps a whole allocation of another process for this device. `allocation` and `export` come from that
    /// process and are untrusted.
    fn open(&self, allocation: &Allocation, export: Export) -> Result<Opened, Refusal>;

    /// Undoes one [`Provider::open`]. After the driver has shut down, the memory counts as closed.
    ///
    /// # Safety
    /// It was opened by this provider, and nothing uses it.
    unsafe fn close(&self, opened: Opened) -> Result<(), Refusal>;

    /// Whether [`Provider::close`] waits for all work of the device and blocks calls of other threads
    /// meanwhile. The caller then defers it ([`once_nothing_waits`]).
    fn close_waits(&self, _opened: &Opened) -> bool {
        false
    }

    /// Makes an allocation of this process, which is never opened, accessible to this device. Fails if the
    /// allocation does not exist.
    fn adopt(&self, allocation: &Allocation) -> Result<(), Refusal>;
}

/// Defers a call that waits for device work to a thread of the library. The thread makes these calls in
/// order, while no stream of this process waits for other threads ([`crate::Waiting`]), and stops when the
/// process exits.
pub fn once_nothing_waits(call: impl FnOnce() + Send + 'static) {
    deferred_free::queue(call);
}

/// Unused memory of the library. It is freed when the last holder drops this.
pub struct Freeing {
    /// The device that it belongs to.
    pub device: DeviceId,
    /// Its first byte.
    pub base: Address,
    /// Its identity ([`Allocation::id`]).
    pub id: u64,
    free: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl fmt::Debug for Freeing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Freeing({:#x} of {})", self.base, self.device)
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            free();
        }
    }
}

/// Marks device memory as allocated by the library. While this exists, the memory is not freed, and
/// exporters are notified before it is freed ([`Exporter`]), so there is no need to ask the driver whether
/// it still exists.
#[derive(Debug)]
pub struct Own {
    device: DeviceId,
    base: Address,
    id: u64,
}

static OWN: Mutex<BTreeSet<(DeviceId, Address, u64)>> = Mutex::new(BTreeSet::new());

fn all_own() -> MutexGuard<'static, BTreeSet<(DeviceId, Address, u64)>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Own {
    /// Marks memory of a device by its first byte and identity.
    ///
    /// # Safety
    /// The memory is not freed while this exists, and then only through [`free_once_unmapped`].
    pub unsafe fn new(device: DeviceId, base: Address, id: u64) -> Self {
        all_own().insert((device, base, id));
        Self { device, base, id }
    }

    /// Whether an allocation is memory of the library.
    pub fn covers(allocation: &Allocation) -> bool {
        all_own().contains(&(allocation.device, allocation.base, allocation.id))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        all_own().remove(&(self.device, self.base, self.id));
    }
}

/// Shares memory of this process with other processes, and is notified before the library frees any.
pub trait Exporter: Send + Sync {
    /// Makes the peers unmap the memory, and keeps `freeing` until they have. Does not block.
    fn before_free(&self, freeing: &Arc<Freeing>);
}

static EXPORTERS: Mutex<Vec<Weak<dyn Exporter>>> = Mutex::new(Vec::new());

/// Registers an exporter. It is notified of freed memory until it is dropped.
pub fn register_exporter(exporter: Weak<dyn Exporter>) {
    let mut exporters = EXPORTERS.lock().unwrap_or_else(PoisonError::into_inner);
    exporters.retain(|known| known.strong_count() > 0);
    exporters.push(exporter);
}

/// Calls `free` once no peer has the memory mapped: at once, or later from another thread.
pub fn free_once_unmapped(own: Own, free: impl FnOnce() + Send + Sync + 'static) {
    let Own { device, base, id } = own;
    // First, so that a concurrent caller either finds the memory unmarked or is notified, too.
    drop(own);
    free_once_unmapped_by_all(device, base, id, free);
}

/// As [`free_once_unmapped`], for memory given by device, first byte and identity.
pub fn free_once_unmapped_by_all(
    device: DeviceId,
    base: Address,
    id: u64,
    free: impl FnOnce() + Send + Sync + 'static,
) {
    let freeing = Arc::new(Freeing { device, base, id, free: Some(Box::new(free)) });
    // Without the lock, because an exporter may free other memory.
    let exporters = EXPORTERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    exporters.iter().filter_map(Weak::upgrade).for_each(|exporter| exporter.before_free(&freeing));
}
