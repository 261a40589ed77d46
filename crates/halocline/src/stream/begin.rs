//! The begin of an exchange: the checks before it, and the work of each lane's stream.

use super::{Begin, Borrowed, Cut, Flight, IN_FLIGHT, Lane, Pool, Scheduled, Script, Work};
use crate::error::Error;
use crate::exchange::Shared;
use crate::lifecycle::Engine;
use crate::link::SLOTS;
use crate::lock::{lock, lock_yielding};
use crate::set::Set;
use halocline_comm::Endpoint;
use halocline_device::{Capture, DeviceError, Stream, Waiting};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard};

/// Physical allocations that each call checks.
const LOOKS: usize = 32;

impl Scheduled {
    /// As [`Scheduled::begin`], after the producer streams that were bound.
    pub(crate) fn begin_bound(&self, set: &Arc<Set>, object: &Arc<Shared>) -> Result<u64, Error> {
        self.begin((Work::Set(set), object), self.producers.iter().map(|stream| &**stream))
    }

    /// Begins an exchange, after all earlier work of the streams; if they are being captured, captures it.
    /// Returns its number.
    ///
    /// It may wait for three things: a thread that begins an exchange of this object; a free of device memory, if no exchange of
    /// this object is in flight ([`halocline_device::Device::begin_waiting`]); the earlier exchanges, so that device memory can be
    /// freed ([`Waiting::pause_for_frees`]).
    pub(crate) fn begin<'a>(
        &'a self,
        (work, object): (Work<'a>, &Arc<Shared>),
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<u64, Error> {
        if let Some(capture) = self.capture_of(streams.clone())? {
            return self.capture((work, object), capture, streams);
        }
        self.pause_for_frees();
        // Not under the lock of `begin`: arrays of the user may be dropped.
        self.release_given(self.completed());
        let (shared, mut begin) = self.enter_after_others(work, streams.clone())?;
        self.check_failure()?;
        self.check_memories(work).inspect_err(|error| self.end_by_device(error.to_string()))?;
        // Under the lock of `begin`: see `is_in_flight_with`.
        self.check_guards(work)?;
        let epoch = self.epoch() + 1;
        self.limit_in_flight(epoch)?;
        self.prepare_check(epoch, work)?;
        // Before the epoch: staged links look it up as soon as they see that.
        self.chosen[(epoch % (2 * IN_FLIGHT)) as usize]
            .store(work.flags().number(self.sets.max_sets()), Ordering::Release);
        self.hold(epoch, work);
        if self.has_host_fields {
            match work {
                Work::Set(set) => self.host.begin(set, &[])?,
                Work::Reduce(set, reduction) => self.host.begin_reduce(set, reduction)?,
                Work::Given(_) => 0,
            };
        }
        self.count_in_flight(epoch);
        fence(Ordering::SeqCst);
        // If others are in flight, already now: a full queue blocks this thread until the host has done what the streams wait
        // for.
        if self.completed() + 1 < epoch {
            self.be_watched();
        }
        // Objects share streams: two objects in different orders on two lanes would wait for each other.
        let pool = self.comm.extension::<Pool>();
        let order = (self.lanes.len() > 1).then(|| pool.enter(&self.comm));
        let given = self.give_or_give_up(&mut begin, (work, epoch), streams);
        drop(order);
        drop(begin);
        drop(shared);
        self.be_watched();
        match given {
            Ok(()) => {}
            Err(Some(error)) => return Err(self.lose(error)),
            Err(None) => return self.check_failure().map(|()| epoch),
        }
        Ok(epoch)
    }

    /// Counts an exchange, before any work of it is given: from now on each look includes it. No memory of the devices is freed while one is
    /// in flight.
    fn count_in_flight(&self, epoch: u64) {
        let mut waiting = lock(&self.waiting);
        if waiting.is_none() {
            // Not under the lock, which looks take: this may wait for the device.
            drop(waiting);
            let ours = self.lanes.iter().find_map(|lane| lane.device.begin_waiting());
            waiting = lock(&self.waiting);
            *waiting = ours;
        }
        self.life().begin(epoch);
    }

    /// Gives the streams the work of an exchange. If the object has failed (`None`) or a device refuses work, the streams finish the exchange
    /// without it.
    fn give_or_give_up<'a>(
        &'a self,
        begin: &mut Begin,
        (work, epoch): (Work<'_>, u64),
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<(), Option<DeviceError>> {
        let given = match self.check_failure() {
            Ok(()) => self.give(begin, (work, epoch), streams.clone()).map_err(Some),
            Err(_) => Err(None),
        };
        if let Err(error) = &given {
            begin.is_broken = true;
            // Before the streams report that they have finished it.
            error.iter().for_each(|error| self.lost(error));
            self.give_up(begin, epoch, streams);
            // The streams may have been quiet before this one was counted.
            self.let_free();
        }
        given
    }

    /// Now and then waits for the exchanges in flight: dropped device memory is freed only while there are none.
    fn pause_for_frees(&self) {
        Waiting::pause_for_frees(|| {
            // Exchanges of other objects may be over, but not yet noticed.
            let link = self.comm.link();
            link.own_bell().demand(link.host());
            self.carry_on();
            self.look() < self.epoch() && self.check_failure().is_ok()
        });
    }

    /// Allows frees again, unless an exchange has begun meanwhile.
    pub(super) fn let_free(&self) {
        let mut waiting = lock(&self.waiting);
        let is_over = self.completed() >= self.epoch() && !self.holds_frees();
        if is_over || self.quiet.load(Ordering::Acquire) {
            *waiting = None;
        }
    }

    /// Whether graphs may wait for another rank of this process at any time, so that nothing may be freed as long as the object exists.
    fn holds_frees(&self) -> bool {
        self.is_counting() && self.comm.transport() == "thread"
    }

    /// Allows no frees from now on, if graphs ask for that.
    pub(super) fn hold_frees(&self) {
        let is_missing = || self.holds_frees() && lock(&self.waiting).is_none();
        if let Some(lane) = self.lanes.first().filter(|_| is_missing()) {
            let ours = lane.device.begin_waiting();
            let mut waiting = lock(&self.waiting);
            *waiting = waiting.take().or(ours);
        }
    }

    /// Whether graphs hold exchanges of this object, so that launches have their epochs from a counter.
    pub(super) fn is_counting(&self) -> bool {
        self.lanes.iter().any(Lane::is_counting)
    }

    /// Waits until no other thread begins an exchange here, or orders a stream after one: both are short.
    pub(super) fn enter(&self) -> MutexGuard<'_, Begin> {
        // A begin that panicked has not counted yet.
        lock_yielding(&self.begin, self.comm.link().host())
    }

    /// Checks that a stream is one of the object's devices. Returns its capture, if it is being captured.
    pub(super) fn check_stream(&self, at: usize, stream: &Stream) -> Result<Option<Capture>, Error> {
        let device = stream.device().ordinal();
        if self.lanes.is_empty() {
            return Ok(None);
        }
        if self.lane_of(stream).is_some() {
            return Ok(stream.capture()?);
        }
        let devices = self.lanes.iter().map(|lane| lane.device.ordinal()).collect();
        Err(Error::StreamDevice { stream: at, device, devices })
    }

    pub(super) fn check_failure(&self) -> Result<(), Error> {
        self.life().check_failure()
    }

    /// Checks that the user's memory is still the bound one. Of virtual memory in many pieces it checks some each time, in turn: each
    /// check is a driver call.
    pub(super) fn check_memories(&self, work: Work<'_>) -> Result<(), Error> {
        if let Work::Given(given) = work {
            return given.check_memories();
        }
        let all = &self.borrowed[work.set()];
        let (firsts, pieces) = all.split_at(all.partition_point(|one| one.is_first));
        let count = pieces.len().min(LOOKS);
        let begin = match count == pieces.len() {
            true => 0,
            false => self.looked.fetch_add(count, Ordering::Relaxed) % pieces.len(),
        };
        let some = pieces.iter().cycle().skip(begin).take(count);
        for Borrowed { device, address, id, field, .. } in firsts.iter().chain(some) {
            if device.identity(*address) != Ok(*id) {
                // A failed device knows nothing about memory.
                let lost = device.failure().map(Error::from);
                return Err(lost.unwrap_or(Error::MemoryMoved { field: *field }));
            }
        }
        Ok(())
    }

    fn limit_in_flight(&self, epoch: u64) -> Result<(), Error> {
        let is_full = |completed: u64| epoch - 1 - completed >= IN_FLIGHT;
        if is_full(self.completed()) && is_full(self.look()) && is_full(self.await_checks(epoch - IN_FLIGHT))
        {
            let oldest = self.completed() + 1;
            return Err(Error::TooManyInFlight { limit: IN_FLIGHT, oldest });
        }
        // Staged links lag behind by the exchanges in flight at most, except where sets without messages leave them nothing to do.
        while self.staging.as_ref().is_some_and(|staging| staging.oldest() + 2 * IN_FLIGHT <= epoch + SLOTS) {
            self.check_failure()?;
            self.carry_on();
            self.comm.link().host().yield_now();
        }
        Ok(())
    }

    fn give<'a>(
        &'a self,
        begin: &mut Begin,
        (work, epoch): (Work<'_>, u64),
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<(), DeviceError> {
        self.retire(begin);
        let Begin { flights, scratch, .. } = begin;
        let (before, at) = (((epoch - 1) % IN_FLIGHT) as usize, (epoch % IN_FLIGHT) as usize);
        let chosen = |number| self.chosen(number, streams.clone());
        if self.is_cut(Cut::HaloRead) {
            for (number, lane) in self.lanes.iter().enumerate() {
                let Script { before, raised, .. } = work.script(lane);
                lane.cue(chosen(number), &before[..*raised], epoch, scratch)?;
            }
        }
        for stream in streams.clone().filter(|_| !self.is_cut(Cut::Producer)) {
            let Some(lane) = self.lane_of(stream).filter(|&lane| chosen(lane).raw() != stream.raw()) else {
                continue;
            };
            let given = self.lanes[lane].shared.events.take()?;
            stream.record(&given)?;
            chosen(lane).wait(&given)?;
            if let Some(flight) = flights[before][lane].as_ref().filter(|_| self.is_cut(Cut::Event)) {
                stream.record(&flight.done)?;
            }
        }
        for (number, lane) in self.lanes.iter().enumerate() {
            let stream = chosen(number);
            let id = lane.shared.id_of(stream);
            if let Some(before) = &flights[before][number] {
                before.precede_on(stream, id)?;
            }
            self.follow_looks(number, stream)?;
            let (done, areas) = (lane.shared.events.take()?, self.areas(epoch, number));
            if lane.is_by_event() {
                self.be_watched();
            }
            let reserved =
                lane.reserve(self.comm.link().host(), (stream, id), work, |cut| self.is_cut(cut))?;
            let be_watched = || self.be_watched();
            lane.give(stream, (work, epoch), scratch, (&done, areas), (|cut| self.is_cut(cut), be_watched))?;
            if let Some(reserved) = reserved {
                reserved.launched(&done);
            }
            flights[at][number] = Some(Flight { done, on: id, is_users: self.inline });
        }
        Ok(())
    }

    /// Exchange `epoch` counts as begun, but was given in part: makes the streams that still work report that they have finished it.
    fn give_up<'a>(
        &'a self,
        begin: &mut Begin,
        epoch: u64,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) {
        for (number, lane) in self.lanes.iter().enumerate() {
            let before = begin.flights[((epoch - 1) % IN_FLIGHT) as usize][number].as_ref();
            let stream = self.chosen(number, streams.clone());
            let followed = before.map_or(Ok(()), |before| before.precede(stream));
            let given = followed.and_then(|()| lane.give_up(stream, epoch, &mut begin.scratch));
            let given = given.or_else(|error| {
                // The user's stream takes no more work: only its earlier work is left.
                tracing::debug!("rank {}: {error}", self.comm.rank());
                let stream = &lane.shared.rescue;
                before.map_or(Ok(()), |before| before.precede(stream))?;
                lane.give_up(stream, epoch, &mut begin.scratch)
            });
            if let Err(error) = given {
                // No work waits on a failed device.
                tracing::debug!("rank {}: {error}", self.comm.rank());
            }
        }
    }

    /// The stream for a lane's part of an exchange: the user's, or an internal one beside that.
    pub(super) fn chosen<'a>(
        &'a self,
        lane: usize,
        mut streams: impl Iterator<Item = &'a Stream>,
    ) -> &'a Stream {
        let of = |stream: &&Stream| self.lane_of(stream) == Some(lane);
        let shared = &self.lanes[lane].shared;
        match streams.find(of) {
            Some(users) if self.inline => users,
            Some(users) => shared.beside(users),
            None => shared.any(),
        }
    }

    /// The lane of a stream's device.
    pub(super) fn lane_of(&self, stream: &Stream) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.device == *stream.device())
    }

    /// Returns the events of exchanges that are over.
    fn retire(&self, begin: &mut Begin) {
        let completed = self.completed();
        while begin.retired < completed {
            begin.retired += 1;
            begin.flights[(begin.retired % IN_FLIGHT) as usize]
                .iter_mut()
                .for_each(|flight| drop(flight.take()));
        }
    }
}
