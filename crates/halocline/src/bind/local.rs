//! The part of a bind that needs no peer: checks the given fields against their patterns.

use super::error::BindError;
use crate::error::{Error, ReduceError};
use crate::field::{Field, Memory, Number, State};
use crate::link::Direction;
use crate::pattern::{DomainName, Pattern};
use halocline_comm::{Communicator, Segment};
use halocline_plan::copy::{CellLayout, End, copy_op};
use halocline_plan::{Layout, LayoutError, OwnedElements, ReduceOp, Transfer};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// A field in its place: field `number` of domain `domain` of the pattern with the id `pattern`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) pattern: u64,
    pub(crate) number: usize,
    pub(crate) domain: u64,
}

/// The fields of one set on this rank.
#[derive(Clone)]
pub(crate) struct Local {
    /// Distinct patterns, in the order in which they first appear.
    pub(crate) patterns: Vec<Pattern>,
    /// Fields of each domain, for each pattern.
    pub(crate) counts: Vec<usize>,
    /// The fields, in the order given.
    pub(crate) fields: Vec<Bindable>,
    by_place: HashMap<Place, usize>,
    /// Distinct memories, each with the first field in it.
    pub(crate) memories: Vec<(Arc<Memory>, usize)>,
    /// Two fields that share owned cells that are exchanged.
    pub(super) shared_owned: Option<[usize; 2]>,
    /// For each operation, in the order of [`ReduceOp::ALL`], whether these fields can be reduced by it: on all ranks, once they have agreed.
    pub(super) reductions: [bool; ReduceOp::ALL.len()],
    /// States of other memories that share bytes with those ([`Memory::overlapping`]), each with a field: an exchange takes them, too.
    overlapping: Vec<(Arc<State>, usize)>,
}

/// A field with its place and its layout in cells.
#[derive(Clone)]
pub(crate) struct Bindable {
    pub(crate) place: Place,
    pub(crate) layout: Layout,
    pub(crate) cells: CellLayout,
    /// The index of its memory, and the byte offset of element (0, 0, …) in it.
    pub(crate) memory: usize,
    pub(crate) offset: usize,
}

impl Bindable {
    /// Bytes of a transfer of this field.
    pub(crate) fn bytes_of(&self, transfer: &Transfer) -> usize {
        transfer.source.count() * self.cells.bytes_per_cell()
    }
}

impl Local {
    /// Gives every field its place and checks that its array holds all cells that the pattern exchanges.
    pub(crate) fn new(comm: &Communicator, given: &[(&Pattern, &Field)]) -> Result<Self, Error> {
        let mut local = Self {
            patterns: Vec::new(),
            counts: Vec::new(),
            fields: Vec::new(),
            by_place: HashMap::new(),
            memories: Vec::new(),
            shared_owned: None,
            reductions: [true; ReduceOp::ALL.len()],
            overlapping: Vec::new(),
        };
        for &(pattern, field) in given {
            local.add(comm.size(), pattern, field)?;
        }
        local.check_counts()?;
        local.check_within(comm.rank())?;
        local.check_aliases()?;
        local.find_overlapping();
        let is_supported =
            |op: ReduceOp| local.fields.iter().all(|field| op.supports(field.layout.element()));
        local.reductions = ReduceOp::ALL.map(|op| local.shared_owned.is_none() && is_supported(op));
        Ok(local)
    }

