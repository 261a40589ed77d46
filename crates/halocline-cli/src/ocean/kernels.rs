//! The kernels of `ocean.cu`, and the constants of a domain in GPU memory.

use super::device::{Fields, Part, Parts, Sweeper};
use super::domain::Domain;
use super::physics::VERTICAL_DIFFUSIVITY;
use halocline::device::cuda::{Kernel, Program};
use halocline::device::{Address, Stream};
use halocline::{DeviceArray, DeviceError, Element, Error};

/// The CUDA C++ source of the kernels.
pub(super) const SOURCE: &str = include_str!("ocean.cu");
/// No fused operations: every operation is rounded, as on the host.
const OPTIONS: [&str; 1] = ["--fmad=false"];
/// Threads of a block.
const THREADS: u64 = 256;

/// The kernels with the domain of a rank, loaded on a GPU.
pub(super) struct Kernels {
    gradients: Kernel,
    advance: Kernel,
    sea: Sea,
    lists: Lists,
    temperatures: [Address; 2],
    /// The memory that the addresses in `sea` and `lists` point into.
    _constants: Vec<DeviceArray<u8>>,
}

/// `Sea` of `ocean.cu`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Sea {
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

/// Address and length of the lists of triangles and nodes that a sweep computes, by [`Part`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Lists {
    pub(super) triangles: [(Address, u64); 2],
    pub(super) nodes: [(Address, u64); 2],
}

impl Sea {
    /// The constants of a domain. `put` copies bytes to memory that is aligned to 8 bytes, and returns its address.
    pub(super) fn new(
        domain: &Domain,
        parts: &Parts,
        gradient: [Address; 2],
        mut put: impl FnMut(Vec<u8>) -> Result<Address, Error>,
    ) -> Result<(Self, Lists), Error> {
        let triangles = &domain.triangles;
        let flat = |of: &dyn Fn(usize) -> Vec<f64>| (0..triangles.len()).flat_map(of).collect::<Vec<f64>>();
        let mut numbers = |values: &[f64]| put(values.iter().flat_map(|value| value.to_ne_bytes()).collect());
        let mut sea = Self {
            layers: domain.layers as u64,
            east: gradient[0],
            north: gradient[1],
            diffusivity: numbers(&flat(&|at| vec![triangles[at].diffusivity]))?,
            slopes: numbers(&flat(&|at| triangles[at].shape.gradients[1..].concat()))?,
            faces: numbers(&flat(&|at| triangles[at].shape.faces.concat()))?,
            u: numbers(&domain.u)?,
            v: numbers(&domain.v)?,
            thickness: numbers(&domain.thickness)?,
            area: numbers(&domain.area)?,
            rise: numbers(&domain.rise)?,
            mixing: VERTICAL_DIFFUSIVITY,
            ..Self::default()
        };
        sea.around_begin = put(parts.begin.iter().flat_map(|at| at.to_ne_bytes()).collect())?;
        let mut indices =
            |values: &mut dyn Iterator<Item = u32>| put(values.flat_map(u32::to_ne_bytes).collect());
        sea.nodes = indices(&mut triangles.iter().flat_map(|one| one.nodes.map(|node| node as u32)))?;
        sea.wet = indices(&mut triangles.iter().map(|one| one.layers as u32))?;
        sea.node_wet = indices(&mut domain.node_layers.iter().map(|&layers| layers as u32))?;
        sea.around = indices(&mut parts.around.iter().flatten().copied())?;
        let mut list =
            |items: &Vec<u32>| Ok::<_, Error>((indices(&mut items.iter().copied())?, items.len() as u64));
        let lists = Lists {
            triangles: [list(&parts.triangles[0])?, list(&parts.triangles[1])?],
            nodes: [list(&parts.nodes[0])?, list(&parts.nodes[1])?],
        };
        Ok((sea, lists))
    }

    /// The argument, the grid and the block size of a sweep over the items of a list.
    pub(super) fn sweep(
        self,
        (items, count): (Address, u64),
        [temperature, later]: [Address; 2],
        seconds: f64,
    ) -> (Self, [u32; 3], [u32; 3]) {
        let blocks = (count * self.layers).div_ceil(THREADS);
        let sea = Self { items, count, temperature, later, seconds, ..self };
        (sea, [blocks as u32, 1, 1], [THREADS as u32, 1, 1])
    }
}

fn address<T: Element>(array: &DeviceArray<T>) -> Address {
    array.base().addr().get() as Address
}

impl Kernels {
    /// Compiles and loads the kernels, and copies the domain to the GPU. The first call on a machine blocks for seconds.
    pub(super) fn load(stream: &Stream, domain: &Domain, fields: &Fields) -> Result<Self, Error> {
        let program = Program::compile(stream.device(), "ocean.cu", SOURCE, &OPTIONS)?;
        let mut constants = Vec::new();
        let put = |bytes: Vec<u8>| {
            let array = DeviceArray::zeros(stream.device(), &[bytes.len()])?;
            array.write(stream, &bytes)?;
            let at = address(&array);
            constants.push(array);
            Ok(at)
        };
        let gradient = [0, 1].map(|at: usize| address(&fields.gradient[at]));
        let (sea, lists) = Sea::new(domain, &Parts::new(domain), gradient, put)?;
        Ok(Self {
            gradients: program.kernel("gradients")?,
            advance: program.kernel("advance")?,
            sea,
            lists,
            temperatures: [0, 1].map(|level: usize| address(&fields.temperatures[level])),
            _constants: constants,
        })
    }

    fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        items: (Address, u64),
        now: usize,
        seconds: f64,
    ) -> Result<(), DeviceError> {
        if items.1 == 0 {
            return Ok(());
        }
        let levels = [now, 1 - now].map(|level| self.temperatures[level]);
        let (sea, blocks, threads) = self.sea.sweep(items, levels, seconds);
        // SAFETY: `Sea` is the kernels' argument. Its numbers of nodes, triangles and layers are those of the domain, and the arrays have
        // these sizes. `Queue` waits for the stream before it frees them. Sweeps write nothing that they read, and the stream orders them
        // with the exchanges.
        unsafe { kernel.launch(stream, blocks, threads, &sea) }
    }
}

impl Sweeper for Kernels {
    fn gradients(&self, stream: &Stream, now: usize, part: Part) -> Result<(), DeviceError> {
        self.launch(stream, &self.gradients, self.lists.triangles[part as usize], now, 0.0)
    }

    fn advance(&self, stream: &Stream, now: usize, part: Part, seconds: f64) -> Result<(), DeviceError> {
        self.launch(stream, &self.advance, self.lists.nodes[part as usize], now, seconds)
    }
}
