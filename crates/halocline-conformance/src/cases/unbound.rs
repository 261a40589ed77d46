//! The unbound form: fields given to each exchange, over links of the patterns.

use super::fixture::{Line, Words, failure, in_flight, still_works};
use crate::fixtures::{Cloud, DomainForm, Fixture, Grid, by, pattern_of, ring, ring_neighbours, subjects_of};
use crate::form::{Form, Kind};
use crate::numbers::Numbers;
use crate::stage::Stage;
use crate::subject::Home;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{
    Array, BindError, Cause, ElementType, Error, Field, Layout, LinkChoice, LinkCounts, Pattern,
    PatternLinks, Reduce,
};
use halocline_comm::Endpoint;
use std::sync::Arc;

pub(crate) const CASES: &[Case] = &[
    Case { name: "unbound::the_same_fields_again_and_again", run: same_fields },
    Case { name: "unbound::other_layouts_on_each_rank", run: other_layouts },
    Case { name: "unbound::new_fields_on_one_rank_known_ones_on_the_others", run: new_on_one },
    Case { name: "unbound::more_and_more_bytes", run: growth },
    Case { name: "unbound::more_combinations_than_are_remembered", run: forgetting },
    Case { name: "unbound::several_domains_and_patterns", run: several_patterns },
    Case { name: "unbound::fields_dropped_in_flight", run: dropped_fields },
    Case { name: "unbound::links_dropped_in_flight", run: dropped_links },
    Case { name: "unbound::a_field_refused_takes_no_epoch", run: refused },
    Case { name: "unbound::one_exchange_in_flight", run: one_in_flight },
    Case { name: "unbound::fields_that_disagree_fail_at_both_ends", run: disagreement },
    Case { name: "unbound::opaque_elements_of_other_names_fail_with_both", run: other_names },
    Case { name: "unbound::other_patterns_on_one_rank_are_refused", run: other_patterns },
];

/// What links without fields can be made of here.
fn paths(comm: &Stage<'_>) -> [LinkChoice; 3] {
    let [auto, _, _, mailbox, message] = comm.choices();
    [auto, mailbox, message]
}

/// A fixture of fields of one kind on a grid, in forms by domain.
fn fixture(
    comm: &Stage<'_>,
    grid: &Grid,
    pattern: &Pattern,
    (count, kind): (u64, &Kind),
    form: impl Fn(u64, u64) -> Form,
) -> Result<Fixture, Trouble> {
    let mut fixture = Fixture::default();
    for number in 0..count {
        let home = if number % 3 == 2 { Home::Foreign } else { comm.home() };
        let subjects = grid.subjects(comm, pattern, number, (kind, home), |domain| form(number, domain))?;
        fixture.add(pattern, subjects);
    }
    Ok(fixture)
}

fn plane(comm: &Stage<'_>) -> Result<Grid, Trouble> {
    Grid::new(comm.size(), &[2 * comm.size() + 1, comm.size() + 5], &[true, false], 2)
}

fn any_form(at: u64) -> Form {
    let all = Form::all();
    all[(at % all.len() as u64) as usize].clone()
}

fn same_fields(comm: &Stage<'_>) -> Outcome {
    let grid = plane(comm)?;
    for link in paths(comm) {
        let pattern = grid.pattern(comm)?;
        let kind = Kind::plain(ElementType::F64);
        let mut fixture = fixture(comm, &grid, &pattern, (2, &kind), |_, _| Form::default())?;
        let links = PatternLinks::new_with(comm, &[&pattern], &by(link))?;
        fixture.unbound_steps(&links, 20)?;
    }
    Ok(())
}

fn other_layouts(comm: &Stage<'_>) -> Outcome {
    let grid = plane(comm)?;
    let pattern = grid.pattern(comm)?;
    for (turn, link) in (0..).zip(paths(comm)) {
        let links = PatternLinks::new_with(comm, &[&pattern], &by(link))?;
        for extra in [&[][..], &[3], &[2, 2]] {
            let kind = Kind::with_extra(ElementType::F32, extra);
            let form = |number: u64, domain: u64| any_form(number + 3 * domain + turn);
            fixture(comm, &grid, &pattern, (3, &kind), form)?.unbound_steps(&links, 3)?;
        }
    }
    Ok(())
}

