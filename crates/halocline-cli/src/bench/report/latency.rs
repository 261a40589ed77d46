//! What `halocline bench latency` prints.

use super::super::latency::{Point, Series};
use crate::table::{figure, table};
use serde_json::json;
use std::io::Write;

/// Prints the series.
pub(in super::super) fn print(series: &[Series], json: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if json {
        for one in series {
            for point in &one.points {
                let line = json!({
                    "bench": "latency",
                    "transport": one.transport,
                    "bytes": point.bytes,
                    "message_round_trip_us": point.message,
                    "exchange_us": point.exchange,
                    "exchange_gb_s": gigabytes(point),
                    "cache_line_round_trip_ns": one.round_trip,
                });
                writeln!(stdout, "{line}")?;
            }
        }
    } else {
        for one in series {
            stdout.write_all(text(one).as_bytes())?;
        }
    }
    stdout.flush()
}

/// What both directions of an exchange carry, GB/s.
fn gigabytes(point: &Point) -> f64 {
    2.0 * point.bytes as f64 / point.exchange / 1e3
}

fn text(series: &Series) -> String {
    let trip = series.round_trip.map_or_else(
        || "no cache line between the two ranks".to_owned(),
        |ns| format!("round trip of a cache line {ns:.0} ns"),
    );
    let header = ["bytes", "message, round trip (us)", "exchange both ways (us)", "GB/s"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(series.points.iter().map(|point| {
        vec![point.bytes.to_string(), figure(point.message), figure(point.exchange), figure(gigabytes(point))]
    }));
    format!("transport {}, 2 ranks, {trip}\n{}\n", series.transport, table(&rows))
}
