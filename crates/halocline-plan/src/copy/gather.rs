//! Turns the copies of a reduce into lists of elements: each target once, with all its sources in the order in which they are combined.
//!
//! So threads can combine all elements at the same time, each in a fixed order, without atomics.

use super::{CopyOp, Loop, nested};
use crate::ElementType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most elements of a list: units of a launch are counted in 31 bits.
const MOST: usize = 1 << 26;

/// Elements of one buffer. In step `n`, element `at` of the list lies at `offset + numbers[at] * stride + n * step` bytes.
///
/// ```
/// use halocline_plan::copy::Listed;
///
/// let listed = Listed { buffer: 0, offset: 8, numbers: [0, 2].into(), stride: 8, step: 100, is_negated: false, is_cleared: false };
/// assert_eq!([listed.at(1, 0), listed.at(1, 3)], [24, 324]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Index of the buffer.
    pub buffer: usize,
    /// Offset of number 0 in bytes, relative to element (0, 0, …) of a field or to the start of a message.
    pub offset: isize,
    /// The numbers of the elements.
    pub numbers: Arc<[u32]>,
    /// Bytes from one number to the next.
    pub stride: isize,
    /// Bytes from one step to the next.
    pub step: isize,
    /// Whether sources change their sign before they are combined.
    pub is_negated: bool,
    /// Whether sources become zero once they are read. No other source has their bytes.
    pub is_cleared: bool,
}

/// Elements of one buffer, and those of others that are combined with them.
///
/// ```
/// use halocline_plan::copy::{CopyOp, Gather};
///
/// // The bytes of two messages are combined with those of a buffer, those of message 0 first.
/// let ops = [CopyOp::of_bytes(0, 0, 3), CopyOp::of_bytes(1, 0, 2)];
/// let gathers = Gather::all(&ops);
/// let sources: Vec<usize> = gathers.iter().map(|gather| gather.sources.len()).collect();
/// // One byte has one source, two bytes have two.
/// assert_eq!(sources, [1, 2]);
/// assert_eq!(gathers[1].sources[0].buffer, 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gather {
    /// The type of the elements.
    pub element: ElementType,
    /// The number of steps.
    pub steps: usize,
    /// The elements that change.
    pub target: Listed,
    /// The elements that are combined with them, in this order.
    pub sources: Vec<Listed>,
}

impl Listed {
    /// The offset of an element in a step.
    pub fn at(&self, element: usize, step: usize) -> isize {
        self.offset + self.numbers[element] as isize * self.stride + step as isize * self.step
    }

    /// From offsets in step 0.
    fn new(buffer: usize, step: isize, offsets: &[isize]) -> Self {
        let offset = offsets.iter().copied().min().unwrap_or(0);
        let divisor = offsets.iter().fold(0, |divisor, &at| gcd(divisor, (at - offset).unsigned_abs()));
        let number = |&at: &isize| ((at - offset).unsigned_abs() / divisor.max(1)) as u32;
        let numbers = offsets.iter().map(number).collect();
        Self { buffer, offset, numbers, stride: divisor as isize, step, is_negated: false, is_cleared: false }
    }

    /// Whether offsets have numbers.
    fn fits(offsets: &[isize]) -> bool {
        let bounds = offsets.iter().min().zip(offsets.iter().max());
        let divisor =
            || offsets.iter().fold(0, |divisor, &at| gcd(divisor, (at - offsets[0]).unsigned_abs()));
        bounds.is_none_or(|(low, high)| (high - low).unsigned_abs() / divisor().max(1) <= u32::MAX as usize)
    }
}

