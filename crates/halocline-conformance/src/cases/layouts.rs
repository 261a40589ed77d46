//! Element types and layouts, alone and mixed.

use crate::fixtures::{Cloud, DomainForm, Fixture, Grid, by, pattern_of, ring, subjects_of};
use crate::form::{Form, Kind};
use crate::numbers::{Numbers, mix};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure};
use halocline::{Bool, Element, ElementType, HaloExchange, Layout, LinkChoice};

pub(crate) const CASES: &[Case] = &[
    Case { name: "layouts::elements_of_up_to_256_bytes", run: element_sizes },
    Case { name: "layouts::every_named_element_type", run: element_types },
    Case { name: "layouts::negative_padded_permuted_strides", run: strides },
    Case { name: "layouts::extra_dimensions_anywhere", run: extra_dimensions },
    Case { name: "layouts::another_one_on_each_rank", run: one_each },
    Case { name: "layouts::of_unstructured_fields", run: unstructured },
    Case { name: "layouts::types_layouts_and_patterns_mixed_in_one_bind", run: mixed },
    Case { name: "layouts::typed_arrays_through_their_guards", run: typed },
    Case { name: "layouts::opaque_bytes_meet_a_type_of_their_size", run: opaque },
];

/// A ring of fields of one kind; `form` by domain.
fn on_ring(comm: &Stage<'_>, kind: &Kind, link: LinkChoice, form: impl Fn(u64) -> Form) -> Outcome {
    let grid = ring(comm)?;
    let pattern = grid.pattern(comm)?;
    let subjects = grid.subjects(comm, &pattern, 0, (kind, comm.home()), form)?;
    let mut fixture = Fixture::of(pattern, subjects);
    let halo = fixture.bind(comm, &by(link))?;
    fixture.steps(&halo, 2)
}

fn element_sizes(comm: &Stage<'_>) -> Outcome {
    for size in (1..=16).chain([24, 37, 100, 256]) {
        let link = comm.choices()[1 + usize::from(size) % 4];
        on_ring(comm, &Kind::with_extra(ElementType::Opaque(size), &[3]), link, |_| Form::default())?;
        on_ring(comm, &Kind::plain(ElementType::Opaque(size)), LinkChoice::Auto, |_| Form::padded())?;
    }
    Ok(())
}

const TYPES: [ElementType; 15] = [
    ElementType::Bool,
    ElementType::I8,
    ElementType::U8,
    ElementType::I16,
    ElementType::U16,
    ElementType::F16,
    ElementType::Bf16,
    ElementType::I32,
    ElementType::U32,
    ElementType::F32,
    ElementType::I64,
    ElementType::U64,
    ElementType::F64,
    ElementType::C64,
    ElementType::C128,
];

fn element_types(comm: &Stage<'_>) -> Outcome {
    for (at, element) in TYPES.into_iter().enumerate() {
        on_ring(comm, &Kind::plain(element), comm.choices()[1 + at % 4], |_| Form::default())?;
    }
    Ok(())
}

/// A grid of two axes, cut along both where the number of ranks allows.
fn plane(comm: &Stage<'_>) -> Result<Grid, crate::Trouble> {
    Grid::new(comm.size(), &[2 * comm.size() + 1, comm.size() + 4], &[true, false], 2)
}

fn strides(comm: &Stage<'_>) -> Outcome {
    let grid = plane(comm)?;
    let pattern = grid.pattern(comm)?;
    for form in Form::all() {
        let kind = Kind::plain(ElementType::F32);
        let subjects = grid.subjects(comm, &pattern, 0, (&kind, comm.home()), |_| form.clone())?;
        Fixture::of(pattern.clone(), subjects).every_path(comm, 2)?;
    }
    Ok(())
}

fn extra_dimensions(comm: &Stage<'_>) -> Outcome {
    let grid = plane(comm)?;
    let pattern = grid.pattern(comm)?;
    for (at, extra) in [&[3][..], &[1, 2], &[2, 3], &[2, 1, 2]].into_iter().enumerate() {
        for (other, form) in [Form::default(), Form::extra_first(), Form::shuffled()].into_iter().enumerate()
        {
            let kind = Kind::with_extra(ElementType::U16, extra);
            let subjects = grid.subjects(comm, &pattern, 0, (&kind, comm.home()), |_| form.clone())?;
            let mut fixture = Fixture::of(pattern.clone(), subjects);
            let halo = fixture.bind(comm, &by(comm.choices()[1 + (at + other) % 4]))?;
            fixture.steps(&halo, 2)?;
        }
    }
    Ok(())
}

/// A form of its own for each domain.
fn form_of(domain: u64, turn: u64) -> Form {
    let all = Form::all();
    all[((domain + turn) % all.len() as u64) as usize].clone()
}

