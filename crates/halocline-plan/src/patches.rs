//! Grids of logically rectangular patches that are joined at their sides: the cubed sphere, tripolar grids,
//! grids with poles, lat-lon-cap grids, and any others.

mod agreement;
mod check;
mod decomposition;
mod error;
mod pattern;
mod quantity;
mod resolve;
mod seam;
mod sphere;

pub use decomposition::{PatchBlock, PatchDecomposition};
pub use error::PatchError;
pub use quantity::{Along, Quantity};
pub use seam::{PatchSide, Pivot, Seam, SeamKind};
pub use sphere::cubed_sphere_point;

use crate::error::PatternError;
use crate::grid::MAX_CELLS;
use seam::Crossing;

/// Patches of rows and columns of cells, and the seams that join their sides. Axis 0 counts rows, axis 1 columns.
///
/// A side without a seam is a border: halo cells behind it are never filled. Where the sides of two axes are joined,
/// the halo cells behind the corner come from the diagonal neighbour, if both ways around the corner lead to the same
/// one. [`PatchGrid::corners`] says what happens where three patches meet.
///
/// ```
/// use halocline_plan::{Halo, PatchGrid, Quantity};
///
/// let tiles = PatchGrid::cubed_sphere(48)?.decompose(6)?;
/// let plan = tiles.pattern_of(0, &Quantity::cells(), &Halo::uniform(2))?;
/// // Four neighbours. The halo cells at the corners of a tile have none.
/// assert_eq!(plan.peers.len(), 4);
/// let filled = plan.peers.iter().flat_map(|peer| &peer.receives);
/// assert_eq!(filled.map(|transfer| transfer.target.count()).sum::<usize>(), 4 * 2 * 48);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PatchGrid {
    patches: Vec<[usize; 2]>,
    seams: Vec<Seam>,
    /// What lies behind the low and the high side of each axis of each patch.
    crossings: Vec<[[Option<Crossing>; 2]; 2]>,
    corners: Corners,
}

/// What fills the halo cells behind a corner where three patches meet: no cell lies there.
///
/// ```
/// use halocline_plan::{Corners, Halo, PatchGrid, Quantity};
///
/// let filled = |corners| {
///     let tiles = PatchGrid::cubed_sphere(48)?.corners(corners)?.decompose(1)?;
///     let plan = tiles.pattern_of(0, &Quantity::cells(), &Halo::uniform(1))?;
///     Ok::<usize, halocline_plan::PatternError>(plan.local.iter().map(|transfer| transfer.target.count()).sum())
/// };
/// assert_eq!(filled(Corners::Open)?, 6 * 4 * 48);
/// assert_eq!(filled(Corners::ThroughAxis(1))?, 6 * (4 * 48 + 4));
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Corners {
    /// Nothing: an exchange leaves them unchanged.
    #[default]
    Open,
    /// The cells that are reached through the side of this axis first: for a stencil along the other axis.
    ThroughAxis(usize),
}

impl PatchGrid {
    /// Patches with these cells along each axis, joined by seams.
    ///
    /// Errors: no patch, a patch without cells, more than 2^60 cells or 2^58 along an axis, a side that does not exist or is
    /// in two seams, joined sides of different lengths, a side joined with itself but not folded, a fold or pole of an odd
    /// number of cells or of a patch whose other axis is not periodic, one row of cells that is folded at both sides.
    pub fn new(patches: Vec<[usize; 2]>, seams: Vec<Seam>) -> Result<Self, PatternError> {
        check_extents(&patches)?;
        let mut number: Vec<[[Option<usize>; 2]; 2]> = vec![[[None; 2]; 2]; patches.len()];
        let mut crossings = vec![[[None; 2]; 2]; patches.len()];
        for (seam, joined) in seams.iter().enumerate() {
            check_seam(seam, joined, &patches)?;
            for (side, crossing) in joined.crossings(&patches) {
                let PatchSide { patch, axis, is_high } = side;
                if let Some(one) = number[patch][axis][usize::from(is_high)].replace(seam) {
                    return Err(PatchError::JoinedTwice { side, one, other: seam }.into());
                }
                crossings[patch][axis][usize::from(is_high)] = Some(crossing);
            }
        }
        let grid = Self { patches, seams, crossings, corners: Corners::Open };
        grid.check_folds()?;
        for seam in &grid.seams {
            let side = seam.sides[0];
            // One seam joins both sides of the other axis.
            let is_periodic = match number[side.patch][1 - side.axis] {
                [Some(low), Some(high)] if low == high => {
                    grid.seams[low].kind == SeamKind::Join { is_reversed: false }
                }
                _ => false,
            };
            if !matches!(seam.kind, SeamKind::Join { .. }) && !is_periodic {
                let is_pole = seam.kind == SeamKind::Pole;
                return Err(PatchError::OpenFold { side, is_pole }.into());
            }
        }
        Ok(grid)
    }

    /// Six tiles of n x n cells, joined as those of FV3: tiles 0, 1, 3 and 4 lie around the equator, tile 2 on the north
    /// pole, tile 5 on the south pole. [`cubed_sphere_point`] gives their places on the sphere.
    pub fn cubed_sphere(n: usize) -> Result<Self, PatternError> {
        Self::new(vec![[n; 2]; 6], sphere::seams(6))
    }

