//! What the sources say: the messages of error types, and the code of tests.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One `#[error(...)]` attribute, or one arm of an `impl Display` of `error/failure.rs`.
#[derive(Debug)]
pub struct Message {
    pub krate: String,
    /// The enum, or the struct.
    pub container: String,
    /// The variant; of a struct, its name again.
    pub variant: String,
    /// The text with `{name}` for each value; `transparent` as `the message of its source`.
    pub text: String,
    /// The first paragraph of its documentation.
    pub meaning: String,
    /// The literal pieces of the text, between its values.
    pieces: Vec<String>,
}

impl Message {
    pub fn name(&self) -> String {
        format!("{}::{}::{}", self.krate, self.container, self.variant)
    }

    /// The text is that of another error or of its value.
    pub fn is_transparent(&self) -> bool {
        self.pieces.iter().all(|piece| piece.trim().is_empty())
    }
}

/// The code of all tests.
pub struct TestCode {
    files: Vec<TestFile>,
    /// String literals in it that are long enough to tell texts apart.
    literals: BTreeSet<String>,
}

/// One file with tests.
struct TestFile {
    code: String,
    /// All words of the code.
    words: HashSet<String>,
}

impl TestCode {
    /// A file names the message's variant. The command's tests read its errors as text: they quote a piece. `unique`: no other error has
    /// a variant of this name.
    pub fn mentions(&self, message: &Message, unique: bool) -> bool {
        let is_printed = message.krate == "halocline-cli";
        self.files.iter().any(|file| file.names(message, unique))
            || is_printed && quotes(&self.literals, &message.pieces)
    }
}

impl TestFile {
    /// Names the variant with its enum, or by `Error::` alone if it is unique.
    fn names(&self, message: &Message, unique: bool) -> bool {
        if !self.words.contains(&message.variant) {
            return false;
        }
        named_alone(&self.code, &format!("{}::{}", message.container, message.variant))
            || unique && named_alone(&self.code, &format!("Error::{}", message.variant))
            || self
                .alias(&message.container)
                .is_some_and(|alias| named_alone(&self.code, &format!("{alias}::{}", message.variant)))
            || message.container == message.variant && named_alone(&self.code, &message.variant)
    }

    /// The name of an imported type that has another one here.
    fn alias(&self, container: &str) -> Option<String> {
        self.code.split_once(&format!("{container} as ")).map(|(_, rest)| identifier(rest))
    }
}

/// Bytes of a text that are in no other.
const OWN: usize = 11;

/// Whether a literal has enough bytes of the text. It may begin anywhere in the text, and end anywhere.
fn quotes(literals: &BTreeSet<String>, pieces: &[String]) -> bool {
    pieces.iter().enumerate().any(|(at, piece)| {
        let mut ends = piece.char_indices().map(|(start, _)| &piece[start..]).chain(std::iter::once(""));
        ends.any(|end| {
            let is_begin =
                (OWN..=end.len()).any(|length| end.get(..length).is_some_and(|of| literals.contains(of)));
            let from_end = literals
                .range::<str, _>((Bound::Included(end), Bound::Unbounded))
                .map_while(|literal| literal.strip_prefix(end));
            let goes_on =
                |rest| after_value(rest, &pieces[at + 1..]).is_some_and(|after| end.len() + after >= OWN);
            is_begin || from_end.into_iter().any(goes_on)
        })
    })
}

/// How many bytes of `pieces` are in `literal`, which begins with a value.
fn after_value(literal: &str, pieces: &[String]) -> Option<usize> {
    if literal.is_empty() {
        return Some(0);
    }
    let (piece, rest) = pieces.split_first()?;
    if let Some(at) = literal.find(piece.as_str()).filter(|_| !piece.is_empty()) {
        return Some(piece.len() + after_value(&literal[at + piece.len()..], rest)?);
    }
    // The literal ends within this piece, or within the value.
    let ends = literal.char_indices().map(|(start, _)| &literal[start..]).find(|end| piece.starts_with(end));
    Some(ends.map_or(0, str::len))
}

/// Whether a name is anywhere but in a list of alternatives (`A { .. } | B { .. }`), of which the test need not meet each.
fn named_alone(code: &str, name: &str) -> bool {
    let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        !before.ends_with(is_in_word) && !after.starts_with(is_in_word) && !is_alternative(before, after)
    })
}

