//! `halocline plot sizes`: measured times over sizes of messages.

use crate::error::CommandError;
use crate::plot;
use crate::plot::chart::{Chart, Line};
use serde_json::{Deserializer, Value};
use std::path::PathBuf;

/// Draw measured times over message sizes: what `bench latency --save` or the GPU program `rows --json` has written
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SizesArgs {
    /// The data file; the last run in it is drawn
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// The picture (.png or .svg)
    #[arg(value_name = "FILE")]
    picture: PathBuf,
}

/// Draws the last run of the file.
pub(crate) fn run(args: &SizesArgs) -> Result<(), CommandError> {
    plot::check([&args.picture])?;
    let text = std::fs::read_to_string(&args.data).map_err(CommandError::file("read", &args.data))?;
    let chart = chart(&text).map_err(|reason| {
        let path = args.data.display();
        CommandError::failed(format!(
            "{path} has no times over sizes: {reason}; give a file that `bench latency --save` or `rows --json` has written"
        ))
    })?;
    plot::save(&args.picture, &chart)
}

/// The chart of a file, or why the file is invalid.
fn chart(text: &str) -> Result<Chart, String> {
    let values: Result<Vec<Value>, _> = Deserializer::from_str(text).into_iter().collect();
    let values = values.map_err(|error| error.to_string())?;
    let mut chart = Chart { title: String::new(), below: String::new(), lines: Vec::new() };
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    for value in &values {
        if value["command"].is_string() {
            chart = Chart {
                title: text(&value["command"]),
                below: format!(
                    "{}, {}, commit {}; median times in steady state, both ways at once",
                    text(&value["date"]),
                    text(&value["machine"]),
                    text(&value["commit"])
                ),
                lines: Vec::new(),
            };
        }
        if let Some(sizes) = value["sizes"].as_array() {
            chart.title = format!("Exchanges between neighbours on {}", text(&value["gpu"]));
            chart.below = format!(
                "{} ranks ({}), medians of the slowest rank",
                value["ranks"],
                text(&value["transport"])
            );
            if let Some(why) = value["nccl"]["missing"].as_str() {
                chart.below += &format!("; without NCCL: {why}");
            }
            for size in sizes {
                for (name, us) in size["us"].as_object().into_iter().flatten().filter(|(_, us)| !us.is_null())
                {
                    add(&mut chart.lines, &name.replace('_', " "), &size["bytes"], us)?;
                }
            }
        }
        if value["bench"] == "latency" {
            let transport = text(&value["transport"]);
            for (key, name) in
                [("exchange_us", "exchange"), ("message_round_trip_us", "message there and back")]
            {
                add(&mut chart.lines, &format!("{transport}, {name}"), &value["bytes"], &value[key])?;
            }
        }
    }
    if chart.lines.is_empty() { Err("it has no sizes".to_owned()) } else { Ok(chart) }
}

/// Adds a point to the line of this name.
fn add(lines: &mut Vec<Line>, name: &str, bytes: &Value, us: &Value) -> Result<(), String> {
    let positive = |value: &Value| value.as_f64().filter(|&value| value > 0.0 && value.is_finite());
    let bytes = positive(bytes).ok_or_else(|| format!("a size of {bytes} bytes"))?;
    let us = positive(us).ok_or_else(|| format!("{name:?} of {bytes} bytes took {us} us"))?;
    match lines.iter_mut().find(|line| line.name == name) {
        Some(line) => line.points.push((bytes, us)),
        None => lines.push(Line { name: name.to_owned(), points: vec![(bytes, us)] }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows() -> Value {
        json!({
            "what": "rows", "gpu": "a GPU", "ranks": 2, "transport": "shm", "nccl": { "missing": "no such file" },
            "sizes": [
                { "bytes": 8, "us": { "inline": 5.0, "overlapped": 9.0, "stores": 3.0, "copy_engine": 4.0 } },
                { "bytes": 1024, "us": { "inline": 6.0, "overlapped": 9.5, "stores": 3.5, "copy_engine": null } },
            ],
        })
    }

    #[test]
    fn times_of_gpus_become_lines_and_a_missing_contender_is_named() {
        let chart = chart(&rows().to_string()).unwrap();
        let names: Vec<&str> = chart.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["inline", "overlapped", "stores", "copy engine"]);
        assert_eq!(chart.lines[1].points, [(8.0, 9.0), (1024.0, 9.5)]);
        assert_eq!(chart.lines[3].points.len(), 1);
        assert!(chart.below.contains("without NCCL: no such file"), "{}", chart.below);
    }

    #[test]
    fn the_last_run_of_a_saved_file_is_drawn() {
        let head = |date: &str| json!({ "date": date, "machine": "m", "commit": "c", "command": "halocline bench latency" });
        let line = |bytes: u64, us: f64| json!({ "bench": "latency", "transport": "shm", "bytes": bytes, "exchange_us": us, "message_round_trip_us": 7.0 });
        let values = [head("2026-01-01"), line(8, 1.0), head("2026-01-02"), line(8, 2.0), line(16, 3.0)];
        let chart = chart(&values.map(|value| format!("{value}\n")).concat()).unwrap();
        assert!(chart.below.starts_with("2026-01-02, m, commit c"), "{}", chart.below);
        assert_eq!(chart.lines[0].name, "shm, exchange");
        assert_eq!((chart.lines.len(), &chart.lines[0].points[..]), (2, &[(8.0, 2.0), (16.0, 3.0)][..]));
    }

    #[test]
    fn files_without_times_over_sizes_are_refused() {
        let without = |change: fn(&mut Value)| {
            let mut value = rows();
            change(&mut value);
            chart(&value.to_string()).expect_err("it is wrong")
        };
        assert!(chart("{").is_err() && chart("").is_err());
        assert!(without(|value| value["sizes"] = json!([])).contains("no sizes"));
        assert!(without(|value| value["sizes"][0]["us"]["inline"] = json!(0)).contains("inline"));
        assert!(without(|value| value["sizes"][1]["bytes"] = json!("8")).contains("bytes"));
    }
}
