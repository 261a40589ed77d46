//! Graphs: work that streams under capture were given, and its launches.

use super::call::SimDriver;
use super::report::Report;
use super::state::State;
use super::stream::{Op, Record};
use crate::driver::{Capture, RawGraph, RawStream};
use crate::error::DeviceError;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A graph, captured or under capture.
#[derive(Default)]
pub(super) struct Recorded {
    /// The streams that take part; the capture began at the first one.
    streams: Vec<usize>,
    /// The work in the order of the calls, each with its stream, as an index into `streams`.
    work: Vec<(usize, Op)>,
    /// The capture has ended.
    is_whole: bool,
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    /// For each stream of the capture but the first, the one that does its work in launches.
    own: Vec<usize>,
}

/// First handle of graphs, in a range of their own.
const GRAPHS: usize = 0x30_0000;

impl SimDriver {
    pub(super) fn begin_graph(&self, stream: RawStream) -> Result<(), DeviceError> {
        let mut call = self.call(false)?;
        let index = self.stream(&call.state, stream)?;
        if call.state.streams[index].captured.is_some() {
            call.state.refuse("begin_capture", "the stream is being captured; end that capture first");
            return Ok(());
        }
        call.state.graphs.push(Recorded { streams: vec![index], ..Recorded::default() });
        call.state.streams[index].captured = Some(call.state.graphs.len() - 1);
        Ok(())
    }

    pub(super) fn end_graph(&self, stream: RawStream) -> Result<RawGraph, DeviceError> {
        let mut call = self.call(false)?;
        let index = self.stream(&call.state, stream)?;
        let state = &mut *call.state;
        let number = state.streams[index].captured.filter(|&at| state.graphs[at].streams[0] == index);
        let Some(number) = number else {
            let what = "no capture began at the stream".to_owned();
            return Err(DeviceError::Lost { device: self.device, what });
        };
        let streams = state.graphs[number].streams.clone();
        streams.iter().for_each(|&stream| state.streams[stream].captured = None);
        state.graphs[number].is_whole = true;
        if !state.graphs[number].is_joined() {
            state.refuse(
                "end_capture",
                "the first stream does not wait for all others; let it wait for an event of each",
            );
        }
        let own = streams[1..].iter().map(|&stream| state.add_stream(state.streams[stream].device)).collect();
        state.graphs[number].own = own;
        Ok(RawGraph(GRAPHS + number))
    }

    /// Every stream of the capture but the first does its work on a stream of the graph's own.
    pub(super) fn give_graph(&self, graph: RawGraph, stream: RawStream) -> Result<(), DeviceError> {
        let mut call = self.call(false)?;
        let first = self.stream(&call.state, stream)?;
        let host = call.state.threads[call.me].actor;
        let Recorded { work, own, .. } = &call.state.graphs[graph.0 - GRAPHS];
        let (work, own) = (work.clone(), own.clone());
        let mut records = BTreeMap::new();
        for (branch, mut op) in work {
            if let Op::Record(record) | Op::Await(record) = &mut op {
                *record = *records.entry(*record).or_insert_with(|| {
                    call.state.records.push(Record::default());
                    call.state.records.len() - 1
                });
            }
            let seen = call.state.seen(host).clone();
            call.state.given += 1;
            let (given, on) = (call.state.given, if branch == 0 { first } else { own[branch - 1] });
            call.state.streams[on].push(op, seen, given);
        }
        call.state.tick(host);
        Ok(())
    }

    /// What the graph keeps is dropped with it: all launches must be over.
    pub(super) fn drop_graph(&self, graph: RawGraph) {
        let Recorded { work, kept, .. } = std::mem::take(&mut self.world.lock().graphs[graph.0 - GRAPHS]);
        // Without the lock: the drop may make calls.
        drop(work);
        drop(kept);
    }
}

impl Recorded {
    /// Whether the first stream waits for the end of all others, directly or through others.
    fn is_joined(&self) -> bool {
        (1..self.streams.len()).all(|branch| {
            let mut joined = std::collections::BTreeSet::from([branch]);
            // A stream that waits for an event recorded after the last work of a joined stream is joined to it.
            let last = self.work.iter().rposition(|(of, op)| *of == branch && !matches!(op, Op::Record(_)));
            let after = &self.work[last.map_or(0, |last| last + 1)..];
            let mut records = std::collections::BTreeSet::new();
            for (of, op) in after {
                match op {
                    Op::Record(record) if joined.contains(of) => drop(records.insert(*record)),
                    Op::Await(record) if records.contains(record) => drop(joined.insert(*of)),
                    _ => {}
                }
            }
            joined.contains(&0)
        })
    }
}

impl State {
    fn refuse(&mut self, call: &'static str, what: &str) {
        self.report(Report::Refused { call, what: what.to_owned() });
    }

    /// The capture of a stream.
    pub(super) fn capture(&self, stream: usize) -> Option<Capture> {
        let number = self.streams[stream].captured?;
        Some(Capture { id: number as u64 + 1, graph: number })
    }

    /// Takes an operation into the graph of a stream under capture; otherwise gives it back.
    pub(super) fn captured(&mut self, stream: usize, op: Op) -> Option<Op> {
        let Some(number) = self.streams[stream].captured else { return Some(op) };
        let graph = &mut self.graphs[number];
        let branch = graph.streams.iter().position(|&of| of == stream);
        graph.work.extend(branch.map(|branch| (branch, op)));
        None
    }

    /// A stream is about to wait for a record. If that is captured, the stream takes part in the capture from now on. False if the
    /// wait would lead out of a capture.
    pub(super) fn enter_capture(&mut self, stream: usize, record: usize) -> bool {
        match (self.streams[stream].captured, self.records[record].capture) {
            (own, of) if own == of => true,
            (None, Some(of)) if !self.graphs[of].is_whole => {
                self.graphs[of].streams.push(stream);
                self.streams[stream].captured = Some(of);
                true
            }
            _ => {
                self.refuse(
                    "wait_event",
                    "a stream waits for work that is not of its capture; wait for it before the capture",
                );
                false
            }
        }
    }

    /// Keeps a value until a graph is dropped. False if that is not under capture.
    pub(super) fn keep(&mut self, capture: Capture, kept: Arc<dyn Any + Send + Sync>) -> bool {
        let graph = self.graphs.get_mut(capture.graph).filter(|graph| !graph.is_whole);
        graph.map(|graph| graph.kept.push(kept)).is_some()
    }
}
