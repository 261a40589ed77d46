//! Several sets of fields bound together, of which each exchange takes one.

use super::fixture::{Line, in_flight, still_works};
use crate::form::{Form, Kind};
use crate::numbers::Numbers;
use crate::scene::{Grid, Scene, by, choices, ring_neighbours};
use crate::subject::{Home, Subject};
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{BindOptions, Communicator, ElementType, Error, Field, HaloExchange, LinkChoice, Pattern};

pub(crate) const CASES: &[Case] = &[
    Case { name: "alternatives::time_levels_that_swap", run: swap },
    Case { name: "alternatives::sets_of_other_fields_and_patterns", run: other_fields },
    Case { name: "alternatives::the_sets_not_chosen_stay_as_they_are", run: untouched },
    Case { name: "alternatives::a_set_that_there_is_not", run: no_such_set },
    Case { name: "alternatives::handles_of_one_set", run: handles },
    Case { name: "alternatives::other_sets_on_one_rank_are_refused", run: refused },
];

/// Binds scenes as alternatives. Collective.
fn bind(comm: &Communicator, scenes: &[Scene], link: LinkChoice) -> Result<HaloExchange, Error> {
    let fields: Vec<_> = scenes.iter().map(Scene::fields).collect();
    let sets: Vec<&[(&Pattern, &Field)]> = fields.iter().map(Vec::as_slice).collect();
    HaloExchange::bind_alternatives(comm, &sets, &by(link))
}

/// One step of one of the sets.
fn step(scene: &mut Scene, halo: &HaloExchange, set: usize) -> Outcome {
    scene.next();
    halo.exchange_set(set)?.wait()?;
    scene.check().map_err(|trouble| Trouble::new(format!("set {set}: {trouble}")))
}

fn swap(comm: &Communicator) -> Outcome {
    let grid = Grid::new(comm.size(), &[3 * comm.size(), 7], &[true, false], 1)?;
    for link in choices(comm) {
        let pattern = grid.pattern(comm)?;
        let kind = Kind::plain(ElementType::F64);
        let mut scenes = Vec::new();
        for number in 0..3 {
            let subjects = grid.subjects(comm, &pattern, number, (&kind, Home::Own), |_| Form::default())?;
            scenes.push(Scene::of(pattern.clone(), subjects));
        }
        let halo = bind(comm, &scenes, link)?;
        ensure!(halo.sets() == 3, "{} sets of 3", halo.sets());
        for turn in 0..30 {
            step(&mut scenes[turn % 3], &halo, turn % 3)?;
        }
    }
    Ok(())
}

/// Sets from nothing to much, some between other ranks than others, some in memory of the user's.
fn other_fields(comm: &Communicator) -> Outcome {
    let (ranks, forms) = (comm.size(), Form::all());
    let grids = [
        Grid::new(ranks, &[2 * ranks, 9], &[true, true], 2)?,
        Grid::new(ranks, &[3 * ranks], &[false], 1)?,
        Grid::new(ranks, &[5, 2 * ranks, 3], &[false, true, false], 1)?,
    ];
    for (round, link) in choices(comm).into_iter().enumerate() {
        let mut scenes = vec![Scene::default()];
        for (at, grid) in grids.iter().enumerate() {
            let mut scene = Scene::default();
            let pattern = grid.pattern(comm)?;
            for number in 0..=at as u64 {
                let kind = Kind { element: ElementType::F32, extra: vec![at + 1] };
                let home =
                    if round % 2 == 1 && link == LinkChoice::Message { Home::Foreign } else { Home::Own };
                let form = |domain: u64| forms[(domain as usize + at + round) % forms.len()].clone();
                scene.add(&pattern, grid.subjects(comm, &pattern, number, (&kind, home), form)?);
            }
            scenes.push(scene);
        }
        let halo = bind(comm, &scenes, link)?;
        let mut numbers = Numbers::new(round as u64);
        for _ in 0..25 {
            let set = numbers.below(scenes.len());
            step(&mut scenes[set], &halo, set)?;
        }
    }
    Ok(())
}

