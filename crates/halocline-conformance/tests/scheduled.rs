//! What scheduled exchanges promise, on simulated devices: over random patterns, ranks, devices, streams and
//! interleavings of calls, each under a schedule of its own. `HALOCLINE_SEED` runs one seed alone,
//! `HALOCLINE_SEEDS` says how many are run instead of a few hundred.

use halocline::device::sim::{Options, World, explore};
use halocline::device::{EventPool, Priority};
use halocline::{
    BindOptions, Cause, Communicator, Error, Exchanging, HaloExchange, LinkChoice, Pending, Stream,
};
use halocline_conformance::numbers::Numbers;
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::yard::{Yard, devices, until_failure};
use halocline_conformance::{Outcome, Trouble, ensure};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// What all ranks do alike.
struct Scene {
    ranks: usize,
    devices: usize,
    extents: Vec<usize>,
    /// Of each rank.
    domains: usize,
    width: usize,
    /// Sets of fields of each object.
    objects: Vec<Vec<Vec<usize>>>,
    link: LinkChoice,
    inline: bool,
    /// Bytes of a chunk of a staged message.
    chunk: usize,
    steps: u64,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let ranks = 1 + numbers.below(3);
        let (domains, width) = (1 + numbers.below(2), 1 + numbers.below(2));
        let extents = match numbers.below(2) {
            0 => vec![ranks * domains * 2 + 1 + numbers.below(3)],
            _ => vec![2 * ranks * domains, 2 + numbers.below(3)],
        };
        let objects = match numbers.below(4) {
            0 => vec![vec![vec![0, 1]]],
            1 => vec![vec![vec![0], vec![1]]],
            2 => vec![vec![vec![0]], vec![vec![1]]],
            _ => vec![vec![vec![0]]],
        };
        let links = [LinkChoice::Auto, LinkChoice::Auto, LinkChoice::Mailbox, LinkChoice::Message];
        Self {
            ranks,
            devices: 1 + numbers.below(3),
            extents,
            domains,
            width,
            objects,
            link: links[numbers.below(links.len())],
            inline: numbers.one_in(3),
            chunk: [8, 24, 1 << 20][numbers.below(3)],
            steps: 2 + numbers.below(3) as u64,
        }
    }
}

/// A user's streams on the devices of its fields, and what ties them.
struct Streams {
    streams: Vec<Stream>,
    events: Vec<EventPool>,
    /// Streams with work that the next step must come after.
    touched: Vec<usize>,
}

impl Streams {
    /// A stream that comes after all work of the step before.
    fn next(&self, numbers: &mut Numbers) -> Result<usize, Trouble> {
        let chosen = numbers.below(self.streams.len());
        for &other in self.touched.iter().filter(|&&other| other != chosen) {
            self.tie(other, chosen)?;
        }
        Ok(chosen)
    }

    fn tie(&self, first: usize, then: usize) -> Outcome {
        let event = self.events[first].take()?;
        self.streams[first].record(&event)?;
        Ok(self.streams[then].wait(&event)?)
    }

    fn touch(&mut self, stream: usize) {
        if !self.touched.contains(&stream) {
            self.touched.push(stream);
        }
    }
}

/// Steps of all objects in turn, with whatever is allowed between.
fn program(world: &World, comm: &Communicator, scene: &Scene) -> Outcome {
    let mut common = Numbers::new(world.seed() ^ 0xc0);
    let mut own = Numbers::new(world.seed() ^ (comm.rank() as u64 + 1) << 32);
    let all = devices(world, scene.devices as u32)?;
    let places: Vec<usize> = (0..scene.domains).map(|_| own.below(all.len())).collect();
    let shape = (scene.domains, scene.width, 2);
    let yard = Yard::new(comm, &scene.extents, shape, |domain| &all[places[domain]])?;
    let mut streams = Streams { streams: Vec::new(), events: Vec::new(), touched: Vec::new() };
    for _ in 0..1 + own.below(3) {
        let device = &all[places[own.below(places.len())]];
        streams.streams.push(device.stream(Priority::Normal)?);
        streams.events.push(device.events());
    }
    let (link, inline, chunk) = (scene.link, scene.inline, Some(scene.chunk));
    let options = BindOptions { link, inline, chunk, ..BindOptions::default() };
    let mut objects: Vec<HaloExchange> = Vec::new();
    for sets in &scene.objects {
        let sets: Vec<&[usize]> = sets.iter().map(Vec::as_slice).collect();
        objects.push(yard.bind(comm, &sets, &options)?);
    }
    for step in 1..=scene.steps {
        for (halo, sets) in objects.iter().zip(&scene.objects) {
            let set = common.below(sets.len());
            exchange(
                world,
                (comm, &yard, halo),
                (set, &sets[set]),
                step,
                &mut streams,
                (&mut common, &mut own),
            )?;
        }
    }
    if own.one_in(2) {
        objects.clear();
    }
    streams.streams.iter().try_for_each(Stream::synchronise)?;
    Ok(())
}

