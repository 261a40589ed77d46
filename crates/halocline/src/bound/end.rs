//! The end of a bound object: its memories go back to the user, its peers learn that it is gone.

use super::{Bound, STOPPED};
use crate::check::Check;
use crate::error::Cause;
use crate::link::Link;
use halocline_comm::Serve;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

impl Bound {
    /// After a failure: gives the fields' memory back to the user, once no peer can touch it any more.
    pub(crate) fn reclaim(&self) -> bool {
        if self.failed.get().is_none() {
            return self.completed.load(Ordering::Acquire) >= self.epoch();
        }
        // Neither threads of this rank that are still at it, nor peers. Once the lock is closed, nobody begins another exchange.
        if !self.begin_lock.is_closed() {
            return false;
        }
        let epoch = self.epoch();
        if !self.within.told.load(Ordering::Acquire)
            || !self.links.iter().all(|link| link.is_quiet(&self.comm, epoch))
        {
            return false;
        }
        if self.landed.swap(epoch | STOPPED, Ordering::AcqRel) != epoch | STOPPED {
            // SAFETY: the object has failed and `begin_lock` is closed, so that no other exchange begins. No thread of
            // this rank is at a link or at the copies within it: all were told of the failure under their claims.
            // `landed` has let this thread through alone, and not `tick`.
            unsafe { self.flight.land() };
        }
        true
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
        if let Some(finding) = self.check.as_ref().and_then(|check| check.serve(&self.comm, epoch))
            && self.outcome(epoch).is_none()
        {
            self.fail_by(finding, None);
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
        let suspicion = self.check.as_ref().and_then(Check::due);
        [deadline, warning, suspicion].into_iter().flatten().min()
    }
}
