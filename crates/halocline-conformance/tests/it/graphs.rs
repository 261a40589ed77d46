//! Exchanges that are captured into graphs, on simulated devices: launched again and again, between exchanges that are begun by calls.

pub(super) mod end;
mod reduces;

use end::{End, OWNED, PUSH, Setting, value};
use halocline::device::sim::{Kernel, Options, Report, World, explore, run};
use halocline::device::{Priority, ValueOp};
use halocline::{
    BindOptions, Cause, Communicator, Cut, Error, Field, Halo, HaloExchange, LinkChoice, Ll, Pattern,
};
use halocline_conformance::numbers::Numbers;
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, Trouble, ensure, fail};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Seeds under which programs pass, and within which those without a piece of order fail.
const SEEDS: u64 = 60;
const ENOUGH: u64 = 1000;

fn settings() -> impl Iterator<Item = Setting> {
    let paths: [fn(BindOptions) -> BindOptions; 3] = [
        |options| options.ll(Ll::Never),
        |options| options.link(LinkChoice::DeviceMailbox),
        |options| options.ll(Ll::UpTo(1 << 20)),
    ];
    let of_path = |options| [false, true].map(|inline| Setting { options, inline, cut: None });
    paths.into_iter().flat_map(of_path)
}

fn under(seeds: u64, setting: Setting, program: fn(&World, &Communicator, Setting) -> Outcome) {
    let options = Options { depth: 4096, steps: 400_000, ..options() };
    explore(0..seeds, &options, |world| run_ranks(world, 2, |comm| program(world, comm, setting)));
}

/// Twelve exchanges. Each rank makes some by calls and some by graphs of one or two, as it likes; the sets alternate.
fn mixed(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let end = End::new(world, comm, 2)?;
    let halo = end.bind(comm, setting)?;
    ensure!(halo.explain().contains("each exchange in one launch"), "{}", halo.explain());
    let mut own = Numbers::new(world.seed() ^ (comm.rank() as u64 + 1) << 32);
    let graph = |sets: &[usize]| end.capture(|| sets.iter().try_for_each(|&set| end.step(&halo, set)));
    // Some graphs are captured between exchanges.
    let mut graphs = None;
    let mut left = 12;
    while left > 0 {
        let set = left % 2;
        let choice = own.below(if left > 1 { 3 } else { 2 });
        if choice > 0 && graphs.is_none() {
            graphs = Some([graph(&[0])?, graph(&[1])?, graph(&[0, 1])?, graph(&[1, 0])?]);
        }
        match (choice, &graphs) {
            (1, Some(graphs)) => graphs[set].launch(&end.stream)?,
            (2, Some(graphs)) => graphs[2 + set].launch(&end.stream)?,
            _ => end.step(&halo, set)?,
        }
        left -= choice.max(1);
    }
    end.stream.synchronise()?;
    ensure!(end.checked.load(Ordering::Relaxed) == 12, "checks are missing");
    Ok(comm.barrier()?)
}

#[test]
fn graphs_and_calls_in_any_mixture() {
    settings().for_each(|setting| under(SEEDS, setting, mixed));
}

/// A graph of two objects, which share a field, beside a kernel of the user; launched often.
fn interleaved(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let end = End::new(world, comm, 1)?;
    let halos = [end.bind(comm, setting)?, end.bind(comm, setting)?];
    let graph =
        end.capture(|| (0..2).try_for_each(|_| halos.iter().try_for_each(|halo| end.step(halo, 0))))?;
    for _ in 0..4 {
        graph.launch(&end.stream)?;
    }
    end.stream.synchronise()?;
    ensure!(end.checked.load(Ordering::Relaxed) == 16, "checks are missing");
    Ok(comm.barrier()?)
}

#[test]
fn a_graph_holds_exchanges_of_several_objects() {
    settings().for_each(|setting| under(SEEDS / 4, setting, interleaved));
}

