//! Traces: one timeline of all ranks that Perfetto (ui.perfetto.dev) and `chrome://tracing` open.
//!
//! The library emits `tracing` spans and events. [`layer`] records them while a trace is wanted ([`want`]). A rank begins a trace with
//! [`Trace::begin`] and writes it with [`Trace::finish`], all ranks together. `notes` limits the number of events, `clock` measures the
//! offsets between the ranks' clocks, [`device`] adds the spans of GPUs, and `write` makes the events of the file.
//!
//! A rank records at most 131,072 events, and 32,768 rounds of a GPU. The trace ends on all ranks where the first rank has reached a limit.
//! A warning and `otherData` of the file say how many events are left out.

mod clock;
pub mod device;
mod log;
mod notes;
mod record;
mod write;

use clock::{Clock, Reading};
use halocline::{CommError, Communicator, Reduce};
use halocline_comm::{Endpoint, Tag};
use halocline_device::file;
pub use log::log_filter;
use notes::Notes;
use record::Recorder;
use std::io;
use std::path::{Path, PathBuf};
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// The trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be written.
    #[error(
        "cannot write the trace to {}: {source}; give a path of a file that can be written",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Rank 0 cannot write the file.
    #[error("rank 0 {0}")]
    Elsewhere(String),
    /// Talking to other ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl TraceError {
    /// Whether the error may be a consequence of another rank's error.
    pub fn is_consequence(&self) -> bool {
        !matches!(self, Self::File { .. })
    }
}

/// Checks that the file can be written. Call it before ranks start.
pub fn check(path: &Path) -> Result<(), TraceError> {
    file::check(path).map_err(|source| TraceError::File { path: path.to_owned(), source })
}

/// A trace that is being made, or none.
#[must_use = "a trace is written by `finish`"]
pub struct Trace {
    running: Option<Running>,
}

struct Running {
    recorder: &'static Recorder,
    /// The file; only on rank 0.
    path: Option<PathBuf>,
    /// Offset of this rank's clock from that of rank 0 at the start.
    clock: Reading,
    rank: usize,
}

impl Trace {
    /// No trace: its end does nothing.
    pub fn none() -> Self {
        Self { running: None }
    }

    /// Starts the record of this rank. Collective; an error on rank 0, which opens the file, is an error on all ranks. Install [`layer`]
    /// and call [`want`] before.
    pub fn begin(comm: &Communicator, path: &Path) -> Result<Self, TraceError> {
        Self::begin_in(Recorder::get(), comm, path)
    }

    fn begin_in(recorder: &'static Recorder, comm: &Communicator, path: &Path) -> Result<Self, TraceError> {
        let own = (comm.rank() == 0).then(|| check(path).map(|()| path.to_owned())).transpose();
        let problem = own.as_ref().err().map(TraceError::to_string);
        let said = comm.broadcast(0, problem.unwrap_or_default().into_bytes())?;
        let path = own?;
        if !said.is_empty() {
            return Err(TraceError::Elsewhere(String::from_utf8_lossy(&said).into_owned()));
        }
        let clock = clock::measure(comm)?;
        Ok(Trace { running: Some(Running { recorder, path, clock, rank: comm.rank() }) })
    }

    /// Drops the record of this rank. Local: nothing is written, and [`Trace::finish`] fails on the other ranks once this rank has left.
    pub fn abandon(self) {
        if let Some(Running { recorder, rank, .. }) = self.running {
            drop(recorder.take(rank));
        }
    }

    /// Collects the events of all ranks and writes the file. Collective. The inner result, on rank 0, says whether the file could be
    /// written: report it after the result of the run. Rank 0 warns of missing events.
    pub fn finish(self, comm: &Communicator) -> Result<Result<(), TraceError>, TraceError> {
        let Some(Running { recorder, path, clock, rank }) = self.running else { return Ok(Ok(())) };
        let clock = clock.until(clock::measure(comm)?);
        let mut notes = recorder.take(rank);
        let left_out = end_together(comm, &mut notes, &clock)?;
        let tag = Tag { operation: comm.begin(), round: 0 };
        let mine = write::events(rank, notes, &clock);
        let Some(path) = path else { return Ok(Ok(comm.send(0, tag, mine)?)) };
        let mut parts = vec![mine];
        for rank in 1..comm.size() {
            parts.push(comm.receive(Some(rank), tag, "the events of a trace")?.payload);
        }
        if left_out > 0 {
            tracing::warn!(
                "the trace is not complete: {left_out} later events are left out; it holds {} events and {} rounds of a GPU for each rank",
                notes::MOST,
                device::MOST
            );
        }
        let head = write::head(left_out);
        Ok(file::replace(&path, &write::whole(&head, &parts))
            .map_err(|source| TraceError::File { path, source }))
    }
}

/// Ends the trace at the same moment on all ranks. Returns how many events are left out on the rank with most of them. Collective.
fn end_together(comm: &Communicator, notes: &mut Notes, clock: &Clock) -> Result<u64, CommError> {
    let moment = |ns: u64| clock.on_timeline(ns).max(0) as u64;
    let end = comm.all_reduce(&[notes.full_at.map_or(u64::MAX, moment)], Reduce::Min)?[0];
    notes.retain(|entry| moment(entry.begin) < end);
    Ok(comm.all_reduce(&[notes.left_out], Reduce::Max)?[0])
}

/// Records the spans of this process's ranks in memory, until each `want` has its [`unwant`].
pub fn want() {
    record::count(1);
}

/// Ends one [`want`].
pub fn unwant() {
    record::count(-1);
}

/// Records the library's spans and events while a trace is wanted. Otherwise each costs a check of one flag.
pub fn layer<S>() -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    record::Scribe.with_filter(record::Wanted)
}

#[cfg(test)]
mod tests;
