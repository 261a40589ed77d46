//! The patches of a grid laid out in a plane, joined at some of their sides.

use halocline::{PatchGrid, PatchSide, SeamKind};

/// A place in the plane, in cells: to the right, and upwards.
pub(super) type Place = [i64; 2];

/// A patch in the plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    /// Rows and columns.
    pub(super) extents: [usize; 2],
    /// The corner before row 0 and column 0.
    origin: Place,
    /// Unit steps along axis 0 and axis 1.
    steps: [Place; 2],
}

impl Placed {
    /// The place of a corner of cells of the patch.
    pub(super) fn place(&self, at: [i64; 2]) -> Place {
        [0, 1].map(|along| self.origin[along] + at[0] * self.steps[0][along] + at[1] * self.steps[1][along])
    }

    /// The lower left and the upper right corner of a rectangle, whose corners in the patch are given.
    pub(super) fn rectangle(&self, [low, high]: [[i64; 2]; 2]) -> [Place; 2] {
        let (one, other) = (self.place(low), self.place(high));
        [[0, 1].map(|along| one[along].min(other[along])), [0, 1].map(|along| one[along].max(other[along]))]
    }

    /// The unit step outwards through a side.
    pub(super) fn outwards(&self, side: PatchSide) -> Place {
        let sign = if side.is_high { 1 } else { -1 };
        self.steps[side.axis].map(|step| sign * step)
    }

    /// The unit step along an axis.
    pub(super) fn step(&self, axis: usize) -> Place {
        self.steps[axis]
    }

    /// The ends of a part of a side, by the cells along it.
    pub(super) fn part_of_side(&self, side: PatchSide, cells: [i64; 2]) -> [Place; 2] {
        let line = if side.is_high { self.extents[side.axis] as i64 } else { 0 };
        cells.map(|cell| {
            let mut at = [0; 2];
            (at[side.axis], at[1 - side.axis]) = (line, cell);
            self.place(at)
        })
    }
}

/// All patches in the plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Net {
    /// In the order of their numbers.
    pub(super) patches: Vec<Placed>,
    /// The seams along which patches lie beside each other in the plane.
    pub(super) glued: Vec<usize>,
}

/// Which patch is laid beside which other one: for the cubed sphere a row around the equator with both poles, and for an
/// LLC grid the same without the south pole.
const BESIDE: [[usize; 2]; 5] = [[0, 1], [1, 3], [3, 4], [1, 2], [0, 5]];

impl Net {
    /// The patches of a grid with the numbering of the cubed sphere, or its only patch.
    pub(super) fn of(grid: &PatchGrid) -> Self {
        let upright =
            |patch: usize| Placed { extents: grid.extents()[patch], origin: [0; 2], steps: [[0, 1], [1, 0]] };
        let mut patches: Vec<Placed> = (0..grid.extents().len()).map(upright).collect();
        let mut glued = Vec::new();
        for [placed, next] in BESIDE {
            let Some((seam, sides, is_reversed)) = joined(grid, placed, next) else { continue };
            patches[next] = beside(&patches[placed], sides, is_reversed, patches[next].extents);
            glued.push(seam);
        }
        Self { patches, glued }
    }

    /// The lower left and the upper right corner of all patches.
    pub(super) fn bounds(&self) -> [Place; 2] {
        let join = |[low, high]: [Place; 2], [other_low, other_high]: [Place; 2]| {
            [[0, 1].map(|x| low[x].min(other_low[x])), [0, 1].map(|x| high[x].max(other_high[x]))]
        };
        self.boxes().into_iter().reduce(join).unwrap_or_default()
    }

    /// The lower left and the upper right corner of each patch.
    pub(super) fn boxes(&self) -> Vec<[Place; 2]> {
        self.patches.iter().map(|patch| patch.rectangle([[0; 2], patch.extents.map(|n| n as i64)])).collect()
    }
}

/// The seam that joins two patches, with the side of the first one first.
fn joined(grid: &PatchGrid, one: usize, other: usize) -> Option<(usize, [PatchSide; 2], bool)> {
    grid.seams().iter().enumerate().find_map(|(number, seam)| {
        let SeamKind::Join { is_reversed } = seam.kind() else { return None };
        let [first, second] = seam.sides();
        match (first.patch, second.patch) {
            pair if pair == (one, other) => Some((number, [first, second], is_reversed)),
            pair if pair == (other, one) => Some((number, [second, first], is_reversed)),
            _ => None,
        }
    })
}

/// A patch of these extents behind a side of another one.
fn beside(placed: &Placed, [here, there]: [PatchSide; 2], is_reversed: bool, extents: [usize; 2]) -> Placed {
    let length = extents.map(|cells| cells as i64);
    // The place of a corner of its cells, by the coordinates of the patch that lies already.
    let place = |at: [i64; 2]| {
        let depth = if there.is_high { length[there.axis] - at[there.axis] } else { at[there.axis] };
        let along = at[1 - there.axis];
        let along = if is_reversed { length[1 - there.axis] - along } else { along };
        let mut seen = [0; 2];
        seen[here.axis] = if here.is_high { placed.extents[here.axis] as i64 + depth } else { -depth };
        seen[1 - here.axis] = along;
        placed.place(seen)
    };
    let origin = place([0, 0]);
    let step = |to: [i64; 2]| {
        let to = place(to);
        [to[0] - origin[0], to[1] - origin[1]]
    };
    Placed { extents, origin, steps: [step([1, 0]), step([0, 1])] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(grid: &PatchGrid) -> Vec<[Place; 2]> {
        Net::of(grid).boxes()
    }

    #[test]
    fn the_cubed_sphere_is_a_cross() {
        let grid = PatchGrid::cubed_sphere(4).unwrap();
        let at = |x: i64, y: i64| [[4 * x, 4 * y], [4 * x + 4, 4 * y + 4]];
        assert_eq!(boxes(&grid), [at(0, 0), at(1, 0), at(1, 1), at(2, 0), at(3, 0), at(0, -1)]);
        let net = Net::of(&grid);
        assert_eq!((net.glued.len(), net.bounds()), (5, [[0, -4], [16, 8]]));
        // Tile 3 is turned: its rows run to the right, and its columns downwards.
        assert_eq!((net.patches[3].step(0), net.patches[3].step(1)), ([1, 0], [0, -1]));
        assert_eq!(net.patches[3].place([0, 0]), [8, 4]);
    }

    #[test]
    fn the_caps_of_an_llc_grid_lie_above_its_columns() {
        let found = boxes(&PatchGrid::lat_lon_cap(2).unwrap());
        let column = |x: i64| [[2 * x, 0], [2 * x + 2, 6]];
        assert_eq!(found, [column(0), column(1), [[2, 6], [4, 8]], column(2), column(3)]);
    }

    #[test]
    fn joined_sides_of_the_net_are_the_same_line() {
        let grid = PatchGrid::cubed_sphere(3).unwrap();
        let net = Net::of(&grid);
        for &number in &net.glued {
            let seam = &grid.seams()[number];
            let lines = seam.sides().map(|side| {
                let mut ends = net.patches[side.patch].part_of_side(side, [0, 3]);
                ends.sort_unstable();
                ends
            });
            assert_eq!(lines[0], lines[1], "seam {number}");
        }
    }
}
