//! Many objects of a process on one device: each exchange stays one launch, however many thread blocks all of them need. Simulated
//! devices on which few parts of copy tables may wait at once; `HALOCLINE_SEED` runs one seed only.

use halocline::device::Priority;
use halocline::device::sim::{Options, Report, World, explore, run};
use halocline::{BindOptions, Communicator, Cut, HaloExchange, TestOptions};
use halocline_conformance::device_fixtures::{DeviceFixture, devices};
use halocline_conformance::numbers::Numbers;
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, Trouble, ensure};

/// Parts of one exchange that wait: one sends to the other rank, one receives.
const BLOCKS: u32 = 2;

/// What a rank does: objects, each with a field of its own, on streams, a few in flight at a time.
#[derive(Clone, Copy)]
struct Shape {
    objects: usize,
    streams: usize,
    /// Exchanges in flight at once, and how often.
    in_flight: usize,
    rounds: u64,
    inline: bool,
    /// Now and then drops an object in flight, which is bound again when it is next used.
    drops: bool,
    cut: Option<Cut>,
    checked: Option<bool>,
}

fn limited(waiting_blocks: u32) -> Options {
    Options { depth: 1024, steps: 20_000_000, waiting_blocks: Some(waiting_blocks), ..options() }
}

/// Two ranks, each with a device of its own, exchange the objects in an order that the seed determines.
fn play(world: &World, shape: Shape) {
    run_ranks(world, 2, |comm| rank(world, comm, shape));
}

fn rank(world: &World, comm: &Communicator, shape: Shape) -> Outcome {
    let device = &devices(world, 2)?[comm.rank()];
    let fixture = DeviceFixture::new(comm, &[6], (1, 1, shape.objects as u64), |_| device)?;
    let streams = (0..shape.streams).map(|_| device.stream(Priority::Normal));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let (mut common, mut own) =
        (Numbers::new(world.seed()), Numbers::new(world.seed() ^ (comm.rank() as u64 + 1) << 32));
    let stream_of: Vec<usize> = (0..shape.objects).map(|_| own.below(shape.streams)).collect();
    let options = BindOptions::default().inline(shape.inline).checked(shape.checked);
    let options = options.for_tests(TestOptions { cut: shape.cut, ..TestOptions::default() });
    let bind = |object: usize| -> Result<HaloExchange, Trouble> {
        let halo = fixture.bind(comm, &[&[object]], &options)?;
        ensure!(halo.explain().contains("each exchange in one launch"), "{}", halo.explain());
        Ok(halo)
    };
    let mut bound: Vec<Option<HaloExchange>> = (0..shape.objects).map(|_| None).collect();
    let mut order: Vec<usize> = (0..shape.objects).collect();
    for step in 1..=shape.rounds {
        common.shuffle(&mut order);
        let mut in_flight = Vec::new();
        for &object in &order[..shape.in_flight.min(shape.objects)] {
            if bound[object].is_none() {
                bound[object] = Some(bind(object)?);
            }
            let Some(halo) = &bound[object] else { continue };
            let stream = &streams[stream_of[object]];
            fixture.produce(world, &[object], stream, step)?;
            in_flight.push((object, stream, halo.schedule_exchange(&[stream])?));
            if shape.drops && common.one_in(4) {
                bound[object] = None;
            }
        }
        for (object, stream, pending) in in_flight {
            pending.schedule_wait(stream)?;
            fixture.consume(world, &[object], stream, step)?;
        }
    }
    Ok(streams.iter().try_for_each(|stream| stream.synchronise())?)
}

#[test]
fn sixteen_objects_keep_the_single_launch_on_a_device_with_room_for_one() {
    for inline in [false, true] {
        for (streams, waiting_blocks) in [(1, BLOCKS), (3, BLOCKS), (3, 2 * BLOCKS + 1)] {
            let shape = Shape {
                objects: 16,
                streams,
                in_flight: 5,
                rounds: 4,
                inline,
                drops: false,
                cut: None,
                checked: None,
            };
            explore(0..6, &limited(waiting_blocks), |world| play(world, shape));
        }
    }
}

#[test]
fn sixty_four_objects_on_four_streams_come_and_go_without_a_deadlock() {
    for inline in [false, true] {
        for waiting_blocks in [BLOCKS, BLOCKS + 1, 3 * BLOCKS] {
            let shape = Shape {
                objects: 64,
                streams: 4,
                in_flight: 16,
                rounds: 5,
                inline,
                drops: true,
                cut: None,
                checked: None,
            };
            explore(0..3, &limited(waiting_blocks), |world| play(world, shape));
        }
    }
}

#[test]
fn few_objects_pass_under_many_schedules() {
    for inline in [false, true] {
        let shape = Shape {
            objects: 5,
            streams: 4,
            in_flight: 4,
            rounds: 2,
            inline,
            drops: true,
            cut: None,
            checked: None,
        };
        explore(0..80, &limited(BLOCKS), |world| play(world, shape));
    }
}

/// What checked mode looks at stays until it was looked at, and an object that is over looks at nothing.
#[test]
fn checked_objects_pass_under_many_schedules() {
    for inline in [false, true] {
        let shape = Shape {
            objects: 5,
            streams: 4,
            in_flight: 4,
            rounds: 2,
            inline,
            drops: true,
            cut: None,
            checked: Some(true),
        };
        explore(0..40, &limited(BLOCKS), |world| play(world, shape));
    }
}

#[test]
fn launches_that_do_not_wait_for_each_other_deadlock() {
    for inline in [false, true] {
        let cut = Some(Cut::Chain);
        let shape = Shape {
            objects: 4,
            streams: 4,
            in_flight: 4,
            rounds: 3,
            inline,
            drops: false,
            cut,
            checked: None,
        };
        let options = Options { steps: 60_000, ..limited(BLOCKS) };
        let is_stuck = |report: &Report| matches!(report, Report::Deadlock { .. } | Report::Endless { .. });
        let found = (0..500)
            .find(|&seed| run(seed, &options, |world| play(world, shape)).reports.iter().any(is_stuck));
        assert!(found.is_some(), "inline {inline}: 500 seeds find nothing");
    }
}

/// The exchange of an object that needs more blocks than the device has is stream waits, and right.
#[test]
fn an_object_that_exceeds_the_device_by_itself_waits_on_streams() {
    explore(0..20, &limited(BLOCKS - 1), |world| {
        run_ranks(world, 2, |comm| {
            let device = &devices(world, 2)?[comm.rank()];
            let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
            let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
            let why = "not in one: its waiting blocks need more multiprocessors than the device has";
            ensure!(halo.explain().contains(why), "{}", halo.explain());
            let stream = device.stream(Priority::Normal)?;
            for step in 1..=3 {
                fixture.produce(world, &[0], &stream, step)?;
                halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
                fixture.consume(world, &[0], &stream, step)?;
            }
            Ok(stream.synchronise()?)
        });
    });
}
