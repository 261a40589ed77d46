//! The host engine: carries the exchanges of an object's host fields.
//!
//! [`Bound::begin`] opens an epoch, grants it on every link and polls for the first time. [`Bound::advance`] polls each link that is not
//! done, and makes the copies within the rank. To poll a link is to copy once its flag is set ([`Link::serve`]). The last part that is
//! done completes the exchange.

mod end;
mod reduce;
#[cfg(test)]
mod tests;
mod wait;
mod within;

use crate::check::Check;
use crate::error::{Cause, Error};
use crate::field::Field;
use crate::lifecycle::{Engine, Lifecycle};
use crate::link::{Link, LinkPath, Polled};
use crate::overlap::Overlap;
use crate::pattern::Pattern;
use crate::reduce::Reduction;
use crate::set::{Flight, Set};
use crate::trace;
use halocline_comm::{BeginLock, Claim, Cores, Endpoint, MemoryHold, Segment};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use within::Within;

/// Copying this many bytes takes longer than waking a thread to do it.
const LARGE: usize = 1 << 18;

/// The host engine of an object. Handles ([`crate::HaloExchange`], [`crate::Pending`]) and the progress thread share it.
pub(crate) struct Bound {
    pub(crate) life: Lifecycle,
    pub(crate) links: Vec<Link>,
    /// This rank's flags and mailboxes.
    #[expect(dead_code, reason = "held for the pointers into it")]
    own: Option<Arc<Segment>>,
    flight: Flight,
    /// Parts of the exchange in flight that are not done: its links, the copies within this rank, and its begin.
    remaining: AtomicUsize,
    within: Within,
    /// Held by the thread that begins an exchange, closed by a failure.
    begin_lock: BeginLock,
    /// Every change of a link wakes the progress thread.
    armed: AtomicBool,
    /// Whether the user computes during exchanges: then the progress thread carries them on from the begin.
    pub(crate) overlap: Overlap,
    /// The progress thread has a core of its own.
    has_spare_core: bool,
    /// Twice the last epoch for which the peers' progress was demanded; one more if a peer had begun a reduce by then.
    demanded: AtomicU64,
    /// Calls of `is_ready` for the exchange in flight.
    looks: AtomicU32,
    /// The transport's count of departures when peers were last looked at.
    departures: AtomicU64,
    /// The last exchange whose field memory was given back to the user.
    hold: MemoryHold,
    /// Sets made so far.
    pub(crate) sets: AtomicUsize,
    /// In checked mode.
    pub(crate) check: Option<Check>,
}

impl Bound {
    /// `sets` are those of the object, at least one. In checked mode, `checks` is the operation of the checks' messages.
    pub(crate) fn new(
        life: Lifecycle,
        mut links: Vec<Link>,
        own: Option<Arc<Segment>>,
        sets: &[Arc<Set>],
        checks: Option<u64>,
    ) -> Arc<Self> {
        let has_spare_core = life.comm.link().cores() == Cores::Spare && life.comm.link().is_driven();
        let check = checks.map(|operation| Check::new(operation, &mut links));
        let bound = Arc::new(Self {
            life,
            links,
            own,
            flight: Flight::new(Arc::clone(&sets[0])),
            remaining: AtomicUsize::new(0),
            within: Within::default(),
            begin_lock: BeginLock::default(),
            armed: AtomicBool::new(false),
            overlap: Overlap::default(),
            has_spare_core,
            demanded: AtomicU64::new(0),
            looks: AtomicU32::new(0),
            departures: AtomicU64::new(0),
            hold: MemoryHold::default(),
            sets: AtomicUsize::new(sets.len()),
            check,
        });
        let weak: Weak<Self> = Arc::downgrade(&bound);
        bound.life.attach(weak);
        bound
    }

    /// Whether the progress thread may have something to do.
    pub(crate) fn wants_progress(&self) -> bool {
        !self.links.is_empty() || self.has_spare_core
    }

