//! Guards of owned cells while an exchange is in flight. A guard is refused by the same rules however far the exchange has come.

use super::fixture::{Line, poll};
use crate::fixtures::{Grid, by, ring};
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{
    Array, ArrayError, Decomposed, Element, Error, Halo, HaloExchange, Layout, LinkChoice, OwnedGuard,
    Pattern, PatternLinks, Pending, Redistribute, RegularGrid, UnstructuredDomain,
};
use std::collections::BTreeSet;

pub(crate) const OF_HOST: &[Case] = &[
    Case { name: "owned::a_whole_array_is_refused_until_the_wait", run: whole_refused },
    Case { name: "owned::guards_after_each_way_to_complete", run: ends },
    Case { name: "owned::another_object_is_refused_until_the_wait", run: other_object },
    Case { name: "owned::a_guard_that_outlives_the_wait", run: outlives },
    Case { name: "owned::cells_of_regular_grids_in_any_layout", run: regular },
    Case { name: "owned::cells_in_any_local_order", run: listed },
    Case { name: "owned::fields_given_to_an_exchange", run: unbound },
    Case { name: "owned::one_of_several_sets", run: sets },
    Case { name: "owned::a_narrowed_halo", run: narrowed },
    Case { name: "owned::cells_of_a_redistribution", run: redistribution },
    Case { name: "owned::arrays_shared_with_another_exchange", run: not_exchanged },
    Case { name: "owned::read_by_two_threads_while_a_wait_ends", run: threads },
];

/// The whole array is refused, both ways.
fn is_refused<T: Element>(array: &Array<T>) -> Outcome {
    match (array.read().map(drop), array.write().map(drop)) {
        (Err(Error::Array(ArrayError::InFlight)), Err(Error::Array(ArrayError::InFlight))) => Ok(()),
        (read, write) => fail!("an array in flight: read {read:?}, write {write:?}"),
    }
}

/// What a guard shows, as positions and values; nothing else can be had of it.
fn shown(array: &Array<u64>, owned: &OwnedGuard<'_, u64>) -> Result<Vec<(usize, u64)>, Trouble> {
    let rows: Vec<(usize, u64)> = owned
        .rows()
        .flat_map(|(first, row)| row.iter().enumerate().map(move |(at, &cell)| (first + at, cell)))
        .collect();
    let positions: BTreeSet<usize> = rows.iter().map(|(position, _)| *position).collect();
    ensure!(positions.len() == rows.len(), "a cell is shown twice");
    for position in 0..array.layout().span().len() / 8 + 2 {
        let found = owned.get(position).is_some();
        ensure!(found == positions.contains(&position), "position {position} can be had: {found}");
    }
    Ok(rows)
}

/// Writes every element's position times a step into the array, so that owned cells tell where they are.
fn number(array: &Array<u64>, step: u64) -> Result<(), Error> {
    let mut cells = array.write()?;
    (0..).zip(cells.iter_mut()).for_each(|(position, cell)| *cell = step * position);
    Ok(())
}

/// The guard shows just these positions, with what [`number`] wrote there.
fn shows(array: &Array<u64>, pending: &Pending, step: u64, expected: &BTreeSet<usize>) -> Outcome {
    is_refused(array)?;
    let found = shown(array, &pending.owned(array)?)?;
    let expected: Vec<(usize, u64)> = expected.iter().map(|&at| (at, step * at as u64)).collect();
    ensure!(found == expected, "{found:?} instead of {expected:?}");
    is_refused(array)
}

/// Positions of the cells with these indices along the first axes of an array.
fn positions(layout: &Layout, is_owned: impl Fn(&[usize]) -> bool) -> BTreeSet<usize> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for &extent in layout.extents() {
        all = all.iter().flat_map(|head| (0..extent).map(|i| [&head[..], &[i]].concat())).collect();
    }
    let offset =
        |index: &Vec<usize>| index.iter().zip(layout.strides()).map(|(&i, s)| i as isize * s).sum::<isize>();
    let owned = all.iter().filter(|index| is_owned(index));
    owned.map(|index| (offset(index) - layout.span().start) as usize / 8).collect()
}

fn is_over(pending: &Pending, array: &Array<u64>) -> Outcome {
    match pending.owned(array).map(drop) {
        Err(Error::Array(ArrayError::NotInFlight { epoch })) if epoch == pending.epoch() => {
            Ok(array.read().map(drop)?)
        }
        other => fail!("owned cells of an exchange that is over: {other:?}"),
    }
}

