//! Failure of the device engine: detection, the release of waiting streams, deadlines, and the end of an object.
//!
//! Only the flag itself can end a stream's wait for it: poison, above all epochs, ends the wait, and the guard has switched off the
//! copies after it. A peer that has not seen the failure may still set the flag to an epoch; so poison is written repeatedly, until
//! the streams have finished all their work.

use super::capture::Progress;
use super::checks::CHECKED;
use super::{Cut, FlagSet, IN_FLIGHT, Scheduled, Seat, Waits};
use crate::error::{Cause, Error, Failure};
use crate::lifecycle::{Engine, EnginePart, Lifecycle};
use crate::link::{Link, SLOTS};
use crate::lock::lock;
use halocline_comm::{Cores, Endpoint, PeerState, Serve};
use halocline_device::DeviceError;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// How often the progress thread serves an object in flight, and one that has failed.
const LOOK: Duration = Duration::from_millis(100);
pub(super) const DRAIN: Duration = Duration::from_millis(1);
/// The same if it carries staged links on and no message is on its way.
pub(super) const STAGED: Duration = Duration::from_micros(50);
/// For how long it goes on after the last exchange is over, in case another one begins.
const LINGER: Duration = Duration::from_secs(1);
/// A flag that a device does not report for this time counts as not set: reads of flags time out early and are repeated.
const SILENCE: Duration = Duration::from_secs(1);
const LINGER_STAGED: Duration = Duration::from_millis(20);

impl Scheduled {
    /// Makes the progress thread serve this object, if it does not yet.
    pub(super) fn be_watched(&self) {
        if !self.watched.load(Ordering::SeqCst) && !self.watched.swap(true, Ordering::SeqCst) {
            self.comm.link().own_bell().demand(self.comm.link().host());
        }
    }

    /// A device call has failed within an exchange: fails the object and returns the error.
    #[cold]
    pub(super) fn lose(&self, error: DeviceError) -> Error {
        self.lost(&error);
        self.check_failure().err().unwrap_or(Error::Device(error))
    }

    pub(super) fn lost(&self, error: &DeviceError) {
        self.end_by_device(error.to_string());
    }

    /// Fails the object because of a device of this rank, or its memory.
    pub(super) fn end_by_device(&self, report: String) {
        let rank = self.comm.rank();
        self.life().fail(|epoch| Failure {
            rank,
            epoch,
            link: None,
            cause: Cause::Device,
            culprit: rank,
            report: Some(report),
        });
    }

    fn tell_peers(&self, failure: &Failure) {
        if !self.is_cut(Cut::FailureReport) {
            self.links.iter().for_each(|link| link.notify_failure(&self.comm, failure));
        }
    }

    /// Ends the waits of the streams: those for flags, and those for messages of NCCL, which ends those of other objects, too.
    fn write_poison(&self, epoch: u64) {
        if let Some(nccl) = &self.nccl
            && !nccl.is_aborted()
            && !self.lanes.iter().all(|lane| lane.is_drained(epoch))
        {
            nccl.abort();
        }
        for lane in &self.lanes {
            if let Err(error) = lane.poison(epoch) {
                // No work waits on a failed device.
                tracing::debug!("rank {}: no poison: {error}", self.comm.rank());
            }
        }
    }

    /// After a failure: ends the waits of the streams; once none is left, notifies the peers that this side is quiet.
    fn drain(&self, failure: &Failure) {
        if self.quiet.load(Ordering::Acquire) {
            return;
        }
        // The object may have failed before this engine was attached to it.
        self.tell_peers(failure);
        // A begin now either sees the failure, or its epoch is seen here.
        fence(Ordering::SeqCst);
        let epoch = self.epoch();
        if !self.lanes.iter().all(|lane| lane.is_drained(epoch)) || !self.are_graphs_over() {
            if !self.is_cut(Cut::Poison) {
                self.write_poison(epoch);
            }
        } else if !self.quiet.swap(true, Ordering::AcqRel) {
            self.links.iter().for_each(|link| link.notify_quiet(&self.comm));
            self.let_free();
        }
    }

    /// How often the progress thread serves an object in flight.
    fn often(&self) -> Duration {
        self.life().patience.deadline.map_or(LOOK, |deadline| LOOK.min(deadline / 4)).max(DRAIN)
    }

    /// The next look at an object with no exchange in flight, as long as another one is likely: its begin need not wake the progress
    /// thread then, which takes longer than all other steps of a small exchange.
    fn linger(&self, now: Duration, epoch: u64) -> Option<Duration> {
        let (look, long) = match self.staging {
            // As often as the next exchange may need it.
            None => (self.often(), LINGER),
            // Looks that frequent would take a core from the program.
            Some(_) if self.comm.link().cores() != Cores::Spare => return None,
            Some(_) => (STAGED, LINGER_STAGED),
        };
        self.idle.start(epoch, now);
        (self.idle.elapsed(epoch, now) < long).then_some(now + look)
    }

