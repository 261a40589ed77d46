//! The `halocline` command: real cases to run, a launcher for ranks as processes, and what this machine
//! can do. A library, so that what is no program of ours can be the command, too.

mod bench;
mod device;
mod explain;
mod heat;
mod info;
mod launch;
mod ocean;
#[cfg(test)]
mod on_host;
mod options;
mod plot;
mod progress;
mod ranks;
mod rows;
mod table;
mod timeline;
mod timing;
pub mod trace;

use clap::{Parser, Subcommand};
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
    /// Measure what exchanges cost here, beside what they could cost at best
    #[command(subcommand)]
    Bench(bench::Bench),
    Explain(explain::ExplainArgs),
    /// Draw what other commands have written
    #[command(subcommand)]
    Plot(Plot),
    /// Show cores, caches, memory, and which transports work here and why others do not
    Info {
        /// Let a few processes map memory of each other's devices and of the host, give it back, and tell kinds, ways, times,
        /// hits, and what is free then
        #[arg(long)]
        mappings: bool,
        /// With `--mappings`: number of processes [default: 2, or those of the job]
        #[arg(long, value_name = "N", requires = "mappings")]
        ranks: Option<usize>,
        /// Try one MPI library and say what it is; the command does so in processes of their own
        #[arg(long, value_name = "PATH", hide = true)]
        try_mpi: Option<std::path::PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
enum Case {
    Ocean(ocean::OceanArgs),
    Heat(heat::HeatArgs),
}

/// Pictures of what other commands have written.
#[derive(Debug, Subcommand)]
enum Plot {
    Trace(timeline::TraceArgs),
    Rows(rows::RowsArgs),
}

impl Command {
    /// Whether a trace is asked for.
    fn is_traced(&self) -> bool {
        match self {
            Self::Run(Case::Ocean(args)) => args.trace.is_wanted(),
            Self::Run(Case::Heat(args)) => args.trace.is_wanted(),
            Self::Bench(bench) => bench.trace().is_some_and(trace::TraceArgs::is_wanted),
            Self::Launch(_) | Self::Explain(_) | Self::Plot(_) | Self::Info { .. } => false,
        }
    }
}

/// What this process was told by who runs the command: how to start it again, if it was said, and its arguments.
static TOLD: OnceLock<(Vec<OsString>, Vec<OsString>)> = OnceLock::new();

/// How this command is started again: a program, and its first arguments.
pub(crate) fn start_again() -> std::io::Result<Vec<OsString>> {
    match TOLD.get() {
        Some((command, _)) if !command.is_empty() => Ok(command.clone()),
        _ => Ok(vec![std::env::current_exe()?.into_os_string()]),
    }
}

/// The arguments of the command.
pub(crate) fn arguments() -> Vec<OsString> {
    TOLD.get().map_or_else(Vec::new, |(_, arguments)| arguments.clone())
}

/// Runs the command with these arguments, of which the first is its own name, and returns its exit code. `again`: how
/// the command is started again, a program and its first arguments, where that is not this executable. Once a process, where no
/// other thread runs.
pub fn run(args: impl IntoIterator<Item = OsString>, again: Option<Vec<OsString>>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    TOLD.get_or_init(|| (again.unwrap_or_default(), args.iter().skip(1).cloned().collect()));
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            // Where it cannot be said, the code says it.
            let _ = error.print();
            return error.exit_code() as u8;
        }
    };
    if cli.command.is_traced() {
        trace::want();
    }
    if let Err(error) = listen() {
        return fail(error.as_ref(), 2);
    }
    match cli.command {
        Command::Run(Case::Ocean(args)) => match ocean::run(&args, cli.json) {
            Ok(code) => code,
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Run(Case::Heat(args)) => match heat::run(&args, cli.json) {
            Ok(code) => code,
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Launch(args) => match launch::run(&args, cli.json) {
            Ok(code) => code,
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Plot(Plot::Trace(args)) => match timeline::run(&args) {
            Ok(()) => 0,
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Plot(Plot::Rows(args)) => match rows::run(&args) {
            Ok(()) => 0,
            Err(error) => fail(&error, 1),
        },
        Command::Explain(args) => match explain::run(&args, cli.json) {
            Ok(code) => code,
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Bench(bench) => match bench::run(&bench, cli.json) {
            Ok(code) => code,
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Info { mappings: true, ranks, .. } => match info::mappings(ranks, cli.json) {
            Ok(code) => code,
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Info { try_mpi: Some(library), .. } => {
            println!("{}", info::try_out(&library));
            0
        }
        Command::Info { try_mpi: None, .. } => match show_info(cli.json) {
            Ok(()) => 0,
            Err(error) => fail(&error, 1),
        },
    }
}

fn show_info(json: bool) -> std::io::Result<()> {
    let info = info::Info::gather();
    let mut stdout = std::io::stdout().lock();
    if json { writeln!(stdout, "{}", info.to_json()) } else { write!(stdout, "{}", info.to_text()) }
}

/// Warnings go to stderr; `HALOCLINE_LOG` asks for more or less, by level or by target and level. What a trace
/// wants is written down besides. Once a process. Refuses malformed values of all variables.
pub fn listen() -> Result<(), Box<dyn Error + Send + Sync>> {
    Variable::check_all()?;
    let filter = match Variable::read("HALOCLINE_LOG") {
        Some(variable) => variable.parse(
            "a level (off, error, warn, info, debug, trace), or target=level for targets that begin with halocline",
            log_filter,
        )?,
        None => Targets::new().with_default(tracing::Level::WARN),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    tracing_subscriber::registry().with(trace::layer()).with(lines.with_filter(filter)).try_init()?;
    Ok(())
}

/// A bare word that is no level would be a target, so that a level written wrong would silence everything.
fn log_filter(text: &str) -> Option<Targets> {
    let filter: Targets = text.parse().ok()?;
    let is_ours = filter.iter().all(|(target, _)| target.starts_with("halocline"));
    is_ours.then_some(filter)
}

/// Prints the error and its causes on one line. Where nobody reads what is printed any more, that is no news
/// to whoever made it so (`| head`): quietly, the exit code of a program that SIGPIPE ends.
fn fail(error: &(dyn Error + 'static), code: u8) -> u8 {
    if is_broken_pipe(Some(error)) {
        return launch::BROKEN_PIPE;
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let more = source.to_string();
        // Some messages already end with their cause.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = source.source();
    }
    // Where it cannot be said, the code says it.
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
