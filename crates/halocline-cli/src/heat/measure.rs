//! The times of the parts of a step alone, beside the time of a whole step.

use super::levels::Levels;
use super::simulation::Heat;
use crate::device::Replays;
use crate::error::CommandError;
use crate::stats::median;
use halocline::{Communicator, HaloExchange, LinkChoice, Reduce};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Times of a round: an exchange and the steps that it serves. Each is the median over the blocks of the slowest rank's median. If
/// calls only queue work ([`Levels::QUEUES`]), the slowest rank's mean over rounds in a row until all are done replaces its median.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Figures {
    /// Exchange and wait only.
    pub(super) exchange_us: f64,
    /// Computation of the interior of the first step only.
    pub(super) interior_us: f64,
    /// Computation of all other cells only.
    pub(super) rest_us: f64,
    /// A round that computes the interior while the exchange is in flight.
    pub(super) overlapped_us: f64,
    /// The part of `overlapped_us` from the start of the exchange to the end of the wait; `None` if calls only queue work.
    pub(super) in_flight_us: Option<f64>,
    /// A round that computes the interior after the exchange.
    pub(super) in_turn_us: f64,
    /// Median over the blocks of `overlapped_us` to the larger of `exchange_us` and `interior_us` in the same block.
    pub(super) ratio: f64,
    /// The same for `in_flight_us`.
    pub(super) ratio_in_flight: Option<f64>,
    /// Computation of interior and all other cells without an exchange; `None` unless calls only queue work.
    pub(super) kernels_us: Option<f64>,
    /// Median over the blocks of `overlapped_us` to `kernels_us`.
    pub(super) ratio_to_kernels: Option<f64>,
}

/// Approximate time of a block of one figure.
const BLOCK: Duration = Duration::from_millis(20);
/// Maximum number of rounds of a block.
const MOST: u64 = 500;
/// Rounds before the first block: exchanges adapt to overlap within a few rounds.
const WARM: usize = 12;
/// Rounds at the start of each block that are not counted.
const SETTLE: usize = 2;

/// Figures of one block: see [`Figures`], in this order without the ratios.
type Block = [f64; 7];

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    /// The path of exchanges.
    pub(super) link: LinkChoice,
    /// Blocks of each figure.
    pub(super) rounds: u32,
    /// Whole rounds, and the kernels alone, are replayed from graphs.
    pub(super) graph: bool,
}

/// Exchanges, each with a binding of its own, because an exchange adapts to whether its user overlaps.
struct Exchanges {
    overlapping: HaloExchange,
    in_turn: HaloExchange,
}

/// Graphs of two rounds: with overlap, without, and the kernels alone.
struct Graphs {
    overlapping: Replays,
    in_turn: Replays,
    kernels: Replays,
}

impl Graphs {
    /// `None` if this memory has no stream.
    ///
    /// # Safety
    /// The graphs are not launched after `heat` is dropped.
    unsafe fn of<L: Levels>(heat: &mut Heat<L>, exchanges: &Exchanges) -> Result<Option<Self>, CommandError> {
        let mut capture = |round: &mut dyn FnMut(&mut Heat<L>) -> Result<(), CommandError>| {
            // SAFETY: by the caller's promise.
            unsafe { heat.capture(round) }
        };
        let overlapping =
            capture(&mut |heat| heat.round(&exchanges.overlapping, heat.width, true).map(drop))?;
        let in_turn = capture(&mut |heat| heat.round(&exchanges.in_turn, heat.width, false).map(drop))?;
        let all = overlapping.zip(in_turn).zip(capture(&mut kernels)?);
        Ok(all.map(|((overlapping, in_turn), kernels)| Self { overlapping, in_turn, kernels }))
    }
}

/// A round without its exchange.
fn kernels<L: Levels>(heat: &mut Heat<L>) -> Result<(), CommandError> {
    heat.interior()?;
    heat.rest(heat.width, true)
}

