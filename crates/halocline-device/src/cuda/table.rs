//! From a copy table as it is given to the one that the kernel reads: regions of units, items of about as many units each.
//!
//! A [`CopyOp`] is at most four loops around a block here. Operations with more loops become several; a block whose two
//! ends have one alignment, but do not begin there, is split into a body of long units and its two ends; listed cells that
//! are few long runs become plain loops. So the kernel has one shape to deal with.

use crate::driver::{Address, Signal, TableSpec};
use crate::error::DeviceError;
use halocline_plan::copy::{CellRun, CopyOp};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Threads of a block, as in the kernel.
pub(super) const THREADS: u32 = 256;
/// Loops around a block, as in the kernel.
const LOOPS: usize = 4;
/// Units of a region are numbered below this.
const UNITS: u128 = 1 << 31;
/// Longest access in bytes.
const WIDEST: u64 = 16;
/// Blocks shorter than so many long units are not split: their ends would cost more than their body gains.
const WORTH_SPLITTING: u64 = 8;
/// Up to so many runs of listed cells become regions of their own.
const FEW_RUNS: usize = 8;
/// Units of an item: enough for every thread to have several accesses in flight, where there is so much to do; not so many
/// that the last items keep few multiprocessors busy (measured on an H200: half and twice as many cost up to a tenth).
const ITEM: (u64, u64) = (THREADS as u64, 2048);
/// Items for each multiprocessor, where there is not much to do: as many as it runs blocks.
const ITEMS: u64 = 4;
/// Multiprocessors for each block of parts that wait and copy: half of them stay free of those of one table.
const SPARED: u64 = 2;
/// Words that a launch raises first of all, and gives to the kernel by value.
const RAISES: usize = 6;
/// Launches of one table that may run at the same time: each has counters of its own.
pub(super) const SLOTS: usize = 16;

#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Region {
    source: u64,
    target: u64,
    source_step: [i64; LOOPS],
    target_step: [i64; LOOPS],
    count: [u32; LOOPS],
    multiplier: [u32; LOOPS],
    shift: [u8; LOOPS],
    log_unit: u8,
    loops: u8,
    cell_loop: u8,
    unused: u8,
    /// Until the table is laid out, an index into its cells.
    cells: u64,
}

#[repr(C, align(16))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    region: u32,
    first: u32,
    units: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part {
    item: u32,
    items: u32,
    wait: u32,
    waits: u32,
    raise: u32,
    raises: u32,
    blocks: u32,
    early: u32,
}

/// What a block begins with that does items of a part: its first item, and the number of its second one.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy)]
struct Carrier {
    first: Item,
    part: u32,
    item: u32,
    unused: [u32; 2],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    word: u64,
    lag: u64,
}

/// What a launch passes to the kernel by value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument {
    first: [u64; RAISES],
    items: u64,
    regions: u64,
    parts: u64,
    carriers: u64,
    waits: u64,
    raises: u64,
    guard: u64,
    done: u64,
    bare: u32,
    carrier_count: u32,
    item: u32,
    part_count: u32,
    first_count: u32,
    unused: u32,
}

/// A table that was cut, to be laid out in memory.
#[derive(Debug, Default)]
pub(super) struct Cut {
    regions: Vec<Region>,
    /// Of each region, how many it has.
    units: Vec<u32>,
    items: Vec<Item>,
    /// Those that copy nothing, then those with carriers.
    parts: Vec<Part>,
    carriers: Vec<Carrier>,
    /// Words that parts raise that neither wait nor copy, as many as there is room for.
    first: Vec<Address>,
    /// Of so many parts.
    bare: usize,
    /// The first item without carriers.
    item: usize,
    waits: Vec<Wait>,
    raises: Vec<u64>,
    cells: Vec<[u32; 2]>,
    guard: u64,
}

/// One loop of a nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loop {
    count: u64,
    source: i64,
    target: i64,
    /// For a loop over listed cells, where they begin among the table's.
    cells: Option<usize>,
}

/// Loops, outermost first, around blocks.
#[derive(Debug, Clone)]
struct Nest {
    source: u64,
    target: u64,
    loops: Vec<Loop>,
    block: u64,
}

