//! The comparison with a run on one rank.

use super::domain::Domain;
use super::simulation::simulate;
use super::state::Case;
use crate::error::CommandError;
use halocline::{Array, Communicator, Partition, Pattern, UnstructuredDomain};

/// The result of the comparison.
pub struct Verdict {
    /// Largest difference of a temperature from the run on one rank, K; infinite if a value is not a number.
    pub max_abs_diff: f64,
    /// Relative change of the heat content over the run.
    pub conservation: f64,
    /// Number of node cells above the bottom, over all layers.
    pub wet_cells: usize,
}

/// Relative changes of the heat content up to this are rounding. Each step rounds every cell a few dozen times at random, by at most
/// 1e-16 of its value, so that thousands of steps stay below 1e-12. One flux that is lost or counted twice changes the content by at
/// least 1e-9, even on fine meshes.
pub const ROUNDING: f64 = 1e-10;

impl Verdict {
    /// Whether the run was right.
    pub fn is_good(&self) -> bool {
        self.max_abs_diff == 0.0 && self.conservation.abs() <= ROUNDING
    }
}

/// Repeats all steps on one rank, in this process, and compares the result with `temperature`: the result of the run on several ranks
/// at all nodes.
pub fn verify(
    case: &Case,
    potential: &[f64],
    steps: u32,
    temperature: &[f64],
    tick: impl FnMut(),
) -> Result<Verdict, CommandError> {
    let partition = Partition::block(case.mesh.positions.len(), 1)?;
    let domains = case.mesh.topology.domains_by_vertex(&partition, 0)?;
    let domain = Domain::new(case, &domains, potential);
    let reference = simulate(&Communicator::single(), case, &domains, &domain, steps, tick)?.temperature;

    let difference =
        |(a, b): (&f64, &f64)| if a.is_nan() || b.is_nan() { f64::INFINITY } else { (a - b).abs() };
    let max_abs_diff = temperature.iter().zip(&reference).map(difference).fold(0.0, f64::max);
    drop(reference);
    let mut start = vec![0.0; temperature.len()];
    start
        .chunks_exact_mut(domain.layers)
        .enumerate()
        .for_each(|(node, column)| case.temperature(node, column));
    let (change, content) = domain.heat_change(&start, temperature);
    Ok(Verdict {
        max_abs_diff,
        conservation: if change == 0.0 { 0.0 } else { (change / content).abs() },
        wet_cells: domain.node_layers.iter().sum(),
    })
}

/// The temperature at all nodes, on rank 0; `None` on other ranks. `owned` has a row of layers for each of `nodes`. Collective.
pub fn gather(
    comm: &Communicator,
    nodes: &[u64],
    owned: &[f64],
    layers: usize,
) -> Result<Option<Array<f64>>, CommandError> {
    let part = Array::zeros(comm, &[nodes.len(), layers])?;
    part.write()?.copy_from_slice(owned);
    let domain = UnstructuredDomain::new(comm.rank() as u64, nodes.to_vec(), Vec::new());
    Ok(Pattern::unstructured(comm, &[domain])?.gather_to(comm, 0, &part)?)
}
