//! `--trace` as its users meet it: a file that Perfetto opens, with what every rank did.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(directory: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.args(args.split_whitespace());
    command.current_dir(directory).stdin(Stdio::null()).output().unwrap()
}

/// The events of a run that must succeed and leave nothing but its trace.
fn events(args: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let output = run(directory.path(), &format!("{args} --trace trace.json"));
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["trace.json"], "{args}");
    let text = std::fs::read(directory.path().join("trace.json")).unwrap();
    let mut trace: Value = serde_json::from_slice(&text).unwrap();
    let about = &trace["otherData"];
    assert!(about["clock"].is_string() && about["events_left_out"] == 0, "{about}");
    match trace["traceEvents"].take() {
        Value::Array(events) => events,
        other => panic!("no events: {other}"),
    }
}

fn rank(event: &Value) -> u64 {
    event["pid"].as_u64().unwrap()
}

/// A span: when it begins and ends, us.
fn span(event: &Value) -> (f64, f64) {
    let begin = event["ts"].as_f64().unwrap();
    (begin, begin + event["dur"].as_f64().unwrap())
}

#[test]
fn every_rank_and_phase_of_an_ocean_is_on_one_timeline() {
    const STEPS: u64 = 5;
    for transport in ["thread", "shm"] {
        let args = format!("run ocean --ranks 3 --transport {transport} --steps {STEPS} --no-plot");
        let events = events(&args);
        let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
        let names: BTreeSet<(u64, &str)> = of("M")
            .filter(|event| event["name"] == "process_name")
            .map(|event| (rank(event), event["args"]["name"].as_str().unwrap()))
            .collect();
        assert_eq!(names, BTreeSet::from([(0, "rank 0"), (1, "rank 1"), (2, "rank 2")]), "{args}");

        let mut spans: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for event in of("X") {
            assert!(event["dur"].as_f64().unwrap() >= 0.0 && event["tid"].is_u64(), "{event}");
            spans.entry(event["name"].as_str().unwrap()).or_default().insert(rank(event));
        }
        for name in ["bind", "exchange"] {
            assert_eq!(spans.get(name).map_or(0, BTreeSet::len), 3, "{args}: {name} of {spans:?}");
        }
        // Each exchange is begun and over once on every rank: two a step, and the first.
        for over in ["b", "e"] {
            let flights: BTreeSet<_> =
                of(over).map(|event| (rank(event), event["id"].as_str().unwrap())).collect();
            let flights: Vec<u64> = flights.into_iter().map(|(rank, _)| rank).collect();
            for wanted in 0..3 {
                let count = flights.iter().filter(|&&rank| rank == wanted).count() as u64;
                assert!(count > 2 * STEPS, "{args}: rank {wanted} has {count} exchanges ({over})");
            }
        }
        // Each event that moves data names the other rank and the number of bytes.
        let moves: Vec<&Value> = of("X")
            .filter(|event| ["copy", "pack", "unpack"].iter().any(|name| event["name"] == *name))
            .collect();
        for event in &moves {
            assert!(event["args"]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{event}");
            let peer = event["args"]["peer"].as_u64().unwrap();
            assert!(peer < 3 && peer != rank(event), "{event}");
            assert!(event["args"]["epoch"].is_u64() && event["args"]["path"].is_string(), "{event}");
        }
        assert!(!moves.is_empty(), "{args}");
    }
}

/// The clocks are one: what arrives was sent before.
#[test]
fn nothing_is_unpacked_before_it_was_packed() {
    let events = events("bench halo --grid 16x16x16 --ranks 2 --link mailbox --iters 5 --rounds 1");
    let named = |name: &'static str| {
        let events = events.iter().filter(move |event| event["ph"] == "X" && event["name"] == name);
        events.map(move |event| {
            let (mine, peer) = (rank(event), event["args"]["peer"].as_u64().unwrap());
            let ends = if name == "pack" { (mine, peer) } else { (peer, mine) };
            (
                (event["args"]["object"].to_string(), event["args"]["epoch"].as_u64().unwrap(), ends),
                span(event),
            )
        })
    };
    let packs: BTreeMap<_, _> = named("pack").collect();
    let mut met = 0;
    for (what, (begin, _)) in named("unpack") {
        let (_, end) = packs.get(&what).unwrap_or_else(|| panic!("{what:?} was never packed"));
        assert!(*end <= begin + 0.002, "{what:?} was unpacked at {begin}, packed until {end}");
        met += 1;
    }
    assert!(met > 10, "{met} messages");
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_else() {
    let directory = tempfile::tempdir().unwrap();
    for args in [
        "run ocean --ranks 2 --steps 1 --no-plot --trace none/t.json",
        "run ocean --ranks 2 --steps 1 --no-plot --transport thread --trace none/t.json",
        "run heat --ranks 2 --grid 8x8x8 --steps 1 --trace none/t.json",
        "bench halo --ranks 2 --trace none/t.json",
    ] {
        let output = run(directory.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args}");
        assert!(output.stdout.is_empty(), "{args}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let expected = "halocline: error: cannot write the trace to none/t.json: No such file or directory";
        assert!(stderr.starts_with(expected) && stderr.lines().count() == 1, "{args}: {stderr}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// What a run has found is worth more than its files.
#[test]
fn a_file_that_fails_at_its_end_leaves_the_result() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("full.png")).unwrap();
    let traced = ("--trace /dev/full", "write the trace to /dev/full");
    let plotted = ("--plot full.png", "write the plot to full.png");
    for (run_of, (failing, what), transports) in [
        ("run ocean --steps 1 --no-plot", traced, &["shm", "thread"][..]),
        ("run ocean --steps 1", plotted, &["thread"]),
        ("run heat --grid 12x8x8 --steps 2 --rounds 1", traced, &["shm", "thread"]),
        ("bench halo --grid 8x8x8 --iters 5 --rounds 1", traced, &["shm", "thread"]),
    ] {
        for transport in transports {
            let args = format!("{run_of} --ranks 2 --transport {transport} --json {failing}");
            let output = run(directory.path(), &args);
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{args}: {stderr}");
            // The launcher says besides which rank it was.
            let errors: Vec<&str> = stderr.lines().filter(|line| line.contains("error: ")).collect();
            let expected = format!("halocline: error: cannot {what}");
            assert!(errors.len() == 1 && errors[0].starts_with(&expected), "{args}: {stderr}");
            let stdout = String::from_utf8(output.stdout).unwrap();
            let last = stdout.lines().last().unwrap_or_default();
            let report: Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{args}: {e}: {last}"));
            assert!(report.is_object(), "{args}: {report}");
        }
    }
}

#[test]
fn every_rank_and_phase_of_a_rolling_window_is_on_one_timeline() {
    for transport in ["thread", "shm"] {
        let args = format!("run rolling --ranks 3 --transport {transport} --no-plot --no-check");
        let mut spans: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for event in events(&args).iter().filter(|event| event["ph"] == "X") {
            spans.entry(event["name"].as_str().unwrap().to_owned()).or_default().insert(rank(event));
        }
        for name in ["read", "check order", "exchange rows", "aggregate"] {
            assert_eq!(spans.get(name), Some(&BTreeSet::from([0, 1, 2])), "{args}: {name} in {spans:?}");
        }
    }
}
