//! A device that completes every operation within the call and never waits, so that the time of a call is the library's own.
//!
//! For benchmarks only: it checks no order.

use halocline::device::{
    Address, Driver, Epoch, MemorySpace, Place, Priority, RawEvent, RawStream, RawTable, TableSpec, ValueOp,
};
use halocline::plan::copy::CopyOp;
use halocline::{Device, DeviceError};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Such a device, and the calls that it was given.
#[derive(Default)]
pub struct Instant {
    state: Mutex<State>,
    calls: [AtomicU64; Call::ALL.len()],
    handles: AtomicUsize,
    generation: AtomicU64,
    /// What other libraries are handed for its memory, where that is something else.
    decoy: Option<Box<[AtomicU64]>>,
    must_be_flushed: bool,
}

/// Kinds of calls that are counted: those that an exchange may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// An event is recorded.
    Record,
    /// A stream waits for an event.
    WaitEvent,
    /// A batch of operations on words.
    Batch,
    /// A launch of a copy table.
    Launch,
    /// A copy.
    Copy,
    /// It is asked which allocation memory is.
    Identity,
    /// It is asked where memory lies.
    Place,
    /// An event is asked whether it is over.
    QueryEvent,
    /// A stream is asked the same.
    Query,
}

impl Call {
    /// All of them; those that give work to streams first.
    pub const ALL: [Self; 9] = [
        Self::Record,
        Self::WaitEvent,
        Self::Batch,
        Self::Launch,
        Self::Copy,
        Self::Identity,
        Self::Place,
        Self::QueryEvent,
        Self::Query,
    ];
    /// How many of them give work to streams.
    const WORK: usize = 5;
}

#[derive(Default)]
struct State {
    places: Vec<Place>,
    /// Physical memories that begin within a place, by their first address, and their identities.
    pieces: BTreeMap<Address, u64>,
    /// Each with its works: one, or those for even and odd epochs.
    tables: Vec<Arc<Vec<Table>>>,
}

/// An uploaded table: of each part what it copies (target, source, bytes) and raises.
struct Table {
    parts: Vec<(Vec<Block>, Vec<Address>)>,
}

type Block = (Address, Address, usize);

const ALIGN: usize = 4096;

impl Instant {
    /// From now on its handles mean other streams, as where streams are destroyed and made.
    pub fn renew(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// From an address on, its allocation is another physical memory, as virtual memory may be.
    pub fn lay(&self, from: Address, id: u64) {
        self.lock().pieces.insert(from, id);
    }

    /// A device with the ordinal 0.
    pub fn device() -> (Arc<Self>, Device) {
        let driver = Arc::new(Self::default());
        (Arc::clone(&driver), Device::new(driver))
    }

    /// The same, of whose memory other libraries are handed other bytes, at most so many: as by an MPI that does not know what it
    /// is given.
    pub fn with_decoy(bytes: usize) -> Device {
        let decoy = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Device::new(Arc::new(Self { decoy: Some(decoy), ..Self::default() }))
    }

    /// The same, whose memory must be flushed after a network card has written into it.
    pub fn to_be_flushed() -> Device {
        Device::new(Arc::new(Self { must_be_flushed: true, ..Self::default() }))
    }

    /// Calls that gave work to streams, so far.
    pub fn calls(&self) -> u64 {
        self.count()[..Call::WORK].iter().sum()
    }

    /// Calls so far, of each kind of [`Call::ALL`].
    pub fn count(&self) -> [u64; Call::ALL.len()] {
        Call::ALL.map(|call| self.calls[call as usize].load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, call: Call) {
        self.calls[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn make(&self, space: MemorySpace, bytes: usize) -> Result<Place, DeviceError> {
        let refused = DeviceError::OutOfMemory { space, bytes };
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).map_err(|_| refused.clone())?;
        // SAFETY: `layout` has a size of at least 1.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return Err(refused);
        }
        let mut state = self.lock();
        let id = state.places.len() as u64 + 1;
        state.places.push(Place { space, id, base: base.expose_provenance() as Address, bytes });
        Ok(state.places[id as usize - 1])
    }

    fn find(&self, address: Address) -> Result<Place, DeviceError> {
        let holds = |place: &&Place| (place.base..place.base + place.bytes as Address).contains(&address);
        let state = self.lock();
        let place = state.places.iter().find(holds).ok_or(DeviceError::NotReachable { address, bytes: 1 })?;
        let piece = state.pieces.range(place.base..=address).next_back();
        Ok(piece.map_or(*place, |(_, &id)| Place { id, ..*place }))
    }

    fn remove(&self, base: Address) {
        let mut state = self.lock();
        if let Some(place) = state.places.iter_mut().find(|place| place.base == base && place.bytes > 0) {
            let bytes = std::mem::take(&mut place.bytes);
            let Ok(layout) = Layout::from_size_align(bytes.max(1), ALIGN) else { return };
            // SAFETY: `make` allocated the memory with this layout. `place.bytes` was not 0 and is now, so that it is
            // freed once.
            unsafe { std::alloc::dealloc(std::ptr::with_exposed_provenance_mut(base as usize), layout) };
        }
    }
}

/// # Safety
/// Both ranges are valid.
unsafe fn copy(target: Address, source: Address, bytes: usize) {
    let (target, source) = (target as usize, source as usize);
    // SAFETY: the caller promises that both ranges are valid; they may overlap.
    unsafe {
        std::ptr::copy::<u8>(
            std::ptr::with_exposed_provenance(source),
            std::ptr::with_exposed_provenance_mut(target),
            bytes,
        );
    }
}

/// # Safety
/// `word` is an address of 8 valid bytes at a multiple of 8, which atomic operations alone access.
unsafe fn write(word: Address, value: u64) {
    // SAFETY: the caller promises 8 valid and aligned bytes that atomic operations alone access.
    unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(word as usize)) }
        .store(value, Ordering::Release);
}

