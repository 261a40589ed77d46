//! Messages of device fields, packed and unpacked by hand in stream order, on simulated devices: the promised order holds under every
//! seed, each ordering left to the caller is necessary, and invalid calls are refused.

use halocline::device::sim::{Options, World, explore, run};
use halocline::device::{Memory, Priority, ValueOp};
use halocline::{
    Array, BindOptions, Cause, Communicator, Decomposed, DeviceError, Direction, Error, Field, Halo,
    HaloExchange, LinkChoice, Pattern, RegularGrid, Stream,
};
use halocline_comm::Endpoint;
use halocline_conformance::by_hand::Buffer;
use halocline_conformance::device_fixtures::{DeviceFixture, devices, until_failure};
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, Trouble, ensure, fail};
use std::mem::discriminant;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Seeds under which whole programs pass, and within which those fail that leave something out.
const SEEDS: u64 = 100;
const ENOUGH: u64 = 1000;

fn limited() -> Options {
    Options { steps: 100_000, ..options() }
}

fn under_seeds(program: impl Fn(&World, &Communicator) -> Outcome + Sync) {
    explore(0..SEEDS, &limited(), |world| run_ranks(world, 2, |comm| program(world, comm)));
}

/// What one stream is given later runs after what the other was given before.
fn follow(first: &Stream, then: &Stream) -> Outcome {
    let event = first.device().events().take()?;
    first.record(&event)?;
    Ok(then.wait(&event)?)
}

/// A piece of order between the stream that packs and those of the caller's own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// Packing comes after what writes the owned cells.
    Producer,
    /// What overwrites them comes after packing; what reads the halo, after unpacking.
    Consumer,
    /// What reads a message comes after packing.
    Packed,
    /// Unpacking comes after what writes a message.
    Arrived,
}

/// A buffer for the message of each peer.
fn buffers(
    halo: &HaloExchange,
    stream: &Stream,
    direction: Direction,
) -> Result<Vec<(usize, Buffer)>, Trouble> {
    let peers = halo.links().filter(|link| link.direction == direction).map(|link| link.peer);
    let buffer = |peer| {
        let bytes = halo.message_bytes(peer, direction)?;
        Ok((peer, Buffer::new(stream.device(), bytes, false)?))
    };
    peers.map(buffer).collect()
}

/// Kernels on one stream, messages on another, and what carries them from rank to rank on a third.
fn steps(world: &World, comm: &Communicator, left: Left) -> Outcome {
    let device = &devices(world, 2)?[comm.rank()];
    let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
    let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
    let stream = || device.stream(Priority::Normal);
    let (kernels, messages, carrier) = (stream()?, stream()?, stream()?);
    let out = buffers(&halo, &messages, Direction::Send)?;
    let into = buffers(&halo, &messages, Direction::Receive)?;
    let tie = |of: Left, first: &Stream, then: &Stream| if left == of { Ok(()) } else { follow(first, then) };
    for step in 1..=3 {
        let tag = halocline_comm::Tag { operation: comm.begin(), round: 0 };
        fixture.produce(world, &[0], &kernels, step)?;
        tie(Left::Producer, &kernels, &messages)?;
        for (peer, buffer) in &out {
            // SAFETY: the buffer lives until the streams are through. The order of the streams is what is tried, and
            // the simulated device checks it.
            unsafe { halo.pack_on(*peer, buffer.address(), buffer.bytes(), &messages) }?;
            tie(Left::Packed, &messages, &carrier)?;
            comm.send(*peer, tag, buffer.read(&carrier)?)?;
        }
        for (peer, buffer) in &into {
            buffer.write(&carrier, &comm.receive(Some(*peer), tag, "a packed message")?.payload)?;
            tie(Left::Arrived, &carrier, &messages)?;
            // SAFETY: the buffer lives until the streams are through. The order of the streams is what is tried, and
            // the simulated device checks it.
            unsafe { halo.unpack_on(*peer, buffer.address(), buffer.bytes(), &messages) }?;
        }
        tie(Left::Consumer, &messages, &kernels)?;
        fixture.consume(world, &[0], &kernels, step)?;
        // The next message is written where this one lies.
        messages.synchronise()?;
    }
    kernels.synchronise()?;
    Ok(comm.barrier()?)
}

