//! Programs that exchange halos, on every transport.

use crate::toolchain::{C, CLANG, CLANGPP, CPP, MPICC, here, succeeds};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command `halocline`, which the tests build together with this one.
pub(crate) fn halocline() -> PathBuf {
    let command = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("halocline");
    assert!(
        command.exists(),
        "{} is missing: build it with `cargo build -p halocline-cli`",
        command.display()
    );
    command
}

/// What a program prints that a command launches.
pub(crate) fn launched_by(command: &Path, program: &Path, ranks: &str) -> String {
    succeeds(Command::new(command).args(["launch", "-n", ranks, "--"]).arg(program))
}

fn launched(program: &Path, ranks: &str) {
    let printed = launched_by(&halocline(), program, ranks);
    assert!(printed.contains(&format!("ok {ranks} shm")), "{printed}");
}

/// What a program with its arguments prints under mpirun.
pub(crate) fn over_mpi_prints(program: &[&OsStr], ranks: &str) -> String {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", ranks]).args(program);
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    succeeds(&mut mpirun)
}

fn over_mpi(program: &Path, ranks: &str) {
    let printed = over_mpi_prints(&[program.as_os_str()], ranks);
    assert!(printed.contains(&format!("ok {ranks} mpi")), "{printed}");
}

fn alone_and_on_threads(program: &Path) {
    assert_eq!(succeeds(&mut Command::new(program)), "ok 1 thread\n");
    assert_eq!(succeeds(Command::new(program).arg("3")), "ok 3 thread\n");
}

#[test]
fn c_exchanges_alone_and_on_threads() {
    alone_and_on_threads(&C.program("exchange"));
}

