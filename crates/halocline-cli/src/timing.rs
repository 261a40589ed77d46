//! Times of all ranks for reports.

use halocline::{CommError, Communicator, Reduce};
use std::time::Duration;

/// The median of the slowest rank, us: the largest of the ranks' own medians. Collective.
///
/// The median of each round's slowest rank would be too large: where ranks outnumber the cores, another rank is late in each round, and
/// these times add up to more than the whole run.
pub(crate) fn slowest_median(comm: &Communicator, times: &[Duration]) -> Result<f64, CommError> {
    let mut own: Vec<u64> = times.iter().map(|time| time.as_nanos() as u64).collect();
    own.sort_unstable();
    let median = own.get(own.len() / 2).copied().unwrap_or(0);
    let slowest = comm.all_reduce(&[median], Reduce::Max)?;
    Ok(slowest.first().copied().unwrap_or(0) as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_is_late_in_each_round_is_not_the_median_of_any() {
        let ranks = Communicator::threads(3).into_iter().map(|comm| {
            std::thread::spawn(move || {
                let late = |round: usize| if round % 3 == comm.rank() { 900 } else { 7 + comm.rank() as u64 };
                let times: Vec<Duration> = (0..9).map(|round| Duration::from_micros(late(round))).collect();
                slowest_median(&comm, &times).unwrap()
            })
        });
        let ranks: Vec<_> = ranks.collect();
        assert!(ranks.into_iter().all(|rank| rank.join().unwrap() == 9.0));
    }
}
