//! Memory of a device, and host memory that it accesses directly.

use super::account::MemoryAccount;
use super::host::{HostMemory, Pages};
use super::pool::{Pool, class};
use super::{Buffer, MemoryError, MemoryKind, MemoryResource, MemoryStatistics};
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use halocline_device::{Device, Memory};
use std::sync::Arc;

/// The most idle bytes of device memory that a resource keeps.
const KEEP: usize = 1 << 30;

/// The smallest block of device memory.
const LEAST: usize = 512;

/// Memory of a device. Clones share one pool of blocks, so that repeated rounds call no driver and map nothing anew.
///
/// ```
/// use halocline_comm::memory_resource::{DeviceMemory, MemoryKind, MemoryResource};
/// use halocline_device::sim;
///
/// // A simulated device; `halocline_device::cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
///
/// let memory = DeviceMemory::new(&device);
/// let buffer = memory.allocate(4096)?;
/// assert_eq!((buffer.len(), buffer.kind()), (4096, MemoryKind::Device));
/// assert_eq!(buffer.device(), Some(&device));
/// // The host cannot read it.
/// assert_eq!(buffer.bytes(), None);
/// # Ok::<(), halocline_comm::memory_resource::MemoryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct DeviceMemory {
    device: Device,
    pool: Arc<Pool<Memory>>,
    account: Arc<MemoryAccount>,
}

/// A block of device memory, put back into its pool when it is dropped.
struct Block {
    pool: Arc<Pool<Memory>>,
    class: usize,
    memory: Option<Memory>,
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            drop(self.pool.put(self.class, memory));
        }
    }
}

impl DeviceMemory {
    /// Memory of this device.
    pub fn new(device: &Device) -> Self {
        Self::keeping(KEEP, device)
    }

    /// The same, whose pool keeps at most so many idle bytes.
    fn keeping(bytes: usize, device: &Device) -> Self {
        let account = MemoryAccount::new(MemoryKind::Device);
        Self { device: device.clone(), pool: Arc::new(Pool::new(bytes)), account }
    }

    /// The same for internal copies of the library.
    pub(crate) fn of_library(device: &Device) -> Self {
        Self::keeping(KEEP / 4, device)
    }
}

impl MemoryResource for DeviceMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn device(&self) -> Option<&Device> {
        Some(&self.device)
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        let charge = self.account.charge(bytes)?;
        if bytes == 0 {
            return Ok(Buffer::empty_of(self).charged(charge));
        }
        let class = class(bytes, LEAST).ok_or(CommError::OutOfMemory(bytes))?;
        let memory = match self.pool.take(class) {
            Some(memory) => memory,
            None => self.device.allocate(class).or_else(|_| {
                // Idle blocks of other sizes may be what is missing.
                self.trim();
                self.device.allocate(class)
            })?,
        };
        let (address, pool) = (memory.at(0), Arc::clone(&self.pool));
        let block = Block { pool, class, memory: Some(memory) };
        // SAFETY: the block has `class` bytes of memory of the device, which only this buffer uses until it drops the block.
        let buffer = unsafe { Buffer::foreign_device(address, bytes, &self.device, block) };
        Ok(buffer.charged(charge))
    }

    fn trim(&self) {
        drop(self.pool.drain());
    }

    fn statistics(&self) -> MemoryStatistics {
        self.account.statistics()
    }
}

/// Host memory that a device accesses directly and that the ranks of a node can map.
///
/// ```
/// use halocline_comm::memory_resource::{MemoryKind, MemoryResource, PinnedMemory};
/// use halocline_comm::Communicator;
/// use halocline_device::sim;
///
/// // A simulated device; `halocline_device::cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
///
/// let memory = PinnedMemory::of(&Communicator::single(), &device);
/// let mut buffer = memory.allocate(4096)?;
/// assert_eq!(buffer.kind(), MemoryKind::Pinned);
/// buffer.bytes_mut().expect("memory of the host").fill(7);
/// # Ok::<(), halocline_comm::memory_resource::MemoryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PinnedMemory {
    host: HostMemory,
    device: Device,
    pool: Arc<Pool<PinnedPages>>,
    account: Arc<MemoryAccount>,
}

/// Registered pages; the registration ends first.
#[derive(Debug)]
struct PinnedPages {
    #[expect(dead_code, reason = "held for its drop")]
    registration: Memory,
    pages: Arc<Pages>,
}

struct PinnedBlock {
    pool: Arc<Pool<PinnedPages>>,
    class: usize,
    pages: Option<PinnedPages>,
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            drop(self.pool.put(self.class, pages));
        }
    }
}

impl PinnedMemory {
    /// Memory of this rank that is pinned for a device.
    pub fn of(comm: &Communicator, device: &Device) -> Self {
        Self::over(HostMemory::of(comm), device)
    }

    pub(crate) fn over(host: HostMemory, device: &Device) -> Self {
        let account = MemoryAccount::new(MemoryKind::Pinned);
        Self { host, device: device.clone(), pool: Arc::new(Pool::new(KEEP / 4)), account }
    }

    fn pin(&self, class: usize) -> Result<PinnedPages, MemoryError> {
        let pages = Arc::new(self.host.pages(class)?);
        let owner = Arc::clone(&pages);
        // SAFETY: the pages stay valid as long as they are held: by the registration, as its owner.
        let registration = unsafe { self.device.register(pages.address(), class, owner) }?;
        Ok(PinnedPages { registration, pages })
    }
}

impl MemoryResource for PinnedMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Pinned
    }

    fn device(&self) -> Option<&Device> {
        Some(&self.device)
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        let charge = self.account.charge(bytes)?;
        let with_spare = bytes.checked_add(Communicator::SPARE).and_then(|bytes| class(bytes, 4096));
        let class = with_spare.ok_or(CommError::OutOfMemory(bytes))?;
        let pages = self.pool.take(class).map_or_else(|| self.pin(class), Ok)?;
        let (address, pool) = (pages.pages.address(), Arc::clone(&self.pool));
        let block = PinnedBlock { pool, class, pages: Some(pages) };
        // SAFETY: the pages have `class` initialised bytes, which only this buffer accesses until it drops the block.
        let buffer =
            unsafe { Buffer::owned(address, (bytes, class - bytes), MemoryKind::Pinned, Box::new(block)) };
        Ok(buffer.on(self.device.clone()).charged(charge))
    }

    fn trim(&self) {
        drop(self.pool.drain());
        self.host.trim();
    }

    fn statistics(&self) -> MemoryStatistics {
        self.account.statistics()
    }
}
