//! The output of `halocline bench halo`.

use super::super::halo::{Block, Outcome, Row};
use crate::stats::median;
use crate::table::{figure, print_lines, table};
use serde_json::{Value, json};

/// Prints the table, or the lines if they are given.
pub(in super::super) fn print(outcome: &Outcome, lines: Option<&Vec<Value>>) -> std::io::Result<()> {
    print_lines(lines, || text(outcome))
}

/// One object for each row.
pub(in super::super) fn lines(outcome: &Outcome) -> Vec<Value> {
    outcome.rows.iter().map(|row| line(outcome, row)).collect()
}

fn line(outcome: &Outcome, row: &Row) -> Value {
    let copy = &outcome.rows[0];
    let block = |block: &Block| json!({ "us": block.total, "alone_us": block.alone, "round_trip_ns": block.round_trip });
    json!({
        "bench": "halo",
        "case": outcome.title,
        "row": row.name,
        "path": row.path,
        "transport": outcome.transport,
        "device": outcome.device,
        "gpu": outcome.gpu,
        "memory": outcome.memory,
        "ranks": outcome.ranks,
        "oversubscribed": outcome.oversubscribed,
        "bytes": outcome.bytes,
        "bytes_received": outcome.received,
        "iterations": outcome.iterations,
        "rounds": row.blocks.len(),
        "us": row.median(|block| block.total),
        "p99_us": row.p99(),
        "begin_us": row.median(|block| block.begin),
        "wait_us": row.median(|block| block.wait),
        "read_us": row.median(|block| block.read),
        "alone_us": row.median(|block| block.alone),
        "steady_us": row.median(|block| block.steady),
        "copy_us": copy.median(|block| block.total),
        "ratio_to_copy": row.ratio(copy),
        "bind_cold_us": row.binds.map(|binds| binds[0]),
        "bind_warm_us": row.binds.map(|binds| binds[1]),
        "pattern_cold_us": outcome.patterns[0],
        "pattern_warm_us": outcome.patterns[1],
        "blocks": row.blocks.iter().map(block).collect::<Vec<_>>(),
    })
}

/// The title of a column, and its cell from a row and the reference row.
type Column = (&'static str, fn(&Row, &Row) -> String);

const ON_HOST: [Column; 12] = [
    ("", |row, _| row.name.clone()),
    ("exchange+read", |row, _| figure(row.median(|block| block.total))),
    ("p99", |row, _| figure(row.p99())),
    ("/ copying pass", |row, copy| figure(row.ratio(copy))),
    ("begin", |row, _| figure(row.median(|block| block.begin))),
    ("wait", |row, _| figure(row.median(|block| block.wait))),
    ("read", |row, _| figure(row.median(|block| block.read))),
    ("alone", |row, _| figure(row.median(|block| block.alone))),
    ("steady", |row, _| figure(row.median(|block| block.steady))),
    ("bind cold", |row, _| bind(row, 0)),
    ("warm", |row, _| bind(row, 1)),
    ("path", |row, _| row.path.clone()),
];

const ON_DEVICE: [Column; 10] = [
    ("", |row, _| row.name.clone()),
    ("in a row", |row, _| figure(row.median(|block| block.total))),
    ("/ device copy", |row, copy| figure(row.ratio(copy))),
    ("alone", |row, _| figure(row.median(|block| block.alone))),
    ("p99", |row, _| figure(row.p99())),
    ("host begin", |row, _| figure(row.median(|block| block.begin))),
    ("host wait", |row, _| figure(row.median(|block| block.wait))),
    ("bind cold", |row, _| bind(row, 0)),
    ("warm", |row, _| bind(row, 1)),
    ("path", |row, _| row.path.clone()),
];

fn bind(row: &Row, at: usize) -> String {
    row.binds.map_or_else(|| "-".to_owned(), |binds| figure(binds[at]))
}

fn text(outcome: &Outcome) -> String {
    let rounds = outcome.rows[0].blocks.len();
    let (place, columns, how): (_, &[Column], _) = match &outcome.gpu {
        Some(gpu) => (
            format!("on {gpu}"),
            &ON_DEVICE,
            "in a row without the host waiting, slowest rank; alone: the host waits for each",
        ),
        None => (format!("{} memory", outcome.memory), &ON_HOST, "iterations, slowest rank"),
    };
    let copy = &outcome.rows[0];
    let mut rows = vec![columns.iter().map(|(title, _)| (*title).to_owned()).collect::<Vec<_>>()];
    rows.extend(outcome.rows.iter().map(|row| columns.iter().map(|(_, cell)| cell(row, copy)).collect()));
    format!(
        "{}\n{} ranks ({}), {place}, {} bytes of halo a rank, {} of them from other ranks\n{}\
         pattern made in {} us, again in {} us\n\nus, medians of {rounds} rounds of {} {how}\n{}",
        outcome.title,
        outcome.ranks,
        outcome.transport,
        outcome.bytes,
        outcome.received,
        cores(outcome),
        figure(outcome.patterns[0]),
        figure(outcome.patterns[1]),
        outcome.iterations,
        table(&rows)
    )
}

/// How far the cores of ranks 0 and 1 are from each other.
fn cores(outcome: &Outcome) -> String {
    let blocks = outcome.rows.iter().flat_map(|row| &row.blocks);
    let trips: Vec<f64> = blocks.filter_map(|block| block.round_trip).collect();
    match trips[..] {
        _ if outcome.gpu.is_some() => String::new(),
        [] if outcome.oversubscribed => "ranks outnumber cores\n".to_owned(),
        [] => String::new(),
        _ => format!("round trip of a cache line between ranks 0 and 1: {:.0} ns\n", median(&trips)),
    }
}
