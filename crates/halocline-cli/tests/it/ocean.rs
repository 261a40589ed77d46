//! `halocline run ocean` as its users meet it: the result, the picture, and what is said of bad input.

use crate::case::{Case, links};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OCEAN: Case = Case("ocean");

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/fesom-pi")
}

#[test]
fn ranks_of_either_transport_give_the_result_of_one_rank() {
    let directory = tempfile::tempdir().unwrap();
    // `tools/test --all` runs every number of ranks, optimised.
    for (transport, ranks) in [("thread", 3), ("shm", 1), ("shm", 4)] {
        let args = format!("--ranks {ranks} --transport {transport} --steps 6 --no-plot --json");
        let report = OCEAN.report(directory.path(), &args);
        assert_eq!(report["max_abs_diff"], 0.0, "{args}");
        assert!(report["conservation"].as_f64().unwrap() < 1e-15, "{args}");
        assert_eq!(report["ranks"], ranks);
        assert_eq!(report["transport"], transport);
        assert_eq!(links(&report) > 0, ranks > 1, "{args}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no plot was asked for");
}

#[test]
fn the_picture_is_drawn_and_the_summary_precedes_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let output = OCEAN.run(directory.path(), "--ranks 3 --steps 2 --plot map.png");
    assert!(output.status.success());
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].starts_with("ocean: 3 ranks (shm), 2 steps of "), "{stdout}");
    let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!((&last["case"], &last["ranks"]), (&Value::from("ocean"), &Value::from(3)), "{stdout}");
    let picture = std::fs::read(directory.path().join("map.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 100_000, "{} bytes", picture.len());
}

#[test]
fn a_job_that_was_launched_runs_the_case() {
    let halocline = env!("CARGO_BIN_EXE_halocline");
    let launch = |args: &[&str]| {
        let mut command = Command::new(halocline);
        command.args(["launch", "-n", "2", "--no-prefix", "--", halocline, "run", "ocean", "--no-plot"]);
        command.args(args).stdin(Stdio::null()).output().unwrap()
    };
    let output = launch(&["--steps", "2", "--json"]);
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ranks"], &report["max_abs_diff"]), (&Value::from(2), &Value::from(0.0)));

    let output = launch(&["--ranks", "3"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("`--ranks 3`, but the job was launched with 2 ranks"), "{stderr}");
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    for (args, code, message) in [
        ("--ranks 0", 2, "0 ranks; give at least one"),
        ("--ranks 3141", 2, "3141 ranks for the 3140 nodes of the model's mesh"),
        ("--plot map.jpg", 2, "it is a PNG image; give a name that ends in .png"),
        ("--plot nowhere/map.png", 1, "cannot write the plot to nowhere/map.png: "),
        ("--data nowhere", 1, "cannot read nowhere/nod2d.out: "),
        ("--steps 0", 2, "invalid value '0' for '--steps <S>'"),
    ] {
        let error = OCEAN.refusal(directory.path(), args, code);
        assert!(error.contains(message), "{args}: {error}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_damaged_file_is_named_with_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let copy = |name: &str| std::fs::copy(data().join(name), directory.path().join(name)).unwrap();
    let names =
        std::fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.for_each(|name| _ = copy(&name));
    assert_eq!(OCEAN.report(directory.path(), "--data . --ranks 2 --steps 1 --no-plot")["max_abs_diff"], 0.0);

    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>), message: &str| {
        let mut bytes = std::fs::read(data().join(name)).unwrap();
        change(&mut bytes);
        std::fs::write(directory.path().join(name), bytes).unwrap();
        let error = OCEAN.refusal(directory.path(), "--data . --no-plot", 1);
        assert!(
            error.starts_with(&format!("halocline: error: {name}")) && error.contains(message),
            "{error}"
        );
        copy(name);
    };
    damage("elem2d.out", &|bytes| bytes.truncate(40_000), "is cut short: it ends in line ");
    damage(
        "elem2d.out",
        &|bytes| bytes[20..26].copy_from_slice(b"  9999"),
        "expected a node of a triangle, ",
    );
    damage(
        "nod2d.out",
        &|bytes| bytes[18..21].copy_from_slice(b"2x9"),
        "line 2: found \"2x9.3988166\", expected ",
    );
    damage(
        "temp.npy",
        &|bytes| bytes.truncate(5000),
        "byte 128: found 4872 bytes of data, expected 590320 bytes",
    );
    damage("v.npy", &|bytes| bytes[0] = b'N', "byte 0: found \"NNUMPY\", expected the magic bytes");
    let first = |value: f32| move |bytes: &mut Vec<u8>| bytes[128..132].copy_from_slice(&value.to_le_bytes());
    damage(
        "u.npy",
        &first(3e38),
        "byte 128: found 3e38 in layer 1 of triangle 1, expected a velocity to the east from -100 to 100 m/s",
    );
    damage(
        "temp.npy",
        &first(-3e38),
        "found -3e38 in layer 1 of node 1, expected a temperature from -100 to 1000 deg C",
    );
}

/// `| true` and `| head` are no errors: quiet, and the code that SIGPIPE gives to other programs.
#[test]
fn a_reader_that_is_gone_is_no_news() {
    let directory = tempfile::tempdir().unwrap();
    for transport in ["thread", "shm"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
        let args = ["run", "ocean", "--ranks", "2", "--steps", "1", "--no-plot", "--transport", transport];
        command.args(args).current_dir(directory.path()).stdin(Stdio::null()).stdout(writer);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{transport}");
        assert_eq!(output.status.code(), Some(128 + 13), "{transport}");
    }
}

#[test]
fn without_a_gpu_that_is_said_with_what_was_tried_and_with_one_the_result_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for transport in ["thread", "shm"] {
        let args = format!("--device cuda --transport {transport} --ranks 2 --steps 5 --no-plot --json");
        let output = OCEAN.run(directory.path(), &args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        if stderr.contains("`--device cuda` needs a GPU") {
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(output.stdout.is_empty() && stderr.contains("leave `--device` out"), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "said once: {stderr}");
            continue;
        }
        assert!(output.status.success(), "{stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["max_abs_diff"], &report["device"]), (&Value::from(0.0), &Value::from("cuda")));
    }
}
