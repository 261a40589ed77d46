//! Statistics of windows that move forward: values enter at the end and leave at the begin.

pub(crate) mod extreme;
pub(crate) mod feed;
pub(crate) mod quantile;
mod ranks;
pub(crate) mod sum;
pub(crate) mod variance;

use feed::Span;
use std::ops::Range;

/// A statistic of the values in a window, nulls left out.
pub(crate) trait State<T: Copy>: Send {
    /// The type of the result.
    type Out: Copy + Default + Send;

    /// Empties the window.
    fn clear(&mut self);

    /// The value of `row` enters, after those of all earlier rows.
    fn add(&mut self, row: usize, value: T);

    /// The value of `row` leaves: the oldest.
    fn remove(&mut self, row: usize, value: T);

    /// The statistic of `count` values. `None`: null. `window` has the values in order.
    fn result(&mut self, count: usize, window: Stretch<'_, T>) -> Option<Self::Out>;

    /// Moves a window of `count` values, at least one, by a value at a time: a value of `leaving` leaves, one of `entering` enters, and
    /// the statistic goes to `out`. All have the same length. `false`: this state does not do so; nothing has changed.
    fn slide(&mut self, _leaving: &[T], _entering: &[T], _count: usize, _out: &mut [Self::Out]) -> bool {
        false
    }
}

/// The rows of one window.
#[derive(Debug, Clone)]
pub(crate) struct Stretch<'a, T> {
    span: &'a Span<'a, T>,
    rows: Range<usize>,
}

impl<T: Copy> Stretch<'_, T> {
    /// The values that are not null, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = T> {
        self.rows.clone().filter_map(|row| self.span.get(row))
    }
}

/// Consecutive windows, and where their results go.
#[derive(Debug)]
pub(crate) struct Block<'a, T, Out> {
    pub(crate) windows: &'a [Range<usize>],
    /// The result of [`Kernel::reads`] for these windows.
    pub(crate) reads: Range<usize>,
    /// These rows, or more.
    pub(crate) span: &'a Span<'a, T>,
    /// The result of each window.
    pub(crate) out: &'a mut [Out],
    /// Whether it is not null.
    pub(crate) valid: &'a mut [bool],
}

/// Computes a statistic of windows whose ends only move forward, block by block.
pub(crate) trait Kernel<T>: Send {
    /// The type of the result.
    type Out;

    /// The rows of the column that [`Kernel::run`] reads for these windows, of `rows` rows in all.
    fn reads(&self, windows: &[Range<usize>], rows: usize) -> Range<usize>;

    /// Writes the results of the windows that follow those of the last call.
    fn run(&mut self, block: Block<'_, T, Self::Out>);
}

/// Moves a window over a column.
#[derive(Debug)]
pub(crate) struct Sliding<S> {
    /// Taken out while windows move, so that it stays in registers.
    state: Option<S>,
    /// The rows that are in the state.
    rows: Range<usize>,
    /// Those of them that are not null.
    count: usize,
    min_samples: usize,
}

impl<T: Copy + Send, S: State<T>> Kernel<T> for Sliding<S> {
    type Out = S::Out;

    fn reads(&self, windows: &[Range<usize>], _: usize) -> Range<usize> {
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return 0..0 };
        // Also where a window of one row moves by a row: `slide` reads the value that leaves.
        let start = if first.start <= self.rows.end { self.rows.start } else { first.start };
        start..last.end.max(self.rows.end).max(start)
    }

    fn run(&mut self, mut block: Block<'_, T, S::Out>) {
        let Some(mut state) = self.state.take() else { return };
        let span = block.span;
        if span.valid.is_some() {
            self.move_over(&mut state, block, |row| span.get(row));
        } else if !self.slide(&mut state, &mut block) {
            self.move_over(&mut state, block, |row| Some(span.values[row - span.first]));
        }
        self.state = Some(state);
    }
}

impl<S> Sliding<S> {
    pub(crate) fn new(state: S, min_samples: usize) -> Self {
        Self { state: Some(state), rows: 0..0, count: 0, min_samples }
    }

