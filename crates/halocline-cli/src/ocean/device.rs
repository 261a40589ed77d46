//! The time loop of one rank on a GPU. The host queues all work on one stream, and waits only for an exchange of some steps ago.
//!
//! Each step has two exchanges, and each overlaps with a sweep that does not need its halo. During the exchange of the gradients, nodes
//! advance whose triangles are all owned. During the exchange of the temperature, gradients are computed in triangles whose corners are
//! all owned.

use super::domain::Domain;
use super::model::Exchanges;
use super::simulation::{Outcome, common_step, links};
use super::state::Case;
use crate::device::InFlight;
use crate::error::CommandError;
use halocline::device::Stream;
use halocline::{Communicator, DeviceArray, DeviceError, Error, MeshDomains, Pending, agree};
use std::time::{Duration, Instant};

/// The sweeps of a device over a part of the owned triangles or nodes.
pub(super) trait Sweeper {
    /// Queues the computation of the gradients of temperature `now` in owned triangles.
    fn gradients(&self, stream: &Stream, now: usize, part: Part) -> Result<(), DeviceError>;

    /// Queues the computation of the other temperature at owned nodes, `seconds` after temperature `now`.
    fn advance(&self, stream: &Stream, now: usize, part: Part, seconds: f64) -> Result<(), DeviceError>;
}

/// A part of the owned cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Cells that need no cells of other ranks.
    Interior,
    /// All other cells.
    Boundary,
}

/// Owned triangles and nodes by [`Part`], and the triangles around each node.
pub(super) struct Parts {
    pub(super) triangles: [Vec<u32>; 2],
    pub(super) nodes: [Vec<u32>; 2],
    /// For each owned node, the index of its first pair in `around`; at the end, the number of pairs.
    pub(super) begin: Vec<u64>,
    /// Pairs of a local triangle and the corner at which the node is, in the triangles' global order for each node.
    pub(super) around: Vec<[u32; 2]>,
}

impl Parts {
    pub(super) fn new(domain: &Domain) -> Self {
        let (owned, triangles) = (domain.owned_nodes.len(), domain.owned_triangles);
        let corners = |at: u32| domain.triangles[at as usize].nodes;
        let mut around = vec![Vec::new(); owned];
        for &at in &domain.around_owned {
            for (corner, node) in (0..).zip(corners(at)).filter(|&(_, node)| node < owned) {
                around[node].push([at, corner]);
            }
        }
        let split = |count: usize, is_interior: &dyn Fn(u32) -> bool| -> [Vec<u32>; 2] {
            let (interior, boundary) = (0..count as u32).partition(|&at| is_interior(at));
            [interior, boundary]
        };
        let ends = around.iter().scan(0, |end, pairs| {
            *end += pairs.len() as u64;
            Some(*end)
        });
        Self {
            triangles: split(triangles, &|at| corners(at).iter().all(|&node| node < owned)),
            nodes: split(owned, &|node| {
                around[node as usize].iter().all(|&[at, _]| (at as usize) < triangles)
            }),
            begin: std::iter::once(0).chain(ends).collect(),
            around: around.concat(),
        }
    }
}

/// The fields of a rank in device memory.
pub(super) type Fields = Exchanges<DeviceArray<f64>>;

/// As [`super::simulation::simulate`], on the device of a stream, with the sweeper that `make` returns. Times of exchanges are times of
/// the host's calls. Collective.
pub(super) fn simulate_on<S: Sweeper>(
    comm: &Communicator,
    (case, domains, domain): (&Case, &MeshDomains, &Domain),
    steps: u32,
    stream: Stream,
    make: impl FnOnce(&Stream, &Fields) -> Result<S, Error>,
    mut tick: impl FnMut(),
) -> Result<Outcome, CommandError> {
    let layers = domain.layers;
    let zeros = |cells: usize| DeviceArray::<f64>::zeros(stream.device(), &[cells, layers]);
    let place = || -> Result<_, Error> {
        let nodes = domains.vertices().cells().len();
        let arrays =
            (zeros(nodes)?, zeros(nodes)?, zeros(domain.triangles.len())?, zeros(domain.triangles.len())?);
        let mut start = vec![0.0; nodes * layers];
        for (&node, column) in domain.owned_nodes.iter().zip(start.chunks_exact_mut(layers)) {
            case.temperature(node as usize, column);
        }
        arrays.0.write(&stream, &start)?;
        Ok(arrays)
    };
    let (a, b, east, north) = agree(comm, place())?;
    let fields = Exchanges::with(comm, domains, [a, b], [east, north])?;
    let sweeper = agree(comm, make(&stream, &fields))?;
    let queue = Queue { stream, fields, sweeper };
    queue.run(comm, domain, steps, &mut tick)
}

/// A stream, and the memory that its work needs.
struct Queue<S> {
    stream: Stream,
    fields: Fields,
    sweeper: S,
}

impl<S: Sweeper> Queue<S> {
    fn run(
        &self,
        comm: &Communicator,
        domain: &Domain,
        steps: u32,
        tick: &mut impl FnMut(),
    ) -> Result<Outcome, CommandError> {
        let Self { stream, fields, sweeper } = self;
        fields.temperature.schedule_exchange(&[stream])?.wait()?;
        let step = common_step(comm, domain)?;
        let mut in_flight = InFlight::new(4);
        let mut exchanges = Vec::with_capacity(steps as usize);
        let mut pending = None;
        stream.synchronise().map_err(Error::from)?;
        comm.barrier()?;
        let begin = Instant::now();
        for count in 0..steps as usize {
            let (now, later) = (count % 2, (count + 1) % 2);
            sweeper.gradients(stream, now, Part::Interior).map_err(Error::from)?;
            let mut calls = Duration::ZERO;
            if let Some(pending) = pending.take() {
                calls += self.wait(&mut in_flight, pending)?;
            }
            sweeper.gradients(stream, now, Part::Boundary).map_err(Error::from)?;
            let start = Instant::now();
            let gradients = fields.gradients.schedule_exchange(&[stream])?;
            calls += start.elapsed();
            sweeper.advance(stream, now, Part::Interior, step).map_err(Error::from)?;
            calls += self.wait(&mut in_flight, gradients)?;
            sweeper.advance(stream, now, Part::Boundary, step).map_err(Error::from)?;
            let start = Instant::now();
            pending = Some(fields.temperature.begin().set(later).after(&[stream]).schedule()?);
            exchanges.push(calls + start.elapsed());
            tick();
        }
        in_flight.finish()?;
        pending.map_or(Ok(()), |pending| pending.wait())?;
        stream.synchronise().map_err(Error::from)?;
        let elapsed = begin.elapsed();

        let mut temperature = fields.temperatures[steps as usize % 2].read(stream)?;
        temperature.truncate(domain.owned_nodes.len() * domain.layers);
        let links = links(&[&fields.gradients, &fields.temperature]);
        Ok(Outcome { step, temperature, exchanges, elapsed, links })
    }

    /// Orders all later work of the stream after an exchange, then blocks until more can be queued. Returns the time of the first call.
    fn wait(&self, in_flight: &mut InFlight, pending: Pending) -> Result<Duration, Error> {
        let start = Instant::now();
        pending.schedule_wait(&self.stream)?;
        let call = start.elapsed();
        in_flight.add(pending);
        in_flight.settle()?;
        Ok(call)
    }
}

impl<S> Drop for Queue<S> {
    fn drop(&mut self) {
        // No memory is freed under a running kernel, also after an error. An earlier call has reported a failed device.
        let _ = self.stream.synchronise();
    }
}
