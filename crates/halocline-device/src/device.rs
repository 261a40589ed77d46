//! A device and the resources that it owns: memory, streams, copy tables. [`Driver`] documents ordering,
//! blocking and failure of each call.

use crate::driver::{
    Address, Capture, Driver, Epoch, MemorySpace, Place, Priority, RawStream, RawTable, TableSpec, ValueOp,
};
use crate::error::DeviceError;
use crate::event::{Event, EventPool};
use crate::lists::ListSpec;
use crate::messages::MessageLibrary;
use crate::tuning::Tuning;
use crate::{deferred_free, remote};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

mod graph;
mod memory;
mod stream;

pub use graph::Graph;
use memory::Kind;
pub use memory::Memory;
pub use stream::Stream;

/// A device. Clones refer to the same device.
///
/// ```
/// use halocline_device::{MemorySpace, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// assert_eq!(device.space(), MemorySpace::Device(0));
///
/// // Device memory, freed when dropped.
/// let memory = device.allocate(4096)?;
/// assert_eq!(device.place_of(memory.at(100))?, memory.place());
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Device(Arc<dyn Driver>);

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {})", self.0.ordinal(), self.0.name())
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Device {}

impl Device {
    /// The device of a driver.
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self(driver)
    }

    /// The raw driver calls.
    pub fn driver(&self) -> &dyn Driver {
        &*self.0
    }

    /// Identity of the device in this process: [`Driver::machine`] and ordinal.
    pub fn id(&self) -> (usize, u32) {
        (self.0.machine(), self.0.ordinal())
    }

    /// The index of this device on its machine, from 0.
    pub fn ordinal(&self) -> u32 {
        self.0.ordinal()
    }

    /// The location of its memory.
    pub fn space(&self) -> MemorySpace {
        MemorySpace::Device(self.ordinal())
    }

    /// Why the device has failed, if it has. Never blocks.
    pub fn failure(&self) -> Option<DeviceError> {
        self.0.failure()
    }

    /// Number of streams that can wait without blocking others: see [`Driver::queues`].
    pub fn queues(&self) -> u32 {
        self.0.queues()
    }

    /// Number of thread blocks that may wait at once in copy tables: see [`Driver::waiting_block_limit`].
    pub fn waiting_block_limit(&self) -> u32 {
        self.0.waiting_block_limit()
    }

    /// The constants for its copies: see [`Driver::tuning`].
    pub fn tuning(&self) -> Tuning {
        self.0.tuning()
    }

    /// See [`Driver::sees_writes_of_networks`].
    pub fn sees_writes_of_networks(&self) -> bool {
        self.0.sees_writes_of_networks()
    }

    /// Allocates uninitialised device memory, aligned to 256 bytes.
    pub fn allocate(&self, bytes: usize) -> Result<Memory, DeviceError> {
        let place = self.once_freed(|| self.0.allocate(bytes))?;
        let mut memory = self.memory(place, Kind::Device);
        // SAFETY: the drop of `Memory` frees it by `free_once_unmapped`, which takes the `Own`.
        let own = |device| unsafe { remote::Own::new(device, place.base, place.id) };
        memory.own = self.0.uuid().map(own);
        Ok(memory)
    }

    fn memory(&self, place: Place, kind: Kind) -> Memory {
        Memory { device: self.clone(), place, kind, held: None, own: None }
    }

    /// Allocates; if that fails, frees deferred memory and tries again.
    fn once_freed<T>(&self, allocate: impl Fn() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        match allocate() {
            Err(DeviceError::OutOfMemory { .. } | DeviceError::Exhausted { .. }) if self.0.frees_wait() => {
                deferred_free::drain();
                allocate()
            }
            other => other,
        }
    }

    /// Declares that streams of this device may wait for other threads, which defers freeing. Returns
    /// `None` if freeing does not wait for the device. Blocks while something is being freed
    /// ([`crate::Waiting::begin`]).
    pub fn begin_waiting(&self) -> Option<deferred_free::Waiting> {
        self.0.frees_wait().then(deferred_free::Waiting::begin)
    }

    /// Frees something now, or deferred if freeing waits for the device.
    fn free(&self, free: impl FnOnce(&dyn Driver) + Send + 'static) {
        match self.0.frees_wait() {
            false => free(&*self.0),
            true => {
                let driver = Arc::clone(&self.0);
                deferred_free::queue(move || free(&*driver));
            }
        }
    }

    /// Allocates zeroed pinned host memory, which all devices can access.
    pub fn allocate_pinned(&self, bytes: usize) -> Result<Memory, DeviceError> {
        let place = self.once_freed(|| self.0.allocate_pinned(bytes))?;
        Ok(self.memory(place, Kind::Pinned))
    }

    /// Makes existing host memory accessible to all devices; `owner` keeps it valid. If freeing waits for
    /// the device, a thread of the library drops `owner`.
    ///
    /// # Safety
    /// The memory stays valid while `owner` exists.
    pub unsafe fn register(
        &self,
        base: Address,
        bytes: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Memory, DeviceError> {
        // SAFETY: the caller promises that the memory stays valid as long as `owner` is held. The `Memory` holds it
        // until the memory is unregistered.
        let place = unsafe { self.0.register(base, bytes) }?;
        let mut memory = self.memory(place, Kind::Registered);
        memory.held = Some(owner);
        Ok(memory)
    }

    /// The allocation that contains an address.
    pub fn place_of(&self, address: Address) -> Result<Place, DeviceError> {
        self.0.place_of(address)
    }

    /// The identity of the allocation that contains an address: [`Driver::identity`].
    pub fn identity(&self, address: Address) -> Result<u64, DeviceError> {
        self.0.identity(address)
    }

    /// Gives this device access to the memory of another.
    pub fn enable_peer(&self, peer: &Device) -> Result<(), DeviceError> {
        self.check_machine("device", &peer.0)?;
        self.0.enable_peer(peer.ordinal())
    }

    fn check_machine(&self, what: &'static str, other: &Arc<dyn Driver>) -> Result<(), DeviceError> {
        match Arc::ptr_eq(&self.0, other) || self.0.machine() == other.machine() {
            true => Ok(()),
            false => Err(DeviceError::OtherMachine { what }),
        }
    }

    /// The library that carries messages between devices: see [`Driver::messages`].
    pub fn messages(&self) -> Result<Arc<dyn MessageLibrary>, DeviceError> {
        self.0.messages()
    }

    /// Creates a stream.
    pub fn stream(&self, priority: Priority) -> Result<Stream, DeviceError> {
        let raw = self.once_freed(|| self.0.create_stream(priority))?;
        Ok(Stream { device: self.clone(), raw, owned: true })
    }

    /// Wraps a foreign stream; 0 is the default stream. Fails for a stream of another device.
    /// # Safety
    /// The handle is 0, or a stream of this process, of any device, that outlives the result.
    pub unsafe fn borrow_stream(&self, raw: RawStream) -> Result<Stream, DeviceError> {
        // SAFETY: the caller promises that the stream lives.
        unsafe { self.0.check_stream(raw) }?;
        Ok(Stream { device: self.clone(), raw, owned: false })
    }

    /// Bytes of scratch for an index list: see [`Driver::list_scratch`].
    pub fn list_scratch(&self, spec: &ListSpec<'_>) -> Result<usize, DeviceError> {
        self.0.list_scratch(spec)
    }

    /// Creates an empty pool of events.
    pub fn events(&self) -> EventPool {
        EventPool::new(Arc::clone(&self.0))
    }

    /// Uploads a copy table for launches.
    pub fn upload(&self, table: &TableSpec<'_>) -> Result<CopyTable, DeviceError> {
        self.upload_works(std::slice::from_ref(table))
    }

    /// As [`Device::upload`], with one work for all epochs, or one for even epochs and one for odd epochs ([`Driver::upload`]).
    pub fn upload_works(&self, works: &[TableSpec<'_>]) -> Result<CopyTable, DeviceError> {
        let raw = self.once_freed(|| self.0.upload(works))?;
        Ok(CopyTable { device: self.clone(), raw })
    }
}

/// A copy table, ready to be launched. All launches must be over when it is dropped.
#[derive(Debug)]
pub struct CopyTable {
    device: Device,
    raw: RawTable,
}

impl CopyTable {
    /// Number of thread blocks of a launch that may wait for flags: see [`Driver::waiting_block_limit`].
    pub fn waiting_blocks(&self) -> u32 {
        // SAFETY: `self.device` uploaded the table, and the drop of `self` alone gives it back.
        unsafe { self.device.0.waiting_blocks(self.raw) }
    }
}

impl Drop for CopyTable {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: `self.device` uploaded the table, and `self` alone owns it. Callers of `launch` promise
        // to keep it until the launch is over.
        self.device.free(move |driver| unsafe { driver.drop_table(raw) });
    }
}
