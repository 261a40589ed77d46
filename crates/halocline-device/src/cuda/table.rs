//! From a copy table as it is given to the one that the kernel reads: regions of units, items of about as many units each.
//!
//! A [`CopyOp`] is at most four loops around a block here. Operations with more loops become several. A block of 64 bytes
//! or more, not of listed cells, that begins or ends amid 16 bytes, at words of 4, the same ones at both sides, is moved in
//! units of 16, of which the first and the last are read whole (up to 12 bytes beside the block, if they are the memory's)
//! and written without what lies outside. Blocks of 512 bytes or more have a few units to spare, so that warps store whole lines of
//! 128 bytes, wherever a block begins. Another long block whose two sides have one alignment, but do not begin there, is
//! split into a body of long units and its two ends. Listed cells that are few long runs become plain loops. So the kernel
//! has one shape to deal with.

use crate::driver::{Address, Signal, Slot, TableSpec};
use crate::error::DeviceError;
use crate::tuning::Tuning;
use halocline_plan::copy::{CellRun, CopyOp};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

mod nest;

use nest::{Loop, Nest, Region};

/// Threads of a block, as in the kernel.
pub(super) const THREADS: u32 = 512;
/// Up to so many runs of listed cells become regions of their own.
const FEW_RUNS: usize = 8;
/// Units of a piece, at least. [`Tuning::item`] at most: enough for every thread to have several accesses in flight, where there is so
/// much to do; not so many that the last pieces keep few multiprocessors busy (half and twice as many cost up to a tenth on an H200).
const PIECE: u64 = THREADS as u64;
/// Pieces of more units than this are of a multiple of it: an even number of accesses a thread.
const LONG: u64 = 2 * THREADS as u64;
/// Parts that copy nothing, of a table in which some of them wait: what one waits for, another one may have to raise (at a peer, who then
/// goes on), so that all are looked at in turn. The kernel has bits for so many.
const MOST_BARE: usize = 32 * THREADS as usize;
/// Words that a launch raises first of all, and gives to the kernel by value.
const RAISES: usize = 8;
/// Launches of one table that may run at the same time: each has counters of its own.
pub(super) const LAUNCHES: usize = 16;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wait {
    word: u64,
    lag: u64,
}

/// What a block does at a time, and, if it is its first item, what it waits for and raises.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy)]
struct Item {
    region: Region,
    first: u32,
    units: u32,
    next: u32,
    part: u32,
    awaited: Wait,
    wait: u32,
    waits: u32,
    raise: u32,
    raises: u32,
    blocks: u32,
    early: u32,
    raised: u64,
}

/// What a part waits for and raises, among all words; as the kernel reads that of parts that copy nothing.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    wait: u32,
    waits: u32,
    raise: u32,
    raises: u32,
}

/// Units of a region, moved by one block.
#[derive(Debug, Clone, Copy)]
struct Piece {
    region: usize,
    first: u32,
    units: u32,
    /// Among those that are no block's first.
    next: Option<usize>,
}

/// A part that copies.
struct Copies {
    part: Part,
    early: bool,
    beside: bool,
    /// Its blocks may wait: for words, or for flags in what it reads.
    waits: bool,
    regions: Range<usize>,
    units: u64,
}

/// One that waits or raises: blocks of its own.
#[derive(Debug, Clone, Copy)]
struct Tied {
    part: Part,
    early: bool,
    waits: bool,
    blocks: u32,
}

/// What a launch passes to the kernel by value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument {
    first: [u64; RAISES],
    items: u64,
    parts: u64,
    waits: u64,
    raises: u64,
    guard: u64,
    done: u64,
    bare: u32,
    first_count: u32,
    tied: u32,
    unused: u32,
}

// The same sizes as the kernel asserts.
const _: () = assert!(
    size_of::<Region>() == 128
        && size_of::<Item>() == 192
        && size_of::<Part>() == 16
        && size_of::<Wait>() == 16
        && size_of::<Argument>() == 128
);

