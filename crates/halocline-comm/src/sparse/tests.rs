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

/// The bytes of packet `number` from one rank to another: some small, some that are mapped, one empty, one absent.
fn content(from: usize, to: usize, number: usize) -> Option<Vec<u8>> {
    let length = [17, 300_000, 0, 65_536, 65_537][number % 5];
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
