//! `halocline plot rows`: the time of an exchange between GPUs over its size, as the program `gpu_rows` of
//! `halocline-conformance` has measured it (`gpu/two`), wherever the picture is drawn.

use crate::plot::chart::{COLOURS, Chart, Line};
use crate::plot::{self, INK, PlotError};
use plotters::style::Color;
use serde_json::Value;
use std::path::PathBuf;

/// Draw the time of an exchange between GPUs over its size, beside NCCL and what the links carry at most
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RowsArgs {
    /// What `rows --json` has written (docs/internals/device-engine.md)
    #[arg(value_name = "ROWS.json")]
    rows: PathBuf,
    /// The picture (.png or .svg)
    #[arg(value_name = "FILE")]
    picture: PathBuf,
}

/// Measurements that cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowsError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It holds something else.
    #[error("{} has no sizes of exchanges: {reason}; give a file that `rows --json` has written", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The picture cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// Draws what is asked for.
pub(crate) fn run(args: &RowsArgs) -> Result<(), RowsError> {
    plot::check([&args.picture])?;
    let path = || args.rows.clone();
    let text =
        std::fs::read_to_string(&args.rows).map_err(|source| RowsError::File { path: path(), source })?;
    let chart = chart(&text).map_err(|reason| RowsError::Content { path: path(), reason })?;
    Ok(plot::save(&args.picture, &chart)?)
}

/// Lines by their names in the file, two of a kind; the last two are limits.
const LINES: [[(&str, &str); 2]; 3] = [
    [("inline", "halocline, inline"), ("overlapped", "halocline, overlapped")],
    [("nccl_graph", "NCCL in a graph"), ("nccl_eager", "NCCL")],
    [("stores", "plain stores"), ("copy_engine", "copy engine")],
];

/// What to draw, or what is wrong with the file.
fn chart(text: &str) -> Result<Chart, String> {
    let whole: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let word = |name: &str| whole[name].as_str().ok_or_else(|| format!("{name:?} is no text"));
    if word("what")? != "rows" {
        return Err(format!("\"what\" is {:?}", whole["what"]));
    }
    let sizes = whole["sizes"].as_array().ok_or("\"sizes\" is no list")?;
    let positive = |value: &Value| value.as_f64().filter(|&value| value > 0.0 && value.is_finite());
    let mut lines = Vec::new();
    for (kind, colour) in LINES.iter().zip([COLOURS[0], COLOURS[1], INK]) {
        for (&(key, name), width) in kind.iter().zip([3, 1]) {
            let mut points = Vec::new();
            for size in sizes {
                let bytes = positive(&size["bytes"]).ok_or("a size without \"bytes\"")?;
                if !size["us"][key].is_null() {
                    let us = positive(&size["us"][key]);
                    points.push((bytes, us.ok_or_else(|| format!("{key:?} of {bytes} bytes is no time"))?));
                }
            }
            let most = points.last().map_or(0.0, |(bytes, us)| bytes / us / 1e3);
            lines.push(Line {
                name: format!("{name}, {most:.0} GB/s"),
                style: if colour == INK {
                    colour.mix(0.6).stroke_width(width.min(2))
                } else {
                    colour.stroke_width(width)
                },
                points,
            });
        }
    }
    lines.retain(|line| !line.points.is_empty());
    if lines.is_empty() {
        return Err("there are none".to_owned());
    }
    let nccl = match &whole["nccl"]["version"] {
        Value::String(version) => format!("NCCL {version}"),
        _ => format!("without NCCL: {}", whole["nccl"]["missing"].as_str().unwrap_or("not measured")),
    };
    let ranks = whole["ranks"].as_u64().ok_or("\"ranks\" is no number")?;
    Ok(Chart {
        title: format!("Exchanges between neighbours on {}", word("gpu")?),
        below: format!(
            "{ranks} ranks ({}), both ways at once, many in a row, medians of the slowest rank; GB/s a direction, of the largest; {nccl}",
            word("transport")?
        ),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn measured() -> Value {
        json!({
            "what": "rows", "gpu": "a GPU", "ranks": 2, "transport": "shm", "nccl": { "missing": "no such file" },
            "sizes": [
                { "bytes": 8, "us": { "inline": 5.0, "overlapped": 9.0, "stores": 3.0, "copy_engine": 4.0 } },
                { "bytes": 1024, "us": { "inline": 6.0, "overlapped": 9.5, "stores": 3.5, "copy_engine": 4.5 } },
            ],
        })
    }

    #[test]
    fn what_was_measured_becomes_lines_and_what_is_missing_is_said() {
        let chart = chart(&measured().to_string()).unwrap();
        let names: Vec<&str> = chart.lines.iter().map(|line| line.name.as_str()).collect();
        let expected = ["halocline, inline, 0 GB/s", "halocline, overlapped, 0 GB/s"];
        assert_eq!((&names[..2], names.len()), (&expected[..], 4), "{names:?}");
        assert_eq!(chart.lines[1].points, [(8.0, 9.0), (1024.0, 9.5)]);
        assert!(chart.below.contains("without NCCL: no such file"), "{}", chart.below);
    }

    #[test]
    fn files_of_something_else_are_refused() {
        let without = |change: fn(&mut Value)| {
            let mut value = measured();
            change(&mut value);
            chart(&value.to_string()).expect_err("it is wrong")
        };
        assert!(chart("{").is_err());
        assert!(without(|value| value["what"] = json!("trace")).contains("trace"));
        assert!(without(|value| value["sizes"] = json!([])).contains("none"));
        assert!(without(|value| value["sizes"][0]["us"]["inline"] = json!(0)).contains("inline"));
        assert!(without(|value| value["sizes"][1]["bytes"] = json!("8")).contains("bytes"));
    }
}
