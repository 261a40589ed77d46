//! The time loop of one rank: two exchanges and two sweeps a step.

use super::domain::Domain;
use super::model::Exchanges;
use super::state::Case;
use crate::error::CommandError;
use halocline::{Communicator, HaloExchange, LinkCounts, MeshDomains, Reduce};
use std::time::{Duration, Instant};

/// The result of a rank after the last step.
pub struct Outcome {
    /// Length of a time step, s.
    pub step: f64,
    /// Temperature at the owned nodes, a row of layers each, deg C.
    pub temperature: Vec<f64>,
    /// Time of each step's exchanges, from the call that starts them until the halo is filled, with the wait for slower ranks. On a GPU
    /// the host does not wait, and this is the time of its calls.
    pub exchanges: Vec<Duration>,
    /// Time of all steps.
    pub elapsed: Duration,
    /// Sum of the links of this rank's exchanges.
    pub links: LinkCounts,
}

/// Runs all steps, and calls `tick` after each. Collective.
pub fn simulate(
    comm: &Communicator,
    case: &Case,
    domains: &MeshDomains,
    domain: &Domain,
    steps: u32,
    mut tick: impl FnMut(),
) -> Result<Outcome, CommandError> {
    let exchanges = Exchanges::bind(comm, domains, domain.layers)?;
    let Exchanges { temperatures, gradient: [east, north], gradients, temperature, .. } = &exchanges;

    let mut start = temperatures[0].write()?;
    for (&node, column) in domain.owned_nodes.iter().zip(start.chunks_exact_mut(domain.layers)) {
        case.temperature(node as usize, column);
    }
    drop(start);
    temperature.begin().set(0).start()?.wait()?;
    let step = common_step(comm, domain)?;

    let mut exchanges = Vec::with_capacity(steps as usize);
    comm.barrier()?;
    let begin = Instant::now();
    for count in 0..steps as usize {
        let (now, later) = (count % 2, (count + 1) % 2);
        domain.gradients(&temperatures[now].read()?, &mut east.write()?, &mut north.write()?);
        let first = timed(gradients, 0)?;
        let gradient = (&*east.read()?, &*north.read()?);
        domain.advance(step, &temperatures[now].read()?, gradient, &mut temperatures[later].write()?);
        exchanges.push(first + timed(temperature, later)?);
        tick();
    }
    let elapsed = begin.elapsed();

    let last = temperatures[steps as usize % 2].read()?;
    let owned = last[..domain.owned_nodes.len() * domain.layers].to_vec();
    let links = links(&[gradients, temperature]);
    Ok(Outcome { step, temperature: owned, exchanges, elapsed, links })
}

/// Sum of the links of these exchanges.
pub(super) fn links(exchanges: &[&HaloExchange]) -> LinkCounts {
    exchanges.iter().flat_map(|halo| halo.links()).collect()
}

/// Shortest useful time step, s.
const SHORTEST: f64 = 1e-3;

/// The minimum over the ranks of the longest stable time step. All ranks refuse a step that is not finite or too short. Collective.
pub(super) fn common_step(comm: &Communicator, domain: &Domain) -> Result<f64, CommandError> {
    let (longest, (node, layer)) = domain.longest_step();
    // Positive floating-point numbers have the order of their bits. NaN is larger than all of them.
    let step = f64::from_bits(comm.all_reduce(longest.to_bits(), Reduce::Min)?);
    if step.is_finite() && step >= SHORTEST {
        return Ok(step);
    }
    let layers = domain.layers as u64;
    let mine = if longest == step { node * layers + layer as u64 } else { u64::MAX };
    let cell = comm.all_reduce(mine, Reduce::Min)?;
    Err(CommandError::failed(format!(
        "the longest stable time step is {step:e} s, which layer {} of node {} allows; check the velocities (u.npy, v.npy), \
         the level interfaces (aux3d.out) and the size of the triangles (nod2d.out) there",
        cell % layers + 1,
        cell / layers + 1
    )))
}

fn timed(halo: &HaloExchange, set: usize) -> Result<Duration, CommandError> {
    let begin = Instant::now();
    halo.begin().set(set).start()?.wait()?;
    Ok(begin.elapsed())
}
