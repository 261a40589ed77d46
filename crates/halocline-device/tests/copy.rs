//! Copy operations against the definition: cell by cell, element by element, by the strides.

use halocline_device::host;
use halocline_plan::copy::{CellLayout, CopyOp, End, copy_op, copy_op_of_two};
use halocline_plan::{AxisMap, BoxCells, Cells, DomainShape, ElementType, Layout, Transfer};
use proptest::prelude::*;
use proptest::sample::subsequence;

/// An array with its bytes: a dense layout of `extents`, its dimensions permuted, some of them reversed,
/// and all of it padded.
#[derive(Debug, Clone)]
struct Made {
    layout: Layout,
    bytes: Vec<u8>,
    /// Index of element (0, 0, …) in `bytes`.
    base: usize,
}

fn made(element: ElementType, extents: Vec<usize>) -> impl Strategy<Value = Made> {
    let dims = extents.len();
    let order = Just((0..dims).collect::<Vec<_>>()).prop_shuffle();
    (order, proptest::collection::vec(any::<bool>(), dims), proptest::collection::vec(0usize..3, dims))
        .prop_map(move |(order, reversed, padding)| {
            let mut strides = vec![0; dims];
            let mut stride = element.size() as isize;
            for &dim in &order {
                strides[dim] = if reversed[dim] { -stride } else { stride };
                stride *= (extents[dim] + padding[dim]) as isize;
            }
            let layout = Layout::strided(element, &extents, &strides).unwrap();
            let span = layout.span();
            let bytes = (0..span.end - span.start).map(|at| (at * 7 + at / 251) as u8).collect();
            Made { layout, bytes, base: -span.start as usize }
        })
}

impl Made {
    /// Bytes of the element at an index.
    fn element(&self, index: &[usize]) -> &[u8] {
        let offset: isize = index.iter().zip(self.layout.strides()).map(|(&i, s)| i as isize * s).sum();
        let at = (self.base as isize + offset) as usize;
        &self.bytes[at..at + self.layout.element().size()]
    }
}

/// Two arrays of one shape and the cells that go from one to the other.
#[derive(Debug, Clone)]
struct Case {
    source: Made,
    target: Made,
    axes: usize,
    shape: DomainShape,
    transfer: Transfer,
    /// The index along the axes of each cell, at both ends.
    cells: Vec<(Vec<usize>, Vec<usize>)>,
}

fn element() -> impl Strategy<Value = ElementType> {
    prop_oneof![
        Just(ElementType::F64),
        Just(ElementType::F32),
        Just(ElementType::C128),
        (1u8..=16).prop_map(ElementType::Opaque)
    ]
}

fn boxes() -> impl Strategy<Value = Case> {
    let shape =
        (proptest::collection::vec(2usize..7, 1..4), proptest::collection::vec(1usize..5, 0..3), element());
    shape.prop_flat_map(|(grid, extra, element)| {
        let (axes, extents) = (grid.len(), [&grid[..], &extra].concat());
        // A box of half the array: in the source it ends at the high side, in the target it begins low.
        let extent: Vec<usize> = grid.iter().map(|n| n / 2).collect();
        let source_low: Vec<usize> = grid.iter().zip(&extent).map(|(n, e)| n - e).collect();
        let ends = (made(element, extents.clone()), made(element, extents));
        ends.prop_map(move |(source, target)| {
            let steps = extent.iter().fold(vec![vec![]], |all: Vec<Vec<usize>>, &n| {
                all.iter().flat_map(|head| (0..n).map(|i| [&head[..], &[i]].concat())).collect()
            });
            let cells = steps
                .into_iter()
                .map(|step| (step.iter().zip(&source_low).map(|(i, low)| i + low).collect(), step))
                .collect();
            let of = |low: &[usize]| {
                let low = low.iter().map(|&low| low as i64).collect();
                Cells::Box(BoxCells { low, extent: extent.clone() })
            };
            let shape =
                DomainShape::Regular { first: vec![0; axes], owned: grid.clone(), halo: vec![(0, 0); axes] };
            let (source_cells, target_cells) = (of(&source_low), of(&vec![0; axes]));
            Case { source, target, axes, shape, transfer: transfer(source_cells, target_cells), cells }
        })
    })
}

fn runs() -> impl Strategy<Value = Case> {
    let shape = (4usize..40, proptest::collection::vec(1usize..6, 0..3), element());
    shape.prop_flat_map(|(count, extra, element)| {
        let extents = [&[count][..], &extra].concat();
        let picks = (
            subsequence((0..count).collect::<Vec<_>>(), 1..count),
            Just((0..count).collect::<Vec<_>>()).prop_shuffle(),
        );
        (made(element, extents.clone()), made(element, extents), picks).prop_map(
            move |(source, target, (to, from))| {
                let cells: Vec<_> = from.into_iter().zip(to).collect();
                let runs = |end: fn(&(usize, usize)) -> usize| {
                    Cells::from_indices(cells.iter().map(|c| end(c) as u32))
                };
                let shape = DomainShape::Unstructured { owned: count, cells: count, levels: Vec::new() };
                let transfer = transfer(runs(|c| c.0), runs(|c| c.1));
                let cells = cells.into_iter().map(|(from, to)| (vec![from], vec![to])).collect();
                Case { source, target, axes: 1, shape, transfer, cells }
            },
        )
    })
}