/// One rank has another layout each time, the next step another rank.
fn new_on_one(comm: &Stage<'_>) -> Outcome {
    let grid = plane(comm)?;
    let pattern = grid.pattern(comm)?;
    let kind = Kind::with_extra(ElementType::I32, &[2]);
    for link in paths(comm) {
        let links = PatternLinks::new_with(comm, &[&pattern], &by(link))?;
        let mut usual = fixture(comm, &grid, &pattern, (1, &kind), |_, _| Form::default())?;
        usual.unbound_steps(&links, 2)?;
        for turn in 0..12 {
            let mut new = fixture(comm, &grid, &pattern, (1, &kind), |_, domain| any_form(turn + domain))?;
            // The same step of the same fields on all ranks.
            let fixture = if turn as usize % comm.size() == comm.rank() { &mut new } else { &mut usual };
            fixture.go_to(100 + turn);
            links.exchange(&fixture.fields())?.wait()?;
            fixture.check()?;
        }
    }
    Ok(())
}

/// Steps in which larger buffers have to arrive at the latest: far more than a loaded machine takes.
const STEPS_TO_GROW: usize = 1000;

fn growth(comm: &Stage<'_>) -> Outcome {
    let grid = Grid::new(comm.size(), &[3 * comm.size(), 20], &[true, true], 1)?;
    let pattern = grid.pattern(comm)?;
    for link in paths(comm) {
        let links = PatternLinks::new_with(comm, &[&pattern], &by(link))?;
        let mut fixtures = Vec::new();
        for count in [0, 1, 30, 2, 100] {
            let kind = Kind::with_extra(ElementType::F64, &[3]);
            fixtures.push(fixture(comm, &grid, &pattern, (count, &kind), |_, _| Form::default())?);
            let last = fixtures.len() - 1;
            fixtures[last].unbound_steps(&links, 3)?;
        }
        // Buffers that hold it all arrive while exchanges go on, and are taken up.
        let has_grown =
            || links.links().collect::<LinkCounts>().mailbox == 0 || !links.explain().contains(" 4096 ");
        for _ in 0..STEPS_TO_GROW {
            if comm.all_reduce(&[u8::from(!has_grown())], Reduce::Max)? == [0] {
                break;
            }
            fixtures[4].unbound_steps(&links, 1)?;
        }
        ensure!(has_grown(), "what did not fit goes as messages still:\n{}", links.explain());
        let mut numbers = Numbers::new(9);
        for _ in 0..20 {
            fixtures[numbers.below(5)].unbound_steps(&links, 1)?;
        }
    }
    Ok(())
}

fn forgetting(comm: &Stage<'_>) -> Outcome {
    let grid = ring(comm)?;
    let pattern = grid.pattern(comm)?;
    let links = PatternLinks::new(comm, &[&pattern])?;
    let mut fixtures = Vec::new();
    for extra in 0..PatternLinks::REMEMBERED + 5 {
        let kind = Kind::with_extra(ElementType::U16, &[extra + 1]);
        fixtures.push(fixture(comm, &grid, &pattern, (1, &kind), |_, _| Form::default())?);
    }
    for _ in 0..3 {
        fixtures.iter_mut().try_for_each(|fixture| fixture.unbound_steps(&links, 1))?;
    }
    fixtures.iter_mut().rev().try_for_each(|fixture| fixture.unbound_steps(&links, 2))
}

fn several_patterns(comm: &Stage<'_>) -> Outcome {
    let cloud = Cloud {
        seed: 4,
        cells: 25 * comm.size(),
        domains_per_rank: 2,
        halo: 12,
        form: DomainForm::ByIndices,
        coherence: 60,
    };
    let pieces = cloud.pieces(comm.rank(), comm.size());
    let (grid, of_cloud) = (plane(comm)?, pattern_of(comm, &pieces)?);
    let of_grid = grid.pattern(comm)?;
    for link in paths(comm) {
        // The ranks name the patterns in any order.
        let mut patterns = [&of_grid, &of_cloud];
        patterns.rotate_left(comm.rank() % 2);
        let links = PatternLinks::new_with(comm, &patterns, &by(link))?;
        let kind = Kind::with_extra(ElementType::F32, &[2]);
        let mut both = fixture(comm, &grid, &of_grid, (2, &kind), |_, domain| any_form(domain))?;
        both.add(&of_cloud, subjects_of(comm, &pieces, 7, (&kind, comm.home()), any_form)?);
        let mut cloud_alone = Fixture::of(
            of_cloud.clone(),
            subjects_of(comm, &pieces, 1, (&Kind::plain(ElementType::I64), Home::Foreign), any_form)?,
        );
        for _ in 0..3 {
            both.unbound_steps(&links, 2)?;
            cloud_alone.unbound_steps(&links, 1)?;
        }
    }
    Ok(())
}

