//! Cells that move from one decomposition or partition to another.

use super::fixture::still_works;
use crate::fixtures::{Grid, Piece, by, subjects_of};
use crate::form::{Form, Kind};
use crate::numbers::{Numbers, mix};
use crate::stage::Stage;
use crate::subject::{Role, Subject};
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{ElementType, Error, Field, Redistribute, RegularGrid, UnstructuredDomain};

pub(crate) const CASES: &[Case] = &[
    Case { name: "redistribution::decompositions_there_and_back", run: decompositions },
    Case { name: "redistribution::boxes_with_a_rank_that_has_none", run: boxes },
    Case { name: "redistribution::partitions_there_and_back", run: partitions },
    Case { name: "redistribution::fields_of_domains_that_are_elsewhere", run: other_domains },
];

/// What memory of the host alone shows.
pub(crate) const OF_HOST: &[Case] = &[
    Case { name: "redistribution::a_cell_dropped_or_doubled_is_named", run: dropped_or_doubled },
    Case { name: "redistribution::grids_that_differ", run: other_grids },
];

/// Moves fields there and back by every path. `fields` makes those of one side for a field number.
fn there_and_back(
    comm: &Stage<'_>,
    redistribute: &Redistribute,
    fields: [&dyn Fn(u64) -> Result<Vec<Subject>, Trouble>; 2],
) -> Outcome {
    let of = |side: usize, role: fn(Role) -> Role| -> Result<Vec<Subject>, Trouble> {
        let both = [fields[side](0)?, fields[side](1)?];
        Ok(both.into_iter().flatten().map(|subject| subject.recast(role)).collect())
    };
    let left = |role| if role == Role::Owned { Role::Owned } else { Role::Spare };
    let taken = |role| if role == Role::Owned { Role::Halo } else { Role::Spare };
    let mut step = 0;
    for (path, from, to) in [(redistribute.clone(), 0, 1), (redistribute.back(), 1, 0)] {
        let (mut from, mut to) = (of(from, left)?, of(to, taken)?);
        for link in comm.paths() {
            let fields =
                |subjects: &[Subject]| subjects.iter().map(Subject::field).cloned().collect::<Vec<_>>();
            let (leaving, arriving) = (fields(&from), fields(&to));
            let [leaving, arriving] = [&leaving, &arriving].map(|all| all.iter().collect::<Vec<&Field>>());
            let exchange = path.bind_with(comm, &leaving, &arriving, &by(link))?;
            for _ in 0..2 {
                step += 1;
                from.iter_mut().chain(&mut to).for_each(|subject| subject.fill(step));
                exchange.exchange()?.wait()?;
                from.iter().chain(&to).try_for_each(Subject::check)?;
            }
        }
    }
    Ok(())
}

/// Between two grids of the same cells, which say what their arrays are like.
fn regular(comm: &Stage<'_>, from: &Grid, to: &Grid) -> Outcome {
    let (from_halo, to_halo) = (from.halo(), to.halo());
    let ends = ((&from.decomposition, &from_halo), (&to.decomposition, &to_halo));
    let redistribute = Redistribute::regular(comm, ends.0, ends.1)?;
    let kind = Kind::with_extra(ElementType::F64, &[2]);
    let patterns = [from.pattern(comm)?, to.pattern(comm)?];
    let subjects = |grid: &Grid, at: usize, number| {
        let form = |domain| if domain % 2 == 0 { Form::default() } else { Form::fortran() };
        grid.subjects(comm, &patterns[at], number, (&kind, comm.home()), form)
    };
    there_and_back(
        comm,
        &redistribute,
        [&|number| subjects(from, 0, number), &|number| subjects(to, 1, number)],
    )
}

fn decompositions(comm: &Stage<'_>) -> Outcome {
    let n = 2 * comm.size() + 1;
    let grid = |domains| RegularGrid::new([n, n + 2]).periodic([true, false]).domains_per_rank(domains);
    let rows = grid(1).decompose_into([comm.size(), 1], comm.size())?;
    let columns = grid(2).decompose_into([1, 2 * comm.size()], comm.size())?;
    let periodic = [true, false];
    let rows = Grid::cut(rows, &periodic, &[(0, 0), (0, 0)]);
    let columns = Grid::cut(columns, &periodic, &[(2, 1), (0, 3)]);
    regular(comm, &rows, &columns)?;
    regular(comm, &rows, &rows)
}

fn boxes(comm: &Stage<'_>) -> Outcome {
    // All on the last rank, as two boxes; then in layers on the others.
    let (last, holders) = (comm.size() - 1, comm.size().saturating_sub(1).max(1));
    let one = vec![(last, vec![0, 0], vec![2 * holders, 2]), (last, vec![0, 2], vec![2 * holders, 3])];
    let layers = (0..holders).map(|rank| (rank, vec![2 * rank, 0], vec![2, 5])).collect();
    let grid = RegularGrid::new([2 * holders, 5]);
    let cut = |boxes, widths: [(usize, usize); 2]| -> Result<Grid, Trouble> {
        Ok(Grid::cut(grid.decompose_boxes(boxes, comm.size())?, &[false, false], &widths))
    };
    regular(comm, &cut(one, [(1, 1), (1, 1)])?, &cut(layers, [(0, 0), (1, 0)])?)
}

