//! Quantiles of windows.

use super::ranks::{RankSet, Ranks};
use super::{Block, Kernel};
use std::fmt;
use std::ops::Range;

/// Which value a quantile is that lies between two.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Aggregation, Interpolation, Rolling, Statistic, Table, Window, rolling};
///
/// let batch = record_batch!(("row", Int64, [0, 1]), ("level", Float64, [2.0, 3.0]))?;
/// let table = Table::new(batch.schema(), vec![batch])?;
/// let context = rolling(&table, &Rolling::new("row", Window::rows(2)?), &Communicator::single())?;
///
/// let median = Statistic::Quantile { q: 0.5, interpolation: Interpolation::Midpoint };
/// let result = context.aggregate(&[Aggregation::new("level", median).named("median")], 1)?;
/// assert_eq!(result, record_batch!(("median", Float64, [None, Some(2.5)]))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interpolation {
    /// The nearer one; the higher one in the middle. The default, as in polars.
    #[default]
    Nearest,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// Half of their sum.
    Midpoint,
    /// In proportion.
    Linear,
    /// The lowest value up to which at least the part `q` of the values lies.
    Equiprobable,
}

impl fmt::Display for Interpolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nearest => "nearest",
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::Midpoint => "midpoint",
            Self::Linear => "linear",
            Self::Equiprobable => "equiprobable",
        })
    }
}

/// Where a quantile lies in the order of a number of values.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The number of values.
    count: usize,
    /// The values before the one at its place, or before the lower one of two.
    before: usize,
    between: Option<Between>,
}

/// How a quantile between two values is interpolated.
#[derive(Debug, Clone, Copy)]
enum Between {
    Middle,
    Part(f64),
}

impl Place {
    /// `count` is at least 1.
    fn of(q: f64, interpolation: Interpolation, count: usize) -> Self {
        let last = count - 1;
        let exact = q * last as f64;
        let (before, between) = match interpolation {
            Interpolation::Nearest => (exact.round(), None),
            Interpolation::Lower => (exact.floor(), None),
            Interpolation::Higher => (exact.ceil(), None),
            Interpolation::Midpoint => (exact.floor(), Some(Between::Middle)),
            Interpolation::Linear => (exact.floor(), Some(Between::Part(exact.fract()))),
            Interpolation::Equiprobable => ((q * count as f64).ceil().max(1.0) - 1.0, None),
        };
        let is_between = exact.fract() > 0.0;
        Self { count, before: (before as usize).min(last), between: between.filter(|_| is_between) }
    }
}

/// The fewest rows that are ranked beyond those of some windows.
const AHEAD: usize = 4096;

/// The quantile `q` of a window, from 0 to 1. The rows of many windows are ranked together, so each row is sorted about once, whatever
/// the length of windows.
#[derive(Debug)]
pub(crate) struct Quantile {
    q: f64,
    interpolation: Interpolation,
    min_samples: usize,
    ranks: Ranks,
    /// The ranks of the window.
    window: RankSet,
    /// The rows of the window.
    rows: Range<usize>,
    /// Of the number of values last asked for.
    place: Place,
}

impl Quantile {
    /// Windows with fewer values than `min_samples` give null.
    pub(crate) fn new(q: f64, interpolation: Interpolation, min_samples: usize) -> Self {
        let (ranks, window) = Default::default();
        Self { q, interpolation, min_samples, ranks, window, rows: 0..0, place: Place::default() }
    }

    fn move_to(&mut self, window: &Range<usize>) {
        for row in self.rows.start..self.rows.end.min(window.start) {
            if let Some(rank) = self.ranks.of_row(row) {
                self.window.remove(rank);
            }
        }
        for row in self.rows.end.max(window.start)..window.end {
            if let Some(rank) = self.ranks.of_row(row) {
                self.window.insert(rank);
            }
        }
        self.rows = window.clone();
    }

    fn result(&mut self) -> Option<f64> {
        let count = self.window.count();
        if count < self.min_samples.max(1) {
            return None;
        }
        if count != self.place.count {
            self.place = Place::of(self.q, self.interpolation, count);
        }
        let rank = self.window.at(self.place.before);
        let lower = self.ranks.value(rank);
        let upper = || self.ranks.value(self.window.after(rank));
        Some(match self.place.between {
            None => lower,
            Some(Between::Middle) => (lower + upper()) / 2.0,
            Some(Between::Part(part)) => (upper() - lower) * part + lower,
        })
    }
}

impl Kernel<f64> for Quantile {
    type Out = f64;