fn dropped_fields(comm: &Stage<'_>) -> Outcome {
    for link in paths(comm) {
        let lasting = Line::new(comm)?;
        let links = PatternLinks::new_with(comm, &[&lasting.pattern], &by(link))?;
        for step in 0..10 {
            let array = Array::<u64>::zeros(comm, &[5])?;
            array.write()?.fill(step);
            let pending = links.exchange(&[(&lasting.pattern, &array)])?;
            // The exchange holds it.
            drop(array);
            pending.wait()?;
            lasting.fill(step)?;
            links.exchange(&[(&lasting.pattern, &lasting.array)])?.wait()?;
            lasting.check(step)?;
        }
        // What was given once is not held for ever.
        let kept: Arc<()> = Arc::new(());
        let field = kept_field(&kept)?;
        links.exchange(&[(&lasting.pattern, &field)])?.wait()?;
        drop(field);
        ensure!(Arc::strong_count(&kept) == 1, "the memory of an exchange that is over is still held");
    }
    Ok(())
}

/// A field of five words that holds something as long as it lives.
fn kept_field(kept: &Arc<()>) -> Result<Field, Trouble> {
    let mut words = vec![0u64; 5];
    let base = std::ptr::NonNull::new(words.as_mut_ptr()).ok_or_else(|| Trouble::new("no memory"))?;
    let layout = halocline::Layout::c_order(ElementType::U64, &[5])?;
    // SAFETY: the vector's words do not move and live as long as the field holds them; nothing else uses them.
    Ok(unsafe { Field::from_raw(base.cast(), layout, Arc::new((words, Arc::clone(kept)))) })
}

fn dropped_links(comm: &Stage<'_>) -> Outcome {
    for turn in 0..6 {
        for link in paths(comm) {
            let line = Line::new(comm)?;
            let links = PatternLinks::new_with(comm, &[&line.pattern], &by(link))?;
            for _ in 0..turn {
                links.exchange(&[(&line.pattern, &line.array)])?.wait()?;
            }
            let pending = links.exchange(&[(&line.pattern, &line.array)])?;
            if turn % 2 == 0 {
                drop(pending);
                drop(links);
            } else {
                drop(links);
                pending.wait()?;
            }
        }
    }
    still_works(comm)
}

fn refused(comm: &Stage<'_>) -> Outcome {
    let (line, stranger) = (Line::new(comm)?, Line::new(comm)?);
    let links = PatternLinks::new(comm, &[&line.pattern])?;
    let small = Array::<u64>::zeros(comm, &[2])?;
    match links.exchange(&[(&line.pattern, &small)]) {
        Err(Error::Field { .. }) => {}
        other => fail!("a field too small: {other:?}"),
    }
    match links.exchange(&[(&line.pattern, &line.array), (&stranger.pattern, &stranger.array)]) {
        Err(Error::NoSuchPattern { field: 1, patterns: 1 }) => {}
        other => fail!("a pattern without links: {other:?}"),
    }
    match links.exchange(&[(&line.pattern, &line.array), (&line.pattern, &line.array)]) {
        Err(Error::Bind(BindError::Overlap { .. })) => {}
        other => fail!("the same field twice: {other:?}"),
    }
    let many = Array::<u64>::zeros(
        comm,
        &[5, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 2, 2],
    )?;
    match links.exchange(&[(&line.pattern, &many)]) {
        Err(Error::Bind(BindError::TooManyDimensions { .. })) => {}
        Ok(pending) if comm.size() == 1 => pending.wait()?,
        other => fail!("a field of very many dimensions: {other:?}"),
    }
    let guard = line.array.on_host()?.read()?;
    match links.exchange(&[(&line.pattern, &line.array)]) {
        Err(Error::Borrowed { field: 0 }) => {}
        other => fail!("a borrowed field: {other:?}"),
    }
    drop(guard);
    line.fill(1)?;
    let pending = links.exchange(&[(&line.pattern, &line.array)])?;
    ensure!(pending.epoch() == 1 + u64::from(comm.size() == 1), "refused exchanges have taken epochs");
    pending.wait()?;
    line.check(1)
}

fn one_in_flight(comm: &Stage<'_>) -> Outcome {
    for link in paths(comm) {
        let (line, other) = (Line::new(comm)?, Array::<u64>::zeros(comm, &[5])?);
        let links = PatternLinks::new_with(comm, &[&line.pattern], &by(link))?;
        let words = Words::new(comm);
        line.fill(1)?;
        let beside_0 = ring_neighbours(0, comm.size());
        if comm.rank() == 0 {
            beside_0.iter().try_for_each(|&rank| words.hear(rank, 0))?;
        }
        let pending = links.exchange(&[(&line.pattern, &line.array)])?;
        if beside_0.contains(&comm.rank()) {
            in_flight(links.exchange(&[(&line.pattern, &other)]), 1)?;
            ensure!(line.array.on_host()?.write().is_err(), "an array in flight is lent");
            other.write()?.fill(1);
            words.say(0, 0)?;
        }
        pending.wait()?;
        line.check(1)?;
    }
    Ok(())
}

