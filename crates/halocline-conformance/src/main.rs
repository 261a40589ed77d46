//! One rank of a job of the suite: `tests/suite.rs` and its like start it, a user need not.
//!
//! `halocline-conformance suite [FILTER]` runs the cases, `fields [FILTER]` those of fields in memory of simulated devices, `bind-costs` what binds
//! of such fields take, `seen` what ranks make of each other's devices; `victim SCENARIO SEED` is killed or sees others
//! being killed; `storm shm|mpi KILLS [SEED]` kills them; `host SCENARIO LIBRARY` is a program with an MPI of its own; `steady` counts the system calls of exchanges; `gpus` is the suite on GPUs.

use halocline::Communicator;
use halocline_conformance::simulated::Simulation;
use halocline_conformance::watchdog::LIMIT;
use halocline_conformance::yard::Rig;
use halocline_conformance::{
    Outcome, bind_costs, gpus, host, run_all, run_fields_on_devices, seen, steady, storm, victim,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["suite"] => suite(""),
        ["suite", filter] => suite(filter),
        ["fields"] => fields(""),
        ["fields", filter] => fields(filter),
        ["bind-costs"] => bind_costs(),
        ["seen"] => ended(seen::rank::<Simulation>()),
        ["host", scenario, library] => host::main(scenario, library),
        ["victim", scenario, seed] => victim::main(scenario, seed),
        ["storm", transport @ ("shm" | "mpi"), kills] => storm::main(transport, kills, None),
        ["storm", transport @ ("shm" | "mpi"), kills, seed] => storm::main(transport, kills, Some(seed)),
        ["gpus", ref rest @ ..] => gpus::program::main(rest),
        ["steady", transport] => steady::main(transport),
        _ => {
            eprintln!(
                "usage: halocline-conformance suite [FILTER] | fields [FILTER] | bind-costs | seen | victim SCENARIO SEED | storm shm|mpi KILLS [SEED] | host SCENARIO LIBRARY | steady thread|shm | gpus ..."
            );
            ExitCode::from(2)
        }
    }
}

fn suite(filter: &str) -> ExitCode {
    ended(Communicator::init().map_err(Into::into).and_then(|comm| run_all(&comm, filter)))
}

fn fields(filter: &str) -> ExitCode {
    let run = |comm| run_fields_on_devices::<Simulation>(&comm, filter, LIMIT);
    ended(Communicator::init().map_err(Into::into).and_then(run))
}

fn bind_costs() -> ExitCode {
    let run = |comm: Communicator| {
        let rig = Simulation::get()?;
        bind_costs::rank::<Simulation>(&comm, &rig.devices()[comm.rank() % rig.devices().len()], 6, 3)
    };
    ended(Communicator::init().map_err(Into::into).and_then(run))
}

fn ended(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}