fn whole_refused(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        let array = line.array.on_host()?;
        for step in 1..6 {
            line.fill(step)?;
            let before = line.array.get()?;
            let pending = halo.exchange()?;
            is_refused(array)?;
            // Other ranks have begun now; what lacks is done by others while this rank is away, or not.
            comm.barrier()?;
            is_refused(array)?;
            ensure!(pending.owned(array)?[1..4] == before[1..4], "owned cells have changed");
            pending.wait()?;
            is_over(&pending, array)?;
            line.check(step)?;
        }
    }
    Ok(())
}

fn ends(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm)?;
    let array = line.array.on_host()?;
    let halo = line.bind(comm, LinkChoice::Auto)?;
    for step in 1..=8 {
        line.fill(step)?;
        let pending = halo.exchange()?;
        is_refused(array)?;
        match step % 4 {
            0 => poll(comm, || pending.is_ready())?,
            // Its handle is dropped: the object still tells.
            1 => {
                drop(pending);
                is_refused(array)?;
                poll(comm, || halo.pending().map_or(Ok(false), |pending| pending.is_ready()))?;
                ensure!(halo.reclaim(), "an exchange that is over holds its memory");
            }
            2 => {
                drop(pending);
                is_refused(array)?;
                halo.wait()?;
            }
            _ => {
                let (before, pending) = (pending.epoch(), halo.pending());
                ensure!(pending.as_ref().is_some_and(|pending| pending.epoch() == before), "{pending:?}");
                pending.map_or(Ok(()), |pending| pending.wait())?;
            }
        }
        line.check(step)?;
    }
    // The object is dropped, its handle is not.
    line.fill(9)?;
    let pending = halo.exchange()?;
    drop(halo);
    comm.barrier()?;
    is_refused(array)?;
    drop(pending.owned(array)?);
    pending.wait()?;
    line.check(9)
}

fn other_object(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm)?;
    let (one, other) = (line.bind(comm, LinkChoice::Auto)?, line.bind(comm, LinkChoice::Message)?);
    line.fill(1)?;
    let pending = one.exchange()?;
    comm.barrier()?;
    match other.exchange() {
        Err(Error::Shared { field: 0 }) => {}
        result => fail!("an array in flight was begun again: {result:?}"),
    }
    pending.wait()?;
    line.check(1)?;
    line.step(&other, 2)
}

fn outlives(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm)?;
    let array = line.array.on_host()?;
    let (one, other) = (line.bind(comm, LinkChoice::Auto)?, line.bind(comm, LinkChoice::Message)?);
    line.fill(1)?;
    let before = line.array.get()?;
    let pending = one.exchange()?;
    let owned = [pending.owned(array)?, pending.owned(array)?];
    pending.wait()?;
    line.check(1)?;
    for halo in [&one, &other] {
        ensure!(owned[0][1..4] == before[1..4], "owned cells have changed");
        match halo.exchange() {
            Err(Error::Borrowed { field: 0 }) => {}
            result => fail!("an exchange beside a guard of owned cells: {result:?}"),
        }
        match array.write().map(drop) {
            Err(Error::Array(ArrayError::Borrowed)) => {}
            result => fail!("a writing guard beside one of owned cells: {result:?}"),
        }
    }
    let [first, second] = owned;
    drop(first);
    ensure!(array.write().is_err(), "one guard is dropped, the other is not");
    drop(second);
    line.step(&other, 2)?;
    line.step(&one, 3)
}

fn regular(comm: &Stage<'_>) -> Outcome {
    let decomposition = RegularGrid::new([3 * comm.size(), 4]).periodic([true, false]);
    let decomposition = decomposition.decompose(comm.size())?;
    let pattern = decomposition.pattern(comm, Halo::per_axis([(1, 2), (2, 0)]))?;
    let shape = pattern.plan().domains[0].1.extents();
    let (rows, columns) = (shape[0], shape[1]);
    let element = u64::TYPE;
    let layouts = [
        Layout::c_order(element, &shape)?,
        Layout::fortran_order(element, &shape)?,
        Layout::c_order(element, &[rows, columns, 2])?,
        // Levels first, the grid's axes turned, downwards in memory, with gaps.
        Layout::strided(element, &[2, columns, rows], &[-8, 24 * rows as isize, -24])?.with_axes(&[2, 1])?,
        Layout::c_order(element, &[rows + 3, columns + 1])?.with_origin(&[2, 3]),
    ];
    for layout in layouts {
        let dims = layout.axes(2)?;
        let origin = layout.origin().unwrap_or(&[1, 2]).to_vec();
        let owned = [rows - 3, columns - 2];
        let is_owned = |index: &[usize]| {
            (0..2).all(|axis| (origin[axis]..origin[axis] + owned[axis]).contains(&index[dims[axis]]))
        };
        let expected = positions(&layout, is_owned);
        let array = Array::<u64>::with_layout(comm, layout)?;
        for link in comm.paths() {
            let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &by(link))?;
            for step in 1..4 {
                number(&array, step)?;
                let pending = halo.exchange()?;
                shows(&array, &pending, step, &expected)?;
                pending.wait()?;
                is_over(&pending, &array)?;
            }
        }
    }
    Ok(())
}

