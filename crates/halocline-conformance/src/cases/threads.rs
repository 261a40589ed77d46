//! Several threads of one rank.

use super::fixture::{Line, poll};
use crate::fixtures::{Fixture, Grid, by};
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::Error;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const CASES: &[Case] = &[
    Case { name: "threads::wait_for_an_exchange_of_another_thread", run: handed_over },
    Case { name: "threads::wait_for_one_exchange_together", run: wait_together },
    Case { name: "threads::begin_exchanges_of_one_object", run: begin_together },
];

/// What memory of the host alone shows.
pub(crate) const OF_HOST: &[Case] =
    &[Case { name: "threads::each_with_objects_and_a_duplicate_of_its_own", run: own_objects }];

/// Runs the same on several threads; the first trouble counts.
fn on_threads(count: usize, work: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|thread| scope.spawn(move || work(thread))).collect();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Trouble::new("a thread of the rank has panicked")))
        });
        ended.collect::<Vec<Outcome>>().into_iter().collect()
    })
}

fn own_objects(comm: &Stage<'_>) -> Outcome {
    let duplicates = [comm.duplicate()?, comm.duplicate()?, comm.duplicate()?];
    on_threads(3, |thread| {
        let comm = &comm.of(&duplicates[thread]);
        let grid = Grid::new(comm.size(), &[2 * comm.size() + thread, 4], &[true, true], 1)?;
        for turn in 0..3 {
            let mut fixture = Fixture::simple(comm, &grid)?;
            let halo = fixture.bind(comm, &by(comm.choices()[(thread + turn) % 5]))?;
            fixture.steps(&halo, 10)?;
            comm.barrier()?;
        }
        Ok(())
    })
}

fn handed_over(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        for step in 1..10 {
            line.fill(step)?;
            let pending = halo.exchange()?;
            on_threads(1, |_| Ok(pending.wait()?))?;
            line.check(step)?;
        }
    }
    Ok(())
}

fn wait_together(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        for step in 1..6 {
            line.fill(step)?;
            let pending = halo.exchange()?;
            on_threads(3, |thread| match thread {
                0 => Ok(pending.wait()?),
                1 => Ok(halo.wait()?),
                _ => poll(comm, || pending.is_ready()),
            })?;
            line.check(step)?;
        }
    }
    Ok(())
}

fn begin_together(comm: &Stage<'_>) -> Outcome {
    const EACH: u64 = 25;
    for link in comm.choices().into_iter().skip(1) {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        line.fill(1)?;
        let epochs = AtomicU64::new(0);
        on_threads(2, |_| {
            let mut done = 0;
            while done < EACH {
                match halo.exchange() {
                    Ok(pending) => {
                        // Each epoch is given once.
                        epochs.fetch_add(pending.epoch(), Ordering::Relaxed);
                        pending.wait()?;
                        done += 1;
                    }
                    Err(Error::InFlight { .. }) => std::thread::yield_now(),
                    Err(other) => fail!("beginning an exchange beside another thread: {other}"),
                }
            }
            Ok(())
        })?;
        let (sum, all) = (epochs.into_inner(), 2 * EACH);
        ensure!(sum == all * (all + 1) / 2, "{link:?}: the epochs add up to {sum}");
        line.check(1)?;
    }
    Ok(())
}
