//! Refused scheduled exchanges, and binds of fields of several kinds, on simulated devices.

use halocline::device::sim::{Kernel, Options, World, explore};
use halocline::device::{Memory, Priority, ValueOp};
use halocline::{
    Array, ArrayError, BindError, BindOptions, Cause, Communicator, Decomposed, Device, DeviceArray,
    DeviceError, Error, Fault, Field, Halo, HaloExchange, Layout, LinkChoice, LinkCounts, Ll, Pattern,
    PatternLinks, RegularGrid, TestOptions, UnstructuredDomain,
};
use halocline_conformance::device_fixtures::{DeviceFixture, devices, until_failure};
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, ensure, fail};
use std::sync::Arc;

const SEEDS: u64 = 20;

fn under_seeds(ranks: usize, program: impl Fn(&World, &Communicator) -> Outcome + Sync) {
    let options = Options { depth: 4096, steps: 200_000, ..options() };
    explore(0..SEEDS, &options, |world| run_ranks(world, ranks, |comm| program(world, comm)));
}

#[test]
fn a_stream_of_another_device() {
    under_seeds(2, |world, comm| {
        let devices = devices(world, 2)?;
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| &devices[0])?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
        let (own, other) = (devices[0].stream(Priority::Normal)?, devices[1].stream(Priority::Normal)?);
        for step in 1..=2 {
            fixture.produce(world, &[0], &own, step)?;
            match halo.schedule_exchange(&[&own, &other]) {
                Err(Error::StreamDevice { stream: 1, device: 1, devices }) if devices == [0] => {}
                other => fail!("instead of a refusal: {other:?}"),
            }
            let pending = halo.schedule_exchange(&[&own])?;
            ensure!(pending.epoch() == step, "a refusal counted as an exchange");
            match pending.schedule_wait(&other) {
                Err(Error::StreamDevice { device: 1, .. }) => {}
                other => fail!("instead of a refusal: {other:?}"),
            }
            pending.schedule_wait(&own)?;
            fixture.consume(world, &[0], &own, step)?;
        }
        let options = BindOptions::default().streams(vec![Arc::new(other)]);
        ensure!(fixture.bind(comm, &[&[0]], &options).is_err(), "a producer of another device is bound");
        Ok(own.synchronise()?)
    });
}

/// What is not of this world, and what is bound on both.
fn of_two_worlds(one: &World, two: &World) -> Outcome {
    let comm = Communicator::single();
    let (mine, other) = (one.device(0)?, two.device(0)?);
    let fixture = DeviceFixture::new(&comm, &[6], (1, 1, 1), |_| &mine)?;
    let halo = fixture.bind(&comm, &[&[0]], &BindOptions::default())?;
    let (own, stranger) = (mine.stream(Priority::Normal)?, other.stream(Priority::Normal)?);
    match halo.schedule_exchange(&[&stranger]) {
        Err(Error::StreamDevice { .. }) => {}
        other => fail!("instead of a refusal: {other:?}"),
    }
    fixture.produce(one, &[0], &own, 1)?;
    halo.schedule_exchange(&[&own])?.schedule_wait(&own)?;
    fixture.consume(one, &[0], &own, 1)?;
    own.synchronise()?;
    let event = mine.events().take()?;
    let refused = [stranger.wait(&event), stranger.record(&event), mine.enable_peer(&other)];
    let is_refused = |refused| matches!(refused, Err(DeviceError::OtherMachine { .. }));
    ensure!(refused.into_iter().all(is_refused), "a device takes what is of another machine");
    // One of the same communicator on the other's devices.
    let fixture = DeviceFixture::new(&comm, &[6], (1, 1, 1), |_| &other)?;
    let halo = fixture.bind(&comm, &[&[0]], &BindOptions::default())?;
    fixture.produce(two, &[0], &stranger, 1)?;
    halo.schedule_exchange(&[&stranger])?.schedule_wait(&stranger)?;
    fixture.consume(two, &[0], &stranger, 1)?;
    Ok(stranger.synchronise()?)
}

#[test]
fn devices_of_another_machine() {
    let options = Options { devices: 1, depth: 1024, ordered_threads: true, ..Options::default() };
    let worlds = [1, 2].map(|seed| World::live(seed, &options).expect("threads"));
    of_two_worlds(worlds[0].world(), worlds[1].world()).unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(worlds.iter().all(|live| live.reports().is_empty()));
}

