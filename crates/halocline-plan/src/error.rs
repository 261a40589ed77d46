//! What can be wrong with a layout or a pattern.

use crate::NamedElement;
use crate::layout::roomy_axes;

/// `Debug` of errors as their text, which `fn main() -> Result<(), Error>` prints.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_text {
    ($($error:ty),*) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

/// A layout that cannot be, or does not fit its pattern.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The element is empty or too large.
    #[error("an element of {0} bytes; elements have 1 to 256 bytes")]
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
    /// The array has not exactly the cells of the domain along the pattern's axes, and nothing says that it has not.
    #[error(
        "the array's shape is ({}), the domain's with its halo ({}): {}",
        list(extents), list(needed), remedy(extents, needed, named.as_deref(), guess.as_deref())
    )]
    Extents {
        /// Extents of the array.
        extents: Vec<usize>,
        /// Those of the domain with its halo.
        needed: Vec<usize>,
        /// The dimensions of the array that were named as the pattern's axes.
        named: Option<Box<[usize]>>,
        /// The dimensions of the array that are likely the pattern's axes.
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
    /// The pattern has another number of axes than the layout.
    #[error("the pattern has {pattern} axes, the array offers {layout}; name them with `with_axes`")]
    AxisCount {
        /// Axes of the pattern.
        pattern: usize,
        /// Axes of the layout.
        layout: usize,
    },
    /// The array, with the origin given, is smaller than the pattern needs.
    #[error("{0}")]
    TooSmall(Box<TooSmall>),
    /// Two ends of a transfer carry different bytes for each cell.
    #[error(
        "one side has {} x {} for each cell (extra dimensions {:?}), the other {} x {} ({:?}); both sides must bind the same",
        ours.count, ours.element, ours.extra, theirs.count, theirs.element, theirs.extra
    )]
    CellMismatch {
        /// On this side.
        ours: Box<CellContent>,
        /// On the other side.
        theirs: Box<CellContent>,
    },
}

crate::debug_as_text!(LayoutError, TooSmall);

fn list<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Dimensions as the subject of a sentence.
fn axes(dims: &[usize]) -> String {
    match dims {
        [only] => format!("axis {only}"),
        [first @ .., last] => format!("axes {} and {last}", list(first)),
        [] => "no axes".to_owned(),
    }
}

/// What to do about [`LayoutError::Extents`].
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
    let is_first =
        |dims: &[usize]| dims == first && dims.iter().all(|&dim| roomy_axes(&without(dim), needed).is_none());
    text + &match roomy_axes(extents, needed) {
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

/// An array that is smaller, with the origin given, than the pattern needs.
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
    /// Cells along them.
    pub extents: Vec<usize>,
    /// Index of the first owned cell.
    pub origin: Vec<i64>,
    /// The axis of the pattern that is too short.
    pub axis: usize,
    /// First array index that the pattern touches along it.
    pub first: i64,
    /// Last array index that the pattern touches along it.
    pub last: i64,
    /// Extents that would do for the domain with its halo,
    pub needed: Vec<i64>,
    /// with this origin.
    pub needed_origin: Vec<i64>,
}

/// What each cell of a field carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellContent {
    /// Its elements.
    pub element: NamedElement,
    /// How many.
    pub count: usize,
    /// The extents of the extra dimensions.
    pub extra: Vec<usize>,
}

