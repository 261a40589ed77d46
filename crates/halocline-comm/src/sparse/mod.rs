//! Sparse all-to-all: each rank sends any number of packets to a few ranks.
//!
//! ```
//! use halocline_comm::memory_resource::HostMemory;
//! use halocline_comm::packet::Packet;
//! use halocline_comm::sparse::{SparseAlltoall, SparseError};
//! use halocline_comm::Communicator;
//! use std::sync::Arc;
//!
//! // Each rank sends to the next one.
//! let rank = |comm: Communicator| -> Result<(), SparseError> {
//!     let (rank, size) = (comm.rank(), comm.size());
//!     let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
//!     let memory = Arc::new(HostMemory::of(&comm));
//!     let exchange = SparseAlltoall::new(&comm, &[last], &[next], memory)?;
//!     for part in 0..3u8 {
//!         exchange.insert(next, Packet::new(vec![part], Some(vec![rank as u8; 1000].into())))?;
//!     }
//!     exchange.finish_and_wait()?;
//!     let packets = exchange.extract(last)?;
//!     let order: Vec<u8> = packets.iter().map(|packet| packet.metadata[0]).collect();
//!     assert_eq!(order, [0, 1, 2]);
//!     Ok(())
//! };
//! std::thread::scope(|threads| {
//!     let ranks = Communicator::threads(3).into_iter().map(|comm| threads.spawn(move || rank(comm)));
//!     ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap().unwrap());
//! });
//! ```

mod control;
mod discovery;
mod engine;
mod error;
mod future;
#[cfg(fuzzing)]
pub mod fuzz;
mod queues;
mod registry;
mod shared;
#[cfg(test)]
mod tests;

pub use crate::packet::Traffic;
pub use error::{Role, SparseError};
pub use future::Completion;

use crate::communicator::Communicator;
use crate::memory_resource::MemoryResource;
use crate::packet::Packet;
use shared::Shared;
use std::sync::Arc;

/// A sparse all-to-all in progress. One-shot: make a new one for each exchange.
///
/// Packets from one rank to another arrive in the order of their insertion, also where the content of an earlier one is ready
/// later. Nothing blocks but [`SparseAlltoall::wait`] and [`SparseAlltoall::finish_and_wait`]. Until this rank has finished, its calls carry
/// the operation on; then the progress thread does. All methods may be called from several threads.
///
/// A failure is final, and reaches all ranks that are named here: each call then returns it. Dropping the operation never
/// blocks. If it is finished, its packets still arrive at their destinations; otherwise the other ranks get
/// [`SparseError::Aborted`].
///
/// ```
/// use halocline_comm::memory_resource::HostMemory;
/// use halocline_comm::packet::Packet;
/// use halocline_comm::sparse::{SparseAlltoall, SparseError};
/// use halocline_comm::Communicator;
/// use std::sync::Arc;
///
/// // Both ranks send to the other one. No rank has to know its sources.
/// let rank = |comm: Communicator| -> Result<(), SparseError> {
///     let peer = 1 - comm.rank();
///     let exchange = SparseAlltoall::discover(&comm, &[peer], Arc::new(HostMemory::of(&comm)))?;
///     exchange.insert(peer, Packet::new(vec![comm.rank() as u8], None))?;
///     exchange.finish_and_wait()?;
///     assert_eq!(exchange.sources(), [peer]);
///     assert_eq!(exchange.extract(peer)?[0].metadata, [peer as u8]);
///     Ok(())
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), SparseError>(())
/// ```
pub struct SparseAlltoall {
    shared: Arc<Shared>,
}

impl SparseAlltoall {
    /// Begins the operation: `sources` send to this rank, this rank sends to `destinations`. The two sets need not be equal.
    /// Received payloads lie in memory of `resource`. Collective, all ranks call it in the same order; does not block.
    ///
    /// Sets that do not match those of other ranks are found out: [`SparseError::Mismatch`].
    pub fn new(
        comm: &Communicator,
        sources: &[usize],
        destinations: &[usize],
        resource: Arc<dyn MemoryResource>,
    ) -> Result<Self, SparseError> {
        comm.check()?;
        Ok(Self { shared: Shared::begin(comm, resource, sources, destinations)? })
    }

    /// The same where no rank knows its sources: they are discovered. Collective; blocks until all ranks have called it.
    ///
    /// If the destinations of one rank are wrong, it fails on all ranks: the others get [`SparseError::RefusedElsewhere`].
    pub fn discover(
        comm: &Communicator,
        destinations: &[usize],
        resource: Arc<dyn MemoryResource>,
    ) -> Result<Self, SparseError> {
        let known = shared::checked(destinations, Role::Destination, comm.rank(), comm.size());
        let sources = discovery::sources(comm, known)?;
        Self::new(comm, &sources, destinations, resource)
    }

