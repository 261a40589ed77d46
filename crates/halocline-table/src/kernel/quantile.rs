//! Quantiles: the values of a window, sorted.

use super::{State, Stretch};
use std::cmp::Ordering;
use std::fmt;

/// Which value a quantile is that lies between two.
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

/// The most values of a bucket.
const BUCKET: usize = 512;

/// Sorted values in buckets, so that a value enters and leaves by moving a bucket's values only.
#[derive(Debug, Default)]
struct Sorted {
    buckets: Vec<Vec<f64>>,
}

/// NaN is larger than all numbers.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl Sorted {
    /// The first bucket that has a value of at least `value`; else the last.
    fn bucket(&self, value: f64) -> usize {
        let is_before = |bucket: &Vec<f64>| bucket.last().is_some_and(|&last| compare(last, value).is_lt());
        self.buckets.partition_point(is_before).min(self.buckets.len().saturating_sub(1))
    }

    fn insert(&mut self, value: f64) {
        let at = self.bucket(value);
        let Some(bucket) = self.buckets.get_mut(at) else {
            self.buckets.push(vec![value]);
            return;
        };
        let place = bucket.partition_point(|&other| compare(other, value).is_lt());
        bucket.insert(place, value);
        if bucket.len() > BUCKET {
            let upper = bucket.split_off(BUCKET / 2);
            self.buckets.insert(at + 1, upper);
        }
    }

    fn remove(&mut self, value: f64) {
        let at = self.bucket(value);
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        let place = bucket.partition_point(|&other| compare(other, value).is_lt());
        if place < bucket.len() {
            bucket.remove(place);
        }
        if bucket.is_empty() {
            self.buckets.remove(at);
        }
    }

    /// The value at a place of the order, and the one after it if that exists.
    fn pair(&self, mut place: usize) -> Option<(f64, f64)> {
        for (at, bucket) in self.buckets.iter().enumerate() {
            if let Some(&value) = bucket.get(place) {
                let next = bucket.get(place + 1).or_else(|| self.buckets.get(at + 1)?.first());
                return Some((value, next.copied().unwrap_or(value)));
            }
            place -= bucket.len();
        }
        None
    }
}

/// The quantile `q` of a window, from 0 to 1.
#[derive(Debug)]
pub(crate) struct Quantile {
    sorted: Sorted,
    q: f64,
    interpolation: Interpolation,
}

impl Quantile {
    pub(crate) fn new(q: f64, interpolation: Interpolation) -> Self {
        Self { sorted: Sorted::default(), q, interpolation }
    }
}

impl State<f64> for Quantile {
    type Out = f64;

    fn clear(&mut self) {
        self.sorted.buckets.clear();
    }

    fn add(&mut self, _: usize, value: f64) {
        self.sorted.insert(value);
    }

    fn remove(&mut self, _: usize, value: f64) {
        self.sorted.remove(value);
    }

    fn result(&mut self, count: usize, _: Stretch<'_, f64>) -> Option<f64> {
        let last = count.checked_sub(1)?;
        let place = self.q * last as f64;
        let at = |place: f64| self.sorted.pair((place as usize).min(last));
        let (lower, upper) = at(place.floor())?;
        let is_between = place.fract() > 0.0;
        Some(match self.interpolation {
            Interpolation::Nearest => at(place.round())?.0,
            Interpolation::Lower => lower,
            Interpolation::Higher => at(place.ceil())?.0,
            Interpolation::Midpoint if is_between => (lower + upper) / 2.0,
            Interpolation::Linear if is_between => (upper - lower) * place.fract() + lower,
            Interpolation::Midpoint | Interpolation::Linear => lower,
            Interpolation::Equiprobable => at((self.q * count as f64).ceil().max(1.0) - 1.0)?.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{self as kernels, values, windows};
    use super::*;
    use proptest::prelude::*;

    const ALL: [Interpolation; 6] = [
        Interpolation::Nearest,
        Interpolation::Lower,
        Interpolation::Higher,
        Interpolation::Midpoint,
        Interpolation::Linear,
        Interpolation::Equiprobable,
    ];

    /// What polars gives for 1, 2, 3, 4, in the order of `ALL`.
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
                let state = Quantile::new(q, interpolation);
                kernels::compare(
                    state,
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
            kernels::compare(Quantile::new(q, Interpolation::Nearest), &values, &windows, plain, is_same);
        }
    }

    #[test]
    fn many_values_are_kept_in_several_buckets() {
        let values: Vec<Option<f64>> = (0..5000u64).map(|row| Some((row * 7919 % 5000) as f64)).collect();
        let windows: Vec<_> = (0..2000).map(|row| row..row + 3000).collect();
        let plain = |of: &[f64]| {
            let mut sorted = of.to_vec();
            sorted.select_nth_unstable_by(1500, |&a, &b| compare(a, b));
            Some(sorted[1500])
        };
        let windows: Vec<_> = windows.into_iter().step_by(37).collect();
        kernels::compare(Quantile::new(0.5, Interpolation::Nearest), &values, &windows, plain, |a, b, _| {
            a == b
        });
    }
}
