//! Bad tables, windows and peers: typed errors, the same on all ranks, and no rank hangs.

use crate::on_ranks;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{
    ArrayRef, Float64Array, Int64Array, NullArray, RecordBatch, StringArray, TimestampSecondArray,
};
use arrow_schema::{DataType, Field, Schema};
use halocline_comm::{CommError, Communicator};
use halocline_table::{
    Aggregation, Interpolation, Rolling, Route, Statistic, Table, TableError, Window, rolling,
};
use std::sync::Arc;
use std::time::Duration;

fn batch(keys: &[Option<i64>], groups: &[&str]) -> RecordBatch {
    let time = Arc::new(TimestampSecondArray::from(keys.to_vec())) as ArrayRef;
    let value = Arc::new(Float64Array::from(vec![1.0; keys.len()])) as ArrayRef;
    let group = Arc::new(StringArray::from_iter_values(groups)) as ArrayRef;
    RecordBatch::try_from_iter_with_nullable([
        ("time", time, true),
        ("value", value, true),
        ("group", group, true),
    ])
    .unwrap()
}

fn table(keys: &[i64]) -> Table {
    let keys: Vec<Option<i64>> = keys.iter().copied().map(Some).collect();
    let batch = batch(&keys, &vec!["g"; keys.len()]);
    Table::new(batch.schema(), vec![batch]).unwrap()
}

fn seconds() -> Rolling {
    Rolling::new("time", Window::period("5s").unwrap())
}

/// The error that all ranks return.
fn refused(size: usize, of_rank: impl Fn(usize) -> (Table, Rolling) + Sync) -> TableError {
    let errors = on_ranks(size, |comm| {
        let (table, spec) = of_rank(comm.rank());
        rolling(&table, &spec, &comm).unwrap_err()
    });
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    errors.into_iter().next().unwrap()
}

#[test]
fn rows_that_descend_within_a_rank_are_named() {
    let error = refused(3, |rank| (table(if rank == 1 { &[10, 12, 11] } else { &[] }), seconds()));
    assert!(matches!(error, TableError::Unsorted { rank: 1, row: 2, before_rank: 1, before_row: 1, .. }));
    let text = error.to_string();
    assert!(text.contains("time = 1970-01-01 00:00:11, after 1970-01-01 00:00:12"), "{text}");
}

#[test]
fn rows_that_descend_from_batch_to_batch_are_named() {
    let error = refused(2, |rank| {
        let [first, second] = [[Some(5), Some(6)], [Some(4), Some(9)]].map(|keys| batch(&keys, &["g", "g"]));
        let batches = if rank == 1 { vec![first.clone(), first.slice(0, 0), second] } else { Vec::new() };
        (Table::new(first.schema(), batches).unwrap(), seconds())
    });
    assert!(matches!(error, TableError::Unsorted { rank: 1, row: 2, .. }), "{error}");
}

#[test]
fn rows_that_descend_across_ranks_are_named_beyond_empty_ranks() {
    let keys: [&[i64]; 5] = [&[1, 9], &[], &[], &[8, 20], &[]];
    let error = refused(5, |rank| (table(keys[rank]), seconds()));
    assert!(
        matches!(error, TableError::Unsorted { rank: 3, row: 0, before_rank: 0, before_row: 1, .. }),
        "{error}"
    );
}

#[test]
fn groups_that_descend_are_named() {
    let spec = || seconds().group_by(["group"]);
    let of = |groups: &[&str]| {
        let batch = batch(&vec![Some(1); groups.len()], groups);
        Table::new(batch.schema(), vec![batch]).unwrap()
    };
    let groups: [&[&str]; 3] = [&["a", "b"], &["b", "d", "c"], &["d"]];
    let error = refused(3, |rank| (of(groups[rank]), spec()));
    assert!(matches!(&error, TableError::Unsorted { rank: 1, row: 2, .. }), "{error}");
    assert!(error.to_string().contains("group = \"c\", after \"d\""), "{error}");
    let groups: [&[&str]; 2] = [&["b"], &["a"]];
    let error = refused(2, |rank| (of(groups[rank]), spec()));
    assert!(matches!(error, TableError::Unsorted { rank: 1, row: 0, before_rank: 0, .. }), "{error}");
    // Keys start again in each group, also where a rank begins.
    let groups: [&[&str]; 2] = [&["a", "b"], &["c"]];
    let fine = on_ranks(2, |comm| rolling(&of(groups[comm.rank()]), &spec(), &comm).is_ok());
    assert_eq!(fine, [true, true]);
}

