//! What the threads of a rank share of a neighbour exchange. One lock, never held while a task, a callback or a wait runs.

use super::ask::Ask;
use super::control::Control;
use super::link::{Lingering, Link, Number, channel};
use super::round::Core;
use super::{NeighborError, NeighborStatistics, Side, Sides, Topology, Traffic, Turn, trace};
use crate::Packet;
use crate::lock::lock_yielding;
use halocline_comm::mappings::DeviceId;
use halocline_comm::memory_resource::{HostMemory, MemoryResource};
use halocline_comm::packet::{Failure, PacketContext};
use halocline_comm::{Call, Communicator, Endpoint, Serve};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(super) struct Shared {
    pub(super) context: PacketContext,
    pub(super) call: Call,
    pub(super) operation: u64,
    pub(super) neighbors: Sides<Option<usize>>,
    topology: Topology,
    pub(super) deadline: Option<Duration>,
    state: Mutex<State>,
}

/// Held by the handles of the program that can start rounds. The last one to be dropped tells the neighbours.
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
}

#[derive(Default)]
pub(super) struct State {
    ids: BTreeMap<u32, Id>,
    pub(super) active: Vec<Active>,
    pub(super) peers: Sides<Peer>,
    /// While a round waits for a neighbour to begin the exchange: when to compare what ranks have begun, and how long to wait then.
    pub(super) ask: Option<Ask>,
    /// Final.
    pub(super) failure: Option<NeighborError>,
    /// What is left of failed rounds.
    pub(super) lingering: Vec<Lingering>,
    /// No handle can start a round any more.
    pub(super) is_detached: bool,
    /// The neighbours know that this rank starts no round any more.
    pub(super) has_closed: bool,
    /// The neighbours know that this rank, which has failed, reads none of their memory any more.
    pub(super) has_ended: bool,
    statistics: NeighborStatistics,
}

/// An operation.
#[derive(Default)]
struct Id {
    /// Rounds outside of sessions, and sessions, so far.
    epoch: u64,
    /// Rounds so far, in sessions and outside.
    rounds: u64,
    /// The last round, until it is over and released.
    open: Option<Arc<Core>>,
    in_session: bool,
    /// The program has dropped the session, which goes on until its neighbours have ended theirs.
    is_ending: bool,
}

#[derive(Default)]
pub(super) struct Peer {
    /// Its device, once it is known whether it has one.
    pub(super) device: Option<Option<DeviceId>>,
    /// It starts no round any more; those in flight go on.
    pub(super) is_closed: bool,
    /// It has failed, and reads no memory of this rank any more.
    pub(super) has_ended: bool,
    /// It was notified that this rank waits for it to begin.
    pub(super) is_asked: bool,
}

/// A round in flight.
pub(super) struct Active {
    pub(super) core: Arc<Core>,
    pub(super) number: Number,
    pub(super) links: Sides<Link>,
    pub(super) begun: Duration,
    /// Every message wakes the progress thread.
    pub(super) is_armed: bool,
}

/// What a round is part of.
pub(super) enum Series {
    OneShot,
    Session {
        epoch: u64,
        round: u64,
        /// The sides that have not ended in both directions.
        goes_on: Sides<bool>,
    },
}

/// Rounds that have become complete, to be reported without the lock.
pub(super) type Reports = Vec<(Arc<Core>, Result<(), NeighborError>)>;

impl Shared {
    pub(super) fn begin(
        comm: &Communicator,
        topology: Topology,
        resource: Arc<dyn MemoryResource>,
    ) -> Result<Arc<Owner>, NeighborError> {
        let shared = Self::new(comm, topology, resource)?;
        if comm.size() > 1 {
            // First, so that a neighbour that has made something else learns what this rank has made, not only that it gave up.
            shared.tell_all(&Control::Hello { topology, device: shared.context.device() })?;
            comm.register(&shared);
        }
        Ok(Arc::new(Owner { shared }))
    }

