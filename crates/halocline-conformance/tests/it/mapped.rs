//! Links between devices of ranks that are, or pretend to be, separate processes: memory must be mapped before it is accessed. Simulated
//! devices; `HALOCLINE_SEED` runs one seed only.

mod cache;

use halocline::device::Priority;
use halocline::device::sim::{Options, World, chosen, explore};
use halocline::{
    BindOptions, Cause, Communicator, Device, Direction, Error, HaloExchange, LinkChoice, LinkInfo, LinkPath,
    ReduceError, ReduceOp,
};
use halocline_comm::Endpoint;
use halocline_comm::mappings::{DeviceId, Mappings, Refusal, Target};
use halocline_conformance::device_fixtures::{DeviceFixture, devices, until_failure};
use halocline_conformance::programs::Program;
use halocline_conformance::ring::Ring;
use halocline_conformance::simulated::{options, run_ranks, run_ranks_apart};
use halocline_conformance::{Outcome, Trouble, ensure, fail};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn apart() -> Options {
    Options { devices: 3, depth: 1024, steps: 2_000_000, exports: true, ..options() }
}

/// Ranks with a device each that does not reach the others'. What was opened is closed at the end.
fn play(seeds: Range<u64>, ranks: usize, rank: impl Fn(&World, &Device, &Communicator) -> Outcome + Sync) {
    explore(seeds, &apart(), |world| {
        run_ranks_apart(world, ranks, |comm| rank(world, &world.device(comm.rank() as u32)?, comm));
        // A thread closes in the background what was dropped in flight.
        let is_closed = || world.mapping_calls().opens == world.mapping_calls().closes;
        (0..10_000).take_while(|_| !is_closed()).for_each(|_| world.pause());
        assert!(is_closed(), "{:?}", world.mapping_calls());
    });
}

/// A ring in memory of the library's own.
fn ring(comm: &Communicator, device: &Device) -> Result<Ring, Trouble> {
    let memory = Arc::new(device.allocate(Ring::BYTES)?);
    Ring::new(comm, device, memory.at(0), memory)
}

/// The path of the link that writes to a rank.
fn paths(halo: &HaloExchange, comm: &Communicator) -> Vec<(usize, LinkPath)> {
    let written = |link: LinkInfo| match link.direction {
        Direction::Receive => (comm.rank(), link.path),
        Direction::Send => (link.peer, link.path),
    };
    halo.links().map(written).collect()
}

#[test]
fn a_bound_exchange_writes_into_the_other_process_and_maps_nothing_more() {
    play(0..30, 2, |world, device, comm| {
        let ring = ring(comm, device)?;
        let (inline, stream_waits) = (world.seed() % 2 == 0, world.seed() % 3 == 0);
        let halo = ring.bind(comm, &BindOptions::default().inline(inline).stream_waits(stream_waits))?;
        let how = if stream_waits {
            "not in one: `stream_waits`"
        } else {
            "devices 0: each exchange in one launch"
        };
        let how = how.replace("devices 0", &format!("devices {}", comm.rank()));
        ensure!(halo.explain().contains(&how), "{}", halo.explain());
        ensure!(paths(&halo, comm).iter().all(|(_, path)| *path == LinkPath::Push), "{}", halo.explain());
        ensure!(halo.explain().contains("mapped by simulation"), "{}", halo.explain());
        // Its field and its words.
        let text = "mappings of this rank so far: 0 hits, 2 opens, 0 evictions, 0 staged;";
        ensure!(halo.explain().contains(text), "{}", halo.explain());
        comm.barrier()?;
        let (calls, stats) = (world.mapping_calls(), Mappings::of(comm).stats());
        comm.barrier()?;
        (1..=5).try_for_each(|step| ring.step(&halo, step))?;
        comm.barrier()?;
        ensure!(world.mapping_calls() == calls, "{:?} after {calls:?}", world.mapping_calls());
        ensure!(Mappings::of(comm).stats() == stats, "{:?} after {stats:?}", Mappings::of(comm).stats());
        Ok(comm.barrier()?)
    });
}

