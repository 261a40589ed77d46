//! The Fortran modules, compiled with all warnings as errors.

use crate::toolchain::{here, library, own_file, succeeds};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Compiles a program of `tests/fortran` with the modules; `None`, said aloud, without a compiler.
fn program(name: &str) -> Option<PathBuf> {
    let Ok(_) = Command::new("gfortran").arg("--version").output() else {
        eprintln!("== SKIPPED: no gfortran here");
        return None;
    };
    let folder = own_file(name);
    fs::create_dir(&folder).unwrap();
    let (sources, library) = (here().join("fortran"), library());
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-c"]).arg(sources.join("halocline_fortran.c"));
    succeeds(compile.arg("-I").arg(here().join("include")).current_dir(&folder));
    let mut compile = Command::new("gfortran");
    compile.args(["-std=f2018", "-Wall", "-Wextra", "-Werror"]).current_dir(&folder);
    compile.args(["halocline", "halocline_meshes"].map(|module| sources.join(module).with_extension("f90")));
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
