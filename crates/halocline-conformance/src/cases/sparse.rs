//! Sparse all-to-all: packets of every length between some of the ranks, in memory of the host or of devices.

use super::neighbors::await_count;
use crate::numbers::Numbers;
use crate::payloads::Payloads;
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline::Communicator;
use halocline::neighbors::{NeighborExchange, Sides};
use halocline_comm::memory_resource::{HostMemory, Limited, MemoryResource};
use halocline_comm::packet::Packet;
use halocline_comm::sparse::{SparseAlltoall, SparseError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    Case { name: "sparse::packets_of_every_length_arrive_in_order", run: every_length },
    Case { name: "sparse::every_rank_sends_to_every_other", run: dense },
    Case { name: "sparse::sources_are_discovered", run: discovered },
    Case { name: "sparse::a_limit_below_the_payload_spills", run: spilled },
    Case { name: "sparse::operations_follow_each_other_while_a_rank_is_late", run: late },
    Case { name: "sparse::sets_that_contradict_each_other_are_found_out", run: contradicting },
    Case { name: "sparse::different_operations_of_ranks_are_named", run: different },
    Case { name: "sparse::operations_in_another_order_are_named", run: other_order },
    Case { name: "sparse::sources_that_some_ranks_know_and_others_discover_are_named", run: half_discovered },
];

/// Lengths of payloads: messages, mapped memory, nothing.
const LENGTHS: [usize; 7] = [1, 4096, 16_384, 16_385, 0, 3_000_001, 100];

fn bytes(from: usize, to: usize, number: usize) -> Vec<u8> {
    Numbers::new((1000 * from + 10 * to + number) as u64).bytes(LENGTHS[number % LENGTHS.len()])
}

fn metadata(from: usize, number: usize) -> Vec<u8> {
    [from as u64, number as u64].map(u64::to_le_bytes).concat()
}

fn insert(exchange: &SparseAlltoall, memory: &Payloads, to: usize, from: usize, count: usize) -> Outcome {
    for number in 0..count {
        let payload = memory.make(&bytes(from, to, number))?;
        exchange.insert(to, Packet::new(metadata(from, number), Some(payload)))?;
    }
    Ok(())
}

fn check(exchange: &SparseAlltoall, memory: &Payloads, from: usize, to: usize, count: usize) -> Outcome {
    let packets = exchange.extract(from)?;
    ensure!(packets.len() == count, "{} of {count} packets of rank {from}", packets.len());
    for (number, packet) in packets.into_iter().enumerate() {
        ensure!(packet.metadata == metadata(from, number), "packet {number} of rank {from} is out of order");
        let Some(payload) = packet.payload else { fail!("packet {number} of rank {from} has no payload") };
        ensure!(
            memory.read(&payload)? == bytes(from, to, number),
            "packet {number} of rank {from} is damaged"
        );
    }
    Ok(())
}

/// The next two ranks, and the last two.
fn neighbours(comm: &Stage<'_>) -> (Vec<usize>, Vec<usize>) {
    let (rank, size) = (comm.rank(), comm.size());
    let steps = (1..3).filter(|step| *step < size);
    (
        steps.clone().map(|step| (rank + size - step) % size).collect(),
        steps.map(|step| (rank + step) % size).collect(),
    )
}

fn every_length(comm: &Stage<'_>) -> Outcome {
    let memory = Payloads::of(comm)?;
    let (sources, destinations) = neighbours(comm);
    for round in 0..3 {
        let resource = memory.resource();
        let exchange = SparseAlltoall::new(comm, &sources, &destinations, resource)?;
        // Some edges have no packet.
        let count = |from: usize| (from + round) % 3 * LENGTHS.len() / 2;
        destinations
            .iter()
            .try_for_each(|&to| insert(&exchange, &memory, to, comm.rank(), count(comm.rank())))?;
        exchange.finish();
        exchange.wait()?;
        sources.iter().try_for_each(|&from| check(&exchange, &memory, from, comm.rank(), count(from)))?;
    }
    comm.barrier()?;
    Ok(())
}

fn dense(comm: &Stage<'_>) -> Outcome {
    let memory = Payloads::of(comm)?;
    let others: Vec<usize> = (0..comm.size()).filter(|rank| *rank != comm.rank()).collect();
    let exchange = SparseAlltoall::new(comm, &others, &others, memory.resource())?;
    others.iter().try_for_each(|&to| insert(&exchange, &memory, to, comm.rank(), LENGTHS.len()))?;
    let calls = Arc::<AtomicU32>::default();
    let count = || {
        let calls = Arc::clone(&calls);
        exchange
            .on_completion(move |outcome| _ = calls.fetch_add(u32::from(outcome.is_ok()), Ordering::AcqRel));
    };
    count();
    ensure!(calls.load(Ordering::Acquire) == 0, "a callback was called before `finish`");
    exchange.finish();
    exchange.wait()?;
    count();
    others.iter().try_for_each(|&from| check(&exchange, &memory, from, comm.rank(), LENGTHS.len()))?;
    // The progress thread may call a little after the wait.
    await_count(comm, &calls, 2)?;
    comm.barrier()?;
    Ok(())
}

fn discovered(comm: &Stage<'_>) -> Outcome {
    let memory = Payloads::of(comm)?;
    let (sources, destinations) = neighbours(comm);
    let resource = memory.resource();
    let exchange = SparseAlltoall::discover(comm, &destinations, resource)?;
    let mut expected = sources.clone();
    expected.sort_unstable();
    ensure!(exchange.sources() == expected, "sources {:?} instead of {expected:?}", exchange.sources());
    destinations.iter().try_for_each(|&to| insert(&exchange, &memory, to, comm.rank(), 2))?;
    exchange.finish();
    exchange.wait()?;
    sources.iter().try_for_each(|&from| check(&exchange, &memory, from, comm.rank(), 2))
}