    /// The five patches of an LLC grid (lat-lon-cap): 3 n x n, 3 n x n, n x n, n x 3 n and n x 3 n cells.
    pub fn lat_lon_cap(n: usize) -> Result<Self, PatternError> {
        let long = n.saturating_mul(3);
        Self::new(vec![[long, n], [long, n], [n, n], [n, long], [n, long]], sphere::seams(5))
    }

    /// A tripolar grid of rows from south to north and columns from west to east, periodic along the rows and folded at
    /// its northern side.
    ///
    /// With [`Pivot::Cell`] the second half of the last row repeats the first, reversed: those cells are copies. The
    /// extents are those without the columns and rows that a model adds as halo: 148 x 180 of NEMO's ORCA2, whose arrays
    /// are 149 x 182.
    pub fn tripolar(extents: [usize; 2], pivot: Pivot) -> Result<Self, PatternError> {
        let fold = Seam::fold(PatchSide::high(0, 0), pivot);
        Self::new(vec![extents], vec![Seam::join(PatchSide::low(0, 1), PatchSide::high(0, 1)), fold])
    }

    /// A grid of rows from the south pole to the north pole, and columns around the Earth.
    pub fn latitude_longitude(extents: [usize; 2]) -> Result<Self, PatternError> {
        let poles = [PatchSide::low(0, 0), PatchSide::high(0, 0)].map(Seam::pole);
        let around = Seam::join(PatchSide::low(0, 1), PatchSide::high(0, 1));
        Self::new(vec![extents], vec![around, poles[0], poles[1]])
    }

    /// Sets what fills halo cells behind corners where three patches meet. The default is [`Corners::Open`].
    ///
    /// Errors: [`Corners::ThroughAxis`] of an axis other than 0 and 1, or for patches without such a corner that has cells
    /// behind the side of this axis.
    pub fn corners(mut self, corners: Corners) -> Result<Self, PatternError> {
        if let Corners::ThroughAxis(axis) = corners {
            if axis > 1 {
                return Err(PatchError::CornerAxis { axis }.into());
            }
            if !self.has_corner_filled_by(corners) {
                return Err(PatchError::NoThreePatchCorners.into());
            }
        }
        self.corners = corners;
        Ok(self)
    }

    /// What fills halo cells behind corners where three patches meet.
    pub fn corner_fill(&self) -> Corners {
        self.corners
    }

    /// Cells along both axes of each patch.
    pub fn extents(&self) -> &[[usize; 2]] {
        &self.patches
    }

    /// The seams.
    pub fn seams(&self) -> &[Seam] {
        &self.seams
    }

    /// Checks that the lines of two folds differ.
    fn check_folds(&self) -> Result<(), PatchError> {
        for (patch, of_patch) in self.crossings.iter().enumerate() {
            for (axis, ends) in of_patch.iter().enumerate() {
                if let [Some(low), Some(high)] = ends
                    && low.line >= high.line
                {
                    return Err(PatchError::FoldedTwice { patch, axis });
                }
            }
        }
        Ok(())
    }

    fn crossing(&self, side: PatchSide) -> Option<Crossing> {
        self.crossings[side.patch][side.axis][usize::from(side.is_high)]
    }

    fn joined_sides(&self) -> impl Iterator<Item = PatchSide> {
        self.seams.iter().flat_map(|seam| {
            let sides = if seam.sides[0] == seam.sides[1] { &seam.sides[..1] } else { &seam.sides[..] };
            sides.iter().copied()
        })
    }
}

/// The most cells along an axis: coordinates count half cells, several patches far.
const MAX_ALONG: usize = 1 << 58;

fn check_extents(patches: &[[usize; 2]]) -> Result<(), PatchError> {
    if patches.is_empty() {
        return Err(PatchError::NoPatches);
    }
    let mut all: usize = 0;
    for (patch, extents) in patches.iter().enumerate() {
        if let Some(axis) = extents.iter().position(|&cells| cells == 0) {
            return Err(PatchError::Empty { patch, axis });
        }
        let is_short = extents.iter().all(|&cells| cells <= MAX_ALONG);
        let sum = extents[0].checked_mul(extents[1]).and_then(|cells| all.checked_add(cells));
        let sum = sum.filter(|&cells| cells <= MAX_CELLS && is_short);
        all = sum.ok_or(PatchError::TooLarge { patches: patches.len() })?;
    }
    Ok(())
}

fn check_seam(seam: usize, joined: &Seam, patches: &[[usize; 2]]) -> Result<(), PatchError> {
    for side in joined.sides {
        if side.patch >= patches.len() || side.axis > 1 {
            return Err(PatchError::NoSuchSide { seam, side, patches: patches.len() });
        }
    }
    let lengths = joined.sides.map(|side| patches[side.patch][1 - side.axis]);
    let sides = joined.sides;
    match joined.kind {
        SeamKind::Join { .. } if sides[0] == sides[1] => {
            Err(PatchError::JoinedWithItself { seam, side: sides[0] })
        }
        SeamKind::Join { .. } if lengths[0] != lengths[1] => {
            Err(PatchError::Lengths { seam, sides, lengths })
        }
        SeamKind::Fold(_) | SeamKind::Pole if !lengths[0].is_multiple_of(2) => {
            let is_pole = joined.kind == SeamKind::Pole;
            Err(PatchError::OddFold { side: sides[0], is_pole, cells: lengths[0] })
        }
        _ => Ok(()),
    }
}
