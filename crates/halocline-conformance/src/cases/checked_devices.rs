//! Checked mode with fields in memory of devices: cells that the program writes too early. The cases `scheduled` and `devices` also run
//! in checked mode (`HALOCLINE_CHECK=1`).

use super::fixture::failure;
use super::scheduled::{device_of, paths};
use crate::device_fixtures::{DeviceFixture, Rig, until_failure};
use crate::fixtures::by;
use crate::stage::Stage;
use crate::{Case, Outcome, ensure};
use halocline::device::Priority;
use halocline::{BindOptions, Cause, Device, Error, Fault, HaloExchange, LinkChoice, Pending, Stream};
use halocline_comm::Endpoint;
use std::time::Duration;

pub(super) const fn cases<R: Rig>() -> [Case; 4] {
    [
        Case { name: "checked_devices::owned_cells_written_before_the_wait", run: owned_cells::<R> },
        Case { name: "checked_devices::halo_cells_written_before_the_wait", run: halo_cells::<R> },
        Case { name: "checked_devices::many_in_flight_and_one_wait", run: many_in_flight::<R> },
        Case { name: "checked_devices::what_follows_a_wait_is_no_fault", run: after_the_wait::<R> },
    ]
}

/// Two fields, each in an object of its own. Their exchanges follow one another.
struct Two {
    device: Device,
    stream: Stream,
    fixture: DeviceFixture,
    /// In checked mode.
    checked: HaloExchange,
    next: HaloExchange,
}

impl Two {
    /// Collective. `None` where nothing carries the messages of the checks on: there, scheduled exchanges are refused.
    fn new<R: Rig>(comm: &Stage<'_>, rig: &R, options: &BindOptions) -> Result<Option<Self>, crate::Trouble> {
        let device = device_of(rig, comm.rank()).clone();
        let fixture = DeviceFixture::new(comm, &[4 * comm.size()], (1, 1, 2), |_| &device)?;
        let options = options.clone().deadline(Duration::from_secs(60));
        let checked = fixture.bind(comm, &[&[0]], &options.clone().checked(true))?;
        let next = fixture.bind(comm, &[&[1]], &options.checked(false))?;
        let stream = device.stream(Priority::Normal)?;
        if comm.link().is_driven() {
            return Ok(Some(Self { device, stream, fixture, checked, next }));
        }
        let refused = checked.schedule_exchange(&[&stream]);
        ensure!(matches!(refused, Err(Error::NotDriven)), "{refused:?}");
        checked.exchange()?.wait()?;
        Ok(None)
    }

    fn step<R: Rig>(&self, rig: &R, step: u64) -> Result<Pending, crate::Trouble> {
        self.fixture.produce(rig, &[0], &self.stream, step)?;
        let pending = self.checked.schedule_exchange(&[&self.stream])?;
        pending.schedule_wait(&self.stream)?;
        self.fixture.consume(rig, &[0], &self.stream, step)?;
        Ok(pending)
    }

    /// The stream runs on after the exchange, although it was not told to wait for that: it waits for another, which follows on the
    /// same stream. So the error is found, and is no race.
    fn pass(&self) -> Outcome {
        Ok(self.next.schedule_exchange(&[&self.stream])?.schedule_wait(&self.stream)?)
    }
}

