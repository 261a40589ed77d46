//! Implements [`Driver`] for GPUs with the functions of the CUDA driver.

use super::api::{WordOp, capture, code};
use super::context::Primary;
use super::copy_table::CopyTable;
use super::gpu::{CudaDriver, ENABLED, drop_kept, events};
use super::table::gather::type_bit;
use crate::driver::{
    Address, Capture, Connection, Driver, Epoch, MemorySpace, Place, Priority, RawEvent, RawGraph, RawStream,
    RawTable, TableSpec, ValueOp,
};
use crate::error::DeviceError;
use crate::lists::ListSpec;
use crate::messages::MessageLibrary;
use crate::remote::{DeviceId, Provider};
use crate::tuning::Tuning;
use halocline_plan::ElementType;
use std::any::Any;
use std::ffi::{c_int, c_uint};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

/// Flags of the driver API.
const EVENT_DISABLE_TIMING: c_uint = 2;
const HOST_PORTABLE_AND_MAPPED: c_uint = 1 | 2;

/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const STREAM_LEGACY: usize = 1;
const STREAM_PER_THREAD: usize = 2;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, `CU_GRAPH_USER_OBJECT_MOVE`.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
const MOVE: c_uint = 1;

/// Flag operations in one driver call.
const WORDS_AT_ONCE: usize = 64;

// SAFETY: `cuMemAlloc` and `cuMemHostAlloc` give memory of the length asked for, until it is freed. CUDA's unified
// addressing gives pinned memory one address on the host and on all devices.
unsafe impl Driver for CudaDriver {
    fn machine(&self) -> usize {
        // A process has one CUDA driver.
        std::ptr::from_ref(self.api).addr()
    }

    fn ordinal(&self) -> u32 {
        self.ordinal
    }

    fn name(&self) -> String {
        super::name_of(self.api, self.device)
    }

    fn failure(&self) -> Option<DeviceError> {
        self.failure.get().cloned()
    }

    fn uuid(&self) -> Option<DeviceId> {
        self.id_of(self.ordinal).ok()
    }

    fn provider(&self) -> Result<Option<Arc<dyn Provider>>, DeviceError> {
        super::provider(self.ordinal).map(Some)
    }

    fn messages(&self) -> Result<Arc<dyn MessageLibrary>, DeviceError> {
        super::nccl::messages(self.ordinal)
    }

    fn queues(&self) -> u32 {
        self.api.queues
    }

    fn handed_over(&self, address: Address, _: usize, _: bool) -> Option<NonNull<u8>> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    fn within(&self, work: &mut dyn FnMut()) {
        // If this fails, the library reports it as well.
        let _current = self.primary.push_current();
        work();
    }

    fn within_beside_captures(&self, work: &mut dyn FnMut()) {
        let _current = self.primary.push_current();
        let _mode = self.primary.make_current_beside_captures();
        work();
    }

    fn is_current(&self) -> bool {
        self.primary.is_current()
    }

    fn tuning(&self) -> Tuning {
        Tuning::HOPPER
    }

    fn connection(&self, other: &DeviceId) -> Option<Connection> {
        self.connection_to(other)
    }

    fn waiting_block_limit(&self) -> u32 {
        self.waiting_blocks
    }

    fn frees_wait(&self) -> bool {
        true
    }

    fn sees_writes_of_networks(&self) -> bool {
        self.orders_writes_of_networks()
    }

    fn allocate(&self, bytes: usize) -> Result<Place, DeviceError> {
        let _current = self.enter_beside_captures()?;
        let mut base = 0;
        let result = (self.api.allocate)(&mut base, bytes.max(1));
        self.check_allocation("cuMemAlloc", result, MemorySpace::Device(self.ordinal), bytes)?;
        self.find(base).map(|place| Place { bytes, ..place })
    }