/// A table that was cut, to be laid out in memory.
#[derive(Debug, Default)]
pub(super) struct Cut {
    regions: Vec<Region>,
    /// Of each region, how many it has.
    units: Vec<u32>,
    /// Parts that wait or raise and copy nothing.
    bare: Vec<Part>,
    tied: Vec<Tied>,
    /// Each block's first: those of all tied parts, then the others.
    pieces: Vec<Piece>,
    /// Of tied parts.
    later: Vec<Piece>,
    /// Words that parts raise that neither wait nor copy, as many as there is room for.
    first: Vec<Address>,
    waits: Vec<Wait>,
    raises: Vec<u64>,
    cells: Vec<[u32; 2]>,
    guard: u64,
    has_flags: bool,
}

impl Cut {
    /// Cuts a table for a device with so many multiprocessors, of which so much was measured. `reach` checks that the device reaches
    /// bytes.
    pub(super) fn new(
        spec: &TableSpec<'_>,
        (multiprocessors, tuning): (u32, &Tuning),
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
            drafts.push(Part { wait, waits, raise, raises });
        }
        let mut listed = HashMap::new();
        let mut copies = Vec::with_capacity(spec.parts.len());
        for (part, draft) in spec.parts.iter().zip(drafts) {
            let first = cut.regions.len();
            for op in part.ops {
                cut.add((op, part.slot), spec, &mut listed, &mut reach)?;
            }
            let regions = first..cut.regions.len();
            let units = cut.units[regions.clone()].iter().map(|&units| u64::from(units)).sum();
            if units > 0 {
                let is_awaited = part.slot == Slot::Awaited;
                let (early, waits) = (part.early && !is_awaited, draft.waits > 0 || is_awaited);
                cut.has_flags |= part.slot != Slot::None;
                copies.push(Copies { part: draft, early, beside: part.beside, waits, regions, units });
            } else if draft.waits + draft.raises > 0 {
                cut.bare.push(draft);
            }
        }
        let waits = cut.bare.iter().any(|part| part.waits > 0);
        if waits && cut.bare.len() > MOST_BARE {
            return Err(DeviceError::TooManyWaits { parts: cut.bare.len(), limit: MOST_BARE });
        }
        cut.cut_parts(&copies, multiprocessors.into(), tuning);
        Ok(cut)
    }

    /// How many blocks a launch has.
    pub(super) fn blocks(&self) -> u32 {
        (usize::from(self.bare.len() + self.first.len() > 0) + self.pieces.len()) as u32
    }

    /// How many of them may wait.
    pub(super) fn waiting_blocks(&self) -> u32 {
        let bare = self.bare.iter().any(|part| part.waits > 0);
        let tied = self.tied.iter().filter(|tied| tied.waits).map(|tied| tied.blocks);
        tied.sum::<u32>() + u32::from(bare)
    }

    /// Whether it is for the kernel that knows slots.
    pub(super) fn has_flags(&self) -> bool {
        self.has_flags
    }

    fn cut_parts(&mut self, parts: &[Copies], multiprocessors: u64, tuning: &Tuning) {
        let most = u64::from(tuning.item);
        let all = (parts.iter().map(|copies| copies.units).sum(), u64::from(tuning.items) * multiprocessors);
        let blocks_of = |percent: u32| (multiprocessors * u64::from(percent) / 100).max(1);
        let is_beside = parts.iter().any(|copies| copies.beside && copies.waits);
        let carriers = blocks_of(if is_beside { tuning.waiting.min(tuning.beside) } else { tuning.waiting });
        let waiting: u64 = parts.iter().filter(|copies| copies.waits).map(|copies| copies.units).sum();
        let is_tied = |copies: &&Copies| copies.waits || copies.part.raises > 0;
        for Copies { part, early, waits, regions, units, .. } in parts.iter().filter(is_tied) {
            // Those of parts that wait share a number of blocks, each with about one item.
            let share = u128::from(carriers) * u128::from(*units);
            // A single block has nobody to count.
            let share = match regions.len() {
                1 if *units <= u64::from(tuning.alone) => 1,
                _ => share.div_ceil(u128::from(waiting.max(1))) as u64,
            };
            let of = if *waits || share == 1 { (*units, share) } else { all };
            let pieces = self.cut_regions(regions.clone(), of, most);
            let blocks = self.add_pieces(pieces, if *waits { share } else { u64::MAX }) as u32;
            self.tied.push(Tied { part: *part, early: *early && part.waits > 0, waits: *waits, blocks });
        }
        for copies in parts.iter().filter(|copies| !is_tied(copies)) {
            let pieces = self.cut_regions(copies.regions.clone(), all, most);
            self.add_pieces(pieces, if copies.beside { blocks_of(tuning.beside) } else { u64::MAX });
        }
    }

    /// Gives pieces to so many blocks at most, each every so many. Returns how many blocks they are.
    fn add_pieces(&mut self, mut pieces: Vec<Piece>, most: u64) -> usize {
        let blocks = pieces.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        for at in blocks..pieces.len() {
            pieces[at - blocks].next = Some(self.later.len() + at - blocks);
        }
        self.later.extend(pieces.drain(blocks..));
        self.pieces.append(&mut pieces);
        blocks
    }

    /// Pieces of so many units at `most`, for so many blocks with so many units in all, long ones first.
    fn cut_regions(&self, regions: Range<usize>, (units, blocks): (u64, u64), most: u64) -> Vec<Piece> {
        let per_piece = units.div_ceil(blocks).clamp(PIECE, most.max(PIECE));
        let per_piece = per_piece.next_multiple_of(if per_piece > LONG { LONG } else { PIECE }) as u32;
        let mut pieces = Vec::new();
        for region in regions {
            let units = self.units[region];
            pieces.extend((0..units).step_by(per_piece as usize).map(|first| {
                let units = per_piece.min(units - first);
                Piece { region, first, units, next: None }
            }));
        }
        pieces.sort_by_key(|piece| Reverse(piece.units));
        pieces
    }

    fn add(
        &mut self,
        (op, slot): (&CopyOp, Slot),
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
        for (base, range, of_slot) in [(source, reads, Slot::Awaited), (target, writes, Slot::Written)] {
            let times = if slot == of_slot { 2 } else { 1 };
            let first = base.wrapping_add_signed(times * range.start as i64);
            reach(first, times as usize * (range.end - range.start) as usize)?;
        }
        let around = op.loops.iter().map(Loop::from);
        let nest = Nest {
            source: source.wrapping_add_signed(op.source_offset as i64),
            target: target.wrapping_add_signed(op.target_offset as i64),
            loops: Vec::new(),
            block: op.block as u64,
            ends: [0, 0],
            slot: (slot, if slot == Slot::Awaited { source } else { target }),
        };
        let Some(cells) = &op.cells else {
            return self.add_nest(Nest { loops: around.collect(), ..nest }, reach);
        };
        let inner = || cells.inner.iter().map(Loop::from);
        let (from, to) = (cells.source_stride as i64, cells.target_stride as i64);
        if cells.runs.len() <= FEW_RUNS {
            for run in cells.runs.iter() {
                let each = Loop { count: u64::from(run.len), source: from, target: to, cells: None };
                let nest = Nest {
                    source: nest.source.wrapping_add_signed(i64::from(run.source) * from),
                    target: nest.target.wrapping_add_signed(i64::from(run.target) * to),
                    loops: around.clone().chain([each]).chain(inner()).collect(),
                    ..nest
                };
                self.add_nest(nest, reach)?;
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
        self.add_nest(Nest { loops: around.chain([each]).chain(inner()).collect(), ..nest }, reach)
    }

    fn add_nest(
        &mut self,
        mut nest: Nest,
        reach: &mut impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        nest.tidy();
        if nest.block == 0 || nest.loops.iter().any(|l| l.count == 0) {
            return Ok(());
        }
        if !nest.has_words() {
            let (source_address, target_address) = (nest.source, nest.target);
            return Err(DeviceError::NoWords { source_address, target_address, block: nest.block as usize });
        }
        if let Some(longer) = nest.by_ends(|first, bytes| reach(first, bytes).is_ok()) {
            nest = longer;
        }
        if let Some(pieces) = nest.by_alignment().or_else(|| nest.by_size()) {
            return pieces.into_iter().try_for_each(|piece| self.add_nest(piece, reach));
        }
        self.units.push(nest.units() as u32);
        self.regions.push(nest.region());
        Ok(())
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
        let items = self.items();
        let argument = Argument {
            first,
            items: base + put(&mut bytes, &items),
            parts: base + put(&mut bytes, &self.bare),
            waits: base + put(&mut bytes, &self.waits),
            raises: base + put(&mut bytes, &self.raises),
            guard: self.guard,
            done: base + put(&mut bytes, &vec![0u64; LAUNCHES * self.tied.len()]),
            bare: self.bare.len() as u32,
            first_count: self.first.len() as u32,
            tied: self.tied.len() as u32,
            unused: 0,
        };
        (bytes, argument)
    }

    fn items(&self) -> Vec<Item> {
        let tied = self.tied.iter().zip(0..);
        let tied = tied.flat_map(|(tied, part)| (0..tied.blocks).map(move |_| Some((tied, part))));
        let ties = tied.chain(std::iter::repeat(None));
        let item = |(piece, tied): (&Piece, Option<(&Tied, u32)>)| {
            let (Part { wait, waits, raise, raises }, part, blocks, early) = match tied {
                Some((tied, part)) => (tied.part, part, tied.blocks, tied.early.into()),
                None => Default::default(),
            };
            Item {
                region: self.regions[piece.region],
                first: piece.first,
                units: piece.units,
                next: piece.next.map_or(0, |next| (self.pieces.len() + next) as u32),
                part,
                awaited: if waits > 0 { self.waits[wait as usize] } else { Wait::default() },
                raised: if raises > 0 { self.raises[raise as usize] } else { 0 },
                wait,
                waits,
                raise,
                raises,
                blocks,
                early,
            }
        };
        let later = self.later.iter().map(|piece| (piece, None));
        self.pieces.iter().zip(ties).chain(later).map(item).collect()
    }

    /// How long the bytes of [`Cut::lay_out`] can be.
    pub(super) fn size(&self) -> usize {
        let of = |count: usize, bytes: usize| (count * bytes).next_multiple_of(ALIGN);
        of(self.cells.len(), 8)
            + of(self.pieces.len() + self.later.len(), size_of::<Item>())
            + of(self.bare.len(), size_of::<Part>())
            + of(self.waits.len(), size_of::<Wait>())
            + of(self.raises.len(), 8)
            + of(LAUNCHES * self.tied.len(), 8)
    }
}

impl Argument {
    /// With the counters of a launch, by its number.
    pub(super) fn of_launch(mut self, launch: usize) -> Self {
        self.done += (launch % LAUNCHES) as u64 * u64::from(self.tied) * 8;
        self
    }
}

const ALIGN: usize = 16;

/// # Safety
/// A value has no padding: all its bytes are initialised.
unsafe trait Dense: Copy {}

macro_rules! dense {
    ($($type:ty),*) => {$(
        // SAFETY: it consists of integers, whose sizes add up to its own (for the structures, asserted beside `Argument`).
        unsafe impl Dense for $type {}
    )*};
}

dense!(Item, Part, Wait, u64, [u32; 2]);

/// Appends values, aligned; returns where.
fn put<T: Dense>(bytes: &mut Vec<u8>, values: &[T]) -> u64 {
    let at = bytes.len();
    let len = size_of_val(values);
    bytes.resize((at + len).next_multiple_of(ALIGN), 0);
    // SAFETY: `bytes` was made `len` bytes longer behind `at`. `values` has `len` bytes, all of which are initialised,
    // since `T` is `Dense`. A vector and a slice that is borrowed beside it do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), bytes.as_mut_ptr().add(at), len) };
    at as u64
}

#[cfg(test)]
mod on_host;
#[cfg(test)]
mod tests;
