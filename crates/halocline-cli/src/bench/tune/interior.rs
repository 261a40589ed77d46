//! Work of a rank beside its exchanges.

use halocline::DeviceError;
use halocline::device::cuda::{Kernel, Program};
use halocline::device::{Address, Device, Memory, Stream};

/// What bounds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Many short blocks that touch no memory.
    Arithmetic,
    /// Many short blocks that read and write memory.
    Memory,
}

impl Work {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Memory => "memory",
        }
    }
}

/// Who gives such work to streams of a device.
pub(super) trait Interior {
    /// So much of it, in units of a few microseconds.
    fn give(&self, stream: &Stream, work: Work, amount: u32) -> Result<(), DeviceError>;
}

/// Makes one for a device.
pub(super) type Open<'a> = &'a (dyn Fn(&Device) -> Result<Box<dyn Interior>, DeviceError> + Sync);

/// The kernels of `interior.cu`, loaded on a GPU.
pub(super) struct Kernels {
    arithmetic: Kernel,
    memory: Kernel,
    x: Memory,
    y: Memory,
    multiprocessors: u32,
}

/// `Work` of `interior.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Argument {
    x: Address,
    y: Address,
    count: u64,
}

/// Bytes of each of the two arrays: more than caches hold.
const BYTES: usize = 256 << 20;
/// Bytes of each of them, and bytes of an element, of a unit of work.
const UNIT: usize = 1 << 20;
const ELEMENT: usize = 16;
/// Threads of a block; blocks of a unit for each multiprocessor, and rounds of each.
const THREADS: u32 = 256;
const WAVE: u32 = 8;
const ROUNDS: u64 = 200;
/// Elements for each thread.
const EACH: usize = 4;

impl Kernels {
    /// Compiles and loads them. Blocks for a second, the first time on a machine.
    pub(super) fn load(device: &Device, multiprocessors: u32) -> Result<Self, DeviceError> {
        let program = Program::compile(device, "interior.cu", include_str!("interior.cu"), &[])?;
        let kernel = |name: &str| program.kernel(name);
        let (x, y) = (device.allocate(BYTES)?, device.allocate(BYTES)?);
        Ok(Self { arithmetic: kernel("arithmetic")?, memory: kernel("memory")?, x, y, multiprocessors })
    }
}

impl Interior for Kernels {
    fn give(&self, stream: &Stream, work: Work, amount: u32) -> Result<(), DeviceError> {
        let argument = |count: u64| Argument { x: self.x.at(0), y: self.y.at(0), count };
        let launch = |kernel: &Kernel, blocks: u32, count: u64| {
            // SAFETY: `Argument` is the kernels' argument. They stay within so many elements of the two arrays, which nobody else uses and which are
            // there until `measure` has waited for the stream.
            unsafe { kernel.launch(stream, [blocks.max(1), 1, 1], [THREADS, 1, 1], &argument(count)) }
        };
        match work {
            Work::Arithmetic => {
                let blocks = amount.saturating_mul(WAVE * self.multiprocessors).min(i32::MAX as u32);
                launch(&self.arithmetic, blocks, ROUNDS)
            }
            Work::Memory => {
                let mut bytes = amount as usize * UNIT;
                while bytes > 0 {
                    let part = bytes.min(BYTES);
                    let elements = part / ELEMENT;
                    launch(&self.memory, elements.div_ceil(EACH * THREADS as usize) as u32, elements as u64)?;
                    bytes -= part;
                }
                Ok(())
            }
        }
    }
}
