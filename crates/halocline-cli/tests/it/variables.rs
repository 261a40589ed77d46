//! What the command makes of the variables of its environment.

use std::process::{Command, Output, Stdio};

/// Runs a small case on one thread with these variables.
fn run(variables: &[(&str, &str)]) -> Output {
    halocline("run heat --grid 8x8x8 --transport thread --ranks 1 --steps 1 --rounds 0", variables)
}

fn halocline(arguments: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.args(arguments.split(' '));
    command.envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

const NAMES: [&str; 12] = [
    "HALOCLINE_CACHE_LIMIT",
    "HALOCLINE_CHECK",
    "HALOCLINE_LL",
    "HALOCLINE_STREAM_WAITS",
    "HALOCLINE_MPI_DEVICE",
    "HALOCLINE_NODE_AWARE",
    "HALOCLINE_NODE_RANKS",
    "HALOCLINE_LOG",
    "HALOCLINE_RANK",
    "HALOCLINE_SIZE",
    "HALOCLINE_JOB",
    "HALOCLINE_CONTROL_FD",
];

#[test]
fn empty_variables_count_as_unset() {
    let output = run(&NAMES.map(|name| (name, "")));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn garbage_in_a_variable_is_refused_with_one_form_of_message() {
    for (name, garbage) in [
        ("HALOCLINE_CHECK", "maybe"),
        // All fields lie on the host.
        ("HALOCLINE_LL", "garbage"),
        ("HALOCLINE_STREAM_WAITS", "perhaps"),
        // Nothing is built.
        ("HALOCLINE_CACHE_LIMIT", "10 GB"),
        // No rank uses MPI.
        ("HALOCLINE_MPI_DEVICE", "perhaps"),
        ("HALOCLINE_NODE_AWARE", "maybe"),
        ("HALOCLINE_NODE_RANKS", "0"),
        ("HALOCLINE_LOG", "debgu"),
        ("HALOCLINE_LOG", "loud and=clear"),
        ("HALOCLINE_LOG", "halocline=loud"),
    ] {
        for output in [run(&[(name, garbage)]), halocline("info", &[(name, garbage)])] {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let expected = format!("halocline: error: {name} is {garbage:?}, it should be ");
            assert!(stderr.starts_with(&expected), "{stderr}");
            assert!(!output.status.success());
        }
    }
}

#[test]
fn a_part_of_the_variables_of_a_job_is_refused() {
    for (name, value) in [("HALOCLINE_SIZE", "2"), ("HALOCLINE_JOB", "a")] {
        let output = halocline("run heat --grid 8x8x8 --ranks 1 --steps 1 --rounds 0", &[(name, value)]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("is not set, but other HALOCLINE variables of a job are"),
            "{name}={value}: {stderr}"
        );
        assert!(!output.status.success());
    }
}

#[test]
fn every_word_for_yes_and_for_no_is_taken() {
    for word in ["1", "on", "yes", "TRUE", "0", "off", "no", "false"] {
        let output = run(&[("HALOCLINE_CHECK", word)]);
        assert!(output.status.success(), "{word}: {output:?}");
    }
}
