//! Windows, and what they are in units of a key.

use crate::duration::Length;
use crate::error::TableError;
use crate::keys::KeyKind;
use crate::spec::Closed;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The rows that belong to the window of a row: a span of the key, or a number of rows.
///
/// A span of the key is as in polars: the window of a row with key `t` begins at `t - period` (or `t + offset`), ends `period`
/// later, and has all rows whose key lies in it, also equal keys in later rows. A number of rows is as in polars and pandas.
/// Windows end at the ends of the table and of the group.
///
/// ```
/// use halocline_table::{Closed, TableError, Window};
///
/// let hour = Window::period("1h")?; // up to the row's key
/// let day = Window::around("12h", "12h")?.closed(Closed::Both);
/// let days = Window::period("7i")?; // of an integer key
/// let rows = Window::rows(5)?.centered();
///
/// assert_eq!(hour, Window::period("1h")?);
/// assert!(matches!(Window::period("90"), Err(TableError::Duration { .. }))); // no unit
/// # Ok::<(), TableError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    text: String,
    pub(crate) extent: Extent,
    pub(crate) closed: Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Extent {
    /// Twice the distance from a row's key to both ends of its window, so that half of an odd period is exact.
    Span { is_time: bool, start: i128, end: i128 },
    /// The first row and the row after the last, relative to the window's row.
    Rows { from: i64, until: i64 },
}

/// A window in the units of a key: where it begins and ends, relative to its row. The end is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offsets {
    /// Rows with `key + from <= k < key + until`: sums of 64-bit keys and these may have 68 bits.
    Keys { from: i128, until: i128 },
    /// Rows `row + from .. row + until`.
    Rows { from: i64, until: i64 },
}

impl Offsets {
    /// Whether a window contains its own row.
    pub(crate) fn has_own_row(self) -> bool {
        match self {
            Self::Keys { from, until } => from <= 0 && until >= 1,
            Self::Rows { from, until } => from <= 0 && until >= 1,
        }
    }

    /// Whether no window has a row.
    pub(crate) fn is_empty(self) -> bool {
        match self {
            Self::Keys { from, until } => from >= until,
            Self::Rows { from, until } => from >= until,
        }
    }

    /// Whether the windows of consecutive rows may leave out rows between them.
    pub(crate) fn may_leave_gaps(self) -> bool {
        matches!(self, Self::Keys { .. }) && !self.has_own_row()
    }
}

impl Window {
    /// The time before a row's key, up to the key. Units: `ns`, `us`, `ms`, `s`, `m` (minutes), `h`, `d` (24 hours), `w`; of an
    /// integer key: `i`. Parts add up: `1h30m`.
    pub fn period(period: &str) -> Result<Self, TableError> {
        let length = Length::parse(period)?;
        Self::span(period.to_owned(), length, -2 * length.value(), 0)
    }

    /// The time from `before` before a row's key to `after` after it.
    pub fn around(before: &str, after: &str) -> Result<Self, TableError> {
        let text = format!("{before} before to {after} after");
        let (start, end) = (Length::parse(before)?, Length::parse(after)?);
        if !start.same_kind(end) {
            return Err(TableError::MixedUnits { window: text });
        }
        if start.value() < 0 || end.value() < 0 {
            return Err(TableError::NoLength { window: text });
        }
        Self::span(text, start, -2 * start.value(), 2 * end.value())
    }

    fn span(text: String, kind: Length, start: i128, end: i128) -> Result<Self, TableError> {
        if start >= end {
            return Err(TableError::NoLength { window: text });
        }
        let is_time = matches!(kind, Length::Time(_));
        Ok(Self { text, extent: Extent::Span { is_time, start, end }, closed: Closed::Right })
    }

    /// A number of rows: the last of them is the window's row.
    pub fn rows(rows: u32) -> Result<Self, TableError> {
        let text = format!("{rows} rows");
        if rows == 0 {
            return Err(TableError::NoLength { window: text });
        }
        let extent = Extent::Rows { from: 1 - i64::from(rows), until: 1 };
        Ok(Self { text, extent, closed: Closed::Right })
    }

    /// The window's row, with this many rows before and after it.
    pub fn rows_around(before: u32, after: u32) -> Self {
        let text = format!("{before} rows before to {after} rows after");
        let extent = Extent::Rows { from: -i64::from(before), until: i64::from(after) + 1 };
        Self { text, extent, closed: Closed::Right }
    }

