//! The kernels of `heat.cu`, and their launch parameters.

use super::device::Sweeper;
use super::stencil::{Block, Real, THIN};
use halocline::device::cuda::{Kernel, Program};
use halocline::device::{Address, Stream};
use halocline::{DeviceArray, DeviceError, Error};

/// The CUDA C++ source of the kernels.
pub(super) const SOURCE: &str = include_str!("heat.cu");
/// No fused operations: every operation is rounded, as on the host.
const OPTIONS: [&str; 1] = ["--fmad=false"];

/// Maximum number of boxes of a launch.
const BOXES: usize = 6;
/// Number of planes that a thread computes in `heat.cu`.
const DEPTH: usize = 8;
/// Threads of a block of `march` along z and y.
const TILE: [u32; 2] = [64, 4];
/// Threads of a block of `boxes`.
const THREADS: u32 = 256;
/// CUDA's limit for blocks along y and z.
const MOST: usize = 65_535;
/// CUDA's limit for blocks along x.
const MOST_X: usize = (1 << 31) - 1;

/// The kernels for one element type, loaded on a GPU.
pub(super) struct Kernels {
    march: Kernel,
    boxes: Kernel,
    /// For each level, the addresses of its arrays.
    tables: [DeviceArray<u64>; 2],
    extents: [usize; 3],
}

impl Kernels {
    /// Compiles and loads the kernels for arrays with these extents and addresses. The first call on a machine blocks for seconds.
    pub(super) fn load<T: Real>(
        stream: &Stream,
        extents: [usize; 3],
        arrays: &[Vec<Address>; 2],
    ) -> Result<Self, Error> {
        let device = stream.device();
        let program = Program::compile(device, "heat.cu", SOURCE, &OPTIONS)?;
        let kernel = |name: &str| program.kernel(&format!("{name}_{}", T::NAME));
        let table = |arrays: &[Address]| -> Result<DeviceArray<u64>, Error> {
            let table = DeviceArray::zeros(device, &[arrays.len()])?;
            table.write(stream, arrays)?;
            Ok(table)
        };
        let tables = [table(&arrays[0])?, table(&arrays[1])?];
        Ok(Self { march: kernel("march")?, boxes: kernel("boxes")?, tables, extents })
    }
}

impl Sweeper for Kernels {
    fn sweep(&self, stream: &Stream, now: usize, blocks: &[Block]) -> Result<(), DeviceError> {
        let tables = [now, 1 - now].map(|level| self.tables[level].base().addr().get() as Address);
        let Launch { marches, grid, threads, sweep } =
            Launch::new(blocks, self.extents, self.tables[0].len(), tables);
        let kernel = if marches { &self.march } else { &self.boxes };
        // SAFETY: `Sweep` is the kernels' argument. All boxes and their neighbours lie within the arrays, which have these extents.
        // `OnDevice` waits for the stream before it frees the arrays. A sweep reads one level and writes the other, and the stream orders
        // it with the exchanges.
        unsafe { kernel.launch(stream, grid, threads, &sweep) }
    }
}

/// The launch parameters of a sweep.
pub(super) struct Launch {
    /// The kernel is `march`, otherwise `boxes`.
    pub(super) marches: bool,
    pub(super) grid: [u32; 3],
    pub(super) threads: [u32; 3],
    pub(super) sweep: Sweep,
}

/// `Sweep` of `heat.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Sweep {
    from: Address,
    to: Address,
    fields: u64,
    extents: [u64; 3],
    boxes: u64,
    low: [[u64; 3]; BOXES],
    size: [[u64; 3]; BOXES],
    gap: [[u64; 2]; BOXES],
    begin: [u64; BOXES + 1],
}

impl Launch {
    /// The sweep over `blocks` (at most six, none of them empty) of `fields` arrays with these extents. `from` and `to` are the device
    /// addresses of the tables of the arrays that the sweep reads and writes.
    pub(super) fn new(
        blocks: &[Block],
        extents: [usize; 3],
        fields: usize,
        [from, to]: [Address; 2],
    ) -> Self {
        let mut sweep = Sweep {
            from,
            to,
            fields: fields as u64,
            extents: extents.map(|n| n as u64),
            boxes: 0,
            low: [[0; 3]; BOXES],
            size: [[0; 3]; BOXES],
            gap: [[0; 2]; BOXES],
            begin: [0; BOXES + 1],
        };
        // The end of a row and the start of the next row share memory sectors, so that two blocks at the ends of the same rows
        // become one box.
        let same_rows = |a: &Block, b: &Block| a.low[..2] == b.low[..2] && a.high[..2] == b.high[..2];
        let mut cells = 0;
        for (at, ends) in blocks.chunk_by(same_rows).enumerate() {
            let (first, deep) = (&ends[0], ends.iter().map(|block| block.extent(2)).sum());
            let gap = ends.get(1).map_or(0, |second| second.low[2] - first.high[2]);
            sweep.boxes += 1;
            sweep.low[at] = first.low.map(|n| n as u64);
            sweep.size[at] = [first.extent(0), first.extent(1), deep].map(|n| n as u64);
            sweep.gap[at] = [first.extent(2), gap].map(|n| n as u64);
            cells += ends.iter().map(Block::cells).sum::<usize>();
            sweep.begin[at + 1] = cells as u64;
        }
        let (marches, grid, threads) = match blocks {
            [one] if one.extent(2) > THIN => {
                let [x, y] = [2, 1].map(|axis| one.extent(axis).div_ceil(TILE[2 - axis] as usize));
                let z = one.extent(0).div_ceil(DEPTH) * fields;
                (true, [x.min(MOST_X), y.min(MOST), z.min(MOST)], [TILE[0], TILE[1], 1])
            }
            _ => {
                let x = cells.div_ceil(THREADS as usize).min(MOST_X);
                (false, [x, fields.min(MOST), 1], [THREADS, 1, 1])
            }
        };
        Self { marches, grid: grid.map(|n| n as u32), threads, sweep }
    }
}
