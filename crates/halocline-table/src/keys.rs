//! The column that rows are sorted by, as 64-bit integers in its order.

use arrow_array::cast::AsArray;
use arrow_array::temporal_conversions as temporal;
use arrow_array::types::{
    Date32Type, Date64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, TimeUnit};
use std::ops::Range;

/// The unit of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// So many nanoseconds.
    Time { nanoseconds: i64 },
    /// One of an integer.
    Integer,
}

/// The type of a key column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyType {
    pub(crate) kind: KeyKind,
    data_type: DataType,
}

/// `u64` in the order of `i64`.
const FLIP: u64 = 1 << 63;

impl KeyType {
    /// `None`: no type of a key.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        let time = |nanoseconds| KeyKind::Time { nanoseconds };
        let kind = match data_type {
            DataType::Timestamp(TimeUnit::Second, _) => time(1_000_000_000),
            DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => time(1_000_000),
            DataType::Timestamp(TimeUnit::Microsecond, _) => time(1_000),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => time(1),
            DataType::Date32 => time(86_400_000_000_000),
            integer if integer.is_integer() => KeyKind::Integer,
            _ => return None,
        };
        Some(Self { kind, data_type: data_type.clone() })
    }

    /// The keys of a column of this type. Its own buffer, if that has 64-bit signed values.
    pub(crate) fn keys(&self, column: &dyn Array) -> ScalarBuffer<i64> {
        fn same<T: ArrowPrimitiveType<Native = i64>>(column: &dyn Array) -> ScalarBuffer<i64> {
            column.as_primitive::<T>().values().clone()
        }
        fn wider<T: ArrowPrimitiveType<Native: Into<i64>>>(column: &dyn Array) -> ScalarBuffer<i64> {
            column.as_primitive::<T>().values().iter().map(|&value| value.into()).collect()
        }
        match &self.data_type {
            DataType::Timestamp(TimeUnit::Second, _) => same::<TimestampSecondType>(column),
            DataType::Timestamp(TimeUnit::Millisecond, _) => same::<TimestampMillisecondType>(column),
            DataType::Timestamp(TimeUnit::Microsecond, _) => same::<TimestampMicrosecondType>(column),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => same::<TimestampNanosecondType>(column),
            DataType::Date64 => same::<Date64Type>(column),
            DataType::Date32 => wider::<Date32Type>(column),
            DataType::Int8 => wider::<Int8Type>(column),
            DataType::Int16 => wider::<Int16Type>(column),
            DataType::Int32 => wider::<Int32Type>(column),
            DataType::UInt8 => wider::<UInt8Type>(column),
            DataType::UInt16 => wider::<UInt16Type>(column),
            DataType::UInt32 => wider::<UInt32Type>(column),
            DataType::UInt64 => {
                let values = column.as_primitive::<UInt64Type>().values();
                values.iter().map(|&value| (value ^ FLIP) as i64).collect()
            }
            _ => same::<Int64Type>(column),
        }
    }

    /// A key as a reader knows it.
    pub(crate) fn text(&self, key: i64) -> String {
        let time = match &self.data_type {
            DataType::Timestamp(TimeUnit::Second, _) => temporal::timestamp_s_to_datetime(key),
            DataType::Timestamp(TimeUnit::Millisecond, _) => temporal::timestamp_ms_to_datetime(key),
            DataType::Timestamp(TimeUnit::Microsecond, _) => temporal::timestamp_us_to_datetime(key),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => temporal::timestamp_ns_to_datetime(key),
            DataType::Date64 => temporal::date64_to_datetime(key),
            DataType::Date32 => {
                let date = i32::try_from(key).ok().and_then(temporal::date32_to_datetime);
                return date.map_or_else(|| key.to_string(), |date| date.date().to_string());
            }
            DataType::UInt64 => return (key as u64 ^ FLIP).to_string(),
            _ => None,
        };
        let zone = match &self.data_type {
            DataType::Timestamp(_, Some(_)) => " UTC",
            _ => "",
        };
        time.map_or_else(|| key.to_string(), |time| format!("{time}{zone}"))
    }
}

/// The keys of all rows, in the pieces of their batches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pieces: Vec<ScalarBuffer<i64>>,
    /// The first row of each piece, then the number of rows.
    starts: Vec<usize>,
}

