//! What is in a cache folder: damaged entries, foreign ones, lists, removal, eviction.

use super::{compile, get, key, names, value};
use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, CacheError, Filter};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

fn cache() -> (tempfile::TempDir, Cache) {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path().join("cache"));
    (scratch, cache)
}

#[test]
fn a_file_that_is_cut_missing_or_replaced_is_not_loaded_and_built_again() {
    let (_scratch, cache) = cache();
    let library = get(&cache, 3).unwrap().library();
    let record = library.with_file_name("entry.json");
    let whole = fs::read(&library).unwrap();
    let damages: [&dyn Fn(); 6] = [
        &|| fs::write(&library, &whole[..whole.len() - 1]).unwrap(),
        &|| fs::write(&library, "").unwrap(),
        &|| fs::remove_file(&library).unwrap(),
        &|| fs::write(&record, &fs::read(&record).unwrap()[1..]).unwrap(),
        &|| fs::remove_file(&record).unwrap(),
        &|| {
            fs::remove_file(&library).unwrap();
            fs::create_dir(&library).unwrap();
        },
    ];
    for (at, damage) in damages.iter().enumerate() {
        damage();
        assert!(cache.get(&key(3)).unwrap().is_none(), "{at}");
        assert_eq!(cache.list().unwrap().damaged.len(), 1, "{at}");
        // Not loaded here: the next damage would change an open library.
        get(&cache, 3).unwrap();
        assert!(cache.verify().unwrap().damaged.is_empty(), "{at}");
    }
    assert_eq!(value(&cache.get(&key(3)).unwrap().unwrap()).unwrap(), 3);
}

#[test]
fn changed_bits_are_found_and_the_entry_is_built_again() {
    let (_scratch, cache) = cache();
    let library = get(&cache, 3).unwrap().library();
    let whole = fs::read(&library).unwrap();
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 4;
        fs::write(&library, &changed).unwrap();
        let damaged = cache.verify().unwrap().damaged;
        assert_eq!(damaged[0].why, "libvalue.so was changed: its hash is another one", "byte {at}");
        cache.discard(damaged).unwrap();
        assert!(cache.get(&key(3)).unwrap().is_none());
        get(&cache, 3).unwrap();
    }
}

#[test]
fn an_entry_that_others_can_write_is_refused() {
    let (_scratch, cache) = cache();
    let entry = get(&cache, 3).unwrap();
    for path in [entry.library(), entry.folder().join("entry.json"), entry.folder().to_owned()] {
        let mode = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode.mode() | 0o020)).unwrap();
        for refused in [cache.get(&key(3)).map(drop), get(&cache, 3).map(drop)] {
            assert!(matches!(refused, Err(CacheError::Foreign { .. })), "{refused:?}");
        }
        fs::set_permissions(&path, mode).unwrap();
        cache.get(&key(3)).unwrap().unwrap();
    }
}

#[test]
fn an_entry_is_closed_to_others_whatever_the_umask_is() {
    let (_scratch, cache) = cache();
    let build = |folder: &BuildFolder| {
        let built = compile(folder, 3)?;
        for path in fs::read_dir(folder.path()).unwrap() {
            fs::set_permissions(path.unwrap().path(), fs::Permissions::from_mode(0o777)).unwrap();
        }
        let deep = folder.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("c"), "c").unwrap();
        Ok::<_, String>(built.with("a/b/c"))
    };
    let entry = cache.get_or_build(&key(3), &BuildOptions::default(), build).unwrap();
    let open = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o022;
    let paths = entry.files().chain([
        entry.folder().to_owned(),
        entry.folder().join("a"),
        entry.folder().join("a/b"),
    ]);
    paths.for_each(|path| assert_eq!(open(&path), 0, "{}", path.display()));
    assert_eq!(entry.files().count(), 3);
    assert_eq!(cache.verify().unwrap().entries.len(), 1);
}

#[test]
fn files_that_an_entry_cannot_keep_are_named() {
    let (_scratch, cache) = cache();
    for (path, why) in [
        ("none.so", "does not exist"),
        ("/lib/libc.so.6", "is not inside the build folder"),
        ("../libvalue.so", "is not inside the build folder"),
        ("", "is not inside the build folder"),
        ("folder", "is no regular file"),
        ("entry.json", "has the name of the entry's own record"),
    ] {
        let build = |folder: &BuildFolder| {
            fs::create_dir(folder.path().join("folder")).unwrap();
            compile(folder, 3).map(|built| built.with(path))
        };
        let error = cache.get_or_build(&key(3), &BuildOptions::default(), build).unwrap_err();
        assert!(matches!(&error, CacheError::Output { why: found, .. } if *found == why), "{path}: {error}");
    }
    let link = |folder: &BuildFolder| {
        compile(folder, 3)?;
        std::os::unix::fs::symlink("libvalue.so", folder.path().join("link.so")).unwrap();
        Ok::<_, String>(Built::new("link.so").with("libvalue.so").with("libvalue.so"))
    };
    let entry = cache.get_or_build(&key(3), &BuildOptions::default(), link).unwrap();
    assert!(entry.library().symlink_metadata().unwrap().is_file());
    assert_eq!(entry.files().count(), 2);
}

