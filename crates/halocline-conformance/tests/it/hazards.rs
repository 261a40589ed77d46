//! Scheduled exchanges with one ordering constraint removed: correct without the fault under every seed, reported within a few seeds
//! with it. `tools/hazards` writes the results to `docs/internals/simulated-device.md`.

mod reduces;

use halocline::device::Priority;
use halocline::device::sim::{Options, World, explore, run};
use halocline::{BindOptions, Cause, Communicator, Cut, Error, LinkChoice, Ll, Stream, TestOptions};
use halocline_comm::Endpoint;
use halocline_conformance::device_fixtures::{DeviceFixture, devices};
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, ensure, fail};
use std::time::Duration;

/// Seeds under which the whole program passes, and within which the cut one fails.
const SEEDS: u64 = 150;
const ENOUGH: u64 = 3000;

/// What differs between the programs.
#[derive(Clone, Copy)]
struct Setting {
    cut: Option<Cut>,
    link: LinkChoice,
    /// Each rank has a device of its own.
    apart: bool,
    /// All messages use the LL protocol.
    ll: bool,
    /// In one launch, also where ranks share a device.
    alone: bool,
    checked: bool,
}

type Program = fn(&World, &Communicator, Setting) -> Outcome;

fn limited() -> Options {
    Options { steps: 60_000, ..options() }
}

/// The program passes as it is, with ranks on one device and on two, and fails without the piece of order.
fn check(hazard: &str, cut: Cut, link: LinkChoice, program: Program) {
    check_with(hazard, cut, (link, false, false), program);
}

fn check_with(hazard: &str, cut: Cut, (link, ll, alone): (LinkChoice, bool, bool), program: Program) {
    let checked = matches!(cut, Cut::Fill | Cut::Look | Cut::LastLook);
    // NCCL refuses ranks that share a device.
    let is_nccl = link == LinkChoice::Nccl;
    let whole = Setting { cut: None, link, apart: is_nccl, ll, alone, checked };
    let play = |world: &World, setting: Setting| run_ranks(world, 2, |comm| program(world, comm, setting));
    for apart in [is_nccl, true] {
        explore(0..SEEDS, &limited(), |world| play(world, Setting { apart, ..whole }));
    }
    let cut = |seed| run(seed, &limited(), |world| play(world, Setting { cut: Some(cut), ..whole }));
    let found = (0..ENOUGH).map(|seed| (seed, cut(seed))).find(|(_, run)| !run.reports.is_empty());
    let Some((seed, run)) = found else { panic!("{hazard}: {ENOUGH} seeds find nothing") };
    // A table of the others is in the docs.
    if link != LinkChoice::Pull && !alone {
        println!("| {hazard} | {} | {} |", seed + 1, kind(&run.reports[0].to_string()));
    }
}

/// The first words of a report.
fn kind(report: &str) -> String {
    let line = report.lines().next().unwrap_or_default();
    line.split([':', ',']).next().unwrap_or_default().replace('|', "/")
}

fn bound(setting: Setting) -> BindOptions {
    let ll = if setting.ll { Ll::UpTo(1 << 20) } else { Ll::Never };
    let (link, cut, alone) = (setting.link, setting.cut, setting.alone);
    let options = BindOptions::default().link(link).ll(ll).checked(setting.checked.then_some(true));
    options.for_tests(TestOptions { cut, alone, ..TestOptions::default() })
}

/// The stream of this rank, and a line of six cells with two fields.
fn begin(
    world: &World,
    comm: &Communicator,
    setting: Setting,
) -> Result<(Stream, DeviceFixture), halocline_conformance::Trouble> {
    let devices = devices(world, 2)?;
    let device = &devices[if setting.apart { comm.rank() } else { 0 }];
    let fixture = DeviceFixture::new(comm, &[6], (1, 1, 2), |_| device)?;
    Ok((device.stream(Priority::Normal)?, fixture))
}

/// Producer, exchange, consumer on one stream, four times.
fn steps(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    for step in 1..=4 {
        fixture.produce(world, &[0], &stream, step)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        fixture.consume(world, &[0], &stream, step)?;
    }
    Ok(stream.synchronise()?)
}

