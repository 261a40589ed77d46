//! Failure of scheduled exchanges: who notices it, how what waits is released, and the end of an object.
//!
//! A stream that waits for a word cannot be told otherwise than by the word: poison, above all epochs, lets it go on,
//! past copies that the guard has switched off. A peer that does not know yet may raise the word once more, to an
//! epoch: so poison is written again and again, until all that was given to the streams is through.

use super::{Cut, IN_FLIGHT, Scheduled, Seat, Waits};
use crate::error::{Cause, Error, Failure};
use crate::lifecycle::Engine;
use crate::link::{Direction, Link, LinkPath, SLOTS};
use halocline_comm::Endpoint;
use halocline_comm::{PeerState, Room, Serve};
use halocline_device::DeviceError;
use std::collections::BTreeSet;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How often the progress thread looks after an object in flight, and after one that has failed.
const LOOK: Duration = Duration::from_millis(100);
const DRAIN: Duration = Duration::from_millis(1);
/// The same where it carries staged links on, and nothing is on its way.
pub(super) const STAGED: Duration = Duration::from_micros(50);
/// How long it goes on looking after the last exchange is over, in case another one comes.
const LINGER: Duration = Duration::from_secs(1);
/// What a device does not tell for so long counts as not there: looks are given up soon, and tried again.
const SILENCE: Duration = Duration::from_secs(1);
const LINGER_STAGED: Duration = Duration::from_millis(20);

impl Scheduled {
    /// Lets the progress thread look after this object, if it does not yet.
    pub(super) fn be_watched(&self) {
        if !self.watched.load(Ordering::SeqCst) && !self.watched.swap(true, Ordering::SeqCst) {
            self.comm.link().own_bell().demand(self.comm.link().host());
        }
    }

    /// A call to a device has failed, in the midst of an exchange: the object fails, with the error returned.
    #[cold]
    pub(super) fn lose(&self, error: DeviceError) -> Error {
        self.lost(&error);
        self.check_failure().err().unwrap_or(Error::Device(error))
    }

    pub(super) fn lost(&self, error: &DeviceError) {
        self.end_by_device(error.to_string());
    }

    /// A device of this rank, or its memory, is not what was bound any more.
    pub(super) fn end_by_device(&self, report: String) {
        let rank = self.comm.rank();
        self.life().fail(|epoch| Failure {
            rank,
            epoch,
            peer: rank,
            direction: Direction::Send,
            path: LinkPath::Push,
            cause: Cause::Device,
            culprit: rank,
            report: Some(report),
        });
    }

    pub(super) fn fail(&self, link: &Link, cause: Cause, culprit: usize) {
        let root_cause = self.life().root_cause(cause, culprit);
        self.life().fail(|epoch| link.failure(&self.comm, epoch, root_cause));
    }

    fn tell_peers(&self, failure: &Failure) {
        if !self.is_cut(Cut::Told) {
            self.links.iter().for_each(|link| link.notify_failure(&self.comm, failure));
        }
    }

    fn write_poison(&self, epoch: u64) {
        for lane in &self.lanes {
            if let Err(error) = lane.poison(epoch) {
                // A device that has failed keeps nobody waiting.
                tracing::debug!("rank {}: no poison: {error}", self.comm.rank());
            }
        }
    }

    /// After a failure: releases what waits, until nothing does; then tells the peers that all is quiet here.
    fn drain(&self, failure: &Failure) {
        if self.quiet.load(Ordering::Acquire) {
            return;
        }
        // The object may have failed before this engine was attached to it.
        self.tell_peers(failure);
        // Who begins an exchange now sees the failure, or is seen here.
        fence(Ordering::SeqCst);
        let epoch = self.epoch();
        if !self.lanes.iter().all(|lane| lane.is_drained(epoch)) {
            if !self.is_cut(Cut::Poison) {
                self.write_poison(epoch);
            }
        } else if !self.quiet.swap(true, Ordering::AcqRel) {
            self.links.iter().for_each(|link| link.notify_quiet(&self.comm));
            self.let_free();
        }
    }

    /// How often the progress thread looks after an object in flight.
    fn often(&self) -> Duration {
        self.life().patience.deadline.map_or(LOOK, |deadline| LOOK.min(deadline / 4)).max(DRAIN)
    }

    /// The next look at an object with nothing in flight, as long as another exchange is to be expected: who begins it need not
    /// wake the progress thread then, which takes the host longer than all else of a small exchange.
    fn linger(&self, now: Duration, epoch: u64) -> Option<Duration> {
        let (look, long) = match self.staging {
            // As often as the next one may need it.
            None => (self.often(), LINGER),
            // Looked at so often, it would take a program's own core away.
            Some(_) if self.comm.link().room() != Room::Spare => return None,
            Some(_) => (STAGED, LINGER_STAGED),
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.0 != epoch {
            *idle = (epoch, now);
        }
        (now.saturating_sub(idle.1) < long).then_some(now + look)
    }

    /// Why a device has failed that nobody has called since. Asks now and then while the same exchange is not over.
    fn ask_devices(&self, oldest: u64) -> Option<DeviceError> {
        let now = self.comm.link().host().now();
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            if asked.0 != oldest {
                *asked = (oldest, now);
            }
            if now.saturating_sub(asked.1) < LOOK {
                return None;
            }
            asked.1 = now;
        }
        // What a device refuses says nothing about exchanges.
        let lost = |error: &DeviceError| matches!(error, DeviceError::Lost { .. });
        self.lanes.iter().find_map(|lane| lane.shared.rescue.query().err().filter(lost))
    }

