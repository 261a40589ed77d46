//! The tripolar grid of a NetCDF file as NEMO writes it: the corners of the cells from their bounds, the land from the fill values of a
//! field.
//!
//! The file has the whole grid without the halo of the model. Its northern side is folded at the centres of the last row (the T-point pivot:
//! the second half of the row repeats the first one) or at its corners (the F-point pivot). Neighbours of water must share a side. Cells of
//! land need not: models move rows and columns of land to where they want finer cells.

mod error;
mod file;
#[cfg(test)]
mod tests;

pub(crate) use error::NemoError;

use super::{Grid, Polygon, ROUNDING, Topology, distance};
use crate::geometry::{Vector, on_sphere, spherical_area};
use file::Contents;
use halocline::{PatchGrid, PatternError, Pivot};
use std::ops::RangeInclusive;
use std::path::Path;

/// Rows of a file.
const ROWS: RangeInclusive<usize> = 4..=16_384;
/// Columns of a file.
const COLUMNS: RangeInclusive<usize> = 4..=16_384;
/// Longitudes and latitudes are at most this far from 0, degrees.
const MOST_DEGREES: [f64; 2] = [720.0, 90.0];

/// Rows from south to north and columns from west to east, numbered row by row.
pub(crate) struct Nemo {
    rows: usize,
    columns: usize,
    pivot: Pivot,
    /// The corners of each cell, from the south-west.
    corners: Vec<[Vector; 4]>,
    is_land: Vec<bool>,
}

/// A row and a column.
type Place = (usize, usize);

/// The sides of a cell, each from the corner of this number to the next one.
const SOUTH: usize = 0;
const EAST: usize = 1;
const NORTH: usize = 2;
const WEST: usize = 3;

impl Nemo {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, NemoError> {
        Self::new(path, file::read(path)?)
    }

    /// The grid with other land: where `is_land` says so of the centre of a cell.
    #[cfg(test)]
    pub(crate) fn with_land(mut self, is_land: impl Fn(Vector) -> bool) -> Self {
        self.is_land = (0..self.cells()).map(|cell| is_land(self.polygon(cell).centre())).collect();
        self
    }

    fn new(path: &Path, contents: Contents) -> Result<Self, NemoError> {
        let Contents { rows, columns, .. } = contents;
        let corners = (0..rows * columns).map(|cell| corners_of(path, &contents, cell));
        let corners = corners.collect::<Result<_, _>>()?;
        let mut grid = Self { rows, columns, pivot: Pivot::Cell, corners, is_land: contents.is_land };
        if grid.water().next().is_none() {
            return Err(NemoError::NoWater { path: path.into() });
        }
        if let Some((row, column)) = grid.water().find(|&place| !grid.is_counterclockwise(place)) {
            return Err(NemoError::Clockwise { path: path.into(), row, column });
        }
        grid.check_sides(path)?;
        grid.pivot = match (grid.unfolded(Pivot::Cell), grid.unfolded(Pivot::Corner)) {
            (None, _) => Pivot::Cell,
            (_, None) => Pivot::Corner,
            (Some(cell), Some(corner)) => return Err(NemoError::NoFold { path: path.into(), cell, corner }),
        };
        Ok(grid)
    }

    fn water(&self) -> impl Iterator<Item = Place> {
        (0..self.is_land.len())
            .filter(|&cell| !self.is_land[cell])
            .map(|cell| (cell / self.columns, cell % self.columns))
    }

    fn is_water(&self, (row, column): Place) -> bool {
        !self.is_land[row * self.columns + column]
    }

    fn corners(&self, (row, column): Place) -> [Vector; 4] {
        self.corners[row * self.columns + column]
    }

    fn is_counterclockwise(&self, place: Place) -> bool {
        let [a, b, c, d] = self.corners(place);
        [[a, b, c], [a, c, d], [a, b, d], [b, c, d]].into_iter().all(|three| spherical_area(three) > 0.0)
    }

    /// Whether a side of a cell is that of another cell, seen from there.
    fn share(&self, (place, side): (Place, usize), (there, side_there): (Place, usize)) -> bool {
        let (here, there) = (self.corners(place), self.corners(there));
        let is_same = |here: Vector, there: Vector| distance(here, there) <= ROUNDING;
        is_same(here[side], there[(side_there + 1) % 4]) && is_same(here[(side + 1) % 4], there[side_there])
    }

