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

/// The sum of two numbers, and its rounding error.
#[inline]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
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
        let (sum, error) = two_sum(self.sum, value);
        (self.sum, self.error) = (sum, self.error + error);
    }

    /// Adds and removes values, a pair at a time, and writes `result` of each sum. `false`: a value or a sum is not finite; nothing has
    /// changed then.
    #[inline]
    fn slide(
        &mut self,
        leaving: &[f64],
        entering: &[f64],
        out: &mut [f64],
        result: impl Fn(f64) -> f64,
    ) -> bool {
        // Without an early end the compiler makes it a loop over vectors.
        let are_finite = |values: &[f64]| values.iter().fold(true, |all, value| all & value.is_finite());
        if !self.special.is_none() || !are_finite(leaving) || !are_finite(entering) {
            return false;
        }
        let Self { mut sum, mut error, .. } = *self;
        for ((&old, &new), out) in leaving.iter().zip(entering).zip(out) {
            let (change, change_error) = two_sum(new, -old);
            let (next, sum_error) = two_sum(sum, change);
            error += change_error + sum_error;
            sum = next;
            *out = result(sum + error);
        }
        // A sum that exceeded the type stays infinite or NaN.
        let is_finite = (sum + error).is_finite();
        if is_finite {
            (self.sum, self.error) = (sum, error);
        }
        is_finite
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
    /// Values are divided by [`UNIT`]: an intermediate sum exceeded the type. Until the window is cleared.
    is_scaled: bool,
}

/// 2^64: as many of the largest numbers, divided by it, have a sum within the type. The division is exact, but for numbers below 1e-289.
const UNIT: f64 = 18_446_744_073_709_551_616.0;

impl FloatSum {
    /// The mean instead of the sum.
    pub(crate) fn mean() -> Self {
        Self { is_mean: true, ..Self::default() }
    }

    /// Sums the window anew, scaled.
    #[cold]
    fn scale(&mut self, window: Stretch<'_, f64>) -> f64 {
        (self.total, self.is_scaled) = (Compensated::default(), true);
        window.values().for_each(|value| self.total.add(value / UNIT));
        self.total.value().unwrap_or(f64::NAN) * UNIT
    }
}

impl State<f64> for FloatSum {
    type Out = f64;

    fn clear(&mut self) {
        (self.total, self.is_scaled) = (Compensated::default(), false);
    }

    #[inline]
    fn add(&mut self, _: usize, value: f64) {
        self.total.add(if self.is_scaled { value / UNIT } else { value });
    }

    #[inline]
    fn remove(&mut self, _: usize, value: f64) {
        self.total.remove(if self.is_scaled { value / UNIT } else { value });
    }

    #[inline]
    fn result(&mut self, count: usize, window: Stretch<'_, f64>) -> Option<f64> {
        let sum = match self.total.value() {
            Some(sum) if self.is_scaled => sum * UNIT,
            Some(sum) => sum,
            None => self.scale(window),
        };
        match (self.is_mean, count) {
            (false, _) => Some(sum),
            (true, 0) => None,
            (true, count) => Some(sum / count as f64),
        }
    }

    fn slide(&mut self, leaving: &[f64], entering: &[f64], count: usize, out: &mut [f64]) -> bool {
        let count = count as f64;
        if self.is_scaled {
            return false;
        }
        match self.is_mean {
            true => self.total.slide(leaving, entering, out, |sum| sum / count),
            false => self.total.slide(leaving, entering, out, |sum| sum),
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
    use super::super::Span;
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
    fn windows_that_move_by_a_row_give_the_same_wherever_values_are_not_finite() {
        let mut values: Vec<Option<f64>> =
            (0..400u32).map(|row| Some(f64::from(row * 7919 % 640) / 64.0 - 5.0)).collect();
        (values[200], values[217], values[300]) = (Some(f64::NAN), Some(f64::INFINITY), Some(f64::MAX));
        (values[301], values[370]) = (Some(f64::MAX), Some(1e300));
        for length in [1, 2, 10] {
            let windows: Vec<_> = (0..=400 - length).map(|row| row..row + length).collect();
            // Two calls move the windows. The second one slides where it can.
            for part in windows.chunks(40) {
                let sum = |of: &[f64]| Some(of.iter().sum());
                compare(FloatSum::default(), &values, part, sum, is_close);
                let mean = |of: &[f64]| Some(of.iter().sum::<f64>() / of.len() as f64);
                compare(FloatSum::mean(), &values, part, mean, is_close);
            }
        }
    }

    #[test]
    fn a_sum_beyond_the_type_does_not_spoil_later_ones_or_make_them_slow() {
        // Summing each window anew would take 4e10 additions.
        let (rows, length) = (400_000, 100_000);
        let mut values: Vec<f64> = (0..rows).map(|row| f64::from(row % 64) / 64.0).collect();
        (values[0], values[1]) = (1.7e308, 1.7e308);
        let span = Span { values: &values, valid: None, first: 0 };
        let mut sum = FloatSum::default();
        for (row, &value) in values.iter().enumerate() {
            sum.add(row, value);
            let first = (row + 1).saturating_sub(length);
            if first > 0 {
                sum.remove(first - 1, values[first - 1]);
            }
            let found = sum.result(row + 1 - first, Stretch { span: &span, rows: first..row + 1 }).unwrap();
            match first {
                0 if row > 0 => assert_eq!(found, f64::INFINITY),
                0 | 1 => assert_eq!(found, 1.7e308),
                _ if row % 10_000 == 0 => assert_eq!(found, values[first..=row].iter().sum::<f64>()),
                _ => {}
            }
        }
    }

    #[test]
    fn a_large_number_that_has_left_leaves_nothing_behind() {
        let values: Vec<Option<f64>> = [1e30, 1.0, 2.0, 3.5, 1e308, 1e308, -4.0, 0.25].map(Some).to_vec();
        let windows: Vec<_> = (0..6).map(|row| row..row + 3).chain([6..8, 7..8]).collect();
        compare(FloatSum::default(), &values, &windows, |of| Some(of.iter().sum()), |a, b, _| a == b);
    }
}
