//! `docs/errors.md`, the page of all error messages, agrees with the code, and a test names each message.

mod apart;
mod arguments;
mod disagreements;
mod limits;
mod provoked;
mod source;
mod stub_driver;
mod stub_mpi;
mod stub_nccl;

use arguments::{Check, checks, not_quoted};
use source::{Message, messages, test_code};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

fn page() -> PathBuf {
    source::root().join("docs/errors.md")
}

/// The page as the code has it.
fn written() -> String {
    let mut page = String::from(
        "# Error messages\n\n\
         This page lists the typed errors of the Rust crates, then the messages of the Python package's own checks and of the\n\
         command's. Python and the command show the texts of the Rust crates too. Tests name or quote all of them but the two\n\
         of `NOT_NAMED` in `halocline-conformance`.\n\n\
         A message says what happened, where, and what to do. `{name}` stands for a value, `…` for a composed text. The message of\n\
         a failed exchange contains a text of `Cause`. Numbers of ranks, patterns, fields, sets, axes and dimensions count from 0,\n\
         those of exchanges from 1.\n\n\
         Generated from the code: `HALOCLINE_BLESS=1 cargo test -p halocline-conformance --test it errors::` writes this page.\n",
    );
    let mut last = None;
    for message in messages() {
        let container = (message.krate.clone(), message.container.clone());
        if last.as_ref() != Some(&container) {
            let (krate, name) = &container;
            write!(
                page,
                "\n## `{name}` of `{krate}`\n\n| error | message | meaning |\n| --- | --- | --- |\n"
            )
            .unwrap();
            last = Some(container);
        }
        writeln!(page, "| `{}` | {} | {} |", message.variant, cell(&message.text), cell(&message.meaning))
            .unwrap();
    }
    write_checks(&mut page);
    page
}

/// The tables of the checks of Python and the command.
fn write_checks(page: &mut String) {
    let checks = checks();
    for (krate, title, first) in [
        ("halocline-python", "Checks of the Python package", "exception"),
        ("halocline-cli", "Checks of the command", "kind"),
    ] {
        write!(page, "\n## {title}\n\n| {first} | message |\n| --- | --- |\n").unwrap();
        for Check { exception, text, .. } in checks.iter().filter(|check| check.krate == krate) {
            writeln!(page, "| `{exception}` | {} |", cell(text)).unwrap();
        }
    }
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace("\\n", " ")
}

#[test]
fn the_page_of_error_messages_agrees_with_the_code() {
    let written = written();
    if std::env::var_os("HALOCLINE_BLESS").is_some() {
        std::fs::write(page(), &written).unwrap();
    }
    let found = std::fs::read_to_string(page()).unwrap_or_default();
    let differs = found.lines().zip(written.lines()).find(|(found, written)| found != written);
    assert!(
        found == written,
        "docs/errors.md differs from the code, first at {differs:?}; write it anew: \
         HALOCLINE_BLESS=1 cargo test -p halocline-conformance --test it errors::"
    );
}

/// Messages that no test names or quotes, by what it would take to provoke them.
const NOT_NAMED: &[(&str, &[&str])] = &[
    ("a system without /proc", &["halocline-cli::LaunchError::Executable"]),
    ("tables that pass all checks and that Arrow still refuses", &["halocline-table::TableError::Arrow"]),
];

#[test]
fn a_test_names_or_quotes_each_error_message() {
    let messages = messages();
    let tests = test_code();
    let mut same_name: BTreeMap<&str, usize> = BTreeMap::new();
    for message in &messages {
        *same_name.entry(&message.variant).or_default() += 1;
    }
    let named = |message: &Message| {
        let unique = same_name[message.variant.as_str()] == 1;
        tests.mentions(message, unique)
    };
    let missing: Vec<String> = messages
        .iter()
        .filter(|message| !message.is_transparent() && !named(message))
        .map(Message::name)
        .collect();
    let allowed: Vec<&str> = NOT_NAMED.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let unexpected: Vec<&str> =
        missing.iter().map(String::as_str).filter(|name| !allowed.contains(name)).collect();
    let stale: Vec<&str> =
        allowed.into_iter().filter(|allowed| !missing.iter().any(|name| name == allowed)).collect();
    assert!(
        unexpected.is_empty() && stale.is_empty(),
        "messages that no test names or quotes:\n{}\nmessages to remove from NOT_NAMED:\n{}",
        unexpected.join("\n"),
        stale.join("\n")
    );
}

#[test]
fn a_test_quotes_each_message_of_the_checks_of_python_and_the_command() {
    let checks = checks();
    let missing: Vec<&str> = not_quoted(&checks).iter().map(|check| check.text.as_str()).collect();
    assert!(missing.is_empty(), "messages that no test of their crate quotes:\n{}", missing.join("\n"));
}
