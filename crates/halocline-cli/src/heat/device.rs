//! The temperature in memory of a GPU, which computes it in the order of one stream. The host queues launches and exchanges and
//! waits for neither.

use super::domain::Domain;
use super::error::HeatError;
use super::levels::Levels;
use super::stencil::{Block, Real, THIN};
use crate::device::{Gpu, InFlight};
use halocline::device::cuda::{Kernel, Program};
use halocline::device::{Address, Stream};
use halocline::{DeviceArray, DeviceError, Error, Field, HaloExchange, Pending};
use std::ops::Range;

/// The kernels, as CUDA C++.
pub(super) const KERNELS: &str = include_str!("heat.cu");
/// Every operation is rounded by itself, as on the host.
pub(super) const OPTIONS: [&str; 1] = ["--fmad=false"];

/// What computes a sweep on a device.
pub(super) trait Sweeper {
    /// Gives a stream the computation of all cells of some boxes, of which there is at least one cell: from level `now` of each
    /// field to the other.
    fn sweep(&self, stream: &Stream, now: usize, blocks: &[Block]) -> Result<(), DeviceError>;
}

/// Arrays of a device, and what computes there.
pub(super) struct OnDevice<T: Real, S> {
    stream: Stream,
    levels: [Vec<DeviceArray<T>>; 2],
    sweeper: S,
    in_flight: InFlight,
}

impl<T: Real> OnDevice<T, Kernels> {
    /// The fields of these numbers at the start, on a GPU. Blocks until they are there; `width`: steps from one exchange to
    /// the next.
    pub(super) fn new(gpu: Gpu, domain: &Domain, fields: Range<u32>, width: usize) -> Result<Self, Error> {
        let make = |stream: &Stream, levels: &[Vec<DeviceArray<T>>; 2]| {
            Kernels::load::<T>(stream, domain.extents, &addresses(levels))
        };
        Self::with(gpu.stream, domain, fields, width, make)
    }
}

/// Where element (0, 0, 0) of each array lies, level by level.
pub(super) fn addresses<T: Real>(levels: &[Vec<DeviceArray<T>>; 2]) -> [Vec<Address>; 2] {
    [0, 1]
        .map(|level: usize| levels[level].iter().map(|array| array.base().addr().get() as Address).collect())
}

impl<T: Real, S: Sweeper> OnDevice<T, S> {
    /// As [`OnDevice::new`], with another one who computes.
    pub(super) fn with(
        stream: Stream,
        domain: &Domain,
        fields: Range<u32>,
        width: usize,
        make: impl FnOnce(&Stream, &[Vec<DeviceArray<T>>; 2]) -> Result<S, Error>,
    ) -> Result<Self, Error> {
        let mut start = vec![T::nearest(0.0); domain.extents.iter().product()];
        let mut levels = [Vec::new(), Vec::new()];
        for field in fields {
            domain.fill(field, &mut start);
            for level in &mut levels {
                let array = DeviceArray::zeros(stream.device(), &domain.extents)?;
                array.write(&stream, &start)?;
                level.push(array);
            }
        }
        let sweeper = make(&stream, &levels)?;
        Ok(Self { stream, levels, sweeper, in_flight: InFlight::new(width + 1) })
    }
}

impl<T: Real, S: Sweeper> Levels for OnDevice<T, S> {
    type Real = T;
    const QUEUES: bool = true;

    fn fields(&self) -> usize {
        self.levels[0].len()
    }

    fn field(&self, level: usize, number: usize) -> &Field {
        &self.levels[level][number]
    }

    fn begin(&self, halo: &HaloExchange, level: usize) -> Result<Pending, HeatError> {
        Ok(halo.schedule_exchange_set(level, &[&self.stream])?)
    }

    fn wait(&mut self, pending: Pending) -> Result<(), HeatError> {
        pending.schedule_wait(&self.stream)?;
        Ok(self.in_flight.add(pending)?)
    }

    fn interior(&self, domain: &Domain, now: usize) -> Result<(), HeatError> {
        self.sweep(domain, now, &[domain.interior()])
    }

    fn sweep(&self, _: &Domain, now: usize, blocks: &[Block]) -> Result<(), HeatError> {
        if blocks.iter().all(|block| block.cells() == 0) {
            return Ok(());
        }
        Ok(self.sweeper.sweep(&self.stream, now, blocks).map_err(Error::from)?)
    }

