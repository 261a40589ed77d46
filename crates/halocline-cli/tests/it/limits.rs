//! What the command says where the system has no descriptors, threads or GPUs for it.

use std::process::{Command, Stdio};

/// The error of the command, started by a shell after `before`, with no descriptors but the standard ones.
fn refused(before: &str, args: &str) -> String {
    let closed: String = (3..10).map(|file| format!(" {file}>&-")).collect();
    let script = format!("exec{closed}; {before}; exec \"$0\" {args}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_halocline")]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{before}: {stderr}");
    stderr
}

#[test]
fn a_launcher_without_descriptors_says_what_it_cannot_do() {
    let said: Vec<String> =
        (4..8).map(|files| refused(&format!("ulimit -n {files}"), "launch -n 1 -- true")).collect();
    for what in [
        "cannot keep the control memfd of the job",
        "the launcher cannot start the guardian of the job",
        "cannot make the lifeline of the job",
    ] {
        assert!(said.iter().any(|said| said.contains(what)), "{what}: {said:#?}");
    }
}

#[test]
fn threads_that_cannot_be_started_are_named() {
    // No address space holds a stack of 2^47 bytes.
    let without_threads = "export RUST_MIN_STACK=140737488355328";
    let said = refused(without_threads, "launch -n 1 -- true");
    assert!(said.contains("cannot start the thread that prints"), "{said}");
    let said =
        refused(without_threads, "run heat --grid 4x4x4 --steps 1 --rounds 0 --ranks 2 --transport thread");
    assert!(said.contains("cannot start the thread of rank 0"), "{said}");
}

#[test]
fn device_cuda_without_a_gpu_says_what_it_needs() {
    let said =
        refused("export CUDA_VISIBLE_DEVICES=", "run heat --device cuda --grid 4x4x4 --steps 1 --ranks 1");
    assert!(said.contains("`--device cuda` needs a GPU, its driver and NVRTC"), "{said}");
}