/// The last rank gives something else than the others: it and its neighbours end with a typed error.
fn disagreement(comm: &Stage<'_>) -> Outcome {
    let odd = comm.size() - 1;
    let concerned = comm.rank() == odd || ring_neighbours(odd, comm.size()).contains(&comm.rank());
    for link in paths(comm) {
        for what in 0..4 {
            let line = Line::new(comm)?;
            let links = PatternLinks::new_with(comm, &[&line.pattern], &by(link))?;
            links.exchange(&[(&line.pattern, &line.array)])?.wait()?;
            comm.barrier()?;
            let cells = Array::<f64>::zeros(comm, &[5])?;
            let pairs = Array::<u64>::zeros(comm, &[5, 2])?;
            let swapped = Array::<u64>::zeros(comm, &[5, 3, 2])?;
            let many = Array::<u64>::zeros(comm, &[5, 2, 3])?;
            let strange = comm.rank() == odd;
            let given: Vec<(&Pattern, &Field)> = match (what, strange) {
                (0, true) => vec![(&line.pattern, &cells)],
                (1, true) => vec![(&line.pattern, &pairs)],
                (2, true) => vec![(&line.pattern, &line.array), (&line.pattern, &pairs)],
                (3, true) => vec![(&line.pattern, &swapped)],
                (3, false) => vec![(&line.pattern, &many)],
                _ => vec![(&line.pattern, &line.array)],
            };
            let mut ended = links.exchange(&given).and_then(|pending| pending.wait());
            if comm.size() == 1 {
                ensure!(ended.is_ok(), "a rank alone disagrees with itself: {ended:?}");
                continue;
            }
            // A rank that only sends fails later; the others fail because their neighbours do.
            while ended.is_ok() {
                ended = links.exchange(&given).and_then(|pending| pending.wait());
            }
            let failed = failure(ended)?;
            ensure!(!concerned || matches!(failed.cause, Cause::Fields(_)), "fields that disagree: {failed}");
            failure(links.exchange(&given))?;
            while !links.reclaim() {
                comm.link().host().yield_now();
            }
            line.array.fill(1)?;
        }
    }
    still_works(comm)
}

fn other_names(comm: &Stage<'_>) -> Outcome {
    const NAMES: [&str; 2] = ["datetime64[s]", "[('first', '<i4'), ('a name that has no room', '<f4')]"];
    // As much of the second as a record holds.
    let shown = [NAMES[0], "[('first', '<i4'), ('a name t..."];
    let odd = comm.size() - 1;
    for link in paths(comm) {
        let line = Line::new(comm)?;
        let links = PatternLinks::new_with(comm, &[&line.pattern], &by(link))?;
        let named = |name: &str| -> Result<Field, Trouble> {
            Ok(comm.field(Layout::c_order(ElementType::Opaque(8), &[5])?.named(name))?)
        };
        let (same, other) = (named(NAMES[1])?, named(NAMES[usize::from(comm.rank() == odd)])?);
        // What all name alike is exchanged.
        links.exchange(&[(&line.pattern, &same)])?.wait()?;
        comm.barrier()?;
        let mut ended = links.exchange(&[(&line.pattern, &other)]).and_then(|pending| pending.wait());
        if comm.size() == 1 {
            ended?;
            continue;
        }
        while ended.is_ok() {
            ended = links.exchange(&[(&line.pattern, &other)]).and_then(|pending| pending.wait());
        }
        let failed = failure(ended)?;
        let text = failed.to_string();
        let names_both = shown.iter().all(|name| text.contains(name));
        ensure!(failed.report.is_none() || names_both, "other names: {text}");
        // The rank that fails first knows no other cause.
        let found = comm.all_reduce(&[u64::from(names_both)], Reduce::Sum)?;
        ensure!(found[0] > 0, "no rank names both: {text}");
    }
    still_works(comm)
}

fn other_patterns(comm: &Stage<'_>) -> Outcome {
    let (one, other) = (Line::new(comm)?, Line::new(comm)?);
    let odd = comm.rank() + 1 == comm.size();
    if comm.size() > 1 {
        let patterns = if odd { vec![&one.pattern] } else { vec![&one.pattern, &other.pattern] };
        match PatternLinks::new(comm, &patterns) {
            Err(Error::Bind(BindError::Patterns { .. }) | Error::Elsewhere { .. }) => {}
            result => fail!("links of other patterns: {result:?}"),
        }
    }
    for link in [LinkChoice::Push, LinkChoice::Pull] {
        match PatternLinks::new_with(comm, &[&one.pattern], &by(link)) {
            Err(Error::Bind(BindError::DirectWithoutFields { .. })) => {}
            result => fail!("links without fields by {link:?}: {result:?}"),
        }
    }
    still_works(comm)
}