#[test]
fn packing_before_the_producer_is_done() {
    check("packing before the producer is done", Cut::Producer, LinkChoice::Auto, steps);
}

#[test]
fn unpacking_while_a_kernel_still_reads_the_halo() {
    check("unpacking while a kernel still reads the halo", Cut::HaloRead, LinkChoice::Auto, steps);
}

#[test]
fn the_halo_read_before_it_arrived() {
    check("the halo read before it arrived", Cut::Arrived, LinkChoice::Auto, steps);
}

#[test]
fn the_consumer_before_the_exchange() {
    check("a consumer that does not wait for the exchange", Cut::Consumer, LinkChoice::Auto, steps);
}

#[test]
fn a_later_exchange_overtaking() {
    check("a later exchange overtaking", Cut::Overtaking, LinkChoice::Auto, steps);
}

#[test]
fn stale_counter_values() {
    check("stale counter values", Cut::Stale, LinkChoice::Auto, steps);
}

/// One rank sends, the other receives: nothing but the links' own order holds the sender back.
fn one_way(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let devices = devices(world, 2)?;
    let device = &devices[if setting.apart { comm.rank() } else { 0 }];
    let fixture = DeviceFixture::one_way(comm, 6, 1, device)?;
    let stream = device.stream(Priority::Normal)?;
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    for step in 1..=5 {
        fixture.produce(world, &[0], &stream, step)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        fixture.consume(world, &[0], &stream, step)?;
    }
    Ok(stream.synchronise()?)
}

#[test]
fn a_slot_reused_too_early() {
    check("a slot reused too early", Cut::Slot, LinkChoice::Mailbox, one_way);
}

/// The same hazards where what is sent lies in memory of the receiver's device, in one launch and where streams wait.
#[test]
fn hazards_of_mailboxes_on_devices() {
    let hazards: [(Cut, Program); 9] = [
        (Cut::Slot, one_way),
        (Cut::Unpacked, one_way),
        (Cut::Arrived, steps),
        (Cut::Producer, steps),
        (Cut::Consumer, steps),
        (Cut::Sent, overwriting),
        (Cut::Event, two_in_flight),
        (Cut::Drop, dropped),
        (Cut::FailureReport, lost),
    ];
    for (cut, program) in hazards {
        for alone in [false, true] {
            let hazard = format!("device mailbox, without {cut:?}");
            check_with(&hazard, cut, (LinkChoice::DeviceMailbox, false, alone), program);
        }
    }
}

/// The same where NCCL carries the messages.
#[test]
fn hazards_of_messages_of_nccl() {
    let hazards: [(Cut, Program); 8] = [
        (Cut::Packed, steps),
        (Cut::Arrived, steps),
        (Cut::Producer, steps),
        (Cut::Consumer, steps),
        (Cut::Sent, overwriting),
        (Cut::Event, two_in_flight),
        (Cut::Drop, dropped),
        (Cut::FailureReport, lost),
    ];
    for (cut, program) in hazards {
        check(&format!("NCCL, without {cut:?}"), cut, LinkChoice::Nccl, program);
    }
}

#[test]
fn a_staging_buffer_reused() {
    check("staging buffer reused", Cut::Staging, LinkChoice::Message, one_way);
}

/// Owned cells are overwritten right after the wait; the halo is not read before the last step.
fn overwriting(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    for step in 1..=4 {
        fixture.produce(world, &[0], &stream, step)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
    }
    halo.wait()?;
    fixture.consume(world, &[0], &stream, 4)?;
    Ok(stream.synchronise()?)
}

#[test]
fn owned_cells_overwritten_before_they_were_sent() {
    check("owned cells overwritten before they were sent", Cut::Sent, LinkChoice::Auto, overwriting);
}

/// Two exchanges of alternative sets in flight; the wait for the first comes after the second was begun.
fn two_in_flight(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let halo = fixture.bind(comm, &[&[0], &[1]], &bound(setting))?;
    for step in 1..=3 {
        fixture.produce(world, &[0, 1], &stream, step)?;
        let first = halo.schedule_exchange(&[&stream])?;
        let second = halo.begin().set(1).after(&[&stream]).schedule()?;
        first.schedule_wait(&stream)?;
        fixture.consume(world, &[0], &stream, step)?;
        second.schedule_wait(&stream)?;
        fixture.consume(world, &[1], &stream, step)?;
    }
    Ok(stream.synchronise()?)
}

