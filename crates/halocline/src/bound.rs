//! A bound exchange while it runs: epochs, links, failure. What happens when.

mod end;
#[cfg(test)]
mod tests;
mod wait;

use crate::check::{Check, Finding};
use crate::error::{Cause, Error, Failure, Fault};
use crate::field::Field;
use crate::future::Awaited;
use crate::link::{Direction, Link, LinkPath, Turn, as_sources};
use crate::overlap::Overlap;
use crate::pattern::Pattern;
use crate::set::{Flight, Set};
use crate::trace::{self, Name};
use halocline_comm::{
    BeginLock, Claim, Communicator, Endpoint, MemoryHold, Patience, PeerState, Room, Segment, Wakers,
};
use halocline_device::host;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The bit beside an epoch that says that the object has failed: no later exchange will ever be over. Whether an exchange
/// is over or has failed is thus decided by one atomic operation.
pub(crate) const STOPPED: u64 = 1 << 63;

/// Bytes whose copying takes longer than waking a thread that does it.
const LARGE: usize = 1 << 18;

/// The state that the handles of an object ([`crate::HaloExchange`], [`crate::Pending`]) and the progress
/// thread share.
pub(crate) struct Bound {
    pub(crate) comm: Communicator,
    pub(crate) name: Name,
    pub(crate) links: Vec<Link>,
    /// This rank's counters and mailboxes.
    #[expect(dead_code, reason = "held for the pointers into it")]
    own: Option<Arc<Segment>>,
    flight: Flight,
    pub(crate) patience: Patience,
    /// The last exchange begun.
    epoch: AtomicU64,
    /// The last exchange that is over.
    completed: AtomicU64,
    /// What the exchange in flight still lacks: its links, the copies within this rank, and its beginner.
    remaining: AtomicUsize,
    within: Within,
    /// Held by the thread that begins an exchange, closed by a failure.
    begin_lock: BeginLock,
    /// The progress thread is woken at every change.
    armed: AtomicBool,
    /// Whether the user computes meanwhile: then progress is armed as soon as an exchange is begun.
    pub(crate) overlap: Overlap,
    /// A core is left over for the progress thread.
    has_spare_core: bool,
    /// The last epoch for which the peers' progress was demanded.
    demanded: AtomicU64,
    /// Looks of `is_ready` at the exchange in flight.
    looks: AtomicU32,
    /// The transport's departures when peers were last looked at.
    departures: AtomicU64,
    /// When the exchange in flight was begun, where there is a deadline.
    begun: Mutex<Duration>,
    failed: OnceLock<Arc<Failure>>,
    /// The last exchange that is over, and [`STOPPED`] after a failure.
    ended: AtomicU64,
    /// The last exchange whose memories were given back to the user, who has learned that it is over.
    hold: MemoryHold,
    /// Tasks that wait.
    pub(crate) wakers: Wakers,
    pub(crate) awaited: Awaited,
    /// The last exchange that is over of which tasks were not told: they are woken under no claim.
    pub(crate) over: AtomicU64,
    /// Sets made so far.
    pub(crate) sets: AtomicUsize,
    /// In checked mode.
    pub(crate) check: Option<Check>,
}

/// The copies between domains of this rank, which whoever comes first makes.
#[derive(Default)]
struct Within {
    claim: Claim,
    /// The last epoch whose copies are made.
    done: AtomicU64,
    /// Whoever is at it knows that the object has failed.
    told: AtomicBool,
}

impl Within {
    fn is_done(&self, epoch: u64) -> bool {
        self.done.load(Ordering::Acquire) >= epoch
    }
}

impl Bound {
    /// `sets` are those of the object, one at least.
    pub(crate) fn new(
        comm: Communicator,
        name: Name,
        links: Vec<Link>,
        own: Option<Arc<Segment>>,
        patience: Patience,
        sets: &[Arc<Set>],
    ) -> Self {
        let has_spare_core = comm.link().room() == Room::Spare && comm.link().is_driven();
        Self {
            comm,
            name,
            links,
            own,
            flight: Flight::new(Arc::clone(&sets[0])),
            patience,
            epoch: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            remaining: AtomicUsize::new(0),
            within: Within::default(),
            begin_lock: BeginLock::default(),
            armed: AtomicBool::new(false),
            overlap: Overlap::default(),
            has_spare_core,
            demanded: AtomicU64::new(0),
            looks: AtomicU32::new(0),
            departures: AtomicU64::new(0),
            begun: Mutex::new(Duration::ZERO),
            failed: OnceLock::new(),
            ended: AtomicU64::new(0),
            hold: MemoryHold::default(),
            wakers: Wakers::default(),
            awaited: Awaited::default(),
            over: AtomicU64::new(0),
            sets: AtomicUsize::new(sets.len()),
            check: None,
        }
    }

