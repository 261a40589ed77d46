//! Times of payloads of 64 MiB, beside the copy engine between the same GPUs, and beside MPI alone where only messages connect
//! the ranks.

use super::super::rows::limits::Remote;
use super::Bench;
use crate::{Outcome, Trouble, raw_mpi};
use halocline::device::Priority;
use halocline::neighbors::{NeighborExchange, Sides};
use halocline::sparse::SparseAlltoall;
use halocline::{Packet, Reduce};
use halocline_comm::Endpoint;
use std::cell::Cell;
use std::time::Instant;

const BYTES: usize = 64 << 20;
/// Rounds that count, after some that do not.
const ROUNDS: usize = 31;
const FIRST: usize = 4;
/// The least share of the baseline: of the copy engine, and of MPI alone.
const BARS: [f64; 2] = [0.85, 0.9];

/// What a figure is compared with, in microseconds.
struct Baseline {
    name: &'static str,
    one_way: Option<f64>,
    both_ways: f64,
    bar: f64,
}

/// Who sends.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    OneWay,
    BothWays,
}

pub(super) fn measure(bench: &Bench<'_>) -> Outcome {
    let baseline = match bench.comm.link().bell(bench.peer) {
        Some(_) => copies(bench)?,
        None => messages(bench)?,
    };
    let mut lines = Vec::new();
    for direction in [Direction::OneWay, Direction::BothWays] {
        let (name, base) = match direction {
            Direction::OneWay => ("one way", baseline.one_way),
            Direction::BothWays => ("both ways", Some(baseline.both_ways)),
        };
        let mut row = |what: &str, us: f64| {
            let rate = BYTES as f64 / us / 1e3;
            let share = base.map_or_else(|| "-".to_owned(), |base| format!("{:.2}", base / us));
            lines.push(format!("{what:<24} {name:<10} {us:>9.1} {rate:>9.1} {share:>9}"));
        };
        if let Some(base) = base {
            row(baseline.name, base);
        }
        row("packet", packets(bench, direction)?);
        row("NeighborExchange", neighbors(bench, direction)?);
        row("SparseAlltoall", sparse(bench, direction)?);
    }
    let (gpu, transport) = (bench.gpu.device().driver().name(), bench.comm.transport());
    let (path, gpus, bar) = (bench.path(), bench.gpus, baseline.bar);
    let (_, refused) = bench.mapped();
    bench.say(&format!(
        "\npayloads of 64 MiB between 2 ranks by {transport} on {gpus} x {gpu}, {path} ({refused} refused): median of {ROUNDS} rounds of the \
         slower rank; share: of {}, at least {bar} asked for with two GPUs",
        baseline.name
    ));
    bench.say(&format!("{:<24} {:<10} {:>9} {:>9} {:>9}", "what", "", "us", "GB/s", "share"));
    lines.iter().for_each(|line| bench.say(line));
    Ok(())
}

impl Bench<'_> {
    /// The median time of what both ranks begin at once, us: of the slower one. Collective.
    fn timed(
        &self,
        mut prepare: impl FnMut() -> Outcome,
        mut work: impl FnMut() -> Outcome,
    ) -> Result<f64, Trouble> {
        let mut times = Vec::new();
        for round in 0..FIRST + ROUNDS {
            prepare()?;
            self.comm.barrier()?;
            let begin = Instant::now();
            work()?;
            if round >= FIRST {
                times.push(begin.elapsed().as_nanos() as u64);
            }
        }
        let mut slower = self.comm.all_reduce(&times, Reduce::Max)?;
        slower.sort_unstable();
        Ok(slower[slower.len() / 2] as f64 / 1e3)
    }

    /// Whether this rank sends: rank 0 alone, or both.
    fn sends(&self, direction: Direction) -> bool {
        direction == Direction::BothWays || self.comm.rank() == 0
    }

    fn receives(&self, direction: Direction) -> bool {
        direction == Direction::BothWays || self.comm.rank() == 1
    }

    /// A packet of memory that the other rank has mapped since the first rounds.
    fn payload(&self, direction: Direction) -> Result<Option<Packet>, Trouble> {
        if !self.sends(direction) {
            return Ok(None);
        }
        let payload = self.memory.resource().allocate(BYTES)?;
        Ok(Some(Packet::new(vec![1; 64], Some(payload))))
    }
}

