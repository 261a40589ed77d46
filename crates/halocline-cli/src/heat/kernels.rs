//! The kernels of `heat.cu`: which of them computes what, and how it is launched.

use super::device::Sweeper;
use super::stencil::{Block, Real, THIN};
use halocline::device::cuda::{Kernel, Program};
use halocline::device::{Address, Stream};
use halocline::{DeviceArray, DeviceError, Error};

/// The kernels, as CUDA C++.
pub(super) const SOURCE: &str = include_str!("heat.cu");
/// Every operation is rounded by itself, as on the host.
const OPTIONS: [&str; 1] = ["--fmad=false"];

/// Boxes of a launch.
const BOXES: usize = 6;
/// Planes that a thread goes through, in `heat.cu`.
const DEPTH: usize = 8;
/// Threads of a block, along z and y, and in a row.
const TILE: [u32; 2] = [64, 4];
const THREADS: u32 = 256;
/// Blocks along y and z that a launch can have.
const MOST: usize = 65_535;
/// The same along x.
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
    /// Compiles and loads them, for arrays of these extents and addresses. Blocks for seconds, the first time on a machine.
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
        // SAFETY: `Sweep` is the kernels' argument. All boxes and their neighbours lie within the arrays, which have these extents
        // and live until the stream is done with them (`OnDevice` waits for it); a sweep reads one level and writes the
        // other, and exchanges are ordered with it by the stream.
        unsafe { kernel.launch(stream, grid, threads, &sweep) }
    }
}

/// What a sweep is launched with.
pub(super) struct Launch {
    /// `march`, otherwise `boxes`.
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
    /// Of blocks, at most six, none of them empty, of so many arrays of these extents; at the two addresses lie those of the
    /// arrays that are read and written.
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
        // The end of a row and the begin of the next one share sectors of memory: both ends of the same rows go together.
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