/// Measures blocks of each figure, in turn, and advances the temperature while it does. Collective.
pub(super) fn measure<L: Levels>(
    comm: &Communicator,
    heat: &mut Heat<L>,
    Measure { link, rounds, graph }: Measure,
) -> Result<Option<Figures>, CommandError> {
    let exchanges =
        Exchanges { overlapping: heat.bind(comm, link, true)?, in_turn: heat.bind(comm, link, false)? };
    let start = Instant::now();
    for _ in 0..WARM {
        heat.round(&exchanges.overlapping, heat.width, true)?;
        heat.round(&exchanges.in_turn, heat.width, false)?;
    }
    heat.finish()?;
    let mean = comm.all_reduce(&[start.elapsed().as_nanos() as u64 / (2 * WARM) as u64], Reduce::Max)?[0];
    let count = (BLOCK.as_nanos() as u64 / mean.max(1)).clamp(3, MOST) as usize;

    // SAFETY: the graphs are dropped at the end of this call.
    let mut graphs = if graph && rounds > 0 { unsafe { Graphs::of(heat, &exchanges) }? } else { None };
    let mut blocks = Vec::new();
    // Round 0 warms up.
    for round in 0..=rounds {
        let block = block(comm, heat, &exchanges, (graphs.as_mut(), count))?;
        if round > 0 {
            blocks.push(block);
        }
    }
    let median = |of: &dyn Fn(&Block) -> f64| median(&blocks.iter().map(of).collect::<Vec<_>>());
    let least = f64::MIN_POSITIVE;
    let larger = |block: &Block| block[0].max(block[1]).max(least);
    let (seen, queued) = (!L::QUEUES, L::QUEUES);
    Ok((rounds > 0).then(|| Figures {
        exchange_us: median(&|block| block[0]),
        interior_us: median(&|block| block[1]),
        rest_us: median(&|block| block[2]),
        overlapped_us: median(&|block| block[3]),
        in_flight_us: seen.then(|| median(&|block| block[4])),
        in_turn_us: median(&|block| block[5]),
        ratio: median(&|block| block[3] / larger(block)),
        ratio_in_flight: seen.then(|| median(&|block| block[4] / larger(block))),
        kernels_us: queued.then(|| median(&|block| block[6])),
        ratio_to_kernels: queued.then(|| median(&|block| block[3] / block[6].max(least))),
    }))
}

/// One block of each figure: the slowest rank's medians, us.
fn block<L: Levels>(
    comm: &Communicator,
    heat: &mut Heat<L>,
    Exchanges { overlapping, in_turn }: &Exchanges,
    (mut graphs, count): (Option<&mut Graphs>, usize),
) -> Result<Block, CommandError> {
    let width = heat.width;
    let exchange = timed(comm, heat, count, |heat| heat.exchange(in_turn))?;
    let interior = timed(comm, heat, count, |heat| heat.interior())?;
    let rest = timed(comm, heat, count, |heat| heat.rest(width, true))?;
    let mut in_flight = Vec::with_capacity(SETTLE + count);
    let overlapped = match &mut graphs {
        Some(graphs) => replayed(comm, heat, count, &mut graphs.overlapping)?,
        None => timed(comm, heat, count, |heat| {
            in_flight.push(heat.round(overlapping, width, true)?.overlapped());
            Ok(())
        })?,
    };
    let in_flight = median_ns(in_flight.split_off(SETTLE.min(in_flight.len())));
    let in_turn = match &mut graphs {
        Some(graphs) => replayed(comm, heat, count, &mut graphs.in_turn)?,
        None => timed(comm, heat, count, |heat| heat.round(in_turn, width, false).map(drop))?,
    };
    let mut figures = vec![exchange, interior, rest, overlapped, in_flight, in_turn];
    if L::QUEUES {
        figures.push(match graphs {
            Some(graphs) => replayed(comm, heat, count, &mut graphs.kernels)?,
            None => timed(comm, heat, count, kernels)?,
        });
    }
    let slowest = comm.all_reduce(&figures, Reduce::Max)?;
    let micros = |at: usize| slowest.get(at).map_or(0.0, |&ns| ns as f64 / 1e3);
    Ok(std::array::from_fn(micros))
}

/// Median time of `count` calls, ns, after a few that are not counted. If calls only queue work, their mean time until all is done.
fn timed<L: Levels>(
    comm: &Communicator,
    heat: &mut Heat<L>,
    count: usize,
    mut call: impl FnMut(&mut Heat<L>) -> Result<(), CommandError>,
) -> Result<u64, CommandError> {
    comm.barrier()?;
    for _ in 0..SETTLE {
        call(heat)?;
    }
    if L::QUEUES {
        heat.finish()?;
        comm.barrier()?;
        let start = Instant::now();
        (0..count).try_for_each(|_| call(heat))?;
        heat.finish()?;
        return Ok(start.elapsed().as_nanos() as u64 / count as u64);
    }
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        call(heat)?;
        times.push(start.elapsed());
    }
    Ok(median_ns(times))
}

/// Mean time of a round of a graph, ns.
fn replayed<L: Levels>(
    comm: &Communicator,
    heat: &mut Heat<L>,
    count: usize,
    graph: &mut Replays,
) -> Result<u64, CommandError> {
    Ok(timed(comm, heat, count.div_ceil(2), |_| Ok(graph.launch()?))? / 2)
}

fn median_ns(mut times: Vec<Duration>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0, |time| time.as_nanos() as u64)
}
