//! Exchanges of ranks with a GPU each, beside NCCL written by hand and beside what the links between the GPUs carry at most, in one
//! run. `examples/gpu_rows.rs` is the program.

mod capture;
mod cases;
mod limits;
mod nccl;
mod report;
mod rival;
#[cfg(test)]
mod tests;

use super::{Gpu, Gpus};
use crate::yard::{Rig, Yard};
use crate::{Outcome, Trouble, ensure};
use capture::{Graph, Graphs};
use cases::{CASES, Case};
use halocline::device::Priority;
use halocline::{BindOptions, Communicator, HaloExchange, Pending, Reduce, Stream};
use limits::Far;
use nccl::{Message, Nccl};
use report::{Report, Row, Size};
use rival::{Beside, Packed};
use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Steps whose every cell is compared, of each way, before it is timed.
const STEPS: u64 = 4;
/// Blocks of a figure: its value is their median.
const BLOCKS: usize = 11;
/// About how long a block takes, us, and how many exchanges it has.
const BLOCK: f64 = 3000.0;
const COUNTS: [f64; 2] = [20.0, 400.0];
/// Exchanges that the host is ahead of the GPU, at most; 64 may be in flight.
const AHEAD: usize = 56;
/// Rounds of the host's time, each behind a kernel of so many ns.
const ROUNDS: usize = 31;
const BEHIND: u64 = 1_000_000;
/// The largest message.
const MOST: usize = 64 << 20;

/// What a run is told; the same on all ranks.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the figures are written as JSON.
    pub json: Option<PathBuf>,
    /// Rows whose names contain this, and no sizes.
    pub only: Option<String>,
    /// Nothing of NCCL.
    pub without_nccl: bool,
}

/// Measures, and prints a table on rank 0. Collective over two ranks or more.
pub fn run(comm: &Communicator, options: &Options) -> Outcome {
    let rig = Gpus::get()?;
    let gpu = rig.of_rank(comm.rank());
    let mut result = Ok(());
    // NCCL and captures take the thread's current GPU.
    gpu.device().driver().within(&mut || {
        result = Bench::new(comm, rig, options).and_then(|bench| bench.run(options));
    });
    result
}

/// A rank, its GPU and what all figures share.
struct Bench<'a> {
    comm: &'a Communicator,
    rig: &'a Gpus,
    gpu: &'a Gpu,
    stream: Stream,
    graphs: Arc<Graphs>,
    nccl: Result<Nccl, String>,
    /// GPUs of all ranks together.
    gpus: usize,
}

/// A way to do what is timed.
enum Way<'a> {
    /// Scheduled exchanges, and those that the host has not seen the end of.
    Ours(HaloExchange, RefCell<VecDeque<Pending>>),
    /// Each call gives the stream one.
    Other(Box<dyn Fn() -> Outcome + 'a>),
}

impl Way<'_> {
    /// Gives the stream one.
    fn give(&self, stream: &Stream) -> Outcome {
        let (halo, ahead) = match self {
            Self::Ours(halo, ahead) => (halo, &mut *ahead.borrow_mut()),
            Self::Other(give) => return give(),
        };
        // Half of them at once, so that it is one look for many.
        if ahead.len() == AHEAD
            && let Some(latest) = ahead.drain(..AHEAD / 2).next_back()
        {
            latest.wait()?;
        }
        let pending = halo.schedule_exchange(&[stream])?;
        pending.schedule_wait(stream)?;
        ahead.push_back(pending);
        Ok(())
    }

    /// Waits until the stream is through.
    fn finish(&self, stream: &Stream) -> Outcome {
        stream.synchronise()?;
        if let Self::Ours(_, ahead) = self {
            ahead.borrow_mut().drain(..).try_for_each(|pending| pending.wait())?;
        }
        Ok(())
    }
}