/// The copy engine between the memory of both ranks: pushed or pulled, whichever is faster.
fn copies(bench: &Bench<'_>) -> Result<Baseline, Trouble> {
    let remote = Remote::new(bench.comm, bench.gpu.device(), BYTES)?;
    let stream = bench.gpu.device().stream(Priority::Normal)?;
    let copy = |is_here: bool, pulls: bool| {
        bench.timed(
            || Ok(()),
            || {
                match (is_here, pulls) {
                    (false, _) => return Ok(()),
                    (true, true) => remote.fetch(&stream, BYTES)?,
                    (true, false) => remote.copy(&stream, BYTES)?,
                }
                Ok(stream.synchronise()?)
            },
        )
    };
    let rank = bench.comm.rank();
    let one_way = copy(rank == 1, true)?.min(copy(rank == 0, false)?);
    let both_ways = copy(true, true)?.min(copy(true, false)?);
    bench.comm.barrier()?;
    Ok(Baseline { name: "copy engine", one_way: Some(one_way), both_ways, bar: BARS[0] })
}

/// Messages of MPI alone, from pinned memory or not, in one part or several: whichever is faster.
fn messages(bench: &Bench<'_>) -> Result<Baseline, Trouble> {
    let device = bench.gpu.device();
    let pinned = [device.allocate_pinned(BYTES)?, device.allocate_pinned(BYTES)?];
    let (out, mut into) = (vec![1; BYTES], vec![0; BYTES]);
    let mut both_ways = f64::MAX;
    for parts in [1, 8] {
        let plain = raw_mpi::both_ways(bench.comm.rank(), &out, &mut into, parts, ROUNDS);
        // SAFETY: pinned memory of so many bytes, which nothing else uses.
        let (from, to) = unsafe { (pinned[0].bytes(0..BYTES), pinned[1].bytes_mut(0..BYTES)) };
        let locked = raw_mpi::both_ways(bench.comm.rank(), from, to, parts, ROUNDS);
        for time in [plain, locked] {
            let time = time.map_err(|error| Trouble::new(error.to_string()))?;
            let slower = bench.comm.all_reduce(&[time.as_nanos() as u64], Reduce::Max)?;
            both_ways = both_ways.min(slower[0] as f64 / 1e3);
        }
    }
    Ok(Baseline { name: "MPI alone", one_way: None, both_ways, bar: BARS[1] })
}

fn packets(bench: &Bench<'_>, direction: Direction) -> Result<f64, Trouble> {
    let (next, number) = (Cell::new(None), Cell::new(1 << 20));
    bench.timed(
        || {
            next.set(bench.payload(direction)?);
            Ok(())
        },
        || {
            number.set(number.get() + 1);
            bench.pass(number.get(), next.take(), bench.receives(direction))?;
            Ok(())
        },
    )
}

fn neighbors(bench: &Bench<'_>, direction: Direction) -> Result<f64, Trouble> {
    let line = NeighborExchange::line(bench.comm, bench.memory.resource())?;
    let next = Cell::new(None);
    let time = bench.timed(
        || {
            next.set(bench.payload(direction)?);
            Ok(())
        },
        || {
            let packets = match bench.comm.rank() {
                0 => Sides { left: None, right: next.take() },
                _ => Sides { left: next.take(), right: None },
            };
            line.exchange(0, packets)?;
            Ok(())
        },
    )?;
    bench.comm.barrier()?;
    Ok(time)
}

/// With the begin of an operation in each round.
fn sparse(bench: &Bench<'_>, direction: Direction) -> Result<f64, Trouble> {
    let next = Cell::new(None);
    let peers = [bench.peer];
    let named = |is_named: bool| if is_named { &peers[..] } else { &[] };
    let (sources, destinations) = (named(bench.receives(direction)), named(bench.sends(direction)));
    bench.timed(
        || {
            next.set(bench.payload(direction)?);
            Ok(())
        },
        || {
            let exchange = SparseAlltoall::new(bench.comm, sources, destinations, bench.memory.resource())?;
            if let Some(packet) = next.take() {
                exchange.insert(bench.peer, packet)?;
            }
            Ok(exchange.finish_and_wait()?)
        },
    )
}
