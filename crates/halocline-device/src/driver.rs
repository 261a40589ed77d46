//! What a device is told: one trait, whose methods are the calls of CUDA's driver API that a halo exchange
//! needs. Whoever uses a device has the types of [`crate::Device`], which own what the driver hands out.

use crate::error::DeviceError;
use crate::remote::{DeviceId, Provider};
use crate::tuning::Tuning;
use halocline_plan::copy::CopyOp;
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// An address that devices understand: memory of a device, or pinned host memory, which has the same address
/// on the host (unified addressing).
pub type Address = u64;

/// Where memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemorySpace {
    /// Memory of the host.
    Host,
    /// Memory of the device with this ordinal.
    Device(u32),
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemorySpace::Host => f.write_str("host memory"),
            MemorySpace::Device(ordinal) => write!(f, "memory of device {ordinal}"),
        }
    }
}

/// One allocation that devices can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it lies.
    pub space: MemorySpace,
    /// Its identity, never reused in this process: memory that was freed and allocated again at the same
    /// address has another one (CUDA's buffer id).
    pub id: u64,
    /// Its first byte.
    pub base: Address,
    /// Its length in bytes.
    pub bytes: usize,
}

/// How one device reaches the memory of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connection {
    /// It is its own.
    SameDevice,
    /// Over NVLink: it does atomic operations there.
    NvLink,
    /// Over PCIe.
    Pcie,
}

/// A stream by its raw handle (`CUstream`). 0 is the default stream of the device that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawStream(pub usize);

/// An event by its raw handle (`CUevent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawEvent(pub usize);

/// An uploaded copy table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawTable(pub usize);

/// How urgent a stream's work is, where the device must choose. No promise of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// As the streams of users.
    #[default]
    Normal,
    /// As urgent as the device knows.
    Highest,
}

/// An operation of a stream on a 64-bit word, at a multiple of 8 bytes, in pinned memory, memory of the stream's
/// device or of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueOp {
    /// Writes the word. All that the stream was given before is visible to whoever sees the value.
    Write {
        /// Where the word lies.
        address: Address,
        /// What it becomes.
        value: u64,
    },
    /// Holds the stream until the word has reached a value. What was visible when that was written is visible
    /// to all that the stream is given later. The comparison is cyclic: the difference as a signed number is not
    /// negative.
    Wait {
        /// Where the word lies.
        address: Address,
        /// The value to reach.
        at_least: u64,
    },
}

/// The word that a part of a copy table waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Where the word lies.
    pub address: Address,
    /// How far it may lie behind the epoch of the launch: it is waited for `epoch - lag`, but at least 0.
    pub lag: u64,
}

/// What a launch of a copy table does: all its parts, in any order and at the same time.
#[derive(Debug, Clone, Copy)]
pub struct TableSpec<'a> {
    /// The parts.
    pub parts: &'a [TablePart<'a>],
    /// The buffers that operations read, by [`CopyOp::source`]: element (0, 0, …) of a field, or the first byte of a
    /// message.
    pub sources: &'a [Address],
    /// The buffers that operations write, by [`CopyOp::target`].
    pub targets: &'a [Address],
    /// A word that is 0 while all is well: a part that finds it otherwise copies and raises nothing. A part that copies looks at it
    /// when it begins, not after its waits, so that one that waits already may still copy; one that does not looks before it raises.
    /// Whoever sets it to end waits, too, writes words 2^60 or more beyond what is awaited: what has waited for such a word copies and
    /// raises nothing, either.
    pub guard: Option<Address>,
}

/// A word so far beyond what is awaited ends a wait ([`TableSpec::guard`]).
pub(crate) const POISON: i64 = 1 << 60;

/// Which side of a part's operations is a slot: memory of words that say themselves from which epoch they are, so that who reads
/// them needs to wait for nothing else.
///
/// A slot is twice as long as the message in it: word n holds the message's bytes 4n to 4n + 3 below, and above them its flag, the lowest 32
/// bits of the epoch of the launch that has written it. It begins at a multiple of 16 bytes, zeroed; operations name the place of bytes
/// within the message. At the other side, and in the message, blocks begin at multiples of 4 bytes, and have as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slot {
    /// None is.
    #[default]
    None,
    /// What the part writes.
    Written,
    /// What the part reads: it copies each word once that has the flag of the launch. While it waits for that it looks at the guard, too,
    /// and where that is set it ends, raising nothing.
    Awaited,
}

