//! Copies between domains of this rank. The first thread that finds them makes them.

use super::Bound;
use crate::link::as_sources;
use crate::trace;
use halocline_comm::Claim;
use halocline_device::host;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct Within {
    pub(super) claim: Claim,
    /// The last epoch whose copies are made.
    done: AtomicU64,
    /// A turn has seen the failure: none copies any more.
    pub(super) has_stopped: AtomicBool,
}

impl Within {
    /// Exchange `epoch` begins, with such copies unless `is_empty`. Whether it has some.
    pub(super) fn open(&self, epoch: u64, is_empty: bool) -> bool {
        if is_empty {
            self.done.store(epoch, Ordering::Relaxed);
        }
        !is_empty
    }

    pub(super) fn is_done(&self, epoch: u64) -> bool {
        self.done.load(Ordering::Acquire) >= epoch
    }
}

impl Bound {
    /// Makes the copies, under their claim.
    pub(super) fn turn_within(&self) {
        let (comm, epoch) = (&self.life.comm, self.epoch());
        if self.life.failure().is_some() {
            return self.within.has_stopped.store(true, Ordering::Release);
        }
        if self.within.is_done(epoch) {
            return;
        }
        // SAFETY: exchange `epoch` is in flight: it is not over before `within.done` says so, and this turn alone sets that,
        // below, under the claim.
        let in_flight = unsafe { self.flight.get() };
        trace::within(comm, &self.life.name, epoch).in_scope(|| {
            // SAFETY: `Local::new` has checked the operations against the fields: they read owned cells and write halo
            // cells, in memory that the exchange in flight holds. No guard is held (`State::begin_flight`), and the caller of
            // `Field::from_raw` leaves these cells alone until the wait. The claim keeps other threads away.
            unsafe { host::copy(&in_flight.set().within, as_sources(in_flight.bases()), in_flight.bases()) }
        });
        let check = self.check.as_ref();
        if let Some(finding) = check.and_then(|check| check.within(comm, epoch, in_flight)) {
            self.fail_by(finding, None);
        }
        self.within.done.store(epoch, Ordering::Release);
        if self.life.failure().is_none() {
            self.tick(epoch);
        }
    }
}
