//! Order statistics and compensated sums.

use halocline::{CommError, Communicator, Reduce};
use std::time::Duration;

/// The value at this share of the sorted values; 0 if there are none.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// The median; 0 if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Nanoseconds as microseconds.
pub(crate) fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// The median of the slowest rank, us: the largest of the ranks' own medians. Collective.
///
/// The median of each round's slowest rank would be too large: where ranks outnumber the cores, another rank is late in each round, and
/// these times add up to more than the whole run.
pub(crate) fn slowest_median(comm: &Communicator, times: &[Duration]) -> Result<f64, CommError> {
    let own: Vec<f64> = times.iter().map(|time| micros(time.as_nanos() as u64)).collect();
    comm.all_reduce(median(&own), Reduce::Max)
}

/// A sum with its rounding errors (A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation
/// endlicher Summen", ZAMM 54 (1974)).
#[derive(Debug, Default)]
pub(crate) struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    pub(crate) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        let (large, small) =
            if self.sum.abs() >= value.abs() { (self.sum, value) } else { (value, self.sum) };
        self.lost += (large - sum) + small;
        self.sum = sum;
    }

    pub(crate) fn value(&self) -> f64 {
        self.sum + self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(median(&values), 3.0);
        assert_eq!(quantile(&values, 0.99), 5.0);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(median(&[]), 0.0);
    }

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