/// One link of a copy table: waits, then copies, then raises.
#[derive(Debug, Clone, Copy, Default)]
pub struct TablePart<'a> {
    /// All of these words must be reached before the part copies.
    pub waits: &'a [Signal],
    /// What it copies.
    pub ops: &'a [CopyOp],
    /// These words become the epoch of the launch once all that the part has copied is visible.
    pub raises: &'a [Address],
    /// What it copies may be read from the begin of the launch on, before what the part waits for.
    pub early: bool,
    /// Other work of the device runs meanwhile: few blocks do it, one piece after the other (not of a part that raises without waiting).
    pub beside: bool,
    /// Whether it writes a slot, or reads one. (What is early is never one that is read.)
    pub slot: Slot,
}

/// A device of some kind.
///
/// **The host.** No call waits for work of the device, except [`Driver::synchronise`], with one exception that is
/// CUDA's: a stream takes a bounded number of operations (about 1024 launches), and a call that gives it one more
/// blocks until there is room. Allocating, freeing, creating and destroying may take long and may wait for the
/// device; they belong where objects are bound. The calls of a steady state allocate nothing.
///
/// **Order.** Work given to a stream runs in the order of the calls. It sees all that the calling thread did
/// before, and nothing orders it with other streams but events and words.
///
/// **Failure.** When work fails, the device has failed, for good: every call says [`DeviceError::Lost`] from then
/// on, and [`Driver::failure`] tells without any call to the device. Calls that return nothing (they free and
/// destroy, in drops) report their failures there.
///
/// Each method says which call of CUDA it is.
///
/// **Handles** are numbers that CUDA takes for addresses, so that a call with one of nothing may do anything:
/// ```compile_fail,E0133
/// fn is_done(device: &halocline_device::Device) -> bool {
///     device.driver().query(halocline_device::RawStream(0x1234)) == Ok(true)
/// }
/// ```
///
/// # Safety
/// Memory that a driver hands out stays valid until it is freed and is as long as its [`Place`] says. The host may read
/// and write pinned memory at its addresses. [`crate::Memory`] makes references from them.
pub unsafe trait Driver: Any + Send + Sync {
    /// Which machine the device is of, among all of this process: devices of one machine can have to do with each other, and
    /// differ in their ordinals.
    fn machine(&self) -> usize;

    /// Which of the devices of its kind this is, from 0.
    fn ordinal(&self) -> u32;

    /// What people call it.
    fn name(&self) -> String;

    /// Why the device has failed, if it is known to have. Never blocks.
    fn failure(&self) -> Option<DeviceError>;

    /// What other processes know it by; none if its memory stays in this process.
    fn uuid(&self) -> Option<DeviceId> {
        None
    }

    /// What lets other processes map this device's memory, and theirs this device; none if its memory stays in this process.
    fn provider(&self) -> Result<Option<Arc<dyn Provider>>, DeviceError> {
        Ok(None)
    }

    /// Queues that the streams of this process share, each in the order in which work is given: a stream that waits holds
    /// what comes later to its queue.
    fn queues(&self) -> u32 {
        u32::MAX
    }

    /// Blocks of threads that may wait at once in copy tables, of all objects together: beside them there is room for whatever they
    /// may wait for. 0 where tables must not wait, since kernels have a time limit.
    fn room(&self) -> u32 {
        u32::MAX
    }

    /// The constants by which copies of this device are made.
    fn tuning(&self) -> Tuning {
        Tuning::SIMULATED
    }

    /// How this device reaches memory of another one, or of its own; none if it does not know that one.
    fn connection(&self, other: &DeviceId) -> Option<Connection> {
        let _ = other;
        None
    }

