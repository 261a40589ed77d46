//! Scheduled exchanges of two ranks, on one GPU or two: checked cell by cell, then timed. `gpu/one` and `gpu/two` carry it to
//! a machine with GPUs.
//!
//! Without arguments the ranks are threads of this process; with `ranks`, they are whatever has started it (`mpirun`).

use halocline::device::Priority;
use halocline::{
    BindOptions, Communicator, Decomposed, DeviceArray, DomainShape, Field, Halo, HaloExchange, Pattern,
    RegularGrid, Stream,
};
use halocline_conformance::gpus::Gpu;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Exchanges in a row without the host waiting; 64 may be in flight.
const IN_FLIGHT: u32 = 60;

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
        gpus[0].device().enable_peer(gpus[1].device())?;
        gpus[1].device().enable_peer(gpus[0].device())?;
    }
    let how_many = if second.is_some() { "two GPUs" } else { "one GPU" };
    if std::env::args().any(|argument| argument == "ranks") {
        let comm = Communicator::init()?;
        return all(&comm, gpus, how_many);
    }
    std::thread::scope(|scope| {
        let ranks: Vec<_> = Communicator::threads(2)
            .into_iter()
            .map(|comm| scope.spawn(move || all(&comm, gpus, how_many)))
            .collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    })
}

fn all(comm: &Communicator, gpus: [&Gpu; 2], how_many: &str) -> Result<()> {
    let gpu = gpus[comm.rank() % 2];
    let say = |line: String| {
        if comm.rank() == 0 {
            println!("{line}");
        }
    };
    let empty = time_of(gpu, 1000, |stream| Ok(gpu.empty(stream)?))?;
    comm.barrier()?;
    say(format!("\n{} ranks by {}, {how_many}, empty kernel {empty:.2} us", comm.size(), comm.transport()));
    say("host: of the first, second and third schedule_exchange, then the schedule_waits, behind a kernel of 1 ms".into());
    say(format!(
        "{:<48} {:>9} {:>7} {:>6}  {:<40} {:<20}",
        "case", "us", "empties", "given", "host us, exchange", "host us, wait"
    ));
    for (cells, width, fields) in [(128, 1, 1), (128, 1, 8), (128, 3, 8), (256, 3, 8)] {
        let yard = Yard::new(comm, gpu, [2 * cells, cells, cells], true, width, fields)?;
        let modes = [(false, false), (true, false), (false, true), (true, true)];
        for (number, (inline, stream_waits)) in modes.into_iter().enumerate() {
            // On one GPU, too, where ranks that share it would have streams wait: few blocks of two ranks find room beside each other.
            let options = BindOptions { inline, stream_waits, alone: true, ..BindOptions::default() };
            let halo = yard.bind(comm, options)?;
            if number % 2 == 0 && cells == 128 {
                yard.check(comm, gpu, &halo)?;
            }
            if comm.rank() == 0 && number == 0 && width == 1 && fields == 1 {
                say(halo.explain());
            }
            let (steady, given) = yard.steady(comm, gpu, &halo)?;
            let hosts = yard.host_times(comm, gpu, &halo)?;
            let how = [", inline", ""][usize::from(!inline)];
            let waits = [", waits of streams", ""][usize::from(!stream_waits)];
            let name = format!("{cells}^3, halo {width}, {fields} fields{how}{waits}");
            say(format!("{name:<48} {steady:>9.1} {:>7.1} {given:>6.1}  {hosts}", steady / empty));
        }
    }
    for size in [(128, 1, 1), (128, 1, 8), (128, 3, 8), (256, 3, 8)] {
        overlap(comm, gpu, size, say)?;
    }
    Ok(())
}

/// The time of one of many kernels, one behind the other, in microseconds.
fn time_of(gpu: &Gpu, count: u32, kernel: impl Fn(&Stream) -> Result<()>) -> Result<f64> {
    let stream = gpu.device().stream(Priority::Normal)?;
    let mut times = Vec::new();
    for _ in 0..7 {
        let begin = Instant::now();
        (0..count).try_for_each(|_| kernel(&stream))?;
        stream.synchronise()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(count));
    }
    Ok(median(&mut times))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What a cell of a field holds in a step.
