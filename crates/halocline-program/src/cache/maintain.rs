//! Maintenance of a cache folder: lists, checks, removal, eviction, and the removal of the remains of killed builds.

use super::claim;
use super::entry::{Entry, Found};
use super::key::Hash;
use super::layout::paths;
use super::process::{Life, Process};
use super::{Cache, CacheError};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// An entry that was got so recently is not evicted: its library may be about to be opened. Longer than [`super::Entry::last_use`] is off.
const IN_USE: Duration = Duration::from_secs(600);

/// When what a process of another host left is removed, if nothing is known of that process.
const FOREIGN_AGE: Duration = Duration::from_secs(24 * 3600);

/// An entry that is not loaded.
///
/// ```
/// # let (_folder, cache, entry) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/cache.rs"));
/// // `entry` is what `Cache::get_or_build` has returned. Its library is lost.
/// std::fs::remove_file(entry.library())?;
/// let damaged = cache.list()?.damaged;
/// assert_eq!(damaged[0].folder, entry.folder());
/// assert_eq!(damaged[0].why, "libheat.so is missing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damaged {
    /// Its folder.
    pub folder: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// All that a cache folder contains.
///
/// ```
/// # let (_folder, cache, _) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/cache.rs"));
/// // `cache` has one program.
/// let contents = cache.list()?;
/// assert_eq!(&*contents.entries[0].record().program, "heat");
/// assert!(contents.damaged.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Contents {
    /// Whole entries, those used last first.
    pub entries: Vec<Entry>,
    /// Entries that are not loaded; they are built again when they are needed.
    pub damaged: Vec<Damaged>,
}

/// Which entries [`Cache::clear`] removes.
///
/// ```
/// use halocline_program::cache::Filter;
/// use std::time::Duration;
///
/// # let (_folder, cache, _) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/cache.rs"));
/// // `cache` has one program, which was just built.
/// let old = Filter::all().program("heat").unused_for(Duration::from_secs(30 * 24 * 3600));
/// assert_eq!(cache.clear(&old)?.entries.len(), 0);
/// assert_eq!(cache.clear(&Filter::all())?.entries.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Filter {
    unused_for: Option<Duration>,
    program: Option<String>,
}

impl Filter {
    /// All entries, also damaged ones.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only those that no process has got for so long.
    pub fn unused_for(self, age: Duration) -> Self {
        Self { unused_for: Some(age), ..self }
    }

    /// Only those of the program with this name.
    pub fn program(self, name: &str) -> Self {
        Self { program: Some(name.to_owned()), ..self }
    }

    fn takes(&self, entry: &Entry, now: SystemTime) -> bool {
        let is_old = |limit| now.duration_since(entry.last_use()).is_ok_and(|age| age >= limit);
        self.unused_for.is_none_or(is_old)
            && self.program.as_ref().is_none_or(|name| **name == *entry.record().program)
    }
}

impl Cache {
    /// All entries. Changes nothing.
    pub fn list(&self) -> Result<Contents, CacheError> {
        let mut contents = Contents::default();
        for folder in paths(&self.layout.entries())? {
            for folder in paths(&folder)? {
                let damaged = |why: &str| Damaged { folder: folder.clone(), why: why.to_owned() };
                match hash_of(&folder).map(|hash| self.layout.find(hash)).transpose()? {
                    None => contents.damaged.push(damaged("its name is no key; the cache leaves it alone")),
                    Some(Found::Whole(entry)) => contents.entries.push(entry),
                    Some(Found::Damaged(why)) => contents.damaged.push(damaged(&why)),
                    Some(Found::Foreign) => contents.damaged.push(damaged("other users can have written it")),
                    // It was removed meanwhile.
                    Some(Found::Nothing) => {}
                }
            }
        }
        contents.entries.sort_by_key(|entry| std::cmp::Reverse(entry.last_use()));
        Ok(contents)
    }

    /// As [`Cache::list`], and compares all bytes of all files with their hashes. Changes nothing.
    pub fn verify(&self) -> Result<Contents, CacheError> {
        let Contents { entries, mut damaged } = self.list()?;
        let mut whole = Vec::new();
        for entry in entries {
            match entry.compare() {
                Ok(()) => whole.push(entry),
                // It was removed meanwhile.
                Err(_) if !entry.folder().exists() => {}
                Err(why) => damaged.push(Damaged { folder: entry.folder().to_owned(), why }),
            }
        }
        Ok(Contents { entries: whole, damaged })
    }

    /// Removes entries, and what killed builds left. Programs that are open stay open. Returns what was removed.
    pub fn clear(&self, filter: &Filter) -> Result<Contents, CacheError> {
        let mut removed = Contents::default();
        if !self.layout.root.exists() {
            return Ok(removed);
        }
        let now = self.layout.now()?;
        let Contents { entries, damaged } = self.list()?;
        for entry in entries.into_iter().filter(|entry| filter.takes(entry, now)) {
            self.layout.discard(entry.folder())?;
            removed.entries.push(entry);
        }
        if filter.program.is_none() && filter.unused_for.is_none() {
            removed.damaged = self.discard(damaged)?;
        }
        self.sweep()?;
        Ok(removed)
    }

    /// Removes damaged entries that [`Cache::verify`] has found, but for what has no name of an entry: that is not the cache's. Returns what
    /// was removed.
    pub fn discard(&self, mut damaged: Vec<Damaged>) -> Result<Vec<Damaged>, CacheError> {
        damaged.retain(|damaged| hash_of(&damaged.folder).is_some());
        damaged.iter().try_for_each(|damaged| self.layout.discard(&damaged.folder))?;
        Ok(damaged)
    }

