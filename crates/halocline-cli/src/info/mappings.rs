//! `halocline info --mappings`: a few processes map memory of each other, use it, release it, and report.
//!
//! Memory of GPUs where there are some, of simulated devices elsewhere; and of the host.

use super::binary_size;
use crate::device::Kind as Devices;
use crate::error::CommandError;
use crate::ranks::{RanksArgs, Transport, run as run_ranks};
use crate::table::{figure, table};
use halocline::device::sim::{Live, Options, World};
use halocline::device::{Device, Priority, cuda};
use halocline::{
    Communicator, Decomposed, DeviceArray, DeviceError, Halo, HaloExchange, Pattern, RegularGrid, agree,
};
use halocline_comm::Endpoint;
use halocline_comm::mappings::{DeviceId, Limits, MappingError, Mappings, Stats, Target};
use serde_json::{Value, json};
use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};

/// The default number of ranks.
const RANKS: usize = 2;

/// Cells of a rank and of its halo at each end, of 8 bytes.
const CELLS: usize = 1 << 20;
const WIDTH: usize = 1 << 10;

/// Runs `halocline info --mappings` and returns the exit code.
///
/// Call it where no other thread runs: it may start this program again as the ranks of a job.
pub(crate) fn run(ranks: Option<usize>, json: bool) -> Result<u8, CommandError> {
    let has_gpus = Devices::Cuda.find();
    if has_gpus.is_ok() {
        Devices::Cuda.set_environment();
    }
    let is_rank = crate::ranks::is_launched();
    let ranks = ranks.or((!is_rank).then_some(RANKS));
    let args = RanksArgs { ranks, transport: Transport::Auto, node_aware: None };
    let why = has_gpus.err().map(|why| why.source().map_or_else(|| why.to_string(), ToString::to_string));
    run_ranks(&args, |_| Ok(()), || Ok(()), |comm, ()| show(comm, why.as_deref(), json))
}

/// The device of a rank.
enum Home {
    Gpu(Device),
    Simulated(Device, #[expect(dead_code, reason = "held: its thread lets the device go on")] Live),
}

impl Home {
    fn open(comm: &Communicator, is_simulated: bool) -> Result<Self, CommandError> {
        if is_simulated {
            let options = Options { devices: 1, ordered_threads: true, exports: true, ..Options::default() };
            let live = World::live(0, &options).map_err(|source| CommandError::Thread {
                what: "the simulated devices".to_owned(),
                source,
            })?;
            return Ok(Self::Simulated(live.world().device(0)?, live));
        }
        let open = || {
            let count = cuda::inventory()?.gpus.len().max(1);
            cuda::device((comm.rank() % count) as u32)
        };
        Ok(Self::Gpu(agree(comm, open())?))
    }

