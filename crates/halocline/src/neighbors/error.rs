//! What can go wrong between neighbours.

use super::Side;
use halocline_comm::CommError;
use halocline_comm::packet::{Failure, PacketError};
use std::time::Duration;

/// Why a round has failed, or a call is refused. A failure of a round is final for its [`NeighborExchange`](super::NeighborExchange):
/// each later call returns it, and it reaches all ranks of the line.
///
/// ```
/// use halocline::neighbors::{NeighborError, NeighborExchange, Side, Sides};
/// use halocline::{Communicator, HostMemory, Packet};
/// use std::sync::Arc;
///
/// let comm = Communicator::single();
/// let line = NeighborExchange::line(&comm, Arc::new(HostMemory::of(&comm)))?;
/// let packets = Sides { left: None, right: Some(Packet::default()) };
/// let Err(error) = line.exchange(0, packets) else { panic!("a line of one rank") };
/// assert!(matches!(error, NeighborError::NoNeighbor { rank: 0, size: 1, side: Side::Right }));
/// # Ok::<(), NeighborError>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NeighborError {
    /// A packet for a neighbour that does not exist.
    #[error("rank {rank} of {size} has no neighbour to the {side}; send nothing there, or use a ring")]
    NoNeighbor {
        /// This rank.
        rank: usize,
        /// Ranks in the communicator.
        size: usize,
        /// Where.
        side: Side,
    },
    /// The last round of the operation is in flight, or its result was not taken, or a session of it goes on.
    #[error(
        "operation {id} has a round that was not taken, or a session; wait for it, or start one with another id"
    )]
    Busy {
        /// The operation.
        id: u32,
    },
    /// A session of the operation was dropped before its end, and goes on until the neighbours have ended theirs.
    #[error(
        "operation {id} has a session that was dropped and is still ending; open the next one with another id, or end each session \
         with a last turn to both sides"
    )]
    Ending {
        /// The operation.
        id: u32,
    },
    /// No round of a session was started.
    #[error("no round of operation {id} was started; start one, then wait for it")]
    NotStarted {
        /// The operation.
        id: u32,
    },
    /// The result was taken before.
    #[error("the result of this round of operation {id} was taken before; take it once, and keep it")]
    Taken {
        /// The operation.
        id: u32,
    },
    /// The round is in flight.
    #[error("this round of operation {id} is in flight; wait for it before its result is taken")]
    InFlight {
        /// The operation.
        id: u32,
    },
    /// A packet in a session after the last one of this side.
    #[error(
        "the session of operation {id} has sent its last packet to the {side}; send nothing \
         there, or open another session"
    )]
    Finished {
        /// The operation.
        id: u32,
        /// Where.
        side: Side,
    },
    /// More metadata than a packet may have.
    #[error(
        "the packet to the {side} has {bytes} bytes of metadata, and {most} is the most; send them as its payload"
    )]
    Metadata {
        /// Where.
        side: Side,
        /// Bytes.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// A neighbour has dropped its session before its end, or another rank beyond it has. Other operations go on.
    #[error(
        "rank {rank} has dropped its session of operation {id} before its end; end it with a last turn to both sides"
    )]
    SessionDropped {
        /// The neighbour.
        rank: usize,
        /// The operation.
        id: u32,
    },
    /// A neighbour is in another round, or in a session.
    #[error(
        "rank {from} sent {found} of operation {id} where rank {rank} expects {expected}; start the same rounds on both"
    )]
    OutOfStep {
        /// This rank.
        rank: usize,
        /// The neighbour.
        from: usize,
        /// The operation.
        id: u32,
        /// What came.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// Two neighbours have made different lines.
    #[error("rank {rank} has made {own}, its neighbour, rank {from}, {other}; make the same on all ranks")]
    Topology {
        /// This rank.
        rank: usize,
        /// What it has made.
        own: super::Topology,
        /// The neighbour.
        from: usize,
        /// What that has made.
        other: super::Topology,
    },
    /// A neighbour has dropped its end.
    #[error(
        "rank {rank} has dropped its neighbour exchange while rank {waiting} waits for operation {id}; start as many rounds on all \
         ranks"
    )]
    Dropped {
        /// The neighbour.
        rank: usize,
        /// This rank.
        waiting: usize,
        /// The operation.
        id: u32,
    },
    /// Another rank has failed first.
    #[error("rank {rank} has given up the neighbour exchange: {why}")]
    Aborted {
        /// The rank that failed first.
        rank: usize,
        /// Its error.
        why: String,
    },
    /// Another rank refused its arguments.
    #[error("rank {rank} refused: {why}")]
    RefusedElsewhere {
        /// The rank.
        rank: usize,
        /// Its error.
        why: String,
    },
    /// The deadline has passed.
    #[error(
        "rank {waiting} has waited {after:?} in operation {id} for {missing}; its deadline has passed; start the \
         same rounds on all ranks, or raise the deadline"
    )]
    Deadline {
        /// This rank.
        waiting: usize,
        /// The operation.
        id: u32,
        /// How long.
        after: Duration,
        /// Which ranks, and what for.
        missing: String,
    },
    /// A message that no rank of this library sends.
    #[error("rank {from} sent a malformed {what}; run the same version of Halocline on all ranks")]
    Malformed {
        /// The sender.
        from: usize,
        /// What it should be.
        what: &'static str,
    },
    /// A packet was not sent or not received.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// An error of the communicator.
    #[error(transparent)]
    Comm(#[from] CommError),
}

halocline_plan::debug_as_text!(NeighborError);

impl NeighborError {
    /// What this rank reports to the others of this error of `rank`.
    pub(super) fn failure(&self, rank: usize) -> Failure {
        match self {
            Self::Aborted { rank, why } => Failure { rank: *rank, why: why.clone(), is_refusal: false },
            Self::RefusedElsewhere { rank, why } => {
                Failure { rank: *rank, why: why.clone(), is_refusal: true }
            }
            own => Failure { rank, why: own.to_string(), is_refusal: false },
        }
    }
}

impl From<Failure> for NeighborError {
    fn from(Failure { rank, why, is_refusal }: Failure) -> Self {
        if is_refusal { Self::RefusedElsewhere { rank, why } } else { Self::Aborted { rank, why } }
    }
}