#[test]
fn entries_are_removed_by_age_by_program_or_all() {
    let (_scratch, cache) = cache();
    for number in [1, 2, 3] {
        get(&cache, number).unwrap();
    }
    let old = SystemTime::now() - Duration::from_secs(7200);
    let record = cache.get(&key(2)).unwrap().unwrap().folder().join("entry.json");
    fs::File::options().write(true).open(&record).unwrap().set_modified(old).unwrap();
    let count = |filter: &Filter| cache.clear(filter).unwrap().entries.len();
    assert_eq!(count(&Filter::all().program("other")), 0);
    assert_eq!(count(&Filter::all().unused_for(Duration::from_secs(3600)).program("other")), 0);
    assert_eq!(count(&Filter::all().unused_for(Duration::from_secs(3600))), 1);
    assert!(cache.get(&key(2)).unwrap().is_none());
    assert_eq!(count(&Filter::all().program("value")), 2);
    get(&cache, 1).unwrap();
    fs::create_dir_all(cache.folder().join("entries/zz/junk")).unwrap();
    let removed = cache.clear(&Filter::all()).unwrap();
    // What has no name of an entry is not the cache's.
    assert_eq!((removed.entries.len(), removed.damaged.len()), (1, 0));
    assert!(cache.folder().join("entries/zz/junk").exists());
    assert_eq!(names(&cache.folder().join("trash")), [""; 0]);
}

#[test]
fn the_entries_used_least_recently_are_evicted_and_recent_ones_stay() {
    let (_scratch, cache) = cache();
    let age = |number: u32, seconds: u64| {
        let record = cache.list().unwrap().entries;
        let entry = record.iter().find(|entry| entry.record().key == key(number).hash()).unwrap();
        let file = fs::File::options().write(true).open(entry.folder().join("entry.json")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        entry.bytes()
    };
    for number in [1, 2, 3, 4] {
        get(&cache, number).unwrap();
    }
    let bytes = age(1, 3000);
    age(2, 4000);
    age(3, 5000);
    // Its use is noted.
    cache.get(&key(3)).unwrap().unwrap();
    let numbers = |cache: &Cache| -> Vec<u32> {
        (1..=5).filter(|number| matches!(cache.get(&key(*number)), Ok(Some(_)))).collect()
    };
    assert_eq!(cache.evict(3 * bytes + bytes / 2).unwrap().len(), 1);
    // `get` has noted a use of 1, 3 and 4.
    assert_eq!(numbers(&cache), [1, 3, 4]);
    assert_eq!(cache.evict(0).unwrap().len(), 0);
    age(1, 3000);
    // A build evicts by itself.
    get(&cache.clone().limit(Some(bytes)), 5).unwrap();
    assert_eq!(numbers(&cache), [3, 4, 5]);
}

#[test]
fn files_of_others_are_left_alone() {
    let (scratch, cache) = cache();
    let long_ago = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    let elsewhere = scratch.path().join("elsewhere");
    let folder = |name: &str| cache.folder().join(name);
    let places = ["builds/mine", "trash/mine", "probes/mine", "claims/mine", "slots/mine/0"].map(folder);
    for place in places.iter().chain([&elsewhere]) {
        fs::create_dir_all(place).unwrap();
        fs::write(place.join("file"), "of somebody").unwrap();
        for path in [place.join("file"), place.clone()] {
            fs::File::open(path).unwrap().set_modified(long_ago).unwrap();
        }
    }
    for link in ["claims/linked", "slots/linked", "builds/linked"].map(folder) {
        std::os::unix::fs::symlink(&elsewhere, link).unwrap();
    }
    get(&cache, 1).unwrap();
    cache.clear(&Filter::all()).unwrap();
    for place in places.iter().chain([&elsewhere]) {
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "of somebody", "{place:?}");
    }
}

#[test]
fn a_time_of_use_in_the_future_is_put_right() {
    let (_scratch, cache) = cache();
    let record = get(&cache, 1).unwrap().folder().join("entry.json");
    let file = fs::File::options().write(true).open(&record).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(1_000_000)).unwrap();
    cache.get(&key(1)).unwrap().unwrap();
    assert!(fs::metadata(&record).unwrap().modified().unwrap() <= SystemTime::now() + Duration::from_secs(1));
}

#[test]
fn entries_are_loaded_or_missing_while_others_remove_them() {
    /// Ends the other threads also where this one fails.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (_scratch, cache) = cache();
    let (done, attempts) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| {
            // Once in four attempts: some find an entry, however the threads are scheduled.
            let mut next = 0;
            while !done.load(Ordering::Relaxed) {
                if attempts.load(Ordering::Relaxed) < next {
                    std::thread::yield_now();
                    continue;
                }
                cache.clear(&Filter::all()).unwrap();
                cache.evict(0).unwrap();
                next = attempts.load(Ordering::Relaxed) + 4;
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let contents = cache.verify().unwrap();
                assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
            }
        });
        let (mut loaded, mut gone) = (0, 0);
        while loaded < 100 {
            attempts.fetch_add(1, Ordering::Relaxed);
            if let Some(entry) = cache.get(&key(1)).unwrap() {
                match value(&entry) {
                    Ok(found) => loaded += u32::from(found == 1),
                    Err(_) => gone += u32::from(!entry.library().exists()),
                }
            } else if let Err(error) = get(&cache, 1) {
                assert!(error.to_string().contains("it was removed as soon as it was"), "{error}");
            }
        }
        println!("loaded {loaded} times, removed {gone} times before that");
    });
}

#[test]
fn what_other_hosts_left_is_swept_after_a_day() {
    let (_scratch, cache) = cache();
    let left = cache.folder().join("builds/7-8-9-0123456789abcdef-0-elsewhere");
    let junk = cache.folder().join("trash/7-8-9-0123456789abcdef-1-elsewhere");
    for folder in [&left, &junk] {
        fs::create_dir_all(folder.join("work")).unwrap();
    }
    get(&cache, 1).unwrap();
    assert!(left.exists() && junk.exists());
    for folder in [&left, &junk] {
        let folder = fs::File::open(folder).unwrap();
        folder.set_modified(SystemTime::now() - Duration::from_secs(25 * 3600)).unwrap();
    }
    get(&cache, 2).unwrap();
    assert!(!left.exists() && !junk.exists());
}