fn one_each(comm: &Stage<'_>) -> Outcome {
    let grid = plane(comm)?;
    let pattern = grid.pattern(comm)?;
    for turn in 0..3 {
        let kind = Kind::with_extra(ElementType::F64, &[2, 2]);
        let subjects =
            grid.subjects(comm, &pattern, 0, (&kind, comm.home()), |domain| form_of(domain, turn))?;
        Fixture::of(pattern.clone(), subjects).every_path(comm, 2)?;
    }
    Ok(())
}

fn unstructured(comm: &Stage<'_>) -> Outcome {
    let cells = 20 * comm.size();
    let cloud =
        Cloud { seed: 11, cells, domains_per_rank: 2, halo: 15, form: DomainForm::ByIndices, coherence: 60 };
    let pieces = cloud.pieces(comm.rank(), comm.size());
    let pattern = pattern_of(comm, &pieces)?;
    for (turn, extra) in [(0, &[][..]), (1, &[3]), (2, &[2, 3])] {
        let kind = Kind::with_extra(ElementType::F32, extra);
        let form = |domain| form_of(domain / 1001, turn);
        let subjects = subjects_of(comm, &pieces, 0, (&kind, comm.home()), form)?;
        Fixture::of(pattern.clone(), subjects).every_path(comm, 2)?;
    }
    Ok(())
}

fn mixed(comm: &Stage<'_>) -> Outcome {
    let grid = plane(comm)?;
    let cloud = Cloud {
        seed: 21,
        cells: 15 * comm.size(),
        domains_per_rank: 1,
        halo: 9,
        form: DomainForm::OwnedThenHalo,
        coherence: 50,
    };
    let pieces = cloud.pieces(comm.rank(), comm.size());
    let (regular, other) = (grid.pattern(comm)?, pattern_of(comm, &pieces)?);
    let mut fixture = Fixture::default();
    let mut numbers = Numbers::new(31);
    for (number, element) in (0..).zip(TYPES) {
        let kind = Kind::with_extra(element, &[1 + numbers.below(3)]);
        let form = |domain| form_of(domain, number);
        let what = (&kind, comm.home());
        if number % 3 == 2 {
            fixture.add(&other, subjects_of(comm, &pieces, number, what, form)?);
        } else {
            fixture.add(&regular, grid.subjects(comm, &regular, number, what, form)?);
        }
    }
    fixture.every_path(comm, 2)
}

fn typed(comm: &Stage<'_>) -> Outcome {
    fn exchange<T: Element + PartialEq>(comm: &Stage<'_>, value: impl Fn(u64) -> T) -> Outcome {
        let n = 3;
        let total = (n * comm.size()) as u64;
        let pattern = ring_of(comm, n)?;
        let array = comm.zeros::<T>(&[n + 2])?;
        let halo = HaloExchange::bind(comm, [(&pattern, &array)])?;
        let first = (n * comm.rank()) as u64;
        for step in 0..3 {
            let fresh = |at: usize| value(mix(step) ^ (first + at as u64));
            array.change(|cells| (0..n).for_each(|at| cells[at + 1] = fresh(at)))?;
            halo.exchange()?.wait()?;
            let cells = array.get()?;
            let (before, after) = ((first + total - 1) % total, (first + n as u64) % total);
            ensure!(cells[0] == value(mix(step) ^ before), "{}: the cell before is wrong", T::TYPE);
            ensure!(cells[n + 1] == value(mix(step) ^ after), "{}: the cell after is wrong", T::TYPE);
        }
        Ok(())
    }
    exchange::<f64>(comm, |id| id as f64)?;
    exchange::<f32>(comm, |id| (id % 100_003) as f32)?;
    exchange::<i64>(comm, |id| id as i64)?;
    exchange::<u8>(comm, |id| id as u8)?;
    exchange::<Bool>(comm, |id| mix(id).is_multiple_of(2).into())?;
    exchange::<[f64; 2]>(comm, |id| [id as f64, -(id as f64)])
}

fn ring_of(comm: &Stage<'_>, n: usize) -> Result<halocline::Pattern, crate::Trouble> {
    Ok(Grid::new(comm.size(), &[n * comm.size()], &[true], 1)?.pattern(comm)?)
}

fn opaque(comm: &Stage<'_>) -> Outcome {
    let pattern = ring_of(comm, 2)?;
    let element = if comm.rank().is_multiple_of(2) { ElementType::F64 } else { ElementType::Opaque(8) };
    let field = comm.field(Layout::c_order(element, &[4])?)?;
    let halo = HaloExchange::bind(comm, [(&pattern, &field)])?;
    halo.exchange()?.wait()?;
    // One side says what its bytes stand for, the other that they are any.
    let named = Layout::c_order(ElementType::Opaque(8), &[4])?;
    let named = if comm.rank().is_multiple_of(2) { named.named("datetime64[s]") } else { named };
    let field = comm.field(named)?;
    HaloExchange::bind(comm, [(&pattern, &field)])?.exchange()?.wait()?;
    Ok(())
}
