//! What `halocline bench tune` prints.

use super::super::stats::median;
use super::Outcome;
use super::steps::Step;
use crate::table::{figure, table};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write;

/// Prints what was measured and chosen.
pub(super) fn print(outcome: &Outcome, json: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match json {
        true => writeln!(stdout, "{}", to_json(outcome))?,
        false => stdout.write_all(to_text(outcome).as_bytes())?,
    }
    stdout.flush()
}

pub(super) fn to_json(outcome: &Outcome) -> serde_json::Value {
    let Outcome { machine, before, connection, rounds, found, kept } = outcome;
    let steps = found.steps.iter().map(|step| {
        let tried = step.tried.iter().map(|(candidate, cases)| {
            let cases = step.cases.iter().zip(cases);
            let cases = cases.map(|(case, times)| json!({"case": case.name(), "us": times}));
            json!({"candidate": candidate, "cases": cases.collect::<Vec<_>>()})
        });
        let tried: Vec<_> = tried.collect();
        json!({"value": step.name, "tried": tried, "chosen": step.chosen, "why": step.why})
    });
    let values: serde_json::Value = serde_json::from_str(&machine.write(&found.values)).unwrap_or_default();
    json!({
        "bench": "tune",
        "before": before.origin.to_string(),
        "second_gpu": connection.map(|over| over.to_string()),
        "rounds": rounds,
        "steps": steps.collect::<Vec<_>>(),
        "untried": found.untried.iter().map(|(value, why)| json!({"value": value, "why": why})).collect::<Vec<_>>(),
        "values": values,
        "file": kept,
    })
}

pub(super) fn to_text(outcome: &Outcome) -> String {
    let Outcome { machine, before, connection, rounds, found, kept } = outcome;
    let mut text = format!(
        "{}, {} multiprocessors, driver for CUDA {}\nin force before: {}\n",
        machine.gpu, machine.multiprocessors, machine.driver, before.origin
    );
    // Writing to a String cannot fail.
    let _ = match connection {
        Some(over) => writeln!(text, "a second GPU of this kind is reached over {over}"),
        None => writeln!(text, "no second GPU of this kind is reached"),
    };
    let _ = writeln!(
        text,
        "us an exchange (of beside: a step of one and work beside it), medians of {rounds} rounds; chunk by messages between threads of this process"
    );
    for step in &found.steps {
        let _ = write!(text, "\n{}", table(&rows(step)));
        let _ = writeln!(text, "{}: {} ({})", step.name, step.chosen, step.why);
    }
    if !found.untried.is_empty() {
        let _ = writeln!(text, "\nnot tried, and as before:");
    }
    for (name, why) in &found.untried {
        let _ = writeln!(text, "{name} ({why})");
    }
    let _ = match kept {
        Some(path) => writeln!(text, "\nkept in {}", path.display()),
        None => writeln!(text, "\nnothing is written (--dry-run)"),
    };
    text
}

fn rows(step: &Step) -> Vec<Vec<String>> {
    let header =
        [step.name.to_owned()].into_iter().chain(step.tried.iter().map(|(candidate, _)| candidate.clone()));
    let mut rows = vec![header.collect::<Vec<_>>()];
    for (at, case) in step.cases.iter().enumerate() {
        let times = step
            .tried
            .iter()
            .map(|(_, cases)| cases.get(at).map_or_else(String::new, |times| figure(median(times))));
        rows.push([case.name()].into_iter().chain(times).collect());
    }
    rows
}
