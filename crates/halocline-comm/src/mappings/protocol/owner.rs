//! The owner's side, which decides which ranks have its memory mapped.

use super::{Answer, Effect, Entry, Protocol, Request, State, Target, Want, post};
use crate::mappings::message::Message;
use halocline_device::Address;
use halocline_device::remote::{Allocation, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The progress of unmapping allocations that are about to be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unmap {
    /// Something still uses one.
    InUse,
    /// Some rank has not unmapped one yet.
    Unmapping,
    /// No rank has any of them mapped.
    Over,
}

/// An entry that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) id: u64,
    pub(crate) allocation: Allocation,
    /// Whether the allocation certainly still exists.
    pub(crate) is_own: bool,
}

impl Protocol {
    /// The entry of an allocation, if there is one. Other entries that overlap it belong to freed memory: they
    /// retire. If one is in use, its base and the number of its pins are the error.
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

    /// The entry of the smallest allocation that contains some bytes.
    pub(crate) fn around(&self, address: Address, bytes: u64) -> Option<Known> {
        let end = address.checked_add(bytes)?;
        let holds = |of: &Allocation| of.base <= address && end <= of.end() && address < of.end();
        let kept = self.entries.iter().filter(|(_, entry)| !entry.retiring && holds(&entry.allocation));
        let (&id, entry) = kept.min_by_key(|(_, entry)| entry.allocation.bytes)?;
        Some(Known { id, allocation: entry.allocation, is_own: entry.is_own })
    }

    /// Whether an entry is one of this allocation, and does not retire: then no other one overlaps it.
    pub(crate) fn is_current(&self, id: u64, allocation: &Allocation) -> bool {
        self.entries.get(&id).is_some_and(|entry| !entry.retiring && entry.allocation == *allocation)
    }

    /// A new entry, after a [`Protocol::lookup`] that found none. `is_own`: the library reports before it frees the memory.
    pub(crate) fn insert(&mut self, allocation: Allocation, is_own: bool) -> u64 {
        let id = self.fresh();
        let (targets, waiting) = (BTreeMap::new(), Vec::new());
        let (pins, last_use, retiring, is_given_up) = (0, Duration::ZERO, false, false);
        let entry = Entry { allocation, is_own, pins, last_use, retiring, is_given_up, targets, waiting };
        self.entries.insert(id, entry);
        id
    }

    /// Requests that a target maps an entry. The answer comes as an [`Effect::Answer`]; until then, and after
    /// [`Answer::Mapped`], the entry is pinned. Returns the number of the request, the epoch of a transfer.
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
            Some(State::Mapped { token, address }) => {
                self.stats.hits += 1;
                entry.pins += 1;
                self.grant(id, &request, (token, address));
                // Another pin has no consequences: the use of mapped memory costs little, however many entries there are.
                if let Want::Map = want {
                    return request.id;
                }
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

    /// Withdraws a request that waits until former memory at its address is unmapped. True if it did wait for that.
    pub(crate) fn refuse_held_back(&mut self, request: u64, now: Duration) -> bool {
        let is_it = |entry: &Entry, of: &Request| of.id == request && !entry.targets.contains_key(&of.target);
        let is_held_back = self.entries.values().any(|entry| entry.waiting.iter().any(|of| is_it(entry, of)));
        let refuses = is_held_back && self.withdraw(request, now);
        self.stats.staged += u64::from(refuses);
        refuses
    }

    /// Withdraws a request. True if it had no answer yet.
    pub(crate) fn withdraw(&mut self, request: u64, now: Duration) -> bool {
        let found = self.entries.iter_mut().find_map(|(id, entry)| {
            let at = entry.waiting.iter().position(|waiting| waiting.id == request)?;
            entry.waiting.remove(at);
            Some(*id)
        });
        found.inspect(|id| self.unpin(*id, now)).is_some()
    }

    /// Ends the use of a mapping.
    pub(crate) fn unpin(&mut self, id: u64, now: Duration) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.pins -= 1;
            entry.last_use = now;
            let may_go = entry.is_given_up || entry.retiring || self.entries.len() > self.limit;
            if may_go {
                self.settle();
            }
        }
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.settle();
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Retires the allocation around an address, or fails with the number of its pins if it is in use. Returns the entries that are still
    /// mapped; [`Protocol::holders`] tells by which ranks.
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

