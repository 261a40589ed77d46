//! A report that cannot be written is an error with a message, not a panic.

use std::fs::File;
use std::process::{Command, Stdio};

#[test]
fn each_command_says_that_its_report_cannot_be_written() {
    let commands: [&[&str]; 5] = [
        &["explain", "--ranks", "2", "--grid", "8x8x8"],
        &["info"],
        &["run", "heat", "--ranks", "1", "--grid", "6x6x6", "--steps", "2", "--rounds", "1"],
        &["run", "ocean", "--ranks", "1", "--steps", "2", "--no-plot"],
        &["bench", "halo", "--grid", "6x5x4", "--iters", "3", "--rounds", "2"],
    ];
    for command in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut halocline = Command::new(env!("CARGO_BIN_EXE_halocline"));
        let output = halocline.args(command).stdout(Stdio::from(full)).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {text}");
        assert!(text.contains("cannot write the report"), "{command:?}: {text}");
    }
}
