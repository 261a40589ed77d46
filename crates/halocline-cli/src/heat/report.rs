//! The report of a run.

use super::measure::Figures;
use super::simulation::Micros;
use crate::info::plural;
use crate::options::{Grid, Periodic};
use crate::ranks::LinksAsJson;
use crate::verdict::Verdict;
use halocline::LinkCounts;
use serde::Serialize;
use std::fmt::Write;

/// The figures of a run, as the JSON line names them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) case: &'static str,
    /// The grid, as on the command line.
    pub(super) grid: String,
    /// Whether each axis is periodic.
    pub(super) periodic: [bool; 3],
    /// Blocks along each axis.
    pub(super) blocks: Vec<usize>,
    pub(super) halo: usize,
    pub(super) fields: u32,
    pub(super) dtype: String,
    pub(super) ranks: usize,
    pub(super) transport: &'static str,
    /// Where the fields are: `cpu` or `cuda`.
    pub(super) device: &'static str,
    /// The GPUs, by name.
    pub(super) gpu: Option<String>,
    /// Number of CPUs that the ranks may use together.
    pub(super) cpus: usize,
    /// Whether every rank has a second CPU for its progress thread.
    pub(super) free_cores: bool,
    pub(super) steps: u32,
    pub(super) overlap: bool,
    /// Whether rounds were replayed from a CUDA graph.
    pub(super) graph: bool,
    /// Sum of the links of all ranks.
    #[serde(with = "LinksAsJson")]
    pub(super) links: LinkCounts,
    /// Bytes of halo that one exchange fills on all ranks.
    pub(super) bytes: u64,
    /// The part of `bytes` that comes from other ranks.
    #[serde(rename = "bytes_received")]
    pub(super) received: u64,
    /// Time of all steps, s.
    pub(super) seconds: f64,
    #[serde(flatten)]
    pub(super) rates: Rates,
    /// Medians over the exchanges on the slowest rank.
    #[serde(rename = "in_run_us")]
    pub(super) phases: Micros,
    /// The measurements after the run.
    #[serde(rename = "measured")]
    pub(super) figures: Option<Figures>,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

/// What follows from the time of all steps.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rates {
    /// Time of a step.
    step_us: f64,
    cells_per_second: f64,
    /// Memory traffic of the stencil, if each value is read once and written once.
    gb_per_second: f64,
}

impl Rates {
    /// `values`: number of values that a step computes, each of `bytes` bytes.
    pub(super) fn new(values: f64, bytes: usize, steps: u32, seconds: f64) -> Self {
        let cells_per_second = values * f64::from(steps) / seconds.max(1e-9);
        Self {
            step_us: seconds * 1e6 / f64::from(steps),
            cells_per_second,
            gb_per_second: cells_per_second * 2.0 * bytes as f64 / 1e9,
        }
    }
}

impl Report {
    fn check(&self) -> String {
        match &self.verdict {
            Verdict::Compared { .. } if self.verdict.is_good() => {
                "equal to the run on one rank to the last bit (max_abs_diff 0.0)".to_owned()
            }
            Verdict::Compared { max_abs_diff, different } => format!(
                "DIFFERENT from the run on one rank in {different} values, by up to {max_abs_diff} (max_abs_diff)"
            ),
            Verdict::Skipped { why } => format!("NOT compared with a run on one rank: {why}"),
        }
    }

    fn phases(&self) -> String {
        let Micros { begin, interior, wait, rest } = self.phases;
        format!(
            "begin {begin:.1}, interior {interior:.1}, wait {wait:.1}, rest {rest:.1} us an exchange{} (medians of the slowest rank)",
            match (&self.gpu, self.graph) {
                (None, _) => "",
                (_, false) => ", in the host's calls, which queue work",
                (_, true) => ", in the host's calls of the rounds that are not in the graph",
            }
        )
    }

