//! Why a job could not be started or watched.

use halocline_comm::shm::JobError;
use rustix::io::Errno;

/// A launch that failed. A rank that fails is no error of the launch: it gives the exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// No job can have these ranks, or the system refused it.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The program does not exist.
    #[error("cannot find the program {program:?}; give a path, or the name of a program in PATH")]
    NotFound {
        /// The program as given.
        program: String,
    },
    /// The program could not be started.
    #[error(
        "cannot start the program {program:?} as rank {rank}: {source}; check that it can be executed on this \
         machine, and the limit of processes (`ulimit -u`)"
    )]
    Start {
        /// The rank.
        rank: usize,
        /// The program as given.
        program: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The launcher may not open as many files as it needs.
    #[error(
        "cannot start rank {rank} of {ranks}: too many open files; the launcher needs about {needed} for that \
         many ranks, so raise the limit: `ulimit -n {needed}`"
    )]
    Files {
        /// The rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
        /// Files for all of them.
        needed: u64,
    },
    /// The path of this executable is unknown.
    #[error("cannot find the path of this executable: {0}; check that /proc is mounted")]
    Executable(#[source] std::io::Error),
    /// A system call that the launcher needs has failed.
    #[error(
        "the launcher cannot {what}: {errno}; raise the limits that `ulimit -a` shows, or start fewer ranks"
    )]
    System {
        /// The step that failed.
        what: &'static str,
        /// The system's answer.
        errno: Errno,
    },
    /// A helper thread could not be started.
    #[error("cannot start the thread that prints: {0}; raise the limit of threads (`ulimit -u`)")]
    Thread(#[source] std::io::Error),
}

impl LaunchError {
    /// The exit code, as shells and `env` have it: 127 for a program that does not exist, 126 for one
    /// that may not be executed, 2 for wrong usage.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::Start { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => 126,
            Self::Job(JobError::Ranks { .. }) => 2,
            _ => 1,
        }
    }
}
