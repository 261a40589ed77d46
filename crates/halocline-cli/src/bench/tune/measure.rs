//! What an exchange takes with values that are tried.

use super::super::error::BenchError;
use super::interior::{self, Interior, Work};
use super::steps::Times;
use crate::device::InFlight;
use halocline::device::tuning::Tuning;
use halocline::device::{Memory, Priority, Stream};
use halocline::{
    BindOptions, Communicator, CopyEngine, Decomposed, Device, DeviceError, ElementType, Error, Field, Flags,
    Halo, HaloExchange, Layout, LinkChoice, Pattern, Reduce, RegularGrid, agree,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The machine that is measured, as a rank sees it.
#[derive(Clone, Copy)]
pub(super) struct Bench<'a> {
    /// Opens a device, by its number, with values to try.
    pub(super) open: &'a (dyn Fn(u32, Tuning) -> Result<Device, DeviceError> + Sync),
    /// Work for streams of a device.
    pub(super) interior: interior::Open<'a>,
}

/// What is exchanged, float64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// Each rank has so many cells along three axes, periodic, cut along the slowest one.
    Cube { cells: usize, halo: usize, fields: usize },
    /// The same arrays, of which only the faces across the slowest axis are exchanged.
    Faces { cells: usize, halo: usize, fields: usize },
    /// Ranks in a row: each sends so many contiguous bytes to each of its neighbours.
    Row { bytes: u64 },
    /// A cube's exchange, not `inline`, beside work that takes so many percent of its time alone; the time is that of both.
    Beside { cells: usize, halo: usize, fields: usize, work: Work, percent: u32 },
}

impl Case {
    pub(super) fn name(self) -> String {
        match self {
            Self::Cube { cells, halo, fields } => format!("{cells}^3, halo {halo}, fields {fields}"),
            Self::Faces { cells, halo, fields } => format!("{cells}^3, halo {halo}, fields {fields}, faces"),
            Self::Row { bytes } if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            Self::Row { bytes } if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            Self::Row { bytes } => format!("{bytes} B"),
            Self::Beside { cells, halo, fields, work, percent } => {
                let of = Self::Cube { cells, halo, fields }.name();
                format!("{of}, {percent}% of {}", work.name())
            }
        }
    }

    /// Exchanges of a block: some milliseconds.
    fn iterations(self, by: By) -> usize {
        let of_bytes = |all: u64, bytes: u64, most: u64| (all / bytes.max(1)).clamp(3, most) as usize;
        match self {
            Self::Cube { .. } | Self::Faces { .. } => 50,
            Self::Beside { .. } => 40,
            Self::Row { bytes } if by == By::Messages => of_bytes(32 << 20, bytes, 12),
            Self::Row { bytes } => of_bytes(128 << 20, bytes, 50).max(8),
        }
    }

    fn pattern(self, comm: &Communicator) -> Result<(Pattern, Vec<usize>, usize), BenchError> {
        let ranks = comm.size();
        let (extents, periodic, widths, margin, fields) = match self {
            Self::Cube { cells, halo, fields } | Self::Beside { cells, halo, fields, .. } => {
                (vec![ranks * cells, cells, cells], vec![true; 3], Halo::uniform(halo), halo, fields)
            }
            Self::Faces { cells, halo, fields } => {
                let widths = Halo::per_axis([(halo, halo), (0, 0), (0, 0)]);
                (vec![ranks * cells, cells, cells], vec![true, false, false], widths, halo, fields)
            }
            Self::Row { bytes } => {
                let cells = (bytes as usize / 8).max(1);
                (vec![ranks * cells], vec![false], Halo::uniform(cells), cells, 1)
            }
        };
        let axes = extents.len();
        let own: Vec<usize> =
            extents.iter().enumerate().map(|(axis, &n)| if axis == 0 { n / ranks } else { n }).collect();
        let grid = RegularGrid::new(extents).periodic(periodic);
        let parts: Vec<usize> = (0..axes).map(|axis| if axis == 0 { ranks } else { 1 }).collect();
        let pattern = grid.decompose_into(parts, ranks)?.pattern(comm, widths)?;
        Ok((pattern, own.iter().map(|cells| cells + 2 * margin).collect(), fields))
    }
}

