//! What a program computes with: the boxes of a domain, and global coordinates of local indices.

use crate::copy::CellLayout;
use crate::owned::unfilled;
use crate::{DomainShape, Layout, LayoutError, PatternPlan};
use std::ops::Range;

/// A box of local indices: a range for each axis, in an array of [`DomainShape::extents`].
///
/// ```
/// use halocline_plan::LocalBox;
///
/// let cells: LocalBox = vec![1..9, 1..7];
/// assert_eq!(cells.iter().map(|range| range.len()).product::<usize>(), 48);
/// ```
pub type LocalBox = Vec<Range<usize>>;

impl DomainShape {
    /// All cells, owned and halo.
    pub fn all_cells(&self) -> LocalBox {
        self.extents().into_iter().map(|extent| 0..extent).collect()
    }

    /// The owned cells. Those of an unstructured domain come first in its local order, unless it lists its halo cells
    /// by index.
    pub fn owned_cells(&self) -> LocalBox {
        match self {
            Self::Regular { owned, halo, .. } => {
                owned.iter().zip(halo).map(|(owned, (low, _))| *low..low + owned).collect()
            }
            Self::Unstructured { owned, .. } => std::iter::once(0..*owned).collect(),
        }
    }

    /// The owned cells whose stencil of `width` cells to each side reads no halo cell. An axis without a halo at one
    /// side does not limit them there. Borders that are not periodic count as halo: their cells are the program's to fill.
    /// Empty ranges if there are none.
    ///
    /// At a side without a halo, as in a pattern with `Halo::per_axis([(1, 0)])`, the outermost owned cells are included, although
    /// their stencil would read outside the array. If it reads in that direction, shorten the range by `width` cells, and compute
    /// those cells with the boundary condition of the program.
    ///
    /// An unstructured domain has no axes to measure a width along: all owned cells if `width` is 0, else none.
    ///
    /// Cells that several patches of a [`PatchGrid`](crate::PatchGrid) hold are filled by an exchange, too:
    /// [`PatternPlan::interior`](crate::PatternPlan::interior) leaves these out.
    pub fn interior(&self, width: usize) -> LocalBox {
        self.interior_of(None, width)
    }

    /// The interior, where an exchange leaves only these owned cells as they are.
    fn interior_of(&self, unfilled: Option<&[Range<usize>]>, width: usize) -> LocalBox {
        match self {
            Self::Regular { owned, halo, .. } => {
                let margin = |reads_filled: bool| if reads_filled { width } else { 0 };
                let axes = owned.iter().zip(halo).enumerate().map(|(axis, (&owned, &(low, high)))| {
                    let kept = unfilled.map_or(0..owned, |unfilled| unfilled[axis].clone());
                    let start = kept.start + margin(low > 0 || kept.start > 0).min(kept.len());
                    let end = kept.end.saturating_sub(margin(high > 0 || kept.end < owned)).max(start);
                    low + start..low + end
                });
                axes.collect()
            }
            Self::Unstructured { owned, .. } => {
                std::iter::once(0..if width == 0 { *owned } else { 0 }).collect()
            }
        }
    }

    /// The owned cells that are not of [`DomainShape::interior`], in disjoint boxes: at most two for each axis.
    pub fn boundary(&self, width: usize) -> Vec<LocalBox> {
        shell(&self.owned_cells(), &self.interior(width))
    }

    /// The halo cells in disjoint boxes: at most two for each axis.
    pub fn halo_cells(&self) -> Vec<LocalBox> {
        shell(&self.all_cells(), &self.owned_cells())
    }

    /// The global coordinates of a local index of a regular domain. Halo cells beyond a periodic border keep counting: their
    /// coordinates are negative, or not below the grid's extents. `None`: the index is outside, or the domain has no axes.
    pub fn global(&self, local: &[usize]) -> Option<Vec<i64>> {
        let Self::Regular { first, halo, .. } = self else { return None };
        if local.len() != first.len() || local.iter().zip(self.extents()).any(|(&at, extent)| at >= extent) {
            return None;
        }
        let axes = local.iter().zip(first).zip(halo);
        Some(axes.map(|((&local, &first), &(low, _))| first + local as i64 - low as i64).collect())
    }

    /// The local index of global coordinates, those of halo cells included, as [`DomainShape::global`] counts them.
    /// `None`: the domain does not hold this cell, or has no axes.
    pub fn local(&self, global: &[i64]) -> Option<Vec<usize>> {
        let Self::Regular { first, halo, .. } = self else { return None };
        if global.len() != first.len() {
            return None;
        }
        let axes = global.iter().zip(first).zip(halo).zip(self.extents());
        let local = axes.map(|(((&global, &first), &(low, _)), extent)| {
            let at = global.checked_sub(first)?.checked_add(i64::try_from(low).ok()?)?;
            usize::try_from(at).ok().filter(|&at| at < extent)
        });
        local.collect()
    }
}