    /// Moves over windows that each begin and end a row after the one before, the first one after that of the last call. `false`:
    /// these are others, or the state cannot; nothing has changed.
    fn slide<T: Copy>(&mut self, state: &mut S, block: &mut Block<'_, T, S::Out>) -> bool
    where
        S: State<T>,
    {
        let Range { start, end } = self.rows;
        let (span, length) = (block.span, block.windows.len());
        let is_next = |(at, window): (usize, &Range<usize>)| {
            window.start == start + at + 1 && window.end == end + at + 1
        };
        let is_full = self.count > 0 && self.count >= self.min_samples;
        if !is_full || !block.windows.iter().enumerate().all(is_next) {
            return false;
        }
        let values = |from: usize| &span.values[from - span.first..][..length];
        if !state.slide(values(start), values(end), self.count, block.out) {
            return false;
        }
        block.valid.fill(true);
        self.rows = start + length..end + length;
        true
    }

    /// Moves over any windows; `get` is the value of a row, unless it is null.
    fn move_over<T: Copy>(
        &mut self,
        state: &mut S,
        block: Block<'_, T, S::Out>,
        get: impl Fn(usize) -> Option<T>,
    ) where
        S: State<T>,
    {
        let Block { windows, span, out, valid, .. } = block;
        let (Range { start: mut from, end: mut until }, mut count) = (self.rows.clone(), self.count);
        for ((window, out), valid) in windows.iter().zip(out).zip(valid) {
            if window.start >= until {
                state.clear();
                (from, until, count) = (window.start, window.start, 0);
            }
            for row in from..window.start {
                if let Some(value) = get(row) {
                    state.remove(row, value);
                    count -= 1;
                }
            }
            if count == 0 {
                // Without what rounding has left behind.
                state.clear();
            }
            for row in until..window.end {
                if let Some(value) = get(row) {
                    state.add(row, value);
                    count += 1;
                }
            }
            (from, until) = (window.start, window.end);
            let result = match count >= self.min_samples {
                true => state.result(count, Stretch { span, rows: window.clone() }),
                false => None,
            };
            (*out, *valid) = (result.unwrap_or_default(), result.is_some());
        }
        (self.rows, self.count) = (from..until, count);
    }
}

/// The first or the last row of each window; null if its value is.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) is_last: bool,
}

impl<T: Copy + Default> Kernel<T> for End {
    type Out = T;

    fn reads(&self, windows: &[Range<usize>], _: usize) -> Range<usize> {
        windows.first().zip(windows.last()).map_or(0..0, |(first, last)| first.start..last.end)
    }

    fn run(&mut self, block: Block<'_, T, T>) {
        let Block { windows, span, out, valid, .. } = block;
        for ((window, out), valid) in windows.iter().zip(out).zip(valid) {
            let row = if self.is_last { window.end.wrapping_sub(1) } else { window.start };
            let value = if window.is_empty() { None } else { span.get(row) };
            (*out, *valid) = (value.unwrap_or_default(), value.is_some());
        }
    }
}

/// A single window at a time, for the tests of the statistics.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Windows that move forward over some rows.
    pub(crate) fn windows(rows: usize) -> impl Strategy<Value = Vec<Range<usize>>> {
        proptest::collection::vec((0usize..4, 0usize..12), 1..60).prop_map(move |steps| {
            let (mut start, mut end) = (0, 0);
            let step = |(by, length): (usize, usize)| {
                start = (start + by).min(rows);
                end = (start + length).min(rows).max(end);
                start..end
            };
            steps.into_iter().map(step).collect()
        })
    }

    /// The results of a state over windows, and those of `plain` over the values of each window.
    pub(crate) fn compare<S: State<f64, Out = f64>>(
        state: S,
        values: &[Option<f64>],
        windows: &[Range<usize>],
        plain: impl Fn(&[f64]) -> Option<f64>,
        is_same: impl Fn(f64, f64, &[f64]) -> bool,
    ) {
        compare_kernel(Sliding::new(state, 0), values, windows, plain, is_same);
    }

    /// As [`compare`], of a kernel.
    pub(crate) fn compare_kernel(
        mut kernel: impl Kernel<f64, Out = f64>,
        values: &[Option<f64>],
        windows: &[Range<usize>],
        plain: impl Fn(&[f64]) -> Option<f64>,
        is_same: impl Fn(f64, f64, &[f64]) -> bool,
    ) {
        let numbers: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::MAX)).collect();
        let present: Vec<bool> = values.iter().map(Option::is_some).collect();
        let valid = present.iter().any(|is| !is).then_some(&present[..]);
        let (mut out, mut found) = (vec![0.0; windows.len()], vec![false; windows.len()]);
        // In several calls, so that the state crosses from one to the next.
        let each = windows.len().div_ceil(3).max(1);
        for ((windows, out), found) in
            windows.chunks(each).zip(out.chunks_mut(each)).zip(found.chunks_mut(each))
        {
            let reads = kernel.reads(windows, values.len());
            let (numbers, valid) = (&numbers[reads.clone()], valid.map(|valid| &valid[reads.clone()]));
            let span = Span { values: numbers, valid, first: reads.start };
            kernel.run(Block { windows, reads, span: &span, out, valid: found });
        }
        for (at, window) in windows.iter().enumerate() {
            let of_window: Vec<f64> = values[window.clone()].iter().copied().flatten().collect();
            let expected = plain(&of_window);
            assert_eq!(found[at], expected.is_some(), "{window:?} of {values:?}");
            if let Some(expected) = expected {
                assert!(
                    is_same(out[at], expected, &of_window),
                    "{} is not {expected}: {of_window:?}",
                    out[at]
                );
            }
        }
    }

    /// Numbers of very different sizes, with NaN, infinities and nulls.
    pub(crate) fn values() -> impl Strategy<Value = Vec<Option<f64>>> {
        let value = prop_oneof![
            20 => (-1000i32..1000).prop_map(|v| Some(f64::from(v) / 8.0)),
            4 => (-1.0f64..1.0).prop_map(Some),
            3 => Just(None),
            1 => (-1.0f64..1.0).prop_map(|v| Some(v * 1e15)),
            1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)].prop_map(Some),
        ];
        proptest::collection::vec(value, 60)
    }
}