fn untouched(comm: &Communicator) -> Outcome {
    let grid = Grid::new(comm.size(), &[2 * comm.size(), 4], &[true, true], 1)?;
    for link in choices(comm) {
        let mut scenes = vec![Scene::simple(comm, &grid)?, Scene::simple(comm, &grid)?];
        let halo = bind(comm, &scenes, link)?;
        for turn in 0..6 {
            scenes.iter_mut().for_each(Scene::next);
            halo.exchange_set(turn % 2)?.wait()?;
            scenes[turn % 2].check()?;
            scenes[1 - turn % 2].subjects().try_for_each(Subject::check_untouched)?;
        }
    }
    Ok(())
}

fn no_such_set(comm: &Communicator) -> Outcome {
    let line = Line::new(comm)?;
    let halo = line.bind(comm, LinkChoice::Auto)?;
    for set in [1, usize::MAX] {
        match halo.exchange_set(set) {
            Err(Error::NoSuchSet { set: found, sets: 1 }) if found == set => {}
            other => fail!("set {set} of one: {other:?}"),
        }
        ensure!(
            matches!(halo.alternative(set), Err(Error::NoSuchSet { .. })),
            "a handle of set {set} of one"
        );
    }
    line.step(&halo, 1)?;
    ensure!(halo.exchange_set(0)?.epoch() == 2, "a refused exchange has taken an epoch");
    halo.wait()?;
    Ok(())
}

fn handles(comm: &Communicator) -> Outcome {
    let beside_0 = ring_neighbours(0, comm.size());
    for link in choices(comm) {
        let (one, other) = (Line::new(comm)?, Line::new(comm)?);
        let sets: [&[(&Pattern, &Field)]; 2] =
            [&[(&one.pattern, &one.array)], &[(&other.pattern, &other.array)]];
        let both = HaloExchange::bind_alternatives(comm, &sets, &by(link))?;
        let handles = [both.alternative(0)?, both.alternative(1)?];
        one.step(&handles[0], 1)?;
        other.step(&handles[1], 2)?;
        // One exchange in flight over all handles, and the arrays of the other set are free.
        one.fill(3)?;
        if comm.rank() == 0 {
            comm.barrier()?;
        }
        let pending = handles[0].exchange()?;
        if beside_0.contains(&comm.rank()) {
            in_flight(handles[1].exchange(), 3)?;
            in_flight(both.exchange(), 3)?;
            ensure!(one.array.write().is_err(), "an array in flight is lent");
        }
        other.array.write()?.fill(1);
        if comm.rank() != 0 {
            comm.barrier()?;
        }
        drop(both);
        pending.wait()?;
        one.check(3)?;
        let [first, second] = handles;
        drop(first);
        for turn in 4..8 {
            other.step(&second, turn)?;
        }
    }
    Ok(())
}

fn refused(comm: &Communicator) -> Outcome {
    let odd = comm.rank() + 1 == comm.size();
    let line = Line::new(comm)?;
    let set: &[(&Pattern, &Field)] = &[(&line.pattern, &line.array)];
    let options = BindOptions::default();
    let none = HaloExchange::bind_alternatives(comm, &[], &options);
    ensure!(matches!(none, Err(Error::Bind(_))), "no set at all: {none:?}");
    if comm.size() > 1 {
        let sets = [set, set, set];
        let count = if odd { 3 } else { 2 };
        let result = HaloExchange::bind_alternatives(comm, &sets[..count], &options);
        ensure!(matches!(result, Err(Error::Bind(_) | Error::Elsewhere { .. })), "2 sets or 3: {result:?}");
        // The second set lacks a field on one rank.
        let sets = [set, if odd { &[] } else { set }];
        match HaloExchange::bind_alternatives(comm, &sets, &options) {
            Err(Error::Set { set: 1, .. } | Error::Elsewhere { .. }) => {}
            other => fail!("a set without a field: {other:?}"),
        }
    }
    // Two fields of one set, but not those of two, must be apart.
    let twice = [(&line.pattern, &*line.array), (&line.pattern, &*line.array)];
    match HaloExchange::bind_alternatives(comm, &[set, &twice], &options) {
        Err(Error::Set { set: 1, .. }) => {}
        other => fail!("the same field twice in one set: {other:?}"),
    }
    let halo = HaloExchange::bind_alternatives(comm, &[set, set], &options)?;
    line.step(&halo, 1)?;
    still_works(comm)
}
