//! A tripolar grid: circles of latitude up to [`Tripolar::CAP`], and north of it a bipolar cap.
//!
//! The stereographic projection maps the cap to the unit disk, whose points are complex numbers. Its two poles are 1 and -1, on the
//! border. The curves of constant `across` and `along` are the circles through both poles and the circles of Apollonius around them:
//! they cross at right angles, and the map keeps angles. The last of the former is the straight line between the poles. There the grid is
//! folded: its two banks are the two halves of the northern side.
//!
//! Source: R. J. Murray, "Explicit generation of orthogonal grids for ocean models", J. Comput. Phys. 126 (1996).

use super::{Grid, Polygon, Topology};
use crate::geometry::{Vector, angle, on_sphere};
use halocline::{PatchGrid, PatternError, Pivot};
use std::f64::consts::{FRAC_PI_2, PI};

/// Columns from west to east and rows from south to north, numbered row by row.
#[derive(Debug)]
pub(crate) struct Tripolar {
    columns: usize,
    rows: usize,
    /// Rows south of the cap.
    below: usize,
    /// Radius of land around each northern pole.
    land: f64,
}

impl Tripolar {
    /// Latitude of the southern border, degrees.
    pub(super) const SOUTH: f64 = -80.0;
    /// Latitude where the cap begins, degrees. Both poles lie there.
    const CAP: f64 = 50.0;
    /// Longitude of the first pole, degrees: in Asia. The second one is in North America.
    const POLE: f64 = 80.0;
    /// Radius of land around each northern pole, degrees. Cells become narrow towards it, and steps short. Models place it on land, too.
    const LAND: f64 = 7.0;

    pub(crate) fn new(columns: usize, rows: usize) -> Self {
        // Rows of the cap are as wide at its border as those south of it.
        let cap = (90.0 - Self::CAP).to_radians().sin() * FRAC_PI_2;
        let south = (Self::CAP - Self::SOUTH).to_radians();
        let of_cap = (rows as f64 * cap / (cap + south)).round().max(1.0) as usize;
        Self { columns, rows, below: rows - of_cap.min(rows - 1), land: Self::LAND.to_radians() }
    }

    /// The grid with water up to both poles.
    #[cfg(test)]
    pub(crate) fn without_land(self) -> Self {
        Self { land: 0.0, ..self }
    }

    /// The corner at the south of a row and the west of a column.
    fn corner(&self, row: usize, column: usize) -> Vector {
        let column = column % self.columns;
        if row <= self.below {
            let share = row as f64 / self.below as f64;
            let longitude = Self::POLE + 360.0 * column as f64 / self.columns as f64;
            return on_sphere(longitude, Self::SOUTH + share * (Self::CAP - Self::SOUTH));
        }
        // The second half mirrors the first one, to the last bit.
        let mirrored = column > self.columns / 2;
        let along = if mirrored { self.columns - column } else { column };
        // Half the angle around the disk, as on its border.
        let along = PI * along as f64 / self.columns as f64;
        let across = FRAC_PI_2 * (self.rows - row) as f64 / (self.rows - self.below) as f64;
        let [x, y] = bipolar(along, across);
        self.on_cap([x, if mirrored { -y } else { y }])
    }

    /// The point of the sphere at a point of the disk.
    fn on_cap(&self, [x, y]: [f64; 2]) -> Vector {
        // The inverse of the stereographic projection.
        let scale = (0.5 * (90.0 - Self::CAP).to_radians()).tan();
        let (x, y) = (scale * x, scale * y);
        let square = x * x + y * y;
        let (east, north) = (2.0 * x / (1.0 + square), 2.0 * y / (1.0 + square));
        let (sin, cos) = Self::POLE.to_radians().sin_cos();
        [east * cos - north * sin, east * sin + north * cos, (1.0 - square) / (1.0 + square)]
    }
}

/// The point z of the disk with z = (e^(i across) cos(along) - sin(along)) / (e^(i across) cos(along) + sin(along)). `across` = pi / 2
/// gives the upper half of the border, e^(2 i along), and `across` = 0 the line from 1 to -1.
fn bipolar(along: f64, across: f64) -> [f64; 2] {
    let (sin, cos) = along.sin_cos();
    let (x, y) = (across.cos() * cos, across.sin() * cos);
    let square = (x + sin) * (x + sin) + y * y;
    [((x - sin) * (x + sin) + y * y) / square, 2.0 * y * sin / square]
}

impl Grid for Tripolar {
    fn cells(&self) -> usize {
        self.columns * self.rows
    }

    fn polygon(&self, cell: usize) -> Polygon {
        let (row, column) = (cell / self.columns, cell % self.columns);
        let corners = [[row, column], [row, column + 1], [row + 1, column + 1], [row + 1, column]];
        Polygon::quadrilateral(corners.map(|[row, column]| self.corner(row, column)))
    }

    fn topology(&self) -> Result<Topology<'_>, PatternError> {
        PatchGrid::tripolar([self.rows, self.columns], Pivot::Corner).map(Topology::Patches)
    }

    fn patch(&self, _: usize) -> usize {
        0
    }

    fn is_land(&self, cell: usize) -> bool {
        let centre = self.polygon(cell).centre();
        [0.0, 180.0]
            .into_iter()
            .any(|east| angle(centre, on_sphere(Self::POLE + east, Self::CAP)) < self.land)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{dot, lon_lat, minus};

    #[test]
    fn the_cap_continues_the_circles_of_latitude() {
        let grid = Tripolar::new(24, 30);
        for column in 0..24 {
            // The second half of the circle is the mirror image of the first one.
            let mirrored = column > 12;
            let half = if mirrored { 24 - column } else { column };
            let [x, y] = bipolar(PI * half as f64 / 24.0, FRAC_PI_2);
            let point = grid.on_cap(if mirrored { [x, -y] } else { [x, y] });
            let difference = minus(point, grid.corner(grid.below, column));
            assert!(difference.iter().all(|x| x.abs() < 1e-14), "{column}: {difference:?}");
        }
    }

    #[test]
    fn the_last_row_of_corners_is_folded_onto_itself_through_the_north_pole() {
        let grid = Tripolar::new(24, 30);
        for column in 0..24 {
            assert_eq!(grid.corner(30, column), grid.corner(30, 24 - column), "{column}");
        }
        assert!(lon_lat(grid.corner(30, 6)).1 > 90.0 - 1e-5);
        let poles = [0, 12].map(|column| lon_lat(grid.corner(30, column)));
        assert!((poles[0].0 - 80.0).abs() < 1e-9 && (poles[0].1 - 50.0).abs() < 1e-9, "{poles:?}");
        assert!((poles[1].0 + 100.0).abs() < 1e-9 && (poles[1].1 - 50.0).abs() < 1e-9, "{poles:?}");
    }

    #[test]
    fn lines_cross_at_right_angles() {
        let grid = Tripolar::new(360, 180);
        for (row, column) in [(20, 7), (125, 90), (150, 45), (160, 30), (178, 200), (179, 89)] {
            let here = grid.corner(row, column);
            let east = minus(grid.corner(row, column + 1), here);
            let north = minus(grid.corner(row + 1, column), here);
            let cosine = dot(east, north) / (dot(east, east) * dot(north, north)).sqrt();
            assert!(cosine.abs() < 0.03, "row {row}, column {column}: {cosine}");
        }
    }
}
