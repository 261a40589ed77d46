//! Converts a copy table to the form that the kernel reads: regions of units, split into items of similar
//! size.
//!
//! Here a [`CopyOp`] has at most four loops around a block; operations with more loops become several. A
//! block of 64 bytes or more (not of listed cells) may begin or end between multiples of 16 bytes, at the
//! same 4-byte offset on both sides. It moves in units of 16 bytes: the first and the last unit are read
//! whole (up to 12 bytes beside the block, if the allocation contains them), and written without the bytes
//! outside. Blocks of 512 bytes or more have a few spare units, so that warps store whole lines of 128
//! bytes wherever a block begins. Other long blocks with the same misalignment on both sides are split into
//! an aligned body and its two ends. Listed cells that form few long runs become plain loops. So the kernel
//! handles one shape only.

use crate::driver::{Address, Base, Signal, Slot, TableSpec};
use crate::error::DeviceError;
use crate::tuning::Tuning;
use halocline_plan::copy::{CellRun, CopyOp};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub(super) mod gather;
mod kernel;
mod loops;
mod nest;
mod pieces;

use gather::Listed;
use kernel::{Announced, Part, RAISES, Wait};
pub(super) use kernel::{Argument, Bases, THREADS};
use nest::{Loop, Nest, Region};
use pieces::Piece;

/// Listed cells with at most this many runs become one region per run.
const FEW_RUNS: usize = 8;
/// Maximum number of parts without copies in a table where some of them wait. One may wait for a flag that
/// depends on another one being raised, so all are polled in turn; the kernel has one bit for each.
const MOST_BARE: usize = 32 * THREADS as usize;

/// A part with copies.
struct Copies {
    part: Part,
    early: bool,
    beside: bool,
    /// Whether its blocks may wait: for flags, or for LL words of its source.
    waits: bool,
    /// The index of its announcement.
    announced: Option<usize>,
    /// The blocks of the part before execute it, too.
    follows: bool,
    regions: Range<usize>,
    units: u64,
}

/// A part that waits or raises flags and has blocks of its own.
#[derive(Debug, Clone, Copy)]
struct Tied {
    part: Part,
    early: bool,
    waits: bool,
    announced: Option<usize>,
    follows: bool,
    blocks: u32,
}

/// The kernel that executes a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Ll,
    Based,
    /// Of elements of these types.
    Combining(u32),
}

/// A table split into pieces, before its layout in memory.
#[derive(Debug, Default)]
pub(super) struct Cut {
    regions: Vec<Region>,
    /// Number of units of each region.
    units: Vec<u32>,
    /// Parts that wait or raise flags without copies.
    bare: Vec<Part>,
    tied: Vec<Tied>,
    /// The first piece of each block: those of all tied parts, then the others.
    pieces: Vec<Piece>,
    /// Further pieces of tied parts.
    later: Vec<Piece>,
    /// The first pieces of parts that blocks of other parts execute, by the index of their part in `tied`.
    following: Vec<(Piece, usize)>,
    /// Flags raised by parts that neither wait nor copy, up to the capacity.
    first: Vec<Address>,
    waits: Vec<Wait>,
    raises: Vec<u64>,
    cells: Vec<[u32; 2]>,
    announced: Vec<Announced>,
    guard: u64,
    has_ll: bool,
    is_based: bool,
    /// The types of what parts combine, a bit for each, if any part combines.
    combines: Option<u32>,
    /// Numbers of elements that parts combine, and the index of the first of each list by the list's address and what is left out of it.
    numbers: Vec<u32>,
    listed: HashMap<(usize, usize), u64>,
    /// The sources of what parts combine.
    sources: Vec<Listed>,
}

impl Cut {
    /// Splits a table with one work for a device with `multiprocessors` multiprocessors. `reach` checks that the device
    /// can access bytes.
    #[cfg(test)]
    pub(super) fn new(
        spec: &TableSpec<'_>,
        of: (u32, &Tuning),
        reach: impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        Self::of_work((std::slice::from_ref(spec), 0), of, reach)
    }

