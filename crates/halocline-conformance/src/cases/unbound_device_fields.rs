//! Fields of devices in the unbound form: each exchange names its fields.

use super::devices::group;
use super::fixture::failure;
use super::patches::on_seams;
use super::scheduled::device_of;
use crate::device_fixtures::Rig;
use crate::fixtures::{Fixture, Grid, by, ring, ring_neighbours};
use crate::form::{Form, Kind};
use crate::numbers::Numbers;
use crate::stage::Stage;
use crate::subject::Home;
use crate::watchdog::note;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::device::Priority;
use halocline::device::sim::chosen;
use halocline::{
    Array, BindError, BindOptions, Cause, DeviceArray, Difference, ElementType, Error, Field, Layout,
    LinkChoice, Pattern, PatternLinks, Pending, Quantity, Stream,
};
use halocline_comm::Endpoint;
use std::task::{Context, Poll, Waker};

pub(super) const fn cases<R: Rig>() -> [Case; 11] {
    [
        Case { name: "unbound_device_fields::the_same_fields_again_and_again", run: same_fields::<R> },
        Case { name: "unbound_device_fields::new_arrays_each_time", run: new_arrays::<R> },
        Case { name: "unbound_device_fields::more_and_more_bytes", run: growth::<R> },
        Case { name: "unbound_device_fields::random_patterns_types_and_layouts", run: random_fields::<R> },
        Case { name: "unbound_device_fields::values_on_turned_tiles", run: turned::<R> },
        Case { name: "unbound_device_fields::many_in_flight", run: many_in_flight::<R> },
        Case { name: "unbound_device_fields::fields_that_a_bound_object_exchanges_too", run: shared::<R> },
        Case { name: "unbound_device_fields::host_fields_beside_those_of_a_device", run: mixed::<R> },
        Case {
            name: "unbound_device_fields::fields_that_disagree_fail_at_both_ends",
            run: disagreement::<R>,
        },
        Case { name: "unbound_device_fields::fields_that_are_refused", run: refused::<R> },
        Case { name: "unbound_device_fields::links_and_fields_dropped_in_flight", run: dropped::<R> },
    ]
}

/// Links for fields of this rank's device; none where a peer cannot reach its memory.
fn links<R: Rig>(
    rig: &'static R,
    comm: &Stage<'_>,
    patterns: &[&Pattern],
    options: &BindOptions,
) -> Result<Option<PatternLinks>, Trouble> {
    match PatternLinks::on_device(comm, patterns, device_of(rig, comm.rank()), options) {
        Err(Error::Bind(BindError::Path { .. }) | Error::Elsewhere { .. }) if rig.is_apart(comm) => Ok(None),
        made => Ok(Some(made?)),
    }
}

/// Steps that wait on the host and steps in the order of a stream, in turn.
fn steps(
    comm: &Stage<'_>,
    fixture: &mut Fixture,
    links: &PatternLinks,
    stream: &Stream,
    count: usize,
) -> Outcome {
    for step in 0..count {
        fixture.next();
        let fields = fixture.fields();
        match step % 2 {
            0 => links.schedule_exchange(&fields, &[stream])?.wait()?,
            _ => links.schedule_exchange(&fields, &[stream])?.schedule_wait(stream)?,
        }
        stream.synchronise()?;
        fixture.check()?;
        // No rank overwrites cells that its peer may still read.
        comm.barrier()?;
    }
    Ok(())
}

fn plane(comm: &Stage<'_>) -> Result<Grid, Trouble> {
    Grid::new(comm.size(), &[2 * comm.size() + 1, comm.size() + 5], &[true, false], 2)
}

/// A fixture of device fields of one kind, each in a form of its own.
fn fixture<R: Rig>(
    rig: &'static R,
    comm: &Stage<'_>,
    (grid, pattern): (&Grid, &Pattern),
    (count, kind): (u64, &Kind),
) -> Result<Fixture, Trouble> {
    let mut fixture = Fixture::default();
    for number in 0..count {
        let home = Home::Device(device_of(rig, comm.rank()));
        let form = |_| Form::all()[number as usize % 6].clone();
        fixture.add(pattern, grid.subjects(comm, pattern, number, (kind, home), form)?);
    }
    Ok(fixture)
}

fn same_fields<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let (rig, grid) = (R::get()?, plane(comm)?);
    let pattern = grid.pattern(comm)?;
    let stream = device_of(rig, comm.rank()).stream(Priority::Normal)?;
    let mut fields = fixture(rig, comm, (&grid, &pattern), (3, &Kind::plain(ElementType::F64)))?;
    for (inline, stream_waits) in [(false, false), (true, false), (false, true)] {
        let options = by(LinkChoice::Auto).inline(inline).stream_waits(stream_waits);
        let Some(links) = links(rig, comm, &[&pattern], &options)? else { return Ok(()) };
        steps(comm, &mut fields, &links, &stream, 10)?;
        ensure!(
            comm.size() == 1 || links.explain().contains("announced slot  memory of the devices"),
            "{}",
            links.explain()
        );
    }
    Ok(())
}

