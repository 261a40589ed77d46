//! Exchanges that are captured into CUDA graphs: their times beside those of calls and of NCCL, many launches with new data, graphs and
//! calls in any mixture, and a graph whose peer does not come.

use super::cases::{CASES, cube, line};
use super::rival::Packed;
use super::{Bench, IN_GRAPH};
use crate::device_fixtures::{DeviceFixture, Rig};
use crate::gpus::Gpus;
use crate::gpus::capture::{Graph, Mode};
use crate::gpus::meter::Method;
use crate::numbers::Numbers;
use crate::{Outcome, Trouble, ensure, fail};
use halocline::{BindOptions, Error, HaloExchange};
use std::time::{Duration, Instant};

/// Launches of a graph of one exchange, each with new data of which every cell is compared; fewer beside selected rows.
const LAUNCHES: [u64; 2] = [100_000, 300];
/// Exchanges of a run in which each rank chooses between calls and graphs; again.
const MIXED: [u64; 2] = [5_000, 300];

/// Prints the tables on rank 0. Collective.
pub(super) fn run(bench: &Bench<'_>, only: Option<&str>) -> Outcome {
    let say = |text: String| {
        if bench.meter.comm.rank() == 0 {
            println!("{text}");
        }
    };
    say(format!(
        "us an exchange; in a graph: of {IN_GRAPH}; host: us of the host for one of three calls in a row"
    ));
    say(format!(
        "{:34} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  {:>8}",
        "", "inline", "graph", "host", "overlap", "graph", "host", "NCCL"
    ));
    let small = [("8 bytes", 1), ("512 bytes", 64)];
    let (comm, device) = (bench.meter.comm, bench.meter.gpu.device());
    for (name, words) in small.into_iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only))) {
        say(bench.in_graphs(name, &line(comm, device, words)?)?);
    }
    for case in CASES.iter().filter(|case| only.is_none_or(|only| case.name.contains(only))) {
        say(bench.in_graphs(case.name, &case.fixture(comm, device)?)?);
    }
    for inline in [true, false] {
        say(bench.often(inline, LAUNCHES[usize::from(only.is_some())])?);
        say(bench.mixed(inline, MIXED[usize::from(only.is_some())])?);
    }
    say(bench.alone()?);
    Ok(comm.barrier()?)
}

