//! The public types that Rust programs name have examples in their documentation: all of `halocline`, `halocline-table` and
//! `halocline-program`, and some of `halocline-device` and `halocline-plan`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Not searched: modules for transports, launchers and language bindings, and whole crates that are re-exported under a name.
const OTHER_MODULES: &[&str] = &["mappings", "mpi", "shm", "halocline_device", "halocline_plan"];

/// The crate of the macro that derives `Element`.
const DERIVED: &str = "halocline-derive";

/// What programs name of `halocline-device`: devices, streams and memory. The empty name is that of the module itself.
const OF_DEVICE: &[&str] = &[
    "Address",
    "Device",
    "Event",
    "EventPool",
    "Memory",
    "MemorySpace",
    "Priority",
    "RawStream",
    "Stream",
    "cuda::",
    "cuda::Inventory",
];

/// What `Pattern::plan` returns: types of `halocline-plan`.
const OF_PLAN: &[&str] =
    &["AxisMap", "BoxCells", "Cells", "DomainShape", "PatternPlan", "Peer", "Run", "Transfer"];

/// Modules for fuzz tests alone.
const FUZZED: &str = "fuzz";

/// A module of a crate of this repository.
#[derive(Debug, Clone)]
struct Module {
    krate: String,
    path: Vec<String>,
}

impl Module {
    fn root(krate: &str) -> Self {
        Self { krate: krate.to_owned(), path: Vec::new() }
    }

    /// Its file, if it has one of its own.
    fn file(&self) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&self.krate).join("src");
        let place = self.path.iter().fold(source, |place, name| place.join(name));
        let files = [place.with_extension("rs"), place.join("mod.rs"), place.join("lib.rs")];
        files.into_iter().find(|file| file.is_file())
    }

    fn code(&self) -> Option<String> {
        self.file().map(|file| std::fs::read_to_string(file).unwrap())
    }

    fn child(&self, name: &str) -> Self {
        let path = self.path.iter().cloned().chain([name.to_owned()]);
        Self { krate: self.krate.clone(), path: path.collect() }
    }

    /// The module that the first names of a path lead to, and the last name.
    fn resolve<'a>(&self, path: &'a [String]) -> (Self, &'a str) {
        let (last, names) = path.split_last().expect("a path of names");
        let module = names.iter().fold(self.clone(), |module, name| match name.as_str() {
            "crate" => Self::root(&module.krate),
            krate if krate.starts_with("halocline_") => Self::root(&krate.replace('_', "-")),
            name => module.child(name),
        });
        (module, last)
    }

    /// The documentation of a type that is declared here or re-exported from elsewhere.
    fn documentation(&self, name: &str) -> Option<String> {
        let code = self.code()?;
        declared(&code).remove(name).or_else(|| {
            let uses = uses(&code);
            let found = uses.iter().find(|found| found.path.last().is_some_and(|last| last == name))?;
            let (module, name) = self.resolve(&found.path);
            module.documentation(name)
        })
    }

    /// The documentation of the module itself.
    fn own_documentation(&self) -> Option<String> {
        let code = self.code()?;
        let lines = code.lines().map_while(|line| line.strip_prefix("//!"));
        Some(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Adds the types of these paths.
    fn add_named(&self, paths: &[&str], types: &mut BTreeMap<String, String>) {
        for path in paths {
            let names: Vec<String> = path.split("::").map(str::to_owned).collect();
            let (module, name) = self.resolve(&names);
            let documentation =
                if name.is_empty() { module.own_documentation() } else { module.documentation(name) };
            let documentation = documentation.unwrap_or_else(|| panic!("no type `{path}` in {self:?}"));
            types.insert((*path).to_owned(), documentation);
        }
    }

    /// Adds the public types that a program can name, by their paths.
    fn add_types(&self, prefix: &str, types: &mut BTreeMap<String, String>) {
        let code = self.code().expect("a module with a file");
        let named = |(name, documentation)| (format!("{prefix}{name}"), documentation);
        types.extend(declared(&code).into_iter().map(named));
        let modules = code.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        for name in modules.filter(|&name| name != FUZZED) {
            self.child(name).add_types(&format!("{name}::"), types);
        }
        let mut uses = uses(&code);
        // `comm` repeats types of the root.
        uses.sort_by_key(|found| found.within.is_some());
        for Use { within, path } in uses {
            let (module, name) = self.resolve(&path);
            if !name.contains(char::is_lowercase) || module.krate == DERIVED || OTHER_MODULES.contains(&name)
            {
                continue;
            }
            if name.starts_with(char::is_lowercase) {
                // A module, or a function.
                let module = module.child(name);
                if module.file().is_some() {
                    module.add_types(&format!("{name}::"), types);
                }
                continue;
            }
            let documentation = module.documentation(name);
            let documentation = documentation.unwrap_or_else(|| panic!("no type `{name}` in {module:?}"));
            match within {
                Some(_) if types.contains_key(name) => None,
                Some(within) => types.insert(format!("{within}::{name}"), documentation),
                None => types.insert(format!("{prefix}{name}"), documentation),
            };
        }
    }
}

/// A name that a file re-exports.
struct Use {
    /// The module within the file that has it.
    within: Option<String>,
    path: Vec<String>,
}

/// The types that a file declares at its top level, with their documentation; without those that rustdoc hides.
fn declared(code: &str) -> BTreeMap<String, String> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub unsafe trait ", "pub type "];
        let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
        let name = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let first = lines[..at].iter().rposition(|line| line.is_empty()).map_or(0, |blank| blank + 1);
        let above = &lines[first..at];
        if !above.contains(&"#[doc(hidden)]") {
            let documentation = above.iter().filter_map(|line| line.strip_prefix("///"));
            found.insert(name, documentation.collect::<Vec<_>>().join("\n"));
        }
    }
    found
}

