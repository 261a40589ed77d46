//! Rounds between neighbours: presence, order, sessions, failure, on lines and rings of any length.

use crate::numbers::{Numbers, mix};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure};
use halocline::neighbors::{NeighborError, NeighborExchange, Side, Sides, Topology, Turn};
use halocline::{HostMemory, Limited, MemoryError, MemoryResource, Packet};
use halocline_comm::packet::PacketError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    Case { name: "neighbors::each_side_gets_what_its_neighbor_sent", run: sides },
    Case { name: "neighbors::nothing_and_an_empty_payload_differ", run: presence },
    Case { name: "neighbors::payloads_of_any_size", run: sizes },
    Case { name: "neighbors::a_hundred_rounds_with_delays", run: rounds },
    Case { name: "neighbors::operations_start_in_opposite_orders", run: opposite_orders },
    Case { name: "neighbors::an_id_is_used_again_while_the_neighbor_is_late", run: reused },
    Case { name: "neighbors::callbacks_are_called_once", run: callbacks },
    Case { name: "neighbors::a_future_that_is_dropped_leaves_the_round", run: cancelled },
    Case { name: "neighbors::a_session_ends_link_by_link", run: session },
    Case { name: "neighbors::wrong_calls_are_refused", run: refused },
    Case { name: "neighbors::a_limit_below_the_payload_spills_or_fails_everywhere", run: limited },
    Case { name: "neighbors::a_rank_that_never_comes_is_named", run: deadline },
    Case { name: "neighbors::different_lines_are_found_out", run: topologies },
    Case { name: "neighbors::what_is_dropped_too_early_is_named", run: dropped },
];

fn line(comm: &Stage<'_>, topology: Topology) -> Result<NeighborExchange, NeighborError> {
    NeighborExchange::new(comm, topology, Arc::new(HostMemory::of(comm)))
}

/// The packet of a round from a rank to a side.
fn packet(rank: usize, to: Side, round: u64, bytes: usize) -> Packet {
    let seed = mix((rank as u64) << 32 | round << 1 | u64::from(to == Side::Left));
    let metadata = format!("round {round} of rank {rank} to the {to}").into_bytes();
    Packet::new(metadata, Some(Numbers::new(seed).bytes(bytes).into()))
}

/// A packet for each neighbour that exists.
fn packets(line: &NeighborExchange, rank: usize, round: u64, bytes: usize) -> Sides<Option<Packet>> {
    let neighbors = line.neighbors();
    let to = |side: Side| neighbors.get(side).map(|_| packet(rank, side, round, bytes));
    Sides { left: to(Side::Left), right: to(Side::Right) }
}

/// Checks what came in a round.
fn check(line: &NeighborExchange, came: &Sides<Option<Packet>>, round: u64, bytes: usize) -> Outcome {
    for side in Side::BOTH {
        let expected = line.neighbors().get(side).map(|from| packet(from, side.other(), round, bytes));
        let read = |packet: &Packet| {
            let payload = packet.payload.as_ref().and_then(|payload| payload.to_vec());
            (String::from_utf8_lossy(&packet.metadata).into_owned(), payload)
        };
        let (found, expected) = (came.get(side).as_ref().map(read), expected.as_ref().map(read));
        ensure!(
            found == expected,
            "from the {side} came {:?} instead of {:?}",
            found.as_ref().map(|(text, bytes)| (text, bytes.as_ref().map(Vec::len))),
            expected.as_ref().map(|(text, bytes)| (text, bytes.as_ref().map(Vec::len)))
        );
    }
    Ok(())
}

fn sides(comm: &Stage<'_>) -> Outcome {
    for topology in [Topology::Line, Topology::Ring] {
        let line = line(comm, topology)?;
        let came = line.exchange(7, packets(&line, comm.rank(), 0, 100))?;
        check(&line, &came, 0, 100)?;
    }
    // A rank alone on a ring is its own neighbour; its neighbours are not named then.
    if comm.size() == 1 {
        let ring = line(comm, Topology::Ring)?;
        let to = |side| Some(packet(0, side, 3, 10));
        let came = ring.exchange(0, Sides { left: to(Side::Left), right: to(Side::Right) })?;
        let text = |packet: &Option<Packet>| packet.as_ref().map(|packet| packet.metadata.clone());
        ensure!(text(&came.left) == text(&to(Side::Right)), "from the left came {:?}", came.left);
        ensure!(text(&came.right) == text(&to(Side::Left)), "from the right came {:?}", came.right);
    }
    comm.barrier()?;
    Ok(())
}

