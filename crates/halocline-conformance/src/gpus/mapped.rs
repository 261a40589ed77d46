//! GPU memory mapped into other processes: every kind of memory, many rounds, the cost of each step.

use super::Gpus;
use super::kinds::{Foreign, PIECE, Sort, free};
use super::raw::Raw;
use crate::device_fixtures::Rig;
use crate::processes::Ranks;
use crate::ring::{DeviceMemory, Ring};
use crate::{Outcome, Trouble, ensure};
use halocline::device::{Address, Priority, cuda};
use halocline::{BindOptions, Communicator, Device, LinkChoice};
use halocline_comm::Endpoint;
use halocline_comm::mappings::{Kind, Mappings, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One of each, and parts of larger ones that begin anywhere.
pub(super) fn of_every_kind(ordinal: u32, bytes: usize) -> Vec<DeviceMemory> {
    let sorts = [
        ("cudaMalloc", Sort::Plain, Some(Kind::Legacy)),
        ("virtual memory", Sort::Virtual { passed_on: true }, Some(Kind::Vmm)),
        ("virtual memory without descriptors", Sort::Virtual { passed_on: false }, None),
        ("a pool", Sort::Pool, Some(Kind::Pool)),
        ("the default pool", Sort::DefaultPool, None),
    ];
    let mut all: Vec<DeviceMemory> = Vec::new();
    for (name, sort, kind) in sorts {
        let memory = Arc::new(Foreign::new(ordinal, sort, bytes));
        all.push(DeviceMemory { name, address: memory.address as Address, owner: memory, kind });
    }
    let middle = |name, sort, kind| {
        let memory = Arc::new(Foreign::new(ordinal, sort, 3 * PIECE));
        // Over the border of two physical memories.
        DeviceMemory {
            name,
            address: (memory.address + 2 * PIECE - 72) as Address,
            owner: memory,
            kind: Some(kind),
        }
    };
    all.push(middle("the middle of cudaMalloc", Sort::Plain, Kind::Legacy));
    all.push(middle("the middle of virtual memory", Sort::Virtual { passed_on: true }, Kind::Vmm));
    // Two small ones lie in one block of the driver's.
    let beside = Foreign::new(ordinal, Sort::Plain, bytes);
    let memory = Foreign::new(ordinal, Sort::Plain, bytes);
    let (address, owner) = (memory.address as Address, Arc::new((memory, beside)));
    all.push(DeviceMemory { name: "one of two suballocations", address, owner, kind: Some(Kind::Legacy) });
    all
}

/// `gpus rounds GPUS COUNT`: two processes on one GPU or two allocate, bind, exchange and free, again and again.
pub(super) fn rounds(gpus: &str, count: &str) -> Outcome {
    start(&["gpus", "round-rank", gpus, count], Duration::from_secs(540))
}

/// `gpus mapping-costs GPUS`: what each step costs.
pub(super) fn costs(gpus: &str) -> Outcome {
    start(&["gpus", "cost-rank", gpus], Duration::from_secs(120))
}

/// `gpus bind-costs GPUS`: what binding takes beside its opens.
pub(super) fn bind_costs(gpus: &str) -> Outcome {
    start(&["gpus", "bind-cost-rank", gpus], Duration::from_secs(120))
}

/// One of the two ranks.
pub(super) fn bind_cost_rank(gpus: &str) -> Outcome {
    let (comm, rig) = (Communicator::init()?, Gpus::get()?);
    // A field of 2.3 MB lies in no block that the driver shares out.
    crate::bind_costs::rank::<Gpus>(&comm, device_among(rig, gpus, comm.rank())?, 64, REPEATS)
}

pub(super) fn start(arguments: &[&str], limit: Duration) -> Outcome {
    let mut ranks = Ranks::start(std::env::current_exe()?, 2, arguments);
    let in_time = ranks.await_end(0..2, limit);
    let ends = ranks.end();
    let said: String = ends.iter().map(|end| end.output.as_str()).collect();
    print!("{said}");
    ensure!(in_time && ends.iter().all(|end| end.status.success()), "in time: {in_time}");
    Ok(())
}

/// The GPU of a rank, if so many are used.
pub(super) fn device_among<'a>(rig: &'a Gpus, gpus: &str, rank: usize) -> Result<&'a Device, Trouble> {
    let most = rig.devices().len();
    match gpus.parse::<usize>() {
        Ok(count) if (1..=most).contains(&count) => Ok(&rig.devices()[rank % count]),
        _ => Err(Trouble::new(format!("GPUS is a number from 1 to {most}"))),
    }
}

/// Waits until so much of a GPU is free as before, or no more becomes free: a thread frees in the background.
pub(super) fn settled(device: &Device, raw: &Raw, before: usize) -> usize {
    let (mut last, mut since) = (free(raw, device.ordinal()), Instant::now());
    while last < before && since.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(10));
        let now = free(raw, device.ordinal());
        if now > last {
            since = Instant::now();
        }
        last = now;
    }
    last
}

