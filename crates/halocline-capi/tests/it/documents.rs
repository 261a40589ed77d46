//! The blocks of the guide in C, C++, Fortran and CMake: each is compiled with all warnings as errors, and programs are run.

mod frames;

use crate::install::{built_by_cmake, installed};
use crate::programs::{halocline, launched_by, over_mpi_prints};
use crate::toolchain::{C, CPP, MPICC, MPICXX, here, library, own_file, succeeds};
use crate::{fortran, install, kokkos};
use frames::FRAMES;
use std::fs;
use std::path::PathBuf;

/// Languages of blocks that other tests compile or run, or that are not code.
const OTHER_LANGUAGES: &[&str] = &["", "bash", "json", "python", "rust", "sh", "text"];

struct Block {
    page: String,
    language: String,
    source: String,
    /// It is marked `notest`.
    is_skipped: bool,
}

/// The blocks in C, C++, Fortran and CMake of the README and of the guide, page by page.
fn blocks() -> Vec<Block> {
    let repository = here().join("../..");
    let folders = [repository.join("docs"), repository.join("docs/internals")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut pages: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(repository.join("README.md"));
    pages.sort();
    let mut blocks = Vec::new();
    for path in pages {
        let page = path.file_name().unwrap().to_string_lossy().into_owned();
        for block in fs::read_to_string(&path).unwrap().split("\n```").skip(1).step_by(2) {
            let (info, source) = block.split_once('\n').unwrap();
            let (language, mark) = info.split_once([' ', ',']).unwrap_or((info, ""));
            if matches!(language, "c" | "cpp" | "fortran" | "cmake") {
                assert!(matches!(mark, "" | "notest"), "{page}: {info}");
                let (page, language, source) = (page.clone(), language.to_owned(), format!("{source}\n"));
                blocks.push(Block { page, language, source, is_skipped: mark == "notest" });
            } else {
                assert!(
                    OTHER_LANGUAGES.contains(&language),
                    "{page}: no test compiles blocks of `{language}`"
                );
            }
        }
    }
    blocks
}

/// A file that is compiled: a program of a page and the fragments that follow it, or fragments without a program.
struct Unit {
    page: String,
    language: String,
    source: String,
    is_program: bool,
}

impl Unit {
    fn is_cpp(&self) -> bool {
        self.language == "cpp"
    }

    fn uses_mpi(&self) -> bool {
        self.source.contains("#include <mpi.h>")
    }

    fn uses_kokkos(&self) -> bool {
        self.source.contains("#include <halocline_kokkos.hpp>")
    }

    /// The program, or the object file of fragments; `None` if there is no compiler for it.
    fn compiled(&self) -> Option<PathBuf> {
        let compiler = match (self.is_cpp(), self.uses_mpi()) {
            (false, false) => C,
            (true, false) => CPP,
            (false, true) => MPICC,
            (true, true) => MPICXX,
        };
        if !compiler.is_here() {
            return None;
        }
        let source = own_file(if self.is_cpp() { "page.cpp" } else { "page.c" });
        fs::write(&source, &self.source).unwrap();
        let compiled = source.with_extension("");
        let mut compile = compiler.compile();
        // The C++ interface that Open MPI had does not compile without warnings.
        compile.arg("-DOMPI_SKIP_MPICXX").arg(&source).arg("-o").arg(&compiled);
        if self.is_program {
            compile.arg("-L").arg(library()).arg("-lhalocline");
            compile.arg(format!("-Wl,-rpath,{}", library().display()));
        } else {
            compile.arg("-c");
        }
        succeeds(&mut compile);
        Some(compiled)
    }
}

/// All programs and fragments of the guide.
fn units() -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut frames = FRAMES.iter();
    let is_compiled = |block: &Block| block.language != "cmake" && !block.is_skipped;
    for Block { page, language, source, .. } in blocks().into_iter().filter(is_compiled) {
        let is_program = source.contains("int main(");
        if is_program {
            units.push(Unit { page, language, source, is_program });
            continue;
        }
        let frame = frames.next().filter(|frame| frame.0 == page);
        let (_, opening) = frame.unwrap_or_else(|| panic!("{page}: `FRAMES` lacks a fragment\n{source}"));
        let closing = if language == "fortran" { "end subroutine\nend module" } else { "}" };
        let source = format!("{opening}\n{source}{closing}\n");
        match units.last_mut() {
            Some(unit)
                if unit.page == page && unit.language == language && !opening.starts_with("#include") =>
            {
                unit.source += &source;
            }
            _ => units.push(Unit { page, language, source, is_program }),
        }
    }
    assert!(frames.next().is_none(), "`FRAMES` has more fragments than the guide");
    units
}

