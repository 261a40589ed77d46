//! One time step: advection and diffusion of temperature in flux form.
//!
//! The scheme has explicit Euler steps, upwind fluxes through the median-dual faces and the horizontal interfaces, and diffusion along the
//! gradients in the triangles. A flux leaves a cell and enters its neighbour with the same bits, so that the heat content changes by
//! rounding only. A constant temperature stays constant up to rounding, because inflow and outflow of every cell balance
//! ([`super::rigid_lid`]). No flux goes through coasts, bottom and surface. `ocean.cu` does the same operations in the same order on GPUs.

use super::domain::Domain;

/// Diffusivity across the layers, m^2/s.
pub(super) const VERTICAL_DIFFUSIVITY: f64 = 1e-5;
/// The time step as a share of the longest stable step.
const SAFETY: f64 = 0.8;

impl Domain {
    /// The longest time step, s, in which no owned cell loses more water and heat than it holds, times a safety factor; infinity without
    /// owned cells. The minimum over the ranks is exact, and the same for every partition. Also returns the cell that limits the step:
    /// its global node and layer.
    pub fn longest_step(&self) -> (f64, (u64, usize)) {
        let owned = self.owned_nodes.len();
        // Outflow of each cell, m^3/s.
        let mut out = vec![0.0; owned * self.layers];
        self.each_flow(|layer, from, to, flow| {
            let source = if flow > 0.0 { from } else { to };
            if source < owned {
                out[source * self.layers + layer] += flow.abs();
            }
        });
        for &at in &self.around_owned {
            let triangle = &self.triangles[at as usize];
            for (c, &node) in triangle.nodes.iter().enumerate().filter(|&(_, &node)| node < owned) {
                let [x, y] = triangle.shape.gradients[c];
                let loss = triangle.diffusivity * triangle.shape.area * (x * x + y * y);
                let column = out[node * self.layers..][..triangle.layers].iter_mut();
                column.zip(&self.thickness).for_each(|(out, thickness)| *out += loss * thickness);
            }
        }
        let (mut longest, mut cell) = (f64::INFINITY, (0, 0));
        for node in 0..owned {
            let row = node * self.layers;
            for layer in 0..self.node_layers[node] {
                let top = self.rise[row + layer];
                let bottom =
                    if layer + 1 < self.node_layers[node] { self.rise[row + layer + 1] } else { 0.0 };
                let mixing = self.mixing(node, layer) + self.mixing(node, layer + 1);
                let total = out[row + layer] + top.max(0.0) + (-bottom).max(0.0) + mixing;
                let volume = self.area[row + layer] * self.thickness[layer];
                // An outflow that is not a number allows no step.
                let here = if total.is_nan() { 0.0 } else { volume / total };
                if here < longest {
                    (longest, cell) = (here, (self.owned_nodes[node], layer));
                }
            }
        }
        (SAFETY * longest, cell)
    }

    /// Gradient of the temperature in each owned triangle to the model's east and north, K/m.
    pub fn gradients(&self, temperature: &[f64], east: &mut [f64], north: &mut [f64]) {
        let columns = east.chunks_exact_mut(self.layers).zip(north.chunks_exact_mut(self.layers));
        for (triangle, (east, north)) in self.triangles[..self.owned_triangles].iter().zip(columns) {
            let wet = triangle.layers;
            let [a, b, c] = triangle.nodes.map(|node| &temperature[node * self.layers..][..wet]);
            let [_, [bx, by], [cx, cy]] = triangle.shape.gradients;
            let (east, north) = (&mut east[..wet], &mut north[..wet]);
            for layer in 0..wet {
                let (ab, ac) = (b[layer] - a[layer], c[layer] - a[layer]);
                east[layer] = ab * bx + ac * cx;
                north[layer] = ab * by + ac * cy;
            }
        }
    }

