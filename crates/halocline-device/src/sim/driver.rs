//! The driver calls of a simulated device. `call.rs` has the steps that they share.

use super::based::{Based, BasedWork};
use super::call::{Call, EVENTS, STREAMS, SimDriver};
use super::current;
use super::lists::list_kernel;
use super::messages::SimMessages;
use super::remote::SimMemory;
use super::report::Report;
use super::shadow::Touch;
use super::state::Waits;
use super::stream::{Block, Counter, Event, Op, Record, Uploaded, Works};
use crate::driver::{
    Address, Capture, Driver, Epoch, MemorySpace, Place, Priority, RawEvent, RawGraph, RawStream, RawTable,
    TableSpec, ValueOp,
};
use crate::error::DeviceError;
use crate::lists::ListSpec;
use crate::messages::MessageLibrary;
use crate::remote::{DeviceId, Provider};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

// SAFETY: `Memories::add` allocates as many bytes as it says and keeps them until they are freed: this driver holds the
// world that holds them. Pinned memory is memory of the host's allocator at its own address.
unsafe impl Driver for SimDriver {
    fn machine(&self) -> usize {
        self.world.machine()
    }

    fn ordinal(&self) -> u32 {
        self.device
    }

    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn queues(&self) -> u32 {
        self.world.lock().options.queues.unwrap_or(u32::MAX)
    }

    fn waiting_block_limit(&self) -> u32 {
        self.world.lock().options.waiting_blocks.unwrap_or(u32::MAX)
    }

    fn uuid(&self) -> Option<DeviceId> {
        self.world.lock().options.exports.then(|| self.identity())
    }

    fn provider(&self) -> Result<Option<Arc<dyn Provider>>, DeviceError> {
        let exports = self.world.lock().options.exports;
        Ok(exports.then(|| Arc::new(SimMemory::new(self.world.clone(), self.device)) as _))
    }

    fn messages(&self) -> Result<Arc<dyn MessageLibrary>, DeviceError> {
        Ok(Arc::new(SimMessages::new(self.world.clone(), self.device)))
    }

    fn failure(&self) -> Option<DeviceError> {
        self.world.lock().check(self.device).err()
    }

    fn allocate(&self, bytes: usize) -> Result<Place, DeviceError> {
        self.add(MemorySpace::Device(self.device), bytes, None, "allocation")
    }

