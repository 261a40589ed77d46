//! `--save DIR`: what a benchmark has measured, as a dated data file.

use crate::error::CommandError;
use crate::info;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory for measurements, if they are saved.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SaveArgs {
    /// Append the measurements to DIR/DATE-NAME.jsonl: date, machine, commit and command in one line, then one JSON object a line
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

impl SaveArgs {
    /// Refuses a path that is not a directory. Call it before the measurement.
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        match &self.save {
            Some(path) if !path.is_dir() => Err(CommandError::usage(format!(
                "`--save {folder}`, but {folder} is no directory; make it first",
                folder = path.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Appends these lines to today's file of the benchmark.
    pub(crate) fn write(&self, name: &str, lines: &[Value]) -> Result<(), CommandError> {
        let Some(directory) = &self.save else { return Ok(()) };
        let date = time::OffsetDateTime::now_utc().date().to_string();
        let path = directory.join(format!("{date}-{name}.jsonl"));
        let head = json!({
            "date": date,
            "machine": info::machine(),
            "commit": commit(directory),
            "command": command(),
        });
        let text: String = std::iter::once(&head).chain(lines).map(|line| format!("{line}\n")).collect();
        let append =
            || std::fs::File::options().create(true).append(true).open(&path)?.write_all(text.as_bytes());
        append().map_err(CommandError::file("write the measurements to", &path))
    }
}

/// The commit of the repository that holds the directory.
fn commit(directory: &Path) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(directory).args(["describe", "--always", "--dirty"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The command line.
fn command() -> String {
    let arguments = crate::arguments();
    let words = arguments.iter().map(|argument| argument.to_string_lossy());
    std::iter::once("halocline".into()).chain(words).collect::<Vec<_>>().join(" ")
}