    /// The failure of a device that no call has reported. Asks now and then while the same exchange is unfinished.
    fn ask_devices(&self, oldest: u64) -> Option<DeviceError> {
        let now = self.comm.link().host().now();
        {
            let mut asked = lock(&self.asked);
            if asked.0 != oldest {
                *asked = (oldest, now);
            }
            if now.saturating_sub(asked.1) < LOOK {
                return None;
            }
            asked.1 = now;
        }
        // A refused call says nothing about exchanges.
        let lost = |error: &DeviceError| matches!(error, DeviceError::Lost { .. });
        let lost = self.lanes.iter().find_map(|lane| lane.shared.rescue.query().err().filter(lost));
        lost.or_else(|| self.nccl.as_ref()?.is_ready().err())
    }

    /// Whether the flag or message that a link waits for is missing. `unless_told`: the answer if the device does not report it.
    fn is_behind(&self, link: usize, epoch: u64, unless_told: bool) -> bool {
        let is_behind = |seat: &Seat| match &seat.waits {
            &Waits::Word { lane, word, lag, in_reduce } => {
                let number = self.number_at(epoch);
                let is_reduce = FlagSet::of(number, self.sets.max_sets()).op.is_some();
                let (word, lag) = in_reduce.filter(|_| is_reduce).map_or((word, lag), |word| (word, 0));
                let word = self.lanes[lane].peek(word.of(number, (epoch % SLOTS) as usize));
                word.map_or(unless_told, |word| word < epoch.saturating_sub(lag))
            }
            Waits::Nccl => self.progress().done < epoch,
            Waits::Stage(stage) => {
                self.staging.as_ref().is_some_and(|staging| staging.is_behind(*stage, epoch))
            }
        };
        self.seats.iter().filter(|seat| seat.link == link).any(is_behind) || self.lacks_manifest(link, epoch)
    }

    /// Fails the object if a peer that it still needs has departed.
    fn look_after_peers(&self, epoch: u64) {
        for (at, link) in self.links.iter().enumerate() {
            if let Some(last) = link.peer_closed(&self.comm) {
                // Exchanges that it took part in complete.
                if last < epoch && self.progress().done >= last {
                    return link.fail(self.life(), Cause::Dropped, link.peer);
                }
                continue;
            }
            let Some(cause) = self.life().departed(link.peer) else { continue };
            // Its last signals may have arrived meanwhile.
            let is_gone = || self.progress().done < epoch && link.peer_closed(&self.comm).is_none();
            if is_gone() && self.is_behind(at, epoch, self.has_waited(epoch) >= SILENCE) && is_gone() {
                return link.fail(self.life(), cause, link.peer);
            }
        }
    }

    /// Fails the object if a peer waits for an exchange that has another set here, or is a reduce.
    fn look_at_sets(&self, epoch: u64) {
        for link in &self.links {
            let Some((awaited, theirs)) = link.peer_awaits() else { continue };
            let ours = self.number_at(awaited);
            // Read afterwards: an exchange begun meanwhile may have taken its entry.
            let is_known = match self.is_counting() {
                true => awaited == self.progress().begun,
                false => awaited <= epoch && self.epoch() + 1 < awaited + 2 * IN_FLIGHT,
            };
            if is_known && ours as u64 != theirs {
                let subject = |number| FlagSet::of(number, self.sets.max_sets()).subject();
                let cause = link.clash(&self.comm, subject(ours), subject(theirs as usize));
                return link.fail(self.life(), cause, self.comm.rank());
            }
        }
    }

    /// How long the streams have waited for an exchange, as far as that is known.
    fn has_waited(&self, epoch: u64) -> Duration {
        self.life().device.lateness.elapsed(epoch, self.comm.link().host().now())
    }

    /// Fails the exchange that the streams wait for at its deadline, and warns every 30 s. Meanwhile notifies the peers which set this
    /// rank waits for, since theirs may differ.
    fn look_at_time(&self, oldest: u64) {
        if !self.lanes.iter().any(|lane| lane.has_begun(oldest)) {
            return;
        }
        if self.has_waited(oldest) >= self.often() {
            let number = self.number_at(oldest);
            self.links.iter().for_each(|link| link.notify_awaited(&self.comm, oldest, number));
        }
        self.keep_time(oldest, true);
    }

    /// Whether no exchange is in flight and no message waits to be sent.
    fn is_idle(&self) -> bool {
        let epoch = self.epoch();
        let is_sent = || self.staging.as_ref().is_none_or(|staging| staging.is_sent(epoch));
        self.is_all_over() && is_sent() && self.is_compared()
    }

    /// Whether no peer that has mapped memory of this rank accesses it any more: peers may have begun one more exchange, which sets
    /// flags there.
    fn is_left_alone(&self) -> bool {
        self.pinned.is_empty() && !self.has_slots() || self.links.iter().all(|link| self.leaves_alone(link))
    }

