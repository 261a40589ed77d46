//! `halocline run sphere` as its users meet it: mass, error, the picture, and what is said of bad input.

use crate::case::{Case, links};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

const SPHERE: Case = Case("sphere");

#[test]
fn each_grid_on_ranks_of_either_transport_is_exact_to_the_last_bit_and_keeps_its_mass() {
    let directory = tempfile::tempdir().unwrap();
    for (grid, problem, cells) in [
        ("cubed:8", "rotation", 384),
        ("icosahedral:2", "rotation", 320),
        ("tripolar:18x24", "diffusion", 432),
    ] {
        for (transport, ranks) in [("thread", 3), ("shm", 1), ("shm", 4)] {
            let args =
                format!("--grid {grid} --days 0.5 --ranks {ranks} --transport {transport} --no-plot --json");
            let report = SPHERE.report(directory.path(), &args);
            assert_eq!((&report["max_abs_diff"], &report["different"]), (&0.0.into(), &0.into()), "{args}");
            assert!(report["conservation"].as_f64().unwrap() < 1e-13, "{args}: {report}");
            assert!(report["l2"].as_f64().unwrap() < 0.5, "{args}: {report}");
            assert_eq!((&report["grid"], &report["problem"]), (&grid.into(), &problem.into()));
            assert_eq!((&report["cells"], &report["ranks"]), (&cells.into(), &ranks.into()));
            assert_eq!(links(&report) > 0, ranks > 1, "{args}");
        }
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no plot was asked for");
}

/// NEMO's grid ORCA2, copied into a directory.
fn orca2(directory: &Path) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/orca2/orca2.nc");
    std::fs::copy(data, directory.join("orca2.nc")).unwrap();
}

#[test]
fn heat_spreads_on_the_grid_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    orca2(directory.path());
    let output =
        SPHERE.run(directory.path(), "--grid tripolar:orca2.nc --ranks 3 --days 0.2 --plot arctic.png");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.starts_with("sphere: tripolar:orca2.nc, 3 ranks (shm), "), "{stdout}");
    assert!(stdout.contains("of the exact solution without land\n"), "{stdout}");
    let report: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&report["max_abs_diff"], &report["different"]), (&0.0.into(), &0.into()));
    assert!(report["conservation"].as_f64().unwrap() < 1e-13, "{report}");
    assert_eq!((&report["cells"], &report["problem"]), (&26_640.into(), &"diffusion".into()));
    let picture = std::fs::read(directory.path().join("arctic.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
}

#[test]
fn a_file_that_is_no_grid_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    orca2(directory.path());
    let file = directory.path().join("orca2.nc");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(directory.path().join("cut.nc"), &bytes[..bytes.len() / 2]).unwrap();
    for (args, code, message) in [
        ("--grid tripolar:none.nc", 1, "cannot read the grid none.nc: No such file or directory"),
        ("--grid tripolar:cut.nc", 1, "cut.nc"),
        ("--grid tripolar:orca2.nc --ranks 26641", 2, "26641 ranks for the 26640 cells of the grid"),
        ("--grid tripolar:orca2.nc --angle 3", 2, "but on a tripolar grid heat spreads; leave it out"),
        (
            "--grid tripolar:orca2.nc --trace ./orca2.nc",
            2,
            "`--trace ./orca2.nc` and `--grid orca2.nc` are the same file",
        ),
    ] {
        let error = SPHERE.refusal(directory.path(), &format!("{args} --no-plot"), code);
        assert!(error.contains(message) && error.lines().count() == 1, "{args}: {error}");
    }
}

#[test]
fn the_grid_of_a_file_on_any_number_of_ranks_is_exact_to_the_last_bit() {
    let directory = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/icon/r2b2.nc");
    std::fs::copy(file, directory.path().join("grid.nc")).unwrap();
    let generated =
        SPHERE.report(directory.path(), "--grid icosahedral:3 --days 0.5 --ranks 2 --no-plot --json");
    for (transport, ranks) in [("thread", 3), ("shm", 1), ("shm", 4)] {
        let args = format!(
            "--grid icosahedral:grid.nc --days 0.5 --ranks {ranks} --transport {transport} --no-plot --json"
        );
        let report = SPHERE.report(directory.path(), &args);
        assert_eq!((&report["max_abs_diff"], &report["different"]), (&0.0.into(), &0.into()), "{args}");
        assert!(report["conservation"].as_f64().unwrap() < 1e-13, "{args}: {report}");
        assert_eq!((&report["grid"], &report["cells"]), (&"icosahedral:grid.nc".into(), &1280.into()));
        // The same grid but for rounding of its positions.
        let [found, due] = [&report, &generated].map(|report| report["l2"].as_f64().unwrap());
        assert!((found - due).abs() < 1e-9 && report["steps"] == generated["steps"], "{found} and {due}");
    }
}

