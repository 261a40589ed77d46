//! Refused binds: a typed error on every rank that can know the cause, an error on all others; the communicator stays usable.

use super::fixture::{Line, still_works};
use super::foreign::is_reached;
use crate::fixtures::{Grid, by, ring, ring_neighbours, shares_memory};
use crate::form::{Form, Kind};
use crate::stage::Stage;
use crate::subject::Home;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{
    Array, ArrayError, BindError, BindOptions, Decomposed, ElementType, Error, Field, Halo, HaloExchange,
    Layout, LayoutError, LinkChoice, Pattern, PatternLinks, RegularGrid, UnstructuredDomain,
};

pub(crate) const CASES: &[Case] = &[
    Case { name: "refusals::another_element_type_than_the_peer", run: element_type },
    Case { name: "refusals::opaque_elements_of_another_name_than_the_peer", run: element_name },
    Case { name: "refusals::other_extra_dimensions_than_the_peer", run: extra_dimensions },
    Case { name: "refusals::another_number_of_fields", run: field_count },
    Case { name: "refusals::an_array_smaller_than_its_pattern_needs", run: too_small },
    Case { name: "refusals::an_array_of_too_few_dimensions", run: too_few_dimensions },
    Case { name: "refusals::an_array_with_levels_first", run: levels_first },
    Case { name: "refusals::an_unstructured_array_with_levels_first", run: unstructured_levels_first },
    Case { name: "refusals::spare_cells_that_are_not_declared", run: spare_cells },
    Case { name: "refusals::fields_that_overlap_where_a_halo_is_received", run: overlap },
    Case { name: "refusals::other_options_on_one_rank", run: other_options },
    Case { name: "refusals::another_pattern_on_one_rank", run: other_pattern },
    Case { name: "refusals::a_domain_that_is_not_named", run: unsaid_domain },
    Case { name: "refusals::a_domain_of_another_rank", run: other_domain },
    Case { name: "refusals::domains_of_one_rank_that_disagree", run: own_domains_disagree },
    Case { name: "refusals::domains_of_one_rank_with_different_counts", run: own_domains_count },
    Case { name: "refusals::one_after_the_other", run: again_and_again },
];

/// What memory of the host alone shows.
pub(crate) const OF_HOST: &[Case] = &[
    Case { name: "refusals::a_path_that_the_memory_does_not_allow", run: impossible_path },
    Case { name: "refusals::an_array_whose_layout_is_not_of_its_elements", run: wrong_elements },
];

/// The rank that gets something wrong in these cases.
fn odd(comm: &Stage<'_>) -> usize {
    comm.size() - 1
}

/// Whether this rank sees both sides of what the odd rank binds on [`ring`].
fn beside_odd(comm: &Stage<'_>) -> bool {
    ring_neighbours(odd(comm), comm.size()).contains(&comm.rank())
}

/// All ranks must be refused; `knows` says on which of them the error must satisfy `typed`.
fn refused<T>(
    comm: &Stage<'_>,
    result: Result<T, Error>,
    knows: bool,
    typed: impl Fn(&Error) -> bool,
) -> Outcome {
    let Err(error) = result else { fail!("rank {} was not refused", comm.rank()) };
    let text = error.to_string();
    match &error {
        Error::Elsewhere { rank, message } if !knows => {
            ensure!(*rank != comm.rank() && *rank < comm.size() && !message.is_empty(), "{text}");
        }
        error => ensure!(typed(error), "rank {} (knows: {knows}) says: {text}", comm.rank()),
    }
    still_works(comm)
}

fn is_peer(error: &Error) -> bool {
    matches!(error, Error::Peer { error, .. } if matches!(**error, LayoutError::CellMismatch { .. }))
}

/// Another number of fields of a pattern than the peer's, or none of it.
fn is_count(error: &Error) -> bool {
    matches!(error, Error::Bind(BindError::RankFields { .. } | BindError::PatternNotBound { .. }))
}

/// Binds one field of the given kind on [`ring`].
fn bind_kind(
    comm: &Stage<'_>,
    kind: &Kind,
    link: LinkChoice,
) -> Result<Result<HaloExchange, Error>, Trouble> {
    let grid = ring(comm)?;
    let pattern = grid.pattern(comm)?;
    let subjects = grid.subjects(comm, &pattern, 0, (kind, comm.home()), |_| Form::default())?;
    let fields: Vec<(&Pattern, &Field)> =
        subjects.iter().map(|subject| (&pattern, subject.field())).collect();
    Ok(HaloExchange::bind_with(comm, &fields, &by(link)))
}

