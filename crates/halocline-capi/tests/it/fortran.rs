//! The Fortran modules, compiled with all warnings as errors.

use crate::toolchain::{here, library, own_file, succeeds};
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
    compile.args(MODULES.map(|module| here().join("fortran").join(module)));
    compile
}

const MODULES: [&str; 2] = ["halocline.f90", "halocline_meshes.f90"];

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
    interoperable.arg(here().join("fortran/halocline_fortran.c")).arg("-I").arg(here().join("include"));
    succeeds(interoperable.current_dir(&folder));
    let mut compile = compile("gfortran", &folder);
    compile.arg(here().join("tests/fortran").join(name).with_extension("f90"));
    compile.args(["halocline_fortran.o", "-lhalocline", "-o", name]).arg("-L").arg(library);
    succeeds(compile.arg(format!("-Wl,-rpath,{}", library.display())));
    Some(folder.join(name))
}

#[test]
fn fortran_makes_meshes_and_gets_errors() {
    if let Some(program) = program("meshes") {
        assert_eq!(succeeds(&mut Command::new(program)), "ok\n");
    }
}
