//! The order of bytes as a number: a sender that packs with its own layout, and a receiver that unpacks
//! with that number only, agree about every byte.

use halocline_plan::copy::{AxisLayout, CellLayout, CopyOp, End, copy_op, copy_op_of_two};
use halocline_plan::{AxisMap, BoxCells, Cells, ElementType, Order, Transfer};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One array: for each dimension its rank from the finest, padding, and whether it runs downwards.
#[derive(Debug, Clone)]
struct Array {
    places: Vec<u8>,
    pads: Vec<u8>,
    down: Vec<bool>,
}

fn array() -> impl Strategy<Value = Array> {
    (vec(any::<u8>(), 6), vec(0..4u8, 6), vec(any::<bool>(), 6)).prop_map(|(places, pads, down)| Array {
        places,
        pads,
        down,
    })
}

impl Array {
    fn layout(&self, element: ElementType, axes: &[usize], extra: &[usize]) -> CellLayout {
        let extents: Vec<usize> = axes.iter().chain(extra).copied().collect();
        let mut finest_first: Vec<usize> = (0..extents.len()).collect();
        finest_first.sort_by_key(|&dim| (self.places[dim], dim));
        let mut strides = vec![0isize; extents.len()];
        let mut stride = element.size() as isize;
        for dim in finest_first {
            stride += isize::from(self.pads[dim]);
            strides[dim] = if self.down[dim] { -stride } else { stride };
            stride *= extents[dim] as isize;
        }
        let axis = |(&extent, &stride)| AxisLayout { stride, origin: 1, extent };
        CellLayout {
            element,
            units: 1,
            name: None,
            axes: axes.iter().zip(&strides).map(axis).collect(),
            extra: extra.iter().copied().zip(strides[axes.len()..].iter().copied()).collect(),
        }
    }
}

/// The target of each source byte.
fn moves(op: &CopyOp) -> BTreeMap<isize, isize> {
    let mut moves = BTreeMap::new();
    op.for_each_block(|source, target, len| {
        moves.extend((0..len as isize).map(|byte| (source + byte, target + byte)));
    });
    moves
}

/// Packs with one layout, unpacks with the encoded order and another layout, and compares with a direct
/// copy.
fn check(transfer: &Transfer, element: ElementType, (sender, receiver): (&CellLayout, &CellLayout)) {
    let extra: Vec<usize> = sender.extra.iter().map(|(extent, _)| *extent).collect();
    let cells = match &transfer.source {
        Cells::Box(cells) => cells.extent.clone(),
        Cells::Runs(_) => vec![1],
    };
    let order = Order::of(sender).expect("few dimensions");
    let stand_in = Order::from_code(order.code()).layout(element, &cells, &extra).expect("an order of these");
    let message = End::Message(0, 0);
    let packed = moves(&copy_op(transfer, (End::Field(0), sender), (message, &stand_in)));
    let unpacked = moves(&copy_op(transfer, (message, &stand_in), (End::Field(0), receiver)));
    let direct = moves(&copy_op(transfer, (End::Field(0), sender), (End::Field(0), receiver)));
    assert_eq!(packed.len(), direct.len());
    // The layouts that stand in for the other side's give the same result.
    let both = moves(&copy_op(transfer, (End::Field(0), sender), (message, receiver)));
    assert_eq!(packed, both);
    for (from, to) in &direct {
        assert_eq!(unpacked.get(&packed[from]), Some(to), "byte {from} of {sender:?} to {receiver:?}");
    }
}

fn transfer(source: Cells, target: Cells) -> Transfer {
    Transfer { from: 0, to: 1, source, target, map: AxisMap::IDENTITY, is_negated: false }
}

fn cells(low: &[i64], extent: &[usize]) -> Cells {
    Cells::Box(BoxCells { low: low.to_vec(), extent: extent.to_vec() })
}

