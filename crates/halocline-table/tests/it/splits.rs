//! Random tables, split at random over ranks and batches, give the results of one rank and of the definitions.

use crate::on_ranks;
use crate::plain::{Case, Extent, Row, statistic};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use halocline_comm::Communicator;
use halocline_table::{
    Aggregation, Closed, Context, Interpolation, Route, Statistic, Table, Traffic, rolling,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const STATISTICS: [Statistic; 13] = [
    Statistic::Sum,
    Statistic::Mean,
    Statistic::Min,
    Statistic::Max,
    Statistic::Count,
    Statistic::First,
    Statistic::Last,
    Statistic::Var { ddof: 1 },
    Statistic::Std { ddof: 0 },
    Statistic::Quantile { q: 0.5, interpolation: Interpolation::Nearest },
    Statistic::Quantile { q: 0.3, interpolation: Interpolation::Linear },
    Statistic::Quantile { q: 0.7, interpolation: Interpolation::Midpoint },
    Statistic::Quantile { q: 0.25, interpolation: Interpolation::Equiprobable },
];

const NAMES: [&str; 4] = ["anvil", "bolt", "copper", "drum"];

fn batch(rows: &[Row]) -> RecordBatch {
    let group = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| NAMES[usize::from(row.group)])));
    let time = Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.key)));
    let value = Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.value)));
    let unused = Arc::new(Int32Array::from_iter_values(0..rows.len() as i32));
    RecordBatch::try_from_iter([
        ("unused", unused as ArrayRef),
        ("value", value),
        ("group", group),
        ("time", time),
    ])
    .unwrap()
}

/// The rows of a rank: slices of a batch, some of them empty.
fn table(rows: &[Row], range: Range<usize>, pieces: usize) -> Table {
    let whole = batch(rows);
    let each = range.len().div_ceil(pieces).max(1);
    let mut batches: Vec<RecordBatch> =
        range.clone().step_by(each).map(|start| whole.slice(start, each.min(range.end - start))).collect();
    batches.push(whole.slice(range.end, 0));
    Table::new(whole.schema(), batches).unwrap()
}

/// Results of a rank: of each statistic its values, its traffic, its first row.
struct Found {
    columns: Vec<Vec<Option<f64>>>,
    context: Context,
}

fn compute(case: &Case, table: &Table, comm: &Communicator, route: Route, needs: Option<usize>) -> Found {
    let spec = case.rolling().columns(["value"]).route(route);
    let context = rolling(table, &spec, comm).unwrap();
    let aggregations = STATISTICS.map(|statistic| {
        let aggregation = Aggregation::new("value", statistic);
        needs.map_or(aggregation.clone(), |needs| aggregation.min_samples(needs))
    });
    let results = context.aggregate(&aggregations, 2).unwrap();
    let column = |column: &ArrayRef| -> Vec<Option<f64>> {
        match column.as_primitive_opt::<Float64Type>() {
            Some(column) => column.iter().collect(),
            None => column.as_primitive::<UInt64Type>().iter().map(|value| value.map(|v| v as f64)).collect(),
        }
    };
    Found { columns: results.columns().iter().map(column).collect(), context }
}

fn check(
    case: &Case,
    rows: &[Row],
    ranges: &[Range<usize>],
    pieces: usize,
    route: Route,
    needs: Option<usize>,
) {
    let found = on_ranks(ranges.len(), |comm| {
        let own = table(rows, ranges[comm.rank()].clone(), pieces);
        compute(case, &own, &comm, route, needs)
    });
    let windows = case.windows(rows);
    let window_rows = match case.extent {
        Extent::Rows { before, after, .. } => before as usize + after as usize + 1,
        Extent::Span { .. } => 1,
    };
    for (rank, (found, range)) in found.iter().zip(ranges).enumerate() {
        let context = &found.context;
        assert_eq!((context.first_row(), context.total_rows()), (range.start as u64, rows.len() as u64));
        assert_eq!(context.own_rows().len(), range.len());
        assert_eq!(context.mask().true_count(), range.len());
        assert_eq!(context.schema().fields().len(), 3, "the key, the group and the value");
        let from_others = traffic(context, &windows[range.clone()], range);
        let rows_are_right = from_others.iter().all(|&row| row < rows.len() && !range.contains(&row));
        assert!(rows_are_right, "rank {rank} has rows {from_others:?}");
        for (column, statistic_of) in found.columns.iter().zip(STATISTICS) {
            for (row, found) in range.clone().zip(column) {
                let needs = match statistic_of {
                    Statistic::First | Statistic::Last => 0,
                    Statistic::Count => needs.unwrap_or(0),
                    _ => needs.unwrap_or(window_rows),
                };
                let of = &rows[windows[row].clone()];
                let expected = statistic(statistic_of, of, needs);
                let is_same = match (found, expected) {
                    (Some(found), Some(expected)) => is_close(*found, expected, of, statistic_of),
                    (found, expected) => *found == expected,
                };
                assert!(
                    is_same,
                    "{statistic_of} of row {row} on rank {rank}: {found:?}, not {expected:?} of {of:?}"
                );
            }
        }
    }
}

