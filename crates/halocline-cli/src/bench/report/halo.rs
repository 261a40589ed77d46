//! What `halocline bench halo` prints.

use super::super::halo::{Block, Outcome, Row};
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

/// The one object of a row.
fn line(outcome: &Outcome, row: &Row) -> Value {
    let copy = &outcome.rows[0];
    let state = |near| {
        let median = row.median_where(near, |block| block.total);
        median.map(|us| json!({ "us": us, "copy_us": copy.median_where(near, |block| block.total) }))
    };
    let blocks: Vec<Value> = row
        .blocks
        .iter()
        .map(|b| json!({ "us": b.total, "alone_us": b.alone, "round_trip_ns": b.stamp.map(|s| s.round_trip), "cores": b.stamp.map(|s| s.name()) }))
        .collect();
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
        "crowded": outcome.crowded,
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
        "near": state(true),
        "far": state(false),
        "bind_cold_us": row.binds.map(|binds| binds[0]),
        "bind_warm_us": row.binds.map(|binds| binds[1]),
        "pattern_cold_us": outcome.patterns[0],
        "pattern_warm_us": outcome.patterns[1],
        "blocks": blocks,
    })
}

fn text(outcome: &Outcome) -> String {
    if let Some(gpu) = &outcome.gpu {
        return text_of_device(outcome, gpu);
    }
    let copy = &outcome.rows[0];
    let stamps = |near| {
        let blocks = outcome.rows.iter().flat_map(|row| &row.blocks);
        let trips: Vec<f64> =
            blocks.filter_map(|b| b.stamp).filter(|s| s.is_near() == near).map(|s| s.round_trip).collect();
        (trips.len(), super::super::stats::median(&trips))
    };
    let ((near, near_ns), (far, far_ns)) = (stamps(true), stamps(false));
    let mut text = format!(
        "{}\n{} ranks ({}), {} memory, {} bytes of halo a rank, {} of them from others\n",
        outcome.title, outcome.ranks, outcome.transport, outcome.memory, outcome.bytes, outcome.received
    );
    text += &match (near, far) {
        (0, 0) if outcome.crowded => "ranks outnumber cores: no stamps\n".to_owned(),
        (0, 0) => "no cache line between ranks 0 and 1: no stamps\n".to_owned(),
        _ => format!(
            "cores near in {near} blocks (round trip of a cache line {near_ns:.0} ns), far in {far} ({far_ns:.0} ns)\n"
        ),
    };
    text += &format!(
        "pattern made in {} us, again in {} us\n\nus, medians of {} rounds of {} iterations, slowest rank\n",
        figure(outcome.patterns[0]),
        figure(outcome.patterns[1]),
        copy.blocks.len(),
        outcome.iterations
    );
    let header = [
        "",
        "exchange+read",
        "p99",
        "/ copying pass",
        "begin",
        "wait",
        "read",
        "alone",
        "steady",
        "near",
        "far",
        "bind cold",
        "warm",
        "path",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(outcome.rows.iter().map(|row| cells(row, copy)));
    text + &table(&rows)
}

fn text_of_device(outcome: &Outcome, gpu: &str) -> String {
    let copy = &outcome.rows[0];
    let text = format!(
        "{}\n{} ranks ({}) on {gpu}, {} bytes of halo a rank, {} of them from others\n\
         pattern made in {} us, again in {} us\n\n\
         us, medians of {} rounds of {} in a row without the host waiting, slowest rank; alone: the host waits for each\n",
        outcome.title,
        outcome.ranks,
        outcome.transport,
        outcome.bytes,
        outcome.received,
        figure(outcome.patterns[0]),
        figure(outcome.patterns[1]),
        copy.blocks.len(),
        outcome.iterations
    );
    let header = [
        "",
        "in a row",
        "/ device copy",
        "alone",
        "p99",
        "host begin",
        "host wait",
        "bind cold",
        "warm",
        "path",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(outcome.rows.iter().map(|row| {
        let median = |of: fn(&Block) -> f64| figure(row.median(of));
        let bind = |at: usize| row.binds.map_or_else(|| "-".to_owned(), |binds| figure(binds[at]));
        vec![
            row.name.clone(),
            median(|block| block.total),
            figure(row.ratio(copy)),
            median(|block| block.alone),
            figure(row.p99()),
            median(|block| block.begin),
            median(|block| block.wait),
            bind(0),
            bind(1),
            row.path.clone(),
        ]
    }));
    text + &table(&rows)
}

fn cells(row: &Row, copy: &Row) -> Vec<String> {
    let median = |of: fn(&Block) -> f64| figure(row.median(of));
    let state = |near| row.median_where(near, |block| block.total).map_or_else(|| "-".to_owned(), figure);
    let bind = |at: usize| row.binds.map_or_else(|| "-".to_owned(), |binds| figure(binds[at]));
    vec![
        row.name.clone(),
        median(|block| block.total),
        figure(row.p99()),
        figure(row.ratio(copy)),
        median(|block| block.begin),
        median(|block| block.wait),
        median(|block| block.read),
        median(|block| block.alone),
        median(|block| block.steady),
        state(true),
        state(false),
        bind(0),
        bind(1),
        row.path.clone(),
    ]
}