    /// Takes part in [`Shared::begin`] of the other ranks, and gives up. The topology may be what is wrong: on a ring the ranks at
    /// the ends tell each other, too, and one that has made a line discards it.
    pub(super) fn refuse(comm: &Communicator, why: &str) -> Result<(), NeighborError> {
        let shared = Self::new(comm, Topology::Ring, Arc::new(HostMemory::of(comm)))?;
        shared.fail(NeighborError::RefusedElsewhere { rank: comm.rank(), why: why.to_owned() });
        Ok(())
    }

    fn new(
        comm: &Communicator,
        topology: Topology,
        resource: Arc<dyn MemoryResource>,
    ) -> Result<Arc<Self>, NeighborError> {
        comm.link().check()?;
        // Counted also where this rank fails: its later operations are those of the others.
        let call = Call::lasting(comm, "NeighborExchange");
        let operation = call.operation();
        let context = PacketContext::new(comm, resource)?;
        let neighbors = match (topology, comm.size()) {
            // A rank alone needs no message.
            (_, 1) => Sides::default(),
            (_, size) => topology.neighbors(comm.rank(), size),
        };
        let (deadline, state) = (comm.deadline(), Mutex::default());
        Ok(Arc::new(Self { context, call, operation, neighbors, topology, deadline, state }))
    }

    pub(super) fn comm(&self) -> &Communicator {
        self.context.comm()
    }

    pub(super) fn now(&self) -> Duration {
        self.comm().link().host().now()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock_yielding(&self.state, self.comm().link().host())
    }

    /// A rank alone on a ring is its own neighbour.
    pub(super) fn is_own_neighbor(&self) -> bool {
        self.topology == Topology::Ring && self.comm().size() == 1
    }

    pub(super) fn no_neighbor(&self, side: Side) -> NeighborError {
        NeighborError::NoNeighbor { rank: self.comm().rank(), size: self.comm().size(), side }
    }

    pub(super) fn statistics(&self) -> NeighborStatistics {
        self.lock().statistics
    }

    // --- starting -------------------------------------------------------------------------------------

    /// Starts a round.
    pub(super) fn start(
        &self,
        id: u32,
        mut turns: Sides<Turn>,
        series: Series,
    ) -> Result<Arc<Core>, NeighborError> {
        let started = self.try_start(id, &mut turns, &series);
        self.discard(turns);
        started
    }

    /// Drops packets that were refused.
    pub(super) fn discard(&self, turns: Sides<Turn>) {
        for turn in [turns.left, turns.right] {
            if let Turn::Packet(packet) = turn {
                self.context.discard(packet);
            }
        }
    }

    /// Takes the packets unless they are refused.
    fn try_start(
        &self,
        id: u32,
        turns: &mut Sides<Turn>,
        series: &Series,
    ) -> Result<Arc<Core>, NeighborError> {
        for side in Side::BOTH {
            self.check_turn(side, turns.get(side))?;
        }
        let core = {
            let mut state = self.lock();
            let number = state.number(id, series)?;
            let turns = std::mem::take(turns);
            let known = state.ids.entry(id).or_default();
            known.rounds += 1;
            let core = Core::new(id, known.rounds);
            known.open = Some(Arc::clone(&core));
            if self.comm().size() == 1 {
                core.put(self.alone(turns, series));
                state.statistics.rounds += 1;
                drop(state);
                core.completion.complete(Ok(()));
                return Ok(core);
            }
            count(&mut state.statistics.sent, &turns);
            let links = self.links(&number, turns, series);
            let (begun, is_armed) = (self.now(), false);
            state.active.push(Active { core: Arc::clone(&core), number, links, begun, is_armed });
            core
        };
        let _span = trace::exchange(self, &core);
        trace::flight(self, &core, false);
        self.advance();
        Ok(core)
    }