fn is_alternative(before: &str, after: &str) -> bool {
    let before = before
        .trim_end_matches(|c: char| c.is_alphanumeric() || c.is_whitespace() || matches!(c, '_' | ':' | '('));
    // A closure's `|` comes after a name.
    let is_later = before.strip_suffix('|').is_some_and(|first| first.trim_end().ends_with(['}', ')']));
    let after = after_values(after.trim_start()).trim_start_matches(|c: char| c.is_whitespace() || c == ')');
    is_later || after.starts_with('|') && !after.starts_with("||")
}

/// What follows the braces or parentheses that a text may begin with.
fn after_values(text: &str) -> &str {
    if !text.starts_with(['{', '(']) {
        return text;
    }
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(matches!(c, '{' | '(')) - i32::from(matches!(c, '}' | ')'));
        depth == 0
    });
    end.map_or("", |end| &text[end + 1..])
}

/// All files below `folder` whose names end so, in order.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            found.push(path);
        }
    }
}

/// The crates' sources: crate, path, code before its tests, code of its tests.
pub fn sources() -> Vec<(String, PathBuf, String, String)> {
    let crates = root().join("crates");
    let mut found = Vec::new();
    files(&crates, &[".rs", ".py", ".snap", ".stderr"], &mut found);
    let split = |path: PathBuf| {
        let within = path.strip_prefix(&crates).unwrap();
        let krate = within.iter().next().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = krate == "halocline-conformance"
            || within.iter().any(|part| part == "tests" || part == "snapshots")
            || within.ends_with("tests.rs");
        let begin = ["#[cfg(test)]\nmod ", "#[cfg(all(test,"].iter().find_map(|begin| text.find(begin));
        let (code, tests) = match begin {
            _ if whole => (String::new(), text),
            Some(at) if !text[at..].lines().nth(1).is_some_and(|line| line.ends_with(';')) => {
                (text[..at].to_owned(), text[at..].to_owned())
            }
            _ => (text, String::new()),
        };
        (krate, path, code, tests)
    };
    found.into_iter().map(split).collect()
}

/// Tests of texts, whose errors are made by hand, and the list of what no test names.
const OF_TEXTS: [&str; 3] = ["error.rs", "it/text.rs", "it/errors/mod.rs"];

/// The code of all tests.
pub fn test_code() -> TestCode {
    let files: Vec<TestFile> = sources()
        .into_iter()
        .filter(|(_, path, _, tests)| {
            !tests.is_empty() && !OF_TEXTS.iter().any(|of_texts| path.ends_with(of_texts))
        })
        .map(|(_, _, _, code)| {
            let code = joined(&code);
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect();
            TestFile { code, words }
        })
        .collect();
    let literals = files.iter().flat_map(|file| literals(&file.code)).map(str::to_owned).collect();
    TestCode { files, literals }
}

/// The string literals of at least [`OWN`] bytes, and all lines: a literal may have several.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    code.lines()
        .flat_map(|line| {
            let quoted = |mark| line.split(mark).skip(1).step_by(2);
            [line.trim()].into_iter().chain(quoted('"')).chain(quoted('`'))
        })
        .filter(|text| text.len() >= OWN)
}

/// Without the breaks of long string literals.
pub fn joined(code: &str) -> String {
    let mut lines = code.split("\\\n");
    let mut whole = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        whole.push_str(line.trim_start());
    }
    whole
}

/// Every message, by crate and file.
pub fn messages() -> Vec<Message> {
    let of_file = |(krate, path, code, _): &(String, PathBuf, String, String)| match path.ends_with(FAILURE) {
        true => causes_in(krate, code),
        false => messages_in(krate, code),
    };
    sources().iter().flat_map(of_file).collect()
}

/// The file whose types have an `impl Display` instead of attributes.
const FAILURE: &str = "halocline/src/error/failure.rs";

/// The first text of each arm that matches a variant in an `impl Display`.
fn causes_in(krate: &str, code: &str) -> Vec<Message> {
    let code = joined(code);
    let mut found = Vec::new();
    for implementation in code.split("impl fmt::Display for ").skip(1) {
        let implementation = implementation.split("\n}\n").next().unwrap_or_default();
        let of = identifier(implementation);
        // `Failure` matches the variants of its `Cause`.
        let (container, prefix) =
            if of == "Failure" { ("Cause".to_owned(), "Cause::") } else { (of, "Self::") };
        for arm in implementation.split(prefix).skip(1) {
            let (text, pieces) = rendered(&arm[arm.find('"').expect("an arm with a text")..]);
            let variant = identifier(arm);
            let declared = code.find(&format!("enum {container} {{")).expect("the enum");
            let at = declared + code[declared..].find(&format!("\n    {variant}")).expect("the variant") + 1;
            let meaning = documented(&code[..at]);
            found.push(Message {
                krate: krate.to_owned(),
                container: container.clone(),
                variant,
                text,
                meaning,
                pieces,
            });
        }
    }
    found
}

