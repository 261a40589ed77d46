//! A walk from cell to cell, one step at a time: across a seam the walker turns as the seam says.

use super::{exchange, filled, parts, plans, quantities, same_as_whole_patches, shapes};
use halocline_plan::{Along, Halo, PatchGrid, PatchSide, Pivot, Quantity, Seam};
use proptest::prelude::*;

/// A cell, and the directions in its patch (axis, and whether upwards) that the walker takes for axes 0 and 1.
#[derive(Debug, Clone, Copy)]
struct Walker {
    patch: usize,
    cell: [i64; 2],
    axes: [(usize, bool); 2],
    /// Whether a vector's components change their sign, beside the turns.
    turned_over: bool,
}

/// How two sides are joined, as the test gives it to the grid.
#[derive(Debug, Clone, Copy)]
enum Joint {
    Join(PatchSide, PatchSide, bool),
    Pole(PatchSide),
    FoldAtCorner(PatchSide),
}

impl Joint {
    fn seam(self) -> Seam {
        match self {
            Self::Join(one, other, false) => Seam::join(one, other),
            Self::Join(one, other, true) => Seam::join_reversed(one, other),
            Self::Pole(side) => Seam::pole(side),
            Self::FoldAtCorner(side) => Seam::fold(side, Pivot::Corner),
        }
    }
}

pub struct World {
    patches: Vec<[i64; 2]>,
    joints: Vec<Joint>,
}

impl World {
    /// The cells along each axis of the first patch.
    pub fn extent(&self) -> usize {
        self.patches[0][0] as usize
    }

    /// The joined sides, and whether each pair runs in opposite directions.
    pub fn joined(&self) -> Vec<(PatchSide, PatchSide, bool)> {
        let joined = |joint: &Joint| match *joint {
            Joint::Join(one, other, is_reversed) => Some((one, other, is_reversed)),
            Joint::Pole(_) | Joint::FoldAtCorner(_) => None,
        };
        self.joints.iter().filter_map(joined).collect()
    }

    pub fn grid(&self) -> PatchGrid {
        let patches = self.patches.iter().map(|cells| cells.map(|n| n as usize)).collect();
        let seams = self.joints.iter().map(|joint| joint.seam()).collect();
        PatchGrid::new(patches, seams).unwrap_or_else(|error| panic!("{error}"))
    }

    /// One step along an axis of the walker; `None` at a border.
    fn step(&self, mut walker: Walker, axis: usize, upwards: bool) -> Option<Walker> {
        let (along, is_up) = walker.axes[axis];
        let is_high = is_up == upwards;
        walker.cell[along] += if is_high { 1 } else { -1 };
        if (0..self.patches[walker.patch][along]).contains(&walker.cell[along]) {
            return Some(walker);
        }
        let side = PatchSide { patch: walker.patch, axis: along, is_high };
        let at = walker.cell[1 - along];
        let length = self.patches[side.patch][1 - along];
        for joint in &self.joints {
            let (to, at, is_reversed) = match *joint {
                Joint::Join(one, other, is_reversed) if one == side => (other, at, is_reversed),
                Joint::Join(one, other, is_reversed) if other == side => (one, at, is_reversed),
                Joint::Pole(pole) if pole == side => {
                    walker.turned_over ^= true;
                    (pole, (at + length / 2) % length, false)
                }
                Joint::FoldAtCorner(fold) if fold == side => (fold, at, true),
                _ => continue,
            };
            let inwards = !to.is_high;
            let turn = |(old, is_up): (usize, bool)| match old == along {
                // Outwards becomes inwards.
                true => (to.axis, (is_up == is_high) == inwards),
                false => (1 - to.axis, is_up != is_reversed),
            };
            walker.axes = walker.axes.map(turn);
            walker.patch = to.patch;
            walker.cell[to.axis] = if to.is_high { self.patches[to.patch][to.axis] - 1 } else { 0 };
            walker.cell[1 - to.axis] = if is_reversed { length - 1 - at } else { at };
            return Some(walker);
        }
        None
    }