fn exchange(
    world: &World,
    (comm, yard, halo): (&Communicator, &Yard, &HaloExchange),
    (set, fields): (usize, &[usize]),
    step: u64,
    streams: &mut Streams,
    (common, own): (&mut Numbers, &mut Numbers),
) -> Outcome {
    // Producers: one stream, or two that share the fields' domains.
    let first = streams.next(own)?;
    let second = if own.one_in(3) { streams.next(own)? } else { first };
    for (at, piece) in fields.iter().flat_map(|&field| &yard.pieces[field]).enumerate() {
        piece.produce(world, &streams.streams[if at % 2 == 0 { first } else { second }], step)?;
    }
    let given = [&streams.streams[first], &streams.streams[second]];
    let given = if first == second { &given[..1] } else { &given[..] };
    // Once more, with the same data, or more often.
    let times = if common.one_in(4) { 2 + common.below(3) } else { 1 };
    let mut pendings: Vec<Pending> = Vec::new();
    for _ in 0..times {
        pendings.push(match own.below(3) {
            0 => halo.exchange_set_on(set, given)?,
            _ => halo.schedule_exchange_set(set, given)?,
        });
    }
    if own.one_in(3) {
        pendings[own.below(times)].is_ready()?;
    }
    streams.touched.clear();
    streams.touch(first);
    streams.touch(second);
    if first == second && own.one_in(2) {
        // Beside the exchange, unless that runs on this very stream.
        let mut pieces = fields.iter().flat_map(|&field| &yard.pieces[field]);
        pieces.try_for_each(|piece| piece.read_owned(world, &streams.streams[first]))?;
    }
    let last = own.below(streams.streams.len());
    // It reads what those have written, besides the halo.
    for producer in [first, second] {
        if producer != last {
            streams.tie(producer, last)?;
        }
    }
    let stream = &streams.streams[last];
    match own.below(5) {
        0 => {
            // Waiting for one means waiting for all before it.
            pendings[times - 1].wait()?;
            pendings[0].wait()?;
        }
        1 => {
            pendings.clear();
            halo.schedule_wait(stream)?;
        }
        2 => {
            pendings.iter().try_for_each(|pending| pending.schedule_wait(stream))?;
            if own.one_in(2) {
                pendings[0].wait()?;
            }
        }
        3 => {
            while !pendings[times - 1].is_ready()? {
                comm.link().host().yield_now();
            }
        }
        _ => {
            pendings[times - 1].schedule_wait(stream)?;
            pendings.into_iter().for_each(std::mem::forget);
        }
    }
    yard.consume(world, fields, &streams.streams[last], step)?;
    streams.touch(last);
    Ok(())
}

fn limited() -> Options {
    Options { devices: 3, steps: 200_000, ..options() }
}

