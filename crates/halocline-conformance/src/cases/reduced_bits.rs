//! Reduces and fetches compared, bit by bit, with those of the same cells in memory of the host.

use super::reduce::{Fields, clouds};
use crate::fixtures::{DomainForm, Grid, by, pattern_of};
use crate::numbers::{Numbers, mix};
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure};
use halocline::{
    Bool, Element, Error, Halo, HaloExchange, LinkChoice, PatchGrid, Pattern, Pivot, Quantity, Reduce,
    ReduceOp, RegularGrid,
};

pub(crate) const CASES: &[Case] = &[
    Case { name: "reduced_bits::the_bits_are_those_of_fields_of_the_host", run: bits },
    Case { name: "reduced_bits::vectors_on_patches_change_their_signs", run: vectors },
    Case { name: "reduced_bits::fetches_have_the_bits_of_fields_of_the_host", run: fetched },
    Case { name: "reduced_bits::fields_of_the_host_and_of_a_device_in_one_object", run: both_memories },
    Case { name: "reduced_bits::a_sum_of_ones_is_the_degree", run: degree },
];

/// A type whose values follow from random numbers. None is a NaN, whose bits follow from nothing.
trait Value: Element {
    fn of(random: u64) -> Self;

    /// One of which many have a product that is no infinity: the next one could be a NaN.
    fn factor(random: u64) -> Self {
        Self::of(random)
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn of(random: u64) -> Self {
                random as Self
            }
        }
    )*};
}

integers!(i8, u8, i16, u16, i32, u32, i64, u64);

impl Value for Bool {
    fn of(random: u64) -> Self {
        (random & 1 == 1).into()
    }
}

impl Value for f64 {
    /// Of very different sizes: sums depend on the order.
    fn of(random: u64) -> Self {
        let sign = if random & 1 == 0 { 1.0 } else { -1.0 };
        sign * (1.0 + (random >> 12) as f64 / (1_u64 << 52) as f64)
            * 2_f64.powi((random >> 1 & 31) as i32 - 16)
    }

    fn factor(random: u64) -> Self {
        let sign = if random & 1 == 0 { 1.0 } else { -1.0 };
        sign * (0.5 + (random >> 12) as f64 / (1_u64 << 52) as f64)
    }
}

impl Value for f32 {
    fn of(random: u64) -> Self {
        <f64 as Value>::of(random) as f32
    }

    fn factor(random: u64) -> Self {
        <f64 as Value>::factor(random) as f32
    }
}

impl Value for [f32; 2] {
    fn of(random: u64) -> Self {
        [Value::of(random), Value::of(mix(random))]
    }

    fn factor(random: u64) -> Self {
        [Value::factor(random), Value::factor(mix(random))]
    }
}

impl Value for [f64; 2] {
    fn of(random: u64) -> Self {
        [Value::of(random), Value::of(mix(random))]
    }

    fn factor(random: u64) -> Self {
        [Value::factor(random), Value::factor(mix(random))]
    }
}

fn bytes<T: Element>(cells: &[T]) -> &[u8] {
    // SAFETY: an element has no padding, by the contract of `Element`, so that all bytes of the slice are initialised.
    unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), size_of_val(cells)) }
}

/// How an object combines its halo with owned cells: by an operation, in one of two forms.
type Combines = fn(&HaloExchange, ReduceOp, bool) -> Result<(), Error>;

/// A reduce that keeps the halo, or one that clears it.
fn reduce(halo: &HaloExchange, op: ReduceOp, keeps: bool) -> Result<(), Error> {
    halo.begin().reduce(op).keep_halo(keeps).start()?.wait()
}

fn fetch(halo: &HaloExchange, op: ReduceOp, _: bool) -> Result<(), Error> {
    halo.fetch_and_op(op)
}

