//! GPUs as a [`Rig`]: the cases of device fields, and those that only GPUs can run (`cases.rs`). `program.rs` runs them.

pub mod capture;
mod cases;
#[path = "../../../halocline-device/tests/cuda/gpu/kinds.rs"]
mod kinds;
mod mapped;
pub mod meter;
pub mod packets;
pub mod program;
#[path = "../../../halocline-device/tests/cuda/gpu/raw.rs"]
mod raw;
pub mod rows;
mod victim;

use crate::device_fixtures::{Kernels, Piece, Rig, Shape};
use crate::ring::DeviceMemory;
use crate::{Outcome, Trouble, fail};
use halocline::device::cuda::{Compiler, CudaDriver, Function, Module};
use halocline::device::{Address, Driver, Memory, Variable};
use halocline::{Device, DeviceError, Stream};
use std::ffi::c_void;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A GPU with the kernels of the suite.
pub struct Gpu {
    driver: Arc<CudaDriver>,
    device: Device,
    produce: Function,
    consume: Function,
    interior: Function,
    delay: Function,
    empty: Function,
    fault: Function,
    triad: Function,
    compute: Function,
    stores: Function,
    _module: Module,
}

/// All GPUs that are visible here.
pub struct Gpus {
    gpus: Vec<Gpu>,
    devices: Vec<Device>,
    /// What kernels have found wrong: `Wrong` of the kernels.
    wrong: Memory,
    random: AtomicU64,
}

const KERNELS: &str = include_str!("kernels.cu");

/// Words of `Wrong`.
const WRONG: usize = 7;

