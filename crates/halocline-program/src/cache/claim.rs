//! Claims: at most one process builds a key, or uses a build slot, at a time. No file is locked.
//!
//! A claim is a folder that contains one empty file, named after the [`Process`] that has it.
//!
//! - To claim, a process makes such a folder under another name and renames it. A rename onto a folder with a file fails, so that one of
//!   several processes wins, and the claim has its owner's name from the first moment.
//! - To release, or to break the claim of a process that has ended, a process removes the file *of that name*. A process that comes
//!   late removes nothing: the next owner's file has another name. The empty folder counts as free.
//!
//! The kernel says whether a process of this host runs. A process elsewhere touches its file regularly. It counts as ended if the file
//! stays the same for a while, measured by the clock of the observer.

use super::CacheError;
use super::process::{Life, Process};
use rustix::fs::{AtFlags, CWD, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Begins the name of a folder that becomes a claim.
pub(super) const NEW: &str = ".new-";

/// How claims of other hosts are known to be alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    /// How often an owner touches its file.
    pub(super) every: Duration,
    /// How long a file that does not change still counts as alive.
    pub(super) limit: Duration,
}

impl Default for Heartbeat {
    fn default() -> Self {
        // Clients of network file systems keep what they know of a file for up to 60 s.
        Self { every: Duration::from_secs(5), limit: Duration::from_secs(90) }
    }
}

/// Observations of a waiting process about the owners on other hosts.
#[derive(Debug, Default)]
pub(super) struct Watch(HashMap<PathBuf, (SystemTime, Instant)>);

impl Watch {
    /// Whether a file has stayed as it is for longer than the limit. Compares no clocks: only the file with what it was.
    fn has_expired(&mut self, file: &Path, limit: Duration) -> io::Result<bool> {
        let modified = fs::symlink_metadata(file)?.modified()?;
        let now = Instant::now();
        let (known, since) = self.0.entry(file.to_owned()).or_insert((modified, now));
        if *known != modified {
            (*known, *since) = (modified, now);
        }
        Ok(now.duration_since(*since) >= limit)
    }
}

/// The result of an attempt.
pub(super) enum Attempt {
    Held(Claim),
    /// This process has it.
    By(Process),
}

/// A claim of this process. Dropping it releases it.
pub(super) struct Claim {
    folder: PathBuf,
    owner: Process,
    heart: Option<Heart>,
}

/// Tries to get a claim. Never waits.
pub(super) fn attempt(folder: &Path, heartbeat: Heartbeat, watch: &mut Watch) -> Result<Attempt, CacheError> {
    let failed = |error| CacheError::file("claim", folder)(error);
    if let Some(owner) = owner(folder, heartbeat, watch).map_err(failed)? {
        return Ok(Attempt::By(owner));
    }
    let this = Process::this();
    let new = folder.with_file_name(format!("{NEW}{}", this.name()));
    fs::create_dir(&new).map_err(CacheError::file("create", &new))?;
    let placed = fs::File::create_new(new.join(this.name())).and_then(|_| place(&new, folder));
    if !matches!(placed, Ok(true)) {
        remove(&new).map_err(CacheError::file("remove", &new))?;
    }
    match placed.map_err(failed)? {
        true => Ok(Attempt::Held(Claim { folder: folder.to_owned(), owner: this, heart: None })),
        // It may have been released again; the caller looks once more.
        false => Ok(Attempt::By(owner(folder, heartbeat, watch).map_err(failed)?.unwrap_or(this))),
    }
}

/// Renames a folder with a file to `folder`; false if there is one that is not empty.
fn place(new: &Path, folder: &Path) -> io::Result<bool> {
    let is_taken =
        |error: &io::Error| matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists);
    match fs::rename(new, folder) {
        Ok(()) => return Ok(true),
        Err(error) if !is_taken(&error) => return Err(error),
        Err(_) => {}
    }
    // Some file systems rename onto no folder, not even onto an empty one.
    match fs::remove_dir(folder) {
        Err(error) if is_taken(&error) => return Ok(false),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::rename(new, folder) {
        Ok(()) => Ok(true),
        Err(error) if is_taken(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The process that has a claim. Breaks the claims of those that have ended.
fn owner(folder: &Path, heartbeat: Heartbeat, watch: &mut Watch) -> io::Result<Option<Process>> {
    for name in names(folder)? {
        let file = folder.join(&name);
        let process = name.to_str().and_then(Process::parse);
        let has_ended = match process.as_ref().map_or(Life::Unknown, Process::life) {
            Life::Runs => false,
            Life::Ended => true,
            Life::Unknown => match watch.has_expired(&file, heartbeat.limit) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                expired => expired?,
            },
        };
        if !has_ended {
            return Ok(Some(process.unwrap_or_else(Process::unknown)));
        }
        tracing::info!("breaks the claim of a process that has ended: {}", file.display());
        gone(fs::remove_file(&file))?;
    }
    Ok(None)
}

/// The names in a folder; none if there is no folder.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    match fs::read_dir(folder) {
        Ok(entries) => match entries.map(|entry| entry.map(|entry| entry.file_name())).collect() {
            Err::<Vec<_>, _>(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            names => names,
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Counts the removal of a missing file as a success.
pub(super) fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a file, or a folder with all that is in it; of a link the link alone.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|about| about.is_dir());
    gone(if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) })
}

impl Claim {
    /// Touches the file regularly from now on, for processes of other hosts.
    pub(super) fn keep_alive(&mut self, heartbeat: Heartbeat) {
        self.heart = Heart::start(self.file(), heartbeat.every);
    }

