//! Measures exchanges of ranks with one GPU each beside hand-written NCCL and beside the limits of the links between the GPUs, in
//! one run. `examples/gpu_rows.rs` is the program.

mod cases;
mod graphs;
pub(super) mod limits;
mod nccl;
mod objects;
mod reduces;
mod report;
mod rival;
#[cfg(test)]
mod tests;

use super::capture::{Graphs, Mode};
use super::meter::{Meter, Method};
use crate::device_fixtures::DeviceFixture;
use crate::{Outcome, Trouble, ensure};
pub use cases::cube;
use cases::{CASES, Case};
use halocline::{BindOptions, Communicator, LinkChoice, Stream};
use halocline_device::file;
use limits::Remote;
use nccl::Nccl;
use report::{Report, Row, Size};
use rival::{Beside, Packed};
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Exchanges by NCCL in a graph, as in that of a program's steps: to launch a graph takes longer than a kernel.
const IN_GRAPH: usize = 10;
/// What our exchanges by NCCL may take of the time of those by hand.
const MOST_OF_NCCL: f64 = 1.10;
/// The largest message.
const MOST: usize = 64 << 20;

/// Options of a run; the same on all ranks.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the figures are written as JSON.
    pub json: Option<PathBuf>,
    /// Rows whose names contain this, and no sizes.
    pub only: Option<String>,
    /// Nothing of NCCL.
    pub without_nccl: bool,
    /// NCCL carries the messages of our exchanges, too, which are then to take at most `MOST_OF_NCCL` times as long.
    pub link_nccl: bool,
    /// Only exchanges of several objects in turn.
    pub objects: bool,
    /// Only exchanges in graphs.
    pub graphs: bool,
    /// Only reduces beside exchanges.
    pub reduces: bool,
}

impl Options {
    /// Those of our binds.
    fn link(&self) -> BindOptions {
        BindOptions::default().link(if self.link_nccl { LinkChoice::Nccl } else { LinkChoice::Auto })
    }
}

/// Measures, and prints a table on rank 0. Collective over two ranks or more.
pub fn run(comm: &Communicator, options: &Options) -> Outcome {
    let meter = Meter::new(comm)?;
    let device = meter.gpu.device().clone();
    let (mut meter, mut result) = (Some(meter), Ok(()));
    // NCCL and captures take the thread's current GPU.
    device.driver().within(&mut || {
        if let Some(meter) = meter.take() {
            result = match (options.objects, options.reduces) {
                (true, _) => objects::run(&meter),
                (_, true) => reduces::run(&meter, options.only.as_deref()),
                (false, false) => Bench::new(meter, options).and_then(|bench| match options.graphs {
                    true => graphs::run(&bench, options.only.as_deref()),
                    false => bench.run(options),
                }),
            };
        }
    });
    result
}

/// A rank and what all figures share.
struct Bench<'a> {
    meter: Meter<'a>,
    graphs: Arc<Graphs>,
    nccl: Result<Nccl, String>,
    /// GPUs of all ranks together.
    gpus: usize,
}

impl<'a> Bench<'a> {
    fn new(meter: Meter<'a>, options: &Options) -> Result<Self, Trouble> {
        let comm = meter.comm;
        ensure!(
            comm.size() > 1,
            "one rank; start two or more: halocline launch -n 2 -- rows, or mpirun -n 2 rows"
        );
        let id = meter.gpu.device().driver().uuid().map_or([0; 16], |id| id.0);
        let gpus = comm.all_gather(&id)?.into_iter().collect::<HashSet<_>>().len();
        let nccl = match (options.without_nccl, gpus < comm.size()) {
            (true, _) => Err("--no-nccl".to_owned()),
            (_, true) => Err("ranks share GPUs, which it refuses".to_owned()),
            _ => Nccl::new(comm)?,
        };
        Ok(Self { meter, graphs: Graphs::new()?, nccl, gpus })
    }

    fn run(&self, options: &Options) -> Outcome {
        let Meter { comm, gpu, .. } = self.meter;
        let mut report = Report {
            gpu: gpu.device().driver().name(),
            gpus: self.gpus,
            ranks: comm.size(),
            transport: comm.transport(),
            nccl: self.nccl.as_ref().map(|nccl| nccl.version).map_err(Clone::clone),
            rows: Vec::new(),
            sizes: Vec::new(),
        };
        let say = |lines: String| {
            if comm.rank() == 0 {
                print!("{lines}");
            }
        };
        let write = |report: &Report| match &options.json {
            Some(path) if comm.rank() == 0 => file::replace(path, &[report.to_json().as_bytes()]),
            _ => Ok(()),
        };
        if let Some(path) = options.json.as_ref().filter(|_| comm.rank() == 0) {
            file::check(path)?;
        }
        say(report.head());
        let remote = Remote::new(comm, gpu.device(), MOST)?;
        let only = options.only.as_deref();
        for case in CASES.iter().filter(|case| only.is_none_or(|only| case.name.contains(only))) {
            let row = self.row(case, &remote, options)?;
            say(row.line());
            report.rows.push(row);
        }
        write(&report)?;
        if options.link_nccl {
            self.compare(&report, say)?;
        }
        if only.is_none() {
            say(report.head_of_sizes());
            for bytes in
                (0..).map(|power| 8usize << (2 * power)).take_while(|&bytes| bytes < MOST).chain([MOST])
            {
                let size = self.size(bytes, &remote, options)?;
                say(size.line());
                report.sizes.push(size);
            }
            write(&report)?;
        }
        Ok(comm.barrier()?)
    }

