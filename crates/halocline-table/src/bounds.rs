//! The rows of each row's window, found by two positions that only move forward.

use crate::keys::{Cursor, Keys};
use crate::window::Offsets;
use std::ops::Range;

/// The rows of a rank with their context: sorted by key within each group.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) keys: Keys,
    /// The row after the last of each group.
    pub(crate) group_ends: Vec<usize>,
    pub(crate) offsets: Offsets,
    /// Where rows of the whole table are missing that no window needs, ascending. Only windows of rows heed them.
    pub(crate) gaps: Vec<Gap>,
}

/// Rows of the whole table that are missing before a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) row: usize,
    pub(crate) missing: usize,
}

impl Rows {
    /// The place of a row if none were missing.
    fn place(&self, row: usize) -> usize {
        row + self.gaps.iter().filter(|gap| gap.row <= row).map(|gap| gap.missing).sum::<usize>()
    }

    /// The first row whose place is at least `place`.
    fn row_at(&self, place: usize) -> usize {
        let mut missing = 0;
        for gap in &self.gaps {
            if place < gap.row + missing {
                break;
            }
            if place < gap.row + missing + gap.missing {
                return gap.row;
            }
            missing += gap.missing;
        }
        place - missing
    }
}

/// Finds the windows of consecutive rows, in time proportional to the rows that it passes.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    rows: &'a Rows,
    /// The next row, and the row after the last.
    at: Cursor<'a>,
    end: usize,
    low: Cursor<'a>,
    high: Cursor<'a>,
    /// The group of the next row.
    group: usize,
    group_rows: Range<usize>,
}

impl<'a> Sweep<'a> {
    /// The windows of `range`.
    pub(crate) fn new(rows: &'a Rows, range: Range<usize>) -> Self {
        let group = rows.group_ends.partition_point(|&end| end <= range.start);
        let (low, high) = (rows.keys.cursor(0), rows.keys.cursor(0));
        let at = rows.keys.cursor(range.start);
        let mut sweep = Self { rows, at, end: range.end, low, high, group, group_rows: 0..0 };
        sweep.enter(range.start);
        sweep
    }

    /// Begins with a row in group `group`.
    fn enter(&mut self, row: usize) {
        let Self { rows, group, .. } = *self;
        let Some(&end) = rows.group_ends.get(group) else { return };
        let start = group.checked_sub(1).map_or(0, |before| rows.group_ends[before]);
        self.group_rows = start..end;
        if let Offsets::Keys { from, until } = rows.offsets {
            // Most windows that begin with their group begin at its first row.
            let first = |offset| match row == start {
                true => start,
                false => rows.keys.first_at(start..end, rows.keys.get(row), offset),
            };
            self.low = rows.keys.cursor(first(from));
            self.high = rows.keys.cursor(first(until));
        }
    }

    /// Replaces `windows` by those of the next rows, at most `most`. None follow if it is empty then.
    pub(crate) fn next(&mut self, most: usize, windows: &mut Vec<Range<usize>>) {
        windows.clear();
        let last = self.end.min(self.at.row + most);
        while self.at.row < last {
            if self.at.row >= self.group_rows.end {
                self.group += 1;
                self.enter(self.at.row);
            }
            let stop = last.min(self.group_rows.end);
            match self.rows.offsets {
                Offsets::Keys { from, until } => self.keys(from, until, stop, windows),
                Offsets::Rows { from, until } => self.numbers(from, until, stop, windows),
            }
        }
    }

    fn keys(&mut self, from: i128, until: i128, stop: usize, windows: &mut Vec<Range<usize>>) {
        let end = self.group_rows.end;
        while self.at.row < stop {
            let Some(key) = self.at.key() else { return };
            self.low.seek(end, key, from);
            self.high.seek(end, key, until);
            windows.push(self.low.row..self.high.row.max(self.low.row));
            self.at.row += 1;
        }
    }

