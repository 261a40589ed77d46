//! The reverse of an exchange.

use super::futures::block_on;
use crate::fixtures::{Cloud, DomainForm, Grid, Piece, by, pattern_of};
use crate::numbers::{Numbers, mix};
use crate::stage::{Cells, Stage};
use crate::{Case, Outcome, Trouble, ensure};
use halocline::{
    Bool, Element, Error, Field, Halo, HaloExchange, LinkChoice, Pattern, Reduce, ReduceOp, RegularGrid,
};

pub(crate) const CASES: &[Case] = &[
    Case { name: "reduce::the_transpose_of_an_exchange_on_regular_grids", run: regular },
    Case { name: "reduce::the_transpose_of_an_exchange_on_lists_of_cells", run: lists },
    Case { name: "reduce::the_transpose_of_narrowed_and_alternative_sets", run: narrowed },
    Case { name: "reduce::a_sum_in_the_order_of_domains_to_the_bit", run: in_domain_order },
    Case { name: "reduce::every_path_and_every_run_gives_the_same_bits", run: same_bits },
    Case { name: "reduce::each_operation_combines", run: operations },
    Case { name: "reduce::a_halo_that_is_kept", run: kept },
    Case { name: "reduce::scheduled_and_awaited", run: forms },
    Case { name: "reduce::mixed_with_exchanges_in_any_order", run: mixed },
];

/// Arrays of all domains of a pattern on this rank, in C order, `count` for each domain.
pub(super) struct Fields<T: Element> {
    pattern: Pattern,
    pub arrays: Vec<(u64, Cells<T>)>,
    fields: Vec<Field>,
}

impl<T: Element> Fields<T> {
    pub(super) fn new(comm: &Stage<'_>, pattern: Pattern, count: usize) -> Result<Self, Trouble> {
        let (mut arrays, mut fields) = (Vec::new(), Vec::new());
        for (domain, shape) in &pattern.plan().domains {
            for extra in 1..=count {
                let extents = [&shape.extents()[..], &[extra][..]].concat();
                let array = comm.zeros::<T>(&extents)?;
                fields.push(Field::clone(&array).on_domain(*domain));
                arrays.push((*domain, array));
            }
        }
        Ok(Self { pattern, arrays, fields })
    }

    pub fn list(&self) -> Vec<(&Pattern, &Field)> {
        self.fields.iter().map(|field| (&self.pattern, field)).collect()
    }

    /// Writes values that depend on the domain, the place and the step.
    pub(super) fn fill(&self, step: u64, value: impl Fn(u64) -> T) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for (number, (domain, array)) in self.arrays.iter().enumerate() {
            let seed = mix(step ^ mix(*domain ^ mix(number as u64)));
            array.change(|cells| {
                cells.iter_mut().enumerate().for_each(|(at, cell)| *cell = value(mix(seed ^ at as u64)));
            })?;
            all.extend_from_slice(&array.get()?);
        }
        Ok(all)
    }

    pub(super) fn values(&self) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for (_, array) in &self.arrays {
            all.extend_from_slice(&array.get()?);
        }
        Ok(all)
    }
}

/// The product over all cells of all ranks, in integers that wrap.
fn product(comm: &Stage<'_>, one: &[u64], other: &[u64]) -> Result<u64, Error> {
    let here = one.iter().zip(other).fold(0_u64, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)));
    Ok(comm.all_reduce(&[here], Reduce::Sum)?[0])
}

/// With the exchange H and its reduce R: `<Hx, y> = <x, Ry>` over all cells, for integers and for doubles.
fn is_transpose(
    comm: &Stage<'_>,
    halo: &HaloExchange,
    set: usize,
    fields: &Fields<u64>,
    step: u64,
) -> Outcome {
    let x = fields.fill(2 * step, |value| value)?;
    halo.begin().set(set).start()?.wait()?;
    let hx = fields.values()?;
    let y = fields.fill(2 * step + 1, |value| value)?;
    halo.begin().set(set).reduce(ReduceOp::Sum).start()?.wait()?;
    let ry = fields.values()?;
    let (left, right) = (product(comm, &hx, &y)?, product(comm, &x, &ry)?);
    ensure!(left == right, "step {step}: <Hx, y> = {left}, <x, Ry> = {right}");
    let moved = comm.all_reduce(&[u64::from(ry != y), u64::from(!fields.pattern.is_idle())], Reduce::Max)?;
    ensure!(moved[0] == moved[1], "step {step}: a reduce has changed nothing, or something");
    Ok(())
}

