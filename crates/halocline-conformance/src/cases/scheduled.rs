//! Scheduled exchanges of device fields, for threads and processes.

use super::fixture::poll;
use crate::device_fixtures::{DeviceFixture, Rig, until_failure};
use crate::fixtures::{by, choices};
use crate::instant::Instant;
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure};
use halocline::device::{Priority, Variable};
use halocline::{
    BindOptions, Cause, CommError, Device, Error, HaloExchange, LinkChoice, LinkPath, Pending, Stream,
    TestOptions,
};
use halocline_comm::Endpoint;
use halocline_comm::mpi::DEVICE;

pub(super) const fn cases<R: Rig>() -> [Case; 6] {
    [
        Case { name: "scheduled::every_path_on_one_stream", run: every_path_on_one_stream::<R> },
        Case { name: "scheduled::several_in_flight_and_waits_on_the_host", run: several_in_flight::<R> },
        Case { name: "scheduled::several_domains_and_devices", run: several_domains_and_devices::<R> },
        Case {
            name: "scheduled::explain_names_the_memory_of_messages",
            run: explain_names_the_memory_of_messages::<R>,
        },
        Case {
            name: "scheduled::an_mpi_that_corrupts_device_memory_gets_none",
            run: memory_that_comes_wrong,
        },
        Case { name: "scheduled::a_peer_that_drops_its_object", run: a_peer_that_drops_its_object::<R> },
    ]
}

/// The device of a rank.
pub(crate) fn device_of<R: Rig>(rig: &R, rank: usize) -> &Device {
    &rig.devices()[rank % rig.devices().len()]
}

/// What this transport can do; where nothing carries messages on, none is scheduled.
pub(crate) fn paths(comm: &Stage<'_>) -> Vec<LinkChoice> {
    let mut paths = choices(comm).to_vec();
    paths.retain(|&link| direct(comm) || !matches!(link, LinkChoice::Push | LinkChoice::Pull));
    paths.dedup();
    paths.extend(direct(comm).then_some(LinkChoice::DeviceMailbox));
    paths
}

/// Whether ranks reach each other's devices.
pub(super) fn direct(comm: &Stage<'_>) -> bool {
    comm.transport() == "thread"
}

/// Whether exchanges of the object can be scheduled: whether something carries its messages on while no call waits.
pub(super) fn is_carried(comm: &Stage<'_>, halo: &HaloExchange) -> bool {
    let is_checked = Variable::read("HALOCLINE_CHECK").is_some_and(|variable| variable.switch() == Ok(true));
    comm.link().is_driven() || !is_checked && halo.links().all(|link| link.path != LinkPath::Message)
}

/// Binds. `None` if its exchanges cannot be scheduled: that is refused, and counts as no exchange.
pub(super) fn bind(
    comm: &Stage<'_>,
    fixture: &DeviceFixture,
    sets: &[&[usize]],
    options: &BindOptions,
) -> Result<Option<HaloExchange>, Trouble> {
    let halo = fixture.bind(comm, sets, options)?;
    if is_carried(comm, &halo) {
        return Ok(Some(halo));
    }
    let refused = halo.schedule_exchange(&[]);
    ensure!(matches!(refused, Err(Error::NotDriven)), "{refused:?}");
    ensure!(halo.pending().is_none(), "a refusal counts as an exchange");
    halo.exchange()?.wait()?;
    Ok(None)
}

fn step<R: Rig>(
    rig: &R,
    fixture: &DeviceFixture,
    stream: &Stream,
    halo: &HaloExchange,
    step: u64,
) -> Result<Pending, Trouble> {
    fixture.produce(rig, &[0], stream, step)?;
    let pending = halo.schedule_exchange(&[stream])?;
    pending.schedule_wait(stream)?;
    fixture.consume(rig, &[0], stream, step)?;
    Ok(pending)
}

fn every_path_on_one_stream<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let fixture = DeviceFixture::new(comm, &[3 * comm.size(), 4], (1, 1, 1), |_| device)?;
    for link in paths(comm) {
        for inline in [false, true] {
            // Ranks may find other chunks worth a message: two of them take the larger.
            let chunk = Some(16 << (comm.rank() % 2));
            let options = by(link).inline(inline).for_tests(TestOptions { chunk, ..TestOptions::default() });
            let Some(halo) = bind(comm, &fixture, &[&[0]], &options)? else { continue };
            crate::watchdog::note(comm.rank(), format!("{link:?}, inline {inline}"));
            let stream = device.stream(Priority::Normal)?;
            let mut last = None;
            for number in 1..=5 {
                last = Some(step(rig, &fixture, &stream, &halo, number)?);
            }
            last.map_or(Ok(()), |pending| pending.wait())?;
            stream.synchronise()?;
            comm.barrier()?;
        }
    }
    rig.check()
}

