//! The interface of a device: one trait whose methods are the CUDA driver calls that a halo exchange needs.
//! [`crate::Device`] and its types own the resources that a driver returns.

mod arguments;

use crate::error::DeviceError;
use crate::lists::ListSpec;
use crate::messages::MessageLibrary;
use crate::remote::{DeviceId, Provider};
use crate::tuning::Tuning;
use halocline_plan::ElementType;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

pub use arguments::{
    Address, Announced, Base, Capture, Combining, Connection, Counted, Epoch, MemorySpace, Place, Priority,
    RawEvent, RawGraph, RawStream, RawTable, Signal, Slot, TablePart, TableSpec, ValueOp,
};
pub(crate) use arguments::{MOST_COUNTED_BLOCKS, POISON};

/// One device.
///
/// **Host.** No call waits for device work, except [`Driver::synchronise`]. One exception is CUDA's: a
/// stream holds a bounded number of operations (about 1024 launches), and a call blocks while it is full.
/// Allocating, freeing, creating and destroying may take long and may wait for the device; make these calls
/// when objects are bound. The calls of a steady state allocate nothing.
///
/// **Order.** Work on a stream runs in the order of the calls, and sees everything that the calling thread
/// did before. Only events and flags order it with other streams.
///
/// **Failure.** When work fails, the device has failed permanently: every later call returns
/// [`DeviceError::Lost`], and [`Driver::failure`] reports it without a device call. Calls without a result
/// (those that free and destroy, in drops) report their failures there.
///
/// Each method names its CUDA call.
///
/// **Handles** are numbers that CUDA dereferences, so an invalid handle is undefined behaviour:
/// ```compile_fail,E0133
/// fn is_done(device: &halocline_device::Device) -> bool {
///     device.driver().query(halocline_device::RawStream(0x1234)) == Ok(true)
/// }
/// ```
///
/// # Safety
/// Memory that a driver returns stays valid until it is freed and is as long as its [`Place`] states. The
/// host may read and write pinned memory at its addresses. [`crate::Memory`] makes references from them.
pub unsafe trait Driver: Any + Send + Sync {
    /// Identifies the machine of the device within this process. Devices of one machine can interact and
    /// have different ordinals.
    fn machine(&self) -> usize;

    /// The index of this device among those of its kind, from 0.
    fn ordinal(&self) -> u32;

    /// Human-readable name.
    fn name(&self) -> String;

    /// Why the device has failed, if it has. Never blocks.
    fn failure(&self) -> Option<DeviceError>;

    /// Identity in other processes; `None` if its memory cannot be shared with them.
    fn uuid(&self) -> Option<DeviceId> {
        None
    }

    /// Maps this device's memory in other processes, and theirs for this device; `None` if its memory
    /// cannot be shared.
    fn provider(&self) -> Result<Option<Arc<dyn Provider>>, DeviceError> {
        Ok(None)
    }

    /// The library that carries messages between devices in the order of streams (NCCL). Fails with [`DeviceError::NoMessages`].
    fn messages(&self) -> Result<Arc<dyn MessageLibrary>, DeviceError> {
        let why = "this kind of device has none".to_owned();
        Err(DeviceError::NoMessages { device: self.ordinal(), why })
    }

    /// Number of hardware queues that the streams of this process share. Each queue runs work in issue
    /// order, so a waiting stream blocks later work of its queue.
    fn queues(&self) -> u32 {
        u32::MAX
    }

    /// Maximum number of thread blocks of all objects' copy tables that may wait at once; the kernels that
    /// they wait for still fit beside them. 0 if tables must not wait, because kernels have a time limit.
    fn waiting_block_limit(&self) -> u32 {
        u32::MAX
    }

    /// The constants for the copies of this device.
    fn tuning(&self) -> Tuning {
        Tuning::SIMULATED
    }

    /// How this device reaches its own memory or that of another device; `None` if the other device is
    /// unknown.
    fn connection(&self, other: &DeviceId) -> Option<Connection> {
        let _ = other;
        None
    }