    /// Says how long ours by NCCL take beside NCCL by hand. Fails if that is too long.
    fn compare(&self, report: &Report, say: impl Fn(String)) -> Outcome {
        let mut slow = Vec::new();
        for row in &report.rows {
            let Some((ours, by_hand)) = row.us[0].zip(row.us[2]) else { continue };
            say(format!("{}: {:.2} times NCCL by hand\n", row.name, ours / by_hand));
            slow.extend((ours > MOST_OF_NCCL * by_hand).then_some(row.name));
        }
        ensure!(slow.is_empty(), "more than {MOST_OF_NCCL} times NCCL by hand: {slow:?}");
        Ok(())
    }

    /// One row of the table.
    fn row(&self, case: &Case, remote: &Remote, options: &Options) -> Result<Row, Trouble> {
        let Meter { comm, gpu, .. } = self.meter;
        let fixture = case.fixture(comm, gpu.device())?;
        let packed = Packed::new(&fixture, gpu.device())?;
        let (mut us, mut host) = ([None; 4], [None; 4]);
        let paths = self.methods(&fixture, &packed, &options.link(), |number, method| {
            let time = self.meter.steady(method)?;
            if us[number].is_none_or(|best| time < best) {
                us[number] = Some(time);
                host[number] = Some(self.meter.host(method)?);
            }
            Ok(())
        })?;
        let bytes = packed.bytes[0];
        let stores = case.has_stores.then(|| self.stores(remote, bytes)).transpose()?;
        Ok(Row { name: case.name, bytes: packed.bytes, paths, us, host, stores, bars: case.bars })
    }

    /// One size of a message.
    fn size(&self, bytes: usize, remote: &Remote, options: &Options) -> Result<Size, Trouble> {
        let Meter { comm, gpu, .. } = self.meter;
        let fixture = cases::line(comm, gpu.device(), bytes / 8)?;
        let packed = Packed::new(&fixture, gpu.device())?;
        let mut us = [None; 4];
        let paths = self.methods(&fixture, &packed, &options.link(), |number, method| {
            us[number] = Some(self.meter.steady(method)?);
            Ok(())
        })?;
        let copy = self.meter.steady(&Method::other(|stream| remote.copy(stream, bytes)))?;
        Ok(Size { bytes, paths, us, stores: self.stores(remote, bytes)?, copy })
    }

    /// Checks each method and hands it on with its number: inline, by default, NCCL eager and in a graph. Those of NCCL come twice where
    /// something is copied within the rank: by the kernel that packs, and beside it. Says which paths the bytes of ours take, and by how
    /// many launches.
    fn methods(
        &self,
        fixture: &DeviceFixture,
        packed: &Packed,
        options: &BindOptions,
        mut each: impl FnMut(usize, &Method<'_>) -> Outcome,
    ) -> Result<String, Trouble> {
        let fields: Vec<usize> = (0..fixture.pieces.len()).collect();
        let (mut count, mut ours) = (0, BTreeSet::new());
        let mut tried = |number: usize, method: &Method<'_>| -> Outcome {
            count += 1;
            self.meter.check(fixture, method, count)?;
            each(number, method)
        };
        for (number, inline) in [true, false].into_iter().enumerate() {
            let options = options.clone().inline(inline);
            let halo = fixture.bind(self.meter.comm, &[&fields[..]], &options)?;
            ours.extend(halo.links().map(|link| link.path.to_string()));
            let text = halo.explain();
            let launches = text.lines().find(|line| line.starts_with("fields on devices"));
            ours.extend(
                launches.and_then(|line| line.split_once(": ")).map(|(_, launches)| launches.to_owned()),
            );
            tried(number, &Method::exchange(halo))?;
        }
        if let Ok(nccl) = &self.nccl {
            let (messages, stream) = (packed.messages(), &self.meter.stream);
            let beside = Beside::new(stream.device())?;
            for beside in [None, Some(&beside)].into_iter().take(1 + usize::from(packed.has_local())) {
                let give = |stream: &_| match packed.in_place() {
                    Some(messages) => nccl.exchange(messages, stream),
                    None => packed.exchange(stream, beside, |stream| nccl.exchange(&messages, stream)),
                };
                tried(2, &Method::other(give))?;
                // Whatever NCCL sets up for these peers it has by now.
                // SAFETY: the fixture and its messages outlive the launches: `steady` waits for them.
                let graph = unsafe {
                    self.graphs
                        .capture(stream, Mode::Relaxed, || (0..IN_GRAPH).try_for_each(|_| give(stream)))
                }?;
                tried(3, &Method::several(IN_GRAPH, |stream| graph.launch(stream)))?;
            }
        }
        Ok(ours.into_iter().collect::<Vec<_>>().join("; "))
    }

    /// Plain stores of so many bytes to the next rank, with the number of blocks that is fastest.
    fn stores(&self, remote: &Remote, bytes: usize) -> Result<f64, Trouble> {
        let times = limits::SHARES.into_iter().map(|share| {
            let store = |stream: &Stream| remote.store(self.meter.gpu, stream, bytes, share);
            self.meter.steady(&Method::other(store))
        });
        times.reduce(|one, other| Ok(one?.min(other?))).unwrap_or(Ok(f64::NAN))
    }
}
