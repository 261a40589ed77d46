//! The suite of all devices on GPUs, and what GPUs alone can show. A program of its own, which needs nothing but the
//! driver and NVRTC where it runs: `gpu/one` and `gpu/two` carry it there. Arguments: parts of names of the tests to run.

#[path = "../it/arrays/mod.rs"]
mod arrays;
mod gpu;
#[path = "../it/suite/mod.rs"]
mod suite;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    // What lists the tests of all programs, such as `cargo nextest`, finds none here: these run one after the other, in one process.
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
        // Streams wait for what is given to others later: nothing may be freed meanwhile, but where it is looked at that memory goes.
        let [device, _] = suite::Rig::devices(&rig);
        let waiting = (!name.contains("memory")).then(|| device.let_wait());
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
        println!("no test has any of these in its name: {}", arguments.join(", "));
        return ExitCode::FAILURE;
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed;");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
