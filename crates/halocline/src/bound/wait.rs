//! Waiting for an exchange on the host: what a wait demands of the peers, and what it does when they are late or gone.

use super::Bound;
use crate::error::{Cause, Error};
use crate::lifecycle::{Engine, Warning};
use crate::trace;
use halocline_comm::{Endpoint, Late};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Calls of `is_ready` before the peers' progress is demanded.
const LOOKS: u32 = 64;

impl Bound {
    /// Waits until exchange `epoch` is over.
    pub(crate) fn wait(&self, epoch: u64) -> Result<(), Error> {
        if !self.overlap.is_handed_on() {
            return self.wait_for(epoch);
        }
        let host = self.life.comm.link().host();
        let from = host.now();
        let outcome = self.wait_for(epoch);
        self.overlap.judge(host.now().saturating_sub(from));
        outcome
    }

    /// As [`Bound::wait`], but gives up after `looks` looks and makes no system call.
    #[inline]
    pub(crate) fn wait_briefly(&self, epoch: u64, looks: u32) -> Option<Result<(), Error>> {
        if self.overlap.is_handed_on() {
            return None;
        }
        let at_once = self.at_once(epoch);
        let more = || {
            std::hint::spin_loop();
            self.advance(epoch);
            self.final_outcome(epoch)
        };
        at_once.or_else(|| {
            self.overlap.waited();
            (0..looks).find_map(|_| more())
        })
    }

    /// The outcome, if the first look finds it.
    #[inline]
    fn at_once(&self, epoch: u64) -> Option<Result<(), Error>> {
        let outcome = self.final_outcome(epoch).or_else(|| {
            self.advance(epoch);
            self.final_outcome(epoch)
        })?;
        self.overlap.found_at_once(self.life.comm.link().host(), self.life.patience.spin);
        Some(outcome)
    }

    #[inline]
    fn wait_for(&self, epoch: u64) -> Result<(), Error> {
        if let Some(outcome) = self.at_once(epoch) {
            return outcome;
        }
        self.overlap.waited();
        // Where the rank has ended with MPI, the object fails below.
        let link = self.life.comm.link();
        if self.waits_for_messages(epoch) && link.ended().is_none() {
            link.check()?;
        }
        self.disarm();
        let _span = trace::wait(&self.life.comm, &self.life.name, epoch);
        let mut notified = Vec::new();
        let outcome = self.life.patience.wait(
            self.life.comm.link(),
            || {
                self.advance(epoch);
                self.look_for_departed_peers();
                self.final_outcome(epoch)
            },
            || self.demand(epoch),
            || Duration::MAX,
            |late| match late {
                Late::Announce => {
                    notified = self.missing_ranks(epoch, Duration::ZERO);
                    let what = format!("exchange {epoch} of {}", self.life.name);
                    notified.iter().for_each(|&peer| self.announce(peer, what.clone()));
                    None
                }
                late => self.late(epoch, late),
            },
        );
        notified.into_iter().for_each(|peer| self.announce(peer, String::new()));
        // A wait that was interrupted leaves a reduce to the progress thread.
        self.serve_reduce(epoch);
        outcome
    }

    /// Tells a rank what this one waits for it in; with no text, that this one waits no longer.
    fn announce(&self, peer: usize, what: String) {
        if let Some(link) = self.links.first() {
            self.life.comm.announce(peer, link.object, what);
        }
    }

    /// Whether exchange `epoch` is over. Never blocks.
    pub(crate) fn is_ready(&self, epoch: u64) -> Result<bool, Error> {
        self.life.comm.link().poll();
        self.advance(epoch);
        let outcome = self.final_outcome(epoch);
        if outcome.is_none() && self.looks.fetch_add(1, Ordering::Relaxed) >= LOOKS {
            self.demand(epoch);
            self.look_for_departed_peers();
            self.keep_time(epoch, true);
        }
        outcome.map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// Asks the peers' progress threads, once an exchange, to do what this rank waits for: the ranks themselves may be busy
    /// elsewhere. This rank has set all flags that the peers wait for. In a reduce it asks once more when a peer has begun it: what that
    /// one waits for comes from other ranks, and it carries the reduce on from then ([`Bound::serve_reduce`]).
    pub(crate) fn demand(&self, epoch: u64) {
        let missing = || self.links.iter().filter(|link| !link.is_done(epoch));
        let peer_has_begun = missing().any(|link| link.peer_has_begun(&self.life.comm, epoch));
        let demanded = 2 * epoch + u64::from(peer_has_begun);
        if self.demanded.swap(demanded, Ordering::Relaxed) != demanded {
            missing().for_each(|link| link.demand(&self.life.comm));
        }
    }

    /// A peer has demanded progress: in a reduce it waits here for what this rank gets from others. From now on the progress thread looks
    /// at each of their signals.
    pub(super) fn serve_reduce(&self, epoch: u64) {
        if !self.within.is_reduce(epoch) || self.outcome(epoch).is_some() {
            return;
        }
        self.arm();
        // A change before the bell was armed has woken no thread.
        self.advance(epoch);
        if self.outcome(epoch).is_some() {
            self.disarm();
        } else if self.life.has_tasks() {
            self.demand(epoch);
        }
    }

    /// Fails the object if a peer that it still needs has departed.
    pub(crate) fn look_for_departed_peers(&self) {
        let departures = self.life.comm.link().departures();
        // A begin sets `departures` to 0 after the epoch. If the swap finds that 0, it sees that epoch; if the 0 comes later, the
        // next look finds a change.
        if self.life.failure().is_some() || self.departures.swap(departures, Ordering::AcqRel) == departures {
            return;
        }
        let epoch = self.epoch();
        // A rank that has ended itself gets nothing more of its peers.
        let ended = self.life.comm.link().ended().map(|_| Cause::Dropped);
        for link in self.links.iter().filter(|link| !link.is_done(epoch)) {
            if let Some(cause) = self.life.departed(link.peer).or(ended) {
                // A poll decides whether the link still needs the peer: another thread may hold the claim.
                link.gone(cause);
                self.claimed(&link.claim, || self.poll_link(link));
            }
        }
        self.life.wake();
    }

    /// A wait takes long.
    fn late(&self, epoch: u64, late: Late) -> Option<Result<(), Error>> {
        match late {
            Late::Announce => None,
            Late::Warn { after, again } => {
                self.warn(epoch, Warning { after, again });
                None
            }
            Late::Deadline(after) => {
                self.miss_deadline(epoch, after);
                self.outcome(epoch)
            }
            Late::Interrupted => Some(Err(self.life.interrupted(epoch))),
        }
    }
}