fn value(step: usize, field: usize, cell: [i64; 3], extents: [usize; 3]) -> f64 {
    let id =
        (0..3).fold(0, |id, axis| id * extents[axis] + cell[axis].rem_euclid(extents[axis] as i64) as usize);
    ((step * 8 + field) * (1 << 25) + id) as f64
}

/// Fields of one rank on a grid of three axes.
struct Yard {
    extents: [usize; 3],
    pattern: Pattern,
    arrays: Vec<DeviceArray<f64>>,
    /// Of each cell of an array: coordinates, whether it is owned, whether it lies in the grid.
    cells: Vec<([i64; 3], bool, bool)>,
    stream: Stream,
}

impl Yard {
    fn new(
        comm: &Communicator,
        gpu: &Gpu,
        extents: [usize; 3],
        periodic: bool,
        width: usize,
        fields: usize,
    ) -> Result<Self> {
        let grid = RegularGrid::new(extents).periodic([periodic; 3]);
        // Cut across the slowest axis.
        let slab = |rank: usize| {
            let (first, end) = (extents[0] * rank / comm.size(), extents[0] * (rank + 1) / comm.size());
            (rank, vec![first, 0, 0], vec![end - first, extents[1], extents[2]])
        };
        let slabs = (0..comm.size()).map(slab).collect();
        let pattern = grid.decompose_boxes(slabs, comm.size())?.pattern(comm, Halo::uniform(width))?;
        let (_, shape) = &pattern.plan().domains[0];
        let DomainShape::Regular { first, owned, halo } = shape else {
            return Err("no regular domain".into());
        };
        let all = shape.extents();
        let cells = (0..all.iter().product::<usize>())
            .map(|number| {
                let at = [number / (all[1] * all[2]), number / all[2] % all[1], number % all[2]];
                let within: [i64; 3] = std::array::from_fn(|axis| at[axis] as i64 - halo[axis].0 as i64);
                let is_owned = (0..3).all(|axis| (0..owned[axis] as i64).contains(&within[axis]));
                let cell: [i64; 3] = std::array::from_fn(|axis| first[axis] + within[axis]);
                let inside = (0..3).all(|axis| (0..extents[axis] as i64).contains(&cell[axis]));
                (cell, is_owned, periodic || inside)
            })
            .collect();
        let arrays = (0..fields).map(|_| DeviceArray::zeros(gpu.device(), &all));
        let arrays = arrays.collect::<std::result::Result<_, _>>()?;
        let stream = gpu.device().stream(Priority::Normal)?;
        Ok(Self { extents, arrays, cells, stream, pattern })
    }

    fn bind(&self, comm: &Communicator, options: BindOptions) -> Result<HaloExchange> {
        let bound: Vec<(&Pattern, &Field)> =
            self.arrays.iter().map(|array| (&self.pattern, &**array)).collect();
        Ok(HaloExchange::bind_with(comm, &bound, &options)?)
    }

    /// Three steps, of which every cell is compared.
    fn check(&self, comm: &Communicator, gpu: &Gpu, halo: &HaloExchange) -> Result<()> {
        let stream = &self.stream;
        for step in 1..=3 {
            for (field, array) in self.arrays.iter().enumerate() {
                let owned = |&(cell, is_owned, _): &([i64; 3], bool, bool)| {
                    if is_owned { value(step, field, cell, self.extents) } else { -1.0 }
                };
                array.write(stream, &self.cells.iter().map(owned).collect::<Vec<_>>())?;
            }
            comm.barrier()?;
            gpu.delay(stream, 300_000)?;
            halo.schedule_exchange(&[stream])?.schedule_wait(stream)?;
            for (field, array) in self.arrays.iter().enumerate() {
                let found = array.read(stream)?;
                let expected = |&(cell, _, is_there): &([i64; 3], bool, bool)| {
                    if is_there { value(step, field, cell, self.extents) } else { -1.0 }
                };
                let wrong =
                    self.cells.iter().zip(&found).filter(|(cell, found)| **found != expected(cell)).count();
                if wrong > 0 {
                    let count = found.len();
                    return Err(
                        format!("step {step}, field {field}: {wrong} of {count} cells are wrong").into()
                    );
                }
            }
            // Nobody writes what the other may still push from.
            stream.synchronise()?;
            comm.barrier()?;
        }
        Ok(())
    }

    /// The time of an exchange of many in a row, and the host's time of giving it, in microseconds.
    fn steady(&self, comm: &Communicator, gpu: &Gpu, halo: &HaloExchange) -> Result<(f64, f64)> {
        self.steps(comm, gpu, Some(halo), IN_FLIGHT, |_| Ok(()))
    }