    /// The summary.
    pub(super) fn to_text(&self) -> String {
        let LinkCounts { direct, mailbox, message } = self.links;
        let periodic = Periodic::Flags(self.periodic.to_vec());
        let mut text = format!(
            "heat: grid {}, {}, {}, halo {}, periodic {periodic}, {} steps\n",
            self.grid,
            self.dtype,
            plural(self.fields as usize, "field"),
            self.halo,
            self.steps
        );
        // Writing to a string cannot fail.
        let mut row = |name: &str, value: String| _ = writeln!(text, "  {name:<11}{value}");
        let blocks = Grid(self.blocks.clone());
        row(
            "ranks",
            format!(
                "{} ({}), blocks {blocks}, on {} CPUs, {} for progress threads",
                self.ranks,
                self.transport,
                self.cpus,
                if self.free_cores { "free cores" } else { "NO free cores" }
            ),
        );
        if let Some(gpu) = &self.gpu {
            row("device", gpu.clone());
        }
        row(
            "exchange",
            format!(
                "{} bytes of halo, {} of them from other ranks; links: {direct} direct, {mailbox} mailbox, {message} message",
                self.bytes, self.received
            ),
        );
        row(
            "step",
            format!(
                "{:.1} us, {:.1} million cells/s, {:.2} GB/s (each value read and written once)",
                self.rates.step_us,
                self.rates.cells_per_second / 1e6,
                self.rates.gb_per_second
            ),
        );
        row("phases", self.phases());
        match &self.figures {
            None => row("alone", "not measured (`--rounds 0`)".to_owned()),
            Some(figures) => {
                row("alone", figures.alone());
                row("overlapped", figures.overlapped());
            }
        }
        row("check", self.check());
        text
    }
}

impl Figures {
    fn alone(&self) -> String {
        let Self { exchange_us: exchange, interior_us: interior, rest_us: rest, .. } = self;
        let times = interior / exchange.max(f64::MIN_POSITIVE);
        format!(
            "exchange {exchange:.1}, interior {interior:.1} ({times:.1} times the exchange), rest {rest:.1} us"
        )
    }

    fn overlapped(&self) -> String {
        let mut text = format!(
            "{:.1} us an exchange and its steps = {:.2} of the larger of exchange and interior",
            self.overlapped_us, self.ratio
        );
        if let Some((time, ratio)) = self.in_flight_us.zip(self.ratio_in_flight) {
            text += &format!("; until the halo is filled {time:.1} us = {ratio:.2}");
        }
        if let Some((time, ratio)) = self.kernels_us.zip(self.ratio_to_kernels) {
            text += &format!(" = {ratio:.2} of the kernels alone, {time:.1} us");
        }
        format!("{text}; in turn {:.1} us", self.in_turn_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(verdict: Verdict) -> Report {
        Report {
            case: "heat",
            grid: "8x8x8".to_owned(),
            periodic: [true, false, true],
            blocks: vec![2, 1, 1],
            halo: 1,
            fields: 2,
            dtype: "f64".to_owned(),
            ranks: 2,
            transport: "thread",
            device: "cpu",
            gpu: None,
            cpus: 2,
            free_cores: false,
            steps: 10,
            overlap: true,
            graph: false,
            links: LinkCounts { direct: 4, mailbox: 0, message: 0 },
            bytes: 4096,
            received: 2048,
            seconds: 0.5,
            rates: Rates::new(512.0 * 2.0, 8, 10, 0.5),
            phases: Micros { begin: 1.0, interior: 2.0, wait: 3.0, rest: 4.0 },
            figures: None,
            verdict,
        }
    }

    #[test]
    fn the_figures_follow_from_the_run() {
        let line = json!(report(Verdict::Compared { max_abs_diff: 0.0, different: 0 }));
        assert_eq!(line["step_us"], 50_000.0);
        assert_eq!(line["cells_per_second"], 512.0 * 2.0 * 10.0 / 0.5);
        assert_eq!(line["max_abs_diff"], 0.0);
    }

    #[test]
    fn differences_and_a_skipped_comparison_are_reported() {
        let wrong = report(Verdict::Compared { max_abs_diff: f64::INFINITY, different: 3 });
        assert!(wrong.to_text().contains("DIFFERENT from the run on one rank in 3 values"));
        assert!(json!(wrong)["max_abs_diff"].is_null());
        let skipped = report(Verdict::Skipped { why: "no memory".to_owned() });
        assert!(skipped.to_text().contains("NOT compared with a run on one rank: no memory"));
        assert_eq!(json!(skipped)["check_skipped"], "no memory");
    }
}
