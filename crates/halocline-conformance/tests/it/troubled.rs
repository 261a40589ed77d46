//! Scheduled exchanges of ranks with several devices, on users' streams, with devices that fail and progress that is late.

use halocline::device::sim::{Options, World, explore};
use halocline::device::{Priority, RawStream};
use halocline::{BindOptions, Cause, Communicator, Error, LinkChoice, Stream, TestOptions};
use halocline_comm::Endpoint;
use halocline_conformance::device_fixtures::{DeviceFixture, Kernels, devices};
use halocline_conformance::simulated::{options, run_ranks, run_ranks_late};
use halocline_conformance::{Outcome, ensure, fail};
use std::sync::Arc;
use std::time::Duration;

fn limited(devices: u32) -> Options {
    Options { devices, depth: 4096, steps: 200_000, ..options() }
}

/// The producers that are bound, which are the default streams of both devices if none is named.
fn bound_producers(world: &World, comm: &Communicator, inline: bool, named: bool) -> Outcome {
    let devices = devices(world, 2)?;
    let fixture = DeviceFixture::new(comm, &[4 * comm.size(), 3], (2, 1, 1), |domain| &devices[domain])?;
    let stream = |device: &halocline::Device| match named {
        true => device.stream(Priority::Normal),
        // SAFETY: 0 is the default stream of the device, which lives as long as the device.
        false => unsafe { device.borrow_stream(RawStream(0)) },
    };
    let streams: Vec<Arc<Stream>> =
        devices.iter().map(|device| stream(device).map(Arc::new)).collect::<Result<_, _>>()?;
    let bound = if named { streams.clone() } else { Vec::new() };
    let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().inline(inline).streams(bound))?;
    let of_stream = |at: usize| fixture.pieces[0].iter().skip(at).step_by(2).zip([&streams[at]]);
    for step in 1..=3 {
        for (piece, stream) in (0..2).flat_map(of_stream) {
            world.produce(piece, stream, step)?;
        }
        let pending = halo.exchange()?;
        if step == 2 {
            pending.wait()?;
        } else {
            streams.iter().try_for_each(|stream| pending.schedule_wait(stream))?;
        }
        for (piece, stream) in (0..2).flat_map(of_stream) {
            world.consume(piece, stream, step)?;
        }
    }
    Ok(streams.iter().try_for_each(|stream| stream.synchronise())?)
}

#[test]
fn exchanges_come_after_the_producers_that_are_bound() {
    for (inline, named) in [(false, false), (true, false), (false, true), (true, true)] {
        // Ranks that share a stream wait behind each other.
        for ranks in 1..=if named { 2 } else { 1 } {
            explore(0..60, &limited(2), |world| {
                run_ranks(world, ranks, |comm| bound_producers(world, comm, inline, named));
            });
        }
    }
}

/// Exchange by exchange on another stream, which nothing but the exchanges orders.
fn on_streams_in_turn(world: &World, comm: &Communicator, link: LinkChoice) -> Outcome {
    let device = &devices(world, 2)?[comm.rank() % 2];
    let fixture = DeviceFixture::new(comm, &[2 * comm.size() + 1], (1, 1, 2), |_| device)?;
    let halo = fixture.bind(comm, &[&[0], &[1]], &BindOptions::default().inline(true).link(link))?;
    let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
    for step in 1..=3 {
        for (set, stream) in streams.iter().enumerate() {
            fixture.produce(world, &[set], stream, step)?;
            halo.begin().set(set).after(&[stream]).schedule()?.schedule_wait(stream)?;
            fixture.consume(world, &[set], stream, step)?;
        }
    }
    Ok(streams.iter().try_for_each(Stream::synchronise)?)
}

#[test]
fn inline_exchanges_on_several_streams_follow_each_other() {
    for link in [
        LinkChoice::Auto,
        LinkChoice::DeviceMailbox,
        LinkChoice::Mailbox,
        LinkChoice::Message,
        LinkChoice::Nccl,
    ] {
        explore(0..60, &limited(2), |world| {
            run_ranks(world, 2, |comm| on_streams_in_turn(world, comm, link));
        });
    }
}

/// One of two devices of rank 0 fails with exchanges in flight, and one more is begun.
fn one_device_fails(world: &World, comm: &Communicator, inline: bool, link: LinkChoice) -> Outcome {
    let devices = devices(world, 3)?;
    let place = |domain| &devices[if comm.rank() == 0 { domain } else { 2 }];
    let fixture = DeviceFixture::new(comm, &[8], (2, 1, 1), place)?;
    let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().inline(inline).link(link))?;
    if comm.rank() == 0 {
        let streams = [devices[0].stream(Priority::Normal)?, devices[1].stream(Priority::Normal)?];
        let given = [&streams[0], &streams[1]];
        let first = halo.schedule_exchange(&given)?;
        let _ = halo.schedule_exchange(&given)?;
        world.fail(&devices[1], "it was unplugged");
        ensure!(halo.schedule_exchange(&given).is_err(), "an exchange is begun without its device");
        match first.schedule_wait(&streams[0]) {
            Err(Error::Failed(failure)) if failure.cause == Cause::Device => {
                ensure!(failure.link.is_none(), "a device failed, and a link is named: {failure}");
            }
            other => fail!("instead of a failure: {other:?}"),
        }
        while !halo.reclaim() {
            comm.link().host().yield_now();
        }
        drop(halo);
        streams[0].synchronise()?;
    }
    comm.barrier()?;
    Ok(())
}