#[test]
fn a_raw_stream_of_no_device_or_another_one() {
    under_seeds(1, |world, _| {
        let devices = devices(world, 2)?;
        let other = devices[1].stream(Priority::Normal)?;
        for raw in [other.raw(), halocline::device::RawStream(0xdead)] {
            // SAFETY: the simulated device takes any number.
            let refused = unsafe { devices[0].borrow_stream(raw) };
            ensure!(refused.is_err(), "{raw:?} is borrowed");
        }
        Ok(())
    });
}

/// A field in memory that it does not keep alive.
fn foreign(memory: &Memory, device: &halocline::Device, extent: usize) -> Result<Field, Error> {
    let layout = Layout::c_order(halocline::ElementType::U64, &[extent])?;
    // SAFETY: the memory outlives the exchanges that are not refused.
    unsafe { Field::from_device(device, memory.at(0), layout, Arc::new(())) }
}

#[test]
fn a_field_whose_memory_moved() {
    under_seeds(1, |world, comm| {
        let device = &devices(world, 1)?[0];
        let pattern = RegularGrid::new([4]).periodic([true]).decompose(1)?.pattern(comm, Halo::uniform(1))?;
        let memory = device.allocate(48)?;
        ensure!(
            matches!(foreign(&memory, device, 7), Err(Error::OutsideMemory { bytes: 56, .. })),
            "a field beyond its memory is made"
        );
        let halo = HaloExchange::bind(comm, [(&pattern, &foreign(&memory, device, 6)?)])?;
        let stream = device.stream(Priority::Normal)?;
        world.launch(&stream, Kernel::new("produce").writes(memory.at(0), 48))?;
        halo.schedule_exchange(&[&stream])?.wait()?;
        stream.synchronise()?;
        drop(memory);
        match halo.schedule_exchange(&[&stream]) {
            Err(Error::MemoryMoved { field: 0 }) => {}
            other => fail!("instead of moved memory: {other:?}"),
        }
        // No peer may write there any more: the object has failed.
        match halo.schedule_exchange(&[&stream]) {
            Err(Error::Failed(failure)) => {
                let names_field = failure.to_string().contains("field 0");
                ensure!(failure.cause == Cause::Device && names_field, "it failed by {failure}");
            }
            other => fail!("instead of a failure: {other:?}"),
        }
        ensure!(halo.pending().is_some_and(|pending| pending.epoch() == 1), "a refusal counted");
        Ok(())
    });
}

#[test]
fn a_field_without_cells_may_be_anywhere() {
    under_seeds(2, |world, comm| {
        let device = &devices(world, 1)?[0];
        let rank = comm.rank() as u64;
        let domain = match rank {
            0 => UnstructuredDomain::new(rank, vec![0, 1], Vec::new()),
            _ => UnstructuredDomain::new(rank, Vec::new(), Vec::new()),
        };
        let pattern = Pattern::unstructured(comm, &[domain])?;
        let memory = device.allocate(16)?;
        let cells = 2 - 2 * comm.rank();
        let layout = Layout::c_order(halocline::ElementType::U64, &[cells])?;
        let base = if cells > 0 { memory.at(0) } else { 0 };
        // SAFETY: the memory outlives the exchange.
        let field = unsafe { Field::from_device(device, base, layout, Arc::new(())) }?;
        let halo = HaloExchange::bind(comm, [(&pattern, &field)])?;
        let stream = device.stream(Priority::Normal)?;
        halo.schedule_exchange(&[&stream])?.wait()?;
        let one = Layout::c_order(halocline::ElementType::U64, &[1])?;
        // SAFETY: the field is refused, so that nothing follows the address.
        let nowhere = unsafe { Field::from_device(device, 0, one, Arc::new(())) };
        ensure!(nowhere.is_err(), "a field with a cell at address 0 is made");
        Ok(stream.synchronise()?)
    });
}

