//! One side of a round: what is sent there, and what comes from there.

use super::engine::Shared;
use super::{NeighborError, Packet, Side, Turn};
use halocline_comm::mappings::DeviceId;
use halocline_comm::memory_resource::MemoryKind;
use halocline_comm::packet::{PacketReceive, PacketSend, PacketTag};
use std::time::Duration;

/// The kinds of headers.
const DATA: u8 = 1;
const NULL: u8 = 2;
const FIN: u8 = 3;
const DROPPED: u8 = 4;

/// The operation and the round of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) id: u32,
    /// Rounds outside of sessions and sessions of the id, counted from 1.
    pub(super) epoch: u64,
    /// The round within a session, counted from 1; 0 outside.
    pub(super) round: u64,
}

impl Number {
    /// The number of the packet of this round in a channel. Two rounds of an id may be in flight between two ranks.
    fn sequence(&self, tag: PacketTag) -> u64 {
        tag.channel << 1 | ((self.epoch + self.round) & 1)
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { round, epoch, .. } = self;
        match round {
            0 => write!(f, "a single round (use {epoch})"),
            _ => write!(f, "round {round} of a session (use {epoch})"),
        }
    }
}

/// The messages that go this way along the line: to the right, or to the left.
fn direction(to: Side) -> u64 {
    u64::from(to == Side::Left)
}

/// The channel of an operation's headers that go to a side.
pub(super) fn channel(operation: u64, id: u32, to: Side) -> PacketTag {
    PacketTag { operation, channel: u64::from(id) << 1 | direction(to) }
}

pub(super) struct Link {
    side: Side,
    send: Sending,
    receive: Receive,
}

#[expect(clippy::large_enum_variant, reason = "in a box, each packet would cost an allocation")]
enum Sending {
    /// The packet of a device, until the neighbour's device is known.
    Held(Packet),
    Sent(PacketSend),
    Over,
}

#[expect(clippy::large_enum_variant, reason = "in a box, each packet would cost an allocation")]
enum Receive {
    /// The header has not come.
    Expected,
    /// The payload has not.
    Coming(PacketReceive),
    Done(Turn),
}

/// What a side of a round waits for.
pub(super) enum Missing {
    OfNeighbor(&'static str),
    Own(&'static str),
}

impl Link {
    /// A side without a neighbour.
    pub(super) fn absent(side: Side) -> Self {
        Self { side, send: Sending::Over, receive: Receive::Done(Turn::Nothing) }
    }

    /// A side of a session on which both directions have ended.
    pub(super) fn ended(side: Side) -> Self {
        Self { side, send: Sending::Over, receive: Receive::Done(Turn::Last) }
    }

    pub(super) fn begin(shared: &Shared, side: Side, number: &Number, turn: Turn) -> Self {
        let send = match turn {
            Turn::Packet(packet) if is_of_device(&packet) => Sending::Held(packet),
            Turn::Packet(packet) => Sending::Sent(shared.packet_to(side, number, DATA, packet)),
            Turn::Nothing => Sending::Sent(shared.packet_to(side, number, NULL, Packet::default())),
            Turn::Last => Sending::Sent(shared.packet_to(side, number, FIN, Packet::default())),
            Turn::Dropped => Sending::Sent(shared.packet_to(side, number, DROPPED, Packet::default())),
        };
        Self { side, send, receive: Receive::Expected }
    }

    /// Does what is possible now. True once this side of the round is over.
    pub(super) fn advance(
        &mut self,
        shared: &Shared,
        number: &Number,
        device: Option<Option<DeviceId>>,
    ) -> Result<bool, NeighborError> {
        if let (Sending::Held(packet), Some(device)) = (&mut self.send, device) {
            let packet = std::mem::take(packet);
            let send = shared.packet_to(self.side, number, DATA, packet).to_device(device);
            self.send = Sending::Sent(send);
        }
        if let Sending::Sent(send) = &mut self.send
            && send.poll(&shared.context)?
        {
            self.send = Sending::Over;
        }
        if let Receive::Expected = self.receive {
            self.look(shared, number)?;
        }
        if let Receive::Coming(coming) = &mut self.receive
            && coming.poll(&shared.context)?
        {
            let packet = coming.take().unwrap_or_default();
            self.receive = Receive::Done(Turn::Packet(packet));
        }
        Ok(matches!((&self.send, &self.receive), (Sending::Over, Receive::Done(_))))
    }

    /// Looks for the header.
    fn look(&mut self, shared: &Shared, number: &Number) -> Result<(), NeighborError> {
        let Some(from) = *shared.neighbors.get(self.side) else { return Ok(()) };
        let tag = channel(shared.operation, number.id, self.side.other());
        let Some(coming) = PacketReceive::next(&shared.context, from, tag)? else { return Ok(()) };
        let [id, epoch, round, way] = coming.words();
        let found = Number { id: id as u32, epoch, round };
        let malformed = NeighborError::Malformed { from, what: "header between neighbours" };
        if id != u64::from(number.id) || way != direction(self.side.other()) {
            return Err(malformed);
        }
        if found != *number {
            return Err(NeighborError::OutOfStep {
                rank: shared.context.comm().rank(),
                from,
                id: number.id,
                found: found.to_string(),
                expected: number.to_string(),
            });
        }
        if coming.sequence() != number.sequence(tag) {
            return Err(malformed);
        }
        let is_bare = coming.bytes().is_none() && coming.metadata().is_empty();
        self.receive = match coming.kind() {
            DATA => Receive::Coming(coming),
            NULL if is_bare => Receive::Done(Turn::Nothing),
            FIN if is_bare => Receive::Done(Turn::Last),
            DROPPED if is_bare => Receive::Done(Turn::Dropped),
            _ => return Err(malformed),
        };
        Ok(())
    }

    /// Whether the neighbour has the header of this side, or gets none.
    pub(super) fn is_posted(&self) -> bool {
        match &self.send {
            Sending::Held(_) => false,
            Sending::Sent(send) => send.is_posted(),
            Sending::Over => true,
        }
    }

    /// Whether the neighbour's header is still to come.
    pub(super) fn expects_header(&self) -> bool {
        matches!(self.receive, Receive::Expected)
    }

    /// Whether this side cannot end without the neighbour: not if all of its packet is here, and none of this rank's is there.
    pub(super) fn needs_neighbor(&self) -> bool {
        let receives = match &self.receive {
            Receive::Expected => true,
            Receive::Coming(coming) => coming.needs_sender(),
            Receive::Done(_) => false,
        };
        receives || !matches!(self.send, Sending::Over)
    }

    /// What this side waits for.
    pub(super) fn missing(&self) -> Option<Missing> {
        match (&self.receive, &self.send) {
            (Receive::Coming(coming), _) if coming.is_short_of_memory() => {
                Some(Missing::Own("its own memory for the payload of"))
            }
            (Receive::Coming(coming), _) if coming.is_copying() => {
                Some(Missing::Own("its own copy of the payload of"))
            }
            (_, Sending::Sent(send)) if !send.is_posted() => {
                Some(Missing::Own("the content of its own packet for"))
            }
            (Receive::Expected, _) => Some(Missing::OfNeighbor("to start it")),
            (Receive::Coming(_), _) => Some(Missing::OfNeighbor("to send its payload")),
            (_, Sending::Held(_)) => Some(Missing::OfNeighbor("to begin the exchange")),
            (_, Sending::Sent(_)) => Some(Missing::OfNeighbor("to take the payload")),
            (Receive::Done(_), Sending::Over) => None,
        }
    }

    /// When to look again although no message has come.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        let send = match &self.send {
            Sending::Sent(send) => send.due(now),
            _ => None,
        };
        let receive = match &self.receive {
            Receive::Coming(coming) => coming.due(now),
            _ => None,
        };
        [send, receive].into_iter().flatten().min()
    }

