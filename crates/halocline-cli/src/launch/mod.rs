//! `halocline launch`: a program as the ranks of a job on this machine.
//!
//! The launcher starts the ranks, collects their output, and ends after the last rank. It waits in one place ([`supervise`]), on descriptors
//! only: a signalfd, a pidfd for each rank and the pipes. It makes no files. If the launcher is killed, the kernel kills the ranks
//! ([`Lifeline`]). The [`guardian`] kills the processes that signals to the ranks do not reach.

mod cpus;
mod error;
mod guardian;
mod output;
mod printer;
mod process;
mod signals;
mod supervise;

pub(crate) use cpus::{Cpu, format_list, parse_list, share, usable};
pub(crate) use error::LaunchError;

use halocline_comm::shm::{Job, Lifeline};
use output::Style;
use process::{Gather, Launcher};
use std::ffi::OsString;
use std::time::Duration;
use supervise::Rules;

/// The exit code of a rank whose output has no reader: 128 + SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 128 + libc::SIGPIPE as u8;

/// Time for ranks to exit after SIGTERM, before SIGKILL.
const TERMINATE: Duration = Duration::from_secs(2);
/// Time for the other ranks to report and exit after one has failed, by default.
const GRACE: Duration = Duration::from_secs(15);

/// Start a program as N ranks on this machine.
///
/// Every line that a rank prints is printed with the rank in front. Rank 0 reads this command's standard input; the others read nothing. The
/// exit code is 0 if all ranks exit with 0, else that of the first rank that failed (128 + signal if it was killed). Ctrl-C is passed on to
/// the ranks; a second one kills them.
///
/// Processes that ranks leave in the background run on after a job that exits with 0. When a job fails, or this command is killed, every
/// process of the job is killed, as batch systems do: also those of ranks that have exited, and those in sessions of their own.
///
/// CUDA_DEVICE_MAX_CONNECTIONS is set to 32, the most queues of a GPU, unless it is set already.
#[derive(Debug, clap::Args)]
pub(crate) struct LaunchArgs {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: usize,
    /// Let each rank use all cores instead of its share
    #[arg(long)]
    no_bind: bool,
    /// Print lines without the rank in front
    #[arg(long)]
    no_prefix: bool,
    /// Time for the other ranks to report and exit after a rank has failed [default: 15]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    grace: Option<Duration>,
    /// Stop the job after this time and exit with 124
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Runs `halocline launch`: returns the exit code when every rank has left and all output is written.
/// With `json`, each line of a rank and the end of the job become one JSON object a line on stdout.
///
/// Call it where no other thread runs: it blocks this thread's signals and reads them itself.
pub(crate) fn run(args: &LaunchArgs, json: bool) -> Result<u8, LaunchError> {
    let style = match (json, args.no_prefix) {
        (true, _) => Style::Json,
        (false, true) => Style::Plain,
        (false, false) => Style::Prefix,
    };
    let rules = Rules { style, grace: args.grace.unwrap_or(GRACE), timeout: args.timeout };
    let [program, arguments @ ..] = &args.command[..] else { unreachable!("PROGRAM is required") };
    start(args.ranks, program.clone(), arguments, &rules, Gather::All, !args.no_bind)
}

/// Runs this very command with `args` as `ranks` ranks and returns the exit code when all have left.
/// Rank 0 has this process's own input and output, so that what it draws on a terminal works; lines of
/// the other ranks appear with the rank in front.
///
/// Call it where no other thread runs: it blocks this thread's signals and reads them itself.
pub(crate) fn run_self(ranks: usize, args: &[OsString]) -> Result<u8, LaunchError> {
    let mut command = crate::start_again().map_err(LaunchError::Executable)?;
    command.extend_from_slice(args);
    let rules = Rules { style: Style::Prefix, grace: GRACE, timeout: None };
    let program = command.remove(0);
    start(ranks, program, &command, &rules, Gather::AllButFirst, true)
}

fn start(
    ranks: usize,
    program: OsString,
    args: &[OsString],
    rules: &Rules,
    gather: Gather,
    bind: bool,
) -> Result<u8, LaunchError> {
    let job = Job::create(ranks)?;
    // Forked before there is anything else that it could hold.
    let guardian = guardian::Guardian::start(&job)?;
    // Dropped last: it kills the ranks that have not ended.
    let lifeline = Lifeline::new()?;
    let signals =
        signals::Signals::catch().map_err(|errno| LaunchError::System { what: "watch signals", errno })?;
    let printer = printer::Printer::start()?;
    let launcher = Launcher::new((&job, &lifeline), program, args, gather, bind, signals.before());
    let processes =
        (0..ranks).map(|rank| launcher.start_rank(rank, rules.style)).collect::<Result<_, _>>()?;
    let code = supervise::Supervisor::new(&job, processes, rules, &signals, printer).run()?;
    if code == 0 {
        guardian.spare();
    }
    Ok(code)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time; give seconds, such as 15 or 0.5");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}
