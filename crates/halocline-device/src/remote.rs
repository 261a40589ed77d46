//! Memory of other processes: how a device exports an allocation, and opens and closes what another process has
//! exported. Who may do so when is decided above, by the mapping cache.

use crate::driver::Address;
use crate::reaper;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A device by its UUID, which is the same in every process; ordinals are not (`CUDA_VISIBLE_DEVICES`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// How an allocation gets into another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Host memory: a sealed memfd.
    Memfd,
    /// `cudaMalloc`: a legacy IPC handle of the base.
    Legacy,
    /// `cuMemCreate`: file descriptors of the physical memories that lie side by side, which have to ask for that.
    Vmm,
    /// `cudaMallocAsync` from an exportable pool: a file descriptor of the pool, and data of the pointer.
    Pool,
    /// A simulated device's: a memfd, or another address in a world that plays several processes.
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

/// One allocation that can be exported, or could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Allocation {
    /// Its first byte, in its process.
    pub base: Address,
    /// Its length in bytes; `base + bytes` does not overflow.
    pub bytes: u64,
    /// Its identity, never reused in its process (CUDA's buffer id).
    pub id: u64,
    /// Where it lies.
    pub device: DeviceId,
    /// How it is exported.
    pub kind: Kind,
}

impl Allocation {
    /// The address behind its last byte.
    pub fn end(&self) -> Address {
        self.base.saturating_add(self.bytes)
    }

    /// Whether the two share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    /// Whether one of the two must have been freed, since they share an address and are not the same. Of virtual memory
    /// any part may be exported.
    pub fn conflicts(&self, other: &Self) -> bool {
        let is_part = self.kind == Kind::Vmm && other.kind == Kind::Vmm;
        self != other && self.overlaps(other) && !is_part
    }
}

/// What another process needs to open an allocation.
#[derive(Debug, Default)]
pub struct Export {
    /// Bytes, as the driver gives them; at most [`Export::MOST`].
    pub handle: Vec<u8>,
    /// Descriptors that travel beside them; at most [`Export::MOST_DESCRIPTORS`].
    pub descriptors: Vec<OwnedFd>,
}

impl Export {
    /// The longest handle.
    pub const MOST: usize = 8 * Self::MOST_DESCRIPTORS;

    /// The most descriptors.
    pub const MOST_DESCRIPTORS: usize = 128;
}

/// A mapping that [`Provider::open`] has made.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// Where the allocation's first byte is in this process.
    pub address: Address,
    /// What the provider knows it by.
    pub key: u64,
}

/// Why an allocation is not exported or opened. The bytes are staged then.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No provider can export it.
    #[error("it belongs to its process alone; host memory can be mapped if the library has allocated it")]
    Private,
    /// It was allocated from a memory pool that is not exported: the default one, or one that was not made for it.
    #[error(
        "it comes from the default memory pool, or one without the handle type for POSIX file descriptors, which cannot be exported; a \
         pool that has it or cudaMalloc can"
    )]
    DefaultPool,
    /// Its creator did not ask for a handle that can be passed on.
    #[error("it was created without the handle type for POSIX file descriptors")]
    NoHandleType,
    /// It lies in too many physical memories.
    #[error("it lies in more than {} physical memories", Export::MOST_DESCRIPTORS)]
    TooManyPieces,
    /// One allocation of a pool that is larger than drivers import safely.
    #[error("it is larger than the 4 GiB that one allocation of a pool can have to be passed on safely")]
    TooLarge,
    /// Memory that overlaps it is open there.
    #[error("memory that overlaps it is open there already")]
    AlreadyOpen,
    /// The process or the device that opens it has no room for it.
    #[error("no memory or address space is left for it")]
    OutOfMemory,
    /// The device that opens it cannot reach the one where it lies.
    #[error("the device has no access to the memory of the other")]
    NoPeerAccess,
    /// The device that should open it, or the one where it lies, is not visible there.
    #[error("the device is not visible there")]
    NoDevice,
    /// The handle is of no allocation, or of another one than announced.
    #[error("its handle is not of the memory that was announced")]
    BadHandle,
    /// A process that exports or opens it may open no more files.
    #[error(
        "the limit of open files of its process, or of the one that opens it, is reached; raise it (`ulimit -n`)"
    )]
    TooManyFiles,
    /// The process that should open it ends.
    #[error("the process that should open it is at its end")]
    Ending,
    /// Another answer of the driver or the system.
    #[error("the driver or the system answered {0}")]
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