impl Gather {
    /// The elements of all targets of these operations, each once. Its sources have the order of the operations. No two buffers of
    /// targets share bytes.
    pub fn all(ops: &[CopyOp]) -> Vec<Self> {
        let mut of_targets: BTreeMap<usize, Vec<&CopyOp>> = BTreeMap::new();
        ops.iter()
            .filter(|op| op.bytes() > 0)
            .for_each(|op| of_targets.entry(op.target).or_default().push(op));
        // Fields of one pattern and layout have equal operations.
        let mut known: Vec<(Vec<CopyOp>, Vec<Self>)> = Vec::new();
        let mut all = Vec::new();
        for (target, ops) in of_targets {
            let mut buffers: Vec<usize> = Vec::new();
            let mut number = |buffer: usize| {
                buffers.iter().position(|&known| known == buffer).unwrap_or_else(|| {
                    buffers.push(buffer);
                    buffers.len() - 1
                })
            };
            let alike: Vec<CopyOp> = ops
                .iter()
                .map(|op| CopyOp { source: number(op.source), target: 0, ..(*op).clone() })
                .collect();
            let at = known.iter().position(|(known, _)| *known == alike).unwrap_or_else(|| {
                let gathers = of_target(&alike);
                known.push((alike, gathers));
                known.len() - 1
            });
            all.extend(known[at].1.iter().map(|gather| gather.between(target, &buffers)));
        }
        all
    }

    /// The same, with sources in some buffers cleared.
    #[must_use]
    pub fn clearing(mut self, is_cleared: impl Fn(usize) -> bool) -> Self {
        self.sources.iter_mut().for_each(|source| source.is_cleared = is_cleared(source.buffer));
        self
    }

    /// Whether all sources lie in such buffers.
    pub fn is_from(&self, is_it: impl Fn(usize) -> bool) -> bool {
        self.sources.iter().all(|source| is_it(source.buffer))
    }

    /// The number of elements that change.
    pub fn elements(&self) -> usize {
        self.steps * self.target.numbers.len()
    }

    /// The same with other buffers.
    fn between(&self, target: usize, sources: &[usize]) -> Self {
        let mut gather = self.clone();
        gather.target.buffer = target;
        gather.sources.iter_mut().for_each(|source| source.buffer = sources[source.buffer]);
        gather
    }
}

/// An operation as loops over elements.
struct Elements {
    loops: Vec<Loop>,
    op: CopyOp,
}

impl Elements {
    fn new(op: &CopyOp) -> Self {
        let bytes = op.element.size().max(1);
        let (count, step) = (op.block / bytes, bytes as isize);
        let block = Loop { count, source: step, target: step };
        let inner = op.cells.iter().flat_map(|cells| cells.inner.iter().copied());
        Self { loops: op.loops.iter().copied().chain(inner).chain([block]).collect(), op: op.clone() }
    }

    /// The loop with a count and a step in the target.
    fn like(&self, l: &Loop) -> Option<usize> {
        self.loops.iter().position(|own| (own.count, own.target) == (l.count, l.target))
    }

    /// Calls `visit` with the offsets of all elements, in order. A loop that is `left_out` stays at its first step.
    fn for_each(&self, left_out: Option<usize>, mut visit: impl FnMut(isize, isize)) {
        let mut loops = self.loops.clone();
        if let Some(at) = left_out {
            loops[at].count = 1;
        }
        let outer = self.op.loops.len();
        nested(&loops[..outer], self.op.source_offset, self.op.target_offset, &mut |s, t| {
            let Some(cells) = &self.op.cells else {
                return nested(&loops[outer..], s, t, &mut visit);
            };
            for run in cells.runs.iter() {
                for cell in 0..run.len {
                    let s = s + (run.source + cell) as isize * cells.source_stride;
                    let t = t + (run.target + cell) as isize * cells.target_stride;
                    nested(&loops[outer..], s, t, &mut visit);
                }
            }
        });
    }
}

/// One contribution to an element.
struct Contribution {
    target: isize,
    source: isize,
    op: u32,
}

/// The lists of operations with one target.
fn of_target(ops: &[CopyOp]) -> Vec<Gather> {
    let elements: Vec<Elements> = ops.iter().map(Elements::new).collect();
    let mut candidates = elements[0].loops.clone();
    candidates.sort_by_key(|l| std::cmp::Reverse(l.count));
    let candidates = candidates.iter().filter(|l| l.count > 1);
    let shared = candidates.filter_map(|l| {
        let at: Option<Vec<usize>> = elements.iter().map(|one| one.like(l)).collect();
        at.map(|at| (l.count, l.target, at))
    });
    for (count, step, at) in shared {
        let contributions = listed(&elements, |op| Some(at[op]));
        if are_apart(&contributions, count, step) {
            let steps = |op: usize| elements[op].loops[at[op]].source;
            return by_sources(ops, &contributions, (count, step), steps);
        }
    }
    by_sources(ops, &listed(&elements, |_| None), (1, 0), |_| 0)
}

