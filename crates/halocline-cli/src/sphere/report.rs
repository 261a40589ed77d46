//! The report of a run.

use super::choice::days_in_words;
use super::norms::{Norms, ROUNDING};
use crate::info::plural;
use crate::ranks::LinksAsJson;
use crate::verdict::Verdict;
use halocline::LinkCounts;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The figures of a run, as the JSON line names them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) case: &'static str,
    /// The grid, as on the command line.
    pub(super) grid: String,
    /// `rotation` or `diffusion`.
    pub(super) problem: &'static str,
    #[serde(skip)]
    pub(super) unit: &'static str,
    /// The solution that the field is compared with.
    #[serde(skip)]
    pub(super) exact: &'static str,
    pub(super) ranks: usize,
    pub(super) transport: &'static str,
    pub(super) cells: usize,
    /// Simulated time.
    pub(super) days: f64,
    pub(super) steps: u32,
    /// Length of a step.
    pub(super) step_seconds: f64,
    #[serde(flatten)]
    pub(super) norms: Norms,
    /// Time of all steps on the slowest rank, s.
    pub(super) seconds: f64,
    /// Median over the steps of the time in a step's exchanges, on the slowest rank, us.
    pub(super) exchange_us_median: f64,
    /// Share of the time that all ranks spend in exchanges.
    pub(super) exchange_share: f64,
    /// Links of all ranks.
    #[serde(with = "LinksAsJson")]
    pub(super) links: LinkCounts,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

impl Report {
    /// Whether the run was right.
    pub(super) fn is_good(&self) -> bool {
        self.verdict.is_good() && self.norms.is_conserved()
    }

    /// Grid, ranks and steps, in words.
    pub(super) fn headline(&self, grid: &str) -> String {
        let (ranks, steps) = (plural(self.ranks, "rank"), plural(self.steps as usize, "step"));
        let days = days_in_words(self.days);
        format!("{grid}, {ranks} ({}), {steps} = {days}", self.transport)
    }

    /// Mass and comparison, in words.
    pub(super) fn result(&self) -> String {
        format!("{}; {}", self.mass(), self.check())
    }

    /// The error, in words.
    pub(super) fn error(&self) -> String {
        let Norms { l1, l2, linf, .. } = self.norms;
        format!("l1 {l1:.4}, l2 {l2:.4}, linf {linf:.4} of {}", self.exact)
    }

    fn mass(&self) -> String {
        let change = self.norms.mass_change;
        match self.norms.is_conserved() {
            true => format!("mass conserved to {change:.1e}"),
            false => format!("mass CHANGED by {change:.1e}, rounding is {ROUNDING:.0e}"),
        }
    }

    fn check(&self) -> String {
        match &self.verdict {
            Verdict::Compared { .. } if self.verdict.is_good() => {
                "equal to a run without exchanges to the last bit".to_owned()
            }
            Verdict::Compared { max_abs_diff, different } => {
                format!(
                    "DIFFERENT from a run without exchanges in {different} cells, by up to {max_abs_diff}"
                )
            }
            Verdict::Skipped { why } => format!("NOT compared with a run without exchanges: {why}"),
        }
    }

    /// The summary.
    pub(super) fn to_text(&self, plot: Option<&Path>) -> String {
        let LinkCounts { direct, mailbox, message } = self.links;
        let Norms { min, max, .. } = self.norms;
        let mut text = format!("sphere: {}\n", self.headline(&self.grid));
        // Writing to a string cannot fail.
        let mut row = |name: &str, value: String| _ = writeln!(text, "  {name:<10}{value}");
        row("cells", format!("{}, a step is {:.0} s of {}", self.cells, self.step_seconds, self.problem));
        row(
            "time",
            format!("{:.3} s, {:.1} % of it in exchanges", self.seconds, 100.0 * self.exchange_share),
        );
        row(
            "exchange",
            format!(
                "{:.1} us a step (median), links: {direct} direct, {mailbox} mailbox, {message} message",
                self.exchange_us_median
            ),
        );
        row("error", self.error());
        row("range", format!("{min:.3} to {max:.3} {}", self.unit));
        row("check", self.result());
        if let Some(path) = plot {
            row("plot", path.display().to_string());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(mass_change: f64, verdict: Verdict) -> Report {
        Report {
            case: "sphere",
            grid: "cubed:48".to_owned(),
            problem: "rotation",
            unit: "m",
            exact: "the exact solution",
            ranks: 4,
            transport: "shm",
            cells: 13_824,
            days: 12.0,
            steps: 448,
            step_seconds: 2314.3,
            norms: Norms { mass_change, l1: 0.1, l2: 0.2, linf: 0.3, min: -0.5, max: 800.0 },
            seconds: 1.5,
            exchange_us_median: 12.5,
            exchange_share: 0.25,
            links: LinkCounts { direct: 24, mailbox: 0, message: 0 },
            verdict,
        }
    }

    #[test]
    fn the_json_line_has_the_figures() {
        let line = json!(report(2e-16, Verdict::Compared { max_abs_diff: 0.0, different: 0 }));
        assert_eq!((&line["max_abs_diff"], &line["conservation"]), (&json!(0.0), &json!(2e-16)));
        assert_eq!((&line["l2"], &line["grid"]), (&json!(0.2), &json!("cubed:48")));
        assert!(line["unit"].is_null());
    }

    #[test]
    fn the_summary_says_what_is_wrong() {
        let good = report(1e-14, Verdict::Compared { max_abs_diff: 0.0, different: 0 });
        assert!(good.is_good() && good.result().starts_with("mass conserved to 1.0e-14; equal to a run"));
        let lost = report(1e-9, Verdict::Compared { max_abs_diff: 0.0, different: 0 });
        assert!(!lost.is_good() && lost.result().contains("mass CHANGED by 1.0e-9, rounding is 1e-13"));
        let wrong = report(0.0, Verdict::Compared { max_abs_diff: 0.5, different: 3 });
        assert!(!wrong.is_good());
        assert!(
            wrong.to_text(None).contains("DIFFERENT from a run without exchanges in 3 cells, by up to 0.5")
        );
        let skipped = report(0.0, Verdict::Skipped { why: "`--no-check`".to_owned() });
        assert!(skipped.is_good());
        assert_eq!(json!(skipped)["check_skipped"], "`--no-check`");
    }
}