/// Rank 0 does what is wrong between an exchange and its wait, on a stream and on the host.
fn found<R: Rig>(
    comm: &Stage<'_>,
    (fault, named): (Fault, &str),
    wrong: impl Fn(&R, &Two) -> Outcome,
) -> Outcome {
    let rig = R::get()?;
    for link in paths(comm) {
        for (inline, by_host) in [(false, false), (true, false), (false, true), (true, true)] {
            crate::watchdog::note(comm.rank(), format!("{link:?}, inline {inline}, by host {by_host}"));
            let Some(two) = Two::new(comm, rig, &by(link).inline(inline))? else { return Ok(()) };
            for step in 1..=3 {
                let _ = two.step(rig, step)?;
            }
            // The failure below ends what other ranks have not finished.
            two.stream.synchronise()?;
            comm.barrier()?;
            // The failure may reach another rank before that begins.
            let begun = two.checked.schedule_exchange(&[&two.stream]);
            two.pass()?;
            if comm.rank() == 0 {
                let pending = begun?;
                wrong(rig, &two)?;
                two.stream.synchronise()?;
                if !by_host {
                    pending.schedule_wait(&two.stream)?;
                }
                let found = failure(pending.wait())?;
                ensure!((found.cause, found.culprit, found.epoch) == (Cause::Check(fault), 0, 4), "{found}");
                ensure!(found.to_string().contains(named), "{found}");
                ensure!(*failure(pending.wait())? == *found, "another wait returns something else");
                ensure!(two.checked.schedule_exchange(&[&two.stream]).is_err(), "it goes on");
            } else {
                let found = match begun {
                    Ok(_) => until_failure(&two.checked, &two.stream)?,
                    Err(error) => failure(Err::<(), _>(error))?,
                };
                ensure!((found.cause, found.culprit) == (Cause::Check(fault), 0), "{found}");
            }
            two.next.wait()?;
            two.stream.synchronise()?;
            comm.barrier()?;
        }
    }
    rig.check()
}

fn owned_cells<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let named = "of field 0 of domain 0 (pattern 0 of the bind), which go to domain";
    found(comm, (Fault::OwnedWritten, named), |rig: &R, two| two.fixture.produce(rig, &[0], &two.stream, 77))
}

fn halo_cells<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let named = "halo cells [-1..0] of field 0 of domain 0 (pattern 0 of the bind), which came from domain";
    found(comm, (Fault::HaloWritten, named), |_: &R, two| {
        let zero = two.device.allocate_pinned(8)?;
        let piece = two.fixture.pieces(&[0]).next().expect("each rank has a domain");
        // SAFETY: the first cell of the array, of 8 bytes, is a halo cell. The stream comes after the exchange that has filled it. `zero`
        // lives until the stream has done the copy.
        unsafe { two.stream.copy(piece.shape().base, zero.at(0), 8) }?;
        Ok(two.stream.synchronise()?)
    })
}

/// No begin waits for the checks of an earlier exchange.
fn many_in_flight<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    for link in paths(comm) {
        for inline in [false, true] {
            let Some(two) = Two::new(comm, rig, &by(link).inline(inline))? else { return Ok(()) };
            let mut last = None;
            for step in 1..=12 {
                last = Some(two.step(rig, step)?);
                two.pass()?;
            }
            last.map_or(Ok(()), |last| last.wait())?;
            two.next.wait()?;
            two.stream.synchronise()?;
            comm.barrier()?;
        }
    }
    rig.check()
}

/// The program writes what it may write: after a wait of the stream or of the host, and after an exchange that another one follows.
fn after_the_wait<R: Rig>(comm: &Stage<'_>) -> Outcome {
    let rig = R::get()?;
    let Some(two) = Two::new(comm, rig, &by(LinkChoice::Auto))? else { return Ok(()) };
    let other = two.device.stream(Priority::Normal)?;
    for step in 1..=4 {
        two.fixture.produce(rig, &[0], &two.stream, 2 * step)?;
        let first = two.checked.schedule_exchange(&[&two.stream])?;
        first.schedule_wait(&two.stream)?;
        // The second stream waits, too, and writes.
        first.schedule_wait(&other)?;
        two.fixture.produce(rig, &[0], &other, 2 * step + 1)?;
        let second = two.checked.schedule_exchange(&[&other])?;
        match step % 2 {
            0 => second.wait()?,
            _ => super::fixture::poll(comm, || second.is_ready())?,
        }
        two.fixture.consume(rig, &[0], &two.stream, 2 * step + 1)?;
        two.fixture.produce(rig, &[0], &two.stream, 0)?;
        two.stream.synchronise()?;
        first.wait()?;
        second.wait()?;
    }
    comm.barrier()?;
    rig.check()
}
