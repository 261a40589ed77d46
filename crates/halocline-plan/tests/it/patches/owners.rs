//! Values on lines that several patches share have one owner, and the cells of an interior are those that no exchange fills.

use super::walk::random_world;
use super::{exchange, filled, parts, plans, quantities, shapes};
use halocline_plan::{
    Along, Cells, Corners, Halo, PatchError, PatchGrid, PatchSide, PatternError, PatternPlan, Pivot,
    Quantity, Seam,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

/// A point of a patch, in half cells.
type Point = (usize, [i64; 2]);

/// All points of all patches, each with a point that stands for all that the seams say are the same.
struct Points {
    first: BTreeMap<Point, Point>,
}

impl Points {
    fn of(grid: &PatchGrid, joints: &[(PatchSide, PatchSide, bool)]) -> Self {
        let mut points = Self { first: BTreeMap::new() };
        for (patch, extents) in grid.extents().iter().enumerate() {
            for row in 0..=2 * extents[0] as i64 {
                for column in 0..=2 * extents[1] as i64 {
                    points.first.insert((patch, [row, column]), (patch, [row, column]));
                }
            }
        }
        for (one, other, is_reversed) in joints {
            let length = 2 * grid.extents()[one.patch][1 - one.axis] as i64;
            let end = |side: &PatchSide| {
                if side.is_high { 2 * grid.extents()[side.patch][side.axis] as i64 } else { 0 }
            };
            let on = |side: &PatchSide, at: i64| {
                let mut point = [at; 2];
                point[side.axis] = end(side);
                (side.patch, point)
            };
            for at in 0..=length {
                points.join(on(one, at), on(other, if *is_reversed { length - at } else { at }));
            }
        }
        points
    }

    fn find(&self, point: Point) -> Point {
        let first = self.first[&point];
        if first == point { point } else { self.find(first) }
    }

    fn join(&mut self, one: Point, other: Point) {
        let (one, other) = (self.find(one), self.find(other));
        self.first.insert(one.max(other), one.min(other));
    }
}

/// Checks that values of one point agree after an exchange, in whole patches and in their halos. `None` if the seams do not carry
/// the quantity.
fn agree(
    grid: &PatchGrid,
    joints: &[(PatchSide, PatchSide, bool)],
    places: [Along; 2],
    width: usize,
) -> Option<()> {
    let quantity = Quantity::scalar(places);
    let cut = grid.decompose_into(&vec![[1, 1]; grid.extents().len()], 1).expect("whole patches");
    match cut.pattern_of(0, &quantity, &Halo::uniform(width)) {
        Err(PatternError::Patch(
            PatchError::NotHeld { .. } | PatchError::Places { .. } | PatchError::HaloTooWide { .. },
        )) => return None,
        result => drop(result.expect("a pattern")),
    }
    let plans = plans(&cut, &quantity, &Halo::uniform(width));
    let value = |patch: u64, [row, column]: [i64; 2]| patch as f64 * 1e4 + (row * 100 + column) as f64 + 1.0;
    let mut arrays = filled(&plans, value);
    exchange(&plans, &mut arrays);
    let points = Points::of(grid, joints);
    let first = |place: Along| match place {
        Along::Centre => 1,
        Along::Faces | Along::LowFaces => 0,
        Along::HighFaces => 2,
    };
    let mut found: BTreeMap<Point, (f64, Point)> = BTreeMap::new();
    for (patch, shape) in shapes(&plans) {
        let (_, _, low, extents) = parts(&shape);
        for at in 0..extents[0] * extents[1] {
            let cell = [at / extents[1] - low[0], at % extents[1] - low[1]];
            let point = (patch as usize, [0, 1].map(|axis| 2 * cell[axis] + first(places[axis])));
            if !points.first.contains_key(&point) {
                continue;
            }
            let value = arrays[&patch][at as usize];
            let (other, there) = *found.entry(points.find(point)).or_insert((value, point));
            // What is on the border of its patch beside an open side has no value there.
            assert!(
                value == other || value.is_nan() || other.is_nan(),
                "{places:?}: {point:?} has {value}, the same point {there:?} has {other}"
            );
        }
    }
    Some(())
}

#[test]
fn a_point_beside_an_open_border_is_filled_from_its_owner() {
    let (low, high) = (PatchSide::low, PatchSide::high);
    // An L of three patches.
    let seams = vec![Seam::join(high(0, 1), low(1, 1)), Seam::join(high(1, 0), low(2, 0))];
    let grid = PatchGrid::new(vec![[3, 3]; 3], seams).expect("a grid");
    let cut = grid.decompose_into(&[[1, 1]; 3], 1).expect("whole patches");
    let plans = plans(&cut, &Quantity::scalar([Along::HighFaces; 2]), &Halo::uniform(1));
    let mut arrays = filled(&plans, |patch, [row, column]| (patch as i64 * 100 + row * 10 + column) as f64);
    exchange(&plans, &mut arrays);
    // The value before column 0 in the last row of patch 1 is the last value of patch 0.
    assert_eq!(arrays[&1][3 * 5], 22.0);
}

proptest! {
    // Many seams do not carry the quantity.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_global_rejects: 1 << 20,
        ..ProptestConfig::default()
    })]

    #[test]
    fn values_of_one_point_agree(world in random_world(), places in prop::array::uniform2(0usize..4), width in 0usize..3) {
        let places = places.map(|place| [Along::Centre, Along::Faces, Along::HighFaces, Along::LowFaces][place]);
        let cells = world.extent();
        let checked = agree(&world.grid(), &world.joined(), places, width.min(cells));
        prop_assume!(checked.is_some());
    }
}

