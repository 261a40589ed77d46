//! The report of a run.

use super::verify::ROUNDING;
use crate::info::plural;
use crate::ranks::LinksAsJson;
use halocline::LinkCounts;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The figures of a run, as the JSON line names them.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `ocean`.
    pub case: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Name of the transport.
    pub transport: &'static str,
    /// Where the fields are: `cpu` or `cuda`.
    pub device: &'static str,
    /// The GPUs, by name.
    #[serde(skip)]
    pub gpu: Option<String>,
    /// Node cells above the bottom, over all layers.
    pub cells: usize,
    /// Triangles of one layer.
    #[serde(skip)]
    pub triangles: usize,
    /// Time steps.
    pub steps: u32,
    /// Length of a step, s.
    #[serde(skip)]
    pub step: f64,
    /// Largest difference from the run on one rank, K.
    pub max_abs_diff: f64,
    /// Relative change of the heat content.
    pub conservation: f64,
    /// Time of all steps on the slowest rank, s.
    pub seconds: f64,
    /// Median over the steps of the time in a step's two exchanges, on the slowest rank, us.
    pub exchange_us_median: f64,
    /// Share of the time that all ranks spend in exchanges.
    pub exchange_share: f64,
    /// Links of all bound exchanges of all ranks.
    #[serde(with = "LinksAsJson")]
    pub links: LinkCounts,
}

impl Report {
    /// The simulated time, in words.
    pub fn span(&self) -> String {
        span(self.step * f64::from(self.steps))
    }

    /// Ranks and steps, in words.
    pub fn headline(&self) -> String {
        let (ranks, transport) = (plural(self.ranks, "rank"), self.transport);
        let (steps, step) = (plural(self.steps as usize, "step"), span(self.step));
        format!("{ranks} ({transport}), {steps} of {step} = {}", self.span())
    }

    /// The result of the comparison, in words.
    pub fn verdict(&self) -> String {
        let equal = if self.max_abs_diff == 0.0 {
            "equal to the run on one rank to the last bit".to_owned()
        } else {
            format!("DIFFERENT from the run on one rank by up to {} K", self.max_abs_diff)
        };
        if self.conservation <= ROUNDING {
            format!("{equal}, heat content conserved to {:.1e}", self.conservation)
        } else {
            format!("{equal}, heat content CHANGED by {:.1e}, rounding is {ROUNDING:.0e}", self.conservation)
        }
    }

    /// The summary for people.
    pub fn to_text(&self, plot: Option<&Path>) -> String {
        let LinkCounts { direct, mailbox, message } = self.links;
        let mut text = format!("ocean: {}\n", self.headline());
        // Writing to a string cannot fail.
        if let Some(gpu) = &self.gpu {
            let _ = writeln!(text, "  device    {gpu}");
        }
        let _ = writeln!(text, "  mesh      {} triangles, {} wet cells", self.triangles, self.cells);
        // On a GPU the host does not wait: it measures its calls only.
        let (in_exchanges, exchange) = match self.gpu {
            Some(_) => ("in the host's calls of exchanges", "of the host's calls a step (median)"),
            None => ("in exchanges", "a step (median)"),
        };
        let (seconds, share) = (self.seconds, 100.0 * self.exchange_share);
        let _ = writeln!(text, "  time      {seconds:.3} s, {share:.1} % of it {in_exchanges}");
        let _ = writeln!(
            text,
            "  exchange  {:.1} us {exchange}, links: {direct} direct, {mailbox} mailbox, {message} message",
            self.exchange_us_median
        );
        let _ = writeln!(text, "  check     {}", self.verdict());
        if let Some(path) = plot {
            let _ = writeln!(text, "  plot      {}", path.display());
        }
        text
    }
}

fn span(seconds: f64) -> String {
    match seconds / 3600.0 {
        _ if seconds < 120.0 => format!("{seconds:.3} s"),
        hours if hours < 2.0 => format!("{:.0} minutes", 60.0 * hours),
        hours if hours < 72.0 => format!("{hours:.1} hours"),
        hours => format!("{:.0} days", hours / 24.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn report() -> Report {
        Report {
            case: "ocean",
            ranks: 4,
            transport: "shm",
            device: "cpu",
            gpu: None,
            cells: 100,
            triangles: 20,
            steps: 200,
            step: 43_200.0,
            max_abs_diff: 0.0,
            conservation: 1.5e-16,
            seconds: 1.25,
            exchange_us_median: 12.5,
            exchange_share: 0.125,
            links: LinkCounts { direct: 6, mailbox: 1, message: 0 },
        }
    }

    #[test]
    fn the_json_line_is_as_documented() {
        let expected = r#"{"case":"ocean","ranks":4,"transport":"shm","device":"cpu","cells":100,"steps":200,"max_abs_diff":0.0,"conservation":1.5e-16,"seconds":1.25,"exchange_us_median":12.5,"exchange_share":0.125,"links":{"direct":6,"mailbox":1,"message":0}}"#;
        let line = json!(report()).to_string();
        assert_eq!(line.parse::<Value>().unwrap(), expected.parse::<Value>().unwrap());
        // Programs look for it as text.
        assert!(line.contains(r#""max_abs_diff":0.0,"#), "{line}");
        // JSON has no infinity.
        assert!(json!(Report { max_abs_diff: f64::INFINITY, ..report() })["max_abs_diff"].is_null());
    }

    #[test]
    fn the_summary_says_when_the_check_failed() {
        assert!(report().to_text(None).contains("equal to the run on one rank"));
        let text = Report { max_abs_diff: 0.5, ..report() }.to_text(None);
        assert!(text.contains("DIFFERENT from the run on one rank by up to 0.5 K"), "{text}");
    }
}