/// What exports the memory of one device, or of the host, and opens for that device what other processes have exported.
///
/// Calls may take milliseconds and may wait for the device; they belong where objects are bound. They may come from any
/// thread, also at once.
///
/// # Safety
/// Callers give out the addresses that a provider returns, and devices follow them.
/// - [`Provider::find`] tells the bounds and the identity of an allocation that contains the address. Memory that is freed and allocated
///   again has another identity.
/// - [`Provider::export`] exports that allocation and nothing else.
/// - From the address that [`Provider::open`] returns on, all bytes of the allocation are mapped until [`Provider::close`]. What
///   `open` cannot prove to be the announced allocation, it refuses.
/// - [`Provider::close_waits`] is true if closing waits for the device.
pub unsafe trait Provider: Send + Sync {
    /// The device.
    fn device(&self) -> DeviceId;

    /// The allocation around an address, if it is memory of this device; of virtual memory, the physical memories that
    /// hold so many bytes from there. Cheap.
    fn find(&self, address: Address, bytes: u64) -> Option<Allocation>;

    /// Whether an allocation that was found is still there. One call of the driver where [`Provider::find`] makes several; a false
    /// that is none costs no more than a find.
    fn still(&self, allocation: &Allocation) -> bool {
        self.find(allocation.base, allocation.bytes) == Some(*allocation)
    }

    /// What others need to open an allocation of this device.
    fn export(&self, allocation: &Allocation) -> Result<Export, Refusal>;

    /// Maps an allocation of another process, as a whole, for this device. `allocation` and `export` are what that
    /// process says, and are not to be trusted.
    fn open(&self, allocation: &Allocation, export: Export) -> Result<Opened, Refusal>;

    /// Takes back one [`Provider::open`]. Memory whose driver has been shut down is closed.
    ///
    /// # Safety
    /// It was opened by this provider, and nothing uses it.
    unsafe fn close(&self, opened: Opened) -> Result<(), Refusal>;

    /// Whether [`Provider::close`] waits for all that the device was given, and holds what other threads call meanwhile. Then it
    /// belongs behind the scenes ([`once_nothing_waits`]).
    fn close_waits(&self, _opened: &Opened) -> bool {
        false
    }

    /// Lets this device reach an allocation of this very process, which is never opened. Refused if there is no such
    /// allocation.
    fn adopt(&self, allocation: &Allocation) -> Result<(), Refusal>;
}

/// Calls something that waits for what devices were given, by a thread of its own: while no stream of this process waits for others
/// ([`crate::Waiting`]), in the order of these calls; never once the process ends.
pub fn once_nothing_waits(call: impl FnOnce() + Send + 'static) {
    reaper::give(call);
}

/// Memory of the library's own that nobody uses any more. It is freed when the last holder drops this.
pub struct Freeing {
    /// Where it lies.
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

/// Says of memory of a device that the library has allocated it: while this lives, nobody frees it, and whoever lets others map it
/// hears before anybody does ([`Exporter`]), so that no driver has to be asked whether it is still there.
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
    /// Memory of a device, by its first byte and identity.
    ///
    /// # Safety
    /// The memory is not freed as long as this lives; then by [`free_once_unmapped`].
    pub unsafe fn new(device: DeviceId, base: Address, id: u64) -> Self {
        all_own().insert((device, base, id));
        Self { device, base, id }
    }

    /// Whether an allocation is such memory.
    pub fn covers(allocation: &Allocation) -> bool {
        all_own().contains(&(allocation.device, allocation.base, allocation.id))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        all_own().remove(&(self.device, self.base, self.id));
    }
}

/// Whoever lets other processes map memory of this one, and is told before the library frees any.
pub trait Exporter: Send + Sync {
    /// Has others unmap the memory, and keeps `freeing` until they have. Does not block.
    fn before_free(&self, freeing: &Arc<Freeing>);
}

static EXPORTERS: Mutex<Vec<Weak<dyn Exporter>>> = Mutex::new(Vec::new());

/// From now on an exporter is told of what is freed, as long as somebody holds it.
pub fn tell(exporter: Weak<dyn Exporter>) {
    let mut exporters = EXPORTERS.lock().unwrap_or_else(PoisonError::into_inner);
    exporters.retain(|known| known.strong_count() > 0);
    exporters.push(exporter);
}

/// Calls `free` once nobody has mapped memory of the library's own any more: at once, or later, from another thread.
pub fn free_once_unmapped(own: Own, free: impl FnOnce() + Send + Sync + 'static) {
    let Own { device, base, id } = own;
    // Before anybody hears of it: who asks in between finds it to be anybody's, or hears, too.
    drop(own);
    free_once_unmapped_by_all(device, base, id, free);
}

/// The same, of memory by its device, first byte and identity.
pub fn free_once_unmapped_by_all(
    device: DeviceId,
    base: Address,
    id: u64,
    free: impl FnOnce() + Send + Sync + 'static,
) {
    let freeing = Arc::new(Freeing { device, base, id, free: Some(Box::new(free)) });
    // Not under the lock: what an exporter does may free something else.
    let exporters = EXPORTERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    exporters.iter().filter_map(Weak::upgrade).for_each(|exporter| exporter.before_free(&freeing));
}