    /// Retires an allocation that is about to be freed, once nothing uses it. Returns its entries, which exist
    /// as long as a rank has it mapped.
    pub(crate) fn give_up(&mut self, is_it: impl Fn(&Allocation) -> bool) -> Vec<u64> {
        let found: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| is_it(&entry.allocation)).map(|(id, _)| *id).collect();
        for id in &found {
            match self.entries.get_mut(id) {
                Some(entry) if entry.pins > 0 => entry.is_given_up = true,
                _ => self.retire(*id),
            }
        }
        self.settle();
        found
    }

    /// The progress of unmapping these entries.
    pub(crate) fn unmap_state(&self, given_up: &[u64]) -> Unmap {
        let left = given_up.iter().filter_map(|id| self.entries.get(id));
        let of_one = |entry: &Entry| if entry.retiring { Unmap::Unmapping } else { Unmap::InUse };
        left.map(of_one).min().unwrap_or(Unmap::Over)
    }

    /// The ranks that have not unmapped entries yet.
    pub(crate) fn holders(&self, ids: &[u64]) -> Vec<usize> {
        let targets = ids.iter().filter_map(|id| self.entries.get(id)).flat_map(|entry| entry.targets.keys());
        targets.map(|target| target.rank).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether nothing of this rank is mapped and nothing is open here.
    pub(crate) fn is_over(&self) -> bool {
        self.entries.is_empty() && self.imports.is_empty()
    }

    /// Whether there is an unused entry of memory that another owner may have freed.
    pub(crate) fn has_unused(&self) -> bool {
        self.entries.values().any(|entry| entry.pins == 0 && !entry.retiring && !entry.is_own)
    }

    /// Whether there is an entry of memory that another owner may free.
    pub(crate) fn has_foreign(&self) -> bool {
        self.entries.values().any(|entry| !entry.retiring && !entry.is_own)
    }

    /// All entries.
    pub(crate) fn entries(&self) -> Vec<u64> {
        self.entries.keys().copied().collect()
    }

    /// Allocations that another owner may have freed.
    pub(crate) fn sweepable(&self) -> Vec<Allocation> {
        let kept = self.entries.values().filter(|entry| !entry.retiring && !entry.is_own);
        kept.map(|entry| entry.allocation).collect()
    }

    /// Retires entries of memory that another owner has freed. Returns those in use, with the number of their pins.
    pub(crate) fn sweep(&mut self, is_there: impl Fn(&Allocation) -> bool) -> Vec<(Allocation, usize)> {
        let kept = self.entries.iter().filter(|(_, entry)| !entry.retiring && !entry.is_own);
        let freed: Vec<u64> = kept.filter(|(_, e)| !is_there(&e.allocation)).map(|(id, _)| *id).collect();
        let (used, unused): (Vec<u64>, Vec<u64>) =
            freed.into_iter().partition(|id| self.entries[id].pins > 0);
        unused.into_iter().for_each(|id| self.retire(id));
        self.settle();
        used.iter().map(|id| (self.entries[id].allocation, self.entries[id].pins)).collect()
    }

    pub(super) fn mapped(&mut self, id: u64, target: Target, (token, address): (u64, Address)) {
        let entry = self.entries.get_mut(&id);
        let offered = entry.filter(|entry| entry.targets.get(&target) == Some(&State::Offered));
        let Some(entry) = offered else {
            // The entry has been removed meanwhile.
            return self.out.push_back(post(target.rank, Message::Unmap { token }));
        };
        self.stats.opens += 1;
        if entry.retiring {
            entry.targets.insert(target, State::Unmapping);
            return self.out.push_back(post(target.rank, Message::Unmap { token }));
        }
        entry.targets.insert(target, State::Mapped { token, address });
        let waiting = std::mem::take(&mut entry.waiting);
        let (served, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|r| r.target == target);
        entry.waiting = rest;
        served.iter().for_each(|request| self.grant(id, request, (token, address)));
        self.settle();
    }

    /// Answers a request of a pinned entry with a mapping.
    fn grant(&mut self, id: u64, request: &Request, (token, address): (u64, Address)) {
        let Want::Data { offset, length } = request.want else {
            let answer = Answer::Mapped { entry: id, token, address };
            return self.out.push_back(Effect::Answer { request: request.id, answer });
        };
        self.transfers.insert(request.id, (id, request.target));
        let in_flight = self.transfers.values().filter(|(of, _)| *of == id).count();
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let last = entry.pins == in_flight && self.limit == 0;
        let data = Message::Data { entry: id, token, offset, length, epoch: request.id, last };
        self.out.push_back(post(request.target.rank, data));
        if last {
            entry.targets.insert(request.target, State::Unmapping);
            self.retire(id);
        }
    }

    /// An entry could not be exported for a target, or the target could not open it.
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

    pub(super) fn unmapped(&mut self, id: u64, target: Target) {
        if let Some(entry) = self.entries.get_mut(&id)
            && matches!(entry.targets.get(&target), Some(State::Mapped { .. } | State::Unmapping))
        {
            entry.targets.remove(&target);
            self.settle();
        }
    }

    pub(super) fn done(&mut self, from: usize, epoch: u64, refused: Option<Refusal>, now: Duration) {
        let Some((id, _)) = self.transfers.get(&epoch).copied().filter(|(_, target)| target.rank == from)
        else {
            return;
        };
        self.transfers.remove(&epoch);
        self.unpin(id, now);
        self.out.push_back(Effect::Answer { request: epoch, answer: Answer::Done(refused) });
    }

    /// Retires an entry: it only gets unmapped from now on.
    pub(super) fn retire(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.retiring = true;
        entry.targets.retain(|_, state| !matches!(state, State::Failed(_)));
        for (target, state) in &mut entry.targets {
            if let State::Mapped { token, .. } = *state {
                *state = State::Unmapping;
                self.out.push_back(post(target.rank, Message::Unmap { token }));
            }
        }
    }

    /// Applies the consequences of a change: evicts beyond the limit, removes entries that are unmapped everywhere, makes
    /// offers that waited for that.
    pub(super) fn settle(&mut self) {
        let given_up = |entry: &Entry| entry.is_given_up && entry.pins == 0 && !entry.retiring;
        let ids: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| given_up(entry)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.retire(id));
        let idle = |entry: &&Entry| entry.pins == 0 && !entry.retiring;
        let mut count = self.entries.values().filter(idle).count();
        while count > self.limit {
            let is_open = |entry: &Entry| entry.targets.values().any(|state| *state == State::Offered);
            let victims = self.entries.iter().filter(|(_, entry)| idle(entry) && !is_open(entry));
            let Some((&id, _)) = victims.min_by_key(|(id, entry)| (entry.last_use, **id)) else { break };
            count -= 1;
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
