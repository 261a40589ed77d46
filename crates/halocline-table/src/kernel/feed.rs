//! The values of a column that consists of several pieces, as one slice for the rows of some windows.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use std::ops::Range;

/// Values of consecutive rows.
#[derive(Debug)]
pub(crate) struct Span<'a, T> {
    pub(crate) values: &'a [T],
    /// Which values are not null. `None`: all.
    pub(crate) valid: Option<&'a [bool]>,
    /// The row of the first value.
    pub(crate) first: usize,
}

impl<T: Copy> Span<'_, T> {
    /// The value of a row, unless it is null.
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Option<T> {
        let at = row - self.first;
        self.valid.is_none_or(|valid| valid[at]).then(|| self.values[at])
    }
}

/// A type that statistics compute with.
pub(crate) trait Value: Copy + Default + Send + 'static {
    /// The values of a column of this type itself.
    fn of(column: &dyn Array) -> Option<&[Self]>;

    /// Appends values of a numeric column, converted.
    fn append(column: &dyn Array, rows: Range<usize>, values: &mut Vec<Self>);
}

macro_rules! values {
    ($($native:ty = $own:ty;)*) => {$(
        impl Value for $native {
            fn of(column: &dyn Array) -> Option<&[Self]> {
                column.as_primitive_opt::<$own>().map(|column| &column.values()[..])
            }

            fn append(column: &dyn Array, rows: Range<usize>, values: &mut Vec<Self>) {
                fn copy<P: ArrowPrimitiveType>(column: &dyn Array, rows: Range<usize>) -> &[P::Native] {
                    &column.as_primitive::<P>().values()[rows]
                }
                match column.data_type() {
                    DataType::Float64 => values.extend(copy::<Float64Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::Float32 => values.extend(copy::<Float32Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::Int64 => values.extend(copy::<Int64Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::Int32 => values.extend(copy::<Int32Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::Int16 => values.extend(copy::<Int16Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::Int8 => values.extend(copy::<Int8Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::UInt64 => values.extend(copy::<UInt64Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::UInt32 => values.extend(copy::<UInt32Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::UInt16 => values.extend(copy::<UInt16Type>(column, rows).iter().map(|&v| v as Self)),
                    DataType::UInt8 => values.extend(copy::<UInt8Type>(column, rows).iter().map(|&v| v as Self)),
                    // Only their presence counts.
                    _ => values.extend(rows.map(|_| Self::default())),
                }
            }
        }
    )*};
}

values! {
    f64 = Float64Type;
    i64 = Int64Type;
    u64 = UInt64Type;
}

/// Reads a column in stretches of rows whose ends only move forward.
#[derive(Debug)]
pub(crate) struct Feed<'a, T> {
    pieces: &'a [ArrayRef],
    /// The first row of each piece, then the number of rows.
    starts: Vec<usize>,
    /// The nulls of each piece, also those of values that a dictionary or a run refers to.
    nulls: Vec<Option<NullBuffer>>,
    has_nulls: bool,
    /// Copied values, of rows from `first` on.
    values: Vec<T>,
    valid: Vec<bool>,
    first: usize,
}

impl<'a, T: Value> Feed<'a, T> {
    /// Each piece has at least a row.
    pub(crate) fn new(pieces: &'a [ArrayRef]) -> Self {
        let mut starts = vec![0];
        for piece in pieces {
            starts.push(starts[starts.len() - 1] + piece.len());
        }
        let nulls: Vec<_> = pieces.iter().map(|piece| piece.logical_nulls()).collect();
        let has_nulls = nulls.iter().flatten().any(|nulls| nulls.null_count() > 0);
        Self { pieces, starts, nulls, has_nulls, values: Vec::new(), valid: Vec::new(), first: 0 }
    }

    /// The rows of all pieces.
    pub(crate) fn rows(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The values of some rows. They are in place if they lie in one piece, have the right type, and no column has nulls.
    pub(crate) fn span(&mut self, rows: Range<usize>) -> Span<'_, T> {
        let piece = self.starts.partition_point(|&start| start <= rows.start).saturating_sub(1);
        if let Some(column) = self.pieces.get(piece)
            && !self.has_nulls
            && rows.end <= self.starts[piece + 1]
            && let Some(values) = T::of(&**column)
        {
            let first = self.starts[piece];
            return Span { values, valid: None, first };
        }
        self.copy(rows);
        Span { values: &self.values, valid: self.has_nulls.then_some(&self.valid), first: self.first }
    }

    /// Extends the copied values to the end of `rows`, and drops those before once they are the larger half.
    fn copy(&mut self, rows: Range<usize>) {
        let mut end = self.first + self.values.len();
        if rows.start < self.first || rows.start >= end {
            self.values.clear();
            self.valid.clear();
            (self.first, end) = (rows.start, rows.start);
        }
        let dead = rows.start - self.first;
        if dead > self.values.len() / 2 {
            self.values.drain(..dead);
            self.valid.drain(..dead.min(self.valid.len()));
            self.first = rows.start;
        }
        let mut piece = self.starts.partition_point(|&start| start <= end).saturating_sub(1);
        while end < rows.end && piece < self.pieces.len() {
            let column = &*self.pieces[piece];
            let stop = rows.end.min(self.starts[piece + 1]);
            let within = end - self.starts[piece]..stop - self.starts[piece];
            T::append(column, within.clone(), &mut self.values);
            if self.has_nulls {
                match &self.nulls[piece] {
                    Some(nulls) => self.valid.extend(within.map(|row| nulls.is_valid(row))),
                    None => self.valid.extend(within.map(|_| true)),
                }
            }
            (end, piece) = (stop, piece + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int16Array};
    use std::sync::Arc;

    #[test]
    fn values_in_one_piece_stay_where_they_are() {
        let pieces = [2, 3].map(|rows| Arc::new(Float64Array::from(vec![1.5; rows])) as ArrayRef);
        let mut feed = Feed::<f64>::new(&pieces);
        let own = pieces[1].as_primitive::<Float64Type>().values().as_ptr();
        let span = feed.span(2..5);
        assert_eq!((span.values.as_ptr(), span.first), (own, 2));
        assert_eq!(feed.span(1..5).get(4), Some(1.5));
    }

    #[test]
    fn pieces_with_nulls_and_other_types_are_read_as_one() {
        let values: Vec<Option<i16>> = (0..50).map(|v| (v % 7 != 0).then_some(v)).collect();
        let pieces: Vec<ArrayRef> =
            values.chunks(6).map(|part| Arc::new(Int16Array::from(part.to_vec())) as ArrayRef).collect();
        let mut feed = Feed::<f64>::new(&pieces);
        for rows in [0..3, 0..9, 8..9, 8..20, 19..49, 49..50, 50..50] {
            let span = feed.span(rows.clone());
            for row in rows {
                assert_eq!(span.get(row), values[row].map(f64::from), "row {row}");
            }
        }
    }
}