#[test]
fn sixty_five_exchanges_in_flight() {
    under_seeds(2, |world, comm| {
        let device = &devices(world, 1)?[0];
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
        let (stream, gate) = (device.stream(Priority::Normal)?, device.allocate_pinned(8)?);
        fixture.produce(world, &[0], &stream, 1)?;
        // SAFETY: the word lives until the stream is through.
        unsafe { stream.values(&[ValueOp::Wait { address: gate.at(0), at_least: 1 }]) }?;
        for epoch in 1..=64 {
            let pending = halo.schedule_exchange(&[&stream])?;
            ensure!(pending.epoch() == epoch && !pending.is_ready()?, "exchange {epoch} is over");
        }
        for _ in 0..2 {
            match halo.schedule_exchange(&[&stream]) {
                Err(Error::TooManyInFlight { limit: 64, oldest: 1 }) => {}
                other => fail!("instead of too many in flight: {other:?}"),
            }
        }
        // SAFETY: streams wait for it.
        unsafe { gate.store(0, 1) };
        halo.wait()?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        fixture.consume(world, &[0], &stream, 1)?;
        Ok(stream.synchronise()?)
    });
}

#[test]
fn host_and_device_fields_in_one_object() {
    under_seeds(2, |world, comm| {
        let device = &devices(world, 1)?[0];
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
        let on_host = Array::<u64>::zeros(comm, &[5])?;
        let on_device = fixture.pieces[0][0].field();
        // In any order.
        let fields: [(&Pattern, &Field); 2] = match comm.rank() {
            0 => [(&fixture.pattern, &on_host), (&fixture.pattern, on_device)],
            _ => [(&fixture.pattern, on_device), (&fixture.pattern, &on_host)],
        };
        let halo = HaloExchange::bind(comm, fields)?;
        let stream = device.stream(Priority::Normal)?;
        let cell = |step: u64, id: u64| step * 100 + id % 6;
        let first = 3 * comm.rank() as u64;
        for step in 1..=3 {
            (0..3).try_for_each(|at| -> Outcome {
                on_host.write()?[at + 1] = cell(step, first + at as u64);
                Ok(())
            })?;
            fixture.produce(world, &[0], &stream, step)?;
            let pending = halo.schedule_exchange(&[&stream])?;
            // A second one while host fields are in flight is refused, or the first was over.
            pending.schedule_wait(&stream)?;
            fixture.consume(world, &[0], &stream, step)?;
            let halos = (on_host.read()?[0], on_host.read()?[4]);
            ensure!(halos == (cell(step, first + 5), cell(step, first + 3)), "step {step}: {halos:?}");
            if step == 2 {
                pending.wait()?;
                ensure!(pending.is_ready()?, "it was waited for");
            }
        }
        let text = halo.explain();
        ensure!(text.contains("fields on devices 0") && text.matches("from rank").count() == 2, "{text}");
        Ok(stream.synchronise()?)
    });
}

#[test]
fn a_field_on_the_host_here_and_on_a_device_there() {
    under_seeds(2, |world, comm| {
        let device = &devices(world, 1)?[0];
        let pattern = RegularGrid::new([6]).periodic([true]).decompose(2)?.pattern(comm, Halo::uniform(1))?;
        let on_host = Array::<u64>::zeros(comm, &[5])?;
        let on_device = DeviceArray::<u64>::zeros(device, &[5])?;
        let field: &Field = if comm.rank() == 0 { &on_host } else { &on_device };
        match HaloExchange::bind(comm, [(&pattern, field)]) {
            Err(
                Error::Bind(BindError::RankFields { .. } | BindError::PatternNotBound { .. })
                | Error::Elsewhere { .. },
            ) => {}
            other => fail!("instead of a refusal: {other:?}"),
        }
        let links = PatternLinks::new(comm, &[&pattern])?;
        match links.exchange(&[(&pattern, &on_device)]) {
            Err(Error::NotOnHost { field: 0, .. }) => Ok(()),
            other => fail!("instead of a refusal: {other:?}"),
        }
    });
}

