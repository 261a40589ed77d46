//! Simulated devices whose calls block as CUDA's do (`docs/gpus.md`, "What waits for the device").
//!
//! - Frees and the first table of a device wait until every stream of every device is idle. Launches, records, allocations and
//!   creations wait behind such a call.
//! - Operations on flags, waits for events and queries do not wait.
//! - Copies from another device run one after the other, on whatever streams they were issued; one that waits blocks the rest.
//! - Streams share as many hardware queues as CUDA gives a process.
//! - A read of a device flag may return nothing ([`silence`]).

use crate::device_fixtures::{self, Kernels, Piece, Rig};
use crate::ring::DeviceMemory;
use crate::{Outcome, Trouble, fail};
use halocline::device::sim::{Live, Options};
use halocline::device::{
    Address, Capture, Driver, Epoch, MemorySpace, Place, Priority, RawEvent, RawStream, RawTable, TableSpec,
    ValueOp,
};
use halocline::{Device, DeviceError, Stream};
use halocline_device::sim::World;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// One lock for the driver of all devices, as in CUDA: a call that holds it blocks the others.
#[derive(Default)]
struct Shared {
    held: Mutex<()>,
    /// Devices, each with its streams.
    streams: Mutex<Vec<(Device, BTreeSet<usize>)>>,
    /// Of each device that was copied from by another one, an event behind the last such copy.
    last: Mutex<BTreeMap<u32, RawEvent>>,
}

impl Shared {
    fn hold(&self) -> MutexGuard<'_, ()> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Vec<(Device, BTreeSet<usize>)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds all, until no stream has anything to do, and for as long as what is returned lives.
    fn wait(&self) -> MutexGuard<'_, ()> {
        let held = self.hold();
        // A stream that fails, or has gone, does nothing any more.
        let is_idle = |device: &Device, stream: usize| {
            // SAFETY: `create_stream` noted the stream, which `destroy_stream` takes out of `streams` before it destroys it.
            unsafe { device.driver().query(RawStream(stream)) != Ok(false) }
        };
        while !self.streams().iter().all(|(device, streams)| streams.iter().all(|&at| is_idle(device, at))) {
            std::thread::yield_now();
        }
        held
    }
}

/// Whether looks at words say nothing.
static SILENT: AtomicBool = AtomicBool::new(false);

/// From now on no device of this process tells what a word is, as one that has no time for it.
pub fn silence() {
    SILENT.store(true, Ordering::Release);
}

/// One device.
struct Holding {
    shared: Arc<Shared>,
    inner: Device,
    /// It has a table.
    is_loaded: AtomicBool,
}

impl Holding {
    fn of(&self) -> &dyn Driver {
        self.inner.driver()
    }

    fn note(&self, change: impl FnOnce(&mut BTreeSet<usize>)) {
        let mut all = self.shared.streams();
        change(&mut all[self.inner.ordinal() as usize].1);
    }
}

// SAFETY: the device within, a `Driver`, gives the memory.
unsafe impl Driver for Holding {
    fn machine(&self) -> usize {
        self.of().machine()
    }

    fn ordinal(&self) -> u32 {
        self.of().ordinal()
    }

    fn name(&self) -> String {
        self.of().name()
    }

    fn failure(&self) -> Option<DeviceError> {
        self.of().failure()
    }

    fn queues(&self) -> u32 {
        self.of().queues()
    }

    fn frees_wait(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: usize) -> Result<Place, DeviceError> {
        let _held = self.shared.hold();
        self.of().allocate(bytes)
    }

    unsafe fn free(&self, base: Address) {
        let _held = self.shared.wait();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().free(base) };
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Place, DeviceError> {
        let _held = self.shared.hold();
        self.of().allocate_pinned(bytes)
    }

