//! Errors of layouts.

use crate::NamedElement;
use crate::layout::nearest_axes;
use std::fmt;
use std::ops::Range;

/// An invalid layout, or a layout that does not fit its pattern.
///
/// ```
/// use halocline_plan::{ElementType, Layout, LayoutError};
///
/// // Rows of 8 elements of 8 bytes, 32 bytes apart.
/// let error = Layout::strided(ElementType::F64, &[4, 8], &[32, 8]).expect_err("the rows overlap");
/// assert_eq!(error, LayoutError::Overlap { dim: 0, stride: 32, span: 64 });
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The element is empty or too large.
    #[error("an element of {0} bytes; use elements of 1 to 256 bytes")]
    ElementSize(usize),
    /// The numbers of extents and strides differ.
    #[error("{extents} extents but {strides} strides; give one stride for each extent")]
    Dimensions {
        /// Number of extents given.
        extents: usize,
        /// Number of strides given.
        strides: usize,
    },
    /// Two elements share bytes.
    #[error(
        "dimension {dim} has a stride of {stride} bytes, but the finer dimensions cover {span} bytes, so that \
         elements overlap; use a stride of at least {span} bytes"
    )]
    Overlap {
        /// The dimension with the small stride.
        dim: usize,
        /// Its stride in bytes.
        stride: isize,
        /// Bytes covered by all finer dimensions.
        span: usize,
    },
    /// The array spans more than the address space.
    #[error("the array spans more bytes than the address space has; use smaller extents or strides")]
    TooLarge,
    /// An axis that the array does not have, or that is named twice.
    #[error(
        "axis {dim} is named twice or is not one of the array's {dimensions} dimensions; name each axis once, \
         counted from 0"
    )]
    Axis {
        /// The dimension named.
        dim: usize,
        /// Number of dimensions of the array.
        dimensions: usize,
    },
    /// The array does not have exactly the cells of the domain along the pattern's axes, and no origin or
    /// padding explains it.
    #[error(
        "the array's shape is ({}), the domain's with its halo ({}): {}",
        list(extents), list(needed), remedy(extents, needed, named.as_deref(), guess.as_deref())
    )]
    Extents {
        /// Extents of the array.
        extents: Vec<usize>,
        /// Extents of the domain with its halo.
        needed: Vec<usize>,
        /// The dimensions of the array that were named as the pattern's axes.
        named: Option<Box<[usize]>>,
        /// The dimensions of the array that likely are the pattern's axes.
        guess: Option<Box<[usize]>>,
    },
    /// An origin for an unstructured domain, whose cells are listed from index 0 of the array.
    #[error(
        "the origin ({}) is for domains of regular grids; cell 0 of an unstructured one is at index 0",
        list(origin)
    )]
    Origin {
        /// The origin given.
        origin: Vec<usize>,
    },
    /// The pattern and the layout have different numbers of axes.
    #[error(
        "the pattern has {pattern} axes, the array or its origin has {layout}; give an array with as many dimensions (`with_axes` says \
         which, if they are not the first), and an origin with as many indices"
    )]
    AxisCount {
        /// Axes of the pattern.
        pattern: usize,
        /// Axes of the layout.
        layout: usize,
    },
    /// The array, with the given origin, is smaller than the pattern needs.
    #[error("{0}")]
    TooSmall(Box<TooSmall>),
    /// A box of cells with more or fewer ranges than the domain has axes.
    #[error("the box has {ranges} ranges, the domain {axes} axes; give one range for each axis")]
    BoxRanges {
        /// Ranges of the box.
        ranges: usize,
        /// Axes of the domain.
        axes: usize,
    },
    /// A box of cells that the array does not hold, or with a range that ends before it starts.
    #[error(
        "the box takes cells {range:?} along axis {axis}, where the array holds {held:?}; give a box of these"
    )]
    OutsideArray {
        /// The axis of the domain.
        axis: usize,
        /// The local indices given.
        range: Range<usize>,
        /// The local indices of the cells that the array holds.
        held: Range<usize>,
    },
    /// The two ends of a transfer carry different bytes for each cell.
    #[error(
        "a cell has {ours} here and {theirs} there; bind fields with the same elements and extra dimensions"
    )]
    CellMismatch {
        /// In the field of this rank.
        ours: Box<CellContent>,
        /// In the other field.
        theirs: Box<CellContent>,
    },
    /// Components of vectors whose elements are not floating-point numbers.
    #[error(
        "components of vectors change their sign across some seams, which {element} does not have; use floating-point elements"
    )]
    NoSign {
        /// The elements of the array.
        element: NamedElement,
    },
}

crate::debug_as_text!(LayoutError, TooSmall);

fn list<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Formats dimensions as the subject of a sentence.
fn axes(dims: &[usize]) -> String {
    match dims {
        [only] => format!("axis {only}"),
        [first @ .., last] => format!("axes {} and {last}", list(first)),
        [] => "no axes".to_owned(),
    }
}

