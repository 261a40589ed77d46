//! Older files after a failed write on a full disk.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const OLD: [u8; 4096] = [b'o'; 4096];

/// Runs the command where files cannot grow over 512 bytes, as if the disk were full.
fn run_without_room(directory: &Path, args: &str) -> Output {
    let script = format!("trap '' XFSZ; ulimit -f 1; exec \"$0\" {args}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_halocline")]).current_dir(directory);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Each file is as it was, there is no other one, and the error names the file and what the system said.
fn older_files_stay(args: &str, files: &[&str], message: &str) {
    let directory = tempfile::tempdir().unwrap();
    for file in files {
        std::fs::write(directory.path().join(file), OLD).unwrap();
    }
    let output = run_without_room(directory.path(), args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr, format!("halocline: error: {message}\n"));
    for file in files {
        assert_eq!(std::fs::read(directory.path().join(file)).unwrap(), OLD, "{file}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), files.len());
}

#[test]
fn a_full_disk_leaves_an_older_save_trace_and_plot_as_they_were() {
    let run = "run ocean --transport thread --ranks 2 --steps 1";
    older_files_stay(
        &format!("{run} --plot a.png"),
        &["a.png"],
        "cannot write the plot to a.png: File too large (os error 27); check the path, its permissions and the free space",
    );
    older_files_stay(
        &format!("{run} --no-plot --save t.npy"),
        &["t.npy"],
        "cannot write t.npy: File too large (os error 27); check the path, its permissions and the free space (an older file is \
         as it was)",
    );
    older_files_stay(
        &format!("{run} --no-plot --trace t.json"),
        &["t.json"],
        "cannot write the trace to t.json: File too large (os error 27); give a path of a file that can be written",
    );
}
