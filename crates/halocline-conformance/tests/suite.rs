//! The suite: each case a test of its own, for each transport, number of ranks and kind of memory.
//!
//! A test is named `TRANSPORT::RANKS::MEMORY::CASE`, such as `thread::2::host::regular::faces`, and runs in its own process under
//! `cargo nextest`. A job of MPI takes half a second to start, so over MPI a test runs all cases of a topic:
//! `openmpi::3::host-messages::regular`. `tools/test` says which of them its fast tier runs. Without a launcher of MPI here there are no
//! such tests; `tools/test` says so.

use halocline::Communicator;
use halocline_conformance::launchers::{Mpi, said};
use halocline_conformance::processes::Ranks;
use halocline_conformance::simulated::Simulation;
use halocline_conformance::watchdog::LIMIT;
use halocline_conformance::{Case, Outcome, Trouble, cases, cases_of_fields, run_all, run_fields_on_devices};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const RANK: &str = env!("CARGO_BIN_EXE_halocline-conformance");

/// Longer than the watchdog of each rank allows for a case: for what happens outside of the cases.
const JOB_LIMIT: Duration = Duration::from_secs(240);

/// Where the fields of a case lie.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Memory {
    Host,
    /// Simulated devices.
    Devices,
}

impl Memory {
    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Devices => "devices",
        }
    }

    /// The part of this crate's program that runs its cases.
    fn part(self) -> &'static str {
        match self {
            Self::Host => "suite",
            Self::Devices => "fields",
        }
    }

    fn cases(self) -> Vec<Case> {
        match self {
            Self::Host => cases().to_vec(),
            Self::Devices => cases_of_fields(),
        }
    }

    fn run(self, comm: &Communicator, filter: &str) -> Outcome {
        match self {
            Self::Host => run_all(comm, filter),
            Self::Devices => run_fields_on_devices::<Simulation>(comm, filter, LIMIT),
        }
    }
}

/// Ranks that are threads.
fn on_threads(ranks: usize, memory: Memory, filter: &str) -> Result<(), Failed> {
    let ended: Vec<Outcome> = std::thread::scope(|scope| {
        // The communicator of a rank is dropped with its thread: where one fails, the others do not hang.
        let ranks: Vec<_> = Communicator::threads(ranks)
            .into_iter()
            .map(|comm| scope.spawn(move || memory.run(&comm, filter)))
            .collect();
        let join = |rank: std::thread::ScopedJoinHandle<'_, Outcome>| {
            rank.join().unwrap_or_else(|_| Err(Trouble::new("a rank has panicked")))
        };
        ranks.into_iter().map(join).collect()
    });
    let troubles: Vec<String> = ended.into_iter().filter_map(Result::err).map(|t| t.to_string()).collect();
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("\n").into()) }
}

/// Ranks that are processes of this machine.
fn in_processes(size: usize, memory: Memory, filter: &str) -> Result<(), Failed> {
    let mut ranks = Ranks::start(RANK, size, &[memory.part(), filter]);
    let in_time = ranks.await_end(0..size, JOB_LIMIT);
    let ends = ranks.end();
    let output: String = ends.iter().map(|end| end.output.as_str()).collect();
    let failed: Vec<usize> = (0..size).filter(|&rank| !ends[rank].status.success()).collect();
    if in_time && failed.is_empty() {
        return Ok(());
    }
    Err(format!("ranks {failed:?} of {size} failed (in time: {in_time})\n{output}").into())
}

/// A job of an MPI launcher.
#[derive(Debug, Clone, Copy)]
struct MpiJob {
    ranks: usize,
    memory: Memory,
    /// What ranks share, for the test's name.
    setting: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// The topics to run; all if empty.
    topics: &'static [&'static str],
    /// Which of MPICH's two interfaces takes it. The library is the same behind both.
    mpich: &'static str,
}