    /// Whether calls that free memory and tables wait for all device work. Such calls are deferred to a
    /// thread that makes them while no stream waits for another thread ([`crate::Waiting`]).
    fn frees_wait(&self) -> bool {
        false
    }

    /// Whether work that starts after the host is notified sees what a network card wrote into device
    /// memory. Otherwise each such write must be flushed first (`cuFlushGPUDirectRDMAWrites`).
    fn sees_writes_of_networks(&self) -> bool {
        true
    }

    /// Allocates uninitialised device memory, aligned to 256 bytes (`cuMemAlloc`).
    fn allocate(&self, bytes: usize) -> Result<Place, DeviceError>;

    /// Frees memory of [`Driver::allocate`] (`cuMemFree`).
    ///
    /// # Safety
    /// [`Driver::allocate`] of this device gave `base`, it is freed once, and no work that uses the memory is
    /// unfinished.
    unsafe fn free(&self, base: Address);

    /// Allocates zeroed pinned host memory for all devices, aligned to a page (`cuMemHostAlloc`, portable).
    fn allocate_pinned(&self, bytes: usize) -> Result<Place, DeviceError>;

    /// Frees memory of [`Driver::allocate_pinned`] (`cuMemFreeHost`).
    ///
    /// # Safety
    /// [`Driver::allocate_pinned`] of this device gave `base`, it is freed once, and no work that uses the memory is
    /// unfinished.
    unsafe fn free_pinned(&self, base: Address);

    /// Makes existing host memory accessible to all devices (`cuMemHostRegister`, portable).
    ///
    /// # Safety
    /// The memory stays valid until it is unregistered.
    unsafe fn register(&self, base: Address, bytes: usize) -> Result<Place, DeviceError>;

    /// Undoes one [`Driver::register`] (`cuMemHostUnregister`).
    ///
    /// # Safety
    /// `base` was registered and is unregistered once for each registration, and no work that uses the
    /// memory is unfinished.
    unsafe fn unregister(&self, base: Address);

    /// The allocation that contains an address (`cuPointerGetAttributes`).
    fn place_of(&self, address: Address) -> Result<Place, DeviceError>;

    /// The identity of that allocation, [`Place::id`]. Cheap enough for every exchange
    /// (`cuPointerGetAttribute`).
    fn identity(&self, address: Address) -> Result<u64, DeviceError> {
        self.place_of(address).map(|place| place.id)
    }

    /// Gives this device access to the memory of another (`cuCtxEnablePeerAccess`). Repeated calls do
    /// nothing.
    fn enable_peer(&self, peer: u32) -> Result<(), DeviceError>;

    /// Checks that this device and another of its machine can access each other's memory, without changing
    /// anything. Fails with [`DeviceError::NoPeerAccess`], which names the device without access
    /// (`cuDeviceCanAccessPeer`, both ways).
    fn check_peer(&self, peer: u32) -> Result<(), DeviceError>;

    /// Whether another device of this machine can access some memory of this one, once it has peer access
    /// ([`Driver::enable_peer`]). That includes memory of [`Driver::allocate`]; pools and virtual memory
    /// have their own access rights (`cuMemPoolGetAccess`, `cuMemGetAccess`).
    fn is_reachable_by(&self, _address: Address, _bytes: usize, _peer: u32) -> bool {
        true
    }

    /// Returns an idle stream that does not synchronise with the default stream: a returned one, or a new
    /// one (`cuStreamCreateWithPriority`).
    fn create_stream(&self, priority: Priority) -> Result<RawStream, DeviceError>;

    /// Returns a stream for reuse. Its pending work still runs.
    ///
    /// # Safety
    /// [`Driver::create_stream`] of this device returned the stream, and nothing uses it afterwards.
    unsafe fn destroy_stream(&self, stream: RawStream);

    /// Checks that a handle is a stream of this device (`cuStreamGetCtx`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process, of any device, that has not been destroyed. (The
    /// simulated device accepts any number.)
    unsafe fn check_stream(&self, stream: RawStream) -> Result<(), DeviceError>;

