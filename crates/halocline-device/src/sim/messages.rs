//! Messages between simulated devices, as NCCL carries them: a grouped call is one operation of a stream, and the messages from one rank
//! to another match in the order of the calls. The calls of a rank run one after the other, whatever their streams, which orders nothing.
//!
//! A message moves, in pieces, once both ranks have begun it. The seed decides whether its sender waits for that, or goes on as soon as
//! the bytes are copied away: NCCL does either. What the sender did before orders the receiver, and nothing orders the sender.

use super::World;
use super::call::SimDriver;
use super::clock::{Actor, Clock};
use super::memory::Spot;
use super::report::Report;
use super::shadow::Touch;
use super::state::State;
use super::stream::Op;
use crate::driver::RawStream;
use crate::error::DeviceError;
use crate::messages::{Message, MessageLibrary, RawCommunicator, UniqueId};
use std::collections::BTreeMap;

/// The functions for one device.
pub(super) struct SimMessages {
    driver: SimDriver,
    device: u32,
}

/// All communicators of a world.
#[derive(Default)]
pub(super) struct Communicators {
    /// By their identifiers, from 1: how many ranks each has, and how many have joined.
    all: Vec<(u32, u32)>,
    /// The parts of ranks.
    parts: Vec<Part>,
    /// Messages that one side has begun at least, and the receiver has not ended.
    flights: BTreeMap<Key, Flight>,
}

/// A rank's part of a communicator.
struct Part {
    communicator: usize,
    rank: u32,
    device: u32,
    is_aborted: bool,
    /// The messages so far, by the other rank and whether this one sends.
    messages: BTreeMap<(u32, bool), u64>,
    /// The calls so far, and those that are over.
    calls: u64,
    ended: u64,
}

/// Identifies a message: its communicator, sender, receiver, and its number among those between the two.
type Key = (usize, u32, u32, u64);

/// A message in flight.
#[derive(Default)]
struct Flight {
    sent: Option<Sent>,
    /// The receiver has begun it,
    is_awaited: bool,
    /// and has so many bytes.
    moved: usize,
}

/// What the sender has begun.
struct Sent {
    spot: Spot,
    bytes: usize,
    /// What it had done before.
    seen: Clock,
    /// A copy of the bytes, once the sender has gone on without the receiver.
    copied: Option<Vec<u8>>,
}

/// A grouped call of a part.
#[derive(Clone)]
pub(super) struct Call {
    part: usize,
    /// Its number among those of the part.
    number: u64,
    pub(super) messages: Vec<OfCall>,
}

#[derive(Clone)]
pub(super) struct OfCall {
    peer: u32,
    sends: bool,
    pub(super) spot: Spot,
    bytes: usize,
    key: Key,
    /// Whether the sender waits for the receiver, once the call has begun.
    waits: bool,
    is_over: bool,
}

impl Call {
    /// The messages that are not over, for reports.
    pub(super) fn open(&self) -> String {
        let open = self.messages.iter().filter(|message| !message.is_over);
        let texts: Vec<String> = open
            .map(|message| format!("rank {}, {}", message.peer, if message.sends { "to" } else { "from" }))
            .collect();
        texts.join(" and for ")
    }
}

impl SimMessages {
    pub(super) fn new(world: World, device: u32) -> Self {
        Self { driver: SimDriver::new(world, device), device }
    }

    fn error(&self, call: &'static str, what: impl Into<String>) -> DeviceError {
        DeviceError::Messages { device: self.device, call, what: what.into() }
    }
}

// SAFETY: no call keeps memory of the host.
unsafe impl MessageLibrary for SimMessages {
    fn name(&self) -> String {
        "simulated NCCL".to_owned()
    }

    fn unique_id(&self) -> Result<UniqueId, DeviceError> {
        let mut call = self.driver.call(false)?;
        call.state.communicators.all.push((0, 0));
        let mut id = UniqueId([0; 128]);
        id.0[..8].copy_from_slice(&(call.state.communicators.all.len() as u64).to_le_bytes());
        id.0[8..16].copy_from_slice(&(self.driver.world.machine() as u64).to_le_bytes());
        id.0[16..20].copy_from_slice(&std::process::id().to_le_bytes());
        Ok(id)
    }

