//! An exchange begins: what is looked at before, and what each lane's stream is given.

use super::{Begin, Borrowed, Cut, Flight, IN_FLIGHT, Pool, Scheduled, Script};
use crate::error::Error;
use crate::link::SLOTS;
use crate::set::Set;
use halocline_comm::Endpoint;
use halocline_device::{DeviceError, Stream, Waiting};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};

/// So many physical memories are looked at by each call.
const LOOKS: usize = 32;

impl Scheduled {
    /// As [`Scheduled::begin`], after the producer streams that were bound.
    pub(crate) fn begin_bound(&self, set: &Arc<Set>) -> Result<u64, Error> {
        self.begin(set, self.producers.iter().map(|stream| &**stream))
    }

    /// Begins an exchange of a set, of which the host fields are given, after all work that the streams were given before.
    /// Waits for nobody but a thread that begins an exchange of this object, and, if nothing of it is in flight, for a turn of what is freed
    /// ([`halocline_device::Device::let_wait`]); and where its exchanges leave no gap for that, now and then for the others to be over
    /// ([`Waiting::give_way`]).
    pub(crate) fn begin<'a>(
        &'a self,
        host_set: &Arc<Set>,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<u64, Error> {
        streams.clone().enumerate().try_for_each(|(at, stream)| self.check_stream(at, stream))?;
        self.give_way();
        // Sets of host and device fields have the same numbers.
        let set = host_set.number;
        let mut begin = self.enter();
        self.check_failure()?;
        self.check_memories(set).inspect_err(|error| self.end_by_device(error.to_string()))?;
        // Under the lock of `begin`: see `is_in_flight_with`.
        self.sets[set].local.check_guards()?;
        let epoch = self.epoch() + 1;
        self.make_room(epoch)?;
        // Before the epoch: staged links look it up as soon as they see that.
        self.chosen[(epoch % (2 * IN_FLIGHT)) as usize].store(set, Ordering::Release);
        if self.has_host_fields {
            self.host.begin(host_set, &[])?;
        }
        {
            let mut waiting = self.waiting();
            if waiting.is_none() {
                // Not under the lock, which others take who look: that may wait for the device.
                drop(waiting);
                let ours = self.lanes.iter().find_map(|lane| lane.device.let_wait());
                waiting = self.waiting();
                *waiting = ours;
            }
            // Before anything is given: whoever looks after the object from now on looks at this exchange, too.
            self.life().begin(epoch);
        }
        fence(Ordering::SeqCst);
        // Where others are in flight, already now: a queue that is full holds this thread until the host has carried on what
        // streams wait for.
        if self.completed() + 1 < epoch {
            self.be_watched();
        }
        // Objects share streams: on all lanes in one order, or each waits behind the other.
        let pool = self.comm.part::<Pool>();
        let order = (self.lanes.len() > 1).then(|| pool.enter(&self.comm));
        let given = match self.check_failure() {
            Ok(()) => self.give(&mut begin, (set, epoch), streams.clone()).map_err(Some),
            Err(_) => Err(None),
        };
        if let Err(error) = &given {
            begin.is_broken = true;
            // Before the streams say that they are through with it.
            error.iter().for_each(|error| self.lost(error));
            self.give_up(&mut begin, epoch, streams);
            // All may have been quiet before this one was counted.
            self.let_free();
        }
        drop(order);
        drop(begin);
        self.be_watched();
        match given {
            Ok(()) => {}
            Err(Some(error)) => return Err(self.lose(error)),
            Err(None) => return self.check_failure().map(|()| epoch),
        }
        Ok(epoch)
    }

    /// What was dropped is freed while nothing is in flight: not at all, were there no gap between exchanges.
    fn give_way(&self) {
        Waiting::give_way(|| {
            // Others of this rank may be over without anybody having looked.
            let link = self.comm.link();
            link.own_bell().demand(link.host());
            self.carry_on();
            self.look() < self.epoch() && self.check_failure().is_ok()
        });
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is in flight any more, unless somebody has begun an exchange meanwhile.
    pub(super) fn let_free(&self) {
        let mut waiting = self.waiting();
        if self.completed() >= self.epoch() || self.quiet.load(Ordering::Acquire) {
            *waiting = None;
        }
    }

    /// Waits until nobody else begins an exchange here, or ties a stream to one: both are short.
    pub(super) fn enter(&self) -> MutexGuard<'_, Begin> {
        loop {
            match self.begin.try_lock() {
                Ok(begin) => return begin,
                // What a panic interrupts has not counted yet.
                Err(TryLockError::Poisoned(begin)) => return begin.into_inner(),
                Err(TryLockError::WouldBlock) => self.comm.link().host().yield_now(),
            }
        }
    }