fn presence(comm: &Stage<'_>) -> Outcome {
    let line = line(comm, Topology::Line)?;
    let kinds: [fn() -> Option<Packet>; 4] = [
        || None,
        || Some(Packet::default()),
        || Some(Packet::new(b"rows".to_vec(), None)),
        || Some(Packet::new(Vec::new(), Some(Vec::new().into()))),
    ];
    let shape =
        |packet: &Packet| (packet.metadata.len(), packet.payload.as_ref().map(|payload| payload.len()));
    for round in 0..kinds.len() {
        let made = |rank: usize| kinds[(rank + round) % kinds.len()]();
        let sends = line.neighbors().map(|neighbor| neighbor.and_then(|_| made(comm.rank())));
        let came = line.exchange(1, sends)?;
        for side in Side::BOTH {
            let expected = line.neighbors().get(side).and_then(made);
            let (found, expected) = (came.get(side).as_ref().map(shape), expected.as_ref().map(shape));
            ensure!(found == expected, "round {round}, {side}: {found:?} instead of {expected:?}");
        }
    }
    comm.barrier()?;
    Ok(())
}

fn sizes(comm: &Stage<'_>) -> Outcome {
    let line = line(comm, Topology::Ring)?;
    for (round, bytes) in
        [1, 4096, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 3_000_001].into_iter().enumerate()
    {
        let round = round as u64;
        let came = line.exchange(0, packets(&line, comm.rank(), round, bytes))?;
        check(&line, &came, round, bytes)?;
        // From memory of the library, which peers may map.
        let memory = HostMemory::of(comm);
        let own = packets(&line, comm.rank(), round, bytes).map(|packet| {
            packet.map(|packet| -> Result<Packet, MemoryError> {
                let mut payload = memory.allocate(bytes)?;
                if let (Some(to), Some(from)) = (payload.bytes_mut(), packet.payload.and_then(|p| p.to_vec()))
                {
                    to.copy_from_slice(&from);
                }
                Ok(Packet::new(packet.metadata, Some(payload)))
            })
        });
        let own = Sides { left: own.left.transpose()?, right: own.right.transpose()? };
        check(&line, &line.exchange(0, own)?, round, bytes)?;
    }
    let statistics = line.statistics();
    ensure!(statistics.rounds == 12, "{} rounds", statistics.rounds);
    comm.barrier()?;
    Ok(())
}

fn rounds(comm: &Stage<'_>) -> Outcome {
    let line = line(comm, Topology::Ring)?;
    for round in 0..100 {
        // A rank that is late in one round is early in another.
        if mix(round << 8 | comm.rank() as u64).is_multiple_of(20) {
            std::thread::sleep(Duration::from_micros(300));
        }
        let bytes = if round.is_multiple_of(25) { 200_000 } else { 50 };
        check(&line, &line.exchange(0, packets(&line, comm.rank(), round, bytes))?, round, bytes)?;
    }
    comm.barrier()?;
    Ok(())
}

fn opposite_orders(comm: &Stage<'_>) -> Outcome {
    let line = line(comm, Topology::Line)?;
    let mut ids: Vec<u32> = (0..6).collect();
    if comm.rank().is_multiple_of(2) {
        ids.reverse();
    }
    let mut rounds = Vec::new();
    for id in &ids {
        let bytes = if id.is_multiple_of(2) { 100 } else { 100_000 };
        rounds.push((*id, bytes, line.start(*id, packets(&line, comm.rank(), (*id).into(), bytes))?));
    }
    for (id, bytes, round) in rounds {
        check(&line, &round.wait()?, id.into(), bytes)?;
    }
    comm.barrier()?;
    Ok(())
}

fn reused(comm: &Stage<'_>) -> Outcome {
    let line = line(comm, Topology::Line)?;
    for round in 0..3 {
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(100));
        }
        let flight = line.start(5, packets(&line, comm.rank(), round, 100_000))?;
        let again = line.start(5, Sides::default());
        let is_over = flight.is_complete()?;
        ensure!(
            matches!(again.err(), Some(NeighborError::Busy { id: 5 })) || is_over,
            "an id was used twice"
        );
        check(&line, &flight.wait()?, round, 100_000)?;
    }
    comm.barrier()?;
    Ok(())
}