    /// Which ends belong to it. Of windows of rows: `Left` and `Both` begin a row earlier, `Left` and `None` end a row earlier,
    /// as in pandas.
    pub fn closed(mut self, closed: Closed) -> Self {
        self.closed = closed;
        self
    }

    /// The window's row in the middle, half of the window on each side, as in pandas. It replaces an offset and a shift. Of an even number of rows, the row is the
    /// first of the second half.
    pub fn centered(mut self) -> Self {
        self.text = format!("{}, centred", self.text);
        self.extent = match self.extent {
            Extent::Span { is_time, start, end } => {
                let half = (end - start) / 2;
                Extent::Span { is_time, start: -half, end: half }
            }
            Extent::Rows { from, until } => {
                let right = (until - from + 1) / 2;
                Extent::Rows { from: right - (until - from), until: right }
            }
        };
        self
    }

    /// Moves the window by a length, later if it is positive. polars counts its `offset` from the row to the begin of the window:
    /// its offset `o` for a period `p` is the length `o + p` here.
    pub fn shifted(mut self, by: &str) -> Result<Self, TableError> {
        let length = Length::parse(by)?;
        let text = format!("{}, shifted by {by}", self.text);
        match &mut self.extent {
            Extent::Span { is_time, start, end } if *is_time == matches!(length, Length::Time(_)) => {
                *start += 2 * length.value();
                *end += 2 * length.value();
            }
            _ => return Err(TableError::MixedUnits { window: text }),
        }
        self.text = text;
        Ok(self)
    }

    /// The window begins at `offset` from the row's key, as in polars. It replaces a centre and a shift.
    pub fn offset(self, offset: &str) -> Result<Self, TableError> {
        let length = Length::parse(offset)?;
        let text = format!("{}, offset {offset}", self.text);
        match self.extent {
            Extent::Span { is_time, start, end } if is_time == matches!(length, Length::Time(_)) => {
                let begin = 2 * length.value();
                let extent = Extent::Span { is_time, start: begin, end: begin + end - start };
                Ok(Self { text, extent, ..self })
            }
            _ => Err(TableError::MixedUnits { window: text }),
        }
    }

    /// Moves a window of rows by a number of rows, later if it is positive.
    pub fn shifted_rows(mut self, by: i32) -> Result<Self, TableError> {
        let text = format!("{}, shifted by {by} rows", self.text);
        let Extent::Rows { from, until } = &mut self.extent else {
            return Err(TableError::MixedUnits { window: text });
        };
        *from += i64::from(by);
        *until += i64::from(by);
        self.text = text;
        Ok(self)
    }

    /// The number of rows, of a window of rows. Statistics of such windows need as many values, unless they say otherwise.
    pub(crate) fn row_count(&self) -> Option<u64> {
        match self.extent {
            Extent::Rows { from, until } => Some(until.abs_diff(from)),
            Extent::Span { .. } => None,
        }
    }

    /// The window in units of a key. `None`: its lengths are of another kind than the key.
    pub(crate) fn offsets(&self, kind: KeyKind) -> Option<Offsets> {
        let (left, right) = (self.closed.includes_left(), self.closed.includes_right());
        match (self.extent, kind) {
            (Extent::Rows { from, until }, _) => {
                let (from, until) = (from - i64::from(left), until - i64::from(!right));
                Some(Offsets::Rows { from, until: until.max(from) })
            }
            (Extent::Span { is_time: true, start, end }, KeyKind::Time { nanoseconds }) => {
                Some(whole(start, end, 2 * i128::from(nanoseconds), left, right))
            }
            (Extent::Span { is_time: false, start, end }, KeyKind::Integer) => {
                Some(whole(start, end, 2, left, right))
            }
            _ => None,
        }
    }
}

/// Two keys differ by less than this.
const BEYOND: i128 = 1 << 66;