/// Tables are made for layouts: new arrays need none.
fn new_arrays<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let (rig, grid) = (R::get()?, plane(comm)?);
    let pattern = grid.pattern(comm)?;
    let stream = device_of(rig, comm.rank()).stream(Priority::Normal)?;
    let Some(links) = links(rig, comm, &[&pattern], &by(LinkChoice::Auto))? else { return Ok(()) };
    let kind = Kind::with_extra(ElementType::F32, &[3]);
    let mut kept = Vec::new();
    for turn in 0..6 {
        let mut fields = fixture(rig, comm, (&grid, &pattern), (2, &kind))?;
        fields.go_to(10 * turn + 1);
        steps(comm, &mut fields, &links, &stream, 2)?;
        // Some are dropped, so that others get their addresses.
        kept.extend((turn % 3 == 0).then_some(fields));
    }
    Ok(())
}

fn growth<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let grid = Grid::new(comm.size(), &[3 * comm.size(), 20], &[true, true], 1)?;
    let pattern = grid.pattern(comm)?;
    let stream = device_of(rig, comm.rank()).stream(Priority::Normal)?;
    let Some(links) = links(rig, comm, &[&pattern], &by(LinkChoice::Auto))? else { return Ok(()) };
    let mut fixtures = Vec::new();
    for count in [0, 1, 30, 2, 64] {
        let kind = Kind::with_extra(ElementType::F64, &[3]);
        fixtures.push(fixture(rig, comm, (&grid, &pattern), (count, &kind))?);
    }
    // Messages of more than a megabyte, which the same thread blocks pack and unpack.
    let mut large =
        fixture(rig, comm, (&grid, &pattern), (3, &Kind::with_extra(ElementType::C128, &[1250])))?;
    for step in 0..3 {
        for fixture in &mut fixtures {
            fixture.go_to(7 * step + 1);
            steps(comm, fixture, &links, &stream, 1)?;
        }
        if step == 1 {
            steps(comm, &mut large, &links, &stream, 1)?;
        }
    }
    Ok(())
}

fn random_fields<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let stream = device.stream(Priority::Normal)?;
    for seed in chosen(0..R::SEEDS) {
        note(comm.rank(), format!("unbound device fields, HALOCLINE_SEED={seed}"));
        let mut numbers = Numbers::new(seed);
        let mut fixtures = [Fixture::default()];
        for _ in 0..1 + numbers.below(2) {
            let home = |_: &mut Numbers| [Home::Device(device)];
            group(comm, (&mut numbers, 1), &mut fixtures, home)?;
        }
        let [mut fixture] = fixtures;
        let patterns: Vec<Pattern> = fixture.fields().iter().map(|(pattern, _)| (*pattern).clone()).collect();
        let patterns: Vec<&Pattern> = patterns.iter().collect();
        let options = by(LinkChoice::Auto).inline(numbers.one_in(2)).stream_waits(numbers.one_in(3));
        let Some(links) = links(rig, comm, &patterns, &options)? else { return Ok(()) };
        let ended = steps(comm, &mut fixture, &links, &stream, 3);
        ended.map_err(|trouble| Trouble::new(format!("seed {seed}: {trouble}")))?;
    }
    Ok(())
}

/// Rows become columns, are read backwards, and components change their signs.
fn turned<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let stream = device.stream(Priority::Normal)?;
    let kinds = [Kind::plain(ElementType::F64), Kind::with_extra(ElementType::F32, &[2])];
    for quantity in [Quantity::corners(), Quantity::c_grid()] {
        for (pattern, mut fields) in on_seams(comm, &quantity, (&kinds, Home::Device(device)))? {
            for inline in [false, true] {
                let options = by(LinkChoice::Auto).inline(inline);
                let Some(links) = links(rig, comm, &[&pattern], &options)? else { return Ok(()) };
                steps(comm, &mut fields, &links, &stream, 2)?;
            }
        }
    }
    Ok(())
}

