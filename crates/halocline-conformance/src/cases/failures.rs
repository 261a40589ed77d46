//! Exchanges that never complete: deadlines, peers that drop their object, and how the failure reaches all ranks.

use super::fixture::{Line, Words, failure, is_deadline, is_sticky, reclaimed, still_works, until_failure};
use crate::fixtures::{Grid, ring_neighbours};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline::{Array, BindOptions, Cause, Error, Field, HaloExchange, LinkChoice, Pattern, RegularGrid};
use halocline_comm::Endpoint;
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    Case { name: "failures::a_deadline_names_the_late_rank", run: deadline },
    Case { name: "failures::a_deadline_that_is_met_changes_nothing", run: met },
    Case { name: "failures::a_deadline_ends_is_ready_too", run: deadline_of_is_ready },
    Case { name: "failures::a_peer_that_drops_its_object", run: dropped },
    Case { name: "failures::of_one_link_reach_all_ranks_of_a_chain", run: chain },
    Case { name: "failures::a_failed_object_is_dropped_in_flight", run: dropped_after_failure },
    Case { name: "failures::race_with_the_next_exchange", run: race },
    Case { name: "failures::a_completed_exchange_is_never_reported_as_failed", run: between },
];

/// Longer than a step takes on a machine that does much else.
const DEADLINE: Duration = Duration::from_millis(400);

fn within(link: LinkChoice, deadline: Duration) -> BindOptions {
    BindOptions::default().link(link).deadline(deadline)
}

fn deadline(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let words = Words::new(comm);
        let waits_for_0 = ring_neighbours(0, comm.size()).contains(&comm.rank());
        // Only the neighbours of rank 0 have a deadline: a rank that is late because of them is not the culprit.
        let deadline = waits_for_0.then_some(DEADLINE);
        let halo = line.bind_with(comm, &BindOptions::default().link(link).deadline(deadline))?;
        line.step(&halo, 1)?;
        comm.barrier()?;
        if comm.rank() == 0 {
            words.all_tell(0, 0)?;
            if comm.size() > 1 {
                let failed = until_failure(&halo)?;
                ensure!(is_deadline(failed.cause, DEADLINE) && failed.culprit == 0, "rank 0: {failed}");
                is_sticky(&halo, &failed)?;
                reclaimed(comm, &halo, &line.array)?;
            }
            continue;
        }
        let failed = if waits_for_0 {
            let pending = halo.exchange()?;
            let failed = failure(pending.wait())?;
            ensure!(failed.epoch == 2, "{failed}");
            ensure!(*failure(pending.wait())? == *failed, "a second wait says something else");
            ensure!(*failure(pending.is_ready())? == *failed, "is_ready says something else");
            ensure!(*failure(halo.wait())? == *failed, "the object says something else");
            failed
        } else {
            until_failure(&halo)?
        };
        ensure!(is_deadline(failed.cause, DEADLINE), "another cause: {failed}");
        ensure!((failed.rank, failed.culprit) == (comm.rank(), 0), "another rank: {failed}");
        ensure!(failed.to_string().contains("rank 0 missed the deadline"), "it does not say so: {failed}");
        is_sticky(&halo, &failed)?;
        // Rank 0 is away, but its progress acknowledges: the memory comes back without it.
        reclaimed(comm, &halo, &line.array)?;
        words.all_tell(0, 0)?;
    }
    still_works(comm)
}

fn met(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind_with(comm, &within(link, Duration::from_secs(50)))?;
        (1..20).try_for_each(|step| line.step(&halo, step))?;
    }
    Ok(())
}

fn deadline_of_is_ready(comm: &Stage<'_>) -> Outcome {
    // No step has to end within it.
    const DEADLINE: Duration = Duration::from_millis(100);
    let waits_for_0 = ring_neighbours(0, comm.size()).contains(&comm.rank());
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let deadline = waits_for_0.then_some(DEADLINE);
        let halo = line.bind_with(comm, &BindOptions::default().link(link).deadline(deadline))?;
        if waits_for_0 {
            let failed = match halo.exchange() {
                Ok(pending) => loop {
                    match pending.is_ready() {
                        Ok(false) => comm.link().host().yield_now(),
                        ended => break failure(ended)?,
                    }
                },
                // The other neighbour of rank 0 was faster, and has given up already.
                failed => failure(failed)?,
            };
            ensure!(is_deadline(failed.cause, DEADLINE), "another cause: {failed}");
            reclaimed(comm, &halo, &line.array)?;
        } else if comm.rank() != 0 {
            until_failure(&halo)?;
        }
        // No rank drops its object before all have seen the failure.
        comm.barrier()?;
    }
    still_works(comm)
}

