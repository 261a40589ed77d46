//! `halocline bench`: what an exchange costs on this machine, beside what it could cost at best.
//!
//! [`ranks`] brings the ranks up, pinned; [`case`] makes pattern and fields and verifies an exchange of
//! changing data; [`regions`] does to memory what a model does; [`floor`] has the two measures that all
//! else is compared with: the round trip of a cache line and the barrier that starts all ranks at once.
//! [`halo`] (for fields on GPUs [`device`]) and [`latency`] measure, [`report`] prints.

mod args;
mod case;
mod device;
mod floor;
mod halo;
mod latency;
mod ranks;
mod regions;
mod report;
mod stats;

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