/// One of the two ranks.
pub(super) fn round_rank(gpus: &str, count: &str) -> Outcome {
    let count: u64 = count.parse().map_err(|_| Trouble::new("COUNT is a number of rounds"))?;
    let comm = Communicator::init()?;
    let rig = Gpus::get()?;
    let device = device_among(rig, gpus, comm.rank())?;
    let (raw, mappings) = (Raw::new(), Mappings::of(&comm));
    let round = |number: u64| -> Outcome {
        // The library's memory, and foreign memory, which is freed without notice or after a release.
        let (address, owner): (Address, Arc<dyn std::any::Any + Send + Sync>) = match number % 3 {
            0 => {
                let memory = Arc::new(device.allocate(Ring::BYTES + (number as usize % 5) * PIECE)?);
                (memory.at(0), memory)
            }
            _ => {
                // Most of it is of the kind that most is.
                let sort = match number / 3 % 5 {
                    0 => Sort::Virtual { passed_on: true },
                    1 => Sort::Pool,
                    _ => Sort::Plain,
                };
                let memory = Foreign::new(device.ordinal(), sort, PIECE * (1 + number as usize % 4));
                (memory.address as Address, Arc::new(memory))
            }
        };
        let ring = Ring::new(&comm, device, address, Arc::clone(&owner))?;
        // Its field is mapped, or only the words.
        let link = if number % 4 == 3 { LinkChoice::DeviceMailbox } else { LinkChoice::Auto };
        let halo = ring.bind(&comm, &BindOptions::default().link(link))?;
        ring.step(&halo, number)?;
        drop((halo, ring));
        if number % 3 == 1 {
            // The object is given up once the peer has given up its own.
            comm.barrier()?;
            comm.wait_for(None, "memory that is not in use", || Ok(mappings.release(address).ok()))?;
        }
        Ok(())
    };
    (0..60).try_for_each(round)?;
    comm.barrier()?;
    let before = settled(device, &raw, usize::MAX);
    let begin = Instant::now();
    for number in 0..count {
        round(number)?;
        if number % 1000 == 999 {
            comm.barrier()?;
            let now = free(&raw, device.ordinal());
            let each = begin.elapsed().as_secs_f64() * 1e3 / (number + 1) as f64;
            println!(
                "rank {}: {} rounds, {} bytes less free than at first, {each:.2} ms a round, {:?}",
                comm.rank(),
                number + 1,
                before as i64 - now as i64,
                mappings.stats()
            );
            // Not while the other one allocates.
            comm.barrier()?;
        }
    }
    comm.barrier()?;
    let after = settled(device, &raw, before);
    println!("rank {}: {before} bytes are free before, {after} after {count} rounds", comm.rank());
    // A few blocks for small allocations, which the driver keeps, against gigabytes that were allocated.
    let kept = before.saturating_sub(after);
    ensure!(kept <= 8 * PIECE, "{kept} bytes are not given back: {:?}", mappings.stats());
    comm.barrier()?;
    rig.check()
}

/// The median of some times, in microseconds.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn timed<T>(what: impl FnOnce() -> Result<T, Trouble>) -> Result<(f64, T), Trouble> {
    let begin = Instant::now();
    let made = what()?;
    Ok((begin.elapsed().as_secs_f64() * 1e6, made))
}

const REPEATS: usize = 9;