    /// From now on every exchange is checked, by messages of this operation.
    pub(crate) fn check(&mut self, operation: u64) {
        self.check = Some(Check::new(operation, &mut self.links));
    }

    /// Whether the progress thread may have something to do.
    pub(crate) fn wants_progress(&self) -> bool {
        !self.links.is_empty() || self.has_spare_core
    }

    /// The last exchange begun.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether exchange `epoch` is over, with its error if it never will be.
    #[inline]
    pub(crate) fn outcome(&self, epoch: u64) -> Option<Result<(), Error>> {
        if self.completed.load(Ordering::Acquire) >= epoch {
            return Some(Ok(()));
        }
        // An exchange before the one that failed is about to be over.
        let failure = self.failed.get().filter(|failure| failure.epoch <= epoch)?;
        Some(Err(Error::Failed(Arc::clone(failure))))
    }

    /// Begins an exchange of a set of this object: gives every leave first, then does what can be done at
    /// once; or leaves it to the progress thread, which does it beside the user's own work. `given` are the fields, where the set holds none.
    pub(crate) fn begin(&self, set: &Arc<Set>, given: &[(&Pattern, &Field)]) -> Result<u64, Error> {
        let before = self.epoch();
        let in_flight = || Error::InFlight { epoch: self.epoch() };
        self.advance(before);
        match self.outcome(before) {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(error),
            None => return Err(in_flight()),
        }
        let Some(_guard) = self.begin_lock.try_lock() else {
            // Another thread begins an exchange, or a failure has closed the lock.
            return Err(self.outcome(u64::MAX).and_then(Result::err).unwrap_or_else(in_flight));
        };
        self.begin_alone(before, set, given)
    }

    /// Under `begin_lock`.
    fn begin_alone(&self, before: u64, set: &Arc<Set>, given: &[(&Pattern, &Field)]) -> Result<u64, Error> {
        if self.epoch() != before {
            return Err(Error::InFlight { epoch: self.epoch() });
        }
        // A failure between two exchanges is sticky, too.
        self.outcome(u64::MAX).unwrap_or(Ok(()))?;
        // Nobody looks at the exchange before in order to check it.
        let gate = self.check.as_ref().map(Check::gate);
        self.give_back(before);
        // SAFETY: exchange `before` is over and its memories are given back, so that nobody uses its memory any more. This thread
        // alone holds `begin_lock`, which `reclaim` waits for after a failure.
        unsafe { self.flight.load(set, given)? };
        // SAFETY: this thread begins the exchange. It is not over before `remaining` is 0, for which it lacks the
        // `tick` at the end of this method.
        let in_flight = unsafe { self.flight.get() };
        let epoch = before + 1;
        // Before anybody can take a turn at this exchange.
        let announced = self
            .check
            .as_ref()
            .map_or(Ok(()), |check| check.begin(&self.comm, &self.links, epoch, in_flight));
        self.looks.store(0, Ordering::Relaxed);
        let within = usize::from(!set.within.is_empty());
        if within == 0 {
            self.within.done.store(epoch, Ordering::Relaxed);
        }
        self.remaining.store(self.links.len() + within + 1, Ordering::Relaxed);
        if self.patience.deadline.is_some() {
            *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = self.comm.link().host().now();
        }
        self.epoch.store(epoch, Ordering::SeqCst);
        drop(gate);
        // After the epoch: a thread that looks for departures and finds this sees the epoch, too, and one whose count this
        // overwrites did not have to; the next look is a new one.
        self.departures.store(0, Ordering::Release);
        trace::flight(&self.comm, &self.name, epoch, false);
        let _span = trace::exchange(&self.comm, &self.name, epoch);
        if let (Err(error), Some(link)) = (announced, self.links.first()) {
            tracing::warn!("rank {}: an exchange cannot be announced: {error}", self.comm.rank());
            self.fail(link, Cause::Died, link.peer);
        }
        for link in &self.links {
            link.start(&self.comm, epoch, in_flight);
        }
        let (bell, host) = (self.comm.link().own_bell(), self.comm.link().host());
        let from = (self.has_spare_core && set.bytes >= LARGE).then(|| host.now());
        let spent = |from: Duration| host.now().saturating_sub(from);
        if let Some(from) = from
            && self.overlap.is_usual()
        {
            self.arm();
            self.tick(epoch);
            bell.demand(host);
            self.overlap.handed_on(spent(from));
            // A failure that came before disarmed what was not armed yet.
            if self.failed.get().is_some() {
                self.disarm();
            }
            self.wake();
            return Ok(epoch);
        }
        self.advance(epoch);
        self.tick(epoch);
        self.advance(epoch);
        if let Some(from) = from {
            self.overlap.did_alone(spent(from));
        }
        let unfinished = self.outcome(epoch).is_none();
        self.overlap.begun(host, unfinished || from.is_some());
        if unfinished && (self.overlap.is_usual() || self.waits_for_messages(epoch)) {
            self.arm();
            // Whatever came before the peers could see that we are armed.
            self.advance(epoch);
            if self.outcome(epoch).is_some() {
                self.disarm();
            }
        }
        self.wake();
        Ok(epoch)
    }

