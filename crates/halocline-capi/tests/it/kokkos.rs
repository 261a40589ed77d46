//! Views of Kokkos as fields: `halocline_kokkos.hpp`, with the Kokkos of Debian.

use crate::install::{build_examples, installed};
use crate::programs::{halocline, launched_by, over_mpi_prints};
use crate::toolchain::{CLANGPP, CPP, Compiler, here, succeeds};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The folder of the headers of Kokkos; warnings in them do not count.
const HEADERS: &str = "/usr/include/trilinos";

/// What a program with Kokkos is compiled and linked with.
const FLAGS: &[&str] = &["-isystem", HEADERS, "-ltrilinos_kokkoscore"];

pub(crate) fn is_here() -> bool {
    let found = Path::new(HEADERS).join("Kokkos_Core.hpp").exists();
    if !found {
        eprintln!("== SKIPPED: no Kokkos here (libtrilinos-kokkos-dev)");
    }
    found
}

/// A command that compiles a file with Kokkos.
fn compile(compiler: Compiler) -> Command {
    let mut command = compiler.compile();
    command.args(["-isystem", HEADERS]);
    command
}

#[test]
fn the_header_of_kokkos_compiles_alone() {
    for compiler in [CPP, CLANGPP].into_iter().filter(|compiler| compiler.is_here() && is_here()) {
        let header = here().join("include/halocline_kokkos.hpp");
        succeeds(compile(compiler).arg("-fsyntax-only").arg("-include").arg(header).arg("/dev/null"));
    }
}

#[test]
fn views_exchange_alone_and_between_processes() {
    if !is_here() {
        return;
    }
    let program = CPP.program_with("kokkos", FLAGS);
    assert_eq!(succeeds(&mut Command::new(&program)), "ok 1 thread\n");
    assert!(launched_by(&halocline(), &program, "2").contains("ok 2 shm"));
    assert!(over_mpi_prints(&[program.as_os_str()], "3").contains("ok 3 mpi"));
}

#[test]
fn memory_of_other_spaces_than_the_host_is_allocated_by_kokkos() {
    if is_here() {
        assert_eq!(succeeds(&mut Command::new(CPP.program_with("kokkos_uvm", FLAGS))), "ok\n");
    }
}

#[test]
fn views_of_a_gpu_exchange_in_the_order_of_a_stream() {
    if !is_here() {
        return;
    }
    let program = CPP.program_with("kokkos_cuda", FLAGS);
    // Without a GPU the program says so and ends with 77.
    if Command::new(&program).status().unwrap().code() == Some(77) {
        eprintln!("== SKIPPED: no GPU here");
        return;
    }
    assert_eq!(succeeds(&mut Command::new(&program)), "ok 1 thread\n");
    assert!(launched_by(&halocline(), &program, "2").contains("ok 2 shm"));
}

#[test]
fn views_that_no_field_has_do_not_compile() {
    if !is_here() {
        return;
    }
    let source = here().join("tests/cpp/kokkos_refused.cpp");
    let output = compile(CPP).arg("-fsyntax-only").arg(source).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    let reasons = [
        "an exchange writes the halo",
        "a field has at least one dimension",
        "Halocline reaches memory of the host and of CUDA only",
        "a field has LayoutLeft, LayoutRight or LayoutStride",
        "a field is made of a Kokkos::View",
        "the library chooses strides for LayoutLeft and LayoutRight only",
        "keys have one dimension",
        "ids and ranks are integers",
    ];
    for reason in reasons {
        assert!(printed.contains(reason), "no error says: {reason}\n{printed}");
    }
}

#[test]
fn the_examples_of_kokkos_equal_one_rank() {
    if !is_here() || !crate::install::is_here("cmake") {
        return;
    }
    let prefix = installed();
    let build = build_examples(&prefix, &["KOKKOS"]);
    let launcher = prefix.join("bin/halocline");
    // Cells along each axis, and steps: fewer than a user has, because the compiler does not optimise here.
    let heat: &[&str] = &["40", "12"];
    let programs = [
        ("message", &[][..], "all arrived"),
        ("subset", &[], "lists equal to those of the host"),
        ("pack", &[], "equal to one rank"),
        ("heat", heat, "equal to one rank"),
    ];
    for (name, arguments, outcome) in programs {
        let program = build.join(format!("kokkos_{name}"));
        let alone = succeeds(Command::new(&program).args(arguments));
        let mut launch = Command::new(&launcher);
        let launched = succeeds(launch.args(["launch", "-n", "4", "--"]).arg(&program).args(arguments));
        let line: Vec<_> =
            [program.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)).collect();
        let over_mpi = over_mpi_prints(&line, "4");
        for (printed, ranks) in [(alone, "1 ranks"), (launched, "4 ranks"), (over_mpi, "4 ranks")] {
            assert!(printed.contains(ranks) && printed.contains(outcome), "{printed}");
        }
    }
}
