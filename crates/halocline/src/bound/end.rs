//! The end of an exchange and of the host engine: field memory goes back to the user, peers are notified.

use super::Bound;
use crate::check;
use crate::error::{ArrayError, Error, Failure};
use crate::lifecycle::{Engine, EnginePart, Lifecycle};
use crate::link::Link;
use crate::set::InFlight;
use halocline_comm::{Endpoint, Serve};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Bound {
    /// The outcome of exchange `epoch`, for the user, who may touch the fields once this has returned it: field memory is
    /// given back here. In checked mode, owned cells must stay as they are until then.
    pub(crate) fn final_outcome(&self, epoch: u64) -> Option<Result<(), Error>> {
        let outcome = self.outcome(epoch)?;
        if let (Some(checks), Ok(())) = (&self.check, &outcome) {
            let mut compared = checks.gate();
            if self.epoch() == epoch && std::mem::replace(&mut *compared, epoch) != epoch {
                // SAFETY: exchange `epoch` is over. No other begins as long as `compared` is held, and field memory is given back
                // after `compared` says so, which happens here once.
                let in_flight = unsafe { self.flight.get() };
                let finding = checks.end(&self.life.comm, &self.links, in_flight);
                drop(compared);
                if let Some(finding) = finding {
                    finding.fail(&self.life, &self.links, Some(epoch));
                    self.life.wake();
                }
            }
            if let Some(error) = check::found_late(&self.life, epoch) {
                return Some(Err(error));
            }
        }
        if outcome.is_ok() {
            self.give_back(epoch);
        }
        Some(outcome)
    }

    /// Gives field memory back to the user, once the exchange is over, or has failed and no peer can touch the memory any more.
    pub(crate) fn reclaim(&self) -> bool {
        let epoch = self.epoch();
        if self.life.failure().is_none() {
            return matches!(self.final_outcome(epoch), Some(Ok(())));
        }
        if !self.is_quiet() {
            return false;
        }
        // A later wait compares nothing, and one that compares ends first.
        self.check.iter().for_each(|check| *check.gate() = epoch);
        self.give_back(epoch);
        true
    }

    /// Gives the field memory of an exchange back to the user, once. The exchange is over, or quiet after a failure.
    #[inline]
    pub(super) fn give_back(&self, epoch: u64) {
        self.hold.release(
            epoch,
            || self.life.comm.link().host().yield_now(),
            // SAFETY: exchange `epoch` is over, or quiet: no poll uses what is in flight any more. `hold` lets one thread in, and no
            // exchange begins before it has left.
            || unsafe { self.flight.land() },
        );
    }

    /// What is in flight, while exchange `epoch` has not given its memories back.
    pub(crate) fn while_held<R>(&self, epoch: u64, look: impl FnOnce(&InFlight) -> R) -> Result<R, Error> {
        let is_begun = self.epoch() >= epoch;
        let pause = || self.life.comm.link().host().yield_now();
        // SAFETY: the exchange was begun, and none begins after it, nor are its memories given back, before `hold` is left.
        let look = || look(unsafe { self.flight.get() });
        is_begun
            .then(|| self.hold.while_held(epoch, pause, look))
            .flatten()
            .ok_or(Error::Array(ArrayError::NotInFlight { epoch }))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // No handle is left to wait for the exchange.
        if self.is_quiet() {
            self.give_back(self.epoch());
        }
        self.links.iter().for_each(|link| link.forget(&self.life.comm));
        if let Some(check) = &self.check {
            check.forget(&self.life.comm);
        }
    }
}

impl Engine for Bound {
    #[inline]
    fn life(&self) -> &Lifecycle {
        &self.life
    }

    #[inline]
    fn part(&self) -> &EnginePart {
        &self.life.host
    }

    fn links(&self) -> &[Link] {
        &self.links
    }

    fn waiter(&self) -> String {
        format!("rank {} has", self.life.comm.rank())
    }

    fn missing(&self, epoch: u64, _: Duration) -> Vec<&Link> {
        let missing: Vec<&Link> = self.links.iter().filter(|link| !link.is_done(epoch)).collect();
        let absent: Vec<&Link> =
            missing.iter().copied().filter(|link| !link.peer_has_begun(&self.life.comm, epoch)).collect();
        // An owner that has begun a reduce waits for others, perhaps for those that are absent here, too.
        if absent.is_empty() { missing } else { absent }
    }

    fn release_waits(&self, _: &Failure) {
        self.begin_lock.close();
        // If the claim is held, by this thread or another, its holder polls before it gives the claim up. The links are polled then, too.
        self.claimed(&self.within.claim, || self.poll_within());
        self.disarm();
    }

    fn is_quiet(&self) -> bool {
        let epoch = self.epoch();
        if self.life.failure().is_none() {
            return self.life.host.completed.last() >= epoch;
        }
        // No thread begins another exchange once the lock is closed.
        self.begin_lock.is_closed()
            && self.within.has_stopped.load(Ordering::Acquire)
            && self.links.iter().all(|link| link.is_quiet(&self.life.comm, self.epoch()))
    }
}

impl Serve for Bound {
    fn serve(&self) {
        let epoch = self.epoch();
        self.advance(epoch);
        self.serve_reduce(epoch);
        self.keep_time(epoch, self.life.has_tasks());
        // In flight an exchange may have all that it needs; where it has not, a poll of the link finds the failure.
        let is_idle = self.outcome(epoch).is_some();
        if self.life.failure().is_none() && !(is_idle && self.look_for_failed_peers()) {
            self.look_for_departed_peers();
        }
        self.life.wake();
    }

    fn is_over(&self) -> bool {
        self.close()
    }

    fn due(&self) -> Option<Duration> {
        let (epoch, deadline) = (self.epoch(), self.life.patience.deadline);
        let is_unfinished = self.outcome(epoch).is_none();
        is_unfinished.then(|| self.life.host.lateness.due(epoch, deadline, self.life.has_tasks())).flatten()
    }
}