    /// An identifier that no other stream of the device ever has, unlike its handle (`cuStreamGetId`).
    /// `None` if unknown, or if the handle is relative to the calling thread.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed.
    unsafe fn stream_id(&self, _stream: RawStream) -> Option<u64> {
        None
    }

    /// The capture that the stream takes part in (`cuStreamGetCaptureInfo`). Fails if an error has ended the capture but the program
    /// has not.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed.
    unsafe fn capture_of(&self, _stream: RawStream) -> Result<Option<Capture>, DeviceError> {
        Ok(None)
    }

    /// Keeps a value until the graph under capture, what is instantiated from it, and their launches have ended
    /// (`cuGraphRetainUserObject`). Another thread may drop it.
    ///
    /// # Safety
    /// [`Driver::capture_of`] has returned the capture, which has not ended.
    unsafe fn keep_with_graph(
        &self,
        capture: Capture,
        _kept: Arc<dyn Any + Send + Sync>,
    ) -> Result<(), DeviceError> {
        let what = format!("capture {} is none of this device's", capture.id);
        Err(DeviceError::Lost { device: self.ordinal(), what })
    }

    /// Begins to capture what the stream is given, instead of doing it (`cuStreamBeginCapture`, thread-local).
    ///
    /// # Safety
    /// `stream` is a stream of this process that has not been destroyed. [`Driver::end_capture`] follows.
    unsafe fn begin_capture(&self, _stream: RawStream) -> Result<(), DeviceError> {
        Err(DeviceError::Lost { device: self.ordinal(), what: "it has no graphs".to_owned() })
    }

    /// Ends a capture, and returns what was captured (`cuStreamEndCapture`, `cuGraphInstantiate`). After an error there is no graph, and the
    /// stream is as before the capture.
    ///
    /// # Safety
    /// [`Driver::begin_capture`] has begun it at this stream, in the same thread.
    unsafe fn end_capture(&self, _stream: RawStream) -> Result<RawGraph, DeviceError> {
        Err(DeviceError::Lost { device: self.ordinal(), what: "it has no graphs".to_owned() })
    }

    /// Gives the work of a graph to a stream of the same device (`cuGraphLaunch`).
    ///
    /// # Safety
    /// [`Driver::end_capture`] of this device gave the graph, which has not been destroyed. What it uses is there until the launch is over.
    unsafe fn launch_graph(&self, _graph: RawGraph, _stream: RawStream) -> Result<(), DeviceError> {
        Err(DeviceError::Lost { device: self.ordinal(), what: "it has no graphs".to_owned() })
    }

    /// Destroys a graph (`cuGraphExecDestroy`). Launches that streams already hold are unaffected.
    ///
    /// # Safety
    /// [`Driver::end_capture`] of this device gave the graph, and nothing uses it afterwards.
    unsafe fn destroy_graph(&self, _graph: RawGraph) {}

    /// Whether all work of the stream is done; if so, the caller sees its effects (`cuStreamQuery`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed.
    unsafe fn query(&self, stream: RawStream) -> Result<bool, DeviceError>;

    /// Blocks until all work of the stream is done (`cuStreamSynchronize`).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed.
    unsafe fn synchronise(&self, stream: RawStream) -> Result<(), DeviceError>;

    /// A new event, without timing (`cuEventCreate`).
    fn create_event(&self) -> Result<RawEvent, DeviceError>;

    /// Destroys an event (`cuEventDestroy`). Waits that streams already hold are unaffected.
    ///
    /// # Safety
    /// [`Driver::create_event`] of this device returned the event, and nothing uses it afterwards.
    unsafe fn destroy_event(&self, event: RawEvent);

    /// Records all earlier work of the stream in the event (`cuEventRecord`). Event and stream belong to
    /// this device.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. [`Driver::create_event`] of a device of
    /// this machine gave `event`, which has not been destroyed.
    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError>;

    /// Orders later work of the stream after the work recorded in the event (`cuStreamWaitEvent`). A later
    /// record does not affect this wait. The event may belong to another device. An event without a record
    /// orders nothing.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. [`Driver::create_event`] of a device of
    /// this machine gave `event`, which has not been destroyed.
    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> Result<(), DeviceError>;

