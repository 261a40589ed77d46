//! The contract of scheduled exchanges on simulated devices, over random patterns, ranks, devices, streams and orders of calls, each
//! under a schedule of its own. `HALOCLINE_SEED` runs one seed only.

use halocline::device::Priority;
use halocline::device::sim::{Options, World, chosen, explore, find};
use halocline::{BindOptions, Cause, Communicator, Error, Exchanging, LinkChoice};
use halocline_comm::Endpoint;
use halocline_conformance::device_fixtures::{DeviceFixture, devices, until_failure};
use halocline_conformance::programs::Program;
use halocline_conformance::simulated::{options, run_ranks, run_ranks_apart};
use halocline_conformance::{Outcome, Trouble, ensure};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn limited() -> Options {
    // Queues as deep as those of CUDA: ranks whose hosts wait for space in theirs may wait for each other.
    Options { devices: 3, depth: 1024, steps: 2_000_000, ..options() }
}

#[test]
fn scheduled_exchanges_keep_their_promises() {
    let seeds = chosen(0..2000);
    let start = std::time::Instant::now();
    // One of a run's threads goes on at a time, so that each core takes its part of the seeds.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let part = |core: u64| {
        for seed in seeds.clone().filter(|seed| seed % cores == core) {
            let found = find(seed..seed + 1, &limited(), |world| {
                let program = Program::new(world.seed(), None).crowding();
                run_ranks(world, program.ranks, |comm| program.run(world, &devices(world, 3)?, comm));
            });
            if let Some(found) = found {
                panic!("{found}");
            }
        }
    };
    std::thread::scope(|scope| (0..cores).for_each(|core| drop(scope.spawn(move || part(core)))));
    println!("{} seeds in {:?}", seeds.end - seeds.start, start.elapsed());
}

/// An executor of one task: its thread sleeps until the task is woken.
struct Sleeper(World, AtomicU32);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.1.store(1, Ordering::SeqCst);
        self.0.wake(&self.1);
    }
}

/// Waits as a task; how often it was polled.
fn block_on(world: &World, mut future: Exchanging) -> Result<u32, Error> {
    let sleeper = Arc::new(Sleeper(world.clone(), AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&sleeper));
    for polls in 1.. {
        if let Poll::Ready(outcome) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return outcome.map(|()| polls);
        }
        while sleeper.1.swap(0, Ordering::SeqCst) == 0 {
            world.park(&sleeper.1, 0, None);
        }
    }
    Ok(0)
}