fn several_in_flight<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, 0);
    let fixture = DeviceFixture::new(comm, &[4 * comm.size()], (1, 2, 2), |_| device)?;
    for link in paths(comm) {
        let Some(halo) = bind(comm, &fixture, &[&[0], &[1]], &by(link))? else { continue };
        let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
        for number in 1..=3 {
            fixture.produce(rig, &[0, 1], &streams[0], number)?;
            let first = halo.schedule_exchange(&[&streams[0]])?;
            let second = halo.begin().set(1).after(&[&streams[0]]).schedule()?;
            let third = halo.schedule_exchange(&[&streams[0]])?;
            if number == 2 {
                poll(comm, || second.is_ready())?;
            }
            third.wait()?;
            ensure!(first.is_ready()? && second.is_ready()?, "exchanges before one that is over are not");
            fixture.consume(rig, &[0, 1], &streams[1], number)?;
            streams[1].synchronise()?;
        }
        comm.barrier()?;
    }
    rig.check()
}

fn several_domains_and_devices<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let place = |domain: usize| device_of(rig, domain + comm.rank());
    let fixture = DeviceFixture::new(comm, &[4 * comm.size(), 4], (2, 1, 1), place)?;
    for link in paths(comm) {
        let Some(halo) = bind(comm, &fixture, &[&[0]], &by(link))? else { continue };
        let stream = place(0).stream(Priority::Normal)?;
        for number in 1..=3 {
            let _ = step(rig, &fixture, &stream, &halo, number)?;
        }
        halo.wait()?;
        stream.synchronise()?;
        comm.barrier()?;
    }
    rig.check()
}

/// Memory of the host, unless MPI takes that of devices; and why.
fn explain_names_the_memory_of_messages<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let device = device_of(rig, comm.rank());
    let fixture = DeviceFixture::new(comm, &[3 * comm.size()], (1, 1, 1), |_| device)?;
    let Some(halo) = bind(comm, &fixture, &[&[0]], &by(LinkChoice::Message))? else { return Ok(()) };
    let said = halo.explain();
    let chosen =
        Variable::read(DEVICE).map_or(Ok(None), Variable::switch_or_auto).map_err(CommError::from)?;
    let is_apart = |&peer: &usize| comm.link().bell(peer).is_none();
    let apart = (0..comm.size()).filter(|&peer| peer != comm.rank()).filter(is_apart).count();
    let (direct, staged) =
        (said.contains("memory of the devices, messages"), said.contains("staged through the host"));
    match (apart, chosen) {
        _ if comm.size() == 1 => ensure!(!direct && !staged, "{said}"),
        (0, _) => ensure!(staged && !direct && said.contains("lie in memory of the host"), "{said}"),
        (_, Some(true)) => ensure!(direct, "{said}"),
        (_, Some(false)) => {
            ensure!(staged && !direct && said.contains("HALOCLINE_MPI_DEVICE is off"), "{said}")
        }
        // What it says of itself, and, where it says yes, what came of it.
        _ => ensure!(direct || (staged && said.contains("device")), "{said}"),
    }
    comm.barrier()?;
    Ok(())
}

/// A bind detects an MPI library that corrupts device memory, and does not try memory that MPI surely cannot write.
fn memory_that_comes_wrong(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 || !comm.link().is_driven() {
        return Ok(());
    }
    let chosen =
        Variable::read(DEVICE).map_or(Ok(None), Variable::switch_or_auto).map_err(CommError::from)?;
    let is_tried = chosen == Some(true)
        && (0..comm.size()).all(|peer| peer == comm.rank() || comm.link().bell(peer).is_none());
    for (device, why) in [
        (Instant::with_decoy(1 << 12), "came wrong from memory of the device"),
        (Instant::to_be_flushed(), "would have to be flushed"),
    ] {
        let fixture = DeviceFixture::new(comm, &[3 * comm.size()], (1, 1, 1), |_| &device)?;
        let halo = fixture.bind(comm, &[&[0]], &by(LinkChoice::Message))?;
        let said = halo.explain();
        ensure!(
            said.contains("staged through the host") && !said.contains("memory of the devices, messages"),
            "{said}"
        );
        ensure!(!is_tried || said.contains(why), "{said}");
        comm.barrier()?;
    }
    Ok(())
}

fn a_peer_that_drops_its_object<R: Rig>(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let rig = R::get()?;
    let device = device_of(rig, 0);
    let fixture = DeviceFixture::new(comm, &[3 * comm.size()], (1, 1, 1), |_| device)?;
    for link in paths(comm) {
        let Some(halo) = bind(comm, &fixture, &[&[0]], &by(link))? else { continue };
        let stream = device.stream(Priority::Normal)?;
        step(rig, &fixture, &stream, &halo, 1)?.wait()?;
        // A failure takes an exchange with it that is not over yet.
        comm.barrier()?;
        if comm.rank() == 0 {
            drop(halo);
        } else {
            // The failure reaches all ranks, some of them through other ranks.
            let failed = until_failure(&halo, &stream)?;
            ensure!(failed.cause == Cause::Dropped && failed.culprit == 0, "it failed by {failed}");
            poll(comm, || Ok(halo.reclaim()))?;
        }
        stream.synchronise()?;
        comm.barrier()?;
    }
    rig.check()
}
