//! `halocline program` as its users meet it.

use std::path::Path;
use std::process::{Command, Output};

const MANIFEST: &str = r#"{
    "format": 1, "program": "heat",
    "arguments": [
        {"kind": "array", "name": "t", "type": "float64", "access": "read", "dimensions": [
            {"name": "I", "extent": "n", "stride": 1, "covers": [0, "n"]}, {}]},
        {"kind": "scalar", "name": "dt", "type": "float32"}],
    "symbols": [{"name": "n", "type": "int32"}],
    "parameters": ["t", "dt", "n"], "init": ["n"]}"#;

fn info(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.args(["program", "info"]).args(args).current_dir(folder).output().unwrap()
}

/// A folder with the library and its manifest.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let code =
        "int s; void *__dace_init_heat(int n) { return &s; } int __dace_exit_heat(void *s) { return 0; }
        void __program_heat(void *s, double *t, float dt, int n) {}";
    std::fs::write(folder.path().join("heat.c"), code).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", "libheat.so", "heat.c"]).current_dir(folder.path());
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
        "  t: float64 array of 2 dimensions, only read",
        "    I: extent n, stride 1, covers 0 to n",
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
