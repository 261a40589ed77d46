//! `halocline bench`: the time of an exchange on this machine, beside its lower bounds.
//!
//! [`case`] makes pattern and fields and verifies exchanges of changing data. [`regions`] rewrites owned cells and reads halo cells, as a
//! model does. [`floor`] measures the round trip of a cache line, and has the barrier that starts all ranks at once. [`halo`] (for fields on
//! GPUs [`device`]) and [`latency`] measure, and [`report`] prints.

mod args;
mod case;
mod device;
mod floor;
mod halo;
mod latency;
mod regions;
mod report;

pub(crate) use args::Bench;

use crate::error::CommandError;

/// Runs a benchmark and returns the exit code. With `json`, one object a line and no table.
///
/// Call it where no other thread runs: it may start this program again as the ranks of a job.
pub(crate) fn run(bench: &Bench, json: bool) -> Result<u8, CommandError> {
    match bench {
        Bench::Halo(args) => halo::run(args, json),
        Bench::Latency(args) => latency::run(args, json),
    }
}