fn listed(comm: &Stage<'_>) -> Outcome {
    let (rank, ranks) = (comm.rank() as u64, comm.size() as u64);
    let neighbour = |by: u64| 10 * ((rank + by) % ranks);
    let owned: Vec<u64> = (0..5).map(|cell| 10 * rank + cell).collect();
    let halo: Vec<u64> =
        if ranks == 1 { vec![] } else { vec![neighbour(1), neighbour(1) + 3, neighbour(1) + 4] };
    let cells = owned.len() + halo.len();
    let first = UnstructuredDomain::new(rank, owned.clone(), halo.clone());
    // Halo cells at local indices 0, 3 and 4.
    let at = &[0, 3, 4][..halo.len()];
    let (mut own, mut beyond) = (owned.into_iter(), halo.into_iter());
    let mixed = (0..cells).filter_map(|cell| if at.contains(&cell) { beyond.next() } else { own.next() });
    let mixed = UnstructuredDomain::from_indices(rank, mixed.collect(), at);
    for (domain, halo) in [(first, (5..cells).collect()), (mixed, at.to_vec())] {
        let pattern = Pattern::unstructured(comm, &[domain])?;
        for layout in
            [Layout::c_order(u64::TYPE, &[cells, 3])?, Layout::fortran_order(u64::TYPE, &[cells, 3])?]
        {
            let expected = positions(&layout, |index| !halo.contains(&index[0]));
            let array = Array::<u64>::with_layout(comm, layout)?;
            for link in comm.paths() {
                let bound = HaloExchange::bind_with(comm, [(&pattern, &array)], &by(link))?;
                number(&array, 7)?;
                let pending = bound.exchange()?;
                shows(&array, &pending, 7, &expected)?;
                pending.wait()?;
            }
        }
    }
    Ok(())
}

fn unbound(comm: &Stage<'_>) -> Outcome {
    let pattern = ring(comm)?.pattern(comm)?;
    let arrays = [Array::<u64>::zeros(comm, &[6])?, Array::<u64>::zeros(comm, &[6])?];
    let expected: BTreeSet<usize> = (1..5).collect();
    for link in [LinkChoice::Auto, LinkChoice::Message] {
        let links = PatternLinks::new_with(comm, &[&pattern], &by(link))?;
        // Of the same layout, in turn and together: what is remembered of one is not taken for the other.
        for step in 1..5 {
            let (given, other) = (&arrays[step % 2], &arrays[1 - step % 2]);
            number(given, step as u64)?;
            let pending = links.exchange(&[(&pattern, given)])?;
            shows(given, &pending, step as u64, &expected)?;
            ensure!(
                matches!(pending.owned(other), Err(Error::Array(ArrayError::NotExchanged { .. }))),
                "of another array"
            );
            drop(other.read()?);
            drop(other.write()?);
            pending.wait()?;
            is_over(&pending, given)?;
        }
        arrays.iter().try_for_each(|array| number(array, 9))?;
        let pending = links.exchange(&[(&pattern, &arrays[1]), (&pattern, &arrays[0])])?;
        arrays.iter().try_for_each(|array| shows(array, &pending, 9, &expected))?;
        links.wait()?;
        is_over(&pending, &arrays[0])?;
    }
    Ok(())
}

