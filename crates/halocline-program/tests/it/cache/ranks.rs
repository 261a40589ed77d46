//! One build for all ranks of a job: threads, and processes over shared memory, with one folder and with several.

use super::{HOLD, Hold, LOG, builders, compile, key, names, value};
use halocline_comm::Communicator;
use halocline_comm::shm::Job;
use halocline_program::cache::{BuildOptions, Cache, CacheError};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Runs ranks as threads. Each gets its communicator.
fn on_threads<T: Send>(ranks: usize, run: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let run = &run;
    std::thread::scope(|scope| {
        let ranks = Communicator::threads(ranks).into_iter().map(|comm| scope.spawn(move || run(comm)));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// Gets programs on ranks that are threads: the numbers of programs and of folders by rank. Returns how many were built.
fn built_for(scratch: &Path, numbers: &[u32], folders: &[usize]) -> usize {
    let built = AtomicUsize::new(0);
    on_threads(numbers.len(), |comm| {
        let (number, folder) = (numbers[comm.rank()], folders[comm.rank()]);
        let cache = Cache::at(scratch.join(folder.to_string()));
        let entry = cache.get_or_build_on(&comm, &key(number), &BuildOptions::default(), |folder| {
            built.fetch_add(1, Ordering::SeqCst);
            compile(folder, number)
        });
        let entry = entry.unwrap();
        assert!(entry.folder().starts_with(cache.folder()));
        assert_eq!(value(&entry).unwrap(), number as i32);
    });
    for folder in folders {
        let folder = scratch.join(folder.to_string());
        assert!(Cache::at(&folder).verify().unwrap().damaged.is_empty());
        for name in ["builds", "claims", "probes", "trash"] {
            assert_eq!(names(&folder.join(name)), [""; 0], "{name}");
        }
    }
    built.into_inner()
}

#[test]
fn ranks_with_any_folders_and_programs_make_one_build_of_each_program() {
    for (numbers, folders, builds) in [
        (vec![1; 4], vec![0; 4], 1),
        (vec![1; 4], vec![0, 1, 2, 3], 1),
        (vec![1; 5], vec![0, 0, 1, 1, 1], 1),
        (vec![1, 2, 1, 2], vec![0; 4], 2),
        (vec![1, 2, 1, 2, 3], vec![0, 0, 1, 2, 2], 3),
        (vec![1], vec![0], 1),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(built_for(scratch.path(), &numbers, &folders), builds, "{numbers:?} {folders:?}");
        assert_eq!(built_for(scratch.path(), &numbers, &folders), 0);
    }
}

#[test]
fn a_program_that_one_folder_has_is_not_built_again() {
    let scratch = tempfile::tempdir().unwrap();
    assert_eq!(built_for(scratch.path(), &[1, 2], &[0, 1]), 2);
    // Rank 1 has its own already, and rank 0 needs that of the other folder.
    assert_eq!(built_for(scratch.path(), &[2, 2, 1], &[0, 1, 0]), 0);
    assert_eq!(built_for(scratch.path(), &[2, 2, 2, 2, 2], &[0, 1, 2, 3, 4]), 0);
}

#[test]
fn a_folder_that_receives_an_entry_evicts_others_beyond_its_limit() {
    let scratch = tempfile::tempdir().unwrap();
    let of_receiver = Cache::at(scratch.path().join("1"));
    let old = super::get(&of_receiver, 2).unwrap();
    let record = fs::File::options().write(true).open(old.folder().join("entry.json")).unwrap();
    record.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600)).unwrap();
    on_threads(2, |comm| {
        let cache = Cache::at(scratch.path().join(comm.rank().to_string())).limit(Some(old.bytes()));
        cache.get_or_build_on(&comm, &key(1), &BuildOptions::default(), |folder| compile(folder, 1)).unwrap();
    });
    let kept = of_receiver.list().unwrap().entries;
    assert_eq!(kept.iter().map(|entry| entry.record().key).collect::<Vec<_>>(), [key(1).hash()]);
}

#[test]
fn a_build_that_fails_is_an_error_on_the_ranks_that_need_it_alone() {
    let scratch = tempfile::tempdir().unwrap();
    // Ranks 0 to 2 want a program whose build fails, ranks 3 and 4 another one in two folders.
    let results = on_threads(5, |comm| {
        let rank = comm.rank();
        let cache = Cache::at(scratch.path().join((rank / 2).to_string()));
        let number = if rank < 3 { 1 } else { 2 };
        cache.get_or_build_on(&comm, &key(number), &BuildOptions::default(), |folder| match number {
            1 => Err("no such compiler".to_owned()),
            _ => compile(folder, number),
        })
    });
    assert!(matches!(&results[0], Err(CacheError::Build { .. })), "{:?}", results[0]);
    for result in &results[1..3] {
        let error = result.as_ref().unwrap_err();
        assert!(matches!(error, CacheError::OtherRank { rank: 0, .. }), "{error}");
        let (text, pid) = (error.to_string(), std::process::id());
        assert!(
            text.contains("failed on rank 0") && text.contains(&format!("process {pid} of host")),
            "{text}"
        );
        assert!(text.contains("no such compiler; correct that"), "{text}");
    }
    results[3..].iter().for_each(|result| assert_eq!(value(result.as_ref().unwrap()).unwrap(), 2));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_of_its_ranks() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("1"), "a file").unwrap();
    let results = on_threads(3, |comm| {
        let cache = Cache::at(scratch.path().join(comm.rank().to_string()));
        cache.get_or_build_on(&comm, &key(1), &BuildOptions::default(), |folder| compile(folder, 1))
    });
    assert!(matches!(&results[1], Err(CacheError::File { what: "create", .. })), "{:?}", results[1]);
    for rank in [0, 2] {
        assert_eq!(value(results[rank].as_ref().unwrap()).unwrap(), 1);
    }
}