#[test]
fn the_order_of_the_stream_is_enough() {
    under_seeds(|world, comm| steps(world, comm, Left::Nothing));
}

#[test]
fn each_piece_of_order_is_needed() {
    for left in [Left::Producer, Left::Consumer, Left::Packed, Left::Arrived] {
        let fails = |seed| {
            let run = run(seed, &limited(), |world| run_ranks(world, 2, |comm| steps(world, comm, left)));
            !run.reports.is_empty()
        };
        assert!((0..ENOUGH).any(fails), "without {left:?}: {ENOUGH} seeds find nothing");
    }
}

/// Messages by hand and exchanges of the same object in turn, on one stream, by each way.
#[test]
fn exchanges_and_packed_messages_alternate_on_one_stream() {
    for link in [
        LinkChoice::Auto,
        LinkChoice::Pull,
        LinkChoice::DeviceMailbox,
        LinkChoice::Mailbox,
        LinkChoice::Message,
    ] {
        under_seeds(|world, comm| {
            let device = &devices(world, 2)?[comm.rank()];
            let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
            let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().link(link))?;
            let stream = device.stream(Priority::Normal)?;
            let (out, into) =
                (buffers(&halo, &stream, Direction::Send)?, buffers(&halo, &stream, Direction::Receive)?);
            for step in 1..=3 {
                fixture.produce(world, &[0], &stream, 2 * step)?;
                let pending = halo.schedule_exchange(&[&stream])?;
                // Both read owned cells: the exchange may be in flight still.
                for (peer, buffer) in &out {
                    // SAFETY: the buffer is used by this stream alone, and outlives it.
                    unsafe { halo.pack_on(*peer, buffer.address(), buffer.bytes(), &stream) }?;
                }
                pending.schedule_wait(&stream)?;
                fixture.consume(world, &[0], &stream, 2 * step)?;
                let tag = halocline_comm::Tag { operation: comm.begin(), round: 0 };
                for (peer, buffer) in &out {
                    comm.send(*peer, tag, buffer.read(&stream)?)?;
                }
                for (peer, buffer) in &into {
                    let message = comm.receive(Some(*peer), tag, "a packed message")?.payload;
                    buffer.write(&stream, &message)?;
                    // SAFETY: the buffer is used by this stream alone, and outlives it.
                    unsafe { halo.unpack_on(*peer, buffer.address(), buffer.bytes(), &stream) }?;
                }
                fixture.consume(world, &[0], &stream, 2 * step)?;
                stream.synchronise()?;
            }
            ensure!(halo.pending().is_some_and(|last| last.epoch() == 3), "messages have taken epochs");
            Ok(comm.barrier()?)
        });
    }
}

#[test]
fn the_object_and_its_fields_are_dropped_while_a_message_is_packed() {
    under_seeds(|world, comm| {
        let device = &devices(world, 2)?[comm.rank()];
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
        let stream = device.stream(Priority::Normal)?;
        let buffers = buffers(&halo, &stream, Direction::Send)?;
        for (peer, buffer) in &buffers {
            // SAFETY: the buffer outlives the work on it, and nothing else uses it.
            unsafe { halo.pack_on(*peer, buffer.address(), buffer.bytes(), &stream) }?;
        }
        drop((halo, fixture));
        Ok(stream.synchronise()?)
    });
}

/// The peers hear of it as soon as the message is packed, although nothing else is in flight.
#[test]
fn one_rank_drops_its_object_while_a_message_is_packed() {
    under_seeds(|world, comm| {
        let device = &devices(world, 2)?[comm.rank()];
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
        let stream = device.stream(Priority::Normal)?;
        let buffers = buffers(&halo, &stream, Direction::Send)?;
        fixture.produce(world, &[0], &stream, 1)?;
        if comm.rank() == 0 {
            let word = device.allocate_pinned(8)?;
            // SAFETY: the word outlives the wait, and is raised by the host alone.
            unsafe { stream.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }]) }?;
            for (peer, buffer) in &buffers {
                // SAFETY: the buffer outlives the work on it, and nothing else uses it.
                unsafe { halo.pack_on(*peer, buffer.address(), buffer.bytes(), &stream) }?;
            }
            drop(halo);
            // Longer than anybody looks after an object with nothing in flight.
            world.park(&AtomicU32::new(0), 0, Some(Duration::from_secs(3)));
            // SAFETY: the word lies in pinned memory that outlives the wait; streams and atomic operations alone access
            // it.
            unsafe { word.store(0, 1) };
            stream.synchronise()?;
        } else {
            let failed = until_failure(&halo, &stream)?;
            ensure!(failed.cause == Cause::Dropped && failed.culprit == 0, "it failed by {failed}");
        }
        comm.barrier()?;
        Ok(stream.synchronise()?)
    });
}

