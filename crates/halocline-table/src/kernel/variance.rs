//! Variance and standard deviation.

use super::sum::Compensated;
use super::{State, Stretch};

/// Sums of the differences from a number near the mean, and of their squares.
///
/// The number is the first value, and moves to the mean of the window once digits would be lost: if most of the sum of squares
/// comes from the distance between both, or an extreme value has left. That takes a pass over the window. The first happens only
/// after most of the window has changed.
#[derive(Debug, Default)]
pub(crate) struct Variance {
    centre: f64,
    is_centred: bool,
    differences: Compensated,
    squares: Compensated,
    /// The largest sum of squares since the number moved.
    peak: f64,
    /// Values that are not finite.
    special: usize,
    /// Subtracted from the number of values in the denominator.
    ddof: u8,
    /// The square root.
    is_deviation: bool,
}

/// The part of the sum of squares beyond which the centre moves.
const OFF_CENTRE: f64 = 0.999;
/// The part of the largest sum of squares below which a result has lost digits.
const FALLEN: f64 = 1e-18;

impl Variance {
    /// The variance, or the standard deviation.
    pub(crate) fn new(ddof: u8, is_deviation: bool) -> Self {
        Self { ddof, is_deviation, ..Self::default() }
    }

    fn begin(&mut self, centre: f64) {
        (self.centre, self.is_centred) = (centre, true);
        (self.differences, self.squares, self.peak) = Default::default();
    }

    /// The sum of the squared differences from the mean, unless an intermediate sum exceeds the type or is inexact.
    fn sum_of_squares(&mut self, count: usize, window: &Stretch<'_, f64>) -> Option<f64> {
        let (differences, squares) = (self.differences.value()?, self.squares.value()?);
        let offset = differences * (differences / count as f64);
        if offset <= OFF_CENTRE * squares && squares - offset >= FALLEN * self.peak {
            return Some(squares - offset);
        }
        self.begin(self.centre + differences / count as f64);
        for value in window.values() {
            let difference = value - self.centre;
            self.differences.add(difference);
            self.squares.add(difference * difference);
        }
        self.peak = self.squares.raw();
        let (differences, squares) = (self.differences.value()?, self.squares.value()?);
        let rest = squares - differences * (differences / count as f64);
        // The rounding error that a large value has left is no centre. Equal values differ from theirs by rounding alone.
        let rounding = f64::EPSILON * self.centre;
        let is_exact =
            rest >= (1.0 - OFF_CENTRE) * squares || squares <= 4.0 * count as f64 * rounding * rounding;
        (rest.is_finite() && is_exact).then_some(rest)
    }

    /// The same by two passes, without sums that are kept.
    fn plain(&mut self, count: usize, window: &Stretch<'_, f64>) -> f64 {
        self.is_centred = false;
        let mean = window.values().map(|value| value / count as f64).sum::<f64>();
        self.begin(mean);
        for value in window.values() {
            let difference = value - mean;
            self.differences.add(difference);
            self.squares.add(difference * difference);
        }
        window.values().map(|value| (value - mean) * (value - mean)).sum()
    }
}

impl State<f64> for Variance {
    type Out = f64;

    fn clear(&mut self) {
        (self.is_centred, self.special) = (false, 0);
    }

    #[inline]
    fn add(&mut self, _: usize, value: f64) {
        if !value.is_finite() {
            self.special += 1;
            return;
        }
        if !self.is_centred {
            self.begin(value);
        }
        let difference = value - self.centre;
        self.differences.add(difference);
        self.squares.add(difference * difference);
        self.peak = self.peak.max(self.squares.raw());
    }

    #[inline]
    fn remove(&mut self, _: usize, value: f64) {
        if !value.is_finite() {
            self.special -= 1;
            return;
        }
        let difference = value - self.centre;
        self.differences.remove(difference);
        self.squares.remove(difference * difference);
    }

    #[inline]
    fn result(&mut self, count: usize, window: Stretch<'_, f64>) -> Option<f64> {
        let freedom = count.checked_sub(usize::from(self.ddof)).filter(|&freedom| freedom > 0)?;
        if self.special > 0 {
            return Some(f64::NAN);
        }
        let squares = match self.sum_of_squares(count, &window) {
            Some(squares) => squares.max(0.0),
            None => self.plain(count, &window),
        };
        let variance = squares / freedom as f64;
        Some(if self.is_deviation { variance.sqrt() } else { variance })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{compare, values, windows};
    use super::*;
    use proptest::prelude::*;

    fn plain(values: &[f64]) -> Option<f64> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        (values.len() > 1).then(|| squares / (values.len() - 1) as f64)
    }

    /// To 1e-12 of the variance, and of what the values themselves resolve.
    fn is_close(found: f64, expected: f64, values: &[f64]) -> bool {
        let largest = values.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        let resolved = f64::EPSILON * largest * f64::EPSILON * largest * values.len() as f64;
        let difference = (found - expected).abs();
        found.is_nan() && expected.is_nan() || difference <= 1e-12 * expected + resolved
    }

    proptest! {
        #[test]
        fn variances_equal_those_of_each_window(
            values in values(),
            windows in windows(60),
            base in prop_oneof![Just(0.0), Just(1e9), Just(-1e6)],
            slope in prop_oneof![Just(0.0), Just(1e4)],
        ) {
            let moved = |(row, value): (usize, &Option<f64>)| value.map(|value| value + base + slope * row as f64);
            let values: Vec<Option<f64>> = values.iter().enumerate().map(moved).collect();
            compare(Variance::new(1, false), &values, &windows, plain, is_close);
        }
    }

    #[test]
    fn a_constant_has_no_variance_after_a_step() {
        let values: Vec<Option<f64>> = (0..40).map(|row| Some(if row < 20 { 1e8 } else { 0.1 })).collect();
        let windows: Vec<_> = (0..36).map(|row| row..row + 4).collect();
        let is_same = |found: f64, expected: f64, _: &[f64]| (found - expected).abs() <= 1e-12 * expected;
        compare(Variance::new(1, false), &values, &windows, plain, is_same);
    }

    #[test]
    fn large_values_leave_nothing_behind() {
        let is_same = |found: f64, expected: f64, _: &[f64]| {
            found == expected || (found - expected).abs() <= 1e-9 * expected
        };
        for values in [
            [1.0, -2e200, 3e200, 5.0, 6.0, 8.0, 1.0, 2.0],
            [5e134, 1e35, 3e35, -2e35, 4e35, 1e35, 1e35, 7e35],
            [1.0, 2.0, 5e134, 4.0, 8.0, 16.0, 1e-3, 2e-3],
        ] {
            let values = values.map(Some);
            for rows in [2, 3] {
                let windows: Vec<_> = (0..=values.len() - rows).map(|row| row..row + rows).collect();
                compare(Variance::new(1, false), &values, &windows, plain, is_same);
            }
        }
    }
}