fn element_type(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    for link in comm.paths() {
        // Of another size, and of the same.
        for element in [ElementType::F32, ElementType::I64] {
            let is_odd = comm.rank() == odd(comm);
            let kind = Kind::plain(if is_odd { element } else { ElementType::F64 });
            let result = bind_kind(comm, &kind, link)?;
            refused(comm, result, is_odd || beside_odd(comm), is_peer)?;
        }
    }
    Ok(())
}

fn element_name(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    const NAMES: [&str; 2] = ["datetime64[s]", "datetime64[ms]"];
    let pattern = ring(comm)?.pattern(comm)?;
    // Another name, and a type of its size instead of a name.
    for (link, other) in comm.paths().into_iter().flat_map(|link| [(link, true), (link, false)]) {
        let is_odd = comm.rank() == odd(comm);
        let (element, theirs) = match other {
            true => (ElementType::Opaque(8), NAMES[1]),
            false => (ElementType::F64, "float64"),
        };
        let layout = match is_odd {
            true if other => Layout::c_order(element, &[6])?.named(theirs),
            true => Layout::c_order(element, &[6])?,
            false => Layout::c_order(ElementType::Opaque(8), &[6])?.named(NAMES[0]),
        };
        let field = comm.field(layout)?;
        let result = HaloExchange::bind_with(comm, [(&pattern, &field)], &by(link));
        refused(comm, result, is_odd || beside_odd(comm), |error| {
            let text = error.to_string();
            is_peer(error) && text.contains(NAMES[0]) && text.contains(theirs)
        })?;
    }
    Ok(())
}

fn extra_dimensions(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    // Other extents; as many elements in another shape; none at all.
    for extra in [&[3][..], &[4, 2], &[2, 2, 2], &[]] {
        let is_odd = comm.rank() == odd(comm);
        let kind = Kind::with_extra(ElementType::F32, if is_odd { extra } else { &[2, 4] });
        let result = bind_kind(comm, &kind, LinkChoice::Auto)?;
        refused(comm, result, is_odd || beside_odd(comm), is_peer)?;
    }
    Ok(())
}

fn field_count(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    for [odd_count, count] in [[2, 1], [1, 2], [0, 1], [1, 0], [3, 2]] {
        let pattern = ring(comm)?.pattern(comm)?;
        let is_odd = comm.rank() == odd(comm);
        let mut arrays = Vec::new();
        for _ in 0..if is_odd { odd_count } else { count } {
            arrays.push(comm.zeros::<f32>(&[6])?);
        }
        let fields: Vec<(&Pattern, &Field)> = arrays.iter().map(|array| (&pattern, &**array)).collect();
        let result = HaloExchange::bind(comm, &fields);
        // A rank that binds no field of a pattern does not know of its peers.
        let knows = (is_odd && odd_count > 0) || (beside_odd(comm) && count > 0);
        refused(comm, result, knows, is_count)?;
    }
    Ok(())
}

fn too_small(comm: &Stage<'_>) -> Outcome {
    let pattern = ring(comm)?.pattern(comm)?;
    for extent in [0, 3, 5] {
        let is_odd = comm.rank() == odd(comm);
        let array = comm.zeros::<f64>(&[if is_odd { extent } else { 6 }])?;
        let result = HaloExchange::bind(comm, [(&pattern, &array)]);
        refused(comm, result, is_odd, |error| {
            matches!(error, Error::Field { pattern: 0, field: 0, error: LayoutError::Extents { .. }, .. })
        })?;
    }
    Ok(())
}

fn too_few_dimensions(comm: &Stage<'_>) -> Outcome {
    let pattern = Grid::new(comm.size(), &[2 * comm.size(), 4], &[true, true], 1)?.pattern(comm)?;
    let (_, shape) = &pattern.plan().domains[0];
    let is_odd = comm.rank() == odd(comm);
    let extents = if is_odd { vec![1000] } else { shape.extents() };
    let array = comm.zeros::<f64>(&extents)?;
    let result = HaloExchange::bind(comm, [(&pattern, &array)]);
    refused(comm, result, is_odd, |error| {
        matches!(error, Error::Field { error: LayoutError::Extents { .. }, .. })
    })
}

