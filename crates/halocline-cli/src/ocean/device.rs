//! The time loop of one rank on a GPU: everything is queued on one stream, and the host waits for nothing but an exchange of
//! some steps ago.
//!
//! Two exchanges a step, each beside the sweep over what needs none of it: the gradients' while the nodes advance around
//! which all triangles are owned, the temperature's while the gradients are taken in triangles whose corners are all owned.

use super::domain::Domain;
use super::error::OceanError;
use super::model::Exchanges;
use super::physics::VERTICAL_DIFFUSIVITY;
use super::simulation::{Outcome, common_step, links};
use super::state::Case;
use crate::device::InFlight;
use halocline::device::cuda::{Kernel, Program};
use halocline::device::{Address, Stream};
use halocline::{Communicator, DeviceArray, DeviceError, Element, Error, MeshDomains, agree};
use std::time::Instant;

/// The kernels, as CUDA C++.
pub(super) const KERNELS: &str = include_str!("ocean.cu");
/// Every operation is rounded by itself, as on the host.
pub(super) const OPTIONS: [&str; 1] = ["--fmad=false"];

/// What computes on a device: of the triangles or nodes that a rank owns, those that need what is being exchanged, or the others.
pub(super) trait Sweeper {
    /// Gives a stream the gradients of temperature `now` in owned triangles.
    fn gradients(&self, stream: &Stream, now: usize, part: Part) -> Result<(), DeviceError>;

    /// Gives a stream the other temperature at owned nodes, so many seconds after `now`.
    fn advance(&self, stream: &Stream, now: usize, part: Part, seconds: f64) -> Result<(), DeviceError>;
}

/// Part of what a rank owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// What needs nothing of other ranks.
    Interior,
    /// The rest.
    Boundary,
}

/// Owned triangles and nodes, by [`Part`], and who is around a node.
pub(super) struct Parts {
    pub(super) triangles: [Vec<u32>; 2],
    pub(super) nodes: [Vec<u32>; 2],
    /// For each owned node, where its pairs begin; then where the last one's end.
    pub(super) begin: Vec<u64>,
    /// Local triangle, and which of its corners the node is; ascending in the triangles' global order.
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

/// The fields of a rank in memory of a device.
pub(super) type Fields = Exchanges<DeviceArray<f64>>;

/// As [`super::simulation::simulate`], on the device of a stream, where `make` says who computes. Times in exchanges are those of
/// the host's calls. Collective.
pub(super) fn simulate_on<S: Sweeper>(
    comm: &Communicator,
    (case, domains, domain): (&Case, &MeshDomains, &Domain),
    steps: u32,
    stream: Stream,
    make: impl FnOnce(&Stream, &Fields) -> Result<S, Error>,
    mut tick: impl FnMut(),
) -> Result<Outcome, OceanError> {
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

/// A stream, and what its work needs.
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
    ) -> Result<Outcome, OceanError> {
        let Self { stream, fields, sweeper } = self;
        fields.temperature.schedule_exchange_set(0, &[stream])?.wait()?;
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
            let first = Instant::now();
            if let Some(pending) = pending.take() {
                self.wait(&mut in_flight, pending)?;
            }
            let mut calls = first.elapsed();
            sweeper.gradients(stream, now, Part::Boundary).map_err(Error::from)?;
            let second = Instant::now();
            let gradients = fields.gradients.schedule_exchange(&[stream])?;
            calls += second.elapsed();
            sweeper.advance(stream, now, Part::Interior, step).map_err(Error::from)?;
            let third = Instant::now();
            self.wait(&mut in_flight, gradients)?;
            calls += third.elapsed();
            sweeper.advance(stream, now, Part::Boundary, step).map_err(Error::from)?;
            let fourth = Instant::now();
            pending = Some(fields.temperature.schedule_exchange_set(later, &[stream])?);
            exchanges.push(calls + fourth.elapsed());
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

    fn wait(&self, in_flight: &mut InFlight, pending: halocline::Pending) -> Result<(), Error> {
        pending.schedule_wait(&self.stream)?;
        in_flight.add(pending)
    }
}

impl<S> Drop for Queue<S> {
    fn drop(&mut self) {
        // Also after an error nothing is freed under a running kernel. That the device has failed was said before.
        let _ = self.stream.synchronise();
    }
}

/// The kernels of `ocean.cu`, and all that stays constant in time, on the GPU.
pub(super) struct Kernels {
    gradients: Kernel,
    advance: Kernel,
    /// All but what a launch says.
    sea: Sea,
    /// By [`Part`].
    triangles: [DeviceArray<u32>; 2],
    nodes: [DeviceArray<u32>; 2],
    temperatures: [Address; 2],
    /// What addresses in `sea` point into.
    _constants: Vec<Box<dyn std::any::Any>>,
}

/// `Sea` of `ocean.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Sea {
    layers: u64,
    items: Address,
    count: u64,
    temperature: Address,
    later: Address,
    east: Address,
    north: Address,
    nodes: Address,
    wet: Address,
    node_wet: Address,
    diffusivity: Address,
    slopes: Address,
    faces: Address,
    u: Address,
    v: Address,
    thickness: Address,
    area: Address,
    rise: Address,
    around_begin: Address,
    around: Address,
    seconds: f64,
    mixing: f64,
}

