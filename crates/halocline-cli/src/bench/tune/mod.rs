//! `halocline bench tune`: measures the values that GPUs are used by ([`Tuning`]), and keeps them.
//!
//! [`steps`] says what is tried, one value after the other, each with those found so far; [`measure`] times exchanges, also beside the work of
//! [`interior`]; [`choice`] decides.

mod choice;
mod interior;
mod measure;
mod report;
mod steps;

use super::args::TuneArgs;
use super::error::BenchError;
use crate::device::Kind;
use crate::ranks::{Transport, Way, as_threads};
use halocline::device::Device;
use halocline::device::cuda::{self, Inventory};
use halocline::device::tuning::{Connection, Machine, Tuned};
use interior::{Interior, Kernels};
use measure::{Bench, measure};
use std::path::PathBuf;
use steps::{Asked, Found};

/// What was found of a machine.
struct Outcome {
    machine: Machine,
    /// What was in force.
    before: Tuned,
    /// How the second GPU is reached; none if there is none to measure with.
    connection: Option<Connection>,
    rounds: u32,
    found: Found,
    /// Where it is kept, if it is.
    kept: Option<PathBuf>,
}

/// Runs `halocline bench tune`.
pub(super) fn run(args: &TuneArgs, json: bool) -> Result<u8, BenchError> {
    // Not once for each rank of a launcher.
    Way::of(Transport::Thread)?;
    Kind::Cuda.set_environment();
    let inventory = cuda::inventory().map_err(BenchError::NothingToTune)?;
    let Some(gpu) = inventory.gpus.first() else {
        let none = halocline::DeviceError::NoDevice { device: 0, count: 0 };
        return Err(BenchError::NothingToTune(none));
    };
    cuda::Compiler::load_for(inventory.version).map_err(BenchError::NothingToTune)?;
    let machine = inventory.machine(gpu);
    let before = cuda::tuned(&machine, gpu.capability);
    let connection = connection(&inventory, &machine);
    let mut ask = |asked: &Asked| {
        let interior = |device: &Device| {
            let kernels = Kernels::load(device, machine.multiprocessors)?;
            Ok::<Box<dyn Interior>, _>(Box::new(kernels))
        };
        let bench = Bench { open: &cuda::device_with, interior: &interior };
        let of = (&asked.trials[..], &asked.cases[..], args.rounds as usize);
        let mut ranks =
            as_threads::<_, BenchError>(asked.ranks, |comm| measure(comm, bench, asked.devices, of))?;
        Ok::<_, BenchError>(ranks.swap_remove(0))
    };
    let found = steps::find(before.values, connection, &mut ask)?;
    let kept = match args.dry_run {
        true => Ok(None),
        false => cuda::keep_tuning(&machine, &found.values).map(Some),
    };
    let (kept, error) = match kept {
        Ok(kept) => (kept, None),
        Err(error) => (None, Some(error)),
    };
    // Also what cannot be kept was measured.
    let outcome = Outcome { machine, before, connection, rounds: args.rounds, found, kept };
    report::print(&outcome, json).map_err(BenchError::Output)?;
    error.map_or(Ok(0), |error| Err(BenchError::Keep(error)))
}

/// How the first two GPUs reach each other, if they are of one kind, and do.
fn connection(inventory: &Inventory, machine: &Machine) -> Option<Connection> {
    let second = inventory.gpus.get(1).filter(|gpu| inventory.machine(gpu) == *machine);
    let reach =
        |from, to| inventory.links.iter().find(|link| (link.from, link.to) == (from, to) && link.access);
    let both = second.and(reach(0, 1).zip(reach(1, 0)))?;
    Some(if both.0.atomics && both.1.atomics { Connection::NvLink } else { Connection::Pcie })
}

#[cfg(test)]
mod tests;
