//! Types of keys, groups and values.

use crate::on_ranks;
use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, Int32Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Date64Array, DictionaryArray, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, LargeStringArray, NullArray, RecordBatch, RunArray,
    StringArray, StringViewArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    UInt8Array, UInt64Array,
};
use arrow_schema::DataType;
use halocline_comm::Communicator;
use halocline_table::{Aggregation, Closed, Interpolation, Rolling, Statistic, Table, Window, rolling};
use std::sync::Arc;

fn table(columns: Vec<(&str, ArrayRef)>) -> Table {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    Table::new(batch.schema(), vec![batch]).unwrap()
}

/// Sums of `value` over two ranks with half of the rows each.
fn sums(key: ArrayRef, groups: Vec<(&str, ArrayRef)>, window: Window) -> Vec<Option<f64>> {
    let rows = key.len();
    let value =
        Arc::new(Float64Array::from_iter_values((0..rows).map(|row| f64::from(1 << row)))) as ArrayRef;
    let names: Vec<String> = groups.iter().map(|(name, _)| (*name).to_owned()).collect();
    let spec = Rolling::new("key", window).group_by(names);
    let mut columns = vec![("value", value), ("key", key)];
    columns.extend(groups);
    let whole = table(columns);
    let found = on_ranks(2, |comm| {
        let half = rows / 2;
        let (start, count) = if comm.rank() == 0 { (0, half) } else { (half, rows - half) };
        let own = Table::new(whole.schema().clone(), vec![whole.batches()[0].slice(start, count)]).unwrap();
        let context = rolling(&own, &spec, &comm).unwrap();
        let sums = context.aggregate(&[Aggregation::new("value", Statistic::Sum).min_samples(1)], 1).unwrap();
        sums.column(0).as_primitive::<Float64Type>().iter().collect::<Vec<_>>()
    });
    found.concat()
}

fn some(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().copied().map(Some).collect()
}

#[test]
fn every_type_of_key_has_windows_in_its_unit() {
    let two_days = || Window::period("2d").unwrap();
    let day = 86_400i64;
    let expected = some(&[1.0, 3.0, 6.0, 8.0]);
    let days = [10i64, 11, 12, 14];
    let keys: Vec<ArrayRef> = vec![
        Arc::new(Date32Array::from_iter_values(days.map(|d| d as i32))),
        Arc::new(Date64Array::from_iter_values(days.map(|d| d * day * 1_000))),
        Arc::new(TimestampSecondArray::from_iter_values(days.map(|d| d * day))),
        Arc::new(
            TimestampMillisecondArray::from_iter_values(days.map(|d| d * day * 1_000))
                .with_timezone("Europe/Oslo"),
        ),
        Arc::new(TimestampNanosecondArray::from_iter_values(days.map(|d| d * day * 1_000_000_000))),
    ];
    for key in keys {
        assert_eq!(sums(key.clone(), vec![], two_days()), expected, "{}", key.data_type());
    }
    let two = || Window::period("2i").unwrap();
    let keys: Vec<ArrayRef> = vec![
        Arc::new(Int8Array::from_iter_values(days.map(|d| d as i8))),
        Arc::new(UInt8Array::from_iter_values(days.map(|d| d as u8))),
        Arc::new(Int64Array::from_iter_values(days)),
        Arc::new(UInt64Array::from_iter_values(days.map(|d| u64::MAX - 20 + d as u64))),
    ];
    for key in keys {
        assert_eq!(sums(key.clone(), vec![], two()), expected, "{}", key.data_type());
    }
}

#[test]
fn every_type_of_group_ends_windows() {
    let names = ["a", "a", "b", "b", "b", "c"];
    let mut dictionary = StringDictionaryBuilder::<Int32Type>::new();
    // The numbers of the dictionary are not in the order of its values.
    dictionary.extend(["c", "b", "a"].map(Some));
    let dictionary = {
        names.iter().for_each(|name| dictionary.append_value(name));
        dictionary.finish().slice(3, names.len())
    };
    let groups: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(names)),
        Arc::new(LargeStringArray::from_iter_values(names)),
        Arc::new(StringViewArray::from_iter_values(
            names.map(|name| format!("{name}, longer than twelve bytes")),
        )),
        Arc::new(dictionary),
        Arc::new(Int16Array::from(vec![None, None, Some(-3), Some(-3), Some(-3), Some(9)])),
    ];
    let key = || Arc::new(Int64Array::from(vec![1, 2, 1, 1, 3, 0])) as ArrayRef;
    for group in groups {
        let found = sums(key(), vec![("group", group.clone())], Window::period("2i").unwrap());
        assert_eq!(found, some(&[1.0, 3.0, 12.0, 12.0, 16.0, 32.0]), "{}", group.data_type());
        let found = sums(key(), vec![("group", group.clone())], Window::rows(2).unwrap());
        assert_eq!(found, some(&[1.0, 3.0, 4.0, 12.0, 24.0, 32.0]), "{}", group.data_type());
    }
    let flags = Arc::new(BooleanArray::from(vec![false, false, false, false, false, true])) as ArrayRef;
    let inner = Arc::new(StringArray::from_iter_values(names)) as ArrayRef;
    let found = sums(key(), vec![("flag", flags), ("group", inner)], Window::period("2i").unwrap());
    assert_eq!(found, some(&[1.0, 3.0, 12.0, 12.0, 16.0, 32.0]));
}

