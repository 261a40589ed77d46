//! The packets between this rank and one destination, or one source.

use super::SparseError;
use super::shared::Shared;
use crate::mappings::DeviceId;
use crate::memory_resource::MemoryKind;
use crate::packet::{HeaderError, Packet, PacketReceive, PacketSend};
use std::collections::VecDeque;

/// Kinds of packets: one that was inserted; the last of a rank, with the number of those before.
const DATA: u8 = 0;
const LAST: u8 = 1;

/// Packets of one source that are received at once.
const WINDOW: usize = 4;

/// Packets for a destination.
pub(super) struct Outgoing {
    pub(super) rank: usize,
    /// Packets whose header was not sent, and whether they lie on a device.
    pub(super) queue: VecDeque<(PacketSend, bool)>,
    pub(super) flight: Vec<PacketSend>,
    numbered: u64,
    is_last_queued: bool,
}

/// Packets of a source.
pub(super) struct Incoming {
    pub(super) rank: usize,
    pub(super) window: VecDeque<PacketReceive>,
    begun: u64,
    expected: Option<u64>,
}

impl Outgoing {
    pub(super) fn new(rank: usize) -> Self {
        Self { rank, queue: VecDeque::new(), flight: Vec::new(), numbered: 0, is_last_queued: false }
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
        let send = PacketSend::new(self.rank, shared.tag, packet);
        // Packets before the last one: as many as were numbered.
        let send = send.with_words(kind, [self.numbered, 0, 0, 0]).numbered(self.numbered);
        self.numbered += 1;
        self.queue.push_back((send, on_device));
    }

    /// Sends what can be sent. `device`: of the receiver, once it is known.
    pub(super) fn advance(
        &mut self,
        shared: &Shared,
        device: Option<Option<DeviceId>>,
    ) -> Result<(), SparseError> {
        while let Some((mut send, on_device)) = self.queue.pop_front() {
            if on_device {
                let Some(device) = device else {
                    self.queue.push_front((send, on_device));
                    break;
                };
                send = send.to_device(device);
            }
            let is_over = send.poll(&shared.context)?;
            match (send.is_posted(), is_over) {
                (true, true) => {}
                (true, false) => self.flight.push(send),
                (false, _) => {
                    self.queue.push_front((send, on_device));
                    break;
                }
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
        Self { rank, window: VecDeque::new(), begun: 0, expected: None }
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
                    let mut outcome = shared.outcome();
                    outcome.statistics.received.add(&packet);
                    outcome.packets[index].push(packet);
                }
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
