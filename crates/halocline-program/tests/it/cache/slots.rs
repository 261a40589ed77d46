//! The bound of builds at the same time.

use super::{Getter, HOLD, Hold, JOBS, TIMEOUT, get, until};
use halocline_program::cache::{BuildOptions, Cache, CacheError};
use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

#[test]
fn two_keys_are_built_at_once_and_the_third_waits_for_a_slot() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("cache");
    let holds = ["a", "b"].map(|name| {
        let folder = scratch.path().join(name);
        fs::create_dir(&folder).unwrap();
        Hold::new(&folder)
    });
    let start = |number: u32, hold: &Hold| {
        Getter::new(scratch.path(), &cache, number).with(HOLD, &hold.path).with(JOBS, "2").start()
    };
    let builders = [start(1, &holds[0]), start(2, &holds[1])];
    // Both are inside their builds at the same time.
    let held = holds.each_ref().map(Hold::reached);
    let late = Getter::new(scratch.path(), &cache, 3)
        .with(JOBS, "2")
        .with(TIMEOUT, "100")
        .start()
        .end()
        .unwrap_err();
    let is_named =
        builders.iter().any(|builder| late.contains(&format!("process {} of host", builder.child.id())));
    assert!(late.contains("waits for one of 2 build slots of this node since") && is_named, "{late}");
    let options = BuildOptions::default().jobs(2).timeout(Duration::ZERO);
    let refused =
        Cache::at(&cache).get_or_build(&super::key(3), &options, |folder| super::compile(folder, 3));
    assert!(matches!(refused, Err(CacheError::Slots { slots: 2, .. })), "{refused:?}");
    let third = Getter::new(scratch.path(), &cache, 3).with(JOBS, "2").start();
    drop(held);
    builders.into_iter().for_each(|builder| builder.end().unwrap());
    third.end().unwrap();
}

#[test]
fn a_build_may_ask_for_other_programs_with_its_own_slot_and_not_for_itself() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path());
    let options = BuildOptions::default().jobs(1).timeout(Duration::from_secs(60));
    let outer = cache.get_or_build(&super::key(1), &options, |folder| {
        cache.get_or_build(&super::key(2), &options, |folder| super::compile(folder, 2)).unwrap();
        let itself = cache.get_or_build(&super::key(1), &options, |folder| super::compile(folder, 1));
        let refused = itself.unwrap_err();
        assert!(matches!(refused, CacheError::Itself { .. }), "{refused:?}");
        assert_eq!(
            refused.to_string(),
            "the build of program value asks the cache for that program itself; let it ask for other programs only"
        );
        super::compile(folder, 1)
    });
    assert_eq!(super::value(&outer.unwrap()).unwrap(), 1);
    assert_eq!(super::value(&cache.get(&super::key(2)).unwrap().unwrap()).unwrap(), 2);
}

#[test]
fn a_program_that_waits_for_a_slot_is_built_by_a_build_that_asks_for_it() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path().join("cache"));
    let options = BuildOptions::default().jobs(1).timeout(Duration::from_secs(60));
    let waiting = std::cell::OnceCell::new();
    let outer = cache.get_or_build(&super::key(1), &options, |folder| {
        // It has no slot until this build is over, and shows that it has begun by its claim, which it does not keep.
        let other = Getter::new(scratch.path(), cache.folder(), 2).with(JOBS, "1").start();
        let claims = || super::names(&cache.folder().join("claims")).len();
        until("the other process asks", || claims() > 1);
        waiting.set(other).ok().unwrap();
        cache.get_or_build(&super::key(2), &options, |folder| super::compile(folder, 2)).unwrap();
        super::compile(folder, 1)
    });
    assert_eq!(super::value(&outer.unwrap()).unwrap(), 1);
    waiting.into_inner().unwrap().end().unwrap();
    assert_eq!(super::value(&cache.get(&super::key(2)).unwrap().unwrap()).unwrap(), 2);
}

#[test]
fn a_killed_builder_frees_its_slot() {
    let scratch = tempfile::tempdir().unwrap();
    let (cache, hold) = (scratch.path().join("cache"), Hold::new(scratch.path()));
    let mut builder = Getter::new(scratch.path(), &cache, 1).with(HOLD, &hold.path).with(JOBS, "1").start();
    let held = hold.reached();
    let waiting = Getter::new(scratch.path(), &cache, 2).with(JOBS, "1").start();
    builder.child.kill().unwrap();
    builder.child.wait().unwrap();
    waiting.end().unwrap();
    drop(held);
    get(&Cache::at(&cache), 1).unwrap();
    let slots = cache.join("slots");
    let is_free = |machine: &String| super::names(&slots.join(machine)).is_empty();
    until("no slot is claimed", || super::names(&slots).iter().all(is_free));
}

/// A job server as make offers it, with this many tokens.
fn job_server(folder: &std::path::Path, tokens: usize) -> (fs::File, String) {
    let path = folder.join("tokens");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let mut pipe = fs::File::options().read(true).write(true).open(&path).unwrap();
    pipe.write_all(&vec![b'+'; tokens]).unwrap();
    (pipe, format!(" -j{} --jobserver-auth=fifo:{}", tokens + 1, path.display()))
}

/// Builds two programs at a time in threads of one process, where make's job server allows as many.
#[test]
fn builds_take_tokens_of_make_and_give_them_back() {
    for (tokens, refused) in [(1, ""), (0, "waits for a token of the job server of make since")] {
        let scratch = tempfile::tempdir().unwrap();
        let (mut pipe, flags) = job_server(scratch.path(), tokens);
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "cache::slots::two_builds_of_a_process", "--ignored", "--nocapture"]);
        process.env("MAKEFLAGS", flags).env(super::FOLDER, scratch.path().join("cache"));
        let output = process.stderr(Stdio::inherit()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("refused: {refused}")) || refused.is_empty(), "{text}");
        assert_eq!(text.contains("refused: "), tokens == 0, "{text}");
        // All tokens are back.
        pipe.write_all(b"!").unwrap();
        let mut rest = vec![0; tokens + 1];
        pipe.read_exact(&mut rest).unwrap();
        assert_eq!(rest, [&vec![b'+'; tokens][..], b"!"].concat());
    }
}

#[test]
#[ignore = "the test above runs it, in a process of its own"]
fn two_builds_of_a_process() {
    let cache = Cache::at(std::env::var(super::FOLDER).expect("another test runs this one"));
    let options = BuildOptions::default().jobs(8).timeout(Duration::from_millis(500));
    let outer = cache.get_or_build(&super::key(1), &options, |folder| {
        // In another thread: a build within this one would use its token.
        let build = || cache.get_or_build(&super::key(2), &options, |folder| super::compile(folder, 2));
        let inner = std::thread::scope(|scope| scope.spawn(build).join().expect("no panic"));
        if let Err(error) = inner {
            assert!(matches!(error, CacheError::Token { .. }), "{error}");
            println!("refused: {}", error.to_string().trim_start_matches("program value "));
        }
        super::compile(folder, 1)
    });
    outer.unwrap();
}
