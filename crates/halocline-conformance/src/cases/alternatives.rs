//! Several sets of fields bound together; each exchange names one.

use super::fixture::{Line, in_flight, still_works};
use crate::fixtures::{Fixture, Grid, by, ring_neighbours};
use crate::form::{Form, Kind};
use crate::numbers::Numbers;
use crate::stage::{Cells, Stage};
use crate::subject::Subject;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{
    BindError, BindOptions, DomainShape, ElementType, Error, Field, Halo, HaloExchange, LinkChoice, Pattern,
    RegularGrid, UnstructuredDomain,
};

pub(crate) const CASES: &[Case] = &[
    Case { name: "alternatives::time_levels_that_swap", run: swap },
    Case { name: "alternatives::sets_of_other_fields_and_patterns", run: other_fields },
    Case { name: "alternatives::the_sets_not_chosen_stay_as_they_are", run: untouched },
    Case { name: "alternatives::a_set_that_does_not_exist_is_refused", run: no_such_set },
    Case { name: "alternatives::other_sets_on_one_rank_are_refused", run: refused },
    Case { name: "alternatives::handles_of_one_set", run: handles },
    Case { name: "alternatives::wide_and_narrow_in_turn", run: wide_and_narrow },
    Case { name: "alternatives::narrowed_handles_outlive_wide_ones", run: narrow_alone },
    Case { name: "alternatives::narrowing_that_is_refused", run: narrowing_refused },
];

/// Binds fixtures as alternatives. Collective.
fn bind(comm: &Stage<'_>, fixtures: &[Fixture], link: LinkChoice) -> Result<HaloExchange, Error> {
    let fields: Vec<_> = fixtures.iter().map(Fixture::fields).collect();
    let sets: Vec<&[(&Pattern, &Field)]> = fields.iter().map(Vec::as_slice).collect();
    HaloExchange::bind_alternatives(comm, &sets, &by(link))
}

/// One step of one of the sets.
fn step(fixture: &mut Fixture, halo: &HaloExchange, set: usize) -> Outcome {
    fixture.step_of(halo, set).map_err(|trouble| Trouble::new(format!("set {set}: {trouble}")))
}

fn swap(comm: &Stage<'_>) -> Outcome {
    let grid = Grid::new(comm.size(), &[3 * comm.size(), 7], &[true, false], 1)?;
    for link in comm.paths() {
        let pattern = grid.pattern(comm)?;
        let kind = Kind::plain(ElementType::F64);
        let mut fixtures = Vec::new();
        for number in 0..3 {
            let subjects =
                grid.subjects(comm, &pattern, number, (&kind, comm.home()), |_| Form::default())?;
            fixtures.push(Fixture::of(pattern.clone(), subjects));
        }
        let halo = bind(comm, &fixtures, link)?;
        ensure!(halo.sets() == 3, "{} sets of 3", halo.sets());
        for turn in 0..30 {
            step(&mut fixtures[turn % 3], &halo, turn % 3)?;
        }
    }
    Ok(())
}

/// Sets from nothing to much, some between other ranks than others, some in memory of the user's.
fn other_fields(comm: &Stage<'_>) -> Outcome {
    let (ranks, forms) = (comm.size(), Form::all());
    let grids = [
        Grid::new(ranks, &[2 * ranks, 9], &[true, true], 2)?,
        Grid::new(ranks, &[3 * ranks], &[false], 1)?,
        Grid::new(ranks, &[5, 2 * ranks, 3], &[false, true, false], 1)?,
    ];
    for (round, link) in comm.paths().into_iter().enumerate() {
        let mut fixtures = vec![Fixture::default()];
        for (at, grid) in grids.iter().enumerate() {
            let mut fixture = Fixture::default();
            let pattern = grid.pattern(comm)?;
            for number in 0..=at as u64 {
                let kind = Kind { element: ElementType::F32, extra: vec![at + 1] };
                let home =
                    if round % 2 == 1 && link == LinkChoice::Message { comm.foreign() } else { comm.home() };
                let form = |domain: u64| forms[(domain as usize + at + round) % forms.len()].clone();
                fixture.add(&pattern, grid.subjects(comm, &pattern, number, (&kind, home), form)?);
            }
            fixtures.push(fixture);
        }
        let halo = bind(comm, &fixtures, link)?;
        let mut numbers = Numbers::new(round as u64);
        for _ in 0..25 {
            let set = numbers.below(fixtures.len());
            step(&mut fixtures[set], &halo, set)?;
        }
    }
    Ok(())
}

