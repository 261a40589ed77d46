//! Layouts as seen by one domain of a pattern.

use crate::{CellContent, Cells, DomainShape, ElementType, Layout, LayoutError, NamedElement, TooSmall};
use std::sync::Arc;

/// A layout as one domain of a pattern sees it: the strides of the pattern's axes, and the extra
/// dimensions that every cell carries. Peers exchange this description of their fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellLayout {
    /// Element type. One of more than 16 bytes becomes a last extra dimension of smaller elements, its units.
    pub element: ElementType,
    /// Units of an element; 1 if it was not divided.
    pub units: usize,
    /// Meaning of the elements, if given ([`Layout::named`]).
    pub name: Option<Arc<str>>,
    /// The pattern's axes.
    pub axes: Vec<AxisLayout>,
    /// Extent and byte stride of each extra dimension, in the order of the array, without those of
    /// extent 1.
    pub extra: Vec<(usize, isize)>,
}

/// One axis of a [`CellLayout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AxisLayout {
    /// Bytes from one cell to the next.
    pub stride: isize,
    /// Array index of the cell with coordinate 0.
    pub origin: i64,
    /// Cells of the array along the axis.
    pub extent: usize,
}

impl CellLayout {
    /// The layout as the domain `shape` sees it. Checks that the array has the domain's extents or,
    /// with an explicit origin or padding, that it holds every owned cell.
    pub fn new(layout: &Layout, shape: &DomainShape) -> Result<Self, LayoutError> {
        layout.check_extents(&shape.extents())?;
        let dims = layout.axes(shape.axes())?;
        let (origins, owned): (Vec<i64>, Vec<usize>) = match shape {
            DomainShape::Regular { owned, halo, .. } => {
                let origins = match layout.origin() {
                    Some(given) if given.len() == owned.len() => {
                        given.iter().map(|&o| i64::try_from(o).unwrap_or(i64::MAX)).collect()
                    }
                    Some(given) => {
                        return Err(LayoutError::AxisCount { pattern: owned.len(), layout: given.len() });
                    }
                    None => halo.iter().map(|&(low, _)| low as i64).collect(),
                };
                (origins, owned.clone())
            }
            DomainShape::Unstructured { cells, .. } => match layout.origin() {
                None | Some([0]) => (vec![0], vec![*cells]),
                Some(origin) => return Err(LayoutError::Origin { origin: origin.to_vec() }),
            },
        };
        let axes = dims.iter().zip(&origins).map(|(&dim, &origin)| AxisLayout {
            stride: layout.strides()[dim],
            origin,
            extent: layout.extents()[dim],
        });
        let extra = layout.extra(&dims).into_iter().map(|dim| (layout.extents()[dim], layout.strides()[dim]));
        let (element, units) = layout.element().units();
        let unit = (units, element.size() as isize);
        let this = Self {
            element,
            units,
            name: layout.named_element().name,
            axes: axes.collect(),
            extra: extra.chain([unit]).filter(|(extent, _)| *extent != 1).collect(),
        };
        for (axis, &count) in owned.iter().enumerate() {
            this.check_axis(axis, (&dims, shape), 0, count)?;
        }
        if this.is_sane() { Ok(this) } else { Err(LayoutError::TooLarge) }
    }

    /// Checks that the array holds the given cells. `layout` and `shape` are those passed to
    /// [`CellLayout::new`].
    pub fn check(&self, layout: &Layout, shape: &DomainShape, cells: &Cells) -> Result<(), LayoutError> {
        let dims = layout.axes(self.axes.len())?;
        match cells {
            Cells::Box(cells) => {
                for (axis, (&low, &count)) in cells.low.iter().zip(&cells.extent).enumerate() {
                    self.check_axis(axis, (&dims, shape), low, count)?;
                }
            }
            Cells::Runs(runs) => {
                let last = runs.iter().map(|run| run.start as usize + run.len as usize).max();
                self.check_axis(0, (&dims, shape), 0, last.unwrap_or(0))?;
            }
        }
        Ok(())
    }