    fn join(&self, id: &UniqueId, rank: u32, ranks: u32) -> Result<RawCommunicator, DeviceError> {
        let mut call = self.driver.call(false)?;
        let number = u64::from_le_bytes(std::array::from_fn(|at| id.0[at])) as usize;
        let world = u64::from_le_bytes(std::array::from_fn(|at| id.0[8 + at])) as usize;
        let process = u32::from_le_bytes(std::array::from_fn(|at| id.0[16 + at]));
        if (world, process) != (self.driver.world.machine(), std::process::id()) {
            let what = "simulated devices of different worlds exchange no messages";
            return Err(self.error("ncclCommInitRank", what));
        }
        let communicators = &mut call.state.communicators;
        let is_taken =
            |part: &Part| part.communicator == number && (part.rank == rank || part.device == self.device);
        if communicators.parts.iter().any(is_taken) {
            return Err(self.error("ncclCommInitRank", format!("rank {rank} or its device joins twice")));
        }
        let Some((of, joined)) = communicators.all.get_mut(number.wrapping_sub(1)) else {
            return Err(self.error("ncclCommInitRank", "there is no such identifier"));
        };
        (*of, *joined) = (ranks, *joined + 1);
        let (device, messages) = (self.device, BTreeMap::new());
        let part =
            Part { communicator: number, rank, device, is_aborted: false, messages, calls: 0, ended: 0 };
        communicators.parts.push(part);
        Ok(RawCommunicator(communicators.parts.len()))
    }

    unsafe fn is_ready(&self, communicator: RawCommunicator) -> Result<bool, DeviceError> {
        let call = self.driver.call(true)?;
        let communicators = &call.state.communicators;
        let (ranks, joined) = communicators.all[communicators.parts[communicator.0 - 1].communicator - 1];
        Ok(joined == ranks)
    }

    unsafe fn exchange(
        &self,
        communicator: RawCommunicator,
        stream: RawStream,
        messages: &[Message],
    ) -> Result<(), DeviceError> {
        let mut call = self.driver.call(false)?;
        let stream = self.driver.stream(&call.state, stream)?;
        let state = &mut *call.state;
        let at = communicator.0 - 1;
        let part = &mut state.communicators.parts[at];
        let memories = &state.memories;
        let mut find = |message: &Message| {
            let &Message { peer, sends, address, bytes } = message;
            let spot = memories.find(address, bytes)?;
            let number = part.messages.entry((peer, sends)).or_default();
            *number += 1;
            let (from, to) = if sends { (part.rank, peer) } else { (peer, part.rank) };
            let key = (part.communicator, from, to, *number);
            Ok(OfCall { peer, sends, spot, bytes, key, waits: false, is_over: false })
        };
        let messages = messages.iter().map(&mut find).collect::<Result<_, DeviceError>>()?;
        part.calls += 1;
        let op = Op::Messages(Call { part: at, number: part.calls, messages });
        self.driver.give(call, stream, op).map(drop)
    }

    unsafe fn abort(&self, communicator: RawCommunicator) {
        if let Some(mut call) = self.driver.last_call() {
            call.state.communicators.parts[communicator.0 - 1].is_aborted = true;
        }
    }

    unsafe fn destroy(&self, communicator: RawCommunicator) {
        let Some(mut call) = self.driver.last_call() else { return };
        let state = &mut *call.state;
        let &Part { communicator, rank, .. } = &state.communicators.parts[communicator.0 - 1];
        let is_used = |(&(of, from, to, _), flight): (&Key, &Flight)| {
            let is_sending = flight.sent.as_ref().is_some_and(|sent| sent.copied.is_none());
            of == communicator && (from == rank && is_sending || to == rank && flight.is_awaited)
        };
        if state.communicators.flights.iter().any(is_used) && state.check(self.device).is_ok() {
            let what = "messages of the communicator are in flight; wait for the streams first".to_owned();
            state.report(Report::Refused { call: "destroy of a communicator", what });
        }
    }
}

