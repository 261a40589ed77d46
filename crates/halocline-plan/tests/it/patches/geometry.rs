//! The cubed sphere and LLC grids, beside their geometry: values are functions of the place on the sphere, components those of
//! the tangent vectors along the axes of each patch.

use super::analytic::{covariant, first, scalar};
use super::{exchange, filled, parts, plans, shapes};
use halocline_plan::{
    Along, Corners, Halo, PatchDecomposition, PatchGrid, PatchSide, Quantity, cubed_sphere_point,
};
use std::collections::HashMap;

const N: i64 = 5;

/// Patches on the sphere.
struct Surface {
    extents: Vec<[f64; 2]>,
    /// The place on the sphere of a place in a patch, which is counted in cells.
    point: fn(usize, [f64; 2]) -> [f64; 3],
    /// What lies behind each side.
    behind: HashMap<PatchSide, Behind>,
}

/// What lies behind a side: a side of another patch, and whether its cells are counted the other way.
#[derive(Clone, Copy)]
struct Behind {
    side: PatchSide,
    is_reversed: bool,
}

fn sides(patch: usize) -> impl Iterator<Item = PatchSide> {
    (0..2).flat_map(move |axis| [PatchSide::low(patch, axis), PatchSide::high(patch, axis)])
}

fn on_cubed_sphere(tile: usize, place: [f64; 2]) -> [f64; 3] {
    cubed_sphere_point(tile, place.map(|at| at / N as f64)).expect("a tile")
}

/// LLC patches around a block that stands on end, seen from the middle of the cube below its top, so that the size of cells does not jump at its edges: the cap is its top, with columns eastwards and rows
/// northwards. Patches 0 and 1 count rows up to its western and its southern edge and columns around the block; patches 3 and 4 count
/// columns down from its eastern and its northern edge and rows around the block.
fn on_lat_lon_cap(patch: usize, [row, column]: [f64; 2]) -> [f64; 3] {
    let n = N as f64;
    let [x, y, z] = match patch {
        0 => [0.0, n - column, row - 3.0 * n],
        1 => [column, 0.0, row - 3.0 * n],
        2 => [column, row, 0.0],
        3 => [n, row, -column],
        _ => [n - row, n, -column],
    };
    let from_centre = [x - n / 2.0, y - n / 2.0, z + n / 2.0];
    let length = from_centre.iter().map(|at| at * at).sum::<f64>().sqrt();
    from_centre.map(|at| at / length)
}

fn is_near(a: [f64; 3], b: [f64; 3]) -> bool {
    a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9)
}

/// Where a place of a patch lies in the patch that has it.
struct Beyond {
    patch: usize,
    place: [f64; 2],
    /// That patch's directions (axis and sign) of both axes.
    axes: [(usize, f64); 2],
}

impl Surface {
    /// Finds what is behind each side by the places of its points.
    fn of(grid: &PatchGrid, point: fn(usize, [f64; 2]) -> [f64; 3]) -> Self {
        let extents: Vec<_> =
            grid.extents().iter().map(|extents| extents.map(|cells| cells as f64)).collect();
        let mut surface = Self { extents, point, behind: HashMap::new() };
        let all: Vec<PatchSide> = (0..surface.extents.len()).flat_map(sides).collect();
        for side in &all {
            let beside = all.iter().filter(|other| other.patch != side.patch);
            let found = beside
                .flat_map(|other| [false, true].map(|is_reversed| Behind { side: *other, is_reversed }))
                .find(|behind| surface.is_behind(*side, *behind));
            surface.behind.extend(found.map(|found| (*side, found)));
        }
        surface
    }

    /// How long a side is.
    fn length(&self, side: PatchSide) -> f64 {
        self.extents[side.patch][1 - side.axis]
    }

    /// A place of a patch: so far within a side, and so far along it.
    fn inside(&self, side: PatchSide, depth: f64, along: f64) -> [f64; 2] {
        let mut place = [along; 2];
        place[side.axis] = if side.is_high { self.extents[side.patch][side.axis] - depth } else { depth };
        place
    }

    fn is_behind(&self, side: PatchSide, behind: Behind) -> bool {
        let length = self.length(side);
        let same = |along: f64| {
            let there = if behind.is_reversed { length - along } else { along };
            let [here, there] = [(side, along), (behind.side, there)]
                .map(|(side, along)| (side.patch, self.inside(side, 0.0, along)));
            is_near((self.point)(here.0, here.1), (self.point)(there.0, there.1))
        };
        self.length(behind.side) == length && same(0.1 * length) && same(0.7 * length)
    }

