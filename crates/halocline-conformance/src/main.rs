//! One rank of a job of the suite. Tests start it; users need not.
//!
//! | arguments | what |
//! | --- | --- |
//! | `suite [FILTER]` | the cases |
//! | `fields [FILTER]` | the cases of fields, in memory of simulated devices |
//! | `bind-costs` | the cost of a bind of device fields |
//! | `seen` | the devices of the peers, as this rank sees them |
//! | `victim SCENARIO SEED` | a rank that is killed, or survives a peer that is |
//! | `storm shm\|mpi halos\|packets KILLS [SEED]` | kills ranks of many jobs |
//! | `host SCENARIO LIBRARY` | a program that uses MPI itself |
//! | `steady thread\|shm` | counts the system calls of exchanges |
//! | `large` | a payload of over 2 GiB between two ranks |
//! | `gpus ...` | the suite on GPUs |

use halocline::Communicator;
use halocline_conformance::device_fixtures::Rig;
use halocline_conformance::simulated::Simulation;
use halocline_conformance::watchdog::LIMIT;
use halocline_conformance::{
    Outcome, bind_costs, gpus, host, large, random_kills, run_all, run_fields_on_devices, seen, steady,
    victim,
};
use std::io::Write;
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
        ["storm", transport @ ("shm" | "mpi"), what @ ("halos" | "packets"), kills, ref seed @ ..] => {
            random_kills::main(transport, what, kills, seed.first().copied())
        }
        ["gpus", ref rest @ ..] => gpus::program::main(rest),
        ["large"] => ended(Communicator::init().map_err(Into::into).and_then(|comm| large::rank(&comm))),
        ["steady", transport] => steady::main(transport),
        _ => {
            eprintln!(
                "usage: halocline-conformance suite [FILTER] | fields [FILTER] | bind-costs | seen | victim SCENARIO SEED | storm shm|mpi halos|packets KILLS [SEED] | host SCENARIO LIBRARY | steady thread|shm | large | gpus ..."
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
            // In one piece: launchers mix the output of ranks.
            let text = format!("{trouble}\n");
            let _ = std::io::stderr().write_all(text.as_bytes());
            ExitCode::FAILURE
        }
    }
}