    fn add(&mut self, size: usize, pattern: &Pattern, field: &Field) -> Result<(), Error> {
        let at = self.patterns.iter().position(|known| known.id() == pattern.id()).unwrap_or_else(|| {
            self.patterns.push(pattern.clone());
            self.patterns.len() - 1
        });
        let plan = pattern.plan();
        check_ranks(at, pattern, size)?;
        let which = |domains| BindError::WhichDomain { pattern: at, domains };
        let domain = pattern.domain_of(field.domain).map_err(which)?;
        let shape = plan
            .domain(domain)
            .ok_or_else(|| BindError::NotOnRank { pattern: at, domain: pattern.domain_name(domain) })?;
        let id = pattern.id();
        let number = self.fields.iter().filter(|f| (f.place.pattern, f.place.domain) == (id, domain)).count();
        let place = Place { pattern: id, number, domain };
        let wrong =
            |error| Error::Field { pattern: at, field: number, domain: pattern.domain_name(domain), error };
        let cells = CellLayout::new(&field.layout, shape).map_err(wrong)?;
        for transfer in transfers(plan) {
            if transfer.from == domain {
                cells.check(&field.layout, shape, &transfer.source).map_err(wrong)?;
            }
            if transfer.to == domain {
                cells.check(&field.layout, shape, &transfer.target).map_err(wrong)?;
            }
            if transfer.is_negated && cells.element.sign_distance().is_none() {
                let element = cells.named_element();
                return Err(wrong(LayoutError::NoSign { element }));
            }
        }
        let index = self.fields.len();
        let memory = self.memory_of(field, index);
        self.by_place.insert(place, index);
        let (layout, offset) = (field.layout.clone(), field.offset);
        self.fields.push(Bindable { place, layout, cells, memory, offset });
        Ok(())
    }

    /// The same fields with other patterns and memories instead of theirs. Each memory comes with the offset at which the old
    /// memory's bytes begin in it.
    pub(super) fn again(
        &self,
        comm: &Communicator,
        patterns: &[Pattern],
        memories: &[(Arc<Memory>, usize)],
    ) -> Result<Self, Error> {
        let fields: Vec<(Pattern, Field)> = self
            .fields
            .iter()
            .map(|known| {
                let (memory, lead) = &memories[known.memory];
                let (memory, layout) = (Arc::clone(memory), known.layout.clone());
                let offset = lead + known.offset;
                let (domain, number) = (Some(known.place.domain), Number::next());
                let field = Field { memory, layout, offset, domain, number };
                (patterns[self.index_of(known.place.pattern)].all_components(), field)
            })
            .collect();
        let given: Vec<(&Pattern, &Field)> = fields.iter().map(|(pattern, field)| (pattern, field)).collect();
        Ok(Self { reductions: self.reductions, ..Self::new(comm, &given)? })
    }

    /// Refuses a reduction that some rank's fields do not support: all ranks refuse it.
    pub(crate) fn check_reduction(&self, op: ReduceOp) -> Result<(), Error> {
        let at = ReduceOp::ALL.iter().position(|known| *known == op);
        match at.is_some_and(|at| self.reductions[at]) {
            true => Ok(()),
            false => Err(ReduceError::Elsewhere { op }.into()),
        }
    }

    /// The fields' distinct memories, as [`Local::again`] takes them.
    pub(super) fn memories(&self) -> Vec<(Arc<Memory>, usize)> {
        self.memories.iter().map(|(memory, _)| (Arc::clone(memory), 0)).collect()
    }

    fn memory_of(&mut self, field: &Field, index: usize) -> usize {
        let known = self.memories.iter().position(|(memory, _)| Arc::ptr_eq(memory, &field.memory));
        known.unwrap_or_else(|| {
            self.memories.push((Arc::clone(&field.memory), index));
            self.memories.len() - 1
        })
    }

    /// The field at a place, and its number in the order given.
    pub(crate) fn at(&self, place: Place) -> Option<(usize, &Bindable)> {
        self.by_place.get(&place).map(|&index| (index, &self.fields[index]))
    }

    /// The segment that a field lies in.
    pub(crate) fn segment_of(&self, field: &Bindable) -> &Arc<Segment> {
        &self.memories[field.memory].0.segment
    }

    /// Address of element (0, 0, …) of each field.
    pub(crate) fn bases(&self) -> Vec<*mut u8> {
        let base = |field: &Bindable| self.segment_of(field).base().as_ptr().wrapping_add(field.offset);
        self.fields.iter().map(base).collect()
    }