/// The advice of [`LayoutError::Extents`].
fn remedy(extents: &[usize], needed: &[usize], named: Option<&[usize]>, guess: Option<&[usize]>) -> String {
    let origin = "the origin (the index of the first owned cell)";
    let mut text = String::new();
    if let Some(dims) = named {
        let verb = if dims.len() == 1 { "has" } else { "have" };
        let theirs: Vec<usize> = dims.iter().map(|&dim| extents[dim]).collect();
        text = format!("the named {} {verb} ({}); ", axes(dims), list(&theirs));
        if guess.is_none() && theirs.iter().zip(needed).all(|(there, needed)| there >= needed) {
            return format!(
                "{text}for spare cells give with them {origin} or, if all are at the high sides, padding"
            );
        }
    }
    if let Some(dims) = guess {
        let verb = if dims.len() == 1 { "fits" } else { "fit" };
        return format!("{text}{} {verb}; pass `with_axes(&[{}])`", axes(dims), list(dims));
    }
    let first: Vec<usize> = (0..needed.len()).collect();
    // Where a later dimension can be meant, padding alone may overwrite owned cells.
    let without = |dim: usize| [&extents[..dim], &extents[dim + 1..]].concat();
    let is_first = |dims: &[usize]| {
        dims == first && dims.iter().all(|&dim| nearest_axes(&without(dim), needed).is_none())
    };
    text + &match nearest_axes(extents, needed) {
        Some(dims) if is_first(&dims) => format!(
            "no axes fit; for spare cells along {} pass `padded()` if all are at the high sides, otherwise {origin}",
            axes(&first)
        ),
        Some(dims) => format!(
            "no axes fit, nearest {} with spare cells; pass `with_axes(&[{}])` if meant, and with it {origin} or, if all \
             spare cells are at the high sides, padding",
            axes(&dims),
            list(&dims)
        ),
        None => "no axes fit; allocate the domain's shape, with extra dimensions after it".to_owned(),
    }
}

/// An array that, with the given origin, is smaller than the pattern needs.
///
/// ```
/// use halocline_plan::{DomainShape, ElementType, Layout, LayoutError, TooSmall};
///
/// // 8 owned cells with a halo of 1 on both sides.
/// let domain = DomainShape::Regular { first: vec![0], owned: vec![8], halo: vec![(1, 1)] };
/// let layout = Layout::c_order(ElementType::F64, &[10])?.with_origin(&[4]);
/// let Err(LayoutError::TooSmall(error)) = layout.cells_held(&domain) else { panic!("4 + 8 cells") };
/// let TooSmall { axis, first, last, needed, needed_origin, .. } = *error;
/// // The owned cells are at the indices 4 to 11. An array of 13 cells holds them and the halo behind them.
/// assert_eq!((axis, first, last), (0, 4, 11));
/// assert_eq!((needed, needed_origin), (vec![13], vec![4]));
/// # Ok::<(), LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the array has ({}) cells along the pattern's axes (dimensions {dims:?}) and its first owned cell at ({}), so that the pattern \
     reaches indices {first} to {last} along axis {axis}; allocate ({}) cells or more, with the first owned cell at ({})",
    list(extents),
    list(origin),
    list(needed),
    list(needed_origin)
)]
pub struct TooSmall {
    /// The dimensions of the array that are the pattern's axes.
    pub dims: Vec<usize>,
    /// Number of cells along them.
    pub extents: Vec<usize>,
    /// Index of the first owned cell.
    pub origin: Vec<i64>,
    /// The axis of the pattern that is too short.
    pub axis: usize,
    /// First array index that the pattern touches along it.
    pub first: i64,
    /// Last array index that the pattern touches along it.
    pub last: i64,
    /// Sufficient extents for the domain with its halo, if the origin is `needed_origin`.
    pub needed: Vec<i64>,
    /// The origin that belongs to `needed`.
    pub needed_origin: Vec<i64>,
}

/// The content of each cell of a field.
///
/// ```
/// use halocline_plan::copy::CellLayout;
/// use halocline_plan::{CellContent, DomainShape, ElementType, Layout, LayoutError};
///
/// // Fields of two and three levels for each cell, as a bind compares those of two ranks.
/// let domain = DomainShape::Regular { first: vec![0], owned: vec![8], halo: vec![(1, 1)] };
/// let field = |levels| CellLayout::new(&Layout::c_order(ElementType::F64, &[10, levels])?, &domain);
/// let Err(LayoutError::CellMismatch { ours, theirs }) = field(2)?.check_peer(&field(3)?) else { panic!("2 and 3") };
/// let CellContent { element, count, extra } = *ours;
/// assert_eq!((element.element, count, extra), (ElementType::F64, 2, vec![2]));
/// assert_eq!(theirs.count, 3);
/// # Ok::<(), LayoutError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellContent {
    /// Element type and name.
    pub element: NamedElement,
    /// Number of elements.
    pub count: usize,
    /// The extents of the extra dimensions.
    pub extra: Vec<usize>,
}

impl fmt::Display for CellContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.count, self.element)?;
        if self.extra.is_empty() { Ok(()) } else { write!(f, " (extra dimensions {:?})", self.extra) }
    }
}
