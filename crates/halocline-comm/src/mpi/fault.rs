//! The behaviour of an MPI transport after a failure of MPI.

use super::{LOST, MpiError, PRESENT, Shared, runtime};
use crate::error::CommError;
use crate::shm::ShmTransport;
use crate::transport::{PeerState, Transport};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Shared {
    /// After a failure that one rank of a node has found, none of them calls MPI_Finalize, which would wait
    /// for the failed rank.
    pub(super) fn note_failure(&self, shm: &ShmTransport) {
        if self.fault.get().is_some_and(|fault| *fault != MpiError::Finalized) || shm.has_failed() {
            shm.fail();
            runtime::never_finalize();
        }
    }

    /// A rank of this node that has died.
    fn dead_on_node(&self) -> Option<usize> {
        let is_dead =
            |&rank: &usize| self.on_node(rank).is_some_and(|(shm, slot)| shm.state(slot) == PeerState::Dead);
        (0..self.slots.len()).find(is_dead)
    }

    /// The failure behind an error of MPI, which fails where a rank has died.
    pub(super) fn cause_of(&self, error: &MpiError) -> CommError {
        match self.dead_on_node().filter(|_| *error != MpiError::Finalized) {
            Some(rank) => CommError::Died { rank, waiting: self.rank, what: "MPI".to_owned() },
            None => error.clone().into(),
        }
    }

    /// MPI has failed, maybe because a rank of this node has died whose death is not known yet: gives the kernel the time to report it.
    fn await_report_of_death(&self) {
        let until = Instant::now() + Duration::from_millis(100);
        while self.shm.is_some() && self.dead_on_node().is_none() && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// MPI cannot be used any more: ranks that are reached by MPI count as lost.
    pub(super) fn break_down(&self, error: MpiError) {
        if error != MpiError::Finalized && self.fault.get().is_none() {
            self.await_report_of_death();
        }
        if self.fault.set(error.clone()).is_ok() {
            if error != MpiError::Finalized {
                tracing::warn!("rank {}: {error}", self.rank);
                runtime::never_finalize();
            }
            for state in &self.gone {
                // A rank that has left stays in that state.
                let _ = state.compare_exchange(PRESENT, LOST, Ordering::AcqRel, Ordering::Relaxed);
            }
            self.departures.fetch_add(1, Ordering::Release);
            self.own_bell().changed(&*self.host);
            self.own_bell().demand(&*self.host);
        }
    }
}
