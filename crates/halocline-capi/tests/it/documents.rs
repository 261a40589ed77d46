//! The programs of the guide in C and C++: each is compiled with all warnings as errors, and run.

use crate::kokkos;
use crate::programs::{halocline, launched_by, over_mpi_prints};
use crate::toolchain::{C, CPP, MPICC, MPICXX, here, library, own_file, succeeds};
use std::fs;
use std::path::PathBuf;

/// A program of a page.
struct Program {
    page: String,
    source: String,
    is_cpp: bool,
}

impl Program {
    fn uses_mpi(&self) -> bool {
        self.source.contains("#include <mpi.h>")
    }

    fn uses_kokkos(&self) -> bool {
        self.source.contains("#include <halocline_kokkos.hpp>")
    }

    /// `None` if there is no compiler for it.
    fn compiled(&self) -> Option<PathBuf> {
        let compiler = match (self.is_cpp, self.uses_mpi()) {
            (false, false) => C,
            (true, false) => CPP,
            (false, true) => MPICC,
            (true, true) => MPICXX,
        };
        if !compiler.is_here() {
            return None;
        }
        let source = own_file(if self.is_cpp { "page.cpp" } else { "page.c" });
        fs::write(&source, &self.source).unwrap();
        let program = source.with_extension("");
        let mut compile = compiler.compile();
        // The C++ interface that Open MPI had does not compile without warnings.
        compile.arg("-DOMPI_SKIP_MPICXX").arg(&source).arg("-o").arg(&program);
        compile.arg("-L").arg(library()).arg("-lhalocline");
        if self.uses_kokkos() {
            compile.args(kokkos::FLAGS);
        }
        compile.arg(format!("-Wl,-rpath,{}", library().display()));
        succeeds(&mut compile);
        Some(program)
    }
}

/// The whole programs of the guide: blocks of C and C++ with a `main`. A block marked `notest` needs another library.
fn programs() -> Vec<Program> {
    let mut pages: Vec<PathBuf> =
        fs::read_dir(here().join("../../docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut programs = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("\n```").skip(1).step_by(2) {
            let (language, source) = block.split_once('\n').unwrap();
            if matches!(language, "c" | "cpp") && source.contains("int main(") {
                let page = page.file_name().unwrap().to_string_lossy().into_owned();
                programs.push(Program { page, source: format!("{source}\n"), is_cpp: language == "cpp" });
            }
        }
    }
    programs
}

#[test]
fn programs_of_the_guide_run_on_two_ranks() {
    let mut pages = Vec::new();
    let is_plain = |program: &&Program| !program.uses_mpi() && !program.uses_kokkos();
    for program in programs().iter().filter(is_plain) {
        let compiled = program.compiled().unwrap();
        let printed = launched_by(&halocline(), &compiled, "2");
        if program.page == "from-petsc-sf.md" {
            assert_eq!(printed, "[0] sum of squares 17.108152\n");
        }
        pages.push(program.page.clone());
    }
    assert_eq!(pages, ["c.md", "cpp.md", "from-petsc-sf.md"]);
}

#[test]
fn programs_of_the_guide_that_use_kokkos_run_on_two_ranks() {
    let programs = programs();
    let programs: Vec<&Program> = programs.iter().filter(|program| program.uses_kokkos()).collect();
    let pages: Vec<&str> = programs.iter().map(|program| program.page.as_str()).collect();
    assert_eq!(pages, ["kokkos.md"]);
    for program in programs.into_iter().filter(|_| kokkos::is_here()) {
        launched_by(&halocline(), &program.compiled().unwrap(), "2");
    }
}

/// The exchange by hand, and both programs that replace one.
#[test]
fn programs_of_the_guide_that_use_mpi_print_the_same() {
    let programs = programs();
    let programs: Vec<&Program> = programs.iter().filter(|program| program.uses_mpi()).collect();
    let pages: Vec<&str> = programs.iter().map(|program| program.page.as_str()).collect();
    assert_eq!(pages, ["from-ghex-cpp.md", "from-mpi.md", "from-mpi.md"]);
    for program in programs {
        let Some(compiled) = program.compiled() else { continue };
        let printed = over_mpi_prints(&[compiled.as_os_str()], "4");
        assert_eq!(printed, "sum of squares 2028.167196\n", "{}", program.page);
    }
}