#[test]
fn a_null_in_the_key_is_named() {
    let error = refused(2, |rank| {
        let batch = batch(&[Some(1), None, Some(2)][..3 * rank], &["g"; 3][..3 * rank]);
        (
            Table::new(batch.schema(), vec![batch.slice(0, rank), batch.slice(rank, 2 * rank)]).unwrap(),
            seconds(),
        )
    });
    assert!(matches!(error, TableError::NullKey { rank: 1, row: 1, .. }), "{error}");
}

#[test]
fn columns_that_are_missing_or_of_a_wrong_type_are_named() {
    let with = |spec: fn() -> Rolling| refused(2, |rank| (table(&[rank as i64]), spec()));
    assert!(matches!(
        with(|| Rolling::new("when", Window::rows(2).unwrap())),
        TableError::NoColumn { rank: 0, .. }
    ));
    assert!(matches!(with(|| seconds().columns(["price"])), TableError::NoColumn { .. }));
    assert!(matches!(with(|| seconds().group_by(["place"])), TableError::NoColumn { .. }));
    assert!(matches!(with(|| Rolling::new("value", Window::rows(2).unwrap())), TableError::KeyType { .. }));
    assert!(matches!(with(|| seconds().group_by(["value"])), TableError::GroupType { .. }));
    let error = with(|| Rolling::new("time", Window::period("5i").unwrap()));
    assert!(matches!(error, TableError::WindowType { .. }), "{error}");
    assert!(error.to_string().contains("give its length as \"5s\""), "{error}");
}