    /// Splits one of the works of a table.
    pub(super) fn of_work(
        (works, number): (&[TableSpec<'_>], usize),
        (multiprocessors, tuning): (u32, &Tuning),
        mut reach: impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let spec = &works[number];
        spec.check_combining()?;
        let mut reach = |address, bytes| match Base::of(address) {
            None => reach(address, bytes),
            Some(from) => reach_from(spec.bases, from, (address, bytes)),
        };
        let mut cut = Self { is_based: !spec.bases.is_empty(), ..Self::default() };
        let mut reach_flag = |address: Address| {
            reach(address, 8)?;
            if address.is_multiple_of(8) { Ok(address) } else { Err(DeviceError::Misaligned { address }) }
        };
        if let Some(guard) = spec.guard {
            cut.guard = reach_flag(guard)?;
        }
        let flags = cut.add_flags((works, number), reach_flag)?;
        let copies = cut.add_copies(spec, flags, reach)?;
        let waits = cut.bare.iter().any(|part| part.waits > 0);
        if waits && cut.bare.len() > MOST_BARE {
            return Err(DeviceError::TooManyWaits { parts: cut.bare.len(), limit: MOST_BARE });
        }
        cut.cut_parts(&copies, multiprocessors.into(), tuning);
        Ok(cut)
    }

    /// Adds the flags of all parts of a work, and returns where those of each part lie.
    fn add_flags(
        &mut self,
        (works, number): (&[TableSpec<'_>], usize),
        mut reach_flag: impl FnMut(Address) -> Result<Address, DeviceError>,
    ) -> Result<Vec<Part>, DeviceError> {
        let parts = works[number].parts;
        let mut flags = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let (wait, raise) = (self.waits.len() as u32, self.raises.len() as u32);
            for &Signal { address, lag } in part.waits {
                self.waits.push(Wait { flag: reach_flag(address)?, lag });
            }
            for &address in part.raises {
                self.raises.push(reach_flag(address)?);
            }
            let (waits, raises) = (part.waits.len() as u32, part.raises.len() as u32);
            let is_bare = part.waits.is_empty() && part.is_bare();
            // The argument of a launch has the first flags of all works.
            let is_same = works.iter().all(|work| work.parts[at].raises == part.raises);
            if is_bare && is_same && self.first.len() + part.raises.len() <= RAISES {
                self.raises.truncate(raise as usize);
                self.first.extend(part.raises);
                flags.push(Part::default());
                continue;
            }
            flags.push(Part { wait, waits, raise, raises });
        }
        Ok(flags)
    }

    /// Adds the regions of all parts, and returns the parts that have some. `flags`: where the flags of each part lie.
    fn add_copies(
        &mut self,
        spec: &TableSpec<'_>,
        flags: Vec<Part>,
        mut reach: impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<Vec<Copies>, DeviceError> {
        let mut listed = HashMap::new();
        let mut copies = Vec::with_capacity(spec.parts.len());
        for (part, draft) in spec.parts.iter().zip(flags) {
            let first = self.regions.len();
            for op in part.ops {
                self.add((op, part.slot), spec, &mut listed, &mut reach)?;
            }
            if let Some(combining) = part.combines {
                self.add_gathers(combining, spec, &mut reach)?;
            }
            let regions = first..self.regions.len();
            let units = self.units[regions.clone()].iter().map(|&units| u64::from(units)).sum();
            if units > 0 {
                let is_awaited = part.slot == Slot::Awaited;
                let (early, waits) = (part.early && !is_awaited, draft.waits > 0 || is_awaited);
                self.has_ll |= part.slot != Slot::None;
                let announced = part.announced.map(|announced| {
                    let crate::Announced { address: words, sent, differs } = announced;
                    self.announced.push(Announced { words, sent, differs, unused: 0 });
                    self.is_based = true;
                    self.announced.len() - 1
                });
                let beside = part.beside;
                let follows = part.follows && (waits || draft.raises > 0);
                let part = draft;
                copies.push(Copies { part, early, beside, waits, announced, follows, regions, units });
            } else if draft.waits + draft.raises > 0 {
                self.bare.push(draft);
            }
        }
        Ok(copies)
    }

    /// Number of blocks of a launch.
    pub(super) fn blocks(&self) -> u32 {
        (usize::from(self.bare.len() + self.first.len() > 0) + self.pieces.len()) as u32
    }

    /// Number of blocks that may wait.
    pub(super) fn waiting_blocks(&self) -> u32 {
        let bare = self.bare.iter().any(|part| part.waits > 0);
        // Parts with the same blocks: one of them that waits is enough.
        let together = self.tied.chunk_by(|_, next| next.follows);
        let waiting = together.filter(|parts| parts.iter().any(|tied| tied.waits));
        waiting.map(|parts| parts[0].blocks).sum::<u32>() + u32::from(bare)
    }

    /// The kernel that the table needs: none combines, uses the LL protocol or bases beside the others.
    pub(super) fn kind(&self) -> Kind {
        match (self.combines, self.is_based, self.has_ll) {
            (Some(types), ..) => Kind::Combining(types),
            (None, true, _) => Kind::Based,
            (None, false, true) => Kind::Ll,
            (None, false, false) => Kind::Plain,
        }
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
            signs: sign_bits(op, target)?,
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
        let begin = self.list_cells(&cells.runs, listed);
        let count = cells.runs.iter().map(|run| u64::from(run.len)).sum();
        let each = Loop { count, source: from, target: to, cells: Some(begin) };
        self.add_nest(Nest { loops: around.chain([each]).chain(inner()).collect(), ..nest }, reach)
    }

    /// Lists the cells of these runs, once for all fields of a pattern, and returns the index of the first.
    fn list_cells(&mut self, runs: &Arc<[CellRun]>, listed: &mut HashMap<*const CellRun, usize>) -> usize {
        *listed.entry(Arc::as_ptr(runs).cast()).or_insert_with(|| {
            let begin = self.cells.len();
            let numbers = |run: &CellRun| {
                let (source, target) = (run.source, run.target);
                (0..run.len).map(move |cell| [source + cell, target + cell])
            };
            self.cells.extend(runs.iter().flat_map(numbers));
            begin
        })
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
            return Err(DeviceError::LlAlignment {
                source_address,
                target_address,
                block: nest.block as usize,
            });
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
}

/// The sign bits that an operation changes, in 8 bytes that are aligned at the target. The kernel finds those of a unit by its
/// address, so that the numbers have to be aligned there.
fn sign_bits(op: &CopyOp, target: Address) -> Result<u64, DeviceError> {
    let Some(distance) = op.sign_distance() else { return Ok(0) };
    let address = target.wrapping_add_signed(op.target_offset as i64);
    let steps = op.loops.iter().fold(address | op.block as u64, |all, l| all | l.target as u64);
    if !steps.is_multiple_of(distance as u64) {
        return Err(DeviceError::MisalignedSigns { address, bytes: distance });
    }
    Ok(sign_bits_each(distance))
}

/// The sign bits in 8 bytes, one every so many bytes.
fn sign_bits_each(distance: usize) -> u64 {
    let highest = 1u64 << (8 * distance - 1);
    (0..8 / distance).fold(0, |bits, number| bits | highest << (8 * distance * number) as u32)
}

/// Checks that bytes that count from a base are some of its own. A receiver announces as many as are sent.
fn reach_from(
    bases: &[Base],
    (number, distance): (usize, i64),
    (address, bytes): (Address, usize),
) -> Result<(), DeviceError> {
    let Some(base) = bases.get(number) else {
        return match Base::of(Base::ANNOUNCED) {
            Some((announced, _)) if announced == number => Ok(()),
            _ => Err(DeviceError::NotReachable { address, bytes }),
        };
    };
    let first = distance - base.residue as i64;
    let is_there = base.bytes.start <= first && first + bytes as i64 <= base.bytes.end;
    is_there.then_some(()).ok_or(DeviceError::NotReachable { address, bytes })
}

#[cfg(test)]
pub(in crate::cuda) mod on_host;
#[cfg(test)]
mod tests;
