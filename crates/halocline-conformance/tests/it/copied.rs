//! Exchanges of copies on simulated devices: calls of several streams share the buffers.

use halocline::device::Priority;
use halocline::device::sim::{World, explore};
use halocline::{Communicator, CopiedExchange, Decomposed, DeviceArray, HaloExchange, ReduceOp, RegularGrid};
use halocline_conformance::device_fixtures::devices;
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, ensure};

/// Cells of a rank: two owned ones between two of the halo.
const CELLS: usize = 4;

/// Whole numbers, other ones for each rank and call.
fn argument(rank: usize, call: usize) -> [f64; CELLS] {
    std::array::from_fn(|cell| (1000 * call + 10 * rank + cell) as f64)
}

/// What a call makes of the argument of a rank, among `size` in a ring.
fn result((rank, size): (usize, usize), call: usize, reduces: bool) -> [f64; CELLS] {
    let [before, after] = [rank + size - 1, rank + 1].map(|other| argument(other % size, call));
    let own = argument(rank, call);
    match reduces {
        true => [0.0, own[1] + before[3], own[2] + after[0], 0.0],
        false => [before[2], own[1], own[2], after[1]],
    }
}

/// More calls than the buffers hold at once, all begun before any result is read.
fn many_calls(world: &World, comm: &Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let device = &devices(world, 2)?[rank % 2];
    let pattern = RegularGrid::new([2 * size]).periodic([true]).decompose(size)?.pattern(comm, 1)?;
    let buffer = DeviceArray::<f64>::zeros(device, &[CELLS])?;
    let halo = HaloExchange::bind(comm, [(&pattern, &buffer)])?;
    let copied = CopiedExchange::new(device, vec![(buffer.address(), size_of::<[f64; CELLS]>())]);
    let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Normal)?];
    let calls: Vec<_> = (0..5)
        .map(|call| {
            let [from, to] = [(); 2].map(|()| DeviceArray::<f64>::zeros(device, &[CELLS]));
            let from = from?;
            from.write(&streams[0], &argument(rank, call))?;
            Ok((from, to?))
        })
        .collect::<Result<_, halocline::Error>>()?;
    let reduces = |call: usize| call % 3 == 2;
    for (call, (from, to)) in calls.iter().enumerate() {
        let op = reduces(call).then_some(ReduceOp::Sum);
        // SAFETY: the arrays have as many bytes as the buffer, live until the streams are synchronised, and nothing else uses them.
        unsafe { copied.call(&halo, op, &[(from.address(), to.address())], &streams[call % 2]) }?;
    }
    streams.iter().try_for_each(|stream| stream.synchronise())?;
    for (call, (_, to)) in calls.iter().enumerate() {
        let (found, expected) = (to.read(&streams[0])?, result((rank, size), call, reduces(call)));
        ensure!(found == expected, "call {call} of rank {rank}: {found:?} instead of {expected:?}");
    }
    Ok(())
}

#[test]
fn calls_of_several_streams_follow_one_another() {
    explore(0..100, &options(), |world| run_ranks(world, 2, |comm| many_calls(world, comm)));
}