    /// The temperature of all owned nodes `seconds` later, from the temperature at all local nodes and
    /// its gradient in all local triangles.
    pub fn advance(
        &self,
        seconds: f64,
        temperature: &[f64],
        (east, north): (&[f64], &[f64]),
        later: &mut [f64],
    ) {
        later[..self.owned_nodes.len() * self.layers].fill(0.0);
        let mut fluxes = vec![0.0; 3 * self.layers];
        for &at in &self.around_owned {
            let row = at as usize * self.layers;
            self.face_fluxes(at as usize, temperature, (&east[row..], &north[row..]), &mut fluxes);
            let triangle = &self.triangles[at as usize];
            for c in (0..3).filter(|&c| triangle.nodes[c] < self.owned_nodes.len()) {
                // Outflow through the face to the next corner, inflow through the face from the previous corner.
                let out = &fluxes[c * self.layers..][..triangle.layers];
                let into = &fluxes[(c + 2) % 3 * self.layers..][..triangle.layers];
                let column = &mut later[triangle.nodes[c] * self.layers..][..triangle.layers];
                for ((gain, into), out) in column.iter_mut().zip(into).zip(out) {
                    *gain += into - out;
                }
            }
        }
        let columns = later.chunks_exact_mut(self.layers).zip(temperature.chunks_exact(self.layers));
        for (node, (gain, temperature)) in columns.take(self.owned_nodes.len()).enumerate() {
            self.finish_column(node, seconds, temperature, gain);
        }
    }

    /// The heat flux through each face of a triangle to the next corner, K m^3/s.
    fn face_fluxes(
        &self,
        at: usize,
        temperature: &[f64],
        (east, north): (&[f64], &[f64]),
        fluxes: &mut [f64],
    ) {
        let triangle = &self.triangles[at];
        let wet = triangle.layers;
        let (u, v) = (&self.u[at * self.layers..][..wet], &self.v[at * self.layers..][..wet]);
        let (east, north, thickness) = (&east[..wet], &north[..wet], &self.thickness[..wet]);
        for (c, flux) in fluxes.chunks_exact_mut(self.layers).enumerate() {
            let [x, y] = triangle.shape.faces[c];
            let from = &temperature[triangle.nodes[c] * self.layers..][..wet];
            let to = &temperature[triangle.nodes[(c + 1) % 3] * self.layers..][..wet];
            let flux = &mut flux[..wet];
            for layer in 0..wet {
                let speed = u[layer] * x + v[layer] * y;
                let carried = speed * if speed > 0.0 { from[layer] } else { to[layer] };
                let mixed = triangle.diffusivity * (east[layer] * x + north[layer] * y);
                flux[layer] = (carried - mixed) * thickness[layer];
            }
        }
    }

    /// Adds the vertical fluxes to the gain of heat of a column through its faces, K m^3/s. Replaces the gain by the temperature
    /// `seconds` later.
    fn finish_column(&self, node: usize, seconds: f64, temperature: &[f64], gain: &mut [f64]) {
        let (row, wet) = (node * self.layers, self.node_layers[node]);
        let mut through_top = 0.0;
        for layer in 0..wet {
            let through_bottom = if layer + 1 < wet {
                let (above, below) = (temperature[layer], temperature[layer + 1]);
                let rise = self.rise[row + layer + 1];
                let carried = rise * if rise > 0.0 { below } else { above };
                carried + self.mixing(node, layer + 1) * (below - above)
            } else {
                0.0
            };
            let volume = self.area[row + layer] * self.thickness[layer];
            let total = gain[layer] + (through_bottom - through_top);
            gain[layer] = temperature[layer] + seconds * total / volume;
            through_top = through_bottom;
        }
    }

    /// Exchange of water by diffusion through the top of a cell, m^3/s; 0 at the surface and below the bottom.
    fn mixing(&self, node: usize, layer: usize) -> f64 {
        if layer == 0 || layer >= self.node_layers[node] {
            return 0.0;
        }
        let distance = 0.5 * (self.thickness[layer - 1] + self.thickness[layer]);
        VERTICAL_DIFFUSIVITY * self.area[node * self.layers + layer] / distance
    }
}