    unsafe fn free(&self, base: Address) {
        // SAFETY: the caller promises that `allocate` gave `base` and that no unfinished work uses it.
        self.last("cuMemFree", || unsafe { (self.api.free)(base) });
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Place, DeviceError> {
        let _current = self.enter_beside_captures()?;
        let mut base = std::ptr::null_mut();
        let result = (self.api.allocate_pinned)(&mut base, bytes.max(1), HOST_PORTABLE_AND_MAPPED);
        self.check_allocation("cuMemHostAlloc", result, MemorySpace::Host, bytes)?;
        // SAFETY: `cuMemHostAlloc` returned this many bytes at `base`, which the host may write; nothing
        // else uses them yet.
        unsafe { base.cast::<u8>().write_bytes(0, bytes.max(1)) };
        self.find(base.expose_provenance() as Address).map(|place| Place { bytes, ..place })
    }

    unsafe fn free_pinned(&self, base: Address) {
        let base = std::ptr::with_exposed_provenance_mut(base as usize);
        // SAFETY: the caller promises that `allocate_pinned` gave `base` and that no unfinished work uses it.
        self.last("cuMemFreeHost", || unsafe { (self.api.free_pinned)(base) });
    }

    unsafe fn register(&self, base: Address, bytes: usize) -> Result<Place, DeviceError> {
        let _current = self.enter_beside_captures()?;
        let pointer = std::ptr::with_exposed_provenance_mut(base as usize);
        // SAFETY: the caller promises that the memory stays valid until it is unregistered.
        let result = unsafe { (self.api.register)(pointer, bytes, HOST_PORTABLE_AND_MAPPED) };
        self.check_allocation("cuMemHostRegister", result, MemorySpace::Host, bytes)?;
        self.find(base)
    }

    unsafe fn unregister(&self, base: Address) {
        let base = std::ptr::with_exposed_provenance_mut(base as usize);
        // SAFETY: the caller promises that `base` was registered and that no unfinished work uses it.
        self.last("cuMemHostUnregister", || unsafe { (self.api.unregister)(base) });
    }

    fn place_of(&self, address: Address) -> Result<Place, DeviceError> {
        let _current = self.enter()?;
        self.find(address)
    }

    fn identity(&self, address: Address) -> Result<u64, DeviceError> {
        let _current = self.enter()?;
        self.id_at(address)
    }

    fn enable_peer(&self, peer: u32) -> Result<(), DeviceError> {
        if peer == self.ordinal || self.has_peer(peer) {
            return self.failure().map_or(Ok(()), Err);
        }
        let _current = self.enter_beside_captures()?;
        let primary = Primary::retain(self.api, peer)?;
        // SAFETY: `primary` retains the peer's context, and `peers` keeps it as long as this driver.
        match unsafe { (self.api.enable_peer)(primary.context, 0) } {
            code::PEER_ACCESS_ALREADY_ENABLED => {}
            code::PEER_ACCESS_UNSUPPORTED => {
                return Err(DeviceError::NoPeerAccess { device: self.ordinal, peer });
            }
            result => self.check("cuCtxEnablePeerAccess", result)?,
        }
        self.peers().push(primary);
        ENABLED.lock().unwrap_or_else(PoisonError::into_inner).insert((self.ordinal, peer));
        Ok(())
    }

    fn check_peer(&self, peer: u32) -> Result<(), DeviceError> {
        if peer == self.ordinal {
            return self.failure().map_or(Ok(()), Err);
        }
        let _current = self.enter()?;
        let mut other = 0;
        self.check("cuDeviceGet", (self.api.device)(&mut other, peer as c_int))?;
        let ways = [(self.device, other, self.ordinal, peer), (other, self.device, peer, self.ordinal)];
        for (from, to, device, peer) in ways {
            let mut can = 0;
            let result = (self.api.can_access_peer)(&mut can, from, to);
            self.check("cuDeviceCanAccessPeer", result)?;
            if can == 0 {
                return Err(DeviceError::NoPeerAccess { device, peer });
            }
        }
        Ok(())
    }

    fn is_reachable_by(&self, address: Address, bytes: usize, peer: u32) -> bool {
        self.enter().is_ok_and(|_current| self.lets_reach(address, bytes, peer))
    }

    fn create_stream(&self, priority: Priority) -> Result<RawStream, DeviceError> {
        let _current = self.enter_beside_captures()?;
        let priority = match priority {
            Priority::Normal => 0,
            Priority::Highest => self.highest_priority,
        };
        // Allocated now, because a later allocation may wait for other work.
        let looks = self.primary.looks().map_err(|result| self.error("cuMemHostAlloc", result))?;
        let made = self.primary.stream(priority, looks);
        made.map(RawStream).map_err(|(call, result)| self.error(call, result))
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        self.last("cuStreamGetPriority", || {
            let mut priority = 0;
            // SAFETY: the caller promises that the stream is this device's own: `create_stream` made it and nothing has
            // destroyed it.
            let result = unsafe { (self.api.priority)(stream.0, &mut priority) };
            if result == code::SUCCESS {
                self.primary.give_back(priority, stream.0);
            }
            result
        });
    }

    unsafe fn check_stream(&self, stream: RawStream) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        let mut context = 0;
        // SAFETY: the caller promises that the stream lives. CUDA writes one handle to `context`.
        match unsafe { (self.api.stream_context)(stream.0, &mut context) } {
            code::INVALID_HANDLE | code::INVALID_VALUE => Err(DeviceError::NoStream { stream: stream.0 }),
            result => {
                self.check("cuStreamGetCtx", result)?;
                if context == self.primary.context { Ok(()) } else { Err(self.stranger(stream, context)) }
            }
        }
    }

