//! Copy operations compared with the definition: cell by cell, element by element, by the strides.

use crate::arrays::{Case, boxes, listed, made_in, runs, transfer};
use halocline_device::host;
use halocline_plan::copy::{CellLayout, CopyOp, End, Loop, copy_op, copy_op_of_two};
use halocline_plan::{BoxCells, Cells, DomainShape, ElementType, Layout};
use proptest::prelude::*;

impl Case {
    /// Buffer for a message, aligned and rounded up to whole cache lines.
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
            // SAFETY: the operations come from layouts and cells within these arrays. The message has space for all
            // cells, rounded up to its alignment. No two of the memories overlap.
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

/// Level-major arrays (the cell is the finest dimension) with more listed cells than a batch of the copy
/// loops, in runs of all lengths: gathered from anywhere into consecutive cells, scattered from consecutive
/// cells, or both.
fn level_major() -> impl Strategy<Value = Case> {
    let sizes = (1u16..=16).prop_map(ElementType::Opaque);
    (300usize..700, 1usize..12, sizes, 0..3).prop_flat_map(|(count, levels, element, direction)| {
        let array = move || made_in(Just(vec![0, 1]), element, vec![count, levels]);
        (array(), array(), in_runs(count), in_runs(count)).prop_map(move |(source, target, from, to)| {
            let pairs = from.into_iter().zip(to).enumerate();
            let cells = pairs.map(|(at, (from, to))| match direction {
                0 => (from, at),
                1 => (at, to),
                _ => (from, to),
            });
            listed(source, target, cells.collect())
        })
    })
}

/// The cells below a number in random order, with consecutive runs.
fn in_runs(count: usize) -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![Just(1usize), 2usize..9, 9usize..150];
    proptest::collection::vec(length, count)
        .prop_map(move |lengths| {
            let starts = lengths.into_iter().scan(0, |end, length| {
                let start = *end;
                *end += length;
                Some(start..*end)
            });
            let runs = starts.take_while(|run| run.start < count);
            runs.map(|run| (run.start..run.end.min(count)).collect::<Vec<_>>()).collect::<Vec<_>>()
        })
        .prop_flat_map(|runs| Just(runs).prop_shuffle())
        .prop_map(|runs| runs.concat())
}

proptest! {
    #[test]
    fn boxes_move_by_every_path_as_defined(case in boxes()) {
        case.check();
    }

    #[test]
    fn listed_cells_move_by_every_path_as_defined(case in runs()) {
        case.check();
    }

    #[test]
    fn many_listed_cells_of_level_major_arrays_move_by_every_path_as_defined(case in level_major()) {
        case.check();
    }
}

/// Messages many times larger than the stage of the streaming pack, in blocks of each kind; also levels and
/// cells longer than the stage.
#[test]
fn large_messages_stream_as_defined() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let shapes = [
        (6000, ElementType::F64, 65),
        (6000, ElementType::F64, 1),
        (6000, ElementType::Opaque(13), 3),
        (8, ElementType::F64, 2500),
    ];
    for (order, (count, element, levels)) in [[0, 1], [1, 0]].into_iter().flat_map(|o| shapes.map(|s| (o, s)))
    {
        let array = || made_in(Just(order.to_vec()), element, vec![count, levels]);
        let (source, target) = (array(), array()).new_tree(&mut runner).unwrap().current();
        listed(source, target, (0..count / 2).map(|i| ((i * 7919) % count, i + i / 3)).collect()).check();
    }
}

