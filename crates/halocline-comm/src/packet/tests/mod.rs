mod devices;

use super::*;
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::memory_resource::{
    HostMemory, Limited, MemoryError, MemoryKind, MemoryResource, MemoryStatistics,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TAG: PacketTag = PacketTag { operation: 77, channel: 3 };

/// Host memory that no peer can map and that has no spare bytes.
struct Private;

impl MemoryResource for Private {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        Ok(vec![0; bytes].into())
    }

    fn statistics(&self) -> MemoryStatistics {
        MemoryStatistics { kind: MemoryKind::Host, in_use: 0, peak: 0, allocations: 0, spilled: 0 }
    }
}

/// Both ends of two ranks, driven by one thread.
struct Pair {
    ends: [PacketContext; 2],
    _ranks: Vec<Communicator>,
}

impl Pair {
    fn new(resource: impl Fn(&Communicator) -> Arc<dyn MemoryResource>) -> Self {
        let ranks = Communicator::threads(2);
        let end = |rank: usize| PacketContext::new(&ranks[rank], resource(&ranks[rank])).unwrap();
        Self { ends: [end(0), end(1)], _ranks: ranks }
    }

    fn on_host() -> Self {
        Self::new(|comm| Arc::new(HostMemory::of(comm)))
    }

    fn in_parts(resource: impl Fn(&Communicator) -> Arc<dyn MemoryResource>, part: usize) -> Self {
        let Self { ends, _ranks } = Self::new(resource);
        Self { ends: ends.map(|end| end.in_parts_of(part)), _ranks }
    }

