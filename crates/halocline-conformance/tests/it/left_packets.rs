//! Packets whose sender has left before the receiver has memory for them.

use halocline::neighbors::{NeighborExchange, Sides};
use halocline::sparse::SparseAlltoall;
use halocline::{Buffer, Communicator, HostMemory, Limited, MemoryResource, Packet};
use std::sync::Arc;
use std::time::Duration;

/// Runs rank 1 until it has left, then what rank 0 does.
fn after_rank_1_has_left<T>(
    begun: impl FnOnce(&Communicator) -> T,
    leaves: impl FnOnce(Communicator) + Send,
    then: impl FnOnce(&Communicator, T),
) {
    let [first, second] = <[Communicator; 2]>::try_from(Communicator::threads(2)).unwrap();
    std::thread::scope(|scope| {
        let rank_1 = scope.spawn(|| leaves(second));
        let begun = begun(&first);
        rank_1.join().unwrap();
        then(&first, begun);
    });
}

/// Memory for nine payloads, most of which something else holds.
fn held_memory(comm: &Communicator) -> (Arc<Limited>, Buffer) {
    let limited = Limited::new(Arc::new(HostMemory::of(comm)), 50_000).with_patience(Duration::from_secs(20));
    let held = limited.allocate(46_000).unwrap();
    (Arc::new(limited), held)
}

fn payload() -> Packet {
    Packet::new(vec![7], Some(vec![9; 5000].into()))
}

#[test]
fn a_packet_that_has_come_waits_for_memory_although_its_sender_has_left() {
    let is_here = |packet: &Packet| {
        packet.metadata == [7] && packet.payload.as_ref().is_some_and(|payload| payload.len() == 5000)
    };
    after_rank_1_has_left(
        |comm| {
            let (memory, held) = held_memory(comm);
            let line = NeighborExchange::line(comm, memory).unwrap();
            (line.start(0, Sides::default()).unwrap(), line, held)
        },
        |comm| {
            let line = NeighborExchange::line(&comm, Arc::new(HostMemory::of(&comm))).unwrap();
            line.exchange(0, Sides { left: Some(payload()), right: None }).unwrap();
        },
        |_, (flight, _line, held)| {
            assert!(!flight.is_complete().unwrap());
            drop(held);
            assert!(is_here(flight.wait().unwrap().right.as_ref().unwrap()));
        },
    );
    after_rank_1_has_left(
        |comm| {
            let (memory, held) = held_memory(comm);
            let exchange = SparseAlltoall::new(comm, &[1], &[], memory).unwrap();
            exchange.finish();
            (exchange, held)
        },
        |comm| {
            let exchange = SparseAlltoall::new(&comm, &[], &[0], Arc::new(HostMemory::of(&comm))).unwrap();
            (0..9).for_each(|_| exchange.insert(0, payload()).unwrap());
            exchange.finish_and_wait().unwrap();
        },
        |_, (exchange, held)| {
            assert!(!exchange.is_complete().unwrap());
            drop(held);
            exchange.wait().unwrap();
            let packets = exchange.extract(1).unwrap();
            assert!(packets.len() == 9 && packets.iter().all(is_here));
        },
    );
}
