//! `--trace FILE.json`: what every rank does when, on one timeline that Perfetto (ui.perfetto.dev) and
//! `chrome://tracing` open.
//!
//! The library speaks through `tracing`; [`record`] writes down what it says, [`notes`] keep it within a limit, [`clock`] finds how the clocks
//! of the ranks differ, [`device`] lets GPUs say what they do, [`write`] makes the events of the file.
//!
//! A rank records 131,072 events at most. When there are as many, it drops every second epoch of each object, and records only every
//! second one from then on; then every fourth, and so on. At the end all ranks agree on the largest stride, so that the trace shows the
//! same epochs on all of them. `otherData` of the file has the stride and how many exchanges are left out; a warning tells, too
//! ([`coverage`]). What belongs to no exchange goes with the exchange that its rank began last. A subcommand flattens [`TraceArgs`] into its
//! arguments, calls [`TraceArgs::check`] before it starts ranks, and in each rank [`TraceArgs::begin`] and
//! [`Trace::finish`], all ranks together.

mod clock;
mod coverage;
pub mod device;
mod notes;
mod record;
mod slots;
mod write;

use clock::Reading;
use coverage::Coverage;
use halocline::{CommError, Communicator};
use halocline_comm::Endpoint;
use halocline_comm::Tag;
use halocline_device::file;
use record::Recorder;
use std::io;
use std::path::{Path, PathBuf};
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// Where to trace to, if at all.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TraceArgs {
    /// Write what every rank does when (in `run heat` what its GPU does, too), for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long = "trace", value_name = "FILE.json")]
    path: Option<PathBuf>,
}

/// The trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be written.
    #[error("cannot write the trace to {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Rank 0, which writes the file, cannot.
    #[error("rank 0 {0}")]
    Elsewhere(String),
    /// Talking to other ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl TraceError {
    /// Whether the error may be no more than the echo of another rank's.
    pub(crate) fn is_echo(&self) -> bool {
        !matches!(self, Self::File { .. })
    }
}

fn check(path: &Path) -> Result<(), TraceError> {
    file::check(path).map_err(|source| TraceError::File { path: path.to_owned(), source })
}

impl TraceArgs {
    /// Whether a trace is asked for: then [`layer`] must be in place.
    pub(crate) fn is_wanted(&self) -> bool {
        self.path.is_some()
    }

    /// Finds out whether the file can be written, before ranks are started.
    pub(crate) fn check(&self) -> Result<(), TraceError> {
        self.path.as_deref().map_or(Ok(()), check)
    }

    /// [`Trace::begin`], if a trace is asked for.
    pub(crate) fn begin(&self, comm: &Communicator) -> Result<Trace, TraceError> {
        self.path.as_deref().map_or(Ok(Trace { running: None }), |path| Trace::begin(comm, path))
    }
}

/// A trace that is being made, or none.
#[must_use = "a trace is written by `finish`"]
pub struct Trace {
    running: Option<Running>,
}

struct Running {
    recorder: &'static Recorder,
    /// On rank 0.
    path: Option<PathBuf>,
    /// How this rank's clock differs from that of rank 0 at the beginning.
    clock: Reading,
    rank: usize,
}

impl Trace {
    /// From here on what this rank does is in the trace. Collective; an error on rank 0, which opens the
    /// file, is one on all. [`crate::listen`] was called, and [`want`].
    pub fn begin(comm: &Communicator, path: &Path) -> Result<Self, TraceError> {
        Self::begin_in(Recorder::get(), comm, path)
    }

    fn begin_in(recorder: &'static Recorder, comm: &Communicator, path: &Path) -> Result<Self, TraceError> {
        let own = (comm.rank() == 0).then(|| check(path).map(|()| path.to_owned())).transpose();
        let problem = own.as_ref().err().map(|error| match error {
            TraceError::File { source, .. } => format!("{error}: {source}"),
            other => other.to_string(),
        });
        let said = comm.broadcast(0, problem.unwrap_or_default().into_bytes())?;
        let path = own?;
        if !said.is_empty() {
            return Err(TraceError::Elsewhere(String::from_utf8_lossy(&said).into_owned()));
        }
        let clock = clock::measure(comm)?;
        Ok(Trace { running: Some(Running { recorder, path, clock, rank: comm.rank() }) })
    }

    /// Drops what this rank has written down. Local: nothing is written, and the [`Trace::finish`] of other ranks fails once this one
    /// has left.
    pub fn abandon(self) {
        if let Some(Running { recorder, rank, .. }) = self.running {
            drop(recorder.take(rank));
        }
    }

    /// Brings the events of all ranks together and writes the file. Collective. Whether it could be written,
    /// which rank 0 knows, is the inner result: it is to be said once the run has said what it found. Rank 0 warns of what the trace
    /// does not show.
    pub fn finish(self, comm: &Communicator) -> Result<Result<(), TraceError>, TraceError> {
        let Some(Running { recorder, path, clock, rank }) = self.running else { return Ok(Ok(())) };
        let clock = clock.until(clock::measure(comm)?);
        let mut notes = recorder.take(rank);
        let coverage = Coverage::agree(comm, &mut notes)?;
        let tag = Tag { operation: comm.begin(), round: 0 };
        let mine = write::events(rank, notes, &clock);
        let Some(path) = path else { return Ok(Ok(comm.send(0, tag, mine)?)) };
        let mut parts = vec![mine];
        for rank in 1..comm.size() {
            parts.push(comm.receive(Some(rank), tag, "the events of a trace")?.payload);
        }
        coverage.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let head = write::head(coverage);
        Ok(file::replace(&path, &write::whole(&head, &parts))
            .map_err(|source| TraceError::File { path, source }))
    }
}

/// From now on what ranks of this process do is written down, in memory, until as many [`unwant`] have come.
pub fn want() {
    record::count(1);
}

/// One [`want`] less.
pub fn unwant() {
    record::count(-1);
}

/// What writes down the library's spans and events, as long as a trace is wanted. Otherwise each costs the look at one flag.
pub(crate) fn layer<S>() -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    record::Scribe.with_filter(record::Wanted)
}

#[cfg(test)]
mod tests;
