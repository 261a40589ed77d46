//! Copy operations of one shape each.

use halocline_plan::ElementType;
use halocline_plan::copy::{AxisLayout, CellLayout, CopyOp, End, copy_op};
use halocline_plan::{AxisMap, BoxCells, Cells, Transfer};

fn transfer(source: Cells, target: Cells) -> Transfer {
    Transfer { from: 0, to: 0, source, target, map: AxisMap::IDENTITY, is_negated: false }
}

fn layout(element: ElementType, axes: &[(isize, usize)]) -> CellLayout {
    let axis = |&(stride, extent)| AxisLayout { stride, origin: 0, extent };
    CellLayout { element, units: 1, name: None, axes: axes.iter().map(axis).collect(), extra: Vec::new() }
}

/// A run of bytes as a copy operation.
pub fn line(source: usize, target: usize, bytes: usize) -> CopyOp {
    let cells = || Cells::Box(BoxCells { low: vec![0], extent: vec![bytes] });
    let layout = layout(ElementType::U8, &[(1, bytes)]);
    copy_op(&transfer(cells(), cells()), (End::Field(source), &layout), (End::Field(target), &layout))
}

/// `count` blocks of a number of bytes, with strides in source and target.
pub fn blocks(count: usize, block: usize, source: isize, target: isize) -> CopyOp {
    let cells = || Cells::Box(BoxCells { low: vec![0, 0], extent: vec![count, block] });
    let layout = |stride| layout(ElementType::U8, &[(stride, count), (1, block)]);
    copy_op(&transfer(cells(), cells()), (End::Field(0), &layout(source)), (End::Field(0), &layout(target)))
}

/// Permuted 64-bit words.
pub fn scatter(order: &[u32]) -> CopyOp {
    let layout = layout(ElementType::U64, &[(8, order.len())]);
    let straight = Cells::from_indices(0..order.len() as u32);
    let permuted = Cells::from_indices(order.iter().copied());
    copy_op(&transfer(straight, permuted), (End::Field(0), &layout), (End::Field(0), &layout))
}
