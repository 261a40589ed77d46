//! The state machine of one rank in a sparse all-to-all. One thread at a time drives it; it never waits.

use super::control::{Control, Hello};
use super::queues::{Incoming, Outgoing, Queued};
use super::registry::{self, Registry};
use super::shared::Shared;
use super::{Role, SparseError};
use crate::call::Call;
use crate::endpoint::Endpoint;
use crate::mappings::DeviceId;
use crate::packet::{Failure, HeaderError, PacketSend};
use crate::transport::PeerState;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The subject of waits, for errors.
const WHAT: &str = "its part of a sparse all-to-all";

pub(super) struct Engine {
    peers: BTreeMap<usize, Peer>,
    pub(super) outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    gone: BTreeSet<usize>,
    departures: u64,
    is_greeted: bool,
    /// When to ask the ranks whose hello is missing, and how long to wait then.
    ask: Option<(Duration, Duration)>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Complete,
    /// Failed; the others know. The second step: nothing is being copied here any more, and they know that.
    Failed,
    Closed,
}

/// A rank that is a source, a destination, or both.
#[derive(Default)]
struct Peer {
    is_source: bool,
    is_destination: bool,
    hello: Option<Hello>,
    /// Its device, as far as is known: that of its last operation until its hello comes.
    device: Option<Option<DeviceId>>,
    /// It was notified that this rank waits for its hello.
    is_asked: bool,
}

impl Engine {
    pub(super) fn new(sources: &[usize], destinations: &[usize], registry: &Registry) -> Self {
        let mut peers = BTreeMap::<usize, Peer>::new();
        sources.iter().for_each(|rank| peers.entry(*rank).or_default().is_source = true);
        destinations.iter().for_each(|rank| peers.entry(*rank).or_default().is_destination = true);
        peers.iter_mut().for_each(|(rank, peer)| peer.device = registry.device_of(*rank));
        Self {
            peers,
            outgoing: destinations.iter().copied().map(Outgoing::new).collect(),
            incoming: sources.iter().copied().map(Incoming::new).collect(),
            gone: BTreeSet::new(),
            departures: 0,
            is_greeted: false,
            ask: None,
            phase: Phase::Running,
        }
    }

    /// Does what is possible now. True if the operation has completed, has failed, or is over because of that.
    pub(super) fn step(&mut self, shared: &Shared) -> bool {
        let before = self.phase;
        self.note_departures(shared);
        shared.context.comm().link().poll();
        let advanced = match self.phase {
            Phase::Running => self.advance(shared),
            Phase::Complete | Phase::Closed if self.is_over() => Ok(()),
            _ => self.wind_up(shared),
        };
        if let Err(error) = advanced {
            let cause = self.cause_of(shared, error);
            self.fail(shared, cause);
            // Its peers may have nothing in flight.
            let _ = self.wind_up(shared);
        }
        self.phase != before || (before == Phase::Closed && self.is_over())
    }

    /// The failure behind an error: memory of a rank that has failed or died is gone, too. A cause of this rank's own stays,
    /// although a peer may have answered it with a failure by now.
    fn cause_of(&mut self, shared: &Shared, error: SparseError) -> SparseError {
        if !matches!(&error, SparseError::Packet(packet) if !packet.is_own()) {
            return error;
        }
        let comm = shared.context.comm();
        self.note_departures(shared);
        comm.link().poll();
        let reported = self.take_controls(shared).err();
        // A packet that has failed needs its source no more, although the source's death is the cause.
        let is_cause = |rank: &usize| self.needs(*rank) || comm.link().state(*rank) == PeerState::Dead;
        let cause = self.gone.iter().copied().find(is_cause);
        let died = || comm.departed(Some(cause?), WHAT);
        reported.or_else(|| Some(died()?.into())).unwrap_or(error)
    }

