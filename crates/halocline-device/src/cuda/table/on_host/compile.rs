//! Compiles C++ for the CPU at test time, and loads it.

use libloading::os::unix::{Library, RTLD_NOW};
use std::process::Command;

/// Builds a library of sources, each with its own options. Without a compiler, prints that the test is
/// skipped and returns `None`.
pub(crate) fn library(sources: &[(&str, &[&str])]) -> Option<Library> {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let at = |name: &str| directory.path().join(name);
    let compile = |command: &mut Command| match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(())
        }
        Err(why) => {
            println!("SKIPPED: there is no C++ compiler: {why}");
            None
        }
    };
    let mut link = Command::new("c++");
    for (number, (text, options)) in sources.iter().enumerate() {
        let [input, output] = ["cc", "o"].map(|kind| at(&format!("{number}.{kind}")));
        std::fs::write(&input, text).expect("our directory");
        let mut command = Command::new("c++");
        compile(
            command.args(["-std=c++17", "-fPIC", "-c"]).args(*options).arg("-o").arg(&output).arg(input),
        )?;
        link.arg(output);
    }
    let output = at("library.so");
    // Its own symbols take precedence over those of the C library, which also has an `advance`.
    compile(link.args(["-shared", "-Wl,-Bsymbolic", "-o"]).arg(&output))?;
    // SAFETY: the library was linked above from the test's own sources, which have no initialisers.
    Some(unsafe { Library::open(Some(output), RTLD_NOW) }.expect("what was compiled is loaded"))
}
