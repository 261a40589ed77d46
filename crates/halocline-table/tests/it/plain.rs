//! Windows and statistics by their definitions, in time proportional to rows times rows.

use halocline_table::{Closed, Interpolation, Rolling, Statistic, Window};
use std::cmp::Ordering;
use std::ops::Range;

/// A row of a test: group, key in microseconds, value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub group: u8,
    pub key: i64,
    pub value: Option<f64>,
}

/// A window of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    pub extent: Extent,
    pub closed: Closed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// Nanoseconds from the row's key to both ends.
    Span { start: i64, end: i64 },
    /// Rows before and after, moved by a number of rows.
    Rows { before: u32, after: u32, shift: i32 },
}

impl Case {
    /// The same window for the crate.
    pub fn rolling(&self) -> Rolling {
        let window = match self.extent {
            Extent::Rows { before, after, shift } => {
                Window::rows_around(before, after).shifted_rows(shift).unwrap()
            }
            Extent::Span { start, end } => {
                let period = Window::period(&format!("{}ns", end - start)).unwrap();
                period.offset(&format!("{start}ns")).unwrap()
            }
        };
        Rolling::new("time", window.closed(self.closed)).group_by(["group"])
    }

    fn has(&self, rows: &[Row], row: usize, other: usize) -> bool {
        let (left, right) = (
            matches!(self.closed, Closed::Left | Closed::Both),
            matches!(self.closed, Closed::Right | Closed::Both),
        );
        let distance = match self.extent {
            Extent::Rows { .. } => other as i128 - row as i128,
            Extent::Span { .. } => 1000 * (i128::from(rows[other].key) - i128::from(rows[row].key)),
        };
        let (start, end) = match self.extent {
            // Of rows, a closed end takes one more, an open end one less, as in pandas.
            Extent::Rows { before, after, shift } => {
                (i128::from(shift) - i128::from(before) - 1, i128::from(shift) + i128::from(after))
            }
            Extent::Span { start, end } => (i128::from(start), i128::from(end)),
        };
        rows[other].group == rows[row].group
            && (distance > start || left && distance == start)
            && (distance < end || right && distance == end)
    }

    /// The window of each row; an empty one anywhere.
    pub fn windows(&self, rows: &[Row]) -> Vec<Range<usize>> {
        let of_row = |row: usize| {
            let first = (0..rows.len()).find(|&other| self.has(rows, row, other)).unwrap_or(0);
            first..first + (first..rows.len()).take_while(|&other| self.has(rows, row, other)).count()
        };
        (0..rows.len()).map(of_row).collect()
    }
}

/// A statistic of a window, with at least `needs` values.
pub fn statistic(of: Statistic, rows: &[Row], needs: usize) -> Option<f64> {
    let values: Vec<f64> = rows.iter().filter_map(|row| row.value).collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = |ddof: u8| {
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        (count > f64::from(ddof)).then(|| squares / (count - f64::from(ddof)))
    };
    let nan = values.iter().copied().find(|value| value.is_nan());
    if values.len() < needs {
        return None;
    }
    match of {
        Statistic::Count => Some(count),
        Statistic::Sum => Some(values.iter().sum()),
        Statistic::Mean => (count > 0.0).then_some(mean),
        Statistic::Min => nan.or_else(|| values.iter().copied().reduce(f64::min)),
        Statistic::Max => nan.or_else(|| values.iter().copied().reduce(f64::max)),
        Statistic::First => rows.first()?.value,
        Statistic::Last => rows.last()?.value,
        Statistic::Var { ddof } => variance(ddof),
        Statistic::Std { ddof } => variance(ddof).map(f64::sqrt),
        Statistic::Quantile { q, interpolation } => quantile(values, q, interpolation),
        other => unreachable!("a new statistic, {other:?}, needs a plain definition"),
    }
}

/// The quantile `q` of values: NaN is larger than all numbers.
fn quantile(mut values: Vec<f64>, q: f64, interpolation: Interpolation) -> Option<f64> {
    values.sort_by(|a, b| a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(b).unwrap_or(Ordering::Equal)));
    let last = values.len().checked_sub(1)?;
    let place = q * last as f64;
    let (lower, upper) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(match interpolation {
        Interpolation::Nearest => values[place.round() as usize],
        Interpolation::Lower => lower,
        Interpolation::Higher => upper,
        Interpolation::Midpoint => {
            if place.fract() == 0.0 {
                lower
            } else {
                (lower + upper) / 2.0
            }
        }
        Interpolation::Linear if place.fract() == 0.0 => lower,
        Interpolation::Linear => lower + (upper - lower) * place.fract(),
        Interpolation::Equiprobable => {
            // The first value up to which at least the part `q` of all values lies.
            let lies = |count: usize| count as f64 >= q * values.len() as f64;
            values[(1..values.len()).find(|&count| lies(count)).unwrap_or(values.len()) - 1]
        }
    })
}
