//! Rounds between neighbours: presence, order, sessions, failure, on lines and rings of any length.

mod faults;

use super::line::{Line, content};
use crate::numbers::mix;
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::neighbors::{NeighborError, Side, Sides, Topology, Turn};
use halocline::{Buffer, HostMemory, Limited, MemoryError, MemoryResource, Packet};
use halocline_comm::Endpoint;
use halocline_comm::packet::PacketError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    Case { name: "neighbors::each_side_gets_what_its_neighbor_sent", run: sides },
    Case { name: "neighbors::nothing_and_an_empty_payload_differ", run: presence },
    Case { name: "neighbors::payloads_of_any_size", run: sizes },
    Case { name: "neighbors::a_thousand_rounds_with_delays", run: rounds },
    Case { name: "neighbors::operations_start_in_opposite_orders", run: opposite_orders },
    Case { name: "neighbors::an_id_is_used_again_while_the_neighbor_is_late", run: reused },
    Case { name: "neighbors::callbacks_are_called_once", run: callbacks },
    Case { name: "neighbors::a_future_that_is_dropped_leaves_the_round", run: cancelled },
    Case { name: "neighbors::a_session_ends_link_by_link", run: session },
    Case { name: "neighbors::wrong_calls_are_refused", run: refused },
    Case { name: "neighbors::a_limit_below_the_payload_spills_or_fails_everywhere", run: limited },
    Case { name: "neighbors::a_rank_that_never_comes_is_named", run: faults::deadline },
    Case { name: "neighbors::a_deadline_may_be_as_long_as_one_likes", run: faults::endless },
    Case { name: "neighbors::different_lines_are_found_out", run: faults::topologies },
    Case { name: "neighbors::what_is_dropped_too_early_is_named", run: faults::dropped },
    Case { name: "neighbors::a_session_ends_by_its_last_turns_or_by_its_drop", run: sessions_end },
    Case { name: "neighbors::memory_of_a_dropped_round_is_given_back", run: forgotten },
    Case { name: "neighbors::a_session_beside_a_round_is_found_out", run: faults::mixed },
    Case { name: "neighbors::an_abort_ends_the_waits_of_all_threads", run: faults::aborted },
];

fn sides(comm: &Stage<'_>) -> Outcome {
    for topology in [Topology::Line, Topology::Ring] {
        let line = Line::new(comm, topology)?;
        line.round(7, 0, 100)?;
    }
    // A rank alone on a ring is its own neighbour; its neighbours are not named then.
    if comm.size() == 1 {
        let ring = Line::new(comm, Topology::Ring)?;
        let to = |side| ring.packet(side, 3, 10).map(Some);
        let came = ring.exchange(0, Sides { left: to(Side::Left)?, right: to(Side::Right)? })?;
        for (side, packet) in [(Side::Left, came.left), (Side::Right, came.right)] {
            let Some(Packet { metadata, payload: Some(payload) }) = packet else {
                fail!("no payload came from the {side}");
            };
            let found = (metadata, ring.memory.read(&payload)?);
            ensure!(found == content(0, side.other(), 3, 10), "from the {side} came another packet");
        }
    }
    comm.barrier()?;
    Ok(())
}

fn presence(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Line)?;
    const KINDS: usize = 5;
    let kind = |rank: usize, round: usize| -> Result<Option<Packet>, Trouble> {
        let of_host = Buffer::default();
        Ok(match (rank + round) % KINDS {
            0 => None,
            1 => Some(Packet::default()),
            2 => Some(Packet::new(b"rows".to_vec(), None)),
            3 => Some(Packet::new(Vec::new(), Some(of_host))),
            _ => Some(Packet::new(b"no rows".to_vec(), Some(line.memory.make(&[])?))),
        })
    };
    let shape = |packet: &Packet| {
        let payload = packet.payload.as_ref().map(|payload| (payload.len(), payload.bytes().is_some()));
        (packet.metadata.clone(), payload)
    };
    for round in 0..KINDS {
        let to = |side: Side| line.neighbors().get(side).map_or(Ok(None), |_| kind(comm.rank(), round));
        let came = line.exchange(1, Sides { left: to(Side::Left)?, right: to(Side::Right)? })?;
        for side in Side::BOTH {
            let expected = line.neighbors().get(side).map_or(Ok(None), |from| kind(from, round))?;
            let (found, expected) = (came.get(side).as_ref().map(shape), expected.as_ref().map(shape));
            ensure!(found == expected, "round {round}, {side}: {found:?} instead of {expected:?}");
            // An empty payload is of the receiver's memory, as any other.
            let payload = came.get(side).as_ref().and_then(|packet| packet.payload.as_ref());
            let (found, expected) = (payload.map(Buffer::kind), line.memory.resource().kind());
            ensure!(found.is_none_or(|kind| kind == expected), "an empty payload of {found:?} memory");
        }
    }
    comm.barrier()?;
    Ok(())
}