    /// Whether exchange `epoch` is over, for the user, who may touch the fields once this has said so, and not before: the memories are
    /// given back here. In checked mode it is the end of the time in which owned cells must stay as they are.
    pub(crate) fn proven(&self, epoch: u64) -> Option<Result<(), Error>> {
        let outcome = self.outcome(epoch)?;
        if let (Some(check), Ok(())) = (&self.check, &outcome) {
            let mut proven = check.gate();
            if self.epoch() == epoch && std::mem::replace(&mut *proven, epoch) != epoch {
                // SAFETY: exchange `epoch` is over. No other begins as long as `proven` is held, and the memories are given back
                // after it said that they were compared, which happens here once.
                let finding = check.end(&self.comm, &self.links, unsafe { self.flight.get() });
                drop(proven);
                if let Some(finding) = finding {
                    self.fail_by(finding, Some(epoch));
                    self.wake();
                }
            }
            // It stays so for those who wait again.
            let found = |failure: &&Arc<Failure>| {
                (failure.epoch, failure.culprit) == (epoch, self.comm.rank())
                    && matches!(failure.cause, Cause::Check(Fault::OwnedWritten | Fault::HaloWritten))
            };
            if let Some(failure) = self.failed.get().filter(found) {
                return Some(Err(Error::Failed(Arc::clone(failure))));
            }
        }
        if outcome.is_ok() {
            self.give_back(epoch);
        }
        Some(outcome)
    }

    /// Whether a link waits for a message. Who is late cannot demand our progress there: it comes with
    /// the message, which our progress must therefore be woken for.
    pub(crate) fn waits_for_messages(&self, epoch: u64) -> bool {
        let waits = |link: &Link| link.path == LinkPath::Message || self.check.is_some();
        self.links.iter().any(|link| waits(link) && !link.is_done(epoch))
    }

    /// A turn at every link that is not done, and at the copies within this rank.
    pub(crate) fn advance(&self, epoch: u64) {
        if self.completed.load(Ordering::Acquire) >= epoch {
            return;
        }
        for link in self.links.iter().filter(|link| !link.is_done(epoch)) {
            self.claimed(&link.claim, || self.turn(link));
        }
        if !self.within.is_done(epoch) {
            self.claimed(&self.within.claim, || self.turn_within());
        }
        self.wake();
    }

    /// Takes a turn at a link, or leaves it to whoever is at it.
    fn claimed(&self, claim: &Claim, turn: impl FnMut()) {
        let link = self.comm.link();
        claim.turn(|| link.own_bell().demand(link.host()), turn);
    }

    /// Makes the copies between domains of this rank, under their claim.
    fn turn_within(&self) {
        let epoch = self.epoch();
        if self.failed.get().is_some() {
            return self.within.told.store(true, Ordering::Release);
        }
        if self.within.is_done(epoch) {
            return;
        }
        // SAFETY: exchange `epoch` is in flight: it is not over before `within.done` says so, which this turn alone
        // does, below, under the claim.
        let in_flight = unsafe { self.flight.get() };
        trace::within(&self.comm, &self.name, epoch).in_scope(|| {
            // SAFETY: `Local::new` has checked the operations against the fields: they read owned cells and write halo
            // cells, in memory that the exchange in flight holds. No guard is held (`State::begin_flight`), and the caller of
            // `Field::from_raw` leaves these cells alone until the wait. The claim keeps other threads away.
            unsafe { host::copy(&in_flight.set().within, as_sources(in_flight.bases()), in_flight.bases()) }
        });
        let check = self.check.as_ref();
        if let Some(finding) = check.and_then(|check| check.within(&self.comm, epoch, in_flight)) {
            self.fail_by(finding, None);
        }
        self.within.done.store(epoch, Ordering::Release);
        if self.failed.get().is_none() {
            self.tick(epoch);
        }
    }

    /// One turn at a link, under its claim.
    fn turn(&self, link: &Link) {
        let epoch = self.epoch();
        if let Some(failure) = self.failed.get() {
            return link.tell_failure(&self.comm, failure);
        }
        if link.is_done(epoch) {
            return;
        }
        // Asked before the look: what a rank did before it went is there when its going shows.
        let gone = link.is_gone();
        // SAFETY: exchange `epoch` is in flight: it is not over before `link.done` says so, which this turn alone does,
        // under the claim.
        let in_flight = unsafe { self.flight.get() };
        match link.serve(&self.comm, epoch, in_flight) {
            Ok(Turn::Done) => self.tick(epoch),
            Ok(Turn::Waits) => {
                if let Some(cause) = gone {
                    self.fail(link, cause, link.peer);
                }
            }
            Ok(Turn::Lost(cause, culprit)) => {
                // What a peer finds changed may have been written here.
                match self.check.as_ref().and_then(|check| check.owned(&self.comm, &self.links, in_flight)) {
                    Some(finding) => self.fail_by(finding, None),
                    None => self.fail(link, cause, culprit),
                }
            }
            Err(error) => {
                tracing::warn!("rank {}: link with rank {}: {error}", self.comm.rank(), link.peer);
                self.fail(link, Cause::Died, link.peer);
            }
        }
    }

