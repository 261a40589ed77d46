//! What a round waits for, and whether it can still come.

use super::engine::{Active, Peer, Shared, State};
use super::link::Missing;
use super::{NeighborError, Side, Sides};
use halocline_comm::{CommError, Endpoint, PeerState};

impl Shared {
    /// The failure behind an error.
    pub(super) fn cause_of(&self, state: &mut State, error: NeighborError) -> NeighborError {
        let cause = self.cause_at_peers(state, error);
        // Where this rank itself has ended, its neighbours seem to have died or left, or do not take its packets any more.
        let link = self.comm().link();
        let absence = match &cause {
            NeighborError::Comm(CommError::Died { rank, .. }) => link.absence_of(*rank),
            NeighborError::Comm(CommError::Left { .. }) => link.ended(),
            NeighborError::Packet(error) if !error.is_own() => link.ended(),
            _ => None,
        };
        absence.map_or(cause, NeighborError::from)
    }

    /// The failure behind an error, as this rank sees its neighbours: memory of one that has failed or died is gone, too. A cause of this
    /// rank's own stays, although its neighbour may have answered it with a failure by now.
    fn cause_at_peers(&self, state: &mut State, error: NeighborError) -> NeighborError {
        if !matches!(&error, NeighborError::Packet(packet) if !packet.is_own()) {
            return error;
        }
        let gone = self.gone(&state.peers);
        self.comm().link().poll();
        let mut known = Side::BOTH.iter().map(|&side| {
            self.look(&mut state.peers, side)?;
            self.check_present(state, side, *gone.get(side))
        });
        known.find_map(Result::err).or_else(|| self.died(state, &gone)).unwrap_or(error)
    }

    /// The death of a neighbour, also where the round that has failed needs it no more: a packet that has failed waits for nothing.
    fn died(&self, state: &State, gone: &Sides<Option<PeerState>>) -> Option<NeighborError> {
        let side = Side::BOTH.into_iter().find(|&side| *gone.get(side) == Some(PeerState::Dead))?;
        let (rank, waiting) = ((*self.neighbors.get(side))?, self.comm().rank());
        let what = format!("operation {} of a neighbour exchange", state.active.first()?.number.id);
        Some(CommError::Died { rank, waiting, what }.into())
    }

    /// The neighbours that are gone, and how. A rank that has left the communicator is gone if it has never begun the exchange;
    /// otherwise it has said what it does.
    pub(super) fn gone(&self, peers: &Sides<Peer>) -> Sides<Option<PeerState>> {
        let link = self.comm().link();
        if link.departures() == 0 {
            return Sides::default();
        }
        let of_side = |side: Side| {
            let state = link.state((*self.neighbors.get(side))?);
            let has_begun = peers.get(side).device.is_some();
            (matches!(state, PeerState::Ended | PeerState::Dead) || state == PeerState::Left && !has_begun)
                .then_some(state)
        };
        Sides { left: of_side(Side::Left), right: of_side(Side::Right) }
    }

    /// Fails if a round waits for a neighbour that does not answer any more.
    pub(super) fn check_present(
        &self,
        state: &State,
        side: Side,
        gone: Option<PeerState>,
    ) -> Result<(), NeighborError> {
        let Some(rank) = *self.neighbors.get(side) else { return Ok(()) };
        let is_closed = state.peers.get(side).is_closed;
        if gone.is_none() && !is_closed {
            return Ok(());
        }
        let waits = |active: &&Active| {
            let link = active.links.get(side);
            if gone.is_some() { link.needs_neighbor() } else { link.expects_header() }
        };
        let Some(active) = state.active.iter().find(waits) else { return Ok(()) };
        let (waiting, id) = (self.comm().rank(), active.number.id);
        let what = format!("operation {id} of a neighbour exchange");
        match gone {
            Some(PeerState::Dead) => Err(CommError::Died { rank, waiting, what }.into()),
            _ if is_closed => Err(NeighborError::Dropped { rank, waiting, id }),
            _ => Err(CommError::Left { rank, waiting, what }.into()),
        }
    }

    pub(super) fn check_deadlines(&self, state: &State) -> Result<(), NeighborError> {
        let (Some(deadline), false) = (self.deadline, state.active.is_empty()) else { return Ok(()) };
        let now = self.now();
        let late = |active: &&Active| now.saturating_sub(active.begun) >= deadline;
        let Some(active) = state.active.iter().find(late) else { return Ok(()) };
        Err(NeighborError::Deadline {
            waiting: self.comm().rank(),
            id: active.number.id,
            after: now.saturating_sub(active.begun),
            missing: self.missing(active),
        })
    }

    /// What a round waits for, and which neighbour has to do it, or that this rank has to.
    pub(super) fn missing(&self, active: &Active) -> String {
        let of_side = |side: &Side| {
            let (rank, missing) = (self.neighbors.get(*side).as_ref()?, active.links.get(*side).missing()?);
            Some(match missing {
                Missing::OfNeighbor(what) => format!("rank {rank}, its {side} neighbour, {what}"),
                Missing::Own(what) => format!("{what} rank {rank}, its {side} neighbour"),
            })
        };
        Side::BOTH.iter().filter_map(of_side).collect::<Vec<_>>().join(", and ")
    }
}
