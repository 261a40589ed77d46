//! A rank's part of the mesh, with all quantities that are constant in time.

use super::geometry::{EARTH_RADIUS, Triangle, spherical_area};
use super::state::Case;
use crate::stats::Sum;
use halocline::MeshDomains;

/// Diffusivity along the layers for a triangle of 100 km, m^2/s. It is proportional to the size of the triangle.
const HORIZONTAL_DIFFUSIVITY: f64 = 1000.0;

/// The part of one rank. Node and triangle fields have a row of `layers` values for each local cell, in the local order of
/// [`MeshDomains`]: owned cells come first.
///
/// **Order of sums.** Contributions to a node are added triangle by triangle in ascending global order. Every rank computes each of them
/// from the same numbers in the same way. So the result is the same for every partition, to the last bit.
pub struct Domain {
    /// Number of layers.
    pub layers: usize,
    /// Thickness of each layer, m.
    pub thickness: Vec<f64>,
    /// Global number of each owned node, ascending.
    pub owned_nodes: Vec<u64>,
    /// Number of owned triangles, which are the first local ones.
    pub owned_triangles: usize,
    /// Layers above the bottom at each owned node.
    pub node_layers: Vec<usize>,
    /// The local triangles.
    pub triangles: Vec<LocalTriangle>,
    /// Local triangles with an owned corner, in ascending global order.
    pub(super) around_owned: Vec<u32>,
    /// Horizontal area of each owned node's cell in each layer, m^2: a third of each adjacent triangle that has water in the layer.
    pub(super) area: Vec<f64>,
    /// Volume flux upwards through the top of each owned node's cell, m^3/s; 0 at the surface.
    pub(super) rise: Vec<f64>,
    /// Velocity in each local triangle to the model's east, m/s.
    pub(super) u: Vec<f64>,
    /// Velocity to the model's north.
    pub(super) v: Vec<f64>,
}

/// The constants of a triangle.
pub struct LocalTriangle {
    /// Local nodes at the corners.
    pub nodes: [usize; 3],
    /// Layers above the bottom.
    pub layers: usize,
    /// Diffusivity along the layers, m^2/s.
    pub diffusivity: f64,
    /// Shape in the tangent plane.
    pub shape: Triangle,
}

impl Domain {
    /// The part of the rank that has these domains. `potential` corrects the velocities ([`super::rigid_lid`]).
    pub fn new(case: &Case, domains: &MeshDomains, potential: &[f64]) -> Self {
        let layers = case.layers();
        let triangle_ids: Vec<usize> = domains.elements().cells().iter().map(|&id| id as usize).collect();
        let (corners, _) = domains.local_elements().connectivity().as_chunks::<3>();
        let local = |(&id, &corners): (&usize, &[u32; 3])| LocalTriangle::new(case, id, corners);
        let triangles: Vec<LocalTriangle> = triangle_ids.iter().zip(corners).map(local).collect();

        let owned = domains.owned_vertices();
        let touches_owned = |at: &u32| triangles[*at as usize].nodes.iter().any(|&node| node < owned);
        let mut around_owned: Vec<u32> = (0..triangles.len() as u32).filter(touches_owned).collect();
        around_owned.sort_by_key(|&at| triangle_ids[at as usize]);

        let mut domain = Self {
            layers,
            thickness: case.thickness(),
            owned_nodes: domains.vertices().cells()[..owned].to_vec(),
            owned_triangles: domains.owned_elements(),
            node_layers: vec![0; owned],
            around_owned,
            area: vec![0.0; owned * layers],
            rise: vec![0.0; owned * layers],
            u: vec![0.0; triangles.len() * layers],
            v: vec![0.0; triangles.len() * layers],
            triangles,
        };
        domain.set_velocity(case, &triangle_ids, potential);
        domain.set_area(case, &triangle_ids);
        domain.set_rise();
        domain
    }

