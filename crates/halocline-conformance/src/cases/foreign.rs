//! Memory that the library does not own.

use crate::fixtures::{Fixture, Grid, by, ring, ring_neighbours, shares_memory};
use crate::form::{Form, Kind};
use crate::stage::Stage;
use crate::subject::Home;
use crate::{Case, Outcome, Trouble, ensure};
use halocline::{ElementType, LinkChoice, LinkCounts};
use halocline_comm::Endpoint;

pub(crate) const CASES: &[Case] = &[
    Case { name: "foreign::memory_uses_the_best_path_that_reaches_it", run: best_path },
    Case { name: "foreign::memory_on_some_ranks_only", run: some_ranks },
    Case { name: "foreign::and_own_fields_in_one_bind", run: mixed },
    Case { name: "foreign::memory_outlives_its_user", run: outlives },
];

/// Whether other ranks reach memory that is not the library's.
pub(crate) fn is_reached(comm: &Stage<'_>) -> Result<bool, Trouble> {
    // What the transport says of a segment without a descriptor is what it says of foreign memory.
    let Some(segment) = halocline_comm::Segment::heap(8) else { crate::fail!("no memory") };
    Ok(comm.link().reach((comm.rank() + 1) % comm.size(), &segment).is_ok())
}

fn fixture(comm: &Stage<'_>, grid: &Grid, home: Home, number: u64) -> Result<Fixture, Trouble> {
    let pattern = grid.pattern(comm)?;
    let kind = Kind::with_extra(ElementType::F64, &[2]);
    let subjects = grid.subjects(comm, &pattern, number, (&kind, home), |domain| match domain % 3 {
        0 => Form::default(),
        1 => Form::negative(),
        _ => Form::shuffled(),
    })?;
    Ok(Fixture::of(pattern, subjects))
}

fn best_path(comm: &Stage<'_>) -> Outcome {
    let mut fixture = fixture(comm, &ring(comm)?, Home::Foreign, 0)?;
    let links = 2 * ring_neighbours(comm.rank(), comm.size()).len();
    let reached = is_reached(comm)?;
    for link in [0, 3, 4].map(|at| comm.choices()[at]) {
        let halo = fixture.bind(comm, &by(link))?;
        let counts: LinkCounts = halo.links().collect();
        match link {
            LinkChoice::Message => ensure!(counts.message == links, "{counts:?}"),
            LinkChoice::Auto if reached => ensure!(counts.direct == links, "{counts:?}"),
            LinkChoice::Auto if !shares_memory(comm) => ensure!(counts.direct == 0, "{counts:?}"),
            _ => ensure!(counts.mailbox == links, "{link:?}: {counts:?}"),
        }
        let why = halo.explain().contains("its memory belongs to this process alone");
        let wanted = link == LinkChoice::Auto && !reached && links > 0;
        ensure!(
            why == wanted || !shares_memory(comm),
            "{link:?}: why is there no better path?\n{}",
            halo.explain()
        );
        fixture.steps(&halo, 5)?;
    }
    Ok(())
}

fn some_ranks(comm: &Stage<'_>) -> Outcome {
    // By Auto, what the one side cannot reach the other one still may.
    let home = if comm.rank().is_multiple_of(2) { comm.home() } else { Home::Foreign };
    let mut fixture = fixture(comm, &ring(comm)?, home, 0)?;
    for link in [0, 3, 4].map(|at| comm.choices()[at]) {
        let halo = fixture.bind(comm, &by(link))?;
        fixture.steps(&halo, 3)?;
        let counts: LinkCounts = halo.links().collect();
        let reached = is_reached(comm)? || comm.size() % 2 == 1;
        let two_homes = link == LinkChoice::Auto && !reached && comm.size() > 1;
        // Each link has one end in shared memory: it is pushed there, or pulled from there.
        ensure!(!two_homes || counts.mailbox == 0, "{counts:?}\n{}", halo.explain());
    }
    Ok(())
}

fn mixed(comm: &Stage<'_>) -> Outcome {
    let grid = Grid::new(comm.size(), &[2 * comm.size(), 5], &[true, true], 1)?;
    let pattern = grid.pattern(comm)?;
    let kind = Kind::plain(ElementType::F32);
    let mut fixture = Fixture::default();
    for (number, home) in [(0, comm.home()), (1, Home::Foreign), (2, comm.home())] {
        let subjects = grid.subjects(comm, &pattern, number, (&kind, home), |_| Form::default())?;
        fixture.add(&pattern, subjects);
    }
    for link in comm.paths() {
        let impossible = matches!(link, LinkChoice::Push | LinkChoice::Pull) && !is_reached(comm)?;
        if !impossible {
            let halo = fixture.bind(comm, &by(link))?;
            fixture.steps(&halo, 3)?;
        }
    }
    Ok(())
}

fn outlives(comm: &Stage<'_>) -> Outcome {
    let grid = ring(comm)?;
    let mut fixture = fixture(comm, &grid, Home::Foreign, 0)?;
    let halo = fixture.bind(comm, &by(LinkChoice::Auto))?;
    fixture.steps(&halo, 2)?;
    // The user's handles go while an exchange is in flight; the object holds the memory.
    let pending = halo.exchange()?;
    drop(fixture);
    pending.wait()?;
    halo.exchange()?.wait()?;
    Ok(())
}
