//! Errors of transports and collective calls.

use rustix::io::Errno;
use std::time::Duration;

/// A failure of a transport or of a collective call.
///
/// ```
/// use halocline_comm::{CommError, Communicator};
/// use std::time::Duration;
///
/// // Rank 1 makes no call.
/// let ranks = Communicator::threads(2);
/// let comm = ranks[0].with_deadline(Some(Duration::from_millis(1)));
/// match comm.barrier() {
///     Err(CommError::Deadline { waiting, after, what }) => {
///         assert_eq!(waiting, 0);
///         assert!(after >= Duration::from_millis(1));
///         assert!(what.contains("rank 1"), "{what}");
///     }
///     Err(CommError::Died { rank, .. } | CommError::Left { rank, .. }) => panic!("rank {rank} has ended"),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// A rank that the communicator does not have.
    #[error("rank {rank} does not exist; the communicator has ranks 0 to {}", size - 1)]
    NoSuchRank {
        /// The rank asked for.
        rank: usize,
        /// Ranks in the communicator.
        size: usize,
    },
    /// The process of a rank has ended.
    #[error(
        "rank {rank} has died while rank {waiting} waited for {what}; look for the reason in its output, then start \
         the job again"
    )]
    Died {
        /// The dead rank.
        rank: usize,
        /// The rank that waited.
        waiting: usize,
        /// What it waited for.
        what: String,
    },
    /// A rank has dropped its communicator.
    #[error(
        "rank {rank} has left the communicator while rank {waiting} waited for {what}; make the same calls on all \
         ranks before one drops it"
    )]
    Left {
        /// The rank that left.
        rank: usize,
        /// The rank that waited.
        waiting: usize,
        /// What it waited for.
        what: String,
    },
    /// The deadline has passed.
    #[error(
        "rank {waiting} has waited {after:?} for {what}; its deadline has passed; make the same calls on all ranks, \
         or raise the deadline"
    )]
    Deadline {
        /// The rank that waited.
        waiting: usize,
        /// How long.
        after: Duration,
        /// What it waited for, and from which rank.
        what: String,
    },
    /// Two ranks make different collective calls at the same position in the order. All later calls of the communicator fail with it.
    #[error(
        "mismatched collective calls: rank {rank} is in {call}, rank {other} in {other_call}; make the same collective calls in \
         the same order on all ranks (this communicator is unusable from now on)"
    )]
    Mismatch {
        /// One rank.
        rank: usize,
        /// Its call.
        call: String,
        /// The other rank.
        other: usize,
        /// Its call.
        other_call: String,
    },
    /// Two ranks pass different arguments to one collective call. All ranks return this; later calls are not affected.
    #[error(
        "mismatched arguments of {call}: rank {rank} passes {given}, rank {other} passes {other_given}; pass the same on all \
         ranks"
    )]
    Arguments {
        /// The call.
        call: &'static str,
        /// One rank.
        rank: usize,
        /// Its arguments.
        given: String,
        /// The other rank.
        other: usize,
        /// Its arguments.
        other_given: String,
    },
    /// The host interrupted the wait.
    #[error("the wait of rank {waiting} for {what} was interrupted; the operation goes on without it")]
    Interrupted {
        /// The rank that waited.
        waiting: usize,
        /// What it waited for.
        what: String,
    },
    /// A collective call after one that was interrupted.
    #[error(
        "rank {rank} was interrupted in a collective call while it waited for {what}: the other ranks may have completed that call, so \
         the next calls could not match theirs; close the communicator, and make a new one on all ranks"
    )]
    OutOfStep {
        /// The rank that was interrupted: this one.
        rank: usize,
        /// What it waited for then.
        what: String,
    },
    /// The operating system refused memory.
    #[error("cannot {what} of {bytes} bytes: {errno}{}", remedy(*errno))]
    Memory {
        /// The step that failed.
        what: &'static str,
        /// Bytes wanted.
        bytes: usize,
        /// The error of the system.
        errno: Errno,
    },
    /// The allocator has no memory left.
    #[error("no memory for {0} bytes; give each rank more memory, or use smaller fields and messages")]
    OutOfMemory(usize),
    /// A transport gave less memory than it was asked for.
    #[error(
        "the transport {transport} was asked for {asked} bytes and gave {found}; this is a bug of the transport"
    )]
    ShortSegment {
        /// The transport.
        transport: &'static str,
        /// Bytes asked for.
        asked: usize,
        /// Bytes of the segment.
        found: usize,
    },
    /// Memory from a peer does not match its announcement.
    #[error(
        "shared memory of a peer is not as announced: {announced} sealed bytes are expected, its file has {found} or is not sealed; run the same version of Halocline on all ranks"
    )]
    BadSegment {
        /// Bytes announced.
        announced: usize,
        /// Bytes found.
        found: u64,
    },
    /// A system call of the transport failed.
    #[error("the shm transport cannot {what}: {errno}{}", remedy(*errno))]
    System {
        /// The step that failed.
        what: &'static str,
        /// The error of the system.
        errno: Errno,
    },
    /// A rank of the job has not joined in time.
    #[error("rank {rank} has not joined the job within {after:?}; start every rank, and call init on each")]
    NotJoined {
        /// The missing rank.
        rank: usize,
        /// How long this rank has waited.
        after: Duration,
    },
    /// A rank of the job has ended without joining it.
    #[error("rank {rank} has ended without joining the job; call init on every rank before it ends")]
    NeverJoined {
        /// The rank.
        rank: usize,
    },
    /// A transport name that does not exist.
    #[error("there is no transport {0:?}; choose auto, thread, shm or mpi")]
    NoSuchTransport(String),
    /// The shm transport was asked for outside a job.
    #[error(
        "this process was not started as a rank of a job; start it with `halocline launch -n N -- program`"
    )]
    NotLaunched,
    /// The process has joined its job already.
    #[error("this process has joined its job already; use that communicator or a duplicate of it")]
    JoinedTwice,
    /// A message has not the form that the operation expects.
    #[error(
        "rank {from} sent a malformed message for {what}; run the same version of Halocline on all ranks"
    )]
    Malformed {
        /// The sender.
        from: usize,
        /// The operation.
        what: String,
    },
    /// A rank cannot reach the memory that was sent to it.
    #[error("rank {rank} cannot access the memory: {why}; send its bytes in messages")]
    OutOfReach {
        /// The rank.
        rank: usize,
        /// Why it cannot.
        why: String,
    },
    /// An environment variable has a malformed value.
    #[error(transparent)]
    Variable(#[from] halocline_device::VariableError),
    /// MPI cannot be used, or has failed.
    #[error(transparent)]
    Mpi(#[from] crate::mpi::MpiError),
    /// The environment variables that describe the job are wrong.
    #[error(transparent)]
    Job(#[from] crate::shm::JobError),
}

halocline_plan::debug_as_text!(CommError);

/// The remedy for an error of the system.
pub(crate) fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::NOMEM => {
            "; memory, the address space (`ulimit -v`) or the number of mappings (`vm.max_map_count`) is exhausted: raise that limit"
        }
        Errno::MFILE | Errno::NFILE => {
            "; raise the limit of open files (`ulimit -n`; of the whole system: `fs.file-max`)"
        }
        Errno::AGAIN => {
            "; raise the limit of processes and threads (`ulimit -u`; of a container: `pids.max`), or start fewer ranks"
        }
        Errno::FBIG => "; ask for less memory, or raise the limit of file sizes (`ulimit -f`)",
        Errno::ACCESS | Errno::PERM | Errno::NOSYS => {
            "; allow this call in the sandbox or container (seccomp, SELinux, AppArmor), or use a newer kernel"
        }
        _ => "; please report this with the version of the kernel (`uname -a`) and the limits (`ulimit -a`)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_says_what_to_do() {
        let remedies = [
            "ulimit -v",
            "`vm.max_map_count`",
            "ulimit -n",
            "ulimit -u",
            "ulimit -f",
            "seccomp",
            "`uname -a`",
        ];
        for (errno, named) in [
            (Errno::NOMEM, &remedies[..2]),
            (Errno::MFILE, &remedies[2..3]),
            (Errno::NFILE, &remedies[2..3]),
            (Errno::AGAIN, &remedies[3..4]),
            (Errno::FBIG, &remedies[4..5]),
            (Errno::ACCESS, &remedies[5..6]),
            (Errno::INVAL, &remedies[6..]),
        ] {
            let memory = CommError::Memory { what: "map a memfd", bytes: 4096, errno };
            for error in [memory, CommError::System { what: "watch a descriptor", errno }] {
                let text = error.to_string();
                let found: Vec<&str> = remedies.into_iter().filter(|remedy| text.contains(remedy)).collect();
                assert_eq!(found, named, "{text}");
            }
        }
    }
}
