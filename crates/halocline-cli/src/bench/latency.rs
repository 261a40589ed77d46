//! `halocline bench latency`: messages and exchanges of two ranks, over sizes.

use super::args::{LatencyArgs, Transport};
use super::floor::Floor;
use super::report::latency as report;
use crate::error::CommandError;
use crate::info::plural;
use crate::ranks::{self, RankOrigin, RanksArgs, Start, in_job, no_launcher};
use crate::stats::{median, micros};
use halocline::{Array, Communicator, Error, HaloExchange, Pattern, Reduce, UnstructuredDomain};
use halocline_comm::{Endpoint, Tag};
use std::time::Instant;

/// Approximate number of bytes that the iterations of one size move.
const VOLUME: u64 = 64 << 20;
/// Bounds of the number of iterations.
const ITERATIONS: [u64; 2] = [8, 400];

/// One size of one transport. Times are medians over the rounds of the slower rank, us.
pub(super) struct Point {
    pub(super) bytes: u64,
    /// Round trip of a message.
    pub(super) message: f64,
    /// An exchange: both ranks send at the same time.
    pub(super) exchange: f64,
}

/// All sizes of one transport.
pub(super) struct Series {
    pub(super) transport: String,
    /// Median round trip of a cache line in the same rounds, ns.
    pub(super) round_trip: Option<f64>,
    pub(super) points: Vec<Point>,
}

/// Runs `halocline bench latency`.
pub(super) fn run(args: &LatencyArgs, json: bool) -> Result<u8, CommandError> {
    args.save.check()?;
    let has = |transport| args.transport.contains(&transport);
    let others = [Transport::Mpi, Transport::Shm, Transport::Auto].into_iter().find(|&other| has(other));
    let others = others.or(args.transport.is_empty().then_some(Transport::Auto));
    let path = RankOrigin::of(others.unwrap_or(Transport::Thread))?;
    // By default, measure threads too, unless the ranks belong to MPI.
    let own = args.transport.is_empty() && (path == RankOrigin::Launch || in_job());
    let thread = own || has(Transport::Thread);
    let Some(others) = others else {
        let cpus = crate::launch::usable().unwrap_or_default();
        let mut series = ranks::as_pinned_threads(2, &cpus, |comm| measure(comm, args))?;
        series.truncate(1);
        return show(&series, args, json);
    };
    let is_launched = ranks::is_launched();
    let work = |comm: &Communicator, (): &()| {
        match comm.size() {
            2 => {}
            1 if !is_launched => return Err(no_launcher(2)),
            given => {
                let given = plural(given, "rank");
                return Err(CommandError::usage(format!(
                    "a latency is between 2 ranks, but this job has {given}; start 2"
                )));
            }
        }
        let mut series = vec![measure(comm, args)?];
        let cpus = ranks::cpus(comm)?;
        if comm.rank() == 0 {
            if thread {
                // Rank 1 sleeps in the barrier below.
                series.extend(
                    ranks::as_pinned_threads(2, &cpus, |comm| measure(comm, args))?.into_iter().next(),
                );
            }
            show(&series, args, json)?;
        }
        comm.barrier()?;
        Ok(0)
    };
    let args = RanksArgs { ranks: None, transport: others, node_aware: None };
    ranks::run_as(&args, Start { default_ranks: 2, pinned: true }, |_| Ok(()), || Ok(()), work)
}

fn show(series: &[Series], args: &LatencyArgs, json: bool) -> Result<u8, CommandError> {
    let lines = report::lines(series);
    report::print(series, json.then_some(&lines)).map_err(CommandError::Report)?;
    args.save.write("latency", &lines)?;
    Ok(0)
}

/// All sizes over one transport. Collective over two ranks.
fn measure(comm: &Communicator, args: &LatencyArgs) -> Result<Series, CommandError> {
    let floor = Floor::new(comm)?;
    let sizes: Vec<u64> = std::iter::successors(Some(8), |bytes| Some(bytes * 2))
        .take_while(|&bytes| bytes <= args.max)
        .collect();
    let subjects: Vec<Subject> =
        sizes.iter().map(|&bytes| Subject::new(comm, bytes)).collect::<Result<_, _>>()?;
    let (mut times, mut round_trips) = (vec![Vec::new(); 2 * subjects.len()], Vec::new());
    for round in 0..=args.rounds {
        for (at, subject) in subjects.iter().enumerate() {
            let round_trip = floor.round_trip()?;
            let mine = [subject.messages(comm)?, subject.exchanges(&floor)?];
            let slowest = comm.all_reduce(&mine, Reduce::Max)?;
            // Round 0 warms up.
            if round > 0 {
                times[2 * at].push(micros(slowest[0]));
                times[2 * at + 1].push(micros(slowest[1]));
                round_trips.extend(round_trip);
            }
        }
    }
    let point = |(&bytes, times): (&u64, &[Vec<f64>])| Point {
        bytes,
        message: median(&times[0]),
        exchange: median(&times[1]),
    };
    Ok(Series {
        transport: comm.transport().to_owned(),
        round_trip: (!round_trips.is_empty()).then(|| median(&round_trips)),
        points: sizes.iter().zip(times.chunks(2)).map(point).collect(),
    })
}