#[test]
fn an_event_reused_while_pending() {
    check("an event reused while pending", Cut::Event, LinkChoice::Auto, two_in_flight);
}

/// Two objects, whose exchanges are begun one after the other and waited for together.
fn two_objects(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let objects =
        [fixture.bind(comm, &[&[0]], &bound(setting))?, fixture.bind(comm, &[&[1]], &bound(setting))?];
    for step in 1..=3 {
        fixture.produce(world, &[0, 1], &stream, step)?;
        for halo in &objects {
            let _ = halo.schedule_exchange(&[&stream])?;
        }
        objects.iter().try_for_each(|halo| halo.schedule_wait(&stream))?;
        fixture.consume(world, &[0, 1], &stream, step)?;
    }
    Ok(stream.synchronise()?)
}

#[test]
fn a_grant_not_set_before_a_wait() {
    check("a grant not set before a wait (two objects)", Cut::GrantFirst, LinkChoice::Auto, two_objects);
}

/// The object goes while its last exchange is in flight.
fn dropped(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    fixture.produce(world, &[0], &stream, 1)?;
    let pending = halo.schedule_exchange(&[&stream])?;
    pending.schedule_wait(&stream)?;
    drop((pending, halo));
    fixture.consume(world, &[0], &stream, 1)?;
    Ok(stream.synchronise()?)
}

#[test]
fn drop_in_flight() {
    check("drop in flight", Cut::Drop, LinkChoice::Auto, dropped);
}

/// One rank gives two exchanges to its streams, the other one alone, and late.
fn alone(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let deadline = Some(Duration::from_micros(if comm.rank() == 0 { 400 } else { 1_000_000 }));
    let halo = fixture.bind(comm, &[&[0]], &bound(setting).deadline(deadline))?;
    let count = if comm.rank() == 0 { 2 } else { 1 };
    for _ in 0..count {
        if comm.rank() == 1 {
            (0..world.seed() % 400).for_each(|_| world.pause());
        }
        // It may have failed by then.
        let Ok(pending) = halo.schedule_exchange(&[&stream]) else { break };
        let _ = pending.schedule_wait(&stream);
    }
    match halo.wait() {
        Err(Error::Failed(failure)) => {
            // The other one may be through, and gone.
            ensure!(matches!(failure.cause, Cause::Deadline(_) | Cause::Dropped), "it failed by {failure}");
            ensure!(failure.culprit == 1, "the culprit is rank {}: {failure}", failure.culprit);
        }
        Ok(()) if comm.rank() == 1 => {}
        other => fail!("instead of a deadline: {other:?}"),
    }
    while !halo.reclaim() {
        comm.link().host().yield_now();
    }
    Ok(stream.synchronise()?)
}

#[test]
fn poison_lost() {
    check("poison lost", Cut::Poison, LinkChoice::Auto, alone);
}

/// The device of one rank fails in the midst of an exchange.
fn lost(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let setting = Setting { apart: true, ..setting };
    let (stream, fixture) = begin(world, comm, setting)?;
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    let exchange = |step: u64| -> Result<(), Error> {
        // A released peer may overwrite cells that a failed exchange pulls: their values are not delivered.
        if setting.link != LinkChoice::Pull || step == 1 {
            // A device that has failed refuses.
            let _ = fixture.produce(world, &[0], &stream, step);
        }
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)
    };
    let exchanged = (1..=3).try_for_each(|step| {
        if (comm.rank(), step) == (1, 2) {
            world.fail(stream.device(), "it was unplugged");
        }
        exchange(step)
    });
    match exchanged.and_then(|()| halo.wait()) {
        Err(Error::Failed(failure)) => {
            ensure!(failure.cause == Cause::Device && failure.culprit == 1, "it failed by {failure}");
        }
        other => fail!("instead of a lost device: {other:?}"),
    }
    ensure!(halo.schedule_exchange(&[&stream]).is_err(), "a failed object begins an exchange");
    let is_refused = |pending: halocline::Pending| pending.schedule_wait(&stream).is_err();
    ensure!(comm.rank() == 1 || halo.pending().is_none_or(is_refused), "a failed object is waited for");
    while !halo.reclaim() {
        comm.link().host().yield_now();
    }
    if comm.rank() == 0 { Ok(stream.synchronise()?) } else { Ok(()) }
}

