//! The unbound form on simulated devices, where each exchange names its fields: by calls and in graphs, between ranks that share a
//! device, have one each, or pretend to be processes. Correct under every seed; without a piece of order, a seed finds that.

use super::graphs::end::{End, PUSH, Setting};
use halocline::device::sim::{Options, World, explore, run};
use halocline::{
    Array, BindOptions, Cause, Communicator, Cut, Difference, Error, Field, Pattern, PatternLinks, Pending,
    TestOptions,
};
use halocline_conformance::device_fixtures::devices;
use halocline_conformance::numbers::Numbers;
use halocline_conformance::simulated::{options, run_ranks, run_ranks_apart};
use halocline_conformance::{Outcome, Trouble, ensure, fail};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Seeds under which programs pass, and within which those without a piece of order fail.
const SEEDS: u64 = 60;
const ENOUGH: u64 = 1000;

/// The fields of exchanges, in turn: other numbers of bytes, so that slots grow.
const LISTS: [&[usize]; 3] = [&[0], &[0, 1], &[1]];

fn limited() -> Options {
    Options { depth: 4096, steps: 400_000, ..options() }
}

fn links(end: &End, comm: &Communicator, setting: Setting) -> Result<PatternLinks, Trouble> {
    let tests = TestOptions { cut: setting.cut, ..TestOptions::default() };
    let options = BindOptions::default().inline(setting.inline).for_tests(tests);
    Ok(PatternLinks::on_device(comm, &[&end.pattern], &end.device, &options)?)
}

/// Fill, exchange, check.
fn step(end: &End, links: &PatternLinks, number: usize) -> Outcome {
    let list = LISTS[number % LISTS.len()];
    list.iter().try_for_each(|&field| end.fill(field, &end.stream))?;
    let fields: Vec<(&Pattern, &Field)> =
        list.iter().map(|&field| (&end.pattern, &*end.fields[field])).collect();
    links.schedule_exchange(&fields, &[&end.stream])?.schedule_wait(&end.stream)?;
    list.iter().try_for_each(|&field| end.check(field, &end.stream))
}

fn ended(end: &End, comm: &Communicator, steps: usize) -> Outcome {
    end.stream.synchronise()?;
    let checks: usize = (0..steps).map(|number| LISTS[number % LISTS.len()].len()).sum();
    ensure!(end.checked.load(Ordering::Relaxed) == checks as u64, "checks are missing");
    Ok(comm.barrier()?)
}

/// Six exchanges, begun by calls.
fn eager(world: &World, comm: &Communicator, setting: Setting, device: usize) -> Outcome {
    let end = End::on(&devices(world, 2)?[device], world, comm, 2)?;
    let links = links(&end, comm, setting)?;
    (0..6).try_for_each(|number| step(&end, &links, number))?;
    ended(&end, comm, 6)
}

#[test]
fn ranks_with_a_device_each_and_ranks_that_share_one() {
    for (inline, shares) in [(false, false), (true, false), (false, true), (true, true)] {
        let setting = Setting { inline, ..PUSH };
        let device = |comm: &Communicator| if shares { 0 } else { comm.rank() };
        explore(0..SEEDS, &limited(), |world| {
            run_ranks(world, 2, |comm| eager(world, comm, setting, device(comm)));
        });
    }
}

#[test]
fn slots_that_grow_are_mapped_by_other_processes() {
    let options = Options { devices: 3, exports: true, steps: 2_000_000, ..limited() };
    explore(0..SEEDS / 2, &options, |world| {
        run_ranks_apart(world, 3, |comm| {
            let end = End::on(&world.device(comm.rank() as u32)?, world, comm, 2)?;
            let links = links(&end, comm, PUSH)?;
            (0..6).try_for_each(|number| step(&end, &links, number))?;
            ended(&end, comm, 6)
        });
    });
}