/// Whether a pattern exchanges nothing on this rank.
trait Idle {
    fn is_idle(&self) -> bool;
}

impl Idle for Pattern {
    fn is_idle(&self) -> bool {
        let plan = self.plan();
        plan.local.is_empty()
            && plan.peers.iter().all(|peer| peer.sends.is_empty() && peer.receives.is_empty())
    }
}

fn on_all_paths(comm: &Stage<'_>, pattern: &Pattern) -> Outcome {
    for link in comm.paths() {
        let fields = Fields::new(comm, pattern.clone(), 2)?;
        let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
        for step in 0..3 {
            let ended = is_transpose(comm, &halo, 0, &fields, step);
            ended.map_err(|trouble| Trouble::new(format!("{link:?}: {trouble}")))?;
        }
        let doubles = Fields::new(comm, pattern.clone(), 2)?;
        let halo = HaloExchange::bind_with(comm, doubles.list(), &by(link))?;
        doubles_are_transposed(comm, &halo, &doubles)?;
    }
    Ok(())
}

fn doubles_are_transposed(comm: &Stage<'_>, halo: &HaloExchange, fields: &Fields<f64>) -> Outcome {
    let value = |value: u64| value as f64 / u64::MAX as f64 - 0.5;
    let dot = |one: &[f64], other: &[f64]| -> Result<f64, Error> {
        let here: f64 = one.iter().zip(other).map(|(a, b)| a * b).sum();
        Ok(comm.all_reduce(&[here], Reduce::Sum)?[0])
    };
    let x = fields.fill(1, value)?;
    halo.exchange()?.wait()?;
    let hx = fields.values()?;
    let y = fields.fill(2, value)?;
    halo.reduce(ReduceOp::Sum)?.wait()?;
    let (left, right) = (dot(&hx, &y)?, dot(&x, &fields.values()?)?);
    let cells = comm.all_reduce(&[x.len() as u64], Reduce::Sum)?[0] as f64;
    let is_equal = (left - right).abs() <= 1e-15 * cells;
    ensure!(is_equal, "<Hx, y> = {left}, <x, Ry> = {right}");
    Ok(())
}

fn regular(comm: &Stage<'_>) -> Outcome {
    let ranks = comm.size();
    let mut numbers = Numbers::new(28);
    for round in 0..3 {
        let periodic = [round != 1, numbers.one_in(2)];
        let widths = [(1 + numbers.below(2), numbers.below(3)), (numbers.below(2), 1)];
        // With one domain along an axis that is not wider than its halo, a cell is in several halos of its own domain.
        let extents = [2 * ranks * (1 + numbers.below(2)), 2 + numbers.below(4)];
        let grid = RegularGrid::new(extents).periodic(periodic).domains_per_rank(1 + round % 2);
        let pattern = Grid::cut(grid.decompose(ranks)?, &periodic, &widths).pattern(comm)?;
        on_all_paths(comm, &pattern)?;
    }
    Ok(())
}

/// Random distributions of cells over two domains a rank.
pub(super) fn clouds(comm: &Stage<'_>, form: DomainForm) -> (Cloud, Vec<Piece>) {
    let cloud = Cloud {
        seed: 281 + form as u64,
        cells: 20 * comm.size(),
        domains_per_rank: 2,
        halo: 9,
        form,
        coherence: 60,
    };
    let pieces = cloud.pieces(comm.rank(), comm.size());
    (cloud, pieces)
}

fn lists(comm: &Stage<'_>) -> Outcome {
    for form in [DomainForm::OwnedThenHalo, DomainForm::ByIndices, DomainForm::ByOwners] {
        on_all_paths(comm, &pattern_of(comm, &clouds(comm, form).1)?)?;
    }
    Ok(())
}

