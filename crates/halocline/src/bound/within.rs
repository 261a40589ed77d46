//! Copies between domains of this rank, and in a reduce the combination of all contributions to this rank's owned cells. The first
//! thread that finds them makes them.

use super::Bound;
use crate::link::as_sources;
use crate::set::InFlight;
use crate::trace;
use halocline_comm::Claim;
use halocline_device::host;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct Within {
    pub(super) claim: Claim,
    /// The last epoch whose copies are made.
    done: AtomicU64,
    /// The last epoch that is a reduce.
    reduce: AtomicU64,
    /// A poll has seen the failure: none copies any more.
    pub(super) has_stopped: AtomicBool,
}

impl Within {
    /// Exchange `epoch` begins, with such copies unless `is_empty`; or a reduce, which always has this part. Whether it has it.
    pub(super) fn open(&self, epoch: u64, is_empty: bool, is_reduce: bool) -> bool {
        if is_reduce {
            self.reduce.store(epoch, Ordering::Relaxed);
            return true;
        }
        if is_empty {
            self.done.store(epoch, Ordering::Relaxed);
        }
        !is_empty
    }

    /// Whether an epoch that has begun is a reduce.
    pub(super) fn is_reduce(&self, epoch: u64) -> bool {
        self.reduce.load(Ordering::Relaxed) == epoch
    }

    pub(super) fn is_done(&self, epoch: u64) -> bool {
        self.done.load(Ordering::Acquire) >= epoch
    }
}

impl Bound {
    /// Makes the copies, or combines, under the claim.
    pub(super) fn poll_within(&self) {
        let (comm, epoch) = (&self.life.comm, self.epoch());
        if self.life.failure().is_some() {
            self.within.has_stopped.store(true, Ordering::Release);
            // Peers whose halo was combined in place may be notified now.
            return self.links.iter().for_each(|link| self.claimed(&link.claim, || self.poll_link(link)));
        }
        if self.within.is_done(epoch) {
            return;
        }
        // SAFETY: exchange `epoch` is in flight: it is not over before `within.done` says so, and this poll alone sets that,
        // below, under the claim.
        let in_flight = unsafe { self.flight.get() };
        let finding = match in_flight.reduction() {
            Some(_) if !self.is_ready_to_combine(epoch) => return,
            Some(reduction) => self.combine_checked(epoch, in_flight, reduction),
            None => {
                self.copy_within(epoch, in_flight);
                self.check.as_ref().and_then(|check| check.within(comm, epoch, in_flight))
            }
        };
        if let Some(finding) = finding {
            finding.fail(&self.life, &self.links, None);
        }
        self.within.done.store(epoch, Ordering::Release);
        if self.life.failure().is_none() {
            self.tick(epoch);
        }
    }

    fn copy_within(&self, epoch: u64, in_flight: &InFlight) {
        let comm = &self.life.comm;
        trace::within(comm, &self.life.name, epoch).in_scope(|| {
            // SAFETY: `Local::new` has checked the operations against the fields: they read owned cells and write halo
            // cells, in memory that the exchange in flight holds. No guard is held (`State::begin_flight`), and the caller of
            // `Field::from_raw` leaves these cells alone until the wait. The claim keeps other threads away.
            unsafe { host::copy(&in_flight.set().within, as_sources(in_flight.bases()), in_flight.bases()) }
        });
    }
}
