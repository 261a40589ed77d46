//! Makes the docstrings of `python/halocline/__init__.pyi` those of the compiled classes: for each of them the macro `doc!` has the text.

use std::path::Path;

const STUB: &str = "python/halocline/__init__.pyi";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={STUB}");
    let stub = std::fs::read_to_string(STUB)?;
    let arms: String =
        docstrings(&stub).map(|(name, text)| format!("    ({name:?}) => {{ {text:?} }};\n")).collect();
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("docs.rs"), format!("macro_rules! doc {{\n{arms}}}\n"))?;
    Ok(())
}

/// The docstrings of a stub with the names of what they document: `Pending.wait`, `Pending`, `init`; the module's is "".
fn docstrings(stub: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let mut lines = stub.lines();
    let (mut class, mut name, mut follows) = (String::new(), String::new(), true);
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let code = line.trim_start();
            let indent = line.len() - code.len();
            if let Some(rest) = code.strip_prefix("class ").or_else(|| code.strip_prefix("def ")) {
                let own = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                if indent == 0 {
                    (class, name) = (own.to_owned(), own.to_owned());
                } else {
                    name = format!("{class}.{own}");
                }
            }
            if let Some(first) = code.strip_prefix("\"\"\"").filter(|_| follows) {
                follows = false;
                return Some((name.clone(), docstring(first, indent, &mut lines)));
            }
            // A docstring comes first in its body; those of attributes do not.
            follows = code.ends_with(':') || follows && code.is_empty();
        }
    })
}

/// The rest of a docstring that begins so, without its indent.
fn docstring<'a>(first: &'a str, indent: usize, lines: &mut impl Iterator<Item = &'a str>) -> String {
    let mut text = Vec::new();
    let mut line = first;
    loop {
        if let Some(last) = line.strip_suffix("\"\"\"") {
            text.push(last);
            return text.join("\n").trim_end().to_owned();
        }
        text.push(line);
        let Some(next) = lines.next() else { return text.join("\n") };
        line = next.get(indent..).unwrap_or_default();
    }
}
