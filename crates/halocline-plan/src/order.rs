//! The order in which the bytes of a layout travel, encoded in a 64-bit number.
//!
//! Bytes travel in the order of the sender's memory. A receiver that does not know the sender's
//! layout needs only this: which dimension is coarser than which, and which of them run downwards.

use crate::ElementType;
use crate::copy::{AxisLayout, CellLayout};

/// The dimensions of a [`CellLayout`], axes first, from the finest to the coarsest, each upwards or
/// downwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Order(u64);

/// Bits per dimension: its number and its direction.
const BITS: usize = 5;
const DOWN: u64 = 1 << (BITS - 1);
/// Bit position of the number of dimensions.
const COUNT: usize = 60;

impl Order {
    /// Maximum number of dimensions: axes, and extra dimensions of more than one element.
    pub const MOST: usize = COUNT / BITS;

    /// The order of a layout; `None` if it has more than [`Order::MOST`] dimensions.
    pub fn of(layout: &CellLayout) -> Option<Self> {
        let axes = layout.axes.iter().map(|axis| (axis.stride, axis.extent));
        let dims: Vec<(isize, usize)> =
            axes.chain(layout.extra.iter().map(|&(extent, stride)| (stride, extent))).collect();
        if dims.len() > Self::MOST {
            return None;
        }
        let mut finest_first: Vec<usize> = (0..dims.len()).collect();
        // Strides are equal only if a dimension has one element. Such an axis of a cell list sorts
        // as coarser than extra dimensions, as in copy operations.
        finest_first.sort_by_key(|&dim| (dims[dim].0.unsigned_abs(), std::cmp::Reverse(dim)));
        let code =
            finest_first.iter().enumerate().fold((dims.len() as u64) << COUNT, |code, (place, &dim)| {
                let down = if dims[dim].0 < 0 { DOWN } else { 0 };
                code | (dim as u64 | down) << (place * BITS)
            });
        Some(Self(code))
    }

    /// The encoding that [`Order::from_code`] decodes.
    pub fn code(self) -> u64 {
        self.0
    }

    /// Decodes any number; [`Order::layout`] validates it.
    pub fn from_code(code: u64) -> Self {
        Self(code)
    }

    /// A layout of this order that holds `axes` cells and has the `extra` extents. Both ends of a
    /// message use it in place of the other side's layout. `None` if the order has another number
    /// of dimensions.
    ///
    /// Each axis ends with a gap, as in an array that is larger than the box.
    pub fn layout(self, element: ElementType, axes: &[usize], extra: &[usize]) -> Option<CellLayout> {
        let count = axes.len() + extra.len();
        if self.0 >> COUNT != count as u64 || count > Self::MOST {
            return None;
        }
        let mut strides = vec![0isize; count];
        let mut stride = element.size() as isize;
        for place in 0..count {
            let entry = self.0 >> (place * BITS);
            let dim = (entry & (DOWN - 1)) as usize;
            if strides.get(dim) != Some(&0) {
                return None;
            }
            strides[dim] = if entry & DOWN != 0 { -stride } else { stride };
            let extent = axes.get(dim).map_or_else(|| extra[dim - axes.len()].max(1), |cells| cells + 1);
            stride = stride.saturating_mul(isize::try_from(extent).unwrap_or(isize::MAX));
        }
        let axis = |(&cells, &stride)| AxisLayout { stride, origin: 0, extent: cells };
        Some(CellLayout {
            element,
            units: 1,
            name: None,
            axes: axes.iter().zip(&strides).map(axis).collect(),
            extra: extra
                .iter()
                .zip(&strides[axes.len()..])
                .map(|(&extent, &stride)| (extent, stride))
                .collect(),
        })
    }
}