fn sizes(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Ring)?;
    let mut lengths = vec![1, 4096, (16 << 10) + 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 3_000_001];
    if comm.transport() == "mpi" && comm.is_on_device() {
        // In several messages.
        lengths.push(20_000_001);
    }
    for (round, &bytes) in (0..).zip(&lengths) {
        line.round(0, round, bytes)?;
        let came = line.exchange(0, line.private(round, bytes))?;
        line.check(&came, round, bytes)?;
    }
    let statistics = line.statistics();
    let rounds = 2 * lengths.len() as u64;
    ensure!(statistics.rounds == rounds, "{} rounds", statistics.rounds);
    let (of_host, of_device) = (statistics.received.host, statistics.received.device);
    let expected = if comm.size() == 1 { 0 } else { 4 * lengths.iter().sum::<usize>() as u64 };
    let expected = if comm.is_on_device() { (0, expected) } else { (expected, 0) };
    ensure!((of_host, of_device) == expected, "{of_host} and {of_device} bytes instead of {expected:?}");
    comm.barrier()?;
    Ok(())
}

fn rounds(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Ring)?;
    // Simulated devices take their time.
    let rounds = if comm.is_on_device() { 100 } else { 1000 };
    for round in 0..rounds {
        // A rank that is late in one round is early in another.
        if mix(round << 8 | comm.rank() as u64).is_multiple_of(100) {
            std::thread::sleep(Duration::from_micros(300));
        }
        let bytes = if round.is_multiple_of(250) { 200_000 } else { 50 };
        line.round(0, round, bytes)?;
    }
    comm.barrier()?;
    Ok(())
}

fn opposite_orders(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Line)?;
    let mut ids: Vec<u32> = (0..6).collect();
    if comm.rank().is_multiple_of(2) {
        ids.reverse();
    }
    let mut rounds = Vec::new();
    for id in &ids {
        let bytes = if id.is_multiple_of(2) { 100 } else { 100_000 };
        rounds.push((*id, bytes, line.start(*id, line.packets((*id).into(), bytes)?)?));
    }
    for (id, bytes, round) in rounds {
        line.check(&round.wait()?, id.into(), bytes)?;
    }
    comm.barrier()?;
    Ok(())
}

fn reused(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Line)?;
    for round in 0..3 {
        if comm.rank() == 1 && round == 1 {
            std::thread::sleep(Duration::from_millis(500));
        }
        let flight = line.start(5, line.packets(round, 100_000)?)?;
        let again = line.start(5, Sides::default());
        let is_over = flight.is_complete()?;
        ensure!(
            matches!(again.err(), Some(NeighborError::Busy { id: 5 })) || is_over,
            "an id was used twice"
        );
        line.check(&flight.wait()?, round, 100_000)?;
    }
    comm.barrier()?;
    Ok(())
}

fn callbacks(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Ring)?;
    let calls = Arc::<AtomicU32>::default();
    for round in 0..10 {
        let flight = line.start(0, line.packets(round, 100)?)?;
        let counts = Arc::clone(&calls);
        flight.on_completion(move |outcome| {
            counts.fetch_add(u32::from(outcome.is_ok()), Ordering::AcqRel);
        });
        line.check(&flight.wait()?, round, 100)?;
        let count = calls.load(Ordering::Acquire);
        ensure!(count <= round as u32 + 1, "{count} calls after round {round}");
    }
    // The progress thread may call the last one a little after the wait.
    await_count(comm, &calls, 10)?;
    comm.barrier()?;
    Ok(())
}

fn cancelled(comm: &Stage<'_>) -> Outcome {
    use std::future::Future;
    use std::task::{Context, Waker};
    let line = Line::new(comm, Topology::Ring)?;
    let flight = line.start(0, line.packets(0, 100_000)?)?;
    let mut completed = Box::pin(flight.completed());
    let _ = completed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(completed);
    flight.wait_until_complete()?;
    line.check(&flight.take()?, 0, 100_000)?;
    ensure!(matches!(flight.take(), Err(NeighborError::Taken { .. })) || comm.size() == 1, "taken twice");
    // A round whose handle is dropped goes on for the neighbours.
    drop(line.start(1, line.packets(1, 100_000)?)?);
    let next = line.start(2, line.packets(2, 10)?)?;
    line.check(&next.wait()?, 2, 10)?;
    comm.barrier()?;
    Ok(())
}

fn forgotten(comm: &Stage<'_>) -> Outcome {
    const BYTES: usize = 100_000;
    let mut made = None;
    let ring = Line::over(comm, Topology::Ring, |resource| {
        Arc::new(made.insert(Limited::new(resource, 6 * BYTES)).clone())
    })?;
    // Each id keeps its last round, whose packets nobody takes.
    for id in 0..20 {
        drop(ring.start(id, ring.private(0, BYTES))?);
        let next = ring.start(100, ring.private(1, 10))?;
        ring.check(&next.wait()?, 1, 10)?;
    }
    comm.barrier()?;
    Ok(())
}