#[test]
fn a_rank_that_waits_too_long_names_the_builder() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path().join("cache"));
    let late = std::sync::Barrier::new(2);
    let results = on_threads(2, |comm| {
        // Rank 0 builds until rank 1 has given up.
        let options = BuildOptions::default().timeout(Duration::from_millis(200));
        let result = cache.get_or_build_on(&comm, &key(1), &options, |folder| {
            late.wait();
            compile(folder, 1)
        });
        if comm.rank() == 1 {
            late.wait();
        }
        result
    });
    let error = results[1].as_ref().unwrap_err();
    assert!(matches!(error, CacheError::Waiting { pid, .. } if *pid == std::process::id()), "{error}");
    // The builder needs no other rank.
    assert_eq!(value(results[0].as_ref().unwrap()).unwrap(), 1);
}

/// Starts a job of processes that get the same program, each with this folder. Returns whether each ended well.
fn job(scratch: &Path, folders: &[&Path], prepare: impl Fn(usize, &mut Command)) -> Vec<std::process::Child> {
    let job = Job::create(folders.len()).unwrap();
    let start = |(rank, folder): (usize, &&Path)| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cache::ranks::rank", "--ignored", "--quiet"]).stdout(Stdio::null());
        command.env_remove("MAKEFLAGS").env(super::FOLDER, folder).env(LOG, scratch.join("log"));
        prepare(rank, &mut command);
        job.prepare(rank, &mut command);
        command.spawn().unwrap()
    };
    folders.iter().enumerate().map(start).collect()
}

#[test]
#[ignore = "the other tests run it, in processes of its own"]
fn rank() {
    let comm = Communicator::init_by_name("shm").expect("another test runs this one");
    let cache = Cache::at(std::env::var(super::FOLDER).unwrap());
    let entry = cache.get_or_build_on(&comm, &key(4), &BuildOptions::default(), |folder| {
        super::log_build();
        compile(folder, 4)
    });
    let entry = match entry {
        Ok(entry) => entry,
        Err(error) => {
            fs::write(std::env::var(super::SAID).expect("no error is expected"), error.to_string()).unwrap();
            return;
        }
    };
    assert_eq!(value(&entry).unwrap(), 4);
    comm.barrier().unwrap();
}

#[test]
fn processes_of_a_job_make_one_build_with_one_folder_and_with_several() {
    for folders in [["a"; 4], ["a", "b", "c", "d"], ["a", "a", "b", "b"]] {
        let scratch = tempfile::tempdir().unwrap();
        let paths = folders.map(|folder| scratch.path().join(folder));
        for _ in 0..2 {
            let ranks = job(scratch.path(), &paths.each_ref().map(|path| &**path), |_, _| {});
            for mut rank in ranks {
                assert!(rank.wait().unwrap().success());
            }
            assert_eq!(builders(scratch.path()).len(), 1, "{folders:?}");
        }
    }
}

#[test]
fn ranks_that_wait_for_a_killed_builder_say_so() {
    let scratch = tempfile::tempdir().unwrap();
    let (cache, hold) = (scratch.path().join("cache"), Hold::new(scratch.path()));
    let said = |rank: usize| scratch.path().join(format!("said-{rank}"));
    let mut ranks = job(scratch.path(), &[&*cache; 3], |rank, command| {
        command.env(HOLD, &hold.path).env(super::SAID, said(rank));
    });
    let held = hold.reached();
    ranks[0].kill().unwrap();
    ranks[0].wait().unwrap();
    for rank in [1, 2] {
        assert!(ranks[rank].wait().unwrap().success());
        let text = fs::read_to_string(said(rank)).unwrap();
        assert!(text.starts_with(&format!("rank 0 has died while rank {rank} waited")), "{text}");
    }
    drop(held);
    // The next job builds.
    for mut rank in job(scratch.path(), &[&*cache; 3], |_, _| {}) {
        assert!(rank.wait().unwrap().success());
    }
    assert_eq!(builders(scratch.path()).len(), 2);
    assert_eq!(names(&cache.join("builds")), [""; 0]);
}
