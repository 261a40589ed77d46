//! The global mesh.

use super::geometry::Vector;
use super::input::Fesom;
use halocline::MeshError;

/// The model's mesh of the sphere. It is the same on every rank.
pub struct Mesh {
    /// Each node as a point of the unit sphere.
    pub positions: Vec<Vector>,
    /// The nodes of each triangle, counterclockwise seen from above.
    pub topology: halocline::Mesh,
}

impl Mesh {
    /// The mesh of these files.
    pub fn new(fesom: &Fesom) -> Result<Self, MeshError> {
        let corners = fesom.triangles.as_flattened().to_vec();
        let topology = halocline::Mesh::new(fesom.nodes.len(), 3, corners)?;
        Ok(Self { positions: fesom.nodes.clone(), topology })
    }

    /// The corners of each triangle.
    pub fn triangles(&self) -> &[[u32; 3]] {
        // The topology has only triangles, so that the chunks have no remainder.
        self.topology.elements().connectivity().as_chunks().0
    }

    /// The corners of a triangle on the unit sphere.
    pub fn corners(&self, triangle: usize) -> [Vector; 3] {
        self.triangles()[triangle].map(|node| self.positions[node as usize])
    }
}