impl Cut {
    /// Cuts a table for a device with so many multiprocessors. `reach` checks that the device reaches bytes.
    pub(super) fn new(
        spec: &TableSpec<'_>,
        multiprocessors: u32,
        mut reach: impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let mut cut = Self::default();
        let mut reach_word = |address: Address| {
            reach(address, 8)?;
            if address.is_multiple_of(8) { Ok(address) } else { Err(DeviceError::Misaligned { address }) }
        };
        if let Some(guard) = spec.guard {
            cut.guard = reach_word(guard)?;
        }
        let mut drafts = Vec::with_capacity(spec.parts.len());
        for part in spec.parts {
            let (wait, raise) = (cut.waits.len() as u32, cut.raises.len() as u32);
            for &Signal { address, lag } in part.waits {
                cut.waits.push(Wait { word: reach_word(address)?, lag });
            }
            for &address in part.raises {
                cut.raises.push(reach_word(address)?);
            }
            let (waits, raises) = (part.waits.len() as u32, part.raises.len() as u32);
            let is_bare = part.waits.is_empty() && part.ops.iter().all(|op| op.bytes() == 0);
            if is_bare && cut.first.len() + part.raises.len() <= RAISES {
                cut.raises.truncate(raise as usize);
                cut.first.extend(part.raises);
                drafts.push(Part::default());
                continue;
            }
            let early = part.early.into();
            drafts.push(Part { wait, waits, raise, raises, early, ..Part::default() });
        }
        let mut listed = HashMap::new();
        let mut regions = Vec::with_capacity(spec.parts.len());
        for part in spec.parts {
            let first = cut.regions.len();
            for op in part.ops {
                cut.add(op, spec, &mut listed, &mut reach)?;
            }
            regions.push(first..cut.regions.len());
        }
        cut.cut_parts(&drafts, &regions, multiprocessors.into());
        Ok(cut)
    }

    /// How many blocks a launch has.
    pub(super) fn blocks(&self) -> u32 {
        (usize::from(self.bare + self.first.len() > 0) + self.carriers.len() + self.items.len() - self.item)
            as u32
    }

    /// How many of them may wait.
    pub(super) fn waiting_blocks(&self) -> u32 {
        let bare = self.parts[..self.bare].iter().any(|part| part.waits > 0);
        let carriers = self.parts[self.bare..].iter().filter(|part| part.waits > 0).map(|part| part.blocks);
        carriers.sum::<u32>() + u32::from(bare)
    }

    fn cut_parts(&mut self, drafts: &[Part], regions: &[Range<usize>], multiprocessors: u64) {
        let units =
            |regions: &Range<usize>| self.units[regions.clone()].iter().map(|&units| u64::from(units)).sum();
        let of_parts: Vec<u64> = regions.iter().map(units).collect();
        let all = (of_parts.iter().sum(), ITEMS * multiprocessors);
        let each = || drafts.iter().zip(regions).zip(of_parts.iter().copied());
        let is_tied = |part: &Part| part.waits + part.raises > 0;
        self.parts = each()
            .filter(|((part, _), units)| is_tied(part) && *units == 0)
            .map(|((part, _), _)| *part)
            .collect();
        self.bare = self.parts.len();
        let waiting: u64 = each().filter(|((part, _), _)| part.waits > 0).map(|(_, units)| units).sum();
        for ((&part, regions), units) in each().filter(|((part, _), units)| is_tied(part) && *units > 0) {
            let item = self.items.len();
            // Those of parts that wait share a number of blocks, each with about one item.
            let share = (u128::from((multiprocessors / SPARED).max(1)) * u128::from(units))
                .div_ceil(u128::from(waiting.max(1)));
            let of = if part.waits > 0 { (units, share as u64) } else { all };
            self.cut_regions(regions.clone(), of);
            let items = self.items.len() - item;
            let blocks = if part.waits > 0 { items.min(share as usize) } else { items };
            let number = self.parts.len() as u32;
            self.carriers.extend((item..item + blocks).map(|at| Carrier {
                first: self.items[at],
                part: number,
                item: (at + blocks) as u32,
                unused: [0; 2],
            }));
            let (item, items, blocks) = (item as u32, items as u32, blocks as u32);
            self.parts.push(Part { item, items, blocks, ..part });
        }
        self.item = self.items.len();
        for ((_, regions), _) in each().filter(|((part, _), _)| !is_tied(part)) {
            self.cut_regions(regions.clone(), all);
        }
    }

