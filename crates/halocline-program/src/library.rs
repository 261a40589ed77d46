//! Shared libraries, opened once per file and process.

use crate::elf;
use crate::error::ProgramError;
use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// An open library. It stays open until the process ends: libraries of compilers leave threads and destructors behind.
#[derive(Debug)]
pub(crate) struct Library {
    handle: Handle,
    pub(crate) path: PathBuf,
    /// In hexadecimal digits; `None` if the linker gave it none.
    pub(crate) build_id: Option<Box<str>>,
    contents: Contents,
}

/// A file, however it is named.
#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy)]
struct FileId {
    device: u64,
    inode: u64,
}

/// The attributes of a file that change when it is overwritten in place.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Contents {
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Library {
    /// Opens a library, or returns the one that is open.
    ///
    /// # Safety
    /// The library's constructors run in this process.
    pub(crate) unsafe fn open(path: &Path) -> Result<Arc<Self>, ProgramError> {
        static OPEN: Mutex<Option<HashMap<FileId, Arc<Library>>>> = Mutex::new(None);
        let read = |error: std::io::Error| ProgramError::Read {
            path: path.to_owned(),
            why: error.to_string().into(),
        };
        // The loader searches its own folders for a name without a slash.
        let path = std::fs::canonicalize(path).map_err(read)?;
        let metadata = std::fs::metadata(&path).map_err(read)?;
        let id = FileId { device: metadata.dev(), inode: metadata.ino() };
        let contents =
            Contents { bytes: metadata.len(), seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        let older = open.values().filter(|library| library.path == path).count();
        let library = match open.entry(id) {
            Entry::Occupied(library) => library.get().clone(),
            Entry::Vacant(place) => {
                let build_id = elf::check(&path)?;
                // SAFETY: the caller accepts that the library's constructors run.
                let handle =
                    unsafe { Handle::open(Some(respelled(&path, 1 + older)), RTLD_NOW | RTLD_LOCAL) }
                        .map_err(|error| ProgramError::Open {
                            path: path.clone(),
                            why: text(&error).into(),
                        })?;
                place.insert(Arc::new(Self { handle, path, build_id, contents })).clone()
            }
        };
        if library.contents != contents {
            return Err(ProgramError::Overwritten { path: library.path.clone() });
        }
        Ok(library)
    }

    /// Refuses another build than that of a manifest.
    pub(crate) fn check_build(&self, expected: &str) -> Result<(), ProgramError> {
        match &self.build_id {
            Some(found) if **found == *expected.to_ascii_lowercase() => Ok(()),
            found => Err(ProgramError::BuildId {
                path: self.path.clone(),
                found: found.as_deref().unwrap_or("none").into(),
                expected: expected.into(),
            }),
        }
    }

    /// The address of a symbol; `None` if the library has none.
    pub(crate) fn find(&self, symbol: &str) -> Option<*const c_void> {
        // SAFETY: an address alone has no type that could be wrong.
        let found = unsafe { self.handle.get::<*const c_void>(symbol.as_bytes()) }.ok()?;
        Some(found.into_raw().cast_const()).filter(|address| !address.is_null())
    }

    /// The address of a symbol that `program` needs.
    pub(crate) fn need(&self, symbol: &str, program: &str) -> Result<*const c_void, ProgramError> {
        self.find(symbol).ok_or_else(|| ProgramError::NoSymbol {
            path: self.path.clone(),
            program: program.into(),
            symbol: symbol.into(),
        })
    }
}

/// A spelling of a path that nobody else opens it by. The loader compares paths first, and returns the library that was opened by the same
/// one, whatever file is there now. `times`: how often the path is respelled, a number of its own for each file that was there.
fn respelled(path: &Path, times: usize) -> PathBuf {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return path.to_owned() };
    let mut spelled = folder.as_os_str().to_owned();
    (0..times).for_each(|_| spelled.push("/."));
    spelled.push("/");
    spelled.push(name);
    spelled.into()
}

/// The text of the system's loader.
fn text(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { desc } => format!("{desc:?}").trim_matches('"').to_owned(),
        other => other.to_string(),
    }
}
