//! Exchanges in flight: polled, waited for in any order, dropped.

use super::fixture::{Line, Words, in_flight, poll};
use crate::fixtures::{Fixture, Grid, by, ring, ring_neighbours};
use crate::form::{Form, Kind};
use crate::stage::Stage;
use crate::subject::Subject;
use crate::{Case, Outcome, ensure, fail};
use halocline::{
    ArrayError, Communicator, ElementType, Error, HaloExchange, LinkChoice, Pending, RegularGrid,
};

pub(crate) const CASES: &[Case] = &[
    Case { name: "flight::many_objects_at_once", run: many_objects },
    Case { name: "flight::is_ready_makes_progress", run: is_ready },
    Case { name: "flight::a_wait_may_come_twice_or_late", run: wait_again },
    Case { name: "flight::a_pending_dropped_or_forgotten", run: forgotten },
    Case { name: "flight::collectives_meanwhile", run: collectives_meanwhile },
    Case { name: "flight::a_computing_rank_makes_progress", run: served_while_away },
    Case { name: "flight::a_sender_ahead_of_its_receiver_leaves", run: sender_ahead },
    Case { name: "flight::the_same_fields_bound_twice", run: bound_twice },
    Case { name: "flight::nothing_bound", run: nothing_bound },
];

/// What memory of the host alone shows.
pub(crate) const OF_HOST: &[Case] = &[
    Case { name: "flight::begun_in_another_order_on_each_rank", run: other_orders },
    Case { name: "flight::a_second_exchange_and_guards_are_refused", run: second_refused },
    Case { name: "flight::an_exchange_of_a_borrowed_array_is_refused", run: borrowed },
    Case { name: "flight::owned_cells_stay_as_they_are", run: owned_cells },
    Case { name: "flight::an_array_in_two_objects_at_once_is_refused", run: shared_array },
];

fn many_objects(comm: &Stage<'_>) -> Outcome {
    let grid = Grid::new(comm.size(), &[2 * comm.size(), 5], &[true, true], 1)?;
    let mut fixtures = Vec::new();
    for link in comm.paths().into_iter().chain(comm.paths()) {
        let fixture = Fixture::simple(comm, &grid)?;
        let halo = fixture.bind(comm, &by(link))?;
        fixtures.push((fixture, halo));
    }
    for turn in 0..6 {
        let mut flying: Vec<Pending> = Vec::new();
        for (fixture, halo) in &mut fixtures {
            fixture.next();
            flying.push(halo.exchange()?);
        }
        if turn % 2 == 0 {
            flying.reverse();
        }
        flying.iter().try_for_each(Pending::wait)?;
        fixtures.iter().try_for_each(|(fixture, _)| fixture.check())?;
    }
    Ok(())
}

fn other_orders(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let lines = [Line::new(comm)?, Line::new(comm)?, Line::new(comm)?];
        let mut objects = Vec::new();
        for line in &lines {
            objects.push(line.bind(comm, link)?);
        }
        for step in 1..10 {
            lines.iter().try_for_each(|line| line.fill(step))?;
            let order = |at: usize| (at * (1 + comm.rank() % 2) + comm.rank()) % 3;
            let begun: Result<Vec<Pending>, Error> = (0..3).map(|at| objects[order(at)].exchange()).collect();
            begun?.iter().try_for_each(Pending::wait)?;
            lines.iter().try_for_each(|line| line.check(step))?;
        }
    }
    Ok(())
}

fn is_ready(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        for step in 1..10 {
            line.fill(step)?;
            let pending = halo.exchange()?;
            poll(comm, || pending.is_ready())?;
            line.check(step)?;
            ensure!(pending.is_ready()?, "what was ready is not any more");
            pending.wait()?;
        }
    }
    Ok(())
}

fn wait_again(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        halo.wait()?;
        line.fill(1)?;
        let first = halo.exchange()?;
        first.wait()?;
        first.wait()?;
        line.fill(2)?;
        let second = halo.exchange()?;
        ensure!((first.epoch(), second.epoch()) == (1, 2), "epochs {} and {}", first.epoch(), second.epoch());
        // The first is over; waiting for it says nothing of the second.
        first.wait()?;
        halo.wait()?;
        line.check(2)?;
        second.wait()?;
        line.check(2)?;
    }
    Ok(())
}

