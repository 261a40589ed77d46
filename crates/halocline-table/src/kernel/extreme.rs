//! The smallest or the largest value of a window.

use super::{State, Stretch};
use std::collections::VecDeque;

/// Values of which one is the smallest.
pub(crate) trait Ordered: Copy + PartialOrd + Default + Send {
    /// A value without order.
    const NAN: Self;

    fn is_nan(self) -> bool;
}

impl Ordered for f64 {
    const NAN: Self = f64::NAN;

    #[inline]
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Ordered for $integer {
            const NAN: Self = 0;

            #[inline]
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}

integers!(i64 u64);

/// Rows that can still become the extreme: each is better than all later ones (a monotonic queue). A window with a NaN is NaN, as
/// in `rolling_min` and `rolling_max` of polars.
#[derive(Debug)]
pub(crate) struct Extreme<T, const MAX: bool> {
    candidates: VecDeque<(usize, T)>,
    nans: usize,
}

impl<T, const MAX: bool> Default for Extreme<T, MAX> {
    fn default() -> Self {
        Self { candidates: VecDeque::new(), nans: 0 }
    }
}

impl<T: Ordered, const MAX: bool> State<T> for Extreme<T, MAX> {
    type Out = T;

    fn clear(&mut self) {
        self.candidates.clear();
        self.nans = 0;
    }

    #[inline]
    fn add(&mut self, row: usize, value: T) {
        if value.is_nan() {
            self.nans += 1;
            return;
        }
        while let Some(&(_, last)) = self.candidates.back()
            && if MAX { last <= value } else { last >= value }
        {
            self.candidates.pop_back();
        }
        self.candidates.push_back((row, value));
    }

    #[inline]
    fn remove(&mut self, row: usize, value: T) {
        if value.is_nan() {
            self.nans -= 1;
        } else if self.candidates.front().is_some_and(|&(first, _)| first == row) {
            self.candidates.pop_front();
        }
    }

    #[inline]
    fn result(&mut self, _: usize, _: Stretch<'_, T>) -> Option<T> {
        if self.nans > 0 { Some(T::NAN) } else { self.candidates.front().map(|&(_, value)| value) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{compare, values, windows};
    use super::*;
    use proptest::prelude::*;

    fn plain(values: &[f64], choose: fn(f64, f64) -> f64) -> Option<f64> {
        let choose = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { choose(a, b) };
        values.iter().copied().reduce(choose)
    }

    proptest! {
        #[test]
        fn extremes_equal_those_of_each_window(values in values(), windows in windows(60)) {
            let is_same = |a: f64, b: f64, _: &[f64]| a == b || a.is_nan() && b.is_nan();
            compare(Extreme::<f64, false>::default(), &values, &windows, |of| plain(of, f64::min), is_same);
            compare(Extreme::<f64, true>::default(), &values, &windows, |of| plain(of, f64::max), is_same);
        }
    }
}
