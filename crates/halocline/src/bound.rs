//! A bound exchange while it runs: epochs, links, failure. What happens when.

use crate::error::{Cause, Error, Failure};
use crate::field::{Blocked, Memory};
use crate::link::{Link, Turn, Way, Work};
use crate::overlap::Overlap;
use halocline_comm::{Communicator, Late, Patience, PeerState, Segment, Serve};
use halocline_device::host;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The state that a [`crate::HaloExchange`], its [`crate::Pending`]s and the progress thread share.
pub(crate) struct Bound {
    pub(crate) comm: Communicator,
    pub(crate) links: Vec<Link>,
    /// Copies between domains of this rank.
    pub(crate) local: Work,
    /// Memories that the fields lie in, each once, with the first field in it.
    pub(crate) memories: Vec<(Arc<Memory>, usize)>,
    /// This rank's counters and mailboxes.
    #[allow(dead_code)]
    pub(crate) own: Option<Arc<Segment>>,
    pub(crate) patience: Patience,
    /// The last exchange begun.
    epoch: AtomicU64,
    /// The last exchange that is over.
    completed: AtomicU64,
    /// What the exchange in flight still lacks: its links, and its beginner.
    remaining: AtomicUsize,
    /// A thread is in `begin`.
    beginning: AtomicBool,
    /// The progress thread is woken at every change.
    armed: AtomicBool,
    /// Whether the user computes meanwhile: then progress is armed as soon as an exchange is begun.
    overlap: Overlap,
    /// The last epoch for which the peers' progress was demanded.
    demanded: AtomicU64,
    /// Looks of `is_ready` at the exchange in flight.
    looks: AtomicU32,
    /// The transport's departures when peers were last looked at.
    departures: AtomicU64,
    /// When the exchange in flight was begun, where there is a deadline.
    begun: Mutex<Duration>,
    failed: OnceLock<Arc<Failure>>,
    /// The last exchange whose memories were given back to the user.
    landed: AtomicU64,
}

// SAFETY: `local` holds raw pointers into `memories`; only the thread that begins an exchange follows
// them, and `beginning` admits one. `Link`s are Send and Sync by themselves.
unsafe impl Send for Bound {}
// SAFETY: as above.
unsafe impl Sync for Bound {}

/// Looks of `is_ready` before the peers' progress is demanded.
const LOOKS: u32 = 64;

impl Bound {
    pub(crate) fn new(
        comm: Communicator,
        links: Vec<Link>,
        local: Work,
        memories: Vec<(Arc<Memory>, usize)>,
        own: Option<Arc<Segment>>,
        patience: Patience,
    ) -> Self {
        Self {
            comm,
            links,
            local,
            memories,
            own,
            patience,
            epoch: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            remaining: AtomicUsize::new(0),
            beginning: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            overlap: Overlap::default(),
            demanded: AtomicU64::new(0),
            looks: AtomicU32::new(0),
            departures: AtomicU64::new(0),
            begun: Mutex::new(Duration::ZERO),
            failed: OnceLock::new(),
            landed: AtomicU64::new(0),
        }
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
        self.failed.get().map(|failure| Err(Error::Failed(Arc::clone(failure))))
    }

    /// Begins an exchange: gives every leave first, then does what can be done at once.
    pub(crate) fn begin(&self) -> Result<u64, Error> {
        let before = self.epoch();
        let in_flight = || Error::InFlight { epoch: self.epoch() };
        self.advance(before);
        match self.outcome(before) {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(error),
            None => return Err(in_flight()),
        }
        // A failure between two exchanges is sticky, too.
        self.outcome(u64::MAX).unwrap_or(Ok(()))?;
        if self.beginning.swap(true, Ordering::Acquire) {
            return Err(in_flight());
        }
        let begun = self.begin_alone(before);
        self.beginning.store(false, Ordering::Release);
        begun
    }