    /// What came.
    pub(super) fn take(&mut self) -> Turn {
        match &mut self.receive {
            Receive::Done(turn) => std::mem::take(turn),
            _ => Turn::Nothing,
        }
    }

    /// Gives up: refuses what comes, and withdraws what the neighbour does not know of.
    pub(super) fn abandon(self, shared: &Shared, number: &Number, why: &str) -> Lingering {
        let receive = match self.receive {
            Receive::Coming(mut coming) => {
                coming.refuse(&shared.context, why);
                Some(coming)
            }
            _ => None,
        };
        let send = match self.send {
            Sending::Sent(send) => Some(send),
            // A stream may still write it.
            Sending::Held(packet) => Some(shared.packet_to(self.side, number, DATA, packet)),
            Sending::Over => None,
        };
        let send = send.map(|mut send| {
            send.withdraw();
            send
        });
        Lingering { side: self.side, send, receive }
    }
}

/// What is left of one side of a failed round.
pub(super) struct Lingering {
    side: Side,
    /// The neighbour may still read its memory, or a device writes or copies it.
    send: Option<PacketSend>,
    /// A device may still copy memory of the neighbour.
    receive: Option<PacketReceive>,
}

impl Lingering {
    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// Does what is possible now. `is_unread`: the neighbour reads no memory of this rank any more. True once it is over.
    pub(super) fn advance(&mut self, shared: &Shared, is_unread: bool) -> bool {
        // The failure is known.
        self.receive.take_if(|receive| !matches!(receive.poll(&shared.context), Ok(false)));
        self.send.take_if(|send| {
            if is_unread {
                send.abandon();
            }
            !matches!(send.poll(&shared.context), Ok(false))
        });
        self.receive.is_none() && self.send.is_none()
    }

    /// Whether a device may still copy memory of the neighbour.
    pub(super) fn is_copying(&self) -> bool {
        self.receive.is_some()
    }

    /// When to look again although no message has come.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        let send = self.send.as_ref().and_then(|send| send.due(now));
        send.into_iter().chain(self.receive.as_ref().and_then(|receive| receive.due(now))).min()
    }
}

impl Shared {
    fn packet_to(&self, side: Side, number: &Number, kind: u8, packet: Packet) -> PacketSend {
        let to = self.neighbors.get(side).unwrap_or(self.context.comm().rank());
        let tag = channel(self.operation, number.id, side);
        let sequence = number.sequence(tag);
        let words = [number.id.into(), number.epoch, number.round, direction(side)];
        PacketSend::new(to, tag, packet).with_words(kind, words).numbered(sequence)
    }
}

fn is_of_device(packet: &Packet) -> bool {
    packet.payload.as_ref().is_some_and(|payload| payload.kind() == MemoryKind::Device && !payload.is_empty())
}