#[test]
fn scheduled_exchanges_keep_their_promises() {
    let seeds = match std::env::var("HALOCLINE_SEEDS").map(|text| text.parse()) {
        Ok(Ok(seeds)) => seeds,
        Ok(Err(error)) => panic!("HALOCLINE_SEEDS is no number: {error}"),
        Err(_) => 300,
    };
    let start = std::time::Instant::now();
    // One of a run's threads goes on at a time, so that each core takes its part of the seeds.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let part = |core: u64| {
        explore(seeds * core / cores..seeds * (core + 1) / cores, &limited(), |world| {
            let scene = Scene::new(world.seed());
            run_ranks(world, scene.ranks, |comm| program(world, comm, &scene));
        });
    };
    std::thread::scope(|scope| (0..cores).for_each(|core| drop(scope.spawn(move || part(core)))));
    println!("{seeds} seeds in {:?}", start.elapsed());
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
    let yard = Yard::new(comm, &[2 * comm.size() + 1], (1, 1, 1), |_| device)?;
    let stream = Arc::new(device.stream(Priority::Normal)?);
    let options = BindOptions { link, streams: vec![Arc::clone(&stream)], ..BindOptions::default() };
    let halo = yard.bind(comm, &[&[0]], &options)?;
    for step in 1..=3 {
        yard.produce(world, &[0], &stream, step)?;
        // Polled once, then forgotten: nobody is woken for it.
        let mut forgotten = halo.exchange_async();
        let _ = Pin::new(&mut forgotten).poll(&mut Context::from_waker(Waker::noop()));
        drop(forgotten);
        let polls = block_on(world, halo.exchange_async())?;
        ensure!(polls <= 2, "a task was polled {polls} times for one exchange");
        yard.consume(world, &[0], &stream, step)?;
    }
    stream.synchronise()?;
    comm.barrier()?;
    if comm.rank() == 0 {
        drop(halo);
        return Ok(());
    }
    // The failure wakes them, too.
    loop {
        match block_on(world, halo.exchange_async()) {
            Ok(_) => {}
            Err(Error::Failed(failure)) if failure.cause == Cause::Dropped => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[test]
fn tasks_sleep_until_their_exchange_is_over() {
    for link in [LinkChoice::Auto, LinkChoice::Mailbox, LinkChoice::Message] {
        explore(0..20, &limited(), |world| {
            run_ranks(world, 3, |comm| awaited_by_tasks(world, comm, link));
        });
    }
}

/// The receiver begins nothing: the sender gets as far as there is room for what it sends, and no further.
fn sent_to_nobody(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = &devices(world, 1)?[0];
    let yard = Yard::one_way(comm, 6, 1, device)?;
    let deadline = Some(Duration::from_secs(1));
    let halo = yard.bind(comm, &[&[0]], &BindOptions { link, deadline, ..BindOptions::default() })?;
    let stream = device.stream(Priority::Normal)?;
    if comm.rank() == 0 {
        yard.produce(world, &[0], &stream, 1)?;
        let failed = until_failure(&halo, &stream)?;
        ensure!(matches!(failed.cause, Cause::Deadline(_)) && failed.culprit == 1, "it failed by {failed}");
        ensure!(failed.epoch <= 5, "it ran ahead: {failed}");
    }
    comm.barrier()?;
    Ok(())
}

#[test]
fn a_sender_does_not_run_ahead_of_its_receiver() {
    for link in [LinkChoice::Auto, LinkChoice::Mailbox, LinkChoice::Message] {
        explore(0..20, &limited(), |world| run_ranks(world, 2, |comm| sent_to_nobody(world, comm, link)));
    }
}

/// One rank drops its object after a step; the others exchange until they fail.
fn dropped_by_one(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = &devices(world, 1)?[0];
    let yard = Yard::new(comm, &[3 * comm.size()], (1, 1, 1), |_| device)?;
    let halo = yard.bind(comm, &[&[0]], &BindOptions { link, ..BindOptions::default() })?;
    let stream = device.stream(Priority::Normal)?;
    yard.produce(world, &[0], &stream, 1)?;
    halo.schedule_exchange(&[&stream])?.wait()?;
    yard.consume(world, &[0], &stream, 1)?;
    comm.barrier()?;
    if comm.rank() == 0 {
        drop(halo);
    } else {
        let failed = until_failure(&halo, &stream)?;
        ensure!(failed.cause == Cause::Dropped && failed.culprit == 0, "it failed by {failed}");
        while !halo.reclaim() {
            comm.link().host().yield_now();
        }
    }
    Ok(stream.synchronise()?)
}

#[test]
fn all_peers_fail_when_one_drops_its_object() {
    for (ranks, link) in
        [(2, LinkChoice::Auto), (4, LinkChoice::Auto), (4, LinkChoice::Mailbox), (3, LinkChoice::Message)]
    {
        explore(0..100, &limited(), |world| {
            run_ranks(world, ranks, |comm| dropped_by_one(world, comm, link))
        });
    }
}