    unsafe fn free(&self, base: Address) {
        self.remove(base, "free");
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Place, DeviceError> {
        self.add(MemorySpace::Host, bytes, None, "allocation")
    }

    unsafe fn free_pinned(&self, base: Address) {
        self.remove(base, "free");
    }

    unsafe fn register(&self, base: Address, bytes: usize) -> Result<Place, DeviceError> {
        self.add(MemorySpace::Host, bytes, Some(base), "registration")
    }

    unsafe fn unregister(&self, base: Address) {
        self.remove(base, "unregistration");
    }

    fn place_of(&self, address: Address) -> Result<Place, DeviceError> {
        let call = self.call(false)?;
        let spot = call.state.memories.find(address, 1)?;
        Ok(call.state.memories.region(spot.region).place)
    }

    fn enable_peer(&self, peer: u32) -> Result<(), DeviceError> {
        let mut call = self.call(false)?;
        let count = call.state.options.devices;
        if peer >= count {
            return Err(DeviceError::NoDevice { device: peer, count });
        }
        call.state.options.check_peers(self.device, peer)?;
        let peers = &mut call.state.devices[self.device as usize].peers;
        if !peers.contains(&peer) {
            peers.push(peer);
        }
        Ok(())
    }

    fn check_peer(&self, peer: u32) -> Result<(), DeviceError> {
        self.world.lock().options.check_peers(self.device, peer)
    }

    fn is_reachable_by(&self, address: Address, bytes: usize, _peer: u32) -> bool {
        let state = self.world.lock();
        let found = state.memories.find(address, bytes);
        found.is_ok_and(|spot| !state.memories.region(spot.region).unshared)
    }

    fn create_stream(&self, priority: Priority) -> Result<RawStream, DeviceError> {
        let mut call = self.call(false)?;
        let kept = call.state.kept_stream(self.device);
        let stream = kept.unwrap_or_else(|| call.state.add_stream(self.device));
        if priority == Priority::Highest {
            call.state.choices.prefer(stream);
        }
        Ok(RawStream(STREAMS + stream))
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        let Some(Call { mut state, .. }) = self.last_call() else { return };
        match self.stream(&state, stream) {
            Ok(index) if stream.0 != 0 => state.streams[index].alive = false,
            Ok(_) => {
                let what = "the default stream cannot be destroyed; destroy streams that the device has made"
                    .to_owned();
                state.report(Report::Refused { call: "destroy_stream", what });
            }
            Err(error) => state.report(Report::Refused { call: "destroy_stream", what: error.to_string() }),
        }
    }

    unsafe fn check_stream(&self, stream: RawStream) -> Result<(), DeviceError> {
        let call = self.call(false)?;
        self.stream(&call.state, stream).map(drop)
    }

    unsafe fn stream_id(&self, stream: RawStream) -> Option<u64> {
        let mut state = self.world.lock();
        let index = self.stream(&state, stream).ok()?;
        if state.streams[index].captured.is_some() {
            let what =
                "the stream is captured, which this would end; ask before the capture begins".to_owned();
            state.report(Report::Refused { call: "stream_id", what });
        }
        Some(u64::MAX - stream.0 as u64)
    }

    unsafe fn capture_of(&self, stream: RawStream) -> Result<Option<Capture>, DeviceError> {
        let state = self.world.lock();
        self.stream(&state, stream).map(|stream| state.capture(stream))
    }

    unsafe fn keep_with_graph(
        &self,
        capture: Capture,
        kept: Arc<dyn Any + Send + Sync>,
    ) -> Result<(), DeviceError> {
        let mut call = self.call(false)?;
        match call.state.keep(capture, kept) {
            true => Ok(()),
            false => {
                let what = format!("capture {} has ended", capture.id);
                Err(DeviceError::Lost { device: self.device, what })
            }
        }
    }

    unsafe fn begin_capture(&self, stream: RawStream) -> Result<(), DeviceError> {
        self.begin_graph(stream)
    }

    unsafe fn end_capture(&self, stream: RawStream) -> Result<RawGraph, DeviceError> {
        self.end_graph(stream)
    }

    unsafe fn launch_graph(&self, graph: RawGraph, stream: RawStream) -> Result<(), DeviceError> {
        self.give_graph(graph, stream)
    }

    unsafe fn destroy_graph(&self, graph: RawGraph) {
        self.drop_graph(graph);
    }

    unsafe fn query(&self, stream: RawStream) -> Result<bool, DeviceError> {
        let Call { mut state, me } = self.call(true)?;
        let stream = self.stream(&state, stream)?;
        let idle = state.streams[stream].is_idle();
        if idle {
            let (host, stream) = (state.threads[me].actor, state.streams[stream].actor);
            state.join_actor(host, stream);
        }
        Ok(idle)
    }

    unsafe fn synchronise(&self, stream: RawStream) -> Result<(), DeviceError> {
        let Call { state, me } = self.call(false)?;
        let stream = self.stream(&state, stream)?;
        let mut state = self.world.wait(state, me, Waits::Idle(stream));
        state.check(self.device)?;
        let (host, stream) = (state.threads[me].actor, state.streams[stream].actor);
        state.join_actor(host, stream);
        Ok(())
    }

    fn create_event(&self) -> Result<RawEvent, DeviceError> {
        let mut call = self.call(false)?;
        call.state.events.push(Event { device: self.device, alive: true, record: None });
        Ok(RawEvent(EVENTS + call.state.events.len() - 1))
    }

    unsafe fn destroy_event(&self, event: RawEvent) {
        let Some(Call { mut state, .. }) = self.last_call() else { return };
        match self.event(&state, event) {
            Ok(index) => state.events[index].alive = false,
            Err(error) => state.report(Report::Refused { call: "destroy_event", what: error.to_string() }),
        }
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError> {
        let mut call = self.call(false)?;
        let stream = self.stream(&call.state, stream)?;
        let index = self.event(&call.state, event)?;
        let actual = call.state.events[index].device;
        if actual != self.device {
            let (handle, device) = (event.0, self.device);
            return Err(DeviceError::OtherDevice { what: "event", handle, actual, device });
        }
        let record = call.state.records.len();
        let capture = call.state.streams[stream].captured;
        call.state.records.push(Record { capture, ..Record::default() });
        call = self.give(call, stream, Op::Record(record))?;
        call.state.events[index].record = Some(record);
        Ok(())
    }

    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> Result<(), DeviceError> {
        let mut call = self.call(false)?;
        let stream = self.stream(&call.state, stream)?;
        let index = self.event(&call.state, event)?;
        let Some(record) = call.state.events[index].record else {
            call.not_recorded(event, "wait for an event");
            return Ok(());
        };
        if !call.state.enter_capture(stream, record) {
            return Ok(());
        }
        self.give(call, stream, Op::Await(record)).map(drop)
    }

    unsafe fn query_event(&self, event: RawEvent) -> Result<bool, DeviceError> {
        let mut call = self.call(true)?;
        let index = self.event(&call.state, event)?;
        let Some(record) = call.state.events[index].record else {
            call.not_recorded(event, "query of an event");
            return Ok(true);
        };
        let host = call.state.threads[call.me].actor;
        call.state.join_record(host, record);
        Ok(call.state.records[record].done.is_some())
    }

    unsafe fn values(&self, stream: RawStream, ops: &[ValueOp]) -> Result<(), DeviceError> {
        let mut call = self.call(false)?;
        let stream = self.stream(&call.state, stream)?;
        let find = |op: &ValueOp| match *op {
            ValueOp::Write { address, value } => {
                Ok(Op::Write { word: self.reach_flag(&call.state, address)?, value })
            }
            ValueOp::Wait { address, at_least } => {
                Ok(Op::Wait { word: self.reach_flag(&call.state, address)?, at_least })
            }
        };
        // All operations or none.
        let found: Result<Vec<Op>, DeviceError> = ops.iter().map(find).collect();
        for op in found? {
            call = self.give(call, stream, op)?;
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
        let call = self.call(false)?;
        let stream = self.stream(&call.state, stream)?;
        let target = call.state.memories.find(target, bytes)?;
        let source = call.state.memories.find(source, bytes)?;
        self.give(call, stream, Op::Copy { block: Block { target, source, bytes, signs: None }, done: 0 })
            .map(drop)
    }

    fn upload(&self, works: &[TableSpec<'_>]) -> Result<RawTable, DeviceError> {
        let mut call = self.call(false)?;
        let uploaded = if works.iter().any(BasedWork::is) {
            let works = works.iter().map(BasedWork::new).collect();
            Uploaded::Based(Arc::new(Based { device: self.device, works }))
        } else {
            let tables: Result<_, DeviceError> =
                works.iter().map(|work| self.table(&call.state, work)).collect();
            Uploaded::Fixed(Arc::new(Works(tables?, None)))
        };
        call.state.tables.push(Some(uploaded));
        Ok(RawTable(call.state.tables.len()))
    }

    unsafe fn waiting_blocks(&self, table: RawTable) -> u32 {
        let state = self.world.lock();
        let table = state.tables.get(table.0.wrapping_sub(1)).and_then(Option::as_ref);
        table.map_or(0, Uploaded::waiting_parts)
    }

    unsafe fn drop_table(&self, table: RawTable) {
        let Some(Call { mut state, .. }) = self.last_call() else { return };
        let table = state.tables.get_mut(table.0.wrapping_sub(1)).and_then(Option::take);
        let refused = match table {
            Some(table) if table.is_in_use() && state.check(self.device).is_ok() => {
                "a launch of it is unfinished, or nothing has waited for one; wait for its launches first"
            }
            Some(_) => return,
            None => "there is no such table; drop each table once",
        };
        state.report(Report::Refused { call: "drop_table", what: refused.to_owned() });
    }

    unsafe fn launch(
        &self,
        stream: RawStream,
        table: RawTable,
        epoch: Epoch,
        bases: &[Address],
    ) -> Result<(), DeviceError> {
        let call = self.call(false)?;
        let stream = self.stream(&call.state, stream)?;
        let found = call.state.tables.get(table.0.wrapping_sub(1)).cloned().flatten();
        let refused = |what| DeviceError::Lost { device: self.device, what };
        let found = found.filter(|found| found.device() == self.device);
        let works = match found
            .ok_or_else(|| refused(format!("copy table {} is none of this device's", table.0)))?
        {
            Uploaded::Fixed(works) => works,
            Uploaded::Based(based) => {
                if !based.works.iter().all(|work| work.fits(bases)) {
                    return Err(refused(format!("copy table {} has other bases than {bases:x?}", table.0)));
                }
                let of = |work: &BasedWork| work.at(bases, |spec| self.table(&call.state, spec));
                let tables = based.works.iter().map(of).collect::<Result<_, _>>()?;
                Arc::new(Works(tables, Some(based)))
            }
        };
        let (epoch, counter) = match epoch {
            Epoch::Given(epoch) => (epoch, None),
            Epoch::Counted(counter) | Epoch::Read(counter) => {
                let at = self.reach_flag(&call.state, counter)?;
                (0, Some(Counter { at, counts: matches!(epoch, Epoch::Counted(_)) }))
            }
        };
        self.give(call, stream, Op::Launch { works, epoch, counter, parts: Vec::new() }).map(drop)
    }

    unsafe fn find_list(&self, stream: RawStream, spec: &ListSpec<'_>) -> Result<(), DeviceError> {
        let kernel = list_kernel(spec, spec.bytes(self.device)?);
        self.launch_kernel(stream, kernel)
    }

    /// Orders nothing: the value is of some moment.
    unsafe fn peek(&self, stream: RawStream, word: Address) -> Result<Option<u64>, DeviceError> {
        let Call { mut state, me } = self.call(true)?;
        self.stream(&state, stream)?;
        let spot = state.memories.find(word, 8)?;
        let host = state.threads[me].actor;
        let op = state.begin_op(host, "peek");
        state.touch(host, op, spot, 8, Touch::AtomicRead);
        Ok(Some(state.memories.load(spot)))
    }

    unsafe fn load(&self, word: Address) -> u64 {
        if let Some(me) = self.world.me() {
            drop(self.world.turn(self.world.lock(), me, true));
        }
        let Some((Call { mut state, me }, spot)) = self.touch(word, 8, Touch::AtomicRead, "load") else {
            return 0;
        };
        let host = state.threads[me].actor;
        if let Some(seen) = state.memories.region(spot.region).word(spot.offset).cloned() {
            state.join(host, &seen);
        }
        state.memories.load(spot)
    }

    unsafe fn store(&self, word: Address, value: u64) {
        if let Some((Call { mut state, me }, spot)) = self.touch(word, 8, Touch::AtomicWrite, "store") {
            let host = state.threads[me].actor;
            let seen = state.seen(host).clone();
            state.memories.region_mut(spot.region).set_word(spot.offset, &seen);
            state.memories.store(spot, value);
            state.tick(host);
        }
    }

    fn within(&self, work: &mut dyn FnMut()) {
        let _restored = current::select(self.device);
        work();
    }

    fn is_current(&self) -> bool {
        current::is_current(self.device)
    }

    fn handed_over(&self, address: Address, bytes: usize, writes: bool) -> Option<NonNull<u8>> {
        let touch = if writes { Touch::Write } else { Touch::Read };
        let mut call = self.last_call()?;
        let Call { state, me } = &mut call;
        let spot = state.memories.find(address, bytes).ok()?;
        let host = state.threads[*me].actor;
        let op = state.begin_op(host, "another library");
        state.touch(host, op, spot, bytes, touch);
        NonNull::new(state.memories.pointer(spot, bytes))
    }

    fn host_access(&self, address: Address, bytes: usize, writes: bool) {
        let (touch, what) = if writes { (Touch::Write, "write") } else { (Touch::Read, "read") };
        drop(self.touch(address, bytes, touch, what));
    }
}