    /// Whether what is awaited of a link is not there. `unless_told`: what to say where the device does not tell.
    fn is_behind(&self, link: usize, epoch: u64, unless_told: bool) -> bool {
        let is_behind = |seat: &Seat| match &seat.waits {
            Waits::Word { lane, of_sets, lag } => {
                let word = self.lanes[*lane].peek(of_sets[self.set_of(epoch)][(epoch % SLOTS) as usize]);
                word.map_or(unless_told, |word| word < epoch.saturating_sub(*lag))
            }
            Waits::Stage(stage) => {
                self.staging.as_ref().is_some_and(|staging| staging.is_behind(*stage, epoch))
            }
        };
        self.seats.iter().filter(|seat| seat.link == link).any(is_behind)
    }

    /// Fails the object if a rank that it still needs has gone.
    fn look_after_peers(&self, epoch: u64) {
        for (at, link) in self.links.iter().enumerate() {
            if let Some(last) = link.peer_closed(&self.comm) {
                // What it took part in comes to its end.
                if last < epoch && self.look() >= last {
                    return self.fail(link, Cause::Dropped, link.peer);
                }
                continue;
            }
            let Some(cause) = self.life().departed(link.peer) else { continue };
            // What it did before it went may have come meanwhile.
            let is_gone = || self.look() < epoch && link.peer_closed(&self.comm).is_none();
            if is_gone() && self.is_behind(at, epoch, self.has_waited(epoch) >= SILENCE) && is_gone() {
                return self.fail(link, cause, link.peer);
            }
        }
    }

    /// Fails the object if a peer waits for an exchange that is one of another set here.
    fn look_at_sets(&self, epoch: u64) {
        for link in &self.links {
            let Some((awaited, theirs)) = link.peer_awaits() else { continue };
            let ours = self.set_of(awaited);
            // Looked at afterwards: an exchange begun meanwhile may have taken its place.
            let is_known = awaited <= epoch && self.epoch() + 1 < awaited + 2 * IN_FLIGHT;
            if is_known && ours as u64 != theirs {
                let cause = link.clash(&self.comm, ours, theirs);
                return self.fail(link, cause, self.comm.rank());
            }
        }
    }

    /// How long the streams have waited for an exchange, as far as that is known.
    fn has_waited(&self, epoch: u64) -> Duration {
        self.lateness.elapsed(epoch, self.comm.link().host().now())
    }

    /// Fails the exchange that the streams wait for if it takes too long; warns if it takes long. Meanwhile tells the
    /// peers what is awaited, where it may be something else than they do.
    fn keep_time(&self, oldest: u64) {
        if !self.lanes.iter().any(|lane| lane.has_begun(oldest)) {
            return;
        }
        let now = self.comm.link().host().now();
        let warning = self.lateness.warning(oldest, now);
        let after = self.lateness.elapsed(oldest, now);
        let is_late = self.life().patience.deadline.is_some_and(|deadline| after >= deadline);
        if self.sets.len() > 1 && after >= self.often() {
            self.links.iter().for_each(|link| link.notify_awaited(&self.comm, oldest, self.set_of(oldest)));
        }
        if !is_late && warning.is_none() {
            return;
        }
        let is_silent = after >= self.life().patience.deadline.unwrap_or_default() + SILENCE;
        let missing: Vec<&Link> = (0..self.links.len())
            .filter(|&at| self.is_behind(at, oldest, is_silent))
            .map(|at| &self.links[at])
            .collect();
        match (missing.first(), warning) {
            (Some(link), _) if is_late => self.fail(link, Cause::Deadline(Some(after)), link.peer),
            (_, Some(warning)) => {
                let ranks: BTreeSet<usize> = missing.iter().map(|link| link.peer).collect();
                let waits = format!("the streams of rank {} have", self.comm.rank());
                self.life().report_late(&waits, oldest, &Vec::from_iter(ranks), warning);
            }
            // No peer is missing: this rank's device has not come that far.
            _ => {}
        }
    }

