//! `halocline bench halo --device cuda`: exchanges of fields on GPUs, in the order of a stream, beside a plain copy of as many
//! bytes.

use super::args::{self, HaloArgs, Link};
use super::case::{self, Case};
use super::floor::Floor;
use super::halo::{Block, Outcome, Row, bytes_of_cell, paths, timed};
use super::regions::Regions;
use super::stats::{median, micros};
use crate::device::{Gpu, InFlight};
use crate::error::CommandError;
use halocline::device::cuda::{Kernel, Program};
use halocline::device::{Address, CopyTable, Memory, Stream, TablePart, TableSpec};
use halocline::{BindOptions, Communicator, Error, Field, HaloExchange, Pattern, Reduce, agree};
use std::sync::Arc;
use std::time::Instant;

/// What is measured on one rank, until it is reported. Collective.
pub(super) fn run_rank(comm: &Communicator, args: &HaloArgs) -> Result<Outcome, CommandError> {
    let floor = Floor::new(comm)?;
    let (_, cold) = timed(comm, || case::pattern(comm, args))?;
    let (_, warm) = timed(comm, || case::pattern(comm, args))?;
    let case = Case::new(comm, args)?;
    let regions = Regions::new(&case.pattern, &case.fields)?;
    let gpu = Gpu::open(comm)?;
    let described = gpu.describe();
    let twins = agree(comm, Twins::new(gpu.stream, &case.fields))?;
    let plain = agree(comm, twins.plain(&regions))?;

    let row = |name: &str| Row { name: name.to_owned(), path: String::new(), binds: None, blocks: vec![] };
    let mut rows: Vec<Row> = plain.iter().map(|(name, _)| row(name)).collect();
    let mut deeds: Vec<Deed> = plain.into_iter().map(|(_, deed)| deed).collect();
    for &link in &args.link {
        let (row, halo) = bind(comm, &case, &twins, link)?;
        rows.push(row);
        deeds.push(Deed::Exchange(halo));
    }
    // Round 0 warms up.
    for round in 0..=args.rounds as usize {
        for turn in 0..deeds.len() {
            // Every round begins with another one, so that none always follows the same.
            let at = (turn + round) % deeds.len();
            let block = block(comm, &floor, args.iters as usize, &twins.stream, &deeds[at])?;
            if round > 0 {
                rows[at].blocks.push(block);
            }
        }
    }
    let plan = case.pattern.plan();
    let received: usize = plan.peers.iter().flat_map(|p| &p.receives).map(|t| t.target.count()).sum();
    let cell = case.fields.iter().map(|field| bytes_of_cell(field, &case)).sum::<usize>();
    let bytes = comm.all_reduce(&[regions.bytes as u64, (received * cell) as u64], Reduce::Max)?;
    Ok(Outcome {
        title: case::title(args),
        transport: comm.transport(),
        device: args.device.name(),
        gpu: Some(described),
        memory: "device".to_owned(),
        ranks: comm.size(),
        crowded: floor.is_crowded(),
        iterations: args.iters,
        bytes: bytes[0],
        received: bytes[1],
        patterns: [cold, warm],
        rows,
    })
}

/// The fields of a case once more, in memory of a GPU.
struct Twins<'a> {
    stream: Stream,
    host: &'a [Field],
    fields: Vec<Field>,
    memories: Vec<Arc<Memory>>,
    /// As large as the largest field.
    staged: Memory,
}

impl<'a> Twins<'a> {
    fn new(stream: Stream, host: &'a [Field]) -> Result<Self, Error> {
        let device = stream.device();
        let bytes = |field: &Field| field.layout().span().len();
        let memories: Vec<Arc<Memory>> = host
            .iter()
            .map(|field| Ok(Arc::new(device.allocate(bytes(field).max(1))?)))
            .collect::<Result<_, Error>>()?;
        let twin = |(field, memory): (&Field, &Arc<Memory>)| {
            // Strides are positive: element (0, 0, …) comes first.
            let (base, layout) = (memory.at(0), field.layout().clone());
            // SAFETY: the memory is as large as the layout, and is held by the field; all access to it is ordered by the
            // stream.
            unsafe { Field::from_device(device, base, layout, Arc::clone(memory) as _) }
        };
        let fields = host.iter().zip(&memories).map(twin).collect::<Result<_, _>>()?;
        let staged = device.allocate_pinned(host.iter().map(bytes).max().unwrap_or(0).max(1))?;
        Ok(Self { stream, host, fields, memories, staged })
    }

    /// Brings all bytes of all fields to the GPU, or back. Blocks.
    fn copy(&self, to_device: bool) -> Result<(), Error> {
        for (host, memory) in self.host.iter().zip(&self.memories) {
            let bytes = host.layout().span().len();
            // SAFETY: both sides have so many bytes, and no exchange of them is in flight; the stream is through with the pinned
            // memory before the host touches it, and the other way round.
            unsafe {
                let field = std::slice::from_raw_parts_mut(host.base().as_ptr(), bytes);
                if to_device {
                    self.staged.bytes_mut(0..bytes).copy_from_slice(field);
                    self.stream.copy(memory.at(0), self.staged.at(0), bytes)?;
                    self.stream.synchronise()?;
                } else {
                    self.stream.copy(self.staged.at(0), memory.at(0), bytes)?;
                    self.stream.synchronise()?;
                    field.copy_from_slice(self.staged.bytes(0..bytes));
                }
            }
        }
        Ok(())
    }

