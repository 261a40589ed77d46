//! `halocline plot trace`: the timeline of a trace as a picture.
//!
//! [`read`] takes the events from the file that `--trace` has written, [`picture`] draws a part of them: a
//! lane for each thread of each rank, and above it the exchanges in flight.

mod picture;
mod read;

use crate::plot::{self, PlotError};
use read::Timeline;
use std::path::PathBuf;

/// Draw the timeline of a trace: what each rank does when, and which exchanges are in flight
///
/// Without `--from` and `--to` the picture shows the last exchanges that are whole.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TraceArgs {
    /// What `--trace` has written
    #[arg(value_name = "TRACE.json")]
    trace: PathBuf,
    /// The picture (.png or .svg)
    #[arg(value_name = "FILE")]
    picture: PathBuf,
    /// Where the picture begins, in microseconds of the trace
    #[arg(long, value_name = "US", requires = "to")]
    from: Option<f64>,
    /// Where it ends
    #[arg(long, value_name = "US", requires = "from")]
    to: Option<f64>,
    /// How many exchanges are shown
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "from", value_parser = clap::value_parser!(u32).range(1..))]
    exchanges: u32,
}

/// A trace that cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TimelineError {
    /// The trace cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no trace.
    #[error("{} is no trace: {reason}; give a file that `--trace` has written", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A part that ends before it begins.
    #[error("a picture from {from} to {to} us; it must end after it begins")]
    Part {
        /// Where it begins, us.
        from: f64,
        /// Where it ends, us.
        to: f64,
    },
    /// Nothing lies in the part asked for.
    #[error("no spans from {from} to {to} us; the trace has some from {first:.0} to {last:.0} us")]
    Empty {
        /// Where the part begins, us.
        from: f64,
        /// Where it ends, us.
        to: f64,
        /// Where the trace begins, us.
        first: f64,
        /// Where it ends, us.
        last: f64,
    },
    /// The picture cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

impl TimelineError {
    /// The exit code: 2 for wrong usage, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Part { .. } | Self::Empty { .. } => 2,
            _ => 1,
        }
    }
}

/// Draws what is asked for.
pub(crate) fn run(args: &TraceArgs) -> Result<(), TimelineError> {
    plot::check([&args.picture])?;
    if let (Some(from), Some(to)) = (args.from, args.to)
        && !(from < to && (to - from).is_finite())
    {
        return Err(TimelineError::Part { from, to });
    }
    let path = || args.trace.clone();
    let text = std::fs::read_to_string(&args.trace)
        .map_err(|source| TimelineError::File { path: path(), source })?;
    let timeline = Timeline::read(&text).map_err(|reason| TimelineError::Trace { path: path(), reason })?;
    if timeline.stride > 1 {
        tracing::warn!(
            "{} shows one of {} epochs of each exchange: the others lie in the gaps of the picture",
            args.trace.display(),
            timeline.stride
        );
    }
    let (from, to) = match (args.from, args.to) {
        (Some(from), Some(to)) => (from, to),
        _ => timeline.last_exchanges(args.exchanges as usize),
    };
    let shown = timeline.between(from, to);
    if shown.lanes.is_empty() {
        let (first, last) = timeline.extent();
        return Err(TimelineError::Empty { from, to, first, last });
    }
    Ok(plot::save(&args.picture, &picture::Sheet { timeline: &shown, from, to })?)
}
