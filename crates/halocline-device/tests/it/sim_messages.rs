//! The stand-in for NCCL of simulated devices: what its messages order, and what ends them.

use super::sim_hazards::{BYTES, Without, check, consume, devices, produce};
use halocline_device::sim::{Options, Report, World, explore, find};
use halocline_device::{Device, DeviceCommunicator, DeviceError, Message, Priority, Stream};

/// Communicators of two ranks, each with a device.
fn communicators(devices: &[Device; 2]) -> Result<[DeviceCommunicator; 2], DeviceError> {
    let id = devices[0].messages()?.unique_id()?;
    let first = DeviceCommunicator::join(&devices[0], &id, 0, 2)?;
    assert_eq!(first.is_ready(), Ok(false));
    let second = DeviceCommunicator::join(&devices[1], &id, 1, 2)?;
    assert_eq!(second.is_ready(), Ok(true));
    Ok([first, second])
}

/// A message between two devices, twice, each end with a stream of its own beside that of the user.
fn messages(world: &World, without: Without) -> Result<(), DeviceError> {
    let devices = devices(world)?;
    let communicators = communicators(&devices)?;
    let [producer, consumer] = [devices[0].stream(Priority::Normal)?, devices[1].stream(Priority::Normal)?];
    let [sender, receiver] = [devices[0].stream(Priority::Normal)?, devices[1].stream(Priority::Normal)?];
    let [source, target] = [devices[0].allocate(BYTES)?, devices[1].allocate(BYTES)?];
    let follow = |piece: Without, later: &Stream, earlier: &Stream| {
        let event = earlier.device().events().take()?;
        earlier.record(&event)?;
        if without == piece { Ok(()) } else { later.wait(&event) }
    };
    for round in [1, 1000] {
        follow(3, &producer, &sender)?;
        produce(world, &producer, &source, round)?;
        follow(1, &sender, &producer)?;
        follow(4, &receiver, &consumer)?;
        let sent = Message { peer: 1, sends: true, address: source.at(0), bytes: BYTES };
        let received = Message { peer: 0, sends: false, address: target.at(0), bytes: BYTES };
        // SAFETY: the streams are synchronised before the memory is freed. What else is missing is the test's subject.
        unsafe {
            communicators[0].exchange(&sender, &[sent])?;
            communicators[1].exchange(&receiver, &[received])?;
        }
        follow(2, &consumer, &receiver)?;
        consume(world, &consumer, &target, round)?;
    }
    [&producer, &consumer, &sender, &receiver].into_iter().try_for_each(Stream::synchronise)
}

#[test]
fn messages_of_two_devices_are_ordered_by_their_streams() {
    let pieces = [
        "the wait for the producer",
        "the wait for what was received",
        "the wait for what was sent",
        "the wait for the consumer",
    ];
    check("messages", &pieces, messages);
}

#[test]
fn an_abort_ends_a_message_that_never_comes() {
    explore(0..50, &Options::default(), |world| {
        let devices = devices(world).unwrap();
        let [_, second] = communicators(&devices).unwrap();
        let stream = devices[1].stream(Priority::Normal).unwrap();
        let memory = devices[1].allocate(BYTES).unwrap();
        let message = Message { peer: 0, sends: false, address: memory.at(0), bytes: BYTES };
        // SAFETY: the stream is synchronised before the memory is freed, and nothing else uses that.
        unsafe { second.exchange(&stream, &[message]) }.unwrap();
        assert_eq!(stream.query(), Ok(false));
        second.abort();
        stream.synchronise().unwrap();
        // SAFETY: the call is refused.
        let refused = unsafe { second.exchange(&stream, &[message]) };
        assert!(matches!(refused, Err(DeviceError::Messages { device: 1, .. })), "{refused:?}");
        assert!(second.is_aborted());
    });
}

#[test]
fn messages_of_different_lengths_are_reported() {
    let found = find(0..1, &Options::default(), |world| {
        let devices = devices(world).unwrap();
        let communicators = communicators(&devices).unwrap();
        let streams = [0, 1].map(|at: usize| devices[at].stream(Priority::Normal).unwrap());
        let memories = [0, 1].map(|at: usize| devices[at].allocate(BYTES).unwrap());
        for at in [0, 1] {
            let (address, bytes) = (memories[at].at(0), BYTES - 8 * at);
            let message = Message { peer: 1 - at as u32, sends: at == 0, address, bytes };
            // SAFETY: the streams are synchronised before the memory is freed.
            unsafe { communicators[at].exchange(&streams[at], &[message]) }.unwrap();
        }
        streams.iter().for_each(|stream| stream.synchronise().unwrap());
    });
    let reports = found.expect("the first seed finds it").run.reports;
    assert!(
        matches!(&reports[0], Report::Refused { what, .. } if what.contains("expects 248 bytes")),
        "{reports:?}"
    );
}