/// Cells spread over the domains of all ranks by `domain_of`, in any order, some others as halo.
fn pieces(comm: &Stage<'_>, cells: usize, per_rank: usize, domain_of: impl Fn(usize) -> usize) -> Vec<Piece> {
    let mine = (0..per_rank).map(|at| at * comm.size() + comm.rank());
    let of_domain = |domain: usize| {
        let mut numbers = Numbers::new(domain as u64 + 77);
        let mut local: Vec<usize> =
            (0..cells).filter(|&cell| domain_of(cell) == domain || numbers.below(4) == 0).collect();
        numbers.shuffle(&mut local);
        let halo: Vec<usize> = (0..local.len()).filter(|&at| domain_of(local[at]) != domain).collect();
        let ids = local.iter().map(|&cell| mix(cell as u64)).collect();
        let is_halo: Vec<bool> = (0..local.len()).map(|at| halo.contains(&at)).collect();
        Piece::new(UnstructuredDomain::from_indices(domain as u64, ids, &halo), is_halo)
    };
    mine.map(of_domain).collect()
}

fn domains(pieces: &[Piece]) -> Vec<UnstructuredDomain> {
    pieces.iter().map(|piece| piece.domain.clone()).collect()
}

fn partitions(comm: &Stage<'_>) -> Outcome {
    let cells = 12 * comm.size();
    let first = pieces(comm, cells, 1, |cell| cell / 12);
    // The first domain has half of the cells, the last none.
    let parts = 3 * comm.size() - 1;
    let scattered =
        |cell: usize| if cell.is_multiple_of(2) { 0 } else { mix(cell as u64 ^ 5) as usize % parts };
    let second = pieces(comm, cells, 3, scattered);
    let redistribute = Redistribute::unstructured(comm, &domains(&first), &domains(&second))?;
    let kind = Kind::with_extra(ElementType::I32, &[3]);
    let subjects = |pieces: &[Piece], number| {
        subjects_of(comm, pieces, number, (&kind, comm.home()), |domain| {
            if domain % 2 == 0 { Form::padded() } else { Form::default() }
        })
    };
    there_and_back(
        comm,
        &redistribute,
        [&|number| subjects(&first, number), &|number| subjects(&second, number)],
    )
}

fn dropped_or_doubled(comm: &Stage<'_>) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let cells = |first: usize| (3 * first as u64..3 * first as u64 + 3).collect::<Vec<u64>>();
    let whole = || vec![UnstructuredDomain::new(rank as u64, cells(rank), vec![])];
    let last = rank == size - 1;
    let victim = 3 * size as u64 - 1;
    let lacking = || {
        let left = cells((rank + 1) % size).into_iter().filter(|&id| id != victim).collect();
        vec![UnstructuredDomain::new(10 + rank as u64, left, vec![])]
    };
    let doubling = || {
        let mut domains = vec![UnstructuredDomain::new(10 + rank as u64, cells((rank + 1) % size), vec![])];
        domains.extend(last.then(|| UnstructuredDomain::new(99, vec![victim], vec![])));
        domains
    };
    for (first, second, side) in [
        (whole(), lacking(), "second"),
        (lacking(), whole(), "first"),
        (whole(), doubling(), "second"),
        (doubling(), whole(), "first"),
    ] {
        let Err(error) = Redistribute::unstructured(comm, &first, &second) else {
            fail!("a cell dropped or doubled is accepted");
        };
        let text = error.to_string();
        for word in [format!("cell {victim}"), format!("{side} side"), "of rank".to_owned()] {
            ensure!(text.contains(&word), "{text} does not say {word:?}");
        }
        still_works(comm)?;
    }
    Ok(())
}

fn other_grids(comm: &Stage<'_>) -> Outcome {
    let cut = |extent: usize, ranks: usize| RegularGrid::new([extent * ranks]).decompose(ranks);
    let none = halocline::Halo::uniform(0);
    let guilty = comm.size() - 1;
    let extra = usize::from(comm.rank() == guilty);
    let good = cut(4, comm.size())?;
    for bad in [cut(4 + extra, comm.size())?, cut(4, comm.size() + extra)?] {
        let Err(error) = Redistribute::regular(comm, (&good, &none), (&bad, &none)) else {
            fail!("grids that differ are accepted");
        };
        ensure!((extra == 1) != matches!(error, Error::Elsewhere { .. }), "{error}");
        still_works(comm)?;
    }
    Ok(())
}

fn other_domains(comm: &Stage<'_>) -> Outcome {
    let grid = RegularGrid::new([4 * comm.size()]);
    let one = Grid::cut(grid.decompose(comm.size())?, &[false], &[(0, 0)]);
    let two = Grid::cut(grid.domains_per_rank(2).decompose(comm.size())?, &[false], &[(0, 0)]);
    let halo = one.halo();
    let path = Redistribute::regular(comm, (&one.decomposition, &halo), (&two.decomposition, &halo))?;
    let field = |cells: usize| comm.field(halocline::Layout::c_order(ElementType::F64, &[cells])?);
    let (from, low, high) = (field(4)?, field(2)?, field(2)?);
    let first = 2 * comm.rank() as u64;
    let good = [&low.on_domain(first), &high.on_domain(first + 1)];
    for (from, to, says) in [
        (&from, [&low, &high], "Field::on_domain"),
        (&from, [&low.on_domain(first), &high.on_domain(first + 2 * comm.size() as u64)], "not on this rank"),
        (&from.on_domain(1 + comm.rank() as u64), good, "not on this rank"),
    ] {
        let Err(error) = path.bind(comm, [from], to) else { fail!("{says} is not said") };
        ensure!(error.to_string().contains(says), "{error}");
        still_works(comm)?;
    }
    path.bind(comm, [&from], good)?.exchange()?.wait()?;
    Ok(())
}