    /// Polls both sides until the packet is there and the sender's memory is free.
    fn pass(&self, send: PacketSend) -> Result<Packet, Box<[Option<PacketError>; 2]>> {
        let [from, to] = &self.ends;
        let (mut send, mut receive, mut packet) = (Some(send), None::<PacketReceive>, None);
        let mut errors = Box::new([None, None]);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if let Some(sending) = &mut send {
                match sending.poll(from) {
                    Ok(false) => {}
                    Ok(true) => send = None,
                    Err(error) => (errors[0], send) = (Some(error), None),
                }
            }
            receive = receive.or_else(|| PacketReceive::next(to, 0, TAG).unwrap());
            if let Some(receiving) = receive.as_mut().filter(|_| errors[1].is_none()) {
                match receiving.poll(to) {
                    Ok(_) => packet = packet.or_else(|| receiving.take()),
                    Err(error) => errors[1] = Some(error),
                }
            }
            if send.is_none() && errors.iter().any(Option::is_some) {
                return Err(errors);
            }
            if send.is_none() && receive.as_ref().is_some_and(PacketReceive::is_over) {
                return packet.ok_or(errors);
            }
        }
        panic!("the packet does not arrive: sent {}, errors {errors:?}", send.is_none());
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn send(payload: Option<Buffer>) -> PacketSend {
    PacketSend::new(1, TAG, Packet::new(b"metadata".to_vec(), payload))
        .with_words(4, [1, 2, 3, 4])
        .numbered(9)
}

/// Buffers of all owners that a program may pass.
fn buffers(comm: &Communicator, length: usize) -> Vec<Buffer> {
    let mut own = HostMemory::of(comm).allocate(length).unwrap();
    own.bytes_mut().unwrap().copy_from_slice(&bytes(length));
    let kept = Arc::new(bytes(length));
    let first = std::ptr::NonNull::new(kept.as_ptr().cast_mut()).unwrap();
    // SAFETY: `kept` holds the bytes, which nothing writes.
    let foreign = unsafe { Buffer::foreign(first, length, kept) };
    vec![bytes(length).into(), own, foreign]
}

#[test]
fn payloads_of_every_length_and_owner_arrive() {
    let lengths = [1, 4096, 16_384, 16_385, 1_000_001];
    for (name, pair) in [
        ("mapped", Pair::on_host()),
        ("in one part", Pair::new(|_| Arc::new(Private))),
        ("in parts", Pair::in_parts(|_| Arc::new(Private), 100_000)),
    ] {
        for length in lengths {
            for payload in buffers(pair.ends[0].comm(), length) {
                let packet = pair.pass(send(Some(payload))).unwrap();
                assert_eq!(packet.metadata, b"metadata");
                let payload = packet.payload.unwrap();
                assert!(payload.bytes() == Some(&bytes(length)[..]), "{length} bytes, {name}");
            }
        }
    }
}

#[test]
fn an_absent_payload_is_told_from_an_empty_one() {
    let pair = Pair::on_host();
    assert!(pair.pass(send(None)).unwrap().payload.is_none());
    let empty = pair.pass(send(Some(Buffer::default()))).unwrap();
    assert_eq!(empty.payload.unwrap().bytes(), Some(&[][..]));
}

#[test]
fn words_and_metadata_are_known_before_the_payload() {
    let pair = Pair::on_host();
    let [from, to] = &pair.ends;
    let mut send = send(Some(bytes(100_000).into()));
    while !send.is_posted() {
        send.poll(from).unwrap();
        // The first transfer of memory needs an answer of the other rank's mappings.
        let _ = to.mappings().stats();
        let _ = PacketReceive::next(to, 0, PacketTag { operation: 1, channel: 0 });
        drive(to);
    }
    let mut receive = PacketReceive::next(to, 0, TAG).unwrap().unwrap();
    assert_eq!((receive.kind(), receive.words(), receive.sequence()), (4, [1, 2, 3, 4], 9));
    assert_eq!((receive.metadata(), receive.bytes(), receive.from()), (&b"metadata"[..], Some(100_000), 0));
    assert!(!receive.is_ready() && receive.take().is_none());
    // It is copied in two steps.
    assert!(!receive.poll(to).unwrap() && receive.is_copying() && !receive.is_ready());
    assert!(!send.poll(from).unwrap());
    assert!(receive.poll(to).unwrap() && receive.is_ready());
    assert!(!send.is_over() && send.poll(from).unwrap());
}

#[test]
fn a_copy_that_is_refused_midway_frees_the_sender_and_its_memory() {
    let pair = Pair::on_host();
    let [from, to] = &pair.ends;
    let mut send = send(Some(bytes(200_000).into()));
    while !send.is_posted() {
        send.poll(from).unwrap();
        drive(to);
    }
    let mut receive = PacketReceive::next(to, 0, TAG).unwrap().unwrap();
    assert!(!receive.poll(to).unwrap() && receive.is_copying());
    receive.refuse(to, "the operation has failed");
    assert!(receive.is_over() && receive.take().is_none());
    let error = send.poll(from).unwrap_err().to_string();
    assert!(error.ends_with("the operation has failed"), "{error}");
    drop((send, receive));
    assert_eq!((from.mappings().stats().pinned, to.host().statistics().in_use), (0, 0));
}

/// Lets the mappings of a rank answer.
fn drive(context: &PacketContext) {
    let unknown = context.mappings().resolve(1 - context.comm().rank(), 0, 0, 0);
    assert!(unknown.is_err());
    context.mappings().set_limit(context.mappings().limit());
}

#[test]
fn a_limit_below_the_payload_is_an_error_of_both_ranks() {
    let limited = |comm: &Communicator| -> Arc<dyn MemoryResource> {
        Arc::new(Limited::new(Arc::new(HostMemory::of(comm)), 150_000))
    };
    for pair in [Pair::new(limited), Pair::in_parts(limited, 50_000)] {
        let own = HostMemory::of(pair.ends[0].comm()).allocate(200_000).unwrap();
        let [sender, receiver] =
            pair.pass(send(Some(own))).unwrap_err().map(|error| error.unwrap().to_string());
        let why = "no memory for the 200000 bytes of a packet of rank 0: 200000 bytes of host memory were asked for, and 0 of at \
                   most 150000 are in use; free buffers, raise the limit, or let the resource spill";
        assert_eq!(receiver, why);
        assert_eq!(sender, format!("rank 1 has refused the 200000 bytes of a packet of rank 0: {why}"));
        let fits = HostMemory::of(pair.ends[0].comm()).allocate(150_000).unwrap();
        assert_eq!(pair.pass(send(Some(fits))).unwrap().payload.unwrap().len(), 150_000);
    }
}

#[test]
fn a_receiver_short_of_memory_waits_for_it_then_spills() {
    let limits = Mutex::new(Vec::new());
    let limited = |comm: &Communicator| -> Arc<dyn MemoryResource> {
        let host = Arc::new(HostMemory::of(comm));
        let limited =
            Limited::new(host.clone(), 150_000).with_patience(Duration::from_millis(20)).spilling(host);
        limits.lock().unwrap().push(limited.clone());
        Arc::new(limited)
    };
    let pair = Pair::new(limited);
    let limited = limits.lock().unwrap()[1].clone();
    let own = || HostMemory::of(pair.ends[0].comm()).allocate(100_000).unwrap();
    let held = pair.pass(send(Some(own()))).unwrap();
    assert_eq!((limited.statistics().in_use, limited.statistics().spilled), (100_000, 0));

    // Memory that is given back in time is used.
    let [from, to] = &pair.ends;
    let mut second = send(Some(own()));
    while !second.is_posted() {
        second.poll(from).unwrap();
        drive(to);
    }
    let mut receive = PacketReceive::next(to, 0, TAG).unwrap().unwrap();
    assert!(!receive.poll(to).unwrap() && receive.due(Duration::ZERO).is_some());
    drop(held);
    while !receive.poll(to).unwrap() {}
    assert!(second.poll(from).unwrap());
    assert_eq!((limited.statistics().in_use, limited.statistics().spilled), (100_000, 0));

    // Else the payload is spilled.
    let spilled = pair.pass(send(Some(own()))).unwrap();
    assert_eq!((limited.statistics().in_use, limited.statistics().spilled), (100_000, 100_000));
    drop((receive, spilled));
    let statistics = limited.statistics();
    assert_eq!((statistics.in_use, statistics.peak, statistics.allocations), (0, 100_000, 2));
}

#[test]
fn a_payload_of_another_length_than_announced_is_refused() {
    let pair = Pair::on_host();
    let [from, to] = &pair.ends;
    // A header that announces 8 bytes, then a message of 7.
    let mut header = Vec::new();
    let path = header::Path::Message;
    header::Header { kind: 0, sequence: 9, words: [0; 4], payload: Some(8), path }.write(&[], &mut header);
    from.comm().send(1, TAG.header(), header).unwrap();
    from.comm().send(1, TAG.payload(9), vec![0; 7]).unwrap();
    let mut receive = PacketReceive::next(to, 0, TAG).unwrap().unwrap();
    let text = receive.poll(to).unwrap_err().to_string();
    assert!(text.starts_with("rank 0 sent 7 bytes of a payload where its header announced 8;"), "{text}");
    from.comm().send(1, TAG.header(), vec![1, 2, 3]).unwrap();
    let text = PacketReceive::next(to, 0, TAG).err().unwrap().to_string();
    assert!(
        text.starts_with("rank 0 sent a malformed header of a packet: it ends 69 bytes too early;"),
        "{text}"
    );
}

/// A resource of the program that has nothing, or gives another length.
struct Wrong(Option<usize>);

impl MemoryResource for Wrong {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, asked: usize) -> Result<Buffer, MemoryError> {
        let why = "the allocator is closed".to_owned();
        self.0.map(|bytes| vec![0; bytes].into()).ok_or(MemoryError::Foreign { asked, why })
    }