fn narrowed(comm: &Stage<'_>) -> Outcome {
    let grid = RegularGrid::new([4 * comm.size(), 6]).periodic([true, true]).domains_per_rank(2);
    let pattern = Grid::cut(grid.decompose(comm.size())?, &[true, true], &[(3, 2), (2, 2)]).pattern(comm)?;
    let cloud = pattern_of(comm, &clouds(comm, DomainForm::ByIndices).1)?;
    for link in comm.paths() {
        let (wide, other) = (Fields::new(comm, pattern.clone(), 2)?, Fields::new(comm, cloud.clone(), 1)?);
        let sets = [wide.list(), other.list()];
        let sets = sets.each_ref().map(Vec::as_slice);
        let halo = HaloExchange::bind_alternatives(comm, &sets, &by(link))?;
        let narrow = halo.narrowed(&Halo::uniform(1))?;
        for step in 0..3 {
            is_transpose(comm, &halo, 0, &wide, step)?;
            is_transpose(comm, &narrow, 0, &wide, step)?;
            is_transpose(comm, &halo, 1, &other, step)?;
        }
    }
    Ok(())
}

/// Doubles of very different sizes: their sum depends on the order.
fn uneven(value: u64) -> f64 {
    let sign = if value & 1 == 0 { 1.0 } else { -1.0 };
    sign * (1.0 + (value >> 12) as f64 / (1_u64 << 52) as f64) * 2_f64.powi((value >> 1 & 63) as i32)
}

/// The value of a local cell of a domain in a step.
fn cloud_value(domain: u64, at: usize, step: u64) -> f64 {
    uneven(mix(domain ^ mix(step ^ mix(at as u64))))
}

fn in_domain_order(comm: &Stage<'_>) -> Outcome {
    let (cloud, pieces) = clouds(comm, DomainForm::ByIndices);
    let mut all: Vec<Piece> = (0..comm.size()).flat_map(|rank| cloud.pieces(rank, comm.size())).collect();
    all.sort_by_key(|piece| piece.domain.id());
    let pattern = pattern_of(comm, &pieces)?;
    for link in comm.paths() {
        let fields = Fields::<f64>::new(comm, pattern.clone(), 1)?;
        let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
        for step in 0..4 {
            for (domain, array) in &fields.arrays {
                array.change(|cells| {
                    let cells = cells.iter_mut().enumerate();
                    cells.for_each(|(at, cell)| *cell = cloud_value(*domain, at, step));
                })?;
            }
            halo.reduce(ReduceOp::Sum)?.wait()?;
            for (domain, array) in &fields.arrays {
                let piece = all.iter().find(|piece| piece.domain.id() == *domain);
                let piece = piece.ok_or_else(|| Trouble::new("a domain without a piece"))?;
                let found = array.get()?;
                for (at, &cell) in piece.domain.cells().iter().enumerate() {
                    let expected = expected_sum(&all, piece, (at, cell), step);
                    ensure!(
                        found[at].to_bits() == expected.to_bits(),
                        "{link:?}, step {step}, domain {domain}, cell {at}: {:e} instead of {expected:e}",
                        found[at]
                    );
                }
            }
        }
    }
    Ok(())
}

/// What a cell holds after a reduce: the contributions of all domains are added one after the other.
fn expected_sum(all: &[Piece], piece: &Piece, (at, cell): (usize, u64), step: u64) -> f64 {
    use crate::subject::Role;
    if piece.roles[at] != Role::Owned {
        return 0.0;
    }
    let mut sum = cloud_value(piece.domain.id(), at, step);
    for other in all {
        let there = other.domain.cells().iter().position(|&id| id == cell);
        if let Some(there) = there.filter(|&there| other.roles[there] == Role::Halo) {
            sum += cloud_value(other.domain.id(), there, step);
        }
    }
    sum
}

fn same_bits(comm: &Stage<'_>) -> Outcome {
    // Along the second axis a domain is narrower than its halos: they copy its cells several times.
    let grid = RegularGrid::new([3 * comm.size(), 2]).periodic([true, true]).domains_per_rank(3);
    let pattern = Grid::cut(grid.decompose(comm.size())?, &[true, true], &[(2, 2), (2, 2)]).pattern(comm)?;
    let mut first: Option<Vec<u64>> = None;
    for link in comm.paths() {
        let fields = Fields::<f64>::new(comm, pattern.clone(), 2)?;
        let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
        for _ in 0..5 {
            let before = fields.fill(7, uneven)?;
            halo.reduce(ReduceOp::Sum)?.wait()?;
            let after = fields.values()?;
            ensure!(before != after, "{link:?}: nothing was added");
            let bits: Vec<u64> = after.iter().map(|cell| cell.to_bits()).collect();
            let first = first.get_or_insert_with(|| bits.clone());
            ensure!(*first == bits, "{link:?}: other bits than on the first path");
        }
    }
    Ok(())
}

