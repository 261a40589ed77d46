//! Packets with payloads in memory of GPUs between two ranks, through packets, `NeighborExchange` and `SparseAlltoall`: every byte
//! compared, then timed beside the copy engine, or beside MPI alone. `gpu/packets` carries it to a machine with GPUs.
//!
//! ```sh
//! halocline launch -n 2 -- gpu_packets                       # memory is mapped between processes
//! HALOCLINE_NODE_AWARE=off mpirun -n 2 gpu_packets           # messages of MPI
//! gpu_packets                                                # two threads
//! ```

use halocline::Communicator;
use halocline_conformance::gpus::{Gpu, packets, skipped};
use halocline_conformance::{Outcome, Trouble};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(why) = Gpu::new(0) {
        return skipped("packets of GPUs", &why);
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("FAILED: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let comm = Communicator::init()?;
    if comm.size() > 1 {
        return packets::run(&comm);
    }
    std::thread::scope(|scope| {
        let rank = |comm: Communicator| scope.spawn(move || packets::run(&comm));
        let ranks: Vec<_> = Communicator::threads(2).into_iter().map(rank).collect();
        let ended: Vec<Outcome> = ranks
            .into_iter()
            .map(|rank| rank.join().unwrap_or_else(|_| Err(Trouble::new("a rank has panicked"))))
            .collect();
        ended.into_iter().collect()
    })
}