    unsafe fn free_pinned(&self, base: Address) {
        let _held = self.shared.wait();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().free_pinned(base) };
    }

    unsafe fn register(&self, base: Address, bytes: usize) -> Result<Place, DeviceError> {
        let _held = self.shared.hold();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().register(base, bytes) }
    }

    unsafe fn unregister(&self, base: Address) {
        let _held = self.shared.wait();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().unregister(base) };
    }

    fn place_of(&self, address: Address) -> Result<Place, DeviceError> {
        self.of().place_of(address)
    }

    fn identity(&self, address: Address) -> Result<u64, DeviceError> {
        self.of().identity(address)
    }

    fn enable_peer(&self, peer: u32) -> Result<(), DeviceError> {
        self.of().enable_peer(peer)
    }

    fn check_peer(&self, peer: u32) -> Result<(), DeviceError> {
        self.of().check_peer(peer)
    }

    fn create_stream(&self, priority: Priority) -> Result<RawStream, DeviceError> {
        let _held = self.shared.hold();
        let made = self.of().create_stream(priority)?;
        self.note(|streams| assert!(streams.insert(made.0), "a stream that is there already"));
        Ok(made)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        self.note(|streams| assert!(streams.remove(&stream.0), "no stream of ours"));
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().destroy_stream(stream) };
    }

    unsafe fn check_stream(&self, stream: RawStream) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().check_stream(stream) }
    }

    unsafe fn stream_id(&self, stream: RawStream) -> Option<u64> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().stream_id(stream) }
    }

    unsafe fn capture_of(&self, stream: RawStream) -> Result<Option<Capture>, DeviceError> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().capture_of(stream) }
    }

    unsafe fn keep_with_graph(
        &self,
        capture: Capture,
        kept: Arc<dyn Any + Send + Sync>,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().keep_with_graph(capture, kept) }
    }

    unsafe fn query(&self, stream: RawStream) -> Result<bool, DeviceError> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().query(stream) }
    }

    unsafe fn synchronise(&self, stream: RawStream) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().synchronise(stream) }
    }

    fn create_event(&self) -> Result<RawEvent, DeviceError> {
        let _held = self.shared.hold();
        self.of().create_event()
    }

    unsafe fn destroy_event(&self, event: RawEvent) {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().destroy_event(event) };
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError> {
        let _held = self.shared.hold();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().record(event, stream) }
    }

    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().wait_event(stream, event) }
    }

    unsafe fn query_event(&self, event: RawEvent) -> Result<bool, DeviceError> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().query_event(event) }
    }

    unsafe fn values(&self, stream: RawStream, ops: &[ValueOp]) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().values(stream, ops) }
    }

    unsafe fn copy(
        &self,
        stream: RawStream,
        target: Address,
        source: Address,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let _held = self.shared.hold();
        let source_device = match self.of().place_of(source)?.space {
            MemorySpace::Device(device) if device != self.ordinal() => device,
            // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
            _ => return unsafe { self.of().copy(stream, target, source, bytes) },
        };
        let mut last = self.shared.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = last.get(&source_device) {
            // SAFETY: the caller promises that the stream lives. `last` holds events that are destroyed only once they are taken out.
            unsafe { self.of().wait_event(stream, *before) }?;
        }
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().copy(stream, target, source, bytes) }?;
        let done = self.of().create_event()?;
        // SAFETY: the caller promises that the stream lives; the event was created just now.
        unsafe { self.of().record(done, stream) }?;
        if let Some(before) = last.insert(source_device, done) {
            // SAFETY: the event was created here and has just been taken out of `last`. Streams that wait for it were given the wait before.
            unsafe { self.of().destroy_event(before) };
        }
        Ok(())
    }

    unsafe fn clear(&self, stream: RawStream, base: Address, bytes: usize) -> Result<(), DeviceError> {
        let _held = self.shared.hold();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().clear(stream, base, bytes) }
    }

    fn upload(&self, works: &[TableSpec<'_>]) -> Result<RawTable, DeviceError> {
        // Kernels are loaded before the first one.
        let is_first = !self.is_loaded.swap(true, Ordering::AcqRel);
        let _held = if is_first { self.shared.wait() } else { self.shared.hold() };
        self.of().upload(works)
    }

    unsafe fn drop_table(&self, table: RawTable) {
        let _held = self.shared.wait();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().drop_table(table) };
    }

    unsafe fn launch(
        &self,
        stream: RawStream,
        table: RawTable,
        epoch: Epoch,
        bases: &[Address],
    ) -> Result<(), DeviceError> {
        let _held = self.shared.hold();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().launch(stream, table, epoch, bases) }
    }

    unsafe fn load(&self, word: Address) -> u64 {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().load(word) }
    }

    unsafe fn store(&self, word: Address, value: u64) {
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().store(word, value) };
    }

    unsafe fn peek(&self, stream: RawStream, word: Address) -> Result<Option<u64>, DeviceError> {
        if SILENT.load(Ordering::Acquire) {
            return Ok(None);
        }
        let _held = self.shared.hold();
        // SAFETY: the caller keeps the contract of this method, which is that of the device within, too.
        unsafe { self.of().peek(stream, word) }
    }

    fn host_access(&self, address: Address, bytes: usize, writes: bool) {
        self.of().host_access(address, bytes, writes);
    }
}

