//! What the exchanges of a run cost, over all ranks.

use crate::error::CommandError;
use crate::ranks;
use crate::stats::slowest_median;
use halocline::{Communicator, LinkCounts, Reduce};
use std::time::Duration;

/// Times of the exchanges, over all ranks.
pub(crate) struct Costs {
    /// Median time of a step's exchanges on the slowest rank.
    pub(crate) median_us: f64,
    /// Time of all steps on the slowest rank.
    pub(crate) seconds: f64,
    /// Share of the time that all ranks spend in exchanges.
    pub(crate) share: f64,
    pub(crate) links: LinkCounts,
}

impl Costs {
    /// From this rank's time of all steps, the times of each step's exchanges, and its links. Collective.
    pub(crate) fn of(
        comm: &Communicator,
        (elapsed, exchanges): (Duration, &[Duration]),
        links: LinkCounts,
    ) -> Result<Self, CommandError> {
        let elapsed = elapsed.as_secs_f64();
        let in_exchanges: f64 = exchanges.iter().map(Duration::as_secs_f64).sum();
        let [in_exchanges, total] = comm.all_reduce([in_exchanges, elapsed], Reduce::Sum)?;
        Ok(Self {
            median_us: slowest_median(comm, exchanges)?,
            seconds: comm.all_reduce(elapsed, Reduce::Max)?,
            share: in_exchanges / total.max(f64::MIN_POSITIVE),
            links: ranks::sum_links(comm, links)?,
        })
    }
}