/// From the third exchange on the ranks choose different sets.
fn different_sets(
    world: &World,
    comm: &Communicator,
    (device, fixture): (&Device, &DeviceFixture),
    options: &BindOptions,
) -> Outcome {
    let stream = device.stream(Priority::Normal)?;
    let halo = fixture.bind(comm, &[&[0], &[1]], options)?;
    for step in 1..=2 {
        fixture.produce(world, &[0, 1], &stream, step)?;
        for set in 0..2 {
            halo.begin().set(set).after(&[&stream]).schedule()?.schedule_wait(&stream)?;
        }
        fixture.consume(world, &[0, 1], &stream, step)?;
    }
    halo.wait()?;
    let (given, kept) = (comm.rank() % 2, 1 - comm.rank() % 2);
    let failure = until_failure(&halo.alternative(given)?, &stream)?;
    ensure!(failure.cause == Cause::Check(Fault::OtherSet), "{failure}");
    ensure!(failure.epoch >= 5, "{failure}");
    // What was not given to the exchange is as it was.
    fixture.consume(world, &[kept], &stream, 2)?;
    Ok(stream.synchronise()?)
}

/// The sender exchanges set 1, then set 0, the receiver set 0 twice.
fn swapped_sets(world: &World, comm: &Communicator, options: &BindOptions) -> Outcome {
    let device = &devices(world, 1)?[0];
    let fixture = DeviceFixture::one_way(comm, 6, 2, device)?;
    let stream = device.stream(Priority::Normal)?;
    let halo = fixture.bind(comm, &[&[0], &[1]], options)?;
    fixture.produce(world, &[0, 1], &stream, 1)?;
    let begin = |set: usize| match halo.begin().set(set).after(&[&stream]).schedule() {
        Ok(pending) => Ok(Some(pending)),
        Err(Error::Failed(_)) => Ok(None),
        Err(error) => Err(error),
    };
    let begun = [begin(1 - comm.rank())?, begin(0)?];
    if comm.rank() == 1 {
        let ended = begun.map(|pending| pending.map(|pending| pending.wait()));
        ensure!(!matches!(ended[0], Some(Ok(()))), "what came for another set is taken");
        ensure!(!matches!(ended[1], Some(Ok(()))), "an exchange is over before the one that it follows");
    }
    stream.synchronise()?;
    Ok(comm.barrier()?)
}

/// Each way, and the LL protocol where streams wait and in one launch.
fn paths() -> impl Iterator<Item = BindOptions> {
    let links = [LinkChoice::Auto, LinkChoice::Mailbox, LinkChoice::Message];
    let links = links.map(|link| BindOptions::default().link(link));
    let ll = Ll::UpTo(1 << 20);
    links.into_iter().chain([false, true].map(|alone| {
        BindOptions::default().ll(ll).for_tests(TestOptions { alone, ..TestOptions::default() })
    }))
}

#[test]
fn a_sender_that_is_ahead_with_another_set() {
    for options in paths() {
        under_seeds(2, |world, comm| swapped_sets(world, comm, &options));
    }
}

#[test]
fn ranks_that_exchange_different_sets() {
    for options in paths() {
        for (apart, one_way) in [(false, false), (true, false), (false, true), (true, true)] {
            under_seeds(2, |world, comm| {
                let device = &devices(world, 2)?[if apart { comm.rank() } else { 0 }];
                let fixture = match one_way {
                    false => DeviceFixture::new(comm, &[6], (1, 1, 2), |_| device)?,
                    true => DeviceFixture::one_way(comm, 6, 2, device)?,
                };
                different_sets(world, comm, (device, &fixture), &options)
            });
        }
    }
}

/// Devices of which those from `peers` on reach only their own memory.
fn without_access(peers: u32, ranks: usize, program: impl Fn(&World, &Communicator) -> Outcome + Sync) {
    let options = Options { devices: 3, depth: 4096, steps: 200_000, peers, ..options() };
    explore(0..SEEDS, &options, |world| run_ranks(world, ranks, |comm| program(world, comm)));
}