    unsafe fn stream_id(&self, stream: RawStream) -> Option<u64> {
        // The default stream must not be queried while another stream is captured.
        if let 0 | STREAM_LEGACY = stream.0 {
            return Some(u64::MAX);
        }
        let ask = self.api.stream_id.filter(|_| stream.0 != STREAM_PER_THREAD)?;
        let _current = self.enter_beside_captures().ok()?;
        let mut id = 0;
        // SAFETY: the caller promises that the stream lives. CUDA writes one number to `id`.
        (unsafe { ask(stream.0, &mut id) } == code::SUCCESS).then_some(id)
    }

    unsafe fn capture_of(&self, stream: RawStream) -> Result<Option<Capture>, DeviceError> {
        let _current = self.enter()?;
        let mut state = 0;
        // SAFETY: the caller promises that the stream lives. CUDA writes one number to `state`.
        let result = unsafe { (self.api.is_capturing)(stream.0, &mut state) };
        self.check("cuStreamIsCapturing", result)?;
        match state {
            capture::NONE => return Ok(None),
            capture::INVALIDATED => {
                return Err(self.error("cuStreamIsCapturing", code::CAPTURE_INVALIDATED));
            }
            _ => {}
        }
        let (mut id, mut graph, null) = (0, 0, std::ptr::null_mut());
        // SAFETY: the caller promises that the stream lives. CUDA writes a number to `state`, `id` and `graph`, and nothing to null.
        let result =
            unsafe { (self.api.capture_info)(stream.0, &mut state, &mut id, &mut graph, null, null) };
        self.check("cuStreamGetCaptureInfo", result)?;
        Ok(Some(Capture { id, graph }))
    }

    unsafe fn keep_with_graph(
        &self,
        capture: Capture,
        kept: Arc<dyn Any + Send + Sync>,
    ) -> Result<(), DeviceError> {
        let _current = self.enter_beside_captures()?;
        let kept = Box::into_raw(Box::new(kept));
        let mut object = 0;
        // SAFETY: CUDA writes one handle to `object`. It gives `kept` to `drop_kept` once, on a thread of its own.
        let result = unsafe {
            (self.api.create_user_object)(&mut object, kept.cast(), drop_kept, 1, NO_DESTRUCTOR_SYNC)
        };
        if let Err(error) = self.check("cuUserObjectCreate", result) {
            // SAFETY: `into_raw` has given it above, and CUDA has not taken it.
            drop(unsafe { Box::from_raw(kept) });
            return Err(error);
        }
        // SAFETY: the caller promises that the graph is under capture. The one reference to the object goes to the graph.
        let result = unsafe { (self.api.retain_user_object)(capture.graph, object, 1, MOVE) };
        self.check("cuGraphRetainUserObject", result).inspect_err(|_| {
            // SAFETY: the graph has not taken the reference. What happens to the object is ignored: the error is returned.
            unsafe { (self.api.release_user_object)(object, 1) };
        })
    }

