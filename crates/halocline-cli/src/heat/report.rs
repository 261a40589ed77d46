//! The report of a run.

use super::measure::Figures;
use super::verify::Verdict;
use crate::options::Periodic;
use halocline::LinkCounts;
use serde_json::{Value, json};
use std::fmt::Write;

/// The figures of a run.
#[derive(Debug, Clone)]
pub(super) struct Report {
    /// The grid, as on the command line.
    pub(super) grid: String,
    pub(super) cells: usize,
    /// Whether each axis is periodic.
    pub(super) periodic: [bool; 3],
    /// Blocks along each axis.
    pub(super) blocks: Vec<usize>,
    pub(super) halo: usize,
    pub(super) fields: u32,
    pub(super) dtype: String,
    /// Bytes of an element.
    pub(super) element: usize,
    pub(super) ranks: usize,
    pub(super) transport: &'static str,
    /// Where the fields are: `cpu` or `cuda`.
    pub(super) device: &'static str,
    /// The GPUs, by name.
    pub(super) gpu: Option<String>,
    /// Number of CPUs that the ranks may use together.
    pub(super) cpus: usize,
    pub(super) steps: u32,
    pub(super) overlap: bool,
    /// Sum of the links of all ranks.
    pub(super) links: LinkCounts,
    /// Bytes of halo that one exchange fills on all ranks.
    pub(super) bytes: u64,
    /// The part of `bytes` that comes from other ranks.
    pub(super) received: u64,
    /// Time of all steps, s.
    pub(super) seconds: f64,
    /// Medians over the exchanges on the slowest rank, us: begin, interior, wait, rest.
    pub(super) phases: [f64; 4],
    /// The measurements after the run.
    pub(super) figures: Option<Figures>,
    pub(super) verdict: Verdict,
}

impl Report {
    /// Time of a step, us.
    fn step(&self) -> f64 {
        self.seconds * 1e6 / f64::from(self.steps)
    }

    fn cells_per_second(&self) -> f64 {
        self.cells as f64 * f64::from(self.fields) * f64::from(self.steps) / self.seconds.max(1e-9)
    }

    /// Memory traffic of the stencil, if each value is read once and written once, GB/s.
    fn gigabytes(&self) -> f64 {
        self.cells_per_second() * 2.0 * self.element as f64 / 1e9
    }

    /// Whether every rank has a second CPU for its progress thread.
    fn has_free_cores(&self) -> bool {
        self.cpus >= 2 * self.ranks
    }

    fn check(&self) -> String {
        match &self.verdict {
            Verdict::Compared { .. } if self.verdict.is_good() => {
                "equal to the run on one rank to the last bit (max_abs_diff 0.0)".to_owned()
            }
            Verdict::Compared { max_abs_diff, different } => format!(
                "DIFFERENT from the run on one rank in {different} values, by up to {max_abs_diff} (max_abs_diff)"
            ),
            Verdict::Skipped(why) => format!("NOT compared with a run on one rank: {why}"),
        }
    }

    /// The summary.
    pub(super) fn to_text(&self) -> String {
        let LinkCounts { direct, mailbox, message } = self.links;
        let periodic = Periodic::Flags(self.periodic.to_vec());
        let mut text = format!(
            "heat: grid {}, {}, {} {}, halo {}, periodic {periodic}, {} steps\n",
            self.grid,
            self.dtype,
            self.fields,
            if self.fields == 1 { "field" } else { "fields" },
            self.halo,
            self.steps
        );
        // Writing to a string cannot fail.
        let mut row = |name: &str, value: String| _ = writeln!(text, "  {name:<11}{value}");
        let blocks = self.blocks.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        row(
            "ranks",
            format!(
                "{} ({}), blocks {blocks}, on {} CPUs, {} for progress threads",
                self.ranks,
                self.transport,
                self.cpus,
                if self.has_free_cores() { "free cores" } else { "NO free cores" }
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
                self.step(),
                self.cells_per_second() / 1e6,
                self.gigabytes()
            ),
        );
        let [begin, interior, wait, rest] = self.phases;
        row(
            "phases",
            format!(
                "begin {begin:.1}, interior {interior:.1}, wait {wait:.1}, rest {rest:.1} us an exchange{} (medians of the slowest rank)",
                if self.gpu.is_some() { ", in the host's calls, which queue work" } else { "" }
            ),
        );
        match &self.figures {
            None => row("alone", "not measured (`--rounds 0`)".to_owned()),
            Some(f) => {
                row(
                    "alone",
                    format!(
                        "exchange {:.1}, interior {:.1} ({:.1} times the exchange), rest {:.1} us",
                        f.exchange,
                        f.interior,
                        f.interior / f.exchange.max(f64::MIN_POSITIVE),
                        f.rest
                    ),
                );
                let mut text = format!(
                    "{:.1} us an exchange and its steps = {:.2} of the larger of exchange and interior",
                    f.overlapped, f.ratio
                );
                // Writing to a string cannot fail.
                if let Some((time, ratio)) = f.in_flight.zip(f.ratio_in_flight) {
                    let _ = write!(text, "; until the halo is filled {time:.1} us = {ratio:.2}");
                }
                if let Some((time, ratio)) = f.kernels.zip(f.ratio_to_kernels) {
                    let _ = write!(text, " = {ratio:.2} of the kernels alone, {time:.1} us");
                }
                row("overlapped", format!("{text}; in turn {:.1} us", f.in_turn));
            }
        }
        row("check", self.check());
        text
    }

