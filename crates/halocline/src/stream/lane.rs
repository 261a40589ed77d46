//! One device's part of an exchange.

use super::by_set::BySet;
use super::pool::OfDevice;
use super::reduce::Reduces;
use super::script::{Cue, Script, Step};
use super::sm_budget::Reserved;
use super::{Cut, IN_FLIGHT, POISON, Work, begun};
use crate::check::Area;
use crate::error::Error;
use halocline_comm::Host;
use halocline_device::{
    Address, CopyTable, Counted, Device, DeviceError, Epoch, Event, Memory, RawEvent, Stream, ValueOp,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The distance in bytes between flags that different sides write: a cache line pair.
pub(crate) const LINE: usize = 128;

/// One device's part in the exchanges of an object: wait for the producers of the other lanes; set `ready`, wait for
/// that of the peers, copy and set `arrived` (one copy table), wait for `arrived`, unpack; wait for the other lanes; report that it is
/// done.
pub(crate) struct Lane {
    pub(crate) device: Device,
    pub(crate) shared: Arc<OfDevice>,
    /// The flags that this device waits for, the guard of its tables, and the counter of epochs.
    pub(crate) words: Arc<Memory>,
    /// Flags from the streams to the host, in pinned memory.
    pub(crate) status: Memory,
    /// For each set.
    pub(crate) scripts: BySet<Script>,
    /// For each reduce that was begun.
    pub(crate) reduces: Reduces,
    /// For each set, the flags that no earlier set has: the guard, then all that the lane waits for.
    pub(crate) poisoned: BySet<Vec<Address>>,
    /// Exchanges of some sets are one launch, and only the event after an exchange shows that it is over: a stream's write of a
    /// flag would cost much of what that saves.
    by_event: bool,
    /// The exchanges in flight, each with its event.
    events: Vec<(AtomicU64, AtomicUsize)>,
    /// Launches have their epochs from the counter: graphs hold some.
    counts: AtomicBool,
    /// How often poison was written, by one thread at a time.
    rescues: AtomicU64,
    rescuing: Mutex<()>,
}

/// The offset in [`Lane::words`] of the counter of epochs. The guard is at 0.
pub(crate) const COUNTER: usize = LINE;

/// Flags in [`Lane::status`], by their offsets.
pub(crate) const DONE: usize = 0;
const RESCUED: usize = LINE;
/// The address of an announcement that differs from what this rank sends.
pub(crate) const DIFFERS: usize = 2 * LINE;

impl Lane {
    pub(crate) fn new(
        (device, shared): (Device, Arc<OfDevice>),
        words: Arc<Memory>,
        status: Memory,
        scripts: BySet<Script>,
        (poisoned, by_event): (BySet<Vec<Address>>, bool),
    ) -> Self {
        let (rescues, rescuing) = (AtomicU64::new(0), Mutex::new(()));
        let reduces = Reduces::new(scripts.max_sets());
        let events = (0..IN_FLIGHT).map(|_| (AtomicU64::new(0), AtomicUsize::new(0))).collect();
        Self {
            device,
            shared,
            words,
            status,
            scripts,
            reduces,
            poisoned,
            by_event,
            events,
            counts: AtomicBool::new(false),
            rescues,
            rescuing,
        }
    }

    /// Before [`Lane::give`]: reserves the thread blocks that wait in an exchange of a set, if it is one launch.
    pub(crate) fn reserve(
        &self,
        host: &dyn Host,
        (stream, id): (&Stream, Option<u64>),
        work: Work<'_>,
        cut: impl Fn(Cut) -> bool,
    ) -> Result<Option<Reserved<'_>>, DeviceError> {
        let blocks = work.script(self).waiting_blocks.filter(|&blocks| blocks > 0);
        let reserve = |blocks| self.shared.budget.reserve(host, (stream, id), (blocks, !cut(Cut::Chain)));
        blocks.map(reserve).transpose()
    }

    /// Gives a stream the exchange `epoch` of a set, after its earlier work, and records `done` after it. Calls `be_watched` before
    /// any work that waits. `areas`: in checked mode, those of the exchange.
    #[inline]
    pub(crate) fn give(
        &self,
        stream: &Stream,
        (work, epoch): (Work<'_>, u64),
        scratch: &mut Vec<ValueOp>,
        (done, areas): (&Event, Option<Address>),
        (cut, be_watched): (impl Fn(Cut) -> bool, impl Fn()),
    ) -> Result<(), DeviceError> {
        let script = work.script(self);
        let Script { given, before, raised, is_raised_by_table, out, messages, steps, .. } = script;
        if cut(Cut::Sent) {
            stream.record(done)?;
        }
        let is_open = |cue: &&Cue| !self.is_reached(**cue, epoch);
        let (raised, waits) = before.split_at(*raised);
        let raised = if cut(Cut::HaloRead) || *is_raised_by_table && !waits.iter().any(|cue| is_open(&cue)) {
            &[]
        } else {
            raised
        };
        scratch.clear();
        scratch.extend(given.iter().map(|cue| cue.of(epoch)));
        // A call after a wait may block this thread until the wait is over, if another thread synchronises with the stream.
        let flush = |scratch: &mut Vec<ValueOp>| {
            if scratch.iter().any(|op| matches!(op, ValueOp::Wait { .. })) {
                be_watched();
            }
            self.flush(stream, scratch)
        };
        let look_before = |scratch: &mut Vec<ValueOp>| {
            let Some((first, looks)) = areas.zip(script.looks.as_ref()) else { return Ok(()) };
            flush(scratch)?;
            self.look_before(stream, looks, first, epoch)?;
            scratch.extend(looks.filled.iter().map(|cue| cue.of(epoch)));
            Ok(())
        };
        if !cut(Cut::Fill) {
            look_before(scratch)?;
        }
        scratch.extend(raised.iter().chain(waits.iter().filter(is_open)).map(|cue| cue.of(epoch)));
        // All flag operations between two launches are one call.
        let launch = |table: &Option<CopyTable>, scratch: &mut Vec<ValueOp>| {
            let Some(table) = table else { return Ok(()) };
            flush(scratch)?;
            self.launch(stream, (table, work.bases()), (epoch, script.is_last(table)))
        };
        let exchange = |when: bool, scratch: &mut Vec<ValueOp>| {
            let Some(messages) = messages.as_ref().filter(|_| when) else { return Ok(()) };
            flush(scratch)?;
            be_watched();
            messages.give(stream)
        };
        let (early, late) = (cut(Cut::Packed), cut(Cut::Arrived));
        exchange(early, scratch)?;
        launch(out, scratch)?;
        exchange(!early && !late, scratch)?;
        if cut(Cut::Fill) {
            look_before(scratch)?;
        }
        for Step { cues, into } in steps {
            scratch.extend(cues.iter().filter(is_open).map(|cue| cue.of(epoch)));
            launch(into, scratch)?;
        }
        exchange(late, scratch)?;
        self.end(stream, (script, epoch), scratch, (done, areas), (&cut, &flush))?;
        let (of, event) = &self.events[(epoch % IN_FLIGHT) as usize];
        event.store(done.raw().0, Ordering::Relaxed);
        of.store(epoch, Ordering::Release);
        Ok(())
    }

    /// The end of [`Lane::give`]: orders the lanes, reports that this one is done, and records `done`.
    #[inline]
    fn end(
        &self,
        stream: &Stream,
        (script, epoch): (&Script, u64),
        scratch: &mut Vec<ValueOp>,
        (done, areas): (&Event, Option<Address>),
        (cut, flush): (impl Fn(Cut) -> bool, impl Fn(&mut Vec<ValueOp>) -> Result<(), DeviceError>),
    ) -> Result<(), DeviceError> {
        let looking = areas.zip(script.looks.as_ref());
        if !self.by_event {
            scratch.extend(script.over.iter().map(|cue| cue.of(epoch)));
        }
        if let Some((first, looks)) = looking.filter(|_| !cut(Cut::Look)) {
            flush(scratch)?;
            self.look(stream, looks, (first, Area::After), epoch)?;
            scratch.extend(looks.looked.iter().map(|cue| cue.of(epoch)));
        }
        if !self.by_event && !script.is_ended_by_table {
            scratch.push(Cue::Write(self.status.at(DONE)).of(epoch));
        }
        flush(scratch)?;
        if !cut(Cut::Sent) {
            stream.record(done)?;
        }
        match looking.filter(|_| cut(Cut::Look)) {
            Some((first, looks)) => self.look(stream, looks, (first, Area::After), epoch),
            None => Ok(()),
        }
    }

    /// Launches a table for an epoch, which the counter gives if graphs hold launches, too. The last table of the epoch counts it.
    fn launch(
        &self,
        stream: &Stream,
        (table, bases): (&CopyTable, &[Address]),
        (epoch, is_last): (u64, bool),
    ) -> Result<(), DeviceError> {
        let epoch = match self.is_counting() {
            false => Epoch::Given(epoch),
            true if is_last => Epoch::Counted(self.words.at(COUNTER)),
            true => Epoch::Read(self.words.at(COUNTER)),
        };
        // SAFETY: the object holds the table and all its memory until the stream has finished, and as long as a graph keeps it: nothing is
        // reclaimed before. The flags that the stream or the table has waited for show that no other rank or stream uses the cells
        // concerned. Exchanges of an object follow one another, and with them the launches that use the counter. Bases are those of fields
        // whose layouts the table was made for; receivers announce slots that hold what they expect.
        unsafe { stream.launch_on(table, epoch, bases) }
    }

    /// Whether launches have their epochs from the counter.
    pub(crate) fn is_counting(&self) -> bool {
        self.counts.load(Ordering::Acquire)
    }

    /// Lets launches have their epochs from the counter from now on; all before, up to `epoch`, got theirs as arguments. Waits for the stream
    /// that writes poison, which waits for nothing.
    pub(crate) fn count(&self, epoch: u64) -> Result<(), DeviceError> {
        if self.is_counting() {
            return Ok(());
        }
        let write = ValueOp::Write { address: self.words.at(COUNTER), value: Counted::after(epoch).0 };
        // SAFETY: the counter is a word of this object. No launch uses it before `counts` says so.
        unsafe { self.shared.rescue.values(&[write]) }?;
        self.shared.rescue.synchronise()?;
        self.counts.store(true, Ordering::Release);
        Ok(())
    }

    /// The epoch that the device has begun last, and the number of its [`FlagSet`].
    pub(crate) fn begun(&self) -> (u64, usize) {
        let numbers = (0..self.scripts.len()).chain(self.reduces.numbers());
        numbers.map(|number| (self.word(begun(number)), number)).max().unwrap_or_default()
    }

    /// The counter, if the device tells it soon.
    pub(crate) fn counted(&self) -> Option<Counted> {
        self.peek(self.words.at(COUNTER)).map(Counted)
    }

    /// Whether the device tells that each epoch it has begun is over.
    pub(crate) fn is_counted(&self) -> bool {
        // First: an epoch that begins after this look is not over.
        let begun = self.begun().0;
        self.counted().is_some_and(|counted| counted.epochs() >= begun && !counted.is_within_launch())
    }

    /// Captures an exchange of a set, all of whose waits are within launches. `epoch` is the epoch that a call would begin now.
    pub(crate) fn capture(
        &self,
        stream: &Stream,
        work: Work<'_>,
        epoch: u64,
        is_cut: bool,
    ) -> Result<(), DeviceError> {
        let script = work.script(self);
        for table in script.tables() {
            if is_cut {
                // SAFETY: the graph keeps the object, which holds the table and its memory. A test repeats one epoch.
                unsafe { stream.launch_on(table, Epoch::Given(epoch), work.bases()) }?;
            } else {
                self.launch(stream, (table, work.bases()), (epoch, script.is_last(table)))?;
            }
        }
        Ok(())
    }

    /// Whether events show that exchanges are over, since some are one launch.
    pub(crate) fn is_by_event(&self) -> bool {
        self.by_event
    }

    pub(crate) fn cue(
        &self,
        stream: &Stream,
        cues: &[Cue],
        epoch: u64,
        scratch: &mut Vec<ValueOp>,
    ) -> Result<(), DeviceError> {
        scratch.clear();
        scratch.extend(cues.iter().map(|cue| cue.of(epoch)));
        self.flush(stream, scratch)
    }

    /// Gives the stream the collected operations on flags.
    fn flush(&self, stream: &Stream, scratch: &mut Vec<ValueOp>) -> Result<(), DeviceError> {
        if scratch.is_empty() {
            return Ok(());
        }
        // SAFETY: the flags are those of this object and of its peers, which it holds (`words`, `status`,
        // `Scheduled::segments`) until the stream has finished. Only streams, tables and atomic operations access them.
        let given = unsafe { stream.values(scratch) };
        scratch.clear();
        given
    }

    /// Whether the host sees that the wait is over already.
    fn is_reached(&self, cue: Cue, epoch: u64) -> bool {
        let Cue::WaitHost(word, lag) = cue else { return false };
        // SAFETY: `Cue::WaitHost` has a word of this object in pinned memory, which it holds. Streams, tables and atomic
        // operations alone write it.
        unsafe { self.device.driver().load(word) >= epoch.saturating_sub(lag) }
    }

    /// Whether its stream has reached an exchange.
    pub(crate) fn has_begun(&self, epoch: u64) -> bool {
        self.begun().0 >= epoch
    }

    /// Reads a flag in memory of this device; `None` if that takes too long or the device has failed.
    pub(crate) fn peek(&self, word: Address) -> Option<u64> {
        // SAFETY: the word is one of this object, which it holds, and streams, tables and atomic operations alone write
        // it. A read that timed out may still happen: memory is freed or unregistered later, once the device has finished
        // it.
        unsafe { self.shared.rescue.peek(word) }.ok().flatten()
    }

    /// The last epoch up to `epoch` that its stream has finished; it has finished those up to `known`. The stream's writes are visible
    /// then.
    pub(crate) fn done(&self, known: u64, epoch: u64) -> u64 {
        let done = known.max(self.written().min(epoch));
        if !self.by_event || done == epoch {
            return done;
        }
        if self.is_over(epoch) {
            return epoch;
        }
        let (mut done, mut open) = (done, epoch);
        while open - done > 1 {
            let between = done.midpoint(open);
            *(if self.is_over(between) { &mut done } else { &mut open }) = between;
        }
        done
    }

    /// The last epoch that its stream has reported as finished.
    pub(crate) fn written(&self) -> u64 {
        self.word(DONE)
    }

    /// Whether the event of an exchange has completed. An event that was returned to the pool and used again had completed.
    fn is_over(&self, epoch: u64) -> bool {
        let (of, event) = &self.events[(epoch % IN_FLIGHT) as usize];
        if of.load(Ordering::Acquire) != epoch {
            return false;
        }
        let event = RawEvent(event.load(Ordering::Relaxed));
        // SAFETY: `give` has stored an event of the pool `shared.events`, which alone destroys its events, and which `self` holds.
        unsafe { self.device.driver().query_event(event) == Ok(true) }
    }

    /// A flag that the stream has set.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        // SAFETY: the words of `status` are written by streams and tables alone.
        unsafe { self.status.load(offset) }
    }

    /// The announcement that differs from what this rank sends, if a table has found one.
    pub(crate) fn differing(&self) -> Option<Address> {
        Some(self.word(DIFFERS)).filter(|&address| address != 0)
    }

    /// Makes the stream of an exchange that was given in part report when it has finished.
    pub(crate) fn give_up(
        &self,
        stream: &Stream,
        epoch: u64,
        scratch: &mut Vec<ValueOp>,
    ) -> Result<(), DeviceError> {
        self.cue(stream, &[Cue::Write(self.status.at(DONE))], epoch, scratch)
    }

    /// Ends all waits of this lane up to `epoch`: tables copy nothing from now on. Does nothing once the lane is drained, or while
    /// the poison of the last call is not written yet.
    pub(crate) fn poison(&self, epoch: u64) -> Result<(), Error> {
        // Another thread writes poison.
        let Ok(_alone) = self.rescuing.try_lock() else { return Ok(()) };
        // Checked again: the last holder of the object must not leave poison behind.
        if !self.is_rescued() || self.is_drained(epoch) {
            return Ok(());
        }
        let write = |(at, &address): (usize, &Address)| {
            let value = if at == 0 { 1 } else { POISON };
            ValueOp::Write { address, value }
        };
        let rescues = self.rescues.fetch_add(1, Ordering::AcqRel) + 1;
        let rescued = ValueOp::Write { address: self.status.at(RESCUED), value: rescues };
        let of_reduces = self.reduces.iter().flat_map(|script| &script.poisoned);
        let words = self.poisoned.iter().flatten().chain(of_reduces);
        let ops: Vec<ValueOp> = words.enumerate().map(write).chain([rescued]).collect();
        // SAFETY: the flags are those of this object, which it holds until the stream has finished: `drop` waits for
        // that. Only streams, tables and atomic operations access them.
        Ok(unsafe { self.shared.rescue.values(&ops) }?)
    }

    /// Whether no work of the exchanges up to `epoch` runs any more, and no write of poison. A table that was ended by its guard has not
    /// reported that it is done: the event after it does.
    pub(crate) fn is_drained(&self, epoch: u64) -> bool {
        if self.device.failure().is_some() {
            return true;
        }
        // A graph may be launched later: only the guard keeps it from copying.
        let is_guarded = || self.rescues.load(Ordering::Acquire) > 0 && self.is_counted();
        let is_over = self.written() >= epoch || self.is_over(epoch);
        is_over && self.is_rescued() && (!self.is_counting() || is_guarded())
    }

    fn is_rescued(&self) -> bool {
        self.word(RESCUED) >= self.rescues.load(Ordering::Acquire)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // A thread that writes poison may be the last holder, after others have found the lane drained: the flags stay until the
        // writes have finished. The stream waits for nothing, so this does not take long.
        if self.device.failure().is_none()
            && !self.is_rescued()
            && let Err(error) = self.shared.rescue.synchronise()
        {
            tracing::debug!("device {}: poison is not written: {error}", self.device.ordinal());
        }
    }
}
