//! Compiled programs, called from C.

use crate::toolchain::{C, CLANG, Compiler, own_file, succeeds};
use std::fs;
use std::process::Command;

const SOURCE: &str = "
    void scale(double *a, long n, long s, double factor) { for (long i = 0; i < n; i++) a[i * s] *= factor; }
    int fail(void) { return 7; }";

const SCALE: &str = r#"{
    "format": 1, "program": "scale", "interface": "c",
    "arguments": [
        {"kind": "array", "name": "a", "type": "float64", "dimensions": [{"extent": "n", "stride": "s"}]},
        {"kind": "scalar", "name": "factor", "type": "float64"}],
    "symbols": [{"name": "n", "type": "int64"}, {"name": "s", "type": "int64"}],
    "parameters": ["a", "n", "s", "factor"]}"#;

const FAIL: &str = r#"{
    "format": 1, "program": "fail", "interface": "c", "returns": "status", "arguments": [], "parameters": []}"#;

fn calls_programs(compiler: Compiler) {
    let (source, library) = (own_file("programs.c"), own_file("libprograms.so"));
    fs::write(&source, SOURCE).unwrap();
    succeeds(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
    let (scale, fail) = (library.with_extension("so.json"), own_file("fail.json"));
    fs::write(&scale, SCALE).unwrap();
    fs::write(&fail, FAIL).unwrap();
    let printed = succeeds(Command::new(compiler.program("compiled")).arg(&library).arg(&scale).arg(&fail));
    assert_eq!(printed, "ok\n");
}

#[test]
fn c_calls_compiled_programs() {
    calls_programs(C);
}

#[test]
fn c_compiled_by_clang_calls_compiled_programs() {
    if CLANG.is_here() {
        calls_programs(CLANG);
    }
}
