//! Random arrays, transfers of cells between them, and the expected result, element by element.

use halocline_plan::copy::{CellLayout, CopyOp, End, copy_op};
use halocline_plan::{AxisMap, BoxCells, Cells, DomainShape, ElementType, Layout, Transfer};
use proptest::prelude::*;
use proptest::sample::subsequence;

/// An array with its bytes: a dense layout of `extents` with permuted dimensions, some of them reversed,
/// and padding around it.
#[derive(Debug, Clone)]
pub struct Made {
    pub layout: Layout,
    pub bytes: Vec<u8>,
    /// Index of element (0, 0, …) in `bytes`.
    pub base: usize,
}

pub fn made(element: ElementType, extents: Vec<usize>) -> impl Strategy<Value = Made> {
    let order = Just((0..extents.len()).collect::<Vec<_>>()).prop_shuffle();
    made_in(order, element, extents)
}

/// The same with the dimensions in an order, finest first.
pub fn made_in(
    order: impl Strategy<Value = Vec<usize>>,
    element: ElementType,
    extents: Vec<usize>,
) -> impl Strategy<Value = Made> {
    let dims = extents.len();
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

/// Two arrays of one shape, and the cells copied from one to the other.
#[derive(Debug, Clone)]
pub struct Case {
    pub source: Made,
    pub target: Made,
    pub axes: usize,
    pub shape: DomainShape,
    pub transfer: Transfer,
    /// The index of each cell along the axes, at both ends.
    pub cells: Vec<(Vec<usize>, Vec<usize>)>,
}

fn element() -> impl Strategy<Value = ElementType> {
    prop_oneof![
        Just(ElementType::F64),
        Just(ElementType::F32),
        Just(ElementType::C128),
        (1u16..=16).prop_map(ElementType::Opaque)
    ]
}

pub fn boxes() -> impl Strategy<Value = Case> {
    let shape =
        (proptest::collection::vec(2usize..7, 1..4), proptest::collection::vec(1usize..5, 0..3), element());
    shape.prop_flat_map(|(grid, extra, element)| {
        let (axes, extents) = (grid.len(), [&grid[..], &extra].concat());
        // A box of half the array: at the high side of the source, at the low side of the target.
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

pub fn runs() -> impl Strategy<Value = Case> {
    let shape = (4usize..40, proptest::collection::vec(1usize..6, 0..3), element());
    shape.prop_flat_map(|(count, extra, element)| {
        let extents = [&[count][..], &extra].concat();
        let picks = (
            subsequence((0..count).collect::<Vec<_>>(), 1..count),
            Just((0..count).collect::<Vec<_>>()).prop_shuffle(),
        );
        (made(element, extents.clone()), made(element, extents), picks).prop_map(
            move |(source, target, (to, from))| listed(source, target, from.into_iter().zip(to).collect()),
        )
    })
}

/// A case of an unstructured domain: cell `.0` of the source goes to cell `.1` of the target.
pub fn listed(source: Made, target: Made, cells: Vec<(usize, usize)>) -> Case {
    let indices =
        |end: fn(&(usize, usize)) -> usize| Cells::from_indices(cells.iter().map(|c| end(c) as u32));
    let count = source.layout.extents()[0];
    let shape = DomainShape::Unstructured { owned: count, cells: count, levels: Vec::new() };
    let transfer = transfer(indices(|c| c.0), indices(|c| c.1));
    let cells = cells.into_iter().map(|(from, to)| (vec![from], vec![to])).collect();
    Case { source, target, axes: 1, shape, transfer, cells }
}

pub fn transfer(source: Cells, target: Cells) -> Transfer {
    Transfer { from: 0, to: 1, source, target, map: AxisMap::IDENTITY, is_negated: false }
}

impl Case {
    pub fn layouts(&self) -> (CellLayout, CellLayout) {
        let of = |made: &Made| CellLayout::new(&made.layout, &self.shape).unwrap();
        (of(&self.source), of(&self.target))
    }

    pub fn op(&self, source: End, target: End) -> CopyOp {
        let (sender, receiver) = self.layouts();
        copy_op(&self.transfer, (source, &sender), (target, &receiver))
    }

    /// The expected bytes of the target.
    pub fn expected(&self) -> Made {
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
}
