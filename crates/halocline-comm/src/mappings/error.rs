//! What mapping and releasing can say went wrong.

use super::protocol::Target;
use crate::error::CommError;
use halocline_device::Address;
use halocline_device::remote::{Allocation, Refusal};
use std::time::Duration;

/// Why memory is not mapped, or not released.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// The memory cannot be exported, or the other side cannot open it. Its bytes are to be staged.
    #[error("the {bytes} bytes at {address:#x} cannot be mapped by rank {} for {}: {why}", target.rank, target.device)]
    Refused {
        /// The first byte.
        address: Address,
        /// How many.
        bytes: u64,
        /// Who should have mapped it.
        target: Target,
        /// Why.
        why: Refusal,
    },
    /// A range that goes beyond the allocation in which it begins.
    #[error("the {bytes} bytes at {address:#x} go beyond their allocation, {} bytes from {:#x}", within.bytes, within.base)]
    OutOfBounds {
        /// The first byte.
        address: Address,
        /// How many.
        bytes: u64,
        /// The allocation.
        within: Allocation,
    },
    /// Memory that was freed while it was in use: other memory lies there now.
    #[error(
        "the memory at {base:#x} was freed while {pins} bound exchanges or transfers use it, and {address:#x} is other \
         memory; drop those first"
    )]
    Stale {
        /// The address that was asked for.
        address: Address,
        /// Where the freed memory began.
        base: Address,
        /// By how many it is used.
        pins: usize,
    },
    /// Memory that is in use cannot be released.
    #[error("the memory at {address:#x} is used by {pins} bound exchanges or transfers; drop those first")]
    InUse {
        /// The address.
        address: Address,
        /// By how many.
        pins: usize,
    },
    /// Others have not unmapped in time: the memory is not to be freed yet.
    #[error(
        "the memory at {address:#x} is still mapped by ranks {ranks:?} after {after:?}: they use it, or have exchanges in flight beside which \
         it cannot be closed"
    )]
    StillMapped {
        /// The address.
        address: Address,
        /// By whom.
        ranks: Vec<usize>,
        /// How long this rank has waited.
        after: Duration,
    },
    /// The other rank is gone.
    #[error("rank {rank} is gone, has left the communicator, or takes no part in mappings any more")]
    Gone {
        /// Which.
        rank: usize,
    },
    /// The other rank is not of this node.
    #[error(
        "rank {rank} shares no memory with this one: it is of another node, or the transport has only messages"
    )]
    Apart {
        /// Which.
        rank: usize,
    },
    /// A token that means nothing here, or not from that rank.
    #[error("{token:#x} is no mapping of memory of rank {rank}")]
    NoMapping {
        /// The token.
        token: u64,
        /// Whose memory it should be.
        rank: usize,
    },
    /// Bytes beyond the end of a mapping.
    #[error("{length} bytes from {offset} go beyond mapping {token:#x}, which has {bytes}")]
    Beyond {
        /// The token.
        token: u64,
        /// The first byte.
        offset: u64,
        /// How many.
        length: u64,
        /// How many the mapping has.
        bytes: u64,
    },
    /// What the communicator says.
    #[error(transparent)]
    Comm(#[from] CommError),
}

halocline_plan::debug_as_text!(MappingError);
