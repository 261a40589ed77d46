//! `halocline program`: compiled programs, what they take and what their calls cost.

mod bench;
mod info;
mod sizes;

use crate::error::CommandError;
use clap::Subcommand;

/// What is done with a compiled program.
#[derive(Debug, Subcommand)]
pub(crate) enum ProgramCommand {
    Info(info::InfoArgs),
    Bench(bench::BenchArgs),
}

pub(crate) fn run(command: &ProgramCommand, json: bool) -> Result<(), CommandError> {
    match command {
        ProgramCommand::Info(args) => info::run(args, json),
        ProgramCommand::Bench(args) => bench::run(args, json),
    }
}
