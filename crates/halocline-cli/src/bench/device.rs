//! `halocline bench halo --device cuda`: exchanges of fields on GPUs, scheduled on a stream, beside a plain copy of the same size.

use super::halo::{Block, Row, Setup};
use super::regions::Regions;
use crate::device::{Gpu, InFlight};
use crate::error::CommandError;
use crate::stats::{median, micros};
use halocline::device::cuda::{Kernel, Program};
use halocline::device::{Address, CopyTable, Memory, Stream, TablePart, TableSpec};
use halocline::{Error, Field, HaloExchange, Reduce, agree};
use std::sync::Arc;
use std::time::Instant;

/// Measures all rows on the GPU of this rank. Returns them with the description of the GPUs. Collective.
pub(super) fn rows(setup: &Setup<'_>) -> Result<(Vec<Row>, String), CommandError> {
    let gpu = Gpu::open(setup.comm)?;
    let described = gpu.describe();
    let twins = agree(setup.comm, Twins::new(gpu.stream, &setup.case.fields))?;
    let plain = agree(setup.comm, twins.plain(&setup.regions))?;
    let mut measured: Vec<(Row, Operation)> =
        plain.into_iter().map(|(name, operation)| (Row::new(name), operation)).collect();
    for &link in &setup.args.link {
        let (row, halo) = setup.bind(link, &twins.fields, |halo| {
            twins.copy(true)?;
            halo.schedule_exchange(&[&twins.stream])?.wait()?;
            twins.copy(false)
        })?;
        measured.push((row, Operation::Exchange(halo)));
    }
    let rows = setup.measure(measured, |operation| block(setup, &twins.stream, operation))?;
    Ok((rows, described))
}

/// Copies of a case's fields in the memory of a GPU.
struct Twins<'a> {
    stream: Stream,
    host: &'a [Field],
    fields: Vec<Field>,
    memories: Vec<Arc<Memory>>,
    /// Pinned host memory of the size of the largest field.
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
            // SAFETY: the memory is as large as the layout, and the field holds it; the stream orders all accesses to it.
            unsafe { Field::from_device(device, base, layout, Arc::clone(memory) as _) }
        };
        let fields = host.iter().zip(&memories).map(twin).collect::<Result<_, _>>()?;
        let staged = device.allocate_pinned(host.iter().map(bytes).max().unwrap_or(0).max(1))?;
        Ok(Self { stream, host, fields, memories, staged })
    }

    /// Copies all fields from the host to the GPU, or back. Blocks.
    fn copy(&self, to_device: bool) -> Result<(), Error> {
        for (host, memory) in self.host.iter().zip(&self.memories) {
            let bytes = host.layout().span().len();
            // SAFETY: both sides have `bytes` bytes, and no exchange of them is in flight. The host accesses the pinned memory only
            // while the stream does not: it writes before the copy is queued and reads after the stream was synchronised.
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

    /// The operations that exchanges are compared with. The device copy is the reference, so it comes first.
    fn plain(&self, regions: &Regions) -> Result<Vec<(&'static str, Operation)>, Error> {
        let device = self.stream.device();
        let bytes = regions.bytes;
        let buffer = || device.allocate(bytes.max(1));
        let copy = Operation::Copy { from: buffer()?, to: buffer()?, bytes };
        let bases: Vec<Address> = self.memories.iter().map(|memory| memory.at(0)).collect();
        let parts = [TablePart { ops: &regions.ops, ..TablePart::default() }];
        let spec = TableSpec { parts: &parts, sources: &bases, targets: &bases, ..TableSpec::default() };
        let pass = Operation::Pass(device.upload(&spec)?);
        let program = Program::compile(device, "bench.cu", include_str!("bench.cu"), &[])?;
        let empty = Operation::Kernel(program.kernel("empty")?);
        Ok(vec![("device copy", copy), ("copying pass", pass), ("empty kernel", empty)])
    }
}

impl Drop for Twins<'_> {
    fn drop(&mut self) {
        // No memory is freed before the stream has finished with it, also after an error. An earlier call has reported a failed device.
        let _ = self.stream.synchronise();
    }
}

/// An operation that a block measures.
enum Operation {
    /// A copy of the halo's size from one buffer to another (`cuMemcpyAsync`).
    Copy {
        from: Memory,
        to: Memory,
        bytes: usize,
    },
    /// A copy of the exchange's regions within the rank's own memory, in one launch.
    Pass(CopyTable),
    Kernel(Kernel),
    Exchange(HaloExchange),
}

impl Operation {
    /// Queues the operation on the stream. Returns the host's time in the call and in the call that queues the wait, ns.
    fn queue(&self, stream: &Stream, in_flight: &mut InFlight) -> Result<[u64; 2], Error> {
        let start = Instant::now();
        match self {
            // SAFETY: both buffers have that many bytes and no other user; `block` waits for the stream.
            Self::Copy { from, to, bytes } => unsafe { stream.copy(to.at(0), from.at(0), *bytes) }?,
            // SAFETY: `Regions::new` has checked that all operations stay within the fields. The stream runs the launch after all
            // earlier exchanges, and peers write into the halo only after the next exchange starts. `block` waits for the stream.
            Self::Pass(table) => unsafe { stream.launch(table, 1) }?,
            // SAFETY: the kernel takes one `u64` and accesses no memory.
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

/// Iterations in a row, where the host waits for the last one only; then as many where it waits for each.
fn block(setup: &Setup<'_>, stream: &Stream, operation: &Operation) -> Result<Block, CommandError> {
    let (floor, iterations) = (&setup.floor, setup.args.iters as usize);
    let round_trip = floor.round_trip()?;
    let mut in_flight = InFlight::new(0);
    let (mut begins, mut waits, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    operation.queue(stream, &mut in_flight)?;
    in_flight.finish()?;
    stream.synchronise().map_err(Error::from)?;
    floor.barrier()?;
    let start = Instant::now();
    for _ in 0..iterations {
        let [begin, wait] = operation.queue(stream, &mut in_flight)?;
        begins.push(begin);
        waits.push(wait);
    }
    in_flight.finish()?;
    stream.synchronise().map_err(Error::from)?;
    let row = start.elapsed().as_nanos() as u64;
    for _ in 0..iterations {
        floor.barrier()?;
        let start = Instant::now();
        operation.queue(stream, &mut in_flight)?;
        stream.synchronise().map_err(Error::from)?;
        alone.push(start.elapsed().as_nanos() as u64);
    }
    in_flight.finish()?;
    let slowest = setup.comm.all_reduce(&[&[row], &begins[..], &waits, &alone].concat(), Reduce::Max)?;
    let part = |at: usize| -> Vec<f64> {
        slowest.iter().skip(1 + at * iterations).take(iterations).map(|&ns| micros(ns)).collect()
    };
    let steady = slowest.first().map_or(0.0, |&ns| micros(ns)) / iterations as f64;
    Ok(Block {
        round_trip,
        alone: median(&part(2)),
        total: steady,
        begin: median(&part(0)),
        wait: median(&part(1)),
        read: 0.0,
        steady,
        totals: part(2),
    })
}
