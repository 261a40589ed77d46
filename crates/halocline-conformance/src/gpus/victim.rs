//! Ranks of a job in which one dies while its GPU works.

use super::Gpus;
use super::kinds::PIECE;
use super::mapped::settled;
use super::raw::Raw;
use crate::device_fixtures::{DeviceFixture, Rig, until_failure};
use crate::processes::Ranks;
use crate::{Outcome, ensure, fail};
use halocline::device::Priority;
use halocline::{BindOptions, Cause, Communicator, Error, HaloExchange, Stream};
use halocline_comm::Endpoint;
use halocline_comm::mappings::Mappings;
use std::io::Write;
use std::time::{Duration, Instant};

/// How the victim, rank 1, ends.
pub(super) const SCENARIOS: [&str; 2] = ["killed", "faulty"];

const IN_FLIGHT: &str = "in flight";
const USABLE: &str = "usable";

/// Starts two ranks, lets one of them come to its end, and sees how the other takes it.
pub(super) fn watch(scenario: &str) -> Outcome {
    let program = std::env::current_exe()?;
    let rig = Gpus::get()?;
    usable(rig)?;
    let raw = Raw::new();
    let free: Vec<usize> = rig.devices().iter().map(|device| settled(device, &raw, usize::MAX)).collect();
    let start = Instant::now();
    let mut ranks = Ranks::start(program, 2, &["gpus", "victim", scenario]);
    let in_flight = ranks.await_line(0..2, IN_FLIGHT, Duration::from_secs(60));
    if scenario == "killed" && in_flight {
        rustix::process::kill_process(ranks.pid(1), rustix::process::Signal::KILL)?;
    }
    let in_time = ranks.await_end(0..2, Duration::from_secs(30));
    let ends = ranks.end();
    let said: String = ends.iter().map(|end| end.output.as_str()).collect();
    ensure!(in_flight && in_time, "in flight: {in_flight}, ended in time: {in_time}\n{said}");
    ensure!(ends[0].status.success() && said.contains(USABLE), "the survivor: {:?}\n{said}", ends[0].status);
    let dead = !ends[1].status.success();
    ensure!(dead == (scenario == "killed"), "the victim: {:?}\n{said}", ends[1].status);
    // The GPU, too, seen by somebody who was not there.
    usable(rig)?;
    for (device, before) in rig.devices().iter().zip(free) {
        let after = settled(device, &raw, before);
        // But for what the driver keeps for small allocations.
        let is_back = after + PIECE >= before;
        ensure!(is_back, "GPU {}: {before} bytes were free before, {after} are", device.ordinal());
    }
    println!("a rank {scenario} with work in flight ... ok ({:.1?})", start.elapsed());
    Ok(())
}

/// One of the two ranks.
pub(super) fn rank(scenario: &str) -> Outcome {
    let comm = Communicator::init()?;
    let rig = Gpus::get()?;
    let gpu = rig.of_rank(comm.rank());
    let fixture = DeviceFixture::new(&comm, &[12, 40], (1, 1, 1), |_| gpu.device())?;
    let halo = fixture.bind(&comm, &[&[0]], &BindOptions::default())?;
    let stream = gpu.device().stream(Priority::Normal)?;
    for step in 1..=5 {
        exchange(rig, &fixture, &halo, &stream, step)?;
    }
    halo.wait()?;
    match (comm.rank(), scenario) {
        (0, _) => {
            for step in 6..=20 {
                exchange(rig, &fixture, &halo, &stream, step)?;
            }
            say(IN_FLIGHT)?;
            let cause = if scenario == "killed" { Cause::Died } else { Cause::Device };
            survive(&comm, rig, halo, &stream, cause)
        }
        (_, "killed") => {
            exchange(rig, &fixture, &halo, &stream, 6)?;
            // What it has promised for the next one comes too late.
            gpu.delay(&stream, 60_000_000_000)?;
            exchange(rig, &fixture, &halo, &stream, 7)?;
            say(IN_FLIGHT)?;
            stream.synchronise()?;
            fail!("this rank was not killed")
        }
        _ => {
            exchange(rig, &fixture, &halo, &stream, 6)?;
            say(IN_FLIGHT)?;
            gpu.fault(&stream)?;
            let failed = loop {
                match halo.schedule_exchange(&[&stream]).and_then(|pending| pending.wait()) {
                    Ok(()) => {}
                    Err(error) => break error,
                }
            };
            let typed = matches!(&failed, Error::Failed(failure) if failure.cause == Cause::Device);
            ensure!(typed, "after a fault: {failed}");
            ensure!(halo.schedule_exchange(&[&stream]).is_err(), "an exchange on a device that has failed");
            Ok(())
        }
    }
}

fn exchange(rig: &Gpus, fixture: &DeviceFixture, halo: &HaloExchange, stream: &Stream, step: u64) -> Outcome {
    rig.produce_at_once(&fixture.pieces[0][0], stream, step)?;
    halo.schedule_exchange(&[stream])?.schedule_wait(stream)?;
    // Halos are not checked after a failure.
    if step <= 5 {
        rig.consume_at_once(&fixture.pieces[0][0], stream, step)?;
    }
    Ok(())
}

fn survive(comm: &Communicator, rig: &Gpus, halo: HaloExchange, stream: &Stream, cause: Cause) -> Outcome {
    let failure = until_failure(&halo, stream)?;
    ensure!(failure.cause == cause && failure.culprit == 1, "it failed by {failure}");
    // All that waited is released.
    stream.synchronise()?;
    while !halo.reclaim() {
        comm.link().host().yield_now();
    }
    rig.check()?;
    usable(rig)?;
    // What it had mapped of the other's memory is given back.
    drop(halo);
    let (mappings, begin) = (Mappings::of(comm), Instant::now());
    while mappings.stats().mapped > 0 {
        ensure!(begin.elapsed() < Duration::from_secs(10), "still mapped: {:?}", mappings.stats());
        comm.link().host().yield_now();
    }
    say(USABLE)
}

/// Exchanges on a GPU that is as it was before.
fn usable(rig: &Gpus) -> Outcome {
    let comm = Communicator::single();
    let device = rig.of_rank(0).device();
    let fixture = DeviceFixture::new(&comm, &[40, 30], (2, 1, 1), |_| device)?;
    let halo = fixture.bind(&comm, &[&[0]], &BindOptions::default())?;
    let stream = device.stream(Priority::Normal)?;
    for step in 1..=20 {
        fixture.produce(rig, &[0], &stream, step)?;
        halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
        fixture.consume(rig, &[0], &stream, step)?;
    }
    stream.synchronise()?;
    rig.check()
}

fn say(what: &str) -> Outcome {
    println!("{what}");
    Ok(std::io::stdout().flush()?)
}