impl PatternPlan {
    /// The owned cells of domain `id` whose stencil of `width` cells to each side reads no cell that an exchange fills: as
    /// [`DomainShape::interior`], without copies of cells that other domains own. `None` if this rank does not own the domain.
    pub fn interior(&self, id: u64, width: usize) -> Option<LocalBox> {
        let shape = self.domain(id)?;
        let DomainShape::Regular { owned, .. } = shape else { return Some(shape.interior(width)) };
        let received = self.peers.iter().flat_map(|peer| &peer.receives).chain(&self.local);
        let filled = received.filter(|transfer| transfer.to == id).map(|transfer| &transfer.target);
        Some(shape.interior_of(Some(&unfilled(owned, filled)), width))
    }

    /// The owned cells of domain `id` that are not of [`PatternPlan::interior`], in disjoint boxes: at most two for each axis.
    pub fn boundary(&self, id: u64, width: usize) -> Option<Vec<LocalBox>> {
        Some(shell(&self.domain(id)?.owned_cells(), &self.interior(id, width)?))
    }
}

/// `outer` without `inner`, which lies in it, in disjoint boxes.
fn shell(outer: &[Range<usize>], inner: &[Range<usize>]) -> Vec<LocalBox> {
    let is_empty = |cells: &[Range<usize>]| cells.iter().any(Range::is_empty);
    if is_empty(inner) {
        return if is_empty(outer) { Vec::new() } else { vec![outer.to_vec()] };
    }
    let slabs = (0..outer.len()).flat_map(|axis| {
        [outer[axis].start..inner[axis].start, inner[axis].end..outer[axis].end].map(|slab| {
            let below = inner[..axis].iter().cloned();
            below.chain([slab]).chain(outer[axis + 1..].iter().cloned()).collect::<LocalBox>()
        })
    });
    slabs.filter(|slab| !is_empty(slab)).collect()
}

impl Layout {
    /// The indices that a box of the domain's cells has in an array of this layout: a range for each dimension, extra
    /// dimensions whole. Fails if the box has not one range for each axis of the domain, or leaves [`Layout::cells_held`].
    /// Empty ranges may be anywhere.
    pub fn indices_of(&self, shape: &DomainShape, cells: &[Range<usize>]) -> Result<LocalBox, LayoutError> {
        let (layout, held) = (CellLayout::new(self, shape)?, self.cells_held(shape)?);
        if cells.len() != held.len() {
            return Err(LayoutError::BoxRanges { ranges: cells.len(), axes: held.len() });
        }
        let mut indices: LocalBox = self.extents().iter().map(|&extent| 0..extent).collect();
        for (axis, dim) in self.axes(shape.axes())?.into_iter().enumerate() {
            let (range, held, of_array) = (&cells[axis], &held[axis], &layout.axes[axis]);
            let is_within = held.start <= range.start && range.end <= held.end;
            if range.start > range.end || !range.is_empty() && !is_within {
                return Err(LayoutError::OutsideArray { axis, range: range.clone(), held: held.clone() });
            }
            let at = |local: usize| {
                let index = i128::from(of_array.origin) + local as i128 - low(shape, axis) as i128;
                index.clamp(0, of_array.extent as i128) as usize
            };
            indices[dim] = at(range.start)..at(range.end);
        }
        Ok(indices)
    }

    /// The cells of the domain for which an array of this layout has an element: all owned ones, and the halo cells unless the
    /// array is padded and its origin leaves no space for them.
    pub fn cells_held(&self, shape: &DomainShape) -> Result<LocalBox, LayoutError> {
        let layout = CellLayout::new(self, shape)?;
        let held = layout.axes.iter().zip(shape.extents()).enumerate().map(|(axis, (of_array, cells))| {
            // The local index of the array's first cell, and that behind its last.
            let first = low(shape, axis) as i128 - i128::from(of_array.origin);
            let end = first + of_array.extent as i128;
            let start = first.clamp(0, cells as i128) as usize;
            start..(end.clamp(0, cells as i128) as usize).max(start)
        });
        Ok(held.collect())
    }
}

