//! Entries: what a build made, and the record that says so.

use super::CacheError;
use super::claim::touch;
use super::key::{Hash, Part};
use super::layout::{Layout, RECORD};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How old the time of the last use may be.
const USE_INTERVAL: Duration = Duration::from_secs(60);

/// Mode bits of a file that its group or others may write.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// The record of an entry, which is in `entry.json`.
///
/// ```
/// use halocline_program::cache::Record;
///
/// # let (_folder, _, entry) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/cache.rs"));
/// // `entry` is what `Cache::get_or_build` has returned.
/// let record: &Record = entry.record();
/// assert_eq!((&*record.program, &*record.library), ("heat", "libheat.so"));
/// assert_eq!(record.built.pid, std::process::id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// 1.
    pub format: u32,
    /// The key.
    pub key: Hash,
    /// The name of the program.
    pub program: Box<str>,
    /// The inputs that decided the result.
    pub parts: Vec<Part>,
    /// The path of the library in the entry.
    pub library: Box<str>,
    /// All files but the record.
    pub files: Vec<KeptFile>,
    /// The process that built it.
    pub built: BuiltBy,
}

/// A file of an entry.
///
/// ```
/// use halocline_program::cache::KeptFile;
///
/// # let (_folder, _, entry) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/cache.rs"));
/// // `entry` is what `Cache::get_or_build` has returned.
/// let library: &KeptFile = &entry.record().files[0];
/// assert_eq!(&*library.path, "libheat.so");
/// assert_eq!(library.bytes, std::fs::metadata(entry.library())?.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptFile {
    /// Its path in the entry.
    pub path: Box<str>,
    /// Its length.
    pub bytes: u64,
    /// The BLAKE3 hash of its bytes.
    pub hash: Hash,
}

/// The build of an entry, for people.
///
/// ```
/// use halocline_program::cache::BuiltBy;
///
/// # let (_folder, _, entry) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/cache.rs"));
/// // `entry` is what `Cache::get_or_build` has returned.
/// let built: &BuiltBy = &entry.record().built;
/// assert_eq!(built.pid, std::process::id());
/// println!("built on {} in {} s", built.host, built.seconds);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltBy {
    /// The name of the host.
    pub host: Box<str>,
    /// The process.
    pub pid: u32,
    /// Seconds since 1970, by the clock of that host.
    pub at: u64,
    /// How long the build took.
    pub seconds: f64,
}

/// The content of `entry.json`: a record, and the hash of its text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed<'a> {
    hash: Hash,
    #[serde(borrow)]
    record: &'a RawValue,
}

impl Record {
    pub(super) const FORMAT: u32 = 1;

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let record = serde_json::value::to_raw_value(self)?;
        serde_json::to_vec(&Sealed { hash: Hash::of(record.get().as_bytes()), record: &record })
    }

    /// The record of a key from its bytes, or what is wrong with them.
    pub(super) fn read(bytes: &[u8], key: Hash) -> Result<Self, String> {
        let sealed: Sealed =
            serde_json::from_slice(bytes).map_err(|error| format!("{RECORD} is not valid: {error}"))?;
        if Hash::of(sealed.record.get().as_bytes()) != sealed.hash {
            return Err(format!("{RECORD} was changed: its hash is another one"));
        }
        let record: Self = serde_json::from_str(sealed.record.get())
            .map_err(|error| format!("{RECORD} is not valid: {error}"))?;
        let is_inside = |path: &str| is_relative(Path::new(path)) && path != RECORD;
        if record.format != Self::FORMAT || record.key != key {
            return Err(format!("{RECORD} is of key {} in format {}", record.key, record.format));
        }
        if !record.files.iter().all(|file| is_inside(&file.path))
            || !record.files.iter().any(|file| file.path == record.library)
        {
            return Err(format!("{RECORD} names files outside the entry, or no library"));
        }
        Ok(record)
    }
}

/// Whether a path leads down from where it starts, through names alone.
pub(super) fn is_relative(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_))) && path.components().next().is_some()
}

/// A program of the cache, whole. Its files do not change. They can be removed only by [`super::Cache::clear`], or by
/// [`super::Cache::evict`] when no process has got the entry for ten minutes.
///
/// ```
/// use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, Key};
///
/// # let folder = tempfile::tempdir()?;
/// let cache = Cache::at(folder.path());
/// let build = |folder: &BuildFolder| -> std::io::Result<Built> {
///     std::fs::write(folder.path().join("libheat.so"), "from a compiler")?;
///     Ok(Built::new("libheat.so"))
/// };
/// let entry = cache.get_or_build(&Key::of("heat").finish(), &BuildOptions::default(), build)?;
/// assert_eq!(entry.library(), entry.folder().join("libheat.so"));
/// assert_eq!(entry.bytes(), 15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Entry {
    folder: PathBuf,
    record: Record,
    used: SystemTime,
}

impl Entry {
    /// The folder with the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The library. With its manifest beside it, [`crate::Program::load`] loads it.
    pub fn library(&self) -> PathBuf {
        self.folder.join(&*self.record.library)
    }