/// The host gives exchanges, also of other fields, without a wait for the ones before.
fn many_in_flight<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let (rig, grid) = (R::get()?, plane(comm)?);
    let pattern = grid.pattern(comm)?;
    let stream = device_of(rig, comm.rank()).stream(Priority::Normal)?;
    let Some(links) = links(rig, comm, &[&pattern], &by(LinkChoice::Auto))? else { return Ok(()) };
    let kinds = [Kind::plain(ElementType::F64), Kind::with_extra(ElementType::I32, &[2])];
    let fixtures: Vec<Fixture> = kinds
        .iter()
        .map(|kind| fixture(rig, comm, (&grid, &pattern), (1, kind)))
        .collect::<Result<_, _>>()?;
    let mut fixtures = fixtures;
    fixtures.iter_mut().for_each(|fixture| fixture.go_to(3));
    comm.barrier()?;
    let mut last = None;
    for turn in 0..20 {
        let pending = links.schedule_exchange(&fixtures[turn % 2].fields(), &[&stream])?;
        pending.schedule_wait(&stream)?;
        last = Some(pending);
    }
    last.map_or(Ok(()), |pending| pending.wait())?;
    stream.synchronise()?;
    fixtures.iter().try_for_each(Fixture::check)?;
    Ok(comm.barrier()?)
}

fn shared<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let (rig, grid) = (R::get()?, ring(comm)?);
    let pattern = grid.pattern(comm)?;
    let stream = device_of(rig, comm.rank()).stream(Priority::Normal)?;
    let Some(links) = links(rig, comm, &[&pattern], &by(LinkChoice::Auto))? else { return Ok(()) };
    let mut fields = fixture(rig, comm, (&grid, &pattern), (1, &Kind::plain(ElementType::F64)))?;
    let halo = fields.bind(comm, &by(LinkChoice::Auto))?;
    for _ in 0..5 {
        fields.next();
        comm.barrier()?;
        // Neither waits for the other on the host.
        halo.schedule_exchange(&[&stream])?.wait()?;
        let pending = links.schedule_exchange(&fields.fields(), &[&stream])?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        pending.wait()?;
        stream.synchronise()?;
        fields.check()?;
        comm.barrier()?;
    }
    Ok(())
}

fn disagreement<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let stream = device.stream(Priority::Normal)?;
    let odd = comm.size() - 1;
    let strange = comm.rank() == odd;
    let concerned = strange || ring_neighbours(odd, comm.size()).contains(&comm.rank());
    for what in 0..4 {
        let pattern = ring(comm)?.pattern(comm)?;
        let Some(links) = links(rig, comm, &[&pattern], &by(LinkChoice::Auto))? else { return Ok(()) };
        let array = |extents: &[usize], strides: Option<&[isize]>| -> Result<Field, Trouble> {
            let layout = match strides {
                None => Layout::c_order(ElementType::U64, extents)?,
                Some(strides) => Layout::strided(ElementType::U64, extents, strides)?,
            };
            Ok((*DeviceArray::<u64>::with_layout(device, layout)?).clone())
        };
        let (usual, pairs, floats) =
            (array(&[6], None)?, array(&[6, 2], None)?, DeviceArray::<f64>::zeros(device, &[6])?);
        let columns = array(&[6, 2], Some(&[8, 48]))?;
        links.schedule_exchange(&[(&pattern, &usual)], &[&stream])?.wait()?;
        comm.barrier()?;
        let given: Vec<(&Pattern, &Field)> = match (what, strange) {
            (0, true) => vec![(&pattern, &floats)],
            (1, true) => vec![(&pattern, &pairs)],
            (2, true) => vec![(&pattern, &usual), (&pattern, &pairs)],
            (3, true) => vec![(&pattern, &columns)],
            (3, false) => vec![(&pattern, &pairs)],
            _ => vec![(&pattern, &usual)],
        };
        if comm.size() == 1 {
            continue;
        }
        let step = || links.schedule_exchange(&given, &[&stream]).and_then(|pending| pending.wait());
        let mut ended = step();
        while ended.is_ok() {
            ended = step();
        }
        let failed = failure(ended)?;
        if concerned {
            let is_named = match failed.cause {
                Cause::Fields(Difference::Element { field: 0 }) => what == 0,
                Cause::Fields(Difference::Extents { field: 0 }) => what == 1,
                Cause::Fields(Difference::Fields) => what == 2,
                Cause::Fields(Difference::Order { field: 0 }) => what == 3,
                _ => false,
            };
            ensure!(is_named, "fields that disagree, {what}: {failed}");
        }
        failure(step())?;
        stream.synchronise()?;
        while !links.reclaim() {
            comm.link().host().yield_now();
        }
    }
    Ok(())
}

fn poll_to_end(comm: &Stage<'_>, pending: Pending) -> Outcome {
    let mut future = std::pin::pin!(pending.into_future());
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return Ok(outcome?),
            Poll::Pending => comm.link().host().yield_now(),
        }
    }
}

