//! Cases of exchanges that only GPUs can run.

use super::Gpus;
use super::raw::Raw;
use crate::cases::{device_of, scheduled_paths};
use crate::device_fixtures::{DeviceFixture, Rig, until_failure};
use crate::fixtures::by;
use crate::nccl::{aborted, exchanged};
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::device::{Address, Priority, RawStream};
use halocline::{
    BindOptions, Cause, Decomposed, DeviceError, Error, Field, Halo, HaloExchange, Layout, LinkChoice,
    RegularGrid, Stream,
};
use halocline_comm::Endpoint;
use std::sync::Arc;
use std::time::Duration;

pub(super) const CASES: [Case; 6] = [
    Case { name: "gpus::a_hundred_thousand_exchanges_without_the_host_waiting", run: many_exchanges },
    Case { name: "gpus::more_streams_than_a_gpu_has_queues_by_itself", run: many_streams },
    Case { name: "gpus::streams_of_other_libraries", run: other_streams },
    Case { name: "gpus::memory_that_was_freed_and_given_again", run: freed },
    Case { name: "gpus::no_memory_left", run: no_memory },
    Case { name: "gpus::messages_of_nccl", run: messages_of_nccl },
];

/// Whether ranks are processes that share a GPU, which takes turns of milliseconds among them.
fn takes_turns(comm: &Stage<'_>, rig: &Gpus) -> bool {
    comm.transport() != "thread" && comm.size() > rig.devices().len()
}

/// Begins an exchange as soon as fewer than the limit are in flight.
fn begin(comm: &Stage<'_>, halo: &HaloExchange, stream: &Stream) -> Result<halocline::Pending, Trouble> {
    loop {
        match halo.schedule_exchange(&[stream]) {
            Err(Error::TooManyInFlight { .. }) => comm.link().host().yield_now(),
            begun => return Ok(begun?),
        }
    }
}

fn many_exchanges(comm: &Stage<'_>) -> Outcome {
    let rig = Gpus::get()?;
    let device = device_of(rig, comm.rank());
    let fixture = DeviceFixture::new(comm, &[12 * comm.size(), 10, 9], (1, 1, 1), |_| device)?;
    for (at, link) in scheduled_paths(comm).into_iter().enumerate() {
        for inline in [false, true] {
            let count = match (at, inline, takes_turns(comm, rig)) {
                (0, false, false) => 100_000,
                (_, _, false) => 3_000,
                (_, _, true) => 200,
            };
            let halo = fixture.bind(comm, &[&[0]], &by(link).inline(inline))?;
            let stream = device.stream(Priority::Normal)?;
            let start = std::time::Instant::now();
            for step in 1..=count {
                fixture.pieces(&[0]).try_for_each(|piece| rig.produce_at_once(piece, &stream, step))?;
                begin(comm, &halo, &stream)?.schedule_wait(&stream)?;
                fixture.pieces(&[0]).try_for_each(|piece| rig.consume_at_once(piece, &stream, step))?;
            }
            stream.synchronise()?;
            rig.check()?;
            if comm.rank() == 0 && crate::says_times() {
                let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
                println!("{count} exchanges, {link:?}, inline {inline}: {each:.1} us each");
            }
            comm.barrier()?;
        }
    }
    Ok(())
}

/// Objects whose exchanges are in flight together, each on a stream of its own, with other streams made and dropped between.
fn many_streams(comm: &Stage<'_>) -> Outcome {
    const OBJECTS: usize = 4;
    let rig = Gpus::get()?;
    let device = device_of(rig, comm.rank());
    let options = BindOptions::default().deadline(Duration::from_secs(20));
    for round in 0..4 {
        let mut objects = Vec::new();
        for at in 0..OBJECTS {
            let fixture = DeviceFixture::new(comm, &[6 * comm.size(), 5], (1, 1, 1), |_| device)?;
            let halo = fixture.bind(comm, &[&[0]], &options)?;
            // Others would shift the queues of those that come later.
            let passing = (0..(comm.rank() + at * round) % 5).map(|_| device.stream(Priority::Normal));
            passing.collect::<Result<Vec<_>, _>>()?;
            objects.push((fixture, halo, device.stream(Priority::Normal)?));
        }
        for step in 1..=10 {
            for (fixture, halo, stream) in &objects {
                fixture.produce(rig, &[0], stream, step)?;
                halo.schedule_exchange(&[stream])?.schedule_wait(stream)?;
                fixture.consume(rig, &[0], stream, step)?;
            }
        }
        for (_, halo, stream) in &objects {
            halo.wait()?;
            stream.synchronise()?;
        }
        rig.check()?;
        comm.barrier()?;
    }
    Ok(())
}

