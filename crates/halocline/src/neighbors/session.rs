//! A series of rounds that either side may end.

use super::engine::{Owner, Series, Shared};
use super::{Completed, NeighborError, Packet, Round, Side, Sides};
use halocline_comm::{Endpoint, Serve};
use std::sync::{Arc, Mutex, PoisonError};

/// What goes one way in a round.
///
/// ```
/// use halocline::Packet;
/// use halocline::neighbors::Turn;
///
/// let turn = Turn::Packet(Packet::new(b"rows".to_vec(), None));
/// assert_eq!(turn.packet().expect("a packet").metadata, b"rows");
/// // Nothing in this round; nothing in all later rounds of the session.
/// assert!(Turn::Nothing.packet().is_none() && Turn::Last.packet().is_none());
/// ```
#[derive(Debug, Default)]
pub enum Turn {
    /// A packet.
    Packet(Packet),
    /// No packet.
    #[default]
    Nothing,
    /// The sender sends nothing any more in this session.
    Last,
    /// As `Last`, of a session that was dropped before its end. [`Session::round`] gives it as an error.
    #[doc(hidden)]
    Dropped,
}

impl Turn {
    fn is_end(&self) -> bool {
        matches!(self, Self::Last | Self::Dropped)
    }

    /// The packet, if it is one.
    pub fn packet(self) -> Option<Packet> {
        match self {
            Self::Packet(packet) => Some(packet),
            Self::Nothing | Self::Last | Self::Dropped => None,
        }
    }
}

/// A series of rounds of one operation. Each direction of each link ends on its own, with [`Turn::Last`]. Headers go both ways until
/// both have ended, so that no rank is more than one round ahead of a neighbour. Where a side does not exist, or has ended, a round has
/// [`Turn::Last`] from it.
///
/// The session is over once all directions have ended ([`Session::is_over`]); then the id can be used again. If it is dropped before, the
/// neighbours to which this rank has not sent its last turn get [`NeighborError::SessionDropped`]; what they still send is dropped. Other
/// operations go on.
///
/// ```
/// use halocline::neighbors::{NeighborError, NeighborExchange, Sides, Turn};
/// use halocline::{Communicator, HostMemory, Packet};
/// use std::sync::Arc;
///
/// // Two ranks as a line: rank 0 sends three packets to the right, rank 1 receives until it has the last one.
/// let rank = |comm: Communicator| -> Result<(), NeighborError> {
///     let line = NeighborExchange::line(&comm, Arc::new(HostMemory::of(&comm)))?;
///     let mut session = line.session(0)?;
///     if comm.rank() == 0 {
///         for part in 0..3 {
///             let right = Turn::Packet(Packet::new(vec![part], None));
///             session.round(Sides { left: Turn::Last, right })?;
///         }
///         return session.finish();
///     }
///     let mut parts = Vec::new();
///     while let Turn::Packet(packet) = session.round(Sides { left: Turn::Nothing, right: Turn::Last })?.left {
///         parts.extend(packet.metadata);
///     }
///     assert_eq!(parts, [0, 1, 2]);
///     session.finish()
/// };
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), NeighborError>(())
/// ```
pub struct Session {
    shared: Arc<Shared>,
    /// None once the program has dropped the session: what is left of it does not keep the program's end of the exchange.
    owner: Option<Arc<Owner>>,
    id: u32,
    epoch: u64,
    next: u64,
    flight: Option<Flight>,
    /// Whether this rank has sent its last packet to a side.
    sent: Sides<bool>,
    /// Whether a side has sent its last packet.
    received: Sides<bool>,
}

/// The round in flight.
struct Flight {
    round: Round,
    /// Where it ends what this rank sends.
    ends: Sides<bool>,
}

impl Session {
    pub(super) fn open(owner: &Arc<Owner>, id: u32) -> Result<Self, NeighborError> {
        let epoch = owner.shared.open_session(id)?;
        let has_itself = owner.shared.is_own_neighbor();
        let ended = owner.shared.neighbors.map(|neighbor| neighbor.is_none() && !has_itself);
        let (shared, owner, flight) = (Arc::clone(&owner.shared), Some(Arc::clone(owner)), None);
        Ok(Self { shared, owner, id, epoch, next: 1, flight, sent: ended, received: ended })
    }

    /// Exchanges one round. Blocks until the neighbours that have not ended have sent theirs. After an interrupted wait the round is still
    /// in flight: [`Session::wait`] waits for it again.
    pub fn round(&mut self, turns: Sides<Turn>) -> Result<Sides<Turn>, NeighborError> {
        self.begin(turns)?;
        self.wait()
    }

    /// Starts a round. Never blocks. [`Session::wait`] or [`Session::completed`] follows.
    pub fn start(&mut self, turns: Sides<Turn>) -> Result<(), NeighborError> {
        self.begin(turns)?;
        self.flight.iter().for_each(|flight| flight.round.carry_on());
        Ok(())
    }

    fn begin(&mut self, mut turns: Sides<Turn>) -> Result<(), NeighborError> {
        let (shared, id) = (&self.shared, self.id);
        if let Err(refused) = self.check_turns(&turns) {
            shared.discard(turns);
            return Err(refused);
        }
        let ends = Sides { left: turns.left.is_end(), right: turns.right.is_end() };
        let mut goes_on = Sides::<bool>::default();
        for side in Side::BOTH {
            *goes_on.get_mut(side) = !(*self.sent.get(side) && *self.received.get(side));
            if *self.sent.get(side) {
                // The end was said before.
                *turns.get_mut(side) = Turn::Nothing;
            }
        }
        let series = Series::Session { epoch: self.epoch, round: self.next, goes_on };
        let core = shared.start(id, turns, series)?;
        self.next += 1;
        self.flight = Some(Flight { round: Round::new(shared, core), ends });
        Ok(())
    }