/// Objects with a field each, all scheduled before the first wait, where no two exchanges may wait at the same time.
fn at_once(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    const OBJECTS: usize = 4;
    let end = End::new(world, comm, OBJECTS)?;
    let halos = (0..OBJECTS).map(|field| end.bind_some(comm, setting, field..field + 1));
    let halos = halos.collect::<Result<Vec<_>, _>>()?;
    // All fields hold the values of the same step.
    let fill = |step: u64| {
        end.filled.store(step, Ordering::Relaxed);
        (0..OBJECTS).try_for_each(|field| end.fill_again(field, &end.stream))
    };
    let graph = end.capture(|| {
        let pending = halos.iter().map(|halo| halo.schedule_exchange(&[&end.stream]));
        let pending = pending.collect::<Result<Vec<_>, _>>()?;
        Ok(pending.iter().try_for_each(|pending| pending.schedule_wait(&end.stream))?)
    })?;
    for step in 0..3 {
        fill(step)?;
        graph.launch(&end.stream)?;
        end.checked.store(step, Ordering::Relaxed);
        (0..OBJECTS).try_for_each(|field| end.check_again(field, &end.stream))?;
        end.stream.synchronise()?;
    }
    Ok(comm.barrier()?)
}

#[test]
fn objects_of_a_graph_do_not_wait_at_the_same_time() {
    let options = Options { depth: 4096, steps: 400_000, waiting_blocks: Some(2), ..options() };
    for inline in [false, true] {
        let setting = Setting { inline, ..PUSH };
        explore(0..SEEDS, &options, |world| run_ranks(world, 2, |comm| at_once(world, comm, setting)));
    }
}

/// After a capture, an exchange that a call has begun and the device has not: neither is the object over, nor may it be dropped.
fn queued(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let end = End::new(world, comm, 1)?;
    let halo = end.bind(comm, setting)?;
    let graph = end.capture(|| end.step(&halo, 0))?;
    graph.launch(&end.stream)?;
    end.stream.synchronise()?;
    drop(graph);
    let gate = end.device.allocate_pinned(8)?;
    // SAFETY: the word lives until the stream is through.
    unsafe { end.stream.values(&[ValueOp::Wait { address: gate.at(0), at_least: 1 }]) }?;
    end.step(&halo, 0)?;
    ensure!(!halo.reclaim(), "an exchange that waits for its stream is over");
    ensure!(halo.pending().is_some_and(|pending| !pending.is_captured()), "the latest one was begun");
    drop(halo);
    comm.barrier()?;
    // SAFETY: streams wait for it.
    unsafe { gate.store(0, 1) };
    end.stream.synchronise()?;
    ensure!(end.checked.load(Ordering::Relaxed) == 2, "checks are missing");
    Ok(comm.barrier()?)
}

#[test]
fn an_exchange_begun_after_a_capture_is_in_flight_before_the_device_begins_it() {
    settings().for_each(|setting| under(SEEDS / 4, setting, queued));
}

/// A narrower halo of an object, made and captured after others.
#[test]
fn a_narrower_halo_is_captured() {
    under(SEEDS / 4, PUSH, |world, comm, setting| {
        let end = End::new(world, comm, 1)?;
        let halo = end.bind(comm, setting)?;
        let wide = end.capture(|| end.step(&halo, 0))?;
        let narrow = halo.narrowed(&Halo::uniform(1))?;
        let graph = end.capture(|| end.step(&narrow, 0))?;
        for _ in 0..2 {
            wide.launch(&end.stream)?;
            graph.launch(&end.stream)?;
            end.step(&narrow, 0)?;
        }
        end.stream.synchronise()?;
        ensure!(end.checked.load(Ordering::Relaxed) == 6, "checks are missing");
        Ok(comm.barrier()?)
    });
}

/// The object is dropped after the capture, and the fields with it.
fn dropped(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let end = End::new(world, comm, 1)?;
    let halo = end.bind(comm, setting)?;
    let graph = end.capture(|| end.step(&halo, 0))?;
    drop(halo);
    for _ in 0..3 {
        graph.launch(&end.stream)?;
    }
    end.stream.synchronise()?;
    drop(graph);
    ensure!(end.checked.load(Ordering::Relaxed) == 3, "checks are missing");
    Ok(comm.barrier()?)
}

#[test]
fn a_graph_keeps_an_object_that_is_dropped() {
    settings().for_each(|setting| under(SEEDS / 4, setting, dropped));
}

/// A captured exchange that repeats the epoch of its capture.
#[test]
fn a_captured_epoch_is_found_out() {
    let setting = Setting { cut: Some(Cut::Epoch), ..PUSH };
    let options = Options { depth: 4096, steps: 100_000, ..options() };
    let play = |world: &World| run_ranks(world, 2, |comm| mixed(world, comm, setting));
    let is_wrong = |report: &Report| matches!(report, Report::Race { .. } | Report::KernelPanicked { .. });
    let found = (0..ENOUGH).find(|&seed| run(seed, &options, play).reports.iter().any(is_wrong));
    assert!(found.is_some(), "{ENOUGH} seeds find nothing");
}

