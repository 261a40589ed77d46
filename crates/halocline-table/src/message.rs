//! Messages of the protocols: a header, rows as an Arrow IPC stream, and a checksum of both.

use crate::demand::{Demand, Side};
use crate::error::TableError;
use crate::keys::Keys;
use crate::table::{Sorted, columns_of};
use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType};
use serde::{Deserialize, Serialize};
use std::io::Cursor;

/// What a message says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Header {
    /// The rows that the sender needs from a side. `None`: none.
    Demand(Side, Option<Demand>),
    /// Rows for the receiver, from that side of it; `is_last`: no more follow (FIN).
    Rows { side: Side, rows: u64, is_last: bool },
    /// The exchange has failed (ABORT).
    Abort(TableError),
}

/// Rows that have arrived, in order.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) keys: Keys,
}

const WHAT: &str = "message of a rolling window";

/// Encodes a message. `batches`: the rows of [`Header::Rows`].
pub(crate) fn encode(
    header: &Header,
    sorted: &Sorted,
    batches: &[RecordBatch],
    rank: usize,
) -> Result<Vec<u8>, TableError> {
    let failed = |why: String| TableError::Arrow { rank, what: "encode rows".to_owned(), why };
    let bytes = postcard::to_allocvec(header).map_err(|why| failed(why.to_string()))?;
    if batches.is_empty() {
        return Ok(with_checksum(bytes));
    }
    let write = || -> Result<Vec<u8>, ArrowError> {
        let mut writer = StreamWriter::try_new(bytes, &sorted.schema)?;
        for batch in batches {
            let columns = batch.columns().iter().map(compact).collect();
            writer.write(&RecordBatch::try_new(sorted.schema.clone(), columns)?)?;
        }
        writer.into_inner()
    };
    write().map(with_checksum).map_err(|why| failed(why.to_string()))
}

/// Appends the checksum of all bytes. Arrow does not promise to refuse changed bytes without a panic.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// 64 bits that depend on each byte and on its place.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    tail.iter().fold(sum, |sum, &byte| mix(sum, byte.into()))
}

/// A slice of a column of views without the buffers that it does not need.
fn compact(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => std::sync::Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => std::sync::Arc::new(column.as_binary_view().gc()),
        _ => column.clone(),
    }
}