fn callbacks(comm: &Stage<'_>) -> Outcome {
    let line = line(comm, Topology::Ring)?;
    let calls = Arc::<AtomicU32>::default();
    for round in 0..10 {
        let flight = line.start(0, packets(&line, comm.rank(), round, 100))?;
        let counts = Arc::clone(&calls);
        flight.on_completion(move |outcome| {
            counts.fetch_add(u32::from(outcome.is_ok()), Ordering::AcqRel);
        });
        check(&line, &flight.wait()?, round, 100)?;
        let count = calls.load(Ordering::Acquire);
        ensure!(count <= round as u32 + 1, "{count} calls after round {round}");
    }
    // The progress thread may call the last one a little after the wait.
    let start = std::time::Instant::now();
    while calls.load(Ordering::Acquire) < 10 && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    ensure!(calls.load(Ordering::Acquire) == 10, "{} calls in 10 rounds", calls.load(Ordering::Acquire));
    comm.barrier()?;
    Ok(())
}

fn cancelled(comm: &Stage<'_>) -> Outcome {
    use std::future::Future;
    use std::task::{Context, Waker};
    let line = line(comm, Topology::Ring)?;
    let flight = line.start(0, packets(&line, comm.rank(), 0, 100_000))?;
    let mut completed = Box::pin(flight.completed());
    let _ = completed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(completed);
    flight.wait_until_complete()?;
    check(&line, &flight.take()?, 0, 100_000)?;
    ensure!(matches!(flight.take(), Err(NeighborError::Taken { .. })) || comm.size() == 1, "taken twice");
    // A round whose handle is dropped goes on for the neighbours.
    drop(line.start(1, packets(&line, comm.rank(), 1, 100_000))?);
    let next = line.start(2, packets(&line, comm.rank(), 2, 10))?;
    check(&line, &next.wait()?, 2, 10)?;
    comm.barrier()?;
    Ok(())
}

fn session(comm: &Stage<'_>) -> Outcome {
    let line = line(comm, Topology::Line)?;
    for _ in 0..2 {
        let mut session = line.session(3)?;
        // Each rank sends as many packets to a side as its number says, then ends that direction.
        let sends = |rank: usize, round: u64| round < rank as u64;
        let mut round = 0;
        while !session.is_over() {
            let turn = |side: Side| match (line.neighbors().get(side), sends(comm.rank(), round)) {
                (Some(_), true) => Turn::Packet(packet(comm.rank(), side, round, 64)),
                _ => Turn::Last,
            };
            let came = session.round(Sides { left: turn(Side::Left), right: turn(Side::Right) })?;
            for side in Side::BOTH {
                let expected = line.neighbors().get(side).is_some_and(|from| sends(from, round));
                let is_packet = matches!(came.get(side), Turn::Packet(_));
                ensure!(is_packet == expected, "round {round}, {side}: {:?}", came.get(side));
            }
            round += 1;
        }
        let busy = line.start(3, Sides::default());
        ensure!(matches!(busy.err(), Some(NeighborError::Busy { id: 3 })), "a session's id was used");
    }
    // Rounds outside of sessions follow.
    check(&line, &line.exchange(3, packets(&line, comm.rank(), 9, 10))?, 9, 10)?;
    comm.barrier()?;
    Ok(())
}

fn refused(comm: &Stage<'_>) -> Outcome {
    let line = line(comm, Topology::Line)?;
    let packet = || Some(Packet::default());
    if comm.rank() == 0 {
        let error = line.exchange(0, Sides { left: packet(), right: None }).err();
        ensure!(matches!(error, Some(NeighborError::NoNeighbor { side: Side::Left, .. })), "{error:?}");
    }
    if comm.rank() + 1 == comm.size() {
        let error = line.exchange(0, Sides { left: None, right: packet() }).err();
        ensure!(matches!(error, Some(NeighborError::NoNeighbor { side: Side::Right, .. })), "{error:?}");
    }
    // A refused call counts for nothing.
    check(&line, &line.exchange(0, packets(&line, comm.rank(), 0, 10))?, 0, 10)?;
    comm.barrier()?;
    Ok(())
}

