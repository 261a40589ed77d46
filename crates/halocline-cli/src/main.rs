//! The `halocline` command: real cases to run, a launcher for ranks as processes, and what this machine
//! can do.

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
mod table;
mod target;
mod timeline;
mod trace;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
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
    Plot(timeline::Plot),
    /// Show cores, caches, memory, and which transports work here and why others do not
    Info {
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = listen(cli.command.is_traced()) {
        return fail(error.as_ref(), 2);
    }
    match cli.command {
        Command::Run(Case::Ocean(args)) => match ocean::run(&args, cli.json) {
            Ok(code) => code.into(),
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Run(Case::Heat(args)) => match heat::run(&args, cli.json) {
            Ok(code) => code.into(),
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Launch(args) => match launch::run(&args, cli.json) {
            Ok(code) => code.into(),
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Plot(plot) => match timeline::run(&plot) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Explain(args) => match explain::run(&args, cli.json) {
            Ok(code) => code.into(),
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Bench(bench) => match bench::run(&bench, cli.json) {
            Ok(code) => code.into(),
            Err(error) => fail(&error, error.exit_code()),
        },
        Command::Info { try_mpi: Some(library) } => {
            println!("{}", info::try_out(&library));
            ExitCode::SUCCESS
        }
        Command::Info { try_mpi: None } => match show_info(cli.json) {
            Ok(()) => ExitCode::SUCCESS,
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
/// wants is written down besides.
fn listen(is_traced: bool) -> Result<(), Box<dyn Error>> {
    let filter = match std::env::var("HALOCLINE_LOG") {
        Ok(text) => text.parse::<Targets>().map_err(|error| {
            format!("HALOCLINE_LOG is {text:?}, it should be a level (error, warn, info, debug, trace) or target=level: {error}")
        })?,
        Err(std::env::VarError::NotPresent) => Targets::new().with_default(tracing::Level::WARN),
        Err(error) => return Err(format!("HALOCLINE_LOG: {error}").into()),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    tracing_subscriber::registry()
        .with(trace::layer(is_traced))
        .with(lines.with_filter(filter))
        .try_init()?;
    Ok(())
}

/// Prints the error and its causes on one line. Where nobody reads what is printed any more, that is no news
/// to whoever made it so (`| head`): quietly, the exit code of a program that SIGPIPE ends.
fn fail(error: &(dyn Error + 'static), code: u8) -> ExitCode {
    if is_broken_pipe(Some(error)) {
        return launch::BROKEN_PIPE.into();
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
    code.into()
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
