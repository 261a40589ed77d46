//! Errors of grids of patches.

use super::{Along, PatchSide};

/// An invalid grid of patches, or a pattern that it cannot have.
///
/// ```
/// use halocline_plan::{PatchError, PatchGrid, PatchSide, PatternError, Seam};
///
/// let seam = Seam::join(PatchSide::high(0, 1), PatchSide::low(1, 1));
/// let Err(PatternError::Patch(error)) = PatchGrid::new(vec![[4, 6], [5, 6]], vec![seam]) else {
///     panic!("the sides have 4 and 5 cells")
/// };
/// assert!(matches!(error, PatchError::Lengths { lengths: [4, 5], .. }));
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// A grid without patches.
    #[error("a grid of 0 patches; give at least one")]
    NoPatches,
    /// A patch without cells.
    #[error("patch {patch} has 0 cells along axis {axis}; every axis has at least 1")]
    Empty {
        /// The patch.
        patch: usize,
        /// The axis.
        axis: usize,
    },
    /// More than 2^60 cells, or 2^58 along an axis.
    #[error("the {patches} patches have more than 2^60 cells, or 2^58 along an axis; use a smaller grid")]
    TooLarge {
        /// Number of patches.
        patches: usize,
    },
    /// A seam with a side that no patch has.
    #[error("seam {seam} names {side}; patches are numbered 0 to {}, their axes 0 and 1", .patches - 1)]
    NoSuchSide {
        /// Position of the seam in the list.
        seam: usize,
        /// The side.
        side: PatchSide,
        /// Number of patches.
        patches: usize,
    },
    /// A side in two seams.
    #[error("{side} is in seams {one} and {other}; each side is in one seam at most")]
    JoinedTwice {
        /// The side.
        side: PatchSide,
        /// Position of the first seam in the list.
        one: usize,
        /// Position of the second seam.
        other: usize,
    },
    /// A side that is joined with itself, but not folded.
    #[error("seam {seam} joins {side} with itself; fold it (`Seam::fold`) or make it a pole (`Seam::pole`)")]
    JoinedWithItself {
        /// Position of the seam in the list.
        seam: usize,
        /// The side.
        side: PatchSide,
    },
    /// Joined sides of different lengths.
    #[error(
        "seam {seam} joins {}, which is {} cells long, with {}, which is {}; joined sides have as many cells",
        .sides[0], .lengths[0], .sides[1], .lengths[1]
    )]
    Lengths {
        /// Position of the seam in the list.
        seam: usize,
        /// The sides.
        sides: [PatchSide; 2],
        /// Their lengths in cells.
        lengths: [usize; 2],
    },
    /// A fold or a pole with an odd number of cells.
    #[error(
        "{side} {} and has {cells} cells; the number must be even, so that each cell has a partner", folds(*.is_pole)
    )]
    OddFold {
        /// The side.
        side: PatchSide,
        /// Whether it is a pole, not a fold.
        is_pole: bool,
        /// Cells along it.
        cells: usize,
    },
    /// A fold or a pole whose other axis is not periodic.
    #[error(
        "{side} {}, but axis {} of the patch is not periodic; join its two sides with each other, not reversed (`Seam::join`)",
        folds(*.is_pole), 1 - .side.axis
    )]
    OpenFold {
        /// The side.
        side: PatchSide,
        /// Whether it is a pole, not a fold.
        is_pole: bool,
    },
    /// One row of cells with a fold about its cells at both sides.
    #[error(
        "patch {patch} has 1 cell along axis {axis} and is folded about it at both sides; give it 2 cells or more, or one fold"
    )]
    FoldedTwice {
        /// The patch.
        patch: usize,
        /// The axis that leaves the patch through the folded sides.
        axis: usize,
    },
    /// Three-tile corners asked for where all corners have a diagonal neighbour.
    #[error(
        "the grid has no corner of three patches with cells behind it; leave corners open (`Corners::Open`)"
    )]
    NoThreePatchCorners,
    /// An axis that patches do not have.
    #[error("corners filled through axis {axis}; patches have axes 0 and 1")]
    CornerAxis {
        /// The axis.
        axis: usize,
    },
    /// A halo that reaches through a patch.
    #[error(
        "a halo {width} cells wide at {side} reaches through the patch behind it; it can be at most {most} wide there"
    )]
    HaloTooWide {
        /// The side.
        side: PatchSide,
        /// Width of the halo there.
        width: usize,
        /// The largest possible width.
        most: usize,
    },
    /// Places that do not meet places of the quantity across a seam.
    #[error(
        "across {side}, values at {} meet places where the quantity has no values; for components that the seam \
         turns into each other give both (`Quantity::vector`)",
        words(*.place)
    )]
    Places {
        /// The side.
        side: PatchSide,
        /// Where the values of the target lie, along its axes.
        place: [Along; 2],
    },
    /// Values on the line of a side, which neither of the joined patches holds.
    #[error(
        "no patch holds the values at {} on {side}; use `Along::Faces` along axis {}, whose values lie on both sides",
        words(*.place), .side.axis
    )]
    NotHeld {
        /// The side.
        side: PatchSide,
        /// Where the values of the target lie, along its axes.
        place: [Along; 2],
    },
    /// A halo that continues across very many seams.
    #[error(
        "a halo of widths {widths:?} around patch {patch} reaches across more than {most} seams; make it narrower, or the \
         patches behind its corners larger"
    )]
    TooManySeams {
        /// The patch.
        patch: usize,
        /// Halo widths, low and high, along each axis.
        widths: Vec<(usize, usize)>,
        /// The most seams.
        most: usize,
    },
    /// A value that very many patches hold.
    #[error(
        "a value in or around patch {patch} has more than {most} places: too many patches meet at one point; join fewer there, \
         or use values at the centres of cells"
    )]
    TooManyPlaces {
        /// The patch.
        patch: usize,
        /// The most places of a value.
        most: usize,
    },
    /// A list that is not one entry for each patch.
    #[error("{given} numbers of blocks for {patches} patches; give one pair for each patch")]
    BlocksForPatches {
        /// How many were given.
        given: usize,
        /// Number of patches.
        patches: usize,
    },
    /// A number of blocks that a patch cannot have.
    #[error(
        "{blocks} blocks along axis {axis} of patch {patch}, which has {cells} cells; it can have 1 to {cells} blocks"
    )]
    BlocksOnAxis {
        /// The patch.
        patch: usize,
        /// The axis.
        axis: usize,
        /// Blocks wanted along it.
        blocks: usize,
        /// Cells along it.
        cells: usize,
    },
    /// Fewer domains than ranks.
    #[error(
        "{domains} blocks for {ranks} ranks; every rank needs at least one, so give more blocks or fewer ranks"
    )]
    FewerDomainsThanRanks {
        /// Number of blocks.
        domains: u64,
        /// Number of ranks.
        ranks: usize,
    },
    /// More ranks than cells.
    #[error(
        "{ranks} ranks for patches of {cells} cells; every rank needs at least one, so use at most {cells} ranks"
    )]
    MoreRanksThanCells {
        /// Number of ranks.
        ranks: usize,
        /// Cells of all patches.
        cells: usize,
    },
    /// No numbers of blocks were found. Only with more than 2^32 - 1 cells and hardly fewer ranks.
    #[error(
        "the {patches} patches, of {cells} cells, cannot be cut for {ranks} ranks: no numbers of blocks fit their extents; give \
         the blocks of each patch (`PatchGrid::decompose_into`), or use fewer ranks"
    )]
    NoBlocks {
        /// Number of patches.
        patches: usize,
        /// Cells of all of them.
        cells: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// A tile that the cubed sphere does not have.
    #[error("there is no tile {tile}; the cubed sphere has tiles 0 to 5")]
    NoSuchTile {
        /// The tile.
        tile: usize,
    },
    /// A point to which the projection of a tile does not reach.
    #[error(
        "the coordinate along axis {axis} of a point of tile {tile} is {at}; it is 0 at the low side and 1 at the high side, and must be \
         above -0.5 and below 1.5, where the projection ends"
    )]
    OutsideOfTile {
        /// The tile.
        tile: usize,
        /// The axis.
        axis: usize,
        /// The coordinate, in decimal.
        at: String,
    },
}

/// What a side is that is joined with itself.
fn folds(is_pole: bool) -> &'static str {
    if is_pole { "is a pole" } else { "is folded" }
}

/// Places in words that are the same in all languages.
fn words(place: [Along; 2]) -> String {
    let [rows, columns] = place.map(|along| match along {
        Along::Centre => "centres",
        Along::Faces => "faces",
        Along::HighFaces => "high faces",
        Along::LowFaces => "low faces",
    });
    format!("{rows} along axis 0 and {columns} along axis 1")
}

crate::debug_as_text!(PatchError);
