//! Messages of Python's and the command's own checks, which are texts where they are raised.

use super::source::{closing, joined, rendered, sources};
use std::collections::{BTreeSet, HashMap};

/// A message with the exception of Python that it is the text of; of the command, its kind of error.
pub struct Check {
    pub krate: &'static str,
    pub exception: String,
    pub text: String,
    pieces: Vec<String>,
}

/// A function of Rust that makes an error of a text.
struct Maker {
    krate: &'static str,
    /// Up to the parenthesis.
    call: &'static str,
    exception: &'static str,
    /// What the function puts before and after its text.
    around: [&'static str; 2],
}

const fn python(call: &'static str, exception: &'static str, around: [&'static str; 2]) -> Maker {
    Maker { krate: "halocline-python", call, exception, around }
}

const fn command(call: &'static str, exception: &'static str, around: [&'static str; 2]) -> Maker {
    Maker { krate: "halocline-cli", call, exception, around }
}

const MAKERS: &[Maker] = &[
    python("value_error(", "HaloValueError", ["", ""]),
    python("type_error(", "HaloTypeError", ["", ""]),
    python("in_flight(", "InFlightError", ["", ""]),
    python("closed(", "ClosedError", ["", ""]),
    python("Refusal::wrong_value(", "HaloValueError", ["{argument}: ", ""]),
    python("Refusal::wrong_type(", "HaloTypeError", ["{argument}: ", ""]),
    python("Refusal::wanted(", "HaloTypeError", ["{argument}: ", " is wanted, not {given}"]),
    python("PyAttributeError::new_err(", "AttributeError", ["", ""]),
    python("PyImportError::new_err(", "ImportError", ["", ""]),
    command("CommandError::usage(", "usage", ["", ""]),
    command("CommandError::failed(", "failure", ["", ""]),
    command("settings.usage(", "usage", ["program {program}: ", ""]),
    command("self.usage(", "usage", ["program {program}: ", ""]),
    command("refuse(", "usage", ["`--window {text}`: ", ""]),
];

/// All of them, by crate, exception and text.
pub fn checks() -> Vec<Check> {
    let mut found = Vec::new();
    for (krate, path, code, _) in sources() {
        let code = joined(&code);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => in_rust(&krate, &code, &mut found),
            Some("py") if krate == "halocline-python" && !path.iter().any(|part| part == "examples") => {
                in_python(&code, &mut found);
            }
            _ => {}
        }
    }
    let key = |check: &Check| (check.krate, check.exception.clone(), check.text.clone());
    found.sort_by_key(key);
    found.dedup_by_key(|check| key(check));
    found
}

fn in_rust(krate: &str, code: &str, found: &mut Vec<Check>) {
    for maker in MAKERS.iter().filter(|maker| maker.krate == krate) {
        for (at, _) in code.match_indices(maker.call) {
            let before = &code[..at];
            if before.ends_with("fn ") || before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let arguments = &code[at + maker.call.len()..];
            let arguments = &arguments[..closing(arguments)];
            for literal in texts(arguments) {
                let [begin, end] = maker.around;
                let (text, rest) = literal.split_at(closing_quote(&literal[1..]) + 1);
                let whole = format!("\"{begin}{}{end}{rest}", &text[1..]);
                push(maker.krate, maker.exception, &whole, found);
            }
        }
    }
}

fn push(krate: &'static str, exception: &str, literal: &str, found: &mut Vec<Check>) {
    let (text, pieces) = rendered(literal);
    // It passes on a text that is listed where it is made.
    let is_passed_on = text.ends_with("`{refusal}`") && krate == "halocline-cli";
    if !is_passed_on && pieces.iter().any(|piece| piece.contains(char::is_alphabetic)) {
        found.push(Check { krate, exception: exception.to_owned(), text, pieces });
    }
}

/// The literals that begin an expression: the whole, the text of `format!`, a value of `match` or `if`. Each with what follows it in its
/// parentheses.
fn texts(arguments: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = arguments;
    while let Some(at) = rest.find('"') {
        let before = rest[..at].trim_end();
        let end = at + 1 + closing_quote(&rest[at + 1..]);
        let begins = before.is_empty() && rest.len() == arguments.len()
            || before.ends_with("format!(")
            || before.ends_with("=>")
            || before.ends_with('{');
        // A label, such as the pattern of a `match`, is no message.
        if begins && rest[at..end].contains(' ') {
            let inner = &rest[at..];
            let close = end + 1 - at + closing_or_end(&inner[end + 1 - at..]);
            found.push(inner[..close].to_owned());
            // Expressions of the same `format!` are values.
            if before.ends_with("format!(") || before.is_empty() {
                rest = &inner[close..];
                continue;
            }
        }
        rest = &rest[end + 1..];
    }
    found
}

/// Where a literal ends whose quotation mark is before `text`.
fn closing_quote(text: &str) -> usize {
    text.match_indices('"')
        .map(|(at, _)| at)
        .find(|&at| !text[..at].ends_with('\\'))
        .expect("a literal's end")
}

/// Where a closing bracket without an opening one is, or the end.
fn closing_or_end(text: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' | '{' | '[' if !quoted => depth += 1,
            ')' | '}' | ']' if !quoted => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return at;
        }
    }
    text.len()
}

/// Statements `raise Exception("...")`, whose literals may be several.
fn in_python(code: &str, found: &mut Vec<Check>) {
    for raised in code.split("raise ").skip(1) {
        let Some((exception, arguments)) = raised.split_once('(') else { continue };
        if !exception.chars().all(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let format = adjacent(arguments);
        if !format.is_empty() {
            let exception = exception.trim_start_matches('_');
            push("halocline-python", exception, &format!("\"{format}\""), found);
        }
    }
}

/// The literals that `code` begins with, as one format string of Rust.
fn adjacent(code: &str) -> String {
    let mut whole = String::new();
    let mut rest = code.trim_start();
    loop {
        let is_format = rest.starts_with('f');
        let literal = rest.strip_prefix('f').unwrap_or(rest);
        let Some(mark) = literal.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return whole };
        let end = literal[1..].find(mark).expect("a literal's end") + 1;
        let text = literal[1..end].replace('"', "\\\"");
        whole += &if is_format { of_format(&text) } else { text.replace('{', "{{").replace('}', "}}") };
        rest = literal[end + 1..].trim_start();
    }
}

/// A format string of Python as one of Rust: a value that is no name becomes `(composed)`, which the page shows as `…`.
fn of_format(text: &str) -> String {
    let mut whole = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let end = at + rest[at..].find('}').expect("a value's end");
        let value = rest[at + 1..end].split(['!', ':']).next().unwrap_or_default();
        let is_name = value.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
        let value = if is_name { value.trim_start_matches('_') } else { "(composed)" };
        whole += &rest[..at];
        whole += &format!("{{{value}}}");
        rest = &rest[end + 1..];
    }
    whole + rest
}

/// Bytes of a message that a test must have, and no other message.
const OWN: usize = 16;

/// The checks that no test quotes.
pub fn not_quoted(checks: &[Check]) -> Vec<&Check> {
    let quoted: HashMap<&str, (BTreeSet<usize>, String)> = ["halocline-python", "halocline-cli"]
        .into_iter()
        .map(|krate| {
            let tests = tests_of(krate);
            (krate, (quoted_in(&tests, krate, checks), tests))
        })
        .collect();
    let is_quoted = |at: usize, check: &Check| {
        let (quoted, tests) = &quoted[check.krate];
        let longest = check.pieces.iter().max_by_key(|piece| piece.len()).map_or("", |piece| piece.trim());
        quoted.contains(&at) || tests.contains(longest)
    };
    checks.iter().enumerate().filter(|(at, check)| !is_quoted(*at, check)).map(|(_, check)| check).collect()
}

/// The numbers of the checks that have bytes in `tests` that are of no other check.
fn quoted_in(tests: &str, krate: &str, checks: &[Check]) -> BTreeSet<usize> {
    let mut owner: HashMap<&[u8], Option<usize>> = HashMap::new();
    for (at, check) in checks.iter().enumerate().filter(|(_, check)| check.krate == krate) {
        for window in check.pieces.iter().flat_map(|piece| piece.as_bytes().windows(OWN)) {
            let owner = owner.entry(window).or_insert(Some(at));
            if *owner != Some(at) {
                *owner = None;
            }
        }
    }
    tests.as_bytes().windows(OWN).filter_map(|window| owner.get(window).copied().flatten()).collect()
}

/// The tests of a crate, without comments, the breaks of literals and the backslashes of patterns.
fn tests_of(krate: &str) -> String {
    let mut whole = String::new();
    for (of, path, _, tests) in sources() {
        // A test of the page's own texts.
        if of == krate && !tests.is_empty() && !path.ends_with("src/error.rs") {
            let mut at_break = false;
            for line in joined(&tests).lines().map(str::trim) {
                if ["#", "//", "\"\"\""].iter().any(|comment| line.starts_with(comment)) {
                    continue;
                }
                let begin = line.strip_prefix(['f', 'r']).unwrap_or(line);
                match begin.strip_prefix('"').filter(|_| at_break) {
                    Some(more) => {
                        whole.pop();
                        whole.push_str(more);
                    }
                    None => {
                        whole.push('\n');
                        whole.push_str(line);
                    }
                }
                at_break = line.len() > 1 && line.ends_with('"');
            }
        }
    }
    whole.replace('\\', "")
}