    /// No rows while those of the windows are ranked, else many rows beyond them.
    fn reads(&self, windows: &[Range<usize>], rows: usize) -> Range<usize> {
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return 0..0 };
        if self.ranks.has(first.start..last.end) {
            return first.start..first.start;
        }
        let longest = windows.iter().map(Range::len).max().unwrap_or(0);
        let ahead = longest.saturating_mul(3).max(AHEAD);
        first.start..last.end.saturating_add(ahead).min(rows).max(first.start)
    }

    fn run(&mut self, block: Block<'_, f64, f64>) {
        let Block { windows, span, reads, out, valid } = block;
        if !reads.is_empty() {
            self.rows = reads.start..reads.start;
            self.ranks.rank(span, reads);
            self.window.reset(self.ranks.count());
        }
        for ((window, out), valid) in windows.iter().zip(out).zip(valid) {
            self.move_to(window);
            let result = self.result();
            (*out, *valid) = (result.unwrap_or_default(), result.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{self as kernels, values, windows};
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// NaN is larger than all numbers.
    fn compare(a: f64, b: f64) -> Ordering {
        a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    }

    const ALL: [Interpolation; 6] = [
        Interpolation::Nearest,
        Interpolation::Lower,
        Interpolation::Higher,
        Interpolation::Midpoint,
        Interpolation::Linear,
        Interpolation::Equiprobable,
    ];

    /// The results of polars for 1, 2, 3, 4, in the order of `ALL`.
    #[test]
    fn quantiles_between_values_are_those_of_polars() {
        for (q, expected) in [
            (0.1, [1.0, 1.0, 2.0, 1.5, 1.3, 1.0]),
            (0.25, [2.0, 1.0, 2.0, 1.5, 1.75, 1.0]),
            (0.5, [3.0, 2.0, 3.0, 2.5, 2.5, 2.0]),
            (0.6, [3.0, 2.0, 3.0, 2.5, 2.8, 3.0]),
            (0.9, [4.0, 3.0, 4.0, 3.5, 3.7, 4.0]),
            (1.0, [4.0; 6]),
            (0.0, [1.0; 6]),
        ] {
            for (interpolation, expected) in ALL.into_iter().zip(expected) {
                let is_same = |found: f64, _: f64, _: &[f64]| (found - expected).abs() < 1e-12;
                let kernel = Quantile::new(q, interpolation, 0);
                kernels::compare_kernel(
                    kernel,
                    &[1.0, 2.0, 3.0, 4.0].map(Some),
                    std::slice::from_ref(&(0..4)),
                    |_| Some(expected),
                    is_same,
                );
            }
        }
    }

    proptest! {
        #[test]
        fn quantiles_equal_those_of_each_window(values in values(), windows in windows(60), q in 0.0f64..1.0) {
            let plain = |of: &[f64]| {
                let mut sorted = of.to_vec();
                sorted.sort_by(|&a, &b| compare(a, b));
                sorted.get((q * sorted.len().saturating_sub(1) as f64).round() as usize).copied()
            };
            let is_same = |a: f64, b: f64, _: &[f64]| a == b || a.is_nan() && b.is_nan();
            kernels::compare_kernel(Quantile::new(q, Interpolation::Nearest, 0), &values, &windows, plain, is_same);
        }
    }

    #[test]
    fn long_windows_are_ranked_several_times() {
        let values: Vec<Option<f64>> = (0..50_000u64).map(|row| Some((row * 7919 % 5003) as f64)).collect();
        let windows: Vec<_> = (0..40_000).step_by(37).map(|row| row..row + 3000 + row / 20).collect();
        let plain = |of: &[f64]| {
            let (mut sorted, middle) = (of.to_vec(), (of.len() - 1).div_ceil(2));
            sorted.select_nth_unstable_by(middle, |&a, &b| compare(a, b));
            Some(sorted[middle])
        };
        let kernel = Quantile::new(0.5, Interpolation::Nearest, 0);
        kernels::compare_kernel(kernel, &values, &windows, plain, |a, b, _| a == b);
    }

    #[test]
    fn windows_that_jump_far_and_empty_ones_have_their_quantiles() {
        let values: Vec<Option<f64>> = (0..30_000u64).map(|row| Some((row * 31 % 977) as f64)).collect();
        let windows =
            [0..3, 3..3, 4..9, 9..9, 6000..6000, 6000..6004, 20_000..20_001, 29_999..30_000, 30_000..30_000];
        let plain = |of: &[f64]| of.iter().copied().reduce(f64::max);
        let kernel = Quantile::new(1.0, Interpolation::Linear, 0);
        kernels::compare_kernel(kernel, &values, &windows, plain, |a, b, _| a == b);
    }
}