impl Gpu {
    /// The GPU with an ordinal.
    pub fn new(ordinal: u32) -> Result<Self, DeviceError> {
        let driver = CudaDriver::open(ordinal)?;
        let compiled =
            Compiler::load_for(driver.version()?)?.compile("gpus.cu", KERNELS, &[], driver.capability()?)?;
        let module = Module::load(&driver, &compiled)?;
        Ok(Self {
            device: Device::new(Arc::clone(&driver) as Arc<dyn Driver>),
            produce: module.function("produce")?,
            consume: module.function("consume")?,
            interior: module.function("interior")?,
            delay: module.function("delay")?,
            empty: module.function("empty")?,
            fault: module.function("fault")?,
            triad: module.function("triad")?,
            compute: module.function("compute")?,
            stores: module.function("stores")?,
            driver,
            _module: module,
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn launch<const N: usize>(
        &self,
        stream: &Stream,
        kernel: Function,
        blocks: u32,
        arguments: [*mut c_void; N],
    ) -> Result<(), DeviceError> {
        // SAFETY: the callers give the arguments of the kernel; memory is there until the stream is through, as the
        // cases see to.
        unsafe { kernel.launch(&self.driver, stream.raw(), [blocks, 1, 1], [256, 1, 1], &arguments) }
    }

    fn blocks(&self, piece: &Piece) -> u32 {
        let cells: u64 = piece.shape().extents.iter().take(piece.shape().axes as usize).product();
        cells.div_ceil(256).clamp(1, 4 * u64::from(self.driver.multiprocessors())) as u32
    }

    /// Keeps a stream busy with one block.
    pub fn delay(&self, stream: &Stream, mut nanoseconds: u64) -> Result<(), DeviceError> {
        self.launch(stream, self.delay, 1, [argument(&mut nanoseconds)])
    }

    /// Keeps the whole GPU busy.
    pub fn delay_all(&self, stream: &Stream, mut nanoseconds: u64) -> Result<(), DeviceError> {
        let blocks = 8 * self.driver.multiprocessors();
        self.launch(stream, self.delay, blocks, [argument(&mut nanoseconds)])
    }

    /// A kernel that does nothing.
    pub fn empty(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.launch(stream, self.empty, 1, [])
    }

    /// A kernel that writes where no memory is.
    pub fn fault(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.launch(stream, self.fault, 1, [])
    }

    /// A kernel of many short blocks that is bound by memory: it reads so many bytes of two arrays and writes one.
    pub fn triad(&self, stream: &Stream, x: &Memory, y: &Memory, bytes: usize) -> Result<(), DeviceError> {
        let (mut from, mut to) = (x.at(0), y.at(0));
        let mut count = (x.place().bytes.min(y.place().bytes).min(bytes) / 16) as u64;
        let blocks = count.div_ceil(1024).clamp(1, 1 << 20) as u32;
        let arguments = [argument(&mut from), argument(&mut to), argument(&mut count)];
        self.launch(stream, self.triad, blocks, arguments)
    }

    /// A kernel of so many waves of short blocks that fill the GPU, bound by arithmetic: it touches no memory.
    pub fn compute(&self, stream: &Stream, waves: u32) -> Result<(), DeviceError> {
        let (mut rounds, mut nowhere) = (200u64, 0u64);
        let blocks = waves.max(1) * 8 * self.driver.multiprocessors();
        self.launch(stream, self.compute, blocks, [argument(&mut rounds), argument(&mut nowhere)])
    }

    /// A kernel that copies bytes, a multiple of 8, between places at multiples of 16, of a peer, too. `share`: blocks for each
    /// multiprocessor.
    ///
    /// # Safety
    /// Both are memory of so many bytes that this GPU reaches, until the stream is through, and nobody else uses the target.
    pub unsafe fn stores(
        &self,
        stream: &Stream,
        (mut to, mut from): (Address, Address),
        bytes: usize,
        share: f64,
    ) -> Result<(), DeviceError> {
        let most = (share * f64::from(self.driver.multiprocessors())).ceil() as u64;
        let mut bytes = bytes as u64;
        let blocks = bytes.div_ceil(16 * 256).clamp(1, most) as u32;
        self.launch(
            stream,
            self.stores,
            blocks,
            [argument(&mut from), argument(&mut to), argument(&mut bytes)],
        )
    }
}

fn argument<T>(value: &mut T) -> *mut c_void {
    (&raw mut *value).cast()
}

/// How many GPUs there must be, as the scripts that bring programs to them say in `HALOCLINE_NEED_GPUS`; 0 if nobody does: then
/// what finds none is skipped.
fn needed() -> usize {
    Variable::read("HALOCLINE_NEED_GPUS")
        .map_or(0, |variable| variable.number(0..=64).expect("a number of GPUs") as usize)
}

/// Says that there is no GPU, or why not: an error where one is needed.
pub fn skipped(what: &str, why: &DeviceError) -> ExitCode {
    match needed() {
        0 => println!("SKIPPED, {what}: {why}"),
        needed => {
            println!("FAILED, {what}: {needed} GPUs are needed: {why}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

impl Gpus {
    fn new() -> Result<Self, DeviceError> {
        let mut gpus = vec![Gpu::new(0)?];
        loop {
            match Gpu::new(gpus.len() as u32) {
                Ok(gpu) => gpus.push(gpu),
                Err(DeviceError::NoDevice { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        if gpus.len() < needed() {
            return Err(DeviceError::NoDevice { device: gpus.len() as u32, count: gpus.len() as u32 });
        }
        for gpu in &gpus {
            let others = gpus.iter().filter(|other| other.device.ordinal() != gpu.device.ordinal());
            others.into_iter().try_for_each(|other| gpu.device.enable_peer(&other.device))?;
        }
        let devices: Vec<Device> = gpus.iter().map(|gpu| gpu.device.clone()).collect();
        let wrong = devices[0].allocate_pinned(8 * WRONG)?;
        Ok(Self { gpus, devices, wrong, random: AtomicU64::new(u64::from(std::process::id())) })
    }

    fn made() -> Result<&'static Self, DeviceError> {
        static THIS: OnceLock<Result<Gpus, DeviceError>> = OnceLock::new();
        THIS.get_or_init(Self::new).as_ref().map_err(Clone::clone)
    }

    /// The GPU of a stream.
    pub fn gpu(&self, stream: &Stream) -> &Gpu {
        &self.gpus[stream.device().ordinal() as usize]
    }

    /// The GPU of a rank.
    pub fn of_rank(&self, rank: usize) -> &Gpu {
        &self.gpus[rank % self.gpus.len()]
    }

    /// [`Kernels::produce`] without delay.
    pub fn produce_at_once(&self, piece: &Piece, stream: &Stream, mut step: u64) -> Result<(), DeviceError> {
        let (gpu, mut shape): (_, Shape) = (self.gpu(stream), *piece.shape());
        gpu.launch(stream, gpu.produce, gpu.blocks(piece), [argument(&mut shape), argument(&mut step)])
    }

    /// [`Kernels::consume`] without delay.
    pub fn consume_at_once(&self, piece: &Piece, stream: &Stream, mut step: u64) -> Result<(), DeviceError> {
        let (gpu, mut shape): (_, Shape) = (self.gpu(stream), *piece.shape());
        let mut wrong = self.wrong.at(0);
        let arguments = [argument(&mut shape), argument(&mut step), argument(&mut wrong)];
        gpu.launch(stream, gpu.consume, gpu.blocks(piece), arguments)
    }
}

impl Kernels for Gpus {
    fn produce(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        self.delay(stream)?;
        self.produce_at_once(piece, stream, step)
    }

    fn read_owned(&self, piece: &Piece, stream: &Stream) -> Result<(), DeviceError> {
        let (gpu, mut shape): (_, Shape) = (self.gpu(stream), *piece.shape());
        let mut nowhere = self.wrong.at(8 * (WRONG - 1));
        gpu.launch(stream, gpu.interior, gpu.blocks(piece), [argument(&mut shape), argument(&mut nowhere)])?;
        self.delay(stream)
    }

    fn consume(&self, piece: &Piece, stream: &Stream, step: u64) -> Result<(), DeviceError> {
        self.delay(stream)?;
        self.consume_at_once(piece, stream, step)
    }
}

impl Rig for Gpus {
    const SEEDS: u64 = 30;
    const DEADLINE: Option<Duration> = Some(Duration::from_secs(8));

    fn get() -> Result<&'static Self, Trouble> {
        Ok(Self::made()?)
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn memories(&self, device: &Device, bytes: usize) -> Result<Vec<DeviceMemory>, DeviceError> {
        Ok(mapped::of_every_kind(device.ordinal(), bytes))
    }

    fn check(&self) -> Outcome {
        // SAFETY: the words lie in pinned memory of `self`, and kernels write them by atomic operations.
        let words: Vec<u64> = (0..WRONG).map(|at| unsafe { self.wrong.load(8 * at) }).collect();
        let [count, step, field, cell, address, found, expected] = words[..] else {
            fail!("{} words", words.len());
        };
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the words lie in pinned memory of `self`, and kernels write them by atomic operations.
        unsafe { self.wrong.store(0, 0) };
        fail!(
            "{count} cells are wrong, first in step {step} cell {cell} of field {field} at {address:#x}: {found:#x} \
             instead of {expected:#x}"
        )
    }

    fn delay(&self, stream: &Stream) -> Result<(), DeviceError> {
        let random = crate::numbers::mix(self.random.fetch_add(1, Ordering::Relaxed));
        match random % 16 {
            0..8 => Ok(()),
            8..12 => self.gpu(stream).delay(stream, 20_000),
            12..15 => self.gpu(stream).delay(stream, 200_000),
            _ => self.gpu(stream).delay_all(stream, 300_000),
        }
    }
}