    /// Ranks that the patterns connect this one with, ascending.
    pub(crate) fn peers(&self) -> BTreeSet<usize> {
        self.patterns.iter().flat_map(|pattern| &pattern.plan().peers).map(|peer| peer.rank).collect()
    }

    /// Collects the states of other memories that share bytes with the fields' memories, each once.
    fn find_overlapping(&mut self) {
        for (memory, field) in &self.memories {
            for state in memory.overlapping() {
                let is_state = |other: &Arc<State>| Arc::ptr_eq(other, state);
                if !self.memories.iter().any(|(memory, _)| is_state(&memory.state))
                    && !self.overlapping.iter().any(|(other, _)| is_state(other))
                {
                    self.overlapping.push((Arc::clone(state), *field));
                }
            }
        }
    }

    /// The states of memories that an exchange takes, each with a field.
    fn states(&self) -> impl Iterator<Item = (&Arc<State>, usize)> {
        let own = self.memories.iter().map(|(memory, field)| (&memory.state, *field));
        own.chain(self.overlapping.iter().map(|(state, field)| (state, *field)))
    }

    /// Takes all memories for an exchange, or none.
    pub(crate) fn begin_flight(&self) -> Result<(), Error> {
        for (at, (state, field)) in self.states().enumerate() {
            if let Err(blocked) = state.begin_flight() {
                self.states().take(at).for_each(|(state, _)| state.end_flight());
                return Err(blocked.error(field));
            }
        }
        Ok(())
    }

    /// Takes back one [`Local::begin_flight`].
    pub(crate) fn end_flight(&self) {
        self.states().for_each(|(state, _)| state.end_flight());
    }

    /// Guards all memories, which are those of devices, or none.
    pub(crate) fn guard(&self) -> Result<(), Error> {
        for (at, (state, field)) in self.states().enumerate() {
            if state.guard_copy(true).is_err() {
                self.states().take(at).for_each(|(state, _)| state.unguard_copy(true));
                return Err(Error::Borrowed { field });
            }
        }
        Ok(())
    }

    /// Takes back one [`Local::guard`].
    pub(crate) fn unguard(&self) {
        self.states().for_each(|(state, _)| state.unguard_copy(true));
    }

    /// Fails while a guard of one of the memories is held.
    pub(crate) fn check_guards(&self) -> Result<(), Error> {
        match self.memories.iter().find(|(memory, _)| memory.state.is_guarded()) {
            Some(&(_, field)) => Err(Error::Borrowed { field }),
            None => Ok(()),
        }
    }

    /// Whether a field lies in a memory.
    pub(crate) fn is_in(&self, memory: &Arc<Memory>) -> bool {
        self.memories.iter().any(|(own, _)| Arc::ptr_eq(own, memory))
    }

    /// Releases all memories: exchanges of this set take none from now on.
    pub(crate) fn forget_memories(&mut self) {
        self.memories.clear();
        self.overlapping.clear();
    }

    /// For each memory the group of memories that overlap, directly or through others of the group: the index of one of them.
    fn overlap_groups(&self) -> Vec<usize> {
        let place = |at: usize| {
            let (memory, _) = &self.memories[at];
            let first = memory.segment.base().addr().get();
            let device = memory.device.as_ref().map(|home| home.device.ordinal());
            (device, first, first + memory.segment.len())
        };
        let mut by_address: Vec<usize> = (0..self.memories.len()).collect();
        by_address.sort_by_key(|&at| place(at));
        let mut groups: Vec<usize> = (0..self.memories.len()).collect();
        let mut last: Option<(Option<u32>, usize, usize)> = None;
        for at in by_address {
            let (device, first, end) = place(at);
            last = Some(match last {
                Some((same, group, reach)) if same == device && first < reach => {
                    (device, group, reach.max(end))
                }
                _ => (device, at, end),
            });
            groups[at] = last.map_or(at, |(_, group, _)| group);
        }
        groups
    }

