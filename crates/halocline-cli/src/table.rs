//! The output of commands: tables, or JSON lines.

use crate::error::CommandError;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;

/// Prints one JSON object a line, or the text where no lines are given.
pub(crate) fn print_lines(lines: Option<&Vec<Value>>, text: impl FnOnce() -> String) -> std::io::Result<()> {
    let text = match lines {
        Some(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
        None => text(),
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints the report of a run: with `json` one JSON object, otherwise also the text before it.
pub(crate) fn print_report(
    report: &impl Serialize,
    text: impl FnOnce() -> String,
    json: bool,
) -> Result<(), CommandError> {
    let text = if json { String::new() } else { text() };
    let mut stdout = std::io::stdout().lock();
    // As a `Value`, whose keys are sorted.
    let printed = writeln!(stdout, "{text}{}", json!(report)).and_then(|()| stdout.flush());
    printed.map_err(CommandError::Report)
}

/// Rows of cells, the first one the header, as a table: the first column to the left, others to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A number with three significant digits, and all digits before the point.
pub(crate) fn figure(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
