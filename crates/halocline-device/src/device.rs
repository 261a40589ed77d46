//! A device and the resources that it owns: memory, streams, copy tables. [`Driver`] documents ordering,
//! blocking and failure of each call.

use crate::driver::{
    Address, Capture, Driver, Epoch, MemorySpace, Place, Priority, RawStream, RawTable, TableSpec, ValueOp,
};
use crate::error::DeviceError;
use crate::event::{Event, EventPool};
use crate::tuning::Tuning;
use crate::{deferred_free, remote};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

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

/// Memory that devices can access, freed when dropped: all work that uses it must be done by then. Dropping
/// never blocks. If freeing waits for the device, it is deferred; memory that other processes have mapped
/// is freed once they have unmapped it ([`remote::Exporter`]).
#[derive(Debug)]
pub struct Memory {
    device: Device,
    place: Place,
    kind: Kind,
    /// Owner of registered memory.
    held: Option<Arc<dyn Any + Send + Sync>>,
    /// Mark of device memory that other processes can map.
    own: Option<remote::Own>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Device,
    Pinned,
    Registered,
}

impl Memory {
    /// Its location and identity.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The address of the byte at `offset`.
    pub fn at(&self, offset: usize) -> Address {
        self.place.base + offset as u64
    }

    /// Loads the word at byte `offset` of pinned memory with acquire semantics. Panics if there is no such
    /// word.
    ///
    /// # Safety
    /// Only atomic operations, streams and copy tables write the word.
    pub unsafe fn load(&self, offset: usize) -> u64 {
        self.check_word(offset);
        // SAFETY: `check_word` has found the word in this pinned memory, at a multiple of 8 bytes. The caller promises
        // that nothing but atomic operations, streams and copy tables writes it.
        unsafe { self.device.0.load(self.at(offset)) }
    }

    /// Stores the word at byte `offset` of pinned memory with release semantics. Panics if there is no such
    /// word.
    ///
    /// # Safety
    /// Only atomic operations, streams and copy tables write the word.
    pub unsafe fn store(&self, offset: usize, value: u64) {
        self.check_word(offset);
        // SAFETY: `check_word` has found the word in this pinned memory, at a multiple of 8 bytes. The caller promises
        // that nothing but atomic operations, streams and copy tables writes it.
        unsafe { self.device.0.store(self.at(offset), value) }
    }

    /// The address at which a library that takes device memory may read, or write, these bytes; `None` if
    /// no library takes memory of this kind of device ([`Driver::handed_over`]). Panics if the range is out
    /// of bounds.
    pub fn handed_over(&self, range: Range<usize>, writes: bool) -> Option<NonNull<u8>> {
        assert!(
            range.start <= range.end && range.end <= self.place.bytes,
            "no bytes {range:?} in {:?}",
            self.place
        );
        self.device.0.handed_over(self.at(range.start), range.len(), writes)
    }

    fn check_word(&self, offset: usize) {
        let fits = offset.checked_add(8).is_some_and(|end| end <= self.place.bytes);
        let host = self.place.space == MemorySpace::Host;
        assert!(host && fits && self.at(offset).is_multiple_of(8), "no word of pinned memory at {offset}");
    }

    /// Bytes of pinned memory for the host to read. Panics if the range is out of bounds.
    ///
    /// # Safety
    /// Nothing writes them while the slice lives.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        let first = self.check_bytes(&range, false);
        // SAFETY: `check_bytes` has found the range in this pinned memory, which the host may read (contract of
        // `Driver`) and which lives as long as `self`. The caller promises that nothing writes it while the slice
        // lives.
        unsafe { std::slice::from_raw_parts(first, range.len()) }
    }

    /// Bytes of pinned memory for the host to write. Panics if the range is out of bounds.
    ///
    /// # Safety
    /// Nothing else accesses them while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "who may write is the caller's promise")]
    pub unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        let first = self.check_bytes(&range, true);
        // SAFETY: `check_bytes` has found the range in this pinned memory, which the host may write (contract of
        // `Driver`) and which lives as long as `self`. The caller promises that nothing else accesses it while the
        // slice lives.
        unsafe { std::slice::from_raw_parts_mut(first, range.len()) }
    }

    fn check_bytes(&self, range: &Range<usize>, writes: bool) -> *mut u8 {
        let host = self.place.space == MemorySpace::Host;
        assert!(
            host && range.start <= range.end && range.end <= self.place.bytes,
            "no bytes {range:?} of pinned memory in {:?}",
            self.place
        );
        self.device.0.host_access(self.at(range.start), range.len(), writes);
        std::ptr::with_exposed_provenance_mut(self.at(range.start) as usize)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (base, kind, held) = (self.place.base, self.kind, self.held.take());
        let free = move |driver: &dyn Driver| {
            // SAFETY: the driver returned `base` from the call that `kind` names, and only the drop of its
            // `Memory` frees it. Nothing uses the memory: callers that issue work on it promise to keep it
            // until the work is done, and memory mapped by other processes is freed only once they have
            // unmapped it.
            unsafe {
                match kind {
                    Kind::Device => driver.free(base),
                    Kind::Pinned => driver.free_pinned(base),
                    Kind::Registered => driver.unregister(base),
                }
            }
            held.into_iter().for_each(deferred_free::defer_drop);
        };
        let Some(own) = self.own.take() else { return self.device.free(free) };
        let (device, later) = (self.device.clone(), self.device.0.frees_wait().then(deferred_free::announce));
        remote::free_once_unmapped(own, move || {
            device.free(free);
            drop(later);
        });
    }
}