/// Two graphs of one object on two streams.
#[test]
fn two_launches_at_a_time_are_found_out() {
    let options = Options { depth: 4096, steps: 100_000, ..options() };
    let play = |world: &World| {
        run_ranks(world, 2, |comm| {
            let end = End::new(world, comm, 1)?;
            let halo = end.bind(comm, PUSH)?;
            let graphs = [end.capture(|| end.step(&halo, 0))?, end.capture(|| end.step(&halo, 0))?];
            let other = end.device.stream(Priority::Normal)?;
            graphs[0].launch(&end.stream)?;
            graphs[1].launch(&other)?;
            end.stream.synchronise()?;
            Ok(other.synchronise()?)
        });
    };
    let is_it = |report: &Report| report.to_string().contains("two launches with one counter");
    let found = (0..ENOUGH).find(|&seed| run(seed, &options, play).reports.iter().any(is_it));
    assert!(found.is_some(), "{ENOUGH} seeds find nothing");
}

/// The peer never launches its graph: the deadline ends the wait, the next call reports it, and later launches do nothing.
fn late(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let deadline = Duration::from_millis(20);
    let setting_options = |options: BindOptions| (setting.options)(options).deadline(Some(deadline));
    let end = End::new(world, comm, 2)?;
    let sets: Vec<[(&Pattern, &Field); 1]> =
        end.fields.iter().map(|field| [(&end.pattern, &**field)]).collect();
    let options = setting_options(BindOptions::default().inline(setting.inline));
    let halo = HaloExchange::bind_alternatives(comm, &sets, &options)?;
    let graph = end.capture(|| end.step(&halo, 1))?;
    (0..3).try_for_each(|_| graph.launch(&end.stream))?;
    end.stream.synchronise()?;
    comm.barrier()?;
    let exchange = || {
        end.capture(|| {
            Ok(halo.begin().set(1).after(&[&end.stream]).schedule()?.schedule_wait(&end.stream)?)
        })
    };
    let mut captured = None;
    let more = end.capture(|| {
        let pending = halo.begin().set(1).after(&[&end.stream]).schedule()?;
        pending.schedule_wait(&end.stream)?;
        captured = Some(pending);
        Ok(())
    })?;
    let Some(pending) = captured else { fail!("nothing was captured") };
    if comm.rank() == 0 {
        more.launch(&end.stream)?;
    }
    // Rank 1 has captured the exchange, and does not launch it.
    let failure = loop {
        match pending.schedule_wait(&end.stream) {
            Err(Error::Failed(failure)) => break failure,
            Err(Error::OtherCapture { .. }) => {
                end.device.failure().map_or(Ok(()), Err)?;
                world.pause();
            }
            other => fail!("instead of a failure: {other:?}"),
        }
    };
    ensure!(matches!(failure.cause, Cause::Deadline(_)), "{failure}");
    // It ends.
    end.stream.synchronise()?;
    ensure!(exchange().is_err(), "a failed object is captured");
    more.launch(&end.stream)?;
    while !halo.reclaim() {
        end.device.failure().map_or(Ok(()), Err)?;
        world.pause();
    }
    end.stream.synchronise()?;
    Ok(comm.barrier()?)
}

#[test]
fn a_deadline_ends_a_graph() {
    settings().for_each(|setting| under(SEEDS / 4, setting, late));
}

/// The peer drops its object without a launch.
fn gone(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let end = End::new(world, comm, 2)?;
    let halo = end.bind(comm, setting)?;
    let graph = end.capture(|| {
        halo.begin()
            .set(1)
            .after(&[&end.stream])
            .schedule()?
            .schedule_wait(&end.stream)
            .map_err(Trouble::from)
    })?;
    (0..2).try_for_each(|_| graph.launch(&end.stream))?;
    end.stream.synchronise()?;
    if comm.rank() == 1 {
        drop((graph, halo));
        return Ok(());
    }
    graph.launch(&end.stream)?;
    end.stream.synchronise()?;
    match halo.schedule_exchange(&[&end.stream]) {
        Err(Error::Failed(failure)) if failure.cause == Cause::Dropped => Ok(()),
        other => fail!("instead of a failure: {other:?}"),
    }
}

