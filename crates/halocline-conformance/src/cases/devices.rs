//! Fields of any pattern, type and layout in memory of devices, against the oracle.

use super::scheduled::{device_of, direct, is_carried, paths};
use crate::by_hand;
use crate::device_fixtures::Rig;
use crate::fixtures::{Cloud, DomainForm, Fixture, Grid, by, pattern_of, ring, ring_neighbours, subjects_of};
use crate::form::{Form, Kind};
use crate::numbers::Numbers;
use crate::programs::Program;
use crate::stage::Stage;
use crate::subject::Home;
use crate::watchdog::note;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::device::Priority;
use halocline::device::sim::chosen;
use halocline::{
    BindError, BindOptions, Direction, ElementType, Error, HaloExchange, LinkChoice, LinkInfo, Ll,
    PatternLinks, ReduceError, ReduceOp, RegularGrid, TestOptions,
};
use halocline_comm::{Endpoint, Tag};

pub(super) const fn cases<R: Rig>() -> [Case; 6] {
    [
        Case { name: "devices::elements_of_up_to_256_bytes_in_one_bind", run: element_sizes::<R> },
        Case { name: "devices::random_patterns_types_and_layouts", run: random_fields::<R> },
        Case { name: "devices::packed_messages_equal_those_of_host_fields", run: messages_alike::<R> },
        Case { name: "devices::reduces_change_what_those_of_host_fields_change", run: reduces_alike::<R> },
        Case { name: "devices::random_programs", run: random_programs::<R> },
        Case { name: "devices::operations_of_host_fields_are_refused", run: of_host_alone::<R> },
    ]
}

fn bind(comm: &Stage<'_>, fixture: &Fixture, link: LinkChoice) -> Result<HaloExchange, Trouble> {
    bind_with(comm, fixture, by(link))
}

fn bind_with(comm: &Stage<'_>, fixture: &Fixture, options: BindOptions) -> Result<HaloExchange, Trouble> {
    let in_chunks = TestOptions { chunk: Some(4096), ..TestOptions::default() };
    Ok(fixture.bind(comm, &options.for_tests(in_chunks))?)
}

/// Steps that wait on the host and steps in the order of a stream, in turn.
fn steps<R: Rig>(rig: &R, comm: &Stage<'_>, fixture: &mut Fixture, halo: &HaloExchange) -> Outcome {
    fixture.steps(halo, 2)?;
    if !is_carried(comm, halo) {
        return Ok(());
    }
    let stream = device_of(rig, comm.rank()).stream(Priority::Normal)?;
    for _ in 0..2 {
        fixture.next();
        rig.delay(&stream)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        rig.delay(&stream)?;
        stream.synchronise()?;
        fixture.check()?;
        // No rank overwrites cells that its peer may still read.
        comm.barrier()?;
    }
    Ok(())
}

fn element_sizes<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let home = Home::Device(device_of(rig, comm.rank()));
    let grid = Grid::new(comm.size(), &[2 * comm.size() + 1, 5], &[true, false], 2)?;
    let pattern = grid.pattern(comm)?;
    let mut fixture = Fixture::default();
    for size in (1..=16).chain([24, 37, 100, 256]) {
        let kind = Kind::with_extra(ElementType::Opaque(size), &[1 + usize::from(size) % 3]);
        let form = |domain: u64| Form::all()[(domain as usize + usize::from(size)) % 6].clone();
        fixture.add(&pattern, grid.subjects(comm, &pattern, size.into(), (&kind, home), form)?);
    }
    for link in paths(comm) {
        let halo = bind(comm, &fixture, link)?;
        steps(rig, comm, &mut fixture, &halo)?;
    }
    Ok(())
}

/// A list of numbers below a limit.
fn list(numbers: &mut Numbers, most: usize, limit: usize) -> Vec<u8> {
    let count = numbers.below(most + 1);
    (0..count).map(|_| numbers.below(limit) as u8).collect()
}

fn form(numbers: &mut Numbers) -> Form {
    Form {
        order: list(numbers, 6, 6),
        memory: list(numbers, 6, 6),
        pads: list(numbers, 5, 9),
        reversed: list(numbers, 5, 2).into_iter().map(|reversed| reversed == 1).collect(),
        slack: list(numbers, 3, 9).into_iter().map(|both| (both / 3, both % 3)).collect(),
    }
}

fn kind(numbers: &mut Numbers) -> Kind {
    let named = [ElementType::F64, ElementType::F32, ElementType::Bool, ElementType::Bf16, ElementType::C128];
    let element = match numbers.below(2) {
        0 => named[numbers.below(named.len())],
        _ => ElementType::Opaque(1 + numbers.below(16) as u16),
    };
    let extra: Vec<usize> = (0..numbers.below(3)).map(|_| 1 + numbers.below(3)).collect();
    Kind { element, extra }
}