/// The local index along an axis of the cell that the origin of an array stands for.
fn low(shape: &DomainShape, axis: usize) -> usize {
    match shape {
        DomainShape::Regular { halo, .. } => halo[axis].0,
        DomainShape::Unstructured { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ElementType, Halo, RegularGrid};
    use proptest::prelude::*;

    fn shape(owned: &[usize], halo: &[(usize, usize)]) -> DomainShape {
        let first = owned.iter().map(|&owned| 10 * owned as i64).collect();
        DomainShape::Regular { first, owned: owned.to_vec(), halo: halo.to_vec() }
    }

    fn holds(cells: &[Range<usize>], cell: &[usize]) -> bool {
        cells.iter().zip(cell).all(|(range, at)| range.contains(at))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_cell_is_interior_or_in_one_boundary_box_or_in_one_halo_box(
            axes in prop::collection::vec((1..7_usize, (0..3_usize, 0..3_usize)), 1..4),
            width in 0..4_usize,
        ) {
            let (owned, halo): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
            let shape = shape(&owned, &halo);
            let extents = shape.extents();
            for number in 0..extents.iter().product() {
                let mut rest: usize = number;
                let cell: Vec<usize> = extents.iter().map(|n| { let at = rest % n; rest /= n; at }).collect();
                let is_owned = holds(&shape.owned_cells(), &cell);
                // One of the cells that the stencil reads is there, and not owned.
                let reads_halo = cell.iter().enumerate().any(|(axis, &at)| {
                    let owned = shape.owned_cells()[axis].clone();
                    let reads = at.saturating_sub(width)..(at + width + 1).min(extents[axis]);
                    reads.into_iter().any(|read| !owned.contains(&read))
                });
                prop_assert_eq!(holds(&shape.interior(width), &cell), is_owned && !reads_halo);
                let of = |boxes: &[LocalBox]| boxes.iter().filter(|cells| holds(cells, &cell)).count();
                prop_assert_eq!(of(&shape.boundary(width)), usize::from(is_owned && reads_halo));
                prop_assert_eq!(of(&shape.halo_cells()), usize::from(!is_owned));
                let global = shape.global(&cell).unwrap();
                prop_assert_eq!(shape.local(&global), Some(cell));
            }
        }
    }

    #[test]
    fn indices_outside_the_domain_have_no_coordinates() {
        let shape = shape(&[4, 3], &[(1, 1), (0, 2)]);
        assert_eq!(shape.global(&[0, 4]), Some(vec![39, 34]));
        assert_eq!((shape.global(&[6, 0]), shape.global(&[0])), (None, None));
        assert_eq!((shape.local(&[38, 30]), shape.local(&[45, 30])), (None, None));
        assert_eq!(shape.local(&[i64::MIN, i64::MAX]), None);
    }

    #[test]
    fn a_box_has_the_indices_that_the_layout_gives_it() -> Result<(), Box<dyn std::error::Error>> {
        let grid = RegularGrid::new((4, 6)).decompose(1)?;
        let (_, shape) = &grid.pattern_of(0, &Halo::uniform(1))?.domains[0];
        let usual = Layout::c_order(ElementType::F64, &[6, 8, 3])?;
        assert_eq!(usual.indices_of(shape, &shape.owned_cells())?, [1..5, 1..7, 0..3]);
        let padded = Layout::c_order(ElementType::F64, &[3, 10, 9])?.with_axes(&[2, 1])?.with_origin(&[2, 3]);
        assert_eq!(padded.indices_of(shape, &shape.owned_cells())?, [0..3, 3..9, 2..6]);
        assert_eq!(padded.indices_of(shape, &shape.all_cells())?, [0..3, 2..10, 1..7]);
        Ok(())
    }

    #[test]
    fn a_box_that_is_not_of_the_domain_or_leaves_the_array_has_no_indices()
    -> Result<(), Box<dyn std::error::Error>> {
        let shape = shape(&[4, 6], &[(1, 1), (2, 0)]);
        let usual = Layout::c_order(ElementType::F64, &[6, 8, 3])?;
        for ranges in [0, 1, 3] {
            let wanted = LayoutError::BoxRanges { ranges, axes: 2 };
            assert_eq!(usual.indices_of(&shape, &[1..5, 2..8, 0..3][..ranges]), Err(wanted));
        }
        for (cells, axis) in [([0..6, 0..9], 1), ([5..7, 0..8], 0), ([6..9, 0..8], 0)] {
            let (range, held) = (cells[axis].clone(), [0..6, 0..8][axis].clone());
            let wanted = LayoutError::OutsideArray { axis, range, held };
            assert_eq!(usual.indices_of(&shape, &cells), Err(wanted));
        }
        let backward = Range { start: 4, end: 2 };
        assert!(matches!(
            usual.indices_of(&shape, &[backward, 0..8]),
            Err(LayoutError::OutsideArray { axis: 0, .. })
        ));
        assert_eq!(usual.indices_of(&shape, &[0..6, 0..8])?, [0..6, 0..8, 0..3]);
        assert_eq!(usual.indices_of(&shape, &[9..9, 0..8])?[0].len(), 0);
        // The origin leaves no space for the halo at the low sides, and the array has spare cells at the high sides.
        let tight = Layout::c_order(ElementType::F64, &[9, 9])?.with_origin(&[0, 1]);
        assert_eq!(tight.cells_held(&shape)?, [1..6, 1..8]);
        assert_eq!(tight.indices_of(&shape, &[1..6, 1..8])?, [0..5, 0..7]);
        let error = tight.indices_of(&shape, &[0..6, 1..8]).expect_err("no cell 0");
        assert_eq!(
            error.to_string(),
            "the box takes cells 0..6 along axis 0, where the array holds 1..6; give a box of these"
        );
        let error = tight.indices_of(&shape, &[]).expect_err("no range");
        assert_eq!(
            error.to_string(),
            "the box has 0 ranges, the domain 2 axes; give one range for each axis"
        );
        Ok(())
    }
}