#[test]
fn ranks_without_peer_access_use_a_mailbox_and_explain_it() {
    // Of three ranks, two have devices that do.
    for (peers, ranks) in [(0, 2), (1, 2), (2, 3)] {
        without_access(peers, ranks, |world, comm| {
            let device = world.device(comm.rank() as u32)?;
            let fixture = DeviceFixture::new(comm, &[3 * ranks], (1, 1, 1), |_| &device)?;
            let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
            let text = halo.explain();
            let alone = |rank: usize| rank as u32 >= peers;
            let near = (0..ranks)
                .filter(|&peer| peer != comm.rank() && (peers >= 2 && !alone(peer) && !alone(comm.rank())));
            let (near, links) = (2 * near.count(), 2 * (ranks - 1));
            let counts: LinkCounts = halo.links().collect();
            ensure!((counts.direct, counts.mailbox) == (near, links - near), "{counts:?}: {text}");
            let why = "has no access to the memory of device";
            ensure!(text.matches(why).count() == links - near, "{text}");
            ensure!(text.matches("staged through the host, a buffer").count() == links - near, "{text}");
            let stream = device.stream(Priority::Normal)?;
            for step in 1..=3 {
                fixture.produce(world, &[0], &stream, step)?;
                halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
                fixture.consume(world, &[0], &stream, step)?;
            }
            Ok(stream.synchronise()?)
        });
    }
}

#[test]
fn direct_links_between_devices_that_do_not_reach_each_other() {
    without_access(1, 2, |world, comm| {
        let device = world.device(comm.rank() as u32)?;
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| &device)?;
        let options = BindOptions::default().link(LinkChoice::Push);
        match fixture.bind(comm, &[&[0]], &options) {
            Err(Error::Bind(BindError::Path { reason, .. })) => {
                ensure!(reason.contains("has no access to the memory of device"), "{reason}");
            }
            other => fail!("instead of a refusal: {other:?}"),
        }
        Ok(())
    });
}

#[test]
fn one_rank_on_devices_that_do_not_reach_each_other() {
    without_access(2, 2, |world, comm| {
        let devices = (0..3).map(|number| world.device(number)).collect::<Result<Vec<_>, _>>()?;
        let fixture =
            DeviceFixture::new(comm, &[12], (2, 1, 1), |domain| &devices[2 * domain * comm.rank()])?;
        match (comm.rank(), fixture.bind(comm, &[&[0]], &BindOptions::default())) {
            (1, Err(Error::NotPeers { device: 0, peer: 2 })) => {}
            (0, Err(Error::Elsewhere { rank: 1, message })) => {
                ensure!(message.contains("devices 0 and 2"), "{message}")
            }
            (_, other) => fail!("instead of a refusal: {other:?}"),
        }
        Ok(())
    });
}

#[test]
fn staging_is_not_silent() {
    for (link, says) in [
        (LinkChoice::Auto, "direct, push"),
        (LinkChoice::Mailbox, "staged through the host, a buffer"),
        (LinkChoice::Message, "staged through the host, messages"),
    ] {
        under_seeds(2, |world, comm| {
            let device = &devices(world, 1)?[0];
            let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
            let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().link(link))?;
            let text = halo.explain();
            ensure!(text.matches(says).count() == 2, "{link:?}: {text}");
            Ok(())
        });
    }
}

#[test]
fn an_array_larger_than_what_is_copied_at_a_time_is_written_and_read_whole() {
    let program = |world: &World, _: &Communicator| {
        let device = &devices(world, 1)?[0];
        let stream = device.stream(Priority::Normal)?;
        let elements: Vec<u64> = (0..(32 << 20) / 8 + 3).collect();
        let array = DeviceArray::<u64>::zeros(device, &[elements.len()])?;
        array.write(&stream, &elements)?;
        ensure!(array.read(&stream)? == elements, "it does not keep what is written");
        Ok(())
    };
    explore(0..1, &options(), |world| run_ranks(world, 1, |comm| program(world, comm)));
}

#[test]
fn an_array_is_written_and_read_in_the_order_of_a_stream() {
    under_seeds(1, |world, _| {
        let device = &devices(world, 1)?[0];
        let (one, two) = (device.stream(Priority::Normal)?, device.stream(Priority::Normal)?);
        let array = DeviceArray::<u64>::zeros(device, &[3])?;
        ensure!(array.read(&one)? == [0; 3], "it is not zeroed");
        array.write(&one, &[1, 2, 3])?;
        ensure!(array.read(&two)? == [1, 2, 3], "it does not keep what is written");
        match array.write(&one, &[1]) {
            Err(Error::Array(ArrayError::Length { expected: 3, found: 1, .. })) => Ok(()),
            other => fail!("instead of a wrong length: {other:?}"),
        }
    });
}