    fn pairs<'b>(&'b self, case: &'b Case) -> Vec<(&'b Pattern, &'b Field)> {
        self.fields.iter().map(|field| (&case.pattern, field)).collect()
    }

    /// What exchanges are compared with: the plain copy first.
    fn plain(&self, regions: &Regions) -> Result<Vec<(&'static str, Deed)>, Error> {
        let device = self.stream.device();
        let bytes = regions.bytes;
        let buffer = || device.allocate(bytes.max(1));
        let copy = Deed::Copy { from: buffer()?, to: buffer()?, bytes };
        let bases: Vec<Address> = self.memories.iter().map(|memory| memory.at(0)).collect();
        let parts = [TablePart { ops: &regions.ops, ..TablePart::default() }];
        let spec = TableSpec { parts: &parts, sources: &bases, targets: &bases, guard: None };
        let pass = Deed::Pass(device.upload(&spec)?);
        let program = Program::compile(device, "bench.cu", include_str!("bench.cu"), &[])?;
        let empty = Deed::Kernel(program.kernel("empty")?);
        Ok(vec![("device copy", copy), ("copying pass", pass), ("empty kernel", empty)])
    }
}

impl Drop for Twins<'_> {
    fn drop(&mut self) {
        // Also after an error nothing is freed under work of the stream. That the device has failed was said before.
        let _ = self.stream.synchronise();
    }
}

/// What a block measures.
enum Deed {
    /// As many bytes as a halo has, from one buffer to another (`cuMemcpyAsync`).
    Copy {
        from: Memory,
        to: Memory,
        bytes: usize,
    },
    /// The regions of an exchange within each rank's own memory, by one launch.
    Pass(CopyTable),
    Kernel(Kernel),
    Exchange(HaloExchange),
}

impl Deed {
    /// Gives it to the stream. Returns what the call, and that of the wait, has taken of the host, ns.
    fn give(&self, stream: &Stream, in_flight: &mut InFlight) -> Result<[u64; 2], Error> {
        let start = Instant::now();
        match self {
            // SAFETY: both buffers have that many bytes and no other user; `block` waits for the stream.
            Self::Copy { from, to, bytes } => unsafe { stream.copy(to.at(0), from.at(0), *bytes) }?,
            // SAFETY: `Regions::new` has checked that all operations stay within the fields; the stream is after all exchanges
            // of them, and peers write into the halo only after the next one's begin; `block` waits for the stream.
            Self::Pass(table) => unsafe { stream.launch(table, 1) }?,
            // SAFETY: it takes a number and does nothing.
            Self::Kernel(empty) => unsafe { empty.launch(stream, [1; 3], [1; 3], &0u64) }?,
            Self::Exchange(halo) => {
                let pending = halo.schedule_exchange(&[stream])?;
                let begun = start.elapsed();
                pending.schedule_wait(stream)?;
                let waited = start.elapsed() - begun;
                in_flight.add(pending);
                in_flight.settle()?;
                return Ok([begun, waited].map(|time| time.as_nanos() as u64));
            }
        }
        Ok([start.elapsed().as_nanos() as u64, 0])
    }
}

/// Binds and verifies one kind of link.
fn bind(
    comm: &Communicator,
    case: &Case,
    twins: &Twins<'_>,
    link: Link,
) -> Result<(Row, HaloExchange), CommandError> {
    let options = BindOptions::default().link(link.choice());
    let bind = || Ok(HaloExchange::bind_with(comm, twins.pairs(case), &options)?);
    let (first, cold) = timed(comm, bind)?;
    drop(first);
    let (halo, warm) = timed(comm, bind)?;
    let name = args::name(&link);
    case.verify(comm, &name, || {
        twins.copy(true)?;
        halo.schedule_exchange(&[&twins.stream])?.wait()?;
        twins.copy(false)
    })?;
    let path = paths(halo.paths());
    Ok((Row { name, path, binds: Some([cold, warm]), blocks: vec![] }, halo))
}

/// `iterations` in a row where the host waits for the last, then as many where it waits for each.
fn block(
    comm: &Communicator,
    floor: &Floor<'_>,
    iterations: usize,
    stream: &Stream,
    deed: &Deed,
) -> Result<Block, CommandError> {
    let stamp = floor.stamp()?;
    let mut in_flight = InFlight::new(0);
    let (mut begins, mut waits, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    deed.give(stream, &mut in_flight)?;
    in_flight.finish()?;
    stream.synchronise().map_err(Error::from)?;
    floor.barrier()?;
    let start = Instant::now();
    for _ in 0..iterations {
        let [begin, wait] = deed.give(stream, &mut in_flight)?;
        begins.push(begin);
        waits.push(wait);
    }
    in_flight.finish()?;
    stream.synchronise().map_err(Error::from)?;
    let row = start.elapsed().as_nanos() as u64;
    for _ in 0..iterations {
        floor.barrier()?;
        let start = Instant::now();
        deed.give(stream, &mut in_flight)?;
        stream.synchronise().map_err(Error::from)?;
        alone.push(start.elapsed().as_nanos() as u64);
    }
    in_flight.finish()?;
    let slowest = comm.all_reduce(&[&[row], &begins[..], &waits, &alone].concat(), Reduce::Max)?;
    let part = |at: usize| -> Vec<f64> {
        slowest.iter().skip(1 + at * iterations).take(iterations).map(|&ns| micros(ns)).collect()
    };
    let steady = slowest.first().map_or(0.0, |&ns| micros(ns)) / iterations as f64;
    Ok(Block {
        stamp,
        alone: median(&part(2)),
        total: steady,
        begin: median(&part(0)),
        wait: median(&part(1)),
        read: 0.0,
        steady,
        totals: part(2),
    })
}