/// All contributions, by their targets; those of one target in the order of the operations.
fn listed(elements: &[Elements], left_out: impl Fn(usize) -> Option<usize>) -> Vec<Contribution> {
    let mut all = Vec::new();
    for (op, one) in elements.iter().enumerate() {
        one.for_each(left_out(op), |source, target| all.push(Contribution { target, source, op: op as u32 }));
    }
    // Stable: the order of the operations stays.
    all.sort_by_key(|one| one.target);
    all
}

/// Whether targets that differ in the list differ in all steps of a loop, too.
fn are_apart(contributions: &[Contribution], count: usize, step: isize) -> bool {
    let (bytes, count) = (step.abs(), count as isize);
    if bytes == 0 {
        return false;
    }
    let mut targets: Vec<(isize, isize)> =
        contributions.iter().map(|one| (one.target.rem_euclid(bytes), one.target)).collect();
    targets.sort_unstable();
    targets.dedup();
    targets.windows(2).all(|two| two[0].0 != two[1].0 || two[1].1 - two[0].1 >= bytes * count)
}

/// Lists of elements that have sources of the same operations. `step` is the loop around all of them, with its step in the target.
fn by_sources(
    ops: &[CopyOp],
    contributions: &[Contribution],
    (steps, step): (usize, isize),
    source_step: impl Fn(usize) -> isize,
) -> Vec<Gather> {
    let mut lists: BTreeMap<Vec<u32>, Vec<&[Contribution]>> = BTreeMap::new();
    for of_one in contributions.chunk_by(|one, next| one.target == next.target) {
        lists.entry(of_one.iter().map(|one| one.op).collect()).or_default().push(of_one);
    }
    let mut gathers = Vec::new();
    for (key, elements) in &lists {
        let mut add = |elements: &[&[Contribution]]| {
            let targets: Vec<isize> = elements.iter().map(|of_one| of_one[0].target).collect();
            let sources = key.iter().enumerate().map(|(at, &op)| {
                let op = op as usize;
                let offsets: Vec<isize> = elements.iter().map(|of_one| of_one[at].source).collect();
                Listed {
                    is_negated: ops[op].is_negated,
                    ..Listed::new(ops[op].source, source_step(op), &offsets)
                }
            });
            let sources = sources.collect();
            let element = ops[key[0] as usize].element;
            gathers.push(Gather { element, steps, target: Listed::new(0, step, &targets), sources });
        };
        in_pieces(elements, &mut add);
    }
    gathers
}

