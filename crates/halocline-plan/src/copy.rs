//! Turns a transfer and the layouts at both ends into the loops that move its bytes.
//!
//! Bytes travel in the order of the sender's memory, whatever the receiver's layout is. Both sides
//! know both layouts, so both derive the same order. A [`CopyOp`] is one loop nest, merged to the
//! fewest and longest blocks. A direct copy, a pack and an unpack are the same nest with different
//! strides.

mod gather;
mod layout;
mod section;

pub use gather::{Gather, Listed};
pub use layout::{AxisLayout, CellLayout};

use crate::{Cells, ElementType, Run, Transfer};
use std::ops::Range;
use std::sync::Arc;

/// One loop: its count, and the step at both ends in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    /// Number of steps, at least 2 after merging.
    pub count: usize,
    /// Step in the source.
    pub source: isize,
    /// Step in the target.
    pub target: isize,
}

/// A run of cells, consecutive at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CellRun {
    /// First cell in the source.
    pub source: u32,
    /// First cell in the target.
    pub target: u32,
    /// Number of cells.
    pub len: u32,
}

/// The cells of an unstructured transfer within a loop nest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indexed {
    /// The cells, in the order in which they travel.
    pub runs: Arc<[CellRun]>,
    /// Bytes from one cell to the next in the source.
    pub source_stride: isize,
    /// Bytes from one cell to the next in the target.
    pub target_stride: isize,
    /// Loops within a cell, outermost first.
    pub inner: Vec<Loop>,
}

/// Bytes to move from one buffer to another: a loop nest around a contiguous block. All offsets and
/// strides are in bytes, relative to element (0, 0, …) of a field or to the start of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOp {
    /// Index of the source buffer.
    pub source: usize,
    /// Index of the target buffer.
    pub target: usize,
    /// Offset of the first byte in the source.
    pub source_offset: isize,
    /// Offset of the first byte in the target.
    pub target_offset: isize,
    /// Element type of the bytes.
    pub element: ElementType,
    /// Loops, outermost first.
    pub loops: Vec<Loop>,
    /// Loops over listed cells inside `loops`, for unstructured domains.
    pub cells: Option<Indexed>,
    /// Contiguous bytes in the innermost loop.
    pub block: usize,
    /// Whether the elements change their sign: they are then floating-point numbers.
    pub is_negated: bool,
}

impl CopyOp {
    /// Bytes that the operation moves.
    pub fn bytes(&self) -> usize {
        self.blocks() * self.block
    }

    /// Bytes from one sign bit to the next, if the elements change their sign.
    pub fn sign_distance(&self) -> Option<usize> {
        self.element.sign_distance().filter(|_| self.is_negated)
    }

    /// Copies so many bytes from the begin of one buffer to that of another.
    pub fn of_bytes(source: usize, target: usize, bytes: usize) -> Self {
        Self {
            source,
            target,
            source_offset: 0,
            target_offset: 0,
            element: ElementType::U8,
            loops: Vec::new(),
            cells: None,
            block: bytes,
            is_negated: false,
        }
    }

    /// The same bytes from the target to the source, in the same order.
    pub fn reversed(&self) -> Self {
        let turn = |l: &Loop| Loop { count: l.count, source: l.target, target: l.source };
        let cells = self.cells.as_ref().map(|cells| Indexed {
            runs: cells
                .runs
                .iter()
                .map(|r| CellRun { source: r.target, target: r.source, len: r.len })
                .collect(),
            source_stride: cells.target_stride,
            target_stride: cells.source_stride,
            inner: cells.inner.iter().map(turn).collect(),
        });
        Self {
            source: self.target,
            target: self.source,
            source_offset: self.target_offset,
            target_offset: self.source_offset,
            element: self.element,
            loops: self.loops.iter().map(turn).collect(),
            cells,
            block: self.block,
            is_negated: self.is_negated,
        }
    }

    /// Number of contiguous blocks that the operation moves.
    pub fn blocks(&self) -> usize {
        let around: usize = self.loops.iter().map(|l| l.count).product();
        around
            * self.cells.as_ref().map_or(1, |cells| {
                let inner: usize = cells.inner.iter().map(|l| l.count).product();
                cells.runs.iter().map(|run| run.len as usize).sum::<usize>() * inner
            })
    }