fn dropped(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        for before in [0, 1, 4] {
            let line = Line::new(comm)?;
            let halo = line.bind(comm, link)?;
            (1..=before).try_for_each(|step| line.step(&halo, step))?;
            // A failure may take down what a slow rank has still in flight.
            comm.barrier()?;
            if comm.rank() == 0 {
                drop(halo);
            } else {
                let failed = until_failure(&halo)?;
                ensure!((failed.cause, failed.culprit) == (Cause::Dropped, 0), "{link:?}: {failed}");
                ensure!(
                    failed.to_string().contains("rank 0 dropped its end"),
                    "it does not say so: {failed}"
                );
                is_sticky(&halo, &failed)?;
                reclaimed(comm, &halo, &line.array)?;
            }
            // The arrays of a failed object can be bound anew.
            let again = line.bind(comm, link)?;
            line.step(&again, 9)?;
        }
    }
    still_works(comm)
}

/// Ranks in a chain, far from each other: what ends the first link ends the last.
fn chain(comm: &Stage<'_>) -> Outcome {
    let decomposition = RegularGrid::new([3 * comm.size()]).decompose(comm.size())?;
    let pattern = Grid::cut(decomposition, &[false], &[(1, 1)]).pattern(comm)?;
    for link in comm.paths() {
        let array = comm.zeros::<u64>(&[5])?;
        let deadline = (comm.rank() == 1).then_some(DEADLINE);
        let halo = HaloExchange::bind_with(
            comm,
            [(&pattern, &array)],
            &BindOptions::default().link(link).deadline(deadline),
        )?;
        if comm.rank() > 0 {
            let failed = until_failure(&halo)?;
            ensure!(is_deadline(failed.cause, DEADLINE) && failed.culprit == 0, "{link:?}: {failed}");
            reclaimed(comm, &halo, &array)?;
        }
        comm.barrier()?;
    }
    still_works(comm)
}

fn dropped_after_failure(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind_with(comm, &within(link, Duration::from_millis(1)))?;
        // Some ranks come in time, some do not, some do not come at all.
        match comm.rank() % 3 {
            0 => drop(halo),
            1 => {
                if let Ok(pending) = halo.exchange() {
                    // It fails or is met.
                    let _ = pending.wait();
                }
                drop(line);
            }
            _ => drop(halo.exchange()),
        }
    }
    still_works(comm)
}

/// A peer fails after an exchange in which all took part: it is the next one that fails, whenever this rank learns of it.
/// Where fields lie on devices, some of the object's lie on the host, too.
fn between(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let words = Words::new(comm);
        let on_host = Array::<f32>::zeros(comm, &[5])?;
        let options = BindOptions::default().link(link).deadline((comm.rank() == 0).then_some(DEADLINE));
        let fields: [(&Pattern, &Field); 2] = [(&line.pattern, &line.array), (&line.pattern, &on_host)];
        let halo = HaloExchange::bind_with(comm, fields, &options)?;
        (1..4).try_for_each(|step| line.step(&halo, step))?;
        let last = halo.pending();
        comm.barrier()?;
        if comm.rank() == 0 && comm.size() > 1 {
            let failed = until_failure(&halo)?;
            ensure!(failed.epoch == 4, "rank 0, {link:?}: {failed}");
        }
        words.tell_all(0, 0)?;
        if let Some(stream) = line.array.stream().filter(|_| comm.size() > 1 && comm.rank() > 0) {
            // Every wait of a stream learns of the failure, also one for an exchange that is over.
            let found = loop {
                match halo.schedule_wait(stream) {
                    Ok(()) => comm.link().host().yield_now(),
                    ended => break failure(ended)?,
                }
            };
            ensure!(found.epoch == 4, "{link:?}: {found}");
        }
        last.map_or(Ok(()), |last| last.wait())?;
        if comm.size() > 1 {
            if comm.rank() > 0 {
                line.check(3)?;
            }
            let failed = until_failure(&halo)?;
            is_sticky(&halo, &failed)?;
        }
        comm.barrier()?;
    }
    still_works(comm)
}

/// A remote failure arrives while an exchange begins: no rank may wait forever.
fn race(comm: &Stage<'_>) -> Outcome {
    let decomposition = RegularGrid::new([3 * comm.size()]).decompose(comm.size())?;
    let pattern = Grid::cut(decomposition, &[false], &[(1, 1)]).pattern(comm)?;
    for turn in 0..30 {
        let array = comm.zeros::<u64>(&[5])?;
        let link = comm.choices()[1 + turn % 4];
        let deadline = (comm.rank() == 0).then_some(Duration::from_micros(300));
        let halo = HaloExchange::bind_with(
            comm,
            [(&pattern, &array)],
            &BindOptions::default().link(link).deadline(deadline),
        )?;
        // Rank 0 gives up at some moment, or drops its object after a while; the others go on until
        // their exchange fails.
        let most = if comm.rank() == 0 || comm.size() == 1 { turn } else { usize::MAX };
        let mut ended = Ok(());
        for _ in 0..most {
            ended = halo.exchange().and_then(|pending| pending.wait());
            if ended.is_err() {
                break;
            }
        }
        match ended {
            Err(Error::Failed(failed)) => {
                let known = is_deadline(failed.cause, Duration::ZERO) || failed.cause == Cause::Dropped;
                ensure!(known, "{link:?}: {failed}");
            }
            Ok(()) if comm.rank() == 0 || comm.size() == 1 => {}
            other => fail!("{link:?}: {other:?}"),
        }
    }
    still_works(comm)
}