#[test]
fn the_globes_are_drawn_and_the_summary_precedes_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        SPHERE.run(directory.path(), "--grid cubed:6 --ranks 2 --days 1 --plot globe.png --no-check");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.starts_with("sphere: cubed:6, 2 ranks (shm), "), "{stdout}");
    assert!(stdout.contains("NOT compared with a run without exchanges: `--no-check`"), "{stdout}");
    assert!(stdout.contains("  plot      globe.png\n"), "{stdout}");
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["case"], &last["check_skipped"]), (&"sphere".into(), &"`--no-check`".into()));
    let picture = std::fs::read(directory.path().join("globe.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 50_000, "{} bytes", picture.len());
}

#[test]
fn a_job_that_was_launched_runs_the_case() {
    let halocline = env!("CARGO_BIN_EXE_halocline");
    let mut command = Command::new(halocline);
    command.args([
        "launch",
        "-n",
        "2",
        "--no-prefix",
        "--",
        halocline,
        "run",
        "sphere",
        "--no-plot",
        "--json",
    ]);
    command.args(["--grid", "tripolar:12x16", "--days", "0.2"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ranks"], &report["max_abs_diff"]), (&2.into(), &0.0.into()));
}

#[test]
fn the_angle_turns_the_path_and_the_time_moves_the_bell() {
    let directory = tempfile::tempdir().unwrap();
    let of = |more: &str| {
        SPHERE.report(directory.path(), &format!("--grid cubed:8 --ranks 2 --no-plot --json {more}"))
    };
    let (straight, turned) = (of("--days 1 --angle 0"), of("--days 1 --angle -90"));
    assert_ne!(straight["l2"], turned["l2"]);
    let later = of("--days 2 --angle 0");
    assert!(later["steps"].as_u64() > straight["steps"].as_u64(), "{later}");
}

/// Once around the Earth. On grids as coarse as these the bell loses much of its height.
#[test]
fn the_bell_is_back_after_twelve_days() {
    let directory = tempfile::tempdir().unwrap();
    for (grid, steps, most) in [("cubed:16", 100, 0.7), ("icosahedral:3", 100, 0.7)] {
        let args = format!("--grid {grid} --ranks 3 --no-plot --json");
        let report = SPHERE.report(directory.path(), &args);
        assert_eq!((&report["days"], &report["different"]), (&12.0.into(), &0.into()), "{args}");
        assert!(report["steps"].as_u64().unwrap() > steps, "{args}: {report}");
        assert!(report["conservation"].as_f64().unwrap() < 1e-13, "{args}: {report}");
        // It is above 1 if the bell is elsewhere.
        assert!(report["l2"].as_f64().unwrap() < most, "{args}: {report}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    for (args, code, message) in [
        ("--grid octahedral:4", 2, "\"octahedral:4\" is no grid of the Earth; give cubed:N"),
        ("--grid cubed:3", 2, "a cubed sphere with tiles of 3 x 3 cells; give 4 to 1024"),
        ("--grid icosahedral:20", 2, "an icosahedron whose edges are bisected 20 times; give 2 to 8"),
        ("--grid icosahedral:grid.nc", 1, "cannot read grid.nc: No such file or directory"),
        ("--grid icosahedral:", 2, "\"icosahedral:\" is no grid of the Earth"),
        ("--grid tripolar:4x4096", 2, "a tripolar grid of 4 rows and 4096 columns; give 8 to 2048 of each"),
        ("--grid tripolar:8x9", 2, "a tripolar grid of 9 columns has no middle to be folded at"),
        ("--days 0", 2, "\"0\" is no time to simulate; give a number of days above 0, at most 10000"),
        ("--days -1", 2, "\"-1\" is no time to simulate; give a number of days above 0, at most 10000"),
        ("--angle inf", 2, "`--angle inf` is no direction; give degrees, such as 45"),
        ("--grid tripolar:16x16 --angle 3", 2, "but on a tripolar grid heat spreads; leave it out"),
        (
            "--grid icosahedral:2 --ranks 321",
            2,
            "321 ranks for the 320 cells of the grid; use at most one rank",
        ),
        ("--grid cubed:4 --ranks 97", 2, "97 ranks for the 96 cells of the grid"),
        ("--ranks 0", 2, "0 ranks; give at least one"),
        ("--plot globe.svg", 2, "it is a PNG image; give a name that ends in .png"),
        ("--plot a.png --trace ./a.png", 2, "`--trace ./a.png` and `--plot a.png` are the same file"),
        ("--plot nowhere/globe.png", 1, "cannot write the plot to nowhere/globe.png: "),
    ] {
        let error = SPHERE.refusal(directory.path(), args, code);
        assert!(error.contains(message), "{args}: {error}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left behind");
}