/// In one call; all kinds of waits in turn.
fn mixed<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let (rig, grid) = (R::get()?, plane(comm)?);
    let pattern = grid.pattern(comm)?;
    let device = device_of(rig, comm.rank());
    let stream = device.stream(Priority::Normal)?;
    let Some(links) = links(rig, comm, &[&pattern], &by(LinkChoice::Auto))? else { return Ok(()) };
    let mut fields = Fixture::default();
    for (number, home) in
        [Home::Own, Home::Device(device), Home::Own, Home::Device(device)].into_iter().enumerate()
    {
        let kind =
            if number < 2 { Kind::plain(ElementType::F64) } else { Kind::with_extra(ElementType::F32, &[3]) };
        let form = |_| Form::all()[number % 6].clone();
        fields.add(&pattern, grid.subjects(comm, &pattern, number as u64, (&kind, home), form)?);
    }
    for step in 0..16 {
        fields.next();
        let given = fields.fields();
        let pending = links.schedule_exchange(&given, &[&stream])?;
        match step % 4 {
            0 => pending.wait()?,
            1 => pending.schedule_wait(&stream)?,
            2 => {
                while !pending.is_ready()? {
                    comm.link().host().yield_now();
                }
            }
            _ => poll_to_end(comm, pending)?,
        }
        stream.synchronise()?;
        fields.check()?;
        comm.barrier()?;
    }
    Ok(())
}

fn refused<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let (rig, grid) = (R::get()?, ring(comm)?);
    let device = device_of(rig, comm.rank());
    let (pattern, other) = (grid.pattern(comm)?, grid.pattern(comm)?);
    let Some(links) = links(rig, comm, &[&pattern], &by(LinkChoice::Auto))? else { return Ok(()) };
    let stream = device.stream(Priority::Normal)?;
    let mut fields = fixture(rig, comm, (&grid, &pattern), (1, &Kind::plain(ElementType::F64)))?;
    steps(comm, &mut fields, &links, &stream, 1)?;
    let field = fields.fields()[0].1.clone();
    match links.schedule_exchange(&vec![(&pattern, &field); 65], &[&stream]) {
        Err(Error::TooManyFields { fields: 65, most: 64 }) => {}
        result => fail!("65 fields: {result:?}"),
    }
    match links.schedule_exchange(&[(&other, &field)], &[&stream]) {
        Err(Error::NoSuchPattern { field: 0, patterns: 1 }) => {}
        result => fail!("a pattern without links: {result:?}"),
    }
    let short = DeviceArray::<f64>::zeros(device, &[2])?;
    match links.schedule_exchange(&[(&pattern, &short)], &[&stream]) {
        Err(Error::Field { .. }) => {}
        result => fail!("a field that is too short: {result:?}"),
    }
    let own = Array::<f64>::zeros(comm, &[2])?;
    match links.schedule_exchange(&[(&pattern, &field), (&pattern, &own)], &[&stream]) {
        Err(Error::Field { .. }) => {}
        result => fail!("a host field that is too short, beside one of the device: {result:?}"),
    }
    if let Some(elsewhere) = rig.devices().iter().find(|other| *other != device) {
        let there = DeviceArray::<f64>::zeros(elsewhere, &[6])?;
        match links.schedule_exchange(&[(&pattern, &there)], &[&stream]) {
            Err(Error::OtherDevice { field: 0, device, links }) if device != links => {}
            result => fail!("a field of another device: {result:?}"),
        }
        let foreign = elsewhere.stream(Priority::Normal)?;
        match links.schedule_exchange(&[(&pattern, &field)], &[&foreign]) {
            Err(Error::StreamDevice { stream: 0, .. }) => {}
            result => fail!("a stream of another device: {result:?}"),
        }
    }
    // None of it was an exchange.
    steps(comm, &mut fields, &links, &stream, 1)
}

fn dropped<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let (rig, grid) = (R::get()?, ring(comm)?);
    let pattern = grid.pattern(comm)?;
    let stream = device_of(rig, comm.rank()).stream(Priority::Normal)?;
    for turn in 0..4 {
        let Some(links) = links(rig, comm, &[&pattern], &by(LinkChoice::Auto))? else { return Ok(()) };
        let mut fields = fixture(rig, comm, (&grid, &pattern), (1, &Kind::plain(ElementType::F64)))?;
        fields.go_to(turn + 1);
        let pending = links.schedule_exchange(&fields.fields(), &[&stream])?;
        if turn % 2 == 0 {
            drop(fields);
            drop(links);
            pending.wait()?;
        } else {
            drop(pending);
            drop(links);
            stream.synchronise()?;
        }
        comm.barrier()?;
    }
    Ok(())
}