    fn numbers(&mut self, from: i64, until: i64, stop: usize, windows: &mut Vec<Range<usize>>) {
        let rows = self.rows;
        let Range { start, end } = self.group_rows;
        // The place after the last row: a gap may follow it.
        let (first, after) =
            (rows.place(start), if start < end { rows.place(end - 1) + 1 } else { rows.place(end) });
        let moved = |row: usize, by: i64| match by {
            0.. => row.saturating_add(by as usize).clamp(first, after),
            _ => row.saturating_sub(by.unsigned_abs() as usize).clamp(first, after),
        };
        if rows.gaps.is_empty() {
            windows.extend((self.at.row..stop).map(|row| moved(row, from)..moved(row, until)));
        } else {
            windows.extend((self.at.row..stop).map(|row| {
                let place = rows.place(row);
                rows.row_at(moved(place, from))..rows.row_at(moved(place, until))
            }));
        }
        // Skips keys that it does not need; `enter` finds the next cursor positions.
        self.at = self.rows.keys.cursor(stop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_buffer::ScalarBuffer;
    use proptest::prelude::*;

    /// By comparing each row with each other of its group.
    fn plain(keys: &[i64], group_ends: &[usize], offsets: Offsets) -> Vec<Range<usize>> {
        let group = |row: usize| group_ends.partition_point(|&end| end <= row);
        let of_row = |row: usize| {
            let is_in = |other: &usize| {
                let (key, other_key) = (i128::from(keys[row]), i128::from(keys[*other]));
                group(*other) == group(row)
                    && match offsets {
                        Offsets::Keys { from, until } => other_key >= key + from && other_key < key + until,
                        Offsets::Rows { from, until } => {
                            let distance = *other as i64 - row as i64;
                            from <= distance && distance < until
                        }
                    }
            };
            let members: Vec<usize> = (0..keys.len()).filter(is_in).collect();
            members.first().map_or(0..0, |&first| first..first + members.len())
        };
        (0..keys.len()).map(of_row).collect()
    }

    fn offsets() -> impl Strategy<Value = Offsets> {
        let end = prop_oneof![8 => -6i64..7, 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
        (any::<bool>(), end.clone(), end).prop_map(|(is_keys, a, b)| {
            let (from, until) = (a.min(b), a.max(b));
            match is_keys {
                // Up to beyond all keys.
                true => Offsets::Keys { from: 2 * i128::from(from), until: 2 * i128::from(until) },
                false => Offsets::Rows { from, until },
            }
        })
    }

    /// Of rows 0 to 20 those that no window needs are missing: 5 to 9, and 13 to 17.
    #[test]
    fn windows_of_rows_count_the_rows_that_are_missing() {
        let present: Vec<usize> = (0..5).chain(10..13).chain(18..21).collect();
        let gaps = vec![Gap { row: 5, missing: 5 }, Gap { row: 8, missing: 5 }];
        for (from, until) in [(-8, -5), (-10, -8), (6, 9), (8, 30), (-30, -5)] {
            let keys =
                Keys::new([ScalarBuffer::from(present.iter().map(|&row| row as i64).collect::<Vec<_>>())]);
            let rows = Rows {
                keys,
                group_ends: vec![11],
                offsets: Offsets::Rows { from, until },
                gaps: gaps.clone(),
            };
            let mut windows = Vec::new();
            Sweep::new(&rows, 5..8).next(9, &mut windows);
            for (row, window) in (10i64..).zip(&windows) {
                let due = |&other: &usize| (row + from..row + until).contains(&(other as i64));
                let due: Vec<usize> = present.iter().copied().filter(due).collect();
                assert_eq!(present[window.clone()], due, "{from} to {until} of row {row}");
            }
            assert_eq!(windows.len(), 3);
        }
    }

    proptest! {
        #[test]
        fn windows_equal_those_of_comparing_all_rows(
            steps in proptest::collection::vec((0i64..4, 0u8..6, 0u8..3), 0..40),
            base in prop_oneof![Just(0i64), Just(i64::MIN), Just(i64::MAX - 120)],
            offsets in offsets(),
            block in 1usize..9,
            start in 0usize..40,
        ) {
            let (mut keys, mut group_ends, mut pieces) = (Vec::new(), Vec::new(), vec![Vec::new()]);
            let mut key = base;
            for (row, &(step, group, piece)) in steps.iter().enumerate() {
                if group == 0 && row > 0 {
                    group_ends.push(row);
                    key = base;
                }
                key += step;
                keys.push(key);
                if piece == 0 {
                    pieces.push(Vec::new());
                }
                pieces.last_mut().unwrap().push(key);
            }
            if !keys.is_empty() {
                group_ends.push(keys.len());
            }
            let expected = plain(&keys, &group_ends, offsets);
            let keys = Keys::new(pieces.into_iter().map(ScalarBuffer::from));
            let rows = Rows { keys, group_ends, offsets, gaps: Vec::new() };
            let start = start.min(rows.keys.len());
            let (mut found, mut windows) = (Vec::new(), Vec::new());
            let mut sweep = Sweep::new(&rows, start..rows.keys.len());
            loop {
                sweep.next(block, &mut windows);
                if windows.is_empty() {
                    break;
                }
                found.append(&mut windows);
            }
            prop_assert_eq!(found.len(), expected.len() - start);
            for (found, expected) in found.iter().zip(&expected[start..]) {
                prop_assert!(found == expected || found.is_empty() && expected.is_empty(), "{:?} {:?}", found, expected);
            }
            prop_assert!(found.windows(2).all(|pair| pair[0].start <= pair[1].start && pair[0].end <= pair[1].end));
        }
    }
}