    /// Items for so many blocks with so many units in all, long ones first.
    fn cut_regions(&mut self, regions: Range<usize>, (units, blocks): (u64, u64)) {
        let per_item = units.div_ceil(blocks).clamp(ITEM.0, ITEM.1);
        let per_item = per_item.next_multiple_of(if per_item > 1024 { 1024 } else { ITEM.0 }) as u32;
        let begin = self.items.len();
        for region in regions {
            let units = self.units[region];
            let firsts = (0..units).step_by(per_item as usize);
            self.items.extend(firsts.map(|first| {
                let units = per_item.min(units - first);
                Item { region: region as u32, first, units, unused: 0 }
            }));
        }
        self.items[begin..].sort_by_key(|item| Reverse(item.units));
    }

    fn add(
        &mut self,
        op: &CopyOp,
        spec: &TableSpec<'_>,
        listed: &mut HashMap<*const CellRun, usize>,
        reach: &mut impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let buffer = |side: &'static str, buffers: &[Address], index: usize| {
            let none = DeviceError::NoBuffer { side, index, count: buffers.len() };
            buffers.get(index).copied().ok_or(none)
        };
        let source = buffer("source", spec.sources, op.source)?;
        let target = buffer("target", spec.targets, op.target)?;
        if op.bytes() == 0 {
            return Ok(());
        }
        let (reads, writes) = op.reach();
        for (base, range) in [(source, reads), (target, writes)] {
            reach(base.wrapping_add_signed(range.start as i64), (range.end - range.start) as usize)?;
        }
        let around = op.loops.iter().map(Loop::from);
        let nest = Nest {
            source: source.wrapping_add_signed(op.source_offset as i64),
            target: target.wrapping_add_signed(op.target_offset as i64),
            loops: Vec::new(),
            block: op.block as u64,
        };
        let Some(cells) = &op.cells else {
            self.add_nest(Nest { loops: around.collect(), ..nest });
            return Ok(());
        };
        let inner = || cells.inner.iter().map(Loop::from);
        let (from, to) = (cells.source_stride as i64, cells.target_stride as i64);
        if cells.runs.len() <= FEW_RUNS {
            for run in cells.runs.iter() {
                let each = Loop { count: u64::from(run.len), source: from, target: to, cells: None };
                self.add_nest(Nest {
                    source: nest.source.wrapping_add_signed(i64::from(run.source) * from),
                    target: nest.target.wrapping_add_signed(i64::from(run.target) * to),
                    loops: around.clone().chain([each]).chain(inner()).collect(),
                    block: nest.block,
                });
            }
            return Ok(());
        }
        // Fields of one pattern have one list.
        let begin = *listed.entry(Arc::as_ptr(&cells.runs).cast()).or_insert_with(|| {
            let begin = self.cells.len();
            let numbers = |run: &CellRun| {
                let (source, target) = (run.source, run.target);
                (0..run.len).map(move |cell| [source + cell, target + cell])
            };
            self.cells.extend(cells.runs.iter().flat_map(numbers));
            begin
        });
        let count = cells.runs.iter().map(|run| u64::from(run.len)).sum();
        let each = Loop { count, source: from, target: to, cells: Some(begin) };
        self.add_nest(Nest { loops: around.chain([each]).chain(inner()).collect(), ..nest });
        Ok(())
    }

    fn add_nest(&mut self, mut nest: Nest) {
        nest.tidy();
        if nest.block == 0 || nest.loops.iter().any(|l| l.count == 0) {
            return;
        }
        if let Some(pieces) = nest.by_alignment() {
            return pieces.into_iter().for_each(|piece| self.add_nest(piece));
        }
        if let Some(pieces) = nest.by_size() {
            return pieces.into_iter().for_each(|piece| self.add_nest(piece));
        }
        self.units.push(nest.units() as u32);
        self.regions.push(nest.region());
    }

    /// The bytes of the table in memory at `base`, the counters of all launches behind it, and what a launch passes.
    pub(super) fn lay_out(mut self, base: Address) -> (Vec<u8>, Argument) {
        let mut bytes = Vec::new();
        let cells = base + put(&mut bytes, &self.cells);
        for region in self.regions.iter_mut().filter(|region| region.cell_loop != 0) {
            region.cells = cells + 8 * region.cells;
        }
        let mut first = [0; RAISES];
        first[..self.first.len()].copy_from_slice(&self.first);
        let argument = Argument {
            first,
            first_count: self.first.len() as u32,
            unused: 0,
            regions: base + put(&mut bytes, &self.regions),
            items: base + put(&mut bytes, &self.items),
            parts: base + put(&mut bytes, &self.parts),
            carriers: base + put(&mut bytes, &self.carriers),
            waits: base + put(&mut bytes, &self.waits),
            raises: base + put(&mut bytes, &self.raises),
            guard: self.guard,
            done: base + put(&mut bytes, &vec![0u64; SLOTS * self.parts.len()]),
            bare: self.bare as u32,
            carrier_count: self.carriers.len() as u32,
            item: self.item as u32,
            part_count: self.parts.len() as u32,
        };
        (bytes, argument)
    }

    /// How long the bytes of [`Cut::lay_out`] can be.
    pub(super) fn size(&self) -> usize {
        let of = |count: usize, bytes: usize| (count * bytes).next_multiple_of(ALIGN);
        of(self.cells.len(), 8)
            + of(self.regions.len(), size_of::<Region>())
            + of(self.items.len(), size_of::<Item>())
            + of(self.parts.len(), size_of::<Part>())
            + of(self.carriers.len(), size_of::<Carrier>())
            + of(self.waits.len(), size_of::<Wait>())
            + of(self.raises.len(), 8)
            + of(SLOTS * self.parts.len(), 8)
    }
}

