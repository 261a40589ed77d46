//! Scheduled exchanges of two ranks, threads of this process, on one GPU or two: checked cell by cell, then timed.
//! `gpu/one` and `gpu/two` carry it to a machine with GPUs.

use halocline::device::cuda::{Compiler, CudaDriver, Function, Module};
use halocline::device::{Device, Driver, Priority, Stream};
use halocline::{
    BindOptions, Communicator, Decomposed, DeviceArray, DomainShape, Field, Halo, HaloExchange, Pattern,
    RegularGrid,
};
use std::ffi::c_void;
use std::sync::{Arc, Barrier};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Exchanges in a row without the host waiting; 64 may be in flight.
const IN_FLIGHT: u32 = 60;

const KERNELS: &str = r#"
extern "C" __global__ void busy(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}
extern "C" __global__ void empty() {}
"#;

/// A GPU with the kernels of this program.
struct Gpu {
    driver: Arc<CudaDriver>,
    device: Device,
    busy: Function,
    empty: Function,
    _module: Module,
}

impl Gpu {
    fn new(ordinal: u32) -> std::result::Result<Self, halocline::DeviceError> {
        let driver = Arc::new(CudaDriver::open(ordinal)?);
        let compiled = Compiler::load()?.compile("busy.cu", KERNELS, &[], driver.capability()?)?;
        let module = Module::load(&driver, &compiled.code)?;
        let device = Device::new(Arc::clone(&driver) as Arc<dyn Driver>);
        let (busy, empty) = (module.function("busy")?, module.function("empty")?);
        Ok(Self { driver, device, busy, empty, _module: module })
    }

    /// Keeps a stream busy for a time.
    fn busy(&self, stream: &Stream, mut nanoseconds: u64) -> Result<()> {
        let arguments: [*mut c_void; 1] = [(&raw mut nanoseconds).cast()];
        // SAFETY: the kernel takes one number.
        Ok(unsafe { self.busy.launch(&self.driver, stream.raw(), [1; 3], [1; 3], &arguments) }?)
    }

    fn empty(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the kernel takes nothing.
        Ok(unsafe { self.empty.launch(&self.driver, stream.raw(), [1; 3], [1; 3], &[]) }?)
    }
}

fn main() -> Result<()> {
    let first = match Gpu::new(0) {
        Ok(gpu) => gpu,
        Err(why) => {
            println!("SKIPPED, scheduled exchanges on GPUs: {why}");
            return Ok(());
        }
    };
    let second = Gpu::new(1).ok();
    let gpus = [&first, second.as_ref().unwrap_or(&first)];
    if second.is_some() {
        gpus[0].device.enable_peer(&gpus[1].device)?;
        gpus[1].device.enable_peer(&gpus[0].device)?;
    }
    let how_many = if second.is_some() { "two GPUs" } else { "one GPU" };
    let stream = first.device.stream(Priority::Normal)?;
    let empty = |count: u32| -> Result<f64> {
        let begin = Instant::now();
        (0..count).try_for_each(|_| first.empty(&stream))?;
        stream.synchronise()?;
        Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    };
    empty(100)?;
    println!("{} ({how_many}), empty kernel {:.2} us", first.driver.name(), empty(1000)?);
    println!(
        "host: of the first, second and third schedule_exchange, then the schedule_waits, behind a kernel of 1 ms"
    );
    println!("{:<44} {:>9}  {:<30} {:<30}", "case", "us", "host us, exchange", "host us, wait");
    for inline in [false, true] {
        for (cells, halo, fields) in [(128, 1, 1), (128, 1, 8), (128, 3, 8)] {
            let row = case(gpus, inline, (cells, halo, fields))?;
            let name =
                format!("{cells}^3, halo {halo}, {fields} fields{}", if inline { ", inline" } else { "" });
            println!("{name:<44} {row}");
        }
    }
    Ok(())
}

fn case(gpus: [&Gpu; 2], inline: bool, size: (usize, usize, usize)) -> Result<String> {
    let barrier = Barrier::new(2);
    let ends = Communicator::threads(2);
    let rows = std::thread::scope(|scope| {
        let start = |comm: Communicator| {
            let (gpu, barrier) = (gpus[comm.rank()], &barrier);
            scope.spawn(move || {
                let outcome = rank(&comm, gpu, barrier, inline, size);
                if let Err(why) = &outcome {
                    // The other one would wait at the barrier.
                    println!("rank {}: {why}", comm.rank());
                    std::process::exit(1);
                }
                outcome
            })
        };
        let ranks: Vec<_> = ends.into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect::<Result<Vec<String>>>()
    })?;
    Ok(rows.into_iter().next().unwrap_or_default())
}

