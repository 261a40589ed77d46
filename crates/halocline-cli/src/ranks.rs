//! Who the ranks of a case are, and how they are brought up: threads of this process, a job of this very
//! program, or the ranks of an MPI launcher.

use crate::info::{self, plural};
use crate::launch::{self, Cpu, LaunchError};
use crate::options::{self, Switch};
use halocline::{CommError, Communicator};
use halocline_device::Variable;
use std::collections::BTreeSet;
use std::fmt;

/// Which ranks run a case.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RanksArgs {
    /// Number of ranks [default: 4, or those of the job under `halocline launch` or `mpirun`]
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<usize>,
    /// What ranks are: processes of this machine (shm), threads of this process, or processes that `mpirun`
    /// has started (mpi); auto takes processes, under `mpirun` its own
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(crate) transport: Transport,
    /// Whether MPI ranks of one machine share memory, or send each other messages, too
    #[arg(long, value_enum, value_name = "on|off")]
    pub(crate) node_aware: Option<Switch>,
}

/// Ranks, if neither arguments nor a job say how many.
const RANKS: usize = 4;

/// What ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Transport {
    /// Processes.
    Auto,
    /// Threads of one process.
    Thread,
    /// Processes with shared memory.
    Shm,
    /// Processes that an MPI launcher has started.
    Mpi,
}

/// Ranks that cannot be brought up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RanksError {
    /// The job has another size.
    #[error("`--ranks {asked}`, but the job was launched with {}; leave `--ranks` out", plural(*size, "rank"))]
    JobSize {
        /// Ranks asked for.
        asked: usize,
        /// Ranks of the job.
        size: usize,
    },
    /// Threads were asked for in a job of processes.
    #[error("`--transport thread`, but this process is a rank of a job; start it without `halocline launch`")]
    ThreadsInJob,
    /// Several ranks were asked of MPI where no launcher has started any.
    #[error(
        "`--transport mpi`, but no MPI launcher has started this process, which is the only rank; start {ranks} by `mpirun -n {ranks} halocline ...`"
    )]
    NoLauncher {
        /// Ranks that are due.
        ranks: usize,
    },
    /// Each process that an MPI launcher has started would run the whole.
    #[error(
        "`--transport {}`, but an MPI launcher has started this process: each of its ranks would run the whole; leave `--transport` out, or start it without a launcher",
        options::name(transport)
    )]
    UnderLauncher {
        /// What was asked for.
        transport: Transport,
    },
    /// The ranks' processes could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A rank's thread could not be started.
    #[error("cannot start the thread of rank {rank}")]
    Thread {
        /// The rank.
        rank: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A rank's thread has panicked: a fault of this program.
    #[error("rank {rank} panicked")]
    Panicked {
        /// The rank.
        rank: usize,
    },
    /// The ranks could not meet.
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl RanksError {
    /// The exit code: 2 for wrong usage, else 1 (or the launcher's).
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::JobSize { .. } | Self::ThreadsInJob => 2,
            Self::NoLauncher { .. } | Self::UnderLauncher { .. } => 2,
            Self::Launch(error) => error.exit_code(),
            Self::Thread { .. } | Self::Panicked { .. } | Self::Comm(_) => 1,
        }
    }
}

/// What can go wrong on a rank.
pub(crate) trait RankError: From<RanksError> + Send {
    /// Whether the error may be no more than the echo of another rank's.
    fn is_echo(&self) -> bool;
}

/// Whether this process is a rank of a job of `halocline launch`.
pub(crate) fn in_job() -> bool {
    Variable::read("HALOCLINE_RANK").is_some()
}

/// Calls `work` as each of the ranks and returns the worst exit code.
///
/// In a process that is no rank of a job or of `mpirun`, and unless threads are asked for, it starts this
/// program again as the ranks. Call it where no other thread runs ([`launch::run_self`] wants that).
///
/// `check` is given the number of ranks and finds what no run can have, once, before any rank is
/// started; `prepare` makes what all ranks of a process share.
pub(crate) fn run<C: Sync, E: RankError>(
    args: &RanksArgs,
    check: impl Fn(usize) -> Result<(), E>,
    prepare: impl FnOnce() -> Result<C, E>,
    work: impl Fn(&Communicator, &C) -> Result<u8, E> + Sync,
) -> Result<u8, E> {
    let ranks = args.ranks.unwrap_or(RANKS);
    match RankOrigin::of(args.transport)? {
        RankOrigin::Join => {
            let comm = join(args)?;
            check(comm.size())?;
            work(&comm, &prepare()?)
        }
        RankOrigin::Threads => {
            check(ranks)?;
            let case = prepare()?;
            let codes = as_threads(ranks, |comm| work(comm, &case))?;
            Ok(codes.into_iter().max().unwrap_or(0))
        }
        RankOrigin::Launch => {
            check(ranks)?;
            drop(prepare);
            Ok(launch_self(ranks)?)
        }
    }
}

/// Runs this program as that many ranks and returns the exit code.
pub(crate) fn launch_self(ranks: usize) -> Result<u8, RanksError> {
    Ok(launch::run_self(ranks, &crate::arguments())?)
}

/// How this process gets ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankOrigin {
    /// It is one, of a job or of an MPI launcher.
    Join,
    /// They are its threads.
    Threads,
    /// It starts them.
    Launch,
}

impl RankOrigin {
    /// The way to such ranks from where this process is.
    pub(crate) fn of(transport: Transport) -> Result<Self, RanksError> {
        Self::from(transport, in_job(), halocline_comm::mpi::launched())
    }

