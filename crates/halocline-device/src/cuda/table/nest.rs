//! Converts nests of loops around blocks to [`Region`]s, the shape that the kernel handles.

use crate::driver::{Address, Slot};

/// Maximum number of loops around a block, as in the kernel.
pub(super) const LOOPS: usize = 4;
/// Exclusive limit of the unit numbers of a region.
pub(super) const UNITS: u128 = 1 << 31;
/// Longest access in bytes.
pub(super) const WIDEST: u64 = 16;
/// Longest data access if one side is an LL slot, where it occupies twice the bytes.
const WIDEST_OF_SLOTS: u64 = 8;
/// Granularity in bytes at which a long unit can be written partially.
const WORD: u64 = 4;
/// Minimum bytes of a block that moves in long units with partially written ends.
const WORTH_LEAVING: u64 = 64;
/// Minimum long units of a block worth splitting: for shorter ones the ends cost more than the body gains.
const WORTH_SPLITTING: u64 = 8;
/// Bytes of a line of the target: partial lines stored by warps take longer to reach a peer.
pub(super) const LINE: u64 = 128;
/// Minimum bytes of a block with spare units, which align its units with lines.
const WORTH_SPARING: u64 = 512;

#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Region {
    pub(super) source: u64,
    pub(super) target: u64,
    pub(super) source_step: [i64; LOOPS],
    pub(super) target_step: [i64; LOOPS],
    pub(super) count: [u32; LOOPS],
    pub(super) multiplier: [u32; LOOPS],
    pub(super) shift: [u8; LOOPS],
    /// Units have 2^log_unit bytes. If one side is a slot: [`WRITTEN`] or [`AWAITED`], plus 1 for units of
    /// 8 bytes.
    pub(super) log_unit: u8,
    pub(super) loops: u8,
    pub(super) cell_loop: u8,
    /// Words left out of a block's first unit, plus 4 times those left out of its last unit, plus 16 times
    /// its spare units.
    pub(super) ends: u8,
    /// With listed cells, an index into the table's cells until the table is laid out, then their address. Otherwise the sign
    /// bits that change, in 8 bytes that are aligned at the target.
    pub(super) cells: u64,
}

/// Units of 4 bytes that are written to, or read from, a slot.
pub(super) const WRITTEN: u8 = 5;
pub(super) const AWAITED: u8 = 7;

/// One loop of a nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loop {
    pub(super) count: u64,
    pub(super) source: i64,
    pub(super) target: i64,
    /// For a loop over listed cells: their start among the table's cells.
    pub(super) cells: Option<usize>,
}

/// Loops, outermost first, around blocks.
#[derive(Debug, Clone)]
pub(super) struct Nest {
    pub(super) source: u64,
    pub(super) target: u64,
    pub(super) loops: Vec<Loop>,
    pub(super) block: u64,
    /// Bytes at the start and at the end of a block that are read, but not written.
    pub(super) ends: [u64; 2],
    /// Which side is a slot, and its start; addresses of that side are as if the slot were the message.
    pub(super) slot: (Slot, u64),
    /// The sign bits that change, in 8 bytes that are aligned at the target; 0: none.
    pub(super) signs: u64,
}

impl From<&halocline_plan::copy::Loop> for Loop {
    fn from(of: &halocline_plan::copy::Loop) -> Self {
        Self { count: of.count as u64, source: of.source as i64, target: of.target as i64, cells: None }
    }
}

impl Nest {
    /// Removes loops of one step, and merges innermost loops that form a longer block.
    pub(super) fn tidy(&mut self) {
        self.loops.retain(|l| l.count != 1 || l.cells.is_some());
        if self.ends != [0, 0] {
            return;
        }
        while let Some(&Loop { count, source, target, cells: None }) = self.loops.last() {
            if (source, target) != (self.block as i64, self.block as i64) {
                break;
            }
            self.block *= count;
            self.loops.pop();
        }
    }

    /// The greatest power of two, up to the longest access, that divides the address of every block.
    fn step_alignment(&self) -> u64 {
        let steps = self.loops.iter().fold(0, |all, l| all | l.source as u64 | l.target as u64);
        alignment(steps)
    }

    /// The longest access that can move all blocks.
    pub(super) fn unit(&self) -> u64 {
        let most = if self.slot.0 == Slot::None { WIDEST } else { WIDEST_OF_SLOTS };
        self.step_alignment().min(alignment(self.source | self.target | self.block)).min(most)
    }

    /// Whether the nest satisfies the alignment of the LL protocol, if it uses that.
    pub(super) fn has_words(&self) -> bool {
        self.slot.0 == Slot::None || self.unit() >= WORD && self.slot.1.is_multiple_of(WIDEST)
    }

    /// The longest access, if both ends have the same alignment.
    fn longest(&self) -> u64 {
        self.step_alignment().min(alignment(self.source.wrapping_sub(self.target)))
    }

