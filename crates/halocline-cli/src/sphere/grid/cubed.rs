//! The cubed sphere.

use super::{Grid, Polygon, Topology};
use halocline::{PatchGrid, PatternError, cubed_sphere_point};

/// Six tiles of n x n cells, numbered tile by tile, in row-major order.
#[derive(Debug)]
pub(crate) struct Cubed {
    pub(super) n: usize,
}

impl Grid for Cubed {
    fn cells(&self) -> usize {
        6 * self.n * self.n
    }

    fn polygon(&self, cell: usize) -> Polygon {
        let (tile, at) = (self.patch(cell), cell % (self.n * self.n));
        let (row, column) = (at / self.n, at % self.n);
        let corner = |[row, column]: [usize; 2]| {
            let along = [row, column].map(|at| at as f64 / self.n as f64);
            // The tile is one of the six.
            cubed_sphere_point(tile, along).unwrap_or_default()
        };
        let corners = [[row, column], [row, column + 1], [row + 1, column + 1], [row + 1, column]];
        Polygon::quadrilateral(corners.map(corner))
    }

    fn topology(&self) -> Result<Topology<'_>, PatternError> {
        PatchGrid::cubed_sphere(self.n).map(Topology::Patches)
    }

    fn patch(&self, cell: usize) -> usize {
        cell / (self.n * self.n)
    }
}
