//! What can be wrong with a layout or a pattern.

use crate::ElementType;

/// A layout that cannot be, or does not fit its pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The element is empty or too large.
    #[error("an element of {0} bytes; elements have 1 to 16 bytes")]
    ElementSize(usize),
    /// Extents and strides disagree in number.
    #[error("{extents} extents but {strides} strides; give one stride for each extent")]
    Dimensions {
        /// Number of extents given.
        extents: usize,
        /// Number of strides given.
        strides: usize,
    },
    /// Two elements share bytes.
    #[error(
        "dimension {dim} has a stride of {stride} bytes, but one step of it must pass over the {span} \
         bytes that the finer dimensions cover; two elements would share bytes"
    )]
    Overlap {
        /// The dimension at fault.
        dim: usize,
        /// Its stride in bytes.
        stride: isize,
        /// Bytes covered by all finer dimensions.
        span: usize,
    },
    /// The array is larger than the address space.
    #[error("the array spans more bytes than the address space has")]
    TooLarge,
    /// An axis that the array does not have, or that was named twice.
    #[error("axis {dim} is named twice or is not one of the array's {dimensions} dimensions")]
    Axis {
        /// The dimension named.
        dim: usize,
        /// Number of dimensions of the array.
        dimensions: usize,
    },
    /// The pattern has another number of axes than the layout.
    #[error("the pattern has {pattern} axes, the array offers {layout}; name them with `with_axes`")]
    AxisCount {
        /// Axes of the pattern.
        pattern: usize,
        /// Axes of the layout.
        layout: usize,
    },
    /// The array is smaller than the pattern needs.
    #[error(
        "the array has {extent} cells along axis {axis} (dimension {dim}), the pattern reaches cells \
         {first} to {last}; the axis needs at least {needed} cells with this origin"
    )]
    TooSmall {
        /// The axis of the pattern.
        axis: usize,
        /// The dimension of the array.
        dim: usize,
        /// Cells along it.
        extent: usize,
        /// First array index that the pattern touches.
        first: i64,
        /// Last array index that the pattern touches.
        last: i64,
        /// Extent that would do.
        needed: i64,
    },
    /// Two ends of a transfer carry different bytes for each cell.
    #[error(
        "one side has {ours_count} x {ours} for each cell (extra dimensions {ours_extra:?}), the other \
         {theirs_count} x {theirs} ({theirs_extra:?}); both sides must bind the same"
    )]
    CellMismatch {
        /// Element type on this side.
        ours: ElementType,
        /// Elements a cell on this side.
        ours_count: usize,
        /// Extra extents on this side.
        ours_extra: Vec<usize>,
        /// Element type on the other side.
        theirs: ElementType,
        /// Elements a cell on the other side.
        theirs_count: usize,
        /// Extra extents on the other side.
        theirs_extra: Vec<usize>,
    },
}

/// A decomposition, halo or set of domains that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Two regions would write the same halo cell.
    #[error("halo cell {cell} of domain {domain} would be received twice")]
    ReceivedTwice {
        /// The receiving domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
}