fn limited(comm: &Stage<'_>) -> Outcome {
    const LIMIT: usize = 1 << 20;
    let host: Arc<dyn MemoryResource> = Arc::new(HostMemory::of(comm));
    let limited = || Limited::new(Arc::clone(&host), LIMIT).with_patience(Duration::from_millis(20));
    let spilling = Arc::new(limited().spilling(Arc::clone(&host)));
    let ring = NeighborExchange::ring(comm, Arc::clone(&spilling) as _)?;
    check(&ring, &ring.exchange(0, packets(&ring, comm.rank(), 0, 2 * LIMIT))?, 0, 2 * LIMIT)?;
    let spilled = spilling.statistics().spilled;
    ensure!(comm.size() == 1 || spilled >= 4 * LIMIT as u64, "{spilled} bytes were spilled");
    comm.barrier()?;
    if comm.size() == 1 {
        return Ok(());
    }
    let line = NeighborExchange::line(comm, Arc::new(limited()))?;
    let failed = line.exchange(0, packets(&line, comm.rank(), 0, 2 * LIMIT)).err();
    let is_shortage = |error: &MemoryError| matches!(error, MemoryError::Shortage { limit: LIMIT, .. });
    match &failed {
        Some(NeighborError::Packet(PacketError::Memory { error, .. })) if is_shortage(error) => {}
        Some(NeighborError::Packet(PacketError::Refused { .. }) | NeighborError::Aborted { .. }) => {}
        other => ensure!(false, "{other:?} instead of a shortage of memory"),
    }
    let again = line.exchange(0, Sides::default()).err();
    ensure!(again.map(|e| e.to_string()) == failed.map(|e| e.to_string()), "a failure is final");
    comm.barrier()?;
    Ok(())
}

fn deadline(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 2 {
        return Ok(());
    }
    let patient = comm.with_deadline(Some(Duration::from_millis(200)));
    let line = NeighborExchange::line(&patient, Arc::new(HostMemory::of(comm)))?;
    // Rank 1 starts another operation.
    let id = if comm.rank() == 1 { 9 } else { 0 };
    // Ranks further away learn of it in a later round.
    let fails = |_| line.exchange(id, packets(&line, comm.rank(), 0, 10)).err();
    let error = (0..).find_map(fails).map(|error: NeighborError| error.to_string()).unwrap_or_default();
    ensure!(error.contains("rank"), "{error:?} names no rank");
    comm.barrier()?;
    Ok(())
}

fn topologies(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 2 {
        return Ok(());
    }
    let patient = comm.with_deadline(Some(Duration::from_secs(20)));
    let topology = if comm.rank() == 0 { Topology::Ring } else { Topology::Line };
    let line = NeighborExchange::new(&patient, topology, Arc::new(HostMemory::of(comm)))?;
    // Ranks further away learn of it in a later round.
    let error = (0..).find_map(|_| line.exchange(0, Sides::default()).err());
    let is_named = matches!(error, Some(NeighborError::Topology { .. } | NeighborError::Aborted { .. }));
    ensure!(is_named, "{error:?}");
    comm.barrier()?;
    Ok(())
}

fn dropped(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 2 {
        return Ok(());
    }
    let patient = comm.with_deadline(Some(Duration::from_secs(20)));
    let new = || NeighborExchange::line(&patient, Arc::new(HostMemory::of(comm)));
    // Rank 0 drops its end, without and with a round in flight, and rank 1 waits for another round of it.
    for in_flight in [false, true] {
        let line = new()?;
        if comm.rank() == 0 {
            drop(in_flight.then(|| line.start(7, Sides::default())).transpose()?);
            drop(line);
        } else {
            let error = (0..).find_map(|_| line.exchange(0, Sides::default()).err());
            let is_named =
                matches!(error, Some(NeighborError::Dropped { rank: 0, .. } | NeighborError::Aborted { .. }));
            ensure!(is_named, "{error:?}");
        }
        comm.barrier()?;
    }
    // Nothing follows the last turn, and rank 0 drops a session that is not over.
    let line = new()?;
    let mut session = line.session(2)?;
    let right = if comm.rank() == 0 { Turn::Last } else { Turn::Nothing };
    let turns = Sides { left: Turn::Nothing, right };
    match session.round(turns) {
        // Rank 0 may have dropped its session already.
        Err(NeighborError::Aborted { rank: 0, .. }) if comm.rank() != 0 => {}
        first => drop(first?),
    }
    if comm.rank() == 0 {
        let again =
            session.round(Sides { left: Turn::Nothing, right: Turn::Packet(Packet::default()) }).err();
        ensure!(matches!(again, Some(NeighborError::Finished { side: Side::Right, .. })), "{again:?}");
        ensure!(!session.is_over(), "rank 1 has not ended what it sends to the left");
        drop(session);
        let error = line.exchange(3, Sides::default()).err();
        ensure!(matches!(error, Some(NeighborError::SessionDropped { rank: 0, id: 2 })), "{error:?}");
    } else {
        let error = (0..).find_map(|_| line.exchange(3, Sides::default()).err());
        ensure!(matches!(error, Some(NeighborError::Aborted { rank: 0, .. })), "{error:?}");
    }
    comm.barrier()?;
    Ok(())
}
