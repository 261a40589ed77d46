//! The table of conformance cases in the guide names every topic of the suite, and functions that exist.

use crate::toolchain::here;
use std::collections::BTreeSet;
use std::fs;

/// The topics of the conformance suite. The rest of its folder serves several of them.
fn topics() -> BTreeSet<String> {
    let folder = here().join("../halocline-conformance/src/cases");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let topics = files.filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned()));
    topics.filter(|topic| !["fixture", "line", "mod"].contains(&topic.as_str())).collect()
}

/// Names in backquotes, in their order.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_of_cases_is_complete_and_true() {
    let page = fs::read_to_string(here().join("../../docs/internals/c-cases.md")).unwrap();
    let mut found = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let [topic, in_c, not_in_c] = line.trim_matches('|').split(" |").collect::<Vec<_>>()[..] else {
            panic!("three cells: {line}")
        };
        found.insert(names(topic)[0].to_owned());
        assert!(
            !in_c.trim().is_empty() || !not_in_c.trim().is_empty(),
            "neither tested nor explained: {line}"
        );
        let mut source = String::new();
        for name in names(in_c).into_iter().filter(|name| !name.contains('=')) {
            if name.ends_with(".c") {
                source = fs::read_to_string(here().join("tests/c").join(name)).unwrap();
            } else {
                let defined = source.lines().any(|line| line.starts_with(&format!("static void {name}(")));
                assert!(defined, "no function {name}: {line}");
            }
        }
    }
    assert_eq!(found, topics());
}