    /// As [`RankOrigin::of`]; `launched`: how many ranks an MPI launcher has started, 0 if it does not say.
    fn from(transport: Transport, in_job: bool, launched: Option<usize>) -> Result<Self, RanksError> {
        match transport {
            Transport::Thread if in_job => Err(RanksError::ThreadsInJob),
            _ if in_job => Ok(Self::Join),
            Transport::Mpi => Ok(Self::Join),
            Transport::Auto if launched.is_some() => Ok(Self::Join),
            Transport::Thread | Transport::Shm if launched.is_some_and(|ranks| ranks != 1) => {
                Err(RanksError::UnderLauncher { transport })
            }
            Transport::Thread => Ok(Self::Threads),
            Transport::Auto | Transport::Shm => Ok(Self::Launch),
        }
    }
}

/// Whether something has started this process as a rank. To be asked before MPI is initialised: a library
/// that finds itself alone writes into the environment what a launcher would.
pub(crate) fn is_launched() -> bool {
    in_job() || halocline_comm::mpi::launched().is_some()
}

/// Memory that ranks need on this machine and that it does not have.
#[derive(Debug)]
pub(crate) struct Shortage {
    ranks: usize,
    needed: u128,
    available: u64,
}

impl Shortage {
    /// Whether it is short where each of the ranks needs `each` bytes.
    pub(crate) fn of(transport: Transport, ranks: usize, each: u128) -> Option<Self> {
        let mpi = transport == Transport::Mpi || halocline_comm::mpi::launched().is_some();
        // Ranks of MPI may be on other machines.
        let ranks = if mpi { 1 } else { ranks };
        let needed = each.saturating_mul(ranks as u128);
        let available = info::available_memory().filter(|&available| u128::from(available) < needed)?;
        Some(Self { ranks, needed, available })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, needed, available } = self;
        write!(f, "{needed} bytes on {}, but {available} are available here", plural(*ranks, "rank"))
    }
}

/// This process as a rank of its job.
pub(crate) fn join(args: &RanksArgs) -> Result<Communicator, RanksError> {
    let is_launched = is_launched();
    let node_aware = args.node_aware.map(|switch| switch == Switch::On);
    let comm = if in_job() { Communicator::init()? } else { Communicator::init_mpi(node_aware)? };
    match args.ranks.filter(|&asked| asked != comm.size()) {
        Some(ranks) if comm.size() == 1 && !is_launched => Err(RanksError::NoLauncher { ranks }),
        Some(asked) => Err(RanksError::JobSize { asked, size: comm.size() }),
        None => Ok(comm),
    }
}

/// Calls `work` as ranks that are threads of this process, and returns what they return.
pub(crate) fn as_threads<T: Send, E: RankError>(
    ranks: usize,
    work: impl Fn(&Communicator) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let results: Vec<Result<T, E>> = std::thread::scope(|scope| {
        let start = |(rank, comm): (usize, Communicator)| {
            let work = &work;
            // Dropped at the end of the thread, which the others notice.
            let body = move || work(&{ comm });
            let thread = std::thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(scope, body);
            thread.map_err(|source| RanksError::Thread { rank, source })
        };
        let threads: Vec<_> = Communicator::threads(ranks).into_iter().enumerate().map(start).collect();
        let join = |(rank, thread): (usize, Result<std::thread::ScopedJoinHandle<'_, _>, _>)| {
            thread?.join().unwrap_or_else(|_| Err(RanksError::Panicked { rank }.into()))
        };
        threads.into_iter().enumerate().map(join).collect()
    });
    // The cause, where some ranks have only seen another one leave.
    let (echoes, others): (Vec<_>, Vec<_>) =
        results.into_iter().partition(|result| result.as_ref().is_err_and(E::is_echo));
    others.into_iter().chain(echoes).collect()
}

/// The CPUs that any of the ranks may run on. Collective.
pub(crate) fn cpus(comm: &Communicator) -> Result<Vec<Cpu>, CommError> {
    let mine: Vec<u8> =
        launch::usable().unwrap_or_default().iter().flat_map(|cpu| (cpu.id as u64).to_le_bytes()).collect();
    let all = comm.all_gather(&mine)?;
    let ids = all.iter().flat_map(|ids| ids.as_chunks().0).map(|id| u64::from_le_bytes(*id) as usize);
    let ids: BTreeSet<usize> = ids.collect();
    let mut cpus: Vec<Cpu> = ids.into_iter().map(Cpu::describe).collect();
    cpus.sort_unstable();
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_of_a_launcher_runs_no_whole_by_itself() {
        for transport in [Transport::Thread, Transport::Shm] {
            for launched in [0, 2] {
                let error = RankOrigin::from(transport, false, Some(launched)).unwrap_err();
                assert!(error.to_string().contains("leave `--transport` out"), "{error}");
                assert_eq!(error.exit_code(), 2);
            }
        }
        let path = |transport, in_job, launched| RankOrigin::from(transport, in_job, launched).unwrap();
        assert_eq!(path(Transport::Auto, false, Some(2)), RankOrigin::Join);
        assert_eq!(path(Transport::Auto, false, None), RankOrigin::Launch);
        assert_eq!(path(Transport::Shm, false, Some(1)), RankOrigin::Launch);
        assert_eq!(path(Transport::Thread, false, None), RankOrigin::Threads);
        // A job is nearer than the launcher under which it was started.
        assert_eq!(path(Transport::Shm, true, Some(2)), RankOrigin::Join);
        assert!(matches!(RankOrigin::from(Transport::Thread, true, None), Err(RanksError::ThreadsInJob)));
    }
}