    fn walk(&self, from: Walker, steps: [(usize, i64); 2]) -> Option<Walker> {
        let mut walker = from;
        for (axis, count) in steps {
            for _ in 0..count.abs() {
                walker = self.step(walker, axis, count > 0)?;
            }
        }
        Some(walker)
    }

    /// The ends of both ways to a halo cell: along axis 0 first, along axis 1 first.
    fn ways(&self, patch: usize, cell: [i64; 2]) -> Option<[Walker; 2]> {
        let clamp = |axis: usize| cell[axis].clamp(0, self.patches[patch][axis] - 1);
        let inside = [clamp(0), clamp(1)];
        let start = Walker { patch, cell: inside, axes: [(0, true), (1, true)], turned_over: false };
        let away = [(0, cell[0] - inside[0]), (1, cell[1] - inside[1])];
        Some([self.walk(start, away)?, self.walk(start, [away[1], away[0]])?])
    }

    /// The number that a halo cell of a component copies: both ways around a corner lead to it. NaN if they do not.
    fn expected(&self, patch: usize, cell: [i64; 2], component: Option<usize>) -> f64 {
        let shown = |walker: Walker| match component {
            None => value(walker.patch as u64, 0, walker.cell),
            Some(component) => {
                let (axis, is_up) = walker.axes[component];
                // Across a pole the rows run backwards, which the walker counts as a turn of one component; both change their sign.
                let is_up = is_up != (walker.turned_over && component == 1);
                let of = value(walker.patch as u64, axis as u64, walker.cell);
                if is_up { of } else { -of }
            }
        };
        match self.ways(patch, cell).map(|ways| ways.map(shown)) {
            Some([one, other]) if one == other => one,
            _ => f64::NAN,
        }
    }

    /// Compares all halo cells of whole patches, for scalars and both components of vectors, with walks.
    fn check(&self, halo: &Halo) {
        let grid = self.grid();
        let cut = grid.decompose_into(&vec![[1, 1]; self.patches.len()], 1).expect("whole patches");
        for quantity in [Quantity::cells(), Quantity::cell_vectors()] {
            let components = quantity.components() as u64;
            let plans = plans(&cut, &quantity, halo);
            let mut arrays = filled(&plans, |number, at| value(number / components, number % components, at));
            exchange(&plans, &mut arrays);
            for (number, shape) in shapes(&plans) {
                let (_, _, low, extents) = parts(&shape);
                let (patch, component) = ((number / components) as usize, (number % components) as usize);
                for index in 0..extents[0] * extents[1] {
                    let cell = [index / extents[1] - low[0], index % extents[1] - low[1]];
                    let expected = self.expected(patch, cell, (components == 2).then_some(component));
                    let found = arrays[&number][index as usize];
                    assert!(
                        found == expected || found.is_nan() && expected.is_nan(),
                        "patch {patch}, component {component}, cell {cell:?}: {found}, by a walk {expected}"
                    );
                }
            }
        }
    }
}

/// The number in a cell of a component of a patch.
fn value(patch: u64, component: u64, [row, column]: [i64; 2]) -> f64 {
    (2 * patch + component) as f64 * 1e4 + (row * 100 + column) as f64 + 1.0
}

fn low(patch: usize, axis: usize) -> PatchSide {
    PatchSide::low(patch, axis)
}

fn high(patch: usize, axis: usize) -> PatchSide {
    PatchSide::high(patch, axis)
}

fn around(patch: usize) -> Joint {
    Joint::Join(low(patch, 1), high(patch, 1), false)
}

#[test]
fn halos_across_poles_are_those_of_a_walk() {
    let world = World {
        patches: vec![[5, 8]],
        joints: vec![around(0), Joint::Pole(low(0, 0)), Joint::Pole(high(0, 0))],
    };
    for width in 1..=5 {
        world.check(&Halo::uniform(width));
    }
    assert_eq!(world.grid(), PatchGrid::latitude_longitude([5, 8]).expect("a grid"));
}

#[test]
fn halos_across_a_fold_are_those_of_a_walk() {
    let world = World { patches: vec![[5, 8]], joints: vec![around(0), Joint::FoldAtCorner(high(0, 0))] };
    for width in 1..=5 {
        world.check(&Halo::uniform(width));
    }
    assert_eq!(world.grid(), PatchGrid::tripolar([5, 8], Pivot::Corner).expect("a grid"));
}

