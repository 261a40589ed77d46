//! Compiled programs, called from C and C++.

use crate::toolchain::{C, CLANG, CPP, Compiler, here, own_file, succeeds};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The programs and their manifests.
fn sources() -> PathBuf {
    here().join("tests/c/programs")
}

/// A library of programs, the manifest of `scale` beside it, and that of `fail`.
pub(crate) fn programs() -> [PathBuf; 3] {
    let library = own_file("libprograms.so");
    let mut compile = C.compile();
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(sources().join("programs.c"));
    succeeds(&mut compile);
    let scale = library.with_extension("so.json");
    fs::copy(sources().join("scale.json"), &scale).unwrap();
    [library, scale, sources().join("fail.json")]
}

fn calls_programs(compiler: Compiler) {
    let printed = succeeds(Command::new(compiler.program("compiled")).args(programs()));
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

#[test]
fn cpp_calls_compiled_programs() {
    let [library, ..] = programs();
    assert_eq!(succeeds(Command::new(CPP.program("compiled")).arg(&library)), "ok\n");
}