    /// A place of a patch or beyond one side, as one of the neighbour. `None` behind corners and open sides.
    fn beyond(&self, patch: usize, place: [f64; 2]) -> Option<Beyond> {
        let depth = |side: &PatchSide| match side.is_high {
            true => place[side.axis] - self.extents[patch][side.axis],
            false => -place[side.axis],
        };
        let outside: Vec<PatchSide> = sides(patch).filter(|side| depth(side) > 1e-9).collect();
        let side = match outside[..] {
            [] => return Some(Beyond { patch, place, axes: [(0, 1.0), (1, 1.0)] }),
            [side] => side,
            _ => return None,
        };
        let Behind { side: there, is_reversed } = *self.behind.get(&side)?;
        let along = place[1 - side.axis];
        let along = if is_reversed { self.length(side) - along } else { along };
        let mut axes = [(0, 0.0); 2];
        axes[side.axis] = (there.axis, if side.is_high == there.is_high { -1.0 } else { 1.0 });
        axes[1 - side.axis] = (1 - there.axis, if is_reversed { -1.0 } else { 1.0 });
        Some(Beyond { patch: there.patch, place: self.inside(there, depth(&side), along), axes })
    }

    /// Whether a value of a patch, by its row and column, lies behind an open side.
    fn is_open(&self, patch: usize, at: [i64; 2], along: [Along; 2]) -> bool {
        sides(patch).filter(|side| !self.behind.contains_key(side)).any(
            |PatchSide { axis, is_high, .. }| {
                let count = along[axis].count(self.extents[patch][axis] as usize) as i64;
                if is_high { at[axis] >= count } else { at[axis] < 0 }
            },
        )
    }

    /// Whether any patch holds values of this kind at a place: on the line of an open side, the patch beside it alone can.
    fn is_held(&self, Beyond { patch, place, .. }: &Beyond, along: [Along; 2]) -> bool {
        sides(*patch).filter(|side| !self.behind.contains_key(side)).all(|side| {
            let is_on_side = (place[side.axis] - self.inside(side, 0.0, 0.0)[side.axis]).abs() < 1e-9;
            let lacks = if side.is_high { Along::LowFaces } else { Along::HighFaces };
            !is_on_side || along[side.axis] != lacks
        })
    }

    /// The components of a rotation's velocity along both axes of the patch, at a place: covariant ones, or contravariant
    /// ones. Those along a side are continuous across it if covariant, those through it if contravariant.
    fn components(&self, patch: usize, place: [f64; 2], is_covariant: bool) -> [f64; 2] {
        let (tangents, [first, second]) = covariant(place, |place| (self.point)(patch, place));
        if is_covariant {
            return [first, second];
        }
        let dot = |a: [f64; 3], b: [f64; 3]| (0..3).map(|i| a[i] * b[i]).sum::<f64>();
        let (a, b, c) =
            (dot(tangents[0], tangents[0]), dot(tangents[0], tangents[1]), dot(tangents[1], tangents[1]));
        let determinant = a * c - b * b;
        [(c * first - b * second) / determinant, (a * second - b * first) / determinant]
    }

    /// Checks that all values held and all halo cells beside one side are those of their places. Values behind corners and open
    /// sides are not filled.
    fn check(&self, cut: &PatchDecomposition, quantity: &Quantity, places: &[[Along; 2]], width: usize) {
        let count = quantity.components();
        let place_of = |component: usize, at: [i64; 2]| {
            [0, 1].map(|axis| at[axis] as f64 + first(places[component][axis]))
        };
        let value = |patch: usize, which: usize, place: [f64; 2]| match count {
            1 => scalar((self.point)(patch, place)),
            _ => self.components(patch, place, places[0][0] == Along::Centre)[which],
        };
        let patch = |number: u64| cut.block(number / count as u64).expect("a domain").patch;
        let plans = plans(cut, quantity, &Halo::uniform(width));
        let mut arrays = filled(&plans, |number, at| {
            let which = number as usize % count;
            value(patch(number), which, place_of(which, at))
        });
        exchange(&plans, &mut arrays);
        for (number, shape) in shapes(&plans) {
            let which = number as usize % count;
            let (first, _, low, extents) = parts(&shape);
            for index in 0..extents[0] * extents[1] {
                let at = [first[0] + index / extents[1] - low[0], first[1] + index % extents[1] - low[1]];
                let is_open = self.is_open(patch(number), at, places[which]);
                let beyond = self.beyond(patch(number), place_of(which, at));
                let held = beyond.filter(|beyond| {
                    let there = if count == 1 { 0 } else { beyond.axes[which].0 };
                    !is_open && self.is_held(beyond, places[there])
                });
                let expected = match held {
                    None => f64::NAN,
                    Some(Beyond { patch, place, .. }) if count == 1 => value(patch, 0, place),
                    Some(Beyond { patch, place, axes }) => axes[which].1 * value(patch, axes[which].0, place),
                };
                let found = arrays[&number][index as usize];
                assert!(
                    (found - expected).abs() < 1e-7 || found.is_nan() && expected.is_nan(),
                    "patch {}, {:?}, component {which}, {at:?}: {found}, on the sphere {expected}",
                    patch(number),
                    places[which]
                );
            }
        }
    }

