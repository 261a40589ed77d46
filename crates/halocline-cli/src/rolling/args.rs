//! Arguments of `halocline run rolling`.

use crate::error::CommandError;
use crate::options;
use crate::ranks::RanksArgs;
use crate::trace::TraceArgs;
use halocline_table::{Aggregation, Closed, Interpolation, Rolling, Route, Statistic, Window};
use std::path::{Path, PathBuf};

/// Compute rolling windows over a table whose rows are sorted over several ranks
///
/// Each rank reads its part of the table. Windows near its border need rows of other ranks, which the ranks exchange. The default is a year
/// of temperatures in Seattle. The result is compared with that of one rank. The last line on standard output is a JSON object with the
/// figures of the run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RollingArgs {
    #[command(flatten)]
    pub(super) ranks: RanksArgs,
    /// Read a CSV file with a header instead of the built-in data; a line is a row
    #[arg(long, value_name = "FILE", conflicts_with = "parquet", requires = "by")]
    pub(super) csv: Option<PathBuf>,
    /// Read a Parquet file instead of the built-in data
    #[arg(long, value_name = "FILE", requires = "by")]
    pub(super) parquet: Option<PathBuf>,
    /// Column that windows follow, ascending: times, dates or integers [default: date, in the built-in data]
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    /// Column of numbers [default: the only one besides the key and the groups; temp in the built-in data]
    #[arg(long, value_name = "COLUMN")]
    value: Option<String>,
    /// Length of a window, up to its row: a duration such as 5d or 1h30m, units of an integer key such as 5i, or a number of rows
    #[arg(long, value_name = "LENGTH", default_value = "5d", allow_hyphen_values = true)]
    window: String,
    /// Column of groups: windows stay within a group. Rows are sorted by the groups, then by the key. Repeat it for several columns
    #[arg(long = "group", value_name = "COLUMN")]
    groups: Vec<String>,
    /// Put each window around its row instead of before it
    #[arg(long)]
    center: bool,
    /// Ends that belong to a window
    #[arg(long, value_parser = options::named(Closed::NAMED), default_value_t = Closed::Right)]
    closed: Closed,
    /// Statistic of the values in a window
    #[arg(long, value_enum, default_value_t = Kind::Mean)]
    pub(super) statistic: Kind,
    /// How rows travel: from neighbour to neighbour (relay), or straight to the ranks that need them (direct, auto)
    #[arg(long, value_parser = options::named(Route::NAMED), default_value = "auto")]
    route: Route,
    /// File for the plot (.png or .svg)
    #[arg(long, value_name = "FILE", default_value = "rolling.png")]
    plot: PathBuf,
    /// Draw no plot
    #[arg(long, conflicts_with = "plot")]
    no_plot: bool,
    /// Do not compare with a run on one rank
    #[arg(long)]
    pub(super) no_check: bool,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

/// Statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    Mean,
    Sum,
    Min,
    Max,
    Std,
    Median,
}

impl RollingArgs {
    /// The key.
    pub(super) fn by(&self) -> &str {
        self.by.as_deref().unwrap_or("date")
    }

    /// The column of values.
    pub(super) fn value(&self) -> &str {
        self.value.as_deref().unwrap_or("temp")
    }

    /// The same with a value: without one the only column of numbers in the file that is neither the key nor a group.
    pub(super) fn with_value(&self) -> Result<Self, CommandError> {
        let is_embedded = self.csv.is_none() && self.parquet.is_none();
        if self.value.is_some() || is_embedded {
            return Ok(self.clone());
        }
        let source = self.source();
        let named: Vec<&str> =
            [self.by()].into_iter().chain(self.groups.iter().map(String::as_str)).collect();
        let numbers = source.numbers_besides(&named)?;
        match &numbers[..] {
            [value] => Ok(Self { value: Some(value.clone()), ..self.clone() }),
            [] => Err(CommandError::usage(format!(
                "{} has no column of numbers besides the key and the groups; name one with `--value`",
                source.name()
            ))),
            several => Err(CommandError::usage(format!(
                "{} has {} columns of numbers besides the key and the groups: {}; name one with `--value`",
                source.name(),
                several.len(),
                several.join(", ")
            ))),
        }
    }

    /// The columns of groups.
    pub(super) fn groups(&self) -> &[String] {
        &self.groups
    }

    pub(super) fn plot(&self) -> Option<&Path> {
        (!self.no_plot).then_some(self.plot.as_path())
    }

    /// What to compute windows over.
    pub(super) fn rolling(&self) -> Result<Rolling, CommandError> {
        let rolling = Rolling::new(self.by(), self.window()?.closed(self.closed)).group_by(&self.groups);
        Ok(rolling.columns([self.value()]).route(self.route))
    }

    fn window(&self) -> Result<Window, CommandError> {
        let text = &self.window;
        let refuse = |refusal: String| CommandError::usage(format!("`--window {text}`: {refusal}"));
        if text.starts_with('-') {
            return Err(refuse("a window has no negative length; give it without the sign".to_owned()));
        }
        let window = match text.parse() {
            Ok(rows) => Window::rows(rows),
            Err(_) if !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()) => {
                return Err(refuse(format!("a window has at most {} rows", u32::MAX)));
            }
            Err(_) => Window::period(text),
        };
        let window =
            window.map_err(|error| refuse(format!("{error}; or give a number of rows, such as 120")))?;
        Ok(if self.center { window.centered() } else { window })
    }

    /// The statistic of the values. Also of windows with fewer rows than they may have, at the ends of the table.
    pub(super) fn aggregation(&self) -> Aggregation {
        let statistic = match self.statistic {
            Kind::Mean => Statistic::Mean,
            Kind::Sum => Statistic::Sum,
            Kind::Min => Statistic::Min,
            Kind::Max => Statistic::Max,
            Kind::Std => Statistic::Std { ddof: 1 },
            Kind::Median => Statistic::Quantile { q: 0.5, interpolation: Interpolation::Linear },
        };
        Aggregation::new(self.value(), statistic).min_samples(1)
    }

    /// The window for reports: `5d (closed right)`.
    pub(super) fn window_text(&self) -> String {
        let rows = if self.window.parse::<u32>().is_ok() { " rows" } else { "" };
        let center = if self.center { ", centred" } else { "" };
        format!("{}{rows} (closed {}{center})", self.window, self.closed)
    }
}
