//! How the ranks of a case start: as threads of this process, as a job of this program, or by an MPI launcher.

use crate::error::CommandError;
use crate::info::{self, plural};
use crate::launch::{self, Cpu};
use crate::options::{self, Switch};
use halocline::{CommError, Communicator, LinkCounts, Reduce};
use halocline_comm::Endpoint;
use halocline_comm::shm::Job;
use halocline_device::Variable;
use rustix::thread::CpuSet;
use serde::Serialize;
use std::collections::BTreeSet;

/// The ranks of a case.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RanksArgs {
    /// Number of ranks; threads or processes of this machine are at most 4096 [default: 4, or the size of the job under `halocline
    /// launch` or `mpirun`]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) ranks: Option<usize>,
    /// How ranks run: processes of this machine (shm), threads of this process, or processes started by `mpirun` (mpi); auto is mpi
    /// under `mpirun` and shm otherwise
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(crate) transport: Transport,
    /// Whether MPI ranks of one machine exchange through shared memory (on) or MPI messages (off)
    #[arg(long, value_enum, value_name = "on|off")]
    pub(crate) node_aware: Option<Switch>,
}

/// The number of ranks by default.
const RANKS: usize = 4;

/// How ranks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Transport {
    /// mpi under an MPI launcher, else shm.
    Auto,
    /// Threads of one process.
    Thread,
    /// Processes with shared memory.
    Shm,
    /// Processes that an MPI launcher has started.
    Mpi,
}

/// The error for `--transport mpi` in a process that is the only rank.
pub(crate) fn no_launcher(ranks: usize) -> CommandError {
    CommandError::usage(format!(
        "`--transport mpi`, but no MPI launcher has started this process, which is the only rank; start {ranks} by `mpirun -n {ranks} halocline ...`"
    ))
}

/// Whether this process is a rank of a job of `halocline launch`.
pub(crate) fn in_job() -> bool {
    // Joining the job reports which of them are missing or malformed.
    ["HALOCLINE_JOB", "HALOCLINE_RANK", "HALOCLINE_SIZE"]
        .into_iter()
        .any(|name| Variable::read(name).is_some())
}

/// How the ranks of a case start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// The number of ranks if neither arguments nor a job give one.
    pub(crate) default_ranks: usize,
    /// Whether each rank has a core of its own, which it shares with its progress thread.
    pub(crate) pinned: bool,
}

/// As [`run_as`], with [`RANKS`] ranks by default that are not pinned.
pub(crate) fn run<C: Sync>(
    args: &RanksArgs,
    check: impl Fn(usize) -> Result<(), CommandError>,
    prepare: impl FnOnce() -> Result<C, CommandError>,
    work: impl Fn(&Communicator, &C) -> Result<u8, CommandError> + Sync,
) -> Result<u8, CommandError> {
    run_as(args, Start { default_ranks: RANKS, pinned: false }, check, prepare, work)
}

/// Calls `work` as each of the ranks and returns the highest exit code.
///
/// In a process that is no rank yet it starts this program again as the ranks, except for `--transport thread`. Call it while no other
/// thread runs ([`launch::run_self`] requires that).
///
/// `check` takes the number of ranks and refuses invalid arguments once, before any rank starts; `prepare` makes the data that all
/// ranks of a process share.
pub(crate) fn run_as<C: Sync>(
    args: &RanksArgs,
    start: Start,
    check: impl Fn(usize) -> Result<(), CommandError>,
    prepare: impl FnOnce() -> Result<C, CommandError>,
    work: impl Fn(&Communicator, &C) -> Result<u8, CommandError> + Sync,
) -> Result<u8, CommandError> {
    let ranks = args.ranks.unwrap_or(start.default_ranks);
    if ranks == 0 {
        return Err(CommandError::usage("0 ranks; give at least one"));
    }
    match RankOrigin::of(args.transport)? {
        RankOrigin::Join => {
            let comm = join(args)?;
            check(comm.size())?;
            if start.pinned {
                pin_oversubscribed(&comm)?;
            }
            work(&comm, &prepare()?)
        }
        RankOrigin::Threads if ranks > Job::MAX_RANKS => Err(CommandError::TooManyThreads { ranks }),
        RankOrigin::Threads => {
            check(ranks)?;
            let case = prepare()?;
            let work = |comm: &Communicator| work(comm, &case);
            let codes = match start.pinned {
                true => as_pinned_threads(ranks, &launch::usable().unwrap_or_default(), work)?,
                false => as_threads(ranks, work)?,
            };
            Ok(codes.into_iter().max().unwrap_or(0))
        }
        RankOrigin::Launch => {
            check(ranks)?;
            Ok(launch::run_self(ranks, &crate::arguments())?)
        }
    }
}

