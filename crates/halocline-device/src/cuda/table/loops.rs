//! Finds the loops that lists of elements consist of, so that the kernel needs no list where they form boxes.

use halocline_plan::copy::Gather;

/// A loop over elements of the target and of all sources at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedLoop {
    pub(super) count: u64,
    /// Bytes from one step to the next: in the target, then in each source.
    pub(super) steps: Vec<i64>,
}

/// The loops of a gather around listed elements.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Loops {
    /// The innermost first: the one with the smallest step in the target.
    pub(super) loops: Vec<SharedLoop>,
    /// The loops go over so many elements of the lists. The first elements of each so many remain listed.
    pub(super) stride: usize,
    /// The number of elements that remain listed; 1: the loops are all.
    pub(super) listed: usize,
}

impl Loops {
    /// The loops of a gather: at most `most`, of which the list is one if it remains.
    pub(super) fn of(gather: &Gather, most: usize) -> Self {
        let steps = of_steps(gather);
        let most = most - steps.iter().len();
        let (mut loops, mut listed) = of_lists(gather, most);
        if listed > 1 && loops.len() == most {
            listed *= loops.pop().map_or(1, |outermost| outermost.count as usize);
        }
        let stride = gather.target.numbers.len() / listed.max(1);
        loops.extend(steps);
        loops.sort_by_key(|l| l.steps[0].unsigned_abs());
        Self { loops: merged(loops), stride, listed }
    }
}

/// The loop over the steps of a gather.
fn of_steps(gather: &Gather) -> Option<SharedLoop> {
    let all = std::iter::once(&gather.target).chain(&gather.sources);
    let steps = all.map(|listed| listed.step as i64).collect();
    (gather.steps > 1).then_some(SharedLoop { count: gather.steps as u64, steps })
}

/// Loops that the lists consist of, the innermost first, and the number of elements that are their beginnings.
fn of_lists(gather: &Gather, most: usize) -> (Vec<SharedLoop>, usize) {
    let len = gather.target.numbers.len();
    let (mut loops, mut stride) = (Vec::new(), 1);
    while loops.len() < most && len > stride {
        let Some(found) = next_loop(gather, stride) else { break };
        stride *= found.count as usize;
        loops.push(found);
    }
    (loops, len / stride)
}

/// The loop that every `stride`-th element of the lists consists of, if it repeats until their end.
fn next_loop(gather: &Gather, stride: usize) -> Option<SharedLoop> {
    let all = || std::iter::once(&gather.target).chain(&gather.sources);
    let len = gather.target.numbers.len() / stride;
    let at = |listed: &halocline_plan::copy::Listed, nth: usize| listed.at(nth * stride, 0) as i64;
    let steps: Vec<i64> = all().map(|listed| at(listed, 1) - at(listed, 0)).collect();
    let is_step =
        |nth: usize| all().zip(&steps).all(|(listed, step)| at(listed, nth) - at(listed, nth - 1) == *step);
    let count = (1..len).find(|&nth| !is_step(nth)).unwrap_or(len);
    let repeats = len.is_multiple_of(count) && (1..len).all(|nth| nth.is_multiple_of(count) || is_step(nth));
    (count > 1 && repeats).then_some(SharedLoop { count: count as u64, steps })
}

/// The loops with those joined that are one.
fn merged(loops: Vec<SharedLoop>) -> Vec<SharedLoop> {
    let mut all: Vec<SharedLoop> = Vec::with_capacity(loops.len());
    for outer in loops {
        match all.last_mut() {
            Some(inner) if inner.is_continued_by(&outer) => inner.count *= outer.count,
            _ => all.push(outer),
        }
    }
    all
}

impl SharedLoop {
    fn is_continued_by(&self, outer: &Self) -> bool {
        self.steps.iter().zip(&outer.steps).all(|(inner, outer)| inner * self.count as i64 == *outer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_plan::ElementType;
    use halocline_plan::copy::{CellRun, CopyOp, Indexed, Loop};

    fn op(source: usize, offset: isize, loops: &[(usize, isize, isize)]) -> CopyOp {
        let mut op = CopyOp::of_bytes(source, 0, 8);
        (op.target_offset, op.element) = (offset, ElementType::F64);
        op.loops = loops.iter().map(|&(count, source, target)| Loop { count, source, target }).collect();
        op
    }

    fn only(ops: &[CopyOp]) -> Gather {
        let mut gathers = Gather::all(ops);
        assert_eq!(gathers.len(), 1, "{gathers:?}");
        gathers.remove(0)
    }

    #[test]
    fn a_box_is_loops_alone() {
        let gather = only(&[op(0, 0, &[(5, 8, 1000), (4, 400, 100), (3, 80, 8)])]);
        let Loops { loops, stride, listed } = Loops::of(&gather, 4);
        let found: Vec<(u64, &[i64])> = loops.iter().map(|l| (l.count, &l.steps[..])).collect();
        assert_eq!(found, [(3, &[8, 80][..]), (4, &[100, 400]), (5, &[1000, 8])]);
        assert_eq!((stride, listed), (12, 1));
    }

    #[test]
    fn loops_that_continue_each_other_are_one() {
        let gather = only(&[op(0, 0, &[(5, 96, 96), (4, 24, 24), (3, 8, 8)])]);
        let Loops { loops, listed, .. } = Loops::of(&gather, 4);
        assert_eq!((loops, listed), (vec![SharedLoop { count: 60, steps: vec![8, 8] }], 1));
    }

    #[test]
    fn lists_without_an_order_remain() {
        let runs = [(0, 7, 1), (1, 2, 1), (2, 30, 1), (3, 11, 1)].map(|(source, target, len)| CellRun {
            source,
            target,
            len,
        });
        let mut cells = op(0, 0, &[(10, 8, 8)]);
        cells.cells =
            Some(Indexed { runs: runs.into(), source_stride: 80, target_stride: 80, inner: Vec::new() });
        let gather = only(&[cells]);
        let Loops { loops, stride, listed } = Loops::of(&gather, 4);
        assert_eq!(loops, [SharedLoop { count: 10, steps: vec![8, 8] }]);
        assert_eq!((stride, listed), (1, 4));
    }

    #[test]
    fn too_many_loops_leave_a_list() {
        let loops = [(2, 1, 20000), (3, 1, 3000), (4, 1, 400), (5, 1, 50), (2, 1, 8)];
        let gather = only(&[op(0, 0, &loops)]);
        let Loops { loops, stride, listed } = Loops::of(&gather, 4);
        assert!(loops.len() <= 3 && listed > 1, "{loops:?} {listed}");
        let in_loops: u64 = loops.iter().map(|l| l.count).product();
        assert_eq!(in_loops * listed as u64, 240);
        assert_eq!(stride * listed, gather.target.numbers.len());
    }
}
