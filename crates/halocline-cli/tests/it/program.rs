//! `halocline program` as its users meet it.

use std::path::Path;
use std::process::{Command, Output};

const MANIFEST: &str = r#"{
    "format": 1, "program": "heat",
    "arguments": [
        {"kind": "array", "name": "t", "type": "float64", "access": "read", "dimensions": [
            {"name": "I", "extent": "n", "stride": 1, "covers": [0, "n"]}, {}],
            "accesses": [{"indices": [[0, "n"], null], "over": [[1, "n"]]}]},
        {"kind": "scalar", "name": "dt", "type": "float32"}],
    "symbols": [{"name": "n", "type": "int32"}],
    "parameters": ["t", "dt", "n"], "init": ["n"]}"#;

fn program(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.arg("program").args(args).current_dir(folder).output().unwrap()
}

fn info(folder: &Path, args: &[&str]) -> Output {
    program(folder, &[&["info"], args].concat())
}

/// A folder with the library and its manifest.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let code =
        "int s; void *__dace_init_heat(int n) { return &s; } int __dace_exit_heat(void *s) { return 0; }
        void __program_heat(void *s, double *t, float dt, int n) { for (int i = 0; i < n; i++) t[i] = dt; }";
    std::fs::write(folder.path().join("heat.c"), code).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-Wl,--build-id=0x0123", "-o", "libheat.so", "heat.c"])
        .current_dir(folder.path());
    assert!(compiler.status().expect("this test needs a C compiler, `cc`").success());
    std::fs::write(folder.path().join("libheat.so.json"), MANIFEST).unwrap();
    folder
}

#[test]
fn a_program_is_described_in_words_and_in_json() {
    let folder = folder();
    let output = info(folder.path(), &["libheat.so"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "program heat (DaCe's interface)",
        "build id 0123",
        "  t: float64 array of 2 dimensions, only read",
        "    I: extent n, stride 1, covers 0 to n",
        "    1: any",
        "    accesses 0 to n, any in loops over 1 to n",
        "  dt: float32",
        "symbols: n int32",
        "C parameters: t, dt, n",
        "parameters of init: n",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    let output = info(folder.path(), &["libheat.so", "--json"]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["states"], 0);
    // It is a manifest again.
    std::fs::write(folder.path().join("libheat.so.json"), object["signature"].to_string()).unwrap();
    assert_eq!(String::from_utf8(info(folder.path(), &["libheat.so"]).stdout).unwrap(), text);
}

#[test]
fn a_library_that_cannot_be_loaded_is_an_error() {
    let folder = folder();
    std::fs::write(folder.path().join("libheat.so.json"), MANIFEST.replace("heat", "cold")).unwrap();
    for (library, message) in [
        ("libheat.so", "has no symbol __program_cold"),
        ("none.so", "the manifest none.so.json of library none.so"),
    ] {
        let output = info(folder.path(), &[library]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.contains(message), "{text}");
    }
}

#[test]
fn calls_are_timed_with_arrays_of_the_manifests_sizes() {
    let folder = folder();
    let settings = ["--set", "n=7", "--set", "t.1=3", "--set", "dt=0.5", "--rounds", "3"];
    let output = program(folder.path(), &[&["bench", "libheat.so", "--json"], &settings[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named: Vec<_> = lines.iter().map(|line| line["call"].as_str().unwrap()).collect();
    assert_eq!(named, ["checked", "prepared"], "{}", String::from_utf8_lossy(&output.stderr));
    assert!(lines.iter().all(|line| line["median_ns"].as_f64().unwrap() > 0.0 && line["rounds"] == 3));
    let output = program(folder.path(), &[&["bench", "libheat.so"], &settings[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("program heat\ncall ") && text.lines().count() == 4, "{text}");
}

#[test]
fn wrong_settings_of_a_timing_are_errors() {
    let folder = folder();
    for (settings, message) in [
        (
            &["n=7", "dt=1"][..],
            "program heat: give `--set t.1=NUMBER`, the number of indices of dimension 1 of `t`",
        ),
        (&["t.1=3", "dt=1"], "give `--set n=NUMBER`, the number of indices of dimension I of `t`"),
        (&["n=7", "t.1=3"], "give `--set dt=NUMBER`, the scalar of type float32"),
        (
            &["n=0.5", "t.1=3", "dt=1"],
            "`--set n=0.5` is no integer; give an integer for the number of indices",
        ),
        (
            &["n=-1", "t.1=3", "dt=1"],
            "program heat: the settings make the number of indices of dimension I of `t` negative",
        ),
        (&["n=4611686018427387904", "t.1=3", "dt=1"], "the array `t` is too large; give smaller values"),
        (&["n=7", "t.1=3", "dt=1", "m=2"], "`--set m=...` sets nothing; leave it out"),
        (&["n=7", "t.1=3", "dt=true,"], "is no setting"),
        (&["=7"], "is no setting"),
    ] {
        let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", *setting]).collect();
        let output = program(folder.path(), &[&["bench", "libheat.so"], &settings[..]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(message), "{message}: {text}");
    }
}

#[test]
fn arrays_that_a_timing_cannot_make_are_errors() {
    let folder = folder();
    for (from, to, message) in [
        (
            "{}]",
            r#"{"extent": "n*n"}]"#,
            "cannot compute the number of indices of dimension 1 of `t`: the expression \"n*n\" overflows 64 bits or divides by 0; change the values of `--set`",
        ),
        (
            r#""access""#,
            r#""device": "gpu", "access""#,
            "the array `t` is on a GPU, and the benchmark has host arrays only",
        ),
    ] {
        std::fs::write(folder.path().join("libheat.so.json"), MANIFEST.replace(from, to)).unwrap();
        let settings = ["--set", "n=4611686018427387904", "--set", "t.1=3", "--set", "dt=1"];
        let output = program(folder.path(), &[&["bench", "libheat.so"], &settings[..]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(message), "{message}: {text}");
    }
}
