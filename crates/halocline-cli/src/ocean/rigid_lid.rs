//! The correction that makes the transport of every water column free of divergence.
//!
//! The vertical velocity follows from continuity, summed from the bottom up. At the surface it is not 0, because the velocities are yearly
//! means. Water that left through the surface would carry heat away, and with a closed surface a constant temperature would drift. So all
//! layers of a triangle get the same small correction, the gradient of a potential p, such that
//!
//! sum over triangles t at node i of  area_t grad phi_i . (U_t - H_t grad p) = 0,
//!
//! where U is the velocity summed over the depth H and phi_i the linear function of node i. This is
//! FESOM's own equation for the free surface, with the surface held still.
//!
//! The solver is conjugate gradients with a Jacobi preconditioner.

use super::geometry::Triangle;
use super::state::Case;

/// Reduction of the residual, down to rounding.
const REDUCTION: f64 = 1e-13;
/// Far more iterations than needed. If rounding prevents the reduction, the solution is still good.
const MOST_ITERATIONS: usize = 3000;

/// The potential p at each node, m^2/s: the velocity of triangle t is corrected by - grad p.
pub fn potential(case: &Case) -> Vec<f64> {
    let (thickness, layers) = (case.thickness(), case.layers());
    let mut right = vec![0.0; case.mesh.positions.len()];
    let (mut u, mut v) = (vec![0.0; layers], vec![0.0; layers]);
    for (index, corners) in case.mesh.triangles().iter().enumerate() {
        case.velocity(index, &mut u, &mut v);
        let total = |speeds: &[f64]| -> f64 { speeds.iter().zip(&thickness).map(|(u, h)| u * h).sum() };
        let (x, y) = (total(&u), total(&v));
        let triangle = Triangle::new(case.mesh.corners(index));
        for (&node, [dx, dy]) in corners.iter().zip(triangle.gradients) {
            right[node as usize] += triangle.area * (dx * x + dy * y);
        }
    }
    conjugate_gradients(&Matrix::new(case), &right)
}

/// The matrix of the equations, which is symmetric.
struct Matrix<'a> {
    triangles: &'a [[u32; 3]],
    /// -area H grad phi_c . grad phi_(c+1) for the edge from corner c to the next, m.
    couplings: Vec<[f64; 3]>,
    /// Sum of the couplings of each node.
    diagonal: Vec<f64>,
}

impl<'a> Matrix<'a> {
    fn new(case: &'a Case) -> Self {
        let mut diagonal = vec![0.0; case.mesh.positions.len()];
        let interfaces = &case.fesom.interfaces;
        let triangles = case.mesh.triangles();
        let couplings = triangles.iter().enumerate().map(|(index, corners)| {
            let triangle = Triangle::new(case.mesh.corners(index));
            let depth = interfaces[0] - interfaces[case.triangle_layers(index)];
            let scale = triangle.area * depth;
            let coupling = std::array::from_fn(|c| {
                let ([ax, ay], [bx, by]) = (triangle.gradients[c], triangle.gradients[(c + 1) % 3]);
                -scale * (ax * bx + ay * by)
            });
            for c in 0..3 {
                diagonal[corners[c] as usize] += coupling[c] + coupling[(c + 2) % 3];
            }
            coupling
        });
        let couplings = couplings.collect();
        Self { triangles, couplings, diagonal }
    }

    /// The matrix times `x`. Exactly 0 for a constant.
    fn apply(&self, x: &[f64], product: &mut [f64]) {
        product.fill(0.0);
        for (corners, couplings) in self.triangles.iter().zip(&self.couplings) {
            let nodes = corners.map(|node| node as usize);
            for c in 0..3 {
                let (a, b) = (nodes[c], nodes[(c + 1) % 3]);
                let flow = couplings[c] * (x[a] - x[b]);
                product[a] += flow;
                product[b] -= flow;
            }
        }
    }
}

/// Solves for `right` until the residual is reduced by [`REDUCTION`]. The matrix is singular: its kernel is the constants. The iteration
/// still converges, because `right` sums to 0 up to rounding.
fn conjugate_gradients(matrix: &Matrix<'_>, right: &[f64]) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let target = REDUCTION * REDUCTION * dot(right, right);
    let mut x = vec![0.0; right.len()];
    let mut residual = right.to_vec();
    balance(&mut residual);
    let mut direction = vec![0.0; right.len()];
    let mut product = vec![0.0; right.len()];
    let mut last = f64::INFINITY;
    for _ in 0..MOST_ITERATIONS {
        if dot(&residual, &residual) <= target {
            break;
        }
        let better: Vec<f64> =
            residual.iter().zip(&matrix.diagonal).map(|(r, diagonal)| r / diagonal).collect();
        let slope = dot(&residual, &better);
        let keep = slope / last;
        direction
            .iter_mut()
            .zip(&better)
            .for_each(|(direction, better)| *direction = better + keep * *direction);
        last = slope;
        matrix.apply(&direction, &mut product);
        let curvature = dot(&direction, &product);
        // If this fails, the residual is rounding, or a coefficient is not finite.
        if !(curvature > 0.0 && slope > 0.0) {
            break;
        }
        let step = slope / curvature;
        x.iter_mut().zip(&direction).for_each(|(x, direction)| *x += step * direction);
        residual.iter_mut().zip(&product).for_each(|(residual, product)| *residual -= step * product);
        balance(&mut residual);
    }
    x
}

/// Subtracts the mean, so that the values sum to 0.
fn balance(values: &mut [f64]) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter_mut().for_each(|value| *value -= mean);
}