/// Asked for, though the fields could be mapped: these are not, the words and slots are.
#[test]
fn mailboxes_on_devices_are_mapped_instead_of_fields() {
    play(0..30, 2, |world, device, comm| {
        let ring = ring(comm, device)?;
        let (inline, stream_waits) = (world.seed() % 2 == 0, world.seed() % 3 == 0);
        let link = LinkChoice::DeviceMailbox;
        let halo =
            ring.bind(comm, &BindOptions::default().link(link).inline(inline).stream_waits(stream_waits))?;
        let text = halo.explain();
        ensure!(paths(&halo, comm).iter().all(|(_, path)| *path == LinkPath::DeviceMailbox), "{text}");
        ensure!(text.contains("each exchange in one launch") != stream_waits, "{text}");
        let through = "memory of the devices, a buffer of the receiver, mapped by simulation";
        ensure!(text.matches(through).count() == 2, "{text}");
        comm.barrier()?;
        let (calls, stats) = (world.mapping_calls(), Mappings::of(comm).stats());
        ensure!(calls.opens == 2 && stats.mapped == 1, "{calls:?}, {stats:?}");
        comm.barrier()?;
        (1..=7).try_for_each(|step| ring.step(&halo, step))?;
        comm.barrier()?;
        ensure!(world.mapping_calls() == calls, "{:?} after {calls:?}", world.mapping_calls());
        Ok(comm.barrier()?)
    });
}

#[test]
fn requested_pull_links_read_the_other_process() {
    play(0..30, 2, |world, device, comm| {
        let ring = ring(comm, device)?;
        let inline = world.seed() % 2 == 0;
        let pulled = ring.bind(comm, &BindOptions::default().inline(inline).link(LinkChoice::Pull))?;
        let text = pulled.explain();
        ensure!(paths(&pulled, comm).iter().all(|(_, path)| *path == LinkPath::Pull), "{text}");
        for part in ["not in one: links are pulled", "mapped by simulation"] {
            ensure!(text.contains(part), "{part}: {text}");
        }
        comm.barrier()?;
        let calls = world.mapping_calls();
        comm.barrier()?;
        (1..=5).try_for_each(|step| ring.step(&pulled, step))?;
        comm.barrier()?;
        ensure!(world.mapping_calls() == calls, "{:?} after {calls:?}", world.mapping_calls());
        Ok(comm.barrier()?)
    });
}

#[test]
fn memory_that_cannot_be_exported_uses_a_device_mailbox() {
    play(0..30, 3, |world, device, comm| {
        let ring = ring(comm, device)?;
        if comm.rank() == 1 {
            world.refuse_export(ring.address(), Refusal::DefaultPool)?;
        }
        let halo = ring.bind(comm, &BindOptions::default())?;
        ensure!(halo.explain().contains("each exchange in one launch"), "{}", halo.explain());
        for (written, path) in paths(&halo, comm) {
            let expected = if written == 1 { LinkPath::DeviceMailbox } else { LinkPath::Push };
            ensure!(path == expected, "to rank {written}\n{}", halo.explain());
        }
        let is_told = halo.explain().contains("comes from the default memory pool");
        ensure!(is_told || comm.size() > 3, "{}", halo.explain());
        (1..=4).try_for_each(|step| ring.step(&halo, step))?;
        Ok(comm.barrier()?)
    });
}

#[test]
fn memory_that_the_peer_cannot_open_uses_a_device_mailbox() {
    let all = [
        Refusal::AlreadyOpen,
        Refusal::OutOfMemory,
        Refusal::NoPeerAccess,
        Refusal::NoDevice,
        Refusal::BadHandle,
        Refusal::Other(999),
    ];
    for (at, why) in (0..).zip(all) {
        play(6 * at..6 * at + 6, 2, |world, device, comm| {
            let ring = ring(comm, device)?;
            if comm.rank() == 1 {
                world.refuse_opens(device, [why]);
            }
            comm.barrier()?;
            for round in 0..2 {
                let halo = ring.bind(comm, &BindOptions::default())?;
                for (written, path) in paths(&halo, comm) {
                    let expected = if written == 0 { LinkPath::DeviceMailbox } else { LinkPath::Push };
                    ensure!(path == expected, "to rank {written}\n{}", halo.explain());
                }
                ensure!(halo.explain().contains(&why.to_string()), "{why}:\n{}", halo.explain());
                (1..=2).try_for_each(|step| ring.step(&halo, 10 * round + step))?;
                comm.barrier()?;
            }
            // Remembered, not asked for again.
            let staged = Mappings::of(comm).stats().staged;
            ensure!(staged == if comm.rank() == 0 { 2 } else { 0 }, "{staged} requests were refused");
            Ok(comm.barrier()?)
        });
    }
}

