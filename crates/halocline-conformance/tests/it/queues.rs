//! Streams that share hardware queues, on simulated devices: what ranks may do that have a device each, or share one.

use halocline::Communicator;
use halocline::device::sim::{Options, World, explore, run};
use halocline_conformance::Outcome;
use halocline_conformance::device_fixtures::devices;
use halocline_conformance::programs::Program;
use halocline_conformance::simulated::{options, run_ranks};

/// As many as CUDA gives a process at most.
const QUEUES: u32 = 32;

fn limited(queues: u32, keeps_streams: bool) -> Options {
    Options { devices: 2, depth: 1024, steps: 400_000, queues: Some(queues), keeps_streams, ..options() }
}

/// Random programs one after the other on the same ranks, as the suite has them, each with streams of its own.
fn programs(world: &World, comm: &Communicator, count: u64, shared: bool) -> Outcome {
    let all = devices(world, 2)?;
    for program in 0..count {
        let own = if shared { 0 } else { comm.rank() };
        Program::new(world.seed() * count + program, Some(2)).run(world, &all[own..=own], comm)?;
        comm.barrier()?;
    }
    Ok(())
}

#[test]
fn ranks_with_a_device_each_complete_whatever_streams_share_queues() {
    explore(0..40, &limited(8, false), |world| run_ranks(world, 2, |comm| programs(world, comm, 4, false)));
}

#[test]
fn ranks_that_share_a_device_complete_if_streams_are_kept() {
    explore(0..20, &limited(QUEUES, true), |world| {
        run_ranks(world, 2, |comm| programs(world, comm, 10, true))
    });
}

/// What keeping them is for: 8 of 20 such runs do not end.
#[test]
fn ranks_that_share_a_device_deadlock_if_streams_are_recreated() {
    let runs = (0..20).map(|seed| {
        run(seed, &limited(QUEUES, false), |world| {
            run_ranks(world, 2, |comm| programs(world, comm, 10, true))
        })
    });
    let hung = runs.map(|run| run.reports).find(|reports| !reports.is_empty()).expect("one run does not end");
    let said = hung[0].to_string();
    assert!(said.contains("is held in its queue behind"), "it ends otherwise: {said}");
}