/// Each rank makes some exchanges by calls and some by graphs of one or three, as it likes.
fn mixed(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    const COUNT: usize = 12;
    let end = End::new(world, comm, 2)?;
    let links = links(&end, comm, setting)?;
    let mut own = Numbers::new(world.seed() ^ (comm.rank() as u64 + 1) << 32);
    let graph = |from: usize, count: usize| {
        end.capture(|| (from..from + count).try_for_each(|number| step(&end, &links, number)))
    };
    let mut graphs = None;
    let mut number = 0;
    while number < COUNT {
        let is_whole = number % LISTS.len() == 0;
        let choice = own.below(if is_whole { 3 } else { 2 });
        if choice > 0 && graphs.is_none() {
            graphs = Some([graph(0, 1)?, graph(1, 1)?, graph(2, 1)?, graph(0, 3)?]);
        }
        match (choice, &graphs) {
            (1, Some(graphs)) => graphs[number % LISTS.len()].launch(&end.stream)?,
            (2, Some(graphs)) => {
                graphs[3].launch(&end.stream)?;
                number += 2;
            }
            _ => step(&end, &links, number)?,
        }
        number += 1;
    }
    ended(&end, comm, COUNT)
}

#[test]
fn graphs_and_calls_in_any_mixture() {
    for inline in [false, true] {
        let setting = Setting { inline, ..PUSH };
        explore(0..SEEDS, &limited(), |world| run_ranks(world, 2, |comm| mixed(world, comm, setting)));
    }
}

/// The graph keeps the links and the fields.
#[test]
fn a_graph_keeps_links_and_fields_that_are_dropped() {
    explore(0..SEEDS / 4, &limited(), |world| {
        run_ranks(world, 2, |comm| {
            let end = End::new(world, comm, 2)?;
            let links = links(&end, comm, PUSH)?;
            let graph = end.capture(|| (0..3).try_for_each(|number| step(&end, &links, number)))?;
            drop(links);
            let (stream, checked) = (end.device.clone(), std::sync::Arc::clone(&end.checked));
            (0..3).try_for_each(|_| graph.launch(&end.stream))?;
            end.stream.synchronise()?;
            drop((graph, end, stream));
            ensure!(checked.load(Ordering::Relaxed) == 12, "checks are missing");
            Ok(comm.barrier()?)
        });
    });
}

/// The graphs of two ranks exchange other numbers of fields.
fn differing(world: &World, comm: &Communicator) -> Outcome {
    let end = End::new(world, comm, 2)?;
    let links = links(&end, comm, PUSH)?;
    let fields: Vec<(&Pattern, &Field)> =
        LISTS[comm.rank()].iter().map(|&field| (&end.pattern, &*end.fields[field])).collect();
    let exchange = || links.schedule_exchange(&fields, &[&end.stream])?.schedule_wait(&end.stream);
    let graph = end.capture(|| Ok(exchange()?))?;
    (0..2).try_for_each(|_| graph.launch(&end.stream))?;
    end.stream.synchronise()?;
    match exchange() {
        Err(Error::Failed(failure)) if failure.cause == Cause::Fields(Difference::Fields) => {}
        other => fail!("instead of a failure: {other:?}"),
    }
    Ok(comm.barrier()?)
}

#[test]
fn graphs_of_fields_that_disagree_fail_at_both_ranks() {
    explore(0..SEEDS / 4, &limited(), |world| run_ranks(world, 2, |comm| differing(world, comm)));
}

/// A field of the device and one of the host, in one call.
fn beside(end: &End, own: &Array<u64>) -> [(Pattern, Field); 2] {
    [(end.pattern.clone(), (*end.fields[0]).clone()), (end.pattern.clone(), (**own).clone())]
}