#[test]
fn a_peer_that_is_gone_ends_a_graph() {
    settings().for_each(|setting| under(SEEDS / 4, setting, gone));
}

#[test]
fn what_a_graph_cannot_hold_is_refused() {
    under(10, PUSH, |world, comm, setting| {
        let end = End::new(world, comm, 1)?;
        let halo = end.bind(comm, setting)?;
        let other = end.device.stream(Priority::Normal)?;
        let graph = end.capture(|| {
            match halo.schedule_exchange(&[&other, &end.stream]) {
                Err(Error::OtherCapture { stream: 1 }) => {}
                other => fail!("instead of a refusal: {other:?}"),
            }
            let pending = halo.schedule_exchange(&[&end.stream])?;
            ensure!(pending.is_captured(), "it was begun");
            match (pending.wait(), pending.is_ready()) {
                (Err(Error::Captured), Err(Error::Captured)) => {}
                other => fail!("instead of refusals: {other:?}"),
            }
            match pending.schedule_wait(&other) {
                Err(Error::OtherCapture { stream: 0 }) => {}
                other => fail!("instead of a refusal: {other:?}"),
            }
            Ok(halo.schedule_wait(&end.stream)?)
        })?;
        graph.launch(&end.stream)?;
        let pending = halo.schedule_exchange(&[&end.stream])?;
        ensure!(pending.epoch() == 1 && !pending.is_captured(), "a capture counted as an exchange");
        let captured = end.capture(|| match pending.schedule_wait(&end.stream) {
            Err(Error::OtherCapture { stream: 0 }) => Ok(()),
            other => fail!("instead of a refusal: {other:?}"),
        });
        drop(captured?);
        pending.wait()?;
        // Streams wait where links are pulled.
        let pulled =
            end.bind(comm, Setting { options: |options| options.link(LinkChoice::Pull), ..setting })?;
        let refused = end.capture(|| match pulled.schedule_exchange(&[&end.stream]) {
            Err(Error::NotCapturable { why }) if why.contains("pulled") => Ok(()),
            other => fail!("instead of a refusal: {other:?}"),
        });
        drop(refused?);
        let checked = end.bind(comm, Setting { options: |options| options.checked(true), ..setting })?;
        let refused = end.capture(|| match checked.schedule_exchange(&[&end.stream]) {
            Err(error @ Error::NotCapturable { .. }) => {
                let said =
                    "cannot be captured into a CUDA graph: it is bound in checked mode; bind it without";
                ensure!(error.to_string().contains(said), "{error}");
                Ok(())
            }
            other => fail!("instead of a refusal: {other:?}"),
        });
        drop(refused?);
        Ok(comm.barrier()?)
    });
}

/// Messages that a program sends by itself, packed and unpacked in one graph.
#[test]
fn a_graph_packs_and_unpacks_messages() {
    under(SEEDS / 2, PUSH, |world, comm, setting| {
        let end = End::new(world, comm, 1)?;
        let halo = end.bind(comm, setting)?;
        let peer = 1 - comm.rank();
        let bytes = halo.message_bytes(peer, halocline::Direction::Send)?;
        let message = end.device.allocate(bytes)?;
        let own = end.device.allocate(bytes)?;
        let graph = end.capture(|| {
            end.fill(0, &end.stream)?;
            // SAFETY: the memory outlives the work on it, which the stream orders.
            Ok(unsafe { halo.pack_on(peer, message.at(0), bytes, &end.stream) }?)
        })?;
        let copy = |step: u64| -> Outcome {
            graph.launch(&end.stream)?;
            // SAFETY: both ranges lie in memory that outlives the work on it, which the stream orders.
            unsafe { end.stream.copy(own.at(0), message.at(0), bytes) }?;
            let cells = [end.cell(1), end.cell(OWNED)];
            let base = own.at(0);
            let check = Kernel::new("message").reads(base, bytes).body(move |memory| {
                let mut found = [memory.read(base), memory.read(base + 8)];
                let mut right = cells.map(|cell| value(step, cell));
                found.sort_unstable();
                right.sort_unstable();
                assert_eq!(found, right, "step {step}");
            });
            Ok(end.world.launch(&end.stream, check)?)
        };
        (0..4).try_for_each(copy)?;
        end.stream.synchronise()?;
        Ok(comm.barrier()?)
    });
}
