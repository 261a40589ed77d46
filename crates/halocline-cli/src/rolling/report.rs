//! The report of a run.

use super::verify::Verdict;
use crate::info::{binary_size, plural};
use crate::table::figure;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The figures of a run, as the JSON line names them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) case: &'static str,
    /// The file.
    pub(super) data: String,
    pub(super) by: String,
    pub(super) value: String,
    pub(super) window: String,
    pub(super) groups: Vec<String>,
    pub(super) statistic: String,
    pub(super) rows: u64,
    pub(super) ranks: usize,
    pub(super) transport: &'static str,
    /// Threads of each rank that compute windows.
    pub(super) threads: usize,
    /// `relay` or `direct`.
    pub(super) route: &'static str,
    /// What travelled between all ranks; relayed rows count each time.
    #[serde(flatten)]
    pub(super) travelled: Travelled,
    #[serde(flatten)]
    pub(super) times: Times,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

/// What travelled between all ranks.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Travelled {
    /// Rows that ranks sent; relayed rows count each time.
    pub(super) rows_sent: u64,
    pub(super) bytes_sent: u64,
    pub(super) messages_sent: u64,
}

/// Times of the slowest rank, s.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Times {
    /// To read its part of the file.
    pub(super) read_seconds: f64,
    /// To check its rows, to exchange rows, and to compute the windows.
    pub(super) seconds: f64,
    pub(super) check_seconds: f64,
    pub(super) exchange_seconds: f64,
    /// Share of the exchanges in the time of all ranks.
    pub(super) exchange_share: f64,
}

impl Report {
    /// The verdict in words.
    pub(super) fn check(&self) -> String {
        match &self.verdict {
            Verdict::Compared { different: 0, .. } => {
                "equal to the run on one rank to the last bit (max_abs_diff 0.0)".to_owned()
            }
            Verdict::Compared { max_abs_diff, different, .. } if self.verdict.is_good() => format!(
                "equal to the run on one rank up to rounding: {} differ, by up to {max_abs_diff:e} (max_abs_diff)",
                plural(*different as usize, "result")
            ),
            Verdict::Compared { max_abs_diff, beyond_rounding, tolerance, is_relative, .. } => format!(
                "DIFFERENT from the run on one rank in {}, by up to {max_abs_diff:e} (max_abs_diff), where rounding explains {tolerance:e}{}",
                plural(*beyond_rounding as usize, "result"),
                if *is_relative { " of a result" } else { "" }
            ),
            Verdict::Skipped { why } => format!("NOT compared with a run on one rank: {why}"),
        }
    }

    /// What was computed.
    pub(super) fn headline(&self) -> String {
        let Self { statistic, value, window, by, groups, .. } = self;
        let groups =
            if groups.is_empty() { String::new() } else { format!(" in groups of {}", groups.join(", ")) };
        format!("rolling {statistic} of {value} over {window} by {by}{groups}")
    }

    /// What travelled.
    pub(super) fn traffic(&self) -> String {
        let Travelled { rows_sent, bytes_sent, messages_sent } = self.travelled;
        format!(
            "{} and {} in {} ({})",
            plural(rows_sent as usize, "row"),
            binary_size(bytes_sent),
            plural(messages_sent as usize, "message"),
            self.route
        )
    }

    /// The summary.
    pub(super) fn to_text(&self, plot: Option<&Path>) -> String {
        let Times { read_seconds, seconds, check_seconds, exchange_seconds, exchange_share } = self.times;
        let mut text = format!("{}\n", self.headline());
        // Writing to a string cannot fail.
        let mut row = |name: &str, value: String| _ = writeln!(text, "  {name:<11}{value}");
        row("data", format!("{}, {}", self.data, plural(self.rows as usize, "row")));
        row("ranks", format!("{} ({}), {} each", self.ranks, self.transport, plural(self.threads, "thread")));
        row("read", format!("{} s", figure(read_seconds)));
        row("travelled", self.traffic());
        row(
            "time",
            format!(
                "{:.2} ms, {:.1} million rows/s; check of the order {:.2} ms, exchange {:.2} ms (slowest rank), {:.1} % of the time of all ranks",
                seconds * 1e3,
                self.rows as f64 / seconds.max(1e-9) / 1e6,
                check_seconds * 1e3,
                exchange_seconds * 1e3,
                exchange_share * 100.0
            ),
        );
        row("check", self.check());
        if let Some(path) = plot {
            row("plot", path.display().to_string());
        }
        text
    }
}