/// The units of these pages, which are the ones that are meant.
fn units_of(pages: &[&str], are_meant: impl Fn(&Unit) -> bool) -> Vec<Unit> {
    let units: Vec<Unit> = units().into_iter().filter(|unit| are_meant(unit)).collect();
    assert_eq!(units.iter().map(|unit| &*unit.page).collect::<Vec<_>>(), pages);
    units
}

#[test]
fn programs_of_the_guide_run_on_two_ranks() {
    let is_plain = |unit: &Unit| unit.is_program && !unit.uses_mpi() && !unit.uses_kokkos();
    for program in units_of(&["c.md", "cpp.md", "from-petsc-sf.md", "patches.md", "patches.md"], is_plain) {
        let printed = launched_by(&halocline(), &program.compiled().unwrap(), "2");
        if program.page == "from-petsc-sf.md" {
            assert_eq!(printed, "[0] sum of squares 17.108152\n");
        }
    }
}

/// The exchange by hand, and both programs that replace one.
#[test]
fn programs_of_the_guide_that_use_mpi_print_the_same() {
    let use_mpi = |unit: &Unit| unit.is_program && unit.uses_mpi();
    for program in units_of(&["from-ghex-cpp.md", "from-mpi.md", "from-mpi.md"], use_mpi) {
        let Some(compiled) = program.compiled() else { continue };
        let printed = over_mpi_prints(&[compiled.as_os_str()], "4");
        assert_eq!(printed, "sum of squares 2028.167196\n", "{}", program.page);
    }
}

#[test]
fn fragments_of_pages_without_their_program_compile() {
    let are_alone = |unit: &Unit| !unit.is_program && unit.language != "fortran";
    let pages = ["assembling.md", "c.md", "dace.md", "icon-grids.md", "measuring.md", "programs.md"];
    for fragments in units_of(&pages, are_alone) {
        fragments.compiled();
    }
}

#[test]
fn fragments_in_fortran_compile() {
    for fragments in units_of(&["fortran.md", "patches.md"], |unit| unit.language == "fortran") {
        if fortran::is_here() && install::has_mpi_of_fortran() {
            fortran::check(&fragments.source);
        }
    }
}

#[test]
fn only_the_programs_of_other_libraries_are_skipped() {
    let skipped: Vec<Block> = blocks().into_iter().filter(|block| block.is_skipped).collect();
    let lines: Vec<_> =
        skipped.iter().map(|block| (&*block.page, block.source.lines().next().unwrap())).collect();
    let of_others = [
        ("from-ghex-cpp.md", "#include <ghex/communication_object.hpp>"),
        ("from-petsc-sf.md", "#include <petscsf.h>"),
    ];
    assert_eq!(lines, of_others);
}

#[test]
fn cmake_files_of_the_guide_build_the_programs_of_their_pages() {
    let pages = ["c.md", "kokkos.md"];
    let files: Vec<Block> = blocks().into_iter().filter(|block| block.language == "cmake").collect();
    assert_eq!(files.iter().map(|file| &*file.page).collect::<Vec<_>>(), pages);
    if !install::is_here("cmake") {
        return;
    }
    let (units, prefix) = (units(), installed());
    for (file, page) in files.iter().zip(pages) {
        let program = units.iter().find(|unit| unit.page == page && unit.is_program).unwrap();
        if program.uses_kokkos() && !kokkos::is_here() {
            continue;
        }
        let folder = own_file("page");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("CMakeLists.txt"), &file.source).unwrap();
        fs::write(folder.join(if program.is_cpp() { "heat.cpp" } else { "heat.c" }), &program.source)
            .unwrap();
        let warnings = ["C", "CXX"].map(|of| format!("CMAKE_{of}_FLAGS=-Wall -Wextra -Wpedantic -Werror"));
        let build = built_by_cmake(&folder, &prefix, &warnings);
        launched_by(&prefix.join("bin/halocline"), &build.join("heat"), "2");
    }
}
