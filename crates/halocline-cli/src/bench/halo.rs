//! `halocline bench halo`: the measurement.

use super::args::{self, HaloArgs, Link};
use super::case::{self, Case};
use super::floor::{Floor, Stamp};
use super::regions::Regions;
use super::report::halo as report;
use super::stats::{median, micros, quantile};
use super::{device, ranks};
use crate::device::Kind;
use crate::error::CommandError;
use halocline::{
    BindOptions, Communicator, Direction, Field, HaloExchange, Layout, LinkPath, Pattern, PatternLinks,
    Reduce,
};
use std::time::Instant;

/// Runs `halocline bench halo`.
pub(super) fn run(args: &HaloArgs, json: bool) -> Result<u8, CommandError> {
    args.save.check()?;
    args.trace.check()?;
    if args.device == Kind::Cuda && args.unbound {
        return Err(CommandError::usage(
            "`--unbound` measures fields of the host; leave it out, or `--device cuda`",
        ));
    }
    args.device.set_environment();
    let check = |ranks| {
        case::fits(args, ranks)?;
        Ok(args.device.find()?)
    };
    // Beside a GPU the host has little to do, and where it has, its progress thread does it.
    ranks::run(args.transport, args.ranks, args.device == Kind::Cpu, check, |comm| {
        let trace = args.trace.begin(comm)?;
        let outcome = match args.device {
            Kind::Cpu => run_rank(comm, args)?,
            Kind::Cuda => device::run_rank(comm, args)?,
        };
        let traced = trace.finish(comm)?;
        if comm.rank() == 0 {
            let lines = report::lines(&outcome);
            report::print(&outcome, json.then_some(&lines)).map_err(CommandError::Report)?;
            // The result is printed before an error of its files.
            args.save.write("halo", &lines)?;
            traced?;
        }
        Ok(0)
    })
}

/// Times of one block, all of the slowest rank in each iteration.
pub(super) struct Block {
    /// Before the block; where ranks 0 and 1 share memory and a core each.
    pub(super) stamp: Option<Stamp>,
    /// Medians over the iterations, us: the exchange alone.
    pub(super) alone: f64,
    /// Exchange and reading the halo, after the owned cells were rewritten.
    pub(super) total: f64,
    /// Its phases: from the call to its return, the wait, the reading.
    pub(super) begin: f64,
    pub(super) wait: f64,
    pub(super) read: f64,
    /// Time of an exchange in a loop of nothing else.
    pub(super) steady: f64,
    /// `total` of every iteration.
    pub(super) totals: Vec<f64>,
}

/// One row: what was measured, and its blocks.
pub(super) struct Row {
    pub(super) name: String,
    /// The way that the links of rank 0 take; empty for what has none.
    pub(super) path: String,
    /// First and second bind of the same fields, us.
    pub(super) binds: Option<[f64; 2]>,
    pub(super) blocks: Vec<Block>,
}

/// All that is reported.
pub(super) struct Outcome {
    pub(super) title: String,
    pub(super) transport: &'static str,
    /// Where the fields lie: `cpu` or `cuda`.
    pub(super) device: &'static str,
    /// Which GPUs.
    pub(super) gpu: Option<String>,
    pub(super) memory: String,
    pub(super) ranks: usize,
    pub(super) crowded: bool,
    pub(super) iterations: u32,
    /// Bytes that the halos of a rank take up, the most of any rank.
    pub(super) bytes: u64,
    /// Of those, what comes from other ranks.
    pub(super) received: u64,
    /// First and second making of the pattern, us.
    pub(super) patterns: [f64; 2],
    /// What all are compared with first: the copying pass, or the device copy. The links come last.
    pub(super) rows: Vec<Row>,
}

/// What a block measures.
enum Deed<'a> {
    Copy,
    Exchange(HaloExchange),
    Unbound(PatternLinks, Vec<(&'a Pattern, &'a Field)>),
}

