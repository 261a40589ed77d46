//! `halocline explain`: what a pattern moves between ranks, and how.
//!
//! The [`plan`] of one rank of a regular grid is made without running it. [`traffic`] adds up the bytes between all ranks. Ranks that run
//! bind fields and report the paths of their links ([`bound`]): of a grid ([`grid`]) or of the ocean ([`ocean`]).

mod args;
mod bound;
mod grid;
mod ocean;
mod plan;
mod report;
mod traffic;

pub(crate) use args::ExplainArgs;

use crate::error::CommandError;
use args::Case;

/// Runs `halocline explain` and returns the exit code. With `json`, one object a line and no table.
///
/// Call it where no other thread runs: it may start this program again as the ranks of a job.
pub(crate) fn run(args: &ExplainArgs, json: bool) -> Result<u8, CommandError> {
    match &args.case {
        Some(Case::Ocean(args)) => ocean::run(args, json),
        None => grid::run(&args.grid, json),
    }
}