    /// The transfers with a peer in the order in which their bytes travel: the index of this rank's field, the field and the
    /// transfer; by pattern, field number and transfer.
    pub(crate) fn exchanged(
        &self,
        peer: usize,
        direction: Direction,
    ) -> impl Iterator<Item = (usize, &Bindable, &Transfer)> {
        let mut patterns: Vec<_> = self.patterns.iter().zip(&self.counts).collect();
        // The order of the bind may differ between ranks that do not share all patterns.
        patterns.sort_by_key(|(pattern, _)| pattern.id());
        patterns.into_iter().flat_map(move |(pattern, &count)| {
            let peers = pattern.plan().peers.iter().filter(move |p| p.rank == peer);
            let transfers = move || {
                peers.clone().flat_map(move |p| match direction {
                    Direction::Send => &p.sends,
                    Direction::Receive => &p.receives,
                })
            };
            (0..count).flat_map(move |number| {
                transfers().filter_map(move |transfer| {
                    let domain = if direction == Direction::Send { transfer.from } else { transfer.to };
                    let (index, field) = self.at(Place { pattern: pattern.id(), number, domain })?;
                    Some((index, field, transfer))
                })
            })
        })
    }

    /// Bytes that one exchange sends to a peer, or receives from it.
    pub(crate) fn bytes(&self, peer: usize, direction: Direction) -> usize {
        let exchanged = self.exchanged(peer, direction);
        exchanged.map(|(_, field, transfer)| field.bytes_of(transfer)).sum()
    }

    /// The user's name for the domain at a place.
    pub(crate) fn name_of(&self, place: Place) -> DomainName {
        self.patterns[self.index_of(place.pattern)].domain_name(place.domain)
    }

    /// The index of a pattern in the order of the bind.
    pub(crate) fn index_of(&self, id: u64) -> usize {
        self.patterns.iter().position(|pattern| pattern.id() == id).unwrap_or(self.patterns.len())
    }

    /// Checks that all domains of a pattern bind the same number of fields.
    fn check_counts(&mut self) -> Result<(), Error> {
        for (at, pattern) in self.patterns.iter().enumerate() {
            let here =
                |domain| move |f: &&Bindable| (f.place.pattern, f.place.domain) == (pattern.id(), domain);
            let count = |domain| self.fields.iter().filter(here(domain)).count();
            let counts: Vec<(u64, usize)> =
                pattern.plan().domains.iter().map(|&(domain, _)| (domain, count(domain))).collect();
            let first = counts.first().map_or(0, |(_, count)| *count);
            if let Some((domain, count)) = counts.iter().find(|(_, count)| *count != first) {
                return Err(BindError::DomainFields {
                    pattern: at,
                    domain: pattern.domain_name(*domain),
                    fields: *count,
                    other: pattern.domain_name(counts[0].0),
                    other_fields: first,
                }
                .into());
            }
            self.counts.push(first);
        }
        Ok(())
    }

    /// Checks that fields of this rank that exchange with each other have the same bytes per cell.
    fn check_within(&self, rank: usize) -> Result<(), Error> {
        for (at, (pattern, &count)) in self.patterns.iter().zip(&self.counts).enumerate() {
            for (number, transfer) in
                (0..count).flat_map(|number| pattern.plan().local.iter().map(move |t| (number, t)))
            {
                let field = |domain| self.at(Place { pattern: pattern.id(), number, domain });
                let (Some((_, from)), Some((_, to))) = (field(transfer.from), field(transfer.to)) else {
                    continue;
                };
                to.cells.check_peer(&from.cells).map_err(|error| Error::Peer {
                    pattern: at,
                    field: number,
                    domain: pattern.domain_name(transfer.to),
                    peer: rank,
                    peer_domain: pattern.domain_name(transfer.from),
                    error: Box::new(error),
                })?;
            }
        }
        Ok(())
    }