    fn finish(&mut self) -> Result<(), HeatError> {
        // First what peers may never come to: that is an error there, not a wait for the stream.
        self.in_flight.finish()?;
        Ok(self.stream.synchronise().map_err(Error::from)?)
    }

    fn look(&self, level: usize, number: usize, see: impl FnOnce(&[T])) -> Result<(), HeatError> {
        see(&self.levels[level][number].read(&self.stream)?);
        Ok(())
    }
}

impl<T: Real, S> Drop for OnDevice<T, S> {
    fn drop(&mut self) {
        // Also after an error nothing is freed under a running kernel. That the device has failed was said before.
        let _ = self.stream.synchronise();
    }
}

/// The kernels of `heat.cu` for one element type.
pub(super) struct Kernels {
    march: Kernel,
    boxes: Kernel,
    /// For each level, the addresses of its arrays.
    tables: [DeviceArray<u64>; 2],
    extents: [u64; 3],
}

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

/// `Sweep` of `heat.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sweep {
    from: Address,
    to: Address,
    fields: u64,
    extents: [u64; 3],
    boxes: u64,
    low: [[u64; 3]; BOXES],
    high: [[u64; 3]; BOXES],
    begin: [u64; BOXES + 1],
}

impl Kernels {
    /// Compiles and loads them, for arrays of these extents and addresses. Blocks for seconds, the first time on a machine.
    fn load<T: Real>(
        stream: &Stream,
        extents: [usize; 3],
        arrays: &[Vec<Address>; 2],
    ) -> Result<Self, Error> {
        let device = stream.device();
        let program = Program::compile(device, "heat.cu", KERNELS, &OPTIONS)?;
        let kernel = |name: &str| program.kernel(&format!("{name}_{}", T::NAME));
        let table = |arrays: &[Address]| -> Result<DeviceArray<u64>, Error> {
            let table = DeviceArray::zeros(device, &[arrays.len()])?;
            table.write(stream, arrays)?;
            Ok(table)
        };
        let tables = [table(&arrays[0])?, table(&arrays[1])?];
        Ok(Self {
            march: kernel("march")?,
            boxes: kernel("boxes")?,
            tables,
            extents: extents.map(|n| n as u64),
        })
    }
}

impl Sweeper for Kernels {
    fn sweep(&self, stream: &Stream, now: usize, blocks: &[Block]) -> Result<(), DeviceError> {
        let table = |level: usize| self.tables[level].base().addr().get() as Address;
        let fields = self.tables[0].len();
        let mut sweep = Sweep {
            from: table(now),
            to: table(1 - now),
            fields: fields as u64,
            extents: self.extents,
            boxes: blocks.len() as u64,
            low: [[0; 3]; BOXES],
            high: [[0; 3]; BOXES],
            begin: [0; BOXES + 1],
        };
        let mut cells = 0;
        for (at, block) in blocks.iter().enumerate() {
            (sweep.low[at], sweep.high[at]) = (block.low.map(|n| n as u64), block.high.map(|n| n as u64));
            cells += block.cells();
            sweep.begin[at + 1] = cells as u64;
        }
        let (kernel, grid, threads) = match blocks {
            [one] if one.extent(2) > THIN => {
                let x = one.extent(2).div_ceil(TILE[0] as usize).min(MOST_X);
                let y = one.extent(1).div_ceil(TILE[1] as usize).min(MOST);
                let z = (one.extent(0).div_ceil(DEPTH) * fields).min(MOST);
                (&self.march, [x, y, z], [TILE[0], TILE[1], 1])
            }
            _ => {
                let x = cells.div_ceil(THREADS as usize).min(MOST_X);
                (&self.boxes, [x, fields.min(MOST), 1], [THREADS, 1, 1])
            }
        };
        // SAFETY: `Sweep` is the kernels' argument. All boxes and their neighbours lie within the arrays, which have these extents
        // and live until the stream is done with them (`OnDevice` waits for it); a sweep reads one level and writes the
        // other, and exchanges are ordered with it by the stream.
        unsafe { kernel.launch(stream, grid.map(|n| n as u32), threads, &sweep) }
    }
}