    /// The time of a step of many in a row: the exchange, if there is one, beside interior work; and the host's time of giving it.
    fn steps(
        &self,
        comm: &Communicator,
        _gpu: &Gpu,
        halo: Option<&HaloExchange>,
        count: u32,
        interior: impl Fn(&Stream) -> Result<()>,
    ) -> Result<(f64, f64)> {
        let (mut times, mut given) = (Vec::new(), Vec::new());
        for _ in 0..15 {
            comm.barrier()?;
            let begin = Instant::now();
            for _ in 0..count {
                let pending = halo.map(|halo| halo.schedule_exchange(&[&self.stream])).transpose()?;
                interior(&self.stream)?;
                pending.map_or(Ok(()), |pending| pending.schedule_wait(&self.stream))?;
            }
            given.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(count));
            self.stream.synchronise()?;
            times.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(count));
        }
        comm.barrier()?;
        Ok((median(&mut times), median(&mut given)))
    }

    /// Times of the host behind a kernel of 1 ms, in microseconds: medians, and in brackets the ninth tenths.
    fn host_times(&self, comm: &Communicator, gpu: &Gpu, halo: &HaloExchange) -> Result<String> {
        let (mut exchanges, mut waits) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
        for _ in 0..30 {
            self.stream.synchronise()?;
            comm.barrier()?;
            gpu.delay(&self.stream, 1_000_000)?;
            for at in 0..3 {
                let begin = Instant::now();
                let pending = halo.schedule_exchange(&[&self.stream])?;
                exchanges[at].push(begin.elapsed().as_secs_f64() * 1e6);
                let begin = Instant::now();
                pending.schedule_wait(&self.stream)?;
                waits[at].push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        self.stream.synchronise()?;
        comm.barrier()?;
        let list = |times: &mut [Vec<f64>; 3]| {
            let each = times
                .iter_mut()
                .map(|times| format!("{:.1} ({:.1})", median(times), times[times.len() * 9 / 10]));
            each.collect::<Vec<_>>().join(", ")
        };
        Ok(format!("{:<40} {}", list(&mut exchanges), list(&mut waits)))
    }
}

/// An exchange beside interior kernels of many short blocks, one bound by arithmetic and one by memory, of about 2.5 times its time.
fn overlap(
    comm: &Communicator,
    gpu: &Gpu,
    (cells, width, fields): (usize, usize, usize),
    say: impl Fn(String) + Copy,
) -> Result<()> {
    let yard = Yard::new(comm, gpu, [2 * cells, cells, cells], true, width, fields)?;
    let halo = yard.bind(comm, BindOptions::default())?;
    let (exchange, _) = yard.steady(comm, gpu, &halo)?;
    // All ranks take the same.
    let wanted = comm.all_reduce(&[(exchange * 2500.0) as u64], halocline::Reduce::Max)?[0] as f64 / 1000.0;
    let bytes = 1 << 30;
    let (x, y) = (gpu.device().allocate(bytes)?, gpu.device().allocate(bytes)?);
    let per_byte = time_of(gpu, 20, |stream| Ok(gpu.triad(stream, &x, &y, bytes)?))? / bytes as f64;
    let bytes = ((wanted / per_byte) as usize & !0xffff).min(bytes);
    let per_wave = time_of(gpu, 20, |stream| Ok(gpu.compute(stream, 100)?))? / 100.0;
    let waves = (wanted / per_wave).ceil() as u32;
    for what in ["nothing", "arithmetic", "memory"] {
        let interior = |stream: &Stream| {
            Ok(match what {
                "nothing" => gpu.empty(stream),
                "arithmetic" => gpu.compute(stream, waves),
                _ => gpu.triad(stream, &x, &y, bytes),
            }?)
        };
        let (alone, _) = yard.steps(comm, gpu, None, IN_FLIGHT, interior)?;
        let (both, _) = yard.steps(comm, gpu, Some(&halo), IN_FLIGHT, interior)?;
        say(format!(
            "overlap, {cells}^3, halo {width}, {fields} fields: exchange {exchange:.1} us, interior of {what} {alone:.1}, step {both:.1}: {:.2} of the \
             interior",
            both / alone
        ));
    }
    Ok(())
}
