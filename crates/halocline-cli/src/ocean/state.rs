//! Temperature and velocity of the model's state, anywhere on a refined mesh.

use super::geometry::{Frame, Vector, middle, spherical_area};
use super::input::Fesom;
use super::mesh::Mesh;

/// Mesh and state, which all ranks of a process share. Fields on the refined mesh are interpolated on the ranks that need them, so that
/// their memory is divided among the ranks.
pub struct Case {
    /// The model's mesh and state.
    pub fesom: Fesom,
    /// The refined mesh, which the simulation uses.
    pub mesh: Mesh,
    /// Velocity at the nodes of the model's mesh, nodes x layers; empty if the mesh is not refined.
    node_velocity: Vec<Vector>,
}

impl Case {
    /// The state on the mesh refined `refinements` times.
    pub fn new(fesom: Fesom, refinements: u32) -> Result<Self, halocline::MeshError> {
        let mesh = Mesh::new(&fesom, refinements)?;
        let node_velocity = if refinements == 0 { Vec::new() } else { node_velocity(&fesom) };
        Ok(Self { fesom, mesh, node_velocity })
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.fesom.layers()
    }

    /// Thickness of each layer, m.
    pub fn thickness(&self) -> Vec<f64> {
        self.fesom.interfaces.windows(2).map(|ends| ends[0] - ends[1]).collect()
    }

    /// Number of layers above the bottom of a triangle, which is that of the model's triangle around it.
    pub fn triangle_layers(&self, triangle: usize) -> usize {
        self.fesom.triangle_layers[self.mesh.ancestor(triangle)]
    }

    /// Initial temperature at a node, deg C, by linear interpolation; 0 below the bottom.
    pub fn temperature(&self, node: usize, column: &mut [f64]) {
        let origin = self.mesh.origins[node];
        let share = 1.0 / f64::from(1u32 << self.mesh.refinements);
        let parents = || origin.nodes.into_iter().zip(origin.weights).filter(|&(_, weight)| weight > 0);
        // All parents are corners of each triangle around the node, so that they have water in every layer in which the node has water.
        let layers = parents().map(|(node, _)| self.fesom.node_layers[node as usize]).min().unwrap_or(0);
        column.fill(0.0);
        for (parent, weight) in parents() {
            let given = &self.fesom.temperature[parent as usize * self.layers()..][..layers];
            let weight = f64::from(weight) * share;
            column.iter_mut().zip(given).for_each(|(value, &given)| *value += weight * f64::from(given));
        }
    }

    /// Velocity in a triangle to the model's east (`u`) and north (`v`), m/s, 0 below the bottom. In a refined mesh it is interpolated
    /// linearly between means at the nodes.
    pub fn velocity(&self, triangle: usize, u: &mut [f64], v: &mut [f64]) {
        let (layers, ancestor) = (self.triangle_layers(triangle), self.mesh.ancestor(triangle));
        u.fill(0.0);
        v.fill(0.0);
        let columns = u.iter_mut().zip(v).take(layers).enumerate();
        if self.mesh.refinements == 0 {
            let row = ancestor * self.layers();
            columns.for_each(|(layer, (u, v))| {
                *u = f64::from(self.fesom.u[row + layer]);
                *v = f64::from(self.fesom.v[row + layer]);
            });
            return;
        }
        let corners = self.fesom.triangles[ancestor].map(|node| node as usize * self.layers());
        let weights = self.middle_weights(triangle);
        let frame = Frame::at(middle(&self.mesh.corners(triangle)));
        columns.for_each(|(layer, (u, v))| {
            let [a, b, c] = corners.map(|row| self.node_velocity[row + layer]);
            let mean = std::array::from_fn(|axis| {
                weights[0] * a[axis] + weights[1] * b[axis] + weights[2] * c[axis]
            });
            [*u, *v] = frame.components(mean);
        });
    }

    /// Barycentric coordinates of a triangle's middle in the model's triangle around it.
    fn middle_weights(&self, triangle: usize) -> [f64; 3] {
        let around = self.fesom.triangles[self.mesh.ancestor(triangle)];
        let unit = 1.0 / f64::from(3u32 << self.mesh.refinements);
        around.map(|parent| {
            let corners = self.mesh.triangles()[triangle].map(|node| self.mesh.origins[node as usize]);
            let parts = corners.iter().flat_map(|origin| origin.nodes.iter().zip(origin.weights));
            let weight: u32 = parts.filter(|&(&node, _)| node == parent).map(|(_, w)| u32::from(w)).sum();
            f64::from(weight) * unit
        })
    }
}

/// Means at the nodes over the triangles that have water in a layer, weighted by area.
fn node_velocity(fesom: &Fesom) -> Vec<Vector> {
    let layers = fesom.layers();
    let mut sums = vec![[0.0; 3]; fesom.nodes.len() * layers];
    let mut areas = vec![0.0; fesom.nodes.len() * layers];
    for (triangle, nodes) in fesom.triangles.iter().enumerate() {
        let corners = nodes.map(|node| fesom.nodes[node as usize]);
        let (frame, area) = (Frame::at(middle(&corners)), spherical_area(corners));
        for layer in 0..fesom.triangle_layers[triangle] {
            let at = triangle * layers + layer;
            let velocity = frame.vector([f64::from(fesom.u[at]), f64::from(fesom.v[at])]);
            for cell in nodes.map(|node| node as usize * layers + layer) {
                areas[cell] += area;
                sums[cell] = std::array::from_fn(|axis| sums[cell][axis] + area * velocity[axis]);
            }
        }
    }
    let mean = |(sum, area): (Vector, f64)| if area > 0.0 { sum.map(|sum| sum / area) } else { sum };
    sums.into_iter().zip(areas).map(mean).collect()
}
