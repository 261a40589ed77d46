//! Entry points of `fuzz/` into the private decoders. Part of no ordinary build.

use crate::demand::{Demand, Side};
use crate::direct::{sources, targets};
use crate::message::{Header, NumberedRows, begin, content, decode, encode, with_checksum};
use crate::relay::{Place, Relay};
use crate::spec::Rolling;
use crate::summary::{Ends, Summary};
use crate::table::{Sorted, Table};
use crate::window::Window;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use std::sync::Arc;

/// 40 rows of two groups, and a window over them.
fn sorted() -> (Table, Rolling, Sorted) {
    let key = Arc::new(Int64Array::from_iter_values((0..40).map(|row| row % 20))) as ArrayRef;
    let group = Arc::new(StringArray::from_iter_values((0..40).map(|row| if row < 20 { "a" } else { "b" })));
    let batch =
        RecordBatch::try_from_iter([("key", key), ("group", group as ArrayRef)]).expect("equal lengths");
    let table = Table::new(batch.schema(), vec![batch]).expect("one schema");
    let spec = Rolling::new("key", Window::rows_around(3, 3)).group_by(["group"]);
    let sorted = Sorted::new(&table, &spec, 1).expect("a sound table");
    (table, spec, sorted)
}

/// The rows of the Arrow stream that follows a header.
const ROWS: [std::ops::Range<usize>; 2] = [3..8, 9..10];

/// The bytes between version and checksum of a message, for the two kinds of messages. The first byte can select the whole message, or
/// a header that rows follow.
pub fn messages(bytes: &[u8]) {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    let (_, _, sorted) = sorted();
    let framed = |bytes: &[u8]| with_checksum([&begin(), bytes].concat());
    match which % 4 {
        0 => drop(decode(bytes, &sorted, 0)),
        1 => message(&framed(bytes), &sorted),
        2 => {
            let rows = NumberedRows::of(&sorted.batches, 40, &ROWS);
            let header = Header::Demand(Side::After, None);
            let whole = encode(&header, &sorted, &rows.batches, 0).expect("rows that can be encoded");
            // Version, header, rows, checksum.
            let stream =
                &whole[2 + postcard::to_allocvec(&header).map_or(0, |header| header.len())..whole.len() - 8];
            message(&framed(&[bytes, stream].concat()), &sorted);
        }
        _ => summary(&framed(bytes)),
    }
}

/// A message of rank 0 or 2 to rank 1.
fn message(bytes: &[u8], sorted: &Sorted) {
    let Ok((header, arrived)) = decode(bytes, sorted, 0) else { return };
    let again = encode(&header, sorted, &arrived.rows.batches, 0).and_then(|bytes| decode(&bytes, sorted, 0));
    assert!(again.is_ok_and(|(_, again)| again.rows.batches == arrived.rows.batches));
    let ends = Ends::of(sorted);
    let place = Place { rank: 1, size: 3, rows: 40..80 };
    match header {
        Header::Demand(side, demand) => {
            if let Some(demand) = &demand {
                select(demand, side, sorted);
            }
            let mut relay = Relay::new(side, place, sorted, ends.as_ref());
            let _ = relay.demanded(demand);
        }
        Header::Rows { side, is_last, .. } => {
            let mut relay = Relay::new(side, place, sorted, ends.as_ref());
            let wanted = ends.as_ref().and_then(|ends| Demand::of(ends, side, sorted.offsets));
            if relay.demanded(wanted).is_ok() {
                let _ = relay.supplied(arrived, is_last);
            }
        }
        Header::Abort(error) => drop(error.to_string()),
    }
}

/// The rows that a demand selects are rows of the table, and ascend.
fn select(demand: &Demand, side: Side, sorted: &Sorted) {
    let mut last = 0;
    for rows in demand.select(side, sorted) {
        assert!(last <= rows.start && rows.start < rows.end && rows.end <= sorted.rows());
        last = rows.end;
    }
}

/// The summary of rank 0 of three.
fn summary(bytes: &[u8]) {
    const WHAT: &str = "summary of a table";
    let Ok(Ok(first)) = content(bytes, 0, WHAT).map(postcard::from_bytes::<Summary>) else { return };
    let (table, spec, own) = sorted();
    let offsets = own.offsets;
    let own = Summary::new(&table, &Ok(own), &spec);
    let all = [first, own.clone(), own];
    if Summary::check(&all, &spec, |key| key.to_string()).is_ok() {
        for rank in 0..all.len() {
            let from = Side::BOTH.map(|side| sources(&all, rank, side, offsets));
            assert!(from.iter().flatten().all(|&from| from != rank && from < all.len()));
            for target in targets(&all, rank, offsets) {
                assert!(sources(&all, target.rank, target.side, offsets).contains(&rank));
            }
        }
    }
}

/// Messages as ranks send them.
pub fn sent() -> Vec<Vec<u8>> {
    let (table, spec, sorted) = sorted();
    let mut seeds = Vec::new();
    let mut header = |which: u8, header: &Header| {
        let bytes = postcard::to_allocvec(header).expect("a header that can be encoded");
        seeds.push([&[which][..], &bytes].concat());
    };
    for side in Side::BOTH {
        let demand = Ends::of(&sorted).and_then(|ends| Demand::of(&ends, side, sorted.offsets));
        header(1, &Header::Demand(side, demand));
        header(1, &Header::Rows { side, first_rows: Vec::new(), is_last: true });
        header(2, &Header::Rows { side, first_rows: vec![80, 86], is_last: true });
        header(2, &Header::Rows { side, first_rows: vec![33, 39], is_last: false });
    }
    header(1, &Header::Abort(crate::TableError::NoThreads));
    let whole =
        encode(&Header::Demand(Side::Before, None), &sorted, &[], 0).expect("a header that can be encoded");
    seeds.push([&[0][..], &whole].concat());
    let summary = postcard::to_allocvec(&Summary::new(&table, &Ok(sorted), &spec))
        .expect("a summary that can be encoded");
    seeds.push([&[3][..], &summary].concat());
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_as_ranks_send_them_are_read() {
        sent().iter().for_each(|bytes| messages(bytes));
    }

    proptest! {
        #[test]
        fn random_and_changed_messages_are_read_or_refused(
            random in proptest::collection::vec(any::<u8>(), 0..80),
            seed in any::<prop::sample::Index>(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            messages(&random);
            let mut seed = seed.get(&sent()).clone();
            for (at, byte) in changes {
                let at = at.index(seed.len());
                seed[at] = byte;
            }
            messages(&seed);
        }
    }
}
