//! Where things lie in a cache folder.
//!
//! | path | contains |
//! | --- | --- |
//! | `entries/ab/abcd...` | an entry: `entry.json`, the library, other files |
//! | `claims/abcd...` | the process that builds an entry ([`super::claim`]) |
//! | `builds/PROCESS` | what a build writes: `work` and `tmp` of the caller, `entry` before it is renamed |
//! | `slots/MACHINE/N` | the process that uses a build slot of a node |
//! | `trash/PROCESS` | entries that are being removed |
//! | `probes/PROCESS` | files by which ranks find out whether they share the folder |

use super::CacheError;
use super::key::Hash;
use super::process::Process;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file that describes an entry.
pub(super) const RECORD: &str = "entry.json";

/// A cache folder.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
}

impl Layout {
    pub(super) fn entries(&self) -> PathBuf {
        self.root.join("entries")
    }

    pub(super) fn entry(&self, hash: Hash) -> PathBuf {
        let name = hash.to_string();
        self.entries().join(&name[..2]).join(name)
    }

    pub(super) fn claims(&self) -> PathBuf {
        self.root.join("claims")
    }

    pub(super) fn claim(&self, hash: Hash) -> PathBuf {
        self.claims().join(hash.to_string())
    }

    pub(super) fn builds(&self) -> PathBuf {
        self.root.join("builds")
    }

    pub(super) fn slots(&self) -> PathBuf {
        self.root.join("slots")
    }

    pub(super) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    pub(super) fn probes(&self) -> PathBuf {
        self.root.join("probes")
    }

    /// Removes an entry at once for all readers, and its files after that. Nothing if it is gone.
    pub(super) fn discard(&self, entry: &Path) -> Result<(), CacheError> {
        create(&self.trash())?;
        let away = self.trash().join(Process::this().name());
        match fs::rename(entry, &away) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            moved => moved.map_err(CacheError::file("remove", entry))?,
        }
        super::claim::remove(&away).map_err(CacheError::file("remove", &away))
    }

    /// The time of the file system, which may be that of another host.
    pub(super) fn now(&self) -> Result<SystemTime, CacheError> {
        create(&self.trash())?;
        let path = self.trash().join(Process::this().name());
        let modified = || {
            let modified = File::create_new(&path)?.metadata()?.modified();
            fs::remove_file(&path)?;
            modified
        };
        modified().map_err(CacheError::file("create", &path))
    }
}

/// Makes a network file system look again what a folder contains.
pub(super) fn look_again(folder: &Path) {
    // Opening is enough: a client asks the server for a folder that is opened. A folder that is not there contains nothing.
    let _ = File::open(folder);
}

/// Creates a folder and those above it.
pub(super) fn create(folder: &Path) -> Result<(), CacheError> {
    fs::create_dir_all(folder).map_err(CacheError::file("create", folder))
}

/// The paths in a folder, in order; none if there is no folder.
pub(super) fn paths(folder: &Path) -> Result<Vec<PathBuf>, CacheError> {
    let paths: io::Result<Vec<PathBuf>> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    match paths {
        Ok(mut paths) => {
            paths.sort();
            Ok(paths)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(CacheError::file("read", folder)(error)),
    }
}