/// Calls `add` with as few pieces as have numbers for all offsets.
fn in_pieces(elements: &[&[Contribution]], add: &mut impl FnMut(&[&[Contribution]])) {
    let offsets =
        |of: &dyn Fn(&[Contribution]) -> isize| elements.iter().map(|one| of(one)).collect::<Vec<_>>();
    let fits = elements.len() <= MOST
        && Listed::fits(&offsets(&|one| one[0].target))
        && (0..elements[0].len()).all(|at| Listed::fits(&offsets(&|one| one[at].source)));
    if fits || elements.len() == 1 {
        return add(elements);
    }
    let (first, second) = elements.split_at(elements.len() / 2);
    in_pieces(first, add);
    in_pieces(second, add);
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::{CellRun, Indexed};
    use super::*;
    use proptest::prelude::*;

    /// For each target byte of the first byte of an element: the sources in order.
    type Found = BTreeMap<(usize, isize), Vec<(usize, isize)>>;

    fn expected(ops: &[CopyOp]) -> Found {
        let mut found = Found::new();
        for op in ops {
            op.for_each_block(|source, target, bytes| {
                for at in (0..bytes as isize).step_by(op.element.size()) {
                    found.entry((op.target, target + at)).or_default().push((op.source, source + at));
                }
            });
        }
        found
    }

    fn found(gathers: &[Gather]) -> Found {
        let mut found = Found::new();
        for Gather { steps, target, sources, .. } in gathers {
            for step in 0..*steps {
                for at in 0..target.numbers.len() {
                    let of = sources.iter().map(|source| (source.buffer, source.at(at, step))).collect();
                    let before = found.insert((target.buffer, target.at(at, step)), of);
                    assert!(before.is_none(), "a target is listed twice");
                }
            }
        }
        found
    }

    fn op(buffers: (usize, usize), offsets: (isize, isize), loops: Vec<Loop>, block: usize) -> CopyOp {
        let (source_offset, target_offset) = offsets;
        CopyOp {
            source_offset,
            target_offset,
            loops,
            element: ElementType::U16,
            ..CopyOp::of_bytes(buffers.0, buffers.1, block)
        }
    }

    #[test]
    fn levels_that_all_operations_share_are_steps() {
        let levels = |source| Loop { count: 50, source, target: 1000 };
        let cells = |runs: &[(u32, u32, u32)]| {
            let runs = runs.iter().map(|&(source, target, len)| CellRun { source, target, len }).collect();
            Some(Indexed { runs, source_stride: 2, target_stride: 4, inner: Vec::new() })
        };
        let first =
            CopyOp { cells: cells(&[(0, 3, 2), (2, 90, 1)]), ..op((0, 5), (0, 0), vec![levels(20)], 2) };
        let second = CopyOp { cells: cells(&[(0, 4, 3)]), ..op((1, 5), (6, 0), vec![levels(8)], 2) };
        let ops = [first, second];
        let gathers = Gather::all(&ops);
        assert_eq!(found(&gathers), expected(&ops));
        assert!(gathers.iter().all(|gather| gather.steps == 50 && gather.target.step == 1000), "{gathers:?}");
        assert_eq!(gathers.iter().map(|gather| gather.target.numbers.len()).sum::<usize>(), 5);
    }

    #[test]
    fn a_loop_whose_steps_meet_other_elements_is_no_step() {
        // Two rows, the second one step further: elements of both are the same.
        let row = |source| vec![Loop { count: 4, source, target: 10 }];
        let ops = [op((0, 0), (0, 0), row(2), 2), op((1, 0), (0, 10), row(2), 2)];
        let gathers = Gather::all(&ops);
        assert_eq!(found(&gathers), expected(&ops));
        assert!(gathers.iter().all(|gather| gather.steps == 1), "{gathers:?}");
    }

    #[test]
    fn fields_of_one_layout_share_their_lists() {
        let of_field =
            |field: usize| op((field, 7 + field), (0, 4), vec![Loop { count: 3, source: 8, target: 6 }], 4);
        let gathers = Gather::all(&[of_field(0), of_field(1)]);
        let [one, other] = &gathers[..] else { panic!("{gathers:?}") };
        assert!(Arc::ptr_eq(&one.target.numbers, &other.target.numbers));
        assert_eq!((one.target.buffer, other.target.buffer, other.sources[0].buffer), (7, 8, 1));
    }

    proptest! {
        /// Boxes and lists that overlap in their targets in any way.
        #[test]
        fn each_target_has_its_sources_in_order(
            ops in proptest::collection::vec(
                ((0_usize..3, 0_usize..2), (0_isize..6, 0_isize..40), (1_usize..4, 1_usize..4, 1_usize..4), 0_usize..3),
                1..6,
            ),
        ) {
            let ops: Vec<CopyOp> = ops.into_iter().map(|(buffers, (from, to), (a, b, block), form)| {
                let loops = vec![
                    Loop { count: a, source: 60, target: [100, 20, 100][form] },
                    Loop { count: b, source: 8, target: [20, 100, 8][form] },
                ];
                let whole = op(buffers, (2 * from, 2 * to), loops, 2 * block);
                match form {
                    2 => {
                        let runs = [CellRun { source: 4, target: 9, len: 1 }, CellRun { source: 0, target: 0, len: b as u32 }];
                        let cells = Indexed { runs: runs.into(), source_stride: 10, target_stride: 12, inner: Vec::new() };
                        CopyOp { loops: whole.loops[..1].to_vec(), cells: Some(cells), ..whole }
                    }
                    _ => whole,
                }
            }).collect();
            prop_assert_eq!(found(&Gather::all(&ops)), expected(&ops));
        }
    }
}
