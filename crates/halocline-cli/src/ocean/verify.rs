//! The comparison with a run on one rank.

use super::domain::Domain;
use super::simulation::simulate;
use super::state::Case;
use crate::error::CommandError;
use halocline::{Communicator, Partition};

/// What the check has found.
pub struct Verdict {
    /// Largest difference of any temperature to that of the run on one rank, K; not finite if some
    /// value is not a number.
    pub max_abs_diff: f64,
    /// Change of the heat content over the run, as a share of the heat content.
    pub conservation: f64,
    /// Number of node cells above the bottom, over all layers.
    pub wet_cells: usize,
}

/// Changes of the heat content up to this share are rounding. Each step rounds every cell a few dozen
/// times, by at most 1e-16 of what it holds and at random, so that thousands of steps stay below 1e-12; one
/// flux that is lost or counted twice in one step is a share of 1e-9 and more even on fine meshes.
pub const ROUNDING: f64 = 1e-10;

impl Verdict {
    /// Whether the run was right.
    pub fn is_good(&self) -> bool {
        self.max_abs_diff == 0.0 && self.conservation.abs() <= ROUNDING
    }
}

/// Runs all `steps` again on one rank, in this process, and compares: `temperature` is the result of
/// the run on several ranks at all nodes.
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

/// Rows that a rank sends in one message: 3 MB of 47 layers.
const ROWS: usize = 8192;

/// The temperature at all nodes, on rank 0; an empty field elsewhere. Collective. `owned` are the rows of
/// the nodes that this rank owns, ascending.
pub fn gather(
    comm: &Communicator,
    partition: &Partition,
    owned: Vec<f64>,
    layers: usize,
) -> Result<Vec<f64>, CommandError> {
    let rounds = partition.counts().into_iter().max().unwrap_or(0).div_ceil(ROWS);
    if comm.rank() != 0 {
        let mut rest = owned.chunks(ROWS * layers);
        for _ in 0..rounds {
            let bytes = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
            comm.sparse_exchange(rest.next().map(|values| (0, bytes(values))).into_iter().collect())?;
        }
        return Ok(Vec::new());
    }
    // What does not come shows in the comparison.
    let mut all = vec![f64::NAN; partition.owners().len() * layers];
    let mut nodes = vec![Vec::new(); comm.size()];
    partition.owners().iter().enumerate().for_each(|(node, &owner)| nodes[owner].push(node));
    for (&node, row) in nodes[0].iter().zip(owned.chunks_exact(layers)) {
        all[node * layers..][..layers].copy_from_slice(row);
    }
    drop(owned);
    for round in 0..rounds {
        for (rank, bytes) in comm.sparse_exchange(Vec::new())? {
            let mut values = bytes.as_chunks().0.iter().map(|&raw| f64::from_le_bytes(raw));
            for &node in nodes[rank].iter().skip(round * ROWS).take(ROWS) {
                all[node * layers..][..layers].iter_mut().zip(&mut values).for_each(|(to, from)| *to = from);
            }
        }
    }
    Ok(all)
}