// SAFETY: `make` allocates as many bytes as it says, of the host's memory, and keeps them until `remove` frees them.
unsafe impl Driver for Instant {
    fn sees_writes_of_networks(&self) -> bool {
        !self.must_be_flushed
    }

    fn machine(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn ordinal(&self) -> u32 {
        0
    }

    fn name(&self) -> String {
        "instant".to_owned()
    }

    fn failure(&self) -> Option<DeviceError> {
        None
    }

    fn allocate(&self, bytes: usize) -> Result<Place, DeviceError> {
        self.make(MemorySpace::Device(0), bytes)
    }

    unsafe fn free(&self, base: Address) {
        self.remove(base);
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Place, DeviceError> {
        self.make(MemorySpace::Host, bytes)
    }

    unsafe fn free_pinned(&self, base: Address) {
        self.remove(base);
    }

    unsafe fn register(&self, base: Address, bytes: usize) -> Result<Place, DeviceError> {
        let mut state = self.lock();
        let place = Place { space: MemorySpace::Host, id: state.places.len() as u64 + 1, base, bytes };
        state.places.push(place);
        Ok(place)
    }

    unsafe fn unregister(&self, base: Address) {
        self.lock().places.iter_mut().filter(|place| place.base == base).for_each(|place| place.bytes = 0);
    }

    fn identity(&self, address: Address) -> Result<u64, DeviceError> {
        self.call(Call::Identity);
        self.find(address).map(|place| place.id)
    }

    fn place_of(&self, address: Address) -> Result<Place, DeviceError> {
        self.call(Call::Place);
        self.find(address)
    }

    fn enable_peer(&self, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }

    fn check_peer(&self, _: u32) -> Result<(), DeviceError> {
        Ok(())
    }

    fn create_stream(&self, _: Priority) -> Result<RawStream, DeviceError> {
        Ok(RawStream(self.handles.fetch_add(1, Ordering::Relaxed) + 1))
    }

    unsafe fn destroy_stream(&self, _: RawStream) {}

    unsafe fn check_stream(&self, _: RawStream) -> Result<(), DeviceError> {
        Ok(())
    }

    unsafe fn query(&self, _: RawStream) -> Result<bool, DeviceError> {
        self.call(Call::Query);
        Ok(true)
    }

    unsafe fn synchronise(&self, _: RawStream) -> Result<(), DeviceError> {
        Ok(())
    }

    fn create_event(&self) -> Result<RawEvent, DeviceError> {
        Ok(RawEvent(self.handles.fetch_add(1, Ordering::Relaxed) + 1))
    }

    unsafe fn destroy_event(&self, _: RawEvent) {}

    unsafe fn record(&self, _: RawEvent, _: RawStream) -> Result<(), DeviceError> {
        self.call(Call::Record);
        Ok(())
    }

    unsafe fn stream_id(&self, stream: RawStream) -> Option<u64> {
        Some(self.generation.load(Ordering::Relaxed) << 32 | stream.0 as u64)
    }

    unsafe fn wait_event(&self, _: RawStream, _: RawEvent) -> Result<(), DeviceError> {
        self.call(Call::WaitEvent);
        Ok(())
    }

    unsafe fn query_event(&self, _: RawEvent) -> Result<bool, DeviceError> {
        self.call(Call::QueryEvent);
        Ok(true)
    }

    unsafe fn values(&self, _: RawStream, ops: &[ValueOp]) -> Result<(), DeviceError> {
        self.call(Call::Batch);
        for op in ops {
            if let ValueOp::Write { address, value } = *op {
                // SAFETY: the caller promises that the word is valid and accessed by atomic operations alone.
                unsafe { write(address, value) };
            }
        }
        Ok(())
    }

    unsafe fn copy(
        &self,
        _: RawStream,
        target: Address,
        source: Address,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.call(Call::Copy);
        // SAFETY: the caller promises that both ranges are valid and that nothing else uses them meanwhile.
        unsafe { copy(target, source, bytes) };
        Ok(())
    }

    fn handed_over(&self, address: Address, bytes: usize, _: bool) -> Option<NonNull<u8>> {
        match &self.decoy {
            Some(decoy) => (bytes <= 8 * decoy.len()).then(|| NonNull::from(&**decoy).cast()),
            None => NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)),
        }
    }