    fn set_velocity(&mut self, case: &Case, ids: &[usize], potential: &[f64]) {
        let columns = self.u.chunks_exact_mut(self.layers).zip(self.v.chunks_exact_mut(self.layers));
        for ((&id, triangle), (u, v)) in ids.iter().zip(&self.triangles).zip(columns) {
            case.velocity(id, u, v);
            let corners = case.mesh.triangles()[id].map(|node| potential[node as usize]);
            let [x, y] = gradient(&triangle.shape, corners);
            u[..triangle.layers].iter_mut().for_each(|u| *u -= x);
            v[..triangle.layers].iter_mut().for_each(|v| *v -= y);
        }
    }

    fn set_area(&mut self, case: &Case, ids: &[usize]) {
        for &at in &self.around_owned {
            let triangle = &self.triangles[at as usize];
            let third =
                spherical_area(case.mesh.corners(ids[at as usize])) * EARTH_RADIUS * EARTH_RADIUS / 3.0;
            for node in triangle.nodes.into_iter().filter(|&node| node < self.owned_nodes.len()) {
                let column = &mut self.area[node * self.layers..][..triangle.layers];
                column.iter_mut().for_each(|area| *area += third);
                self.node_layers[node] = self.node_layers[node].max(triangle.layers);
            }
        }
    }

    /// Continuity from the bottom up: the flux through a cell's top is the flux through its bottom plus the net horizontal inflow.
    fn set_rise(&mut self) {
        let mut rise = std::mem::take(&mut self.rise);
        self.each_flow(|layer, from, to, flow| {
            for (node, inflow) in [(from, -flow), (to, flow)] {
                if node < self.owned_nodes.len() {
                    rise[node * self.layers + layer] += inflow;
                }
            }
        });
        for column in rise.chunks_exact_mut(self.layers) {
            let mut below = 0.0;
            for cell in column.iter_mut().rev() {
                below += *cell;
                *cell = below;
            }
            // The transport of the column has no divergence, so that this value is rounding.
            column[0] = 0.0;
        }
        self.rise = rise;
    }

    /// Calls `visit` for each wet median-dual face in a triangle with an owned node: with its layer, two nodes, and the volume flux from
    /// the first node to the second, m^3/s.
    pub(super) fn each_flow(&self, mut visit: impl FnMut(usize, usize, usize, f64)) {
        for &at in &self.around_owned {
            let (triangle, row) = (&self.triangles[at as usize], at as usize * self.layers);
            for c in 0..3 {
                let (from, to) = (triangle.nodes[c], triangle.nodes[(c + 1) % 3]);
                let [x, y] = triangle.shape.faces[c];
                for layer in 0..triangle.layers {
                    let speed = self.u[row + layer] * x + self.v[row + layer] * y;
                    visit(layer, from, to, speed * self.thickness[layer]);
                }
            }
        }
    }

    /// The change of the heat content of the owned nodes between two temperatures, and the content before, summed with absolute values,
    /// both in K m^3. It adds differences in a compensated sum, so that a change far below the rounding of the content is visible.
    pub fn heat_change(&self, before: &[f64], after: &[f64]) -> (f64, f64) {
        let (mut change, mut content) = (Sum::default(), Sum::default());
        let columns = before.chunks_exact(self.layers).zip(after.chunks_exact(self.layers));
        for ((before, after), area) in columns.zip(self.area.chunks_exact(self.layers)) {
            for (layer, thickness) in self.thickness.iter().enumerate() {
                let volume = area[layer] * thickness;
                change.add((after[layer] - before[layer]) * volume);
                content.add(before[layer].abs() * volume);
            }
        }
        (change.value(), content.value())
    }
}

impl LocalTriangle {
    fn new(case: &Case, id: usize, corners: [u32; 3]) -> Self {
        let shape = Triangle::new(case.mesh.corners(id));
        let size = (2.0 * shape.area).sqrt();
        Self {
            nodes: corners.map(|node| node as usize),
            layers: case.triangle_layers(id),
            diffusivity: HORIZONTAL_DIFFUSIVITY * size / 100e3,
            shape,
        }
    }
}

/// Gradient of the linear function with these values at the corners. Exactly 0 for a constant.
pub fn gradient(shape: &Triangle, [a, b, c]: [f64; 3]) -> [f64; 2] {
    let (ab, ac) = (b - a, c - a);
    std::array::from_fn(|axis| ab * shape.gradients[1][axis] + ac * shape.gradients[2][axis])
}
