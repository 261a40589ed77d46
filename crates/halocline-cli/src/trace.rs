//! `--trace FILE.json`. A subcommand flattens [`TraceArgs`] into its arguments, calls [`TraceArgs::check`] before it starts ranks, and in
//! each rank [`TraceArgs::begin`] and [`Trace::finish`], all ranks together.

use halocline::Communicator;
use halocline_trace::{Trace, TraceError, check};
use std::path::{Path, PathBuf};

/// The file of the trace, if one is wanted.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TraceArgs {
    /// Write a timeline of all ranks (in `run heat` also of their GPUs) for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long = "trace", value_name = "FILE.json")]
    path: Option<PathBuf>,
}

impl TraceArgs {
    /// Whether a trace is wanted: then [`halocline_trace::layer`] must be installed.
    pub(crate) fn is_wanted(&self) -> bool {
        self.path.is_some()
    }

    /// The file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Checks that the file can be written. Call it before ranks start.
    pub(crate) fn check(&self) -> Result<(), TraceError> {
        self.path.as_deref().map_or(Ok(()), check)
    }

    /// [`Trace::begin`], if a trace is wanted.
    pub(crate) fn begin(&self, comm: &Communicator) -> Result<Trace, TraceError> {
        self.path.as_deref().map_or(Ok(Trace::none()), |path| Trace::begin(comm, path))
    }
}
