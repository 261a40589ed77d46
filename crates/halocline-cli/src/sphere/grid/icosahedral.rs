//! The icosahedral grid.

use super::{Grid, Polygon, Topology};
use crate::geometry::Vector;
use halocline::{IcosahedralGrid, MeshError, PatternError};

/// The triangles of an icosahedron with bisected edges.
#[derive(Debug)]
pub(crate) struct Icosahedral {
    grid: IcosahedralGrid,
    /// Triangles in each triangle of the icosahedron.
    in_face: usize,
}

impl Icosahedral {
    /// Number of triangles.
    pub(crate) fn triangles(level: usize) -> usize {
        20 << (2 * level)
    }

    /// The icosahedron whose edges are bisected `level` times.
    pub(super) fn new(level: usize) -> Result<Self, MeshError> {
        let grid = IcosahedralGrid::new(level)?;
        let in_face = grid.mesh().elements().len() / 20;
        Ok(Self { grid, in_face })
    }
}

impl Grid for Icosahedral {
    fn cells(&self) -> usize {
        self.grid.mesh().elements().len()
    }

    fn polygon(&self, cell: usize) -> Polygon {
        let vertices = self.grid.mesh().elements().get(cell);
        let corner = |at: usize| -> Vector { self.grid.points()[vertices[at] as usize] };
        Polygon::triangle([corner(0), corner(1), corner(2)])
    }

    fn topology(&self) -> Result<Topology<'_>, PatternError> {
        Ok(Topology::Triangles { mesh: self.grid.mesh(), file: None })
    }

    fn patch(&self, cell: usize) -> usize {
        cell / self.in_face
    }
}
