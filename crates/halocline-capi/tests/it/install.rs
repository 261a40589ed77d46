//! The installed library as a user gets it: the examples built outside the repository, with pkg-config and with CMake.

use crate::programs::{halocline, launched_by, over_mpi_prints};
use crate::toolchain::{C, archive, here, own_file, succeeds};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    here().join("../..").canonicalize().unwrap()
}

/// Installs what cargo has built, and returns the prefix.
pub(crate) fn installed() -> PathBuf {
    let prefix = own_file("installed");
    let mut install = Command::new(repository().join("tools/install"));
    install.arg("--prefix").arg(&prefix).arg("--archive").arg(archive()).arg("--command").arg(halocline());
    succeeds(&mut install);
    prefix
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
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
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
    let needed = flags(&prefix, &["--cflags", "--libs", "--static"]);
    let needed = needed.into_iter().map(|flag| if flag == "-lhalocline" { own.clone() } else { flag });
    let program = build("heat-static", &needed.collect::<Vec<_>>());
    assert!(succeeds(&mut Command::new(&program)).contains("on 1 ranks, equal to one rank"));
    fs::remove_dir_all(prefix).unwrap();
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
    let printed = launched_by(&launcher, &build.join("heat_c"), "2");
    assert!(printed.contains("on 2 ranks, equal to one rank"), "{printed}");
    let of_meshes = ["unstructured", "unstructured_fortran"];
    for program in &of_meshes[..1 + usize::from(fortran)] {
        let (unstructured, mesh) = (build.join(program), repository().join("data/fesom-pi"));
        let mut launch = Command::new(&launcher);
        let launched = succeeds(launch.args(["launch", "-n", "4", "--"]).arg(&unstructured).arg(&mesh));
        let over_mpi = over_mpi_prints(&[unstructured.as_os_str(), mesh.as_os_str()], "4");
        for printed in [launched, over_mpi] {
            assert!(printed.contains("on 4 ranks, equal to one rank"), "{program}: {printed}");
        }
    }
    if fortran && has_mpi_of_fortran() {
        let heat = build.join("heat_fortran");
        assert!(succeeds(&mut Command::new(&heat)).contains("on 1 ranks, equal to one rank"));
        for printed in [launched_by(&launcher, &heat, "4"), over_mpi_prints(&[heat.as_os_str()], "4")] {
            assert!(printed.contains("on 4 ranks, equal to one rank"), "{printed}");
        }
    }
    fs::remove_dir_all(prefix).unwrap();
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
