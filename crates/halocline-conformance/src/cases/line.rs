//! A line of ranks that exchanges packets whose content every rank knows.

use crate::numbers::{Numbers, mix};
use crate::payloads::Payloads;
use crate::stage::Stage;
use crate::{Outcome, Trouble, ensure};
use halocline::neighbors::{NeighborError, NeighborExchange, Side, Sides, Topology};
use halocline::{MemoryResource, Packet};
use std::ops::Deref;
use std::sync::Arc;

/// A line of ranks, and memory for its payloads where the stage has its fields.
pub(super) struct Line {
    pub(super) exchange: NeighborExchange,
    pub(super) memory: Payloads,
    pub(super) rank: usize,
}

impl Deref for Line {
    type Target = NeighborExchange;

    fn deref(&self) -> &NeighborExchange {
        &self.exchange
    }
}

/// The content of a packet of a round from a rank to a side.
pub(super) fn content(rank: usize, to: Side, round: u64, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let seed = mix((rank as u64) << 32 | round << 1 | u64::from(to == Side::Left));
    let metadata = format!("round {round} of rank {rank} to the {to}").into_bytes();
    (metadata, Numbers::new(seed).bytes(bytes))
}

impl Line {
    pub(super) fn new(comm: &Stage<'_>, topology: Topology) -> Result<Self, Trouble> {
        Self::over(comm, topology, |resource| resource)
    }

    /// Received payloads lie in another resource that is made of the stage's.
    pub(super) fn over(
        comm: &Stage<'_>,
        topology: Topology,
        resource: impl FnOnce(Arc<dyn MemoryResource>) -> Arc<dyn MemoryResource>,
    ) -> Result<Self, Trouble> {
        let memory = Payloads::of(comm)?;
        let exchange = NeighborExchange::new(comm, topology, resource(memory.resource()))?;
        Ok(Self { exchange, memory, rank: comm.rank() })
    }

    /// The packet of a round to a side.
    pub(super) fn packet(&self, to: Side, round: u64, bytes: usize) -> Result<Packet, Trouble> {
        let (metadata, payload) = content(self.rank, to, round, bytes);
        Ok(Packet::new(metadata, Some(self.memory.make(&payload)?)))
    }

    /// A packet for each neighbour that exists.
    pub(super) fn packets(&self, round: u64, bytes: usize) -> Result<Sides<Option<Packet>>, Trouble> {
        let neighbors = self.neighbors();
        let to = |side: Side| neighbors.get(side).map(|_| self.packet(side, round, bytes)).transpose();
        Ok(Sides { left: to(Side::Left)?, right: to(Side::Right)? })
    }

    /// The same in memory of the host that no other rank can map.
    pub(super) fn private(&self, round: u64, bytes: usize) -> Sides<Option<Packet>> {
        let neighbors = self.neighbors();
        let to = |side: Side| {
            let (metadata, payload) = content(self.rank, side, round, bytes);
            neighbors.get(side).map(|_| Packet::new(metadata, Some(payload.into())))
        };
        Sides { left: to(Side::Left), right: to(Side::Right) }
    }

    /// Checks what came in a round.
    pub(super) fn check(&self, came: &Sides<Option<Packet>>, round: u64, bytes: usize) -> Outcome {
        for side in Side::BOTH {
            let expected = self.neighbors().get(side).map(|from| content(from, side.other(), round, bytes));
            let found = came.get(side).as_ref().map(|packet| -> Result<_, Trouble> {
                let payload = packet.payload.as_ref().map(|payload| self.memory.read(payload)).transpose()?;
                Ok((packet.metadata.clone(), payload.unwrap_or_default()))
            });
            let found = found.transpose()?;
            ensure!(
                found == expected,
                "from the {side} came {:?} instead of {:?}",
                found.as_ref().map(|(text, bytes)| (String::from_utf8_lossy(text), bytes.len())),
                expected.as_ref().map(|(text, bytes)| (String::from_utf8_lossy(text), bytes.len()))
            );
        }
        Ok(())
    }

    /// A round of packets for each neighbour.
    pub(super) fn round(&self, id: u32, round: u64, bytes: usize) -> Outcome {
        let came = self.exchange.exchange(id, self.packets(round, bytes)?)?;
        self.check(&came, round, bytes)
    }

    /// The error of the first round that fails: ranks further away learn of a failure in a later round.
    pub(super) fn failure(&self, id: u32) -> Option<NeighborError> {
        (0..).find_map(|_| self.exchange.exchange(id, Sides::default()).err())
    }
}