const NODE: &[(&str, &str)] = &[];
const MESSAGES: &[(&str, &str)] = &[("HALOCLINE_NODE_AWARE", "off")];
const PAIRS: &[(&str, &str)] = &[("HALOCLINE_NODE_RANKS", "2")];
/// MPI is handed memory of simulated devices, as if it were aware of them.
const AWARE_MESSAGES: &[(&str, &str)] = &[("HALOCLINE_NODE_AWARE", "off"), ("HALOCLINE_MPI_DEVICE", "on")];
const AWARE_PAIRS: &[(&str, &str)] = &[("HALOCLINE_NODE_RANKS", "2"), ("HALOCLINE_MPI_DEVICE", "on")];

const MPI_JOBS: &[MpiJob] = &{
    const fn host(
        ranks: usize,
        setting: &'static str,
        environment: &'static [(&'static str, &'static str)],
    ) -> MpiJob {
        let mpich = if ranks.is_multiple_of(2) { "mpich" } else { "mpich-abi" };
        MpiJob { ranks, memory: Memory::Host, setting, environment, topics: &[], mpich }
    }
    [
        host(2, "node", NODE),
        host(5, "node", NODE),
        host(8, "node", NODE),
        host(1, "messages", MESSAGES),
        host(3, "messages", MESSAGES),
        host(4, "messages", MESSAGES),
        host(3, "pairs", PAIRS),
        MpiJob { topics: &["devices", "scheduled"], ..host(3, "aware-messages", AWARE_MESSAGES) },
        MpiJob { topics: &["scheduled"], mpich: "mpich", ..host(3, "aware-pairs", AWARE_PAIRS) },
        MpiJob { memory: Memory::Devices, ..host(2, "messages", MESSAGES) },
        MpiJob { memory: Memory::Devices, ..host(3, "pairs", PAIRS) },
    ]
};

impl MpiJob {
    fn topics(self) -> Vec<&'static str> {
        let mut topics: Vec<&str> = self.memory.cases().iter().map(|case| case.topic()).collect();
        topics.dedup();
        topics.retain(|topic| self.topics.is_empty() || self.topics.contains(topic));
        topics
    }

    fn run(self, mpi: &Mpi, topic: &str) -> Result<(), Failed> {
        let filter = format!("{topic}::");
        let output = mpi.run(self.ranks, self.environment, Path::new(RANK), &[self.memory.part(), &filter]);
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{mpi:?}, {self:?}:\n{}", said(&output)).into())
    }

    fn trials(self, mpi: &Mpi) -> impl Iterator<Item = Trial> {
        let at = format!("{}::{}::{}-{}", mpi.short_name(), self.ranks, self.memory.name(), self.setting);
        self.topics().into_iter().map(move |topic| {
            let mpi = mpi.clone();
            Trial::test(format!("{at}::{topic}"), move || self.run(&mpi, topic))
        })
    }
}

type Run = fn(usize, Memory, &str) -> Result<(), Failed>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases watch their process: descriptors, memory, signals. `cargo nextest` runs each in a process of its own.
    arguments.test_threads = Some(1);
    let local: [(&str, Run, Memory, &[usize]); 4] = [
        ("thread", on_threads, Memory::Host, &[1, 2, 3, 5, 8]),
        ("thread", on_threads, Memory::Devices, &[1, 2]),
        ("shm", in_processes, Memory::Host, &[1, 2, 3, 5, 8]),
        ("shm", in_processes, Memory::Devices, &[3]),
    ];
    let mut trials = Vec::new();
    for (transport, run, memory, sizes) in local {
        for (&ranks, case) in
            sizes.iter().flat_map(|ranks| memory.cases().into_iter().map(move |case| (ranks, case)))
        {
            let name = format!("{transport}::{ranks}::{}::{}", memory.name(), case.name);
            trials.push(Trial::test(name, move || run(ranks, memory, case.name)));
        }
    }
    // `cargo nextest` names the test that a process runs: only those of MPI need to know the launchers.
    let names_local = |name: &String| local.iter().any(|(transport, ..)| name.starts_with(transport));
    if !(arguments.exact && arguments.filter.as_ref().is_some_and(names_local)) {
        for mpi in Mpi::all() {
            let is_taken = |job: &&MpiJob| ["openmpi", job.mpich].contains(&mpi.short_name());
            trials.extend(MPI_JOBS.iter().filter(is_taken).flat_map(|job| job.trials(&mpi)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