    fn check_turn(&self, side: Side, turn: &Turn) -> Result<(), NeighborError> {
        let Turn::Packet(packet) = turn else { return Ok(()) };
        let (bytes, most) = (packet.metadata.len(), Packet::MOST_METADATA);
        if self.neighbors.get(side).is_none() && !self.is_own_neighbor() {
            return Err(self.no_neighbor(side));
        }
        if bytes > most {
            return Err(NeighborError::Metadata { side, bytes, most });
        }
        Ok(())
    }

    /// The result of a round of one rank.
    fn alone(&self, turns: Sides<Turn>, series: &Series) -> Sides<Turn> {
        match (self.is_own_neighbor(), series) {
            // What goes to the right comes from the left.
            (true, _) => Sides { left: turns.right, right: turns.left },
            (false, Series::OneShot) => Sides::default(),
            (false, Series::Session { .. }) => Sides { left: Turn::Last, right: Turn::Last },
        }
    }

    fn links(&self, number: &Number, turns: Sides<Turn>, series: &Series) -> Sides<Link> {
        let begin = |side: Side, turn: Turn| match (self.neighbors.get(side), series) {
            (None, Series::OneShot) => Link::absent(side),
            (Some(_), Series::OneShot) => Link::begin(self, side, number, turn),
            (Some(_), Series::Session { goes_on, .. }) if *goes_on.get(side) => {
                Link::begin(self, side, number, turn)
            }
            (_, Series::Session { .. }) => Link::ended(side),
        };
        Sides { left: begin(Side::Left, turns.left), right: begin(Side::Right, turns.right) }
    }

    /// Opens a session: its epoch.
    pub(super) fn open_session(&self, id: u32) -> Result<u64, NeighborError> {
        let mut state = self.lock();
        let epoch = state.number(id, &Series::OneShot)?.epoch;
        state.ids.entry(id).or_default().in_session = true;
        Ok(epoch)
    }

    /// The id can be used again.
    pub(super) fn close_session(&self, id: u32) {
        let mut state = self.lock();
        let known = state.ids.entry(id).or_default();
        (known.in_session, known.is_ending) = (false, false);
    }

    /// The program has dropped the session before its end.
    pub(super) fn drop_session(&self, id: u32) {
        self.lock().ids.entry(id).or_default().is_ending = true;
    }