impl State {
    /// Begins a grouped call; true if it is over at once.
    pub(super) fn begin_messages(&mut self, actor: Actor, op: usize, call: &mut Call) -> bool {
        let seen = self.seen(actor).clone();
        for message in &mut call.messages {
            message.waits = self.choices.number(2) == 0;
            let touch = if message.sends { Touch::Read } else { Touch::Write };
            message.is_over = !self.touch(actor, op, message.spot, message.bytes, touch);
            let flight = self.communicators.flights.entry(message.key).or_default();
            if message.sends {
                let (spot, bytes) = (message.spot, message.bytes);
                flight.sent = Some(Sent { spot, bytes, seen: seen.clone(), copied: None });
            } else {
                flight.is_awaited = true;
            }
        }
        self.end_messages(call)
    }

    /// Whether a call may begin: those before it on the rank are over.
    pub(super) fn may_begin(&self, call: &Call) -> bool {
        let part = &self.communicators.parts[call.part];
        part.is_aborted || part.ended + 1 == call.number
    }

    /// Counts a call if all its messages are over; true if so.
    fn end_messages(&mut self, call: &Call) -> bool {
        let is_over = call.messages.iter().all(|message| message.is_over);
        self.communicators.parts[call.part].ended += u64::from(is_over);
        is_over
    }

    /// The messages of a call that can advance, by their indices.
    pub(super) fn ready_messages(&self, call: &Call) -> Vec<usize> {
        let Communicators { parts, flights, .. } = &self.communicators;
        let is_ready = |message: &OfCall| match flights.get(&message.key) {
            _ if parts[call.part].is_aborted => true,
            Some(_) if message.sends => !message.waits,
            Some(flight) => flight.sent.is_some(),
            // The receiver has all of it.
            None => true,
        };
        let open = (0..call.messages.len()).filter(|&at| !call.messages[at].is_over);
        open.filter(|&at| is_ready(&call.messages[at])).collect()
    }

    /// Advances one message of a call; true if all are over.
    pub(super) fn carry_messages(&mut self, actor: Actor, call: &mut Call) -> bool {
        let ready = self.ready_messages(call);
        let message = &mut call.messages[ready[self.choices.number(ready.len())]];
        message.is_over = match message {
            _ if self.communicators.parts[call.part].is_aborted => true,
            OfCall { sends: true, .. } => {
                self.copy_away(message);
                true
            }
            OfCall { sends: false, .. } => self.receive(actor, message),
        };
        self.end_messages(call)
    }

    /// Lets the sender of a message go on: the receiver has the bytes, or gets a copy.
    fn copy_away(&mut self, message: &OfCall) {
        let flight = self.communicators.flights.get_mut(&message.key);
        if let Some(sent) = flight.and_then(|flight| flight.sent.as_mut())
            && self.memories.is_there(sent.spot)
        {
            sent.copied = Some(self.memories.slice(sent.spot, sent.bytes).to_vec());
        }
    }

    /// Moves some bytes of a message that its sender has begun; true if it is over.
    fn receive(&mut self, actor: Actor, message: &OfCall) -> bool {
        let Some(mut flight) = self.communicators.flights.remove(&message.key) else { return true };
        let Some(sent) = &flight.sent else { return true };
        if sent.bytes != message.bytes {
            let (_, from, to, number) = message.key;
            let what = format!(
                "rank {to} expects {} bytes as message {number} of rank {from}, which sends {}; give the same length on both",
                message.bytes, sent.bytes
            );
            self.report(Report::Refused { call: "exchange of messages", what });
            return true;
        }
        let bytes = self.piece(message.bytes - flight.moved);
        let at = |spot: Spot| Spot { offset: spot.offset + flight.moved, ..spot };
        if self.memories.is_there(message.spot) {
            match &sent.copied {
                Some(copied) => {
                    let piece = &copied[flight.moved..flight.moved + bytes];
                    self.memories.slice_mut(at(message.spot), bytes).copy_from_slice(piece);
                }
                None if self.memories.is_there(sent.spot) => {
                    self.memories.copy(at(message.spot), at(sent.spot), bytes);
                }
                None => {}
            }
        }
        flight.moved += bytes;
        if flight.moved < message.bytes {
            self.communicators.flights.insert(message.key, flight);
            return false;
        }
        let seen = sent.seen.clone();
        self.join(actor, &seen);
        true
    }
}