/// Decodes a message of rank `from`. Its rows have the columns of `sorted`, and ascending keys without nulls.
pub(crate) fn decode(bytes: &[u8], sorted: &Sorted, from: usize) -> Result<(Header, Arrived), TableError> {
    let malformed = || TableError::Malformed { from, what: WHAT.to_owned() };
    let (bytes, sum) = bytes.split_last_chunk::<8>().ok_or_else(malformed)?;
    if checksum(bytes) != u64::from_le_bytes(*sum) {
        return Err(malformed());
    }
    let (header, rest) = postcard::take_from_bytes::<Header>(bytes).map_err(|_| malformed())?;
    let Header::Rows { rows: announced @ 1.., .. } = header else {
        return if rest.is_empty() { Ok((header, Arrived::default())) } else { Err(malformed()) };
    };
    let read = || -> Result<Vec<RecordBatch>, ArrowError> {
        StreamReader::try_new(Cursor::new(rest), None)?.collect()
    };
    let batches = read().map_err(|_| malformed())?;
    let columns = columns_of(&sorted.schema);
    let is_sound = |batch: &RecordBatch| {
        columns_of(batch.schema_ref()) == columns && batch.column(sorted.key_column).null_count() == 0
    };
    if !batches.iter().all(is_sound) {
        return Err(malformed());
    }
    let keys = Keys::new(batches.iter().map(|batch| sorted.key_type.keys(batch.column(sorted.key_column))));
    let ascends = |piece: usize| {
        let pieces = keys.pieces();
        pieces[piece].is_sorted() && (piece == 0 || pieces[piece - 1].last() <= pieces[piece].first())
    };
    if keys.len() as u64 != announced || !(0..keys.pieces().len()).all(ascends) {
        return Err(malformed());
    }
    let batches = batches.into_iter().filter(|batch| batch.num_rows() > 0);
    // The schema of this rank, whose metadata may differ.
    let batches = batches.map(|batch| RecordBatch::try_new(sorted.schema.clone(), batch.columns().to_vec()));
    let batches = batches.collect::<Result<_, _>>().map_err(|_| malformed())?;
    Ok((header, Arrived { batches, keys }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Rolling;
    use crate::table::Table;
    use crate::window::Window;
    use arrow_array::{Int64Array, RecordBatchOptions, StringViewArray};
    use arrow_schema::{Field, Schema};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn batch(keys: Vec<Option<i64>>) -> RecordBatch {
        let names =
            StringViewArray::from_iter_values(keys.iter().map(|key| format!("a name of row {key:?}")));
        let columns =
            [("key", Arc::new(Int64Array::from(keys)) as ArrayRef, true), ("name", Arc::new(names), true)];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    fn sorted() -> Sorted {
        let rows = batch((0..1000).map(Some).collect());
        let table = Table::new(rows.schema(), vec![rows]).unwrap();
        Sorted::new(&table, &Rolling::new("key", Window::rows(2).unwrap()), 0).unwrap()
    }

    fn rows(count: u64) -> Header {
        Header::Rows { side: Side::Before, rows: count, is_last: true }
    }

    #[test]
    fn rows_survive_a_message_and_only_they_travel() {
        let sorted = sorted();
        let batches = sorted.slice(300..310);
        let bytes = encode(&rows(10), &sorted, &batches, 0).unwrap();
        assert!(bytes.len() < 3000, "{} bytes for 10 of 1000 rows", bytes.len());
        let (header, arrived) = decode(&bytes, &sorted, 1).unwrap();
        assert!(matches!(header, Header::Rows { rows: 10, is_last: true, .. }));
        assert_eq!(arrived.batches, batches);
        assert_eq!(arrived.keys.len(), 10);
    }

    #[test]
    fn rows_that_cannot_be_used_are_refused() {
        let sorted = sorted();
        let refused = |header: Header, batches: &[RecordBatch]| {
            let bytes = encode(&header, &sorted, batches, 0).unwrap();
            assert!(matches!(decode(&bytes, &sorted, 3), Err(TableError::Malformed { from: 3, .. })));
        };
        refused(rows(2), &[batch(vec![Some(1)])]);
        refused(rows(2), &[batch(vec![Some(1), None])]);
        refused(rows(2), &[batch(vec![Some(2), Some(1)])]);
        refused(rows(2), &[batch(vec![Some(2)]), batch(vec![Some(1)])]);
        refused(Header::Demand(Side::After, None), &[batch(vec![Some(1)])]);
        let other = Schema::new(vec![Field::new("key", DataType::Int32, true)]);
        let mut writer = StreamWriter::try_new(postcard::to_allocvec(&rows(0)).unwrap(), &other).unwrap();
        let empty = RecordBatchOptions::new().with_row_count(Some(0));
        let columns = vec![arrow_array::new_empty_array(&DataType::Int32)];
        writer.write(&RecordBatch::try_new_with_options(Arc::new(other), columns, &empty).unwrap()).unwrap();
        let bytes = with_checksum(writer.into_inner().unwrap());
        assert!(matches!(decode(&bytes, &sorted, 3), Err(TableError::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn changed_and_cut_messages_are_refused(
            at in any::<prop::sample::Index>(),
            change in 1u8..,
            cut in any::<prop::sample::Index>(),
        ) {
            let sorted = sorted();
            let whole = encode(&rows(10), &sorted, &sorted.slice(300..310), 0).unwrap();
            let mut changed = whole.clone();
            changed[at.index(whole.len())] ^= change;
            prop_assert!(decode(&changed, &sorted, 1).is_err());
            prop_assert!(decode(&whole[..cut.index(whole.len())], &sorted, 1).is_err());
        }
    }
}