/// One type of elements, by all its operations.
type OfType = fn(&Stage<'_>, &Pattern, LinkChoice, Combines) -> Outcome;

/// All operations of a type, in both forms, on the given memory and on the host.
fn of_type<T: Value>(comm: &Stage<'_>, pattern: &Pattern, link: LinkChoice, combine: Combines) -> Outcome {
    let on_host = Stage::on_host(comm);
    let (here, there) =
        (Fields::<T>::new(comm, pattern.clone(), 2)?, Fields::<T>::new(&on_host, pattern.clone(), 2)?);
    let halo = HaloExchange::bind_with(comm, here.list(), &by(link))?;
    let host = HaloExchange::bind_with(comm, there.list(), &by(LinkChoice::Auto))?;
    for (step, op) in (0..).zip(ReduceOp::ALL.into_iter().filter(|op| op.supports(T::TYPE))) {
        let keeps = step % 2 == 1;
        let value: fn(u64) -> T = if op == ReduceOp::Product { T::factor } else { T::of };
        here.fill(step, value)?;
        there.fill(step, value)?;
        // Twice: the second finds what the first has left.
        for _ in 0..2 {
            combine(&halo, op, keeps)?;
            combine(&host, op, keeps)?;
        }
        let (found, expected) = (here.values()?, there.values()?);
        let differs = bytes(&found).iter().zip(bytes(&expected)).position(|(one, other)| one != other);
        ensure!(
            differs.is_none(),
            "{link:?}, {op} of {}, halo kept {keeps}: byte {differs:?} differs",
            T::TYPE
        );
    }
    Ok(())
}

fn patterns(comm: &Stage<'_>) -> Result<Vec<Pattern>, Trouble> {
    // Along the second axis a domain is narrower than its halos: they copy its cells several times.
    let grid = RegularGrid::new([3 * comm.size(), 2]).periodic([true, true]).domains_per_rank(2);
    let regular = Grid::cut(grid.decompose(comm.size())?, &[true, true], &[(2, 2), (1, 2)]).pattern(comm)?;
    Ok(vec![regular, pattern_of(comm, &clouds(comm, DomainForm::ByIndices).1)?])
}

fn bits(comm: &Stage<'_>) -> Outcome {
    of_types(comm, &comm.paths(), TYPES, reduce)
}

/// Over all links: it needs none that carries a reduce. Fetches take long, so each pattern has some types.
fn fetched(comm: &Stage<'_>) -> Outcome {
    if !comm.is_on_device() {
        return Ok(());
    }
    of_types(comm, &comm.paths(), TYPES / 2, fetch)?;
    of_vectors(comm, &comm.paths(), fetch)
}

/// The types of elements that have operations.
const TYPES: usize = 13;

fn of_types(comm: &Stage<'_>, paths: &[LinkChoice], count: usize, combine: Combines) -> Outcome {
    let mut types: [OfType; TYPES] = [
        of_type::<f64>,
        of_type::<f32>,
        of_type::<[f64; 2]>,
        of_type::<[f32; 2]>,
        of_type::<i64>,
        of_type::<u64>,
        of_type::<i32>,
        of_type::<u32>,
        of_type::<i16>,
        of_type::<u16>,
        of_type::<i8>,
        of_type::<u8>,
        of_type::<Bool>,
    ];
    let mut numbers = Numbers::new(comm.size() as u64);
    for pattern in patterns(comm)? {
        numbers.shuffle(&mut types);
        // Each type on one path.
        for (of_type, link) in types.iter().take(count).zip(paths.iter().cycle()) {
            of_type(comm, &pattern, *link, combine)?;
        }
    }
    Ok(())
}

/// Vectors on patches: contributions change their components and signs.
fn vectors(comm: &Stage<'_>) -> Outcome {
    of_vectors(comm, &comm.paths(), reduce)
}

fn of_vectors(comm: &Stage<'_>, paths: &[LinkChoice], combine: Combines) -> Outcome {
    let grids = [PatchGrid::cubed_sphere(3)?, PatchGrid::tripolar([5, 8], Pivot::Cell)?];
    let types: [OfType; 4] = [of_type::<f64>, of_type::<f32>, of_type::<[f64; 2]>, of_type::<[f32; 2]>];
    for grid in grids {
        let cut = grid.decompose(comm.size())?;
        let pattern = Pattern::patches(comm, &cut, &Quantity::c_grid(), &Halo::uniform(2))?;
        for (of_type, link) in types.iter().zip(paths.iter().cycle()) {
            of_type(comm, &pattern, *link, combine)?;
        }
    }
    Ok(())
}

fn both_memories(comm: &Stage<'_>) -> Outcome {
    let on_host = Stage::on_host(comm);
    for pattern in patterns(comm)? {
        let [link, ..] = comm.choices();
        let (here, there) = (
            Fields::<f64>::new(comm, pattern.clone(), 1)?,
            Fields::<f64>::new(&on_host, pattern.clone(), 1)?,
        );
        let fields = [here.list(), there.list()].concat();
        let halo = HaloExchange::bind_with(comm, fields, &by(link))?;
        for step in 0..3 {
            here.fill(step, <f64 as Value>::of)?;
            there.fill(step, <f64 as Value>::of)?;
            halo.reduce(ReduceOp::Sum)?.wait()?;
            halo.exchange()?.wait()?;
            halo.fetch_and_op(ReduceOp::Sum)?;
            let (found, expected) = (here.values()?, there.values()?);
            ensure!(bytes(&found) == bytes(&expected), "{link:?}, step {step}: the two memories differ");
        }
    }
    Ok(())
}

fn degree(comm: &Stage<'_>) -> Outcome {
    let grid = RegularGrid::new([2 * comm.size(), 2]).periodic([true, true]).domains_per_rank(2);
    let regular = Grid::cut(grid.decompose(comm.size())?, &[true, true], &[(1, 2), (2, 0)]).pattern(comm)?;
    let cloud = pattern_of(comm, &clouds(comm, DomainForm::ByIndices).1)?;
    for pattern in [regular, cloud] {
        let [link, ..] = comm.choices();
        let fields = Fields::<u32>::new(comm, pattern, 1)?;
        let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
        fields.fill(0, |_| 1)?;
        let ones = fields.values()?;
        halo.reduce(ReduceOp::Sum)?.wait()?;
        let mut degree: Vec<u32> = Vec::new();
        for array in halo.degree()? {
            degree.extend_from_slice(&array.read()?);
        }
        let found = fields.values()?;
        let mut counted = 0;
        for (at, (&found, &degree)) in found.iter().zip(&degree).enumerate() {
            // A cell holds its own one, unless it is a halo cell that was cleared.
            let expected = if found == 0 { 0 } else { ones[at] + degree };
            ensure!(found == expected, "cell {at} holds {found}, its degree is {degree}");
            ensure!(found != 0 || degree == 0, "halo cell {at} has the degree {degree}");
            counted += degree;
        }
        let cleared = found.iter().filter(|&&found| found == 0).count() as u64;
        let total = comm.all_reduce(&[u64::from(counted), cleared], Reduce::Sum)?;
        ensure!(total[0] == total[1] && total[0] > 0, "{} copies of {} halo cells", total[0], total[1]);
    }
    Ok(())
}
