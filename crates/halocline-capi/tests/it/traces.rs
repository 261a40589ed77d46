//! Traces of programs of C and C++.

use crate::programs::{halocline, over_mpi_prints};
use crate::toolchain::{C, CPP, own_file, succeeds};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    let folder = own_file("traces");
    fs::create_dir(&folder).unwrap();
    folder
}

/// The trace has so many ranks, and five exchanges of each.
fn has_five_exchanges_of(ranks: usize, folder: &Path) {
    let trace = fs::read_to_string(folder.join("trace.json")).unwrap();
    for rank in 0..ranks {
        assert!(trace.contains(&format!("\"name\":\"rank {rank}\"")), "rank {rank}: {trace}");
        let of_rank = |line: &&str| {
            line.contains(&format!("\"pid\":{rank},"))
                && line.contains("\"ph\":\"X\"")
                && line.contains("\"name\":\"exchange\"")
        };
        assert_eq!(trace.lines().filter(of_rank).count(), 5, "rank {rank}: {trace}");
    }
    assert!(trace.contains("traced"), "the name of the object: {trace}");
}

#[test]
fn c_traces_threads_and_processes() {
    let program = C.program("trace");
    let of_threads = folder();
    assert_eq!(succeeds(Command::new(&program).arg(&of_threads).arg("3")), "ok 3 thread\n");
    has_five_exchanges_of(3, &of_threads);

    let launched = folder();
    let mut launch = Command::new(halocline());
    let printed = succeeds(launch.args(["launch", "-n", "2", "--"]).arg(&program).arg(&launched));
    assert!(printed.contains("ok 2 shm"), "{printed}");
    has_five_exchanges_of(2, &launched);

    let over_mpi = folder();
    let printed = over_mpi_prints(&[program.as_os_str(), over_mpi.as_os_str()], "2");
    assert!(printed.contains("ok 2 mpi"), "{printed}");
    has_five_exchanges_of(2, &over_mpi);
}

#[test]
fn cpp_traces() {
    let program = CPP.program("trace");
    let folder = folder();
    assert_eq!(succeeds(Command::new(&program).args([folder.as_os_str(), OsStr::new("2")])), "");
    has_five_exchanges_of(2, &folder);
}
