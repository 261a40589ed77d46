//! Errors of a sparse all-to-all.

use crate::error::CommError;
use crate::packet::{Failure, HeaderError, PacketError};
use std::fmt;
use std::time::Duration;

/// The role of a rank in a sparse all-to-all.
///
/// ```
/// use halocline_comm::Communicator;
/// use halocline_comm::memory_resource::HostMemory;
/// use halocline_comm::sparse::{Role, SparseAlltoall, SparseError};
/// use std::sync::Arc;
///
/// let comm = Communicator::single();
/// let memory = Arc::new(HostMemory::of(&comm));
/// let Err(error) = SparseAlltoall::new(&comm, &[], &[0], memory) else { panic!("rank 0 names itself") };
/// assert!(matches!(error, SparseError::Itself { rank: 0, role: Role::Destination }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It sends to this rank.
    Source,
    /// This rank sends to it.
    Destination,
}

impl Role {
    /// The role of the other rank.
    fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
        })
    }
}

/// Why a sparse all-to-all has failed, or refuses a call.
///
/// ```
/// use halocline_comm::Communicator;
/// use halocline_comm::memory_resource::HostMemory;
/// use halocline_comm::packet::Packet;
/// use halocline_comm::sparse::{SparseAlltoall, SparseError};
/// use std::sync::Arc;
///
/// let comm = Communicator::single();
/// let exchange = SparseAlltoall::new(&comm, &[], &[], Arc::new(HostMemory::of(&comm)))?;
/// let Err(error) = exchange.insert(3, Packet::default()) else { panic!("rank 3 is no destination") };
/// let SparseError::NotNamed { peer, known, .. } = error else { panic!("{error}") };
/// assert_eq!((peer, known), (3, vec![]));
/// exchange.finish_and_wait()?;
/// # Ok::<(), SparseError>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SparseError {
    /// A rank names itself.
    #[error("rank {rank} names itself as a {role}; keep its own packets instead of sending them")]
    Itself {
        /// The rank.
        rank: usize,
        /// As what.
        role: Role,
    },
    /// A rank is named twice.
    #[error("rank {peer} is named as a {role} twice; name each rank once, several packets may go to it")]
    Duplicate {
        /// The rank.
        peer: usize,
        /// As what.
        role: Role,
    },
    /// A rank is named that does not exist.
    #[error(
        "rank {peer} is named as a {role}, but the communicator has ranks 0 to {}; name only these",
        size - 1
    )]
    NoSuchPeer {
        /// The rank.
        peer: usize,
        /// As what.
        role: Role,
        /// Ranks in the communicator.
        size: usize,
    },
    /// A rank that is no source or destination of this operation.
    #[error(
        "rank {peer} is no {role} of this operation, which has {known:?}; name it when the operation is made"
    )]
    NotNamed {
        /// The rank.
        peer: usize,
        /// As what it was used.
        role: Role,
        /// The sources or destinations.
        known: Vec<usize>,
    },
    /// A packet after the last one.
    #[error(
        "a packet for rank {destination} was inserted after the operation was finished; insert all packets before"
    )]
    Finished {
        /// The destination.
        destination: usize,
    },
    /// A wait before the last packet.
    #[error("the operation waits for its own packets; finish it before waiting for it, also without packets")]
    NotFinished,
    /// Packets were asked for too early.
    #[error("the operation is not complete, it waits for {missing}; wait for it before extracting packets")]
    NotComplete {
        /// What it waits for.
        missing: String,
    },
    /// The sets of two ranks contradict each other.
    #[error(
        "mismatched sets: rank {rank} names rank {peer} as a {role}, but rank {peer} does not name rank {rank} as a {}; pass \
         sets that match on all ranks, or let them be discovered",
        role.other()
    )]
    Mismatch {
        /// The rank that names the other.
        rank: usize,
        /// The rank that does not.
        peer: usize,
        /// As what.
        role: Role,
    },
    /// Another rank has failed first.
    #[error("rank {rank} has given up the operation: {why}")]
    Aborted {
        /// The rank.
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
    /// The operation was dropped before its last packet.
    #[error("the operation was dropped before it was finished; finish it on all ranks, also without packets")]
    Dropped,
    /// The deadline has passed.
    #[error(
        "rank {waiting} has waited {after:?} in a sparse all-to-all for {missing}; its deadline has passed; finish \
         the operation on all ranks, or raise the deadline"
    )]
    Deadline {
        /// This rank.
        waiting: usize,
        /// How long.
        after: Duration,
        /// What it waited for.
        missing: String,
    },
    /// A message that no rank of this library sends.
    #[error(
        "rank {from} sent a malformed message of a sparse all-to-all: {error}; run the same version of Halocline on all ranks"
    )]
    Malformed {
        /// The sender.
        from: usize,
        /// What is wrong with it.
        error: HeaderError,
    },
    /// A packet was not sent or not received.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// An error of the communicator.
    #[error(transparent)]
    Comm(#[from] CommError),
}

halocline_plan::debug_as_text!(SparseError);

impl SparseError {
    /// The message to the other ranks about this error of `rank`.
    pub(super) fn failure(&self, rank: usize) -> Failure {
        match self {
            Self::Aborted { rank, why } => Failure { rank: *rank, why: why.clone(), is_refusal: false },
            Self::RefusedElsewhere { rank, why } => {
                Failure { rank: *rank, why: why.clone(), is_refusal: true }
            }
            own => {
                let is_refusal =
                    matches!(own, Self::Itself { .. } | Self::Duplicate { .. } | Self::NoSuchPeer { .. });
                Failure { rank, why: own.to_string(), is_refusal }
            }
        }
    }
}

impl From<Failure> for SparseError {
    fn from(Failure { rank, why, is_refusal }: Failure) -> Self {
        if is_refusal { Self::RefusedElsewhere { rank, why } } else { Self::Aborted { rank, why } }
    }
}
