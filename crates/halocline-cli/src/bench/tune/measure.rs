//! What an exchange takes with values that are tried.

use super::super::error::BenchError;
use super::steps::Times;
use crate::device::InFlight;
use halocline::device::tuning::Tuning;
use halocline::device::{Priority, Stream};
use halocline::{
    BindOptions, Communicator, CopyEngine, Decomposed, Device, DeviceError, ElementType, Error, Field, Halo,
    HaloExchange, Layout, LinkChoice, Pattern, Reduce, RegularGrid, agree,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Opens the device of a rank with values to try.
pub(super) type Open<'a> = &'a (dyn Fn(usize, Tuning) -> Result<Device, DeviceError> + Sync);

/// What is exchanged, float64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// Each rank has so many cells along three axes, periodic, cut along the slowest one.
    Cube { cells: usize, halo: usize, fields: usize },
    /// Ranks in a row: each sends so many contiguous bytes to each of its neighbours.
    Row { bytes: u64 },
}

impl Case {
    pub(super) fn name(self) -> String {
        match self {
            Self::Cube { cells, halo, fields } => format!("{cells}^3, halo {halo}, fields {fields}"),
            Self::Row { bytes } if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            Self::Row { bytes } => format!("{} KiB", bytes >> 10),
        }
    }

    /// Exchanges of a block: some milliseconds.
    fn iterations(self) -> usize {
        match self {
            Self::Cube { .. } => 50,
            Self::Row { bytes } => ((128 << 20) / bytes.max(1)).clamp(8, 50) as usize,
        }
    }

    fn pattern(self, comm: &Communicator) -> Result<(Pattern, Vec<usize>, usize), BenchError> {
        let ranks = comm.size();
        let (extents, periodic, halo, fields) = match self {
            Self::Cube { cells, halo, fields } => (vec![ranks * cells, cells, cells], true, halo, fields),
            Self::Row { bytes } => {
                let cells = (bytes as usize / 8).max(1);
                (vec![ranks * cells], false, cells, 1)
            }
        };
        let axes = extents.len();
        let own: Vec<usize> =
            extents.iter().enumerate().map(|(axis, &n)| if axis == 0 { n / ranks } else { n }).collect();
        let grid = RegularGrid::new(extents).periodic(vec![periodic; axes]);
        let parts: Vec<usize> = (0..axes).map(|axis| if axis == 0 { ranks } else { 1 }).collect();
        let pattern = grid.decompose_into(parts, ranks)?.pattern(comm, Halo::uniform(halo))?;
        Ok((pattern, own.iter().map(|cells| cells + 2 * halo).collect(), fields))
    }
}

/// How exchanges are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) values: Tuning,
    /// Copy engines move what they can; kernels all of it otherwise.
    pub(super) engine: bool,
}

/// Of each trial and case, us an exchange in each of so many rounds, of the slowest rank: exchanges one after the other on a stream
/// (`inline`), for whose last one the host waits. Collective.
pub(super) fn measure(
    comm: &Communicator,
    open: Open<'_>,
    (trials, cases, rounds): (&[Trial], &[Case], usize),
) -> Result<Times, BenchError> {
    let devices = trials.iter().map(|trial| open(comm.rank(), trial.values).map_err(Error::from)).collect();
    let devices: Vec<Device> = agree(comm, devices)?;
    let streams = devices.iter().map(|device| device.stream(Priority::Normal).map_err(Error::from)).collect();
    let streams: Vec<Stream> = agree(comm, streams)?;
    let mut times = vec![vec![Vec::with_capacity(rounds); cases.len()]; trials.len()];
    for (number, &case) in cases.iter().enumerate() {
        let (pattern, extents, fields) = case.pattern(comm)?;
        let layout = Layout::c_order(ElementType::F64, &extents)?;
        let bytes = layout.span().len();
        // One memory for all: trials take turns.
        let memory = (0..fields).map(|_| Ok::<_, Error>(Arc::new(devices[0].allocate(bytes)?))).collect();
        let memory: Vec<Arc<_>> = agree(comm, memory)?;
        // Round 0 warms up.
        for round in 0..=rounds {
            for turn in 0..trials.len() {
                let at = (turn + round) % trials.len();
                let field = |memory: &Arc<halocline::device::Memory>| {
                    // SAFETY: the memory is as large as the layout, and is held by the field; only exchanges that are waited for use it.
                    unsafe {
                        Field::from_device(
                            &devices[at],
                            memory.at(0),
                            layout.clone(),
                            Arc::clone(memory) as _,
                        )
                    }
                };
                let fields: Vec<Field> = agree(comm, memory.iter().map(field).collect())?;
                let pairs: Vec<(&Pattern, &Field)> = fields.iter().map(|field| (&pattern, field)).collect();
                let halo = bind(comm, &pairs, trials[at].engine)?;
                let time = block(comm, &halo, &streams[at], case.iterations())?;
                if round > 0 {
                    times[at][number].push(time);
                }
            }
        }
    }
    Ok(times)
}

/// How long what was bound before may take to give up the room of its blocks.
const PATIENCE: Duration = Duration::from_secs(5);

/// Without copy engines in one launch, for which there is room once what was bound before has gone.
fn bind(comm: &Communicator, pairs: &[(&Pattern, &Field)], engine: bool) -> Result<HaloExchange, BenchError> {
    let copy_engine = if engine { CopyEngine::From(1) } else { CopyEngine::Never };
    let link = if engine { LinkChoice::Auto } else { LinkChoice::Push };
    let options = BindOptions { link, copy_engine, inline: true, ..BindOptions::default() };
    let start = Instant::now();
    loop {
        let halo = HaloExchange::bind_with(comm, pairs, &options)?;
        let is_full = !engine && halo.explain().contains("has no room beside");
        let is_late = start.elapsed() > PATIENCE;
        let said = comm.all_reduce(&[is_full.into(), is_late.into()], Reduce::Max)?;
        match said[..] {
            [1, 0] => drop(halo),
            [1, _] => return Err(BenchError::NoRoom),
            _ => return Ok(halo),
        }
    }
}

fn block(
    comm: &Communicator,
    halo: &HaloExchange,
    stream: &Stream,
    iterations: usize,
) -> Result<f64, BenchError> {
    let mut in_flight = InFlight::new(0);
    let mut run = |count: usize| -> Result<(), Error> {
        for _ in 0..count {
            let pending = halo.schedule_exchange(&[stream])?;
            pending.schedule_wait(stream)?;
            in_flight.add(pending);
            in_flight.settle()?;
        }
        in_flight.finish()?;
        Ok(stream.synchronise()?)
    };
    run(2)?;
    comm.barrier()?;
    let start = Instant::now();
    run(iterations)?;
    let nanoseconds = start.elapsed().as_nanos() as u64;
    let slowest = comm.all_reduce(&[nanoseconds], Reduce::Max)?;
    Ok(slowest.first().map_or(0.0, |&ns| super::super::stats::micros(ns)) / iterations as f64)
}