#[test]
fn no_cells_and_cells_without_levels_move_nothing() {
    let shape = DomainShape::Unstructured { owned: 4, cells: 4, levels: Vec::new() };
    let f64 = ElementType::F64;
    let no_levels =
        [Layout::c_order(f64, &[4, 0]), Layout::fortran_order(f64, &[4, 0])].map(|layout| (layout, 2));
    let no_cells = (Layout::fortran_order(f64, &[4, 3]), 0);
    for (layout, count) in no_levels.into_iter().chain([no_cells]) {
        let cells = CellLayout::new(&layout.unwrap(), &shape).unwrap();
        let of = |cells: [u32; 2]| Cells::from_indices(cells.into_iter().take(count));
        let ends = ((End::Field(0), &cells), (End::Message(0, 0), &cells));
        let pack = copy_op(&transfer(of([0, 2]), of([1, 3])), ends.0, ends.1);
        let (source, mut message) = ([0u8; 8], [Line([0; 64])]);
        // SAFETY: the operation has no bytes.
        unsafe { host::pack_streaming(&[pack], &[source.as_ptr()], message.as_mut_ptr().cast()) };
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
    // Whole planes are one block; whole rows of a plane, too.
    assert_eq!(blocks(&[8, 6, 4], &[4, 0, 0], &[2, 6, 4]), (1, 2 * 6 * 4 * 8, 0));
    assert_eq!(blocks(&[8, 6, 4], &[4, 3, 0], &[2, 2, 4]), (2, 2 * 4 * 8, 1));
    // Columns of single cells with equidistant rows are one loop.
    assert_eq!(blocks(&[8, 6, 4], &[0, 0, 3], &[8, 6, 1]), (48, 8, 1));
    // Levels within a cell lengthen its block.
    assert_eq!(blocks(&[8, 6, 10], &[0, 5], &[8, 1]), (8, 80, 1));
}

/// The faces at both sides of an axis, moved in one operation and in two, by every path.
#[test]
fn two_faces_in_one_operation_move_as_in_two() {
    let extents = [7usize, 6, 9];
    let element = ElementType::F64;
    let orders = [Layout::c_order(element, &extents), Layout::fortran_order(element, &extents)];
    let layouts = orders.map(|layout| {
        let layout = layout.unwrap();
        let owned = extents.to_vec();
        let shape = DomainShape::Regular { first: vec![0; 3], owned, halo: vec![(0, 0); 3] };
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
            // SAFETY: both arrays have the extents that the operations were made for, and do not overlap.
            unsafe { host::copy(&ops, &[source.as_ptr()], &[expected.as_mut_ptr()]) };
            for streaming in [None, Some(false), Some(true)] {
                let mut target = vec![0u8; *len];
                let mut lines = vec![Line([0; 64]); direct.bytes().div_ceil(64)];
                let wire = lines.as_mut_ptr().cast::<u8>();
                // SAFETY: both arrays have the extents that the operations were made for. The message has space for all
                // bytes, rounded up to its alignment. No two of the memories overlap.
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

/// Loops of few steps in or around a long one, within levels or alone, forwards and backwards, beside a copy block by block.
#[test]
fn narrow_edges_are_copied_as_block_by_block() {
    const BYTES: usize = 1 << 15;
    let source: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
    for (block, is_negated) in [(1, false), (4, false), (8, false), (8, true), (12, false), (24, false)] {
        for few in 2..=9 {
            for (sign, levels) in [(1, 1), (-1, 1), (1, 3), (-1, 3)] {
                // A block lies on a line of its own, or beside the next one of the few.
                let rows = Loop { count: 17, source: 256, target: 256 * sign };
                let (wide, dense) = (17 * 256, block as isize);
                let columns = Loop { count: few, source: dense, target: dense * sign };
                let turned = [
                    Loop { count: 17, source: 256, target: dense * sign },
                    Loop { count: few, source: dense, target: 448 },
                ];
                for mut loops in [
                    vec![rows, columns],
                    vec![columns, rows],
                    turned.to_vec(),
                    turned.iter().rev().copied().collect(),
                ] {
                    if levels > 1 {
                        loops.insert(0, Loop { count: levels, source: wide, target: wide });
                    }
                    let mut op = CopyOp::of_bytes(0, 0, block);
                    op.loops = loops;
                    (op.element, op.is_negated) = (ElementType::F64, is_negated);
                    // Room for steps backwards.
                    (op.source_offset, op.target_offset) = (0, 8192);
                    let (mut copied, mut expected) = (vec![0_u8; BYTES], vec![0_u8; BYTES]);
                    op.for_each_block(|from, to, bytes| {
                        let (from, to) = (from as usize, to as usize);
                        expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
                        expected[to + bytes - 1] ^= if is_negated { 0x80 } else { 0 };
                    });
                    // SAFETY: `for_each_block` has checked that all blocks lie within both arrays, which nothing else uses.
                    unsafe {
                        host::copy(std::slice::from_ref(&op), &[source.as_ptr()], &[copied.as_mut_ptr()])
                    };
                    assert!(copied == expected, "{op:?}");
                }
            }
        }
    }
}
