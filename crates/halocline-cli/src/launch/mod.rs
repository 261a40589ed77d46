//! `halocline launch`: a program as the ranks of a job on this machine.
//!
//! The launcher starts the ranks, gathers what they print, and stays until the last one has left. It
//! waits in one place ([`supervise`]), on descriptors only: a signalfd, a pidfd for each rank and the
//! pipes. There are no files, and the kernel kills the ranks, and what they have started, with the launcher
//! ([`Lifeline`]), so that nothing is left behind by a `kill -9` of anything.

mod cpus;
mod error;
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

/// The exit code of a rank that has found nobody to read what it prints: 128 + SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 128 + libc::SIGPIPE as u8;

/// How long ranks may take to leave after SIGTERM, before SIGKILL.
const TERMINATE: Duration = Duration::from_secs(2);
/// How long the other ranks may take to report and leave after one has failed, if nothing else is said.
const GRACE: Duration = Duration::from_secs(15);

/// Start a program as N ranks on this machine.
///
/// Every line that a rank prints appears here with its rank in front. Rank 0 reads this command's
/// input, the others read nothing. The exit code is 0 if all ranks end with 0, else that of the first
/// rank that failed (128 + signal if it was killed). Ctrl-C is passed on to the ranks; a second one
/// kills them. Unless the environment says otherwise, ranks have CUDA_DEVICE_MAX_CONNECTIONS=32: as many queues
/// of a GPU as there can be.
#[derive(Debug, clap::Args)]
pub(crate) struct LaunchArgs {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: usize,
    /// Let the ranks float over all cores instead of giving each its share
    #[arg(long)]
    no_bind: bool,
    /// Print the ranks' lines as they are, without the rank in front
    #[arg(long)]
    no_prefix: bool,
    /// How long the others may take to report and leave after a rank has failed (15, if not given)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    grace: Option<Duration>,
    /// Stop the job after this time, with exit code 124
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
    let (program, arguments) = args.command.split_first().ok_or(LaunchError::NoProgram)?;
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
    // Dropped last: it kills the ranks that have not ended.
    let lifeline = Lifeline::new()?;
    let signals =
        signals::Signals::catch().map_err(|errno| LaunchError::System { what: "watch signals", errno })?;
    let printer = printer::Printer::start()?;
    let launcher = Launcher::new((&job, &lifeline), program, args, gather, bind, signals.before());
    let processes =
        (0..ranks).map(|rank| launcher.start_rank(rank, rules.style)).collect::<Result<_, _>>()?;
    supervise::Supervisor::new(&job, processes, rules, &signals, printer).run()
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time; give seconds, such as 15 or 0.5");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}