    /// A stream of one of the object's devices, whose work is done, and not captured.
    pub(super) fn check_stream(&self, at: usize, stream: &Stream) -> Result<(), Error> {
        let device = stream.device().ordinal();
        if self.lanes.is_empty() {
            return Ok(());
        }
        if self.lane_of(stream).is_some() {
            return match stream.is_capturing()? {
                false => Ok(()),
                true => Err(Error::Capturing { stream: at }),
            };
        }
        let devices = self.lanes.iter().map(|lane| lane.device.ordinal()).collect();
        Err(Error::StreamDevice { stream: at, device, devices })
    }

    pub(super) fn check_failure(&self) -> Result<(), Error> {
        self.life().check_failure()
    }

    /// Memory that is not our own still is what was bound. Of virtual memory in many pieces, some at a time, in turn: each look is a call.
    pub(super) fn check_memories(&self, set: usize) -> Result<(), Error> {
        let all = &self.borrowed[set];
        let (firsts, pieces) = all.split_at(all.partition_point(|one| one.is_first));
        let count = pieces.len().min(LOOKS);
        let begin = match count == pieces.len() {
            true => 0,
            false => self.looked.fetch_add(count, Ordering::Relaxed) % pieces.len(),
        };
        let some = pieces.iter().cycle().skip(begin).take(count);
        for Borrowed { device, address, id, field, .. } in firsts.iter().chain(some) {
            if device.identity(*address) != Ok(*id) {
                // A device that has failed says nothing about memory.
                let lost = device.failure().map(Error::from);
                return Err(lost.unwrap_or(Error::MemoryMoved { field: *field }));
            }
        }
        Ok(())
    }

    fn make_room(&self, epoch: u64) -> Result<(), Error> {
        let is_full = |completed: u64| epoch - 1 - completed >= IN_FLIGHT;
        if is_full(self.completed()) && is_full(self.look()) {
            let oldest = self.completed() + 1;
            return Err(Error::TooManyInFlight { limit: IN_FLIGHT, oldest });
        }
        // What the host carries on is behind by what is in flight at most, but where exchanges leave it nothing to do.
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
        (set, epoch): (usize, u64),
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<(), DeviceError> {
        self.retire(begin);
        let Begin { flights, scratch, .. } = begin;
        let (before, at) = (((epoch - 1) % IN_FLIGHT) as usize, (epoch % IN_FLIGHT) as usize);
        let chosen = |number| self.chosen(number, streams.clone());
        if self.is_cut(Cut::HaloRead) {
            for (number, lane) in self.lanes.iter().enumerate() {
                let Script { before, raised, .. } = &lane.scripts[set];
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
            self.follow(stream, flights[before][number].as_ref())?;
            let done = lane.shared.events.take()?;
            let be_watched = || self.be_watched();
            lane.give(stream, (set, epoch), scratch, &done, (|cut| self.is_cut(cut), be_watched))?;
            flights[at][number] = Some(Flight { done, on: self.inline.then(|| stream.id()).flatten() });
        }
        Ok(())
    }

    /// Exchange `epoch` counts as begun, but is not given whole: streams that still work say that they are through.
    fn give_up<'a>(
        &'a self,
        begin: &mut Begin,
        epoch: u64,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) {
        for (number, lane) in self.lanes.iter().enumerate() {
            let before = begin.flights[((epoch - 1) % IN_FLIGHT) as usize][number].as_ref();
            let stream = self.chosen(number, streams.clone());
            let given =
                self.follow(stream, before).and_then(|()| lane.give_up(stream, epoch, &mut begin.scratch));
            let given = given.or_else(|error| {
                // The user's stream takes nothing any more: what was given before is what is left.
                tracing::debug!("rank {}: {error}", self.comm.rank());
                before.map_or(Ok(()), |before| before.precede(&lane.stream))?;
                lane.give_up(&lane.stream, epoch, &mut begin.scratch)
            });
            if let Err(error) = given {
                // A device that has failed keeps nobody waiting.
                tracing::debug!("rank {}: {error}", self.comm.rank());
            }
        }
    }

    /// The stream that a lane's part of an exchange is given to.
    fn chosen<'a>(&'a self, lane: usize, mut streams: impl Iterator<Item = &'a Stream>) -> &'a Stream {
        let of = |stream: &&Stream| self.lane_of(stream) == Some(lane);
        let users = if self.inline { streams.find(of) } else { None };
        users.unwrap_or(&self.lanes[lane].stream)
    }

    /// The lane of a stream's device.
    pub(super) fn lane_of(&self, stream: &Stream) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.device == *stream.device())
    }

    /// On a user's stream: after the exchange before, which may have been given to another one.
    fn follow(&self, stream: &Stream, before: Option<&Flight>) -> Result<(), DeviceError> {
        before.filter(|_| self.inline).map_or(Ok(()), |before| before.precede(stream))
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