    /// Takes part in [`SparseAlltoall::new`] of the other ranks where this rank cannot call it: its arguments are wrong, and `why` says
    /// what is. The ranks that name this one as a source or destination get [`SparseError::RefusedElsewhere`]; ranks that are not
    /// connected with it through the sets complete, since their packets are all there. Does not block.
    pub fn refuse(comm: &Communicator, why: &str) {
        if comm.check().is_ok() {
            Shared::refuse(comm, &refusal(comm, why));
        }
    }

    /// Takes part in [`SparseAlltoall::discover`] of the other ranks where this rank cannot call it. All of them get
    /// [`SparseError::RefusedElsewhere`] with `why`: without the destinations of this rank, no rank knows all its sources.
    /// Blocks as [`SparseAlltoall::discover`] does.
    pub fn refuse_discovery(comm: &Communicator, why: &str) {
        // The caller knows what is wrong.
        let _ = discovery::sources(comm, Err(refusal(comm, why)));
    }

    /// Adds a packet for a destination. Never blocks: the packet leaves once its content is ready and those before it have left.
    pub fn insert(&self, destination: usize, packet: Packet) -> Result<(), SparseError> {
        self.shared.insert(destination, packet)
    }

    /// Says that this rank inserts no more packets. From now on the progress thread carries the operation on while the program computes.
    /// Repeated calls do nothing.
    pub fn finish(&self) {
        self.shared.finish();
    }

    /// As [`SparseAlltoall::finish`] and [`SparseAlltoall::wait`], and faster: the progress thread is not asked in between.
    pub fn finish_and_wait(&self) -> Result<(), SparseError> {
        self.shared.finish_and_wait()
    }

    /// Waits until all packets of all sources are here and all memory of this rank's packets was given back. Fails if another
    /// rank has failed, died, or left, or misses the communicator's deadline.
    pub fn wait(&self) -> Result<(), SparseError> {
        self.shared.wait()
    }

    /// Whether [`SparseAlltoall::wait`] would return at once. Does what is possible; never blocks.
    pub fn is_complete(&self) -> Result<bool, SparseError> {
        self.shared.is_complete()
    }

    /// The same as a future. Dropping it changes nothing.
    pub fn completion(&self) -> Completion {
        Completion::new(Arc::clone(&self.shared))
    }

    /// Calls `callback` with the outcome, exactly once: when [`SparseAlltoall::is_complete`] has one, on the thread that finds it,
    /// which may be the progress thread; at once if it is there already. The callback must not block; a panic in it is logged.
    pub fn on_completion(&self, callback: impl FnOnce(Result<(), SparseError>) + Send + 'static) {
        self.shared.completion.on_completion(callback);
        self.shared.demand_if_due();
    }

    /// The packets of a source, in the order of their insertion there; once the operation is complete. They are given once.
    pub fn extract(&self, source: usize) -> Result<Vec<Packet>, SparseError> {
        self.shared.extract(source)
    }

    /// The sources, in ascending order.
    pub fn sources(&self) -> &[usize] {
        &self.shared.sources
    }

    /// The destinations, in ascending order.
    pub fn destinations(&self) -> &[usize] {
        &self.shared.destinations
    }

    /// Counts of the packets and bytes sent and received so far.
    pub fn statistics(&self) -> SparseStatistics {
        self.shared.statistics()
    }
}

fn refusal(comm: &Communicator, why: &str) -> SparseError {
    SparseError::RefusedElsewhere { rank: comm.rank(), why: why.to_owned() }
}

impl Drop for SparseAlltoall {
    fn drop(&mut self) {
        self.shared.detach();
    }
}

/// Statistics of a sparse all-to-all.
///
/// ```
/// use halocline_comm::memory_resource::HostMemory;
/// use halocline_comm::sparse::{SparseAlltoall, SparseError, SparseStatistics};
/// use halocline_comm::Communicator;
/// use std::sync::Arc;
///
/// let comm = Communicator::single();
/// let exchange = SparseAlltoall::new(&comm, &[], &[], Arc::new(HostMemory::of(&comm)))?;
/// exchange.finish_and_wait()?;
/// assert_eq!(exchange.statistics(), SparseStatistics::default());
/// # Ok::<(), SparseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SparseStatistics {
    /// Packets handed over by this rank.
    pub sent: Traffic,
    /// Packets received by this rank.
    pub received: Traffic,
}