/// One of the two ranks: 0 owns, 1 imports.
pub(super) fn cost_rank(gpus: &str) -> Outcome {
    let comm = Communicator::init()?;
    let rig = Gpus::get()?;
    let device = device_among(rig, gpus, comm.rank())?;
    let other = device_among(rig, gpus, 1 - comm.rank())?;
    let (raw, mappings) = (Raw::new(), Mappings::of(&comm));
    let provider = cuda::provider(device.ordinal())?;
    mappings.attach(Arc::clone(&provider));
    let target = Target { rank: 1, device: cuda::provider(other.ordinal())?.device() };
    let usual = mappings.limit();
    let nothing_left = || {
        mappings.set_limit(0);
        let left = || Ok((mappings.stats().bytes_held == 0).then_some(()));
        comm.wait_for(None, "memory to be unmapped", left)?;
        mappings.set_limit(usual);
        Ok(())
    };
    if comm.rank() == 0 {
        println!("microseconds, medians of {REPEATS}; GB/s");
        println!(
            "{:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "kind", "MiB", "export", "map", "hit", "eviction", "release", "hit GB/s", "one-shot", "staged"
        );
    }
    for (name, sort) in
        [("cudaMalloc", Sort::Plain), ("virtual", Sort::Virtual { passed_on: true }), ("pool", Sort::Pool)]
    {
        for bytes in [4096, PIECE, 64 << 20, 256 << 20] {
            let before = settled(device, &raw, usize::MAX);
            comm.barrier()?;
            let memory = (comm.rank() == 0).then(|| Foreign::new(device.ordinal(), sort, bytes));
            let mut row = Vec::new();
            if let Some(memory) = &memory {
                let address = memory.address as Address;
                let of = provider.find(address, bytes as u64).ok_or_else(|| Trouble::new("no memory"))?;
                let mut times = [const { Vec::new() }; 5];
                for _ in 0..REPEATS {
                    let export = || provider.export(&of).map_err(|why| Trouble::new(why.to_string()));
                    times[0].push(timed(export)?.0);
                    let (map, pinned) = timed(|| Ok(mappings.map(target, address, bytes as u64)?))?;
                    times[1].push(map);
                    let hit = || Ok(mappings.map(target, address, bytes as u64)?);
                    times[2].push(timed(hit)?.0);
                    drop(pinned);
                    times[3].push(timed(nothing_left)?.0);
                    drop(mappings.map(target, address, bytes as u64)?);
                    times[4].push(timed(|| Ok(mappings.release(address)?))?.0);
                }
                row.extend(times.map(median));
            }
            // Bytes that are taken: from a mapping that stays, from one for each transfer, through the host.
            let own = (comm.rank() == 1).then(|| device.allocate(bytes)).transpose()?;
            let stream = device.stream(Priority::Normal)?;
            for limit in [usual, 0] {
                mappings.set_limit(limit);
                comm.barrier()?;
                let mut times = Vec::new();
                for _ in 0..=REPEATS {
                    match (&memory, &own) {
                        (Some(memory), _) => {
                            let send = || {
                                let sent = mappings.send(target, memory.address as Address, bytes as u64)?;
                                Ok(sent.wait()?)
                            };
                            times.push(timed(send)?.0);
                        }
                        (None, Some(own)) => {
                            let arrived = mappings.receive(Some(0))?;
                            // SAFETY: so many bytes of both, which no thread writes; synchronised before they are given back.
                            unsafe { stream.copy(own.at(0), arrived.address(), bytes) }?;
                            stream.synchronise()?;
                        }
                        (None, None) => {}
                    }
                }
                if memory.is_some() {
                    // The first one opens.
                    row.push(bytes as f64 / median(times.split_off(1)) / 1e3);
                }
            }
            mappings.set_limit(usual);
            row.push(staged(
                &comm,
                device,
                memory.as_ref().map(|memory| memory.address as Address),
                own.as_ref(),
                bytes,
            )?);
            if let Some(memory) = memory {
                mappings.release(memory.address as Address)?;
                drop(memory);
                let words: Vec<String> = row.iter().map(|number| format!("{number:>9.1}")).collect();
                println!("{name:<16} {:>9.3} {}", bytes as f64 / (1 << 20) as f64, words.join(" "));
            }
            drop(own);
            comm.barrier()?;
            let after = settled(device, &raw, before);
            // The driver keeps a block for small allocations of each process.
            let (kept, processes) = (before.saturating_sub(after), if device == other { 2 } else { 1 });
            ensure!(kept <= processes * PIECE, "{name}, {bytes} bytes: {kept} are not given back");
            comm.barrier()?;
        }
    }
    Ok(())
}

/// The same through pinned memory that both share, GB/s.
fn staged(
    comm: &Communicator,
    device: &Device,
    from: Option<Address>,
    to: Option<&halocline::device::Memory>,
    bytes: usize,
) -> Result<f64, Trouble> {
    let segment = comm.allocate(bytes)?;
    let mappings = Mappings::of(comm);
    let host = Target { rank: 0, device: halocline_comm::mappings::DeviceId::HOST };
    let base = segment.base().as_ptr().expose_provenance() as Address;
    // Of rank 1, mapped by rank 0.
    let pinned = (comm.rank() == 1).then(|| mappings.map(host, base, bytes as u64)).transpose()?;
    let gathered = comm.all_gather(&pinned.as_ref().map_or(0, |pinned| pinned.token()).to_le_bytes())?;
    let token = u64::from_le_bytes(gathered[1][..].try_into().map_err(|_| Trouble::new("a token"))?);
    let mapping =
        (comm.rank() == 0).then(|| mappings.resolve(1, token, 0, bytes as u64)).transpose()?.map(Arc::new);
    let stream = device.stream(Priority::Normal)?;
    let (first, owner): (Address, Arc<dyn std::any::Any + Send + Sync>) = match &mapping {
        Some(mapping) => (mapping.address(), Arc::clone(mapping) as _),
        None => (base, Arc::clone(&segment) as _),
    };
    // SAFETY: `owner` keeps the memory valid.
    let registered = unsafe { device.register(first, bytes, owner) }?;
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        comm.barrier()?;
        let begin = Instant::now();
        if let Some(from) = from {
            // SAFETY: both ends have so many bytes, and nothing else uses them before the stream is synchronised.
            unsafe { stream.copy(registered.at(0), from, bytes) }?;
            stream.synchronise()?;
        }
        comm.barrier()?;
        if let Some(to) = to {
            // SAFETY: both ends have so many bytes, and nothing else uses them before the stream is synchronised.
            unsafe { stream.copy(to.at(0), registered.at(0), bytes) }?;
            stream.synchronise()?;
        }
        comm.barrier()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    drop(registered);
    comm.barrier()?;
    drop((mapping, pinned));
    Ok(bytes as f64 / median(times) / 1e3)
}