    /// Removes the entries that were used least recently, until the others have at most `limit` bytes. Keeps those that a process has got
    /// in the last ten minutes. Returns what was removed.
    pub fn evict(&self, limit: u64) -> Result<Vec<Entry>, CacheError> {
        self.evict_of(self.list()?.entries, limit)
    }

    /// As [`Cache::evict`], of entries that were listed some time ago, those used last first.
    fn evict_of(&self, mut entries: Vec<Entry>, limit: u64) -> Result<Vec<Entry>, CacheError> {
        let mut total: u64 = entries.iter().map(Entry::bytes).sum();
        let mut removed = Vec::new();
        if total <= limit {
            return Ok(removed);
        }
        let now = self.layout.now()?;
        while total > limit
            && let Some(entry) = entries.pop()
        {
            // Read again: it may have been used meanwhile, or another process evicts too.
            match self.layout.find(entry.record().key)? {
                Found::Whole(found)
                    if now.duration_since(found.last_use()).is_ok_and(|age| age >= IN_USE) =>
                {
                    self.layout.discard(entry.folder())?;
                    total -= entry.bytes();
                    removed.push(entry);
                }
                Found::Nothing => total -= entry.bytes(),
                Found::Whole(_) | Found::Damaged(_) | Found::Foreign => {}
            }
        }
        Ok(removed)
    }

    /// Removes what processes left that have ended: build folders, claims, entries that were being removed. Leaves what has no name of a
    /// process alone, and looks into no folder by a link: that is not the cache's.
    pub(super) fn sweep(&self) -> Result<(), CacheError> {
        let layout = &self.layout;
        let mut now = None;
        for folder in [layout.builds(), layout.trash(), layout.probes()] {
            for path in of_folder(&folder)? {
                self.sweep_path(&path, &mut now)?;
            }
        }
        let slots = of_folder(&layout.slots())?;
        for claims in [layout.claims()].iter().chain(&slots) {
            for claim in of_folder(claims)? {
                self.sweep_claim(&claim, &mut now)?;
            }
        }
        Ok(())
    }

    /// Removes a claim of a process that has ended, or the folder that was to become one.
    fn sweep_claim(&self, claim: &Path, now: &mut Option<SystemTime>) -> Result<(), CacheError> {
        let name = claim.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(claim::NEW) {
            return self.sweep_path(claim, now);
        }
        for file in of_folder(claim)? {
            self.sweep_path(&file, now)?;
        }
        if Hash::from_hex(name).is_some() || name.parse::<usize>().is_ok() {
            // It stays if it is claimed.
            let _ = fs::remove_dir(claim);
        }
        Ok(())
    }

    /// Removes a file or folder of a process that has ended, or that is unknown and has not touched it for a day.
    fn sweep_path(&self, path: &Path, now: &mut Option<SystemTime>) -> Result<(), CacheError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(process) = Process::parse(name.strip_prefix(claim::NEW).unwrap_or(name)) else {
            return Ok(());
        };
        let has_ended = match process.life() {
            Life::Runs => false,
            Life::Ended => true,
            Life::Unknown => {
                let now = match now {
                    Some(now) => *now,
                    None => *now.insert(self.layout.now()?),
                };
                let modified = fs::symlink_metadata(path).and_then(|about| about.modified());
                modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age > FOREIGN_AGE))
            }
        };
        if !has_ended {
            return Ok(());
        }
        match claim::remove(path) {
            // A compiler whose parent was killed still writes; the next sweep removes the rest.
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other.map_err(CacheError::file("remove", path)),
        }
    }
}

/// The paths in a folder; none of what is no folder itself, such as a link to one.
fn of_folder(folder: &Path) -> Result<Vec<PathBuf>, CacheError> {
    match fs::symlink_metadata(folder) {
        Ok(about) if about.is_dir() => paths(folder),
        _ => Ok(Vec::new()),
    }
}

/// The key of an entry's folder.
fn hash_of(folder: &Path) -> Option<Hash> {
    let name = folder.file_name()?.to_str()?;
    let parent = folder.parent()?.file_name()?.to_str()?;
    Hash::from_hex(name).filter(|_| name.starts_with(parent) && parent.len() == 2)
}

#[cfg(test)]
mod tests {
    use super::super::{BuildFolder, BuildOptions, Built, Key};
    use super::*;

    #[test]
    fn entries_that_another_process_removed_meanwhile_count_no_longer() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path());
        let build = |folder: &BuildFolder| {
            fs::write(folder.path().join("lib.so"), "library").map(|()| Built::new("lib.so"))
        };
        let long_ago = SystemTime::now() - 2 * IN_USE;
        let programs = ["a", "b", "c"];
        for program in programs {
            let entry =
                cache.get_or_build(&Key::of(program).finish(), &BuildOptions::default(), build).unwrap();
            let record = fs::File::options().write(true).open(entry.folder().join("entry.json")).unwrap();
            record.set_modified(long_ago).unwrap();
        }
        let listed = cache.list().unwrap().entries;
        let limit = listed[0].bytes() * 2;
        cache.layout.discard(listed[2].folder()).unwrap();
        assert_eq!(cache.evict_of(listed, limit).unwrap().len(), 0);
        assert_eq!(cache.list().unwrap().entries.len(), 2);
    }
}
