//! Objects dropped at any time, also in flight, and what happens to their memory.

use super::fixture::{Line, Words, poll, still_works};
use crate::fixtures::{Fixture, Grid, by, ring};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline::{ArrayError, ElementType, Error, HaloExchange, Layout, PatternLinks, Reduce};

pub(crate) const CASES: &[Case] = &[
    Case { name: "lifetimes::an_object_dropped_before_its_first_exchange", run: unused },
    Case { name: "lifetimes::objects_dropped_in_flight_beside_one_that_goes_on", run: dropped_in_flight },
    Case { name: "lifetimes::an_exchange_dropped_in_flight_still_reaches_the_others", run: dropped_by_one },
    Case { name: "lifetimes::a_pending_outlives_its_object", run: pending_outlives },
    Case { name: "lifetimes::handles_are_dropped_in_any_order", run: any_order },
    Case { name: "lifetimes::foreign_memory_is_released", run: foreign_let_go },
];

/// What memory of the host alone shows.
pub(crate) const OF_HOST: &[Case] = &[
    Case { name: "lifetimes::an_array_is_released_when_a_dropped_exchange_ends", run: array_comes_back },
    Case { name: "lifetimes::binds_leave_no_descriptor_and_no_mapping_behind", run: nothing_left },
];

fn unused(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        drop(line.bind(comm, link)?);
    }
    still_works(comm)
}

fn dropped_in_flight(comm: &Stage<'_>) -> Outcome {
    let mut lasting = Fixture::simple(comm, &ring(comm)?)?;
    let lasting_halo = lasting.bind(comm, &by(comm.choices()[0]))?;
    for turn in 0..10 {
        let mut fixture =
            Fixture::simple(comm, &Grid::new(comm.size(), &[3 * comm.size(), 8], &[true, false], 2)?)?;
        let halo = fixture.bind(comm, &by(comm.choices()[turn % 5]))?;
        fixture.steps(&halo, turn % 3)?;
        lasting.next();
        let going_on = lasting_halo.exchange()?;
        fixture.next();
        let pending = halo.exchange()?;
        match turn % 3 {
            0 => drop(pending),
            1 => std::mem::forget(pending),
            _ => {
                pending.is_ready()?;
            }
        }
        drop((halo, fixture));
        going_on.wait()?;
        lasting.check()?;
    }
    still_works(comm)
}

fn dropped_by_one(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        for dropper in [0, comm.size() - 1] {
            let line = Line::new(comm)?;
            let words = Words::new(comm);
            let halo = line.bind(comm, link)?;
            line.fill(1)?;
            if comm.rank() == dropper {
                // Begun and dropped before any other rank begins.
                drop(halo.exchange()?);
                drop((halo, line));
                words.tell_all(dropper, 0)?;
            } else {
                words.tell_all(dropper, 0)?;
                halo.exchange()?.wait()?;
                line.check(1)?;
            }
        }
    }
    still_works(comm)
}

fn pending_outlives(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        line.fill(1)?;
        let pending = halo.exchange()?;
        drop(halo);
        pending.wait()?;
        line.check(1)?;
        ensure!(pending.is_ready()?, "what was waited for is not ready");
    }
    Ok(())
}

fn array_comes_back(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let words = Words::new(comm);
        let halo = line.bind(comm, link)?;
        line.fill(1)?;
        if comm.rank() == 0 {
            words.all_tell(0, 0)?;
        }
        drop(halo.exchange()?);
        drop(halo);
        if comm.rank() != 0 {
            words.all_tell(0, 0)?;
        }
        // No thread waits or holds the object: the rank's progress thread finishes it.
        let array = line.array.on_host()?;
        poll(comm, || match array.read() {
            Ok(_) => Ok(true),
            Err(Error::Array(ArrayError::InFlight)) => Ok(false),
            Err(other) => Err(other),
        })?;
        line.check(1)?;
    }
    Ok(())
}

fn foreign_let_go(comm: &Stage<'_>) -> Outcome {
    let pattern = ring(comm)?.pattern(comm)?;
    for (link, in_flight) in comm.paths().into_iter().flat_map(|link| [(link, false), (link, true)]) {
        let (field, held) = comm.lent(&Layout::c_order(ElementType::U8, &[6])?)?;
        let possible = super::foreign::is_reached(comm)?;
        let forced = matches!(link, halocline::LinkChoice::Push | halocline::LinkChoice::Pull);
        if forced && !possible && comm.size() > 1 && !comm.is_on_device() {
            continue;
        }
        let halo = HaloExchange::bind_with(comm, [(&pattern, &field)], &by(link))?;
        drop(field);
        let pending = halo.exchange()?;
        if !in_flight {
            pending.wait()?;
        }
        ensure!(held.upgrade().is_some(), "a bound object does not hold its memory");
        drop((pending, halo));
        poll(comm, || Ok(held.strong_count() == 0))?;
    }
    still_works(comm)
}

/// Descriptors and mappings of this process.
pub(super) fn belongings() -> Result<(usize, usize), crate::Trouble> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    Ok((std::fs::read_dir("/proc/self/fd")?.count(), maps.lines().count()))
}

fn nothing_left(comm: &Stage<'_>) -> Outcome {
    let some_binds = || -> Outcome {
        for turn in 0..40 {
            let line = Line::new(comm)?;
            let halo = line.bind(comm, comm.choices()[1 + turn % 4])?;
            line.step(&halo, 1)?;
            // The first exchange may be over before the larger buffers that it asks for have come.
            let large = comm.zeros::<f64>(&[5, 1000])?;
            PatternLinks::new(comm, &[&line.pattern])?.exchange(&[(&line.pattern, &large)])?.wait()?;
        }
        comm.barrier()?;
        Ok(())
    };
    some_binds()?;
    let mut grown = (0, 0);
    // Peers' last words may still be under way, and other threads of the process have belongings, too: what is lost at each bind is
    // lost in every round.
    for _ in 0..10 {
        let before = belongings()?;
        comm.barrier()?;
        some_binds()?;
        let after = belongings()?;
        grown = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        let is_more = u64::from(grown.0 >= 20 || grown.1 >= 40);
        if comm.all_reduce(&[is_more], Reduce::Max)? == [0] {
            return Ok(());
        }
    }
    fail!("40 binds leave {} descriptors, {} mappings, round after round", grown.0, grown.1)
}

fn any_order(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let mine = comm.duplicate()?;
        let halo = line.bind(&mine, link)?;
        let array = line.array.clone();
        line.fill(1)?;
        let pending = halo.exchange()?;
        // The communicator first, then the pattern and one handle of the array, then the object.
        drop(mine);
        drop(line);
        pending.wait()?;
        drop(halo);
        drop(pending);
        ensure!(array.get()?.iter().all(|&cell| cell != u64::MAX), "the halo was not filled");
        drop(array);
    }
    Ok(())
}