    /// One thing less that the exchange lacks.
    fn tick(&self, epoch: u64) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: `remaining` is 0 once, and the thread that has made it so is the one that says, below, that
            // exchange `epoch` is over.
            let in_flight = unsafe { self.flight.get() };
            let check = self.check.as_ref();
            if let Some(finding) = check.and_then(|check| check.end(&self.comm, &self.links, in_flight)) {
                return self.fail_by(finding, None);
            }
            // Unless the object has failed.
            if self.ended.compare_exchange(epoch - 1, epoch, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return;
            }
            self.disarm();
            trace::flight(&self.comm, &self.name, epoch, true);
            self.completed.store(epoch, Ordering::Release);
            // A thread of this rank may sleep for it, or a task.
            self.comm.link().own_bell().changed(self.comm.link().host());
            self.to_wake(epoch);
        }
    }

    /// Fails the object, here and at all its peers.
    fn fail(&self, link: &Link, cause: Cause, culprit: usize) {
        let by = self.root(cause, culprit);
        self.end_by(|epoch| link.failure(&self.comm, epoch, by));
    }

    /// Fails the object for what its checks have found on this rank: of exchange `proven`, which is over, or of the one in flight.
    fn fail_by(&self, finding: Finding, proven: Option<u64>) {
        let (rank, epoch) = (self.comm.rank(), self.epoch());
        let Finding { cause, direction, peer, report } = finding;
        // What is said of a peer alone is said of the link on which it is waited for.
        let mut of_peer = self.links.iter().filter(|link| link.peer == peer);
        let link = match direction {
            Some(direction) => of_peer.find(|link| link.direction == direction),
            None => of_peer.find(|link| !link.is_done(epoch)),
        };
        let direction = link.map(|link| link.direction).or(direction).unwrap_or(Direction::Receive);
        let path = link.map_or(LinkPath::Pull, |link| link.path);
        self.end_by(|first| Failure {
            rank,
            epoch: proven.unwrap_or(first),
            peer,
            direction,
            path,
            cause,
            culprit: rank,
            report: Some(report),
        });
    }

    /// From now on no exchange becomes over. Whether this is the first call, which must be followed by [`Bound::fail_as`], and the
    /// first exchange that is not over.
    pub(crate) fn stop(&self) -> (bool, u64) {
        let last = self.ended.fetch_or(STOPPED, Ordering::AcqRel);
        (last & STOPPED == 0, (last & !STOPPED) + 1)
    }

    /// Fails the object, unless it has failed: with what `failure` makes of the first exchange that is not over.
    fn end_by(&self, failure: impl FnOnce(u64) -> Failure) {
        if let (true, first) = self.stop() {
            self.fail_as(failure(first));
        }
    }

    pub(crate) fn fail_as(&self, failure: Failure) {
        if self.failed.set(Arc::new(failure)).is_ok() {
            self.begin_lock.close();
            // Links in the hands of other threads, and the one in ours, are told when they let go.
            self.links.iter().for_each(|link| self.claimed(&link.claim, || self.turn(link)));
            self.claimed(&self.within.claim, || self.turn_within());
            self.disarm();
            self.comm.link().own_bell().changed(self.comm.link().host());
            self.to_wake(u64::MAX);
        }
    }

    /// A rank that drops its end because another has died is not the one to name.
    fn root(&self, cause: Cause, culprit: usize) -> (Cause, usize) {
        match (cause, self.dead()) {
            (Cause::Dropped, Some(rank)) => (Cause::Died, rank),
            _ => (cause, culprit),
        }
    }

    /// A peer that has died, if any has.
    fn dead(&self) -> Option<usize> {
        let link = self.comm.link();
        if link.departures() == 0 {
            return None;
        }
        let dead = |rank: &usize| link.state(*rank) == PeerState::Dead;
        self.links.iter().map(|link| link.peer).find(dead).or_else(|| (0..link.size()).find(dead))
    }

    fn arm(&self) {
        if !self.armed.swap(true, Ordering::AcqRel) {
            self.comm.link().own_bell().arm();
        }
    }

    fn disarm(&self) {
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            self.comm.link().own_bell().disarm();
        }
    }
}