    /// The byte ranges that the operation reads and writes, from the lowest to the highest byte,
    /// relative to its buffers.
    pub fn reach(&self) -> (Range<isize>, Range<isize>) {
        if self.bytes() == 0 {
            return (0..0, 0..0);
        }
        let mut source = self.source_offset..self.source_offset + self.block as isize;
        let mut target = self.target_offset..self.target_offset + self.block as isize;
        let mut widen = |low: (isize, isize), high: (isize, isize)| {
            source = source.start + low.0.min(high.0)..source.end + low.0.max(high.0);
            target = target.start + low.1.min(high.1)..target.end + low.1.max(high.1);
        };
        let inner = self.cells.as_ref().map_or(&[][..], |cells| &cells.inner);
        for l in self.loops.iter().chain(inner) {
            let steps = l.count as isize - 1;
            widen((0, 0), (steps * l.source, steps * l.target));
        }
        if let Some(cells) = &self.cells {
            let bounds = |first: fn(&CellRun) -> u32| {
                let low = cells.runs.iter().map(first).min().unwrap_or(0) as isize;
                let high = cells.runs.iter().map(|run| (first(run) + run.len) as isize - 1).max();
                (low, high.unwrap_or(0))
            };
            let (s, t) = (bounds(|run| run.source), bounds(|run| run.target));
            let at = |s, t| (s * cells.source_stride, t * cells.target_stride);
            widen(at(s.0, t.0), at(s.1, t.1));
        }
        (source, target)
    }

    /// Calls `visit` with source offset, target offset and length of every contiguous block, in
    /// order.
    pub fn for_each_block(&self, mut visit: impl FnMut(isize, isize, usize)) {
        nested(&self.loops, self.source_offset, self.target_offset, &mut |s, t| match &self.cells {
            None => visit(s, t, self.block),
            Some(cells) => {
                for run in cells.runs.iter() {
                    for cell in 0..run.len {
                        let s = s + (run.source + cell) as isize * cells.source_stride;
                        let t = t + (run.target + cell) as isize * cells.target_stride;
                        nested(&cells.inner, s, t, &mut |s, t| visit(s, t, self.block));
                    }
                }
            }
        });
    }
}

fn nested(loops: &[Loop], source: isize, target: isize, visit: &mut dyn FnMut(isize, isize)) {
    match loops {
        [] => visit(source, target),
        [first, rest @ ..] => {
            for step in 0..first.count as isize {
                nested(rest, source + step * first.source, target + step * first.target, visit);
            }
        }
    }
}

/// Location of one end of an operation.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// Buffer `.0`, a field.
    Field(usize),
    /// Buffer `.0`, a message, from byte `.1`, without gaps.
    Message(usize, usize),
}

/// The operation that moves one transfer from `source` to `target`. `sender` and `receiver` are the
/// layouts of the fields at both ends, which have passed [`CellLayout::check_peer`]. In a message
/// the bytes lie in the order of the sender's memory.
pub fn copy_op(
    transfer: &Transfer,
    (source, sender): (End, &CellLayout),
    (target, receiver): (End, &CellLayout),
) -> CopyOp {
    nest(transfer, (source, sender), (target, receiver)).between(source, target)
}

/// One operation that alternates between two transfers of the same two fields, block by block.
/// `None` unless both are boxes of one shape with short blocks. The two faces of the finest axis
/// qualify: each of their blocks occupies a cache line that the other face shares.
///
/// A message holds the blocks in the order in which they move.
pub fn copy_op_of_two(
    (first, second): (&Transfer, &Transfer),
    (source, sender): (End, &CellLayout),
    (target, receiver): (End, &CellLayout),
) -> Option<CopyOp> {
    let (Cells::Box(one), Cells::Box(other)) = (&first.source, &second.source) else { return None };
    if one.extent != other.extent || (first.map, first.is_negated) != (second.map, second.is_negated) {
        return None;
    }
    let mut nest_of_two = nest(first, (source, sender), (target, receiver));
    let second = nest(second, (source, sender), (target, receiver));
    let alike = (&nest_of_two.loops, nest_of_two.block) == (&second.loops, second.block);
    if !alike || nest_of_two.loops.is_empty() || nest_of_two.block > SHORT {
        return None;
    }
    nest_of_two.loops.push(Loop {
        count: 2,
        source: second.source_offset - nest_of_two.source_offset,
        target: second.target_offset - nest_of_two.target_offset,
    });
    Some(nest_of_two.between(source, target))
}