    fn device(&self) -> &Device {
        let (Self::Gpu(device) | Self::Simulated(device, _)) = self;
        device
    }
}

fn show(comm: &Communicator, why: Option<&str>, json: bool) -> Result<u8, CommandError> {
    let mappings = Mappings::of(comm)?;
    let host = of_host(comm, &mappings)?;
    let home = Home::open(comm, why.is_some())?;
    let device = of_device(comm, &mappings, home.device())?;
    let mine = json!({ "host": host, "device": device }).to_string().into_bytes();
    let all = comm.all_gather(&mine)?;
    if comm.rank() == 0 {
        let read = |(rank, said)| {
            serde_json::from_slice(said).map_err(|_| {
                let advice = "run the same version on all ranks";
                CommandError::failed(format!("rank {rank} sent a report that cannot be read; {advice}"))
            })
        };
        let all = all.iter().map(Vec::as_slice).enumerate().map(read).collect::<Result<Vec<Value>, _>>()?;
        let report = report(&all, mappings.limits(), why, json);
        write!(std::io::stdout().lock(), "{report}").map_err(CommandError::Report)?;
    }
    comm.barrier()?;
    Ok(0)
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// The difference of two statistics.
fn since(before: Stats, now: Stats) -> Value {
    json!({
        "opens": now.opens - before.opens,
        "hits": now.hits - before.hits,
        "evictions": now.evictions - before.evictions,
        "staged": now.staged - before.staged,
        "bytes_held": now.bytes_held,
        "bytes_mapped": now.bytes_mapped,
    })
}

/// Waits until no rank has memory of another rank mapped, as long as a release may take.
fn all_unmapped(comm: &Communicator, mappings: &Mappings) -> Result<(), CommandError> {
    let comm = comm.with_deadline(Some(Duration::from_secs(12)));
    let is_over = || {
        let stats = mappings.stats();
        Ok((stats.bytes_held == 0 && stats.mapped == 0).then_some(()))
    };
    comm.wait_for(None, "memory to be unmapped", is_over)?;
    Ok(comm.barrier()?)
}

/// Memory of the host that the library has allocated, for all other ranks.
fn of_host(comm: &Communicator, mappings: &Mappings) -> Result<Value, CommandError> {
    let before = mappings.stats();
    let memory = comm.allocate(8 * CELLS)?;
    let address = memory.base().as_ptr().expose_provenance() as u64;
    let peers: Vec<usize> = (0..comm.size()).filter(|rank| *rank != comm.rank()).collect();
    let map = || -> Result<(f64, Vec<_>), MappingError> {
        let start = Instant::now();
        let map =
            |&rank: &usize| mappings.map(Target { rank, device: DeviceId::HOST }, address, 8 * CELLS as u64);
        let pinned = peers.iter().map(map).collect::<Result<Vec<_>, _>>()?;
        Ok((millis(start), pinned))
    };
    let (first, pinned) = map()?;
    let (again, pinned_again) = map()?;
    comm.barrier()?;
    let used = since(before, mappings.stats());
    let kind = pinned.first().map_or_else(|| "-".to_owned(), |pinned| pinned.kind().to_string());
    drop((pinned, pinned_again));
    let start = Instant::now();
    mappings.release(address)?;
    let release = millis(start);
    all_unmapped(comm, mappings)?;
    Ok(json!({
        "kind": kind, "map_ms": first, "again_ms": again, "release_ms": release, "used": used,
        "after": since(before, mappings.stats()),
    }))
}

/// A field in memory of a device, bound twice, exchanged, and given up.
fn of_device(comm: &Communicator, mappings: &Mappings, device: &Device) -> Result<Value, CommandError> {
    let total = CELLS * comm.size();
    let pattern = RegularGrid::new([total])
        .periodic([true])
        .decompose(comm.size())?
        .pattern(comm, Halo::uniform(WIDTH))?;
    // The driver takes what it needs for itself the first time.
    exchange(comm, &pattern, device)?;
    all_unmapped(comm, mappings)?;
    let (before, free) = (mappings.stats(), settled(device, None)?);
    comm.barrier()?;
    let array = DeviceArray::<u64>::zeros(device, &[CELLS + 2 * WIDTH])?;
    let bind = || -> Result<(f64, HaloExchange), CommandError> {
        let start = Instant::now();
        let halo = HaloExchange::bind(comm, [(&pattern, &*array)])?;
        Ok((millis(start), halo))
    };
    let (first, halo) = bind()?;
    comm.barrier()?;
    drop(halo);
    let (again, halo) = bind()?;
    run_once(comm, device, &array, &halo)?;
    comm.barrier()?;
    let (used, mapped, table) =
        (since(before, mappings.stats()), device.driver().free_bytes()?, halo.explain());
    comm.barrier()?;
    drop((halo, array));
    all_unmapped(comm, mappings)?;
    let released = settled(device, free)?;
    Ok(json!({
        "name": device.driver().name(), "bind_ms": first, "again_ms": again, "used": used,
        "after": since(before, mappings.stats()), "table": table,
        "free_bytes": {"before": free, "mapped": mapped, "released": released},
    }))
}

/// Free bytes of a device. Frees are deferred, so it waits up to 2 s until they are as many as `before`.
fn settled(device: &Device, before: Option<usize>) -> Result<Option<usize>, DeviceError> {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        let now = device.driver().free_bytes()?;
        if now.is_none() || before.is_some() && now >= before || Instant::now() > until {
            return Ok(now);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn exchange(comm: &Communicator, pattern: &Pattern, device: &Device) -> Result<(), CommandError> {
    let array = DeviceArray::<u64>::zeros(device, &[CELLS + 2 * WIDTH])?;
    let halo = HaloExchange::bind(comm, [(pattern, &*array)])?;
    run_once(comm, device, &array, &halo)?;
    Ok(comm.barrier()?)
}

/// Each rank sends its number, and finds those of its neighbours.
fn run_once(
    comm: &Communicator,
    device: &Device,
    array: &DeviceArray<u64>,
    halo: &HaloExchange,
) -> Result<(), CommandError> {
    let (rank, size) = (comm.rank(), comm.size());
    let stream = device.stream(Priority::Normal)?;
    let mut cells = vec![u64::MAX; CELLS + 2 * WIDTH];
    cells[WIDTH..WIDTH + CELLS].fill(rank as u64);
    array.write(&stream, &cells)?;
    halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
    let cells = array.read(&stream)?;
    let (below, above) = ((rank + size - 1) % size, (rank + 1) % size);
    let of = |cells: &[u64], rank: usize| cells.iter().filter(|cell| **cell != rank as u64).count();
    match of(&cells[..WIDTH], below) + of(&cells[WIDTH + CELLS..], above) {
        0 => Ok(halo.wait()?),
        wrong => Err(CommandError::failed(format!("rank {rank}: {wrong} cells of the halo are wrong"))),
    }
}

fn report(all: &[Value], limits: Limits, why: Option<&str>, json: bool) -> String {
    if json {
        let limits = json!({ "entries": limits.entries, "bytes": Some(limits.bytes).filter(|bytes| *bytes < u64::MAX) });
        return format!(
            "{}\n",
            json!({ "mappings": "tried", "limits": limits, "no_gpu": why, "ranks": all })
        );
    }
    let bytes = match limits.bytes {
        u64::MAX => "any number of bytes".to_owned(),
        bytes => binary_size(bytes),
    };
    let mut text = format!(
        "kept open     {} unused allocations, {bytes} (HALOCLINE_MAPPINGS_ENTRIES, HALOCLINE_MAPPINGS_BYTES)\n",
        limits.entries
    );
    text += &match why {
        Some(why) => format!("devices       simulated ones: {why}\n\n"),
        None => "devices       GPUs, rank r on GPU r modulo their number\n\n".to_owned(),
    };
    let time = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), figure);
    let count = |value: &Value| value.to_string();
    let size = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), binary_size);
    let mut rows = vec![
        ["rank", "memory", "first ms", "again ms", "opens", "hits", "staged", "held", "held after"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (rank, said) in all.iter().enumerate() {
        for (what, first) in [("host", "map_ms"), ("device", "bind_ms")] {
            let (said, used) = (&said[what], &said[what]["used"]);
            rows.push(vec![
                rank.to_string(),
                said["kind"].as_str().or(said["name"].as_str()).unwrap_or("-").to_owned(),
                time(&said[first]),
                time(&said["again_ms"]),
                count(&used["opens"]),
                count(&used["hits"]),
                count(&used["staged"]),
                size(&used["bytes_held"]),
                size(&said["after"]["bytes_held"]),
            ]);
        }
    }
    text += &table(&rows);
    let mut rows =
        vec![["rank", "free before", "while mapped", "after it was dropped"].map(str::to_owned).to_vec()];
    for (rank, said) in all.iter().enumerate() {
        let free = &said["device"]["free_bytes"];
        let bytes = ["before", "mapped", "released"].map(|when| free[when].as_u64());
        if bytes.iter().any(Option::is_some) {
            let bytes = bytes.map(|bytes| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()));
            rows.push([vec![rank.to_string()], bytes.to_vec()].concat());
        }
    }
    if rows.len() > 1 {
        text += &format!("\nbytes of the devices\n{}", table(&rows));
    }
    for said in all {
        text += &format!("\n{}", said["device"]["table"].as_str().unwrap_or_default());
    }
    text
}