#[test]
fn c_compiled_by_clang_exchanges_alone_and_on_threads() {
    if CLANG.is_here() {
        alone_and_on_threads(&CLANG.program("exchange"));
    }
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
fn c_calls_collectives_alone_and_on_threads() {
    alone_and_on_threads(&C.program("collectives"));
}

#[test]
fn c_calls_collectives_between_processes() {
    let program = C.program("collectives");
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_exchanges_unstructured_cells_alone_and_on_threads() {
    alone_and_on_threads(&C.program("unstructured"));
}

#[test]
fn c_exchanges_unstructured_cells_between_processes() {
    let program = C.program("unstructured");
    launched(&program, "2");
    over_mpi(&program, "3");
}

#[test]
fn c_partitions_meshes_alone_and_on_threads() {
    alone_and_on_threads(&C.program("partitions"));
}

#[test]
fn c_partitions_meshes_between_processes() {
    let program = C.program("partitions");
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_makes_index_lists_alone_and_on_threads() {
    alone_and_on_threads(&C.program("index_lists"));
}

/// Defines `GRID` as the grid file of the repository.
fn with_grid() -> String {
    format!("-DGRID=\"{}\"", here().join("../../data/icon/r2b2.nc").display())
}

#[test]
fn c_reads_parts_of_a_grid_file_alone_and_on_threads() {
    alone_and_on_threads(&C.program_with("icon", &[&with_grid()]));
}

#[test]
fn c_reads_parts_of_a_grid_file_between_processes() {
    let program = C.program_with("icon", &[&with_grid()]);
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_exchanges_regular_grids_of_every_kind_alone_and_on_threads() {
    alone_and_on_threads(&C.program("regular"));
}

#[test]
fn c_exchanges_regular_grids_of_every_kind_between_processes() {
    let program = C.program("regular");
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_exchanges_regular_grids_in_checked_mode() {
    let program = C.program("regular");
    assert_eq!(succeeds(Command::new(program).arg("3").env("HALOCLINE_CHECK", "1")), "ok 3 thread\n");
}

#[test]
fn c_exchanges_grids_of_patches_alone_and_on_threads() {
    alone_and_on_threads(&C.program_with("patches", &["-lm"]));
}

#[test]
fn c_exchanges_grids_of_patches_between_processes() {
    let program = C.program_with("patches", &["-lm"]);
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_exchanges_every_element_type_and_layout_alone_and_on_threads() {
    alone_and_on_threads(&C.program("layouts"));
}

#[test]
fn c_exchanges_every_element_type_and_layout_between_processes() {
    let program = C.program("layouts");
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_is_refused_on_all_ranks_alone_and_on_threads() {
    alone_and_on_threads(&C.program("refusals"));
}

#[test]
fn c_is_refused_on_all_ranks_between_processes() {
    let program = C.program("refusals");
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_exchanges_on_several_threads_of_a_rank() {
    let program = C.program("threads");
    alone_and_on_threads(&program);
    launched(&program, "2");
}

#[test]
fn c_has_exchanges_in_flight_alone_and_on_threads() {
    alone_and_on_threads(&C.program("flight"));
}

#[test]
fn c_has_exchanges_in_flight_between_processes() {
    let program = C.program("flight");
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_passes_communicators_of_mpi() {
    let program = C.program("mpi_comm");
    over_mpi(&program, "2");
    let printed = over_mpi_prints(&[program.as_os_str(), OsStr::new("funneled")], "2");
    assert!(printed.contains("ok 2 mpi"), "{printed}");
}

#[test]
fn c_that_is_linked_with_mpi_uses_the_handles_of_its_executable() {
    if MPICC.is_here() {
        over_mpi(&MPICC.program("linked_with_mpi"), "2");
    }
}

#[test]
fn calls_of_c_after_mpi_finalize_say_that_mpi_has_ended() {
    if !MPICC.is_here() {
        return;
    }
    let program = MPICC.program("after_finalize");
    // Shared memory or messages of MPI; idle or in flight; how links move bytes; the thread level.
    for case in ["1 0 0 3", "1 1 0 3", "1 1 3 3", "1 1 4 3", "1 1 0 1", "2 0 0 3", "2 1 0 3", "2 1 0 1"] {
        let arguments = case.split(' ').map(OsStr::new);
        let command: Vec<&OsStr> = std::iter::once(program.as_os_str()).chain(arguments).collect();
        assert_eq!(over_mpi_prints(&command, "2"), "ok\n", "{case}");
    }
}

#[test]
fn a_forked_child_that_ends_leaves_the_ranks_alone() {
    let program = C.program("forked_child_ends");
    assert_eq!(succeeds(&mut Command::new(&program)), "ok 1 thread\n");
    launched(&program, "2");
    over_mpi(&program, "2");
}

#[test]
fn c_exchanges_packets_alone_and_on_threads() {
    alone_and_on_threads(&C.program("packets"));
}

#[test]
fn c_exchanges_packets_between_processes() {
    let program = C.program("packets");
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn c_exchanges_fields_of_a_gpu() {
    let program = C.program("cuda");
    // Without a GPU the program says so and ends with 77.
    if Command::new(&program).status().unwrap().code() == Some(77) {
        eprintln!("== SKIPPED: no GPU here");
        return;
    }
    alone_and_on_threads(&program);
    launched(&program, "2");
}

#[test]
fn cpp_exchanges_on_every_transport() {
    let program = CPP.program("exchange");
    alone_and_on_threads(&program);
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn cpp_exchanges_regular_grids_of_every_kind_on_every_transport() {
    let program = CPP.program("grids");
    alone_and_on_threads(&program);
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn cpp_exchanges_grids_of_patches_on_every_transport() {
    let program = CPP.program("patches");
    alone_and_on_threads(&program);
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn cpp_exchanges_unstructured_cells_on_every_transport() {
    let program = CPP.program_with("meshes", &[&with_grid()]);
    alone_and_on_threads(&program);
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn cpp_exchanges_packets_on_every_transport() {
    let program = CPP.program("packets");
    alone_and_on_threads(&program);
    launched(&program, "4");
    over_mpi(&program, "2");
}

#[test]
fn cpp_exchanges_fields_of_a_gpu() {
    let program = CPP.program("cuda");
    // Without a GPU the program says so and ends with 77.
    if Command::new(&program).status().unwrap().code() == Some(77) {
        eprintln!("== SKIPPED: no GPU here");
        return;
    }
    assert_eq!(succeeds(&mut Command::new(&program)), "ok 1 thread\n");
    launched(&program, "2");
    // The messages that a program sends by itself need three ranks.
    launched(&program, "4");
}

#[test]
fn cpp_compiled_by_clang_exchanges_alone_and_on_threads() {
    if CLANGPP.is_here() {
        for name in ["exchange", "packets"] {
            alone_and_on_threads(&CLANGPP.program(name));
        }
    }
}
