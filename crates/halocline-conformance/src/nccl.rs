//! Programs of ranks whose device messages NCCL carries, on simulated devices and on GPUs. Each rank has a device of its own.

use crate::device_fixtures::{DeviceFixture, Kernels};
use crate::{Outcome, ensure, fail};
use halocline::device::Priority;
use halocline::{
    BindOptions, Cause, Communicator, Device, Error, Halo, HaloExchange, LinkChoice, LinkCounts, LinkPath,
    Stream,
};
use halocline_comm::Endpoint;
use std::time::Duration;

/// Options of a bind whose messages NCCL carries.
pub fn by_nccl() -> BindOptions {
    BindOptions::default().link(LinkChoice::Nccl)
}

/// Produces, exchanges and consumes on a stream.
pub fn step(
    kernels: &impl Kernels,
    (fixture, field): (&DeviceFixture, usize),
    halo: &HaloExchange,
    (stream, step): (&Stream, u64),
) -> Outcome {
    fixture.produce(kernels, &[field], stream, step)?;
    halo.schedule_exchange(&[stream])?.schedule_wait(stream)?;
    fixture.consume(kernels, &[field], stream, step)
}

/// Sets, a narrower halo and a second object, whose exchanges follow one another on two streams.
pub fn exchanged(
    kernels: &impl Kernels,
    comm: &Communicator,
    device: &Device,
    (inline, checked): (bool, bool),
) -> Outcome {
    let fixture = DeviceFixture::new(comm, &[3 * comm.size(), 3], (2, 2, 3), |_| device)?;
    let options = by_nccl().inline(inline).checked(checked);
    let objects = [fixture.bind(comm, &[&[0], &[1]], &options)?, fixture.bind(comm, &[&[2]], &options)?];
    let narrowed = objects[0].narrowed(&Halo::uniform(1))?;
    let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
    for round in 1..=3 {
        let first = objects[0].alternative(1)?;
        step(kernels, (&fixture, 1), &first, (&streams[0], round))?;
        step(kernels, (&fixture, 2), &objects[1], (&streams[1], round))?;
        step(kernels, (&fixture, 0), &objects[0], (&streams[0], round))?;
        // It changes no cell.
        narrowed.schedule_exchange(&[&streams[0]])?.schedule_wait(&streams[0])?;
        fixture.consume(kernels, &[0], &streams[0], round)?;
    }
    streams.iter().try_for_each(Stream::synchronise)?;
    objects.iter().try_for_each(HaloExchange::wait)?;
    let links = objects[0].links().count();
    let counts: LinkCounts = objects[0].links().collect();
    ensure!(counts == LinkCounts { message: links, ..LinkCounts::default() }, "{counts:?}");
    ensure!(objects[0].links().all(|link| link.path == LinkPath::Nccl), "{}", objects[0].explain());
    let table = objects[0].explain();
    let through = format!("memory of the devices, messages of {}", device.messages()?.name());
    ensure!(links == 0 || table.contains(&through), "{table}");
    ensure!(objects.iter().all(HaloExchange::reclaim), "an object keeps its memory");
    Ok(())
}

/// One rank begins an exchange before a bind, the others begin it afterwards: a bind of connected ranks sends nothing that could be mistaken
/// for it.
pub fn bound_between(kernels: &impl Kernels, comm: &Communicator, device: &Device) -> Outcome {
    let fixture = DeviceFixture::new(comm, &[4 * comm.size()], (1, 1, 2), |_| device)?;
    let first = fixture.bind(comm, &[&[0]], &by_nccl())?;
    let stream = device.stream(Priority::Normal)?;
    fixture.produce(kernels, &[0], &stream, 1)?;
    let begin = || first.schedule_exchange(&[&stream])?.schedule_wait(&stream);
    if comm.rank() == 0 {
        begin()?;
    }
    let second = fixture.bind(comm, &[&[1]], &by_nccl())?;
    if comm.rank() != 0 {
        begin()?;
    }
    fixture.consume(kernels, &[0], &stream, 1)?;
    step(kernels, (&fixture, 1), &second, (&stream, 2))?;
    Ok(stream.synchronise()?)
}

/// One object misses its deadline, which ends the communicator that another one uses.
pub fn aborted(kernels: &impl Kernels, comm: &Communicator, device: &Device, deadline: Duration) -> Outcome {
    let fixture = DeviceFixture::new(comm, &[4 * comm.size()], (1, 1, 2), |_| device)?;
    let late = by_nccl().deadline(deadline);
    let objects = [fixture.bind(comm, &[&[0]], &late)?, fixture.bind(comm, &[&[1]], &by_nccl())?];
    let stream = device.stream(Priority::Normal)?;
    for (field, halo) in objects.iter().enumerate() {
        step(kernels, (&fixture, field), halo, (&stream, 1))?;
    }
    objects.iter().try_for_each(HaloExchange::wait)?;
    comm.barrier()?;
    if comm.rank() == 0 {
        // The others never begin.
        let pending = [objects[0].schedule_exchange(&[&stream])?, objects[1].schedule_exchange(&[&stream])?];
        match pending[0].wait() {
            Err(Error::Failed(failure)) if matches!(failure.cause, Cause::Deadline(_)) => {}
            other => fail!("instead of a deadline: {other:?}"),
        }
        match pending[1].wait() {
            Err(Error::Failed(failure)) if failure.cause == Cause::Device => {
                ensure!(failure.to_string().contains("aborted"), "{failure}");
            }
            other => fail!("an exchange that was cut short counts: {other:?}"),
        }
    }
    for halo in &objects {
        while !halo.reclaim() && comm.rank() == 0 {
            comm.link().host().yield_now();
        }
    }
    comm.barrier()?;
    drop(objects);
    stream.synchronise()?;
    let halo = fixture.bind(comm, &[&[0]], &by_nccl())?;
    step(kernels, (&fixture, 0), &halo, (&stream, 2))?;
    Ok(stream.synchronise()?)
}
