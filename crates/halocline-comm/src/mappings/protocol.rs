//! The mapping protocol of one rank as a pure state machine: no I/O, no driver, no clock. Calls and received messages
//! go in, [`Effect`]s come out, to be carried out in their order.
//!
//! **The owner** of memory has an entry for each exported allocation; it alone decides which ranks have it mapped. An entry
//! is either kept or *retiring* (stale, evicted, released, or the rank ends). A retiring entry is never used again: a later request for
//! the same memory makes a new entry. For each target (a rank and one of its devices) an entry is in one state:
//!
//! | state | begins with | ends with |
//! | --- | --- | --- |
//! | none | | a request: `OFFER`, delayed while overlapping memory is retiring at that rank |
//! | offered | `OFFER` was sent | `MAPPED`: mapped; if retiring, `UNMAP`: unmapping. `MAP_FAILED`: failed |
//! | mapped | `MAPPED` came; requests are hits | the entry retires, `UNMAP`: unmapping |
//! | unmapping | `UNMAP`, or the last `DATA`, was sent | `UNMAPPED` (a rank that ends also sends it unasked): none; a retiring entry without targets is removed |
//! | failed | `MAP_FAILED` came; requests are refused at once | the entry retires: none |
//! | dead | the rank is gone: for all entries at once | never |
//!
//! A request pins its entry: a mapping until [`Protocol::unpin`], a transfer until `DONE`. Entries that are not pinned are evicted
//! beyond the limit, least recently used first, but none with an open offer. If the limit
//! is 0, the `DATA` of an entry is marked as the last; the importer then closes before it sends `DONE`.
//!
//! **The importer** has a table token -> mapping, without a policy. It opens on `OFFER` and closes on `UNMAP`, once
//! its own references (resolved mappings, transfers) have ended. Offsets and lengths are checked against the table.

mod importer;
mod owner;
#[cfg(test)]
mod tests;

pub(crate) use importer::{Arrival, Unusable};
pub(crate) use owner::{Known, Unmap};

use super::message::{Descriptor, Message, MessageError, ProcessId};
use super::stats::Stats;
use crate::segment::Segment;
use halocline_device::Address;
use halocline_device::remote::{Allocation, DeviceId, Refusal};
use importer::{Import, Phase};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The default number of unused allocations that stay mapped.
const LIMIT: usize = 1024;

/// The importer of memory: a rank, and its device that accesses the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The rank.
    pub rank: usize,
    /// Its device.
    pub device: DeviceId,
}

/// The descriptors that came with a message, or why some are missing.
pub(crate) type Attached = Result<Vec<Arc<Segment>>, Refusal>;

/// Work for the caller, in this order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send a message.
    Post { to: usize, message: Message },
    /// Export the allocation and offer it; on failure call [`Protocol::failed`].
    Offer { entry: u64, target: Target, allocation: Allocation },
    /// Call the driver, then [`Protocol::opened`].
    Open { token: u64, device: DeviceId, descriptor: Descriptor, attached: Attached },
    /// Call the driver, then [`Protocol::closed`].
    Close { token: u64 },
    /// Answer the request.
    Answer { request: u64, answer: Answer },
    /// Bytes are ready to be read, then [`Protocol::taken`].
    Arrived(Arrival),
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The target has mapped it, at this address there; the entry is pinned.
    Mapped { entry: u64, token: u64, address: Address },
    /// The transfer is over, or was refused by the importer.
    Done(Option<Refusal>),
    /// The target cannot map it: stage the bytes.
    Refused(Refusal),
    /// The target is gone.
    Gone,
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Want {
    /// A mapping that stays.
    Map,
    /// A transfer.
    Data { offset: u64, length: u64 },
}

/// The state of an entry for a target (not stored for none and dead).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Offered,
    Mapped { token: u64, address: Address },
    Unmapping,
    Failed(Refusal),
}

struct Entry {
    allocation: Allocation,
    /// Memory of the library, which reports before it frees it ([`halocline_device::remote::Own`]).
    is_own: bool,
    pins: usize,
    last_use: Duration,
    retiring: bool,
    /// Its memory is about to be freed: it retires once nothing uses it.
    is_given_up: bool,
    targets: BTreeMap<Target, State>,
    waiting: Vec<Request>,
}

#[derive(Clone, Copy)]
struct Request {
    id: u64,
    target: Target,
    want: Want,
}

pub(crate) struct Protocol {
    next: u64,
    limit: usize,
    stats: Stats,
    entries: BTreeMap<u64, Entry>,
    /// Transfers in flight: the entry and its target, by epoch.
    transfers: BTreeMap<u64, (u64, Target)>,
    imports: BTreeMap<u64, Import>,
    gone: BTreeSet<usize>,
    /// Owners whose memory stays open beyond their end, and how many handles keep it so.
    kept: BTreeMap<usize, usize>,
    is_closed: bool,
    /// Pending effects.
    pub(crate) out: VecDeque<Effect>,
}