#[test]
fn a_torus_and_a_klein_bottle_are_those_of_a_walk() {
    for is_reversed in [false, true] {
        let rows = Joint::Join(low(0, 0), high(0, 0), is_reversed);
        World { patches: vec![[4, 6]], joints: vec![around(0), rows] }
            .check(&Halo::per_axis([(2, 3), (1, 4)]));
    }
}

pub fn random_world() -> impl Strategy<Value = World> {
    // Square patches, so that any two sides can be joined. Sides in random order, joined in pairs.
    (1usize..5, 1i64..5).prop_flat_map(|(patches, cells)| {
        let sides: Vec<PatchSide> = (0..patches)
            .flat_map(|patch| [low(patch, 0), high(patch, 0), low(patch, 1), high(patch, 1)])
            .collect();
        let joined = 0..=sides.len() / 2;
        (Just(sides).prop_shuffle(), joined, prop::collection::vec(any::<bool>(), 8)).prop_map(
            move |(sides, joined, reversed)| {
                let pairs = sides.chunks_exact(2).take(joined).zip(&reversed);
                let joints = pairs.map(|(pair, reversed)| Joint::Join(pair[0], pair[1], *reversed)).collect();
                World { patches: vec![[cells; 2]; patches], joints }
            },
        )
    })
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.patches, self.joints)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn halos_of_random_patches_are_those_of_walks(world in random_world(), widths in prop::collection::vec(0usize..5, 4)) {
        let cells = world.patches[0][0] as usize;
        let width = |at: usize| widths[at].min(cells);
        world.check(&Halo::per_axis([(width(0), width(1)), (width(2), width(3))]));
    }

    #[test]
    fn blocks_of_random_patches_have_the_halos_of_whole_patches(
        world in random_world(),
        ranks in 1usize..5,
        blocks in prop::collection::vec((1usize..4, 1usize..4), 5),
        width in 0usize..4,
        quantity in 0usize..6,
    ) {
        let cells = world.patches[0][0] as usize;
        let grid = world.grid();
        let blocks: Vec<[usize; 2]> =
            world.patches.iter().zip(blocks).map(|(_, (rows, columns))| [rows.min(cells), columns.min(cells)]).collect();
        let domains: usize = blocks.iter().map(|blocks| blocks[0] * blocks[1]).sum();
        let cut = grid.decompose_into(&blocks, ranks.min(domains)).expect("a decomposition");
        same_as_whole_patches(&cut, &quantities()[quantity], &Halo::uniform(width.min(cells)));
    }
}

#[test]
fn blocks_of_named_grids_have_the_halos_of_whole_patches() {
    let grids = [
        PatchGrid::cubed_sphere(6),
        PatchGrid::lat_lon_cap(4),
        PatchGrid::latitude_longitude([6, 8]),
        PatchGrid::tripolar([7, 10], Pivot::Corner),
        PatchGrid::tripolar([7, 10], Pivot::Cell),
    ];
    for grid in grids.map(|grid| grid.expect("a grid")) {
        let cut = grid.decompose(5).expect("a decomposition");
        for quantity in quantities() {
            same_as_whole_patches(&cut, &quantity, &Halo::per_axis([(2, 3), (3, 1)]));
        }
    }
    let orca =
        PatchGrid::tripolar([7, 10], Pivot::Cell).expect("a grid").decompose(5).expect("a decomposition");
    let faces = Quantity::vector([Along::Centre, Along::HighFaces], [Along::HighFaces, Along::Centre]);
    same_as_whole_patches(&orca, &faces, &Halo::uniform(2));
}

/// Half a turn from most blocks lies beyond the patch, from where the columns go on at its other end.
#[test]
fn ranks_on_both_sides_of_a_pole_know_each_other() {
    for (columns, ranks) in [(20, 6), (24, 8), (34, 7)] {
        let grid = PatchGrid::latitude_longitude([5, columns]).expect("a grid");
        let cut = grid.decompose_into(&[[1, ranks]], ranks).expect("blocks");
        for quantity in quantities() {
            plans(&cut, &quantity, &Halo::uniform(1));
        }
    }
}
