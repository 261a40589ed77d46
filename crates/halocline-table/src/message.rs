//! Messages of the protocols: a version, a header, rows as an Arrow IPC stream, and a checksum of them.

use crate::compact::compact;
use crate::demand::{Demand, Side};
use crate::error::TableError;
use crate::keys::Keys;
use crate::table::{Sorted, columns_of};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use serde::{Deserialize, Serialize};
use std::io::Cursor;
use std::ops::Range;

/// The content of a message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Header {
    /// The rows that the sender needs from a side. `None`: none.
    Demand(Side, Option<Demand>),
    /// Rows for the receiver, from that side of it: for each record batch the number of its first row in the whole table. `is_last`: no
    /// more follow (FIN).
    Rows { side: Side, first_rows: Vec<u64>, is_last: bool },
    /// The exchange has failed (ABORT).
    Abort(TableError),
}

/// Rows that have arrived or are to be sent, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct NumberedRows {
    /// Each has at least a row.
    pub(crate) batches: Vec<RecordBatch>,
    /// The number of the first row of each batch in the whole table.
    pub(crate) first_rows: Vec<u64>,
}

impl NumberedRows {
    /// Those of some rows of `batches` whose first row has this number.
    pub(crate) fn of(batches: &[RecordBatch], first_row: u64, chosen: &[Range<usize>]) -> Self {
        let mut rows = Self::default();
        for chosen in chosen {
            let mut next = first_row.saturating_add(chosen.start as u64);
            for batch in crate::table::slice(batches, chosen.clone()) {
                rows.first_rows.push(next);
                next = next.saturating_add(batch.num_rows() as u64);
                rows.batches.push(batch);
            }
        }
        rows
    }

    pub(crate) fn count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The numbers of the rows of each batch.
    pub(crate) fn numbers(&self) -> impl DoubleEndedIterator<Item = Range<u64>> {
        let ends = self.batches.iter().zip(&self.first_rows);
        ends.map(|(batch, &first)| first..first.saturating_add(batch.num_rows() as u64))
    }
}

/// Rows that have arrived, with their keys.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) rows: NumberedRows,
    pub(crate) keys: Keys,
}

pub(crate) const WHAT: &str = "message of a rolling window";

/// The version of the format of messages, the first two bytes of each.
const VERSION: u16 = 2;

/// Encodes a message. `batches`: the rows of [`Header::Rows`].
pub(crate) fn encode(
    header: &Header,
    sorted: &Sorted,
    batches: &[RecordBatch],
    rank: usize,
) -> Result<Vec<u8>, TableError> {
    let failed = |why: String| TableError::Arrow { rank, what: "encode rows".to_owned(), why };
    let bytes = postcard::to_extend(header, begin()).map_err(|why| failed(why.to_string()))?;
    if batches.is_empty() {
        return Ok(with_checksum(bytes));
    }
    let write = || -> Result<Vec<u8>, ArrowError> {
        let mut writer = StreamWriter::try_new(bytes, &sorted.schema)?;
        for batch in batches {
            let columns = batch.columns().iter().map(compact).collect::<Result<_, _>>()?;
            writer.write(&RecordBatch::try_new(sorted.schema.clone(), columns)?)?;
        }
        writer.into_inner()
    };
    write().map(with_checksum).map_err(|why| failed(why.to_string()))
}

/// The begin of a message: the version.
pub(crate) fn begin() -> Vec<u8> {
    VERSION.to_le_bytes().to_vec()
}

/// Appends the checksum of all bytes. Arrow does not promise to refuse changed bytes without a panic.
pub(crate) fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The bytes between version and checksum of a message of rank `from`, once both are right. `what` names the message in errors.
pub(crate) fn content<'a>(bytes: &'a [u8], from: usize, what: &str) -> Result<&'a [u8], TableError> {
    let malformed = || TableError::Malformed { from, what: what.to_owned() };
    // The version comes first: later versions may have another checksum.
    let (version, _) = bytes.split_first_chunk::<2>().ok_or_else(malformed)?;
    let (found, expected) = (u16::from_le_bytes(*version), VERSION);
    if found != expected {
        return Err(TableError::Version { from, what: what.to_owned(), found, expected });
    }
    let (bytes, sum) = bytes.split_last_chunk::<8>().ok_or_else(malformed)?;
    let content = bytes.get(version.len()..).ok_or_else(malformed)?;
    if checksum(bytes) == u64::from_le_bytes(*sum) { Ok(content) } else { Err(malformed()) }
}

/// 64 bits that depend on each byte and on its place.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    tail.iter().fold(sum, |sum, &byte| mix(sum, byte.into()))
}

