//! Temperature and velocity of the model's state.

use super::input::Fesom;
use super::mesh::Mesh;

/// Mesh and state, which all ranks of a process share.
pub struct Case {
    /// The model's mesh and state.
    pub fesom: Fesom,
    /// The mesh, as the simulation uses it.
    pub mesh: Mesh,
}

impl Case {
    /// The state of these files.
    pub fn new(fesom: Fesom) -> Result<Self, halocline::MeshError> {
        Ok(Self { mesh: Mesh::new(&fesom)?, fesom })
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.fesom.layers()
    }

    /// Thickness of each layer, m.
    pub fn thickness(&self) -> Vec<f64> {
        self.fesom.interfaces.windows(2).map(|ends| ends[0] - ends[1]).collect()
    }

    /// Number of layers above the bottom of a triangle.
    pub fn triangle_layers(&self, triangle: usize) -> usize {
        self.fesom.triangle_layers[triangle]
    }

    /// Initial temperature at a node, deg C, 0 below the bottom.
    pub fn temperature(&self, node: usize, column: &mut [f64]) {
        self.column(&self.fesom.temperature, node, self.fesom.node_layers[node], column);
    }

    /// Velocity in a triangle to the model's east (`u`) and north (`v`), m/s, 0 below the bottom.
    pub fn velocity(&self, triangle: usize, u: &mut [f64], v: &mut [f64]) {
        self.column(&self.fesom.u, triangle, self.triangle_layers(triangle), u);
        self.column(&self.fesom.v, triangle, self.triangle_layers(triangle), v);
    }

    /// Copies the column of a cell, which has `wet` layers above the bottom. The layers below get 0.
    fn column(&self, field: &[f32], cell: usize, wet: usize, column: &mut [f64]) {
        let given = &field[cell * self.layers()..][..wet];
        column.fill(0.0);
        column.iter_mut().zip(given).for_each(|(value, &given)| *value = f64::from(given));
    }
}