/// A grid, decomposition, halo or set of transfers that is no pattern.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Unstructured domains that do not fit, in themselves or together.
    #[error(transparent)]
    Unstructured(#[from] crate::UnstructuredError),
    /// A mesh that is none, or a partition that is not of it.
    #[error(transparent)]
    Mesh(#[from] crate::MeshError),
    /// A partition that cannot be made.
    #[error(transparent)]
    Partition(#[from] crate::PartitionError),
    /// Two distributions that are not of the same cells.
    #[error(transparent)]
    Redistribute(#[from] crate::RedistributeError),
    /// The grid has no axes or too many.
    #[error("a grid of {0} axes; grids have 1 to 4")]
    GridAxes(usize),
    /// An axis of the grid without cells.
    #[error("axis {axis} of the grid has 0 cells; every axis has at least 1")]
    EmptyAxis {
        /// The axis.
        axis: usize,
    },
    /// More cells than can be numbered.
    #[error("a grid of {extents:?} has more cells than 2^60")]
    GridTooLarge {
        /// Cells along each axis.
        extents: Vec<usize>,
    },
    /// A list that needs one entry for each axis has another length.
    #[error("{given} {what} for a grid of {axes} axes; give one for each axis")]
    AxisCount {
        /// What was given.
        what: &'static str,
        /// How many.
        given: usize,
        /// Axes of the grid.
        axes: usize,
    },
    /// A number that must be at least 1.
    #[error("a decomposition with 0 {what}; give at least 1")]
    Zero {
        /// What there is none of.
        what: &'static str,
    },
    /// Too many domains to decompose by number.
    #[error("{ranks} ranks of {domains_per_rank} domains each are more than {most} domains")]
    TooManyDomains {
        /// Ranks given.
        ranks: usize,
        /// Domains of each rank.
        domains_per_rank: usize,
        /// Most domains.
        most: usize,
    },
    /// Some rank would have no cell.
    #[error(
        "{ranks} ranks of {domains_per_rank} domains each, but the grid of {extents:?} has only {cells} cells; \
         every domain needs one"
    )]
    MoreRanksThanCells {
        /// Ranks given.
        ranks: usize,
        /// Domains of each rank.
        domains_per_rank: usize,
        /// Cells along each axis.
        extents: Vec<usize>,
        /// Cells of the grid.
        cells: usize,
    },
    /// The number of domains does not factor into blocks that the axes can hold.
    #[error(
        "{domains} domains cannot be blocks of a grid of {extents:?}: no factors of {domains} fit the axes; \
         {}",
        would_fit(.fitting, .ranks)
    )]
    NoFactors {
        /// Domains wanted.
        domains: usize,
        /// Cells along each axis.
        extents: Vec<usize>,
        /// Ranks given.
        ranks: usize,
        /// The nearest smaller and larger numbers of ranks that fit, as far as they were found.
        fitting: Vec<usize>,
    },
    /// A number of blocks that an axis cannot have.
    #[error("{blocks} blocks along axis {axis}, which has {cells} cells; it can have 1 to {cells} blocks")]
    BlocksOnAxis {
        /// The axis.
        axis: usize,
        /// Blocks wanted along it.
        blocks: usize,
        /// Cells along it.
        cells: usize,
    },
    /// The decomposition was made for another number of ranks.
    #[error(
        "a decomposition into {blocks:?} = {count} blocks does not match {ranks} ranks with \
         {domains_per_rank} domains each, which own {domains}"
    )]
    BlocksForRanks {
        /// Blocks along each axis.
        blocks: Vec<usize>,
        /// Blocks in all.
        count: usize,
        /// Ranks given.
        ranks: usize,
        /// Domains of each rank.
        domains_per_rank: usize,
        /// Domains in all.
        domains: usize,
    },
    /// A cut outside its axis or out of order.
    #[error(
        "a cut of axis {axis} at cell {cut}: cuts must ascend and leave no block empty, this one must be \
         above {after} and below {cells}"
    )]
    Cut {
        /// The axis.
        axis: usize,
        /// The cut at fault.
        cut: usize,
        /// The cut before, or 0.
        after: usize,
        /// Cells along the axis.
        cells: usize,
    },
    /// A box of a rank that there is not.
    #[error("box {number} belongs to rank {rank}, but there are {ranks} ranks, numbered from 0")]
    BoxRank {
        /// Position of the box in the list.
        number: usize,
        /// Its rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// An empty box, or one that reaches out of the grid.
    #[error(
        "box {number} has {extent} cells from cell {first} along axis {axis}, where the grid has {cells}; \
         a box has at least 1 and lies inside the grid"
    )]
    BoxOutside {
        /// Position of the box in the list.
        number: usize,
        /// The axis.
        axis: usize,
        /// First cell of the box along it.
        first: usize,
        /// Cells of the box along it.
        extent: usize,
        /// Cells of the grid along it.
        cells: usize,
    },
    /// A cell in two boxes.
    #[error("boxes {one} and {other} both own cell {cell:?}; boxes must be disjoint")]
    BoxesOverlap {
        /// Position of the first box in the list.
        one: usize,
        /// Position of the second box.
        other: usize,
        /// Lowest cell that they share.
        cell: Vec<i64>,
    },
    /// A cell in no box.
    #[error("cell {cell:?} is in none of the {boxes} boxes; boxes must cover the grid")]
    CellInNoBox {
        /// The first such cell.
        cell: Vec<i64>,
        /// Number of boxes.
        boxes: usize,
    },
    /// Points between points.
    #[error("axis {axis} is staggered already; stagger the decomposition of the cells")]
    StaggeredTwice {
        /// The axis.
        axis: usize,
    },
    /// A rank that the decomposition does not have.
    #[error("rank {rank} of a decomposition for {ranks} ranks, numbered from 0")]
    NoSuchRank {
        /// Rank given.
        rank: usize,
        /// Ranks of the decomposition.
        ranks: usize,
    },
    /// A domain with its halo would have more cells than can be numbered.
    #[error("domain {domain} of {owned:?} cells with halo widths {widths:?} has more cells than 2^60")]
    HaloTooLarge {
        /// The domain.
        domain: u64,
        /// Its owned cells along each axis.
        owned: Vec<usize>,
        /// Halo widths, low and high, along each axis.
        widths: Vec<(usize, usize)>,
    },
    /// A halo that wraps absurdly often.
    #[error(
        "halo widths {widths:?} around domain {domain} reach more than {most} domains, counting each \
         repetition over a periodic seam; use narrower halos or larger domains"
    )]
    TooManyPieces {
        /// The domain.
        domain: u64,
        /// Halo widths, low and high, along each axis.
        widths: Vec<(usize, usize)>,
        /// Most domains that a halo may reach.
        most: usize,
    },
    /// A pattern would be narrowed to more than it has.
    #[error(
        "a halo narrowed to width {width}{} would be wider than it is, {widest}; ask for at most that",
        on_axis(.axis)
    )]
    NarrowedWider {
        /// The axis, if one was named.
        axis: Option<usize>,
        /// Width asked for.
        width: usize,
        /// Width of the halo there.
        widest: usize,
    },
    /// An unstructured pattern would be narrowed to more levels than it has.
    #[error(
        "domain {domain} has a halo of depth {has}, it cannot be narrowed to depth {depth}; give it more levels \
         (`UnstructuredDomain::with_levels`) or ask for at most {has}"
    )]
    NarrowedDeeper {
        /// The domain.
        domain: u64,
        /// Depth asked for.
        depth: usize,
        /// Depth of its halo.
        has: usize,
    },
    /// Axes or faces were named for domains that have none.
    #[error("unstructured domains have no axes or faces: narrow them to a depth, `Halo::uniform(depth)`")]
    NarrowedByAxis,
    /// The domains of a pattern are not in order.
    #[error("domain {domain} comes after a domain of the same or a higher number; list them ascending")]
    DomainOrder {
        /// The domain out of order.
        domain: u64,
    },
    /// A transfer with a domain that this rank does not have.
    #[error(
        "the transfer from domain {from} to domain {to} needs domain {missing}, which is not on this rank"
    )]
    UnknownDomain {
        /// The domain that sends.
        from: u64,
        /// The domain that receives.
        to: u64,
        /// The one of them that should be here.
        missing: u64,
    },
    /// Source and target of a transfer differ in shape.
    #[error(
        "the transfer from domain {from} to domain {to} takes {source_cells} and fills {target_cells}; \
         they must be as many, in the same order"
    )]
    UnequalCells {
        /// The domain that sends.
        from: u64,
        /// The domain that receives.
        to: u64,
        /// What is sent.
        source_cells: String,
        /// What is filled.
        target_cells: String,
    },
    /// Cells that cannot be cells of their domain: a box in an unstructured domain, or with another
    /// number of axes, or empty; runs in a regular domain.
    #[error("{cells} cannot be cells of domain {domain}, which is {shape}")]
    WrongCells {
        /// The domain.
        domain: u64,
        /// The cells.
        cells: String,
        /// What the domain is.
        shape: String,
    },
    /// Cells that the domain does not have.
    #[error("cell {cell} is not in domain {domain} or its halo")]
    OutsideDomain {
        /// The domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
    /// A cell is sent that is not owned.
    #[error("cell {cell} of domain {domain} would be sent, but it is not an owned cell")]
    SendsHalo {
        /// The sending domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
    /// An owned cell would be overwritten.
    #[error("cell {cell} of domain {domain} would be received, but it is an owned cell")]
    ReceivesOwned {
        /// The receiving domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
    /// Two regions would write the same halo cell.
    #[error("halo cell {cell} of domain {domain} would be received twice")]
    ReceivedTwice {
        /// The receiving domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
}

crate::debug_as_text!(PatternError);

/// Names an axis in a message.
fn on_axis(axis: &Option<usize>) -> String {
    axis.map_or_else(String::new, |axis| format!(" along axis {axis}"))
}

/// Advice for a number of ranks that has no factors that fit.
fn would_fit(fitting: &[usize], ranks: &usize) -> String {
    let fitting: Vec<String> = fitting.iter().map(usize::to_string).collect();
    match fitting.is_empty() {
        true => format!("no number of ranks near {ranks} would do; give a list of boxes"),
        false => format!("{} ranks would do, or a list of boxes", fitting.join(" or ")),
    }
}