#[test]
fn error_in_flight() {
    check("error in flight", Cut::FailureReport, LinkChoice::Auto, lost);
}

/// The same orders where links are pulled: each is needed, and found to be missing.
#[test]
fn every_order_is_needed_for_pull_links() {
    let hazards: [(Cut, Program); 9] = [
        (Cut::Producer, steps),
        (Cut::HaloRead, overwriting),
        (Cut::Arrived, overwriting),
        (Cut::Consumer, steps),
        (Cut::Overtaking, steps),
        (Cut::Stale, steps),
        (Cut::Sent, steps),
        (Cut::GrantFirst, two_objects),
        (Cut::Drop, dropped),
    ];
    for (cut, program) in hazards {
        check(&format!("pulled, without {cut:?}"), cut, LinkChoice::Pull, program);
    }
}

/// The same for the LL protocol, whose words carry their own epoch.
#[test]
fn every_order_is_needed_beside_the_ll_protocol() {
    let hazards: [(Cut, Program); 8] = [
        (Cut::Slot, one_way),
        (Cut::Unpacked, one_way),
        (Cut::Producer, steps),
        (Cut::Consumer, steps),
        (Cut::Sent, overwriting),
        (Cut::Event, two_in_flight),
        (Cut::Drop, dropped),
        (Cut::FailureReport, lost),
    ];
    for (cut, program) in hazards {
        check_with(&format!("ll, without {cut:?}"), cut, (LinkChoice::Auto, true, true), program);
    }
}

/// Each exchange is waited for on one stream and begins after another: only the library orders it after its own last look.
fn two_streams(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let (stream, fixture) = begin(world, comm, setting)?;
    let other = stream.device().stream(Priority::Normal)?;
    let halo = fixture.bind(comm, &[&[0]], &bound(setting))?;
    for _ in 1..=3 {
        halo.schedule_exchange(&[&stream])?.schedule_wait(&other)?;
    }
    halo.wait()?;
    Ok(other.synchronise()?)
}

/// The orders that checked mode adds, in one launch and where streams wait.
#[test]
fn hazards_of_checked_mode() {
    let hazards: [(Cut, Program, LinkChoice, bool); 9] = [
        (Cut::Look, steps, LinkChoice::Nccl, false),
        (Cut::Fill, steps, LinkChoice::Push, false),
        (Cut::Fill, steps, LinkChoice::Push, true),
        (Cut::Fill, steps, LinkChoice::Pull, false),
        (Cut::Fill, steps, LinkChoice::DeviceMailbox, true),
        (Cut::Look, steps, LinkChoice::Push, true),
        (Cut::Look, steps, LinkChoice::Message, false),
        (Cut::LastLook, two_streams, LinkChoice::Push, false),
        (Cut::LastLook, two_streams, LinkChoice::DeviceMailbox, true),
    ];
    for (cut, program, link, alone) in hazards {
        check_with(&format!("checked mode, without {cut:?}"), cut, (link, false, alone), program);
    }
}

#[test]
fn failures_end_every_wait_on_every_path() {
    let links = [
        LinkChoice::Auto,
        LinkChoice::Pull,
        LinkChoice::DeviceMailbox,
        LinkChoice::Mailbox,
        LinkChoice::Message,
        LinkChoice::Nccl,
    ];
    let paths = links.map(|link| (link, false)).into_iter().chain([(LinkChoice::Auto, true)]);
    for (link, ll) in paths {
        let programs: [(Program, _); 3] = [(alone, 0..100), (lost, 0..80), (dropped, 0..30)];
        for (program, seeds) in programs {
            for apart in [link == LinkChoice::Nccl, true] {
                let setting = Setting { cut: None, link, apart, ll, alone: ll, checked: false };
                explore(seeds.clone(), &limited(), |world| {
                    run_ranks(world, 2, |comm| program(world, comm, setting));
                });
            }
        }
    }
}