    fn statistics(&self) -> MemoryStatistics {
        Private.statistics()
    }
}

#[test]
fn errors_of_a_memory_resource_of_the_program_are_those_of_the_packet() {
    for (gives, why) in [(None, "the allocator is closed"), (Some(7), "it gave a buffer of 7 bytes")] {
        let pair = Pair::new(|_| Arc::new(Wrong(gives)));
        let [_, receiver] = *pair.pass(send(Some(bytes(8).into()))).unwrap_err();
        let is_foreign = |error: &MemoryError| match error {
            MemoryError::Foreign { asked: 8, why: found } => gives.is_none() && found == why,
            MemoryError::Faulty { asked: 8, why: found } => gives.is_some() && found == why,
            _ => false,
        };
        assert!(
            matches!(&receiver, Some(PacketError::Memory { from: 0, bytes: 8, error }) if is_foreign(error)),
            "{receiver:?}"
        );
    }
}

#[test]
fn a_header_that_contradicts_itself_is_refused() {
    let pair = Pair::on_host();
    let mut header = Vec::new();
    let path = header::Path::Message;
    header::Header { kind: 0, sequence: 9, words: [0; 4], payload: Some(8), path }.write(&[], &mut header);
    header[3] = 0;
    pair.ends[0].comm().send(1, TAG.header(), header).unwrap();
    let found = PacketReceive::next(&pair.ends[1], 0, TAG).err();
    let is_path = matches!(
        found,
        Some(PacketError::Malformed { from: 0, error: HeaderError::Field { field: "path", value: 0 }, .. })
    );
    assert!(is_path, "{found:?}");
}
