//! The ranks of a benchmark, each on a core of its own: a job of this very program, or threads.

use super::args::Transport;
use super::error::BenchError;
use crate::launch::{self, Cpu};
use halocline::Communicator;
use rustix::thread::CpuSet;

/// Whether this process is a rank of a job already.
fn in_job() -> bool {
    std::env::var_os("HALOCLINE_RANK").is_some()
}

/// Calls `work` as each of the ranks and returns the worst exit code. `asked`: the number of ranks, if
/// one was asked for; 2 otherwise, or those of the job.
pub(super) fn run(
    transport: Transport,
    asked: Option<usize>,
    work: impl Fn(&Communicator) -> Result<u8, BenchError> + Sync,
) -> Result<u8, BenchError> {
    let ranks = asked.unwrap_or(2);
    if ranks == 0 {
        return Err(BenchError::Ranks { given: ranks, wanted: "at least one" });
    }
    match transport {
        Transport::Thread if in_job() => Err(BenchError::ThreadsInJob),
        Transport::Thread => {
            let codes = as_threads(ranks, &launch::usable().unwrap_or_default(), work)?;
            Ok(codes.into_iter().max().unwrap_or(0))
        }
        Transport::Shm if !in_job() => {
            let arguments: Vec<_> = std::env::args_os().skip(1).collect();
            Ok(launch::run_self(ranks, &arguments)?)
        }
        Transport::Shm | Transport::Mpi => {
            let comm = Communicator::init_by_name(&super::args::name(&transport))?;
            if let Some(asked) = asked.filter(|&asked| asked != comm.size()) {
                return Err(BenchError::JobSize { asked, size: comm.size() });
            }
            let cpus = cpus(&comm)?;
            if comm.link().is_crowded() && !cpus.is_empty() {
                // The launcher lets such ranks float; here neighbours always share the same core.
                let at = comm.rank() * cpus.len() / comm.size();
                pin(cpus.get(at..=at));
            }
            work(&comm)
        }
    }
}

/// The CPUs that any of the ranks may run on. Collective.
pub(super) fn cpus(comm: &Communicator) -> Result<Vec<Cpu>, BenchError> {
    let mine: Vec<u8> =
        launch::usable().unwrap_or_default().iter().flat_map(|cpu| (cpu.id as u64).to_le_bytes()).collect();
    let all = comm.all_gather(&mine)?;
    let ids = all.iter().flat_map(|ids| ids.as_chunks().0).map(|id| u64::from_le_bytes(*id) as usize);
    let ids: std::collections::BTreeSet<usize> = ids.collect();
    let mut cpus: Vec<Cpu> = ids.into_iter().map(Cpu::describe).collect();
    cpus.sort_unstable();
    Ok(cpus)
}

/// Calls `work` as ranks that are threads of this process, and returns what they return.
pub(super) fn as_threads<T: Send>(
    ranks: usize,
    cpus: &[Cpu],
    work: impl Fn(&Communicator) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    // The group looks at its creator's CPUs to find out whether ranks outnumber them.
    pin(Some(cpus));
    let results: Vec<Result<T, BenchError>> = std::thread::scope(|scope| {
        let start = |(rank, comm): (usize, Communicator)| {
            let work = &work;
            let body = move || {
                pin(launch::share(cpus, rank, ranks).map(|share| &share[..1]));
                // Dropped at the end of the thread, which the others notice.
                work(&{ comm })
            };
            let thread = std::thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(scope, body);
            thread.map_err(|source| BenchError::Thread { rank, source })
        };
        let threads: Vec<_> = Communicator::threads(ranks).into_iter().enumerate().map(start).collect();
        let join = |(rank, thread): (usize, Result<std::thread::ScopedJoinHandle<'_, _>, _>)| {
            thread?.join().unwrap_or(Err(BenchError::Panicked { rank }))
        };
        threads.into_iter().enumerate().map(join).collect()
    });
    // The cause, where some ranks have only seen another one leave.
    let (echoes, others): (Vec<_>, Vec<_>) =
        results.into_iter().partition(|result| result.as_ref().is_err_and(BenchError::is_echo));
    others.into_iter().chain(echoes).collect()
}

/// Keeps this thread on these CPUs. Where that is refused it floats, which the stamps show.
fn pin(cpus: Option<&[Cpu]>) {
    let Some(cpus @ [_, ..]) = cpus else { return };
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu.id));
    if let Err(errno) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!("a thread cannot be pinned: {errno}");
    }
}