/// Maximum block length, in bytes, of operations that are joined.
const SHORT: usize = 64;

/// The loops of a transfer as if both ends were fields, except for listed cells.
fn nest(
    transfer: &Transfer,
    (source, sender): (End, &CellLayout),
    (target, receiver): (End, &CellLayout),
) -> Nest {
    let extra = sender.extra.iter().zip(&receiver.extra);
    let extra =
        extra.map(|(&(count, source), &(_, target))| Loop { count, source, target }).collect::<Vec<_>>();
    let mut nest = match (&transfer.source, &transfer.target) {
        (Cells::Box(from), Cells::Box(to)) => {
            let offset = |layout: &CellLayout, low: &[i64]| -> isize {
                layout.axes.iter().zip(low).map(|(a, &low)| (a.origin + low) as isize * a.stride).sum()
            };
            let mut source_offset = offset(sender, &from.low);
            // One loop for each axis of the target.
            let axes = receiver.axes.iter().zip(&to.extent).enumerate().map(|(axis, (r, &count))| {
                let along = transfer.map.source_axis(axis);
                let stride = sender.axes[along].stride;
                if !transfer.map.is_flipped(axis) {
                    return Loop { count, source: stride, target: r.stride };
                }
                source_offset += (count as isize - 1) * stride;
                Loop { count, source: -stride, target: r.stride }
            });
            let loops = axes.chain(extra).collect();
            Nest::new(source_offset, offset(receiver, &to.low), loops, None, sender.element)
        }
        (from, to) => {
            let (from_stride, to_stride) = (sender.axes[0].stride, receiver.axes[0].stride);
            let sequential = |end| matches!(end, End::Message(..));
            let runs = zip_runs(&runs_of(from), &runs_of(to), sequential(source), sequential(target));
            let (outer, inner) =
                extra.into_iter().partition(|l| l.source.unsigned_abs() > from_stride.unsigned_abs());
            let cells =
                Indexed { runs: runs.into(), source_stride: from_stride, target_stride: to_stride, inner };
            Nest::new(0, 0, outer, Some(cells), sender.element)
        }
    };
    nest.merge();
    // Once on the way: where the bytes reach the halo.
    nest.is_negated = transfer.is_negated && matches!(target, End::Field(_));
    nest
}

/// A [`CopyOp`] under construction.
type Nest = CopyOp;

impl Nest {
    fn new(
        source_offset: isize,
        target_offset: isize,
        loops: Vec<Loop>,
        cells: Option<Indexed>,
        element: ElementType,
    ) -> Self {
        let block = element.size();
        let is_negated = false;
        let mut nest = Self {
            source: 0,
            target: 0,
            source_offset,
            target_offset,
            element,
            loops,
            cells,
            block,
            is_negated,
        };
        let (source_offset, target_offset) = (&mut nest.source_offset, &mut nest.target_offset);
        let inner = nest.cells.as_mut().map(|cells| &mut cells.inner);
        for loops in [Some(&mut nest.loops), inner].into_iter().flatten() {
            sort_as_source(loops, source_offset, target_offset);
        }
        nest
    }

    /// Sets the ends of the nest.
    fn between(mut self, source: End, target: End) -> CopyOp {
        if let End::Message(_, begin) = source {
            self.lay_out(
                begin,
                |l| &mut l.source,
                |cells| &mut cells.source_stride,
                |n| &mut n.source_offset,
            );
        }
        if let End::Message(_, begin) = target {
            self.lay_out(
                begin,
                |l| &mut l.target,
                |cells| &mut cells.target_stride,
                |n| &mut n.target_offset,
            );
        }
        self.merge();
        let buffer = |end| match end {
            End::Field(buffer) | End::Message(buffer, _) => buffer,
        };
        CopyOp { source: buffer(source), target: buffer(target), ..self }
    }

