//! The ranks of a benchmark, each on a core of its own: a job of this very program, or threads.

use super::args::Transport;
use crate::error::CommandError;
use crate::launch::{self, Cpu};
use crate::ranks::{self, RankOrigin, RanksArgs, cpus};
use halocline::Communicator;
use halocline_comm::Endpoint;
use rustix::thread::CpuSet;

/// Calls `work` as each of the ranks and returns the worst exit code. `asked`: the number of ranks, if
/// one was asked for; 2 otherwise, or those of the job. `pinned`: each has a core of its own, which it shares with its progress
/// thread. `check` is given the number of ranks and finds what
/// no benchmark can have, before any rank is started and before anything is allocated.
pub(super) fn run(
    transport: Transport,
    asked: Option<usize>,
    pinned: bool,
    check: impl Fn(usize) -> Result<(), CommandError>,
    work: impl Fn(&Communicator) -> Result<u8, CommandError> + Sync,
) -> Result<u8, CommandError> {
    let ranks = asked.unwrap_or(2);
    if ranks == 0 {
        return Err(CommandError::usage("0 ranks; give at least one"));
    }
    match RankOrigin::of(transport)? {
        RankOrigin::Threads => {
            check(ranks)?;
            let codes = match pinned {
                true => as_threads(ranks, &launch::usable().unwrap_or_default(), work)?,
                false => ranks::as_threads(ranks, work)?,
            };
            Ok(codes.into_iter().max().unwrap_or(0))
        }
        RankOrigin::Launch => {
            check(ranks)?;
            Ok(ranks::launch_self(ranks)?)
        }
        RankOrigin::Join => {
            let comm = ranks::join(&RanksArgs { ranks: asked, transport, node_aware: None })?;
            check(comm.size())?;
            let cpus = cpus(&comm)?;
            if pinned && comm.link().is_oversubscribed() && !cpus.is_empty() {
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
    work: impl Fn(&Communicator) -> Result<T, CommandError> + Sync,
) -> Result<Vec<T>, CommandError> {
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