impl<'a> Bench<'a> {
    fn new(comm: &'a Communicator, rig: &'a Gpus, options: &Options) -> Result<Self, Trouble> {
        ensure!(
            comm.size() > 1,
            "one rank; start two or more: halocline launch -n 2 -- rows, or mpirun -n 2 rows"
        );
        let gpu = rig.of_rank(comm.rank());
        let id = gpu.device().driver().uuid().map_or([0; 16], |id| id.0);
        let gpus = comm.all_gather(&id)?.into_iter().collect::<HashSet<_>>().len();
        let nccl = match (options.without_nccl, gpus < comm.size()) {
            (true, _) => Err("--no-nccl".to_owned()),
            (_, true) => Err("ranks share GPUs, which it refuses".to_owned()),
            _ => Nccl::new(comm)?,
        };
        let stream = gpu.device().stream(Priority::Normal)?;
        Ok(Self { comm, rig, gpu, stream, graphs: Graphs::new()?, nccl, gpus })
    }

    fn run(&self, options: &Options) -> Outcome {
        let mut report = Report {
            gpu: self.gpu.device().driver().name(),
            gpus: self.gpus,
            ranks: self.comm.size(),
            transport: self.comm.transport(),
            nccl: self.nccl.as_ref().map(|nccl| nccl.version).map_err(Clone::clone),
            rows: Vec::new(),
            sizes: Vec::new(),
        };
        let say = |lines: String| {
            if self.comm.rank() == 0 {
                print!("{lines}");
            }
        };
        say(report.head());
        let far = Far::new(self.comm, self.gpu.device(), MOST)?;
        let only = options.only.as_deref();
        for case in CASES.iter().filter(|case| only.is_none_or(|only| case.name.contains(only))) {
            let row = self.row(case, &far)?;
            say(row.line());
            report.rows.push(row);
        }
        let write = |report: &Report| match &options.json {
            Some(path) if self.comm.rank() == 0 => std::fs::write(path, report.to_json()),
            _ => Ok(()),
        };
        write(&report)?;
        if only.is_none() {
            say(report.head_of_sizes());
            for bytes in
                (0..).map(|power| 8usize << (2 * power)).take_while(|&bytes| bytes < MOST).chain([MOST])
            {
                let size = self.size(bytes, &far)?;
                say(size.line());
                report.sizes.push(size);
            }
            write(&report)?;
        }
        Ok(self.comm.barrier()?)
    }

    /// One row of the table.
    fn row(&self, case: &Case, far: &Far) -> Result<Row, Trouble> {
        let yard = case.yard(self.comm, self.gpu.device())?;
        let packed = Packed::new(&yard, self.gpu.device())?;
        let (mut us, mut host) = ([None; 4], [None; 4]);
        self.ways(&yard, &packed, |number, way| {
            let time = self.steady(way)?;
            if us[number].is_none_or(|best| time < best) {
                us[number] = Some(time);
                host[number] = Some(self.host(way)?);
            }
            Ok(())
        })?;
        let stores = case.stores.then(|| self.stores(far, packed.bytes[0])).transpose()?;
        Ok(Row { name: case.name, bytes: packed.bytes, us, host, stores, bars: case.bars })
    }

    /// One size of a message.
    fn size(&self, bytes: usize, far: &Far) -> Result<Size, Trouble> {
        let yard = cases::line(self.comm, self.gpu.device(), bytes / 8)?;
        let packed = Packed::new(&yard, self.gpu.device())?;
        let mut us = [None; 4];
        self.ways(&yard, &packed, |number, way| {
            us[number] = Some(self.steady(way)?);
            Ok(())
        })?;
        let copy = self.steady(&Way::Other(Box::new(|| far.copy(&self.stream, bytes))))?;
        Ok(Size { bytes, us, stores: self.stores(far, bytes)?, copy })
    }

    /// Checks each way and hands it on with its number: inline, by default, NCCL eager and in a graph. Those of NCCL come twice where
    /// something is copied within the rank: by the kernel that packs, and beside it.
    fn ways(
        &self,
        yard: &Yard,
        packed: &Packed,
        mut each: impl FnMut(usize, &Way<'_>) -> Outcome,
    ) -> Outcome {
        let fields: Vec<usize> = (0..yard.pieces.len()).collect();
        let mut step = 0;
        let mut tried = |number: usize, way: &Way<'_>| -> Outcome {
            self.check(yard, &fields, way, &mut step)?;
            each(number, way)
        };
        for (number, inline) in [true, false].into_iter().enumerate() {
            let halo =
                yard.bind(self.comm, &[&fields[..]], &BindOptions { inline, ..BindOptions::default() })?;
            tried(number, &Way::Ours(halo, RefCell::default()))?;
        }
        let Ok(nccl) = &self.nccl else { return Ok(()) };
        let messages: Vec<Message> = packed.messages();
        let beside = Beside::new(self.gpu.device())?;
        for beside in [None, Some(&beside)].into_iter().take(1 + usize::from(packed.has_local())) {
            let give = || packed.exchange(&self.stream, beside, |stream| nccl.exchange(&messages, stream));
            tried(2, &Way::Other(Box::new(give)))?;
            // Whatever NCCL sets up for these peers it has by now.
            let graph: Graph = self.graphs.capture(&self.stream, give)?;
            tried(3, &Way::Other(Box::new(|| graph.launch(&self.stream))))?;
            self.stream.synchronise()?;
        }
        Ok(())
    }