#[test]
fn one_of_several_devices_of_a_rank_fails() {
    for link in [LinkChoice::Auto, LinkChoice::DeviceMailbox, LinkChoice::Mailbox, LinkChoice::Message] {
        for inline in [false, true] {
            explore(0..60, &limited(3), |world| {
                run_ranks(world, 2, |comm| one_device_fails(world, comm, inline, link));
            });
        }
    }
}

/// The peer fails the object while exchanges are begun, one after the other.
fn fails_while_begun(world: &World, comm: &Communicator, inline: bool) -> Outcome {
    let device = &devices(world, 1)?[0];
    let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
    let deadline = (comm.rank() == 0).then(|| Duration::from_micros(300));
    let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().inline(inline).deadline(deadline))?;
    if comm.rank() == 0 {
        let stream = device.stream(Priority::Normal)?;
        loop {
            match halo.schedule_exchange(&[&stream]) {
                Ok(_) => {}
                Err(Error::TooManyInFlight { .. }) => comm.link().host().yield_now(),
                Err(Error::Failed(_)) => break,
                Err(error) => return Err(error.into()),
            }
        }
        while !halo.reclaim() {
            comm.link().host().yield_now();
        }
        drop(halo);
        stream.synchronise()?;
    }
    comm.barrier()?;
    Ok(())
}

#[test]
fn a_failure_while_exchanges_are_begun() {
    for inline in [false, true] {
        explore(0..100, &limited(1), |world| {
            run_ranks(world, 2, |comm| fails_while_begun(world, comm, inline));
        });
    }
}

/// A peer that does not come, where a message has many chunks: all that streams wait for is released.
fn waits_for_chunks(world: &World, comm: &Communicator) -> Outcome {
    let device = &devices(world, 1)?[0];
    let fixture = DeviceFixture::new(comm, &[8, 4], (1, 2, 1), |_| device)?;
    let (link, chunk) = (LinkChoice::Message, Some(8));
    let deadline = (comm.rank() == 0).then(|| Duration::from_micros(300));
    let options = BindOptions::default()
        .link(link)
        .deadline(deadline)
        .for_tests(TestOptions { chunk, ..TestOptions::default() });
    let halo = fixture.bind(comm, &[&[0]], &options)?;
    if comm.rank() == 0 {
        let stream = device.stream(Priority::Normal)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        while !halo.reclaim() {
            comm.link().host().yield_now();
        }
        stream.synchronise()?;
    }
    comm.barrier()?;
    Ok(())
}

#[test]
fn a_late_peer_with_many_chunks() {
    explore(0..50, &limited(1), |world| run_ranks(world, 2, |comm| waits_for_chunks(world, comm)));
}

/// Sets that leave a staged link nothing to do, more of them than the host remembers.
fn nothing_to_stage(world: &World, comm: &Communicator) -> Outcome {
    let device = &devices(world, 1)?[0];
    let fixture = DeviceFixture::one_way(comm, 6, 1, device)?;
    let options = BindOptions::default().link(LinkChoice::Message);
    let halo = fixture.bind(comm, &[&[0][..], &[][..]], &options)?;
    let stream = device.stream(Priority::Normal)?;
    let exchange = |set| -> Outcome {
        loop {
            match halo.begin().set(set).after(&[&stream]).schedule() {
                Ok(pending) => return Ok(pending.schedule_wait(&stream)?),
                Err(Error::TooManyInFlight { .. }) => stream.synchronise()?,
                Err(error) => return Err(error.into()),
            }
        }
    };
    for round in 1..=2u64 {
        fixture.produce(world, &[0], &stream, round)?;
        exchange(0)?;
        fixture.consume(world, &[0], &stream, round)?;
        stream.synchronise()?;
        (0..140).try_for_each(|_| exchange(1))?;
    }
    halo.wait()?;
    Ok(stream.synchronise()?)
}

#[test]
fn a_progress_thread_that_comes_late() {
    let options = Options { steps: 2_000_000, depth: 100_000, ..limited(1) };
    explore(0..6, &options, |world| {
        run_ranks_late(world, 2, Duration::from_millis(20), |comm| nothing_to_stage(world, comm));
    });
}

/// The peer drops its object after an exchange in which all took part; this rank has begun another.
fn dropped_after_one(world: &World, comm: &Communicator) -> Outcome {
    let device = &devices(world, 2)?[comm.rank()];
    let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
    let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
    let stream = device.stream(Priority::Normal)?;
    fixture.produce(world, &[0], &stream, 1)?;
    let first = halo.schedule_exchange(&[&stream])?;
    if comm.rank() == 0 {
        let second = halo.schedule_exchange(&[&stream])?;
        first.wait()?;
        match second.wait() {
            Err(Error::Failed(failure)) if failure.cause == Cause::Dropped && failure.epoch == 2 => {}
            other => fail!("instead of a failure of the second exchange: {other:?}"),
        }
    } else {
        first.wait()?;
        drop((first, halo));
    }
    Ok(stream.synchronise()?)
}

#[test]
fn exchanges_of_a_rank_before_it_left_are_complete() {
    explore(0..100, &limited(2), |world| run_ranks(world, 2, |comm| dropped_after_one(world, comm)));
}
