//! `halocline bench halo`: the measurement.

use super::args::{self, HaloArgs, Link};
use super::case::{self, Case};
use super::device;
use super::floor::Floor;
use super::regions::Regions;
use super::report::halo as report;
use crate::device::Kind;
use crate::error::CommandError;
use crate::ranks::{self, RanksArgs, Start};
use crate::stats::{median, micros, quantile};
use halocline::{
    BindOptions, Communicator, Error, Field, HaloExchange, Layout, LinkInfo, Pattern, PatternLinks, Reduce,
    ReduceOp,
};
use std::time::Instant;

/// Runs `halocline bench halo`.
pub(super) fn run(args: &HaloArgs, json: bool) -> Result<u8, CommandError> {
    args.save.check()?;
    args.trace.check()?;
    for (is_given, option) in [(args.unbound, "--unbound"), (args.reduce, "--reduce")] {
        if args.device == Kind::Cuda && is_given {
            return Err(CommandError::usage(format!(
                "`{option}` measures host fields; leave it out, or `--device cuda`"
            )));
        }
    }
    args.device.set_environment();
    let check = |ranks| {
        case::fits(args, ranks)?;
        Ok(args.device.find()?)
    };
    // Ranks that compute on a GPU are not pinned: their host thread has little to do.
    let start = Start { default_ranks: 2, pinned: args.device == Kind::Cpu };
    let ranks = RanksArgs { ranks: args.ranks, transport: args.transport, node_aware: None };
    let work = |comm: &Communicator, (): &()| {
        let trace = args.trace.begin(comm)?;
        let outcome = Setup::new(comm, args)?.measure_all()?;
        let traced = trace.finish(comm)?;
        if comm.rank() == 0 {
            let lines = report::lines(&outcome);
            report::print(&outcome, json.then_some(&lines)).map_err(CommandError::Report)?;
            // Print the result before any error about its files.
            args.save.write("halo", &lines)?;
            traced?;
        }
        Ok(0)
    };
    ranks::run_as(&ranks, start, check, || Ok(()), work)
}

/// Times of one block. Each value is the maximum over the ranks, in us.
pub(super) struct Block {
    /// Round trip of a cache line between ranks 0 and 1 before the block, ns; `None` if they share no memory or no core each.
    pub(super) round_trip: Option<f64>,
    /// Median over the iterations: the exchange alone.
    pub(super) alone: f64,
    /// Median: exchange and read of the halo, after the owned cells were rewritten.
    pub(super) total: f64,
    /// Medians of the phases of `total`: the call that starts the exchange, the wait, the read.
    pub(super) begin: f64,
    pub(super) wait: f64,
    pub(super) read: f64,
    /// Mean time of an exchange in a loop of exchanges only.
    pub(super) steady: f64,
    /// `total` of each iteration.
    pub(super) totals: Vec<f64>,
}

/// One measured operation and its blocks.
pub(super) struct Row {
    pub(super) name: String,
    /// The paths of the links of rank 0; empty for an operation without links.
    pub(super) path: String,
    /// First and second bind of the same fields, us.
    pub(super) binds: Option<[f64; 2]>,
    pub(super) blocks: Vec<Block>,
}

/// The result of all measurements.
pub(super) struct Outcome {
    pub(super) title: String,
    pub(super) transport: &'static str,
    /// Where the fields are: `cpu` or `cuda`.
    pub(super) device: &'static str,
    /// The GPUs, by name.
    pub(super) gpu: Option<String>,
    pub(super) memory: String,
    pub(super) ranks: usize,
    /// Ranks outnumber cores.
    pub(super) oversubscribed: bool,
    pub(super) iterations: u32,
    /// Bytes of a rank's halo: the maximum over the ranks.
    pub(super) bytes: u64,
    /// Bytes of the halo that come from other ranks: the maximum over the ranks.
    pub(super) received: u64,
    /// Time to make the pattern for the first and the second time, us.
    pub(super) patterns: [f64; 2],
    /// The first row is the reference of all ratios: the copying pass, or the device copy.
    pub(super) rows: Vec<Row>,
}

