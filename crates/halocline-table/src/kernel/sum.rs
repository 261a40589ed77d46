//! Sums: of integers exactly, of floating-point numbers with the rounding errors of all additions summed beside.

use super::{State, Stretch};

/// A sum of floating-point numbers to which numbers were added and from which others were taken away.
///
/// `TwoSum` (Knuth) gives the rounding error of each addition exactly. The sum of the errors corrects the result, so that a large
/// number that has left spoils later sums by about 1e-32 of it only. Numbers that are not finite are counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Compensated {
    sum: f64,
    error: f64,
    special: Special,
}

/// How many values are NaN, and how many are a positive or a negative infinity.
#[derive(Debug, Clone, Copy, Default)]
struct Special {
    nans: usize,
    infinities: [usize; 2],
}

impl Special {
    #[cold]
    fn count(&mut self, value: f64, change: impl Fn(usize) -> usize) {
        let counter =
            if value.is_nan() { &mut self.nans } else { &mut self.infinities[usize::from(value < 0.0)] };
        *counter = change(*counter);
    }

    #[inline]
    fn is_none(&self) -> bool {
        self.nans == 0 && self.infinities == [0, 0]
    }

    #[cold]
    fn sum(self) -> f64 {
        match self.infinities {
            _ if self.nans > 0 => f64::NAN,
            [_, 0] => f64::INFINITY,
            [0, _] => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

impl Compensated {
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.shift(value);
        } else {
            self.special.count(value, |count| count + 1);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, value: f64) {
        if value.is_finite() {
            self.shift(-value);
        } else {
            self.special.count(value, |count| count - 1);
        }
    }

    #[inline]
    fn shift(&mut self, value: f64) {
        let sum = self.sum + value;
        let part = sum - self.sum;
        self.error += (self.sum - (sum - part)) + (value - part);
        self.sum = sum;
    }

    /// The sum of the finite values, without correction.
    #[inline]
    pub(crate) fn raw(&self) -> f64 {
        self.sum
    }

    /// The sum; `None` if an intermediate sum exceeded the type.
    #[inline]
    pub(crate) fn value(&self) -> Option<f64> {
        let value = self.sum + self.error;
        if self.special.is_none() { value.is_finite().then_some(value) } else { Some(self.special.sum()) }
    }
}

/// The sum or the mean of floating-point numbers.
#[derive(Debug, Default)]
pub(crate) struct FloatSum {
    total: Compensated,
    is_mean: bool,
}

impl FloatSum {
    /// The mean instead of the sum.
    pub(crate) fn mean() -> Self {
        Self { is_mean: true, ..Self::default() }
    }
}

impl State<f64> for FloatSum {
    type Out = f64;

    fn clear(&mut self) {
        self.total = Compensated::default();
    }

    #[inline]
    fn add(&mut self, _: usize, value: f64) {
        self.total.add(value);
    }

    #[inline]
    fn remove(&mut self, _: usize, value: f64) {
        self.total.remove(value);
    }

    #[inline]
    fn result(&mut self, count: usize, window: Stretch<'_, f64>) -> Option<f64> {
        let sum = self.total.value().unwrap_or_else(|| window.values().sum());
        match (self.is_mean, count) {
            (false, _) => Some(sum),
            (true, 0) => None,
            (true, count) => Some(sum / count as f64),
        }
    }
}

/// The sum of integers, modulo 2^64.
#[derive(Debug, Default)]
pub(crate) struct IntegerSum<T>(T);

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl State<$integer> for IntegerSum<$integer> {
            type Out = $integer;

            fn clear(&mut self) {
                self.0 = 0;
            }

            #[inline]
            fn add(&mut self, _: usize, value: $integer) {
                self.0 = self.0.wrapping_add(value);
            }

            #[inline]
            fn remove(&mut self, _: usize, value: $integer) {
                self.0 = self.0.wrapping_sub(value);
            }

            #[inline]
            fn result(&mut self, _: usize, _: Stretch<'_, $integer>) -> Option<$integer> {
                Some(self.0)
            }
        }
    )*};
}

integers!(i64 u64);

/// The number of values that are not null.
#[derive(Debug)]
pub(crate) struct Count;

impl State<u64> for Count {
    type Out = u64;

    fn clear(&mut self) {}

    #[inline]
    fn add(&mut self, _: usize, _: u64) {}

    #[inline]
    fn remove(&mut self, _: usize, _: u64) {}

    #[inline]
    fn result(&mut self, count: usize, _: Stretch<'_, u64>) -> Option<u64> {
        Some(count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{compare, values, windows};
    use super::*;
    use proptest::prelude::*;

    /// To 1e-12 of the sum of the magnitudes, and 1e-30 of the largest value that was ever in the window.
    fn is_close(found: f64, expected: f64, values: &[f64]) -> bool {
        let magnitude: f64 = values.iter().map(|value| value.abs()).sum();
        found == expected
            || found.is_nan() && expected.is_nan()
            || (found - expected).abs() <= 1e-12 * magnitude + 1e-30 * 1e15
    }

    proptest! {
        #[test]
        fn sums_equal_those_of_each_window(values in values(), windows in windows(60)) {
            compare(FloatSum::default(), &values, &windows, |of| Some(of.iter().sum()), is_close);
        }

        #[test]
        fn means_equal_those_of_each_window(values in values(), windows in windows(60)) {
            let mean = |of: &[f64]| (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64);
            compare(FloatSum::mean(), &values, &windows, mean, is_close);
        }
    }

    #[test]
    fn a_large_number_that_has_left_leaves_nothing_behind() {
        let values: Vec<Option<f64>> = [1e30, 1.0, 2.0, 3.5, 1e308, 1e308, -4.0, 0.25].map(Some).to_vec();
        let windows: Vec<_> = (0..6).map(|row| row..row + 3).chain([6..8, 7..8]).collect();
        compare(FloatSum::default(), &values, &windows, |of| Some(of.iter().sum()), |a, b, _| a == b);
    }
}
