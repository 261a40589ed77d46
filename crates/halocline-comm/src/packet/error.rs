//! Errors of packets.

use super::header::HeaderError;
use crate::error::CommError;
use crate::mappings::MappingError;
use crate::memory_resource::MemoryError;
use halocline_device::DeviceError;

/// Why a packet was not sent or not received.
///
/// ```
/// use halocline_comm::Communicator;
/// use halocline_comm::memory_resource::{HostMemory, Limited};
/// use halocline_comm::packet::{Packet, PacketError};
/// use halocline_comm::sparse::{SparseAlltoall, SparseError};
/// use std::sync::Arc;
///
/// // Rank 1 has 100 bytes of memory for what it receives.
/// let rank = |comm: Communicator| -> Result<(), SparseError> {
///     let memory = Arc::new(Limited::new(Arc::new(HostMemory::of(&comm)), 100));
///     let (sources, destinations): (&[usize], &[usize]) = if comm.rank() == 0 { (&[], &[1]) } else { (&[0], &[]) };
///     let exchange = SparseAlltoall::new(&comm, sources, destinations, memory)?;
///     if comm.rank() == 0 {
///         exchange.insert(1, Packet::new(Vec::new(), Some(vec![0; 1 << 20].into())))?;
///     }
///     exchange.finish_and_wait()
/// };
/// let ended: Vec<_> = std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().expect("no panic")).collect()
/// });
/// let Err(SparseError::Packet(PacketError::Memory { from, bytes, .. })) = &ended[1] else { panic!("{ended:?}") };
/// assert_eq!((*from, *bytes), (0, 1 << 20));
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Too much metadata.
    #[error(
        "a packet for rank {to} has {found} bytes of metadata, it can have {most}; put them into the payload"
    )]
    Metadata {
        /// The receiver.
        to: usize,
        /// Bytes of metadata.
        found: usize,
        /// The most bytes.
        most: usize,
    },
    /// No memory for a payload.
    #[error("no memory for the {bytes} bytes of a packet of rank {from}: {error}")]
    Memory {
        /// The sender, this rank for a copy that it needs for sending.
        from: usize,
        /// Bytes of the payload.
        bytes: u64,
        /// The error of the memory resource.
        error: MemoryError,
    },
    /// The receiver has failed.
    #[error("rank {to} has refused the {bytes} bytes of a packet of rank {from}: {why}")]
    Refused {
        /// The receiver.
        to: usize,
        /// The sender: this rank.
        from: usize,
        /// Bytes of the payload.
        bytes: u64,
        /// The receiver's error.
        why: String,
    },
    /// A message that no rank of this library sends.
    #[error("rank {from} sent a malformed {what}: {error}; run the same version of Halocline on all ranks")]
    Malformed {
        /// The sender.
        from: usize,
        /// The expected message.
        what: &'static str,
        /// What is wrong with it.
        error: HeaderError,
    },
    /// A payload message of another length than its header says.
    #[error(
        "rank {from} sent {found} bytes of a payload where its header announced {announced}; run the same version of Halocline \
         on all ranks"
    )]
    Length {
        /// The sender.
        from: usize,
        /// Bytes announced.
        announced: u64,
        /// Bytes received.
        found: u64,
    },
    /// Memory of the other rank cannot be used.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// A device has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An error of the communicator.
    #[error(transparent)]
    Comm(#[from] CommError),
}

halocline_plan::debug_as_text!(PacketError);

impl PacketError {
    /// Whether this rank alone is the cause: no failure of another rank can lie behind the error.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Metadata { .. } | Self::Memory { .. })
    }
}