    /// After a failure: whether nothing of this rank or its peers touches the fields any more. Otherwise whether
    /// nothing is in flight.
    pub(crate) fn reclaim(&self) -> bool {
        let Some(failure) = self.life().failure() else { return self.is_idle() && self.is_packed() };
        if self.reclaimed.load(Ordering::Acquire) {
            return true;
        }
        self.drain(failure);
        // Who saw the failure late may have told its streams so since.
        let epoch = self.epoch();
        let is_left = self.quiet.load(Ordering::Acquire)
            && self.lanes.iter().all(|lane| lane.is_drained(epoch))
            && self.is_packed()
            && self.links.iter().all(|link| self.leaves_alone(link));
        // For good: a peer that had closed its end, and so touches nothing, says that it has failed, too, once it hears of this
        // failure.
        self.reclaimed.fetch_or(is_left, Ordering::AcqRel) || is_left
    }

    /// Whether nothing is in flight: nothing given to streams, nothing that waits to be sent.
    fn is_idle(&self) -> bool {
        let epoch = self.epoch();
        self.look() >= epoch && self.staging.as_ref().is_none_or(|staging| staging.is_sent(epoch))
    }

    /// The user has dropped the object.
    pub(crate) fn release(self: Arc<Self>) {
        if self.over() || self.is_cut(Cut::Drop) {
            return;
        }
        let comm = self.comm.clone();
        comm.defer_drop(self);
    }

    fn over(&self) -> bool {
        if !self.reclaim() {
            return false;
        }
        if self.life().failure().is_none() && !self.closed.swap(true, Ordering::AcqRel) {
            let last = self.epoch();
            self.links.iter().for_each(|link| link.close(&self.comm, last));
        }
        self.is_left_alone()
    }

    /// Whether no peer that has mapped memory of this rank touches it any more: they may have begun one more exchange,
    /// which raises words there.
    fn is_left_alone(&self) -> bool {
        self.pinned.is_empty() || self.links.iter().all(|link| self.leaves_alone(link))
    }

    /// Whether the other side of a link touches nothing of this rank's any more.
    fn leaves_alone(&self, link: &Link) -> bool {
        link.is_peer_quiet(&self.comm)
            || matches!(self.comm.link().state(link.peer), PeerState::Ended | PeerState::Dead)
            || link.peer_closed(&self.comm).is_some()
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        if self.life().failure().is_some() && !self.quiet.swap(true, Ordering::AcqRel) {
            // It failed while it went, with nothing in flight.
            self.links.iter().for_each(|link| link.notify_quiet(&self.comm));
        }
        self.links.iter().for_each(|link| link.forget(&self.comm));
        if let Some(staging) = &self.staging {
            staging.forget(&self.comm);
        }
    }
}

impl Scheduled {
    fn look_after(&self) {
        if let Some(failure) = self.life().failure() {
            return self.drain(failure);
        }
        self.carry_on();
        let (completed, epoch) = (self.look(), self.epoch());
        if let Some(error) = self.lanes.iter().find_map(|lane| lane.device.failure()) {
            return self.lost(&error);
        }
        let told = self.links.iter().find_map(|link| Some((link, link.peer_failure(&self.comm)?)));
        if let Some((link, (cause, culprit))) = told {
            return self.fail(link, cause, culprit);
        }
        if self.sets.len() > 1 {
            self.look_at_sets(epoch);
        }
        if completed < epoch {
            if let Some(error) = self.ask_devices(completed + 1) {
                return self.lost(&error);
            }
            self.look_after_peers(epoch);
            self.keep_time(completed + 1);
        }
    }
}

impl Engine for Scheduled {
    fn settle(&self) {
        self.count_done();
    }

    fn release_waits(&self, failure: &Failure) {
        self.tell_peers(failure);
        self.write_poison(self.epoch());
    }
}

impl Serve for Scheduled {
    fn serve(&self) {
        self.look_after();
        self.life().wake();
    }

    fn is_over(&self) -> bool {
        self.over()
    }

    fn due(&self) -> Option<Duration> {
        let now = self.comm.link().host().now();
        // An object that was dropped ends once they are packed, of which nobody hears.
        let packing = || (!self.is_packed()).then(|| now + LOOK);
        if self.life().failure().is_some() {
            return (!self.quiet.load(Ordering::Acquire)).then(|| now + DRAIN).or_else(packing);
        }
        if self.closed.load(Ordering::Acquire) && !self.is_left_alone() {
            return Some(now + LOOK);
        }
        let epoch = self.epoch();
        // What a task waits for may be over since it was looked at: then the next look wakes it.
        if !self.life().has_tasks() && self.is_idle() {
            if let Some(next) = self.linger(now, epoch) {
                return Some(next);
            }
            self.watched.store(false, Ordering::SeqCst);
            // Who begins an exchange from now on finds that nobody looks.
            if self.epoch() == epoch || self.watched.swap(true, Ordering::SeqCst) {
                return packing();
            }
        }
        // Neither devices nor all transports ring a bell.
        let staged = self.staging.as_ref().map(|staging| {
            let link = self.comm.link();
            match staging.is_busy(now) || link.is_carrying() {
                true => now + staging.pause(now, link.room()),
                false => now + STAGED,
            }
        });
        [staged, self.next_look(now), Some(now + self.often())].into_iter().flatten().min()
    }
}
