//! The mapping protocol of one rank as a pure state machine: no I/O, no driver, no clock. Calls and received messages
//! go in, [`Effect`]s come out, to be carried out in their order.
//!
//! **The owner** of memory has an entry for each exported allocation: the one authority on who has mapped what. An entry
//! is either kept or *retiring* (stale, evicted, released, or at the end), from which it never returns: what asks for
//! the same memory again makes a new entry. For each target, a rank and one of its devices, an entry is in one state:
//!
//! | state | what brings it | what ends it |
//! | --- | --- | --- |
//! | none | | a request: `OFFER`, unless memory that overlaps it is retiring at that rank: then once that is gone |
//! | offered | `OFFER` was sent | `MAPPED`: mapped; if retiring, `UNMAP`: unmapping. `MAP_FAILED`: failed |
//! | mapped | `MAPPED` came; requests are hits | the entry retires, `UNMAP`: unmapping |
//! | unmapping | `UNMAP`, or the last `DATA`, was sent | `UNMAPPED` (which also comes by itself from a rank that ends): none; a retiring entry without targets is no more |
//! | failed | `MAP_FAILED` came; requests are refused at once | the entry retires: none |
//! | dead | the rank is gone: for all entries at once | never |
//!
//! A request pins its entry: a mapping until [`Protocol::unpin`], a transfer until `DONE`. Of what is not pinned no more
//! is kept than the limits allow, the least recently used goes first, and never one with an open offer. Where the limits
//! cannot hold an entry at all, the `DATA` says that it is the last; the importer then closes before it says `DONE`.
//!
//! **The importer** has a table token -> mapping, without a policy. It opens when offered and closes when told, but not
//! before its own holds (resolved mappings, transfers) have ended. Offsets and lengths are checked against the table.

mod importer;
#[cfg(test)]
mod tests;

pub(crate) use importer::{Arrival, Unusable};

use super::bounds::{Limits, Stats};
use super::message::{Descriptor, Message, MessageError, ProcessId};
use crate::segment::Segment;
use halocline_device::Address;
use halocline_device::remote::{Allocation, DeviceId, Refusal};
use importer::{Import, Life};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Who maps: a rank, and the device of it that reaches the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The rank.
    pub rank: usize,
    /// Its device.
    pub device: DeviceId,
}

/// What has come beside the bytes of a message.
pub(crate) type Attached = Vec<Arc<Segment>>;

/// What is to be done, in this order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send a message.
    Post { to: usize, message: Message },
    /// Export the allocation and offer it, or [`Protocol::failed`].
    Offer { entry: u64, target: Target, allocation: Allocation },
    /// Call the driver, then [`Protocol::opened`].
    Open { token: u64, device: DeviceId, descriptor: Descriptor, attached: Attached },
    /// Call the driver, then [`Protocol::closed`].
    Close { token: u64 },
    /// Tell whoever made the request.
    Answer { request: u64, answer: Answer },
    /// Bytes can be taken, then [`Protocol::taken`].
    Arrived(Arrival),
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The target has mapped it; the entry is pinned.
    Mapped { entry: u64, token: u64 },
    /// The transfer is over, or was refused by the importer.
    Done(Option<Refusal>),
    /// The target cannot map it: stage.
    Refused(Refusal),
    /// The target is gone.
    Gone,
}

/// What a request is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Want {
    /// A mapping that stays.
    Map,
    /// A transfer.
    Data { offset: u64, length: u64 },
}

/// An entry of a target (none and dead need no word).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Offered,
    Mapped(u64),
    Unmapping,
    Failed(Refusal),
}

struct Entry {
    allocation: Allocation,
    pins: usize,
    last_use: Duration,
    retiring: bool,
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
    limits: Limits,
    stats: Stats,
    entries: BTreeMap<u64, Entry>,
    /// Under way: the entry and its target, by epoch.
    transfers: BTreeMap<u64, (u64, Target)>,
    imports: BTreeMap<u64, Import>,
    gone: BTreeSet<usize>,
    is_closed: bool,
    /// What is to be done.
    pub(crate) out: VecDeque<Effect>,
}

fn post(to: usize, message: Message) -> Effect {
    Effect::Post { to, message }
}