fn untouched(comm: &Stage<'_>) -> Outcome {
    let grid = Grid::new(comm.size(), &[2 * comm.size(), 4], &[true, true], 1)?;
    for link in comm.paths() {
        let mut fixtures = vec![Fixture::simple(comm, &grid)?, Fixture::simple(comm, &grid)?];
        let halo = bind(comm, &fixtures, link)?;
        for turn in 0..6 {
            fixtures.iter_mut().for_each(Fixture::next);
            halo.begin().set(turn % 2).start()?.wait()?;
            fixtures[turn % 2].check()?;
            fixtures[1 - turn % 2].subjects().try_for_each(Subject::check_untouched)?;
        }
    }
    Ok(())
}

fn no_such_set(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm)?;
    let halo = line.bind(comm, LinkChoice::Auto)?;
    for set in [1, usize::MAX] {
        match halo.begin().set(set).start() {
            Err(Error::NoSuchSet { set: found, sets: 1 }) if found == set => {}
            other => fail!("set {set} of one: {other:?}"),
        }
        ensure!(
            matches!(halo.alternative(set), Err(Error::NoSuchSet { .. })),
            "a handle of set {set} of one"
        );
    }
    line.step(&halo, 1)?;
    ensure!(halo.begin().set(0).start()?.epoch() == 2, "a refused exchange has taken an epoch");
    halo.wait()?;
    Ok(())
}