impl Bench<'_> {
    /// A row of the table.
    fn in_graphs(&self, name: &str, fixture: &DeviceFixture) -> Result<String, Trouble> {
        let fields: Vec<usize> = (0..fixture.pieces.len()).collect();
        let (mut text, mut count) = (format!("{name:34}"), 0);
        let mut tried = |method: &Method<'_>| -> Result<f64, Trouble> {
            count += 1;
            self.meter.check(fixture, method, count)?;
            self.meter.steady(method)
        };
        for inline in [true, false] {
            let options = BindOptions::default().inline(inline);
            let bind = || fixture.bind(self.meter.comm, &[&fields[..]], &options);
            let eager = Method::exchange(bind()?);
            let halo = bind()?;
            let graph = self.graph(&halo, IN_GRAPH)?;
            let method = Method::several(IN_GRAPH, |stream| graph.launch(stream));
            let times = [tried(&eager)?, tried(&method)?, self.meter.host(&eager)?[1]];
            text += &times.map(|time| format!(" {time:8.2}")).concat();
        }
        if let Ok(nccl) = &self.nccl {
            let packed = Packed::new(fixture, self.meter.gpu.device())?;
            let (messages, stream) = (packed.messages(), &self.meter.stream);
            let give = |stream: &_| match packed.in_place() {
                Some(messages) => nccl.exchange(messages, stream),
                None => packed.exchange(stream, None, |stream| nccl.exchange(&messages, stream)),
            };
            tried(&Method::other(give))?;
            // SAFETY: the fixture outlives the launches: `steady` waits for them.
            let graph = unsafe {
                self.graphs.capture(stream, Mode::Relaxed, || (0..IN_GRAPH).try_for_each(|_| give(stream)))
            }?;
            text += &format!("  {:8.2}", tried(&Method::several(IN_GRAPH, |stream| graph.launch(stream)))?);
        }
        Ok(text)
    }

    /// A graph of exchanges, each with its wait.
    fn graph(&self, halo: &HaloExchange, count: usize) -> Result<Graph, Trouble> {
        let stream = &self.meter.stream;
        let give =
            || (0..count).try_for_each(|_| Ok(halo.schedule_exchange(&[stream])?.schedule_wait(stream)?));
        // SAFETY: the library keeps what captured exchanges use until the graph is gone.
        unsafe { self.graphs.capture(stream, Mode::Relaxed, give) }
    }

    /// New data, a graph of one exchange, a look at every cell; very often.
    fn often(&self, inline: bool, launches: u64) -> Result<String, Trouble> {
        let (comm, stream, gpus) = (self.meter.comm, &self.meter.stream, Gpus::get()?);
        let fixture = cube(comm, self.meter.gpu.device(), (24, 1), 1)?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().inline(inline))?;
        let graph = self.graph(&halo, 1)?;
        let begin = Instant::now();
        for step in 1..=launches {
            let piece = &fixture.pieces[0][0];
            gpus.produce_at_once(piece, stream, step)?;
            graph.launch(stream)?;
            gpus.consume_at_once(piece, stream, step)?;
        }
        stream.synchronise()?;
        gpus.check()?;
        Ok(format!(
            "inline {inline}: {launches} launches, every cell right, {:.1} s",
            begin.elapsed().as_secs_f64()
        ))
    }

    /// The same by calls, and by graphs of one exchange and of two, as each rank likes.
    fn mixed(&self, inline: bool, exchanges: u64) -> Result<String, Trouble> {
        let (comm, stream, gpus) = (self.meter.comm, &self.meter.stream, Gpus::get()?);
        let fixture = cube(comm, self.meter.gpu.device(), (24, 1), 1)?;
        let halo = fixture.bind(comm, &[&[0]], &BindOptions::default().inline(inline))?;
        let graphs = [self.graph(&halo, 1)?, self.graph(&halo, 2)?];
        let mut own = Numbers::new(77 + comm.rank() as u64);
        let (piece, mut by_graph) = (&fixture.pieces[0][0], 0);
        for step in (2..=exchanges).step_by(2) {
            // Two exchanges of the same data.
            gpus.produce_at_once(piece, stream, step)?;
            match own.below(3) {
                0 => graphs[1].launch(stream)?,
                choice => {
                    for _ in 0..2 {
                        match choice == 1 || own.one_in(2) {
                            true => graphs[0].launch(stream)?,
                            false => halo.schedule_exchange(&[stream])?.schedule_wait(stream)?,
                        }
                    }
                }
            }
            by_graph += 1;
            gpus.consume_at_once(piece, stream, step)?;
            // Calls in flight are limited.
            if by_graph % 16 == 0 {
                stream.synchronise()?;
            }
        }
        stream.synchronise()?;
        gpus.check()?;
        Ok(format!(
            "inline {inline}: {exchanges} exchanges by calls and graphs in any mixture, every cell right"
        ))
    }

    /// The last rank does not launch its graph: a deadline ends that of the first one, and the next call says so.
    fn alone(&self) -> Result<String, Trouble> {
        let (comm, stream) = (self.meter.comm, &self.meter.stream);
        let fixture = cube(comm, self.meter.gpu.device(), (24, 1), 1)?;
        let deadline = Duration::from_millis(500);
        let options = BindOptions::default().deadline(Some(deadline));
        let halo = fixture.bind(comm, &[&[0]], &options)?;
        let graph = self.graph(&halo, 3)?;
        let mut captured = None;
        let give = || {
            let pending = halo.schedule_exchange(&[stream])?;
            pending.schedule_wait(stream)?;
            captured = Some(pending);
            Ok(())
        };
        // SAFETY: the library keeps what captured exchanges use until the graph is gone.
        let one = unsafe { self.graphs.capture(stream, Mode::Relaxed, give) }?;
        let Some(captured) = captured else { fail!("nothing was captured") };
        graph.launch(stream)?;
        one.launch(stream)?;
        stream.synchronise()?;
        comm.barrier()?;
        let begin = Instant::now();
        let mut said = String::new();
        if comm.rank() == 0 {
            graph.launch(stream)?;
            stream.synchronise()?;
            let ended = begin.elapsed();
            match self.graph(&halo, 1).err() {
                Some(why) if why.to_string().contains("deadline") || why.to_string().contains("waited") => {
                    said =
                        format!("a graph without its peer ended after {:.2} s: {why}", ended.as_secs_f64());
                }
                other => fail!("instead of a failure: {other:?}"),
            }
            graph.launch(stream)?;
            stream.synchronise()?;
        } else {
            // Rank 0 ends it.
            loop {
                match captured.schedule_wait(stream) {
                    Err(Error::Failed(_)) => break,
                    _ => ensure!(begin.elapsed() < Duration::from_secs(20), "nobody says that it failed"),
                }
                std::thread::yield_now();
            }
            graph.launch(stream)?;
            stream.synchronise()?;
        }
        comm.barrier()?;
        Ok(said)
    }
}