impl Protocol {
    pub(crate) fn new(process: ProcessId, limits: Limits) -> Self {
        Self {
            // Numbers of different processes do not meet, nor those of one with the same process id.
            next: process.random & !0xffff_ffff,
            limits,
            stats: Stats::default(),
            entries: BTreeMap::new(),
            transfers: BTreeMap::new(),
            imports: BTreeMap::new(),
            gone: BTreeSet::new(),
            is_closed: false,
            out: VecDeque::new(),
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// A message has come. An error: no rank sends that; nothing has changed.
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
            Message::Mapped { entry, device, token } => {
                self.mapped(entry, Target { rank: from, device }, token)
            }
            Message::MapFailed { entry, device, why } => {
                self.failed(entry, Target { rank: from, device }, why)
            }
            Message::Unmapped { entry, device } => self.unmapped(entry, Target { rank: from, device }),
            Message::Done { epoch, refused } => self.done(from, epoch, refused, now),
            Message::Offer { entry, device, descriptor } => {
                return self.offered((from, entry), device, descriptor, attached);
            }
            Message::Unmap { token } => return self.told_to_close(from, token),
            Message::Data { entry, token, offset, length, epoch, last } => {
                return self.data((from, entry, token), (offset, length), epoch, last);
            }
            Message::Gone => self.is_gone(from),
        }
        Ok(())
    }

