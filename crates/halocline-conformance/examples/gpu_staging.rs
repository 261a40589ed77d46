//! Exchanges of two ranks on GPUs whose bytes go through the host, measured in one run beside what they consist of: copies
//! over PCIe alone, messages of MPI alone.
//!
//! ```sh
//! HALOCLINE_NODE_AWARE=off mpirun -n 2 gpu_staging           # messages of MPI
//! halocline launch -n 2 -- gpu_staging                       # messages and mailboxes of a node
//! gpu_staging [MIB...]                                       # two threads; MIB: chunks of a message
//! ```

use halocline::device::{Memory, Priority};
use halocline::{
    BindOptions, Communicator, Decomposed, DeviceArray, Halo, HaloExchange, LinkChoice, RegularGrid, Stream,
    TestOptions,
};
use halocline_comm::Endpoint;
use halocline_conformance::gpus::{Gpu, skipped};
use halocline_conformance::raw_mpi;
use std::process::ExitCode;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of a message.
const BYTES: usize = 64 << 20;
/// The most rounds of a measurement, and about how long all of them take, in seconds.
const ROUNDS: usize = 15;
const SECONDS: f64 = 1.0;

fn main() -> ExitCode {
    let first = match Gpu::new(0) {
        Ok(gpu) => gpu,
        Err(why) => return skipped("staged exchanges on GPUs", &why),
    };
    match run(&first) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(first: &Gpu) -> Result<()> {
    let second = Gpu::new(1).ok();
    let gpus = [first, second.as_ref().unwrap_or(first)];
    let how_many = if second.is_some() { "two GPUs" } else { "one GPU" };
    let comm = Communicator::init()?;
    if comm.size() == 2 {
        return all(&comm, gpus[comm.rank()], how_many);
    }
    std::thread::scope(|scope| {
        let rank = |comm: Communicator| scope.spawn(move || all(&comm, gpus[comm.rank()], how_many));
        let ranks: Vec<_> = Communicator::threads(2).into_iter().map(rank).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    })
}

fn all(comm: &Communicator, gpu: &Gpu, how_many: &str) -> Result<()> {
    let say = |line: String| {
        if comm.rank() == 0 {
            println!("{line}");
        }
    };
    let cores = std::thread::available_parallelism()?;
    let (transport, placement) = (comm.transport(), comm.link().cores());
    say(format!("\nstaged, 2 ranks by {transport}, {how_many}, {cores} cores for this rank ({placement:?})"));
    let mut chunks: Vec<usize> = std::env::args().skip(1).filter_map(|mega| mega.parse().ok()).collect();
    if chunks.is_empty() {
        chunks = vec![8, 16, 32, 64];
    }
    bandwidth(comm, gpu, &chunks, say)
}

/// The ways that two ranks have here, of those that are staged.
fn ways(comm: &Communicator) -> Vec<LinkChoice> {
    match comm.link().bell(1 - comm.rank()) {
        Some(_) => vec![LinkChoice::Message, LinkChoice::Mailbox],
        None => vec![LinkChoice::Message],
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// GB/s of a message in so many seconds.
fn rate(seconds: f64) -> f64 {
    BYTES as f64 / seconds / 1e9
}

/// The median time of something that both ranks begin at once, in seconds.
fn timed(comm: &Communicator, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut once = || -> Result<f64> {
        comm.barrier()?;
        let begin = Instant::now();
        work()?;
        Ok(begin.elapsed().as_secs_f64())
    };
    let first = once()?;
    let count = affordable(comm, first, ROUNDS)?;
    let mut times = (0..count).map(|_| once()).collect::<Result<Vec<_>>>()?;
    comm.barrier()?;
    Ok(median(&mut times))
}

/// How often something of so many seconds is done, the same on both ranks.
fn affordable(comm: &Communicator, seconds: f64, most: usize) -> Result<usize> {
    Ok(((SECONDS / slower(comm, seconds)?) as usize).clamp(2, most))
}

/// What the slower of both ranks takes.
fn slower(comm: &Communicator, seconds: f64) -> Result<f64> {
    Ok(comm.all_reduce(&[(seconds * 1e9) as u64], halocline::Reduce::Max)?[0] as f64 / 1e9)
}

/// Messages of 64 MB both ways through the host, and what they consist of.
fn bandwidth(comm: &Communicator, gpu: &Gpu, chunks: &[usize], say: impl Fn(String) + Copy) -> Result<()> {
    let device = gpu.device();
    let pinned = [device.allocate_pinned(BYTES)?, device.allocate_pinned(BYTES)?];
    let on_device = [device.allocate(BYTES)?, device.allocate(BYTES)?];
    let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
    let copy = |stream: &Stream, target: &Memory, source: &Memory| -> Result<()> {
        // SAFETY: both live until the stream is done, and nothing else uses them.
        Ok(unsafe { stream.copy(target.at(0), source.at(0), BYTES) }?)
    };
    let one = |target: &Memory, source: &Memory| {
        timed(comm, || {
            copy(&streams[0], target, source)?;
            Ok(streams[0].synchronise()?)
        })
    };
    let (down, up) = (one(&pinned[0], &on_device[0])?, one(&on_device[1], &pinned[1])?);
    let both = timed(comm, || {
        copy(&streams[0], &pinned[0], &on_device[0])?;
        copy(&streams[1], &on_device[1], &pinned[1])?;
        Ok(streams.iter().try_for_each(Stream::synchronise)?)
    })?;
    let both = slower(comm, both)?;
    say(format!(
        "PCIe copies of 64 MB alone, both ranks at once: {:.1} GB/s to the host, {:.1} from it, {:.1} each both ways at once",
        rate(down),
        rate(up),
        rate(both)
    ));
    let mut least = both;
    if comm.transport() == "mpi" {
        let (mut out, mut into) = (vec![1; BYTES], vec![0; BYTES]);
        let mut best = f64::MAX;
        for parts in [1, 8] {
            let plain = raw_mpi::both_ways(comm.rank(), &out, &mut into, parts, 7)?.as_secs_f64();
            // SAFETY: pinned memory of so many bytes, which nothing uses now.
            let (from, to) = unsafe { (pinned[0].bytes(0..BYTES), pinned[1].bytes_mut(0..BYTES)) };
            let locked = raw_mpi::both_ways(comm.rank(), from, to, parts, 7)?.as_secs_f64();
            let (plain, locked) = (slower(comm, plain)?, slower(comm, locked)?);
            best = best.min(plain).min(locked);
            say(format!(
                "MPI alone, 64 MB both ways in {parts} message(s): {:.2} GB/s a direction, pinned memory {:.2}",
                rate(plain),
                rate(locked)
            ));
        }
        out.clear();
        least = least.max(best);
    }
    // Nothing of them stays while exchanges are measured.
    drop((pinned, on_device));
    let cells = BYTES / size_of::<u64>();
    let grid = RegularGrid::new([2 * cells]);
    let pattern = grid.decompose(2)?.pattern(comm, Halo::uniform(cells))?;
    let (_, shape) = &pattern.plan().domains[0];
    let array = DeviceArray::<u64>::zeros(device, &shape.extents())?;
    for link in ways(comm) {
        for &mega in if link == LinkChoice::Message { chunks } else { &chunks[..1] } {
            let options = BindOptions::default()
                .link(link)
                .for_tests(TestOptions { chunk: Some(mega << 20), ..TestOptions::default() });
            let halo = HaloExchange::bind_with(comm, [(&pattern, &*array)], &options)?;
            let stream = &streams[0];
            check(comm, &array, &halo, stream)?;
            let exchange = || -> Result<()> { Ok(halo.schedule_exchange(&[stream])?.schedule_wait(stream)?) };
            let single = timed(comm, || {
                exchange()?;
                Ok(stream.synchronise()?)
            })?;
            let row = timed(comm, || {
                (0..8).try_for_each(|_| exchange())?;
                Ok(stream.synchronise()?)
            })?;
            let (single, row) = (slower(comm, single)?, slower(comm, row)? / 8.0);
            say(format!(
                "64 MB both ways by {link:?}, chunks of {mega} MiB: {:.2} GB/s a direction, 8 in a row {:.2}: {:.2} and {:.2} of the slower \
                 of PCIe{} alone",
                rate(single),
                rate(row),
                least / single,
                least / row,
                if comm.transport() == "mpi" { " and MPI" } else { "" },
            ));
            if comm.rank() == 0 && mega == chunks[0] {
                say(halo.explain());
            }
        }
    }
    Ok(())
}

/// Two steps, of which every cell is compared.
fn check(comm: &Communicator, array: &DeviceArray<u64>, halo: &HaloExchange, stream: &Stream) -> Result<()> {
    let value = |rank: usize, step: usize, at: usize| ((rank * 2 + step) << 32 | at) as u64;
    let count = array.read(stream)?.len();
    for step in 0..2 {
        let own: Vec<u64> = (0..count).map(|at| value(comm.rank(), step, at)).collect();
        array.write(stream, &own)?;
        comm.barrier()?;
        halo.schedule_exchange(&[stream])?.schedule_wait(stream)?;
        let found = array.read(stream)?;
        // Rank 0 owns the first half of the grid; each has as much halo on both sides, of which that outside the grid stays.
        let cells = BYTES / size_of::<u64>();
        let halo_begins = if comm.rank() == 0 { 2 * cells } else { 0 };
        for (at, &found) in found.iter().enumerate() {
            let wanted = match (halo_begins..halo_begins + cells).contains(&at) {
                true => value(1 - comm.rank(), step, cells + at - halo_begins),
                false => value(comm.rank(), step, at),
            };
            if found != wanted {
                return Err(format!("step {step}, cell {at}: {found:#x} instead of {wanted:#x}").into());
            }
        }
        comm.barrier()?;
    }
    Ok(())
}