fn transfer(source: Cells, target: Cells) -> Transfer {
    Transfer { from: 0, to: 1, source, target, map: AxisMap::Identity }
}

impl Case {
    fn layouts(&self) -> (CellLayout, CellLayout) {
        let of = |made: &Made| CellLayout::new(&made.layout, &self.shape).unwrap();
        (of(&self.source), of(&self.target))
    }

    fn op(&self, source: End, target: End) -> CopyOp {
        let (sender, receiver) = self.layouts();
        copy_op(&self.transfer, (source, &sender), (target, &receiver))
    }

    /// What the target must hold.
    fn expected(&self) -> Made {
        let mut expected = self.target.clone();
        let extra = &self.target.layout.extents()[self.axes..];
        for (from, to) in &self.cells {
            for flat in 0..extra.iter().product() {
                let mut rest: usize = flat;
                let level: Vec<usize> = extra
                    .iter()
                    .map(|n| {
                        let i = rest % n;
                        rest /= n;
                        i
                    })
                    .collect();
                let element = self.source.element(&[&from[..], &level].concat()).to_vec();
                let index = [&to[..], &level].concat();
                let offset: isize =
                    index.iter().zip(expected.layout.strides()).map(|(&i, s)| i as isize * s).sum();
                let at = (expected.base as isize + offset) as usize;
                expected.bytes[at..at + element.len()].copy_from_slice(&element);
            }
        }
        expected
    }

    /// Bytes of a message with room for whole cache lines, aligned.
    fn message(&self) -> Vec<Line> {
        let (sender, _) = self.layouts();
        vec![Line([0; 64]); (self.cells.len() * sender.bytes_per_cell()).div_ceil(64)]
    }

    fn check(&self) {
        let expected = self.expected();
        let source = self.source.bytes.as_ptr().wrapping_add(self.source.base);
        let direct = self.op(End::Field(0), End::Field(0));
        let pack = self.op(End::Field(0), End::Message(0, 0));
        let unpack = self.op(End::Message(0, 0), End::Field(0));
        for streaming in [None, Some(false), Some(true)] {
            let mut target = self.target.clone();
            let to = target.bytes.as_mut_ptr().wrapping_add(target.base);
            let mut message = self.message();
            let wire = message.as_mut_ptr().cast::<u8>();
            // SAFETY: the operations come from layouts and cells within these arrays; the message has
            // room for all cells, rounded up to its alignment.
            unsafe {
                match streaming {
                    None => host::copy(std::slice::from_ref(&direct), &[source], &[to]),
                    Some(streaming) => {
                        if streaming {
                            host::pack_streaming(std::slice::from_ref(&pack), &[source], wire);
                        } else {
                            host::copy(std::slice::from_ref(&pack), &[source], &[wire]);
                        }
                        host::copy(std::slice::from_ref(&unpack), &[wire.cast_const()], &[to]);
                    }
                }
            }
            assert_eq!(target.bytes, expected.bytes, "streaming {streaming:?}");
        }
        let (reads, writes) = direct.reach();
        let mut bytes = 0;
        direct.for_each_block(|s, t, len| {
            let end = |start: isize| start + len as isize;
            assert!(reads.start <= s && end(s) <= reads.end, "{reads:?} {s} {len}");
            assert!(writes.start <= t && end(t) <= writes.end, "{writes:?} {t} {len}");
            bytes += len;
        });
        assert_eq!(bytes, direct.bytes());
    }
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "written through a pointer")] [u8; 64]);

proptest! {
    #[test]
    fn boxes_move_by_every_way_as_defined(case in boxes()) {
        case.check();
    }

    #[test]
    fn listed_cells_move_by_every_way_as_defined(case in runs()) {
        case.check();
    }
}

/// Messages of many times the stage of the streaming pack, in blocks of each of its kinds.
#[test]
fn large_messages_stream_as_defined() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    for (element, levels) in [(ElementType::F64, 65), (ElementType::F64, 1), (ElementType::Opaque(13), 3)] {
        let count = 3000;
        let extents = vec![count, levels];
        let ends = (made(element, extents.clone()), made(element, extents));
        let (source, target) = ends.new_tree(&mut runner).unwrap().current();
        let cells: Vec<(usize, usize)> = (0..count / 2).map(|i| ((i * 7919) % count, i + i / 3)).collect();
        let runs =
            |end: fn(&(usize, usize)) -> usize| Cells::from_indices(cells.iter().map(|c| end(c) as u32));
        let transfer = transfer(runs(|c| c.0), runs(|c| c.1));
        let shape = DomainShape::Unstructured { owned: count, cells: count, levels: Vec::new() };
        let cells = cells.iter().map(|&(from, to)| (vec![from], vec![to])).collect();
        Case { source, target, axes: 1, shape, transfer, cells }.check();
    }
}

