//! GPUs as a rig of the conformance programs, and GPU-only tests.

mod alone;
mod children;
mod kinds;
mod mappings;
mod raw;

pub use alone::TESTS;
pub use children::child;
#[allow(unused_imports, reason = "of the measurements")]
pub use raw::Raw;

use crate::suite::{self, Outcome};
use halocline_device::cuda::{Compiler, CudaDriver, Function, Module};
use halocline_device::{Device, DeviceError, Driver, Memory, RawStream, Stream, Variable};
use std::ffi::c_void;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A test.
pub enum Test {
    Suite(fn(&dyn suite::Rig) -> Outcome),
    Gpu(fn(&Rig) -> Outcome),
}

impl Test {
    pub fn run(&self, rig: &Rig) -> Outcome {
        match self {
            Test::Suite(program) => program(rig)?,
            Test::Gpu(test) => test(rig)?,
        }
        rig.take_wrong()
    }
}

/// The kernels of the tests on one GPU.
pub struct Gpu {
    pub driver: Arc<CudaDriver>,
    fill: Function,
    check: Function,
    delay: Function,
    empty: Function,
    fault: Function,
    _module: Module,
}

/// Two GPUs, or one GPU twice.
pub struct Rig {
    pub gpus: Vec<Gpu>,
    devices: [Device; 2],
    /// A word that counts wrong words.
    wrong: Memory,
    random: AtomicU64,
}

const KERNELS: &str = include_str!("kernels.cu");

impl Gpu {
    fn new(ordinal: u32) -> Result<Self, DeviceError> {
        let driver = CudaDriver::open(ordinal)?;
        let compiled = Compiler::load_for(driver.version()?)?.compile(
            "kernels.cu",
            KERNELS,
            &[],
            driver.capability()?,
        )?;
        let module = Module::load(&driver, &compiled)?;
        Ok(Self {
            fill: module.function("fill")?,
            check: module.function("check")?,
            delay: module.function("delay")?,
            empty: module.function("empty")?,
            fault: module.function("fault")?,
            driver,
            _module: module,
        })
    }

    fn launch(&self, stream: RawStream, kernel: Function, blocks: u32, arguments: &mut [u64]) -> Outcome {
        let arguments: Vec<*mut c_void> =
            arguments.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        // SAFETY: each kernel takes as many words as its caller gives. The callers synchronise the stream before the
        // memory goes, and the module is held by `self`.
        unsafe { kernel.launch(&self.driver, stream, [blocks, 1, 1], [256, 1, 1], &arguments) }
    }

    pub fn ordinal(&self) -> u32 {
        self.driver.ordinal()
    }

    pub fn empty(&self, stream: &Stream) -> Outcome {
        self.launch(stream.raw(), self.empty, 1, &mut [])
    }

    /// Keeps a stream busy.
    pub fn delay(&self, stream: &Stream, nanoseconds: u64) -> Outcome {
        self.launch(stream.raw(), self.delay, 1, &mut [nanoseconds])
    }

    /// Keeps the whole GPU busy.
    pub fn delay_all(&self, stream: &Stream, nanoseconds: u64) -> Outcome {
        self.launch(stream.raw(), self.delay, 8 * self.driver.multiprocessors(), &mut [nanoseconds])
    }

    pub fn fault(&self, stream: &Stream) -> Outcome {
        self.launch(stream.raw(), self.fault, 1, &mut [])
    }
}

/// The number of GPUs required, which the `gpu/` scripts set in `HALOCLINE_NEED_GPUS`. If it is unset, 0:
/// tests without a GPU are skipped.
pub fn needed() -> usize {
    Variable::read("HALOCLINE_NEED_GPUS")
        .map_or(0, |variable| variable.number(0..=64).expect("a number of GPUs") as usize)
}

/// Reports that there is no GPU, or why; an error if one is required.
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

impl Rig {
    pub fn new() -> Result<Self, DeviceError> {
        let mut gpus = vec![Gpu::new(0)?];
        match Gpu::new(1) {
            Ok(gpu) => gpus.push(gpu),
            Err(DeviceError::NoDevice { .. }) => {}
            Err(other) => return Err(other),
        }
        if gpus.len() < needed().min(2) {
            return Err(DeviceError::NoDevice { device: 1, count: gpus.len() as u32 });
        }
        let device = |at: usize| Device::new(Arc::clone(&gpus[at % gpus.len()].driver) as Arc<dyn Driver>);
        let devices = [device(0), device(1)];
        if gpus.len() == 2 {
            devices[0].enable_peer(&devices[1])?;
            devices[1].enable_peer(&devices[0])?;
        }
        let wrong = devices[0].allocate_pinned(8)?;
        Ok(Self { gpus, devices, wrong, random: AtomicU64::new(1) })
    }

    pub fn describe(&self) -> String {
        let names: Vec<String> = self.gpus.iter().map(|gpu| gpu.driver.name()).collect();
        format!("devices: {}", names.join(", "))
    }

    pub fn gpu(&self, stream: &Stream) -> &Gpu {
        &self.gpus[stream.device().ordinal() as usize]
    }

    fn take_wrong(&self) -> Outcome {
        // SAFETY: the word lies in pinned memory of `self`, and kernels write it by atomic operations.
        let wrong = unsafe { self.wrong.load(0) };
        // SAFETY: the word lies in pinned memory of `self`, and kernels write it by atomic operations.
        unsafe { self.wrong.store(0, 0) };
        assert_eq!(wrong, 0, "words that kernels found wrong");
        Ok(())
    }
}

impl suite::Rig for Rig {
    fn devices(&self) -> &[Device; 2] {
        &self.devices
    }

    fn fill(&self, stream: &Stream, memory: &Memory, value: u64) -> Outcome {
        let (gpu, words) = (self.gpu(stream), memory.place().bytes as u64 / 8);
        gpu.launch(stream.raw(), gpu.fill, 264, &mut [memory.at(0), words, value])
    }

    fn check(&self, stream: &Stream, memory: &Memory, value: u64) -> Outcome {
        let (gpu, words) = (self.gpu(stream), memory.place().bytes as u64 / 8);
        gpu.launch(stream.raw(), gpu.check, 264, &mut [memory.at(0), words, value, self.wrong.at(0)])
    }

    fn delay(&self, stream: &Stream) -> Outcome {
        // Knuth's generator of MMIX.
        let next = |seed: u64| seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let seed = self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seed| Some(next(seed)));
        match seed.unwrap_or_default() >> 60 {
            0..6 => Ok(()),
            6..11 => self.gpu(stream).delay(stream, 20_000),
            11..15 => self.gpu(stream).delay(stream, 200_000),
            _ => self.gpu(stream).delay_all(stream, 300_000),
        }
    }

    fn pause(&self) {
        std::thread::yield_now();
    }

    fn threads(&self, body: &(dyn Fn(usize) -> Outcome + Sync)) -> Outcome {
        std::thread::scope(|scope| {
            let threads = [0, 1].map(|rank| scope.spawn(move || body(rank)));
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    }

    fn cases(&self) -> u32 {
        400
    }

    fn accesses(&self) -> usize {
        // Half of the multiprocessors have a block of the waiting parts, with items of 4096 accesses: four
        // items for each of four parts.
        2048 * self.gpus[0].driver.multiprocessors() as usize
    }
}