#[test]
fn ranks_with_different_windows_or_columns_are_named() {
    let error = refused(3, |rank| {
        let window = if rank == 2 { "6s" } else { "5s" };
        (table(&[]), Rolling::new("time", Window::period(window).unwrap()))
    });
    assert!(matches!(error, TableError::Windows { rank: 2, other: 0, .. }), "{error}");
    let error = refused(3, |rank| {
        let other = Schema::new(vec![Field::new("time", DataType::Int64, false)]);
        let table = if rank == 1 { Table::new(other.into(), vec![]).unwrap() } else { table(&[]) };
        (table, Rolling::new("time", Window::rows(3).unwrap()))
    });
    assert!(matches!(error, TableError::Schemas { rank: 1, other: 0, .. }), "{error}");
    // Two spellings of one window, and columns in another order.
    let fine = on_ranks(2, |comm| {
        let (period, columns) = [("5s", ["value", "group"]), ("5000ms", ["group", "value"])][comm.rank()];
        let spec = Rolling::new("time", Window::period(period).unwrap()).columns(columns);
        rolling(&table(&[comm.rank() as i64]), &spec, &comm).is_ok()
    });
    assert_eq!(fine, [true, true]);
    let error = refused(2, |rank| (table(&[]), seconds().route([Route::Relay, Route::Auto][rank])));
    assert!(matches!(error, TableError::Windows { rank: 1, other: 0, .. }), "{error}");
    let schema = table(&[]).schema().clone();
    let other =
        RecordBatch::try_from_iter([("time", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    let error = Table::new(schema, vec![other]).unwrap_err();
    assert!(matches!(error, TableError::Batches { batch: 0, .. }), "{error}");
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let schema = Schema::new(["a", "b", "a"].map(|name| Field::new(name, DataType::Int64, true)).to_vec());
    let error = Table::new(schema.into(), vec![]).unwrap_err();
    assert!(matches!(&error, TableError::TwoColumns { column } if column == "a"), "{error}");
    assert_eq!(error.to_string(), "the table has two columns \"a\"; rename or drop one of them");
}

#[test]
fn a_column_named_twice_is_refused_on_all_ranks() {
    for (groups, twice) in
        [(&["time"][..], "time"), (&["group", "group"], "group"), (&["group", "time"], "time")]
    {
        let error = refused(2, |_| (table(&[1, 2]), seconds().group_by(groups.iter().copied())));
        assert!(matches!(&error, TableError::NamedTwice { column } if column == twice), "{error}");
    }
    assert!(seconds().group_by(["group"]).columns(["group", "time"]).check_names().is_ok());
}

/// Columns of objects of pandas without a value have the type Null.
#[test]
fn columns_without_values_take_the_type_that_other_ranks_know() {
    let untyped = |rows: usize| {
        let time = Arc::new(TimestampSecondArray::from(vec![9; rows])) as ArrayRef;
        let null = || Arc::new(NullArray::new(rows)) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("time", time), ("value", null()), ("group", null())]);
        let batch = batch.unwrap();
        Table::new(batch.schema(), vec![batch]).unwrap()
    };
    let spec = seconds().group_by(["group"]);
    let found = on_ranks(3, |comm| {
        let own = if comm.rank() == 1 { table(&[1, 2]) } else { untyped(0) };
        let context = rolling(&own, &spec, &comm).unwrap();
        (context.schema().clone(), context.batches().len())
    });
    assert!(found.iter().all(|(schema, _)| *schema == found[1].0), "{found:?}");
    assert_eq!(found.iter().map(|(_, batches)| *batches).collect::<Vec<_>>(), [0, 1, 0]);
    // Rows without values keep them null: the group null comes before all others.
    let counts = on_ranks(2, |comm| {
        let own = if comm.rank() == 1 { table(&[1, 2]) } else { untyped(3) };
        let context = rolling(&own, &spec, &comm).unwrap();
        let found = context.aggregate(&[Aggregation::new("value", Statistic::Count)], 1).unwrap();
        found.column(0).as_primitive::<UInt64Type>().values().to_vec()
    });
    assert_eq!(counts, [vec![0, 0, 0], vec![1, 2]]);
    // A key without a value is refused with its row.
    let error = refused(2, |rank| match rank {
        0 => (table(&[1]), seconds()),
        _ => {
            let columns =
                ["time", "value", "group"].map(|name| (name, Arc::new(NullArray::new(2)) as ArrayRef));
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            (Table::new(batch.schema(), vec![batch]).unwrap(), seconds())
        }
    });
    assert!(matches!(error, TableError::NullKey { rank: 1, row: 0, .. }), "{error}");
}

#[test]
fn statistics_that_a_column_does_not_have_are_refused() {
    let comm = Communicator::single();
    let context = rolling(&table(&[1, 2]), &seconds().columns(["value", "group"]), &comm).unwrap();
    let refuse = |column, statistic, threads| {
        context.aggregate(&[Aggregation::new(column, statistic)], threads).unwrap_err()
    };
    assert!(matches!(refuse("group", Statistic::Mean, 1), TableError::ValueType { .. }));
    assert!(matches!(refuse("time", Statistic::First, 1), TableError::ValueType { .. }));
    assert!(matches!(refuse("other", Statistic::Mean, 1), TableError::NotThere { .. }));
    assert!(matches!(refuse("value", Statistic::Mean, 0), TableError::NoThreads));
    for q in [-0.1, 1.5, f64::NAN] {
        let quantile = Statistic::Quantile { q, interpolation: Interpolation::Linear };
        assert!(matches!(refuse("value", quantile, 1), TableError::Quantile { .. }), "{q}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_by_the_deadline() {
    let [comm, _absent] = <[Communicator; 2]>::try_from(Communicator::threads(2)).unwrap();
    let comm = comm.with_deadline(Some(Duration::from_millis(50)));
    let error = rolling(&table(&[1]), &seconds(), &comm).unwrap_err();
    assert!(matches!(error, TableError::Comm(CommError::Deadline { waiting: 0, .. })), "{error}");
    assert!(error.to_string().contains("for an all-gather of rolling from rank 1"), "{error}");
}

#[test]
fn a_rank_that_leaves_is_named() {
    let [comm, absent] = <[Communicator; 2]>::try_from(Communicator::threads(2)).unwrap();
    drop(absent);
    let error = rolling(&table(&[1]), &seconds(), &comm).unwrap_err();
    assert!(matches!(error, TableError::Comm(CommError::Left { rank: 1, .. })), "{error}");
}

#[test]
fn an_error_leaves_the_communicator_usable() {
    for route in [Route::Relay, Route::Direct] {
        let rows = on_ranks(3, |comm| {
            let bad = table(if comm.rank() == 0 { &[2, 1] } else { &[] });
            rolling(&bad, &seconds(), &comm).unwrap_err();
            let good = table(&[comm.rank() as i64]);
            rolling(&good, &seconds().route(route), &comm).unwrap().traffic().rows_received
        });
        assert_eq!(rows, [0, 1, 2]);
    }
}