fn post(to: usize, message: Message) -> Effect {
    Effect::Post { to, message }
}

impl Protocol {
    pub(crate) fn new(process: ProcessId) -> Self {
        Self {
            // Random, so that numbers of different processes do not collide, even if a process id was reused.
            next: process.random & !0xffff_ffff,
            limit: LIMIT,
            stats: Stats::default(),
            entries: BTreeMap::new(),
            transfers: BTreeMap::new(),
            imports: BTreeMap::new(),
            gone: BTreeSet::new(),
            kept: BTreeMap::new(),
            is_closed: false,
            out: VecDeque::new(),
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Handles a message. On an error (a message that no rank sends) nothing has changed.
    pub(crate) fn receive(
        &mut self,
        from: usize,
        message: Message,
        attached: Attached,
        now: Duration,
    ) -> Result<(), MessageError> {
        match message {
            _ if self.gone.contains(&from) => {}
            Message::Offer { entry, device, .. } if self.is_closed => {
                self.out.push_back(post(from, Message::MapFailed { entry, device, why: Refusal::Ending }));
            }
            Message::Data { epoch, .. } if self.is_closed => {
                self.out.push_back(post(from, Message::Done { epoch, refused: Some(Refusal::Ending) }));
            }
            Message::Mapped { entry, device, token, address } => {
                self.mapped(entry, Target { rank: from, device }, (token, address))
            }
            Message::MapFailed { entry, device, why } => {
                self.failed(entry, Target { rank: from, device }, why)
            }
            Message::Unmapped { entry, device } => self.unmapped(entry, Target { rank: from, device }),
            Message::Done { epoch, refused } => self.done(from, epoch, refused, now),
            Message::Offer { entry, device, descriptor } => {
                return self.offered((from, entry), device, descriptor, attached);
            }
            Message::Unmap { token } => return self.unmap(from, token),
            Message::Data { entry, token, offset, length, epoch, last } => {
                return self.data((from, entry, token), (offset, length), epoch, last);
            }
            Message::Gone => self.is_gone(from),
        }
        Ok(())
    }

    /// Handles the end of a rank: its process has died, or it has closed all mappings.
    pub(crate) fn is_gone(&mut self, rank: usize) {
        self.gone.insert(rank);
        let mut answers = Vec::new();
        for entry in self.entries.values_mut() {
            entry.targets.retain(|target, _| target.rank != rank);
            let waiting = std::mem::take(&mut entry.waiting);
            let (lost, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|r| r.target.rank == rank);
            entry.waiting = rest;
            entry.pins -= lost.len();
            answers.extend(lost.into_iter().map(|request| request.id));
        }
        let lost: Vec<u64> =
            self.transfers.iter().filter(|(_, at)| at.1.rank == rank).map(|(e, _)| *e).collect();
        for epoch in lost {
            if let Some((id, _)) = self.transfers.remove(&epoch)
                && let Some(entry) = self.entries.get_mut(&id)
            {
                entry.pins -= 1;
            }
            answers.push(epoch);
        }
        self.out.extend(answers.into_iter().map(|request| Effect::Answer { request, answer: Answer::Gone }));
        if !self.kept.contains_key(&rank) {
            self.end_all_of(rank);
        }
        self.settle();
    }

    /// Ends this rank's part: all its memory gets unmapped, all imports are closed, and new requests are refused.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        let all: Vec<u64> = self.entries.keys().copied().collect();
        for id in all {
            let waiting = self.entries.get_mut(&id).map(|entry| std::mem::take(&mut entry.waiting));
            let gone = |r: Request| Effect::Answer { request: r.id, answer: Answer::Gone };
            self.out.extend(waiting.into_iter().flatten().map(gone));
            self.retire(id);
        }
        let all: Vec<u64> = self.imports.keys().copied().collect();
        all.into_iter().for_each(|token| self.end(token));
        self.settle();
    }

    /// Counts bytes that are staged because of this side, not of a target.
    pub(crate) fn staged(&mut self) {
        self.stats.staged += 1;
    }

    pub(crate) fn stats(&self) -> Stats {
        let held = |entry: &&Entry| entry.targets.values().any(|state| !matches!(state, State::Failed(_)));
        let open = |import: &&Import| import.phase != Phase::Opening;
        Stats {
            entries: self.entries.values().filter(|entry| !entry.retiring).count(),
            pinned: self.entries.values().filter(|entry| entry.pins > 0).count(),
            bytes_held: self.entries.values().filter(held).map(|entry| entry.allocation.bytes).sum(),
            mapped: self.imports.values().filter(open).count(),
            bytes_mapped: self.imports.values().filter(open).map(|import| import.bytes).sum(),
            ..self.stats
        }
    }
}