    /// Whether the peer of a link accesses none of this rank's memory any more.
    fn leaves_alone(&self, link: &Link) -> bool {
        link.is_peer_quiet(&self.comm)
            || matches!(self.comm.link().state(link.peer), PeerState::Ended | PeerState::Dead)
            || link.peer_closed(&self.comm).is_some()
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        if self.life().failure().is_some() && !self.quiet.swap(true, Ordering::AcqRel) {
            // It failed while it was dropped, with no exchange in flight.
            self.links.iter().for_each(|link| link.notify_quiet(&self.comm));
        }
        self.links.iter().for_each(|link| link.forget(&self.comm));
        if let Some(staging) = &self.staging {
            staging.forget(&self.comm);
        }
        if let Some(checks) = &self.checks {
            checks.end(&self.comm);
        }
    }
}

impl Scheduled {
    fn look_after(&self) {
        if let Some(failure) = self.life().failure() {
            return self.drain(failure);
        }
        self.carry_on();
        let Progress { begun, done } = self.progress();
        if let Some(error) = self.lanes.iter().find_map(|lane| lane.device.failure()) {
            return self.lost(&error);
        }
        if self.look_for_failed_peers() || self.look_at_announcements() {
            return;
        }
        self.look_at_sets(begun);
        if done < begun {
            if let Some(error) = self.ask_devices(done + 1) {
                return self.lost(&error);
            }
            self.look_after_peers(begun);
            self.look_at_time(done + 1);
        }
    }
}

impl Engine for Scheduled {
    #[inline]
    fn life(&self) -> &Lifecycle {
        &self.host.life
    }

    fn part(&self) -> &EnginePart {
        &self.life().device
    }

    fn links(&self) -> &[Link] {
        &self.links
    }

    fn last_epoch(&self) -> u64 {
        self.progress().begun
    }

    fn waiter(&self) -> String {
        format!("the streams of rank {} have", self.comm.rank())
    }

    fn missing(&self, epoch: u64, waited: Duration) -> Vec<&Link> {
        let is_silent = waited >= self.life().patience.deadline.unwrap_or_default() + SILENCE;
        let links = self.links.iter().enumerate();
        links.filter(|(at, _)| self.is_behind(*at, epoch, is_silent)).map(|(_, link)| link).collect()
    }

    fn settle(&self) {
        self.count_done();
    }

    fn release_waits(&self, failure: &Failure) {
        self.tell_peers(failure);
        self.write_poison(self.epoch());
    }

    fn is_quiet(&self) -> bool {
        let Some(failure) = self.life().failure() else { return self.is_idle() && self.is_packed() };
        if self.reclaimed.load(Ordering::Acquire) {
            return true;
        }
        self.drain(failure);
        // A begin that saw the failure late may have given its streams work since.
        let epoch = self.epoch();
        let is_left = self.quiet.load(Ordering::Acquire)
            && self.lanes.iter().all(|lane| lane.is_drained(epoch))
            && self.are_graphs_over()
            && self.is_packed()
            && self.links.iter().all(|link| self.leaves_alone(link));
        // Sticky: a peer that had closed its end, and so accesses nothing, reports a failure, too, once it sees this failure.
        self.reclaimed.fetch_or(is_left, Ordering::AcqRel) || is_left
    }

    fn outcome(&self, epoch: u64) -> Option<Result<(), Error>> {
        if self.completed() < epoch {
            self.look();
        }
        self.life().outcome(&self.part().completed, epoch)
    }
}

impl Serve for Scheduled {
    fn serve(&self) {
        self.look_after();
        self.life().wake();
    }

    fn is_over(&self) -> bool {
        self.close() && self.is_left_alone() || self.is_cut(Cut::Drop)
    }

    fn due(&self) -> Option<Duration> {
        let now = self.comm.link().host().now();
        // A dropped object ends once its messages are packed, and no signal reports that.
        let packing = || (!self.is_packed()).then(|| now + LOOK);
        if self.life().failure().is_some() {
            return (!self.quiet.load(Ordering::Acquire)).then(|| now + DRAIN).or_else(packing);
        }
        if self.part().is_closed() && !self.is_left_alone() {
            return Some(now + LOOK);
        }
        let epoch = self.epoch();
        // A graph may be launched at any time. A task's exchange may be over since the last look: the next look wakes the task.
        if !self.life().has_tasks() && !self.is_counting() && self.is_idle() {
            if let Some(next) = self.linger(now, epoch) {
                return Some(next);
            }
            self.watched.store(false, Ordering::SeqCst);
            // From now on a begin finds that the progress thread does not serve this object.
            if self.epoch() == epoch || self.watched.swap(true, Ordering::SeqCst) {
                return packing();
            }
        }
        // Devices ring no bell, nor do some transports.
        let staged = self.staging.as_ref().map(|staging| {
            let link = self.comm.link();
            match staging.is_busy(now) || link.is_carrying() {
                true => now + staging.pause(now, link.cores()),
                false => now + STAGED,
            }
        });
        let checked = self.checks.is_some().then(|| now + CHECKED);
        [staged, checked, self.next_look(now), Some(now + self.often())].into_iter().flatten().min()
    }
}
