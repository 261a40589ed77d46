//! Errors of grids, decompositions, halos and patterns.

/// An invalid grid, decomposition, halo or set of transfers.
///
/// ```
/// use halocline_plan::{PatternError, RegularGrid};
///
/// let Err(error) = RegularGrid::new([3, 3]).decompose(7) else { panic!("7 is prime, no axis has 7 cells") };
/// let PatternError::NoFactors { domains, fitting, .. } = &error else { panic!("{error}") };
/// assert_eq!((*domains, &fitting[..]), (7, &[6, 9][..]));
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Invalid or inconsistent unstructured domains.
    #[error(transparent)]
    Unstructured(#[from] crate::UnstructuredError),
    /// An invalid mesh, or a partition that does not match it.
    #[error(transparent)]
    Mesh(#[from] crate::MeshError),
    /// An invalid partition.
    #[error(transparent)]
    Partition(#[from] crate::PartitionError),
    /// An invalid grid of patches, or a pattern that it cannot have.
    #[error(transparent)]
    Patch(#[from] crate::PatchError),
    /// Two distributions that do not have the same cells.
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
    /// More than 2^60 cells.
    #[error("a grid of {extents:?} has more cells than 2^60; use a smaller grid")]
    GridTooLarge {
        /// Cells along each axis.
        extents: Vec<usize>,
    },
    /// A list that is not one entry for each axis.
    #[error("{given} {what} for a grid of {axes} axes; give one for each axis")]
    AxisCount {
        /// What was given.
        what: &'static str,
        /// How many.
        given: usize,
        /// Axes of the grid.
        axes: usize,
    },
    /// A count that must be at least 1.
    #[error("a decomposition with 0 {what}; give at least 1")]
    Zero {
        /// The counted things.
        what: &'static str,
    },
    /// Too many domains for a decomposition by count.
    #[error("{ranks} ranks of {domains_per_rank} domains each are more than {most} domains; use fewer")]
    TooManyDomains {
        /// Ranks given.
        ranks: usize,
        /// Domains of each rank.
        domains_per_rank: usize,
        /// Maximum number of domains.
        most: usize,
    },
    /// Fewer cells than domains.
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
    /// No factorisation of the number of domains fits the axes.
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
        /// The nearest smaller and larger numbers of ranks that fit, if found.
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
    /// The number of blocks does not match the number of ranks.
    #[error(
        "a decomposition into {blocks:?} = {count} blocks does not match {ranks} ranks with {domains_per_rank} \
         domains each, which own {domains}; give {domains} blocks"
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
    /// A box of a rank that does not exist.
    #[error(
        "box {number} belongs to rank {rank}, but there are {ranks} ranks, numbered from 0; give it to one of these"
    )]
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
    /// An axis staggered twice.
    #[error("axis {axis} is staggered already; stagger the decomposition of the cells")]
    StaggeredTwice {
        /// The axis.
        axis: usize,
    },
    /// A rank that the decomposition does not have.
    #[error("rank {rank} of a decomposition for {ranks} ranks, numbered from 0; give a rank below {ranks}")]
    NoSuchRank {
        /// Rank given.
        rank: usize,
        /// Ranks of the decomposition.
        ranks: usize,
    },
    /// A domain with its halo has more than 2^60 cells.
    #[error(
        "domain {domain} of {owned:?} cells with halo widths {widths:?} has more cells than 2^60; use narrower halos \
         or smaller domains"
    )]
    HaloTooLarge {
        /// The domain.
        domain: u64,
        /// Its owned cells along each axis.
        owned: Vec<usize>,
        /// Halo widths, low and high, along each axis.
        widths: Vec<(usize, usize)>,
    },
    /// A halo in too many pieces, for example because it wraps around a periodic axis very often.
    #[error(
        "halo widths {widths:?} around domain {domain} reach more than {most} domains, counting each \
         repetition over a periodic seam; use narrower halos or larger domains"
    )]
    TooManyPieces {
        /// The domain.
        domain: u64,
        /// Halo widths, low and high, along each axis.
        widths: Vec<(usize, usize)>,
        /// Maximum number of domains that a halo may reach.
        most: usize,
    },
    /// A halo narrowed to a larger width than it has.
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
    /// A halo narrowed to a larger depth than it has.
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
    /// Axes or faces in the narrowed halo of unstructured domains.
    #[error("unstructured domains have no axes or faces: narrow them to a depth, `Halo::uniform(depth)`")]
    NarrowedByAxis,
    /// The domains of a pattern are not in ascending order.
    #[error("domain {domain} comes after a domain of the same or a higher number; list them ascending")]
    DomainOrder {
        /// The domain out of order.
        domain: u64,
    },
    /// A transfer with a domain that this rank does not own.
    #[error(
        "the transfer from domain {from} to domain {to} needs domain {missing}, which is not on this rank; add it to \
         the domains of this rank, or leave the transfer out"
    )]
    UnknownDomain {
        /// The domain that sends.
        from: u64,
        /// The domain that receives.
        to: u64,
        /// The domain that is missing on this rank.
        missing: u64,
    },
    /// Source and target of a transfer have different cells.
    #[error(
        "the transfer from domain {from} to domain {to} takes {source_cells} and fills {target_cells}; \
         they must be as many, in the same order"
    )]
    UnequalCells {
        /// The domain that sends.
        from: u64,
        /// The domain that receives.
        to: u64,
        /// The cells sent.
        source_cells: String,
        /// The cells filled.
        target_cells: String,
    },
    /// Cells of the wrong kind for their domain: a box in an unstructured domain, runs in a regular domain,
    /// or a box that is empty or has another number of axes.
    #[error(
        "{cells} cannot be cells of domain {domain}, which is {shape}; give a box that is not empty and has as many \
         axes as a regular domain, or runs of cells of an unstructured one"
    )]
    WrongCells {
        /// The domain.
        domain: u64,
        /// The cells.
        cells: String,
        /// The shape of the domain.
        shape: String,
    },
    /// A cell outside the domain and its halo.
    #[error("cell {cell} is not in domain {domain} or its halo; leave it out, or widen the halo")]
    OutsideDomain {
        /// The domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
    /// A halo cell as the source of a transfer.
    #[error(
        "cell {cell} of domain {domain} would be sent, but it is not an owned cell; send owned cells only"
    )]
    SendsHalo {
        /// The sending domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
    /// An owned cell as the target of a transfer.
    #[error(
        "cell {cell} of domain {domain} would be received, but it is an owned cell; receive halo cells (in a \
         redistribution: in a domain that sends nothing)"
    )]
    ReceivesOwned {
        /// The receiving domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
    /// Two transfers fill the same halo cell.
    #[error("halo cell {cell} of domain {domain} would be received twice; fill it by one transfer")]
    ReceivedTwice {
        /// The receiving domain.
        domain: u64,
        /// The cell, in the domain's own numbering.
        cell: String,
    },
}

crate::debug_as_text!(PatternError);

/// Formats an axis for a message.
fn on_axis(axis: &Option<usize>) -> String {
    axis.map_or_else(String::new, |axis| format!(" along axis {axis}"))
}

/// Advice for a number of ranks without factors that fit.
fn would_fit(fitting: &[usize], ranks: &usize) -> String {
    let fitting: Vec<String> = fitting.iter().map(usize::to_string).collect();
    match fitting.is_empty() {
        true => format!("no number of ranks near {ranks} would do; give a list of boxes"),
        false => format!("{} ranks would do, or a list of boxes", fitting.join(" or ")),
    }
}
