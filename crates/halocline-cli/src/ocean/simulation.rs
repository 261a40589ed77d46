//! The time loop of one rank: two exchanges and two sweeps a step.

use super::domain::Domain;
use super::model::Exchanges;
use super::state::Case;
use crate::error::CommandError;
use halocline::{Communicator, HaloExchange, LinkCounts, MeshDomains, Reduce};
use std::time::{Duration, Instant};

/// What a rank has after the last step.
pub struct Outcome {
    /// Length of a time step, s.
    pub step: f64,
    /// Temperature at the owned nodes, a row of layers each, deg C.
    pub temperature: Vec<f64>,
    /// Time in each step's exchanges, from beginning to begin them until the halo was filled: waiting for
    /// slower ranks is included. On a GPU, where nothing waits, the time of the host's calls.
    pub exchanges: Vec<Duration>,
    /// Time of the whole loop.
    pub elapsed: Duration,
    /// Links of this rank's bound exchanges, together.
    pub links: LinkCounts,
}

/// Steps through time. Collective. Calls `tick` after each step.
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

/// Links of this rank's bound exchanges, together.
pub(super) fn links(exchanges: &[&HaloExchange]) -> LinkCounts {
    exchanges.iter().map(|halo| halo.links()).fold(LinkCounts::default(), |sum, counts| LinkCounts {
        direct: sum.direct + counts.direct,
        mailbox: sum.mailbox + counts.mailbox,
        message: sum.message + counts.message,
    })
}

/// Steps that are shorter, s, simulate nothing.
const SHORTEST: f64 = 1e-3;

/// The least of the ranks' longest steps. Exact: positive floating-point numbers are ordered as their bits. All ranks refuse
/// one that makes no sense. Collective.
pub(super) fn common_step(comm: &Communicator, domain: &Domain) -> Result<f64, CommandError> {
    let least = |mine: u64| Ok::<_, CommandError>(comm.all_reduce(&[mine], Reduce::Min)?[0]);
    let (longest, (node, layer)) = domain.longest_step();
    let step = f64::from_bits(least(longest.to_bits())?);
    if step.is_finite() && step >= SHORTEST {
        return Ok(step);
    }
    let layers = domain.layers as u64;
    let cell = least(if longest == step { node * layers + layer as u64 } else { u64::MAX })?;
    Err(CommandError::failed(format!(
        "the longest stable time step is {step:e} s, which layer {} of node {} allows: look at the velocities (u.npy, v.npy), \
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
