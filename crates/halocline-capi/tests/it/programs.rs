//! Programs that exchange halos, on every transport.

use crate::toolchain::{C, CLANG, succeeds};
use std::path::PathBuf;
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

#[test]
fn c_exchanges_alone_and_on_threads() {
    for compiler in [C, CLANG] {
        if compiler.is_here() {
            let program = compiler.program("exchange");
            assert_eq!(succeeds(&mut Command::new(&program)), "ok 1 thread\n");
            assert_eq!(succeeds(Command::new(&program).arg("3")), "ok 3 thread\n");
        }
    }
}

#[test]
fn c_exchanges_between_launched_processes() {
    let program = C.program("exchange");
    for ranks in ["2", "4"] {
        let printed = succeeds(Command::new(halocline()).args(["launch", "-n", ranks, "--"]).arg(&program));
        assert!(printed.contains(&format!("ok {ranks} shm")), "{printed}");
    }
}

#[test]
fn c_exchanges_over_mpi() {
    let program = C.program("exchange");
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "2"]).arg(&program);
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let printed = succeeds(&mut mpirun);
    assert!(printed.contains("ok 2 mpi"), "{printed}");
}
