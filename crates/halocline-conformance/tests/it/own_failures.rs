//! A rank that fails while its peer fails, too: it reports its own cause, not the failure of the peer.

use halocline::neighbors::{NeighborExchange, Sides};
use halocline::sparse::SparseAlltoall;
use halocline::{Buffer, Communicator, MemoryError, MemoryKind, MemoryResource, MemoryStatistics, Packet};
use std::sync::{Arc, Barrier};

/// Memory that cannot be allocated: an allocation fails once the peer has failed.
struct Empty {
    meets_peer: Arc<Barrier>,
}

impl MemoryResource for Empty {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, asked: usize) -> Result<Buffer, MemoryError> {
        // The peer fails between the two.
        self.meets_peer.wait();
        self.meets_peer.wait();
        Err(MemoryError::Foreign { asked, why: "the pool is empty".to_owned() })
    }

    fn statistics(&self) -> MemoryStatistics {
        MemoryStatistics { kind: self.kind(), in_use: 0, peak: 0, allocations: 0, spilled: 0 }
    }
}

fn packet() -> Packet {
    Packet::new(Vec::new(), Some(vec![7; 100].into()))
}

/// Runs two ranks. Rank 1 sends a packet, for which rank 0 has no memory, and returns a function that fails its operation.
fn on_two_ranks<F: FnOnce()>(
    rank_0: impl FnOnce(&Communicator, Arc<dyn MemoryResource>) -> String + Send,
    rank_1: impl FnOnce(&Communicator, Arc<dyn MemoryResource>) -> F + Send,
) {
    let [first, second] = <[Communicator; 2]>::try_from(Communicator::threads(2)).unwrap();
    let meets_peer = Arc::new(Barrier::new(2));
    let memory = Arc::new(Empty { meets_peer: Arc::clone(&meets_peer) });
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let fail = rank_1(&second, Arc::new(halocline::HostMemory::of(&second)));
            meets_peer.wait();
            fail();
            meets_peer.wait();
        });
        let error = rank_0(&first, memory);
        assert!(error.starts_with("no memory for the 100 bytes of a packet of rank 1"), "{error}");
    });
}

#[test]
fn a_neighbour_that_fails_too_does_not_hide_the_own_cause() {
    on_two_ranks(
        |comm, memory| {
            let line = NeighborExchange::line(comm, memory).unwrap();
            line.exchange(0, Sides::default()).unwrap_err().to_string()
        },
        |comm, memory| {
            let line = NeighborExchange::line(comm, memory).unwrap();
            let round = line.start(0, Sides { left: Some(packet()), right: None }).unwrap();
            move || {
                line.abort("a test");
                // It is over if rank 0 has sent its header.
                drop(round);
            }
        },
    );
}

#[test]
fn a_peer_of_a_sparse_all_to_all_that_fails_too_does_not_hide_the_own_cause() {
    on_two_ranks(
        |comm, memory| {
            let exchange = SparseAlltoall::new(comm, &[1], &[], memory).unwrap();
            exchange.finish();
            exchange.wait().unwrap_err().to_string()
        },
        |comm, memory| {
            let exchange = SparseAlltoall::new(comm, &[], &[0], memory).unwrap();
            exchange.insert(0, packet()).unwrap();
            move || drop(exchange)
        },
    );
}