/// The odd rank's array of extents `wrong` is refused, bound and unbound; the error guesses the pattern's axes.
fn wrong_extents(
    comm: &Stage<'_>,
    pattern: &Pattern,
    (usual, wrong): (&[usize], &[usize]),
    axes: Option<&[usize]>,
) -> Outcome {
    let is_odd = comm.rank() == odd(comm);
    let typed = |error: &Error| match error {
        Error::Field { error: LayoutError::Extents { extents, guess, .. }, .. } => {
            extents == wrong && guess.as_deref() == axes
        }
        _ => false,
    };
    let array = comm.zeros::<f64>(if is_odd { wrong } else { usual })?;
    refused(comm, HaloExchange::bind(comm, [(pattern, &array)]), is_odd, typed)?;
    if comm.is_on_device() {
        return Ok(());
    }
    let links = PatternLinks::new(comm, &[pattern])?;
    if is_odd {
        let error = links.exchange(&[(pattern, &array)]).map(drop);
        ensure!(error.as_ref().is_err_and(typed), "an exchange without a bind gives {error:?}");
    }
    let array = comm.zeros::<f64>(usual)?;
    Ok(links.exchange(&[(pattern, &array)])?.wait()?)
}

/// A periodic grid in which each rank has an array of 10 x 10 cells.
fn ten_by_ten(comm: &Stage<'_>) -> Result<Pattern, Trouble> {
    let grid = RegularGrid::new([8 * comm.size(), 8]).periodic([true, true]);
    let cut = grid.decompose_into([comm.size(), 1], comm.size())?;
    Ok(cut.pattern(comm, Halo::uniform(1))?)
}

fn levels_first(comm: &Stage<'_>) -> Outcome {
    let pattern = ten_by_ten(comm)?;
    for levels in [30, 5] {
        wrong_extents(comm, &pattern, (&[10, 10, levels], &[levels, 10, 10]), Some(&[1, 2]))?;
    }
    wrong_extents(comm, &pattern, (&[10, 10], &[12, 10]), None)?;
    // With its axes named it is taken, by the side of one in the usual order.
    let order: &[usize] = if comm.rank() == odd(comm) { &[30, 10, 10] } else { &[10, 10, 30] };
    let axes: &[usize] = if comm.rank() == odd(comm) { &[1, 2] } else { &[0, 1] };
    let field = comm.field(Layout::c_order(ElementType::F64, order)?.with_axes(axes)?)?;
    HaloExchange::bind(comm, [(&pattern, &field)])?.exchange()?.wait()?;
    larger_along_named_axes(comm, &pattern)
}

/// An array with space for a halo of 2 on the odd rank, whose axes alone are named, is refused.
fn larger_along_named_axes(comm: &Stage<'_>, pattern: &Pattern) -> Outcome {
    let is_odd = comm.rank() == odd(comm);
    let extents: &[usize] = if is_odd { &[3, 12, 12] } else { &[3, 10, 10] };
    let layout = Layout::c_order(ElementType::F64, extents)?.with_axes(&[1, 2])?;
    let field = comm.field(layout.clone())?;
    refused(
        comm,
        HaloExchange::bind(comm, [(pattern, &field)]),
        is_odd,
        |error| matches!(error, Error::Field { error: LayoutError::Extents { named: Some(named), .. }, .. } if named[..] == [1, 2]),
    )?;
    for said in [layout.clone().padded(), layout.with_origin(if is_odd { &[2, 2] } else { &[1, 1] })] {
        let field = comm.field(said)?;
        HaloExchange::bind(comm, [(pattern, &field)])?.exchange()?.wait()?;
    }
    Ok(())
}

fn unstructured_levels_first(comm: &Stage<'_>) -> Outcome {
    let (rank, ranks) = (comm.rank() as u64, comm.size() as u64);
    let owned = (50 * rank..50 * (rank + 1)).collect();
    let halo = if ranks > 1 { vec![50 * ((rank + 1) % ranks)] } else { Vec::new() };
    let cells = 50 + halo.len();
    let domain = UnstructuredDomain::new(rank, owned, halo);
    let pattern = Pattern::unstructured(comm, &[domain])?;
    wrong_extents(comm, &pattern, (&[cells, 65], &[65, cells]), Some(&[1]))?;
    wrong_extents(comm, &pattern, (&[cells], &[cells + 1]), None)?;
    // Its cells have no origin.
    let field = comm.field(Layout::c_order(ElementType::F64, &[cells + 3])?.with_origin(&[3]))?;
    refused(comm, HaloExchange::bind(comm, [(&pattern, &field)]), true, |error| {
        matches!(error, Error::Field { error: LayoutError::Origin { .. }, .. })
    })
}

