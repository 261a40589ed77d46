//! The installed library as a user gets it: the examples built outside the repository, with pkg-config and with CMake.

use crate::programs::{halocline, launched_by, over_mpi_prints};
use crate::toolchain::{C, archive, here, made_once, own_file, succeeds};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    here().join("../..").canonicalize().unwrap()
}

/// Installs what cargo has built, once for all tests, and returns the prefix.
pub(crate) fn installed() -> PathBuf {
    let (archive, command) = (archive(), halocline());
    let sources = ["include", "fortran", "package"].map(|folder| here().join(folder));
    let parts: Vec<&Path> = sources.iter().chain([&archive, &command]).map(|path| path.as_ref()).collect();
    made_once("installed-", &parts, |prefix| {
        let mut install = Command::new(repository().join("tools/install"));
        install.arg("--prefix").arg(prefix).arg("--archive").arg(&archive).arg("--command").arg(&command);
        succeeds(&mut install);
    })
}

#[test]
fn the_installed_library_has_no_debug_information_and_dace_has_its_module() {
    let prefix = installed();
    let sections = succeeds(Command::new("readelf").arg("-SW").arg(prefix.join("lib/libhalocline.so")));
    assert!(sections.contains(".symtab") && !sections.contains(".debug_info"), "{sections}");
    let module = fs::read_to_string(prefix.join("share/halocline/dace/halocline_c.py")).unwrap();
    assert!(module.contains("libhalocline.so"), "{module}");
}

/// Copies the examples and the mesh out of the repository.
fn examples() -> PathBuf {
    let folder = own_file("examples");
    fs::create_dir(&folder).unwrap();
    succeeds(Command::new("cp").arg("-R").arg(repository().join("examples")).arg(&folder));
    folder.join("examples")
}

/// Builds the examples outside the repository as a user does, with options of their project, and returns the build folder.
pub(crate) fn build_examples(prefix: &Path, options: &[&str]) -> PathBuf {
    let options: Vec<String> = options.iter().map(|option| format!("{option}=ON")).collect();
    built_by_cmake(&examples(), prefix, &options)
}

/// Builds a CMake project with these variables against the installed library, and returns the build folder.
pub(crate) fn built_by_cmake(project: &Path, prefix: &Path, variables: &[String]) -> PathBuf {
    let build = own_file("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(project).arg("-B").arg(&build);
    // With optimisation, as users build: an example must not depend on how its compiler rounds.
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).arg("-DCMAKE_BUILD_TYPE=Release");
    configure.args(variables.iter().map(|variable| format!("-D{variable}")));
    succeeds(&mut configure);
    succeeds(Command::new("cmake").arg("--build").arg(&build).args(["--parallel", "4"]));
    build
}

pub(crate) fn is_here(command: &str) -> bool {
    let found = Command::new(command).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("== SKIPPED: no {command} here");
    }
    found
}

/// The flags that pkg-config gives for the installed library.
fn flags(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(arguments).arg("halocline").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    succeeds(&mut command).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_example_of_c_is_built_with_pkg_config_and_equals_one_rank() {
    if !is_here("pkg-config") {
        return;
    }
    let (prefix, source) = (installed(), examples().join("c/heat.c"));
    let build = |name: &str, arguments: &[String]| {
        let program = own_file(name);
        let mut compile = Command::new(C.command);
        compile.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]).arg(&source).args(arguments);
        succeeds(compile.arg("-o").arg(&program));
        program
    };
    let program = build("heat", &flags(&prefix, &["--cflags", "--libs"]));
    assert!(succeeds(&mut Command::new(&program)).contains("on 1 ranks, equal to one rank"));
    let printed = launched_by(&prefix.join("bin/halocline"), &program, "4");
    assert!(printed.contains("on 4 ranks, equal to one rank"), "{printed}");

    // With the static library, and what pkg-config says that it needs.
    let own = prefix.join("lib/libhalocline.a").display().to_string();
    let symbols = succeeds(Command::new("nm").args(["-g", "--defined-only", &own]));
    let foreign: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(_, name)| !name.starts_with("halocline_"))
        .collect();
    assert!(foreign.is_empty(), "symbols that may be the program's own: {foreign:?}");
    let needed = flags(&prefix, &["--cflags", "--libs", "--static"]);
    let needed = needed.into_iter().map(|flag| if flag == "-lhalocline" { own.clone() } else { flag });
    let program = build("heat-static", &needed.collect::<Vec<_>>());
    assert!(succeeds(&mut Command::new(&program)).contains("on 1 ranks, equal to one rank"));
}

#[test]
fn the_examples_are_built_with_the_cmake_package_and_equal_one_rank() {
    if !is_here("cmake") {
        return;
    }
    let prefix = installed();
    let fortran = is_here("gfortran");
    let build = build_examples(&prefix, if fortran { &["FORTRAN"] } else { &[] });
    let launcher = prefix.join("bin/halocline");
    let data = repository().join("data/fesom-pi");
    let mut examples = vec![("heat_c", None), ("unstructured", Some(&data))];
    if fortran {
        examples.push(("unstructured_fortran", Some(&data)));
        if has_mpi_of_fortran() {
            examples.push(("heat_fortran", None));
        }
    }
    for (name, data) in examples {
        let program = build.join(name);
        let line: Vec<&OsStr> =
            [program.as_os_str()].into_iter().chain(data.map(|data| data.as_os_str())).collect();
        equals_one_rank_however_started(&launcher, &line);
    }
}

/// Runs an example with its arguments alone, as launched ranks, and under mpirun.
fn equals_one_rank_however_started(launcher: &Path, line: &[&OsStr]) {
    let alone = succeeds(Command::new(line[0]).args(&line[1..]));
    let launched = succeeds(Command::new(launcher).args(["launch", "-n", "4", "--"]).args(line));
    let over_mpi = over_mpi_prints(line, "4");
    for (printed, ranks) in [(alone, 1), (launched, 4), (over_mpi, 4)] {
        let wanted = format!("on {ranks} ranks, equal to one rank");
        assert!(printed.contains(&wanted), "{line:?}: {printed}");
    }
}

/// Whether the modules of MPI are installed for Fortran.
pub(crate) fn has_mpi_of_fortran() -> bool {
    let source = own_file("uses_mpi.f90");
    fs::write(&source, "program p\nuse mpi_f08\nend program\n").unwrap();
    let compiled =
        Command::new("mpifort").arg("-c").arg(&source).current_dir(source.parent().unwrap()).output();
    let found = compiled.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("== SKIPPED: no MPI for Fortran here (libopenmpi-dev)");
    }
    found
}
