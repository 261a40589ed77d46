//! Why a command failed. (A run whose check fails is no error: it ends with a report.)

use crate::device::NoGpu;
use crate::launch::LaunchError;
use crate::ocean::InputError;
use crate::rolling;
use crate::sphere::{NemoError, SphereError};
use halocline::{
    CommError, DeviceError, IconGridError, LayoutError, MeshError, PartitionError, PatternError,
};
use halocline_comm::shm::Job;
use halocline_program::ProgramError;
use halocline_program::cache::CacheError;
use halocline_table::TableError;
use halocline_trace::TraceError;
use std::io;
use std::path::{Path, PathBuf};

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// Invalid arguments. The text says why, and what to give.
    #[error("{0}")]
    Usage(String),
    /// Anything else that has no typed cause.
    #[error("{0}")]
    Failed(String),
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}; check the path, its permissions and the free space", path.display())]
    File {
        /// Such as `write the plot to`.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A command would write over a file that it reads, or over another that it writes.
    #[error(
        "`{output}` and `{other}` are the same file, and one would overwrite the other; give `{option}` another file"
    )]
    SameFile {
        /// The option and its file.
        output: String,
        /// The other option and its file.
        other: String,
        /// The option that can be changed without loss.
        option: &'static str,
    },
    #[error("cannot write the report: {0}; check where the output goes")]
    Report(#[source] io::Error),
    /// More ranks than one process can have.
    #[error(
        "`--ranks {ranks}` as threads of one process, which has at most {}; give fewer, or `--transport mpi` on several machines",
        Job::MAX_RANKS
    )]
    TooManyThreads { ranks: usize },
    #[error(
        "cannot start the thread of {what}: {source}; start fewer ranks, or raise the limit of threads (`ulimit -u`)"
    )]
    Thread { what: String, source: io::Error },
    /// Another rank has left while this one waited for it.
    #[error("a rank has ended early; see the error of that rank")]
    RankLeft,
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    IconGrid(#[from] IconGridError),
    #[error(transparent)]
    Mesh(#[from] MeshError),
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Sphere(#[from] SphereError),
    #[error(transparent)]
    Nemo(#[from] NemoError),
    #[error(transparent)]
    TableInput(#[from] rolling::TableInputError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    NoGpu(#[from] NoGpu),
    #[error(transparent)]
    Exchange(#[from] halocline::Error),
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl CommandError {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// For `map_err`: the failed action and its file.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { what, path: path.to_owned(), source }
    }

    /// The exit code: 2 for wrong usage, else 1 (or the launcher's).
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::SameFile { .. }
            | Self::TooManyThreads { .. }
            | Self::Pattern(_)
            | Self::Sphere(_)
            | Self::Layout(_) => 2,
            Self::Launch(error) => error.exit_code(),
            _ => 1,
        }
    }

    /// Whether the error may be a consequence of another rank's error.
    pub(crate) fn is_consequence(&self) -> bool {
        match self {
            Self::Exchange(_) | Self::Comm(_) | Self::Table(TableError::Comm(_)) | Self::RankLeft => true,
            Self::Trace(error) => error.is_consequence(),
            _ => false,
        }
    }
}

impl From<DeviceError> for CommandError {
    fn from(error: DeviceError) -> Self {
        Self::Exchange(error.into())
    }
}
