//! Results of a statistic, written by several threads into one array.

use arrow_array::types::{Float32Type, Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, Float64Array, Int64Array, PrimitiveArray, UInt64Array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use rustix::mm::{Advice, madvise};
use std::sync::Arc;

/// The type that a statistic is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Signed,
    Unsigned,
}

/// All results of a statistic.
#[derive(Debug)]
pub(crate) struct Output {
    values: Values,
    /// A bit for each result that is not null.
    valid: Vec<u8>,
}

#[derive(Debug)]
enum Values {
    Float(Vec<f64>),
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
}

/// The results that one thread writes.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    Float(Target<'a, f64>),
    Signed(Target<'a, i64>),
    Unsigned(Target<'a, u64>),
}

/// Where results go, in order.
#[derive(Debug)]
pub(crate) struct Target<'a, T> {
    values: &'a mut [T],
    valid: &'a mut [u8],
    written: usize,
    /// Which results of a call are not null.
    present: Vec<bool>,
}

impl<T> Target<'_, T> {
    /// Writes the next results. All calls but the last write a multiple of 8.
    pub(crate) fn fill(&mut self, count: usize, write: impl FnOnce(&mut [T], &mut [bool])) {
        self.present.resize(count, false);
        write(&mut self.values[self.written..self.written + count], &mut self.present);
        let bytes = self.valid[self.written / 8..].iter_mut();
        for (byte, present) in bytes.zip(self.present.chunks(8)) {
            *byte = present.iter().rev().fold(0, |bits, &present| bits << 1 | u8::from(present));
        }
        self.written += count;
    }
}

fn split<'a, T>(
    values: &'a mut [T],
    valid: &'a mut [u8],
    each: usize,
) -> impl Iterator<Item = Target<'a, T>> {
    let parts = values.chunks_mut(each).zip(valid.chunks_mut(each / 8));
    parts.map(|(values, valid)| Target { values, valid, written: 0, present: Vec::new() })
}

/// The fewest bytes for which huge pages pay.
const LARGE: usize = 4 << 20;

/// The same memory in huge pages, if it is large and was not touched yet: otherwise each page of 4 KiB is zeroed at a fault of its own.
fn in_huge_pages<T>(mut values: Vec<T>) -> Vec<T> {
    let (page, bytes) = (rustix::param::page_size(), size_of_val(&values[..]));
    if bytes >= LARGE {
        let start = values.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(page);
        let length = (bytes - skipped) / page * page;
        // SAFETY: whole pages within the memory of `values`. The advice does not change what they hold.
        let advised = unsafe { madvise(start.add(skipped).cast(), length, Advice::LinuxHugepage) };
        // Without huge pages it only takes longer.
        let _ = advised;
    }
    values
}

impl Output {
    pub(crate) fn new(kind: Kind, count: usize) -> Self {
        let values = match kind {
            Kind::Float => Values::Float(in_huge_pages(vec![0.0; count])),
            Kind::Signed => Values::Signed(in_huge_pages(vec![0; count])),
            Kind::Unsigned => Values::Unsigned(in_huge_pages(vec![0; count])),
        };
        Self { values, valid: vec![0; count.div_ceil(8)] }
    }

    /// Parts of `each` results, a multiple of 8; the last part may have fewer.
    pub(crate) fn split(&mut self, each: usize) -> Vec<Part<'_>> {
        match &mut self.values {
            Values::Float(values) => split(values, &mut self.valid, each).map(Part::Float).collect(),
            Values::Signed(values) => split(values, &mut self.valid, each).map(Part::Signed).collect(),
            Values::Unsigned(values) => split(values, &mut self.valid, each).map(Part::Unsigned).collect(),
        }
    }

    /// The results as an array of a numeric type. Smaller types have the range of what was computed.
    pub(crate) fn finish(self, data_type: &DataType) -> ArrayRef {
        let count = match &self.values {
            Values::Float(values) => values.len(),
            Values::Signed(values) => values.len(),
            Values::Unsigned(values) => values.len(),
        };
        let bits = BooleanBuffer::new(Buffer::from_vec(self.valid), 0, count);
        let nulls = Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0);
        fn narrow<T: ArrowPrimitiveType, V>(
            values: Vec<V>,
            nulls: Option<NullBuffer>,
            to: fn(V) -> T::Native,
        ) -> ArrayRef {
            let values: ScalarBuffer<T::Native> = values.into_iter().map(to).collect();
            Arc::new(PrimitiveArray::<T>::new(values, nulls))
        }
        match (self.values, data_type) {
            (Values::Float(values), DataType::Float32) => {
                narrow::<Float32Type, _>(values, nulls, |v| v as f32)
            }
            (Values::Float(values), _) => Arc::new(Float64Array::new(values.into(), nulls)),
            (Values::Signed(values), DataType::Int8) => narrow::<Int8Type, _>(values, nulls, |v| v as i8),
            (Values::Signed(values), DataType::Int16) => narrow::<Int16Type, _>(values, nulls, |v| v as i16),
            (Values::Signed(values), DataType::Int32) => narrow::<Int32Type, _>(values, nulls, |v| v as i32),
            (Values::Signed(values), _) => Arc::new(Int64Array::new(values.into(), nulls)),
            (Values::Unsigned(values), DataType::UInt8) => narrow::<UInt8Type, _>(values, nulls, |v| v as u8),
            (Values::Unsigned(values), DataType::UInt16) => {
                narrow::<UInt16Type, _>(values, nulls, |v| v as u16)
            }
            (Values::Unsigned(values), DataType::UInt32) => {
                narrow::<UInt32Type, _>(values, nulls, |v| v as u32)
            }
            (Values::Unsigned(values), _) => Arc::new(UInt64Array::new(values.into(), nulls)),
        }
    }
}
