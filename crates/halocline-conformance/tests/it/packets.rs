//! Packets with payloads in memory of simulated devices, each run under a schedule of its own: between neighbours and in the sparse
//! all-to-all. `HALOCLINE_SEED` runs one seed only.

use halocline::device::sim::{Options, World, explore};
use halocline::neighbors::{NeighborError, NeighborExchange, Sides};
use halocline::{Buffer, Communicator, Packet, Stream};
use halocline_conformance::payloads::Payloads;
use halocline_conformance::simulated::{options, run_ranks, run_ranks_apart};
use halocline_conformance::stage::Stage;
use halocline_conformance::{Case, Outcome, Trouble, cases_of_fields, ensure};

/// Cases that sleep, or wait by other means than the library's, for which the schedule of a world does not account.
const LEFT_OUT: [&str; 4] = [
    "neighbors::a_thousand_rounds_with_delays",
    "neighbors::an_id_is_used_again_while_the_neighbor_is_late",
    "neighbors::callbacks_are_called_once",
    "neighbors::an_abort_ends_the_waits_of_all_threads",
];

/// How many ranks take part, one after the other.
const RANKS: [usize; 3] = [2, 3, 5];

fn limited(exports: bool) -> Options {
    Options { devices: 8, depth: 1024, steps: 5_000_000, exports, ..options() }
}

fn cases(topic: &str) -> Vec<Case> {
    let is_wanted = |case: &Case| case.topic() == topic && !LEFT_OUT.contains(&case.name);
    cases_of_fields().into_iter().filter(is_wanted).collect()
}

/// The case of a seed, and its number of ranks: 45 seeds run each case with each number.
fn chosen(seed: u64, topic: &str) -> (Case, usize) {
    let (seed, mut all) = (seed as usize, cases(topic));
    let (at, turn) = (seed % all.len(), seed / all.len());
    (all.swap_remove(at), RANKS[(at + turn) % RANKS.len()])
}

/// One case, each rank with a device of its own.
fn rank(world: &World, comm: &Communicator, case: &Case) -> Outcome {
    // A stage keeps its device for good: it ends with this process.
    let device = Box::leak(Box::new(world.device(comm.rank() as u32)?));
    let own = comm.duplicate()?;
    (case.run)(&Stage::on_device(&own, device))
        .map_err(|trouble| Trouble::new(format!("{}: {trouble}", case.name)))
}

fn on_shared_devices(topic: &str) {
    explore(0..45, &limited(false), |world| {
        let (case, ranks) = chosen(world.seed(), topic);
        run_ranks(world, ranks, |comm| rank(world, comm, &case));
    });
}

fn on_mapped_devices(topic: &str) {
    explore(0..45, &limited(true), |world| {
        let (case, ranks) = chosen(world.seed(), topic);
        run_ranks_apart(world, ranks, |comm| rank(world, comm, &case));
    });
}

#[test]
fn neighbors_share_their_devices() {
    on_shared_devices("neighbors");
}

#[test]
fn neighbors_map_the_memory_of_devices() {
    on_mapped_devices("neighbors");
}

#[test]
fn a_sparse_all_to_all_shares_its_devices() {
    on_shared_devices("sparse");
}

#[test]
fn a_sparse_all_to_all_maps_the_memory_of_devices() {
    on_mapped_devices("sparse");
}

#[test]
fn the_cases_left_out_are_there() {
    let names: Vec<&str> = cases_of_fields().iter().map(|case| case.name).collect();
    assert!(LEFT_OUT.iter().all(|left_out| names.contains(left_out)), "{names:?}");
}

/// Memory of a payload goes back to its pool when the exchange fails, and the next payload is written there: not before the
/// neighbour's device has copied it.
fn fail_in_flight(world: &World, comm: &Communicator) -> Outcome {
    const BYTES: usize = 100_000;
    let device = world.device(comm.rank() as u32)?;
    let memory = Payloads::new(comm, Some(&device))?;
    let line = NeighborExchange::line(comm, memory.resource())?;
    let payload = || memory.make(&[comm.rank() as u8; BYTES]);
    let packets = |payload: Buffer| {
        let packet = Some(Packet::new(Vec::new(), Some(payload)));
        match comm.rank() {
            0 => Sides { left: None, right: packet },
            _ => Sides { left: packet, right: None },
        }
    };
    line.exchange(0, packets(payload()?))?;
    let flight = line.start(1, packets(payload()?))?;
    comm.barrier()?;
    for _ in 0..world.seed() % 32 {
        world.pause();
    }
    if comm.rank() == 0 {
        line.abort("a test");
    }
    // The round may have been over before.
    let ended = flight.wait();
    for _ in 0..3 {
        let _again = payload()?;
        memory.streams().iter().try_for_each(Stream::synchronise)?;
    }
    let failed = (0..).find_map(|_| line.exchange(3, Sides::default()).err());
    ensure!(matches!(failed, Some(NeighborError::Aborted { rank: 0, .. })), "{failed:?}");
    drop((ended, line));
    Ok(comm.barrier()?)
}

#[test]
fn a_failure_gives_no_memory_back_that_a_neighbour_copies() {
    explore(0..120, &limited(true), |world| {
        run_ranks_apart(world, 2, |comm| fail_in_flight(world, comm));
    });
}