    /// Whether the calls that free memory and tables wait for all that the device was given: then they are made behind the
    /// scenes, while no stream waits for anybody ([`crate::Waiting`]).
    fn frees_wait(&self) -> bool {
        false
    }

    /// Whether work that begins after the host has heard of it sees what a network card has written into memory of the device. Otherwise
    /// each write must be flushed before (`cuFlushGPUDirectRDMAWrites`).
    fn sees_writes_of_networks(&self) -> bool {
        true
    }

    /// Memory of the device, not initialised, aligned to 256 bytes (`cuMemAlloc`).
    fn allocate(&self, bytes: usize) -> Result<Place, DeviceError>;

    /// Frees what [`Driver::allocate`] gave (`cuMemFree`).
    ///
    /// # Safety
    /// [`Driver::allocate`] of this device gave `base`, it is freed once, and no work that uses the memory is
    /// unfinished.
    unsafe fn free(&self, base: Address);

    /// Bytes of the device's memory that are free, whoever has the others; none if it does not say (`cuMemGetInfo`).
    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        Ok(None)
    }

    /// Zeroed pinned memory of the host, for all devices, aligned to a page (`cuMemHostAlloc`, portable).
    fn allocate_pinned(&self, bytes: usize) -> Result<Place, DeviceError>;

    /// Frees what [`Driver::allocate_pinned`] gave (`cuMemFreeHost`).
    ///
    /// # Safety
    /// [`Driver::allocate_pinned`] of this device gave `base`, it is freed once, and no work that uses the memory is
    /// unfinished.
    unsafe fn free_pinned(&self, base: Address);

    /// Lets all devices reach memory of the host that is there (`cuMemHostRegister`, portable).
    ///
    /// # Safety
    /// The memory stays valid until it is unregistered.
    unsafe fn register(&self, base: Address, bytes: usize) -> Result<Place, DeviceError>;

    /// Takes back one [`Driver::register`] (`cuMemHostUnregister`).
    ///
    /// # Safety
    /// `base` was registered and is unregistered once for each time, and no work that uses the memory is unfinished.
    unsafe fn unregister(&self, base: Address);

    /// Which allocation an address lies in (`cuPointerGetAttributes`).
    fn place_of(&self, address: Address) -> Result<Place, DeviceError>;

    /// The identity alone of that allocation, [`Place::id`]: cheap enough to ask at every exchange (`cuPointerGetAttribute`).
    fn identity(&self, address: Address) -> Result<u64, DeviceError> {
        self.place_of(address).map(|place| place.id)
    }

    /// Lets this device reach the memory of another (`cuCtxEnablePeerAccess`). Again does nothing.
    fn enable_peer(&self, peer: u32) -> Result<(), DeviceError>;

    /// Whether this device and another of its machine can reach each other's memory, which changes nothing: fails with
    /// [`DeviceError::NoPeerAccess`], which names the one that cannot (`cuDeviceCanAccessPeer`, both ways).
    fn check_peer(&self, peer: u32) -> Result<(), DeviceError>;

    /// Whether a device of this machine reaches some memory of this one, once it has access to this device
    /// ([`Driver::enable_peer`]): that covers what [`Driver::allocate`] gives, while pools and virtual memory say for themselves
    /// who reaches them (`cuMemPoolGetAccess`, `cuMemGetAccess`).
    fn lets(&self, _address: Address, _bytes: usize, _peer: u32) -> bool {
        true
    }

    /// A stream with nothing to do, which does not synchronise with the default stream (`cuStreamCreateWithPriority`, where none that was
    /// given back is there).
    fn create_stream(&self, priority: Priority) -> Result<RawStream, DeviceError>;

    /// Gives a stream back, for somebody else. The work that it was given still runs.
    ///
    /// # Safety
    /// [`Driver::create_stream`] of this device gave the stream, and nobody uses it afterwards.
    unsafe fn destroy_stream(&self, stream: RawStream);

    /// Whether a handle is a stream of this device (`cuStreamGetCtx`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process, of any device, that has not been destroyed. (The simulated device
    /// takes any number.)
    unsafe fn check_stream(&self, stream: RawStream) -> Result<(), DeviceError>;

    /// What no other stream of the device ever has, unlike its handle (`cuStreamGetId`). `None` where that is not known, or the handle means
    /// a stream of the thread that uses it.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed.
    unsafe fn stream_id(&self, _stream: RawStream) -> Option<u64> {
        None
    }

    /// Whether what the stream is given becomes part of a graph, and is not done (`cuStreamIsCapturing`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed.
    unsafe fn is_capturing(&self, _stream: RawStream) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Whether all that the stream was given is done; if so, the caller sees it (`cuStreamQuery`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed.
    unsafe fn query(&self, stream: RawStream) -> Result<bool, DeviceError>;

    /// Blocks until all that the stream was given is done (`cuStreamSynchronize`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed.
    unsafe fn synchronise(&self, stream: RawStream) -> Result<(), DeviceError>;

    /// A new event, without timing (`cuEventCreate`).
    fn create_event(&self) -> Result<RawEvent, DeviceError>;

    /// Gives an event back (`cuEventDestroy`). Waits for it that streams were given stay what they are.
    ///
    /// # Safety
    /// [`Driver::create_event`] of this device gave the event, and nobody uses it afterwards.
    unsafe fn destroy_event(&self, event: RawEvent);

    /// The event now means all that the stream was given before (`cuEventRecord`). Event and stream are of this
    /// device.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. [`Driver::create_event`] of a device of
    /// this machine gave `event`, which has not been destroyed.
    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError>;

    /// What the stream is given later runs after what the event means now; a later record changes nothing about
    /// that (`cuStreamWaitEvent`). The event may be of another device. One that was never recorded means nothing.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. [`Driver::create_event`] of a device of
    /// this machine gave `event`, which has not been destroyed.
    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> Result<(), DeviceError>;

    /// Whether all that the event means is done; if so, the caller sees it (`cuEventQuery`).
    ///
    /// # Safety
    /// [`Driver::create_event`] of a device of this machine gave `event`, which has not been destroyed.
    unsafe fn query_event(&self, event: RawEvent) -> Result<bool, DeviceError>;

    /// Operations on words, in order (`cuStreamBatchMemOp`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. The words stay valid until the stream
    /// has done the operations. Meanwhile nothing accesses them but such operations, copy tables that wait for or raise
    /// them, and atomic operations.
    unsafe fn values(&self, stream: RawStream, ops: &[ValueOp]) -> Result<(), DeviceError>;

    /// Copies bytes between any two memories (`cuMemcpyAsync`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. Both ranges stay valid until the stream
    /// has copied them, and do not overlap. Meanwhile nothing writes the source or accesses the target.
    unsafe fn copy(
        &self,
        stream: RawStream,
        target: Address,
        source: Address,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Sets bytes to 0; may wait until the stream has done it (`cuMemsetD8Async`, which does not).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. The range stays valid until the stream
    /// has cleared it, and nothing accesses it meanwhile.
    unsafe fn clear(&self, stream: RawStream, base: Address, bytes: usize) -> Result<(), DeviceError> {
        let zeros = self.allocate_pinned(bytes.max(1))?;
        // SAFETY: the caller promises that the stream lives, that the range stays valid until the stream has cleared
        // it, and that nothing accesses it meanwhile. Nobody else knows `zeros`, which is freed below, after
        // `synchronise`.
        let copied =
            unsafe { self.copy(stream, base, zeros.base, bytes).and_then(|()| self.synchronise(stream)) };
        // SAFETY: `allocate_pinned` gave `zeros`. The stream is through with it, for `synchronise` has waited for that,
        // or the device has failed and does nothing any more.
        unsafe { self.free_pinned(zeros.base) };
        copied
    }

    /// Makes a copy table ready to be launched; checks that this device can reach every byte. Waits for the
    /// device (`cuMemAlloc`, `cuMemcpyHtoD`).
    fn upload(&self, table: &TableSpec<'_>) -> Result<RawTable, DeviceError>;

    /// Blocks of threads of a launch that may wait for words: see [`Driver::room`].
    ///
    /// # Safety
    /// [`Driver::upload`] of this device gave the table, and [`Driver::drop_table`] has not had it.
    unsafe fn waiting_blocks(&self, _table: RawTable) -> u32 {
        0
    }

    /// Gives a copy table back. Waits for the device.
    ///
    /// # Safety
    /// [`Driver::upload`] of this device gave the table, nobody uses it afterwards, and no launch of it is unfinished.
    unsafe fn drop_table(&self, table: RawTable);

    /// Does all that a copy table says, for an epoch, by one kernel (`cuLaunchKernel`).
    ///
    /// Parts do not wait for each other while no more blocks wait than [`Driver::room`] says, but the stream's later work waits for all
    /// of them. What a part waits for must not need that later work, nor a launch that this device may not be able to run beside it.
    ///
    /// # Safety
    /// - `stream` is 0, or a stream of this process that has not been destroyed.
    /// - [`Driver::upload`] of a device of this machine gave the table. Until the launch is over, neither the table nor
    ///   that device is dropped, and all memory of the table is valid.
    /// - While a part copies, nothing writes what it reads or accesses what it writes. A part copies after its waits
    ///   and until its raises; without them, from the begin or until the end of the launch.
    /// - From the begin of the launch on, nothing writes what an early part reads.
    unsafe fn launch(&self, stream: RawStream, table: RawTable, epoch: u64) -> Result<(), DeviceError>;

    /// Looks at a word of pinned memory. What was visible when its value was written is visible to the caller.
    ///
    /// # Safety
    /// `word` lies in pinned memory that is valid, at a multiple of 8 bytes. Nothing but atomic operations, streams and
    /// copy tables writes it.
    unsafe fn load(&self, word: Address) -> u64 {
        // SAFETY: the caller promises a valid word that only atomic operations, streams and copy tables write.
        unsafe { word_at(word) }.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Writes a word of pinned memory. What the caller sees is visible to whoever sees the value.
    ///
    /// # Safety
    /// `word` lies in pinned memory that is valid, at a multiple of 8 bytes. Nothing but atomic operations, streams and
    /// copy tables writes it.
    unsafe fn store(&self, word: Address, value: u64) {
        // SAFETY: the caller promises a valid word that only atomic operations, streams and copy tables write.
        unsafe { word_at(word) }.store(value, std::sync::atomic::Ordering::Release);
    }

    /// What a word is at some moment from now on, wherever this device reaches it: for reports and for those who look
    /// seldom (`cuMemcpyAsync`). By a stream of this device, for whose work the call waits a moment (2 ms): `None` where that is not enough.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. `word` lies in memory that is valid
    /// until the stream is through, at a multiple of 8 bytes. Nothing but atomic operations, streams and copy tables
    /// writes it.
    unsafe fn peek(&self, stream: RawStream, word: Address) -> Result<Option<u64>, DeviceError> {
        let _ = stream;
        // SAFETY: the caller promises a valid word that only atomic operations, streams and copy tables write. A device
        // that does not override this method has its memory where the host reaches it.
        Ok(Some(unsafe { self.load(word) }))
    }

    /// Where a library of this process that takes memory of devices finds bytes of this one's, which it is about to read, or to
    /// write. `None` where there is no such library for devices of this kind.
    fn handed_over(&self, _address: Address, _bytes: usize, _writes: bool) -> Option<NonNull<u8>> {
        None
    }

    /// Does `work`, once, with this device as the thread's current one, as such libraries want it.
    fn within(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// The host is about to read, or to write, bytes of pinned memory. Only a device that checks cares.
    fn host_access(&self, _address: Address, _bytes: usize, _writes: bool) {}
}

/// # Safety
/// While the reference is used, `word` is an address of the host, at a multiple of 8 bytes, of memory that is valid and
/// that nothing but atomic operations, streams and copy tables writes.
pub(crate) unsafe fn word_at<'a>(word: Address) -> &'a std::sync::atomic::AtomicU64 {
    let word = std::ptr::with_exposed_provenance_mut::<u64>(word as usize);
    // SAFETY: the caller promises 8 valid and aligned bytes that are only written atomically.
    unsafe { std::sync::atomic::AtomicU64::from_ptr(word) }
}
