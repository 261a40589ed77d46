mod devices;
mod faults;
mod refusals;

use super::*;
use crate::memory_resource::{Buffer, HostMemory};

/// The numbers of ranks that all operations must work with.
const SIZES: [usize; 6] = [1, 2, 3, 4, 5, 8];

fn on_ranks<T: Send>(size: usize, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let body = &body;
    std::thread::scope(|threads| {
        let ranks = Communicator::threads(size).into_iter().map(|comm| threads.spawn(move || body(comm)));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn host(comm: &Communicator) -> Arc<dyn MemoryResource> {
    Arc::new(HostMemory::of(comm))
}

fn new(
    comm: &Communicator,
    sources: &[usize],
    destinations: &[usize],
) -> Result<SparseAlltoall, SparseError> {
    SparseAlltoall::new(comm, sources, destinations, host(comm))
}

fn text<T>(result: Result<T, SparseError>) -> String {
    result.err().map_or_else(|| "no error".to_owned(), |error| error.to_string())
}

/// The bytes of packet `number` from one rank to another: some small, some that are mapped, one empty, one absent.
fn content(from: usize, to: usize, number: usize) -> Option<Vec<u8>> {
    let length = [17, 300_000, 0, 16_384, 16_385][number % 5];
    let byte = (31 * from + 7 * to + number) as u8;
    (number % 7 != 6).then(|| vec![byte; length])
}

fn packet(from: usize, to: usize, number: usize) -> Packet {
    let metadata = [from as u64, to as u64, number as u64].map(u64::to_le_bytes).concat();
    Packet::new(metadata, content(from, to, number).map(Buffer::from))
}

fn assert_received(packets: &[Packet], from: usize, to: usize, count: usize) {
    assert_eq!(packets.len(), count);
    for (number, found) in packets.iter().enumerate() {
        assert_eq!(found.metadata, packet(from, to, number).metadata);
        let payload = found.payload.as_ref().map(|payload| payload.bytes().unwrap());
        assert!(payload == content(from, to, number).as_deref(), "packet {number} from {from} to {to}");
    }
}

/// Rank r sends to r + 1 and r + 2, as many packets as its number says.
#[test]
fn packets_arrive_in_the_order_of_their_insertion() {
    for size in SIZES {
        on_ranks(size, |comm| {
            let rank = comm.rank();
            let steps: &[usize] = if size > 2 { &[1, 2] } else { &[1] };
            let steps: Vec<usize> = steps.iter().copied().filter(|step| *step < size).collect();
            let to: Vec<usize> = steps.iter().map(|step| (rank + step) % size).collect();
            let from: Vec<usize> = steps.iter().map(|step| (rank + size - step) % size).collect();
            let count = |from: usize| 4 * from % 11;
            let exchange = SparseAlltoall::new(&comm, &from, &to, host(&comm)).unwrap();
            for number in 0..count(rank) {
                to.iter().for_each(|&to| exchange.insert(to, packet(rank, to, number)).unwrap());
            }
            exchange.finish();
            exchange.wait().unwrap();
            for &from in &from {
                assert_received(&exchange.extract(from).unwrap(), from, rank, count(from));
                assert!(exchange.extract(from).unwrap().is_empty());
            }
            let statistics = exchange.statistics();
            assert_eq!(statistics.sent.packets, (count(rank) * to.len()) as u64);
            let expected: usize = from.iter().map(|&from| count(from)).sum();
            assert_eq!(statistics.received.packets, expected as u64);
        });
    }
}

#[test]
fn packets_are_inserted_by_several_threads() {
    on_ranks(3, |comm| {
        let rank = comm.rank();
        let others: Vec<usize> = (0..3).filter(|other| *other != rank).collect();
        let exchange = SparseAlltoall::new(&comm, &others, &others, host(&comm)).unwrap();
        std::thread::scope(|threads| {
            for thread in 0..4u8 {
                let (exchange, others) = (&exchange, &others);
                threads.spawn(move || {
                    for number in 0..50u8 {
                        for &to in others {
                            let payload = vec![thread; usize::from(number) * 3000];
                            let packet = Packet::new(vec![thread, number], Some(payload.into()));
                            exchange.insert(to, packet).unwrap();
                        }
                    }
                });
            }
        });
        exchange.finish();
        exchange.wait().unwrap();
        for from in others {
            let packets = exchange.extract(from).unwrap();
            assert_eq!(packets.len(), 200);
            for thread in 0..4u8 {
                let of_thread: Vec<&Packet> =
                    packets.iter().filter(|packet| packet.metadata[0] == thread).collect();
                let numbers: Vec<u8> = of_thread.iter().map(|packet| packet.metadata[1]).collect();
                assert_eq!(numbers, (0..50).collect::<Vec<u8>>());
                for packet in of_thread {
                    let bytes = packet.payload.as_ref().unwrap().bytes().unwrap();
                    assert_eq!(bytes.len(), usize::from(packet.metadata[1]) * 3000);
                    assert!(bytes.iter().all(|byte| *byte == thread));
                }
            }
        }
    });
}

#[test]
fn unknown_sources_are_discovered() {
    for size in SIZES {
        on_ranks(size, |comm| {
            // Each rank sends to those whose number divides its own.
            let sends = |from: usize, to: usize| from != to && from.is_multiple_of(to + 1);
            let rank = comm.rank();
            let to: Vec<usize> = (0..size).filter(|&to| sends(rank, to)).collect();
            let from: Vec<usize> = (0..size).filter(|&from| sends(from, rank)).collect();
            let exchange = SparseAlltoall::discover(&comm, &to, host(&comm)).unwrap();
            assert_eq!((exchange.sources(), exchange.destinations()), (&from[..], &to[..]));
            to.iter().for_each(|&to| exchange.insert(to, packet(rank, to, 1)).unwrap());
            exchange.finish();
            exchange.wait().unwrap();
            for from in from {
                let packets = exchange.extract(from).unwrap();
                assert_eq!((packets.len(), &packets[0].metadata), (1, &packet(from, rank, 1).metadata));
            }
        });
    }
}

/// Two operations that two ranks begin in the same order and finish in opposite orders.
#[test]
fn operations_do_not_block_each_other() {
    on_ranks(2, |comm| {
        let other = 1 - comm.rank();
        let make = || SparseAlltoall::new(&comm, &[other], &[other], host(&comm)).unwrap();
        let mut exchanges = [make(), make()];
        if comm.rank() == 1 {
            exchanges.reverse();
        }
        for (step, exchange) in exchanges.iter().enumerate() {
            let number = if comm.rank() == 0 { step } else { 1 - step };
            exchange.insert(other, packet(comm.rank(), other, number)).unwrap();
            exchange.finish();
        }
        for (step, exchange) in exchanges.iter().enumerate() {
            exchange.wait().unwrap();
            let number = if comm.rank() == 0 { step } else { 1 - step };
            let packets = exchange.extract(other).unwrap();
            assert_eq!(packets[0].metadata, packet(other, comm.rank(), number).metadata);
        }
    });
}

#[test]
fn a_task_is_woken_once_all_packets_are_here() {
    use std::future::Future;
    use std::task::{Context, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    on_ranks(3, |comm| {
        let rank = comm.rank();
        let (next, last) = ((rank + 1) % 3, (rank + 2) % 3);
        for number in 0..20 {
            let exchange = SparseAlltoall::new(&comm, &[last], &[next], host(&comm)).unwrap();
            exchange.insert(next, packet(rank, next, number)).unwrap();
            exchange.finish();
            // A future that is dropped early changes nothing.
            let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
            let mut context = Context::from_waker(&waker);
            let _ = std::pin::pin!(exchange.completion()).poll(&mut context);
            let mut completion = std::pin::pin!(exchange.completion());
            while completion.as_mut().poll(&mut context).map(Result::unwrap).is_pending() {
                std::thread::park();
            }
            assert_eq!(exchange.extract(last).unwrap()[0].metadata, packet(last, rank, number).metadata);
        }
    });
}

/// A set of edges between ranks, with the number of packets on each.
fn edges(size: usize) -> impl proptest::strategy::Strategy<Value = Vec<Option<usize>>> {
    proptest::collection::vec(proptest::option::of(0..6usize), size * size)
}

#[test]
fn random_sets_exchange_all_their_packets() {
    use proptest::prelude::*;
    let strategy = (1..6usize).prop_flat_map(|size| (Just(size), edges(size)));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::default());
    let outcome = runner.run(&strategy, |(size, edges)| {
        let count = |from: usize, to: usize| if from == to { None } else { edges[from * size + to] };
        on_ranks(size, |comm| {
            let rank = comm.rank();
            let to: Vec<usize> = (0..size).filter(|&to| count(rank, to).is_some()).collect();
            let from: Vec<usize> = (0..size).rev().filter(|&from| count(from, rank).is_some()).collect();
            let exchange = SparseAlltoall::new(&comm, &from, &to, host(&comm)).unwrap();
            for number in 0..6 {
                for &to in to.iter().filter(|&&to| count(rank, to).is_some_and(|count| number < count)) {
                    exchange.insert(to, packet(rank, to, number)).unwrap();
                }
            }
            exchange.finish();
            exchange.wait().unwrap();
            for from in from {
                assert_received(&exchange.extract(from).unwrap(), from, rank, count(from, rank).unwrap());
            }
        });
        Ok(())
    });
    outcome.unwrap();
}
