//! Checks that SAFETY comments are complete by themselves, in all crates of the workspace.

use std::path::{Path, PathBuf};

/// The text after `mark` in each comment of a file, joined to one line, with the number of its first line.
fn comments(text: &str, mark: &str) -> Vec<(usize, String)> {
    let comment = |line: &str| {
        line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim().to_owned())
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(first) = comment(line).and_then(|first| Some(first.strip_prefix(mark)?.trim().to_owned()))
        else {
            continue;
        };
        let rest = lines[at + 1..]
            .iter()
            .map_while(|line| comment(line))
            .take_while(|line| !line.starts_with("SAFETY:"));
        let all: Vec<String> = std::iter::once(first).chain(rest).collect();
        found.push((at + 1, all.join(" ").trim().to_owned()));
    }
    found
}

/// The fault of such a text, if any.
fn fault(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let begins = [
        "as above",
        "as in ",
        "as for ",
        "as before",
        "see ",
        "like ",
        "likewise",
        "same",
        "the same",
        "ditto",
        "by our caller",
    ];
    let refers = ["as above", "see above", "see below", "as in `", "as for [`"];
    if text.split_whitespace().count() < 4 {
        Some("says too little")
    } else if begins.iter().any(|begin| text.starts_with(begin))
        || refers.iter().any(|words| text.contains(words))
    {
        Some("refers to another comment")
    } else {
        None
    }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a folder of the workspace");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let (directories, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|name| name == "rs"));
    let within = directories.iter().filter(|path| !path.ends_with("target") && !path.ends_with(".venv"));
    own.chain(within.flat_map(|directory| sources(directory))).collect()
}

#[test]
fn every_safety_comment_is_complete_by_itself() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in sources(crates) {
        let text = std::fs::read_to_string(&path).expect("a text");
        for mark in ["SAFETY:", "# Safety"] {
            for (line, comment) in comments(&text, mark) {
                seen += 1;
                if let Some(fault) = fault(&comment) {
                    wrong.push(format!("{}:{line}: {fault}: {comment:?}", path.display()));
                }
            }
        }
    }
    assert!(seen > 500, "only {seen} comments found");
    assert!(
        wrong.is_empty(),
        "name the invariant and what keeps it, in the comment itself:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn comments_that_say_nothing_are_found() {
    let text = "// SAFETY:\nunsafe {}\n    // SAFETY: as in `copy`,\n    // which has it.\n/// # Safety\n/// As for [`Self::a`], too.\n\
                // SAFETY: `memory` holds so many bytes, and nobody else uses them.\n";
    let marked = |mark| comments(text, mark);
    let faults: Vec<_> = marked("SAFETY:").iter().map(|(line, text)| (*line, fault(text))).collect();
    let (little, refers) = (Some("says too little"), Some("refers to another comment"));
    assert_eq!(faults, [(1, little), (3, refers), (7, None)]);
    assert_eq!(marked("# Safety").iter().map(|(_, text)| fault(text)).collect::<Vec<_>>(), [refers]);
}