    fn begin_alone(&self, before: u64) -> Result<u64, Error> {
        if self.epoch() != before {
            return Err(Error::InFlight { epoch: self.epoch() });
        }
        for (at, (memory, field)) in self.memories.iter().enumerate() {
            if let Err(blocked) = memory.begin_flight() {
                self.memories[..at].iter().for_each(|(memory, _)| memory.end_flight());
                return Err(match blocked {
                    Blocked::InFlight => Error::Shared { field: *field },
                    Blocked::Borrowed => Error::Borrowed { field: *field },
                });
            }
        }
        let epoch = before + 1;
        self.looks.store(0, Ordering::Relaxed);
        self.remaining.store(self.links.len() + 1, Ordering::Relaxed);
        if self.patience.deadline.is_some() {
            *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = self.comm.link().host().now();
        }
        self.epoch.store(epoch, Ordering::SeqCst);
        // After the epoch: whoever looks for departures from now on looks at its links.
        self.departures.store(0, Ordering::SeqCst);
        for link in &self.links {
            link.start(&self.comm, epoch);
        }
        self.advance(epoch);
        // SAFETY: bind has checked the operations; sources are owned cells and targets halo cells of
        // fields of this rank, in memory that `memories` holds, left alone by the user until the wait.
        unsafe { host::copy(&self.local.ops, &self.local.sources, &self.local.targets) };
        self.tick(epoch);
        self.advance(epoch);
        let unfinished = self.outcome(epoch).is_none();
        self.overlap.begun(self.comm.link().host(), unfinished);
        if unfinished && (self.overlap.is_usual() || self.waits_for_messages(epoch)) {
            self.arm();
            // Whatever came before the peers could see that we are armed.
            self.advance(epoch);
            if self.outcome(epoch).is_some() {
                self.disarm();
            }
        }
        Ok(epoch)
    }

    /// Whether a link waits for a message. Who is late cannot demand our progress there: it comes with
    /// the message, which our progress must therefore be woken for.
    fn waits_for_messages(&self, epoch: u64) -> bool {
        self.links.iter().any(|link| link.way == Way::Message && !link.is_done(epoch))
    }