/// What a cell of a field holds in a step.
fn value(step: usize, field: usize, cell: [i64; 3], extents: [usize; 3]) -> f64 {
    let id =
        (0..3).fold(0, |id, axis| id * extents[axis] + cell[axis].rem_euclid(extents[axis] as i64) as usize);
    ((step * 8 + field) * (1 << 23) + id) as f64
}

/// Coordinates of all cells of an array, and whether each is owned.
fn cells(shape: &DomainShape) -> Result<Vec<([i64; 3], bool)>> {
    let DomainShape::Regular { first, owned, halo } = shape else { return Err("no regular domain".into()) };
    let extents = shape.extents();
    let all = (0..extents.iter().product::<usize>()).map(|number| {
        let at = [number / (extents[1] * extents[2]), number / extents[2] % extents[1], number % extents[2]];
        let within: [i64; 3] = std::array::from_fn(|axis| at[axis] as i64 - halo[axis].0 as i64);
        let is_owned = (0..3).all(|axis| (0..owned[axis] as i64).contains(&within[axis]));
        (std::array::from_fn(|axis| first[axis] + within[axis]), is_owned)
    });
    Ok(all.collect())
}

fn rank(
    comm: &Communicator,
    gpu: &Gpu,
    barrier: &Barrier,
    inline: bool,
    (n, width, fields): (usize, usize, usize),
) -> Result<String> {
    let extents = [2 * n, n, n];
    let grid = RegularGrid::new(extents).periodic([true; 3]);
    let pattern = grid.decompose(2)?.pattern(comm, Halo::uniform(width))?;
    let (_, shape) = &pattern.plan().domains[0];
    let arrays: Vec<DeviceArray<f64>> = (0..fields)
        .map(|_| DeviceArray::zeros(&gpu.device, &shape.extents()))
        .collect::<std::result::Result<_, _>>()?;
    let bound: Vec<(&Pattern, &Field)> = arrays.iter().map(|array| (&pattern, &**array)).collect();
    let halo = HaloExchange::bind_with(comm, &bound, &BindOptions { inline, ..BindOptions::default() })?;
    let stream = gpu.device.stream(Priority::Normal)?;
    let cells = cells(shape)?;
    for step in 1..=3 {
        for (field, array) in arrays.iter().enumerate() {
            let owned = |&(cell, is_owned): &([i64; 3], bool)| {
                if is_owned { value(step, field, cell, extents) } else { -1.0 }
            };
            array.write(&stream, &cells.iter().map(owned).collect::<Vec<_>>())?;
        }
        barrier.wait();
        gpu.busy(&stream, 300_000)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        for (field, array) in arrays.iter().enumerate() {
            let found = array.read(&stream)?;
            let wrong = cells
                .iter()
                .zip(&found)
                .filter(|((cell, _), found)| **found != value(step, field, *cell, extents));
            let wrong = wrong.count();
            if wrong > 0 {
                return Err(format!(
                    "step {step}, field {field}: {wrong} of {} cells are wrong",
                    found.len()
                )
                .into());
            }
        }
        // Nobody writes what the other may still push from.
        stream.synchronise()?;
        barrier.wait();
    }
    let mut steady = Vec::new();
    for _ in 0..15 {
        barrier.wait();
        let begin = Instant::now();
        for _ in 0..IN_FLIGHT {
            halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        }
        stream.synchronise()?;
        steady.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(IN_FLIGHT));
    }
    let (mut exchanges, mut waits) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for _ in 0..30 {
        stream.synchronise()?;
        barrier.wait();
        gpu.busy(&stream, 1_000_000)?;
        for at in 0..3 {
            let begin = Instant::now();
            let pending = halo.schedule_exchange(&[&stream])?;
            exchanges[at].push(begin.elapsed().as_secs_f64() * 1e6);
            let begin = Instant::now();
            pending.schedule_wait(&stream)?;
            waits[at].push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    stream.synchronise()?;
    barrier.wait();
    if comm.rank() == 0 && n == 128 && width == 1 && fields == 1 {
        println!("{}", halo.explain());
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let list = |times: &mut [Vec<f64>; 3]| {
        times.iter_mut().map(|times| format!("{:.1}", median(times))).collect::<Vec<_>>().join(", ")
    };
    Ok(format!("{:>9.1}  {:<30} {:<30}", median(&mut steady), list(&mut exchanges), list(&mut waits)))
}