/// How this process gets ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankOrigin {
    /// It is a rank of a job or of an MPI launcher.
    Join,
    /// The ranks are its threads.
    Threads,
    /// It starts them as processes.
    Launch,
}

impl RankOrigin {
    /// The origin of the ranks of this transport, in this process.
    pub(crate) fn of(transport: Transport) -> Result<Self, CommandError> {
        Self::from(transport, in_job(), halocline_comm::mpi::launched())
    }

    /// As [`RankOrigin::of`]; `launched` is the number of ranks that an MPI launcher has started, 0 if unknown.
    fn from(transport: Transport, in_job: bool, launched: Option<usize>) -> Result<Self, CommandError> {
        match transport {
            Transport::Thread if in_job => Err(CommandError::usage(
                "`--transport thread`, but this process is a rank of a job; start it without `halocline launch`",
            )),
            _ if in_job => Ok(Self::Join),
            Transport::Mpi => Ok(Self::Join),
            Transport::Auto if launched.is_some() => Ok(Self::Join),
            Transport::Thread | Transport::Shm if launched.is_some_and(|ranks| ranks != 1) => {
                Err(CommandError::usage(format!(
                    "`--transport {}`, but an MPI launcher has started this process: each of its ranks would run the whole; leave `--transport` out, or start it without a launcher",
                    options::name(&transport)
                )))
            }
            Transport::Thread => Ok(Self::Threads),
            Transport::Auto | Transport::Shm => Ok(Self::Launch),
        }
    }
}

/// Whether this process was started as a rank. Call it before MPI is initialised: an MPI library without a launcher sets the variables of a
/// launcher itself.
pub(crate) fn is_launched() -> bool {
    in_job() || halocline_comm::mpi::launched().is_some()
}

/// Refuses fields for which this machine lacks memory: each rank needs `each` bytes for `what`. `advice` says what to do instead.
pub(crate) fn check_memory(
    transport: Transport,
    ranks: usize,
    each: u128,
    (what, advice): (&str, &str),
) -> Result<(), CommandError> {
    let mpi = transport == Transport::Mpi || halocline_comm::mpi::launched().is_some();
    // Ranks of MPI may be on other machines.
    let ranks = if mpi { 1 } else { ranks };
    let needed = each.saturating_mul(ranks as u128);
    match info::available_memory().filter(|&available| u128::from(available) < needed) {
        None => Ok(()),
        Some(available) => Err(CommandError::usage(format!(
            "{what} {needed} bytes on {}, but {available} are available here; {advice}",
            plural(ranks, "rank")
        ))),
    }
}

/// Why a comparison with one rank, which takes `needed` bytes on rank 0, is skipped, if it is; the same on all ranks. Collective.
pub(crate) fn skipped(
    comm: &Communicator,
    no_check: bool,
    needed: u128,
) -> Result<Option<String>, CommError> {
    if no_check {
        return Ok(Some("`--no-check`".to_owned()));
    }
    let lacking = info::available_memory().filter(|&bytes| comm.rank() == 0 && u128::from(bytes) < needed);
    let said = lacking.map_or_else(String::new, |available| {
        format!("it takes {needed} bytes on rank 0, where {available} are available")
    });
    let said = comm.broadcast(0, said.into_bytes())?;
    Ok((!said.is_empty()).then(|| String::from_utf8_lossy(&said).into_owned()))
}

/// This process as a rank of its job.
pub(crate) fn join(args: &RanksArgs) -> Result<Communicator, CommandError> {
    let is_launched = is_launched();
    let node_aware = args.node_aware.map(|switch| switch == Switch::On);
    let comm = if in_job() { Communicator::init()? } else { Communicator::init_mpi(node_aware)? };
    match args.ranks.filter(|&asked| asked != comm.size()) {
        Some(ranks) if comm.size() == 1 && !is_launched => Err(no_launcher(ranks)),
        Some(asked) => Err(CommandError::usage(format!(
            "`--ranks {asked}`, but the job was launched with {}; leave `--ranks` out",
            plural(comm.size(), "rank")
        ))),
        None => Ok(comm),
    }
}

