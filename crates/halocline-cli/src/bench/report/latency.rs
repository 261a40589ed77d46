//! The output of `halocline bench latency`.

use super::super::latency::{Point, Series};
use crate::table::{figure, print_lines, table};
use serde_json::{Value, json};

/// Prints the tables, or the lines if they are given.
pub(in super::super) fn print(series: &[Series], lines: Option<&Vec<Value>>) -> std::io::Result<()> {
    print_lines(lines, || series.iter().map(text).collect())
}

/// One object for each size of each transport.
pub(in super::super) fn lines(series: &[Series]) -> Vec<Value> {
    let line = |one: &Series, point: &Point| {
        json!({
            "bench": "latency",
            "transport": one.transport,
            "bytes": point.bytes,
            "message_round_trip_us": point.message,
            "exchange_us": point.exchange,
            "exchange_gb_s": gigabytes(point),
            "cache_line_round_trip_ns": one.round_trip,
        })
    };
    series.iter().flat_map(|one| one.points.iter().map(move |point| line(one, point))).collect()
}

/// Bandwidth of both directions of an exchange together, GB/s.
fn gigabytes(point: &Point) -> f64 {
    2.0 * point.bytes as f64 / point.exchange / 1e3
}

fn text(series: &Series) -> String {
    let trip = series.round_trip.map_or_else(
        || "the ranks share no memory".to_owned(),
        |ns| format!("round trip of a cache line {ns:.0} ns"),
    );
    let header = ["bytes", "message, round trip (us)", "exchange both ways (us)", "GB/s"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(series.points.iter().map(|point| {
        vec![point.bytes.to_string(), figure(point.message), figure(point.exchange), figure(gigabytes(point))]
    }));
    format!("transport {}, 2 ranks, {trip}\n{}\n", series.transport, table(&rows))
}
