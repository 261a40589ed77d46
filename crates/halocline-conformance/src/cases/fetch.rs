//! Fetches of owned values, each before its halo cell is combined with it.

use super::fixture::still_works;
use super::reduce::{Fields, clouds, ring};
use crate::fixtures::{DomainForm, Grid, Piece, by, pattern_of};
use crate::numbers::mix;
use crate::stage::Stage;
use crate::subject::Role;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{Array, Error, HaloExchange, Reduce, ReduceError, ReduceOp, RegularGrid};

pub(crate) const CASES: &[Case] = &[
    Case { name: "fetch::halo_cells_get_the_values_between_in_the_order_of_domains", run: in_order },
    Case { name: "fetch::numbers_that_no_two_domains_get", run: numbers },
    Case { name: "fetch::during_an_exchange_is_refused_on_all_ranks", run: in_flight },
    Case { name: "fetch::other_operations_are_refused_on_all_ranks", run: other_operations },
];

pub(crate) const OF_HOST: &[Case] = &[Case { name: "fetch::what_one_rank_refuses_all_refuse", run: refused }];

/// The value of a local cell of a domain.
fn value(domain: u64, at: usize) -> u64 {
    mix(domain ^ mix(at as u64))
}

fn combined(op: ReduceOp, owned: u64, halo: u64) -> u64 {
    match op {
        ReduceOp::Sum => owned.wrapping_add(halo),
        ReduceOp::Min => owned.min(halo),
        _ => halo,
    }
}

fn in_order(comm: &Stage<'_>) -> Outcome {
    for form in [DomainForm::OwnedThenHalo, DomainForm::ByIndices] {
        let (cloud, pieces) = clouds(comm, form);
        let mut all: Vec<Piece> = (0..comm.size()).flat_map(|rank| cloud.pieces(rank, comm.size())).collect();
        all.sort_by_key(|piece| piece.domain.id());
        let pattern = pattern_of(comm, &pieces)?;
        for link in comm.paths() {
            let fields = Fields::<u64>::new(comm, pattern.clone(), 1)?;
            let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
            for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Replace] {
                for (domain, array) in &fields.arrays {
                    array.change(|cells| {
                        cells.iter_mut().enumerate().for_each(|(at, cell)| *cell = value(*domain, at));
                    })?;
                }
                halo.fetch_and_op(op)?;
                for (domain, array) in &fields.arrays {
                    let found = array.get()?;
                    let piece = all.iter().find(|piece| piece.domain.id() == *domain);
                    let piece = piece.ok_or_else(|| Trouble::new("a domain without a piece"))?;
                    for (at, &cell) in piece.domain.cells().iter().enumerate() {
                        let expected = expected(&all, op, cell, (*domain, piece.roles[at]));
                        ensure!(
                            found[at] == expected,
                            "{link:?}, {op}, domain {domain}, cell {at}: {} instead of {expected}",
                            found[at]
                        );
                    }
                }
            }
        }
    }
    still_works(comm)
}

/// What a domain's copy of a cell holds in the end: the owned value after all halo cells, or before that of the domain.
fn expected(all: &[Piece], op: ReduceOp, cell: u64, (domain, role): (u64, Role)) -> u64 {
    let copies = all.iter().filter_map(|piece| {
        let at = piece.domain.cells().iter().position(|&id| id == cell)?;
        Some((piece.domain.id(), piece.roles[at], value(piece.domain.id(), at)))
    });
    let copies: Vec<_> = copies.collect();
    let owned = copies.iter().find(|(_, role, _)| *role == Role::Owned).map_or(0, |(.., value)| *value);
    let before = |(other, role, _): &&(u64, Role, u64)| *role == Role::Halo && *other < domain;
    let halos = copies.iter().filter(|copy| copy.1 == Role::Halo && (role == Role::Owned || before(copy)));
    halos.fold(owned, |owned, (.., halo)| combined(op, owned, *halo))
}