fn messages_in(krate: &str, code: &str) -> Vec<Message> {
    let code = joined(code);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("#[error(") {
        let arguments = &code[at + "#[error(".len()..];
        let end = closing(arguments);
        let (arguments, rest) = (&arguments[..end], &arguments[end + ")]".len()..]);
        // Below it: other attributes, then the variant or the struct.
        let declared = rest
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with("#["))
            .unwrap_or_default();
        let (container, variant) = match declared.split_once("struct ") {
            Some((_, name)) => (identifier(name), identifier(name)),
            None => (enum_before(&code[..at]), identifier(declared)),
        };
        let (text, pieces) = rendered(arguments.trim());
        found.push(Message {
            krate: krate.to_owned(),
            container,
            variant,
            text,
            meaning: documented(&code[..at]),
            pieces,
        });
    }
    found
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn enum_before(code: &str) -> String {
    let at = code.rfind("enum ").expect("a message of an enum");
    identifier(&code[at + "enum ".len()..])
}

/// Where the parenthesis closes that was open at the beginning.
pub fn closing(text: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("an attribute that does not end: {text:.80}");
}

/// The first paragraph of the documentation that `code` ends with.
fn documented(code: &str) -> String {
    let lines = code.lines().rev().skip_while(|line| line.trim().is_empty() || line.trim().starts_with("#["));
    let mut documented: Vec<&str> =
        lines.map_while(|line| line.trim().strip_prefix("///")).map(str::trim).collect();
    documented.reverse();
    documented.split(|line| line.is_empty()).next().unwrap_or_default().join(" ")
}

/// The text of an attribute's arguments for a reader, and its literal pieces.
pub fn rendered(arguments: &str) -> (String, Vec<String>) {
    let Some(literal) = arguments.strip_prefix('"') else {
        return ("the message of its source".to_owned(), Vec::new());
    };
    let end =
        literal.match_indices('"').map(|(at, _)| at).find(|&at| !literal[..at].ends_with('\\')).unwrap();
    let mut values = split_arguments(&literal[end + 1..]).into_iter();
    let (mut text, mut piece, mut pieces) = (String::new(), String::new(), Vec::new());
    let literal = literal[..end].replace("\\\"", "\"");
    let mut chars = literal.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' | '}' if chars.peek() == Some(&c) => {
                chars.next();
                piece.push(c);
                text.push(c);
            }
            '{' => {
                let value: String = chars.by_ref().take_while(|&c| c != '}').collect();
                let name = value.split(':').next().unwrap_or_default().to_owned();
                let name = if name.is_empty() { values.next().unwrap_or_default() } else { name };
                push_value(&mut text, &placeholder(&name));
                pieces.push(std::mem::take(&mut piece));
            }
            _ => {
                piece.push(c);
                text.push(c);
            }
        }
    }
    pieces.push(piece);
    (text, pieces)
}

/// `{name}` for a field, a constant, a path or a list; `…` for any other expression.
fn placeholder(value: &str) -> String {
    let value = value.trim_start_matches(['*', '.']);
    let value = value.strip_suffix(".display()").unwrap_or(value);
    let value = value.strip_prefix("list(").and_then(|list| list.strip_suffix(')')).unwrap_or(value);
    let name = value.rsplit("::").next().unwrap_or_default();
    match name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.') {
        true => format!("{{{name}}}"),
        false => "…".to_owned(),
    }
}

/// Appends a placeholder as code, to the code that the text ends with or is within.
fn push_value(text: &mut String, value: &str) {
    if text.matches('`').count() % 2 == 1 {
        return text.push_str(value);
    }
    if text.ends_with("}`") || text.ends_with("…`") {
        text.pop();
    } else {
        text.push('`');
    }
    text.push_str(value);
    text.push('`');
}

/// Expressions after a format string, split at the commas between them.
fn split_arguments(text: &str) -> Vec<String> {
    let (mut depth, mut found) = (0, vec![String::new()]);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            found.push(String::new());
        } else {
            found.last_mut().unwrap().push(c);
        }
    }
    let words = |argument: String| argument.split_whitespace().collect::<Vec<_>>().join(" ");
    found.into_iter().map(words).filter(|argument| !argument.is_empty()).collect()
}