/// Skipped where there is no NCCL, and where ranks share GPUs, which it refuses.
fn messages_of_nccl(comm: &Stage<'_>) -> Outcome {
    let rig = Gpus::get()?;
    let device = device_of(rig, comm.rank());
    let id = device.driver().uuid().map_or([0; 16], |id| id.0);
    let all = comm.all_gather(&id)?;
    let shared = (1..all.len()).any(|at| all[..at].contains(&all[at]));
    if let Some(why) =
        device.messages().err().map(|error| error.to_string()).or(shared.then(|| "ranks share GPUs".into()))
    {
        println!("SKIPPED, messages of NCCL: {why}");
        return Ok(());
    }
    for choice in [(false, false), (true, false), (false, true)] {
        exchanged(rig, comm, device, choice)?;
        rig.check()?;
    }
    if comm.size() > 1 {
        aborted(rig, comm, device, Duration::from_secs(1))?;
    }
    rig.check()
}

fn other_streams(comm: &Stage<'_>) -> Outcome {
    let rig = Gpus::get()?;
    let device = device_of(rig, comm.rank());
    let driver = Raw::new();
    let context = driver.made("cuDevicePrimaryCtxRetain", device.ordinal() as usize, 0);
    driver.call("cuCtxPushCurrent_v2", context, 0, 0);
    // One that synchronises with the default stream, one that does not, and one of CUDA's runtime.
    let mut streams = vec![driver.made("cuStreamCreate", 0, 0), driver.made("cuStreamCreate", 1, 0)];
    let runtime = Raw::of(&[
        "libcudart.so.13",
        "libcudart.so.12",
        "/usr/local/cuda/lib64/libcudart.so",
        "/usr/local/cuda/lib64/libcudart.so.13",
    ]);
    match &runtime {
        Some(runtime) => {
            runtime.call("cudaSetDevice", device.ordinal() as usize, 0, 0);
            streams.push(runtime.made("cudaStreamCreate", 0, 0));
        }
        None => println!("SKIPPED, streams of CUDA's runtime: it is not here"),
    }
    let made = streams.len();
    if !(comm.transport() == "thread" && comm.size() > rig.devices().len()) {
        // The default stream, where it is not that of another rank, too.
        streams.push(0);
    }
    let fixture = DeviceFixture::new(comm, &[6 * comm.size(), 5], (1, 1, 1), |_| device)?;
    for inline in [false, true] {
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().inline(inline))?;
        for &raw in &streams {
            // SAFETY: CUDA's stream is destroyed below, after the borrowed one is dropped.
            let stream = unsafe { device.borrow_stream(RawStream(raw)) }?;
            for step in 1..=5 {
                fixture.produce(rig, &[0], &stream, step)?;
                halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
                fixture.consume(rig, &[0], &stream, step)?;
            }
            stream.synchronise()?;
            rig.check()?;
            comm.barrier()?;
        }
    }
    for raw in streams.into_iter().take(made) {
        // They are still there.
        driver.call("cuStreamSynchronize", raw, 0, 0);
        driver.call("cuStreamDestroy_v2", raw, 0, 0);
    }
    driver.made("cuCtxPopCurrent_v2", 0, 0);
    driver.call("cuDevicePrimaryCtxRelease_v2", device.ordinal() as usize, 0, 0);
    Ok(())
}

/// A field in memory that it does not keep alive.
fn unowned(device: &halocline::Device, memory: Address, extents: &[usize]) -> Result<Field, Trouble> {
    let layout = Layout::c_order(halocline::ElementType::U64, extents)?;
    // SAFETY: nothing is in flight when the memory goes.
    Ok(unsafe { Field::from_device(device, memory, layout, Arc::new(())) }?)
}