    /// The last exchange begun.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.life.epoch()
    }

    /// Begins an exchange of a set of this object. In the unbound form, whose sets hold no memory, `fields` are its fields.
    pub(crate) fn begin(&self, set: &Arc<Set>, fields: &[(&Pattern, &Field)]) -> Result<u64, Error> {
        self.begin_with(set, fields, None)
    }

    /// Begins an exchange or, with a reduction, a reduce.
    pub(super) fn begin_with(
        &self,
        set: &Arc<Set>,
        fields: &[(&Pattern, &Field)],
        reduction: Option<Reduction>,
    ) -> Result<u64, Error> {
        let before = self.epoch();
        let in_flight = || Error::InFlight { epoch: self.epoch() };
        self.advance(before);
        self.outcome(before).ok_or_else(in_flight)??;
        let Some(_guard) = self.begin_lock.try_lock() else {
            // Another thread begins an exchange, or a failure has closed the lock.
            return Err(self.life.check_failure().err().unwrap_or_else(in_flight));
        };
        if self.epoch() != before {
            return Err(in_flight());
        }
        // A failure between two exchanges is sticky, too.
        self.life.check_failure()?;
        let epoch = before + 1;
        self.open(epoch, set, fields, reduction)?;
        let _span = trace::exchange(&self.life.comm, &self.life.name, epoch);
        // SAFETY: this thread begins the exchange. It is not over before `remaining` is 0, which lacks the `tick` in
        // `poll_first`.
        let in_flight = unsafe { self.flight.get() };
        match reduction {
            None => self.links.iter().for_each(|link| link.start(&self.life.comm, epoch, in_flight)),
            Some(_) => self.begin_in_place(epoch, in_flight),
        }
        // What a reduce takes depends on when the peers come: nothing is learned of it for exchanges.
        let is_large = self.has_spare_core && set.bytes >= LARGE && reduction.is_none();
        self.poll_first(epoch, is_large);
        self.life.wake();
        Ok(epoch)
    }

    /// Takes the fields and makes `epoch` the exchange in flight. Under `begin_lock`.
    fn open(
        &self,
        epoch: u64,
        set: &Arc<Set>,
        fields: &[(&Pattern, &Field)],
        reduction: Option<Reduction>,
    ) -> Result<(), Error> {
        // No thread checks the exchange before meanwhile.
        let gate = self.check.as_ref().map(Check::gate);
        self.give_back(epoch - 1);
        // SAFETY: the exchange before is over and its memory is given back, so that no thread uses it any more. This thread
        // alone holds `begin_lock`, which `reclaim` waits for after a failure.
        unsafe { self.flight.load(set, fields, reduction)? };
        // SAFETY: this thread begins the exchange, which no other thread knows of before the epoch is stored below.
        let in_flight = unsafe { self.flight.get() };
        let checked = self.check.as_ref();
        let announced =
            checked.map_or(Ok(()), |check| check.begin(&self.life.comm, &self.links, epoch, in_flight));
        self.looks.store(0, Ordering::Relaxed);
        let within = self.within.open(epoch, set.within.is_empty(), reduction.is_some());
        self.remaining.store(self.links.len() + usize::from(within) + 1, Ordering::Relaxed);
        if self.life.patience.deadline.is_some() {
            self.life.host.lateness.start(epoch, self.life.comm.link().host().now());
        }
        self.life.begin(epoch);
        drop(gate);
        // After the epoch: a thread that looks for departures and finds this 0 sees the epoch, too. A count that this overwrites
        // was stored by a look that did not have to see it; the next look compares anew.
        self.departures.store(0, Ordering::Release);
        trace::flight(&self.life.comm, &self.life.name, epoch, false);
        if let (Err(error), Some(link)) = (announced, self.links.first()) {
            tracing::warn!("rank {}: cannot announce exchange {epoch}: {error}", self.life.comm.rank());
            link.fail(&self.life, Cause::Died, link.peer);
        }
        Ok(())
    }

    /// Does what can be done at once. Where the user computes meanwhile, the progress thread does it for a large exchange, and
    /// carries the others on.
    fn poll_first(&self, epoch: u64, is_large: bool) {
        let (bell, host) = (self.life.comm.link().own_bell(), self.life.comm.link().host());
        let from = is_large.then(|| host.now());
        let elapsed = |from| host.now().saturating_sub(from);
        if let Some(from) = from
            && self.overlap.is_usual()
        {
            self.arm();
            self.tick(epoch);
            bell.demand(host);
            self.overlap.handed_on(elapsed(from));
            // A failure that came before disarmed a bell that was not armed yet.
            if self.life.failure().is_some() {
                self.disarm();
            }
            return;
        }
        self.advance(epoch);
        self.tick(epoch);
        self.advance(epoch);
        if let Some(from) = from {
            self.overlap.did_alone(elapsed(from));
        }
        let is_unfinished = self.outcome(epoch).is_none();
        self.overlap.begun(host, is_unfinished || is_large);
        if is_unfinished && (self.overlap.is_usual() || self.waits_for_messages(epoch)) {
            self.arm();
            // A change before the bell was armed has woken no thread.
            self.advance(epoch);
            if self.outcome(epoch).is_some() {
                self.disarm();
            }
        }
    }

    /// Polls every link that is not done, and the copies within this rank.
    pub(crate) fn advance(&self, epoch: u64) {
        if self.life.failure().is_some() {
            // All links learn of it there, whatever is done.
            self.claimed(&self.within.claim, || self.poll_within());
            return self.life.wake();
        }
        if self.life.host.completed.last() >= epoch {
            return;
        }
        for link in self.links.iter().filter(|link| !link.is_done(epoch)) {
            self.claimed(&link.claim, || self.poll_link(link));
        }
        if !self.within.is_done(epoch) {
            self.claimed(&self.within.claim, || self.poll_within());
        }
        self.life.wake();
    }

    /// Polls, or leaves it to the thread that holds the claim.
    fn claimed(&self, claim: &Claim, poll: impl FnMut()) {
        let link = self.life.comm.link();
        claim.turn(|| link.own_bell().demand(link.host()), poll);
    }

    /// Polls a link once, under its claim.
    fn poll_link(&self, link: &Link) {
        let (comm, epoch) = (&self.life.comm, self.epoch());
        if let Some(failure) = self.life.failure() {
            // Until then this rank may combine the peer's halo; then it comes back here.
            if self.within.has_stopped.load(Ordering::Acquire) {
                link.notify_failure(comm, failure);
            }
            return;
        }
        if link.is_done(epoch) {
            return;
        }
        // Read before polling: a departed rank's messages are visible once its departure is.
        let gone = link.is_gone();
        // SAFETY: exchange `epoch` is in flight: it is not over before `link.done` says so, and this poll alone sets that,
        // under the claim.
        let in_flight = unsafe { self.flight.get() };
        match link.serve(comm, epoch, in_flight) {
            Ok(Polled::Done) => {
                let is_reduce = in_flight.reduction().is_some();
                self.tick(epoch);
                if is_reduce {
                    // These may have been the last contributions.
                    self.claimed(&self.within.claim, || self.poll_within());
                }
            }
            Ok(Polled::Waits) => {
                if let Some(cause) = gone {
                    link.fail(&self.life, cause, link.peer);
                }
            }
            Ok(Polled::Lost(cause, culprit)) => {
                // Cells that a peer finds changed may have been written on this rank. Those of a reduce another thread may combine.
                let check = self.check.as_ref().filter(|_| in_flight.reduction().is_none());
                match check.and_then(|check| check.owned(comm, &self.links, in_flight)) {
                    Some(finding) => finding.fail(&self.life, &self.links, None),
                    None => link.fail(&self.life, cause, culprit),
                }
            }
            Err(error) => {
                tracing::warn!("rank {}: link with rank {}: {error}", comm.rank(), link.peer);
                link.fail(&self.life, Cause::Died, link.peer);
            }
        }
    }

    /// One part of the exchange is done. The last one completes it.
    fn tick(&self, epoch: u64) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: `remaining` is 0 once an exchange. The thread that made it so is the one that completes exchange `epoch`, below.
        let in_flight = unsafe { self.flight.get() };
        let comm = &self.life.comm;
        if let Some(finding) = self.check.as_ref().and_then(|check| check.end(comm, &self.links, in_flight)) {
            return finding.fail(&self.life, &self.links, None);
        }
        // Before the exchange is over: the next one may arm the bell again.
        self.disarm();
        trace::flight(comm, &self.life.name, epoch, true);
        if self.life.host.completed.complete(epoch) {
            // A thread of this rank may sleep for it, or a task.
            comm.link().own_bell().changed(comm.link().host());
        }
    }

    /// Whether a link waits for a message. A late peer cannot demand this rank's progress there, so that messages must wake the
    /// progress thread.
    pub(crate) fn waits_for_messages(&self, epoch: u64) -> bool {
        let waits = |link: &Link| link.path == LinkPath::Message || self.check.is_some();
        self.links.iter().any(|link| waits(link) && !link.is_done(epoch))
    }

    fn arm(&self) {
        if !self.armed.swap(true, Ordering::AcqRel) {
            self.life.comm.link().own_bell().arm();
        }
    }

    fn disarm(&self) {
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            self.life.comm.link().own_bell().disarm();
        }
    }
}
