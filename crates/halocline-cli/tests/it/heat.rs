//! `halocline run heat` as its users meet it: equal to one rank to the last bit, and what is said of bad
//! input.

use crate::case::{Case, links};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

const HEAT: Case = Case("heat");

fn run(args: &str) -> Output {
    HEAT.run(Path::new("."), args)
}

fn report(args: &str) -> Value {
    HEAT.report(Path::new("."), args)
}

#[test]
fn every_number_of_ranks_and_transport_gives_the_result_of_one_rank() {
    for transport in ["thread", "shm"] {
        for ranks in 1..=8 {
            let (halo, periodic) = (1 + ranks % 3, ["none", "110", "x,z", "all"][ranks % 4]);
            let dtype = ["f64", "f32"][ranks % 2];
            let args = format!(
                "--grid 13x11x17 --ranks {ranks} --transport {transport} --halo {halo} --periodic {periodic} \
                 --fields 2 --dtype {dtype} --steps 7 --rounds 0 --json"
            );
            let report = report(&args);
            assert_eq!(report["max_abs_diff"], 0.0, "{args}");
            assert_eq!((&report["different"], &report["ranks"]), (&Value::from(0), &Value::from(ranks)));
            assert_eq!(report["transport"], transport);
            assert_eq!(links(&report) > 0, ranks > 1, "{args}");
        }
    }
}

#[test]
fn every_link_decomposition_and_order_of_work_gives_the_same() {
    for link in ["push", "pull", "mailbox", "message"] {
        for overlap in ["on", "off"] {
            let args = format!(
                "--grid 9x8x10 --ranks 4 --transport thread --decomposition 1x2x2 --periodic all --halo 2 \
                 --steps 5 --link {link} --overlap {overlap} --rounds 0 --json"
            );
            let report = report(&args);
            assert_eq!(report["max_abs_diff"], 0.0, "{args}");
            assert_eq!(report["blocks"], serde_json::json!([1, 2, 2]));
        }
    }
}

#[test]
fn parts_of_a_step_are_measured_beside_it() {
    let report = report(
        "--grid 16x16x16 --ranks 2 --decomposition 2x1x1 --transport thread --periodic x --steps 4 --rounds 1",
    );
    let measured = &report["measured"];
    for figure in
        ["exchange_us", "interior_us", "rest_us", "overlapped_us", "in_flight_us", "in_turn_us", "ratio"]
    {
        assert!(measured[figure].as_f64().unwrap() > 0.0, "{figure}: {report}");
    }
    assert!(measured["in_flight_us"].as_f64() <= measured["overlapped_us"].as_f64(), "{report}");
    // Each of two ranks receives a face of 16 x 16 cells at either side; beyond y and z there are walls.
    assert_eq!(report["bytes_received"], 2 * 2 * 16 * 16 * 8, "{report}");
}

#[test]
fn a_skipped_comparison_is_reported() {
    let output = run("--grid 8x8x8 --ranks 2 --transport thread --steps 1 --rounds 0 --no-check");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("NOT compared with a run on one rank: `--no-check`"));
    let line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(line["max_abs_diff"].is_null());
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_starts() {
    for (args, message) in [
        ("--grid 8x8", "`--grid 8x8` has 2 axes; give three"),
        ("--grid 0x8x8", "is no grid"),
        ("--grid 8x8x8 --ranks 0", "0 ranks"),
        ("--grid 2x2x2 --ranks 9", "the grid of [2, 2, 2] has only 8 cells"),
        ("--grid 8x8x8 --ranks 4 --decomposition 3x1x1", "does not match 4 ranks"),
        ("--grid 8x8x8 --ranks 4 --decomposition 2x2", "give one for each axis"),
        ("--grid 8x8x8 --halo 0", "invalid value '0' for '--halo <W>'"),
        ("--grid 8x8x8 --halo 4294967295 --periodic all", "halo widths"),
        ("--grid 8x8x8 --periodic w", "names no axes"),
        ("--grid 8x8x8 --periodic 11", "2 digits for the 3 axes"),
        ("--grid 8x8x8 --periodic t", "names axis t, but the grid has 3"),
        ("--grid 1000000x1000000x1000", "are available here; use a smaller grid"),
        ("--grid 4294967296x4294967296x4294967296", "more cells than 2^60"),
        ("--grid 8x8x8 --steps 0", "invalid value '0' for '--steps <S>'"),
        ("--grid 8x8x8 --dtype i32", "invalid value 'i32'"),
        ("--grid 8x8x8 --graph", "`--graph` needs GPUs; give `--device cuda`, too"),
        ("--grid 8x8x8 --device cuda --graph --trace t.json", "leave `--graph` or `--trace` out"),
    ] {
        let output = run(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {stderr}");
        assert!(output.stdout.is_empty() && stderr.contains(message), "{args}: {stderr}");
    }
}

#[test]
fn without_a_gpu_that_is_said_with_what_was_tried_and_with_one_the_result_is_the_same() {
    for transport in ["thread", "shm"] {
        let args = format!(
            "--device cuda --transport {transport} --grid 9x8x70 --ranks 2 --steps 5 --rounds 1 --json"
        );
        let output = run(&args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        if stderr.contains("`--device cuda` needs a GPU") {
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(output.stdout.is_empty() && stderr.contains("leave `--device` out"), "{stderr}");
            assert!(["libcuda.so.1", "NVRTC"].iter().any(|tried| stderr.contains(tried)), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "said once: {stderr}");
            continue;
        }
        assert!(output.status.success(), "{stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["max_abs_diff"], &report["device"]), (&Value::from(0.0), &Value::from("cuda")));
        assert!(report["measured"]["kernels_us"].as_f64().unwrap() > 0.0, "{report}");
    }
}