    /// Refuses neighbours of water without a common side, apart from the fold.
    fn check_sides(&self, path: &Path) -> Result<(), NemoError> {
        for (row, column) in self.water() {
            let east = Some(((row, (column + 1) % self.columns), EAST, WEST));
            let north = (row + 1 < self.rows).then_some(((row + 1, column), NORTH, SOUTH));
            for (next, side, side_there) in [east, north].into_iter().flatten() {
                if self.is_water(next) && !self.share(((row, column), side), (next, side_there)) {
                    let (next_row, next_column) = next;
                    return Err(NemoError::Apart { path: path.into(), row, column, next_row, next_column });
                }
            }
        }
        Ok(())
    }

    /// The first column of the last row that is not folded as with this pivot. A cell that repeats another one is land as that is.
    fn unfolded(&self, pivot: Pivot) -> Option<usize> {
        let last = self.rows - 1;
        (0..self.columns).find(|&column| {
            let (here, there) = ((last, column), (last, self.partner(pivot, column)));
            let is_water = [here, there].map(|place| self.is_water(place));
            match (pivot, is_water) {
                (Pivot::Cell, [true, true]) => !self.is_turned(here, there),
                (Pivot::Cell, _) => is_water[0] != is_water[1],
                (Pivot::Corner, _) => is_water == [true, true] && !self.share((here, NORTH), (there, NORTH)),
            }
        })
    }

    /// Whether two cells are one cell, turned by half a turn.
    fn is_turned(&self, here: Place, there: Place) -> bool {
        let (here, there) = (self.corners(here), self.corners(there));
        (0..4).all(|corner| distance(here[corner], there[(corner + 2) % 4]) <= ROUNDING)
    }

    /// The column of the last row that the fold joins with a column.
    fn partner(&self, pivot: Pivot, column: usize) -> usize {
        match pivot {
            Pivot::Cell => (self.columns - column) % self.columns,
            Pivot::Corner => self.columns - 1 - column,
        }
    }
}

/// The corners of a cell. Those of land can be anything: where they are no places, they become one point.
fn corners_of(path: &Path, contents: &Contents, cell: usize) -> Result<[Vector; 4], NemoError> {
    let mut corners = [[0.0, 0.0, -1.0]; 4];
    let degrees = |corner: usize| [0, 1].map(|axis: usize| contents.corners[axis].degrees[4 * cell + corner]);
    let is_valid = |axis: usize, degrees: f64| degrees.abs() <= MOST_DEGREES[axis];
    for (corner, point) in corners.iter_mut().enumerate() {
        let degrees = degrees(corner);
        let Some(axis) = (0..2).find(|&axis| !is_valid(axis, degrees[axis])) else {
            *point = on_sphere(degrees[0], degrees[1]);
            continue;
        };
        if contents.is_land[cell] {
            return Ok([[0.0, 0.0, -1.0]; 4]);
        }
        return Err(NemoError::Corner {
            path: path.into(),
            variable: contents.corners[axis].name.clone(),
            row: cell / contents.columns,
            column: cell % contents.columns,
            found: degrees[axis],
            most: MOST_DEGREES[axis],
        });
    }
    Ok(corners)
}

impl Grid for Nemo {
    fn cells(&self) -> usize {
        self.corners.len()
    }

    fn polygon(&self, cell: usize) -> Polygon {
        Polygon::quadrilateral(self.corners[cell])
    }

    fn topology(&self) -> Result<Topology<'_>, PatternError> {
        PatchGrid::tripolar([self.rows, self.columns], self.pivot).map(Topology::Patches)
    }

    fn patch(&self, _: usize) -> usize {
        0
    }

    fn is_land(&self, cell: usize) -> bool {
        self.is_land[cell]
    }

    fn original(&self, cell: usize) -> usize {
        let (row, column) = (cell / self.columns, cell % self.columns);
        let is_last = self.pivot == Pivot::Cell && row + 1 == self.rows;
        if is_last { cell - column + column.min(self.partner(Pivot::Cell, column)) } else { cell }
    }

    fn has_coasts(&self) -> bool {
        true
    }
}