    /// Scalars and vectors at all places that this grid may have.
    fn check_all(&self, cut: &PatchDecomposition, width: usize) {
        use Along::{Centre, Faces, HighFaces, LowFaces};
        self.check(cut, &Quantity::cells(), &[[Centre; 2]], width);
        self.check(cut, &Quantity::corners(), &[[Faces; 2]], width);
        self.check(cut, &Quantity::cell_vectors(), &[[Centre; 2]; 2], width);
        self.check(cut, &Quantity::c_grid(), &[[Faces, Centre], [Centre, Faces]], width);
        self.check(cut, &Quantity::d_grid(), &[[Centre, Faces], [Faces, Centre]], width);
        for faces in [HighFaces, LowFaces] {
            for places in [[[faces, Centre], [Centre, faces]], [[Centre, faces], [faces, Centre]]] {
                self.check(cut, &Quantity::vector(places[0], places[1]), &places, width);
            }
        }
    }
}

#[test]
fn halos_of_the_cubed_sphere_are_values_of_their_places() {
    let grid = PatchGrid::cubed_sphere(N as usize).expect("a grid");
    let widest = N as usize;
    // Halos as wide as a tile around blocks of few cells come from very many.
    for (ranks, width) in [(1, 1), (1, widest), (4, 1), (4, widest), (24, 1), (24, 3)] {
        let cut = grid.decompose(ranks).expect("a decomposition");
        Surface::of(&grid, on_cubed_sphere).check_all(&cut, width);
    }
}

#[test]
fn halos_of_lat_lon_cap_grids_are_values_of_their_places() {
    let grid = PatchGrid::lat_lon_cap(N as usize).expect("a grid");
    for (ranks, width) in [(1, 1), (1, N as usize), (7, 1), (7, N as usize)] {
        let cut = grid.decompose(ranks).expect("a decomposition");
        Surface::of(&grid, on_lat_lon_cap).check_all(&cut, width);
    }
}

#[test]
fn each_value_of_the_cubed_sphere_has_one_owner() {
    let n = N as usize;
    let grid = PatchGrid::cubed_sphere(n).expect("a grid").decompose(6).expect("a decomposition");
    for (quantity, values) in [
        (Quantity::cells(), 6 * n * n),
        // Euler's formula: corners = edges - faces + 2.
        (Quantity::corners(), 6 * n * n + 2),
        (Quantity::c_grid(), 12 * n * n),
        (Quantity::d_grid(), 12 * n * n),
    ] {
        let mut held = 0;
        let mut copies = 0;
        for rank in 0..6 {
            let plan = grid.pattern_of(rank, &quantity, &Halo::uniform(0)).expect("a pattern");
            held += plan
                .domains
                .iter()
                .map(|(_, shape)| shape.extents().iter().product::<usize>())
                .sum::<usize>();
            let received = plan.peers.iter().flat_map(|peer| &peer.receives).chain(&plan.local);
            copies += received.map(|transfer| transfer.target.count()).sum::<usize>();
        }
        assert_eq!(held - copies, values, "{quantity:?}");
    }
}

/// As FV3 fills corners (`fill_corners`, on its A grid): for sweeps along x, which is axis 1, from the halo to the west and the east; for
/// those along y from that to the south and the north.
#[test]
fn corners_of_three_tiles_are_those_of_fv3() {
    const WIDTH: i64 = 3;
    for axis in 0..2 {
        let grid = PatchGrid::cubed_sphere(4).and_then(|grid| grid.corners(Corners::ThroughAxis(axis)));
        let cut = grid.and_then(|grid| grid.decompose_into(&[[1, 1]; 6], 2)).expect("tiles");
        let plans = plans(&cut, &Quantity::cells(), &Halo::uniform(WIDTH as usize));
        let mut arrays = filled(&plans, |number, at| (number * 100) as f64 + (at[0] * 10 + at[1]) as f64);
        exchange(&plans, &mut arrays);
        for (tile, array) in &arrays {
            // The cell that is so deep behind each side, or so far within it.
            let at = |is_high: [bool; 2], depths: [i64; 2]| {
                let along =
                    |axis: usize| if is_high[axis] { WIDTH + 3 + depths[axis] } else { WIDTH - depths[axis] };
                array[(along(0) * (4 + 2 * WIDTH) + along(1)) as usize]
            };
            for is_high in [[false, false], [false, true], [true, false], [true, true]] {
                for (row, column) in (1..=WIDTH).flat_map(|row| (1..=WIDTH).map(move |column| (row, column)))
                {
                    let source = if axis == 0 { [1 - column, row] } else { [column, 1 - row] };
                    let (found, due) = (at(is_high, [row, column]), at(is_high, source));
                    assert!(
                        found == due,
                        "tile {tile}, {is_high:?}, {row}, {column}: {found} instead of {due}"
                    );
                }
            }
        }
    }
}
