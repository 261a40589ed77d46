//! Several processes that start with an empty cache, and builders that hang or end.

use super::{Getter, HOLD, Hold, TIMEOUT, builders, get, key, names, until, value};
use halocline_program::cache::{BuildOptions, Cache, CacheError};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How often; `tools/test` runs a few.
fn repeats(all: u32) -> u32 {
    let seeds = std::env::var("HALOCLINE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    seeds.map_or(all, |seeds: u32| seeds.min(all))
}

#[test]
fn four_cold_processes_make_one_build() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("cache");
    for number in 1..=repeats(100) {
        let getters: Vec<_> = (0..4).map(|_| Getter::new(scratch.path(), &cache, number).start()).collect();
        getters.into_iter().for_each(|getter| getter.end().unwrap());
        assert_eq!(builders(scratch.path()).len() as u32, number);
    }
    for folder in ["builds", "claims", "trash"] {
        assert_eq!(names(&cache.join(folder)), [""; 0], "{folder}");
    }
    let contents = Cache::at(&cache).verify().unwrap();
    assert_eq!((contents.entries.len() as u32, contents.damaged.len()), (repeats(100), 0));
}

#[test]
fn threads_of_a_process_make_one_build() {
    let scratch = tempfile::tempdir().unwrap();
    let (cache, built) = (Cache::at(scratch.path().join("cache")), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let entry = cache.get_or_build(&key(7), &BuildOptions::default(), |folder| {
                    built.fetch_add(1, Ordering::SeqCst);
                    super::compile(folder, 7)
                });
                assert_eq!(value(&entry.unwrap()).unwrap(), 7);
            });
        }
    });
    assert_eq!(built.into_inner(), 1);
}

#[test]
fn nothing_is_created_before_a_build() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path().join("cache"));
    assert!(cache.get(&key(1)).unwrap().is_none());
    assert!(cache.list().unwrap().entries.is_empty());
    assert!(cache.evict(0).unwrap().is_empty());
    assert!(!cache.folder().exists());
}

#[test]
fn a_wait_for_another_process_ends_at_its_limit_and_names_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (cache, hold) = (scratch.path().join("cache"), Hold::new(scratch.path()));
    let builder = Getter::new(scratch.path(), &cache, 5).with(HOLD, &hold.path).start();
    let held = hold.reached();
    let late = Getter::new(scratch.path(), &cache, 5).with(TIMEOUT, "100").start().end().unwrap_err();
    let pid = builder.child.id();
    assert!(late.contains(&format!("process {pid} of host ")), "{late}");
    assert!(late.starts_with("program value is not ready after "), "{late}");
    let options = BuildOptions::default().timeout(Duration::ZERO);
    let error =
        Cache::at(&cache).get_or_build(&key(5), &options, |folder| super::compile(folder, 5)).unwrap_err();
    assert!(matches!(error, CacheError::Waiting { pid: builder, .. } if builder == pid), "{error}");
    drop(held);
    builder.end().unwrap();
    assert_eq!(builders(scratch.path()), [pid]);
}

#[test]
fn the_caller_can_end_a_wait() {
    let scratch = tempfile::tempdir().unwrap();
    let (cache, hold) = (scratch.path().join("cache"), Hold::new(scratch.path()));
    let builder = Getter::new(scratch.path(), &cache, 5).with(HOLD, &hold.path).start();
    let held = hold.reached();
    let stop = AtomicBool::new(false);
    let interrupted = || stop.swap(true, Ordering::SeqCst);
    let options = BuildOptions::default().interrupted(&interrupted);
    let error =
        Cache::at(&cache).get_or_build(&key(5), &options, |folder| super::compile(folder, 5)).unwrap_err();
    assert!(matches!(error, CacheError::Interrupted { .. }), "{error}");
    drop(held);
    builder.end().unwrap();
}

#[test]
fn a_builder_that_is_stopped_keeps_its_claim_and_a_killed_one_loses_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (cache, hold) = (scratch.path().join("cache"), Hold::new(scratch.path()));
    let mut builder = Getter::new(scratch.path(), &cache, 5).with(HOLD, &hold.path).start();
    let held = hold.reached();
    let pid = Pid::from_child(&builder.child);
    kill_process(pid, Signal::STOP).unwrap();
    // However wrong the times of its files are.
    for claim in std::fs::read_dir(cache.join("claims")).unwrap() {
        let file = std::fs::read_dir(claim.unwrap().path()).unwrap().next().unwrap().unwrap().path();
        let file = std::fs::File::options().write(true).open(file).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(4_000_000_000)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let late = Getter::new(scratch.path(), &cache, 5).with(TIMEOUT, "300").start().end().unwrap_err();
    assert!(late.contains(&format!("process {}", builder.child.id())), "{late}");
    let waiting = Getter::new(scratch.path(), &cache, 5).start();
    kill_process(pid, Signal::KILL).unwrap();
    waiting.end().unwrap();
    builder.child.wait().unwrap();
    drop(held);
    assert_eq!(builders(scratch.path()).len(), 2);
    // The second builder has removed what the first has left.
    assert_eq!(names(&cache.join("builds")), [""; 0]);
    assert_eq!(names(&cache.join("claims")), [""; 0]);
}

#[test]
fn a_build_that_fails_leaves_nothing_and_the_next_one_builds() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path().join("cache"));
    let failed = cache.get_or_build(&key(5), &BuildOptions::default(), |folder| {
        std::fs::write(folder.path().join("half"), "half").unwrap();
        Err("no such compiler")
    });
    let error = failed.unwrap_err();
    assert!(matches!(&error, CacheError::Build { source, .. } if source.to_string() == "no such compiler"));
    assert_eq!(
        error.to_string(),
        "the build of program value failed: no such compiler; correct that, then build it again"
    );
    for folder in ["builds", "claims", "entries"] {
        assert_eq!(names(&cache.folder().join(folder)), [""; 0], "{folder}");
    }
    assert_eq!(value(&get(&cache, 5).unwrap()).unwrap(), 5);
}

#[test]
fn a_build_that_panics_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path().join("cache"));
    let build = || {
        let panicking = |_: &_| -> Result<_, String> { panic!("on purpose") };
        cache.get_or_build(&key(5), &BuildOptions::default(), panicking)
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(build)).unwrap_err();
    assert_eq!(names(&cache.folder().join("claims")), [""; 0]);
    assert_eq!(value(&get(&cache, 5).unwrap()).unwrap(), 5);
}

#[test]
fn a_builder_hides_the_gpus_and_its_temporary_files() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path().join("cache"));
    let build = |folder: &halocline_program::cache::BuildFolder| {
        let output = folder
            .command("sh")
            .args(["-c", "echo \"$CUDA_VISIBLE_DEVICES|$TMPDIR|$PWD\""])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let fields: Vec<&str> = text.trim().split('|').collect();
        let root = folder.path().parent().unwrap();
        assert_eq!(fields, ["", root.join("tmp").to_str().unwrap(), folder.path().to_str().unwrap()]);
        super::compile(folder, 5)
    };
    cache.get_or_build(&key(5), &BuildOptions::default(), build).unwrap();
    until("nothing is left", || names(&cache.folder().join("builds")).is_empty());
}