    fn check_turns(&self, turns: &Sides<Turn>) -> Result<(), NeighborError> {
        let (shared, id) = (&self.shared, self.id);
        if self.flight.is_some() {
            // A round of an exchange that has failed is never over.
            return Err(shared.failure().unwrap_or(NeighborError::Busy { id }));
        }
        let is_late = |side: &Side| matches!(turns.get(*side), Turn::Packet(_)) && *self.sent.get(*side);
        Side::BOTH.into_iter().find(is_late).map_or(Ok(()), |side| {
            Err(match shared.neighbors.get(side) {
                None if !shared.is_own_neighbor() => shared.no_neighbor(side),
                _ => NeighborError::Finished { id, side },
            })
        })
    }

    /// Waits for the round that was started, and takes what came. Blocks. Fails as [`Round::wait`]; an interrupted wait leaves
    /// the round in flight.
    pub fn wait(&mut self) -> Result<Sides<Turn>, NeighborError> {
        self.in_flight()?.wait_until_complete()?;
        self.take()
    }

    /// Whether [`Session::wait`] would return at once. Does what is possible; never blocks. Fails as it.
    pub fn is_complete(&self) -> Result<bool, NeighborError> {
        self.in_flight()?.is_complete()
    }

    fn in_flight(&self) -> Result<&Round, NeighborError> {
        let id = self.id;
        self.flight.as_ref().map(|flight| &flight.round).ok_or(match self.next {
            1 => NeighborError::NotStarted { id },
            _ => NeighborError::Taken { id },
        })
    }

    /// Resolves once the round that was started is over; [`Session::wait`] returns at once then. `None` without a round in flight.
    pub fn completed(&self) -> Option<Completed> {
        self.flight.as_ref().map(|flight| flight.round.completed())
    }

    /// Takes what came in a round that is over.
    fn take(&mut self) -> Result<Sides<Turn>, NeighborError> {
        let Some(Flight { round, ends }) = self.flight.take() else {
            return Err(NeighborError::Taken { id: self.id });
        };
        let (shared, mut dropped) = (&self.shared, None);
        let mut came = round.take_turns()?;
        for side in Side::BOTH {
            *self.sent.get_mut(side) |= *ends.get(side);
            match (*self.received.get(side), came.get(side)) {
                (true, Turn::Packet(_)) => return Err(shared.fail_malformed(side)),
                (true, _) => *came.get_mut(side) = Turn::Last,
                (false, turn) => *self.received.get_mut(side) = turn.is_end(),
            }
            if let (Turn::Dropped, Some(rank)) = (came.get(side), *shared.neighbors.get(side)) {
                dropped = Some(NeighborError::SessionDropped { rank, id: self.id });
            }
        }
        dropped.map_or(Ok(came), Err)
    }

    /// Whether all directions have ended.
    pub fn is_over(&self) -> bool {
        self.sent.left && self.sent.right && self.received.left && self.received.right
    }

    /// Ends what this rank sends, and receives until the neighbours have ended, too; what they still send is dropped. Blocks.
    pub fn finish(mut self) -> Result<(), NeighborError> {
        if self.flight.is_some() {
            self.wait()?;
        }
        while !self.is_over() {
            self.round(Sides { left: Turn::Last, right: Turn::Last })?;
        }
        Ok(())
    }

    /// Ends it without blocking, after it was dropped. True once the session is over, or the exchange has failed.
    fn wind_up(&mut self) -> bool {
        loop {
            let is_complete = self.flight.as_ref().map(|flight| flight.round.is_complete());
            let went_on = match is_complete {
                Some(Ok(false)) => return false,
                Some(Ok(true)) => self.take().map(drop),
                Some(Err(error)) => Err(error),
                // A dropped exchange tells the neighbours itself.
                None if self.is_over() || self.shared.is_detached() => return true,
                None => self.start(Sides { left: Turn::Dropped, right: Turn::Dropped }),
            };
            match went_on {
                Ok(()) | Err(NeighborError::SessionDropped { .. }) => {}
                Err(_) => return true,
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        let was_wound_up = self.owner.is_none();
        if was_wound_up || self.is_over() || shared.has_failed() || shared.comm().size() == 1 {
            return shared.close_session(self.id);
        }
        shared.drop_session(self.id);
        let ended = Sides { left: true, right: true };
        let flight = self.flight.take();
        let (sent, received) =
            (std::mem::replace(&mut self.sent, ended), std::mem::replace(&mut self.received, ended));
        let mut rest = Self {
            shared: Arc::clone(&shared),
            owner: None,
            id: self.id,
            epoch: self.epoch,
            next: self.next,
            flight,
            sent,
            received,
        };
        // Before the exchange may be dropped: the neighbours learn first that the session was.
        if !rest.wind_up() {
            shared.comm().defer_drop(Arc::new(Dropped(Mutex::new(Some(rest)))));
        }
    }
}

/// A session that the program has dropped before its end. The progress thread ends it.
struct Dropped(Mutex<Option<Session>>);

impl Serve for Dropped {
    fn serve(&self) {
        let mut rest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A failure ends it, too; the exchange has it.
        if rest.as_mut().is_some_and(Session::wind_up) {
            *rest = None;
        }
    }

    fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}