    /// Replaces the strides of one end by those of a message that holds the bytes of the nest in
    /// order.
    fn lay_out(
        &mut self,
        begin: usize,
        stride: impl Fn(&mut Loop) -> &mut isize,
        cell_stride: impl Fn(&mut Indexed) -> &mut isize,
        offset: impl Fn(&mut Self) -> &mut isize,
    ) {
        *offset(self) = begin as isize;
        let mut bytes = self.block as isize;
        if let Some(cells) = &mut self.cells {
            for l in cells.inner.iter_mut().rev() {
                *stride(l) = bytes;
                bytes *= l.count as isize;
            }
            *cell_stride(cells) = bytes;
            bytes *= cells.runs.iter().map(|run| run.len as isize).sum::<isize>();
        }
        for l in self.loops.iter_mut().rev() {
            *stride(l) = bytes;
            bytes *= l.count as isize;
        }
    }

    /// Folds loops into longer blocks and into each other.
    fn merge(&mut self) {
        let innermost = match &mut self.cells {
            Some(cells) => &mut cells.inner,
            None => &mut self.loops,
        };
        while let Some(last) = innermost.last() {
            let block = self.block as isize;
            if (last.source, last.target) != (block, block) {
                break;
            }
            self.block *= last.count;
            innermost.pop();
        }
        merge_neighbours(&mut self.loops);
        if let Some(cells) = &mut self.cells {
            merge_neighbours(&mut cells.inner);
        }
    }
}

/// Orders loops by the source's memory: coarsest first, every step upwards.
fn sort_as_source(loops: &mut Vec<Loop>, source_offset: &mut isize, target_offset: &mut isize) {
    loops.retain(|l| l.count != 1);
    for l in loops.iter_mut().filter(|l| l.source < 0) {
        let steps = l.count as isize - 1;
        *source_offset += steps * l.source;
        *target_offset += steps * l.target;
        (l.source, l.target) = (-l.source, -l.target);
    }
    loops.sort_by_key(|l| std::cmp::Reverse(l.source));
}

fn merge_neighbours(loops: &mut Vec<Loop>) {
    let mut merged: Vec<Loop> = Vec::with_capacity(loops.len());
    for &inner in loops.iter() {
        let count = inner.count as isize;
        match merged.last_mut() {
            Some(outer) if (outer.source, outer.target) == (inner.source * count, inner.target * count) => {
                *outer = Loop { count: outer.count * inner.count, ..inner };
            }
            _ => merged.push(inner),
        }
    }
    *loops = merged;
}

fn runs_of(cells: &Cells) -> Vec<Run> {
    match cells {
        Cells::Runs(runs) => runs.to_vec(),
        // A box has no cell numbers; a pattern never pairs one with runs.
        Cells::Box(_) => Vec::new(),
    }
}

/// Splits two lists of runs of equal total length at each other's borders. An end that is a message
/// counts its cells instead.
fn zip_runs(source: &[Run], target: &[Run], source_counts: bool, target_counts: bool) -> Vec<CellRun> {
    let total: u32 = source.iter().map(|run| run.len).sum();
    let whole = [Run { start: 0, len: total }];
    let source = if source_counts { &whole[..] } else { source };
    let target = if target_counts { &whole[..] } else { target };
    let mut pairs = Vec::with_capacity(source.len().max(target.len()));
    let (mut s, mut t) = (source.iter().copied(), target.iter().copied());
    let (mut from, mut to) = (s.next(), t.next());
    while let (Some(a), Some(b)) = (from, to) {
        let len = a.len.min(b.len);
        if len > 0 {
            pairs.push(CellRun { source: a.start, target: b.start, len });
        }
        let rest = |run: Run| (run.len > len).then(|| Run { start: run.start + len, len: run.len - len });
        from = rest(a).or_else(|| s.next());
        to = rest(b).or_else(|| t.next());
    }
    pairs
}