fn spare_cells(comm: &Stage<'_>) -> Outcome {
    let pattern = ten_by_ten(comm)?;
    let of_larger = |layout: fn(Layout) -> Layout| Layout::c_order(ElementType::F64, &[12, 11]).map(layout);
    for said in [of_larger(Layout::padded)?, of_larger(|layout| layout.with_origin(&[2, 1]))?] {
        let field = comm.field(said)?;
        HaloExchange::bind(comm, [(&pattern, &field)])?.exchange()?.wait()?;
    }
    let unsaid = comm.field(of_larger(|layout| layout)?)?;
    let result = HaloExchange::bind(comm, [(&pattern, &unsaid)]);
    refused(comm, result, true, |error| error.to_string().contains("padded"))
}

fn overlap(comm: &Stage<'_>) -> Outcome {
    let pattern = ring(comm)?.pattern(comm)?;
    let (one, two) = (comm.zeros::<f64>(&[6])?, comm.zeros::<f64>(&[6])?);
    let is_odd = comm.rank() == odd(comm);
    let result = HaloExchange::bind(comm, [(&pattern, &one), (&pattern, if is_odd { &one } else { &two })]);
    refused(comm, result, is_odd, |error| {
        matches!(error, Error::Bind(BindError::Overlap { fields: [0, 1], .. }))
    })
}

fn impossible_path(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 || !shares_memory(comm) {
        return Ok(());
    }
    for link in [LinkChoice::Push, LinkChoice::Pull] {
        let grid = ring(comm)?;
        let pattern = grid.pattern(comm)?;
        let is_odd = comm.rank() == odd(comm);
        let home = if is_odd { Home::Foreign } else { comm.home() };
        let kind = Kind::plain(ElementType::F64);
        let subjects = grid.subjects(comm, &pattern, 0, (&kind, home), |_| Form::default())?;
        let result = HaloExchange::bind_with(comm, [(&pattern, subjects[0].field())], &by(link));
        if is_reached(comm)? {
            result?.exchange()?.wait()?;
        } else {
            let why = "its memory belongs to this process alone";
            let is_path = |error: &Error| matches!(error, Error::Bind(BindError::Path { reason, .. }) if reason.contains(why));
            refused(comm, result, is_odd || beside_odd(comm), is_path)?;
        }
    }
    Ok(())
}

fn other_options(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let line = Line::new(comm)?;
    let is_odd = comm.rank() == odd(comm);
    for (theirs, ours) in [(LinkChoice::Push, LinkChoice::Pull), (LinkChoice::Auto, LinkChoice::Message)] {
        let result = line.bind(comm, if is_odd { ours } else { theirs });
        let own = odd(comm);
        refused(comm, result, is_odd, |error| match error {
            Error::Bind(BindError::LinkChoice { rank, choice, first }) => {
                (*rank, *choice, *first) == (own, ours, theirs)
            }
            _ => false,
        })?;
    }
    // A deadline is each rank's own affair.
    let deadline = is_odd.then_some(std::time::Duration::from_secs(50));
    let halo = line.bind_with(comm, &BindOptions::default().deadline(deadline))?;
    line.step(&halo, 1)
}

fn other_pattern(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let (one, other) = (ring(comm)?.pattern(comm)?, ring(comm)?.pattern(comm)?);
    let is_odd = comm.rank() == odd(comm);
    let array = comm.zeros::<f64>(&[6])?;
    let result = HaloExchange::bind(comm, [(if is_odd { &other } else { &one }, &array)]);
    refused(comm, result, is_odd || beside_odd(comm), is_count)
}

/// Two domains on each rank of a periodic line.
fn two_domains(comm: &Stage<'_>) -> Result<Pattern, Trouble> {
    let grid = RegularGrid::new([6 * comm.size()]).periodic([true]).domains_per_rank(2);
    Ok(Grid::cut(grid.decompose(comm.size())?, &[true], &[(1, 1)]).pattern(comm)?)
}

