//! The suite on a machine with GPUs, whose scripts (`gpu/one`, `gpu/two`) start it; FILTER is a part of the names of cases:
//!
//! | arguments | what |
//! | --- | --- |
//! | `gpus threads COUNT [FILTER]` | ranks that are threads |
//! | `gpus job COUNT [FILTER]` | ranks that are processes, over `shm` |
//! | `gpus rank [FILTER]` | one rank of whatever has started it: `mpirun`, say |
//! | `gpus fields threads`, `job`, `rank` | the same of the cases that hold wherever fields lie |
//! | `gpus rounds GPUS COUNT` | so many rounds of allocate, bind, exchange, free between two processes on one GPU or two |
//! | `gpus mapping-costs GPUS` | what export, map, hit, eviction and release cost |
//! | `gpus bind-costs GPUS` | what binding takes beside the opens that it needs, made by hand |
//! | `gpus seen` | one rank of whatever has started it: whose GPUs it sees, by which ways it exchanges, and whether that is right |
//! | `gpus ends` | ranks that are killed, or whose GPU fails, with work in flight |
//!
//! `HALOCLINE_SEED=7 gpus threads 2 random_programs` runs that program alone instead of 30, with `HALOCLINE_SEEDS=300` so many from there
//! on. What the library warns of goes to the error output, and so does where each thread stands if a case takes too long.

use super::{Gpus, cases, mapped, victim};
use crate::processes::Ranks;
use crate::{Outcome, Trouble, ensure, run_cases, run_fields_on_devices};
use halocline::Communicator;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a case may take, the first with the compilation of all kernels; one that says where it is (`watchdog::note`) has that long anew
/// each time.
const LIMIT: Duration = Duration::from_secs(40);

/// Runs what the arguments say.
pub fn main(arguments: &[&str]) -> ExitCode {
    if let Err(why) = Gpus::made() {
        return super::skipped(&arguments.join(" "), &why);
    }
    // Reports which rank waits for which.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let start = Instant::now();
    let ended = match *arguments {
        ["fields", ref rest @ ..] => Part::Fields.main(rest),
        ["ends"] => victim::SCENARIOS.iter().try_for_each(|scenario| victim::watch(scenario)),
        ["rounds", gpus, count] => mapped::rounds(gpus, count),
        ["round-rank", gpus, count] => mapped::round_rank(gpus, count),
        ["mapping-costs", gpus] => mapped::costs(gpus),
        ["cost-rank", gpus] => mapped::cost_rank(gpus),
        ["bind-costs", gpus] => mapped::bind_costs(gpus),
        ["bind-cost-rank", gpus] => mapped::bind_cost_rank(gpus),
        ["seen"] => crate::seen::rank::<Gpus>(),
        ["victim", scenario] => victim::rank(scenario),
        ref rest => Part::OfDevices.main(rest),
    };
    match ended {
        Ok(()) => {
            if !matches!(arguments, ["victim" | "round-rank" | "cost-rank" | "bind-cost-rank", ..]) {
                println!("suite on GPUs, {} ... ok ({:.1?})", arguments.join(" "), start.elapsed());
            }
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            println!("suite on GPUs, {} ... FAILED: {trouble}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// A part of the suite, of whose cases those are run whose names contain something.
#[derive(Clone, Copy)]
enum Part {
    /// What device fields alone have, and what GPUs alone can show.
    OfDevices,
    /// What holds wherever fields lie.
    Fields,
}

impl Part {
    fn run(self, comm: &Communicator, filter: &str) -> Outcome {
        match self {
            Self::OfDevices => run_cases(
                comm,
                &[crate::device_cases::<Gpus>(), cases::CASES.to_vec()].concat(),
                filter,
                LIMIT,
            ),
            Self::Fields => run_fields_on_devices::<Gpus>(comm, filter, LIMIT),
        }
    }

    /// What starts a rank.
    fn rank(self) -> &'static [&'static str] {
        match self {
            Self::OfDevices => &["gpus", "rank"],
            Self::Fields => &["gpus", "fields", "rank"],
        }
    }

    fn main(self, arguments: &[&str]) -> Outcome {
        match *arguments {
            ["threads", count] => threads(self, count, ""),
            ["threads", count, filter] => threads(self, count, filter),
            ["job", count] => job(self, count, ""),
            ["job", count, filter] => job(self, count, filter),
            ["rank"] => self.run(&Communicator::init()?, ""),
            ["rank", filter] => self.run(&Communicator::init()?, filter),
            _ => Err(Trouble::new("there is no such program: see gpus/program.rs")),
        }
    }
}

fn count_of(text: &str) -> Result<usize, Trouble> {
    text.parse().map_err(|_| Trouble::new(format!("{text:?} is no number of ranks")))
}

fn threads(part: Part, count: &str, filter: &str) -> Outcome {
    let rank = |comm: Communicator| part.run(&comm, filter);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = Communicator::threads(count_of(count)?)
            .into_iter()
            .map(|comm| scope.spawn(|| rank(comm)))
            .collect();
        ranks
            .into_iter()
            .try_for_each(|rank| rank.join().unwrap_or_else(|_| Err(Trouble::new("a rank has panicked"))))
    })
}

fn job(part: Part, count: &str, filter: &str) -> Outcome {
    let count = count_of(count)?;
    let mut ranks = Ranks::start(std::env::current_exe()?, count, &[part.rank(), &[filter]].concat());
    // Each rank watches its cases by itself; this is for what is beside them.
    let in_time = ranks.await_end(0..count, Duration::from_secs(240));
    let ends = ranks.end();
    let said: String = ends.iter().map(|end| end.output.as_str()).collect();
    let statuses: Vec<String> = ends.iter().map(|end| end.status.to_string()).collect();
    let is_well = in_time && ends.iter().all(|end| end.status.success());
    ensure!(is_well, "in time: {in_time}, ended with {statuses:?}\n{said}");
    print!("{said}");
    Ok(())
}
