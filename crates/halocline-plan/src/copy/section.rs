//! Parts of a copy operation, selected by byte range.

use super::{CellRun, CopyOp, Indexed};
use std::ops::Range;

impl CopyOp {
    /// Operations that move the bytes `bytes` of this operation, counted in the order in which they
    /// travel, in the same order. A range beyond the end of the operation is clipped.
    pub fn section(&self, bytes: Range<usize>) -> Vec<CopyOp> {
        let all = self.bytes();
        let (begin, end) = (bytes.start, bytes.end.min(all));
        if begin >= end {
            return Vec::new();
        }
        if (begin, end) == (0, all) {
            return vec![self.clone()];
        }
        if !self.loops.is_empty() {
            return self.section_of_loop(begin, end);
        }
        match &self.cells {
            Some(cells) => self.section_of_cells(cells, begin, end),
            None => vec![CopyOp { block: end - begin, ..self.moved(begin as isize, begin as isize) }],
        }
    }

    fn moved(&self, source: isize, target: isize) -> CopyOp {
        let (source_offset, target_offset) = (self.source_offset + source, self.target_offset + target);
        CopyOp { source_offset, target_offset, ..self.clone() }
    }

    fn section_of_loop(&self, begin: usize, end: usize) -> Vec<CopyOp> {
        let (outer, rest) = (self.loops[0], &self.loops[1..]);
        let step = |at: usize| {
            let op = self.moved(at as isize * outer.source, at as isize * outer.target);
            CopyOp { loops: rest.to_vec(), ..op }
        };
        let size = step(0).bytes();
        let (first, last) = (begin / size, end / size);
        if first == last {
            return step(first).section(begin % size..end % size);
        }
        let whole = begin.div_ceil(size);
        let mut all = if whole > first { step(first).section(begin % size..size) } else { Vec::new() };
        match last - whole {
            0 => {}
            1 => all.push(step(whole)),
            count => {
                let mut op = step(whole);
                op.loops.insert(0, super::Loop { count, ..outer });
                all.push(op);
            }
        }
        all.extend(step(last).section(0..end % size));
        all
    }

    fn section_of_cells(&self, cells: &Indexed, begin: usize, end: usize) -> Vec<CopyOp> {
        let cell_at = |run: &CellRun, at: u32| {
            let op = self.moved(
                (run.source + at) as isize * cells.source_stride,
                (run.target + at) as isize * cells.target_stride,
            );
            CopyOp { loops: cells.inner.clone(), cells: None, ..op }
        };
        let size = self.bytes() / cells.runs.iter().map(|run| run.len as usize).sum::<usize>();
        let (mut all, mut whole, mut before) = (Vec::new(), Vec::new(), 0usize);
        let list = |whole: &mut Vec<CellRun>, all: &mut Vec<CopyOp>| {
            if !whole.is_empty() {
                let cells = Indexed { runs: std::mem::take(whole).into(), ..cells.clone() };
                all.push(CopyOp { cells: Some(cells), ..self.clone() });
            }
        };
        for run in cells.runs.iter() {
            // Bytes of the section within this run.
            let bytes = run.len as usize * size;
            let (from, to) =
                (begin.clamp(before, before + bytes) - before, end.clamp(before, before + bytes) - before);
            before += bytes;
            if from >= to {
                continue;
            }
            let (first, last) = (from / size, to / size);
            if first == last {
                list(&mut whole, &mut all);
                all.extend(cell_at(run, first as u32).section(from % size..to % size));
                continue;
            }
            let begun = from.div_ceil(size);
            if begun > first {
                list(&mut whole, &mut all);
                all.extend(cell_at(run, first as u32).section(from % size..size));
            }
            if last > begun {
                let at = begun as u32;
                let len = (last - begun) as u32;
                whole.push(CellRun { source: run.source + at, target: run.target + at, len });
            }
            if !to.is_multiple_of(size) {
                list(&mut whole, &mut all);
                all.extend(cell_at(run, last as u32).section(0..to % size));
            }
        }
        list(&mut whole, &mut all);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::Loop;
    use super::*;
    use crate::ElementType;
    use proptest::prelude::*;

    /// Source and target of each byte, in order.
    fn bytes_of(ops: &[CopyOp]) -> Vec<(isize, isize)> {
        let mut all = Vec::new();
        for op in ops {
            op.for_each_block(|s, t, len| all.extend((0..len as isize).map(|at| (s + at, t + at))));
        }
        all
    }

    fn loops() -> impl Strategy<Value = Vec<Loop>> {
        let one = (2usize..5, -90isize..90, -90isize..90);
        proptest::collection::vec(one, 0..3).prop_map(|all| {
            all.into_iter().map(|(count, source, target)| Loop { count, source, target }).collect()
        })
    }

    fn op() -> impl Strategy<Value = CopyOp> {
        let runs = proptest::collection::vec((0u32..50, 0u32..50, 1u32..5), 1..5);
        let cells = (runs, loops(), -30isize..30, -30isize..30).prop_map(
            |(runs, inner, source_stride, target_stride)| {
                let run = |(source, target, len)| CellRun { source, target, len };
                Indexed { runs: runs.into_iter().map(run).collect(), source_stride, target_stride, inner }
            },
        );
        (loops(), proptest::option::of(cells), 1usize..20, -99isize..99).prop_map(
            |(loops, cells, block, at)| CopyOp {
                source: 3,
                target: 1,
                source_offset: at,
                target_offset: 7 - at,
                element: ElementType::U8,
                loops,
                cells,
                block,
                is_negated: false,
            },
        )
    }

    proptest! {
        #[test]
        fn sections_move_the_bytes_of_the_whole_in_order(op in op(), cuts in proptest::collection::vec(0usize..4000, 0..4)) {
            let all = op.bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (all + 1)).chain([0, all]).collect();
            cuts.sort_unstable();
            let mut sections = Vec::new();
            for ends in cuts.windows(2) {
                let section = op.section(ends[0]..ends[1]);
                prop_assert_eq!(section.iter().map(CopyOp::bytes).sum::<usize>(), ends[1] - ends[0]);
                prop_assert!(section.iter().all(|part| (part.source, part.target) == (3, 1)));
                sections.extend(section);
            }
            prop_assert_eq!(bytes_of(&sections), bytes_of(&[op]));
        }
    }
}
