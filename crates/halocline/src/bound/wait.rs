//! Waiting for an exchange: what a wait demands of the peers, and what it does when they do not come.

use super::Bound;
use crate::error::{Cause, Error};
use crate::trace;
use halocline_comm::Endpoint;
use halocline_comm::{CommError, Late, PeerState};
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Looks of `is_ready` before the peers' progress is demanded.
const LOOKS: u32 = 64;

impl Bound {
    /// Waits until exchange `epoch` is over.
    pub(crate) fn wait(&self, epoch: u64) -> Result<(), Error> {
        if !self.overlap.is_handed_on() {
            return self.wait_for(epoch);
        }
        let host = self.comm.link().host();
        let from = host.now();
        let outcome = self.wait_for(epoch);
        self.overlap.judge(host.now().saturating_sub(from));
        outcome
    }

    /// As [`Bound::wait`], but gives up after so many looks, as long as nobody is asked for anything.
    #[inline]
    pub(crate) fn wait_briefly(&self, epoch: u64, looks: u32) -> Option<Result<(), Error>> {
        if self.overlap.is_handed_on() {
            return None;
        }
        let at_once = self.at_once(epoch);
        let more = || {
            std::hint::spin_loop();
            self.advance(epoch);
            self.proven(epoch)
        };
        at_once.or_else(|| {
            self.overlap.waited();
            (0..looks).find_map(|_| more())
        })
    }

    /// The outcome, if the first look finds it.
    #[inline]
    fn at_once(&self, epoch: u64) -> Option<Result<(), Error>> {
        let outcome = self.proven(epoch).or_else(|| {
            self.advance(epoch);
            self.proven(epoch)
        })?;
        self.overlap.found_at_once(self.comm.link().host(), self.patience.spin);
        Some(outcome)
    }

    #[inline]
    fn wait_for(&self, epoch: u64) -> Result<(), Error> {
        if let Some(outcome) = self.at_once(epoch) {
            return outcome;
        }
        self.overlap.waited();
        if self.waits_for_messages(epoch) {
            self.comm.link().check()?;
        }
        self.disarm();
        let _span = trace::wait(&self.comm, &self.name, epoch);
        let mut told = Vec::new();
        let outcome = self.patience.wait(
            self.comm.link(),
            || {
                self.advance(epoch);
                self.look_after_peers();
                self.proven(epoch)
            },
            || self.demand(epoch),
            |late| match late {
                Late::Announce => {
                    told = self.missing(epoch);
                    told.iter()
                        .for_each(|&peer| self.announce(peer, format!("exchange {epoch} of {}", self.name)));
                    None
                }
                late => self.late(epoch, late),
            },
        );
        told.into_iter().for_each(|peer| self.announce(peer, String::new()));
        outcome
    }

    /// Tells a rank that this one waits for it, or, without a name, that it does not any more.
    fn announce(&self, peer: usize, what: String) {
        if let Some(link) = self.links.first() {
            self.comm.announce(peer, link.object, what);
        }
    }

    /// The ranks that exchange `epoch` waits for.
    fn missing(&self, epoch: u64) -> Vec<usize> {
        let missing = self.links.iter().filter(|link| !link.is_done(epoch));
        let peers: BTreeSet<usize> = missing.map(|link| link.peer).collect();
        peers.into_iter().collect()
    }

    /// Whether exchange `epoch` is over. Never blocks.
    pub(crate) fn is_ready(&self, epoch: u64) -> Result<bool, Error> {
        self.comm.link().poll();
        self.advance(epoch);
        let outcome = self.proven(epoch);
        if outcome.is_none() && self.looks.fetch_add(1, Ordering::Relaxed) >= LOOKS {
            self.demand(epoch);
            self.look_after_peers();
            self.keep_deadline(epoch);
        }
        outcome.map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// Fails the exchange in flight if its deadline has passed, for those who do not wait.
    pub(crate) fn keep_deadline(&self, epoch: u64) {
        let Some(deadline) = self.patience.deadline else { return };
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let after = self.comm.link().host().now().saturating_sub(begun);
        if after >= deadline && self.outcome(epoch).is_none() {
            self.late(epoch, Late::Deadline(after));
        }
    }

    /// Asks the peers' progress threads, once an exchange, to do what this one waits for: their ranks
    /// may be busy elsewhere. All that they need from us was raised before.
    pub(crate) fn demand(&self, epoch: u64) {
        if self.demanded.swap(epoch, Ordering::Relaxed) != epoch {
            self.links.iter().filter(|link| !link.is_done(epoch)).for_each(|link| link.demand(&self.comm));
        }
    }

    /// Fails the object if a rank that it still needs has gone.
    pub(crate) fn look_after_peers(&self) {
        let departures = self.comm.link().departures();
        // A begin sets `departures` to 0 after the epoch. If the swap finds that 0, it sees that epoch; if the 0 comes later, the next
        // look is not told that nothing has changed.
        if self.failed.get().is_some() || self.departures.swap(departures, Ordering::AcqRel) == departures {
            return;
        }
        let epoch = self.epoch();
        for link in self.links.iter().filter(|link| !link.is_done(epoch)) {
            let cause = match self.comm.link().state(link.peer) {
                // One that has left may still finish what it dropped in flight; if not, it says so.
                PeerState::Present | PeerState::Left => continue,
                PeerState::Ended => Cause::Dropped,
                PeerState::Dead => Cause::Died,
            };
            // Whether the link still needs it is for a turn to say: another thread may be at one.
            link.gone(cause);
            self.claimed(&link.claim, || self.turn(link));
        }
        self.wake();
    }

    /// The error of a wait that was given up; the exchange goes on.
    fn interrupted(&self, epoch: u64) -> Error {
        CommError::Interrupted { waiting: self.comm.rank(), what: format!("exchange {epoch}") }.into()
    }

    /// Says which ranks are waited for, and what those wait for.
    fn tell_late(&self, epoch: u64, after: Duration, again: bool) {
        let (rank, after) = (self.comm.rank(), after.as_secs_f32());
        let (name, awaited) = (&self.name, self.comm.describe_waits(&self.missing(epoch)));
        let text = format!("rank {rank} has waited {after:.0} s in exchange {epoch} of {name} for {awaited}");
        self.comm.link().host().tell_late(&text, again);
    }

    /// A wait takes long.
    pub(super) fn late(&self, epoch: u64, late: Late) -> Option<Result<(), Error>> {
        match late {
            Late::Announce => None,
            Late::Warn { after, again } => {
                self.tell_late(epoch, after, again);
                None
            }
            Late::Deadline(after) => {
                self.tell_late(epoch, after, false);
                if let Some(link) = self.links.iter().find(|link| !link.is_done(epoch)) {
                    self.fail(link, Cause::Deadline(Some(after)), link.peer);
                }
                self.wake();
                self.outcome(epoch)
            }
            Late::Interrupted => Some(Err(self.interrupted(epoch))),
        }
    }
}
