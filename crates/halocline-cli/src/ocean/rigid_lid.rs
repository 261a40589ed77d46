//! The correction that makes the transport of every water column free of divergence.
//!
//! The vertical velocity follows from continuity, summed from the bottom up. At the surface it is not 0, because the velocities are yearly
//! means, and interpolated on refined meshes. Water that left through the surface would carry heat away, and with a closed surface a
//! constant temperature would drift. So all layers of a triangle get the same small correction, the gradient of a potential p, such that
//!
//! sum over triangles t at node i of  area_t grad phi_i . (U_t - H_t grad p) = 0,
//!
//! where U is the velocity summed over the depth H and phi_i the linear function of node i. This is
//! FESOM's own equation for the free surface, with the surface held still.
//!
//! The solver is conjugate gradients. On refined meshes it is preconditioned by a multigrid cycle over the refinements.

use super::geometry::Triangle;
use super::mesh::coarser;
use super::state::Case;

/// Reduction of the residual, down to rounding.
const REDUCTION: f64 = 1e-13;
/// Reduction of the residual on the coarsest level of a cycle, enough not to slow the convergence.
const COARSEST_REDUCTION: f64 = 1e-6;
/// Far more iterations than needed. If rounding prevents the reduction, the solution is still good.
const MOST_ITERATIONS: usize = 3000;
/// Number of damped Jacobi steps before and after the coarser level, and their damping.
const RELAXATIONS: usize = 2;
const DAMPING: f64 = 0.6;

/// The potential p at each node, m^2/s: the velocity of triangle t is corrected by - grad p.
pub fn potential(case: &Case) -> Vec<f64> {
    let levels = levels(case);
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
    solve(&levels, &right, REDUCTION)
}

/// The equations on one level of refinement.
struct Level {
    nodes: usize,
    triangles: Vec<[u32; 3]>,
    /// -area H grad phi_c . grad phi_(c+1) for the edge from corner c to the next, m.
    couplings: Vec<[f64; 3]>,
    /// Sum of the couplings of each node: the diagonal of the matrix.
    diagonal: Vec<f64>,
    /// For each node that the coarser level lacks, the ends of the edge that it halves.
    parents: Vec<[u32; 2]>,
}

/// All levels, the model's own mesh first.
fn levels(case: &Case) -> Vec<Level> {
    let mut triangles = case.mesh.triangles().to_vec();
    let mut levels = Vec::new();
    for finer in 0..=case.mesh.refinements {
        let refinements = case.mesh.refinements - finer;
        let nodes = nodes_after(case, refinements);
        let depth = |index: usize| {
            let ancestor = index >> (2 * refinements);
            case.fesom.interfaces[0] - case.fesom.interfaces[case.fesom.triangle_layers[ancestor]]
        };
        let (coarse, parents) = match refinements {
            0 => (Vec::new(), Vec::new()),
            _ => coarser(&triangles, nodes_after(case, refinements - 1)),
        };
        levels.push(Level::new(case, nodes, std::mem::replace(&mut triangles, coarse), depth, parents));
    }
    levels.reverse();
    levels
}

/// Number of nodes after `refinements` refinements. These are the first nodes, and their weights are multiples of the unit after that
/// refinement.
fn nodes_after(case: &Case, refinements: u32) -> usize {
    let unit = 1u16 << (case.mesh.refinements - refinements);
    case.mesh.origins.partition_point(|origin| origin.weights.iter().all(|weight| weight % unit == 0))
}

impl Level {
    fn new(
        case: &Case,
        nodes: usize,
        triangles: Vec<[u32; 3]>,
        depth: impl Fn(usize) -> f64,
        parents: Vec<[u32; 2]>,
    ) -> Self {
        let mut diagonal = vec![0.0; nodes];
        let couplings = triangles.iter().enumerate().map(|(index, corners)| {
            let triangle = Triangle::new(corners.map(|node| case.mesh.positions[node as usize]));
            let scale = triangle.area * depth(index);
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
        Self { nodes, triangles, couplings, diagonal, parents }
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

    /// One step of damped Jacobi relaxation of `x`; `work` is overwritten.
    fn relax(&self, right: &[f64], x: &mut [f64], work: &mut [f64]) {
        self.apply(x, work);
        for node in 0..self.nodes {
            x[node] += DAMPING * (right[node] - work[node]) / self.diagonal[node];
        }
    }
}

/// Solves on the last level, with the coarser levels as preconditioner.
fn solve(levels: &[Level], right: &[f64], reduction: f64) -> Vec<f64> {
    match levels {
        [] => vec![0.0; right.len()],
        [only] => conjugate_gradients(only, right, reduction, |residual| {
            residual.iter().zip(&only.diagonal).map(|(residual, diagonal)| residual / diagonal).collect()
        }),
        [.., finest] => conjugate_gradients(finest, right, reduction, |residual| cycle(levels, residual)),
    }
}

/// One multigrid V-cycle, which approximates the solution. As an operator on `right` it is symmetric.
fn cycle(levels: &[Level], right: &[f64]) -> Vec<f64> {
    let Some((level, coarser)) = levels.split_last().filter(|(_, coarser)| !coarser.is_empty()) else {
        return solve(levels, right, COARSEST_REDUCTION);
    };
    let mut x = vec![0.0; level.nodes];
    let mut work = vec![0.0; level.nodes];
    (0..RELAXATIONS).for_each(|_| level.relax(right, &mut x, &mut work));

    level.apply(&x, &mut work);
    let (old, new) = work.split_at(level.nodes - level.parents.len());
    let mut rest: Vec<f64> = right.iter().zip(old).map(|(b, ax)| b - ax).collect();
    for ((b, ax), ends) in right[old.len()..].iter().zip(new).zip(&level.parents) {
        ends.iter().for_each(|&end| rest[end as usize] += 0.5 * (b - ax));
    }
    let correction = cycle(coarser, &rest);
    let (old, new) = x.split_at_mut(correction.len());
    old.iter_mut().zip(&correction).for_each(|(x, correction)| *x += correction);
    for (x, [a, b]) in new.iter_mut().zip(&level.parents) {
        *x += 0.5 * (correction[*a as usize] + correction[*b as usize]);
    }

    (0..RELAXATIONS).for_each(|_| level.relax(right, &mut x, &mut work));
    x
}

/// Solves for `right` until the residual is reduced by `reduction`. The matrix is singular: its kernel is the constants. The iteration
/// still converges, because `right` sums to 0 up to rounding.
fn conjugate_gradients(
    level: &Level,
    right: &[f64],
    reduction: f64,
    precondition: impl Fn(&[f64]) -> Vec<f64>,
) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let target = reduction * reduction * dot(right, right);
    let mut x = vec![0.0; level.nodes];
    let mut residual = right.to_vec();
    balance(&mut residual);
    let mut direction = vec![0.0; level.nodes];
    let mut product = vec![0.0; level.nodes];
    let mut last = f64::INFINITY;
    for _ in 0..MOST_ITERATIONS {
        if dot(&residual, &residual) <= target {
            break;
        }
        let better = precondition(&residual);
        let slope = dot(&residual, &better);
        let keep = slope / last;
        direction
            .iter_mut()
            .zip(&better)
            .for_each(|(direction, better)| *direction = better + keep * *direction);
        last = slope;
        level.apply(&direction, &mut product);
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