/// The exchange of one size.
struct Subject {
    bytes: u64,
    halo: HaloExchange,
}

impl Subject {
    fn new(comm: &Communicator, bytes: u64) -> Result<Self, CommandError> {
        let (rank, cells) = (comm.rank() as u64, bytes / 8);
        let ids = |rank: u64| (rank * cells..(rank + 1) * cells).collect::<Vec<u64>>();
        let domain = UnstructuredDomain::new(rank, ids(rank), ids(1 - rank));
        let pattern = Pattern::unstructured(comm, &[domain])?;
        let field = Array::<u64>::zeros(comm, &[2 * cells as usize])?;
        let halo = HaloExchange::bind(comm, [(&pattern, &field)])?;
        verify(comm, &field, || halo.exchange()?.wait())?;
        Ok(Self { bytes, halo })
    }

    fn iterations(&self) -> u64 {
        (VOLUME / self.bytes).clamp(ITERATIONS[0], ITERATIONS[1])
    }

    /// Mean time of the round trip of a message, ns.
    fn messages(&self, comm: &Communicator) -> Result<u64, CommandError> {
        let (rank, peer, iterations) = (comm.rank(), 1 - comm.rank(), self.iterations());
        let (operation, what) = (comm.begin(), "a message of a benchmark");
        let mut payload = vec![rank as u8; self.bytes as usize];
        comm.barrier()?;
        let start = Instant::now();
        for round in 0..iterations {
            let tag = Tag { operation, round };
            if rank == 0 {
                comm.send(peer, tag, payload)?;
                payload = comm.receive(Some(peer), tag, what)?.payload;
            } else {
                payload = comm.receive(Some(peer), tag, what)?.payload;
                comm.send(peer, tag, std::mem::take(&mut payload))?;
            }
        }
        Ok(start.elapsed().as_nanos() as u64 / iterations)
    }

    /// Mean time of an exchange in a loop of exchanges only, ns.
    fn exchanges(&self, floor: &Floor<'_>) -> Result<u64, CommandError> {
        floor.barrier()?;
        let start = Instant::now();
        for _ in 0..self.iterations() {
            self.halo.exchange()?.wait()?;
        }
        Ok(start.elapsed().as_nanos() as u64 / self.iterations())
    }
}

/// Exchanges changing data a few times, and checks the halo. Collective.
fn verify(
    comm: &Communicator,
    field: &Array<u64>,
    exchange_all: impl Fn() -> Result<(), Error>,
) -> Result<(), CommandError> {
    let (rank, cells) = (comm.rank() as u64, field.read()?.len() as u64 / 2);
    for exchange in 1..=3u64 {
        let value = |rank: u64, at: u64| exchange << 48 | rank << 40 | at;
        field.write()?.iter_mut().zip(0..cells).for_each(|(cell, at)| *cell = value(rank, at));
        exchange_all()?;
        let read = field.read()?;
        let right = |(cell, at): &(&u64, u64)| **cell == value(1 - rank, *at);
        let wrong = read[cells as usize..].iter().zip(0..).position(|cell| !right(&cell));
        if let Some(at) = wrong {
            let cell = (1 - rank) * cells + at as u64;
            return Err(CommandError::failed(format!(
                "rank {rank}, exchange {exchange}: values of the halo are wrong, the first at cell {cell}; please report this with the command"
            )));
        }
        drop(read);
        comm.barrier()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halo_with_old_values_is_reported() {
        let comm = Communicator::single();
        let field = Array::<u64>::zeros(&comm, &[4]).unwrap();
        let error = verify(&comm, &field, || Ok(())).unwrap_err().to_string();
        let reason =
            "rank 0, exchange 1: values of the halo are wrong, the first at cell 2; please report this";
        assert!(error.starts_with(reason), "{error}");
    }
}
