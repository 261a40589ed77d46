//! `halocline plot trace`: the timeline of a trace as a picture.
//!
//! [`read`] takes the events from the file that `--trace` has written, [`picture`] draws a part of them: a
//! lane for each thread of each rank, and above it the exchanges in flight.

mod picture;
mod read;

use crate::error::CommandError;
use crate::plot;
use read::Timeline;
use std::path::PathBuf;

/// Draw the timeline of a trace: the spans of each rank, and its exchanges in flight
///
/// Without `--from` and `--to` the picture shows the last complete exchanges.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TraceArgs {
    /// A file that `--trace` has written
    #[arg(value_name = "TRACE.json")]
    trace: PathBuf,
    /// The picture (.png or .svg)
    #[arg(value_name = "FILE")]
    picture: PathBuf,
    /// Start of the picture, in microseconds of the trace
    #[arg(long, value_name = "US", requires = "to")]
    from: Option<f64>,
    /// End of the picture
    #[arg(long, value_name = "US", requires = "from")]
    to: Option<f64>,
    /// Number of exchanges in the picture
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "from", value_parser = clap::value_parser!(u32).range(1..))]
    exchanges: u32,
}

/// The most threads in a picture: of 300 MB, if each is of another rank.
const MOST_LANES: usize = 1000;

/// Runs `halocline plot trace`.
pub(crate) fn run(args: &TraceArgs) -> Result<(), CommandError> {
    plot::check([&args.picture])?;
    if let (Some(from), Some(to)) = (args.from, args.to)
        && !(from < to && (to - from).is_finite())
    {
        return Err(CommandError::usage(format!(
            "a picture from {from} to {to} us; give an end after its start"
        )));
    }
    let text = std::fs::read_to_string(&args.trace).map_err(CommandError::file("read", &args.trace))?;
    let timeline = Timeline::read(&text).map_err(|reason| {
        let path = args.trace.display();
        CommandError::failed(format!("{path} is no trace: {reason}; give a file that `--trace` has written"))
    })?;
    let (from, to) = match (args.from, args.to) {
        (Some(from), Some(to)) => (from, to),
        _ => timeline.last_exchanges(args.exchanges as usize),
    };
    let shown = timeline.between(from, to);
    if shown.lanes.is_empty() {
        let (first, last) = timeline.extent();
        return Err(CommandError::usage(format!(
            "no spans from {from} to {to} us; the trace has some from {first:.0} to {last:.0} us"
        )));
    }
    let lanes = shown.lanes.len();
    if lanes > MOST_LANES {
        return Err(CommandError::failed(format!(
            "{} has {lanes} threads with spans from {from} to {to} us, and a picture shows up to {MOST_LANES}; give a shorter time with \
             `--from` and `--to`, or a trace of fewer ranks",
            args.trace.display()
        )));
    }
    plot::save(&args.picture, &picture::Sheet { timeline: &shown, from, to })
}