fn run_rank(comm: &Communicator, args: &HaloArgs) -> Result<Outcome, CommandError> {
    let floor = Floor::new(comm)?;
    let (_, cold) = timed(comm, || case::pattern(comm, args))?;
    let (_, warm) = timed(comm, || case::pattern(comm, args))?;
    let case = Case::new(comm, args)?;
    let regions = Regions::new(&case.pattern, &case.fields)?;

    let mut rows =
        vec![Row { name: "copying pass".to_owned(), path: String::new(), binds: None, blocks: vec![] }];
    let mut deeds = vec![Deed::Copy];
    let empty = empty(comm, &case, args)?;
    rows.push(Row { name: "empty exchange".to_owned(), path: String::new(), binds: None, blocks: vec![] });
    deeds.push(Deed::Exchange(empty));
    for &link in &args.link {
        let (row, halo) = bind(comm, &case, link)?;
        rows.push(row);
        deeds.push(Deed::Exchange(halo));
    }
    if args.unbound {
        let (row, links) = unbound(comm, &case)?;
        rows.push(row);
        deeds.push(Deed::Unbound(links, case.pairs()));
    }
    measure(comm, args, (&floor, &regions), &deeds, &mut rows)?;

    let received: usize =
        case.pattern.plan().peers.iter().flat_map(|p| &p.receives).map(|t| t.target.count()).sum();
    let cell = case.fields.iter().map(|field| bytes_of_cell(field, &case)).sum::<usize>();
    let bytes = comm.all_reduce(&[regions.bytes as u64, (received * cell) as u64], Reduce::Max)?;
    Ok(Outcome {
        title: case::title(args),
        transport: comm.transport(),
        device: args.device.name(),
        gpu: None,
        memory: args::name(&args.memory),
        ranks: comm.size(),
        crowded: floor.is_crowded(),
        iterations: args.iters,
        bytes: bytes[0],
        received: bytes[1],
        patterns: [cold, warm],
        rows,
    })
}

pub(super) fn bytes_of_cell(field: &Field, case: &Case) -> usize {
    let layout = field.layout();
    let axes = case.pattern.plan().domains[0].1.axes();
    layout.extents()[axes..].iter().product::<usize>() * layout.element().size()
}

/// Time of a collective call on the slowest rank, us.
pub(super) fn timed<T>(
    comm: &Communicator,
    call: impl FnOnce() -> Result<T, CommandError>,
) -> Result<(T, f64), CommandError> {
    comm.barrier()?;
    let start = Instant::now();
    let result = call()?;
    let elapsed = start.elapsed().as_nanos() as u64;
    Ok((result, micros(comm.all_reduce(&[elapsed], Reduce::Max)?[0])))
}

/// Binds and verifies one kind of link.
fn bind(comm: &Communicator, case: &Case, link: Link) -> Result<(Row, HaloExchange), CommandError> {
    let options = BindOptions::default().link(link.choice());
    let bind = || Ok(HaloExchange::bind_with(comm, case.pairs(), &options)?);
    let (first, cold) = timed(comm, bind)?;
    drop(first);
    let (halo, warm) = timed(comm, bind)?;
    let name = args::name(&link);
    case.verify(comm, &name, || halo.exchange()?.wait())?;
    let path = paths(halo.paths());
    Ok((Row { name, path, binds: Some([cold, warm]), blocks: vec![] }, halo))
}

/// Makes and verifies links without fields.
fn unbound(comm: &Communicator, case: &Case) -> Result<(Row, PatternLinks), CommandError> {
    let make = || Ok(PatternLinks::new(comm, &[&case.pattern])?);
    let (first, cold) = timed(comm, make)?;
    drop(first);
    let (links, warm) = timed(comm, make)?;
    let name = "unbound".to_owned();
    case.verify(comm, &name, || links.exchange(&case.pairs())?.wait())?;
    let path = paths(links.paths());
    Ok((Row { name, path, binds: Some([cold, warm]), blocks: vec![] }, links))
}