fn handles(comm: &Stage<'_>) -> Outcome {
    let beside_0 = ring_neighbours(0, comm.size());
    for link in comm.paths() {
        let (one, other) = (Line::new(comm)?, Line::new(comm)?);
        let sets: [&[(&Pattern, &Field)]; 2] =
            [&[(&one.pattern, &one.array)], &[(&other.pattern, &other.array)]];
        let both = HaloExchange::bind_alternatives(comm, &sets, &by(link))?;
        let handles = [both.alternative(0)?, both.alternative(1)?];
        one.step(&handles[0], 1)?;
        other.step(&handles[1], 2)?;
        // Of host fields one exchange is in flight over all handles, and the arrays of the other set are free.
        one.fill(3)?;
        if comm.rank() == 0 {
            comm.barrier()?;
        }
        let pending = handles[0].exchange()?;
        if let (Cells::Host(array), true) = (&one.array, beside_0.contains(&comm.rank())) {
            in_flight(handles[1].exchange(), 3)?;
            in_flight(both.exchange(), 3)?;
            ensure!(array.write().is_err(), "an array in flight is lent");
        }
        other.array.fill(1)?;
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

fn refused(comm: &Stage<'_>) -> Outcome {
    let odd = comm.rank() + 1 == comm.size();
    let line = Line::new(comm)?;
    let set: &[(&Pattern, &Field)] = &[(&line.pattern, &line.array)];
    let options = BindOptions::default();
    let none = HaloExchange::bind_alternatives(comm, &[(); 0], &options);
    ensure!(matches!(none, Err(Error::Bind(BindError::NoSets))), "no set at all: {none:?}");
    if comm.size() > 1 {
        let sets = [set, set, set];
        let count = if odd { 3 } else { 2 };
        let result = HaloExchange::bind_alternatives(comm, &sets[..count], &options);
        match result {
            Err(Error::Bind(BindError::SetCount { sets: 3, first: 2, .. }) | Error::Elsewhere { .. }) => {}
            other => fail!("2 sets or 3: {other:?}"),
        }
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

/// A ring of cells with a halo that is wider than it is always filled; `depth` cells at each side are to be
/// fresh, those beyond as they were.
struct Deep {
    pattern: Pattern,
    array: Cells<u64>,
    rank: usize,
    ranks: usize,
    before: Vec<u64>,
}

impl Deep {
    const OWNED: usize = 4;
    const WIDTH: usize = 3;

    fn regular(comm: &Stage<'_>) -> Result<Self, Trouble> {
        let extents = [Self::OWNED * comm.size()];
        let decomposition = RegularGrid::new(extents).periodic([true]).decompose(comm.size())?;
        let pattern = Grid::cut(decomposition, &[true], &[(Self::WIDTH, Self::WIDTH)]).pattern(comm)?;
        Self::new(comm, pattern)
    }

    /// The same as an unstructured domain, in the order of the array.
    fn unstructured(comm: &Stage<'_>) -> Result<Self, Trouble> {
        let (first, all) = (Self::OWNED * comm.rank(), Self::OWNED * comm.size());
        let owned = |at: usize| (first + at) as u64;
        // By depth, as levels are given.
        let beyond =
            |depth: usize| [all + first - 1 - depth, first + Self::OWNED + depth].map(|at| (at % all) as u64);
        let halo = (0..Self::WIDTH).flat_map(beyond).collect();
        let domain = UnstructuredDomain::new(comm.rank() as u64, (0..Self::OWNED).map(owned).collect(), halo);
        let ends = (0..=Self::WIDTH).map(|depth| Self::OWNED + 2 * depth).collect();
        Self::new(comm, Pattern::unstructured(comm, &[domain.with_levels(ends)])?)
    }

    fn new(comm: &Stage<'_>, pattern: Pattern) -> Result<Self, Trouble> {
        let array = comm.zeros(&[Self::OWNED + 2 * Self::WIDTH])?;
        let before = vec![0; Self::OWNED + 2 * Self::WIDTH];
        Ok(Self { pattern, array, rank: comm.rank(), ranks: comm.size(), before })
    }

    /// Depth in the halo and global number of every place of the array.
    fn places(&self) -> Vec<(usize, usize)> {
        let (owned, all) = (Self::OWNED, Self::OWNED * self.ranks);
        let global = |at: usize| (all + owned * self.rank + at - Self::WIDTH) % all;
        let regular = |at: usize| {
            (Self::WIDTH.saturating_sub(at).max((at + 1).saturating_sub(owned + Self::WIDTH)), global(at))
        };
        let listed = |at: usize| match at.checked_sub(owned) {
            None => (0, global(at + Self::WIDTH)),
            Some(beyond) if beyond % 2 == 0 => (beyond / 2 + 1, global(Self::WIDTH - 1 - beyond / 2)),
            Some(beyond) => (beyond / 2 + 1, global(owned + Self::WIDTH + beyond / 2)),
        };
        let is_regular = matches!(self.pattern.plan().domains[0].1, DomainShape::Regular { .. });
        (0..owned + 2 * Self::WIDTH).map(|at| if is_regular { regular(at) } else { listed(at) }).collect()
    }

    fn step(&mut self, halo: &HaloExchange, step: u64, depth: usize) -> Outcome {
        let fresh = |global: usize| 1000 * step + global as u64;
        let places = self.places();
        self.array.change(|cells| {
            let owned = places.iter().zip(cells.iter_mut()).filter(|((depth, _), _)| *depth == 0);
            owned.for_each(|((_, global), cell)| *cell = fresh(*global));
        })?;
        halo.exchange()?.wait()?;
        for (at, &found) in self.array.get()?.iter().enumerate() {
            let (beyond, global) = places[at];
            let expected = if beyond <= depth { fresh(global) } else { self.before[at] };
            ensure!(
                found == expected,
                "step {step}, depth {depth}, place {at}: {found} instead of {expected}"
            );
            self.before[at] = expected;
        }
        Ok(())
    }
}

fn wide_and_narrow(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let mut all = vec![Deep::regular(comm)?];
        if comm.size() > 2 {
            // In a list, a cell is in the halo once: the ring is longer than its halos.
            all.push(Deep::unstructured(comm)?);
        }
        for mut deep in all {
            let wide = HaloExchange::bind_with(comm, [(&deep.pattern, &deep.array)], &by(link))?;
            let narrow = wide.narrowed(&Halo::uniform(1))?;
            let narrower = narrow.narrowed(&Halo::uniform(0))?;
            let handles = [(&wide, Deep::WIDTH), (&narrow, 1), (&narrower, 0)];
            let mut numbers = Numbers::new(5);
            for step in 1..40 {
                let (halo, depth) = handles[numbers.below(3)];
                deep.step(halo, step, depth)?;
            }
            ensure!(narrow.explain() != wide.explain(), "both exchange as much: {}", wide.explain());
        }
    }
    Ok(())
}

fn narrow_alone(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let mut deep = Deep::regular(comm)?;
        let sets: [&[(&Pattern, &Field)]; 2] = [&[(&deep.pattern, &deep.array)], &[]];
        let wide = HaloExchange::bind_alternatives(comm, &sets, &by(link))?;
        let narrow = wide.narrowed(&Halo::uniform(2))?;
        ensure!(narrow.sets() == 2, "{} sets of 2", narrow.sets());
        deep.step(&wide, 1, Deep::WIDTH)?;
        let pending = narrow.begin().set(1).start()?;
        drop(wide);
        pending.wait()?;
        deep.step(&narrow, 2, 2)?;
        let pending = narrow.exchange()?;
        ensure!(pending.epoch() == 4, "exchanges of both count together, this one is {}", pending.epoch());
        drop(narrow);
        pending.wait()?;
    }
    still_works(comm)
}

fn narrowing_refused(comm: &Stage<'_>) -> Outcome {
    let deep = Deep::regular(comm)?;
    let wide = HaloExchange::bind(comm, [(&deep.pattern, &deep.array)])?;
    let odd = comm.rank() + 1 == comm.size();
    let wider = wide.narrowed(&Halo::uniform(4));
    ensure!(matches!(wider, Err(Error::Pattern(_))), "a wider halo: {wider:?}");
    if comm.size() > 1 {
        let differs = wide.narrowed(&Halo::uniform(if odd { 1 } else { 2 }));
        ensure!(differs.is_err(), "halos that differ between ranks are accepted");
    }
    wide.exchange()?.wait()?;
    still_works(comm)
}
