//! A series of rounds that either side may end.

use super::engine::{Owner, Series};
use super::{NeighborError, Packet, Round, Side, Sides};
use std::sync::Arc;

/// What goes one way in a round.
#[derive(Debug, Default)]
pub enum Turn {
    /// A packet.
    Packet(Packet),
    /// No packet.
    #[default]
    Nothing,
    /// The sender sends nothing any more in this session.
    Last,
}

impl Turn {
    /// The packet, if it is one.
    pub fn packet(self) -> Option<Packet> {
        match self {
            Self::Packet(packet) => Some(packet),
            Self::Nothing | Self::Last => None,
        }
    }
}

/// A series of rounds of one operation. Each direction of each link ends on its own, with [`Turn::Last`]; then no header goes that
/// way any more. Where a side does not exist, or has ended, a round has [`Turn::Last`] from it.
///
/// The session is over once all directions have ended ([`Session::is_over`]); then the id can be used again.
pub struct Session {
    owner: Arc<Owner>,
    id: u32,
    epoch: u64,
    next: u64,
    /// Whether this rank has sent its last packet to a side.
    sent: Sides<bool>,
    /// Whether a side has sent its last packet.
    received: Sides<bool>,
}

impl Session {
    pub(super) fn open(owner: &Arc<Owner>, id: u32) -> Result<Self, NeighborError> {
        let epoch = owner.shared.open_session(id)?;
        let has_itself = owner.shared.is_own_neighbor();
        let ended = owner.shared.neighbors.map(|neighbor| neighbor.is_none() && !has_itself);
        Ok(Self { owner: Arc::clone(owner), id, epoch, next: 0, sent: ended, received: ended })
    }

    /// Exchanges one round. Blocks until the neighbours that have not ended have sent theirs.
    pub fn round(&mut self, turns: Sides<Turn>) -> Result<Sides<Turn>, NeighborError> {
        let shared = &self.owner.shared;
        for side in Side::BOTH {
            let (id, is_packet) = (self.id, matches!(turns.get(side), Turn::Packet(_)));
            if is_packet && *self.sent.get(side) {
                return Err(match shared.neighbors.get(side) {
                    Some(_) => NeighborError::Finished { id, side },
                    None => shared.no_neighbor(side),
                });
            }
        }
        let ends = Sides { left: matches!(turns.left, Turn::Last), right: matches!(turns.right, Turn::Last) };
        let series = Series::Session {
            epoch: self.epoch,
            round: self.next,
            sends: self.sent.map(|ended| !ended),
            receives: self.received.map(|ended| !ended),
        };
        let core = shared.start(self.id, turns, series)?;
        self.next += 1;
        let mut came = Round::new(shared, core).wait_turns()?;
        for side in Side::BOTH {
            if *self.received.get(side) {
                *came.get_mut(side) = Turn::Last;
            }
            *self.sent.get_mut(side) |= *ends.get(side);
            *self.received.get_mut(side) |= matches!(came.get(side), Turn::Last);
        }
        Ok(came)
    }

    /// Whether all directions have ended.
    pub fn is_over(&self) -> bool {
        self.sent.left && self.sent.right && self.received.left && self.received.right
    }

    /// Ends what this rank sends, and receives until the neighbours have ended, too; what they still send is dropped.
    pub fn finish(mut self) -> Result<(), NeighborError> {
        while !self.is_over() {
            self.round(Sides { left: Turn::Last, right: Turn::Last })?;
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let is_cut = self.next > 0 && !self.is_over();
        self.owner.shared.close_session(self.id, is_cut);
    }
}