    /// Whether the program has dropped its end.
    pub(super) fn is_detached(&self) -> bool {
        self.lock().is_detached
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    pub(super) fn failure(&self) -> Option<NeighborError> {
        self.lock().failure.clone()
    }

    // --- progress -------------------------------------------------------------------------------------

    /// Does what is possible now. Never waits.
    pub(super) fn advance(&self) {
        if self.comm().size() == 1 {
            return;
        }
        let mut reports = Reports::new();
        {
            let mut state = self.lock();
            if state.failure.is_none()
                && let Err(error) = self.step(&mut state, &mut reports)
            {
                let cause = self.cause_of(&mut state, error);
                self.give_up(&mut state, cause, &mut reports);
            }
            self.linger(&mut state);
        }
        self.report(reports);
    }

    pub(super) fn report(&self, reports: Reports) {
        if reports.is_empty() {
            return;
        }
        for (core, outcome) in reports {
            trace::flight(self, &core, true);
            core.completion.complete(outcome);
            self.forget_released(&core);
        }
        // Other threads may wait for these rounds.
        let link = self.comm().link();
        link.own_bell().changed(link.host());
    }

    /// Frees a round that is over and that nobody holds: of its id only counts are kept.
    pub(super) fn forget_released(&self, core: &Arc<Core>) {
        if core.is_released() {
            let mut state = self.lock();
            let id = state.ids.get_mut(&core.id);
            let _freed = id.and_then(|id| id.open.take_if(|open| Arc::ptr_eq(open, core)));
        }
    }

    fn step(&self, state: &mut State, reports: &mut Reports) -> Result<(), NeighborError> {
        // Of this rank's own transport, whose peers may seem to be dead. Any thread may come here, also one that may not call MPI.
        self.comm().link().fault().map_or(Ok(()), Err)?;
        // Asked before the look: all messages of a rank that is gone are in the inbox then.
        let gone = self.gone(&state.peers);
        for side in Side::BOTH {
            self.look(&mut state.peers, side)?;
        }
        let mut at = 0;
        while let Some(active) = state.active.get_mut(at) {
            let mut is_over = true;
            for side in Side::BOTH {
                let device = state.peers.get(side).device;
                is_over &= active.links.get_mut(side).advance(self, &active.number, device)?;
            }
            if is_over {
                let mut active = state.active.remove(at);
                self.disarm(&mut active);
                let came = Sides { left: active.links.left.take(), right: active.links.right.take() };
                count(&mut state.statistics.received, &came);
                state.statistics.rounds += 1;
                active.core.put(came);
                reports.push((active.core, Ok(())));
            } else {
                at += 1;
            }
        }
        for side in Side::BOTH {
            self.check_present(state, side, *gone.get(side))?;
        }
        self.ask(state)?;
        self.check_deadlines(state)?;
        // Rounds in flight go on. A neighbour that waits for another one would wait for ever.
        let is_posted = |active: &Active| Side::BOTH.iter().all(|side| active.links.get(*side).is_posted());
        if state.is_detached
            && state.active.iter().all(is_posted)
            && !std::mem::replace(&mut state.has_closed, true)
        {
            self.tell_all(&Control::Closed)?;
        }
        Ok(())
    }

    /// Reads what a neighbour says about the exchange itself.
    pub(super) fn look(&self, peers: &mut Sides<Peer>, side: Side) -> Result<(), NeighborError> {
        let Some(from) = *self.neighbors.get(side) else { return Ok(()) };
        let tag = channel(self.operation, 0, side.other()).control();
        while let Some(message) = self.comm().link().inbox().take(tag, Some(from)) {
            let malformed = |_| NeighborError::Malformed { from, what: "message between neighbours" };
            match Control::decode(&message.payload).map_err(malformed)? {
                Control::Hello { topology: other, .. } if other != self.topology => {
                    let (rank, own) = (self.comm().rank(), self.topology);
                    return Err(NeighborError::Topology { rank, own, from, other });
                }
                Control::Hello { device, .. } => {
                    let peer = peers.get_mut(side);
                    peer.device = Some(device);
                    if std::mem::take(&mut peer.is_asked) {
                        self.call.retract(self.comm(), from);
                    }
                }
                Control::Abort(Failure { rank, .. }) if rank >= self.comm().size() => {
                    return Err(NeighborError::Malformed { from, what: "message between neighbours" });
                }
                Control::Abort(failure) => return Err(failure.into()),
                Control::Closed => peers.get_mut(side).is_closed = true,
                Control::Ended => peers.get_mut(side).has_ended = true,
            }
        }
        Ok(())
    }
}

impl State {
    /// The number of the next round of an operation, which begins now.
    fn number(&mut self, id: u32, series: &Series) -> Result<Number, NeighborError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let known = self.ids.entry(id).or_default();
        let is_open = known.open.as_ref().is_some_and(|core| !core.is_released());
        match series {
            Series::OneShot if known.is_ending => Err(NeighborError::Ending { id }),
            Series::OneShot if is_open || known.in_session => Err(NeighborError::Busy { id }),
            Series::OneShot => {
                known.epoch += 1;
                Ok(Number { id, epoch: known.epoch, round: 0 })
            }
            Series::Session { epoch, round, .. } => Ok(Number { id, epoch: *epoch, round: *round }),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.comm().size() == 1 {
            return;
        }
        shared.lock().is_detached = true;
        shared.advance();
        if !shared.is_over() {
            let served: Arc<dyn Serve> = Arc::clone(shared) as Arc<dyn Serve>;
            shared.comm().defer_drop(served);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.comm().link().inbox().forget(self.operation);
    }
}

fn count(traffic: &mut Traffic, turns: &Sides<Turn>) {
    for turn in [&turns.left, &turns.right] {
        if let Turn::Packet(packet) = turn {
            traffic.add(packet);
        }
    }
}
