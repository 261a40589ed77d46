//! The ranks of a benchmark, each on a core of its own: a job of this very program, or threads.

use super::args::Transport;
use super::error::BenchError;
use crate::launch::{self, Cpu};
use crate::ranks::{self, RanksError, cpus, in_job};
use halocline::Communicator;
use rustix::thread::CpuSet;

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
        Transport::Thread if in_job() => Err(RanksError::ThreadsInJob.into()),
        Transport::Thread => {
            let codes = as_threads(ranks, &launch::usable().unwrap_or_default(), work)?;
            Ok(codes.into_iter().max().unwrap_or(0))
        }
        Transport::Shm if !in_job() => {
            let arguments: Vec<_> = std::env::args_os().skip(1).collect();
            Ok(launch::run_self(ranks, &arguments).map_err(RanksError::from)?)
        }
        Transport::Shm | Transport::Mpi => {
            let comm = Communicator::init_by_name(&super::args::name(&transport))?;
            if let Some(asked) = asked.filter(|&asked| asked != comm.size()) {
                return Err(RanksError::JobSize { asked, size: comm.size() }.into());
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

/// Calls `work` as ranks that are threads of this process, and returns what they return.
pub(super) fn as_threads<T: Send>(
    ranks: usize,
    cpus: &[Cpu],
    work: impl Fn(&Communicator) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    // The group looks at its creator's CPUs to find out whether ranks outnumber them.
    pin(Some(cpus));
    ranks::as_threads(ranks, |comm| {
        pin(launch::share(cpus, comm.rank(), ranks).map(|share| &share[..1]));
        work(comm)
    })
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
