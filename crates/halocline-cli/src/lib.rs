//! The `halocline` command: cases to run, benchmarks, a launcher for ranks, and a report on this machine. It is a library so that
//! Python's `python -m halocline` can run it, too.

mod bench;
mod cache;
mod clash;
mod costs;
mod device;
mod error;
mod explain;
mod geometry;
mod heat;
mod info;
mod launch;
mod ocean;
#[cfg(test)]
mod on_host;
mod options;
mod plot;
mod program;
mod progress;
mod ranks;
mod results;
mod rolling;
mod sizes;
mod sphere;
mod stats;
mod table;
mod timeline;
mod trace;
mod verdict;

/// What `fuzz/` reaches of the private readers. Part of no ordinary build.
#[cfg(fuzzing)]
pub mod fuzz {
    pub use crate::rolling::fuzz::{csv, files};
}

use clap::{Parser, Subcommand};
use error::CommandError;
use halocline_device::Variable;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::sync::OnceLock;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Moves the halo data of distributed arrays.
#[derive(Debug, Parser)]
#[command(name = "halocline", version, propagate_version = true)]
struct Cli {
    /// Print one JSON object a line instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a real case over several ranks and check its result
    #[command(subcommand)]
    Run(Case),
    Launch(launch::LaunchArgs),
    /// Measure exchanges on this machine, beside plain copies of the same cells
    #[command(subcommand)]
    Bench(bench::Bench),
    Explain(explain::ExplainArgs),
    /// Draw data files that other commands have written
    #[command(subcommand)]
    Plot(Plot),
    /// Look at compiled programs
    #[command(subcommand)]
    Program(program::ProgramCommand),
    /// List, check and remove programs that were built and kept
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Show cores, caches, memory, and which transports work here and why others do not
    Info {
        /// Try one MPI library and describe it; `info` does so in a process of its own for each library
        #[arg(long, value_name = "PATH", hide = true)]
        try_mpi: Option<std::path::PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
enum Case {
    Ocean(ocean::OceanArgs),
    Heat(heat::HeatArgs),
    Rolling(rolling::RollingArgs),
    Sphere(sphere::SphereArgs),
}

/// Pictures of data files.
#[derive(Debug, Subcommand)]
enum Plot {
    Trace(timeline::TraceArgs),
    Sizes(sizes::SizesArgs),
}

impl Command {
    /// Whether `--trace` is given.
    fn is_traced(&self) -> bool {
        match self {
            Self::Run(Case::Ocean(args)) => args.trace.is_wanted(),
            Self::Run(Case::Heat(args)) => args.trace.is_wanted(),
            Self::Bench(bench) => bench.trace().is_some_and(trace::TraceArgs::is_wanted),
            Self::Run(Case::Rolling(args)) => args.trace.is_wanted(),
            Self::Run(Case::Sphere(args)) => args.trace.is_wanted(),
            Self::Launch(_)
            | Self::Explain(_)
            | Self::Plot(_)
            | Self::Program(_)
            | Self::Cache(_)
            | Self::Info { .. } => false,
        }
    }
}

/// The command that starts this program again, empty if it is this executable, and the arguments.
static INVOCATION: OnceLock<(Vec<OsString>, Vec<OsString>)> = OnceLock::new();

/// The command that starts this program again: a program and its first arguments.
pub(crate) fn start_again() -> std::io::Result<Vec<OsString>> {
    match INVOCATION.get() {
        Some((command, _)) if !command.is_empty() => Ok(command.clone()),
        _ => Ok(vec![std::env::current_exe()?.into_os_string()]),
    }
}

/// The arguments of the command.
pub(crate) fn arguments() -> Vec<OsString> {
    INVOCATION.get().map_or_else(Vec::new, |(_, arguments)| arguments.clone())
}

/// Runs the command and returns its exit code. The first of `args` is the command's own name. `again` starts the command again, a program
/// and its first arguments, if it is not this executable. Call it once in a process, while no other thread runs.
pub fn run(args: impl IntoIterator<Item = OsString>, again: Option<Vec<OsString>>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    INVOCATION.get_or_init(|| (again.unwrap_or_default(), args.iter().skip(1).cloned().collect()));
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            // If it cannot be printed, the exit code still reports it.
            let _ = error.print();
            return error.exit_code() as u8;
        }
    };
    if cli.command.is_traced() {
        halocline_trace::want();
    }
    if let Err(error) = listen() {
        return fail(error.as_ref(), 2);
    }
    run_command(cli.command, cli.json).unwrap_or_else(|error| fail(&error, error.exit_code()))
}

/// Returns the exit code.
fn run_command(command: Command, json: bool) -> Result<u8, CommandError> {
    match command {
        Command::Run(Case::Ocean(args)) => ocean::run(&args, json),
        Command::Run(Case::Heat(args)) => heat::run(&args, json),
        Command::Run(Case::Rolling(args)) => rolling::run(&args, json),
        Command::Run(Case::Sphere(args)) => sphere::run(&args, json),
        Command::Launch(args) => Ok(launch::run(&args, json)?),
        Command::Plot(Plot::Trace(args)) => timeline::run(&args).map(|()| 0),
        Command::Plot(Plot::Sizes(args)) => sizes::run(&args).map(|()| 0),
        Command::Program(command) => program::run(&command, json).map(|()| 0),
        Command::Cache(command) => cache::run(&command, json),
        Command::Explain(args) => explain::run(&args, json),
        Command::Bench(bench) => bench::run(&bench, json),
        Command::Info { try_mpi: Some(library) } => {
            println!("{}", info::try_out(&library));
            Ok(0)
        }
        Command::Info { try_mpi: None, .. } => show_info(json).map(|()| 0).map_err(CommandError::Report),
    }
}

fn show_info(json: bool) -> std::io::Result<()> {
    let info = info::Info::gather();
    let mut stdout = std::io::stdout().lock();
    if json { writeln!(stdout, "{}", info.to_json()) } else { write!(stdout, "{}", info.to_text()) }
}

/// Sends warnings to stderr, or what `HALOCLINE_LOG` selects by level or by target and level, and records traces. Call it once in a
/// process. Refuses malformed values of all variables.
pub fn listen() -> Result<(), Box<dyn Error + Send + Sync>> {
    Variable::check_all()?;
    let filter = halocline_trace::log_filter()?;
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(tracing::Level::WARN));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    tracing_subscriber::registry()
        .with(halocline_trace::layer())
        .with(lines.with_filter(filter))
        .try_init()?;
    Ok(())
}

/// Prints the error and its causes on one line. If the reader of the output has left (`| head`), prints nothing and returns the exit code
/// of a program that SIGPIPE ends.
fn fail(error: &(dyn Error + 'static), code: u8) -> u8 {
    if is_broken_pipe(Some(error)) {
        return launch::BROKEN_PIPE;
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let more = source.to_string();
        // Some messages have their cause, and end with what to do.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = source.source();
    }
    // If it cannot be printed, the exit code still reports it.
    let _ = writeln!(std::io::stderr(), "halocline: error: {}", text.replace('\n', " "));
    code
}

fn is_broken_pipe(mut error: Option<&(dyn Error + 'static)>) -> bool {
    while let Some(one) = error {
        if one.downcast_ref().is_some_and(|io: &std::io::Error| io.kind() == std::io::ErrorKind::BrokenPipe) {
            return true;
        }
        error = one.source();
    }
    false
}