    fn upload(&self, works: &[TableSpec<'_>]) -> Result<RawTable, DeviceError> {
        let table = |work: &TableSpec<'_>| {
            let blocks = |op: &CopyOp| {
                let mut blocks = Vec::new();
                let (sources, targets) = (work.sources[op.source], work.targets[op.target]);
                // Fields whose bases each launch gives are not copied: this device shows what a call costs.
                if (sources | targets) >> 63 == 0 {
                    op.for_each_block(|from, to, bytes| {
                        let source = sources.wrapping_add_signed(from as i64);
                        blocks.push((targets.wrapping_add_signed(to as i64), source, bytes));
                    });
                }
                blocks
            };
            let parts = work.parts.iter();
            let parts = parts.map(|part| (part.ops.iter().flat_map(blocks).collect(), part.raises.to_vec()));
            Table { parts: parts.collect() }
        };
        let mut state = self.lock();
        state.tables.push(Arc::new(works.iter().map(table).collect()));
        Ok(RawTable(state.tables.len() - 1))
    }

    unsafe fn drop_table(&self, _: RawTable) {}

    unsafe fn launch(
        &self,
        _: RawStream,
        table: RawTable,
        epoch: Epoch,
        _: &[Address],
    ) -> Result<(), DeviceError> {
        self.call(Call::Launch);
        let Epoch::Given(epoch) = epoch else {
            let what = "it captures nothing, so that it has no counters".to_owned();
            return Err(DeviceError::Lost { device: 0, what });
        };
        let works = Arc::clone(&self.lock().tables[table.0]);
        for (blocks, raises) in &works[(epoch % works.len() as u64) as usize].parts {
            // SAFETY: the caller promises that the memory of the table is valid and that nothing else uses what it
            // copies meanwhile.
            blocks.iter().for_each(|&(target, source, bytes)| unsafe { copy(target, source, bytes) });
            // SAFETY: the caller promises that the words of the table are valid and accessed by atomic operations
            // alone.
            raises.iter().for_each(|&word| unsafe { write(word, epoch) });
        }
        Ok(())
    }
}