/// Decodes a message of rank `from`. Its rows have the columns of `sorted`, ascending keys without nulls, and ascending numbers.
pub(crate) fn decode(bytes: &[u8], sorted: &Sorted, from: usize) -> Result<(Header, Arrived), TableError> {
    let malformed = || TableError::Malformed { from, what: WHAT.to_owned() };
    let content = content(bytes, from, WHAT)?;
    let (header, rest) = postcard::take_from_bytes::<Header>(content).map_err(|_| malformed())?;
    let first_rows = match &header {
        Header::Rows { first_rows, .. } if !first_rows.is_empty() => first_rows.clone(),
        _ if rest.is_empty() => return Ok((header, Arrived::default())),
        _ => return Err(malformed()),
    };
    let read = || -> Result<Vec<RecordBatch>, ArrowError> {
        StreamReader::try_new(Cursor::new(rest), None)?.collect()
    };
    let batches = read().map_err(|_| malformed())?;
    let columns = columns_of(&sorted.schema);
    let is_sound = |batch: &RecordBatch| {
        batch.num_rows() > 0
            && columns_of(batch.schema_ref()) == columns
            && batch.column(sorted.key_column).null_count() == 0
    };
    if batches.len() != first_rows.len() || !batches.iter().all(is_sound) {
        return Err(malformed());
    }
    let keys = Keys::new(batches.iter().map(|batch| sorted.key_type.keys(batch.column(sorted.key_column))));
    let ascends = |piece: usize| {
        let pieces = keys.pieces();
        pieces[piece].is_sorted() && (piece == 0 || pieces[piece - 1].last() <= pieces[piece].first())
    };
    // The schema of this rank, whose metadata may differ.
    let batches = batches
        .into_iter()
        .map(|batch| RecordBatch::try_new(sorted.schema.clone(), batch.columns().to_vec()));
    let rows =
        NumberedRows { batches: batches.collect::<Result<_, _>>().map_err(|_| malformed())?, first_rows };
    let numbers: Vec<_> = rows.numbers().collect();
    // Numbers beyond 64 bits are cut.
    if numbers
        .iter()
        .zip(&rows.batches)
        .any(|(numbers, batch)| numbers.end - numbers.start != batch.num_rows() as u64)
    {
        return Err(malformed());
    }
    if !(0..keys.pieces().len()).all(ascends) || numbers.windows(2).any(|pair| pair[1].start < pair[0].end) {
        return Err(malformed());
    }
    Ok((header, Arrived { rows, keys }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Rolling;
    use crate::table::Table;
    use crate::window::Window;
    use arrow_array::{ArrayRef, Int64Array, RecordBatchOptions, StringViewArray};
    use arrow_schema::{DataType, Field, Schema};
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

    fn rows<const N: usize>(first_rows: [u64; N]) -> Header {
        Header::Rows { side: Side::Before, first_rows: first_rows.to_vec(), is_last: true }
    }

    #[test]
    fn rows_survive_a_message_and_only_they_travel() {
        let sorted = sorted();
        let sent = NumberedRows::of(&sorted.batches, 7000, &[300..310, 400..401]);
        assert_eq!(sent.numbers().collect::<Vec<_>>(), [7300..7310, 7400..7401]);
        let bytes = encode(&rows([7300, 7400]), &sorted, &sent.batches, 0).unwrap();
        assert!(bytes.len() < 4000, "{} bytes for 11 of 1000 rows", bytes.len());
        let (header, arrived) = decode(&bytes, &sorted, 1).unwrap();
        assert!(matches!(header, Header::Rows { is_last: true, .. }));
        assert_eq!((arrived.rows.batches, arrived.rows.first_rows), (sent.batches, sent.first_rows));
        assert_eq!(arrived.keys.len(), 11);
    }

    #[test]
    fn a_message_of_another_version_is_refused() {
        let sorted = sorted();
        let mut bytes = encode(&Header::Demand(Side::After, None), &sorted, &[], 0).unwrap();
        bytes[0] += 1;
        let error = decode(&bytes, &sorted, 3).unwrap_err();
        assert!(matches!(error, TableError::Version { from: 3, found: 3, expected: 2, .. }), "{error}");
        let text = "rank 3 sent a message of a rolling window in format 3, this rank reads format 2";
        assert!(error.to_string().starts_with(text), "{error}");
    }

    #[test]
    fn rows_that_cannot_be_used_are_refused() {
        let sorted = sorted();
        let refused = |header: Header, batches: &[RecordBatch]| {
            let bytes = encode(&header, &sorted, batches, 0).unwrap();
            assert!(matches!(decode(&bytes, &sorted, 3), Err(TableError::Malformed { from: 3, .. })));
        };
        let one = |key| batch(vec![Some(key)]);
        refused(rows([0, 1]), &[one(1)]);
        refused(rows([0]), &[one(1), one(2)]);
        refused(rows([0]), &[batch(vec![])]);
        refused(rows([0]), &[batch(vec![Some(1), None])]);
        refused(rows([0]), &[batch(vec![Some(2), Some(1)])]);
        refused(rows([0, 1]), &[one(2), one(1)]);
        // Numbers that overlap, descend, or lie beyond all numbers.
        refused(rows([5, 6]), &[batch(vec![Some(1), Some(2)]), one(3)]);
        refused(rows([5, 4]), &[one(1), one(2)]);
        refused(rows([u64::MAX, u64::MAX]), &[one(1), one(2)]);
        refused(Header::Demand(Side::After, None), &[batch(vec![Some(1)])]);
        let other = Schema::new(vec![Field::new("key", DataType::Int32, true)]);
        let mut writer =
            StreamWriter::try_new(postcard::to_extend(&rows([0]), begin()).unwrap(), &other).unwrap();
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
            let whole = encode(&rows([300]), &sorted, &crate::table::slice(&sorted.batches, 300..310), 0).unwrap();
            let mut changed = whole.clone();
            changed[at.index(whole.len())] ^= change;
            prop_assert!(decode(&changed, &sorted, 1).is_err());
            prop_assert!(decode(&whole[..cut.index(whole.len())], &sorted, 1).is_err());
        }
    }
}
