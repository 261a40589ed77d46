//! `halocline bench` from outside: small cases, verified, and lines that programs can read.

use serde_json::Value;
use std::process::{Command, Output};

fn halocline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_halocline")).args(args).output().unwrap()
}

fn lines(args: &[&str]) -> Vec<Value> {
    let output = halocline(args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Options that make a case short.
const SHORT: [&str; 5] = ["--iters", "3", "--rounds", "2", "--json"];

#[test]
fn a_grid_is_measured_by_every_link_over_threads_and_processes() {
    for transport in ["thread", "shm"] {
        let case =
            ["bench", "halo", "--grid", "6x5x4", "--halo", "2", "--fields", "2", "--transport", transport];
        let rows = lines(
            &[&case[..], &["--link", "auto,push,pull,mailbox,message", "--unbound", "--reduce"], &SHORT]
                .concat(),
        );
        let names: Vec<&str> = rows.iter().map(|row| row["row"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "copying pass",
                "empty exchange",
                "combining pass",
                "auto",
                "reduce, auto",
                "push",
                "reduce, push",
                "pull",
                "reduce, pull",
                "mailbox",
                "reduce, mailbox",
                "message",
                "reduce, message",
                "unbound"
            ],
            "{transport}"
        );
        for row in &rows {
            // 10 x 9 x 8 cells, 6 x 5 x 4 of them owned, two fields of 8 bytes a cell.
            assert_eq!(row["bytes"], (720 - 120) * 16);
            assert!(row["us"].as_f64().unwrap() > 0.0 && row["steady_us"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row["blocks"].as_array().unwrap().len(), 2);
        }
        assert_eq!(rows[7]["path"], "direct, pull");
    }
}

#[test]
fn a_mesh_of_four_ranks_in_foreign_memory_and_fortran_order() {
    let case = ["bench", "halo", "--mesh", "square", "--cells", "7", "--levels", "3", "--layout", "f"];
    for memory in ["foreign", "staggered"] {
        let more = ["--memory", memory, "--ranks", "4", "--dtype", "f32", "--fields", "3"];
        let rows = lines(&[&case[..], &more, &SHORT].concat());
        assert_eq!(rows[2]["bytes_received"], (4 * 7 + 4) * 3 * 4 * 3);
        assert!(rows[2]["path"].as_str().unwrap().starts_with("mailbox"), "{}", rows[2]);
    }
}

#[test]
fn latencies_of_two_transports_are_printed_saved_and_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    let rows = lines(&["bench", "latency", "--max", "64", "--rounds", "1", "--json", "--save", folder]);
    let found: Vec<(&str, u64)> =
        rows.iter().map(|row| (row["transport"].as_str().unwrap(), row["bytes"].as_u64().unwrap())).collect();
    assert_eq!(found[..4], [("shm", 8), ("shm", 16), ("shm", 32), ("shm", 64)]);
    assert_eq!(found[4..], [("thread", 8), ("thread", 16), ("thread", 32), ("thread", 64)]);
    let saved = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    assert!(saved.to_str().unwrap().ends_with("-latency.jsonl"), "{saved:?}");
    let text = std::fs::read_to_string(&saved).unwrap();
    let values: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(values[0]["command"].as_str().unwrap().starts_with("halocline bench latency --max 64"), "{text}");
    assert!(values[0]["machine"].as_str().unwrap().contains("core"), "{text}");
    assert_eq!(values[1..], rows);
    for (picture, begin) in [("a.png", &b"\x89PNG"[..]), ("a.svg", b"<svg")] {
        let picture = directory.path().join(picture);
        let output = halocline(&["plot", "sizes", saved.to_str().unwrap(), picture.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(std::fs::read(picture).unwrap().starts_with(begin));
    }
}

#[test]
fn ranks_of_mpi_that_nobody_started_are_told_how_to_start_them() {
    for case in [
        &["bench", "halo", "--ranks", "2"][..],
        &["bench", "latency"],
        &["run", "ocean", "--no-plot", "--ranks", "2"],
    ] {
        let output = halocline(&[case, &["--transport", "mpi"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("no MPI library can be used") {
            println!("skipped: {said}");
            return;
        }
        assert_eq!(output.status.code(), Some(2), "{case:?}: {said}");
        assert!(said.contains("start 2 by `mpirun -n 2 halocline ...`"), "{case:?}: {said}");
    }
}

/// A mesh that no machine holds.
const HUGE: [&str; 8] = ["--mesh", "square", "--cells", "16384", "--levels", "65536", "--fields", "1024"];

/// As under `mpirun -n 2`, which says so in the environment: what every rank would run as a whole is refused.
#[test]
fn under_an_mpi_launcher_no_rank_measures_by_itself() {
    for case in
        [&["bench", "halo"][..], &["bench", "latency"], &["run", "heat"], &["run", "ocean", "--no-plot"]]
    {
        for transport in ["shm", "thread"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
            command.args(case).args(["--transport", transport]).env("OMPI_COMM_WORLD_SIZE", "2");
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{case:?}: {said}");
            assert!(said.contains("an MPI launcher has started this process"), "{case:?}: {said}");
        }
    }
}

#[test]
fn invalid_measurements_are_refused_with_the_reason() {
    for (args, code, reason) in [
        (&["bench", "halo", "--grid", "0x4"][..], 2, "such as 64x64x64"),
        (&["bench", "halo", "--save", "/nowhere"], 2, "/nowhere is no directory; make it first"),
        (&["bench", "latency", "--save", "/nowhere"], 2, "/nowhere is no directory; make it first"),
        (&["plot", "sizes", "/nowhere/a.jsonl", "a.svg"], 1, "cannot read /nowhere/a.jsonl: No such file"),
        (&["bench", "halo", "--grid", "100000x100000x10000", "--ranks", "2"], 2, "on 2 ranks, but "),
        (&["bench", "halo", "--grid", "100000x100000x10000", "--transport", "thread"], 2, "use fewer cells"),
        (&[&["bench", "halo", "--ranks", "2"][..], &HUGE].concat(), 2, "on 2 ranks, but "),
        (&["bench", "halo", "--grid", "9999999999x9999999999"], 2, "more cells than 2^60"),
        (&["bench", "halo", "--grid", "1x1", "--ranks", "5000000000"], 2, "are more than 4294967295 domains"),
        (&["bench", "halo", "--ranks", "0"], 2, "at least one"),
        (
            &["bench", "halo", "--device", "cuda", "--unbound"],
            2,
            "`--unbound` measures host fields; leave it out",
        ),
        (
            &[
                "launch",
                "-n",
                "3",
                "--",
                env!("CARGO_BIN_EXE_halocline"),
                "bench",
                "latency",
                "--transport",
                "shm",
            ],
            2,
            "a latency is between 2 ranks, but this job has 3 ranks; start 2",
        ),
    ] {
        let output = halocline(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(reason), "{args:?}");
    }
}
