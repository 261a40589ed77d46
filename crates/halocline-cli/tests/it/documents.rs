//! The README and the guide: their links lead somewhere, and the commands they show have the options they use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Markdown file.
struct Page {
    path: PathBuf,
    text: String,
}

/// Lines of a page, each with the language of its code block, if it is in one.
fn lines(text: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    let mut block = None;
    text.lines().filter_map(move |line| {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            block = block.is_none().then_some(fence);
            return None;
        }
        Some((block, line))
    })
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// Its text without code blocks and inline code.
    fn prose(&self) -> String {
        let prose = lines(&self.text).filter(|(block, line)| block.is_none() && !line.starts_with("    "));
        let prose: Vec<&str> = prose.map(|(_, line)| line).collect();
        prose.join("\n").split('`').step_by(2).collect()
    }

    /// Targets of its links and pictures.
    fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let ends = prose.split("](").skip(1);
        ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
    }

    /// Anchors of its headings, as GitHub and mdBook make them.
    fn anchors(&self) -> BTreeSet<String> {
        let headings = lines(&self.text).filter(|(block, line)| block.is_none() && line.starts_with('#'));
        let anchor = |(_, line): (_, &str)| {
            let heading = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        };
        headings.map(anchor).collect()
    }

    /// Command lines of its shell blocks.
    fn commands(&self) -> Vec<String> {
        let shell = |block: &Option<&str>| matches!(block, Some("sh" | "bash"));
        let text: Vec<&str> =
            lines(&self.text).filter(|(block, _)| shell(block)).map(|(_, line)| line).collect();
        text.join("\n")
            .replace("\\\n", " ")
            .lines()
            .flat_map(|line| line.split(" && "))
            .map(str::to_owned)
            .collect()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The Markdown files of a folder and its subfolders.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { markdown(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    found.sort();
    found
}

fn pages() -> Vec<Page> {
    let root = root();
    let beside =
        ["README.md", "ARCHITECTURE.md", "crates/halocline-python/README.md"].map(|name| root.join(name));
    beside.into_iter().chain(markdown(&root.join("docs"))).map(Page::read).collect()
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    let guide = root().join("docs");
    let mut wrong = Vec::new();
    for page in pages() {
        for link in page.links().iter().filter(|link| !link.starts_with("https://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { page.path.clone() } else { page.path.parent().unwrap().join(file) };
            let Ok(target) = target.canonicalize() else {
                wrong.push(format!("{}: {link}: there is no such file", page.path.display()));
                continue;
            };
            if !anchor.is_empty() && !Page::read(target.clone()).anchors().contains(anchor) {
                wrong.push(format!("{}: {link}: there is no such heading", page.path.display()));
            }
            if page.path.starts_with(&guide) && !target.starts_with(&guide) {
                wrong.push(format!(
                    "{}: {link}: leaves the guide, where mdBook does not follow",
                    page.path.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_of_the_guide_is_in_its_summary_and_its_index() {
    let guide = root().join("docs");
    let linked = |name: &str| -> BTreeSet<PathBuf> {
        let links = Page::read(guide.join(name)).links();
        links.iter().filter_map(|link| guide.join(link.split('#').next()?).canonicalize().ok()).collect()
    };
    let (summary, index) = (linked("SUMMARY.md"), linked("README.md"));
    for page in markdown(&guide) {
        let name = page.strip_prefix(&guide).unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&page), "{name} is not in docs/SUMMARY.md");
        assert!(
            matches!(name, "SUMMARY.md" | "README.md") || index.contains(&page),
            "{name} is not in docs/README.md"
        );
    }
}

/// The arguments of this command in a command line, if that starts it: by itself, or by a launcher.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = line.split(" #").next()?.split_whitespace().collect();
    let command = words.iter().position(|word| *word == "halocline")?;
    let (before, rest) = words.split_at(command);
    let launches = |word: &str| {
        let launcher = matches!(word, "mpirun" | "srun" | "-n");
        launcher || word.contains('=') || word.parse::<u32>().is_ok()
    };
    before.iter().all(|word| launches(word)).then(|| rest[1..].to_vec())
}

#[test]
fn options_in_documents_exist() {
    let mut tried = 0;
    for page in pages() {
        for line in page.commands() {
            let line = line.trim().replace("cargo run --release -- ", "halocline ");
            let Some(arguments) = arguments(&line) else { continue };
            // `launch` ends its own options with `--`.
            let own = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
            let output = Command::new(env!("CARGO_BIN_EXE_halocline"))
                .args(&arguments[..own])
                .arg("--help")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {line}\n{said}", page.path.display());
            tried += 1;
        }
    }
    assert!(tried > 20, "only {tried} commands were found");
}

/// The pictures of patches and of halos, whose commands stand beside them. `HALOCLINE_BLESS=1` writes them again.
#[test]
fn pictures_of_grids_are_those_that_their_commands_draw() {
    let (pictures, folder) = (root().join("docs/pictures"), tempfile::tempdir().unwrap());
    let mut drawn = 0;
    for page in pages() {
        for line in page.commands() {
            let Some(arguments) = arguments(line.trim()) else { continue };
            let draws = |word: &&str| ["--plot", "--plot-halos"].contains(word);
            let Some(option) = arguments.iter().position(draws).filter(|_| arguments[0] == "explain") else {
                continue;
            };
            let name = arguments[option + 1];
            if !page.links().contains(&format!("pictures/{name}")) {
                continue;
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
            let output = command.args(&arguments).current_dir(folder.path()).output().unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            let (made, kept) = (folder.path().join(name), pictures.join(name));
            if std::env::var_os("HALOCLINE_BLESS").is_some() {
                fs::copy(&made, &kept).unwrap();
            }
            let is_same = fs::read(&made).unwrap() == fs::read(&kept).unwrap_or_default();
            assert!(
                is_same,
                "{}: `{line}` draws another picture than docs/pictures/{name}",
                page.path.display()
            );
            drawn += 1;
        }
    }
    assert_eq!(drawn, 13, "cubed sphere (6), both folds, V, U and F points, poles, lat-lon-cap");
}

#[test]
fn scripts_in_documents_exist() {
    let folders = ["tools/", "bench/", "gpu/", "out/gpu/"];
    for page in pages() {
        for word in page.commands().iter().flat_map(|line| line.split_whitespace()) {
            if folders.iter().any(|folder| word.starts_with(folder)) {
                // `gpu/build` puts scripts and programs of gpu/ into out/gpu/.
                let file = word.trim_start_matches("out/");
                let is_program = ["rows", "exchange", "halocline"].contains(&file.trim_start_matches("gpu/"));
                assert!(root().join(file).exists() || is_program, "{}: {word}", page.path.display());
            }
        }
    }
}

/// The Rust and Python sources of the crates, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !matches!(name, "tests" | "examples" | "halocline-conformance") {
            sources(&path, found);
        } else if matches!(path.extension().and_then(|e| e.to_str()), Some("rs" | "py")) {
            found.push(path);
        }
    }
}

#[test]
fn every_variable_is_in_the_guide() {
    let documented = fs::read_to_string(root().join("docs/environment.md")).unwrap();
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for rest in text.split("\"HALOCLINE_").skip(1) {
            let name = rest.split('"').next().unwrap();
            // Tests have variables of their own.
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            let of_tests = name.starts_with("TEST") || name == "EXAMPLE";
            if is_name && !of_tests {
                assert!(
                    documented.contains(&format!("`HALOCLINE_{name}`")),
                    "{}: HALOCLINE_{name}",
                    file.display()
                );
            }
        }
    }
}