fn awaited_by_tasks(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = &devices(world, 2)?[comm.rank() % 2];
    let fixture = DeviceFixture::new(comm, &[2 * comm.size() + 1], (1, 1, 1), |_| device)?;
    let stream = Arc::new(device.stream(Priority::Normal)?);
    let options = BindOptions::default().link(link).streams(vec![Arc::clone(&stream)]);
    let halo = fixture.bind(comm, &[&[0]], &options)?;
    for step in 1..=3 {
        fixture.produce(world, &[0], &stream, step)?;
        // Polled once and then dropped: no task is woken for it.
        let mut forgotten = halo.begin().into_future();
        let _ = Pin::new(&mut forgotten).poll(&mut Context::from_waker(Waker::noop()));
        drop(forgotten);
        let polls = block_on(world, halo.begin().into_future())?;
        ensure!(polls <= 2, "a task was polled {polls} times for one exchange");
        fixture.consume(world, &[0], &stream, step)?;
    }
    stream.synchronise()?;
    comm.barrier()?;
    if comm.rank() == 0 {
        drop(halo);
        return Ok(());
    }
    // The failure wakes them, too.
    loop {
        match block_on(world, halo.begin().into_future()) {
            Ok(_) => {}
            Err(Error::Failed(failure)) if failure.cause == Cause::Dropped => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[test]
fn tasks_sleep_until_their_exchange_is_over() {
    for link in [LinkChoice::Auto, LinkChoice::DeviceMailbox, LinkChoice::Mailbox, LinkChoice::Message] {
        explore(0..20, &limited(), |world| {
            run_ranks(world, 3, |comm| awaited_by_tasks(world, comm, link));
        });
    }
}

/// The receiver begins nothing: the sender goes on until the space for its messages is used up.
fn sent_to_nobody(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = &devices(world, 1)?[0];
    let fixture = DeviceFixture::one_way(comm, 6, 1, device)?;
    let deadline = Some(Duration::from_secs(1));
    let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().link(link).deadline(deadline))?;
    let stream = device.stream(Priority::Normal)?;
    if comm.rank() == 0 {
        fixture.produce(world, &[0], &stream, 1)?;
        let failed = until_failure(&halo, &stream)?;
        ensure!(matches!(failed.cause, Cause::Deadline(_)) && failed.culprit == 1, "it failed by {failed}");
        ensure!(failed.epoch <= 5, "it ran ahead: {failed}");
    }
    comm.barrier()?;
    Ok(())
}

#[test]
fn a_sender_does_not_run_ahead_of_its_receiver() {
    for link in [LinkChoice::Auto, LinkChoice::DeviceMailbox, LinkChoice::Mailbox, LinkChoice::Message] {
        explore(0..20, &limited(), |world| run_ranks(world, 2, |comm| sent_to_nobody(world, comm, link)));
    }
}

/// One rank drops its object after a step; the others exchange until they fail.
fn dropped_by_one(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = &devices(world, 1)?[0];
    let fixture = DeviceFixture::new(comm, &[3 * comm.size()], (1, 1, 1), |_| device)?;
    let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().link(link))?;
    let stream = device.stream(Priority::Normal)?;
    fixture.produce(world, &[0], &stream, 1)?;
    halo.schedule_exchange(&[&stream])?.wait()?;
    fixture.consume(world, &[0], &stream, 1)?;
    comm.barrier()?;
    if comm.rank() == 0 {
        drop(halo);
    } else {
        let failed = until_failure(&halo, &stream)?;
        ensure!(failed.cause == Cause::Dropped && failed.culprit == 0, "it failed by {failed}");
        while !halo.reclaim() {
            comm.link().host().yield_now();
        }
        for _ in 0..10 {
            ensure!(halo.reclaim(), "what was reclaimed once is not any more");
            comm.link().host().yield_now();
        }
    }
    Ok(stream.synchronise()?)
}

#[test]
fn all_peers_fail_when_one_drops_its_object() {
    for (ranks, link) in [
        (2, LinkChoice::Auto),
        (4, LinkChoice::Auto),
        (4, LinkChoice::Mailbox),
        (3, LinkChoice::DeviceMailbox),
        (3, LinkChoice::Message),
    ] {
        explore(0..100, &limited(), |world| {
            run_ranks(world, ranks, |comm| dropped_by_one(world, comm, link))
        });
    }
}

/// What had closed its end hears of the failure that this was to its peer, and says that it has failed, too: what was reclaimed meanwhile
/// stays so.
#[test]
fn all_peers_fail_when_one_drops_its_object_whose_memory_they_have_mapped() {
    let options = Options { exports: true, ..limited() };
    for ranks in [2, 3] {
        for link in [LinkChoice::Auto, LinkChoice::DeviceMailbox] {
            explore(0..60, &options, |world| {
                run_ranks_apart(world, ranks, |comm| dropped_by_one(world, comm, link));
            });
        }
    }
}

/// Exchanges of two objects on one user's stream, and so on one internal stream, or inline on two, begun in opposite orders by two
/// ranks. Returns how many have failed.
fn crossed(world: &World, comm: &Communicator, inline: bool, is_crossed: bool) -> Result<usize, Trouble> {
    let device = &devices(world, 2)?[comm.rank()];
    let fixture = DeviceFixture::new(comm, &[6], (1, 1, 2), |_| device)?;
    let options = BindOptions::default().inline(inline).deadline(Duration::from_secs(1));
    let objects = [fixture.bind(comm, &[&[0]], &options)?, fixture.bind(comm, &[&[1]], &options)?];
    let mut order = [0, 1];
    if is_crossed && comm.rank() == 1 {
        order.reverse();
    }
    let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
    let mut failed = 0;
    let mut pending = Vec::new();
    for (field, own) in order.into_iter().zip(&streams) {
        let stream = if inline { own } else { &streams[0] };
        fixture.produce(world, &[field], stream, 1)?;
        match objects[field].schedule_exchange(&[stream]) {
            Ok(begun) => pending.push((begun, stream)),
            Err(Error::Failed(_)) => failed += 1,
            Err(error) => return Err(error.into()),
        }
    }
    for (pending, stream) in pending {
        match pending.wait() {
            Ok(()) => {}
            Err(Error::Failed(_)) => failed += 1,
            Err(error) => return Err(error.into()),
        }
        stream.synchronise()?;
    }
    comm.barrier()?;
    Ok(failed)
}

#[test]
fn objects_that_share_a_stream_begun_in_opposite_orders_fail_by_their_deadline() {
    for (inline, is_crossed) in [(false, true), (false, false), (true, true)] {
        explore(0..20, &limited(), |world| {
            run_ranks(world, 2, |comm| {
                let failed = crossed(world, comm, inline, is_crossed)?;
                // On streams of their own they depend on no other order.
                let must_fail = is_crossed && !inline;
                ensure!((failed > 0) == must_fail, "inline {inline}, crossed {is_crossed}: {failed} failed");
                Ok(())
            });
        });
    }
}