/// The fields of one rank and the tools to measure exchanges of them.
pub(super) struct Setup<'a> {
    pub(super) comm: &'a Communicator,
    pub(super) args: &'a HaloArgs,
    pub(super) floor: Floor<'a>,
    pub(super) case: Case,
    pub(super) regions: Regions,
    patterns: [f64; 2],
}

impl<'a> Setup<'a> {
    /// Collective.
    fn new(comm: &'a Communicator, args: &'a HaloArgs) -> Result<Self, CommandError> {
        let floor = Floor::new(comm)?;
        let (_, cold) = timed(comm, || case::pattern(comm, args))?;
        let (_, warm) = timed(comm, || case::pattern(comm, args))?;
        let case = Case::new(comm, args)?;
        let regions = Regions::new(&case.pattern, &case.fields)?;
        Ok(Self { comm, args, floor, case, regions, patterns: [cold, warm] })
    }

    fn measure_all(&self) -> Result<Outcome, CommandError> {
        let Self { comm, args, case, .. } = self;
        let (rows, gpu) = match args.device {
            Kind::Cpu => (host_rows(self)?, None),
            Kind::Cuda => device::rows(self).map(|(rows, gpu)| (rows, Some(gpu)))?,
        };
        let peers = &case.pattern.plan().peers;
        let received: usize = peers.iter().flat_map(|peer| &peer.receives).map(|t| t.target.count()).sum();
        let cell: usize = case.fields.iter().map(|field| case.bytes_of_cell(field)).sum();
        let bytes = comm.all_reduce(&[self.regions.bytes as u64, (received * cell) as u64], Reduce::Max)?;
        Ok(Outcome {
            title: case::title(args),
            transport: comm.transport(),
            device: args.device.name(),
            memory: if gpu.is_some() { "device".to_owned() } else { args::name(&args.memory) },
            gpu,
            ranks: comm.size(),
            oversubscribed: self.floor.is_oversubscribed(),
            iterations: args.iters,
            bytes: bytes[0],
            received: bytes[1],
            patterns: self.patterns,
            rows,
        })
    }

    /// Binds these fields twice over one kind of link, and verifies exchanges of them. Collective.
    pub(super) fn bind(
        &self,
        link: Link,
        fields: &[Field],
        exchange: impl Fn(&HaloExchange) -> Result<(), Error>,
    ) -> Result<(Row, HaloExchange), CommandError> {
        let options = BindOptions::default().link(link.choice());
        let pairs: Vec<(&Pattern, &Field)> = fields.iter().map(|field| (&self.case.pattern, field)).collect();
        let bind = || Ok(HaloExchange::bind_with(self.comm, pairs.clone(), &options)?);
        self.bind_twice(&args::name(&link), bind, exchange, |halo| paths(halo.links()))
    }

    /// Times two calls of `bind`, and verifies exchanges of the second result. Collective.
    fn bind_twice<T>(
        &self,
        name: &str,
        bind: impl Fn() -> Result<T, CommandError>,
        exchange: impl Fn(&T) -> Result<(), Error>,
        paths: impl Fn(&T) -> String,
    ) -> Result<(Row, T), CommandError> {
        let (first, cold) = timed(self.comm, &bind)?;
        drop(first);
        let (links, warm) = timed(self.comm, &bind)?;
        self.case.verify(self.comm, name, || exchange(&links))?;
        Ok((Row { path: paths(&links), binds: Some([cold, warm]), ..Row::new(name) }, links))
    }