    fn file(&self) -> PathBuf {
        self.folder.join(self.owner.name())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A forked child does not own the claims of its parent.
        if self.owner.pid != std::process::id() {
            std::mem::forget(self.heart.take());
            return;
        }
        self.heart = None;
        if let Err(error) = gone(fs::remove_file(self.file())) {
            tracing::warn!("cannot release {}: {error}", self.folder.display());
        }
        // Another process may have it already.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A thread that touches a file until it is dropped.
struct Heart {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    fn start(file: PathBuf, every: Duration) -> Option<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let beat = move || {
            while stopped.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Err(error) = touch(&file) {
                    tracing::warn!(
                        "another process may take over a build: cannot touch {}: {error}",
                        file.display()
                    );
                }
            }
        };
        match std::thread::Builder::new().name("halocline build".into()).spawn(beat) {
            Ok(thread) => Some(Self { stop: Some(stop), thread: Some(thread) }),
            Err(error) => {
                tracing::warn!(
                    "processes of other hosts may take over a build: cannot start a thread: {error}"
                );
                None
            }
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Sets the time of a file to that of its file system.
pub(super) fn touch(file: &Path) -> Result<(), Errno> {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    rustix::fs::utimensat(CWD, file, &times, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::process::host_name;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const FOREVER: Heartbeat =
        Heartbeat { every: Duration::from_secs(1000), limit: Duration::from_secs(1000) };

    fn held(folder: &Path) -> Option<Claim> {
        match attempt(folder, FOREVER, &mut Watch::default()).unwrap() {
            Attempt::Held(claim) => Some(claim),
            Attempt::By(_) => None,
        }
    }

    #[test]
    fn one_of_many_threads_has_a_claim_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let (folder, inside) = (root.path().join("key"), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut claimed = 0;
                    while claimed < 200 {
                        let Some(claim) = held(&folder) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        claimed += 1;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(claim);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_of_many_threads_takes_over_the_claim_of_a_process_that_has_ended() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("key");
        // This process, started at another time.
        let this = Process::this().name();
        let (pid, rest) = this.split_once('-').unwrap();
        let dead = format!("{pid}-1-{}", rest.split_once('-').unwrap().1);
        for _ in 0..100 {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(&dead), "").unwrap();
            let start = std::sync::Barrier::new(4);
            let claims: Vec<Claim> = std::thread::scope(|scope| {
                let attempt = || {
                    start.wait();
                    held(&folder)
                };
                let attempts: Vec<_> = (0..4).map(|_| scope.spawn(attempt)).collect();
                attempts.into_iter().filter_map(|attempt| attempt.join().unwrap()).collect()
            });
            assert_eq!(claims.len(), 1);
            drop(claims);
            assert!(!folder.exists());
        }
    }

    /// A claim of a process on another host.
    fn of_another_host(folder: &Path) -> PathBuf {
        fs::create_dir(folder).unwrap();
        let file = folder.join(format!("7-8-9-0123456789abcdef-0-{}", host_name()));
        fs::write(&file, "").unwrap();
        file
    }

    #[test]
    fn a_claim_of_another_host_ends_when_its_file_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("key");
        let file = of_another_host(&folder);
        // Its clock may be wrong by years.
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        let limit = Duration::from_millis(200);
        let (mut watch, begin) = (Watch::default(), Instant::now());
        let heartbeat = Heartbeat { limit, ..FOREVER };
        let mut looks = 0;
        let taken = loop {
            looks += 1;
            match attempt(&folder, heartbeat, &mut watch).unwrap() {
                Attempt::Held(_) => break begin.elapsed(),
                Attempt::By(process) => assert_eq!(process.pid, 7),
            }
            if looks == 10 {
                // A sign of life: the time goes back.
                let older = old - Duration::from_secs(5);
                fs::File::options().write(true).open(&file).unwrap().set_modified(older).unwrap();
            }
            std::thread::yield_now();
        };
        assert!(taken >= limit && looks > 10, "{taken:?} {looks}");
    }

    #[test]
    fn the_owner_of_a_claim_touches_its_file_until_it_is_released() {
        let root = tempfile::tempdir().unwrap();
        let mut claim = held(&root.path().join("key")).unwrap();
        let modified = || fs::metadata(claim.file()).unwrap().modified().unwrap();
        let first = modified();
        let file = claim.file();
        claim.keep_alive(Heartbeat { every: Duration::from_millis(5), limit: Duration::MAX });
        while fs::metadata(&file).unwrap().modified().unwrap() == first {
            std::thread::yield_now();
        }
        drop(claim);
        assert!(!root.path().join("key").exists());
    }

    #[test]
    fn a_claim_that_was_broken_releases_nothing_of_its_successor() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("key");
        let first = held(&folder).unwrap();
        fs::remove_file(first.file()).unwrap();
        let second = held(&folder).unwrap();
        drop(first);
        assert!(second.file().exists() && held(&folder).is_none());
    }

    #[test]
    fn a_file_of_an_unknown_name_counts_as_a_claim_until_it_is_old() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("key");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("something"), "").unwrap();
        let mut watch = Watch::default();
        assert!(matches!(attempt(&folder, FOREVER, &mut watch).unwrap(), Attempt::By(_)));
        let expired = Heartbeat { limit: Duration::ZERO, ..FOREVER };
        assert!(matches!(attempt(&folder, expired, &mut watch).unwrap(), Attempt::Held(_)));
    }
}