/// The whole units between two ends: keys are whole, so an end between two of them moves to the next one inside.
fn whole(start: i128, end: i128, unit: i128, left: bool, right: bool) -> Offsets {
    let floor = |value: i128| value.div_euclid(unit);
    let ceil = |value: i128| -(-value).div_euclid(unit);
    let from = if left { ceil(start) } else { floor(start) + 1 };
    let until = if right { floor(end) + 1 } else { ceil(end) };
    // Beyond all keys, seen from any key.
    let clamp = |value: i128| value.clamp(-BEYOND, BEYOND);
    Offsets::Keys { from: clamp(from), until: clamp(until.max(from)) }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (closed {})", self.text, self.closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: KeyKind = KeyKind::Time { nanoseconds: 1_000 };
    const DAY: KeyKind = KeyKind::Time { nanoseconds: 86_400_000_000_000 };

    fn keys(window: Window, kind: KeyKind) -> (i128, i128) {
        match window.offsets(kind) {
            Some(Offsets::Keys { from, until }) => (from, until),
            other => panic!("{other:?}"),
        }
    }

    fn rows(window: Window) -> (i64, i64) {
        match window.offsets(MICRO) {
            Some(Offsets::Rows { from, until }) => (from, until),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_way_to_close_a_window_takes_other_keys() {
        let period = |closed| keys(Window::period("2us").unwrap().closed(closed), MICRO);
        assert_eq!(period(Closed::Right), (-1, 1));
        assert_eq!(period(Closed::Left), (-2, 0));
        assert_eq!(period(Closed::Both), (-2, 1));
        assert_eq!(period(Closed::None), (-1, 0));
    }

    #[test]
    fn an_offset_counts_from_the_key_and_a_shift_from_the_window() {
        let window = || Window::period("2us").unwrap();
        assert_eq!(keys(window().offset("1us").unwrap(), MICRO), (2, 4));
        assert_eq!(keys(window().shifted("3us").unwrap(), MICRO), (2, 4));
        assert_eq!(keys(window().offset("-9us").unwrap(), MICRO), (-8, -6));
        assert_eq!(keys(Window::around("1us", "3us").unwrap().closed(Closed::Both), MICRO), (-1, 4));
    }

    #[test]
    fn ends_between_two_keys_are_exact() {
        let half_days = |closed| keys(Window::period("36h").unwrap().closed(closed), DAY);
        assert_eq!(half_days(Closed::Right), (-1, 1));
        assert_eq!(half_days(Closed::Left), (-1, 0));
        let odd = |closed| keys(Window::period("5i").unwrap().centered().closed(closed), KeyKind::Integer);
        assert_eq!([odd(Closed::Both), odd(Closed::None)], [(-2, 3), (-2, 3)]);
    }

    #[test]
    fn windows_beyond_the_time_type_saturate() {
        let nano = KeyKind::Time { nanoseconds: 1 };
        let weeks = 20_000 * 604_800_000_000_000;
        assert_eq!(keys(Window::period("20000w").unwrap(), nano), (1 - weeks, 1));
        assert_eq!(keys(Window::around("1s", "20000w").unwrap(), nano).1, weeks + 1);
        let centuries = format!("{}w", i64::MAX);
        assert_eq!(keys(Window::period(&centuries).unwrap(), nano), (-BEYOND, 1));
    }

    #[test]
    fn rows_count_as_in_polars_and_pandas() {
        let window = |rows| Window::rows(rows).unwrap();
        assert_eq!(rows(window(3)), (-2, 1));
        assert_eq!(rows(window(3).centered()), (-1, 2));
        assert_eq!(rows(window(4).centered()), (-2, 2));
        assert_eq!(rows(window(3).closed(Closed::Left)), (-3, 0));
        assert_eq!(rows(window(3).closed(Closed::Both)), (-3, 1));
        assert_eq!(rows(window(3).closed(Closed::None)), (-2, 0));
        assert_eq!(rows(Window::rows_around(2, 3)), (-2, 4));
        assert_eq!(rows(window(1).shifted_rows(-5).unwrap()), (-5, -4));
    }

    #[test]
    fn windows_without_length_and_mixed_units_are_refused() {
        for window in
            [Window::period("0s"), Window::period("-5s"), Window::rows(0), Window::around("0s", "0s")]
        {
            assert!(matches!(window, Err(TableError::NoLength { .. })), "{window:?}");
        }
        for window in [
            Window::around("1s", "1i"),
            Window::period("1s").unwrap().offset("1i"),
            Window::period("1i").unwrap().shifted("1s"),
            Window::rows(3).unwrap().offset("1s"),
            Window::period("1s").unwrap().shifted_rows(1),
        ] {
            assert!(matches!(window, Err(TableError::MixedUnits { .. })), "{window:?}");
        }
        assert_eq!(Window::period("1s").unwrap().offsets(KeyKind::Integer), None);
        assert_eq!(Window::period("1i").unwrap().offsets(DAY), None);
    }
}