/// After a failure the fields are the user's again only once no message is packed from them either.
#[test]
fn the_object_fails_while_a_message_is_packed() {
    under_seeds(|world, comm| {
        let device = &devices(world, 2)?[comm.rank()];
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
        let deadline = Some(Duration::from_micros(if comm.rank() == 0 { 400 } else { 1_000_000 }));
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().deadline(deadline))?;
        let (kernels, messages) = (device.stream(Priority::Normal)?, device.stream(Priority::Normal)?);
        let buffers = buffers(&halo, &messages, Direction::Send)?;
        fixture.produce(world, &[0], &kernels, 1)?;
        if comm.rank() == 0 {
            // It reads what the message is packed from; the other rank does not come.
            let pending = halo.schedule_exchange(&[&kernels])?;
            follow(&kernels, &messages)?;
            for (peer, buffer) in &buffers {
                // SAFETY: the buffer outlives the work on it, and nothing else uses it.
                unsafe { halo.pack_on(*peer, buffer.address(), buffer.bytes(), &messages) }?;
            }
            ensure!(matches!(pending.wait(), Err(Error::Failed(_))), "it does not fail");
            let refused = refused(&halo, (buffers[0].1.address(), buffers[0].1.bytes()), 1, &messages)?;
            ensure!(matches!(refused, Error::Failed(_)), "a failed object packs: {refused}");
        }
        comm.barrier()?;
        while halo.pending().is_some() && !halo.reclaim() {
            comm.link().host().yield_now();
        }
        fixture.produce(world, &[0], &kernels, 2)?;
        kernels.synchronise()?;
        Ok(messages.synchronise()?)
    });
}

/// More buffers than tables are kept for, in turn, on two streams that nothing orders: calls for one buffer come after each other.
#[test]
fn many_buffers_in_turn_on_two_streams() {
    under_seeds(|world, comm| {
        let device = &devices(world, 2)?[comm.rank()];
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
        let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
        let peer = 1 - comm.rank();
        let bytes = halo.message_bytes(peer, Direction::Send)?;
        let buffer = |at| Buffer::new(device, bytes, at % 2 == 0);
        let buffers: Vec<Buffer> = (0..7).map(buffer).collect::<Result<_, _>>()?;
        fixture.produce(world, &[0], &streams[0], 1)?;
        streams[0].synchronise()?;
        for turn in 0..15 {
            let buffer = &buffers[if turn < 4 { 0 } else { turn % 7 }];
            // SAFETY: the buffer outlives the work on it, and nothing else uses it.
            unsafe { halo.pack_on(peer, buffer.address(), bytes, &streams[turn % 2]) }?;
        }
        streams.iter().try_for_each(Stream::synchronise)?;
        let first = buffers[0].read(&streams[0])?;
        for buffer in &buffers[1..] {
            ensure!(buffer.read(&streams[1])? == first, "two messages of the same cells differ");
        }
        ensure!(first.iter().any(|&byte| byte != 0), "nothing was packed");
        Ok(comm.barrier()?)
    });
}

/// A rank with fields on two devices packs all of a peer's message on a stream of either.
#[test]
fn fields_of_a_rank_on_two_devices() {
    under_seeds(|world, comm| {
        let devices = devices(world, 2)?;
        let fixture = DeviceFixture::new(comm, &[8], (2, 1, 1), |domain| &devices[domain])?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
        let peer = 1 - comm.rank();
        let bytes = halo.message_bytes(peer, Direction::Send)?;
        let mut packed = Vec::new();
        for device in &devices {
            let stream = device.stream(Priority::Normal)?;
            fixture.produce(world, &[0], &stream, 1)?;
            let buffer = Buffer::new(device, bytes, false)?;
            // SAFETY: the buffer outlives the work on it, and nothing else uses it.
            unsafe { halo.pack_on(peer, buffer.address(), bytes, &stream) }?;
            packed.push(buffer.read(&stream)?);
        }
        ensure!(packed[0] == packed[1] && packed[0].iter().any(|&byte| byte != 0), "{packed:?}");
        Ok(comm.barrier()?)
    });
}