#[test]
fn host_fields_are_not_captured_and_an_exchange_follows() {
    explore(0..SEEDS / 4, &limited(), |world| {
        run_ranks(world, 2, |comm| {
            let end = End::new(world, comm, 1)?;
            let own = Array::zeros(comm, &[5])?;
            own.write()?.fill(comm.rank() as u64 + 1);
            let links = links(&end, comm, PUSH)?;
            let both = beside(&end, &own);
            let fields = both.each_ref().map(|(pattern, field)| (pattern, field));
            let graph = end.capture(|| match links.schedule_exchange(&fields, &[&end.stream]) {
                Err(Error::NotCapturable { why }) if why.contains("host") => Ok(()),
                other => fail!("instead of a refusal: {other:?}"),
            })?;
            drop(graph);
            end.fill(0, &end.stream)?;
            links.schedule_exchange(&fields, &[&end.stream])?.schedule_wait(&end.stream)?;
            end.check(0, &end.stream)?;
            end.stream.synchronise()?;
            ensure!(end.checked.load(Ordering::Relaxed) == 1, "the check is missing");
            let (mine, peer) = (comm.rank() as u64 + 1, 2 - comm.rank() as u64);
            ensure!(
                own.read()?[..] == [peer, mine, mine, mine, peer],
                "the host field: {:?}",
                &own.read()?[..]
            );
            Ok(comm.barrier()?)
        });
    });
}

type Wait = fn(&Pending, &End) -> Result<(), Error>;

/// The peer of rank 0 does not come.
fn awaited(end: &End, comm: &Communicator, wait: Wait) -> Outcome {
    let own = Array::zeros(comm, &[5])?;
    let options = BindOptions::default().deadline(Some(Duration::from_millis(50)));
    let links = PatternLinks::on_device(comm, &[&end.pattern], &end.device, &options)?;
    if comm.rank() == 0 {
        let both = beside(end, &own);
        let fields = both.each_ref().map(|(pattern, field)| (pattern, field));
        let pending = links.schedule_exchange(&fields, &[&end.stream])?;
        match wait(&pending, end) {
            Err(Error::Failed(failure)) if matches!(failure.cause, Cause::Deadline(_)) => {}
            other => fail!("instead of a deadline: {other:?}"),
        }
        match links.wait() {
            Err(Error::Failed(_)) => {}
            other => fail!("the links have failed, and say {other:?}"),
        }
        end.stream.synchronise()?;
    }
    Ok(comm.barrier()?)
}

#[test]
fn a_deadline_ends_an_exchange_of_host_and_device_fields() {
    let waits: [Wait; 2] = [|pending, _| pending.wait(), |pending, end| pending.schedule_wait(&end.stream)];
    for wait in waits {
        explore(0..SEEDS / 4, &limited(), |world| {
            run_ranks(world, 2, |comm| awaited(&End::new(world, comm, 1)?, comm, wait));
        });
    }
}

/// Without a piece of order, a seed reports something.
fn is_found_out(cut: Cut) {
    let setting = Setting { cut: Some(cut), ..PUSH };
    let options = Options { steps: 100_000, ..limited() };
    let play = |world: &World| run_ranks(world, 2, |comm| eager(world, comm, setting, comm.rank()));
    let found = (0..ENOUGH).find(|&seed| !run(seed, &options, play).reports.is_empty());
    assert!(found.is_some(), "{cut:?}: {ENOUGH} seeds find nothing");
}

#[test]
fn a_slot_written_before_it_is_granted_is_found_out() {
    is_found_out(Cut::Overtaking);
}

#[test]
fn a_slot_read_before_its_bytes_arrive_is_found_out() {
    is_found_out(Cut::Arrived);
}

#[test]
fn a_consumer_that_does_not_wait_is_found_out() {
    let setting = Setting { cut: Some(Cut::Consumer), inline: false, ..PUSH };
    let options = Options { steps: 100_000, ..limited() };
    let play = |world: &World| run_ranks(world, 2, |comm| eager(world, comm, setting, comm.rank()));
    let found = (0..ENOUGH).find(|&seed| !run(seed, &options, play).reports.is_empty());
    assert!(found.is_some(), "{ENOUGH} seeds find nothing");
}