    /// Exchanges new data a few times and compares every cell with what its owner wrote. Collective.
    fn check(&self, yard: &Yard, fields: &[usize], way: &Way<'_>, step: &mut u64) -> Outcome {
        for _ in 0..STEPS {
            *step += 1;
            self.rig.delay(&self.stream)?;
            yard.pieces(fields).try_for_each(|piece| self.rig.produce_at_once(piece, &self.stream, *step))?;
            self.rig.delay(&self.stream)?;
            way.give(&self.stream)?;
            yard.pieces(fields).try_for_each(|piece| self.rig.consume_at_once(piece, &self.stream, *step))?;
        }
        way.finish(&self.stream)?;
        self.rig.check()?;
        Ok(self.comm.barrier()?)
    }

    /// The time of one of many in a row, us: the median over blocks of the slowest rank's. Collective.
    fn steady(&self, way: &Way<'_>) -> Result<f64, Trouble> {
        let block = |count: usize| -> Result<f64, Trouble> {
            self.comm.barrier()?;
            let begin = Instant::now();
            (0..count).try_for_each(|_| way.give(&self.stream))?;
            self.stream.synchronise()?;
            let elapsed = begin.elapsed();
            way.finish(&self.stream)?;
            Ok(elapsed.as_secs_f64() * 1e6 / count as f64)
        };
        block(5)?;
        let first = self.slowest(&[block(20)?])?[0];
        let count = (BLOCK / first.max(0.1)).clamp(COUNTS[0], COUNTS[1]) as usize;
        let times = (0..BLOCKS).map(|_| block(count)).collect::<Result<Vec<_>, _>>()?;
        Ok(median(self.slowest(&times)?))
    }

    /// What the host takes for one, us, behind a kernel that keeps the GPU busy: the first, and the mean of two more; medians over
    /// rounds of the slowest rank's. Collective.
    fn host(&self, way: &Way<'_>) -> Result<[f64; 2], Trouble> {
        let (mut firsts, mut others) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            way.finish(&self.stream)?;
            self.comm.barrier()?;
            self.gpu.delay(&self.stream, BEHIND)?;
            let begin = Instant::now();
            way.give(&self.stream)?;
            let first = begin.elapsed();
            way.give(&self.stream)?;
            way.give(&self.stream)?;
            firsts.push(first.as_secs_f64() * 1e6);
            others.push((begin.elapsed() - first).as_secs_f64() * 1e6 / 2.0);
        }
        way.finish(&self.stream)?;
        Ok([median(self.slowest(&firsts)?), median(self.slowest(&others)?)])
    }

    /// Plain stores of so many bytes to the next rank, with the number of blocks that is fastest.
    fn stores(&self, far: &Far, bytes: usize) -> Result<f64, Trouble> {
        let times = limits::SHARES.into_iter().map(|share| {
            self.steady(&Way::Other(Box::new(move || far.store(self.gpu, &self.stream, bytes, share))))
        });
        times.reduce(|one, other| Ok(one?.min(other?))).unwrap_or(Ok(f64::NAN))
    }

    /// Of each time that of the slowest rank. Collective.
    fn slowest(&self, times: &[f64]) -> Result<Vec<f64>, Trouble> {
        let nanoseconds: Vec<u64> = times.iter().map(|us| (us * 1e3) as u64).collect();
        let slowest = self.comm.all_reduce(&nanoseconds, Reduce::Max)?;
        Ok(slowest.into_iter().map(|ns| ns as f64 / 1e3).collect())
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