    /// The nest in the longest units, with partially written ends, if `may_read` allows to read these
    /// whole.
    pub(super) fn by_ends(&self, may_read: impl FnOnce(Address, usize) -> bool) -> Option<Self> {
        let (head, block) = (self.source % WIDEST, self.block);
        let tail = (head + block).wrapping_neg() % WIDEST;
        let has_cells = self.loops.iter().any(|l| l.cells.is_some());
        if self.longest() < WIDEST
            || block < WORTH_LEAVING
            || !(head | tail).is_multiple_of(WORD)
            || head | tail == 0
            || has_cells
            || self.slot.0 != Slot::None
        {
            return None;
        }
        let reach = |low: bool| {
            self.loops
                .iter()
                .map(|l| (l.count as i64 - 1) * l.source)
                .filter(|&offset| (offset < 0) == low)
                .sum()
        };
        let first = (self.source - head).wrapping_add_signed(reach(true));
        let end = (self.source + block + tail).wrapping_add_signed(reach(false));
        let (source, target, block) = (self.source - head, self.target - head, block + head + tail);
        let ends = [head, tail];
        may_read(first, (end - first) as usize).then(|| Self { source, target, block, ends, ..self.clone() })
    }

    /// The number of spare units of a block, 14 at most: in each block, units at the beginning of a target
    /// line have numbers that are a multiple of the units per line.
    fn spare(&self) -> u64 {
        let has_cells = self.loops.iter().any(|l| l.cells.is_some());
        if self.unit() < WIDEST || self.block < WORTH_SPARING || has_cells {
            return 0;
        }
        let strides = self.loops.iter().fold(self.block, |all, l| all | l.target as u64);
        let late = match (strides % LINE, self.target % LINE) {
            (0, 0) => return 0,
            _ if self.loops.iter().all(|l| (l.target as u64).is_multiple_of(LINE)) => self.target % LINE,
            _ => LINE - WIDEST,
        };
        ((self.block + late).next_multiple_of(LINE) - self.block) / WIDEST
    }

    /// The bodies of the blocks in longer units, and their ends, if both sides have the same alignment.
    pub(super) fn by_alignment(&self) -> Option<Vec<Self>> {
        let unit = self.longest();
        if unit <= self.unit() || self.block < WORTH_SPLITTING * unit || self.slot.0 != Slot::None {
            return None;
        }
        let head = self.source.wrapping_neg() % unit;
        let body = (self.block - head) / unit * unit;
        let piece = |begin: u64, block: u64| Nest {
            source: self.source + begin,
            target: self.target + begin,
            block,
            ..self.clone()
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

    /// The nest split into several, if it has too many loops or units for one region.
    pub(super) fn by_size(&self) -> Option<Vec<Self>> {
        if self.loops.len() > LOOPS {
            let plain = self.loops.iter().enumerate().filter(|(_, l)| l.cells.is_none());
            let (at, &Loop { count, source, target, .. }) = plain.min_by_key(|(_, l)| l.count)?;
            let mut loops = self.loops.clone();
            loops.remove(at);
            let step = |step: u64| Nest {
                source: self.source.wrapping_add_signed(step as i64 * source),
                target: self.target.wrapping_add_signed(step as i64 * target),
                loops: loops.clone(),
                ..self.clone()
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
                (low.ends[1], high.ends[0]) = (0, 0);
                (high.source, high.target) = (self.source + half, self.target + half);
            }
        }
        Some(vec![low, high])
    }

    pub(super) fn region(&self) -> Region {
        let unit = self.unit();
        let mut region = Region {
            source: self.source,
            target: self.target,
            log_unit: unit.trailing_zeros() as u8,
            loops: self.loops.len() as u8 + 1,
            ends: (self.ends[0] / WORD + 4 * (self.ends[1] / WORD) + 16 * self.spare()) as u8,
            cells: self.signs,
            ..Region::default()
        };
        let mut divide_by = |at: usize, count: u64| {
            // At most LOOPS counts are used as divisors; that of the outermost loop never is.
            if at < LOOPS {
                region.count[at] = count as u32;
                (region.multiplier[at], region.shift[at]) = divisor(count as u32);
            }
        };
        divide_by(0, self.block / unit + self.spare());
        for (at, l) in self.loops.iter().rev().enumerate() {
            divide_by(at + 1, l.count);
        }
        for (at, l) in self.loops.iter().rev().enumerate() {
            (region.source_step[at], region.target_step[at]) = (l.source, l.target);
            if let Some(begin) = l.cells {
                (region.cell_loop, region.cells) = (at as u8 + 1, begin as u64);
            }
        }
        let (slot, begin) = self.slot;
        let (begins, steps, log_unit) = match slot {
            Slot::None => return region,
            Slot::Written => (&mut region.target, &mut region.target_step, WRITTEN),
            Slot::Awaited => (&mut region.source, &mut region.source_step, AWAITED),
        };
        *begins = begin + 2 * (*begins - begin);
        steps.iter_mut().for_each(|step| *step *= 2);
        region.log_unit = log_unit + u8::from(unit > WORD);
        region
    }

    /// Number of accesses.
    pub(super) fn units(&self) -> u128 {
        let around: u128 = self.loops.iter().map(|l| u128::from(l.count)).product();
        around * u128::from(self.block / self.unit() + self.spare())
    }
}

/// The greatest power of two, up to the longest access, that divides a number.
fn alignment(of: u64) -> u64 {
    let of = of | WIDEST;
    of & of.wrapping_neg()
}

/// Multiplier and shift for a division of numbers below 2^31. T. Granlund and P. L. Montgomery, "Division
/// by invariant integers using multiplication", PLDI 1994.
pub(super) fn divisor(by: u32) -> (u32, u8) {
    let by = u64::from(by.max(1));
    let shift = by.next_power_of_two().trailing_zeros();
    (((((1u64 << shift) - by) << 32) / by + 1) as u32, shift as u8)
}