/// A group of fields of one pattern, which lie where `home` says: in each fixture. Their domains have layouts of so many forms.
pub(super) fn group<const N: usize>(
    comm: &Stage<'_>,
    (numbers, forms): (&mut Numbers, usize),
    fixtures: &mut [Fixture; N],
    home: impl Fn(&mut Numbers) -> [Home; N],
) -> Outcome {
    let ranks = comm.size();
    let fields: Vec<(Kind, [Home; N], Vec<Form>)> = (0..1 + numbers.below(3))
        .map(|_| {
            let home = home(numbers);
            (kind(numbers), home, (0..forms).map(|_| form(numbers)).collect())
        })
        .collect();
    let form_of = |forms: &[Form], domain: u64| forms[domain as usize % forms.len()].clone();
    if numbers.one_in(3) {
        let cloud = Cloud {
            seed: numbers.draw(),
            cells: 5 + numbers.below(40 * ranks),
            domains_per_rank: 1 + numbers.below(2),
            halo: numbers.below(40),
            form: [DomainForm::OwnedThenHalo, DomainForm::ByIndices, DomainForm::ByOwners][numbers.below(3)],
            coherence: numbers.below(95),
        };
        let pieces = cloud.pieces(comm.rank(), ranks);
        let pattern = pattern_of(comm, &pieces)?;
        for (number, (kind, home, forms)) in (0..).zip(&fields) {
            let form = |domain| form_of(forms, domain);
            for (fixture, home) in fixtures.iter_mut().zip(home) {
                fixture.add(&pattern, subjects_of(comm, &pieces, number, (kind, *home), form)?);
            }
        }
        return Ok(());
    }
    let axes = 1 + numbers.below(4);
    let extents: Vec<usize> = (0..axes).map(|_| 2 + numbers.below([60, 14, 8, 4][axes - 1])).collect();
    let periodic: Vec<bool> = (0..axes).map(|_| numbers.one_in(2)).collect();
    let widths: Vec<(usize, usize)> = (0..axes).map(|_| (numbers.below(3), numbers.below(3))).collect();
    let grid = RegularGrid::new(extents).periodic(periodic.clone()).domains_per_rank(1 + numbers.below(2));
    // One that cannot be cut for so many ranks is none.
    let Ok(decomposition) = grid.decompose(ranks) else { return Ok(()) };
    let grid = Grid::cut(decomposition, &periodic, &widths);
    let pattern = grid.pattern(comm)?;
    for (number, (kind, home, forms)) in (0..).zip(&fields) {
        let form = |domain| form_of(forms, domain);
        for (fixture, home) in fixtures.iter_mut().zip(home) {
            fixture.add(&pattern, grid.subjects(comm, &pattern, number, (kind, *home), form)?);
        }
    }
    Ok(())
}

fn random_fields<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    for seed in chosen(0..R::SEEDS) {
        note(comm.rank(), format!("random fields, HALOCLINE_SEED={seed}"));
        let mut numbers = Numbers::new(seed);
        let mut fixtures = [Fixture::default()];
        let device = Home::Device(device_of(rig, comm.rank()));
        for _ in 0..1 + numbers.below(2) {
            let home = |numbers: &mut Numbers| [if numbers.one_in(5) { Home::Own } else { device }];
            group(comm, (&mut numbers, 3), &mut fixtures, home)?;
        }
        let [mut fixture] = fixtures;
        let paths = paths(comm);
        let link = paths[numbers.below(paths.len())];
        let ll = [Ll::Auto, Ll::UpTo(256), Ll::UpTo(1 << 20)][numbers.below(3)];
        let options = by(link).ll(ll);
        let halo = bind_with(comm, &fixture, options)?;
        let ended = steps(rig, comm, &mut fixture, &halo);
        ended.map_err(|trouble| Trouble::new(format!("seed {seed}, {link:?}, {ll:?}: {trouble}")))?;
    }
    Ok(())
}

/// Of fields of any layout a device packs the bytes that the host packs of the same, and each unpacks what the other has packed.
fn messages_alike<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let device = device_of(R::get()?, comm.rank());
    let stream = device.stream(Priority::Normal)?;
    for seed in chosen(0..R::SEEDS) {
        note(comm.rank(), format!("messages by hand, HALOCLINE_SEED={seed}"));
        let mut fixtures = [Fixture::default(), Fixture::default()];
        let mut numbers = Numbers::new(seed);
        for _ in 0..1 + numbers.below(2) {
            group(comm, (&mut numbers, 3), &mut fixtures, |_| [Home::Own, Home::Device(device)])?;
        }
        let paths = paths(comm);
        let link = paths[seed as usize % paths.len()];
        let [on_host, on_device] = &mut fixtures;
        let there = bind(comm, on_device, link)?;
        let here = on_host.bind(comm, &by(LinkChoice::Auto))?;
        let tag = Tag { operation: comm.begin(), round: 0 };
        on_host.next();
        on_device.next();
        for LinkInfo { peer, .. } in here.links().filter(|link| link.direction == Direction::Send) {
            let messages = [by_hand::pack(&here, peer, None)?, by_hand::pack(&there, peer, Some(&stream))?];
            let [ours, theirs] = &messages;
            ensure!(
                ours == theirs,
                "seed {seed}, {link:?}: for rank {peer} {ours:?} is packed as {theirs:?}"
            );
            messages.into_iter().try_for_each(|message| comm.send(peer, tag, message))?;
        }
        for LinkInfo { peer, .. } in here.links().filter(|link| link.direction == Direction::Receive) {
            let received = || comm.receive(Some(peer), tag, "a packed message");
            by_hand::unpack(&there, peer, &received()?.payload, Some(&stream))?;
            by_hand::unpack(&here, peer, &received()?.payload, None)?;
        }
        // What stays within a rank is no message.
        if !on_host.stays_within(comm)? {
            fixtures.iter().try_for_each(Fixture::check)?;
        }
    }
    Ok(())
}