impl Argument {
    /// With the counters of a launch, by its number.
    pub(super) fn in_slot(mut self, launch: usize) -> Self {
        self.done += (launch % SLOTS) as u64 * u64::from(self.part_count) * 8;
        self
    }
}

const ALIGN: usize = 16;

/// Appends values, aligned; returns where.
fn put<T: Copy>(bytes: &mut Vec<u8>, values: &[T]) -> u64 {
    let at = bytes.len();
    let len = size_of_val(values);
    bytes.resize((at + len).next_multiple_of(ALIGN), 0);
    // SAFETY: the structures of a table consist of integers without padding (the sizes that the kernel asserts are the
    // sums of their fields), so that all their bytes are initialised; there is room for `len` bytes.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), bytes.as_mut_ptr().add(at), len) };
    at as u64
}

impl From<&halocline_plan::copy::Loop> for Loop {
    fn from(of: &halocline_plan::copy::Loop) -> Self {
        Self { count: of.count as u64, source: of.source as i64, target: of.target as i64, cells: None }
    }
}

impl Nest {
    /// No loops of one step; innermost loops that make a longer block are part of it.
    fn tidy(&mut self) {
        self.loops.retain(|l| l.count != 1 || l.cells.is_some());
        while let Some(&Loop { count, source, target, cells: None }) = self.loops.last() {
            if (source, target) != (self.block as i64, self.block as i64) {
                break;
            }
            self.block *= count;
            self.loops.pop();
        }
    }

    /// The greatest power of two, up to the longest access, that divides where blocks begin, by all steps.
    fn step_alignment(&self) -> u64 {
        let steps = self.loops.iter().fold(0, |all, l| all | l.source as u64 | l.target as u64);
        alignment(steps)
    }

    /// Longest access by which all blocks can be moved.
    fn unit(&self) -> u64 {
        self.step_alignment().min(alignment(self.source | self.target | self.block))
    }