fn unsaid_domain(comm: &Stage<'_>) -> Outcome {
    let pattern = two_domains(comm)?;
    let ids = [0, 1].map(|at| pattern.plan().domains[at].0);
    let arrays = [comm.zeros::<f64>(&[5])?, comm.zeros::<f64>(&[5])?];
    let is_odd = comm.rank() == odd(comm);
    let fields =
        [0, 1].map(|at| if is_odd { Field::clone(&arrays[at]) } else { arrays[at].on_domain(ids[at]) });
    let result = HaloExchange::bind(comm, [(&pattern, &fields[0]), (&pattern, &fields[1])]);
    refused(
        comm,
        result,
        is_odd,
        |error| matches!(error, Error::Bind(BindError::WhichDomain { pattern: 0, domains }) if domains[..] == ids),
    )
}

fn other_domain(comm: &Stage<'_>) -> Outcome {
    let pattern = ring(comm)?.pattern(comm)?;
    let array = comm.zeros::<f64>(&[6])?;
    let is_odd = comm.rank() == odd(comm);
    let domain = if is_odd { 999 } else { comm.rank() as u64 };
    let result = HaloExchange::bind(comm, [(&pattern, &array.on_domain(domain))]);
    refused(
        comm,
        result,
        is_odd,
        |error| matches!(error, Error::Bind(BindError::NotOnRank { pattern: 0, domain }) if domain.number == 999),
    )
}

fn own_domains_disagree(comm: &Stage<'_>) -> Outcome {
    let pattern = two_domains(comm)?;
    let ids = [0, 1].map(|at| pattern.plan().domains[at].0);
    // The second domain of the odd rank has smaller elements, or fewer of them.
    for (element, extra) in [(ElementType::U8, 2), (ElementType::F64, 1)] {
        let is_odd = comm.rank() == odd(comm);
        let usual = comm.field(Layout::c_order(ElementType::F64, &[5, 2])?)?;
        let second = if is_odd { Layout::c_order(element, &[5, extra])? } else { usual.layout().clone() };
        let second = comm.field(second)?;
        let fields = [usual.on_domain(ids[0]), second.on_domain(ids[1])];
        let result = HaloExchange::bind(comm, [(&pattern, &fields[0]), (&pattern, &fields[1])]);
        refused(comm, result, is_odd, |error| {
            let text = error.to_string();
            let cells = "bind fields with the same elements and extra dimensions";
            matches!(error, Error::Peer { .. }) && text.contains(cells)
        })?;
    }
    Ok(())
}

fn own_domains_count(comm: &Stage<'_>) -> Outcome {
    let pattern = two_domains(comm)?;
    let ids = [0, 1].map(|at| pattern.plan().domains[at].0);
    let field = || -> Result<Field, Trouble> { Ok(comm.field(Layout::c_order(ElementType::F64, &[5])?)?) };
    let (first, second, third) =
        (field()?.on_domain(ids[0]), field()?.on_domain(ids[1]), field()?.on_domain(ids[0]));
    let is_odd = comm.rank() == odd(comm);
    let mut fields = vec![(&pattern, &first), (&pattern, &second)];
    if is_odd {
        fields.push((&pattern, &third));
    }
    refused(comm, HaloExchange::bind(comm, &fields), is_odd, |error| match error {
        Error::Bind(BindError::DomainFields { fields, other_fields, .. }) => {
            fields.abs_diff(*other_fields) == 1
        }
        _ => false,
    })
}

fn wrong_elements(comm: &Stage<'_>) -> Outcome {
    let layout = Layout::c_order(ElementType::F32, &[4])?;
    match Array::<f64>::with_layout(comm, layout) {
        Err(Error::Array(ArrayError::Element { wanted, .. })) if wanted.element == ElementType::F64 => {}
        other => fail!("an array of f64 over float32: {other:?}"),
    }
    let layout = Layout::strided(ElementType::F64, &[4], &[12])?;
    match Array::<f64>::with_layout(comm, layout) {
        Err(Error::Array(ArrayError::Element { wanted, .. })) if wanted.element == ElementType::F64 => Ok(()),
        other => fail!("an array of f64 in steps of 12 bytes: {other:?}"),
    }
}

fn again_and_again(comm: &Stage<'_>) -> Outcome {
    let line = Line::new(comm)?;
    let halo = line.bind(comm, LinkChoice::Auto)?;
    for step in 1..5 {
        let is_odd = comm.rank() == odd(comm);
        let array = comm.zeros::<u64>(&[if is_odd { 2 } else { 5 }])?;
        let result = HaloExchange::bind(comm, [(&line.pattern, &array)]);
        ensure!(result.is_err(), "an array that is too small was bound");
        // What was bound before goes on, and the array of a refused bind is free.
        line.step(&halo, step)?;
        array.fill(step)?;
    }
    Ok(())
}