    /// Checks that fields that share memory do not overlap where one of them is written. Finds fields that overlap elsewhere.
    fn check_aliases(&mut self) -> Result<(), Error> {
        let mut sharing: HashMap<usize, Vec<usize>> = HashMap::new();
        let overlap_groups = self.overlap_groups();
        for (index, bound) in self.fields.iter().enumerate() {
            sharing.entry(overlap_groups[bound.memory]).or_default().push(index);
        }
        for indices in sharing.values().filter(|indices| indices.len() > 1) {
            // First byte, end, written, field; in the order of addresses.
            let mut ranges: Vec<(isize, isize, bool, usize)> = Vec::new();
            for &index in indices {
                for written in [false, true] {
                    let blocks = self.blocks(index, written);
                    ranges.extend(blocks.into_iter().map(|r| (r.start, r.end, written, index)));
                }
            }
            ranges.sort_unstable();
            let (mut end, mut written_end) = ((isize::MIN, 0), (isize::MIN, 0));
            for (start, stop, written, index) in ranges {
                let before = if written { end.max(written_end) } else { written_end };
                if start < before.0 && before.1 != index {
                    return Err(self.shared([before.1, index]));
                }
                if !written && start < end.0 && end.1 != index {
                    self.shared_owned = Some([index.min(end.1), index.max(end.1)]);
                }
                let last = if written { &mut written_end } else { &mut end };
                *last = (*last).max((stop, index));
            }
        }
        Ok(())
    }

    /// The error of two fields that overlap.
    fn shared(&self, fields: [usize; 2]) -> Error {
        let places = fields.map(|index| self.fields[index].place);
        let (numbers, domains) = (places.map(|place| place.number), places.map(|place| self.name_of(place)));
        BindError::Overlap { fields, numbers, domains }.into()
    }

    /// The elements of a field that exchanges do not write. Every bound field has them.
    pub(crate) fn owned(&self, index: usize) -> Option<OwnedElements> {
        let Bindable { place, layout, .. } = &self.fields[index];
        let plan = self.patterns[self.index_of(place.pattern)].plan();
        let filled = transfers(plan).filter(|transfer| transfer.to == place.domain);
        OwnedElements::new(layout, plan.domain(place.domain)?, filled.map(|transfer| &transfer.target)).ok()
    }

    /// The addresses that exchanges read or, if `written`, write in a field.
    pub(super) fn blocks(&self, index: usize, written: bool) -> Vec<Range<isize>> {
        let bound = &self.fields[index];
        let first = self.segment_of(bound).base().addr().get().wrapping_add(bound.offset);
        let (base, cells) = (first as isize, &bound.cells);
        let mut ranges = Vec::new();
        let mine =
            |transfer: &&Transfer| bound.place.domain == if written { transfer.to } else { transfer.from };
        let pattern = &self.patterns[self.index_of(bound.place.pattern)];
        for transfer in transfers(pattern.plan()).filter(mine) {
            let op = if written {
                copy_op(transfer, (End::Message(0, 0), cells), (End::Field(0), cells))
            } else {
                copy_op(transfer, (End::Field(0), cells), (End::Message(0, 0), cells))
            };
            op.for_each_block(|source, target, len| {
                let start = base + if written { target } else { source };
                ranges.push(start..start + len as isize);
            });
        }
        ranges
    }
}

/// All transfers that a rank takes part in.
fn transfers(plan: &halocline_plan::PatternPlan) -> impl Iterator<Item = &Transfer> {
    let peers = plan.peers.iter().flat_map(|peer| peer.sends.iter().chain(&peer.receives));
    peers.chain(&plan.local)
}

/// A pattern of the communicator, or of a smaller one.
pub(super) fn check_ranks(at: usize, pattern: &Pattern, size: usize) -> Result<(), Error> {
    match pattern.plan().peers.iter().find(|peer| peer.rank >= size) {
        None => Ok(()),
        Some(peer) => Err(BindError::PatternRank { pattern: at, peer: peer.rank, ranks: size }.into()),
    }
}
