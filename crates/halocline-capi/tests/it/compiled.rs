//! Compiled programs, called from C and C++.

use crate::toolchain::{C, CLANG, CLANGPP, CPP, Compiler, own_file, succeeds};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "
    void scale(double *a, long n, long s, double factor) { for (long i = 0; i < n; i++) a[i * s] *= factor; }
    int fail(void) { return 7; }
    void first(long long *a, long long begin) { *a = begin; }
    void numbers(double *found, signed char small, unsigned long long large, _Bool is_set, float real, long long length,
                 const unsigned short *list) {
      (void)list;
      found[0] = small, found[1] = large, found[2] = is_set, found[3] = real, found[4] = length;
    }";

const SCALE: &str = r#"{
    "format": 1, "program": "scale", "interface": "c",
    "arguments": [
        {"kind": "array", "name": "a", "type": "float64", "dimensions": [{"extent": "n", "stride": "s"}]},
        {"kind": "scalar", "name": "factor", "type": "float64"}],
    "symbols": [{"name": "n", "type": "int64"}, {"name": "s", "type": "int64"}],
    "parameters": ["a", "n", "s", "factor"]}"#;

const FAIL: &str = r#"{
    "format": 1, "program": "fail", "interface": "c", "returns": "status", "arguments": [], "parameters": []}"#;

/// A library of programs, the manifest of `scale` beside it, and that of `fail`.
pub(crate) fn programs() -> [PathBuf; 3] {
    let (source, library) = (own_file("programs.c"), own_file("libprograms.so"));
    fs::write(&source, SOURCE).unwrap();
    succeeds(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
    let (scale, fail) = (library.with_extension("so.json"), own_file("fail.json"));
    fs::write(&scale, SCALE).unwrap();
    fs::write(&fail, FAIL).unwrap();
    [library, scale, fail]
}

fn calls_programs(compiler: Compiler) {
    let printed = succeeds(Command::new(compiler.program("compiled")).args(programs()));
    assert_eq!(printed, "ok\n");
}

fn calls_programs_from_cpp(compiler: Compiler) {
    let [library, ..] = programs();
    assert_eq!(succeeds(Command::new(compiler.program("compiled")).arg(&library)), "ok\n");
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

#[test]
fn cpp_calls_compiled_programs() {
    calls_programs_from_cpp(CPP);
}

#[test]
fn cpp_compiled_by_clang_calls_compiled_programs() {
    if CLANGPP.is_here() {
        calls_programs_from_cpp(CLANGPP);
    }
}