    /// Measures the operations in turn: in each round one block of each. Collective.
    pub(super) fn measure<O>(
        &self,
        measured: Vec<(Row, O)>,
        block: impl Fn(&O) -> Result<Block, CommandError>,
    ) -> Result<Vec<Row>, CommandError> {
        let (mut rows, operations): (Vec<Row>, Vec<O>) = measured.into_iter().unzip();
        // Round 0 warms up.
        for round in 0..=self.args.rounds as usize {
            for turn in 0..rows.len() {
                // Each round starts with another operation, so that none always follows the same one.
                let at = (turn + round) % rows.len();
                let block = block(&operations[at])?;
                if round > 0 {
                    rows[at].blocks.push(block);
                }
            }
        }
        Ok(rows)
    }
}

/// Time of a collective call on the slowest rank, us.
fn timed<T>(
    comm: &Communicator,
    call: impl FnOnce() -> Result<T, CommandError>,
) -> Result<(T, f64), CommandError> {
    comm.barrier()?;
    let start = Instant::now();
    let result = call()?;
    let elapsed = start.elapsed().as_nanos() as u64;
    Ok((result, micros(comm.all_reduce(&[elapsed], Reduce::Max)?[0])))
}

/// The distinct paths of links.
fn paths(links: impl Iterator<Item = LinkInfo>) -> String {
    let mut paths: Vec<String> = links.map(|link| link.path.to_string()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.join(" and ")
}

/// An operation that a block measures on the host.
enum Operation<'a> {
    /// A copy of the same regions within the rank's own memory.
    Copy,
    /// The same copies in reverse, adding.
    Combine,
    Exchange(HaloExchange),
    Reduce(HaloExchange),
    Unbound(PatternLinks, Vec<(&'a Pattern, &'a Field)>),
}

fn host_rows(setup: &Setup<'_>) -> Result<Vec<Row>, CommandError> {
    let mut measured = vec![
        (Row::new("copying pass"), Operation::Copy),
        (Row::new("empty exchange"), Operation::Exchange(empty(setup)?)),
    ];
    if setup.args.reduce {
        measured.push((Row::new("combining pass"), Operation::Combine));
    }
    for &link in &setup.args.link {
        let (row, halo) = setup.bind(link, &setup.case.fields, |halo| halo.exchange()?.wait())?;
        let name = row.name.clone();
        measured.push((row, Operation::Exchange(halo)));
        if setup.args.reduce {
            let (row, halo) = setup.bind(link, &setup.case.fields, |halo| halo.exchange()?.wait())?;
            measured.push((Row { name: format!("reduce, {name}"), ..row }, Operation::Reduce(halo)));
        }
    }
    if setup.args.unbound {
        let fields: Vec<_> = setup.case.fields.iter().map(|field| (&setup.case.pattern, field)).collect();
        let make = || Ok(PatternLinks::new(setup.comm, &[&setup.case.pattern])?);
        let (row, links) = setup.bind_twice(
            "unbound",
            make,
            |links| links.exchange(&fields)?.wait(),
            |links| paths(links.links()),
        )?;
        measured.push((row, Operation::Unbound(links, fields)));
    }
    setup.measure(measured, |operation| block(setup, operation))
}

/// An exchange of fields whose cells have no bytes: only flags travel. Collective.
fn empty(setup: &Setup<'_>) -> Result<HaloExchange, CommandError> {
    let pattern = &setup.case.pattern;
    let mut extents = pattern.plan().domains[0].1.extents();
    extents.push(0);
    let field = Field::allocate(setup.comm, Layout::c_order(setup.args.dtype.element(), &extents)?)?;
    Ok(HaloExchange::bind(setup.comm, [(pattern, &field)])?)
}

/// Nanoseconds of one rank, one entry for each iteration.
#[derive(Default)]
struct Samples {
    alone: Vec<u64>,
    total: Vec<u64>,
    begin: Vec<u64>,
    wait: Vec<u64>,
    read: Vec<u64>,
    steady: u64,
}