/// A message that does not fit into the receiver's device twice more goes through memory of the host.
#[test]
fn without_memory_for_a_device_mailbox_a_host_mailbox_is_used() {
    play(0..20, 2, |world, device, comm| {
        let ring = ring(comm, device)?;
        if comm.rank() == 1 {
            world.refuse_export(ring.address(), Refusal::DefaultPool)?;
            // The words alone take less.
            world.refuse_allocations_beyond(device, 6144);
        }
        comm.barrier()?;
        let halo = ring.bind(comm, &BindOptions::default())?;
        for (written, path) in paths(&halo, comm) {
            let is_right =
                if written == 1 { matches!(path, LinkPath::Mailbox { .. }) } else { path == LinkPath::Push };
            ensure!(is_right, "to rank {written}\n{}", halo.explain());
        }
        (1..=4).try_for_each(|step| ring.step(&halo, step))?;
        comm.barrier()?;
        let link = LinkChoice::DeviceMailbox;
        let forced = ring.bind(comm, &BindOptions::default().link(link));
        let text = forced.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(text.contains("memory") || text.contains("bytes"), "{text}");
        Ok(comm.barrier()?)
    });
}

/// A device of rank 1 has no memory for the halo that rank 0 has of its cells: exchanges work, and all ranks refuse to reduce.
#[test]
fn without_memory_for_the_halo_of_peers_there_are_exchanges_and_no_reduces() {
    play(0..20, 2, |world, device, comm| {
        let ring = ring(comm, device)?;
        if comm.rank() == 1 {
            // The words alone take less.
            world.refuse_allocations_beyond(device, 5504);
        }
        comm.barrier()?;
        let halo = ring.bind(comm, &BindOptions::default())?;
        ensure!(paths(&halo, comm).iter().all(|(_, path)| *path == LinkPath::Push), "{}", halo.explain());
        ring.step(&halo, 1)?;
        let refused = halo.reduce(ReduceOp::Sum).err();
        ensure!(matches!(refused, Some(Error::Reduce(ReduceError::NoMemory))), "{refused:?}");
        let text = refused.map(|error| error.to_string()).unwrap_or_default();
        ensure!(text.contains("no memory left for the halo of its peers"), "{text}");
        ring.step(&halo, 2)?;
        Ok(comm.barrier()?)
    });
}

/// Rank 1 maps neither fields nor flags of rank 0. It writes no memory of rank 0, which waits for no device flag of rank 1.
#[test]
fn without_flags_on_the_other_device_a_host_mailbox_is_used() {
    play(0..30, 2, |world, device, comm| {
        let why = Refusal::NoPeerAccess;
        for link in [LinkChoice::Auto, LinkChoice::Push, LinkChoice::Pull, LinkChoice::DeviceMailbox] {
            if comm.rank() == 1 {
                // The field, unless only words are asked for, then these.
                world.refuse_opens(
                    device,
                    (0..if link == LinkChoice::DeviceMailbox { 1 } else { 2 }).map(|_| why),
                );
            }
            comm.barrier()?;
            // What was refused is not asked for again: another field.
            let ring = ring(comm, device)?;
            let bound = ring.bind(comm, &BindOptions::default().link(link));
            if link != LinkChoice::Auto {
                let text = bound.err().map(|error| error.to_string()).unwrap_or_default();
                ensure!(text.contains(&why.to_string()), "{link:?}: {text}");
                continue;
            }
            let halo = bound?;
            let is_right = |(_, path): &(usize, LinkPath)| matches!(path, LinkPath::Mailbox { .. });
            ensure!(paths(&halo, comm).iter().all(is_right), "{}", halo.explain());
            ensure!(halo.explain().contains(&why.to_string()), "{}", halo.explain());
            (1..=4).try_for_each(|step| ring.step(&halo, step))?;
            comm.barrier()?;
        }
        Ok(comm.barrier()?)
    });
}