proptest! {
    #[test]
    fn boxes(
        axes in vec((1..4usize, 0..3usize, 0..3i64), 1..4),
        extra in vec(2..4usize, 0..3),
        arrays in (array(), array()),
        size in 1..9u16,
    ) {
        let element = ElementType::Opaque(size);
        let extents: Vec<usize> = axes.iter().map(|(count, spare, low)| count + spare + *low as usize + 1).collect();
        let count: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
        let low: Vec<i64> = axes.iter().map(|axis| axis.2).collect();
        let (sender, receiver) =
            (arrays.0.layout(element, &extents, &extra), arrays.1.layout(element, &extents, &extra));
        let other: Vec<i64> = low.iter().map(|low| low - 1).collect();
        check(&transfer(cells(&low, &count), cells(&other, &count)), element, (&sender, &receiver));
    }

    #[test]
    fn lists(
        source in vec(0..30u32, 1..12),
        arrays in (array(), array()),
        extra in vec(2..4usize, 0..4),
        size in 1..9u16,
    ) {
        let element = ElementType::Opaque(size);
        let (mut source, mut target) = (source.clone(), source);
        target.iter_mut().for_each(|cell| *cell = 29 - *cell);
        source.dedup();
        target.dedup();
        let once: std::collections::BTreeSet<u32> = target.iter().copied().collect();
        prop_assume!(once.len() == target.len());
        let (sender, receiver) =
            (arrays.0.layout(element, &[30], &extra), arrays.1.layout(element, &[30], &extra));
        let lists = transfer(Cells::from_indices(source), Cells::from_indices(target));
        check(&lists, element, (&sender, &receiver));
    }

    /// Any number is refused or gives a layout of that order.
    #[test]
    fn any_number(code in any::<u64>(), axes in vec(1..5usize, 1..4), extra in vec(1..5usize, 0..4)) {
        if let Some(layout) = Order::from_code(code).layout(ElementType::F64, &axes, &extra) {
            let again = Order::of(&layout).and_then(|order| order.layout(ElementType::F64, &axes, &extra));
            prop_assert_eq!(again, Some(layout));
        }
    }
}

#[test]
fn faces_that_travel_in_turn_do_so_whatever_the_layouts() {
    // Both sides decide by the layout that stands in for the sender's.
    let element = ElementType::F64;
    let (sender, receiver) = (
        CellLayout {
            element,
            units: 1,
            name: None,
            axes: vec![
                AxisLayout { stride: 80, origin: 1, extent: 10 },
                AxisLayout { stride: 8, origin: 1, extent: 10 },
            ],
            extra: vec![],
        },
        CellLayout {
            element,
            units: 1,
            name: None,
            axes: vec![
                AxisLayout { stride: 8, origin: 1, extent: 10 },
                AxisLayout { stride: 1000, origin: 1, extent: 10 },
            ],
            extra: vec![],
        },
    );
    let faces =
        [(0, 8), (7, -1)].map(|(from, to)| transfer(cells(&[0, from], &[8, 1]), cells(&[0, to], &[8, 1])));
    let stand_in =
        Order::of(&sender).and_then(|order| order.layout(element, &[8, 1], &[])).expect("an order");
    let of_two = |source, target| copy_op_of_two((&faces[0], &faces[1]), source, target);
    let message = End::Message(0, 0);
    let agreed = of_two((End::Field(0), &stand_in), (End::Field(0), &stand_in)).expect("a pair");
    assert_eq!(agreed.block, 8);
    let packed = moves(&of_two((End::Field(0), &sender), (message, &stand_in)).expect("a pair"));
    let unpacked = moves(&of_two((message, &stand_in), (End::Field(0), &receiver)).expect("a pair"));
    for face in &faces {
        for (from, to) in moves(&copy_op(face, (End::Field(0), &sender), (End::Field(0), &receiver))) {
            assert_eq!(unpacked.get(&packed[&from]), Some(&to));
        }
    }
}

#[test]
fn as_many_dimensions_as_fit() {
    let layout = |dims: usize| CellLayout {
        element: ElementType::U8,
        units: 1,
        name: None,
        axes: vec![AxisLayout { stride: 1 << dims, origin: 0, extent: 2 }],
        extra: (0..dims - 1).map(|dim| (2, 1 << dim)).collect(),
    };
    assert!(Order::of(&layout(Order::MOST)).is_some());
    assert_eq!(Order::of(&layout(Order::MOST + 1)), None);
}
