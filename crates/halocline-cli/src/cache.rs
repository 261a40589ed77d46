//! `halocline cache`: the cache of compiled programs.

use crate::error::CommandError;
use crate::info::binary_size;
use crate::table::{print_lines, table};
use clap::{Args, Subcommand};
use halocline_program::cache::{Cache, Contents, Damaged, Entry, Filter};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is done with the cache.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    List(ListArgs),
    Verify(VerifyArgs),
    Clear(ClearArgs),
}

/// Show the programs in the cache, those used last first
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    folder: FolderArgs,
}

/// Compare all files of the cache with their hashes; fails if some differ
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Remove damaged programs, so that they are built again
    #[arg(long)]
    remove: bool,
}

/// Remove programs from the cache, and what killed builds left
///
/// Says what it has removed. Processes that have a program open keep it.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)))]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// All programs
    #[arg(long, group = "which", conflicts_with_all = ["unused_for", "program"])]
    all: bool,
    /// Only programs that no process has got for this long: a number and s, m, h or d, such as 30d
    #[arg(long, group = "which", value_name = "AGE", value_parser = age)]
    unused_for: Option<Duration>,
    /// Only the program of this name
    #[arg(long, group = "which", value_name = "NAME")]
    program: Option<String>,
}

#[derive(Debug, Args)]
struct FolderArgs {
    /// The folder of the cache [default: `programs` in HALOCLINE_CACHE, or ~/.cache/halocline/programs]
    #[arg(long = "dir", value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl FolderArgs {
    fn cache(&self) -> Result<Cache, CommandError> {
        Ok(self.folder.clone().map_or_else(Cache::of_user, |folder| Ok(Cache::at(folder)))?)
    }
}

/// A time such as `30d`.
fn age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; give a number and s, m, h or d, such as 30d");
    let split = text.len() - text.chars().next_back().map_or(0, char::len_utf8);
    let seconds = match &text[split..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

/// Returns the exit code.
pub(crate) fn run(command: &CacheCommand, json: bool) -> Result<u8, CommandError> {
    match command {
        CacheCommand::List(args) => {
            let cache = args.folder.cache()?;
            print(&cache.list()?, json, |contents| listed(&cache, contents)).map(|()| 0)
        }
        CacheCommand::Verify(args) => {
            let cache = args.folder.cache()?;
            let mut contents = cache.verify()?;
            let code = u8::from(!contents.damaged.is_empty());
            if args.remove {
                contents.damaged = cache.discard(contents.damaged)?;
            }
            print(&contents, json, |contents| verified(&cache, contents, args.remove)).map(|()| code)
        }
        CacheCommand::Clear(args) => {
            let cache = args.folder.cache()?;
            let mut filter = Filter::all();
            if let Some(age) = args.unused_for {
                filter = filter.unused_for(age);
            }
            if let Some(program) = &args.program {
                filter = filter.program(program);
            }
            let removed = cache.clear(&filter)?;
            print(&removed, json, |removed| cleared(&cache, removed)).map(|()| 0)
        }
    }
}

/// Prints a line of JSON for each entry, or the text.
fn print(
    contents: &Contents,
    json: bool,
    text: impl FnOnce(&Contents) -> String,
) -> Result<(), CommandError> {
    let lines = json.then(|| {
        let entries = contents.entries.iter().map(object);
        let damaged = contents
            .damaged
            .iter()
            .map(|Damaged { folder, why, .. }| json!({"folder": folder, "damaged": why}));
        entries.chain(damaged).collect::<Vec<Value>>()
    });
    print_lines(lines.as_ref(), || text(contents)).map_err(CommandError::Report)
}

fn object(entry: &Entry) -> Value {
    let used = entry.last_use().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    json!({
        "folder": entry.folder(),
        "library": entry.library(),
        "bytes": entry.bytes(),
        "last_use": used,
        "record": entry.record(),
    })
}

fn listed(cache: &Cache, contents: &Contents) -> String {
    let mut text = entries(&contents.entries);
    for Damaged { folder, why, .. } in &contents.damaged {
        text += &format!("damaged, will be built again: {}: {why}\n", folder.display());
    }
    text + &format!("{} in {}\n", total(&contents.entries), cache.folder().display())
}

fn verified(cache: &Cache, contents: &Contents, removed: bool) -> String {
    let mut text = String::new();
    for Damaged { folder, why, .. } in &contents.damaged {
        let what = if removed { "damaged, removed" } else { "damaged" };
        text += &format!("{what}: {}: {why}\n", folder.display());
    }
    let damaged = contents.damaged.len();
    text + &format!(
        "whole: {}, damaged: {damaged}, in {}\n",
        total(&contents.entries),
        cache.folder().display()
    )
}

fn cleared(cache: &Cache, removed: &Contents) -> String {
    let mut text = entries(&removed.entries);
    for Damaged { folder, .. } in &removed.damaged {
        text += &format!("damaged: {}\n", folder.display());
    }
    text + &format!("removed {} from {}\n", total(&removed.entries), cache.folder().display())
}

/// Entries as a table.
fn entries(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let header = ["program", "key", "size", "last use", "built on", "in"].map(str::to_owned);
    let mut rows = vec![header.to_vec()];
    let now = SystemTime::now();
    rows.extend(entries.iter().map(|entry| {
        let record = entry.record();
        let age = now.duration_since(entry.last_use()).map_or_else(|_| "now".to_owned(), ago);
        let key = record.key.to_string()[..12].to_owned();
        let took = format!("{:.1} s", record.built.seconds);
        vec![
            record.program.to_string(),
            key,
            binary_size(entry.bytes()),
            age,
            record.built.host.to_string(),
            took,
        ]
    }));
    table(&rows)
}

fn total(entries: &[Entry]) -> String {
    let bytes = entries.iter().map(Entry::bytes).sum();
    let programs =
        if entries.len() == 1 { "1 program".to_owned() } else { format!("{} programs", entries.len()) };
    format!("{programs} of {}", binary_size(bytes))
}

/// A time in the past.
fn ago(age: Duration) -> String {
    match age.as_secs() {
        0..60 => "now".to_owned(),
        seconds @ 60..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / (24 * 3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("5m", 300), ("2h", 7200), ("30d", 2_592_000)] {
            assert_eq!(age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "d", "30", "-1d", "1.5h", "3 d", "3w", "99999999999999999d", "5ü"] {
            assert!(age(text).is_err(), "{text}");
        }
        for (seconds, text) in [(59, "now"), (60, "1 min ago"), (7200, "2 h ago"), (200_000, "2 days ago")] {
            assert_eq!(ago(Duration::from_secs(seconds)), text);
        }
    }
}
