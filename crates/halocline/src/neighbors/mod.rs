//! Exchange of packets between neighbours on a line of ranks.
//!
//! Each rank has a neighbour to the left (the rank before it) and one to the right. In a round, a rank sends each of them a
//! [`Packet`] or nothing, and gets what they send:
//!
//! ```
//! use halocline::neighbors::{NeighborError, NeighborExchange, Sides};
//! use halocline::{Communicator, HostMemory, Packet};
//! use std::sync::Arc;
//!
//! let comm = Communicator::init().map_err(NeighborError::from)?; // one rank here
//! let line = NeighborExchange::line(&comm, Arc::new(HostMemory::of(&comm)))?;
//!
//! let last_row = Packet::new(b"row 99".to_vec(), Some(vec![0; 4096].into()));
//! let to_right = (comm.rank() + 1 < comm.size()).then_some(last_row);
//! let came = line.exchange(0, Sides { left: None, right: to_right })?;
//! assert_eq!(came.left.is_some(), comm.rank() > 0);
//! # Ok::<(), NeighborError>(())
//! ```
//!
//! [`NeighborExchange::start`] does not block: its [`Round`] is waited for, awaited in a task, or calls back. Rounds of different
//! operations (`id`) are independent of each other. A [`Session`] is a series of rounds that either side may end.
//!
//! Method: in each round a header goes each way, also where there is no packet. The payload follows iff it has bytes, once the
//! receiver has memory for it. So a rank is at most one round ahead of a neighbour, and no rank sends more than two headers a
//! round, however many ranks there are. A failure travels outward from the rank that has it, to both sides.

mod ask;
mod control;
mod engine;
mod error;
mod failure;
#[cfg(fuzzing)]
pub mod fuzz;
mod link;
mod presence;
mod round;
mod session;
mod trace;
mod wait;

pub use error::NeighborError;
pub use halocline_comm::packet::Traffic;
pub use round::{Completed, Round};
pub use session::{Session, Turn};

use crate::Packet;
use engine::{Owner, Series, Shared};
use halocline_comm::Communicator;
use halocline_comm::memory_resource::MemoryResource;
use std::fmt;
use std::sync::Arc;

/// A direction on the line.
///
/// ```
/// use halocline::neighbors::{Side, Sides};
///
/// let rows = Sides { left: 2, right: 5 };
/// for side in Side::BOTH {
///     println!("{} rows come from the {side}", rows.get(side));
/// }
/// assert_eq!(rows.get(Side::Left.other()), &5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Towards rank 0.
    Left,
    /// Towards the last rank.
    Right,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Self; 2] = [Self::Left, Self::Right];

    /// The other side.
    pub fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "left",
            Self::Right => "right",
        })
    }
}

/// A value for each side.
///
/// ```
/// use halocline::neighbors::{Side, Sides};
///
/// let mut rows = Sides { left: 2, right: 5 };
/// *rows.get_mut(Side::Left) += 1;
/// assert_eq!(rows.map(|rows| rows * 100), Sides { left: 300, right: 500 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sides<T> {
    /// Of the neighbour to the left.
    pub left: T,
    /// Of the neighbour to the right.
    pub right: T,
}

impl<T> Sides<T> {
    /// The value of one side.
    pub fn get(&self, side: Side) -> &T {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }

    /// The value of one side.
    pub fn get_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    /// Another value for each side.
    pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> Sides<U> {
        Sides { left: f(self.left), right: f(self.right) }
    }
}

/// Whether the ends of the line are neighbours.
///
/// ```
/// use halocline::neighbors::{NeighborError, NeighborExchange, Sides, Topology};
/// use halocline::{Communicator, HostMemory};
/// use std::sync::Arc;
///
/// let comms = Communicator::threads(3);
/// let neighbors = |topology| -> Result<Vec<Sides<Option<usize>>>, NeighborError> {
///     let memory = |comm| Arc::new(HostMemory::of(comm));
///     let of = |comm| Ok(NeighborExchange::new(comm, topology, memory(comm))?.neighbors());
///     comms.iter().map(of).collect()
/// };
/// assert_eq!(neighbors(Topology::Line)?[0], Sides { left: None, right: Some(1) });
/// assert_eq!(neighbors(Topology::Ring)?[0], Sides { left: Some(2), right: Some(1) });
/// # Ok::<(), NeighborError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// Rank 0 has no left neighbour, the last rank no right one.
    Line,
    /// Rank 0 is the right neighbour of the last rank.
    Ring,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "a line",
            Self::Ring => "a ring",
        })
    }
}

impl Topology {
    fn neighbors(self, rank: usize, size: usize) -> Sides<Option<usize>> {
        match self {
            Self::Line => {
                Sides { left: rank.checked_sub(1), right: Some(rank + 1).filter(|&next| next < size) }
            }
            Self::Ring => Sides { left: Some((rank + size - 1) % size), right: Some((rank + 1) % size) },
        }
    }
}