fn session(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Line)?;
    for _ in 0..2 {
        let mut session = line.session(3)?;
        ensure!(
            matches!(session.wait(), Err(NeighborError::NotStarted { id: 3 })),
            "a wait before the start"
        );
        // Each rank sends as many packets to a side as its number says, then ends that direction.
        let sends = |rank: usize, round: u64| round < rank as u64;
        let mut round = 0;
        while !session.is_over() {
            let turn = |side: Side| match (line.neighbors().get(side), sends(comm.rank(), round)) {
                (Some(_), true) => line.packet(side, round, 64).map(Turn::Packet),
                _ => Ok(Turn::Last),
            };
            let came = session.round(Sides { left: turn(Side::Left)?, right: turn(Side::Right)? })?;
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
    line.round(3, 9, 10)?;
    comm.barrier()?;
    Ok(())
}

fn refused(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm, Topology::Line)?;
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
    line.round(0, 0, 10)?;
    comm.barrier()?;
    Ok(())
}

fn limited(comm: &Stage<'_>) -> Outcome {
    const LIMIT: usize = 1 << 20;
    let limited = |resource| Limited::new(resource, LIMIT).with_patience(Duration::from_millis(20));
    let mut made = None;
    let ring = Line::over(comm, Topology::Ring, |resource| {
        let spilling = limited(resource).spilling(Arc::new(HostMemory::of(comm)));
        Arc::new(made.insert(spilling).clone())
    })?;
    let spilled = || made.as_ref().map_or(0, |made| made.statistics().spilled);
    ring.round(0, 0, 2 * LIMIT)?;
    ensure!(comm.size() == 1 || spilled() >= 4 * LIMIT as u64, "{} bytes were spilled", spilled());
    ring.check(&ring.exchange(0, ring.private(1, 2 * LIMIT))?, 1, 2 * LIMIT)?;
    comm.barrier()?;
    if comm.size() == 1 {
        return Ok(());
    }
    let line = Line::over(comm, Topology::Line, |resource| Arc::new(limited(resource)))?;
    let failed = line.exchange(0, line.packets(0, 2 * LIMIT)?).err();
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

/// Waits, without a call of the exchange, until so many callbacks were called.
pub(super) fn await_count(comm: &Stage<'_>, calls: &AtomicU32, expected: u32) -> Outcome {
    let host = comm.link().host();
    let start = host.now();
    while calls.load(Ordering::Acquire) < expected && host.now() - start < Duration::from_secs(10) {
        host.park(&AtomicU32::new(0), 0, Some(Duration::from_millis(1)));
    }
    let count = calls.load(Ordering::Acquire);
    ensure!(count == expected, "{count} calls instead of {expected}");
    Ok(())
}

fn sessions_end(comm: &Stage<'_>) -> Outcome {
    let patient = comm.with_deadline(Some(Duration::from_secs(20)));
    let line = Line::new(&comm.of(&patient), Topology::Line)?;
    let nothing = || Sides { left: Turn::Nothing, right: Turn::Nothing };
    // Nothing follows the last turn.
    let mut session = line.session(2)?;
    session.round(Sides { left: Turn::Nothing, right: Turn::Last })?;
    let again = session.start(Sides { left: Turn::Nothing, right: Turn::Packet(Packet::default()) }).err();
    let is_refused = match comm.rank() + 1 == comm.size() {
        true => matches!(again, Some(NeighborError::NoNeighbor { side: Side::Right, .. })),
        false => matches!(again, Some(NeighborError::Finished { side: Side::Right, .. })),
    };
    ensure!(is_refused, "{again:?}");
    ensure!(session.is_over() == (comm.size() == 1), "what goes to the left has not ended");
    // A round that was started is in flight until it is taken.
    session.start(Sides { left: Turn::Last, right: Turn::Nothing })?;
    ensure!(
        matches!(session.start(nothing()).err(), Some(NeighborError::Busy { id: 2 })),
        "two rounds at once"
    );
    let calls = Arc::<AtomicU32>::default();
    let counts = Arc::clone(&calls);
    let completed = session.completed();
    completed
        .clone()
        .inspect(|clone| clone.on_completion(move |_| _ = counts.fetch_add(1, Ordering::AcqRel)));
    session.wait()?;
    await_count(comm, &calls, 1)?;
    ensure!(session.is_over() && session.completed().is_none(), "all directions have ended");
    if comm.size() == 1 {
        return Ok(());
    }
    // Rank 0 drops a session that is not over: it ends on all ranks, one after the other. Other operations go on.
    let mut session = line.session(3)?;
    let flight = line.start(4, line.packets(0, 100_000)?)?;
    session.round(nothing())?;
    if comm.rank() > 0 {
        let error = (0..).find_map(|_| session.round(nothing()).err());
        let from = comm.rank() - 1;
        let is_named = matches!(error, Some(NeighborError::SessionDropped { rank, id: 3 }) if rank == from);
        ensure!(is_named, "{error:?}");
    }
    drop(session);
    line.check(&flight.wait()?, 0, 100_000)?;
    line.round(5, 1, 10)?;
    comm.barrier()?;
    // A rank gives up: all others learn it.
    if comm.rank() == 0 {
        line.abort("its input ends early");
    }
    let error = line.failure(6);
    let is_named =
        matches!(&error, Some(NeighborError::Aborted { rank: 0, why }) if why == "its input ends early");
    ensure!(is_named, "{error:?}");
    comm.barrier()?;
    Ok(())
}
