//! Packets: metadata and an optional payload buffer, from one rank to another, without blocking.
//!
//! The sparse all-to-all and the exchange between neighbours are built of these. A [`PacketSend`] and a [`PacketReceive`] are
//! state machines: their owner polls them from its waits and from the progress thread ([`Serve`](crate::Serve)), and rings
//! nothing. A packet is a header message (kind and words of the operation, lengths, metadata); the payload follows iff its
//! length is not 0:
//!
//! | payload | travels |
//! | --- | --- |
//! | at most 16 KiB of host memory | as a second message, at once; the receiver keeps the message if its resource adopts it |
//! | larger, and both ranks reach one memory | the receiver reserves memory, copies it from the sender's mapped memory, and replies |
//! | of a device, and the receiver's device reaches that memory | the same: the receiver's device copies it |
//! | of a device, in memory that nobody can map | the same, from a copy in memory of the device that can be mapped |
//! | larger, messages alone | the receiver reserves memory and replies; then it comes in parts of at most 1 GiB |
//! | of a device, messages alone | the same in parts of 8 MiB: one travels while the device copies the next one to the host |
//!
//! ```
//! use halocline_comm::memory_resource::HostMemory;
//! use halocline_comm::packet::{Packet, PacketContext, PacketReceive, PacketSend, PacketTag};
//! use halocline_comm::{Communicator, Endpoint};
//! use std::sync::Arc;
//!
//! # use halocline_comm::packet::PacketError;
//! let rank = |comm: Communicator| -> Result<(), PacketError> {
//!     let context = PacketContext::new(&comm, Arc::new(HostMemory::of(&comm)))?;
//!     let tag = PacketTag { operation: comm.begin(), channel: 0 };
//!     let peer = 1 - comm.rank();
//!     let packet = Packet::new(b"rows 0..3".to_vec(), Some(vec![comm.rank() as u8; 4].into()));
//!     let mut send = PacketSend::new(peer, tag, packet);
//!     let mut receive = None;
//!     let packet = comm.wait_for(Some(peer), "a packet", || {
//!         // Errors of a packet are kept apart from those of the communicator here.
//!         let mut step = || -> Result<Option<Packet>, PacketError> {
//!             if !send.poll(&context)? {
//!                 return Ok(None);
//!             }
//!             if receive.is_none() {
//!                 receive = PacketReceive::next(&context, peer, tag)?;
//!             }
//!             let Some(receive) = receive.as_mut() else { return Ok(None) };
//!             receive.poll(&context)?;
//!             Ok(receive.take())
//!         };
//!         Ok(step().transpose())
//!     })??;
//!     assert_eq!(packet.metadata, b"rows 0..3");
//!     assert_eq!(packet.payload.unwrap().bytes(), Some(&[peer as u8; 4][..]));
//!     Ok(())
//! };
//! std::thread::scope(|threads| {
//!     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
//!     ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap().unwrap());
//! });
//! ```

mod context;
mod copy;
mod error;
mod failure;
#[cfg(fuzzing)]
pub mod fuzz;
mod header;
mod parts;
mod receive;
mod send;
mod staged;
#[cfg(test)]
mod tests;

pub use context::PacketContext;
pub use error::PacketError;
pub use failure::Failure;
pub use header::HeaderError;
pub use receive::PacketReceive;
pub use send::PacketSend;

use crate::inbox::Tag;
use crate::memory_resource::{Buffer, MemoryKind};

/// Metadata and an optional payload. `Some` of an empty buffer is not `None`: the receiver gets the same.
///
/// ```
/// use halocline_comm::packet::Packet;
///
/// let values: Vec<u8> = [0.5_f64, 1.5].iter().flat_map(|value| value.to_le_bytes()).collect();
/// let packet = Packet::new(b"rows 0..2".to_vec(), Some(values.into()));
/// assert_eq!(packet.payload.map(|payload| payload.len()), Some(16));
///
/// // Metadata alone: no payload travels.
/// assert!(Packet::new(b"no rows".to_vec(), None).payload.is_none());
/// ```
#[derive(Debug, Default)]
pub struct Packet {
    /// Bytes that travel with the header: at most 1 GiB.
    pub metadata: Vec<u8>,
    /// The payload.
    pub payload: Option<Buffer>,
}

impl Packet {
    /// The most bytes of metadata.
    pub const MOST_METADATA: usize = 1 << 30;

    /// A packet.
    pub fn new(metadata: Vec<u8>, payload: Option<Buffer>) -> Self {
        Self { metadata, payload }
    }
}

/// The result of one step of a packet's state machine.
enum Step<State> {
    /// It goes on from this state at once.
    Next(State),
    /// It waits in this state.
    Wait(State),
}

/// Packets and their bytes in one direction.
///
/// ```
/// use halocline_comm::packet::{Packet, Traffic};
///
/// let mut sent = Traffic::default();
/// sent.add(&Packet::new(b"rows".to_vec(), Some(vec![0; 100].into())));
/// assert_eq!(sent, Traffic { packets: 1, metadata: 4, host: 100, ..Traffic::default() });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes of metadata.
    pub metadata: u64,
    /// Bytes of payloads in host memory.
    pub host: u64,
    /// Bytes of payloads in pinned host memory.
    pub pinned: u64,
    /// Bytes of payloads in device memory.
    pub device: u64,
}

impl Traffic {
    /// Counts a packet.
    pub fn add(&mut self, packet: &Packet) {
        self.packets += 1;
        self.metadata += packet.metadata.len() as u64;
        let Some(payload) = &packet.payload else { return };
        let bytes = match payload.kind() {
            MemoryKind::Device => &mut self.device,
            MemoryKind::Pinned => &mut self.pinned,
            MemoryKind::Host => &mut self.host,
        };
        *bytes += payload.len() as u64;
    }
}

/// The tag of packets: an operation ([`Endpoint::begin`](crate::Endpoint::begin)), and a stream of packets within it. Headers
/// of one channel arrive in the order in which they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PacketTag {
    /// The operation.
    pub operation: u64,
    /// The channel, below 2^59.
    pub channel: u64,
}

/// The lowest two bits of a round.
const HEADER: u64 = 0;
const PAYLOAD: u64 = 1;
const REPLY: u64 = 2;
const CONTROL: u64 = 3;

impl PacketTag {
    fn header(self) -> Tag {
        self.tag(self.channel, HEADER)
    }

    /// For the payload of one packet.
    fn payload(self, sequence: u64) -> Tag {
        self.tag(sequence, PAYLOAD)
    }

    /// For the replies to one packet.
    fn reply(self, sequence: u64) -> Tag {
        self.tag(sequence, REPLY)
    }

    /// For messages of the operation's own: no packet uses it.
    pub fn control(self) -> Tag {
        self.tag(self.channel, CONTROL)
    }

    fn tag(self, number: u64, part: u64) -> Tag {
        Tag { operation: self.operation, round: (number & (header::SEQUENCES - 1)) << 2 | part }
    }
}
