//! Owned elements compared with a check of every element.

use halocline_plan::{BoxCells, Cells, DomainShape, ElementType, Layout, OwnedElements};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

/// An array of f32: extents of the axes and of extra dimensions, and how each dimension lies in memory.
#[derive(Debug, Clone)]
struct Array {
    places: Vec<u8>,
    /// Elements.
    pads: Vec<isize>,
    down: Vec<bool>,
}

fn array() -> impl Strategy<Value = Array> {
    // Often without padding, so that rows merge.
    let pads = prop_oneof![Just(vec![0; 6]), vec(0..3isize, 6)];
    (vec(any::<u8>(), 6), pads, vec(any::<bool>(), 6)).prop_map(|(places, pads, down)| Array {
        places,
        pads,
        down,
    })
}

impl Array {
    fn layout(&self, extents: &[usize]) -> Layout {
        let mut finest_first: Vec<usize> = (0..extents.len()).collect();
        finest_first.sort_by_key(|&dim| (self.places[dim], dim));
        let mut strides = vec![0isize; extents.len()];
        let mut stride = 1;
        for dim in finest_first {
            stride += self.pads[dim];
            strides[dim] = 4 * if self.down[dim] { -stride } else { stride };
            stride *= extents[dim].max(1) as isize;
        }
        Layout::strided(ElementType::F32, extents, &strides).unwrap()
    }
}

/// Positions of the elements whose index is owned.
fn positions(layout: &Layout, is_owned: impl Fn(&[usize]) -> bool) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for flat in 0..layout.len() {
        let (mut rest, mut index) = (flat, Vec::new());
        for &extent in layout.extents() {
            index.push(rest % extent);
            rest /= extent;
        }
        if is_owned(&index) {
            let offset: isize = index.iter().zip(layout.strides()).map(|(&i, s)| i as isize * s).sum();
            found.insert((offset - layout.span().start) as usize / 4);
        }
    }
    found
}

fn compare(layout: &Layout, owned: &OwnedElements, expected: &BTreeSet<usize>) {
    for position in 0..layout.span().len() / 4 + 2 {
        let count = owned.count_from(position);
        assert_eq!(count > 0, expected.contains(&position), "position {position}");
        assert!((position..position + count).all(|at| expected.contains(&at)), "{count} from {position}");
    }
    assert_eq!(owned.count_from(usize::MAX), 0);
    let rows: Vec<usize> = owned.rows().flatten().collect();
    assert!(rows.iter().eq(expected), "rows {rows:?} instead of {expected:?}");
}

proptest! {
    #[test]
    fn owned_elements_of_regular_domains_are_those_within(
        array in array(),
        axes in vec((0..3usize, 0..5usize, 0..3usize, 0..3usize), 1..4),
        extra in vec(1..4usize, 0..3),
    ) {
        let extents: Vec<usize> = axes.iter().map(|(before, owned, halo, after)| before + owned + halo + after).collect();
        let extents = [&extents[..], &extra].concat();
        let origin: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
        let layout = array.layout(&extents).with_origin(&origin);
        let owned: Vec<usize> = axes.iter().map(|axis| axis.1).collect();
        let shape = DomainShape::Regular {
            first: vec![0; axes.len()],
            owned: owned.clone(),
            halo: axes.iter().map(|axis| (0, axis.2)).collect(),
        };
        let within = |index: &[usize]| {
            index.iter().zip(&axes).all(|(&i, &(low, owned, ..))| (low..low + owned).contains(&i))
        };
        // The halo at the high side of the first axis.
        let mut extent = owned.clone();
        extent[0] = axes[0].2;
        let low = (0..axes.len()).map(|axis| if axis == 0 { owned[0] as i64 } else { 0 }).collect();
        let halo = Cells::Box(BoxCells { low, extent });
        let elements = OwnedElements::new(&layout, &shape, std::iter::once(&halo)).unwrap();
        compare(&layout, &elements, &positions(&layout, within));
        let dims = axes.iter().map(|&(low, owned, ..)| low..low + owned).chain(extra.iter().map(|&extent| 0..extent));
        let dims: Vec<Range<usize>> = dims.collect();
        assert!(elements.contains(&dims) && !elements.contains(&dims[1..]), "{dims:?}");
        for axis in 0..axes.len() {
            let mut larger = dims.clone();
            larger[axis].end += 1;
            assert_eq!(elements.contains(&larger), larger.iter().any(Range::is_empty), "{larger:?}");
        }
        // A domain whose owned cells are filled has no untouched elements.
        let all = Cells::Box(BoxCells { low: vec![0; axes.len()], extent: owned });
        let elements = OwnedElements::new(&layout, &shape, std::iter::once(&all)).unwrap();
        assert!(elements.rows().next().is_none());
        assert_eq!(elements.contains(&dims), dims.iter().any(Range::is_empty), "{dims:?}");
    }

    #[test]
    fn owned_elements_of_listed_cells_are_those_that_are_not_filled(
        array in array(),
        owned_first in any::<bool>(),
        is_halo in vec(any::<bool>(), 1..20),
        extra in vec(1..4usize, 0..3),
    ) {
        let cells = is_halo.len();
        let owned = is_halo.iter().filter(|halo| !**halo).count();
        let is_halo: Vec<bool> = match owned_first {
            true => (0..cells).map(|cell| cell >= owned).collect(),
            false => is_halo,
        };
        let layout = array.layout(&[&[cells][..], &extra].concat());
        let shape = DomainShape::Unstructured { owned, cells, levels: Vec::new() };
        // Filled by two transfers, in any order.
        let halo = |even: usize| {
            Cells::from_indices((0..cells as u32).rev().filter(|&c| is_halo[c as usize] && c as usize % 2 == even))
        };
        let filled = [halo(0), halo(1)];
        let elements = OwnedElements::new(&layout, &shape, filled.iter()).unwrap();
        compare(&layout, &elements, &positions(&layout, |index| !is_halo[index[0]]));
    }
}

#[test]
fn cells_of_owned_first_domains_are_owned_although_a_narrowed_halo_is_not_filled() {
    let layout = Layout::c_order(ElementType::F32, &[10, 3]).unwrap();
    let shape = DomainShape::Unstructured { owned: 6, cells: 10, levels: vec![6, 8, 10] };
    let narrowed = Cells::from_indices(6..8);
    let elements = OwnedElements::new(&layout, &shape, std::iter::once(&narrowed)).unwrap();
    assert!(elements.rows().eq(std::iter::once(0..18)));
}