    fn check_axis(
        &self,
        axis: usize,
        (dims, shape): (&[usize], &DomainShape),
        low: i64,
        count: usize,
    ) -> Result<(), LayoutError> {
        let AxisLayout { origin, extent, .. } = self.axes[axis];
        // Origins come from users, so this uses wide integers to avoid overflow.
        let first = i128::from(origin) + i128::from(low);
        let last = first + count as i128 - 1;
        if count == 0 || (first >= 0 && last < extent as i128) {
            return Ok(());
        }
        let clamp = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let (first, last) = (clamp(first), clamp(last));
        let extents = self.axes.iter().map(|axis| axis.extent).collect();
        let origin: Vec<i64> = self.axes.iter().map(|axis| axis.origin).collect();
        // The origin given or, if it leaves no space for the halo, the halo width.
        let low = |axis: usize| match shape {
            DomainShape::Regular { halo, .. } => halo[axis].0,
            DomainShape::Unstructured { .. } => 0,
        };
        let needed_origin: Vec<i64> =
            (0..).zip(&origin).map(|(axis, &at)| at.max(low(axis) as i64)).collect();
        let behind =
            |(axis, &at): (usize, &i64)| at.saturating_add((shape.extents()[axis] - low(axis)) as i64);
        let needed = needed_origin.iter().enumerate().map(behind).collect();
        let dims = dims.to_vec();
        let small = TooSmall { dims, extents, origin, axis, first, last, needed, needed_origin };
        Err(LayoutError::TooSmall(Box::new(small)))
    }

    /// The element type, before it was divided into units, and the name of its meaning.
    pub fn named_element(&self) -> NamedElement {
        let whole = |size| ElementType::Opaque(size as u16);
        let element = if self.units == 1 { self.element } else { whole(self.units * self.element.size()) };
        NamedElement { element, name: self.name.clone() }
    }

    /// Bytes of one cell.
    pub fn bytes_per_cell(&self) -> usize {
        self.extra.iter().map(|(extent, _)| extent).product::<usize>() * self.element.size()
    }

    /// Whether all offsets within the layout stay far from the ends of the address space, also for
    /// a halo as wide as the array, and the last extra dimension has the units.
    pub fn is_sane(&self) -> bool {
        let axes =
            self.axes.iter().map(|a| (a.extent as u128 + u128::from(a.origin.unsigned_abs()), a.stride));
        let extra = self.extra.iter().map(|&(extent, stride)| (extent as u128, stride));
        let dims = || axes.clone().chain(extra.clone());
        let reach = dims().try_fold(0u128, |sum, (n, stride)| {
            n.checked_mul(stride.unsigned_abs() as u128).and_then(|reach| sum.checked_add(reach))
        });
        let count = dims().try_fold(1u128, |product, (n, _)| product.checked_mul(n.max(1)));
        let limit = 1 << 60;
        let is_divided = match self.extra.last() {
            Some(&(extent, _)) if self.units != 1 => {
                extent == self.units
                    && self.units > 0
                    && self.units <= ElementType::MOST / self.element.size()
            }
            _ => self.units == 1,
        };
        is_divided && reach.is_some_and(|reach| reach < limit) && count.is_some_and(|count| count < limit)
    }

    /// Checks that cells of this layout can be exchanged with cells of `other`.
    pub fn check_peer(&self, other: &Self) -> Result<(), LayoutError> {
        let content = |layout: &Self| {
            let dimensions = layout.extra.len() - usize::from(layout.units != 1);
            let extra: Vec<usize> = layout.extra[..dimensions].iter().map(|(extent, _)| *extent).collect();
            CellContent { element: layout.named_element(), count: extra.iter().product(), extra }
        };
        let (ours, theirs) = (content(self), content(other));
        if ours.element.fits(&theirs.element)
            && ours.extra == theirs.extra
            && self.axes.len() == other.axes.len()
        {
            return Ok(());
        }
        Err(LayoutError::CellMismatch { ours: Box::new(ours), theirs: Box::new(theirs) })
    }
}