    /// A rank's process has died, or it has closed all and takes no more part.
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
        let orphans: Vec<u64> =
            self.imports.iter().filter(|(_, i)| i.owner == rank).map(|(t, _)| *t).collect();
        orphans.into_iter().for_each(|token| self.end(token));
        self.settle();
    }

    /// The end: everything of this rank is unmapped, everything of others is closed, and nothing new begins.
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

    /// Bytes were staged for another reason than a target's.
    pub(crate) fn staged(&mut self) {
        self.stats.staged += 1;
    }

    pub(crate) fn stats(&self) -> Stats {
        let held = |entry: &&Entry| entry.targets.values().any(|state| !matches!(state, State::Failed(_)));
        let open = |import: &&Import| import.life != Life::Opening;
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

/// The owner.
impl Protocol {
    /// The entry of an allocation, if there is one. Entries that overlap it otherwise are of memory that was freed: they
    /// retire, unless one is in use; that one's base and its pins are the error.
    pub(crate) fn lookup(&mut self, allocation: &Allocation) -> Result<Option<u64>, (Address, usize)> {
        let is_other = |entry: &Entry| entry.allocation.conflicts(allocation);
        if let Some(entry) = self.entries.values().find(|entry| is_other(entry) && entry.pins > 0) {
            return Err((entry.allocation.base, entry.pins));
        }
        let stale: Vec<u64> = self.entries.iter().filter(|(_, e)| is_other(e)).map(|(id, _)| *id).collect();
        stale.into_iter().for_each(|id| self.retire(id));
        self.settle();
        let is_same = |entry: &Entry| !entry.retiring && entry.allocation == *allocation;
        Ok(self.entries.iter().find(|(_, entry)| is_same(entry)).map(|(id, _)| *id))
    }

    /// Whether there is an entry of an allocation.
    pub(crate) fn knows(&self, allocation: &Allocation) -> bool {
        self.entries.values().any(|entry| !entry.retiring && entry.allocation == *allocation)
    }

    /// A new entry, after a [`Protocol::lookup`] that found none.
    pub(crate) fn insert(&mut self, allocation: Allocation) -> u64 {
        let id = self.fresh();
        let (targets, waiting) = (BTreeMap::new(), Vec::new());
        let (pins, last_use, retiring) = (0, Duration::ZERO, false);
        let entry = Entry { allocation, pins, last_use, retiring, targets, waiting };
        self.entries.insert(id, entry);
        id
    }

    /// Asks for an entry to be mapped by a target. The answer comes as an [`Effect::Answer`]; until then, and after
    /// [`Answer::Mapped`], the entry is pinned. The number returned is a transfer's epoch.
    pub(crate) fn request(&mut self, id: u64, target: Target, want: Want, now: Duration) -> u64 {
        let request = Request { id: self.fresh(), target, want };
        let Some(entry) = self.entries.get_mut(&id).filter(|_| !self.gone.contains(&target.rank)) else {
            self.out.push_back(Effect::Answer { request: request.id, answer: Answer::Gone });
            self.settle();
            return request.id;
        };
        entry.last_use = now;
        match entry.targets.get(&target).copied() {
            Some(State::Failed(why)) => {
                self.stats.staged += 1;
                self.out.push_back(Effect::Answer { request: request.id, answer: Answer::Refused(why) });
            }
            Some(State::Mapped(token)) => {
                self.stats.hits += 1;
                entry.pins += 1;
                self.grant(id, &request, token);
            }
            state => {
                self.stats.hits += u64::from(state == Some(State::Offered));
                entry.pins += 1;
                entry.waiting.push(request);
            }
        }
        self.settle();
        request.id
    }

    /// A request is not waited for any more. True if it had no answer yet.
    pub(crate) fn withdraw(&mut self, request: u64, now: Duration) -> bool {
        let found = self.entries.iter_mut().find_map(|(id, entry)| {
            let at = entry.waiting.iter().position(|waiting| waiting.id == request)?;
            entry.waiting.remove(at);
            Some(*id)
        });
        found.inspect(|id| self.unpin(*id, now)).is_some()
    }

    /// A mapping is not used any more.
    pub(crate) fn unpin(&mut self, id: u64, now: Duration) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.pins -= 1;
            entry.last_use = now;
            self.settle();
        }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.settle();
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Gives up the allocation around an address. In use: the number of its pins is the error. What is returned is still
    /// mapped somewhere; [`Protocol::holders`] says where.
    pub(crate) fn release(&mut self, address: Address) -> Result<Vec<u64>, usize> {
        let around = |entry: &Entry| (entry.allocation.base..entry.allocation.end()).contains(&address);
        let found: Vec<u64> = self.entries.iter().filter(|(_, e)| around(e)).map(|(id, _)| *id).collect();
        let pins = found.iter().map(|id| self.entries[id].pins).sum();
        if pins > 0 {
            return Err(pins);
        }
        found.iter().for_each(|id| self.retire(*id));
        self.settle();
        Ok(found)
    }

    /// The ranks that have not unmapped entries yet.
    pub(crate) fn holders(&self, ids: &[u64]) -> Vec<usize> {
        let targets = ids.iter().filter_map(|id| self.entries.get(id)).flat_map(|entry| entry.targets.keys());
        targets.map(|target| target.rank).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Nothing of this rank is mapped, nothing is open here.
    pub(crate) fn is_over(&self) -> bool {
        self.entries.is_empty() && self.imports.is_empty()
    }

    /// Whether something is kept that nothing uses.
    pub(crate) fn has_unused(&self) -> bool {
        self.entries.values().any(|entry| entry.pins == 0 && !entry.retiring)
    }

    /// All entries there are.
    pub(crate) fn entries(&self) -> Vec<u64> {
        self.entries.keys().copied().collect()
    }

    /// Gives up what was freed without a word. What is in use nevertheless is returned, and by how many.
    pub(crate) fn sweep(&mut self, is_there: impl Fn(&Allocation) -> bool) -> Vec<(Allocation, usize)> {
        let kept = self.entries.iter().filter(|(_, entry)| !entry.retiring);
        let freed: Vec<u64> = kept.filter(|(_, e)| !is_there(&e.allocation)).map(|(id, _)| *id).collect();
        let (used, unused): (Vec<u64>, Vec<u64>) =
            freed.into_iter().partition(|id| self.entries[id].pins > 0);
        unused.into_iter().for_each(|id| self.retire(id));
        self.settle();
        used.iter().map(|id| (self.entries[id].allocation, self.entries[id].pins)).collect()
    }

    fn mapped(&mut self, id: u64, target: Target, token: u64) {
        let entry = self.entries.get_mut(&id);
        let offered = entry.filter(|entry| entry.targets.get(&target) == Some(&State::Offered));
        let Some(entry) = offered else {
            // Its entry is no more, and another one's memory is none of it.
            return self.out.push_back(post(target.rank, Message::Unmap { token }));
        };
        self.stats.opens += 1;
        if entry.retiring {
            entry.targets.insert(target, State::Unmapping);
            return self.out.push_back(post(target.rank, Message::Unmap { token }));
        }
        entry.targets.insert(target, State::Mapped(token));
        let waiting = std::mem::take(&mut entry.waiting);
        let (served, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|r| r.target == target);
        entry.waiting = rest;
        served.iter().for_each(|request| self.grant(id, request, token));
        self.settle();
    }

    /// A request of a pinned entry is answered by a mapping.
    fn grant(&mut self, id: u64, request: &Request, token: u64) {
        let Want::Data { offset, length } = request.want else {
            let answer = Answer::Mapped { entry: id, token };
            return self.out.push_back(Effect::Answer { request: request.id, answer });
        };
        self.transfers.insert(request.id, (id, request.target));
        let under_way = self.transfers.values().filter(|(of, _)| *of == id).count();
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let last = entry.pins == under_way && !self.limits.hold(1, entry.allocation.bytes);
        let data = Message::Data { entry: id, token, offset, length, epoch: request.id, last };
        self.out.push_back(post(request.target.rank, data));
        if last {
            entry.targets.insert(request.target, State::Unmapping);
            self.retire(id);
        }
    }

    /// An entry could not be exported for a target, or not be opened by it.
    pub(crate) fn failed(&mut self, id: u64, target: Target, why: Refusal) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.targets.get(&target) != Some(&State::Offered) {
            return;
        }
        match entry.retiring {
            true => drop(entry.targets.remove(&target)),
            false => drop(entry.targets.insert(target, State::Failed(why))),
        }
        let waiting = std::mem::take(&mut entry.waiting);
        let (refused, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|r| r.target == target);
        entry.waiting = rest;
        entry.pins -= refused.len();
        self.stats.staged += refused.len() as u64;
        let answer = |r: Request| Effect::Answer { request: r.id, answer: Answer::Refused(why) };
        self.out.extend(refused.into_iter().map(answer));
        self.settle();
    }

    fn unmapped(&mut self, id: u64, target: Target) {
        if let Some(entry) = self.entries.get_mut(&id)
            && matches!(entry.targets.get(&target), Some(State::Mapped(_) | State::Unmapping))
        {
            entry.targets.remove(&target);
            self.settle();
        }
    }

    fn done(&mut self, from: usize, epoch: u64, refused: Option<Refusal>, now: Duration) {
        let Some((id, _)) = self.transfers.get(&epoch).copied().filter(|(_, target)| target.rank == from)
        else {
            return;
        };
        self.transfers.remove(&epoch);
        self.unpin(id, now);
        self.out.push_back(Effect::Answer { request: epoch, answer: Answer::Done(refused) });
    }

    /// From now on an entry only gets unmapped.
    fn retire(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.retiring = true;
        entry.targets.retain(|_, state| !matches!(state, State::Failed(_)));
        for (target, state) in &mut entry.targets {
            if let State::Mapped(token) = *state {
                *state = State::Unmapping;
                self.out.push_back(post(target.rank, Message::Unmap { token }));
            }
        }
    }

    /// What follows from a change: too much is evicted, what is unmapped everywhere is no more, what waits for that is
    /// offered.
    fn settle(&mut self) {
        let idle = |entry: &&Entry| entry.pins == 0 && !entry.retiring;
        let mut count = self.entries.values().filter(idle).count();
        let mut bytes: u64 = self.entries.values().filter(idle).map(|entry| entry.allocation.bytes).sum();
        while !self.limits.hold(count, bytes) {
            let is_open = |entry: &Entry| entry.targets.values().any(|state| *state == State::Offered);
            let victims = self.entries.iter().filter(|(_, entry)| idle(entry) && !is_open(entry));
            let Some((&id, entry)) = victims.min_by_key(|(id, entry)| (entry.last_use, **id)) else { break };
            (count, bytes) = (count - 1, bytes - entry.allocation.bytes);
            self.stats.evictions += 1;
            self.retire(id);
        }
        self.entries.retain(|_, entry| !entry.retiring || !entry.targets.is_empty());
        let retiring: Vec<&Entry> = self.entries.values().filter(|entry| entry.retiring).collect();
        let mut ready = BTreeSet::new();
        for (id, entry) in &self.entries {
            let is_held_back = |target: &Target| {
                let is_there = |other: &Entry| other.targets.keys().any(|at| at.rank == target.rank);
                retiring.iter().any(|other| other.allocation.overlaps(&entry.allocation) && is_there(other))
            };
            let wanted = entry.waiting.iter().map(|request| request.target);
            let new = wanted.filter(|target| !entry.targets.contains_key(target));
            ready.extend(new.filter(|target| !is_held_back(target)).map(|target| (*id, target)));
        }
        for (id, target) in ready {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.targets.insert(target, State::Offered);
            let allocation = entry.allocation;
            self.out.push_back(Effect::Offer { entry: id, target, allocation });
        }
    }
}
