//! Libraries that are no MPI, or whose calls fail. Each test loads one in a process of its own.

use super::limits::{passes, process_of};
use halocline_comm::mpi::{self, MpiError, Unusable};
use std::process::Command;

/// The functions that Halocline looks up, besides those of a test. They do nothing.
const OTHERS: &str = "Initialized Finalized Query_thread Is_thread_main Finalize Comm_rank Comm_size Comm_test_inter Comm_idup \
    Comm_split_type Comm_split Comm_free Comm_set_errhandler Comm_create_keyval Comm_set_attr Allgather Isend Irecv Improbe Imrecv \
    Get_count Test";

/// The error of a trial of a library with these functions.
fn tried(functions: &str) -> Option<MpiError> {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("stub.c"), folder.path().join("libstub.so"));
    std::fs::write(&source, functions).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("these tests need a C compiler, `cc`").success());
    mpi::try_out(&library).err()
}

/// `MPI_Get_library_version`.
fn version(text: &str) -> String {
    format!(
        "int MPI_Get_library_version(char *text, int *length) {{ *length = sprintf(text, \"{text}\"); return 0; }}\n"
    )
}

#[test]
fn a_library_of_no_known_interface_is_refused() {
    passes(&mut process_of("errors::stub_mpi::of_no_known_interface"));
}

#[test]
#[ignore = "the test above runs it, in a process of its own"]
fn of_no_known_interface() {
    let error = tried(&("int MPI_Init_thread() { return 0; }\n".to_owned() + &version("Some MPI 1.0")));
    let known = |why: &Unusable| matches!(why, Unusable::Interface(version) if version == "Some MPI 1.0");
    assert!(matches!(&error, Some(MpiError::Chosen { why, .. }) if known(why)), "{error:?}");
}

#[test]
fn a_call_of_mpi_that_fails_is_named() {
    passes(&mut process_of("errors::stub_mpi::a_call_that_fails"));
}

#[test]
#[ignore = "the test above runs it, in a process of its own"]
fn a_call_that_fails() {
    let others = OTHERS.split_whitespace().map(|name| format!("int MPI_{name}() {{ return 0; }}\n"));
    let failing = "
        int MPI_Init_thread() { return 15; }
        int MPI_Error_string(int code, char *text, int *length) { *length = sprintf(text, \"no network\"); return 0; }
    ";
    let error = tried(&(others.collect::<String>() + failing + &version("MPICH Version: 5.0")));
    match error {
        Some(MpiError::Call { call: "MPI_Init_thread", code: 15, text }) => assert_eq!(text, "no network"),
        other => panic!("instead of a failed call: {other:?}"),
    }
}