    /// Whether the work recorded in the event is done; if so, the caller sees its effects (`cuEventQuery`).
    ///
    /// # Safety
    /// [`Driver::create_event`] of a device of this machine gave `event`, which has not been destroyed.
    unsafe fn query_event(&self, event: RawEvent) -> Result<bool, DeviceError>;

    /// Executes operations on flags, in order (`cuStreamBatchMemOp`).
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

    /// Zeroes bytes. May wait until the stream has done it (`cuMemsetD8Async`, which does not wait).
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. The range stays valid until the stream
    /// has cleared it, and nothing accesses it meanwhile.
    unsafe fn clear(&self, stream: RawStream, base: Address, bytes: usize) -> Result<(), DeviceError> {
        let zeros = self.allocate_pinned(bytes.max(1))?;
        // SAFETY: the caller promises that the stream lives, that the range stays valid until the stream
        // has cleared it, and that nothing accesses it meanwhile. Nothing else uses `zeros`, which is freed
        // below, after `synchronise`.
        let copied =
            unsafe { self.copy(stream, base, zeros.base, bytes).and_then(|()| self.synchronise(stream)) };
        // SAFETY: `allocate_pinned` returned `zeros`. The stream does not use it any more: `synchronise`
        // has waited for it, or the device has failed and executes nothing.
        unsafe { self.free_pinned(zeros.base) };
        copied
    }