#[test]
fn the_interior_reads_nothing_that_an_exchange_fills() {
    let grids = [
        PatchGrid::cubed_sphere(5).and_then(|grid| grid.corners(Corners::ThroughAxis(0))),
        PatchGrid::tripolar([6, 8], Pivot::Cell),
        PatchGrid::latitude_longitude([6, 8]),
    ];
    let mut with_copies = 0;
    for grid in grids {
        let cut = grid.and_then(|grid| grid.decompose(3)).expect("a decomposition");
        for quantity in quantities() {
            for plan in plans(&cut, &quantity, &Halo::uniform(1)) {
                for (id, _) in &plan.domains {
                    with_copies += usize::from(has_copies(&plan, *id));
                    for width in 0..=2 {
                        check_interior(&plan, *id, width);
                    }
                }
            }
        }
    }
    assert!(with_copies > 0, "no domain has copies");
}

/// The cells of a domain that an exchange fills, as local indices.
fn filled_cells(plan: &PatternPlan, id: u64) -> HashSet<[i64; 2]> {
    let shape = plan.domain(id).expect("a domain");
    let (_, _, low, _) = parts(shape);
    let received = plan.peers.iter().flat_map(|peer| &peer.receives).chain(&plan.local);
    let mut cells = HashSet::new();
    for transfer in received.filter(|transfer| transfer.to == id) {
        let Cells::Box(target) = &transfer.target else { panic!("patches have boxes") };
        for row in 0..target.extent[0] as i64 {
            for column in 0..target.extent[1] as i64 {
                cells.insert([target.low[0] + row + low[0], target.low[1] + column + low[1]]);
            }
        }
    }
    cells
}

fn has_copies(plan: &PatternPlan, id: u64) -> bool {
    let owned = plan.domain(id).expect("a domain").owned_cells();
    let is_owned = |cell: &[i64; 2]| (0..2).all(|axis| owned[axis].contains(&(cell[axis] as usize)));
    filled_cells(plan, id).iter().any(is_owned)
}

fn check_interior(plan: &PatternPlan, id: u64, width: i64) {
    let filled = filled_cells(plan, id);
    let interior = plan.interior(id, width as usize).expect("a domain");
    let boundary = plan.boundary(id, width as usize).expect("a domain");
    for row in interior[0].clone() {
        for column in interior[1].clone() {
            for away in -width..=width {
                let (row, column) = (row as i64, column as i64);
                for read in [[row + away, column], [row, column + away]] {
                    assert!(
                        !filled.contains(&read),
                        "domain {id}, width {width}: {row}, {column} reads {read:?}"
                    );
                }
            }
        }
    }
    let count = |cells: &[std::ops::Range<usize>]| cells.iter().map(|range| range.len()).product::<usize>();
    let owned = count(&plan.domain(id).expect("a domain").owned_cells());
    let all: usize = boundary.iter().map(|cells| count(cells)).sum();
    assert_eq!(count(&interior) + all, owned, "domain {id}, width {width}");
}

#[test]
fn a_halo_far_behind_an_open_side_costs_nothing() {
    let around = Seam::join(PatchSide::low(0, 1), PatchSide::high(0, 1));
    let cut = PatchGrid::new(vec![[4, 4]], vec![around])
        .and_then(|grid| grid.decompose(2))
        .expect("a decomposition");
    let halo = Halo::per_axis([(1_000_000, 0), (1, 1)]);
    assert!(cut.pattern_of(0, &Quantity::cells(), &halo).is_ok());
}