fn is_close(found: f64, expected: f64, of: &[Row], statistic: Statistic) -> bool {
    if found == expected || found.is_nan() && expected.is_nan() {
        return true;
    }
    let magnitude: f64 = of.iter().filter_map(|row| row.value).map(f64::abs).sum();
    match statistic {
        Statistic::Sum | Statistic::Mean => (found - expected).abs() <= 1e-12 * magnitude,
        // One rounding between two values, and that of their difference.
        Statistic::Quantile { .. } => (found - expected).abs() <= 1e-15 * magnitude,
        Statistic::Var { .. } | Statistic::Std { .. } => (found - expected).abs() <= 1e-12 * expected + 1e-12,
        _ => false,
    }
}

/// Only rows that some window needs have travelled, or those between its own rows and the windows by relays. The numbers of the rows of
/// other ranks.
fn traffic(context: &Context, windows: &[Range<usize>], own: &Range<usize>) -> BTreeSet<usize> {
    let needed: BTreeSet<usize> =
        windows.iter().cloned().flatten().filter(|row| !own.contains(row)).collect();
    let numbers = context.batches().iter().zip(context.first_rows());
    let numbers = numbers.flat_map(|(batch, &first)| first as usize..first as usize + batch.num_rows());
    let all: Vec<usize> = numbers.collect();
    assert!(all.is_sorted_by(|a, b| a < b), "the rows {all:?} do not ascend");
    assert_eq!(all[context.own_rows()], own.clone().collect::<Vec<_>>());
    let travelled: BTreeSet<usize> = all.iter().copied().filter(|row| !own.contains(row)).collect();
    assert_eq!(travelled, needed, "exactly the rows that windows need");
    assert_eq!(context.traffic().rows_received, travelled.len() as u64);
    travelled
}

prop_compose! {
    fn rows()(
        steps in proptest::collection::vec((0i64..4, 0u8..12, prop_oneof![
            8 => (-400i32..400).prop_map(|v| Some(f64::from(v) / 16.0)),
            2 => Just(None),
            1 => Just(Some(f64::NAN)),
        ]), 0..60),
        base in prop_oneof![6 => Just(1_700_000_000_000_000i64), 1 => Just(i64::MAX - 240), 1 => Just(i64::MIN)],
    ) -> Vec<Row> {
        let (mut group, mut key) = (0, base);
        steps.iter().map(|&(step, change, value)| {
            if change == 0 && group < 3 {
                (group, key) = (group + 1, base);
            }
            key += step;
            Row { group, key, value }
        }).collect()
    }
}

fn case() -> impl Strategy<Value = Case> {
    let closed = prop_oneof![Just(Closed::Left), Just(Closed::Right), Just(Closed::Both), Just(Closed::None)];
    let length = prop_oneof![6 => 1i64..30_000, 2 => Just(2_000i64), 1 => Just(i64::MAX / 4)];
    let span = (length, prop_oneof![3 => Just(None), 2 => (-30_000i64..20_000).prop_map(Some)]).prop_map(
        |(length, start)| {
            let start = start.unwrap_or(-length);
            Extent::Span { start, end: start + length }
        },
    );
    let shift = prop_oneof![2 => Just(0i32), 1 => -20i32..20];
    let rows = (0u32..9, 0u32..5, shift);
    let rows = rows.prop_map(|(before, after, shift)| Extent::Rows { before, after, shift });
    (prop_oneof![3 => span, 1 => rows], closed).prop_map(|(extent, closed)| Case { extent, closed })
}

fn ranges(size: usize, cuts: &[prop::sample::Index], rows: usize) -> Vec<Range<usize>> {
    let mut cuts: Vec<usize> = cuts.iter().take(size - 1).map(|cut| cut.index(rows + 1)).collect();
    cuts.sort_unstable();
    let starts = [0].into_iter().chain(cuts.iter().copied());
    starts.zip(cuts.iter().copied().chain([rows])).map(|(start, end)| start..end).collect()
}

proptest! {
    #[test]
    fn any_split_gives_the_results_of_the_definitions(
        rows in rows(),
        case in case(),
        size in prop::sample::select(vec![1usize, 2, 3, 4, 5, 8]),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 7),
        pieces in 1usize..4,
        route in prop::sample::select(vec![Route::Auto, Route::Relay, Route::Direct]),
        needs in prop_oneof![Just(None), (0usize..4).prop_map(Some)],
    ) {
        let ranges = ranges(size, &cuts, rows.len());
        check(&case, &rows, &ranges, pieces, route, needs);
    }
}

