//! Programs that exchange halos, on every transport.

use crate::toolchain::{C, CLANG, CLANGPP, CPP, Compiler, succeeds};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command `halocline`, which the tests build together with this one.
fn halocline() -> PathBuf {
    let command = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("halocline");
    assert!(
        command.exists(),
        "{} is missing: build it with `cargo build -p halocline-cli`",
        command.display()
    );
    command
}

fn launched(program: &Path, ranks: &str) {
    let printed = succeeds(Command::new(halocline()).args(["launch", "-n", ranks, "--"]).arg(program));
    assert!(printed.contains(&format!("ok {ranks} shm")), "{printed}");
}

fn over_mpi(program: &Path, ranks: &str) {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", ranks]).arg(program);
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let printed = succeeds(&mut mpirun);
    assert!(printed.contains(&format!("ok {ranks} mpi")), "{printed}");
}

fn alone_and_on_threads(compiler: Compiler, name: &str) {
    if compiler.is_here() {
        let program = compiler.program(name);
        assert_eq!(succeeds(&mut Command::new(&program)), "ok 1 thread\n");
        assert_eq!(succeeds(Command::new(&program).arg("3")), "ok 3 thread\n");
    }
}

#[test]
fn c_exchanges_alone_and_on_threads() {
    alone_and_on_threads(C, "exchange");
    alone_and_on_threads(CLANG, "exchange");
}

#[test]
fn c_exchanges_between_launched_processes() {
    let program = C.program("exchange");
    launched(&program, "2");
    launched(&program, "4");
}

#[test]
fn c_exchanges_over_mpi() {
    over_mpi(&C.program("exchange"), "2");
}

#[test]
fn c_exchanges_unstructured_cells_alone_and_on_threads() {
    alone_and_on_threads(C, "unstructured");
}

#[test]
fn c_exchanges_unstructured_cells_between_processes() {
    let program = C.program("unstructured");
    launched(&program, "2");
    over_mpi(&program, "3");
}

#[test]
fn c_passes_communicators_of_mpi() {
    over_mpi(&C.program("mpi_comm"), "2");
}

#[test]
fn c_exchanges_packets_alone_and_on_threads() {
    alone_and_on_threads(C, "packets");
}

#[test]
fn c_exchanges_packets_between_processes() {
    let program = C.program("packets");
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn cpp_exchanges_alone_and_on_threads() {
    alone_and_on_threads(CPP, "exchange");
    alone_and_on_threads(CLANGPP, "exchange");
}

#[test]
fn cpp_exchanges_between_processes() {
    let program = CPP.program("exchange");
    launched(&program, "4");
    over_mpi(&program, "2");
}