fn forgotten(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        for step in 1..8 {
            line.fill(step)?;
            let pending = halo.exchange()?;
            match step % 2 {
                0 => drop(pending),
                _ => std::mem::forget(pending),
            }
            halo.wait()?;
            line.check(step)?;
        }
    }
    Ok(())
}

fn second_refused(comm: &Stage<'_>) -> Outcome {
    for (round, link) in (0..).zip(comm.paths()) {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        let words = Words::new(comm);
        line.fill(round)?;
        let lacks_rank_0 = ring_neighbours(0, comm.size()).contains(&comm.rank());
        if comm.rank() == 0 {
            for rank in ring_neighbours(0, comm.size()) {
                words.hear(rank, round)?;
            }
        }
        let pending = halo.exchange()?;
        if lacks_rank_0 {
            in_flight(halo.exchange(), 1)?;
            ensure!(!pending.is_ready()?, "ready although rank 0 has not come");
            let array = line.array.on_host()?;
            match (array.read().map(drop), array.write().map(drop)) {
                (Err(Error::Array(ArrayError::InFlight)), Err(Error::Array(ArrayError::InFlight))) => {}
                other => fail!("guards of an array in flight: {other:?}"),
            }
            words.say(0, round)?;
        }
        pending.wait()?;
        line.check(round)?;
        // What was refused took no epoch.
        line.step(&halo, round + 100)?;
        ensure!(halo.exchange()?.epoch() == 3, "a refused exchange has taken an epoch");
        halo.wait()?;
    }
    Ok(())
}

fn borrowed(comm: &Stage<'_>) -> Outcome {
    let (first, second) = (Line::new(comm)?, Line::new(comm)?);
    let arrays = [first.array.on_host()?, second.array.on_host()?];
    let halo = HaloExchange::bind(comm, [(&first.pattern, &first.array), (&second.pattern, &second.array)])?;
    for step in 1..4 {
        first.fill(step)?;
        second.fill(step)?;
        if comm.rank().is_multiple_of(2) {
            for writing in [false, true] {
                let guards = (
                    (!writing).then(|| arrays[1].read()).transpose()?,
                    writing.then(|| arrays[1].write()).transpose()?,
                );
                match halo.exchange() {
                    Err(Error::Borrowed { field: 1 }) => {}
                    other => fail!("an exchange of a borrowed array: {other:?}"),
                }
                drop(guards);
            }
            let (_one, _two) = (arrays[0].read()?, arrays[0].read()?);
            match arrays[0].write().map(drop) {
                Err(Error::Array(ArrayError::Borrowed)) => {}
                other => fail!("a writing guard beside reading ones: {other:?}"),
            }
        }
        let pending = halo.exchange()?;
        ensure!(pending.epoch() == step, "refused exchanges have taken epochs: {}", pending.epoch());
        pending.wait()?;
        first.check(step)?;
        second.check(step)?;
    }
    Ok(())
}

fn collectives_meanwhile(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        for step in 1..20 {
            line.fill(step)?;
            let pending = halo.exchange()?;
            comm.barrier()?;
            let all = comm.all_gather(&step.to_le_bytes())?;
            ensure!(all.iter().all(|theirs| *theirs == step.to_le_bytes()), "an all-gather in flight");
            pending.wait()?;
            line.check(step)?;
        }
    }
    Ok(())
}

/// Rank 0 begins before the others, so that nothing can be done at once, and then calls the object no
/// more until the others are through.
fn served_while_away(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        let words = Words::new(comm);
        for step in 1..10 {
            line.fill(step)?;
            if comm.rank() != 0 {
                words.hear(0, 2 * step)?;
            }
            let pending = halo.exchange()?;
            if comm.rank() == 0 {
                (1..comm.size()).try_for_each(|rank| words.say(rank, 2 * step))?;
            } else {
                pending.wait()?;
            }
            words.all_tell(0, 2 * step + 1)?;
            pending.wait()?;
            line.check(step)?;
        }
    }
    Ok(())
}