    pub(super) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Running | Phase::Failed => false,
            Phase::Complete | Phase::Closed => self.is_idle(),
        }
    }

    /// Whether no memory of this operation is in use by a transfer.
    fn is_idle(&self) -> bool {
        self.outgoing.iter().all(|out| out.flight.is_empty())
            && self.incoming.iter().all(|source| source.window.is_empty())
    }

    /// Whether a packet waits for a stream that writes its payload.
    pub(super) fn awaits_content(&self) -> bool {
        self.outgoing.iter().any(|out| !out.queue.is_empty())
    }

    /// When to look again although no message has come. `asks`: also to ask ranks that have not begun.
    pub(super) fn due(&self, now: Duration, asks: bool) -> Option<Duration> {
        let queued = self.outgoing.iter().filter_map(|out| out.queue.front());
        let sends = queued.map(|queued| &queued.send).chain(self.outgoing.iter().flat_map(|out| &out.flight));
        let receives = self.incoming.iter().flat_map(|source| &source.window);
        let receives = receives.filter_map(|receive| receive.due(now));
        let ask = self.ask.filter(|_| asks && self.phase == Phase::Running).map(|(at, _)| at);
        sends.filter_map(|send| send.due(now)).chain(receives).chain(ask).min()
    }

    /// Ranks that are gone; all their messages are in the inbox.
    fn note_departures(&mut self, shared: &Shared) {
        let link = shared.context.comm().link();
        let departures = link.departures();
        if departures != self.departures {
            self.departures = departures;
            let is_gone = |rank: &&usize| matches!(link.state(**rank), PeerState::Ended | PeerState::Dead);
            self.gone = self.peers.keys().filter(is_gone).copied().collect();
        }
    }

    fn advance(&mut self, shared: &Shared) -> Result<(), SparseError> {
        if !std::mem::replace(&mut self.is_greeted, true) {
            self.greet(shared)?;
        }
        let is_finished = self.take_inserts(shared);
        self.take_controls(shared)?;
        for out in &mut self.outgoing {
            let device = self.peers.get(&out.rank).and_then(|peer| peer.device);
            out.advance(shared, device)?;
        }
        for (index, source) in self.incoming.iter_mut().enumerate() {
            source.advance(shared, index)?;
        }
        let is_complete = is_finished
            && self.peers.values().all(|peer| peer.hello.is_some())
            && self.outgoing.iter().all(Outgoing::is_complete)
            && self.incoming.iter().all(Incoming::is_complete);
        if is_complete {
            self.phase = Phase::Complete;
            shared.outcome().is_complete = true;
            return Ok(());
        }
        self.ask(shared)?;
        match self.gone.iter().find(|rank| self.needs(**rank)) {
            Some(&rank) => {
                let comm = shared.context.comm();
                comm.departed(Some(rank), WHAT).map_or(Ok(()), |error| Err(error.into()))
            }
            None => Ok(()),
        }
    }

    /// Tells each peer what this rank names it as.
    fn greet(&self, shared: &Shared) -> Result<(), SparseError> {
        let device = shared.context.device();
        for (&rank, peer) in &self.peers {
            let Peer { is_source, is_destination, .. } = *peer;
            shared.post(rank, &Control::Hello(Hello { is_destination, is_source, device }))?;
        }
        Ok(())
    }

    /// Queues inserted packets. Whether there will be no more.
    fn take_inserts(&mut self, shared: &Shared) -> bool {
        let (packets, is_finished) = {
            let mut inserts = shared.inserts();
            (std::mem::take(&mut inserts.packets), inserts.is_finished)
        };
        if !packets.is_empty() {
            let sent = &mut shared.outcome().statistics.sent;
            packets.iter().for_each(|(_, packet)| sent.add(packet));
        }
        for (index, packet) in packets {
            self.outgoing[index].insert(shared, packet);
        }
        if is_finished {
            self.outgoing.iter_mut().for_each(|out| out.finish(shared));
        }
        is_finished
    }

    fn take_controls(&mut self, shared: &Shared) -> Result<(), SparseError> {
        let comm = shared.context.comm();
        while let Some(message) = comm.link().inbox().take(shared.tag.control(), None) {
            let from = message.source;
            let malformed = |error| SparseError::Malformed { from, error };
            match Control::decode(&message.payload).map_err(malformed)? {
                Control::Hello(hello) => self.greeted(shared, from, hello)?,
                Control::Abort(Failure { rank, .. }) if rank >= comm.size() => {
                    let error = HeaderError::Field { field: "rank", value: rank as u64 };
                    return Err(SparseError::Malformed { from, error });
                }
                Control::Abort(failure) if self.peers.contains_key(&from) => return Err(failure.into()),
                Control::Closed => self.closed(from),
                // It was asked before its hello came.
                Control::Over if self.peers.get(&from).is_some_and(|peer| peer.hello.is_none()) => {
                    self.greeted(shared, from, Hello::default())?;
                }
                Control::Over | Control::Abort(_) => {}
                Control::Taken(bytes) => {
                    let out = self.outgoing.iter_mut().find(|out| out.rank == from);
                    if !out.is_some_and(|out| out.taken(bytes)) {
                        let error = HeaderError::Field { field: "bytes that were taken", value: bytes };
                        return Err(SparseError::Malformed { from, error });
                    }
                }
            }
        }
        Ok(())
    }

    /// Compares what two ranks name each other as.
    fn greeted(&mut self, shared: &Shared, from: usize, hello: Hello) -> Result<(), SparseError> {
        let me = shared.context.comm().rank();
        let (is_source, is_destination) = match self.peers.get_mut(&from) {
            Some(peer) => {
                peer.hello = Some(hello);
                if peer.device.replace(hello.device) != Some(hello.device) {
                    shared.registry.note_device(from, hello.device);
                }
                if std::mem::take(&mut peer.is_asked) {
                    shared.call.retract(shared.context.comm(), from);
                }
                (peer.is_source, peer.is_destination)
            }
            None => {
                // It does not know yet that this rank does not name it.
                shared.post(from, &Control::Hello(Hello::default()))?;
                (false, false)
            }
        };
        let theirs = |role| SparseError::Mismatch { rank: from, peer: me, role };
        let mine = |role| SparseError::Mismatch { rank: me, peer: from, role };
        match (hello.is_destination, is_source, hello.is_source, is_destination) {
            (true, false, ..) => Err(theirs(Role::Destination)),
            (false, true, ..) => Err(mine(Role::Source)),
            (.., true, false) => Err(theirs(Role::Source)),
            (.., false, true) => Err(mine(Role::Destination)),
            _ => Ok(()),
        }
    }

    /// Asks ranks that have not begun for long whether the operation is over there, and compares what ranks have begun.
    fn ask(&mut self, shared: &Shared) -> Result<(), SparseError> {
        let comm = shared.context.comm();
        let silent = |peer: &Peer| peer.hello.is_none();
        if !self.peers.values().any(silent) {
            self.ask = None;
            return Ok(());
        }
        let now = comm.link().host().now();
        let (at, interval) = *self.ask.get_or_insert((now + registry::ASK.0, registry::ASK.0));
        if now >= at {
            let interval = registry::ASK.1.min(2 * interval);
            self.ask = Some((now + interval, interval));
            for (&rank, peer) in self.peers.iter_mut().filter(|(_, peer)| silent(peer)) {
                Registry::ask(comm, rank, shared.tag.operation, shared.number);
                shared.call.announce(comm, rank);
                peer.is_asked = true;
            }
            Call::check_lasting(comm)?;
        }
        Ok(())
    }

    /// Whether the operation cannot complete without a rank.
    fn needs(&self, rank: usize) -> bool {
        self.peers.get(&rank).is_some_and(|peer| peer.hello.is_none())
            || self.outgoing.iter().any(|out| out.rank == rank && !out.is_complete())
            || self.incoming.iter().any(|source| source.rank == rank && source.needs_source())
    }

    /// Fails, unless it is complete or has failed, and tells the others.
    pub(super) fn fail(&mut self, shared: &Shared, error: SparseError) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Failed;
        let failure = error.failure(shared.context.comm().rank());
        let (why, abort) = (failure.why.clone(), Control::Abort(failure));
        for &rank in self.peers.keys() {
            // A rank that cannot be reached needs no word.
            let _ = shared.post(rank, &abort);
        }
        self.withdraw();
        let receives = self.incoming.iter_mut().flat_map(|source| &mut source.window);
        receives.for_each(|receive| receive.refuse(&shared.context, &why));
        shared.outcome().error = Some(error);
    }

    /// Withdraws the packets that no header was sent for: a stream may still write their payloads.
    fn withdraw(&mut self) {
        for Outgoing { queue, flight, .. } in &mut self.outgoing {
            flight.extend(queue.drain(..).map(|Queued { mut send, .. }| {
                send.withdraw();
                send
            }));
        }
    }

    /// After a failure: ends what is in flight.
    fn wind_up(&mut self, shared: &Shared) -> Result<(), SparseError> {
        self.take_inserts(shared);
        self.withdraw();
        for source in &mut self.incoming {
            // The failure is known.
            source.window.retain_mut(|receive| matches!(receive.poll(&shared.context), Ok(false)));
        }
        let is_copying = self.incoming.iter().any(|source| !source.window.is_empty());
        if self.phase == Phase::Failed && !is_copying {
            self.phase = Phase::Closed;
            for &rank in self.peers.keys() {
                let _ = shared.post(rank, &Control::Closed);
            }
        }
        let comm = shared.context.comm();
        while let Some(message) = comm.link().inbox().take(shared.tag.control(), None) {
            if let Ok(Control::Closed) = Control::decode(&message.payload) {
                self.closed(message.source);
            }
        }
        for out in &mut self.outgoing {
            let is_gone = self.gone.contains(&out.rank);
            out.flight.retain_mut(|send| {
                if is_gone {
                    send.abandon();
                }
                matches!(send.poll(&shared.context), Ok(false))
            });
        }
        Ok(())
    }

    /// A rank copies nothing of this one any more.
    fn closed(&mut self, rank: usize) {
        let sends = self.outgoing.iter_mut().filter(|out| out.rank == rank).flat_map(|out| &mut out.flight);
        sends.for_each(PacketSend::abandon);
    }

    /// Describes the messages that the operation waits for.
    pub(super) fn missing(&self) -> String {
        let silent = self.peers.iter().filter(|(_, peer)| peer.hello.is_none());
        let mut missing: Vec<String> =
            silent.map(|(rank, _)| format!("rank {rank} to begin the operation")).collect();
        let is_known = |rank: usize| self.peers.get(&rank).is_some_and(|peer| peer.hello.is_some());
        let sources = self.incoming.iter().filter(|source| is_known(source.rank) && !source.is_complete());
        missing.extend(sources.map(|source| format!("packets of rank {}", source.rank)));
        let unsent = self.outgoing.iter().filter(|out| is_known(out.rank) && !out.is_complete());
        missing.extend(unsent.map(|out| format!("packets for rank {} to leave", out.rank)));
        if missing.is_empty() { "this rank to finish".to_owned() } else { missing.join(", ") }
    }
}

impl Shared {
    fn post(&self, to: usize, control: &Control) -> Result<(), SparseError> {
        Ok(self.context.comm().send(to, self.tag.control(), control.encode())?)
    }
}