    /// The blocks' bodies in longer units and their ends, if both ends of the copy have the same alignment.
    fn by_alignment(&self) -> Option<Vec<Self>> {
        let unit = self.step_alignment().min(alignment(self.source.wrapping_sub(self.target)));
        if unit <= self.unit() || self.block < WORTH_SPLITTING * unit {
            return None;
        }
        let head = self.source.wrapping_neg() % unit;
        let body = (self.block - head) / unit * unit;
        let piece = |begin: u64, block: u64| Nest {
            source: self.source + begin,
            target: self.target + begin,
            loops: self.loops.clone(),
            block,
        };
        let pieces = [(0, head), (head, body), (head + body, self.block - head - body)];
        Some(
            pieces
                .into_iter()
                .filter(|piece| piece.1 > 0)
                .map(|(begin, block)| piece(begin, block))
                .collect(),
        )
    }

    /// The same in several nests, if there are too many loops or units for one.
    fn by_size(&self) -> Option<Vec<Self>> {
        if self.loops.len() > LOOPS {
            let plain = self.loops.iter().enumerate().filter(|(_, l)| l.cells.is_none());
            let (at, &Loop { count, source, target, .. }) = plain.min_by_key(|(_, l)| l.count)?;
            let mut loops = self.loops.clone();
            loops.remove(at);
            let step = |step: u64| Nest {
                source: self.source.wrapping_add_signed(step as i64 * source),
                target: self.target.wrapping_add_signed(step as i64 * target),
                loops: loops.clone(),
                block: self.block,
            };
            return Some((0..count).map(step).collect());
        }
        if self.units() < UNITS {
            return None;
        }
        let longest = self.loops.iter().enumerate().max_by_key(|(_, l)| l.count);
        let (mut low, mut high) = (self.clone(), self.clone());
        match longest {
            Some((at, &l)) if l.count >= self.block / self.unit() => {
                let half = l.count / 2;
                (low.loops[at].count, high.loops[at].count) = (half, l.count - half);
                match &mut high.loops[at].cells {
                    Some(begin) => *begin += half as usize,
                    None => {
                        high.source = high.source.wrapping_add_signed(half as i64 * l.source);
                        high.target = high.target.wrapping_add_signed(half as i64 * l.target);
                    }
                }
            }
            _ => {
                let half = (self.block / 2).next_multiple_of(WIDEST);
                (low.block, high.block) = (half, self.block - half);
                (high.source, high.target) = (self.source + half, self.target + half);
            }
        }
        Some(vec![low, high])
    }

    fn region(&self) -> Region {
        let unit = self.unit();
        let mut region = Region {
            source: self.source,
            target: self.target,
            log_unit: unit.trailing_zeros() as u8,
            loops: self.loops.len() as u8 + 1,
            ..Region::default()
        };
        let mut divide_by = |at: usize, count: u64| {
            // At most LOOPS counts are divided by; that of the outermost loop never is.
            if at < LOOPS {
                region.count[at] = count as u32;
                (region.multiplier[at], region.shift[at]) = divisor(count as u32);
            }
        };
        divide_by(0, self.block / unit);
        for (at, l) in self.loops.iter().rev().enumerate() {
            divide_by(at + 1, l.count);
        }
        for (at, l) in self.loops.iter().rev().enumerate() {
            (region.source_step[at], region.target_step[at]) = (l.source, l.target);
            if let Some(begin) = l.cells {
                (region.cell_loop, region.cells) = (at as u8 + 1, begin as u64);
            }
        }
        region
    }

    /// How many accesses move it.
    fn units(&self) -> u128 {
        let around: u128 = self.loops.iter().map(|l| u128::from(l.count)).product();
        around * u128::from(self.block / self.unit())
    }
}

/// The greatest power of two, up to the longest access, that divides a number.
fn alignment(of: u64) -> u64 {
    let of = of | WIDEST;
    of & of.wrapping_neg()
}

/// Multiplier and shift of a division of numbers below 2^31 (Granlund and Montgomery 1994).
fn divisor(by: u32) -> (u32, u8) {
    let by = u64::from(by.max(1));
    let shift = by.next_power_of_two().trailing_zeros();
    (((((1u64 << shift) - by) << 32) / by + 1) as u32, shift as u8)
}

#[cfg(test)]
mod tests;