fn freed(comm: &Stage<'_>) -> Outcome {
    let rig = Gpus::get()?;
    let device = device_of(rig, comm.rank());
    let grid = RegularGrid::new([4 * comm.size(), 6]).periodic([true, true]);
    let pattern = grid.decompose(comm.size())?.pattern(comm, Halo::uniform(1))?;
    let driver = Raw::new();
    let context = driver.made("cuDevicePrimaryCtxRetain", device.ordinal() as usize, 0);
    driver.call("cuCtxPushCurrent_v2", context, 0, 0);
    for link in scheduled_paths(comm) {
        let extents = pattern.plan().domains[0].1.extents();
        let bytes = 8 * extents.iter().product::<usize>();
        let mut memory = driver.made("cuMemAlloc_v2", bytes, 0);
        let field = unowned(device, memory as Address, &extents)?;
        let halo = HaloExchange::bind_with(comm, [(&pattern, &field)], &by(link))?;
        let stream = device.stream(Priority::Normal)?;
        for _ in 0..3 {
            halo.schedule_exchange(&[&stream])?.wait()?;
        }
        stream.synchronise()?;
        comm.barrier()?;
        if comm.rank() == 0 {
            let before = device.place_of(memory as Address)?;
            driver.call("cuMemFree_v2", memory, 0, 0);
            memory = driver.made("cuMemAlloc_v2", bytes, 0);
            let now = device.place_of(memory as Address)?;
            ensure!(now.id != before.id, "memory given again has the same identity");
        }
        // Freeing waits for all that the GPU has been given.
        comm.barrier()?;
        if comm.rank() == 0 {
            match halo.schedule_exchange(&[&stream]) {
                Err(Error::MemoryMoved { field: 0 }) => {}
                other => fail!("{link:?}: instead of moved memory: {other:?}"),
            }
            match halo.schedule_exchange(&[&stream]) {
                Err(Error::Failed(failure)) => {
                    ensure!(failure.cause == Cause::Device && failure.culprit == 0, "it failed by {failure}");
                }
                other => fail!("{link:?}: instead of a failure: {other:?}"),
            }
        } else {
            let failure = until_failure(&halo, &stream)?;
            ensure!(failure.cause == Cause::Device && failure.culprit == 0, "it failed by {failure}");
        }
        stream.synchronise()?;
        while !halo.reclaim() {
            comm.link().host().yield_now();
        }
        comm.barrier()?;
        drop(halo);
        driver.call("cuMemFree_v2", memory, 0, 0);
        comm.barrier()?;
    }
    driver.made("cuCtxPopCurrent_v2", 0, 0);
    driver.call("cuDevicePrimaryCtxRelease_v2", device.ordinal() as usize, 0, 0);
    Ok(())
}

fn no_memory(comm: &Stage<'_>) -> Outcome {
    let rig = Gpus::get()?;
    let device = device_of(rig, comm.rank());
    let fixture = DeviceFixture::new(comm, &[6 * comm.size(), 5], (1, 1, 1), |_| device)?;
    comm.barrier()?;
    let mut eaten = Vec::new();
    if comm.rank() == 0 {
        let mut bytes = 1usize << 38;
        while bytes > 0 {
            match device.allocate(bytes) {
                Ok(memory) => eaten.push(memory),
                Err(DeviceError::OutOfMemory { .. }) => bytes /= 2,
                Err(other) => return Err(other.into()),
            }
        }
    }
    comm.barrier()?;
    match fixture.bind(comm, &[&[0]], &BindOptions::default()) {
        Err(Error::Device(DeviceError::OutOfMemory { .. })) => {}
        Err(Error::Elsewhere { message, .. }) if message.contains("out of memory") => {}
        Err(other) => fail!("instead of no memory: {other}"),
        Ok(_) => fail!("an object was bound without memory"),
    }
    drop(eaten);
    comm.barrier()?;
    // No harm was done.
    let halo = fixture.bind(comm, &[&[0]], &by(LinkChoice::Auto))?;
    let stream = device.stream(Priority::Normal)?;
    fixture.produce(rig, &[0], &stream, 1)?;
    halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
    fixture.consume(rig, &[0], &stream, 1)?;
    stream.synchronise()?;
    rig.check()
}
