//! `halocline run CASE`, as its users start it.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A case, by its name on the command line.
pub(crate) struct Case(pub(crate) &'static str);

impl Case {
    /// Runs the case to its end in a directory: the plot lies there by default.
    pub(crate) fn run(&self, directory: &Path, args: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
        command.args(["run", self.0]).args(args.split_whitespace());
        command.current_dir(directory).stdin(Stdio::null()).output().unwrap()
    }

    /// The JSON object in the last line of a run that must succeed.
    pub(crate) fn report(&self, directory: &Path, args: &str) -> Value {
        let output = self.run(directory, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args}: {stderr}");
        assert_eq!(stderr, "", "{args}: quiet where standard error is no terminal");
        let stdout = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
    }

    /// The message of a run that must fail with an exit code.
    pub(crate) fn refusal(&self, directory: &Path, args: &str, code: i32) -> String {
        let output = self.run(directory, args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args}: {stderr}");
        assert!(output.stdout.is_empty(), "{args}");
        stderr
    }
}

/// The number of links in a report.
pub(crate) fn links(report: &Value) -> u64 {
    ["direct", "mailbox", "message"].iter().map(|path| report["links"][path].as_u64().unwrap()).sum()
}
