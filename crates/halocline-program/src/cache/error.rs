//! Why the cache has no program.

use halocline_comm::CommError;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a program cannot be built, kept or found in the cache.
///
/// ```
/// use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, CacheError, Key};
///
/// # let folder = tempfile::tempdir()?;
/// let fails = |_: &BuildFolder| Err::<Built, _>("heat.c:1: a type is unknown");
/// let built = Cache::at(folder.path()).get_or_build(&Key::of("heat").finish(), &BuildOptions::default(), fails);
/// let Err(CacheError::Build { program, source }) = built else { panic!("the build fails") };
/// assert_eq!(&*program, "heat");
/// assert_eq!(source.to_string(), "heat.c:1: a type is unknown");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum CacheError {
    /// The user has no cache folder.
    #[error(
        "there is no folder for the program cache: HALOCLINE_CACHE is off, or HOME is not set; set HALOCLINE_CACHE to a folder, \
         or give one"
    )]
    NoFolder,
    /// A file of the cache cannot be read or written.
    #[error(
        "the program cache cannot {what} {path}: {source}; check that folder, or set HALOCLINE_CACHE to another one",
        path = .path.display()
    )]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// The folder cannot be written, and the program is not in it.
    #[error(
        "program {program} is not in the cache {path}, and that folder cannot be written ({why}); set HALOCLINE_CACHE to a folder \
         that this user can write", path = .path.display()
    )]
    ReadOnly { program: Box<str>, path: PathBuf, why: Box<str> },
    /// The disk is full. Nothing of the program is left on it.
    #[error(
        "the disk of the program cache {path} is full while program {program} is kept ({why}); free space with `halocline cache \
         clear`, or set HALOCLINE_CACHE to a folder on another disk", path = .path.display()
    )]
    Full { program: Box<str>, path: PathBuf, why: Box<str> },
    /// The caller's build failed.
    #[error("the build of program {program} failed: {source}; correct that, then build it again")]
    Build { program: Box<str>, source: Box<dyn Error + Send + Sync> },
    /// A build asks for the program that it builds.
    #[error(
        "the build of program {program} asks the cache for that program itself; let it ask for other programs only"
    )]
    Itself { program: Box<str> },
    /// The build failed on the rank that builds for this one.
    #[error("the build of program {program} failed on rank {rank} (process {pid} of host {host}): {why}")]
    OtherRank { program: Box<str>, rank: usize, host: Box<str>, pid: u32, why: Box<str> },
    /// Another process takes too long to build.
    #[error(
        "program {program} is not ready after {after:?}: process {pid} of host {host} builds it; end that process if it hangs, or \
         wait longer (`timeout`)"
    )]
    Waiting { program: Box<str>, host: Box<str>, pid: u32, after: Duration },
    /// Other builds use all build slots of the node for too long.
    #[error(
        "program {program} waits for one of {slots} build slots of this node since {after:?}; process {pid} of host {host} has one; \
         end that process if it hangs, or wait longer (`timeout`)"
    )]
    Slots { program: Box<str>, slots: usize, host: Box<str>, pid: u32, after: Duration },
    /// GNU make's job server gives no token for too long.
    #[error(
        "program {program} waits for a token of the job server of make since {after:?}; run make with a larger -j, or wait longer \
         (`timeout`)"
    )]
    Token { program: Box<str>, after: Duration },
    /// A file that the build names cannot be kept.
    #[error(
        "the build of program {program} gives the file {path}, which {why}; give regular files in the build folder by relative paths",
        path = .path.display()
    )]
    Output { program: Box<str>, path: PathBuf, why: &'static str },
    /// An entry that another user could have written.
    #[error(
        "the entry {path} of program {program} can be written by other users, or belongs to one; only programs that this user or \
         root has written are loaded: set HALOCLINE_CACHE to a folder of this user", path = .path.display()
    )]
    Foreign { program: Box<str>, path: PathBuf },
    /// An entry that was written does not appear in the folder.
    #[error(
        "program {program} was put into the cache {path} by process {pid} of host {host}, and is not visible there \
         after {after:?}; the file system does not show files of other nodes, or another process removes them: set \
         HALOCLINE_CACHE to a folder that all nodes see",
        path = .path.display()
    )]
    NotVisible { program: Box<str>, path: PathBuf, host: Box<str>, pid: u32, after: Duration },
    /// The caller ended the wait.
    #[error("the wait for program {program} was interrupted; ask for it again")]
    Interrupted { program: Box<str> },
    /// An environment variable has a malformed value.
    #[error(transparent)]
    Variable(#[from] halocline_device::VariableError),
    /// The ranks cannot agree.
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl CacheError {
    /// For `map_err`: the failed step and its file.
    pub(super) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { what, path: path.to_owned(), source }
    }

    /// The error of a step of a build, as what it means for the program.
    pub(super) fn of_build(self, program: &str, root: &Path) -> Self {
        use io::ErrorKind as Kind;
        let Self::File { what, path, source } = self else { return self };
        let why = format!("cannot {what} {}: {source}", path.display()).into();
        let (program, root) = (program.into(), root.to_owned());
        match source.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => {
                Self::Full { program, path: root, why }
            }
            Kind::ReadOnlyFilesystem | Kind::PermissionDenied => Self::ReadOnly { program, path: root, why },
            _ => Self::File { what, path, source },
        }
    }
}