fn sets(comm: &Stage<'_>) -> Outcome {
    let pattern = ring(comm)?.pattern(comm)?;
    let arrays = [Array::<u64>::zeros(comm, &[6])?, Array::<u64>::zeros(comm, &[6])?];
    let sets = [[(&pattern, &*arrays[0])], [(&pattern, &*arrays[1])]];
    let sets = [&sets[0][..], &sets[1][..]];
    let halo = HaloExchange::bind_alternatives(comm, &sets, &by(LinkChoice::Auto))?;
    for step in 1..7 {
        let (now, next) = (&arrays[step % 2], &arrays[1 - step % 2]);
        number(now, step as u64)?;
        let pending = halo.begin().set(step % 2).start()?;
        shows(now, &pending, step as u64, &(1..5).collect())?;
        {
            // What a step of a program does: it reads one time level and writes the other.
            let (from, mut to) = (pending.owned(now)?, next.write()?);
            to[2..4].copy_from_slice(&from[2..4]);
        }
        ensure!(
            matches!(pending.owned(next), Err(Error::Array(ArrayError::NotExchanged { .. }))),
            "of the other set"
        );
        pending.wait()?;
    }
    Ok(())
}

fn narrowed(comm: &Stage<'_>) -> Outcome {
    let decomposition = RegularGrid::new([4 * comm.size()]).periodic([true]).decompose(comm.size())?;
    let pattern = Grid::cut(decomposition, &[true], &[(3, 3)]).pattern(comm)?;
    let array = Array::<u64>::zeros(comm, &[10])?;
    let wide = HaloExchange::bind(comm, [(&pattern, &array)])?;
    let narrow = wide.narrowed(&Halo::uniform(1))?;
    for (step, halo) in (1..).zip([&wide, &narrow, &wide, &narrow, &narrow]) {
        number(&array, step)?;
        let pending = halo.exchange()?;
        shows(&array, &pending, step, &(3..7).collect())?;
        pending.wait()?;
    }
    Ok(())
}

fn redistribution(comm: &Stage<'_>) -> Outcome {
    let grid = RegularGrid::new([2 * comm.size(), 2]);
    let (rows, columns) = (grid.decompose_into([comm.size(), 1], comm.size())?, grid.decompose(comm.size())?);
    let path = Redistribute::regular(comm, (&rows, &Halo::uniform(0)), (&columns, &Halo::uniform(0)))?;
    let shape = |side: usize| path.pattern().plan().domains[side].1.extents();
    let (from, to) = (Array::<u64>::zeros(comm, &shape(0))?, Array::<u64>::zeros(comm, &shape(1))?);
    let halo = path.bind(comm, [&from], [&to])?;
    number(&from, 3)?;
    let pending = halo.exchange()?;
    shows(&from, &pending, 3, &(0..shape(0).iter().product()).collect())?;
    // All of it is being filled.
    shows(&to, &pending, 0, &BTreeSet::new())?;
    Ok(pending.wait()?)
}

fn not_exchanged(comm: &Stage<'_>) -> Outcome {
    let pattern = ring(comm)?.pattern(comm)?;
    let (array, stranger) = (Array::<u64>::zeros(comm, &[2, 6])?, Array::<u64>::zeros(comm, &[6])?);
    let at = |row: usize| array.base().map_addr(|address| address.saturating_add(48 * row));
    let row = |at| array.view(at, Layout::c_order(u64::TYPE, &[6])?);
    let (first, second) = (row(at(0))?, row(at(1))?);
    for fields in [&[(&pattern, &first)][..], &[(&pattern, &first), (&pattern, &second)]] {
        let halo = HaloExchange::bind(comm, fields)?;
        let pending = halo.exchange()?;
        for array in [&array, &stranger] {
            match pending.owned(array).map(drop) {
                Err(Error::Array(ArrayError::NotExchanged { epoch: 1 })) => {}
                other => fail!("owned cells of an array that is not exchanged itself: {other:?}"),
            }
        }
        is_refused(&array)?;
        pending.wait()?;
        // Nothing of what was refused holds the arrays.
        drop((array.write()?, stranger.write()?));
    }
    Ok(())
}

fn threads(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm)?;
    let array = line.array.on_host()?;
    let halo = line.bind(comm, LinkChoice::Auto)?;
    for step in 1..200 {
        line.fill(step)?;
        let before = line.array.get()?;
        let pending = halo.exchange()?;
        let reader = || match pending.owned(array) {
            Ok(owned) => {
                ensure!(owned[1..4] == before[1..4], "owned cells have changed");
                Ok(())
            }
            // The wait was sooner.
            Err(Error::Array(ArrayError::NotInFlight { .. })) => Ok(()),
            Err(other) => Err(Trouble::from(other)),
        };
        std::thread::scope(|scope| -> Outcome {
            let readers = [scope.spawn(reader), scope.spawn(reader)];
            pending.wait()?;
            let ended = readers.map(|reader| reader.join().unwrap_or_else(|_| fail!("a reader panicked")));
            ended.into_iter().collect()
        })?;
        line.check(step)?;
    }
    Ok(())
}