#[test]
fn regions_merge_to_the_fewest_longest_blocks() {
    let blocks = |extents: &[usize], low: &[i64], extent: &[usize]| {
        let layout = Layout::c_order(ElementType::F64, extents).unwrap();
        let halo = vec![(0, 0); low.len()];
        let owned = extents[..low.len()].to_vec();
        let shape = DomainShape::Regular { first: vec![0; low.len()], owned, halo };
        let cells = CellLayout::new(&layout, &shape).unwrap();
        let of = |low: &[i64]| Cells::Box(BoxCells { low: low.to_vec(), extent: extent.to_vec() });
        let t = transfer(of(low), of(&vec![0; low.len()]));
        let op = copy_op(&t, (End::Field(0), &cells), (End::Field(0), &cells));
        (op.blocks(), op.block, op.loops.len())
    };
    // Whole planes are one block, whole rows of a plane too.
    assert_eq!(blocks(&[8, 6, 4], &[4, 0, 0], &[2, 6, 4]), (1, 2 * 6 * 4 * 8, 0));
    assert_eq!(blocks(&[8, 6, 4], &[4, 3, 0], &[2, 2, 4]), (2, 2 * 4 * 8, 1));
    // Columns of single cells whose rows follow each other at one distance are one loop.
    assert_eq!(blocks(&[8, 6, 4], &[0, 0, 3], &[8, 6, 1]), (48, 8, 1));
    // Levels that lie within a cell lengthen its block.
    assert_eq!(blocks(&[8, 6, 10], &[0, 5], &[8, 1]), (8, 80, 1));
}

/// The faces at both sides of an axis, moved in one operation and in two, by every way.
#[test]
fn two_faces_in_one_operation_move_as_in_two() {
    let extents = [7usize, 6, 9];
    let element = ElementType::F64;
    let orders = [Layout::c_order(element, &extents), Layout::fortran_order(element, &extents)];
    let layouts = orders.map(|layout| {
        let layout = layout.unwrap();
        let shape = DomainShape::Regular { first: vec![0; 3], owned: vec![1; 3], halo: vec![(0, 0); 3] };
        (CellLayout::new(&layout, &shape).unwrap(), layout.len() * 8)
    });
    let mut joined = 0;
    for (axis, width) in [(0, 1), (1, 1), (2, 1), (0, 3), (2, 3)] {
        let extent: Vec<usize> = (0..3).map(|a| if a == axis { width } else { extents[a] }).collect();
        let at = |low: usize| {
            let low = (0..3).map(|a| if a == axis { low as i64 } else { 0 }).collect();
            Cells::Box(BoxCells { low, extent: extent.clone() })
        };
        let high = extents[axis] - width;
        let (low, high) = (transfer(at(0), at(high)), transfer(at(high), at(0)));
        for ((sender, len), (receiver, _)) in layouts.iter().flat_map(|a| layouts.iter().map(move |b| (a, b)))
        {
            let of_two = |source, target| copy_op_of_two((&low, &high), (source, sender), (target, receiver));
            let (field, message) = (End::Field(0), End::Message(0, 0));
            let Some(direct) = of_two(field, field) else { continue };
            joined += 1;
            let (pack, unpack) = (of_two(field, message).unwrap(), of_two(message, field).unwrap());
            let source: Vec<u8> = (0..*len).map(|i| (i * 31 % 251) as u8).collect();
            let mut expected = vec![0u8; *len];
            let ops = [&low, &high].map(|t| copy_op(t, (field, sender), (field, receiver)));
            // SAFETY: both arrays have the extents that the operations were made for.
            unsafe { host::copy(&ops, &[source.as_ptr()], &[expected.as_mut_ptr()]) };
            for streaming in [None, Some(false), Some(true)] {
                let mut target = vec![0u8; *len];
                let mut lines = vec![Line([0; 64]); direct.bytes().div_ceil(64)];
                let wire = lines.as_mut_ptr().cast::<u8>();
                // SAFETY: as above; the message has room for all bytes, rounded up to its alignment.
                unsafe {
                    match streaming {
                        None => host::copy(
                            std::slice::from_ref(&direct),
                            &[source.as_ptr()],
                            &[target.as_mut_ptr()],
                        ),
                        Some(true) => {
                            host::pack_streaming(std::slice::from_ref(&pack), &[source.as_ptr()], wire)
                        }
                        Some(false) => host::copy(std::slice::from_ref(&pack), &[source.as_ptr()], &[wire]),
                    }
                    if streaming.is_some() {
                        host::copy(
                            std::slice::from_ref(&unpack),
                            &[wire.cast_const()],
                            &[target.as_mut_ptr()],
                        );
                    }
                }
                assert_eq!(target, expected, "axis {axis}, width {width}, streaming {streaming:?}");
            }
        }
    }
    assert!(joined >= 6, "{joined}");
}