    /// The paths of all files that the build gave.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.record.files.iter().map(|file| self.folder.join(&*file.path))
    }

    /// The record of the entry.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.record.files.iter().map(|file| file.bytes).sum()
    }

    /// When a process got it last, up to a minute earlier. The time of the file system.
    pub fn last_use(&self) -> SystemTime {
        self.used
    }

    /// Compares all bytes with their hashes; what is wrong with them, if they differ.
    pub(super) fn compare(&self) -> Result<(), String> {
        for file in &self.record.files {
            let wrong = |error: std::io::Error| format!("{} cannot be read: {error}", file.path);
            let mut hasher = blake3::Hasher::new();
            let mut opened = File::open(self.folder.join(&*file.path)).map_err(wrong)?;
            hasher.update_reader(&mut opened).map_err(wrong)?;
            if Hash(*hasher.finalize().as_bytes()) != file.hash {
                return Err(format!("{} was changed: its hash is another one", file.path));
            }
        }
        Ok(())
    }

    /// Remembers that it is used now, at most once a minute.
    pub(super) fn note_use(&self) {
        // A time in the future is of a wrong clock.
        if SystemTime::now().duration_since(self.used).is_ok_and(|age| age < USE_INTERVAL) {
            return;
        }
        if let Err(error) = touch(&self.folder.join(RECORD)) {
            tracing::debug!("cannot note the use of {}: {error}", self.folder.display());
        }
    }
}

/// The content of a cache folder for a key.
pub(super) enum Found {
    Nothing,
    Whole(Entry),
    /// Something that is not loaded, and why.
    Damaged(String),
    /// Something that another user could have written.
    Foreign,
}

/// Whether only this user or root can have written a file.
fn is_ours(about: &Metadata) -> bool {
    let is_owner = about.uid() == rustix::process::geteuid().as_raw() || about.uid() == 0;
    is_owner && about.mode() & WRITTEN_BY_OTHERS == 0
}

impl Layout {
    /// Reads an entry: the whole record, and the kind, owner and length of each file.
    pub(super) fn find(&self, key: Hash) -> Result<Found, CacheError> {
        let folder = self.entry(key);
        let failed = |error| CacheError::file("read", &folder)(error);
        let is_gone = |kind: ErrorKind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
        let mut opened = match File::open(folder.join(RECORD)) {
            Ok(opened) => opened,
            Err(error) if is_gone(error.kind()) => {
                return Ok(match fs::symlink_metadata(&folder) {
                    Ok(_) => Found::Damaged(format!("it has no {RECORD}")),
                    Err(_) => Found::Nothing,
                });
            }
            Err(error) => return Err(failed(error)),
        };
        let about = opened.metadata().map_err(failed)?;
        let mut bytes = Vec::new();
        opened.read_to_end(&mut bytes).map_err(failed)?;
        let outer = match fs::symlink_metadata(&folder) {
            Err(error) if is_gone(error.kind()) => return Ok(Found::Nothing),
            outer => outer.map_err(failed)?,
        };
        if !is_ours(&about) || !is_ours(&outer) {
            return Ok(Found::Foreign);
        }
        let record = match Record::read(&bytes, key) {
            Ok(record) => record,
            Err(why) => return Ok(Found::Damaged(why)),
        };
        for file in &record.files {
            match fs::symlink_metadata(folder.join(&*file.path)) {
                Ok(found) if !is_ours(&found) => return Ok(Found::Foreign),
                Ok(found) if found.is_file() && found.len() == file.bytes => {}
                Ok(found) => {
                    let KeptFile { path, bytes, .. } = file;
                    return Ok(Found::Damaged(format!(
                        "{path} has {} bytes, it was built with {bytes}",
                        found.len()
                    )));
                }
                // The whole entry is being removed, or this file alone was.
                Err(error) if is_gone(error.kind()) => match fs::symlink_metadata(folder.join(RECORD)) {
                    Ok(_) => return Ok(Found::Damaged(format!("{} is missing", file.path))),
                    Err(_) => return Ok(Found::Nothing),
                },
                Err(error) => return Err(failed(error)),
            }
        }
        let used = about.modified().map_err(failed)?;
        Ok(Found::Whole(Entry { folder, record, used }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let key = crate::cache::Key::of("heat").part("source", "x").finish();
        let file = KeptFile { path: "libheat.so".into(), bytes: 3, hash: Hash::of(b"abc") };
        Record {
            format: Record::FORMAT,
            key: key.hash(),
            program: "heat".into(),
            parts: key.parts,
            library: "libheat.so".into(),
            files: vec![file],
            built: BuiltBy { host: "node".into(), pid: 1, at: 2, seconds: 3.5 },
        }
    }

    #[test]
    fn a_record_that_is_cut_or_changed_anywhere_is_refused() {
        let record = record();
        let whole = record.to_bytes().unwrap();
        assert_eq!(Record::read(&whole, record.key), Ok(record.clone()));
        for length in 0..whole.len() {
            assert!(Record::read(&whole[..length], record.key).is_err(), "{length} bytes");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                assert!(Record::read(&changed, record.key).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_record_of_another_key_format_or_place_is_refused() {
        let right = record();
        let outside = |path: &str| Record {
            files: vec![KeptFile { path: path.into(), ..right.files[0].clone() }],
            library: path.into(),
            ..right.clone()
        };
        for wrong in [
            Record { key: Hash::of(b"other"), ..right.clone() },
            Record { format: 2, ..right.clone() },
            Record { library: "other.so".into(), ..right.clone() },
            outside("../libheat.so"),
            outside("/lib/libheat.so"),
            outside("entry.json"),
            outside(""),
        ] {
            assert!(Record::read(&wrong.to_bytes().unwrap(), right.key).is_err(), "{wrong:?}");
        }
        assert!(Record::read(&outside("build/libheat.so").to_bytes().unwrap(), right.key).is_ok());
    }
}
