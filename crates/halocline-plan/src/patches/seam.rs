//! Seams: which sides of patches are joined, and how coordinates continue across them.
//!
//! Coordinates count half cells from the low side of a patch: cell i has its centre at 2 i + 1, and its
//! sides at 2 i and 2 i + 2. So cells, faces and corners lie at whole numbers.

use crate::AxisMap;

/// One of the four sides of a patch.
///
/// ```
/// use halocline_plan::PatchSide;
///
/// let east = PatchSide::high(0, 1);
/// assert_eq!(east.to_string(), "the high side of axis 1 of patch 0");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchSide {
    /// Number of the patch.
    pub patch: usize,
    /// The axis that leaves the patch through this side.
    pub axis: usize,
    /// Whether it is the side behind the last cell; otherwise, it is the one before cell 0.
    pub is_high: bool,
}

impl PatchSide {
    /// The side of `patch` before cell 0 of `axis`.
    pub fn low(patch: usize, axis: usize) -> Self {
        Self { patch, axis, is_high: false }
    }

    /// The side of `patch` behind the last cell of `axis`.
    pub fn high(patch: usize, axis: usize) -> Self {
        Self { patch, axis, is_high: true }
    }
}

impl std::fmt::Display for PatchSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = if self.is_high { "high" } else { "low" };
        write!(f, "the {end} side of axis {} of patch {}", self.axis, self.patch)
    }
}

/// Where the turning point of a fold lies.
///
/// ```
/// use halocline_plan::{PatchGrid, Pivot};
///
/// // NEMO's ORCA2 and ORCA025 turn about a T point, its ORCA1 and MOM6's grids about an F point.
/// let orca2 = PatchGrid::tripolar([148, 180], Pivot::Cell)?;
/// assert_eq!(orca2.extents(), [[148, 180]]);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pivot {
    /// On the centre of cell 0 (a T point): the last row of cells is folded onto itself, its second half repeats
    /// the first.
    Cell,
    /// On the corner before cell 0 (an F point): the grid is folded at the outer side of the last row.
    Corner,
}

/// Two sides that are joined, or one that is joined with itself.
///
/// ```
/// use halocline_plan::{PatchGrid, PatchSide, Seam};
///
/// // A channel that is periodic along axis 1.
/// let seam = Seam::join(PatchSide::low(0, 1), PatchSide::high(0, 1));
/// let channel = PatchGrid::new(vec![[20, 64]], vec![seam])?;
/// assert_eq!(channel.decompose(2)?.domains(), 2);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seam {
    pub(super) sides: [PatchSide; 2],
    pub(super) kind: SeamKind,
}

/// How a seam joins its sides.
///
/// ```
/// use halocline_plan::{PatchGrid, Pivot, SeamKind};
///
/// let orca2 = PatchGrid::tripolar([148, 180], Pivot::Cell)?;
/// let kinds: Vec<SeamKind> = orca2.seams().iter().map(|seam| seam.kind()).collect();
/// assert_eq!(kinds, [SeamKind::Join { is_reversed: false }, SeamKind::Fold(Pivot::Cell)]);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeamKind {
    /// [`Seam::join`] or [`Seam::join_reversed`]: two sides are joined.
    Join {
        /// Whether coordinates along the two sides run in opposite directions.
        is_reversed: bool,
    },
    /// [`Seam::fold`]: a side is folded onto itself.
    Fold(Pivot),
    /// [`Seam::pole`]: a side is joined with itself, shifted by half the cells along it.
    Pole,
}

impl Seam {
    /// The sides that it joins. Those of a fold and of a pole are the same.
    pub fn sides(&self) -> [PatchSide; 2] {
        self.sides
    }

    /// How it joins them.
    pub fn kind(&self) -> SeamKind {
        self.kind
    }

    /// Joins two sides: coordinates along them run in the same direction.
    pub fn join(one: PatchSide, other: PatchSide) -> Self {
        Self { sides: [one, other], kind: SeamKind::Join { is_reversed: false } }
    }

    /// Joins two sides: coordinates along them run in opposite directions.
    pub fn join_reversed(one: PatchSide, other: PatchSide) -> Self {
        Self { sides: [one, other], kind: SeamKind::Join { is_reversed: true } }
    }

    /// Folds a side onto itself, as the northern side of a tripolar grid. Both components of a vector change
    /// their sign.
    pub fn fold(side: PatchSide, pivot: Pivot) -> Self {
        Self { sides: [side; 2], kind: SeamKind::Fold(pivot) }
    }

    /// Joins a side with itself across a pole: the row behind it is shifted by half the cells along it. Both
    /// components of a vector change their sign.
    pub fn pole(side: PatchSide) -> Self {
        Self { sides: [side; 2], kind: SeamKind::Pole }
    }

