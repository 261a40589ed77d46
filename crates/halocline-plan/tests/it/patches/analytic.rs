//! Poles and folds, beside functions of the place on the sphere: the formula of each grid continues across its seams, so that the
//! value of each halo cell, also behind corners, is that of its own row and column.

use super::{exchange, filled, parts, plans, shapes};
use halocline_plan::{Along, Halo, PatchGrid, Pivot, Quantity};
use std::f64::consts::{PI, TAU};

type Point = [f64; 3];

pub fn first(along: Along) -> f64 {
    match along {
        Along::Faces | Along::LowFaces => 0.0,
        Along::Centre => 0.5,
        Along::HighFaces => 1.0,
    }
}

/// A function of the place on the sphere, which differs from place to place.
pub fn scalar([x, y, z]: Point) -> f64 {
    (3.0 * x + 1.0).sin() + 2.0 * (2.0 * y - z).cos() + x * z
}

/// The velocity of a rotation of the sphere.
fn velocity([x, y, z]: Point) -> Point {
    let turn = [0.3, -0.5, 0.8];
    [turn[1] * z - turn[2] * y, turn[2] * x - turn[0] * z, turn[0] * y - turn[1] * x]
}

fn dot(a: Point, b: Point) -> f64 {
    (0..3).map(|i| a[i] * b[i]).sum()
}

/// The tangents along both axes at a place, and the covariant components of a rotation's velocity.
pub fn covariant(place: [f64; 2], point: impl Fn([f64; 2]) -> Point) -> ([Point; 2], [f64; 2]) {
    let tangents = [0, 1].map(|axis| {
        let at = |step: f64| {
            let mut moved = place;
            moved[axis] += step;
            point(moved)
        };
        let (ahead, back) = (at(1e-6), at(-1e-6));
        [0, 1, 2].map(|i| (ahead[i] - back[i]) / 2e-6)
    });
    (tangents, tangents.map(|tangent| dot(tangent, velocity(point(place)))))
}

/// One patch on the sphere, whose formulas hold beyond its sides.
struct Formula<'a> {
    point: &'a dyn Fn([f64; 2]) -> Point,
    /// The components of the rotation's velocity.
    components: &'a dyn Fn([f64; 2]) -> [f64; 2],
    /// Whether the low side of axis 0 is open, so that nothing is filled behind it. At a pole it is not.
    is_open_below: bool,
}

impl Formula<'_> {
    fn check(&self, grid: &PatchGrid, ranks: usize, quantity: &Quantity, width: usize) {
        let cut = grid.decompose(ranks).expect("a decomposition");
        let count = quantity.components();
        let value = |number: u64, at: [i64; 2]| {
            let which = number as usize % count;
            let along = quantity.place(which).expect("a component");
            let place = [0, 1].map(|axis| at[axis] as f64 + first(along[axis]));
            match count {
                1 => scalar((self.point)(place)),
                _ => (self.components)(place)[which],
            }
        };
        let plans = plans(&cut, quantity, &Halo::uniform(width));
        let mut arrays = filled(&plans, value);
        exchange(&plans, &mut arrays);
        for (number, shape) in shapes(&plans) {
            let (first, _, low, extents) = parts(&shape);
            for index in 0..extents[0] * extents[1] {
                let at = [first[0] + index / extents[1] - low[0], first[1] + index % extents[1] - low[1]];
                let (found, expected) = (arrays[&number][index as usize], value(number, at));
                let is_open = self.is_open_below && at[0] < 0;
                assert!(
                    if is_open { found.is_nan() } else { (found - expected).abs() < 1e-7 },
                    "{ranks} ranks, {quantity:?}, domain {number}, {at:?}: {found}, on the sphere {expected}"
                );
            }
        }
    }
}

const ROWS: usize = 6;
const COLUMNS: usize = 8;

/// Quantities at all places, and those with values on high and on low faces.
fn quantities(faces: &[Along]) -> Vec<Quantity> {
    let mut all = super::quantities();
    for &of in faces {
        all.push(Quantity::scalar([of; 2]));
        all.push(Quantity::vector([of, Along::Centre], [Along::Centre, of]));
    }
    all
}

#[test]
fn halos_behind_poles_are_values_of_their_places() {
    let angles = |[row, column]: [f64; 2]| [PI * (row / ROWS as f64 - 0.5), TAU * column / COLUMNS as f64];
    let point = |place: [f64; 2]| {
        let [latitude, longitude] = angles(place);
        [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()]
    };
    // Northwards and eastwards. Behind a pole, they continue those before it.
    let components = |place: [f64; 2]| {
        let [latitude, longitude] = angles(place);
        let north = [-latitude.sin() * longitude.cos(), -latitude.sin() * longitude.sin(), latitude.cos()];
        let east = [-longitude.sin(), longitude.cos(), 0.0];
        [north, east].map(|direction| dot(direction, velocity(point(place))))
    };
    let formula = Formula { point: &point, components: &components, is_open_below: false };
    let grid = PatchGrid::latitude_longitude([ROWS, COLUMNS]).expect("a grid");
    for quantity in quantities(&[]) {
        for (ranks, width) in [(1, 1), (1, ROWS - 1), (4, 1), (4, 3), (12, 2)] {
            formula.check(&grid, ranks, &quantity, width);
        }
    }
}

/// A cap whose fold lies between two points: rows and columns are the lines of constant real and imaginary part of `w` in `z = cos w`, a plane
/// that is projected to the sphere from its pole. The cosine has the same value at `w` and at `-w`: the fold.
#[test]
fn halos_behind_folds_are_values_of_their_places() {
    for (pivot, half) in [(Pivot::Corner, 0.0), (Pivot::Cell, 0.5)] {
        let point = |[row, column]: [f64; 2]| {
            let real = TAU * (column - half) / COLUMNS as f64;
            let imaginary = 0.3 * (ROWS as f64 - half - row);
            let (x, y) = (real.cos() * imaginary.cosh(), -real.sin() * imaginary.sinh());
            let square = x * x + y * y;
            [2.0 * x / (1.0 + square), 2.0 * y / (1.0 + square), (1.0 - square) / (1.0 + square)]
        };
        let components = |place: [f64; 2]| covariant(place, point).1;
        let formula = Formula { point: &point, components: &components, is_open_below: true };
        let grid = PatchGrid::tripolar([ROWS, COLUMNS], pivot).expect("a grid");
        let faces: &[Along] =
            if pivot == Pivot::Cell { &[Along::HighFaces, Along::LowFaces] } else { &[Along::HighFaces] };
        for quantity in quantities(faces) {
            for (ranks, width) in [(1, 1), (1, ROWS - 2), (4, 1), (4, 3), (12, 2)] {
                formula.check(&grid, ranks, &quantity, width);
            }
        }
    }
}
