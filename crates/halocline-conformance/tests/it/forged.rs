//! Packets and messages that no rank of this library sends, where a neighbour or a rank of a sparse all-to-all waits for its own. In all
//! but the first of each, one field is wrong.

use halocline::neighbors::{NeighborError, NeighborExchange, Sides};
use halocline::plan::wire::Writer;
use halocline::sparse::{SparseAlltoall, SparseError};
use halocline::{Communicator, HostMemory, Packet};
use halocline_comm::packet::{Failure, PacketContext, PacketSend, PacketTag};

use halocline_comm::{Call, Endpoint};
use std::sync::Arc;

/// A packet with any header.
#[derive(Clone)]
struct Forged {
    kind: u8,
    words: [u64; 4],
    sequence: u64,
    packet: fn() -> Packet,
}

impl Forged {
    fn send(&self, comm: &Communicator, tag: PacketTag) {
        let context = PacketContext::new(comm, memory(comm)).unwrap();
        let send = PacketSend::new(0, tag, (self.packet)()).with_words(self.kind, self.words);
        let mut send = send.numbered(self.sequence);
        while !send.poll(&context).unwrap() {}
    }
}

fn memory(comm: &Communicator) -> Arc<HostMemory> {
    Arc::new(HostMemory::of(comm))
}

fn with_metadata() -> Packet {
    Packet::new(vec![1], None)
}

fn with_payload() -> Packet {
    Packet::new(Vec::new(), Some(vec![1].into()))
}

/// What rank 0 finds of what rank 1 sends.
fn found<T: Send>(sends: impl Fn(&Communicator) + Sync, finds: impl Fn(&Communicator) -> T + Sync) -> T {
    let [first, second] = <[Communicator; 2]>::try_from(Communicator::threads(2)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sends(&second);
            second.barrier().unwrap();
        });
        let found = finds(&first);
        first.barrier().unwrap();
        found
    })
}

/// What a rank sends that gives up an operation.
fn abort_of(rank: usize) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32(2);
    Failure { rank, why: "a test".to_owned(), is_refusal: false }.write(&mut writer);
    writer.finish()
}

fn abort_of_no_rank() -> Vec<u8> {
    abort_of(1_000_000)
}

const ID: u64 = 5;
/// Of what goes to the left.
const CHANNEL: u64 = ID << 1 | 1;

/// What a round of rank 0 finds.
fn in_a_round(sends: impl Fn(&Communicator, u64) + Sync) -> Option<NeighborError> {
    let sends = |comm: &Communicator| sends(comm, Call::lasting(comm, "NeighborExchange").operation());
    found(sends, |comm| {
        let line = NeighborExchange::line(comm, memory(comm)).unwrap();
        line.exchange(ID as u32, Sides::default()).err()
    })
}

#[test]
fn headers_between_neighbours_are_checked_in_full() {
    // Nothing, in the first round of operation 5, on its way to the left.
    let right = Forged { kind: 2, words: [ID, 1, 0, 1], sequence: CHANNEL << 1 | 1, packet: Packet::default };
    let of = |forged: &Forged| {
        in_a_round(|comm, operation| forged.send(comm, PacketTag { operation, channel: CHANNEL }))
    };
    assert!(of(&right).is_none());
    let word = |at: usize, value: u64| {
        let mut forged = right.clone();
        forged.words[at] = value;
        forged
    };
    for (what, forged) in [
        ("another id", word(0, ID + 1)),
        ("an id beyond 32 bits", word(0, 1 << 32 | ID)),
        ("another direction", word(3, 0)),
        ("no direction", word(3, 2)),
        ("kind 0", Forged { kind: 0, ..right.clone() }),
        ("kind 9", Forged { kind: 9, ..right.clone() }),
        ("another packet's number", Forged { sequence: right.sequence ^ 1, ..right.clone() }),
        ("nothing with metadata", Forged { packet: with_metadata, ..right.clone() }),
        ("nothing with a payload", Forged { packet: with_payload, ..right.clone() }),
        ("an end with a payload", Forged { kind: 3, packet: with_payload, ..right.clone() }),
    ] {
        let error = of(&forged);
        assert!(matches!(error, Some(NeighborError::Malformed { from: 1, .. })), "{what}: {error:?}");
    }
    for (what, forged) in [("a later round", word(1, 2)), ("a session", word(2, 1))] {
        let error = of(&forged);
        assert!(matches!(error, Some(NeighborError::OutOfStep { from: 1, id: 5, .. })), "{what}: {error:?}");
    }
}

#[test]
fn messages_between_neighbours_are_checked() {
    for message in [99u32.to_le_bytes().to_vec(), Vec::new(), abort_of_no_rank()] {
        let error = in_a_round(|comm, operation| {
            comm.send(0, PacketTag { operation, channel: 1 }.control(), message.clone()).unwrap();
        });
        assert!(matches!(error, Some(NeighborError::Malformed { from: 1, .. })), "{message:?}: {error:?}");
    }
}

/// What rank 0 finds in a sparse all-to-all in which rank 1 is its source.
fn in_a_sparse_all_to_all(sends: impl Fn(&Communicator, PacketTag) + Sync) -> SparseError {
    let sends = |comm: &Communicator| {
        let operation = Call::lasting(comm, "SparseAlltoall").operation();
        sends(comm, PacketTag { operation, channel: 0 });
    };
    found(sends, |comm| {
        let exchange = SparseAlltoall::new(comm, &[1], &[], memory(comm)).unwrap();
        exchange.finish_and_wait().unwrap_err()
    })
}

#[test]
fn headers_of_a_sparse_all_to_all_are_checked_in_full() {
    // The last packet after none.
    let right = Forged { kind: 1, words: [0; 4], sequence: 0, packet: Packet::default };
    for (what, forged) in [
        ("a packet that is missing", Forged { words: [1, 0, 0, 0], ..right.clone() }),
        ("another packet's number", Forged { sequence: 1, ..right.clone() }),
        ("a word that has no meaning", Forged { words: [0, 0, 7, 0], ..right.clone() }),
        ("kind 7", Forged { kind: 7, ..right.clone() }),
        ("a last packet with metadata", Forged { packet: with_metadata, ..right.clone() }),
        ("a last packet with a payload", Forged { packet: with_payload, ..right.clone() }),
    ] {
        let error = in_a_sparse_all_to_all(|comm, tag| forged.send(comm, tag));
        assert!(matches!(error, SparseError::Malformed { from: 1, .. }), "{what}: {error}");
    }
    let error = in_a_sparse_all_to_all(|comm, tag| {
        comm.send(0, tag.control(), abort_of_no_rank()).unwrap();
    });
    assert!(matches!(error, SparseError::Malformed { from: 1, .. }), "{error}");
}

#[test]
fn a_rank_that_gives_up_is_named_with_its_reason() {
    let error = in_a_sparse_all_to_all(|comm, tag| comm.send(0, tag.control(), abort_of(1)).unwrap());
    assert!(matches!(&error, SparseError::Aborted { rank: 1, why } if why == "a test"), "{error}");
    let error = in_a_round(|comm, operation| {
        comm.send(0, PacketTag { operation, channel: 1 }.control(), abort_of(1)).unwrap();
    });
    assert!(matches!(&error, Some(NeighborError::Aborted { rank: 1, why }) if why == "a test"), "{error:?}");
}