/// A ring of one owned cell on each rank, whose two halo cells hold its right and its left neighbour.
pub(super) fn ring<T: Element>(comm: &Stage<'_>) -> Result<Fields<T>, Trouble> {
    let pattern = Grid::new(comm.size(), &[comm.size()], &[true], 1)?.pattern(comm)?;
    Fields::new(comm, pattern, 1)
}

/// Reduces `[halo, owned, halo]` on all ranks alike, and returns the owned cell.
fn reduced<T: Element>(
    comm: &Stage<'_>,
    link: LinkChoice,
    op: ReduceOp,
    cells: [T; 3],
) -> Result<T, Trouble> {
    let fields = ring::<T>(comm)?;
    let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
    fields.arrays[0].1.put(&cells)?;
    halo.reduce(op)?.wait()?;
    let now = fields.arrays[0].1.get()?;
    let bytes = |cell: &T| {
        // SAFETY: an element has no padding, by the contract of `Element`, so that all its bytes are initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(cell).cast::<u8>(), size_of::<T>()) }
    };
    ensure!(
        [0, 2].iter().all(|&at| bytes(&now[at]).iter().all(|&byte| byte == 0)),
        "{op}: the halo is not cleared"
    );
    Ok(now[1])
}

fn operations(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        for (op, expected) in [
            (ReduceOp::Sum, 11),
            (ReduceOp::Product, -84),
            (ReduceOp::Min, -2),
            (ReduceOp::Max, 7),
            (ReduceOp::And, 6),
            (ReduceOp::Or, -1),
            (ReduceOp::Xor, -1),
        ] {
            let found = reduced::<i32>(comm, link, op, [7, 6, -2])?;
            ensure!(found == expected, "{op} of int32: {found} instead of {expected}");
        }
        let found = reduced::<f32>(comm, link, ReduceOp::Max, [0.5, -1.0, f32::NAN])?;
        ensure!(found.is_nan(), "the maximum with a NaN is {found}");
        let found = reduced::<[f64; 2]>(comm, link, ReduceOp::Sum, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])?;
        ensure!(found == [9.0, 12.0], "a complex sum is {found:?}");
        let found = reduced::<Bool>(comm, link, ReduceOp::Or, [true.into(), false.into(), false.into()])?;
        ensure!(found.get(), "false or true or false is false");
        let found = reduced::<u8>(comm, link, ReduceOp::Sum, [200, 100, 1])?;
        ensure!(found == 45, "a sum of uint8 does not wrap: {found}");
        let found = reduced::<u16>(comm, link, ReduceOp::Replace, [5, 9, 5])?;
        ensure!(found == 5, "replaced by {found}");
    }
    Ok(())
}

fn kept(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let fields = ring::<u64>(comm)?;
        let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
        let array = &fields.arrays[0].1;
        array.put(&[10, 1, 20])?;
        halo.begin().reduce(ReduceOp::Sum).keep_halo(true).start()?.wait()?;
        ensure!(array.get()?[..] == [10, 31, 20], "{link:?}: {:?}", &array.get()?[..]);
        halo.begin().reduce(ReduceOp::Sum).keep_halo(true).keep_halo(false).start()?.wait()?;
        ensure!(array.get()?[..] == [0, 61, 0], "{link:?}: {:?}", &array.get()?[..]);
    }
    Ok(())
}