/// How the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Kernels push all of them.
    Kernels,
    /// Copy engines move what they can.
    CopyEngines,
    /// As words with flags.
    Flags,
    /// By messages of the transport, staged through memory of the host.
    Messages,
}

impl By {
    /// Whether what is bound so has no blocks that wait: any number of such objects may be there at once.
    fn leaves_room(self) -> bool {
        matches!(self, Self::CopyEngines | Self::Messages)
    }
}

/// How exchanges are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) values: Tuning,
    pub(super) by: By,
}

impl Trial {
    pub(super) fn options(&self, case: Case) -> BindOptions {
        let (link, copy_engine, flags) = match self.by {
            By::Kernels => (LinkChoice::Push, CopyEngine::Never, Flags::Never),
            By::CopyEngines => (LinkChoice::Auto, CopyEngine::From(1), Flags::Never),
            By::Flags => (LinkChoice::Auto, CopyEngine::Never, Flags::UpTo(usize::MAX)),
            By::Messages => (LinkChoice::Message, CopyEngine::Never, Flags::Never),
        };
        let inline = !matches!(case, Case::Beside { .. });
        BindOptions { link, copy_engine, flags, inline, deadline: Some(PATIENCE), ..BindOptions::default() }
    }
}

#[cfg(test)]
impl Trial {
    /// The ways of this rank's links. Collective.
    pub(super) fn ways(
        &self,
        comm: &Communicator,
        device: &Device,
        case: Case,
    ) -> Result<Vec<halocline::Way>, BenchError> {
        let halo = Yard::new(comm, device, case)?.bind(comm, device, &self.options(case))?;
        Ok(halo.ways().map(|(_, _, way)| way).collect())
    }
}

/// Of each trial and case, us an exchange in each of so many rounds, of the slowest rank: exchanges one after the other on a stream,
/// for whose last one the host waits. Rank r has device r modulo their number. Collective.
pub(super) fn measure(
    comm: &Communicator,
    bench: Bench<'_>,
    devices: usize,
    (trials, cases, rounds): (&[Trial], &[Case], usize),
) -> Result<Times, BenchError> {
    let number = (comm.rank() % devices.max(1)) as u32;
    let devices =
        trials.iter().map(|trial| (bench.open)(number, trial.values).map_err(Error::from)).collect();
    let devices: Vec<Device> = agree(comm, devices)?;
    let streams = devices.iter().map(|device| device.stream(Priority::Normal).map_err(Error::from)).collect();
    let streams: Vec<Stream> = agree(comm, streams)?;
    let is_beside = cases.iter().any(|case| matches!(case, Case::Beside { .. }));
    let interior = devices.first().filter(|_| is_beside).map(bench.interior).transpose();
    let interior = agree(comm, interior.map_err(Error::from))?;
    let mut times = vec![vec![Vec::with_capacity(rounds); cases.len()]; trials.len()];
    for (number, &case) in cases.iter().enumerate() {
        let yard = Yard::new(comm, &devices[0], case)?;
        let bind = |at: usize| yard.bind(comm, &devices[at], &trials[at].options(case));
        let beside = match (&interior, case) {
            (Some(interior), Case::Beside { work, percent, .. }) => {
                let alone = block(comm, &bind(0)?, &streams[0], (case.iterations(By::Kernels), None))?;
                let unit = unit(comm, &**interior, &streams[0], work)?;
                let amount = (alone * f64::from(percent) / 100.0 / unit).ceil().clamp(1.0, 1e6) as u32;
                Some((&**interior, work, amount))
            }
            _ => None,
        };
        let mut kept: Vec<Option<HaloExchange>> = trials.iter().map(|_| None).collect();
        // Round 0 warms up.
        for round in 0..=rounds {
            for turn in 0..trials.len() {
                let at = (turn + round) % trials.len();
                let halo = kept[at].take().map_or_else(|| bind(at), Ok)?;
                let by = trials[at].by;
                let time = block(comm, &halo, &streams[at], (case.iterations(by), beside))?;
                kept[at] = by.leaves_room().then_some(halo);
                if round > 0 {
                    times[at][number].push(time);
                }
            }
        }
    }
    Ok(times)
}

