//! The Fortran modules, compiled with all warnings as errors.

use crate::compiled::programs;
use crate::header::{self, declared};
use crate::programs::{halocline, launched_by, over_mpi_prints};
use crate::toolchain::{here, library, own_file, succeeds};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether there is a compiler; says aloud if there is none.
pub(crate) fn is_here() -> bool {
    let found = Command::new("gfortran").arg("--version").output().is_ok();
    if !found {
        eprintln!("== SKIPPED: no gfortran here");
    }
    found
}

/// A command that compiles the modules in a folder.
fn compile(compiler: &str, folder: &Path) -> Command {
    let mut compile = Command::new(compiler);
    compile.args(["-std=f2018", "-Wall", "-Wextra", "-Werror"]).current_dir(folder);
    compile.args(MODULES.map(|module| sources().join(module)));
    compile
}

/// In the order of their uses of each other. `halocline.f90` includes the folder `halocline`.
const MODULES: [&str; 6] = [
    "halocline.f90",
    "halocline_meshes.f90",
    "halocline_packets.f90",
    "halocline_patches.f90",
    "halocline_programs.f90",
    "halocline_redistribution.f90",
];

/// The folder of the modules.
fn sources() -> PathBuf {
    here().join("fortran")
}

/// Checks that code which uses the modules, and those of MPI, has neither errors nor warnings.
pub(crate) fn check(source: &str) {
    let folder = own_file("fortran");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("source.f90"), source).unwrap();
    succeeds(compile("mpifort", &folder).args(["source.f90", "-fsyntax-only"]));
}

/// Compiles a program of `tests/fortran` with the modules; `None` without a compiler.
fn program(name: &str) -> Option<PathBuf> {
    if !is_here() {
        return None;
    }
    let folder = own_file(name);
    fs::create_dir(&folder).unwrap();
    let library = library();
    let mut interoperable = Command::new("cc");
    interoperable.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-c"]);
    interoperable.arg(sources().join("halocline_fortran.c")).arg("-I").arg(here().join("include"));
    succeeds(interoperable.current_dir(&folder));
    let mut compile = compile("gfortran", &folder);
    let tests = here().join("tests/fortran");
    compile.args(["checks", "plane", name].map(|source| tests.join(source).with_extension("f90")));
    compile.args(["halocline_fortran.o", "-lhalocline", "-o", name]).arg("-L").arg(library);
    succeeds(compile.arg(format!("-Wl,-rpath,{}", library.display())));
    Some(folder.join(name))
}

/// Runs a program of `tests/fortran` alone, launched on 4 ranks, and over MPI on 2.
fn runs_on_ranks(name: &str) {
    let Some(program) = program(name) else { return };
    assert_eq!(succeeds(&mut Command::new(&program)), "ok 1 thread\n");
    let printed = launched_by(&halocline(), &program, "4");
    assert!(printed.contains("ok 4 shm"), "{printed}");
    let printed = over_mpi_prints(&[program.as_os_str()], "2");
    assert!(printed.contains("ok 2 mpi"), "{printed}");
}

#[test]
fn fortran_makes_meshes_and_gets_errors() {
    if let Some(program) = program("meshes") {
        let grid = here().join("../../data/icon/r2b2.nc");
        assert_eq!(succeeds(Command::new(program).env("GRID", grid)), "ok 1 thread\n");
    }
}

#[test]
fn fortran_is_refused_impossible_sizes() {
    if let Some(program) = program("impossible_sizes") {
        assert_eq!(succeeds(&mut Command::new(program)), "ok 1 thread\n");
    }
}

#[test]
fn fortran_passes_arrays_to_collective_calls() {
    runs_on_ranks("communicators");
}

#[test]
fn fortran_decomposes_redistributes_and_saves_regular_grids() {
    runs_on_ranks("regular");
}

#[test]
fn fortran_exchanges_halos_across_seams_of_patches() {
    runs_on_ranks("patches");
}

#[test]
fn fortran_exchanges_halos_in_every_form() {
    runs_on_ranks("exchanges");
}

#[test]
fn fortran_exchanges_packets() {
    runs_on_ranks("packets");
}

#[test]
fn fortran_calls_compiled_programs() {
    if let Some(program) = program("compiled") {
        let [library, _, fail] = programs();
        assert_eq!(succeeds(Command::new(program).arg(library).arg(fail)), "ok\n");
    }
}

#[test]
fn fortran_exchanges_fields_of_a_gpu() {
    let Some(program) = program("gpu") else { return };
    // Without a GPU the program says so and ends with 77.
    if Command::new(&program).status().unwrap().code() == Some(77) {
        eprintln!("== SKIPPED: no GPU here");
        return;
    }
    assert_eq!(succeeds(&mut Command::new(&program)), "ok 1 thread\n");
    let printed = launched_by(&halocline(), &program, "2");
    assert!(printed.contains("ok 2 shm"), "{printed}");
}

/// The lines of all modules without comments.
fn code() -> String {
    let folders = [sources(), sources().join("halocline")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|entry| entry.unwrap().path());
    let modules = paths.filter(|path| path.extension().is_some_and(|extension| extension == "f90"));
    let text: String = modules.map(|path| fs::read_to_string(path).unwrap()).collect();
    text.lines().map(|line| line.split('!').next().unwrap().to_owned() + "\n").collect()
}

#[test]
fn the_modules_have_every_function_of_the_header() {
    // `MPI_Comm` is a type of C: Fortran calls `halocline_comm_from_fortran`.
    let not_of_fortran = ["halocline_comm_from_mpi"];
    let code = code();
    let words: BTreeSet<&str> = code.split(|of: char| !of.is_ascii_alphanumeric() && of != '_').collect();
    let (missing, needless): (Vec<String>, Vec<String>) = declared()
        .into_keys()
        .filter(|name| words.contains(&**name) == not_of_fortran.contains(&&**name))
        .partition(|name| !words.contains(&**name));
    assert!(missing.is_empty() && needless.is_empty(), "missing: {missing:?}; no exceptions: {needless:?}");
}

/// The constants of code in C or Fortran, and their values.
fn constants(code: &str) -> BTreeMap<String, i32> {
    let assigned = code.split([',', '{', '}', '\n']).filter_map(|part| part.split_once('='));
    let parsed = assigned.filter_map(|(left, right)| {
        let name = left.trim().rsplit(' ').next()?;
        Some((name.to_owned(), right.trim().parse().ok()?))
    });
    parsed.filter(|(name, _)| name.starts_with("HALOCLINE_")).collect()
}

#[test]
fn the_modules_have_every_constant_of_the_header() {
    let (of_c, of_fortran) = (constants(&header::code()), constants(&code()));
    let missing: Vec<_> = of_c.iter().filter(|(name, value)| of_fortran.get(*name) != Some(value)).collect();
    assert!(missing.is_empty() && of_c.len() > 60, "{missing:?} of {}", of_c.len());
}

#[test]
fn structs_of_the_modules_have_the_sizes_of_those_of_c() {
    let Some(program) = program("sizes") else { return };
    let list = fs::read_to_string(here().join("abi.txt")).unwrap();
    let of_c: BTreeSet<&str> = list.lines().filter(|line| line.starts_with("struct ")).collect();
    let printed = succeeds(&mut Command::new(program));
    assert_eq!(printed.lines().collect::<BTreeSet<_>>(), of_c);
}