/// A stream of a device, created by the library or foreign.
///
/// ```
/// use halocline_device::{Priority, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// let [first, second] = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
///
/// // Work of the second stream runs after that of the first one.
/// let event = device.events().take()?;
/// first.record(&event)?;
/// second.wait(&event)?;
/// second.synchronise()?;
/// assert!(first.query()?);
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct Stream {
    device: Device,
    raw: RawStream,
    owned: bool,
}

impl Stream {
    /// The device of the stream.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its handle.
    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// An identifier that no other stream of its device ever has, if known: [`Driver::stream_id`]. Queried
    /// each time, because a foreign handle may have been reused.
    pub fn id(&self) -> Option<u64> {
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`.
        unsafe { self.device.0.stream_id(self.raw) }
    }

    /// Records all earlier work of the stream in `event`, which must be of the same device.
    #[inline]
    pub fn record(&self, event: &Event) -> Result<(), DeviceError> {
        self.device.check_machine("event", event.driver())?;
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`. `event` is of the same machine and holds the pool that destroys it.
        unsafe { self.device.0.record(event.raw(), self.raw) }
    }

    /// Orders later work of the stream after the work recorded in `event`, of any device.
    #[inline]
    pub fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        self.device.check_machine("event", event.driver())?;
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`. `event` is of the same machine and holds the pool that destroys it.
        unsafe { self.device.0.wait_event(self.raw, event.raw()) }
    }

    /// Executes operations on flags, in order.
    ///
    /// # Safety
    /// The contract of [`Driver::values`] holds for the words.
    #[inline]
    pub unsafe fn values(&self, ops: &[ValueOp]) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::values`.
        unsafe { self.device.0.values(self.raw, ops) }
    }

    /// Copies bytes between any two memories. 0 bytes may have any address.
    ///
    /// # Safety
    /// The contract of [`Driver::copy`] holds for both ranges.
    #[inline]
    pub unsafe fn copy(&self, target: Address, source: Address, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::copy`.
        unsafe { self.device.0.copy(self.raw, target, source, bytes) }
    }

    /// Zeroes bytes, at the latest when the stream is synchronised.
    ///
    /// # Safety
    /// The contract of [`Driver::clear`] holds for the range.
    pub unsafe fn clear(&self, base: Address, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::clear`.
        unsafe { self.device.0.clear(self.raw, base, bytes) }
    }

    /// Executes a copy table of the same device for an epoch.
    ///
    /// # Safety
    /// The contract of [`Driver::launch`] holds for the table and its memory.
    #[inline]
    pub unsafe fn launch(&self, table: &CopyTable, epoch: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of `Driver::launch`.
        unsafe { self.launch_on(table, Epoch::Given(epoch), &[]) }
    }

    /// As [`Stream::launch`], for the epoch after those that a counter has counted ([`Epoch::Counted`]).
    ///
    /// # Safety
    /// The contract of [`Driver::launch`] holds for the table, its memory and the counter.
    pub unsafe fn launch_counted(&self, table: &CopyTable, counter: Address) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of `Driver::launch`.
        unsafe { self.launch_on(table, Epoch::Counted(counter), &[]) }
    }

    /// Executes a copy table of the same device for an epoch, on memory at these bases ([`TableSpec::bases`](crate::TableSpec::bases)).
    ///
    /// # Safety
    /// The contract of [`Driver::launch`] holds for the table, its memory, the counter and the bases.
    #[inline]
    pub unsafe fn launch_on(
        &self,
        table: &CopyTable,
        epoch: Epoch,
        bases: &[Address],
    ) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::launch`.
        unsafe { self.device.0.launch(self.raw, table.raw, epoch, bases) }
    }

    /// The value of a word at some moment after the call, if available soon. The stream waits for nothing.
    ///
    /// # Safety
    /// The contract of [`Driver::peek`] holds for the word.
    pub unsafe fn peek(&self, word: Address) -> Result<Option<u64>, DeviceError> {
        // SAFETY: the stream lives as long as `self`, and the caller keeps the contract of `Driver::peek`.
        unsafe { self.device.0.peek(self.raw, word) }
    }

    /// The capture that the stream takes part in ([`Driver::capture_of`]).
    #[inline]
    pub fn capture(&self) -> Result<Option<Capture>, DeviceError> {
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`.
        unsafe { self.device.0.capture_of(self.raw) }
    }

    /// Whether all its work is done.
    pub fn query(&self) -> Result<bool, DeviceError> {
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`.
        unsafe { self.device.0.query(self.raw) }
    }

    /// Blocks until all its work is done.
    pub fn synchronise(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream is created and destroyed by `self`, or the caller of `borrow_stream` keeps it as long as
        // `self`.
        unsafe { self.device.0.synchronise(self.raw) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `Device::stream` created the stream with this driver, and `self` alone owns it.
            unsafe { self.device.0.destroy_stream(self.raw) };
        }
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
