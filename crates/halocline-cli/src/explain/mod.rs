//! `halocline explain`: what a pattern moves between ranks, and how.
//!
//! The [`plan`] of one rank of a regular grid is made without running it. [`traffic`] adds up the bytes between all ranks. Ranks that run
//! bind fields and report the paths of their links ([`bound`]): of a regular grid ([`grid`]), of a grid of [`patches`], or of the ocean ([`ocean`]).

mod args;
mod bound;
mod grid;
mod ocean;
mod patches;
mod plan;
mod report;
mod traffic;

pub(crate) use args::ExplainArgs;

use crate::error::CommandError;
use crate::options::Grid;
use args::{Case, GridName};

/// Runs `halocline explain` and returns the exit code. With `json`, one object a line and no table.
///
/// Call it where no other thread runs: it may start this program again as the ranks of a job.
pub(crate) fn run(args: &ExplainArgs, json: bool) -> Result<u8, CommandError> {
    match &args.case {
        Some(Case::Ocean(args)) => ocean::run(args, json),
        None => match &args.grid.grid {
            Some(GridName::Patches(layout)) => patches::run(&args.grid, *layout, json),
            Some(GridName::Regular(cells)) => grid::run(&args.grid, cells, json),
            // The parser requires one where there is no subcommand.
            None => grid::run(&args.grid, &Grid(Vec::new()), json),
        },
    }
}