#[test]
fn a_column_of_nulls_alone_is_one_group() {
    let key = Arc::new(Int64Array::from(vec![0, 1, 2, 3])) as ArrayRef;
    let nulls = Arc::new(NullArray::new(4)) as ArrayRef;
    let found = sums(key, vec![("group", nulls)], Window::rows(2).unwrap());
    assert_eq!(found, some(&[1.0, 3.0, 6.0, 12.0]));
    let none = Arc::new(Int64Array::from(Vec::<i64>::new())) as ArrayRef;
    assert_eq!(sums(none, vec![("group", Arc::new(NullArray::new(0)))], Window::rows(2).unwrap()), []);
}

#[test]
fn a_centred_window_needs_rows_from_both_sides() {
    let key = Arc::new(Int64Array::from(vec![0, 1, 2, 3])) as ArrayRef;
    let centred = Window::period("2i").unwrap().centered().closed(Closed::Both);
    assert_eq!(sums(key.clone(), vec![], centred), some(&[3.0, 7.0, 14.0, 12.0]));
    assert_eq!(sums(key.clone(), vec![], Window::rows(3).unwrap().centered()), some(&[3.0, 7.0, 14.0, 12.0]));
    let ahead = Window::period("2i").unwrap().offset("1i").unwrap();
    assert_eq!(sums(key, vec![], ahead), [Some(12.0), Some(8.0), None, None]);
}

#[test]
fn statistics_have_the_types_of_polars() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("key", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        ("i8", Arc::new(Int8Array::from(vec![Some(100), Some(100), None, Some(-128)]))),
        ("u64", Arc::new(UInt64Array::from(vec![1, u64::MAX - 1, 7, 3]))),
        ("f32", Arc::new(Float32Array::from(vec![0.5, 1.5, f32::NAN, 2.0]))),
        ("text", Arc::new(StringArray::from(vec![Some("x"), None, None, Some("y")]))),
    ];
    let spec = Rolling::new("key", Window::period("2i").unwrap());
    let context = rolling(&table(columns), &spec, &Communicator::single()).unwrap();
    let median = Statistic::Quantile { q: 0.5, interpolation: Interpolation::Linear };
    let found = context
        .aggregate(
            &[
                Aggregation::new("i8", Statistic::Sum),
                Aggregation::new("i8", Statistic::Min),
                Aggregation::new("i8", median).named("median"),
                Aggregation::new("u64", Statistic::Max),
                Aggregation::new("u64", Statistic::Sum),
                Aggregation::new("f32", Statistic::Mean),
                Aggregation::new("text", Statistic::Count),
            ],
            1,
        )
        .unwrap();
    let names: Vec<&str> = found.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["i8_sum", "i8_min", "median", "u64_max", "u64_sum", "f32_mean", "text_count"]);
    assert_eq!(found.column(0).as_primitive::<Int64Type>(), &Int64Array::from(vec![100, 200, 100, -128]));
    assert_eq!(found.column(1).as_primitive::<Int8Type>(), &Int8Array::from(vec![100, 100, 100, -128]));
    assert_eq!(
        found.column(2).as_primitive::<Float64Type>(),
        &Float64Array::from(vec![100.0, 100.0, 100.0, -128.0])
    );
    assert_eq!(
        found.column(3).as_primitive::<UInt64Type>(),
        &UInt64Array::from(vec![1, u64::MAX - 1, u64::MAX - 1, 7])
    );
    assert_eq!(found.column(4).as_primitive::<UInt64Type>(), &UInt64Array::from(vec![1, u64::MAX, 5, 10]));
    assert_eq!(found.column(5).data_type(), &DataType::Float32);
    assert_eq!(found.column(6).as_primitive::<UInt64Type>(), &UInt64Array::from(vec![1, 1, 0, 1]));
}

#[test]
fn counts_leave_out_nulls_of_every_type() {
    let texts = StringArray::from(vec![Some("x"), None]);
    let of_values = DictionaryArray::new(Int8Array::from(vec![0, 1, 0, 1]), Arc::new(texts.clone()));
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![3, 4]), &texts).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("key", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        ("null", Arc::new(NullArray::new(4))),
        ("dictionary", Arc::new(of_values)),
        ("runs", Arc::new(runs)),
    ];
    let spec = Rolling::new("key", Window::period("2i").unwrap());
    let context = rolling(&table(columns), &spec, &Communicator::single()).unwrap();
    let counts = ["null", "dictionary", "runs"].map(|name| Aggregation::new(name, Statistic::Count));
    let found = context.aggregate(&counts, 1).unwrap();
    let expected = [[0, 0, 0, 0], [1, 1, 1, 1], [1, 2, 2, 1]];
    for (column, expected) in found.columns().iter().zip(expected) {
        assert_eq!(column.as_primitive::<UInt64Type>(), &UInt64Array::from(expected.to_vec()));
    }
}