/// Data go upwards only. A sender gets ahead until it must wait for its receiver, then drops its handle
/// and sits in a barrier; the receiver, which comes late, must still get everything.
fn sender_ahead(comm: &Stage<'_>) -> Outcome {
    const STEPS: u64 = 6;
    let decomposition = RegularGrid::new([3 * comm.size()]).decompose(comm.size())?;
    let grid = Grid::cut(decomposition, &[false], &[(1, 0)]);
    for link in comm.paths() {
        let mut fixture = Fixture::simple(comm, &grid)?;
        let halo = fixture.bind(comm, &by(link))?;
        let words = Words::new(comm);
        let mut begun = 0;
        if comm.rank() == 0 {
            // As far as it goes without the receiver.
            while begun < STEPS {
                begun += 1;
                fixture.next();
                let pending = halo.exchange()?;
                if !pending.is_ready()? {
                    break;
                }
            }
        }
        words.tell_all(0, 0)?;
        if comm.rank() == 0 {
            if comm.size() > 1 {
                words.hear(1, begun)?;
            }
            halo.wait()?;
            fixture.steps(&halo, (STEPS - begun) as usize)?;
        } else {
            for step in 1..=STEPS {
                fixture.steps(&halo, 1)?;
                if comm.rank() == 1 {
                    words.say(0, step)?;
                }
            }
        }
        comm.barrier()?;
    }
    Ok(())
}

fn owned_cells(comm: &Stage<'_>) -> Outcome {
    let grid = Grid::new(comm.size(), &[2 * comm.size(), 6], &[true, true], 1)?;
    for link in comm.paths() {
        let mut fixture = Fixture::simple(comm, &grid)?;
        let halo = fixture.bind(comm, &by(link))?;
        for _ in 0..5 {
            fixture.next();
            let pending = halo.exchange()?;
            fixture.subjects().try_for_each(Subject::check_owned)?;
            pending.wait()?;
            fixture.check()?;
        }
    }
    Ok(())
}

fn bound_twice(comm: &Stage<'_>) -> Outcome {
    let grid = ring(comm)?;
    let pattern = grid.pattern(comm)?;
    let kind = Kind::plain(ElementType::F64);
    let subjects = grid.subjects(comm, &pattern, 0, (&kind, comm.home()), |_| Form::default())?;
    let mut fixture = Fixture::of(pattern, subjects);
    let mut objects = Vec::new();
    for link in comm.paths() {
        objects.push(fixture.bind(comm, &by(link))?);
    }
    for turn in 0..10 {
        fixture.steps(&objects[turn % objects.len()], 1)?;
    }
    Ok(())
}

fn shared_array(comm: &Stage<'_>) -> Outcome {
    let (line, words) = (Line::new(comm)?, Words::new(comm));
    let [_, one, _, other, _] = comm.choices();
    let (one, other) = (line.bind(comm, one)?, line.bind(comm, other)?);
    let beside_0 = ring_neighbours(0, comm.size());
    line.fill(1)?;
    if comm.rank() == 0 {
        beside_0.iter().try_for_each(|&rank| words.hear(rank, 0))?;
    }
    let pending = one.exchange()?;
    if beside_0.contains(&comm.rank()) {
        // Rank 0 has not come: the array is in flight for sure.
        match other.exchange() {
            Err(Error::Shared { field: 0 }) => {}
            result => fail!("an array in flight was begun again: {result:?}"),
        }
        words.say(0, 0)?;
    }
    pending.wait()?;
    line.check(1)?;
    line.step(&other, 2)
}

fn nothing_bound(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let halo = HaloExchange::bind_with(comm, (), &by(link))?;
        for _ in 0..3 {
            let pending = halo.exchange()?;
            ensure!(pending.is_ready()?, "an exchange of nothing is not over at once");
            pending.wait()?;
        }
    }
    // A rank alone is its own neighbour, and needs no link.
    let alone = Communicator::single();
    let line = Line::new(&comm.of(&alone))?;
    line.step(&line.bind(&alone, LinkChoice::Auto)?, 1)
}