    /// Uploads a copy table, with one work for all epochs, or one for even epochs and one for odd epochs. Two works differ in the
    /// addresses of flags and buffers alone; for [`Epoch::Counted`] those of buffers differ by multiples of 128 bytes. Checks that
    /// this device can reach every byte. Waits for the device
    /// (`cuMemAlloc`, `cuMemcpyHtoD`).
    fn upload(&self, works: &[TableSpec<'_>]) -> Result<RawTable, DeviceError>;

    /// Makes tables that combine elements of these types as quick to upload as others: loads their kernels, which may wait for the
    /// device and compile (`cuModuleLoadData`). Call it when objects are bound.
    fn prepare_to_combine(&self, _elements: &[ElementType]) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Thread blocks of a launch that may wait for flags; see [`Driver::waiting_block_limit`].
    ///
    /// # Safety
    /// [`Driver::upload`] of this device returned the table, and [`Driver::drop_table`] has not freed it.
    unsafe fn waiting_blocks(&self, _table: RawTable) -> u32 {
        0
    }

    /// Frees a copy table. Waits for the device.
    ///
    /// # Safety
    /// [`Driver::upload`] of this device returned the table, nothing uses it afterwards, and no launch of
    /// it is unfinished.
    unsafe fn drop_table(&self, table: RawTable);

    /// Executes a copy table for an epoch, in one kernel (`cuLaunchKernel`). [`Epoch::Counted`] needs a table that does something, in
    /// at most 2^20 blocks.
    ///
    /// Parts do not wait for each other while at most [`Driver::waiting_block_limit`] blocks wait, but the stream's later
    /// work waits for all parts. A part must not wait for that later work, nor for a launch that this
    /// device may be unable to run concurrently.
    ///
    /// # Safety
    /// - `stream` is 0, or a stream of this process that has not been destroyed.
    /// - [`Driver::upload`] of a device of this machine returned the table. Until the launch is over,
    ///   neither the table nor that device is dropped, and all memory of the table is valid.
    /// - While a part copies, nothing writes its sources or accesses its targets. A part copies after its
    ///   waits and before it raises flags; a part without waits copies from the start of the launch, and a
    ///   part that raises no flags until its end.
    /// - From the start of the launch, nothing writes the sources of an early part.
    /// - A counter lies in memory of the stream's device that stays valid until the launch is over. Meanwhile nothing writes it, and no
    ///   other launch uses it.
    /// - `bases` are as many as the table has; each has the residue of its [`Base`], whose bytes around it are valid memory that the
    ///   device reaches. What a receiver announces is the address of as many bytes as the part writes there.
    unsafe fn launch(
        &self,
        stream: RawStream,
        table: RawTable,
        epoch: Epoch,
        bases: &[Address],
    ) -> Result<(), DeviceError>;

    /// Bytes of scratch that [`Driver::find_list`] needs, at least the words of the results. Fails with [`DeviceError::NoList`].
    fn list_scratch(&self, spec: &ListSpec<'_>) -> Result<usize, DeviceError> {
        spec.bytes(self.ordinal()).map(|_| 8 * spec.finds.words())
    }

    /// Makes an index list, in a few kernels (`cuLaunchKernel`). The first call of a device compiles and loads them, which may wait for the
    /// device. Fails with [`DeviceError::NoList`] for other types of elements and for too many.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. The keys, the target and the scratch are memory that the device
    /// reaches and that stays valid until the stream has done it. Meanwhile nothing writes the keys, or accesses the target or the scratch.
    unsafe fn find_list(&self, _stream: RawStream, _spec: &ListSpec<'_>) -> Result<(), DeviceError> {
        Err(DeviceError::NoList {
            device: self.ordinal(),
            what: "use a GPU or a simulated device".to_owned(),
        })
    }

    /// Loads a word of pinned memory with acquire semantics.
    ///
    /// # Safety
    /// `word` lies in pinned memory that is valid, at a multiple of 8 bytes. Nothing but atomic operations, streams and
    /// copy tables writes it.
    unsafe fn load(&self, word: Address) -> u64 {
        // SAFETY: the caller promises a valid word that only atomic operations, streams and copy tables write.
        unsafe { word_at(word) }.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Stores a word of pinned memory with release semantics.
    ///
    /// # Safety
    /// `word` lies in pinned memory that is valid, at a multiple of 8 bytes. Nothing but atomic operations, streams and
    /// copy tables writes it.
    unsafe fn store(&self, word: Address, value: u64) {
        // SAFETY: the caller promises a valid word that only atomic operations, streams and copy tables write.
        unsafe { word_at(word) }.store(value, std::sync::atomic::Ordering::Release);
    }

    /// The value of a word at some moment after the call, at any address that this device reaches: for
    /// reports and infrequent polling (`cuMemcpyAsync`). Uses a stream of this device and waits up to 2 ms
    /// for its work; `None` if that takes longer.
    ///
    /// # Safety
    /// `stream` is 0, or a stream of this process that has not been destroyed. `word` lies in memory that
    /// is valid until the stream is idle, at a multiple of 8 bytes. Nothing but atomic operations, streams
    /// and copy tables writes it.
    unsafe fn peek(&self, stream: RawStream, word: Address) -> Result<Option<u64>, DeviceError> {
        let _ = stream;
        // SAFETY: the caller promises a valid word that only atomic operations, streams and copy tables write. A device
        // that does not override this method has its memory where the host reaches it.
        Ok(Some(unsafe { self.load(word) }))
    }

    /// The address at which a library of this process that takes device memory (such as MPI) may read, or
    /// write, the given bytes. `None` if no library takes memory of this kind of device.
    fn handed_over(&self, _address: Address, _bytes: usize, _writes: bool) -> Option<NonNull<u8>> {
        None
    }

    /// Runs `work` once with this device as the thread's current device, as such libraries require. Afterwards the
    /// thread has its former one, even if `work` selects another (`cuCtxPushCurrent`, `cuCtxPopCurrent`).
    fn within(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// As [`Driver::within`], for work that has nothing to do with streams under capture, but makes calls that would end their capture:
    /// allocations, frees (`cuThreadExchangeStreamCaptureMode`).
    fn within_beside_captures(&self, work: &mut dyn FnMut()) {
        self.within(work);
    }

    /// Whether this is the thread's current device (`cuCtxGetCurrent`). True for devices that know no current one.
    fn is_current(&self) -> bool {
        true
    }

    /// Reports that the host is about to read, or to write, bytes of pinned memory. Only a checking device
    /// uses it.
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