fn forms(comm: &Stage<'_>) -> Outcome {
    let fields = ring::<u64>(comm)?;
    let [link, ..] = comm.choices();
    let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
    let array = &fields.arrays[0].1;
    array.put(&[1, 0, 1])?;
    // Over an MPI without threads scheduled messages are refused, without an epoch.
    match halo.begin().reduce(ReduceOp::Sum).schedule() {
        Ok(pending) => pending.wait()?,
        Err(Error::NotDriven) => halo.reduce(ReduceOp::Sum)?.wait()?,
        Err(other) => return Err(other.into()),
    }
    ensure!(array.get()?[..] == [0, 2, 0], "scheduled: {:?}", &array.get()?[..]);
    array.put(&[3, 0, 3])?;
    block_on(halo.begin().reduce(ReduceOp::Sum).into_future())?;
    ensure!(array.get()?[..] == [0, 6, 0], "awaited: {:?}", &array.get()?[..]);
    let pending = halo.pending().ok_or_else(|| Trouble::new("no exchange was begun"))?;
    ensure!(pending.epoch() == 2, "two reduces have taken {} epochs", pending.epoch());
    let Some(stream) = array.stream() else { return Ok(()) };
    // The host waits for none of them: each comes after the one before in the order of the stream.
    array.put(&[1, 1, 1])?;
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Sum] {
        halo.begin().reduce(op).after(&[stream]).schedule()?.schedule_wait(stream)?;
        halo.schedule_exchange(&[stream])?.schedule_wait(stream)?;
    }
    stream.synchronise()?;
    // 1 + 1 + 1, the same again, three times that.
    ensure!(array.get()?[..] == [9, 9, 9], "in the order of a stream: {:?}", &array.get()?[..]);
    Ok(())
}

/// Epochs of both kinds in random order, where ranks run ahead of each other: a closed line, on which the first rank sends to nobody.
fn mixed(comm: &Stage<'_>) -> Outcome {
    for (round, link) in comm.paths().into_iter().enumerate() {
        let periodic = [round % 2 == 0];
        let widths = if round % 3 == 0 { [(2, 0)] } else { [(1, 2)] };
        let decomposition = RegularGrid::new([4 * comm.size()]).periodic(periodic).decompose(comm.size())?;
        let pattern = Grid::cut(decomposition, &periodic, &widths).pattern(comm)?;
        let fields = Fields::<u64>::new(comm, pattern, 1)?;
        let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
        let (array, width) = (&fields.arrays[0].1, widths[0].0);
        let mut numbers = Numbers::new(round as u64);
        let ranks = comm.size();
        let line = Model { ranks, widths: widths[0], periodic: periodic[0] };
        let mut model = line.new_arrays();
        array.put(&model[comm.rank()])?;
        for step in 0..60 {
            match numbers.below(3) {
                0 => {
                    halo.reduce(ReduceOp::Sum)?.wait()?;
                    line.reduce(&mut model);
                }
                _ => {
                    halo.exchange()?.wait()?;
                    line.exchange(&mut model);
                }
            }
            let expected = &model[comm.rank()];
            ensure!(array.get()?[..] == expected[..], "{link:?}, step {step}, width {width}");
        }
    }
    Ok(())
}

/// A line of four owned cells on each rank, computed serially.
struct Model {
    ranks: usize,
    widths: (usize, usize),
    periodic: bool,
}

impl Model {
    const OWNED: usize = 4;

    fn new_arrays(&self) -> Vec<Vec<u64>> {
        let len = self.widths.0 + Self::OWNED + self.widths.1;
        (0..self.ranks).map(|rank| (0..len).map(|at| mix((rank * 100 + at) as u64)).collect()).collect()
    }

    /// The halo cells of all ranks, each with the owned cell that it copies: rank and index of both.
    fn halo(&self) -> Vec<((usize, usize), (usize, usize))> {
        let (low, cells) = (self.widths.0, Self::OWNED * self.ranks);
        let len = low + Self::OWNED + self.widths.1;
        let place = |rank: usize, at: usize| {
            let global = (rank * Self::OWNED + at) as i64 - low as i64;
            let is_there = self.periodic || (0..cells as i64).contains(&global);
            let global = global.rem_euclid(cells as i64) as usize;
            is_there.then_some(((rank, at), (global / Self::OWNED, low + global % Self::OWNED)))
        };
        let halo = (0..len).filter(|at| !(low..low + Self::OWNED).contains(at));
        let halo: Vec<usize> = halo.collect();
        (0..self.ranks).flat_map(|rank| halo.iter().filter_map(move |&at| place(rank, at))).collect()
    }

    fn exchange(&self, arrays: &mut [Vec<u64>]) {
        for (halo, owned) in self.halo() {
            arrays[halo.0][halo.1] = arrays[owned.0][owned.1];
        }
    }

    fn reduce(&self, arrays: &mut [Vec<u64>]) {
        for (halo, owned) in self.halo() {
            let added = std::mem::take(&mut arrays[halo.0][halo.1]);
            let cell = &mut arrays[owned.0][owned.1];
            *cell = cell.wrapping_add(added);
        }
    }
}