/// Reduces of fields of any type and layout, on one device of a rank or on several, leave the bytes that those of host fields leave. Of
/// several halo cells the last in the order of domains replaces the owned cell.
fn reduces_alike<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    for seed in chosen(0..4 * R::SEEDS) {
        note(comm.rank(), format!("reduces, HALOCLINE_SEED={seed}"));
        let mut fixtures = [Fixture::default(), Fixture::default()];
        let mut numbers = Numbers::new(seed);
        let on_one = !direct(comm) || seed % 3 != 0;
        let device = |numbers: &mut Numbers| match numbers.below(rig.devices().len()) {
            _ if on_one => device_of(rig, comm.rank()),
            other => device_of(rig, other),
        };
        for _ in 0..1 + numbers.below(2) {
            let home = |numbers: &mut Numbers| [Home::Own, Home::Device(device(numbers))];
            group(comm, (&mut numbers, 3), &mut fixtures, home)?;
        }
        let paths = paths(comm);
        let link = paths[seed as usize % paths.len()];
        let ll = [Ll::Auto, Ll::UpTo(1 << 20)][numbers.below(2)];
        let [on_host, on_device] = &mut fixtures;
        let there = bind_with(comm, on_device, by(link).ll(ll))?;
        let here = on_host.bind(comm, &by(LinkChoice::Auto))?;
        for keeps in [false, true] {
            on_host.next();
            on_device.next();
            let reduce =
                |halo: &HaloExchange| halo.begin().reduce(ReduceOp::Replace).keep_halo(keeps).start();
            match reduce(&there) {
                // All ranks refuse it.
                Err(Error::Reduce(ReduceError::Links)) => break,
                begun => begun?.wait()?,
            }
            reduce(&here)?.wait()?;
            for (field, (one, other)) in on_host.subjects().zip(on_device.subjects()).enumerate() {
                let is_equal = one.bytes()? == other.bytes()?;
                ensure!(is_equal, "seed {seed}, {link:?}, {ll:?}, halo kept {keeps}: field {field} differs");
            }
        }
    }
    Ok(())
}

fn random_programs<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    for seed in chosen(0..R::SEEDS) {
        note(comm.rank(), format!("random programs, HALOCLINE_SEED={seed}"));
        let program = Program::new(seed, Some(comm.size())).within(R::DEADLINE);
        let ended = program.run(rig, rig.devices(), comm);
        let ended = ended.and_then(|()| rig.check());
        ended.map_err(|trouble| Trouble::new(format!("seed {seed}: {trouble}")))?;
        comm.barrier()?;
    }
    Ok(())
}

/// What is not to be had of fields on devices is refused by name, and where it is only left out, that is said.
fn of_host_alone<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let device = device_of(R::get()?, comm.rank());
    let (kind, grid) = (Kind::plain(ElementType::F64), ring(comm)?);
    let pattern = grid.pattern(comm)?;
    let subjects = grid.subjects(comm, &pattern, 0, (&kind, Home::Device(device)), |_| Form::default())?;
    let mut fixture = Fixture::of(pattern.clone(), subjects);
    match PatternLinks::new(comm, &[&pattern])?.exchange(&fixture.fields()) {
        Err(Error::NotOnHost { field: 0, .. }) => {}
        other => fail!("given to links for host fields: {other:?}"),
    }
    let options = by(LinkChoice::Auto).checked(true);
    match PatternLinks::on_device(comm, &[&pattern], device, &options).map(|links| links.explain()) {
        Ok(said) => ensure!(said.contains("checked mode does not look at them"), "{said}"),
        // Not where messages carry the bytes.
        Err(Error::Bind(BindError::Path { .. }) | Error::Elsewhere { .. }) => {}
        Err(other) => return Err(other.into()),
    }
    let halo = bind_with(comm, &fixture, options)?;
    ensure!(!halo.explain().contains("checked mode"), "{}", halo.explain());
    for peer in ring_neighbours(comm.rank(), comm.size()) {
        let mut message = vec![0; halo.message_bytes(peer, Direction::Send)?];
        for refused in [halo.pack(peer, &mut message), halo.unpack(peer, &message)] {
            ensure!(
                matches!(refused, Err(Error::OfDevices { .. })),
                "a message without a stream: {refused:?}"
            );
        }
    }
    // None of it was an exchange.
    fixture.steps(&halo, 1)?;
    ensure!(halo.pending().is_some_and(|pending| pending.epoch() == 1), "{:?}", halo.pending());
    comm.barrier()?;
    Ok(())
}