/// The different ways of links.
pub(super) fn paths(links: impl Iterator<Item = (usize, Direction, LinkPath)>) -> String {
    let mut paths: Vec<String> = links.map(|(_, _, path)| path.to_string()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.join(" and ")
}

/// An exchange of fields whose cells have no bytes: counters alone.
fn empty(comm: &Communicator, case: &Case, args: &HaloArgs) -> Result<HaloExchange, CommandError> {
    let mut extents = case.pattern.plan().domains[0].1.extents();
    extents.push(0);
    let field = Field::allocate(comm, Layout::c_order(args.dtype.element(), &extents)?)?;
    Ok(HaloExchange::bind(comm, [(&case.pattern, &field)])?)
}

fn measure(
    comm: &Communicator,
    args: &HaloArgs,
    (floor, regions): (&Floor<'_>, &Regions),
    deeds: &[Deed<'_>],
    rows: &mut [Row],
) -> Result<(), CommandError> {
    // Round 0 warms up.
    for round in 0..=args.rounds as usize {
        for turn in 0..deeds.len() {
            // Every round begins with another one, so that none always follows the same.
            let at = (turn + round) % deeds.len();
            let stamp = floor.stamp()?;
            let samples = block(args.iters, floor, regions, &deeds[at])?;
            let slowest = comm.all_reduce(&samples.flat(), Reduce::Max)?;
            if round > 0 {
                rows[at].blocks.push(Block::new(stamp, args.iters as usize, &slowest));
            }
        }
    }
    Ok(())
}

/// Nanoseconds of one rank, an entry for each iteration.
#[derive(Default)]
struct Samples {
    alone: Vec<u64>,
    total: Vec<u64>,
    begin: Vec<u64>,
    wait: Vec<u64>,
    read: Vec<u64>,
    steady: u64,
}

impl Samples {
    fn flat(&self) -> Vec<u64> {
        [&self.alone, &self.total, &self.begin, &self.wait, &self.read, &vec![self.steady]]
            .map(|v| &v[..])
            .concat()
    }
}

impl Block {
    fn new(stamp: Option<Stamp>, iterations: usize, flat: &[u64]) -> Self {
        let part = |at: usize| -> Vec<f64> {
            flat.iter().skip(at * iterations).take(iterations).map(|&ns| micros(ns)).collect()
        };
        Self {
            stamp,
            alone: median(&part(0)),
            total: median(&part(1)),
            begin: median(&part(2)),
            wait: median(&part(3)),
            read: median(&part(4)),
            steady: flat.last().map_or(0.0, |&ns| micros(ns)) / iterations as f64,
            totals: part(1),
        }
    }
}

fn block(
    iterations: u32,
    floor: &Floor<'_>,
    regions: &Regions,
    deed: &Deed<'_>,
) -> Result<Samples, CommandError> {
    let mut samples = Samples::default();
    for _ in 0..iterations {
        floor.barrier()?;
        let start = Instant::now();
        deed.begin(regions)?;
        deed.wait()?;
        floor.join()?;
        samples.alone.push(start.elapsed().as_nanos() as u64);
    }
    for _ in 0..iterations {
        // No rank rewrites while another rank, perhaps on the same core, is still timed.
        floor.barrier()?;
        regions.rewrite();
        floor.barrier()?;
        let start = Instant::now();
        deed.begin(regions)?;
        let begun = start.elapsed();
        deed.wait()?;
        let waited = start.elapsed();
        regions.read();
        floor.join()?;
        let end = start.elapsed();
        let times = [end, begun, waited - begun, end - waited].map(|time| time.as_nanos() as u64);
        for (list, time) in [&mut samples.total, &mut samples.begin, &mut samples.wait, &mut samples.read]
            .into_iter()
            .zip(times)
        {
            list.push(time);
        }
    }
    floor.barrier()?;
    let start = Instant::now();
    for _ in 0..iterations {
        deed.begin(regions)?;
        deed.wait()?;
    }
    samples.steady = start.elapsed().as_nanos() as u64;
    Ok(samples)
}

impl Deed<'_> {
    #[inline]
    fn begin(&self, regions: &Regions) -> Result<(), CommandError> {
        match self {
            Self::Copy => regions.copy(),
            // The pending exchange is waited for through the object.
            Self::Exchange(halo) => drop(halo.exchange()?),
            Self::Unbound(links, fields) => drop(links.exchange(fields)?),
        }
        Ok(())
    }

    #[inline]
    fn wait(&self) -> Result<(), CommandError> {
        match self {
            Self::Copy => {}
            Self::Exchange(halo) => halo.wait()?,
            Self::Unbound(links, _) => links.wait()?,
        }
        Ok(())
    }
}

impl Row {
    /// The median over the rounds of one figure of its blocks.
    pub(super) fn median(&self, of: impl Fn(&Block) -> f64) -> f64 {
        median(&self.blocks.iter().map(of).collect::<Vec<_>>())
    }

    /// The same over the blocks that found the cores near (or far), if there are any.
    pub(super) fn median_where(&self, near: bool, of: impl Fn(&Block) -> f64) -> Option<f64> {
        let wanted = |block: &&Block| block.stamp.is_some_and(|stamp| stamp.is_near() == near);
        let values: Vec<f64> = self.blocks.iter().filter(wanted).map(of).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// The 99th percentile of exchange and reading over all iterations.
    pub(super) fn p99(&self) -> f64 {
        quantile(&self.blocks.iter().flat_map(|block| block.totals.iter().copied()).collect::<Vec<_>>(), 0.99)
    }

    /// The median over the rounds of the ratio to another row in the same round.
    pub(super) fn ratio(&self, other: &Self) -> f64 {
        let ratios = self.blocks.iter().zip(&other.blocks).map(|(ours, theirs)| ours.total / theirs.total);
        median(&ratios.collect::<Vec<_>>())
    }
}