/// Between ranks of one process: only its own device can access memory of a pool, unless its creator grants access.
#[test]
fn memory_without_peer_access_uses_a_mailbox() {
    explore(0..30, &apart(), |world| {
        run_ranks(world, 2, |comm| {
            let all = devices(world, 2)?;
            let ring = ring(comm, &all[comm.rank()])?;
            if comm.rank() == 1 {
                world.keep_from_peers(ring.address())?;
            }
            let halo = ring.bind(comm, &BindOptions::default())?;
            for (written, path) in paths(&halo, comm) {
                let expected = if written == 1 { LinkPath::DeviceMailbox } else { LinkPath::Push };
                ensure!(path == expected, "to rank {written}\n{}", halo.explain());
            }
            ensure!(halo.explain().contains("has no access to the memory at"), "{}", halo.explain());
            (1..=3).try_for_each(|step| ring.step(&halo, step))?;
            let forced = ring.bind(comm, &BindOptions::default().link(LinkChoice::Push));
            ensure!(forced.is_err(), "memory that cannot be reached is written to");
            Ok(comm.barrier()?)
        });
    });
}

/// A rank with fields on several devices receives directly; sending directly would need an address for each device.
#[test]
fn another_process_writes_to_a_rank_with_several_devices() {
    play(0..40, 2, |world, device, comm| {
        let places: Vec<Device> = match comm.rank() {
            0 => vec![device.clone(); 2],
            _ => [1, 2].map(|ordinal| world.device(ordinal)).into_iter().collect::<Result<_, _>>()?,
        };
        places[0].enable_peer(&places[1])?;
        places[1].enable_peer(&places[0])?;
        let fixture = DeviceFixture::new(comm, &[9, 4], (2, 1, 1), |domain| &places[domain])?;
        let inline = world.seed().is_multiple_of(2);
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().inline(inline))?;
        for (written, path) in paths(&halo, comm) {
            let is_right =
                if written == 1 { path == LinkPath::Push } else { matches!(path, LinkPath::Mailbox { .. }) };
            ensure!(is_right, "to rank {written}\n{}", halo.explain());
        }
        ensure!(halo.explain().contains("from several devices"), "{}", halo.explain());
        let stream = places[0].stream(Priority::Normal)?;
        for step in 1..=4 {
            fixture.produce(world, &[0], &stream, step)?;
            halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
            fixture.consume(world, &[0], &stream, step)?;
        }
        halo.wait()?;
        stream.synchronise()?;
        Ok(comm.barrier()?)
    });
}

#[test]
fn limits_change_while_exchanges_are_in_flight() {
    play(0..20, 2, |_, device, comm| {
        let mappings = Mappings::of(comm);
        let lasting = ring(comm, device)?;
        let halo = lasting.bind(comm, &BindOptions::default())?;
        for (step, entries) in (1..).zip([1024, 1, 0, 8]) {
            let passing = ring(comm, device)?;
            let other = passing.bind(comm, &BindOptions::default())?;
            lasting.fill(step)?;
            let pending = halo.schedule_exchange(&[lasting.stream()])?;
            mappings.set_limit(entries);
            pending.schedule_wait(lasting.stream())?;
            lasting.check(step)?;
            passing.step(&other, step)?;
            let stats = mappings.stats();
            ensure!(stats.entries <= stats.pinned + entries, "{stats:?} with space for {entries}");
        }
        halo.wait()?;
        Ok(comm.barrier()?)
    });
}

#[test]
fn an_array_frees_its_memory_once_no_rank_maps_it() {
    play(0..20, 2, |_, device, comm| {
        for round in 1..=4 {
            let ring = ring(comm, device)?;
            let halo = ring.bind(comm, &BindOptions::default())?;
            ring.step(&halo, round)?;
        }
        let mappings = Mappings::of(comm);
        let given_back = || {
            let stats = mappings.stats();
            Ok((stats.bytes_held == 0 && stats.mapped == 0).then_some(()))
        };
        comm.wait_for(None, "memory to be unmapped", given_back)?;
        Ok(comm.barrier()?)
    });
}