fn numbers(comm: &Stage<'_>) -> Outcome {
    // Along the second axis a domain is narrower than its halos: they copy its cells several times.
    let grid = RegularGrid::new([3 * comm.size(), 2]).periodic([true, true]).domains_per_rank(2);
    let pattern = Grid::cut(grid.decompose(comm.size())?, &[true, true], &[(1, 1), (2, 2)]).pattern(comm)?;
    let fields = Fields::<u64>::new(comm, pattern, 1)?;
    let halo = HaloExchange::bind(comm, fields.list())?;
    let degrees = halo.degree()?;
    let ones = || -> Outcome {
        for ((_, array), degree) in fields.arrays.iter().zip(&degrees) {
            let degree = degree.read()?;
            // Halo cells have degree 0, and so have owned cells that nobody copies.
            let is_halo = |(cell, &copies): (&mut u64, &u32)| *cell = u64::from(copies == 0);
            array.change(|cells| cells.iter_mut().zip(&degree[..]).for_each(is_halo))?;
        }
        Ok(())
    };
    ones()?;
    halo.fetch_and_op(ReduceOp::Sum)?;
    let mut squares = 0;
    for ((_, array), degree) in fields.arrays.iter().zip(&degrees) {
        for (&count, &copies) in array.get()?.iter().zip(&degree.read()?[..]) {
            ensure!(copies == 0 || count == u64::from(copies), "{count} of {copies} halo cells were counted");
            squares += (0..u64::from(copies)).map(|number| number * number).sum::<u64>();
        }
    }
    // Each number below the degree is given once, so that the squares have this sum.
    let mut found = 0;
    for ((_, array), degree) in fields.arrays.iter().zip(&degrees) {
        let (cells, degree) = (array.get()?, degree.read()?);
        let halo = cells.iter().zip(&degree[..]).filter(|(_, copies)| **copies == 0);
        found += halo.map(|(number, _)| number * number).sum::<u64>();
    }
    // Owned cells that nobody copies still hold their 1; there are none in this pattern.
    let sums = comm.all_reduce(&[squares, found], Reduce::Sum)?;
    ensure!(sums[0] == sums[1], "the squares of all numbers are {}, not {}", sums[1], sums[0]);
    still_works(comm)
}

fn refused(comm: &Stage<'_>) -> Outcome {
    let fields = ring::<u64>(comm)?;
    let halo = HaloExchange::bind(comm, fields.list())?;
    let array: &Array<u64> = fields.arrays[0].1.on_host()?;
    array.write()?.copy_from_slice(&[1, 2, 3]);
    let guard = (comm.rank() == 0).then(|| array.read()).transpose()?;
    match (halo.fetch_and_op(ReduceOp::Sum), comm.rank()) {
        (Err(Error::Elsewhere { rank: 0, .. }), 1..) => {}
        (Err(Error::Borrowed { field: 0 }), 0) => {}
        (other, rank) => fail!("rank {rank} with an array of rank 0 that is lent: {other:?}"),
    }
    drop(guard);
    ensure!(array.read()?[..] == [1, 2, 3], "a fetch that was refused has changed something");
    halo.fetch_and_op(ReduceOp::Sum)?;
    ensure!(array.read()?[1] == 6, "{} instead of 6", array.read()?[1]);
    still_works(comm)
}

/// Rank 0 alone has begun an exchange.
fn in_flight(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let fields = ring::<u64>(comm)?;
    let halo = HaloExchange::bind(comm, fields.list())?;
    let array = &fields.arrays[0].1;
    array.put(&[1, 2, 3])?;
    let first = (comm.rank() == 0).then(|| halo.exchange()).transpose()?;
    match (halo.fetch_and_op(ReduceOp::Sum), comm.rank()) {
        (Err(Error::Elsewhere { rank: 0, .. }), 1..) => {}
        (Err(Error::InFlight { epoch: 1 }), 0) => {}
        (other, rank) => fail!("rank {rank} while rank 0 exchanges: {other:?}"),
    }
    first.map_or_else(|| halo.exchange(), Ok)?.wait()?;
    ensure!(array.get()?[..] == [2, 2, 2], "a fetch that was refused has changed something");
    halo.fetch_and_op(ReduceOp::Sum)?;
    ensure!(array.get()?[1] == 6, "{} instead of 6", array.get()?[1]);
    still_works(comm)
}

fn other_operations(comm: &Stage<'_>) -> Outcome {
    let fields = ring::<u64>(comm)?;
    let halo = HaloExchange::bind(comm, fields.list())?;
    let array = &fields.arrays[0].1;
    array.put(&[1, 2, 3])?;
    let doubles = ring::<f64>(comm)?;
    let other = HaloExchange::bind(comm, doubles.list())?;
    ensure!(
        matches!(other.fetch_and_op(ReduceOp::Or), Err(Error::Reduce(ReduceError::Operation { .. }))),
        "an or of doubles"
    );
    if comm.size() > 1 {
        let op = if comm.rank() == 0 { ReduceOp::Min } else { ReduceOp::Max };
        match halo.fetch_and_op(op) {
            Err(Error::Reduce(ReduceError::Operations { ops: [ReduceOp::Min, ReduceOp::Max] })) => {}
            other => fail!("different operations: {other:?}"),
        }
    }
    ensure!(array.get()?[..] == [1, 2, 3], "a fetch that was refused has changed something");
    halo.fetch_and_op(ReduceOp::Sum)?;
    ensure!(array.get()?[1] == 6, "{} instead of 6", array.get()?[1]);
    still_works(comm)
}