/// Two such devices beside a program.
pub struct Held {
    live: Live,
    shared: Arc<Shared>,
    devices: Vec<Device>,
}

/// As many as CUDA gives a process at most.
const QUEUES: u32 = 32;

impl Held {
    /// Whether a call holds those of others now.
    pub fn is_held(&self) -> bool {
        self.shared.held.try_lock().is_err()
    }

    fn world(&self) -> &World {
        self.live.world()
    }
}

impl Kernels for Held {
    fn produce(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        let _held = self.shared.hold();
        self.world().produce(piece, stream, step)
    }

    fn read_owned(&self, piece: &Piece, stream: &Stream) -> Result<(), DeviceError> {
        let _held = self.shared.hold();
        self.world().read_owned(piece, stream)
    }

    fn consume(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        let _held = self.shared.hold();
        self.world().consume(piece, stream, step)
    }
}

impl Rig for Held {
    const SEEDS: u64 = 30;
    const DEADLINE: Option<Duration> = Some(Duration::from_secs(50));

    fn get() -> Result<&'static Self, Trouble> {
        static THIS: OnceLock<Option<Held>> = OnceLock::new();
        let make = || {
            let (queues, keeps_streams) = (Some(QUEUES), true);
            let seed = std::process::id().into();
            let options = Options {
                devices: 2,
                depth: 1024,
                ordered_threads: true,
                queues,
                keeps_streams,
                ..Options::default()
            };
            let live = World::live(seed, &options).ok()?;
            let inner = device_fixtures::devices(live.world(), 2).ok()?;
            let shared = Arc::new(Shared::default());
            *shared.streams() = inner.iter().map(|device| (device.clone(), BTreeSet::from([0]))).collect();
            let device = |inner: Device| {
                let (shared, is_loaded) = (Arc::clone(&shared), AtomicBool::new(false));
                Device::new(Arc::new(Holding { shared, inner, is_loaded }))
            };
            let devices = inner.into_iter().map(device).collect();
            Some(Self { live, shared, devices })
        };
        THIS.get_or_init(make).as_ref().ok_or_else(|| Trouble::new("no thread for the simulated devices"))
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn memories(&self, _: &Device, _: usize) -> Result<Vec<DeviceMemory>, DeviceError> {
        Ok(Vec::new())
    }

    fn check(&self) -> Outcome {
        match self.world().reports().first() {
            None => Ok(()),
            Some(report) => fail!("{report}"),
        }
    }

    fn delay(&self, _: &Stream) -> Result<(), DeviceError> {
        // The scheduler lets any work take its time.
        Ok(())
    }
}