fn plain_rows(count: i64, every: i64) -> Vec<Row> {
    let row = |row: i64| Row { group: 0, key: row / every, value: Some(row as f64) };
    (0..count).map(row).collect()
}

/// Each split is one that a protocol could get wrong.
#[test]
fn splits_with_empty_ranks_ties_and_long_windows() {
    let splits: [&[usize]; 8] = [
        &[0, 0, 20, 20],
        &[0, 5, 5, 5, 20],
        &[0, 1, 2, 3, 4, 5, 6, 7, 20],
        &[0, 20, 20],
        &[0, 10, 10, 20],
        &[0, 0, 0, 7, 7, 20, 20, 20],
        &[0, 0, 0, 0],
        &[0, 3, 6, 9, 20],
    ];
    let extents = [
        Extent::Span { start: -2_000, end: 0 },
        Extent::Span { start: -1_000_000, end: 0 },
        Extent::Span { start: -1_000_000, end: 1_000_000 },
        Extent::Span { start: -9_000, end: -6_000 },
        Extent::Span { start: 4_000, end: 8_000 },
        Extent::Rows { before: 2, after: 0, shift: 0 },
        Extent::Rows { before: 100, after: 100, shift: 0 },
        Extent::Rows { before: 0, after: 7, shift: 0 },
        Extent::Rows { before: 1, after: 1, shift: -8 },
        Extent::Rows { before: 0, after: 3, shift: 6 },
    ];
    for split in splits {
        let ranges: Vec<Range<usize>> = split.windows(2).map(|ends| ends[0]..ends[1]).collect();
        for every in [1, 4, 100] {
            let rows = plain_rows(*split.last().unwrap() as i64, every);
            for extent in extents {
                for closed in [Closed::Left, Closed::Right, Closed::Both, Closed::None] {
                    for route in [Route::Relay, Route::Direct] {
                        check(&Case { extent, closed }, &rows, &ranges, 2, route, Some(1));
                    }
                }
            }
        }
    }
}

/// The ends of all ranks are known before rows travel, so that direct sends never cost more than relays, and `Auto` never more than
/// either.
#[test]
fn auto_sends_no_more_messages_rows_and_bytes_than_either_route() {
    let far = Extent::Span { start: -1_000_000, end: 0 };
    let near = Extent::Span { start: -2_000, end: 0 };
    let ahead = Extent::Rows { before: 0, after: 3, shift: 6 };
    let splits: [&[usize]; 4] =
        [&[0, 10, 20], &[0, 5, 10, 15, 20], &[0, 1, 2, 3, 4, 5, 6, 7, 20], &[0, 5, 5, 5, 20]];
    for split in splits {
        let ranges: Vec<Range<usize>> = split.windows(2).map(|ends| ends[0]..ends[1]).collect();
        let rows = plain_rows(20, 1);
        for extent in [far, near, ahead] {
            let case = Case { extent, closed: Closed::Right };
            let cost = |route| {
                let traffic = on_ranks(ranges.len(), |comm| {
                    let own = table(&rows, ranges[comm.rank()].clone(), 1);
                    compute(&case, &own, &comm, route, Some(1)).context.traffic()
                });
                let sum = |of: fn(&Traffic) -> u64| traffic.iter().map(of).sum::<u64>();
                [sum(|of| of.messages_sent), sum(|of| of.rows_sent), sum(|of| of.bytes_sent)]
            };
            let [auto, relay, direct] = [Route::Auto, Route::Relay, Route::Direct].map(cost);
            for (auto, (relay, direct)) in auto.into_iter().zip(relay.into_iter().zip(direct)) {
                assert!(
                    auto <= relay.min(direct),
                    "{split:?} {extent:?}: {auto}, relay {relay}, direct {direct}"
                );
            }
        }
    }
}

#[test]
fn several_threads_give_the_results_of_one() {
    let rows: Vec<Row> = (0..30_000)
        .map(|row| Row {
            group: (row / 9_000) as u8,
            key: row % 9_000,
            value: (row % 11 != 3).then_some((row % 97) as f64),
        })
        .collect();
    let case = Case { extent: Extent::Span { start: -500_000, end: 0 }, closed: Closed::Right };
    let whole = table(&rows, 0..rows.len(), 7);
    let context = rolling(&whole, &case.rolling(), &Communicator::single()).unwrap();
    let aggregations = STATISTICS.map(|statistic| Aggregation::new("value", statistic));
    let one = context.aggregate(&aggregations, 1).unwrap();
    for threads in [2, 3, 8] {
        let several = context.aggregate(&aggregations, threads).unwrap();
        // The values are whole numbers, so that sums are exact.
        for (at, name) in ["value_sum", "value_min", "value_max", "value_count", "value_first", "value_last"]
            .into_iter()
            .enumerate()
        {
            assert_eq!(one.column_by_name(name), several.column_by_name(name), "{at} with {threads} threads");
        }
    }
    assert_eq!(context.windows().count(), rows.len());
}
