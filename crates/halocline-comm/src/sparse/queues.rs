//! The packets between this rank and one destination, or one source.

use super::SparseError;
use super::control::Control;
use super::shared::Shared;
use crate::endpoint::Endpoint;
use crate::mappings::DeviceId;
use crate::memory_resource::{MemoryKind, SMALL};
use crate::packet::{HeaderError, Packet, PacketReceive, PacketSend};
use std::collections::VecDeque;

/// Kinds of packets: one that was inserted; the last of a rank, with the number of those before.
const DATA: u8 = 0;
const LAST: u8 = 1;

/// Packets of one source that are received at once.
const WINDOW: usize = 4;

/// The most bytes of packets that a rank sends to another one before that says that it has taken them: they lie in the inbox of the
/// receiver, where its memory resource does not count them. The last of these packets may exceed it.
pub(super) const UNTAKEN: u64 = 4 << 20;

/// The bytes of a packet that count towards [`UNTAKEN`]: header, metadata, and a payload that is sent without a request.
pub(super) fn cost(metadata: &[u8], payload: Option<u64>) -> u64 {
    const HEADER: u64 = 64;
    HEADER + metadata.len() as u64 + payload.unwrap_or(0).min(SMALL as u64)
}

/// Packets for a destination.
pub(super) struct Outgoing {
    pub(super) rank: usize,
    /// Packets whose header was not sent.
    pub(super) queue: VecDeque<Queued>,
    pub(super) flight: Vec<PacketSend>,
    numbered: u64,
    is_last_queued: bool,
    /// Bytes of sent packets that the receiver has not taken yet.
    pub(super) untaken: u64,
}

/// A packet whose header was not sent.
pub(super) struct Queued {
    pub(super) send: PacketSend,
    on_device: bool,
    cost: u64,
}

/// Packets of a source.
pub(super) struct Incoming {
    pub(super) rank: usize,
    pub(super) window: VecDeque<PacketReceive>,
    begun: u64,
    expected: Option<u64>,
    /// Bytes of packets taken since the last report to the source.
    taken: u64,
}

impl Outgoing {
    pub(super) fn new(rank: usize) -> Self {
        let (queue, flight) = (VecDeque::new(), Vec::new());
        Self { rank, queue, flight, numbered: 0, is_last_queued: false, untaken: 0 }
    }

    /// The receiver has taken packets. False if it has no such packets.
    pub(super) fn taken(&mut self, bytes: u64) -> bool {
        let rest = self.untaken.checked_sub(bytes);
        self.untaken = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Adds a packet.
    pub(super) fn insert(&mut self, shared: &Shared, packet: Packet) {
        self.queue(shared, packet, DATA);
    }

    /// Adds the last packet, once.
    pub(super) fn finish(&mut self, shared: &Shared) {
        if !std::mem::replace(&mut self.is_last_queued, true) {
            self.queue(shared, Packet::default(), LAST);
        }
    }

    fn queue(&mut self, shared: &Shared, packet: Packet, kind: u8) {
        let on_device = packet.payload.as_ref().is_some_and(|p| p.kind() == MemoryKind::Device);
        let cost = cost(&packet.metadata, packet.payload.as_ref().map(|payload| payload.len() as u64));
        let send = PacketSend::new(self.rank, shared.tag, packet);
        // Packets before the last one: as many as were numbered.
        let send = send.with_words(kind, [self.numbered, 0, 0, 0]).numbered(self.numbered);
        self.numbered += 1;
        self.queue.push_back(Queued { send, on_device, cost });
    }

    /// Sends what can be sent. `device`: of the receiver, once it is known.
    pub(super) fn advance(
        &mut self,
        shared: &Shared,
        device: Option<Option<DeviceId>>,
    ) -> Result<(), SparseError> {
        while self.untaken < UNTAKEN
            && let Some(Queued { mut send, on_device, cost }) = self.queue.pop_front()
        {
            if on_device {
                let Some(device) = device else {
                    self.queue.push_front(Queued { send, on_device, cost });
                    break;
                };
                send = send.to_device(device);
            }
            let is_over = send.poll(&shared.context)?;
            if !send.is_posted() {
                self.queue.push_front(Queued { send, on_device, cost });
                break;
            }
            self.untaken += cost;
            if !is_over {
                self.flight.push(send);
            }
        }
        let mut failed = None;
        self.flight.retain_mut(|send| match send.poll(&shared.context) {
            Ok(is_over) => !is_over,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_last_queued && self.queue.is_empty() && self.flight.is_empty()
    }
}

impl Incoming {
    pub(super) fn new(rank: usize) -> Self {
        Self { rank, window: VecDeque::new(), begun: 0, expected: None, taken: 0 }
    }

    /// Receives packets; those that are ready go to the outcome, in order.
    pub(super) fn advance(&mut self, shared: &Shared, index: usize) -> Result<(), SparseError> {
        loop {
            let mut has_more = false;
            while self.window.len() < WINDOW && self.expected.is_none() {
                let Some(receive) = PacketReceive::next(&shared.context, self.rank, shared.tag)? else {
                    break;
                };
                self.begin(receive)?;
                has_more = true;
            }
            for receive in &mut self.window {
                receive.poll(&shared.context)?;
            }
            for receive in &mut self.window {
                if !receive.is_ready() {
                    break;
                }
                if let Some(packet) = receive.take() {
                    self.taken += cost(&packet.metadata, receive.bytes());
                    let mut outcome = shared.outcome();
                    outcome.statistics.received.add(&packet);
                    outcome.packets[index].push(packet);
                }
            }
            if self.taken >= UNTAKEN / 2 {
                let taken = Control::Taken(std::mem::take(&mut self.taken));
                // A source that cannot be reached waits for nothing.
                let _ = shared.context.comm().send(self.rank, shared.tag.control(), taken.encode());
            }
            let before = self.window.len();
            self.window.retain(|receive| !(receive.is_taken() && receive.is_over()));
            if !has_more && self.window.len() == before {
                return Ok(());
            }
        }
    }

    fn begin(&mut self, receive: PacketReceive) -> Result<(), SparseError> {
        let [count, rest @ ..] = receive.words();
        let refused = |field, value| {
            let error = HeaderError::Field { field, value };
            Err(SparseError::Malformed { from: self.rank, error })
        };
        match receive.kind() {
            _ if count != self.begun || receive.sequence() != self.begun => {
                refused("number of packets before it", count)
            }
            _ if rest != [0; 3] => refused("words", rest[0]),
            DATA => {
                self.begun += 1;
                self.window.push_back(receive);
                Ok(())
            }
            LAST if receive.bytes().is_some() => refused("payload of the last packet", count),
            LAST if !receive.metadata().is_empty() => refused("metadata of the last packet", count),
            LAST => {
                self.expected = Some(count);
                Ok(())
            }
            kind => refused("kind", kind.into()),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.expected.is_some() && self.window.is_empty()
    }

    /// Whether it cannot become complete without the source, all of whose messages are here. Those behind the window are looked at once
    /// there is memory.
    pub(super) fn needs_source(&self) -> bool {
        let waits = self.expected.is_none() && self.window.is_empty();
        waits || self.window.iter().any(PacketReceive::needs_sender)
    }
}