fn block(setup: &Setup<'_>, operation: &Operation<'_>) -> Result<Block, CommandError> {
    let round_trip = setup.floor.round_trip()?;
    let Samples { alone, total, begin, wait, read, steady } = sample(setup, operation)?;
    let flat = [&alone[..], &total, &begin, &wait, &read, &[steady]].concat();
    let slowest = setup.comm.all_reduce(&flat, Reduce::Max)?;
    let iterations = setup.args.iters as usize;
    let part = |at: usize| -> Vec<f64> {
        slowest.iter().skip(at * iterations).take(iterations).map(|&ns| micros(ns)).collect()
    };
    Ok(Block {
        round_trip,
        alone: median(&part(0)),
        total: median(&part(1)),
        begin: median(&part(2)),
        wait: median(&part(3)),
        read: median(&part(4)),
        steady: slowest.last().map_or(0.0, |&ns| micros(ns)) / iterations as f64,
        totals: part(1),
    })
}

fn sample(setup: &Setup<'_>, operation: &Operation<'_>) -> Result<Samples, CommandError> {
    let Setup { floor, regions, args, .. } = setup;
    let mut samples = Samples::default();
    for _ in 0..args.iters {
        floor.barrier()?;
        let start = Instant::now();
        operation.begin(regions)?;
        operation.wait()?;
        floor.join()?;
        samples.alone.push(start.elapsed().as_nanos() as u64);
    }
    for _ in 0..args.iters {
        // No rank rewrites while another rank, perhaps on the same core, is still timed.
        floor.barrier()?;
        regions.rewrite(args.reduce);
        floor.barrier()?;
        let start = Instant::now();
        operation.begin(regions)?;
        let begun = start.elapsed();
        operation.wait()?;
        let waited = start.elapsed();
        regions.read(args.reduce);
        floor.join()?;
        let end = start.elapsed();
        samples.total.push(end.as_nanos() as u64);
        samples.begin.push(begun.as_nanos() as u64);
        samples.wait.push((waited - begun).as_nanos() as u64);
        samples.read.push((end - waited).as_nanos() as u64);
    }
    floor.barrier()?;
    let start = Instant::now();
    for _ in 0..args.iters {
        operation.begin(regions)?;
        operation.wait()?;
    }
    samples.steady = start.elapsed().as_nanos() as u64;
    Ok(samples)
}

impl Operation<'_> {
    #[inline]
    fn begin(&self, regions: &Regions) -> Result<(), CommandError> {
        match self {
            Self::Copy => regions.copy(),
            Self::Combine => regions.combine(),
            // `Operation::wait` waits for the exchange through `halo`.
            Self::Exchange(halo) => drop(halo.exchange()?),
            Self::Reduce(halo) => drop(halo.reduce(ReduceOp::Sum)?),
            Self::Unbound(links, fields) => drop(links.exchange(fields)?),
        }
        Ok(())
    }

    #[inline]
    fn wait(&self) -> Result<(), CommandError> {
        match self {
            Self::Copy | Self::Combine => {}
            Self::Exchange(halo) | Self::Reduce(halo) => halo.wait()?,
            Self::Unbound(links, _) => links.wait()?,
        }
        Ok(())
    }
}

impl Row {
    /// A row without links and without blocks.
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), path: String::new(), binds: None, blocks: Vec::new() }
    }

    /// The median over the rounds of one figure of its blocks.
    pub(super) fn median(&self, of: impl Fn(&Block) -> f64) -> f64 {
        median(&self.blocks.iter().map(of).collect::<Vec<_>>())
    }

    /// The 99th percentile of `total` over all iterations.
    pub(super) fn p99(&self) -> f64 {
        quantile(&self.blocks.iter().flat_map(|block| block.totals.iter().copied()).collect::<Vec<_>>(), 0.99)
    }

    /// The median over the rounds of the ratio to another row in the same round.
    pub(super) fn ratio(&self, other: &Self) -> f64 {
        let ratios = self.blocks.iter().zip(&other.blocks).map(|(ours, theirs)| ours.total / theirs.total);
        median(&ratios.collect::<Vec<_>>())
    }
}