    /// A turn at every link that is not done.
    pub(crate) fn advance(&self, epoch: u64) {
        if self.completed.load(Ordering::Acquire) >= epoch {
            return;
        }
        for link in self.links.iter().filter(|link| !link.is_done(epoch)) {
            link.claim.turn(|| self.turn(link));
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
        match link.serve(&self.comm, epoch) {
            Ok(Turn::Done) => self.tick(epoch),
            Ok(Turn::Waits) => {
                if let Some(cause) = gone {
                    self.fail(link, cause, link.peer);
                }
            }
            Ok(Turn::Lost(cause, culprit)) => self.fail(link, cause, culprit),
            Err(error) => {
                tracing::warn!("rank {}: link with rank {}: {error}", self.comm.rank(), link.peer);
                self.fail(link, Cause::Died, link.peer);
            }
        }
    }

    /// One thing less that the exchange lacks.
    fn tick(&self, epoch: u64) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.disarm();
            self.land(epoch);
            self.completed.store(epoch, Ordering::Release);
            // A thread of this rank may sleep for it.
            self.comm.link().own_bell().changed(self.comm.link().host());
        }
    }

    /// Fails the object, here and at all its peers.
    fn fail(&self, link: &Link, cause: Cause, culprit: usize) {
        let (cause, culprit) = self.root(cause, culprit);
        let (rank, epoch) = (self.comm.rank(), self.epoch());
        let (peer, direction, way) = (link.peer, link.direction, link.way);
        let failure = Arc::new(Failure { rank, epoch, peer, direction, way, cause, culprit });
        if self.failed.set(failure).is_ok() {
            // Links in the hands of other threads, and the one in ours, are told when they let go.
            self.links.iter().for_each(|link| link.claim.turn(|| self.turn(link)));
            self.disarm();
            self.comm.link().own_bell().changed(self.comm.link().host());
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

    /// Waits until exchange `epoch` is over.
    pub(crate) fn wait(&self, epoch: u64) -> Result<(), Error> {
        if let Some(outcome) = self.outcome(epoch) {
            self.overlap.found_at_once(self.comm.link().host(), self.patience.spin);
            return outcome;
        }
        self.advance(epoch);
        if let Some(outcome) = self.outcome(epoch) {
            self.overlap.found_at_once(self.comm.link().host(), self.patience.spin);
            return outcome;
        }
        self.overlap.waited();
        if self.waits_for_messages(epoch) {
            self.comm.link().check()?;
        }
        self.disarm();
        self.patience.wait(
            self.comm.link(),
            || {
                self.advance(epoch);
                self.look_after_peers();
                self.outcome(epoch)
            },
            || self.demand(epoch),
            |late| self.late(epoch, late),
        )
    }

    /// Whether exchange `epoch` is over. Never blocks.
    pub(crate) fn is_ready(&self, epoch: u64) -> Result<bool, Error> {
        self.comm.link().poll();
        self.advance(epoch);
        let outcome = self.outcome(epoch);
        if outcome.is_none() && self.looks.fetch_add(1, Ordering::Relaxed) >= LOOKS {
            self.demand(epoch);
            self.look_after_peers();
            self.keep_deadline(epoch);
        }
        outcome.map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// Fails the exchange in flight if its deadline has passed, for those who do not wait.
    fn keep_deadline(&self, epoch: u64) {
        let Some(deadline) = self.patience.deadline else { return };
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let after = self.comm.link().host().now().saturating_sub(begun);
        if after >= deadline && self.outcome(epoch).is_none() {
            self.late(epoch, Late::Deadline(after));
        }
    }

    /// Asks the peers' progress threads, once an exchange, to do what this one waits for: their ranks
    /// may be busy elsewhere. All that they need from us was raised before.
    fn demand(&self, epoch: u64) {
        if self.demanded.swap(epoch, Ordering::Relaxed) != epoch {
            self.links.iter().filter(|link| !link.is_done(epoch)).for_each(|link| link.demand(&self.comm));
        }
    }

    /// Fails the object if a rank that it still needs has gone.
    fn look_after_peers(&self) {
        let departures = self.comm.link().departures();
        // Noted before the epoch is read: of two threads, the one that begins an exchange and the one
        // that looks, at least one sees the other's.
        if self.failed.get().is_some() || self.departures.swap(departures, Ordering::SeqCst) == departures {
            return;
        }
        let epoch = self.epoch.load(Ordering::SeqCst);
        for link in self.links.iter().filter(|link| !link.is_done(epoch)) {
            let cause = match self.comm.link().state(link.peer) {
                // One that has left may still finish what it dropped in flight; if not, it says so.
                PeerState::Present | PeerState::Left => continue,
                PeerState::Ended => Cause::Dropped,
                PeerState::Dead => Cause::Died,
            };
            // Whether the link still needs it is for a turn to say: another thread may be at one.
            link.gone(cause);
            link.claim.turn(|| self.turn(link));
        }
    }

    fn late(&self, epoch: u64, late: Late) -> Option<Result<(), Error>> {
        let missing: Vec<_> = self.links.iter().filter(|link| !link.is_done(epoch)).collect();
        match late {
            Late::Warn(after) => {
                let mut ranks: Vec<usize> = missing.iter().map(|link| link.peer).collect();
                ranks.dedup();
                tracing::warn!(
                    "rank {}: exchange {epoch} has waited {after:?} for ranks {ranks:?}",
                    self.comm.rank()
                );
                None
            }
            Late::Deadline(after) => {
                if let Some(link) = missing.first() {
                    self.fail(link, Cause::Deadline(Some(after)), link.peer);
                }
                self.outcome(epoch)
            }
        }
    }

    /// After a failure: gives the fields' memory back to the user, once no peer can touch it any more.
    pub(crate) fn reclaim(&self) -> bool {
        let epoch = self.epoch();
        if self.failed.get().is_none() {
            return self.completed.load(Ordering::Acquire) >= epoch;
        }
        // Neither threads of this rank that are still at it, nor peers.
        let copies = self.beginning.load(Ordering::Acquire);
        if copies || !self.links.iter().all(|link| link.is_quiet(&self.comm, epoch)) {
            return false;
        }
        self.land(epoch);
        true
    }

    /// Gives the memories back to the user, once an exchange.
    fn land(&self, epoch: u64) {
        if self.landed.swap(epoch, Ordering::AcqRel) != epoch {
            self.memories.iter().for_each(|(memory, _)| memory.end_flight());
        }
    }

    /// The user has dropped the object.
    pub(crate) fn release(self: Arc<Self>) {
        if self.over() {
            return;
        }
        let comm = self.comm.clone();
        comm.bury(self);
    }

    /// Whether nothing is in flight any more; then tells the peers that this side is gone.
    fn over(&self) -> bool {
        if !self.reclaim() {
            return false;
        }
        if self.failed.get().is_some() {
            return true;
        }
        if let (Some(link), Some(dead)) = (self.links.first(), self.dead()) {
            // The object is dropped because of it, most likely: say so.
            self.fail(link, Cause::Died, dead);
        } else {
            let last = self.completed.load(Ordering::Acquire);
            self.links.iter().for_each(|link| link.close(&self.comm, last));
        }
        true
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.links.iter().for_each(|link| link.forget(&self.comm));
    }
}

impl Serve for Bound {
    fn serve(&self) {
        let epoch = self.epoch();
        self.advance(epoch);
        self.keep_deadline(epoch);
        if self.failed.get().is_none() {
            let failed = self.links.iter().find_map(|link| Some((link, link.failed_there(&self.comm)?)));
            match failed {
                Some((link, (cause, culprit))) => self.fail(link, cause, culprit),
                None => self.look_after_peers(),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over()
    }
}