/// All `pub use`, one for each name; without those that rustdoc hides.
fn uses(code: &str) -> Vec<Use> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("pub use ") {
        let before = &code[..at];
        let is_code = before.trim_end_matches(' ').rsplit('\n').next() == Some("");
        if !is_code || before.trim_end().ends_with("#[doc(hidden)]") {
            continue;
        }
        let within = (!before.is_empty() && !before.ends_with('\n'))
            .then(|| before.rsplit("\npub mod ").next().unwrap_or_default())
            .map(|module| module.split(' ').next().unwrap_or_default().to_owned());
        let tree = code[at + "pub use ".len()..].split(';').next().unwrap_or_default();
        let tree: String = tree.split(" as ").next().unwrap_or_default().split_whitespace().collect();
        let mut paths = Vec::new();
        expand(&tree, &[], &mut paths);
        found.extend(paths.into_iter().map(|path| Use { within: within.clone(), path }));
    }
    found
}

/// Adds the paths of a tree of names: `a::{B, c::D}` has `a::B` and `a::c::D`.
fn expand(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let (names, group) = match tree.split_once('{') {
        Some((names, group)) => (names, Some(group.strip_suffix('}').expect("the end of a group"))),
        None => (tree, None),
    };
    let names = names.split("::").filter(|name| !name.is_empty()).map(str::to_owned);
    let path: Vec<String> = before.iter().cloned().chain(names).collect();
    let Some(group) = group else { return found.push(path) };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if start < at {
                    expand(&group[start..at], &path, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Whether rustdoc compiles a code block of the documentation.
fn has_example(documentation: &str) -> bool {
    let fences = documentation.lines().filter_map(|line| line.trim().strip_prefix("```"));
    // Every second fence ends a block.
    fences.step_by(2).any(|kind| matches!(kind, "" | "no_run" | "should_panic"))
}

/// Checks that each of these types has an example, and that `known` ones are among them.
fn check(krate: &str, types: &BTreeMap<String, String>, known: &[&str]) {
    for name in known {
        assert!(
            types.contains_key(*name),
            "`{name}` is not among the {} types found in {krate}",
            types.len()
        );
    }
    let missing = types.iter().filter(|(_, documentation)| !has_example(documentation));
    let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
    assert!(missing.is_empty(), "types of {krate} without an example in their documentation: {missing:?}");
}

#[test]
fn each_public_type_has_an_example() {
    let crates: [(&str, &[&str]); 3] = [
        (
            "halocline",
            &["HaloExchange", "Layout", "MemoryResource", "neighbors::Session", "sparse::SparseAlltoall"],
        ),
        ("halocline-table", &["Context", "Interpolation", "TableError", "Window"]),
        (
            "halocline-program",
            &["Keepalive", "Program", "cache::Cache", "cache::Hash", "signature::Quantity"],
        ),
    ];
    for (krate, known) in crates {
        let mut types = BTreeMap::new();
        Module::root(krate).add_types("", &mut types);
        check(krate, &types, known);
    }
}

#[test]
fn devices_and_plans_have_examples() {
    for (krate, paths) in [("halocline-device", OF_DEVICE), ("halocline-plan", OF_PLAN)] {
        let mut types = BTreeMap::new();
        Module::root(krate).add_named(paths, &mut types);
        check(krate, &types, &[]);
    }
}

#[test]
fn names_of_nested_groups_are_expanded() {
    let found = uses("pub use a::{B, c::{D, E}};\n#[doc(hidden)]\npub use f::G;\npub use {h::I};\n");
    let found: Vec<String> = found.iter().map(|found| found.path.join("::")).collect();
    assert_eq!(found, ["a::B", "a::c::D", "a::c::E", "h::I"]);
}
