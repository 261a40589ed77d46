//! Every byte of payloads of many sizes is compared, while the streams that write them finish in another order.

use super::Bench;
use crate::numbers::Numbers;
use crate::{Outcome, Trouble, ensure, fail};
use halocline::Packet;
use halocline::neighbors::{NeighborExchange, Side, Sides};
use halocline::sparse::SparseAlltoall;

const LENGTHS: [usize; 8] = [4096, 64 << 20, 0, 1, 16_385, 100_000, 0, 4 << 20];

/// By how much the streams that write payloads are late, us.
const LATE: [u64; 3] = [4000, 1500, 0];

fn content(from: usize, number: usize) -> Vec<u8> {
    Numbers::new((from << 32 | number) as u64).bytes(LENGTHS[number % LENGTHS.len()])
}

/// What a packet is known by.
fn metadata(from: usize, number: usize) -> Vec<u8> {
    format!("packet {number} of rank {from}").into_bytes()
}

pub(super) fn check(bench: &Bench<'_>) -> Outcome {
    let (before, _) = bench.mapped();
    for round in 0..2 {
        packets(bench, round)?;
        neighbors(bench)?;
        sparse(bench)?;
    }
    let (hits, staged) = bench.mapped();
    let (gpus, path, ways) = (bench.gpus, bench.path(), hits - before);
    bench.say(&format!(
        "values: payloads of {LENGTHS:?} bytes through packets, NeighborExchange and SparseAlltoall, {gpus} GPUs by {} ({path}; {ways} \
         mapping hits, {staged} refused): all equal",
        bench.comm.transport(),
    ));
    Ok(bench.comm.barrier()?)
}

impl Bench<'_> {
    /// Delays the streams that write the next payloads: the first one is the last to be there.
    fn delay(&self) -> Outcome {
        let streams = self.memory.streams().iter().zip(LATE);
        Ok(streams.into_iter().try_for_each(|(stream, late)| self.gpu.delay(stream, late * 1000))?)
    }

    fn packet(&self, number: usize) -> Result<Packet, Trouble> {
        let rank = self.comm.rank();
        Ok(Packet::new(metadata(rank, number), Some(self.memory.make(&content(rank, number))?)))
    }

    fn compare(&self, packet: Option<&Packet>, number: usize) -> Outcome {
        let Some(Packet { metadata: found, payload: Some(payload) }) = packet else {
            fail!("packet {number} of rank {} came without its payload: {packet:?}", self.peer);
        };
        let text = String::from_utf8_lossy(found);
        ensure!(*found == metadata(self.peer, number), "instead of packet {number} came {text:?}");
        let is_equal = self.memory.read(payload)? == content(self.peer, number);
        ensure!(is_equal, "{text} of {} bytes is damaged", payload.len());
        Ok(())
    }
}

fn packets(bench: &Bench<'_>, round: usize) -> Outcome {
    for number in 0..LENGTHS.len() {
        bench.delay()?;
        let sequence = (round * LENGTHS.len() + number) as u64;
        let came = bench.pass(sequence, Some(bench.packet(number)?), true)?;
        bench.compare(came.as_ref(), number)?;
    }
    Ok(())
}

/// Rounds of several operations at once, with other packets to the right than to the left.
fn neighbors(bench: &Bench<'_>) -> Outcome {
    let ring = NeighborExchange::ring(bench.comm, bench.memory.resource())?;
    let right = |number: usize| number + LENGTHS.len();
    bench.delay()?;
    let mut rounds = Vec::new();
    for number in 0..LENGTHS.len() {
        let packets = Sides { left: Some(bench.packet(number)?), right: Some(bench.packet(right(number))?) };
        rounds.push((number, ring.start(number as u32, packets)?));
    }
    // The last one may be over first.
    for (number, round) in rounds.into_iter().rev() {
        let came = round.wait()?;
        // What the other rank sends to its left comes from the right.
        for (side, number) in [(Side::Left, right(number)), (Side::Right, number)] {
            bench.compare(came.get(side).as_ref(), number)?;
        }
    }
    Ok(())
}

fn sparse(bench: &Bench<'_>) -> Outcome {
    let peers = [bench.peer];
    let exchange = SparseAlltoall::new(bench.comm, &peers, &peers, bench.memory.resource())?;
    bench.delay()?;
    for number in 0..LENGTHS.len() {
        exchange.insert(bench.peer, bench.packet(number)?)?;
    }
    exchange.finish();
    exchange.wait()?;
    let came = exchange.extract(bench.peer)?;
    ensure!(came.len() == LENGTHS.len(), "{} of {} packets came", came.len(), LENGTHS.len());
    came.iter().enumerate().try_for_each(|(number, packet)| bench.compare(Some(packet), number))
}