/// The fields of a case.
struct Yard {
    pattern: Pattern,
    layout: Layout,
    /// One for all trials, which take turns.
    memory: Vec<Arc<Memory>>,
}

impl Yard {
    /// Collective.
    fn new(comm: &Communicator, device: &Device, case: Case) -> Result<Self, BenchError> {
        let (pattern, extents, fields) = case.pattern(comm)?;
        let layout = Layout::c_order(ElementType::F64, &extents)?.padded();
        let bytes = layout.span().len();
        let memory = (0..fields).map(|_| Ok::<_, Error>(Arc::new(device.allocate(bytes)?))).collect();
        Ok(Self { pattern, layout, memory: agree(comm, memory)? })
    }

    /// Where kernels wait in one launch, for which there is room once what was bound before has gone. Collective.
    fn bind(
        &self,
        comm: &Communicator,
        device: &Device,
        options: &BindOptions,
    ) -> Result<HaloExchange, BenchError> {
        let field = |memory: &Arc<Memory>| {
            // SAFETY: the memory is as large as the layout, and is held by the field; only exchanges that are waited for use it.
            unsafe { Field::from_device(device, memory.at(0), self.layout.clone(), Arc::clone(memory) as _) }
        };
        let fields: Vec<Field> = agree(comm, self.memory.iter().map(field).collect())?;
        let pairs: Vec<(&Pattern, &Field)> = fields.iter().map(|field| (&self.pattern, field)).collect();
        let start = Instant::now();
        loop {
            let halo = HaloExchange::bind_with(comm, &pairs, options)?;
            let is_full =
                options.copy_engine == CopyEngine::Never && halo.explain().contains("has no room beside");
            let is_late = start.elapsed() > PATIENCE;
            let said = comm.all_reduce(&[is_full.into(), is_late.into()], Reduce::Max)?;
            match said[..] {
                [1, 0] => drop(halo),
                [1, _] => return Err(BenchError::NoRoom),
                _ => return Ok(halo),
            }
        }
    }
}

/// What an exchange has beside it: whose work, and how much.
type Beside<'a> = (&'a dyn Interior, Work, u32);

/// What a unit of work takes by itself, us, on the slowest rank.
fn unit(
    comm: &Communicator,
    interior: &dyn Interior,
    stream: &Stream,
    work: Work,
) -> Result<f64, BenchError> {
    // Enough of it that a launch is no part.
    let (times, amount) = (8, 64);
    let run = || -> Result<Duration, Error> {
        let start = Instant::now();
        (0..times).try_for_each(|_| interior.give(stream, work, amount))?;
        stream.synchronise()?;
        Ok(start.elapsed())
    };
    agree(comm, run())?;
    let elapsed = agree(comm, run())?;
    Ok((slowest(comm, elapsed)? / f64::from(times * amount)).max(1e-3))
}

/// The longest time of all ranks, us.
fn slowest(comm: &Communicator, elapsed: Duration) -> Result<f64, BenchError> {
    let slowest = comm.all_reduce(&[elapsed.as_nanos() as u64], Reduce::Max)?;
    Ok(slowest.first().map_or(0.0, |&ns| super::super::stats::micros(ns)))
}

/// How long what was bound before may take to give up the room of its blocks, and an exchange to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// us of an exchange, and of what is beside each, of so many in a row, of the slowest rank.
fn block(
    comm: &Communicator,
    halo: &HaloExchange,
    stream: &Stream,
    (iterations, beside): (usize, Option<Beside<'_>>),
) -> Result<f64, BenchError> {
    let mut in_flight = InFlight::new(beside.iter().len());
    let mut run = |count: usize| -> Result<(), Error> {
        for _ in 0..count {
            let pending = halo.schedule_exchange(&[stream])?;
            if let Some((interior, work, amount)) = beside {
                interior.give(stream, work, amount)?;
            }
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
    Ok(slowest(comm, start.elapsed())? / iterations as f64)
}