impl Keys {
    /// Pieces without rows are left out.
    pub(crate) fn new(pieces: impl IntoIterator<Item = ScalarBuffer<i64>>) -> Self {
        let pieces: Vec<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let mut starts = vec![0];
        for piece in &pieces {
            starts.push(starts[starts.len() - 1] + piece.len());
        }
        Self { pieces, starts }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The keys of each batch.
    pub(crate) fn pieces(&self) -> &[ScalarBuffer<i64>] {
        &self.pieces
    }

    /// The row after the piece of a row.
    pub(crate) fn piece_end(&self, row: usize) -> usize {
        self.starts.get(self.piece(row) + 1).copied().unwrap_or(row)
    }

    /// The first row of a range whose key is less than that of the row before, which is in the range, too.
    pub(crate) fn descends(&self, range: Range<usize>) -> Option<usize> {
        let mut before = None;
        let mut at = range.start;
        while at < range.end {
            let piece = self.piece(at);
            let first = self.starts[piece];
            let end = range.end.min(self.starts[piece + 1]);
            let keys = &self.pieces[piece][at - first..end - first];
            if before.is_some_and(|before| keys[0] < before) {
                return Some(at);
            }
            if !keys.is_sorted()
                && let Some(place) = keys.windows(2).position(|pair| pair[1] < pair[0])
            {
                return Some(at + place + 1);
            }
            (before, at) = (keys.last().copied(), end);
        }
        None
    }

    /// The key of a row.
    pub(crate) fn get(&self, row: usize) -> i64 {
        let piece = self.piece(row);
        self.pieces[piece][row - self.starts[piece]]
    }

    /// The first row of a range whose key is at least `row_key + offset`; the end if there is none.
    pub(crate) fn first_at(&self, range: Range<usize>, row_key: i64, offset: i128) -> usize {
        let (mut low, mut high) = (range.start, range.end);
        let bound = i128::from(row_key) + offset;
        while low < high {
            let middle = low + (high - low) / 2;
            if i128::from(self.get(middle)) >= bound { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Reads keys in order, from a row on.
    pub(crate) fn cursor(&self, row: usize) -> Cursor<'_> {
        let piece = self.piece(row);
        let current = self.pieces.get(piece).map_or(&[][..], |piece| piece);
        Cursor { keys: self, piece, current, first: self.starts.get(piece).copied().unwrap_or(row), row }
    }

    fn piece(&self, row: usize) -> usize {
        self.starts.partition_point(|&start| start <= row).saturating_sub(1)
    }
}

/// A position among keys that only moves forward.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    keys: &'a Keys,
    piece: usize,
    current: &'a [i64],
    /// The first row of the current piece.
    first: usize,
    /// The row.
    pub(crate) row: usize,
}

impl Cursor<'_> {
    /// The key of the row, unless it is after the last one.
    #[inline]
    pub(crate) fn key(&mut self) -> Option<i64> {
        match self.current.get(self.row - self.first) {
            Some(&key) => Some(key),
            None => self.next_piece(),
        }
    }

    #[cold]
    fn next_piece(&mut self) -> Option<i64> {
        let next = self.keys.pieces.get(self.piece + 1)?;
        self.piece += 1;
        (self.current, self.first) = (next, self.row);
        next.first().copied()
    }

    /// Moves to the first row from here on whose key is at least `row_key + offset`, or to row `end`.
    #[inline]
    pub(crate) fn seek(&mut self, end: usize, row_key: i64, offset: i128) {
        let bound = i128::from(row_key) + offset;
        while self.row < end && self.key().is_some_and(|key| i128::from(key) < bound) {
            self.row += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int8Array, TimestampSecondArray, UInt64Array};

    #[test]
    fn unsigned_keys_keep_their_order_and_text() {
        let key = KeyType::of(&DataType::UInt64).unwrap();
        let keys = key.keys(&UInt64Array::from(vec![0, 5, u64::MAX]));
        assert!(keys.is_sorted());
        assert_eq!(keys.iter().map(|&k| key.text(k)).collect::<Vec<_>>(), ["0", "5", "18446744073709551615"]);
    }

    #[test]
    fn keys_have_the_text_of_their_type() {
        let of = |data_type: DataType, key| KeyType::of(&data_type).unwrap().text(key);
        assert_eq!(of(DataType::Date32, 1), "1970-01-02");
        assert_eq!(of(DataType::Timestamp(TimeUnit::Second, None), 61), "1970-01-01 00:01:01");
        assert_eq!(
            of(DataType::Timestamp(TimeUnit::Millisecond, Some("Asia/Tokyo".into())), 0),
            "1970-01-01 00:00:00 UTC"
        );
        assert_eq!(of(DataType::Timestamp(TimeUnit::Second, None), i64::MAX), i64::MAX.to_string());
        assert_eq!(of(DataType::Int16, -3), "-3");
        assert_eq!(KeyType::of(&DataType::Float64), None);
    }

    #[test]
    fn a_cursor_reads_the_pieces_in_order_and_a_search_finds_rows() {
        let key = KeyType::of(&DataType::Int8).unwrap();
        let piece = |values: Vec<i8>| key.keys(&Int8Array::from(values));
        let keys = Keys::new([piece(vec![1, 2]), piece(vec![]), piece(vec![2]), piece(vec![5, 9])]);
        for start in 0..=keys.len() {
            let mut cursor = keys.cursor(start);
            let mut read = Vec::new();
            while let Some(key) = cursor.key() {
                assert_eq!(keys.get(cursor.row), key);
                read.push(key);
                cursor.row += 1;
            }
            assert_eq!(read, [1, 2, 2, 5, 9][start..]);
            assert_eq!(cursor.row, 5);
        }
        assert_eq!(keys.first_at(0..5, 2, 0), 1);
        assert_eq!(keys.first_at(0..5, 2, 1), 3);
        assert_eq!(keys.first_at(0..4, 2, 99), 4);
    }

    #[test]
    fn bounds_beyond_the_type_lie_beyond_all_keys_and_spans_beyond_63_bits_are_exact() {
        let key = KeyType::of(&DataType::Int64).unwrap();
        let keys = Keys::new([key.keys(&arrow_array::Int64Array::from(vec![i64::MIN, 0, i64::MAX]))]);
        let span = 1i128 << 63;
        for (row_key, offset, row) in [
            (i64::MAX, 1, 3),
            (i64::MIN, -1, 0),
            (i64::MAX, 0, 2),
            (i64::MIN, span, 1),
            (i64::MIN, span + 1, 2),
        ] {
            assert_eq!(keys.first_at(0..3, row_key, offset), row, "{row_key} + {offset}");
            let mut cursor = keys.cursor(0);
            cursor.seek(3, row_key, offset);
            assert_eq!(cursor.row, row, "{row_key} + {offset}");
        }
    }

    #[test]
    fn a_slice_of_a_column_shares_its_buffer() {
        let column = TimestampSecondArray::from(vec![1, 2, 3, 4]);
        let slice = column.slice(1, 2);
        let keys = KeyType::of(column.data_type()).unwrap().keys(&slice);
        assert_eq!(&keys[..], [2, 3]);
        assert_eq!(keys.as_ptr(), column.values()[1..].as_ptr());
    }
}