/// Threads of a block.
const THREADS: u64 = 256;

fn address<T: Element>(array: &DeviceArray<T>) -> Address {
    array.base().addr().get() as Address
}

/// Elements in memory of the stream's device. Blocks until they are there.
fn put<T: Element>(stream: &Stream, elements: &[T]) -> Result<DeviceArray<T>, Error> {
    let array = DeviceArray::zeros(stream.device(), &[elements.len()])?;
    array.write(stream, elements)?;
    Ok(array)
}

impl Kernels {
    /// Compiles and loads them, and brings the domain to the GPU. Blocks for seconds, the first time on a machine.
    pub(super) fn load(stream: &Stream, domain: &Domain, fields: &Fields) -> Result<Self, Error> {
        let program = Program::compile(stream.device(), "ocean.cu", KERNELS, &OPTIONS)?;
        let parts = Parts::new(domain);
        let mut constants: Vec<Box<dyn std::any::Any>> = Vec::new();
        let mut numbers = |values: &[f64]| -> Result<Address, Error> {
            let array = put(stream, values)?;
            let at = address(&array);
            constants.push(Box::new(array));
            Ok(at)
        };
        let triangles = &domain.triangles;
        let flat = |of: &dyn Fn(usize) -> Vec<f64>| (0..triangles.len()).flat_map(of).collect::<Vec<f64>>();
        let mut sea = Sea {
            layers: domain.layers as u64,
            east: address(&fields.gradient[0]),
            north: address(&fields.gradient[1]),
            diffusivity: numbers(&flat(&|at| vec![triangles[at].diffusivity]))?,
            slopes: numbers(&flat(&|at| triangles[at].shape.gradients[1..].concat()))?,
            faces: numbers(&flat(&|at| triangles[at].shape.faces.concat()))?,
            u: numbers(&domain.u)?,
            v: numbers(&domain.v)?,
            thickness: numbers(&domain.thickness)?,
            area: numbers(&domain.area)?,
            rise: numbers(&domain.rise)?,
            mixing: VERTICAL_DIFFUSIVITY,
            ..Sea::default()
        };
        let mut indices = |values: Vec<u32>| -> Result<Address, Error> {
            let array = put(stream, &values)?;
            let at = address(&array);
            constants.push(Box::new(array));
            Ok(at)
        };
        sea.nodes = indices(triangles.iter().flat_map(|one| one.nodes.map(|node| node as u32)).collect())?;
        sea.wet = indices(triangles.iter().map(|one| one.layers as u32).collect())?;
        sea.node_wet = indices(domain.node_layers.iter().map(|&layers| layers as u32).collect())?;
        sea.around = indices(parts.around.concat())?;
        let begin = put(stream, &parts.begin)?;
        sea.around_begin = address(&begin);
        constants.push(Box::new(begin));
        let both = |lists: &[Vec<u32>; 2]| -> Result<_, Error> {
            Ok([put(stream, &lists[0])?, put(stream, &lists[1])?])
        };
        Ok(Self {
            gradients: program.kernel("gradients")?,
            advance: program.kernel("advance")?,
            sea,
            triangles: both(&parts.triangles)?,
            nodes: both(&parts.nodes)?,
            temperatures: [0, 1].map(|level: usize| address(&fields.temperatures[level])),
            _constants: constants,
        })
    }

    fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        items: &DeviceArray<u32>,
        now: usize,
        seconds: f64,
    ) -> Result<(), DeviceError> {
        let count = items.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let (temperature, later) = (self.temperatures[now], self.temperatures[1 - now]);
        let sea = Sea { items: address(items), count, temperature, later, seconds, ..self.sea };
        let blocks = (count * self.sea.layers).div_ceil(THREADS);
        // SAFETY: `Sea` is the kernels' argument. All numbers of nodes, triangles and layers are those of the domain, which the
        // arrays are made for; they live until the stream is done with them (`Queue` waits for it). Sweeps write nothing
        // that they read, and exchanges are ordered with them by the stream.
        unsafe { kernel.launch(stream, [blocks as u32, 1, 1], [THREADS as u32, 1, 1], &sea) }
    }
}

impl Sweeper for Kernels {
    fn gradients(&self, stream: &Stream, now: usize, part: Part) -> Result<(), DeviceError> {
        self.launch(stream, &self.gradients, &self.triangles[part as usize], now, 0.0)
    }

    fn advance(&self, stream: &Stream, now: usize, part: Part, seconds: f64) -> Result<(), DeviceError> {
        self.launch(stream, &self.advance, &self.nodes[part as usize], now, seconds)
    }
}
