//! Errors for ranks that are gone.

use super::*;
use crate::inbox::Inbox;
use crate::mpi::MpiError;
use crate::{Cores, Doorbell};

/// The transport of a rank whose MPI has failed: no other rank can be reached any more.
struct Broken(Communicator);

impl Broken {
    fn inner(&self) -> &dyn Transport {
        self.0.link()
    }

    fn error() -> CommError {
        MpiError::Call { call: "MPI_Test", code: 15, text: "a peer is gone".to_owned() }.into()
    }
}

// SAFETY: everything is done by the transport of the inner communicator; this one only says less of peers.
unsafe impl Transport for Broken {
    fn post(&self, to: usize, tag: Tag, payload: Vec<u8>, with: &[Arc<Segment>]) -> Result<(), CommError> {
        self.inner().post(to, tag, payload, with)
    }

    fn name(&self) -> &'static str {
        "broken"
    }

    fn rank(&self) -> usize {
        self.inner().rank()
    }

    fn size(&self) -> usize {
        self.inner().size()
    }

    fn inbox(&self) -> &Inbox {
        self.inner().inbox()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        self.inner().allocate(bytes)
    }

    fn reach(&self, peer: usize, segment: &Segment) -> Result<(), String> {
        self.inner().reach(peer, segment)
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        (rank == self.rank()).then(|| self.own_bell())
    }

    fn leave(&self) {
        self.inner().leave();
    }

    fn own_bell(&self) -> &Doorbell {
        self.inner().own_bell()
    }

    /// As MPI's after a failure: of all ranks, this one too.
    fn state(&self, _rank: usize) -> PeerState {
        PeerState::Dead
    }

    fn departures(&self) -> u64 {
        self.inner().departures()
    }

    fn host(&self) -> &dyn Host {
        self.inner().host()
    }

    fn cores(&self) -> Cores {
        self.inner().cores()
    }

    fn broken(&self) -> Option<CommError> {
        Some(Self::error())
    }

    fn fault(&self) -> Option<CommError> {
        self.broken()
    }
}

#[test]
fn a_rank_whose_mpi_has_failed_names_that_failure_and_no_dead_rank() {
    for inner in Communicator::threads(3) {
        let comm = Communicator::over_transport(Arc::new(Broken(inner)));
        for from in [None, Some(0), Some(1)] {
            let error = comm.departed(from, "its part").expect("no rank can be reached");
            assert!(matches!(error, CommError::Mpi(MpiError::Call { .. })), "{error}");
        }
    }
}