    /// Both directions: the side that is left, and what lies behind it. One for a side joined with itself.
    pub(super) fn crossings(&self, patches: &[[usize; 2]]) -> Vec<(PatchSide, Crossing)> {
        let [one, other] = self.sides;
        match self.kind {
            SeamKind::Join { is_reversed } => {
                let there = |from, to| (from, join(from, to, is_reversed, patches));
                vec![there(one, other), there(other, one)]
            }
            SeamKind::Fold(pivot) => vec![(one, fold(one, pivot, patches))],
            SeamKind::Pole => vec![(one, pole(one, patches))],
        }
    }
}

/// What lies behind a joined side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Crossing {
    /// Coordinates beyond this one, along the axis that leaves through the side, are behind the seam. Points on
    /// it are on both sides.
    pub line: i64,
    /// How coordinates continue.
    pub view: View,
}

/// Coordinates of one patch, the target, as coordinates of another one, the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct View {
    /// The source.
    pub patch: usize,
    /// How its axes map to those of the target.
    pub map: AxisMap,
    /// The source coordinate for coordinate 0 along each axis of the target.
    pub offset: [i64; 2],
    /// Whether a component of a vector along each axis of the target changes its sign.
    pub is_negated: [bool; 2],
}

impl View {
    /// A patch as itself.
    pub fn of(patch: usize) -> Self {
        Self { patch, map: AxisMap::IDENTITY, offset: [0; 2], is_negated: [false; 2] }
    }

    /// The coordinate along the source's axis that corresponds to `axis` of the target.
    pub fn at(&self, axis: usize, coordinate: i64) -> i64 {
        self.offset[axis] + if self.map.flipped[axis] { -coordinate } else { coordinate }
    }

    /// The source of `behind`, whose target is the source of this view.
    pub fn then(&self, behind: &Self) -> Self {
        let mut all = Self { patch: behind.patch, ..*self };
        all.map.swapped ^= behind.map.swapped;
        for axis in 0..2 {
            let between = self.map.source_axis(axis);
            all.offset[axis] = behind.at(between, self.offset[axis]);
            all.map.flipped[axis] ^= behind.map.flipped[between];
            all.is_negated[axis] ^= behind.is_negated[between];
        }
        all
    }
}

fn join(from: PatchSide, to: PatchSide, is_reversed: bool, patches: &[[usize; 2]]) -> Crossing {
    let length = |side: PatchSide, axis: usize| 2 * patches[side.patch][axis] as i64;
    let (along, axis) = (1 - from.axis, from.axis);
    let line = if from.is_high { length(from, axis) } else { 0 };
    let begin = if to.is_high { length(to, to.axis) } else { 0 };
    let mut map = AxisMap { swapped: from.axis != to.axis, flipped: [false; 2] };
    let mut offset = [0; 2];
    // Outwards from one side is inwards from the other.
    map.flipped[axis] = from.is_high == to.is_high;
    offset[axis] = if map.flipped[axis] { begin + line } else { begin - line };
    map.flipped[along] = is_reversed;
    offset[along] = if is_reversed { length(from, along) } else { 0 };
    Crossing { line, view: View { patch: to.patch, map, offset, is_negated: map.flipped } }
}

fn fold(side: PatchSide, pivot: Pivot, patches: &[[usize; 2]]) -> Crossing {
    let length = |axis: usize| 2 * patches[side.patch][axis] as i64;
    let along = 1 - side.axis;
    let inwards = i64::from(pivot == Pivot::Cell);
    let line = if side.is_high { length(side.axis) - inwards } else { inwards };
    let mut offset = [0; 2];
    offset[side.axis] = 2 * line;
    offset[along] = length(along) + 2 * inwards;
    let map = AxisMap { swapped: false, flipped: [true; 2] };
    Crossing { line, view: View { patch: side.patch, map, offset, is_negated: [true; 2] } }
}

fn pole(side: PatchSide, patches: &[[usize; 2]]) -> Crossing {
    let cells = |axis: usize| patches[side.patch][axis] as i64;
    let along = 1 - side.axis;
    let line = if side.is_high { 2 * cells(side.axis) } else { 0 };
    let (mut map, mut offset) = (AxisMap::IDENTITY, [0; 2]);
    map.flipped[side.axis] = true;
    offset[side.axis] = 2 * line;
    // Half the cells along the side.
    offset[along] = cells(along);
    // Behind the pole, north is south and east is west, although cells along the side are counted on.
    Crossing { line, view: View { patch: side.patch, map, offset, is_negated: [true; 2] } }
}