    unsafe fn begin_capture(&self, stream: RawStream) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: the caller promises that the stream lives.
        let result = unsafe { (self.api.begin_capture)(stream.0, capture::THREAD_LOCAL) };
        self.check("cuStreamBeginCapture", result)
    }

    unsafe fn end_capture(&self, stream: RawStream) -> Result<RawGraph, DeviceError> {
        let _current = self.enter()?;
        let (mut graph, mut made) = (0, 0);
        // SAFETY: the caller promises that the stream lives. CUDA writes one handle to `graph`.
        let result = unsafe { (self.api.end_capture)(stream.0, &mut graph) };
        self.check("cuStreamEndCapture", result)?;
        // SAFETY: CUDA has made the graph just now, which is not needed any more once it is instantiated. It writes one handle to `made`.
        let results =
            unsafe { [(self.api.instantiate)(&mut made, graph, 0), (self.api.destroy_graph)(graph)] };
        self.check("cuGraphInstantiate", results[0])?;
        self.check("cuGraphDestroy", results[1])?;
        Ok(RawGraph(made))
    }

    unsafe fn launch_graph(&self, graph: RawGraph, stream: RawStream) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: the caller promises that graph and stream live, and what the graph uses.
        let result = unsafe { (self.api.launch_graph)(graph.0, stream.0) };
        self.check("cuGraphLaunch", result)
    }

    unsafe fn destroy_graph(&self, graph: RawGraph) {
        if let Ok(_current) = self.enter_beside_captures() {
            // SAFETY: the caller promises that nothing uses it. If the device has failed, the call returns an error.
            unsafe { (self.api.destroy_made)(graph.0) };
        }
    }

    unsafe fn query(&self, stream: RawStream) -> Result<bool, DeviceError> {
        let _current = self.enter_beside_captures()?;
        // SAFETY: the caller promises that the stream lives.
        match unsafe { (self.api.query)(stream.0) } {
            code::NOT_READY => Ok(false),
            result => self.check("cuStreamQuery", result).map(|()| true),
        }
    }

    unsafe fn synchronise(&self, stream: RawStream) -> Result<(), DeviceError> {
        let _current = self.enter_beside_captures()?;
        // SAFETY: the caller promises that the stream lives.
        self.check("cuStreamSynchronize", unsafe { (self.api.synchronise)(stream.0) })
    }

    fn create_event(&self) -> Result<RawEvent, DeviceError> {
        let _current = self.enter_beside_captures()?;
        let mut event = 0;
        self.check("cuEventCreate", (self.api.create_event)(&mut event, EVENT_DISABLE_TIMING))?;
        events().get_or_insert_default().insert(event, self.ordinal);
        Ok(RawEvent(event))
    }

    unsafe fn destroy_event(&self, event: RawEvent) {
        if let Some(events) = events().as_mut() {
            events.remove(&event.0);
        }
        // SAFETY: the caller promises that the event belongs to this device and that nothing uses it
        // afterwards.
        self.last("cuEventDestroy", || unsafe { (self.api.destroy_event)(event.0) });
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: the caller promises that the event and the stream live.
        self.check_event("cuEventRecord", unsafe { (self.api.record)(event.0, stream.0) }, event)
    }

    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: the caller promises that the event and the stream live.
        self.check_event("cuStreamWaitEvent", unsafe { (self.api.wait_event)(stream.0, event.0, 0) }, event)
    }

    unsafe fn query_event(&self, event: RawEvent) -> Result<bool, DeviceError> {
        let _current = self.enter_beside_captures()?;
        // SAFETY: the caller promises that the event lives.
        match unsafe { (self.api.query_event)(event.0) } {
            code::NOT_READY => Ok(false),
            result => self.check_event("cuEventQuery", result, event).map(|()| true),
        }
    }

    unsafe fn values(&self, stream: RawStream, ops: &[ValueOp]) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // All operations are checked first. Those beyond one driver call go into further calls, and CUDA
        // may still refuse a later one.
        for op in ops {
            let (ValueOp::Write { address, .. } | ValueOp::Wait { address, .. }) = *op;
            self.reach_flag(address)?;
        }
        let mut words = [WordOp::default(); WORDS_AT_ONCE];
        for ops in ops.chunks(WORDS_AT_ONCE) {
            for (word, op) in words.iter_mut().zip(ops) {
                *word = match *op {
                    ValueOp::Write { address, value } => WordOp::write(address, value),
                    ValueOp::Wait { address, at_least } => WordOp::wait(address, at_least),
                };
            }
            // SAFETY: `words` holds `ops.len()` operations, and CUDA reads them during the call.
            // `reach_flag` has checked that this device reaches each flag. The caller promises that the
            // flags stay valid and are only accessed as the contract permits.
            let result = unsafe { (self.api.words)(stream.0, ops.len() as c_uint, words.as_mut_ptr(), 0) };
            self.check("cuStreamBatchMemOp", result)?;
        }
        Ok(())
    }

    unsafe fn copy(
        &self,
        stream: RawStream,
        target: Address,
        source: Address,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        self.know(target, bytes)?;
        self.know(source, bytes)?;
        // SAFETY: `know` has found memory at both ranges. The caller promises that they stay valid until the stream has
        // copied them, and that nothing else uses them meanwhile.
        self.check("cuMemcpyAsync", unsafe { (self.api.copy)(target, source, bytes, stream.0) })
    }

    unsafe fn clear(&self, stream: RawStream, base: Address, bytes: usize) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        self.know(base, bytes)?;
        // SAFETY: `know` has found memory there. The caller promises that it stays valid until the stream has cleared
        // it, and that nothing else uses it meanwhile.
        self.check("cuMemsetD8Async", unsafe { (self.api.clear)(base, 0, bytes, stream.0) })
    }

    unsafe fn peek(&self, stream: RawStream, word: Address) -> Result<Option<u64>, DeviceError> {
        let _current = self.enter_beside_captures()?;
        self.reach_flag(word)?;
        let looks = self.primary.looks().map_err(|result| self.error("cuMemHostAlloc", result))?;
        // SAFETY: the context is current, and `reach_flag` has checked that this device reaches the flag.
        // The caller promises that the stream lives and that the flag stays valid until the stream is idle.
        let seen = unsafe { looks.look(self.api, stream.0, word) };
        seen.map_err(|(call, result)| self.error(call, result))
    }

    fn upload(&self, works: &[TableSpec<'_>]) -> Result<RawTable, DeviceError> {
        let _current = self.enter_beside_captures()?;
        CopyTable::upload(self, works).map(CopyTable::into_handle)
    }

    fn list_scratch(&self, spec: &ListSpec<'_>) -> Result<usize, DeviceError> {
        self.scratch_of_list(spec)
    }

    unsafe fn find_list(&self, stream: RawStream, spec: &ListSpec<'_>) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { self.list(stream, spec) }
    }

    fn prepare_to_combine(&self, elements: &[ElementType]) -> Result<(), DeviceError> {
        let _current = self.enter_beside_captures()?;
        let types = elements.iter().fold(0, |types, &element| types | type_bit(element));
        self.combining_kernels(types).map(drop)
    }

    unsafe fn waiting_blocks(&self, table: RawTable) -> u32 {
        // SAFETY: the caller promises that `upload` gave the handle and that `drop_table` has not had it.
        unsafe { CopyTable::at(table) }.waiting_blocks
    }

    unsafe fn drop_table(&self, table: RawTable) {
        // SAFETY: the caller promises that `upload` gave the handle and that nothing uses it afterwards.
        let table = unsafe { CopyTable::from_handle(table) };
        // SAFETY: `upload` allocated `table.base`. The caller promises that no launch of the table is unfinished.
        self.last("cuMemFree", || unsafe { (self.api.free)(table.base) });
    }

    unsafe fn launch(
        &self,
        stream: RawStream,
        table: RawTable,
        epoch: Epoch,
        bases: &[Address],
    ) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: the caller promises that `upload` gave the handle and that `drop_table` has not had it, that the stream lives, and
        // that the memory of the table and the counter stay valid until the launch is over.
        unsafe { CopyTable::at(table).launch(self, stream, epoch, bases) }
    }
}