/// The neighbours of a rank, and the rounds in flight with them. Its methods may be called from several threads.
///
/// Dropping it blocks nothing: rounds in flight go on until they are over. A neighbour that waits for a round which this rank has
/// not started gets [`NeighborError::Dropped`].
///
/// ```
/// use halocline::neighbors::{NeighborError, NeighborExchange, Sides};
/// use halocline::{Communicator, HostMemory, Packet};
/// use std::sync::Arc;
///
/// let comm = Communicator::single();
/// let ring = NeighborExchange::ring(&comm, Arc::new(HostMemory::of(&comm)))?;
/// let packet = Packet::new(b"rows".to_vec(), Some(vec![0; 4096].into()));
/// // The only rank of a ring is its own neighbour: what it sends to the right comes from the left.
/// let came = ring.exchange(0, Sides { left: None, right: Some(packet) })?;
/// assert_eq!(came.left.expect("a packet").metadata, b"rows");
/// assert!(came.right.is_none());
/// # Ok::<(), NeighborError>(())
/// ```
pub struct NeighborExchange {
    owner: Arc<Owner>,
}

impl NeighborExchange {
    /// The ranks as a line. Received payloads lie in memory of `resource`. Collective, all ranks call it in the same order; does
    /// not block. Rounds have the communicator's deadline.
    pub fn line(comm: &Communicator, resource: Arc<dyn MemoryResource>) -> Result<Self, NeighborError> {
        Self::new(comm, Topology::Line, resource)
    }

    /// The ranks as a ring, otherwise as [`NeighborExchange::line`]. A rank alone is its own neighbour on both sides: what it sends
    /// to the left comes from the right. Of two ranks each is the other's neighbour on both sides; the sides stay distinct.
    pub fn ring(comm: &Communicator, resource: Arc<dyn MemoryResource>) -> Result<Self, NeighborError> {
        Self::new(comm, Topology::Ring, resource)
    }

    /// As [`NeighborExchange::line`] or [`NeighborExchange::ring`].
    pub fn new(
        comm: &Communicator,
        topology: Topology,
        resource: Arc<dyn MemoryResource>,
    ) -> Result<Self, NeighborError> {
        Ok(Self { owner: Shared::begin(comm, topology, resource)? })
    }

    /// Takes part in [`NeighborExchange::new`] of the other ranks where this rank cannot call it: its arguments are wrong, and `why`
    /// says what is. Rounds of all other ranks fail with [`NeighborError::RefusedElsewhere`]. Does not block.
    pub fn refuse(comm: &Communicator, why: &str) {
        // A communicator that has failed tells the other ranks itself.
        let _ = Shared::refuse(comm, why);
    }

    /// Starts a round of operation `id`: sends what `packets` has for each side. Never blocks: a payload that its stream still
    /// writes leaves later. The neighbours start a round of the same id; ranks may start different ids in any order. An id can be
    /// used again once its round was taken.
    pub fn start(&self, id: u32, packets: Sides<Option<Packet>>) -> Result<Round, NeighborError> {
        let round = self.begin(id, packets)?;
        round.carry_on();
        Ok(round)
    }

    /// As [`NeighborExchange::start`], and waits for the packets of the neighbours. Blocks.
    pub fn exchange(
        &self,
        id: u32,
        packets: Sides<Option<Packet>>,
    ) -> Result<Sides<Option<Packet>>, NeighborError> {
        self.begin(id, packets)?.wait()
    }

    /// Starts a round that only its waits carry on.
    fn begin(&self, id: u32, packets: Sides<Option<Packet>>) -> Result<Round, NeighborError> {
        let shared = &self.owner.shared;
        let turns = packets.map(|packet| packet.map_or(Turn::Nothing, Turn::Packet));
        Ok(Round::new(shared, shared.start(id, turns, Series::OneShot)?))
    }

    /// A series of rounds of operation `id`. The neighbours open one, too. Does not communicate.
    pub fn session(&self, id: u32) -> Result<Session, NeighborError> {
        Session::open(&self.owner, id)
    }

    /// Gives up: all rounds of all ranks fail with [`NeighborError::Aborted`], which has this rank and the reason. Does not block.
    pub fn abort(&self, why: &str) {
        let (rank, why) = (self.owner.shared.comm().rank(), why.to_owned());
        self.owner.shared.fail(NeighborError::Aborted { rank, why });
    }

    /// The ranks to the left and to the right. A rank alone has none, also on a ring, where it sends to itself.
    pub fn neighbors(&self) -> Sides<Option<usize>> {
        self.owner.shared.neighbors
    }

    /// What was sent to other ranks and received from them so far.
    pub fn statistics(&self) -> NeighborStatistics {
        self.owner.shared.statistics()
    }
}

/// Statistics of a [`NeighborExchange`].
///
/// ```
/// use halocline::neighbors::{NeighborError, NeighborExchange, Sides};
/// use halocline::{Communicator, HostMemory, Packet};
/// use std::sync::Arc;
///
/// // Two ranks in one thread: `start` does not block.
/// let line = |comm: &Communicator| NeighborExchange::line(comm, Arc::new(HostMemory::of(comm)));
/// let comms = Communicator::threads(2);
/// let lines = [line(&comms[0])?, line(&comms[1])?];
/// let rows = Packet::new(b"rows".to_vec(), Some(vec![0; 4096].into()));
/// let first = lines[0].start(0, Sides { left: None, right: Some(rows) })?;
/// lines[1].start(0, Sides::default())?.wait()?;
/// first.wait()?;
///
/// let [sent, received] = [lines[0].statistics().sent, lines[1].statistics().received];
/// assert_eq!((sent.packets, sent.metadata, sent.host), (1, 4, 4096));
/// assert_eq!(sent, received);
/// # Ok::<(), NeighborError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NeighborStatistics {
    /// Rounds completed.
    pub rounds: u64,
    /// Sent by this rank.
    pub sent: Traffic,
    /// Received by this rank.
    pub received: Traffic,
}