#[test]
fn all_fail_when_one_drops_its_object_and_memory_is_released() {
    play(0..60, 3, |world, device, comm| {
        let ring = ring(comm, device)?;
        // The field is mapped, or only the words and the mailbox behind them.
        let link = [LinkChoice::Auto, LinkChoice::DeviceMailbox][world.seed() as usize % 2];
        let halo = ring.bind(comm, &BindOptions::default().link(link))?;
        ring.step(&halo, 1)?;
        comm.barrier()?;
        if comm.rank() == 0 {
            drop(halo);
        } else {
            let failed = until_failure(&halo, ring.stream())?;
            ensure!(failed.cause == Cause::Dropped && failed.culprit == 0, "it failed by {failed}");
            while !halo.reclaim() {
                comm.link().host().yield_now();
            }
        }
        Ok(ring.stream().synchronise()?)
    });
}

#[test]
fn memory_that_its_user_freed_is_detected_and_not_written() {
    play(0..30, 2, |_, device, comm| {
        // Foreign memory without a keep-alive.
        let base = device.driver().allocate(Ring::BYTES)?.base;
        let ring = Ring::new(comm, device, base, Arc::new(()))?;
        let halo = ring.bind(comm, &BindOptions::default())?;
        ring.step(&halo, 1)?;
        comm.barrier()?;
        if comm.rank() == 0 {
            // SAFETY: nothing is in flight, or the simulation says so.
            unsafe { device.driver().free(base) };
        }
        comm.barrier()?;
        if comm.rank() == 0 {
            match halo.schedule_exchange(&[ring.stream()]) {
                Err(Error::MemoryMoved { field: 0 }) => {}
                other => fail!("instead of moved memory: {other:?}"),
            }
        } else {
            let failed = until_failure(&halo, ring.stream())?;
            ensure!(failed.cause == Cause::Device && failed.culprit == 0, "it failed by {failed}");
        }
        ring.stream().synchronise()?;
        while !halo.reclaim() {
            comm.link().host().yield_now();
        }
        Ok(comm.barrier()?)
    });
}

#[test]
fn a_deadline_during_mapping_is_an_error_and_not_another_path() {
    let (late, bound) = (AtomicUsize::new(0), AtomicUsize::new(0));
    const SEEDS: Range<u64> = 0..60;
    play(SEEDS, 2, |world, device, comm| {
        // The owner answers a third of the requests after the deadline.
        world.delay_exports(device, [0, 20, 400][world.seed() as usize % 3]);
        let hurried = comm.with_deadline(Some(Duration::from_nanos(1)));
        match ring(comm, device)?.bind(&hurried, &BindOptions::default()) {
            Ok(halo) => {
                ensure!(
                    paths(&halo, comm).iter().all(|(_, path)| *path == LinkPath::Push),
                    "{}",
                    halo.explain()
                );
                bound.fetch_add(1, Ordering::Relaxed);
            }
            Err(trouble) => {
                let text = trouble.to_string();
                let is_deadline = text.contains("to map memory; its deadline has passed");
                ensure!(is_deadline || text.contains("has left the communicator"), "{text}");
                late.fetch_add(usize::from(is_deadline), Ordering::Relaxed);
            }
        }
        Ok(())
    });
    let (late, bound) = (late.into_inner(), bound.into_inner());
    // Fewer seeds, as the environment may ask for, need not show both.
    assert!(
        chosen(SEEDS) != SEEDS || late > 0 && bound > 0,
        "{late} ranks were late, {bound} bound: other seeds would show more"
    );
}

#[test]
fn random_programs_of_ranks_that_are_processes() {
    explore(0..80, &apart(), |world| {
        let program = Program::new(world.seed(), None).crowding();
        run_ranks_apart(world, program.ranks, |comm| program.run(world, &devices(world, 3)?, comm));
    });
}
