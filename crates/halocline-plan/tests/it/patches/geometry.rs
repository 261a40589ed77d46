//! The cubed sphere, beside its geometry: values are functions of the place on the sphere, components those of the
//! tangent vectors along the axes of each tile.

use super::{exchange, filled, parts, plans, shapes};
use halocline_plan::{Along, Corners, Halo, PatchDecomposition, PatchGrid, Quantity, cubed_sphere_point};

const N: i64 = 5;

/// The place of a value of a tile, from 0 to 1 along both axes, on the sphere.
fn point(tile: usize, along: [f64; 2]) -> [f64; 3] {
    cubed_sphere_point(tile, along).expect("a tile")
}

fn is_near(a: [f64; 3], b: [f64; 3]) -> bool {
    a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9)
}

fn first(along: Along) -> f64 {
    match along {
        Along::Faces | Along::LowFaces => 0.0,
        Along::Centre => 0.5,
        Along::HighFaces => 1.0,
    }
}

/// A place beyond one side of a tile, as one of the neighbour: found by the places of the side itself. Returns tile,
/// place, and the neighbour's directions (axis and sign) of both axes.
fn beyond(tile: usize, place: [f64; 2]) -> (usize, [f64; 2], [(usize, f64); 2]) {
    let outside: Vec<usize> = (0..2).filter(|&axis| !(0.0..=1.0).contains(&place[axis])).collect();
    let [axis] = outside[..] else { return (tile, place, [(0, 1.0), (1, 1.0)]) };
    let side = if place[axis] > 1.0 { 1.0 } else { 0.0 };
    let depth = (place[axis] - side).abs();
    let on_side = |at: f64| {
        let mut on_side = place;
        (on_side[axis], on_side[1 - axis]) = (side, at);
        on_side
    };
    let at = place[1 - axis];
    for other in (0..6).filter(|&other| other != tile) {
        for (other_axis, other_side) in [(0, 0.0), (0, 1.0), (1, 0.0), (1, 1.0)] {
            for is_reversed in [false, true] {
                let there = |at: f64| {
                    let mut there = [0.0; 2];
                    (there[other_axis], there[1 - other_axis]) =
                        (other_side, if is_reversed { 1.0 - at } else { at });
                    there
                };
                let same = |at: f64| is_near(point(tile, on_side(at)), point(other, there(at)));
                if !(same(0.1) && same(0.7)) {
                    continue;
                }
                let mut place = there(at);
                let inwards = if other_side == 0.0 { 1.0 } else { -1.0 };
                place[other_axis] += inwards * depth;
                let outwards = if side == 1.0 { 1.0 } else { -1.0 };
                let mut axes = [(0, 0.0); 2];
                axes[axis] = (other_axis, inwards * outwards);
                axes[1 - axis] = (1 - other_axis, if is_reversed { -1.0 } else { 1.0 });
                return (other, place, axes);
            }
        }
    }
    panic!("no tile beside tile {tile} at {place:?}")
}

/// A function of the place on the sphere, which differs from place to place.
fn scalar([x, y, z]: [f64; 3]) -> f64 {
    (3.0 * x + 1.0).sin() + 2.0 * (2.0 * y - z).cos() + x * z
}

/// The components of a rotation's velocity along both axes of the tile, at a place: covariant ones, or contravariant
/// ones. Those along a side are continuous across it if covariant, those through it if contravariant.
fn components(tile: usize, place: [f64; 2], is_covariant: bool) -> [f64; 2] {
    let dot = |a: [f64; 3], b: [f64; 3]| (0..3).map(|i| a[i] * b[i]).sum::<f64>();
    let tangent = |axis: usize| {
        let at = |step: f64| {
            let mut moved = place;
            moved[axis] += step;
            point(tile, moved)
        };
        let (ahead, back) = (at(1e-6), at(-1e-6));
        [0, 1, 2].map(|i| (ahead[i] - back[i]) / 2e-6)
    };
    let [x, y, z] = point(tile, place);
    let turn = [0.3, -0.5, 0.8];
    let velocity = [turn[1] * z - turn[2] * y, turn[2] * x - turn[0] * z, turn[0] * y - turn[1] * x];
    let tangents = [tangent(0), tangent(1)];
    let [first, second] = tangents.map(|tangent| dot(tangent, velocity));
    if is_covariant {
        return [first, second];
    }
    let (a, b, c) =
        (dot(tangents[0], tangents[0]), dot(tangents[0], tangents[1]), dot(tangents[1], tangents[1]));
    let determinant = a * c - b * b;
    [(c * first - b * second) / determinant, (a * second - b * first) / determinant]
}

/// Whether all values held and all halo cells beside one side are those of their places. Values behind corners are NaN.
fn check(cut: &PatchDecomposition, quantity: &Quantity, places: &[[Along; 2]], width: usize) {
    let count = quantity.components();
    let place_of = |component: usize, at: [i64; 2]| {
        [0, 1].map(|axis| (at[axis] as f64 + first(places[component][axis])) / N as f64)
    };
    let value = |tile: usize, which: usize, place: [f64; 2]| match count {
        1 => scalar(point(tile, place)),
        _ => components(tile, place, places[0][0] == Along::Centre)[which],
    };
    let tile = |number: u64| cut.block(number / count as u64).expect("a domain").patch;
    let plans = plans(cut, quantity, &Halo::uniform(width));
    let mut arrays = filled(&plans, |number, at| {
        let which = number as usize % count;
        value(tile(number), which, place_of(which, at))
    });
    exchange(&plans, &mut arrays);
    for (number, shape) in shapes(&plans) {
        let which = number as usize % count;
        let (first, _, low, extents) = parts(&shape);
        for index in 0..extents[0] * extents[1] {
            let at = [first[0] + index / extents[1] - low[0], first[1] + index % extents[1] - low[1]];
            let place = place_of(which, at);
            let outside = place.iter().filter(|at| !(-1e-9..=1.0 + 1e-9).contains(*at)).count();
            let expected = match outside {
                2 => f64::NAN,
                _ => {
                    let (tile, place, axes) = beyond(tile(number), place);
                    let (axis, sign) = axes[which];
                    if count == 1 { value(tile, 0, place) } else { sign * value(tile, axis, place) }
                }
            };
            let found = arrays[&number][index as usize];
            assert!(
                (found - expected).abs() < 1e-7 || found.is_nan() && expected.is_nan(),
                "tile {}, {:?}, component {which}, {at:?}: {found}, on the sphere {expected}",
                tile(number),
                places[which]
            );
        }
    }
}

#[test]
fn halos_of_the_cubed_sphere_are_values_of_their_places() {
    use Along::{Centre, Faces, HighFaces, LowFaces};
    let grid = PatchGrid::cubed_sphere(N as usize).expect("a grid");
    for ranks in [1, 4, 24] {
        let cut = grid.decompose(ranks).expect("a decomposition");
        for width in [1, N as usize] {
            check(&cut, &Quantity::cells(), &[[Centre; 2]], width);
            check(&cut, &Quantity::corners(), &[[Faces; 2]], width);
            check(&cut, &Quantity::cell_vectors(), &[[Centre; 2]; 2], width);
            check(&cut, &Quantity::c_grid(), &[[Faces, Centre], [Centre, Faces]], width);
            check(&cut, &Quantity::d_grid(), &[[Centre, Faces], [Faces, Centre]], width);
            for faces in [HighFaces, LowFaces] {
                for places in [[[faces, Centre], [Centre, faces]], [[Centre, faces], [faces, Centre]]] {
                    check(&cut, &Quantity::vector(places[0], places[1]), &places, width);
                }
            }
        }
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