fn spilled(comm: &Stage<'_>) -> Outcome {
    let memory = Payloads::of(comm)?;
    let (sources, destinations) = neighbours(comm);
    let limited = Limited::new(memory.resource(), 1 << 20)
        .with_patience(Duration::ZERO)
        .spilling(Arc::new(HostMemory::of(comm)));
    let resource = Arc::new(limited.clone());
    let exchange = SparseAlltoall::new(comm, &sources, &destinations, resource)?;
    destinations.iter().try_for_each(|&to| insert(&exchange, &memory, to, comm.rank(), LENGTHS.len()))?;
    exchange.finish();
    exchange.wait()?;
    let spilled = limited.statistics().spilled;
    ensure!(spilled >= 3_000_001 * sources.len() as u64, "only {spilled} bytes were spilled");
    sources.iter().try_for_each(|&from| check(&exchange, &memory, from, comm.rank(), LENGTHS.len()))?;
    drop(exchange);
    ensure!(limited.statistics().in_use == 0, "{} bytes are still in use", limited.statistics().in_use);
    Ok(())
}

/// Operations of one rank begin and end while others have not begun them.
fn late(comm: &Stage<'_>) -> Outcome {
    let memory = Payloads::of(comm)?;
    let (sources, destinations) = neighbours(comm);
    let make = || SparseAlltoall::new(comm, &sources, &destinations, memory.resource());
    let mut exchanges = Vec::new();
    for _ in 0..4 {
        let exchange = make()?;
        destinations.iter().try_for_each(|&to| insert(&exchange, &memory, to, comm.rank(), 4))?;
        exchange.finish();
        exchanges.push(exchange);
    }
    if comm.rank() % 2 == 1 {
        exchanges.reverse();
    }
    for exchange in exchanges {
        exchange.wait()?;
        sources.iter().try_for_each(|&from| check(&exchange, &memory, from, comm.rank(), 4))?;
    }
    Ok(())
}

/// Rank 0 names rank 1 as a source, which names nobody.
fn contradicting(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let memory = Payloads::of(comm)?;
    let sources: &[usize] = if comm.rank() == 0 { &[1] } else { &[] };
    let exchange = SparseAlltoall::new(comm, sources, &[], memory.resource())?;
    exchange.finish();
    let found = exchange.wait().err();
    drop(exchange);
    comm.barrier()?;
    match (comm.rank(), found) {
        (0, Some(SparseError::Mismatch { rank: 0, peer: 1, .. } | SparseError::Aborted { rank: 1, .. })) => {
            Ok(())
        }
        (0, found) => fail!("rank 0 found {found:?}"),
        _ => Ok(()),
    }
}

/// The operation with the ranks beside this one, to its end.
fn sparse_beside(comm: &Communicator, stage: &Stage<'_>) -> Result<(), String> {
    let (rank, size) = (comm.rank(), comm.size());
    let beside: Vec<usize> =
        rank.checked_sub(1).into_iter().chain([rank + 1]).filter(|r| *r < size).collect();
    let memory = Payloads::of(stage).map_err(|error| error.to_string())?;
    let begun = SparseAlltoall::new(comm, &beside, &beside, memory.resource());
    let exchange = begun.map_err(|error| error.to_string())?;
    exchange.finish();
    exchange.wait().map_err(|error| error.to_string())
}

fn round_beside(comm: &Communicator, stage: &Stage<'_>) -> Result<(), String> {
    let memory = Payloads::of(stage).map_err(|error| error.to_string())?;
    let line = NeighborExchange::line(comm, memory.resource()).map_err(|error| error.to_string())?;
    line.exchange(0, Sides::default()).map(drop).map_err(|error| error.to_string())
}

/// The error of each rank names what two ranks do.
fn expect_named(stage: &Stage<'_>, found: Result<(), String>) -> Outcome {
    stage.barrier()?;
    match (stage.size(), found) {
        (1, Ok(())) => Ok(()),
        (size, Err(why)) if size > 1 && why.contains("mismatched collective calls") => Ok(()),
        (_, found) => fail!("rank {} found {found:?}", stage.rank()),
    }
}

fn different(stage: &Stage<'_>) -> Outcome {
    let comm = stage.duplicate()?;
    let work = if stage.rank().is_multiple_of(2) { sparse_beside } else { round_beside };
    expect_named(stage, work(&comm, stage))
}

fn other_order(stage: &Stage<'_>) -> Outcome {
    let comm = stage.duplicate()?;
    let works = if stage.rank().is_multiple_of(2) {
        [sparse_beside, round_beside]
    } else {
        [round_beside, sparse_beside]
    };
    expect_named(stage, works.into_iter().try_for_each(|work| work(&comm, stage)))
}

fn half_discovered(stage: &Stage<'_>) -> Outcome {
    let comm = stage.duplicate()?;
    let found = match stage.rank() {
        0 => {
            let destinations: &[usize] = if stage.size() > 1 { &[1] } else { &[] };
            let memory = Payloads::of(stage)?;
            SparseAlltoall::discover(&comm, destinations, memory.resource())
                .map(drop)
                .map_err(|e| e.to_string())
        }
        _ => sparse_beside(&comm, stage),
    };
    if stage.rank() > 1 {
        // These ranks agree with those beside them.
        stage.barrier()?;
        return Ok(());
    }
    expect_named(stage, found)
}