    /// One object.
    pub(super) fn to_json(&self) -> Value {
        let LinkCounts { direct, mailbox, message } = self.links;
        let [begin, interior, wait, rest] = self.phases;
        let (max_abs_diff, different, skipped) = match &self.verdict {
            Verdict::Compared { max_abs_diff, different } => (Some(*max_abs_diff), Some(*different), None),
            Verdict::Skipped(why) => (None, None, Some(why)),
        };
        json!({
            "case": "heat",
            "grid": self.grid,
            "periodic": self.periodic,
            "blocks": self.blocks,
            "halo": self.halo,
            "fields": self.fields,
            "dtype": self.dtype,
            "ranks": self.ranks,
            "transport": self.transport,
            "device": self.device,
            "gpu": self.gpu,
            "cpus": self.cpus,
            "free_cores": self.has_free_cores(),
            "steps": self.steps,
            "overlap": self.overlap,
            "links": { "direct": direct, "mailbox": mailbox, "message": message },
            "bytes": self.bytes,
            "bytes_received": self.received,
            "max_abs_diff": max_abs_diff,
            "different": different,
            "check_skipped": skipped,
            "seconds": self.seconds,
            "step_us": self.step(),
            "cells_per_second": self.cells_per_second(),
            "gb_per_second": self.gigabytes(),
            "in_run_us": { "begin": begin, "interior": interior, "wait": wait, "rest": rest },
            "measured": self.figures.map(|f| json!({
                "exchange_us": f.exchange,
                "interior_us": f.interior,
                "rest_us": f.rest,
                "overlapped_us": f.overlapped,
                "in_flight_us": f.in_flight,
                "in_turn_us": f.in_turn,
                "ratio": f.ratio,
                "ratio_in_flight": f.ratio_in_flight,
                "kernels_us": f.kernels,
                "ratio_to_kernels": f.ratio_to_kernels,
            })),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdict: Verdict) -> Report {
        Report {
            grid: "8x8x8".to_owned(),
            cells: 512,
            periodic: [true, false, true],
            blocks: vec![2, 1, 1],
            halo: 1,
            fields: 2,
            dtype: "f64".to_owned(),
            element: 8,
            ranks: 2,
            transport: "thread",
            device: "cpu",
            gpu: None,
            cpus: 2,
            steps: 10,
            overlap: true,
            links: LinkCounts { direct: 4, mailbox: 0, message: 0 },
            bytes: 4096,
            received: 2048,
            seconds: 0.5,
            phases: [1.0, 2.0, 3.0, 4.0],
            figures: None,
            verdict,
        }
    }

    #[test]
    fn the_figures_follow_from_the_run() {
        let line = report(Verdict::Compared { max_abs_diff: 0.0, different: 0 }).to_json();
        assert_eq!(line["step_us"], 50_000.0);
        assert_eq!(line["cells_per_second"], 512.0 * 2.0 * 10.0 / 0.5);
        assert_eq!(line["free_cores"], false);
        assert_eq!(line["max_abs_diff"], 0.0);
    }

    #[test]
    fn differences_and_a_skipped_comparison_are_reported() {
        let wrong = report(Verdict::Compared { max_abs_diff: f64::INFINITY, different: 3 });
        assert!(wrong.to_text().contains("DIFFERENT from the run on one rank in 3 values"));
        assert!(wrong.to_json()["max_abs_diff"].is_null());
        let skipped = report(Verdict::Skipped("no memory".to_owned()));
        assert!(skipped.to_text().contains("NOT compared with a run on one rank: no memory"));
        assert_eq!(skipped.to_json()["check_skipped"], "no memory");
    }
}
