//! Ranks that are late, disagree, drop their end, or give up.

use super::await_count;
use crate::cases::line::Line;
use crate::stage::Stage;
use crate::{Outcome, Trouble, ensure};
use halocline::neighbors::{NeighborError, Sides, Topology, Turn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(super) fn deadline(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 2 {
        return Ok(());
    }
    let patient = comm.with_deadline(Some(Duration::from_millis(200)));
    let line = Line::new(&comm.of(&patient), Topology::Line)?;
    // Rank 1 starts another operation.
    let id = if comm.rank() == 1 { 9 } else { 0 };
    // With payloads, of which some stay in flight.
    let first = line.exchange(id, line.packets(0, 10)?).err();
    let error = first.or_else(|| line.failure(id)).map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("rank"), "{error:?} names no rank");
    comm.barrier()?;
    // The same where nobody waits: the callback gets the error.
    let line = Line::new(&comm.of(&patient), Topology::Line)?;
    if comm.rank() != 1 {
        let calls = Arc::<AtomicU32>::default();
        let counts = Arc::clone(&calls);
        let flight = line.start(0, line.packets(0, 10)?)?;
        flight.on_completion(move |_| _ = counts.fetch_add(1, Ordering::AcqRel));
        await_count(comm, &calls, 1)?;
        // The neighbours of rank 1 wait for it.
        ensure!(comm.rank() > 2 || flight.take().is_err(), "a round is over without a packet of rank 1");
    }
    comm.barrier()?;
    Ok(())
}

pub(super) fn endless(comm: &Stage<'_>) -> Outcome {
    let patient = comm.with_deadline(Some(Duration::MAX));
    let line = Line::new(&comm.of(&patient), Topology::Line)?;
    line.round(0, 0, 100)?;
    let (calls, flight) = (Arc::<AtomicU32>::default(), line.start(1, line.packets(1, 10)?)?);
    let counts = Arc::clone(&calls);
    flight.on_completion(move |_| _ = counts.fetch_add(1, Ordering::AcqRel));
    await_count(comm, &calls, 1)?;
    flight.take()?;
    comm.barrier()?;
    Ok(())
}

pub(super) fn topologies(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 2 {
        return Ok(());
    }
    let patient = comm.with_deadline(Some(Duration::from_secs(20)));
    let topology = if comm.rank() == 0 { Topology::Ring } else { Topology::Line };
    let error = Line::new(&comm.of(&patient), topology)?.failure(0);
    let is_named = matches!(error, Some(NeighborError::Topology { .. } | NeighborError::Aborted { .. }));
    ensure!(is_named, "{error:?}");
    comm.barrier()?;
    Ok(())
}

/// Every other rank opens a session where its neighbours start a round.
pub(super) fn mixed(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 2 {
        return Ok(());
    }
    let patient = comm.with_deadline(Some(Duration::from_secs(20)));
    let line = Line::new(&comm.of(&patient), Topology::Line)?;
    let error = match comm.rank() % 2 {
        0 => {
            let nothing = Sides { left: Turn::Nothing, right: Turn::Nothing };
            line.session(3).and_then(|mut session| session.round(nothing)).err()
        }
        _ => line.exchange(3, Sides::default()).err(),
    };
    let is_named =
        matches!(error, Some(NeighborError::OutOfStep { id: 3, .. } | NeighborError::Aborted { .. }));
    ensure!(is_named, "{error:?}");
    comm.barrier()?;
    Ok(())
}

pub(super) fn dropped(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 2 {
        return Ok(());
    }
    let patient = comm.with_deadline(Some(Duration::from_secs(20)));
    let new = || Line::new(&comm.of(&patient), Topology::Line);
    // Rank 0 drops its end, without and with a round in flight, and rank 1 waits for another round of it.
    for in_flight in [false, true] {
        let line = new()?;
        if comm.rank() == 0 {
            drop(in_flight.then(|| line.start(7, Sides::default())).transpose()?);
            // A session that its neighbour never opens does not keep the end.
            drop(in_flight.then(|| line.session(8)).transpose()?);
            drop(line);
        } else {
            let error = line.failure(0);
            let is_named =
                matches!(error, Some(NeighborError::Dropped { rank: 0, .. } | NeighborError::Aborted { .. }));
            ensure!(is_named, "{error:?}");
        }
        comm.barrier()?;
    }
    Ok(())
}

pub(super) fn aborted(comm: &Stage<'_>) -> Outcome {
    let patient = comm.with_deadline(Some(Duration::from_secs(20)));
    let line = &Line::new(&comm.of(&patient), Topology::Line)?;
    let (rank, is_alone) = (comm.rank(), comm.size() == 1);
    // No neighbour starts these operations.
    let waits = [2 * (rank as u32 % 2), 2 * (rank as u32 % 2) + 1];
    let flights = if is_alone { Vec::new() } else { waits.map(|id| line.start(id, Sides::default())).into() };
    let flights = flights.into_iter().collect::<Result<Vec<_>, _>>()?;
    let is_told = |error: Option<NeighborError>| {
        ensure!(
            matches!(&error, Some(NeighborError::Aborted { rank: 0, why }) if why == "no input"),
            "{error:?}"
        );
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            flights.iter().map(|flight| scope.spawn(|| flight.wait_until_complete().err())).collect();
        // All threads wait, or will.
        comm.barrier()?;
        if rank == 0 {
            line.abort("no input");
        }
        for thread in threads {
            is_told(thread.join().map_err(|_| Trouble::new("a thread of the rank has panicked"))?)?;
        }
        Ok::<_, Trouble>(())
    })?;
    // It is final.
    is_told(line.failure(9))?;
    comm.barrier()?;
    Ok(())
}