fn refused(
    halo: &HaloExchange,
    (message, bytes): (u64, usize),
    peer: usize,
    stream: &Stream,
) -> Result<Error, Trouble> {
    // SAFETY: refused, as is checked.
    let results =
        unsafe { [halo.pack_on(peer, message, bytes, stream), halo.unpack_on(peer, message, bytes, stream)] };
    match results {
        [Err(packed), Err(unpacked)] if discriminant(&packed) == discriminant(&unpacked) => Ok(packed),
        other => fail!("instead of one refusal twice: {other:?}"),
    }
}

#[test]
fn invalid_calls_are_refused() {
    let options = Options { devices: 3, peers: 2, ..limited() };
    let program = |world: &World, comm: &Communicator| -> Outcome {
        let devices = [world.device(0)?, world.device(1)?, world.device(2)?];
        let device = &devices[0];
        let fixture = DeviceFixture::new(comm, &[6], (1, 1, 1), |_| device)?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default())?;
        let (stream, peer) = (device.stream(Priority::Normal)?, 1 - comm.rank());
        let bytes = halo.message_bytes(peer, Direction::Send)?;
        let own: Memory = device.allocate(bytes)?;
        let whole = (own.at(0), bytes);
        match refused(&halo, (own.at(0), bytes - 1), peer, &stream)? {
            Error::MessageLength { expected, found, .. } if (expected, found) == (bytes, bytes - 1) => {}
            other => fail!("a shorter message: {other}"),
        }
        match refused(&halo, whole, comm.rank(), &stream)? {
            Error::NoSuchPeer { peers, .. } if peers == [peer] => {}
            other => fail!("a message for itself: {other}"),
        }
        match refused(&halo, whole, peer, &devices[1].stream(Priority::Normal)?)? {
            Error::StreamDevice { device: 1, devices, .. } if devices == [0] => {}
            other => fail!("a stream of another device: {other}"),
        }
        match refused(&halo, (own.at(8), bytes), peer, &stream)? {
            Error::Device(DeviceError::OutOfBounds { .. }) => {}
            other => fail!("memory that ends too early: {other}"),
        }
        let here = vec![0u8; bytes];
        match refused(&halo, (here.as_ptr().addr() as u64, bytes), peer, &stream)? {
            Error::Device(DeviceError::NotReachable { bytes: found, .. }) if found == bytes => {}
            other => fail!("memory of the host that is not pinned: {other}"),
        }
        let remote = devices[2].allocate(bytes)?;
        match refused(&halo, (remote.at(0), bytes), peer, &stream)? {
            Error::Device(DeviceError::NoPeerAccess { device: 0, peer: 2 }) => {}
            other => fail!("memory of a device that is out of reach: {other}"),
        }
        // None of it is an end of the object.
        // SAFETY: the memory outlives the work on it, and nothing else uses it.
        unsafe { halo.pack_on(peer, whole.0, whole.1, &stream) }?;
        stream.synchronise()?;
        let pattern = RegularGrid::new([6]).periodic([true]).decompose(2)?.pattern(comm, Halo::uniform(1))?;
        let array = Array::<u64>::zeros(comm, &[5])?;
        let on_host = HaloExchange::bind(comm, [(&pattern, &array)])?;
        match refused(&on_host, whole, peer, &stream)? {
            Error::OfHost { .. } => {}
            other => fail!("fields of the host: {other}"),
        }
        let fields: [(&Pattern, &Field); 2] =
            [(&pattern, &array), (&fixture.pattern, fixture.pieces[0][0].field())];
        let mixed = HaloExchange::bind(comm, fields)?;
        match refused(&mixed, whole, peer, &stream)? {
            Error::OfDevices { .. } => {}
            other => fail!("fields of both kinds: {other}"),
        }
        Ok(comm.barrier()?)
    };
    explore(0..10, &options, |world| run_ranks(world, 2, |comm| program(world, comm)));
}
