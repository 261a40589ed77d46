//! Errors of mapping and releasing.

use super::protocol::Target;
use crate::error::CommError;
use halocline_device::Address;
use halocline_device::remote::{Allocation, Refusal};
use std::time::Duration;

/// Why memory is not mapped, or not released.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// The memory cannot be exported, or the other side cannot open it. Stage its bytes.
    #[error(
        "the {bytes} bytes at {address:#x} cannot be mapped by rank {} for {}: {why}; if that cannot be changed, \
         stage its bytes through host memory",
        target.rank, target.device
    )]
    Refused {
        /// The first byte.
        address: Address,
        /// The number of bytes.
        bytes: u64,
        /// The target that should map it.
        target: Target,
        /// Why.
        why: Refusal,
    },
    /// A range that goes beyond the allocation in which it begins.
    #[error(
        "the {bytes} bytes at {address:#x} go beyond their allocation, {} bytes from {:#x}; give a range within one \
         allocation",
        within.bytes, within.base
    )]
    OutOfBounds {
        /// The first byte.
        address: Address,
        /// The number of bytes.
        bytes: u64,
        /// The allocation.
        within: Allocation,
    },
    /// Memory was freed while it was in use; the address has been reused.
    #[error(
        "the memory at {base:#x} was freed while {pins} bound exchanges or transfers use it, and {address:#x} is in new \
         memory; free those first"
    )]
    Stale {
        /// The address that was asked for.
        address: Address,
        /// Where the freed memory began.
        base: Address,
        /// The number of its uses.
        pins: usize,
    },
    /// Memory in use cannot be released.
    #[error("the memory at {address:#x} is used by {pins} bound exchanges or transfers; free those first")]
    InUse {
        /// The address.
        address: Address,
        /// The number of its uses.
        pins: usize,
    },
    /// Other ranks have not unmapped the memory in time: do not free it yet.
    #[error(
        "the memory at {address:#x} is still mapped by ranks {ranks:?} after {after:?}: they use it, or have \
         exchanges in flight beside which it cannot be closed; end these, then release it again before you free it"
    )]
    StillMapped {
        /// The address.
        address: Address,
        /// The ranks.
        ranks: Vec<usize>,
        /// How long this rank has waited.
        after: Duration,
    },
    /// The other rank is gone.
    #[error(
        "rank {rank} has died, has left the communicator, or has closed its mappings; keep its communicator until \
         all transfers are over"
    )]
    Gone {
        /// The rank.
        rank: usize,
    },
    /// The other rank is on another node.
    #[error(
        "rank {rank} shares no memory with this one: it is on another node, or the transport has only messages; send \
         the bytes in messages"
    )]
    Apart {
        /// The rank.
        rank: usize,
    },
    /// An unknown token, or one of another rank.
    #[error(
        "{token:#x} is no mapping of memory of rank {rank}; give a token that this rank has sent, while its memory \
         is pinned"
    )]
    NoMapping {
        /// The token.
        token: u64,
        /// The owner that was given.
        rank: usize,
    },
    /// Bytes beyond the end of a mapping.
    #[error(
        "{length} bytes from {offset} go beyond mapping {token:#x}, which has {bytes}; give a range within it"
    )]
    Beyond {
        /// The token.
        token: u64,
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
        /// The size of the mapping.
        bytes: u64,
    },
    /// An error of the communicator.
    #[error(transparent)]
    Comm(#[from] CommError),
}

halocline_plan::debug_as_text!(MappingError);
