//! Runs the conformance programs of all devices on GPUs, and GPU-only tests. A program of its own that
//! needs only the driver and NVRTC at run time: `gpu/one` and `gpu/two` run it. Arguments: substrings of
//! test names to run.

#[path = "../it/arrays/mod.rs"]
mod arrays;
mod gpu;
#[path = "../it/suite/mod.rs"]
mod suite;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    // Test listings of all programs, such as `cargo nextest`, find no test here: the tests run in sequence,
    // in one process.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let [only] = &arguments[..]
        && let Some(code) = gpu::child(only)
    {
        return code;
    }
    let wanted =
        |name: &str| arguments.is_empty() || arguments.iter().any(|part| name.contains(part.as_str()));
    let rig = match gpu::Rig::new() {
        Ok(rig) => rig,
        Err(why) => return gpu::skipped("all tests on GPUs", &why),
    };
    println!("{}", rig.describe());
    let suite = suite::PROGRAMS.iter().map(|&(name, program)| (name, gpu::Test::Suite(program)));
    let all = suite.chain(gpu::TESTS.iter().map(|&(name, test)| (name, gpu::Test::Gpu(test))));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in all.filter(|(name, _)| wanted(name)) {
        // Streams wait for work that is issued to others later, so nothing may be freed meanwhile, except
        // in the tests of freeing.
        let [device, _] = suite::Rig::devices(&rig);
        let waiting = (!name.contains("memory")).then(|| device.begin_waiting());
        let begin = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| test.run(&rig)));
        let time = begin.elapsed();
        drop(waiting);
        match outcome {
            Ok(Ok(())) => {
                passed += 1;
                println!("test {name} ... ok ({time:.1?})");
            }
            Ok(Err(why)) => {
                failed += 1;
                println!("test {name} ... FAILED: {why}");
            }
            Err(_) => {
                failed += 1;
                println!("test {name} ... FAILED: panicked");
            }
        }
    }
    if passed + failed == 0 {
        println!("no test name contains any of these: {}", arguments.join(", "));
        return ExitCode::FAILURE;
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed;");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