/// Calls `work` as ranks that are threads of this process, and returns what they return.
pub(crate) fn as_threads<T: Send>(
    ranks: usize,
    work: impl Fn(&Communicator) -> Result<T, CommandError> + Sync,
) -> Result<Vec<T>, CommandError> {
    let results: Vec<Result<T, CommandError>> = std::thread::scope(|scope| {
        let start = |(rank, comm): (usize, Communicator)| {
            let work = &work;
            // The communicator is dropped at the end of the thread; the other ranks notice that.
            let body = move || work(&{ comm });
            let thread = std::thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(scope, body);
            thread.map_err(|source| CommandError::Thread { what: format!("rank {rank}"), source })
        };
        let threads: Vec<_> = Communicator::threads(ranks).into_iter().enumerate().map(start).collect();
        let join = |(rank, thread): (usize, Result<std::thread::ScopedJoinHandle<'_, _>, _>)| {
            thread?.join().unwrap_or_else(|_| {
                Err(CommandError::failed(format!("rank {rank} panicked; please report this with its output")))
            })
        };
        threads.into_iter().enumerate().map(join).collect()
    });
    // The first error is the cause, where other ranks have only seen that rank leave.
    let (consequences, others): (Vec<_>, Vec<_>) =
        results.into_iter().partition(|result| result.as_ref().is_err_and(CommandError::is_consequence));
    others.into_iter().chain(consequences).collect()
}

/// As [`as_threads`], with a core of `cpus` for each rank.
pub(crate) fn as_pinned_threads<T: Send>(
    ranks: usize,
    cpus: &[Cpu],
    work: impl Fn(&Communicator) -> Result<T, CommandError> + Sync,
) -> Result<Vec<T>, CommandError> {
    // The communicator compares the number of ranks with the CPUs of the thread that makes it.
    pin(cpus);
    as_threads(ranks, |comm| {
        pin(launch::share(cpus, comm.rank(), ranks).map_or(&[], |share| &share[..1]));
        work(comm)
    })
}

/// Pins the ranks of a job if they outnumber the cores. The launcher lets such ranks float; here neighbours always share the same core.
fn pin_oversubscribed(comm: &Communicator) -> Result<(), CommError> {
    let cpus = cpus(comm)?;
    if comm.link().is_oversubscribed() && !cpus.is_empty() {
        let at = comm.rank() * cpus.len() / comm.size();
        pin(&cpus[at..=at]);
    }
    Ok(())
}

/// Keeps this thread on these CPUs, if there are any. If the system refuses, the thread floats.
fn pin(cpus: &[Cpu]) {
    if cpus.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu.id));
    if let Err(errno) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!("cannot pin a thread to its core: {errno}");
    }
}

/// The links of all ranks together. Collective.
pub(crate) fn sum_links(comm: &Communicator, links: LinkCounts) -> Result<LinkCounts, CommError> {
    let LinkCounts { direct, mailbox, message } = links;
    let [direct, mailbox, message] = comm.all_reduce([direct, mailbox, message], Reduce::Sum)?;
    Ok(LinkCounts { direct, mailbox, message })
}

/// How reports write [`LinkCounts`].
#[derive(Serialize)]
#[serde(remote = "LinkCounts")]
pub(crate) struct LinksAsJson {
    direct: usize,
    mailbox: usize,
    message: usize,
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
    fn a_rank_that_panics_is_named() {
        let error = as_threads(1, |_| -> Result<(), CommandError> { panic!("on purpose") }).unwrap_err();
        assert_eq!(error.to_string(), "rank 0 panicked; please report this with its output");
    }

    #[test]
    fn ranks_of_an_mpi_launcher_do_not_start_ranks_of_their_own() {
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
        // A job takes precedence over the MPI launcher that started it.
        assert_eq!(path(Transport::Shm, true, Some(2)), RankOrigin::Join);
        let error = RankOrigin::from(Transport::Thread, true, None).unwrap_err();
        assert!(error.to_string().contains("is a rank of a job") && error.exit_code() == 2, "{error}");
    }
}
