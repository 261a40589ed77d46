//! Makes the docstrings of the stubs, `python/halocline/__init__.pyi` and `program.pyi`, those of the compiled classes: for each of them the macro `doc!` has the text.

use std::path::Path;

/// The package's stub, and those of its modules with compiled classes.
const STUBS: [&str; 2] = ["python/halocline/__init__.pyi", "python/halocline/program.pyi"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arms = String::new();
    for (at, stub) in STUBS.into_iter().enumerate() {
        println!("cargo::rerun-if-changed={stub}");
        let stub = std::fs::read_to_string(stub)?;
        // The docstring of the package alone is one of the compiled module.
        let named = docstrings(&stub).filter(|(name, _)| at == 0 || !name.is_empty());
        arms.extend(named.map(|(name, text)| format!("    ({name:?}) => {{ {text:?} }};\n")));
    }
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
