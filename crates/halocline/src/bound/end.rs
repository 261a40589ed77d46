//! The end of a bound object: its memories go back to the user, its peers learn that it is gone.

use super::Bound;
use crate::error::{Cause, Error};
use crate::link::Link;
use crate::set::InFlight;
use halocline_comm::{Endpoint, Serve};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

impl Bound {
    /// Gives the fields' memory back to the user, once the exchange is over, or has failed and no peer can touch it any more.
    pub(crate) fn reclaim(&self) -> bool {
        let epoch = self.epoch();
        match self.failed.get() {
            None => matches!(self.proven(epoch), Some(Ok(()))),
            Some(_) if self.is_quiet() => {
                // A wait that comes later compares nothing, and one that is at it ends first.
                self.check.iter().for_each(|check| *check.gate() = epoch);
                self.give_back(epoch);
                true
            }
            Some(_) => false,
        }
    }

    /// Whether nobody touches the fields any more: the exchange is over, or has failed and was given up by this rank and its peers.
    fn is_quiet(&self) -> bool {
        if self.failed.get().is_none() {
            return self.completed.load(Ordering::Acquire) >= self.epoch();
        }
        // Neither threads of this rank that are still at it, nor peers. Once the lock is closed, nobody begins another exchange.
        if !self.begin_lock.is_closed() {
            return false;
        }
        let epoch = self.epoch();
        self.within.told.load(Ordering::Acquire)
            && self.links.iter().all(|link| link.is_quiet(&self.comm, epoch))
    }

    /// Gives the memories of an exchange back to the user, once. It is over, or quiet after a failure.
    #[inline]
    pub(super) fn give_back(&self, epoch: u64) {
        self.hold.release(
            epoch,
            || self.comm.link().host().yield_now(),
            // SAFETY: exchange `epoch` is over, or quiet: no turn uses what is in flight any more. `hold` lets one thread in, and no
            // exchange begins before it has left.
            || unsafe { self.flight.land() },
        );
    }

    /// What is in flight, while exchange `epoch` has not given its memories back.
    pub(crate) fn while_held<R>(&self, epoch: u64, look: impl FnOnce(&InFlight) -> R) -> Result<R, Error> {
        let is_begun = self.epoch() >= epoch;
        let pause = || self.comm.link().host().yield_now();
        // SAFETY: the exchange was begun, and none begins after it, nor are its memories given back, before `hold` is left.
        let look = || look(unsafe { self.flight.get() });
        is_begun
            .then(|| self.hold.while_held(epoch, pause, look))
            .flatten()
            .ok_or(Error::NotInFlight { epoch })
    }

    /// The user has dropped the object.
    pub(crate) fn release(self: Arc<Self>) {
        if self.over() {
            return;
        }
        let comm = self.comm.clone();
        comm.defer_drop(self);
    }

    /// Whether nothing is in flight any more; then tells the peers that this side is gone.
    fn over(&self) -> bool {
        if !self.is_quiet() {
            return false;
        }
        if self.failed.get().is_some() {
            return true;
        }
        if let (Some(link), Some(dead)) = (self.links.first(), self.dead()) {
            // The object is dropped because of it, most likely: say so.
            self.fail(link, Cause::Died, dead);
            self.wake();
        } else {
            let last = self.completed.load(Ordering::Acquire);
            self.links.iter().for_each(|link| link.close(&self.comm, last));
        }
        true
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Nobody is left who could wait for it.
        if self.is_quiet() {
            self.give_back(self.epoch());
        }
        self.links.iter().for_each(|link| link.forget(&self.comm));
        if let Some(check) = &self.check {
            check.forget(&self.comm);
        }
    }
}

impl Serve for Bound {
    fn serve(&self) {
        let epoch = self.epoch();
        self.advance(epoch);
        self.keep_deadline(epoch);
        if !self.wakers.is_empty()
            && let Some(late) = self.awaited.late(&self.comm)
        {
            self.late(epoch, late);
        }
        if self.failed.get().is_none() {
            // What is in flight may have all that it needs; where it has not, its links see that.
            let is_idle = self.outcome(epoch).is_some();
            let failed_there = |link| is_idle.then(|| Link::failed_there(link, &self.comm)).flatten();
            match self.links.iter().find_map(|link| Some((link, failed_there(link)?))) {
                Some((link, (cause, culprit))) => self.fail(link, cause, culprit),
                None => self.look_after_peers(),
            }
        }
        self.wake();
    }

    fn is_over(&self) -> bool {
        self.over()
    }

    fn due(&self) -> Option<Duration> {
        if self.outcome(self.epoch()).is_some() {
            return None;
        }
        let begun = || *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = self.patience.deadline.map(|deadline| begun() + deadline);
        let warning = (!self.wakers.is_empty()).then(|| self.awaited.due());
        [deadline, warning].into_iter().flatten().min()
    }
}
