//! Rolling windows over tables that are sorted over the ranks: any split gives the result of one rank.

use crate::numbers::{Numbers, mix};
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure, fail};
use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMillisecondArray};
use halocline::{CommError, Communicator};
use halocline_table::{
    Aggregation, Closed, Interpolation, Rolling, Route, Statistic, Table, TableError, Window, rolling,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    Case { name: "tables::any_split_gives_the_rows_of_one_rank", run: splits },
    Case { name: "tables::windows_reach_beyond_several_ranks", run: long_windows },
    Case { name: "tables::ranks_may_have_no_rows", run: empty_ranks },
    Case { name: "tables::more_ranks_than_rows", run: few_rows },
    Case { name: "tables::equal_keys_lie_on_several_ranks", run: ties },
    Case { name: "tables::groups_cross_from_rank_to_rank", run: groups },
    Case { name: "tables::many_rows_travel", run: many_rows },
    Case { name: "tables::windows_follow_each_other_without_a_barrier", run: one_after_the_other },
    Case { name: "tables::rows_that_descend_across_a_border_are_named", run: unsorted },
    Case { name: "tables::a_null_key_is_named_on_all_ranks", run: null_key },
    Case { name: "tables::other_columns_and_windows_are_named", run: schemas },
    Case { name: "tables::a_rank_that_never_comes_is_named", run: deadline },
];

const ROUTES: [Route; 3] = [Route::Auto, Route::Relay, Route::Direct];

/// Rows of a table: key in milliseconds, group, value. Values are whole numbers, so that their sums are exact in any order.
#[derive(Debug, Default)]
struct Rows {
    keys: Vec<i64>,
    groups: Vec<u8>,
    values: Vec<Option<f64>>,
}

impl Rows {
    /// Rows whose keys grow by 0 to `step` - 1; one in `nulls` values is null.
    fn new(seed: u64, count: usize, step: usize, nulls: usize) -> Self {
        let (mut numbers, mut key) = (Numbers::new(seed), 1_700_000_000_000);
        let mut rows = Self::default();
        for _ in 0..count {
            key += numbers.below(step) as i64;
            rows.keys.push(key);
            rows.groups.push(0);
            let value = numbers.below(2000) as f64 - 1000.0;
            rows.values.push((!numbers.one_in(nulls)).then_some(value));
        }
        rows
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn batch(&self) -> Result<RecordBatch, Trouble> {
        let mut groups = StringDictionaryBuilder::<Int32Type>::new();
        self.groups.iter().for_each(|group| groups.append_value(format!("place {group}")));
        let time = TimestampMillisecondArray::from(self.keys.clone()).with_timezone("Europe/Oslo");
        let columns: [(&str, ArrayRef, bool); 3] = [
            ("time", Arc::new(time), false),
            ("place", Arc::new(groups.finish()), false),
            ("value", Arc::new(Float64Array::from(self.values.clone())), true),
        ];
        Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
    }

    /// Some rows, in batches of at most `each`.
    fn table(&self, rows: Range<usize>, each: usize) -> Result<Table, Trouble> {
        let whole = self.batch()?;
        let starts = rows.clone().step_by(each);
        let batches = starts.map(|start| whole.slice(start, each.min(rows.end - start))).collect();
        Ok(Table::new(whole.schema(), batches)?)
    }
}

/// The rows of each rank, from the numbers of their first rows.
fn parts(starts: &[usize], rows: usize) -> Vec<Range<usize>> {
    let ends = starts.iter().copied().skip(1).chain([rows]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// Equal parts.
fn even(size: usize, rows: usize) -> Vec<Range<usize>> {
    parts(&(0..size).map(|rank| rank * rows / size).collect::<Vec<_>>(), rows)
}

fn aggregations() -> Vec<Aggregation> {
    let median = Statistic::Quantile { q: 0.5, interpolation: Interpolation::Linear };
    [Statistic::Sum, Statistic::Mean, Statistic::Min, Statistic::Count, Statistic::Last, median]
        .map(|statistic| Aggregation::new("value", statistic).min_samples(1))
        .to_vec()
}

/// Compares a rank's windows of its part with those of the whole table on one rank.
fn check(comm: &Communicator, rows: &Rows, parts: &[Range<usize>], spec: &Rolling) -> Outcome {
    let own = parts[comm.rank()].clone();
    let context = rolling(&rows.table(own.clone(), 7)?, spec, comm)?;
    let whole = rolling(&rows.table(0..rows.len(), rows.len().max(1))?, spec, &Communicator::single())?;
    let found = context.aggregate(&aggregations(), 1)?;
    let expected = whole.aggregate(&aggregations(), 1)?.slice(own.start, own.len());
    for (column, name) in found.schema().fields().iter().enumerate() {
        let (found, expected) = (found.column(column), expected.column(column));
        ensure!(found == expected, "{spec}, {parts:?}, {name}: {found:?} instead of {expected:?}");
    }
    let numbers = (context.first_row(), context.total_rows());
    ensure!(numbers == (own.start as u64, rows.len() as u64), "rows {numbers:?} of {own:?}");
    // At least the rows of its windows, at most those up to the farthest one.
    let windows = whole.windows().enumerate().skip(own.start).take(own.len());
    let (mut hull, mut needed, mut reaches_own_row) = (own.clone(), vec![false; rows.len()], true);
    for (row, window) in windows {
        reaches_own_row &= window.contains(&row);
        if !window.is_empty() {
            hull = hull.start.min(window.start)..hull.end.max(window.end);
            needed[window].fill(true);
        }
    }
    needed[own.clone()].fill(false);
    let needed = needed.into_iter().filter(|&is_needed| is_needed).count() as u64;
    let traffic = context.traffic();
    // Relays bring all rows between a rank's own and its windows, where these lie apart.
    let most =
        if traffic.is_relayed && !reaches_own_row { u64::MAX } else { (hull.len() - own.len()) as u64 };
    let came = traffic.rows_received;
    ensure!(
        (needed..=most).contains(&came),
        "{spec}, {parts:?}: {came} rows came, {needed} to {most} are needed"
    );
    Ok(())
}

fn check_routes(comm: &Communicator, rows: &Rows, parts: &[Range<usize>], spec: &Rolling) -> Outcome {
    ROUTES.into_iter().try_for_each(|route| check(comm, rows, parts, &spec.clone().route(route)))
}

fn by_time(window: Window) -> Rolling {
    Rolling::new("time", window).columns(["value"])
}

fn splits(comm: &Stage<'_>) -> Outcome {
    for seed in 0..6 {
        let mut numbers = Numbers::new(mix(seed) ^ comm.size() as u64);
        let rows = Rows::new(seed, 60 + numbers.below(60), 5, 6);
        let mut starts: Vec<usize> = (0..comm.size()).map(|_| numbers.below(rows.len() + 1)).collect();
        starts.sort_unstable();
        starts[0] = 0;
        let parts = parts(&starts, rows.len());
        for closed in [Closed::Left, Closed::Right, Closed::Both, Closed::None] {
            check_routes(comm, &rows, &parts, &by_time(Window::period("9ms")?.closed(closed)))?;
            check_routes(comm, &rows, &parts, &by_time(Window::around("4ms", "8ms")?.closed(closed)))?;
        }
        check_routes(comm, &rows, &parts, &by_time(Window::rows(10)?))?;
        check_routes(comm, &rows, &parts, &by_time(Window::rows(9)?.centered()))?;
    }
    comm.barrier()?;
    Ok(())
}

fn long_windows(comm: &Stage<'_>) -> Outcome {
    let rows = Rows::new(1, 90, 4, 9);
    let parts = even(comm.size(), rows.len());
    for window in [
        Window::period("70ms")?,
        Window::around("60ms", "80ms")?,
        Window::period("1w")?,
        Window::rows(50)?,
        Window::rows_around(200, 200),
    ] {
        check_routes(comm, &rows, &parts, &by_time(window))?;
    }
    comm.barrier()?;
    Ok(())
}

fn empty_ranks(comm: &Stage<'_>) -> Outcome {
    let (size, rows) = (comm.size(), Rows::new(2, 40, 3, 8));
    let all = rows.len();
    // On the last rank, the first, one in the middle; on all but the first and the last; on every second one.
    let layouts: [Box<dyn Fn(usize) -> usize>; 5] = [
        Box::new(|_| 0),
        Box::new(|rank| if rank == 0 { 0 } else { all }),
        Box::new(|rank| if rank <= size / 2 { 0 } else { all }),
        Box::new(|rank| if rank == 0 { 0 } else { all / 2 }),
        Box::new(|rank| rank.div_ceil(2) * 2 * all / (size + 1)),
    ];
    for layout in layouts {
        let starts: Vec<usize> = (0..size).map(layout).collect();
        let parts = parts(&starts, all);
        for window in [Window::period("5ms")?, Window::around("30ms", "30ms")?, Window::rows_around(3, 3)] {
            check_routes(comm, &rows, &parts, &by_time(window))?;
        }
    }
    comm.barrier()?;
    Ok(())
}

fn few_rows(comm: &Stage<'_>) -> Outcome {
    for count in 0..3 {
        let rows = Rows::new(3, count, 3, 100);
        for parts in [even(comm.size(), count), parts(&vec![0; comm.size()], count)] {
            for window in [Window::period("1s")?, Window::rows_around(1, 1), Window::rows(9)?] {
                check_routes(comm, &rows, &parts, &by_time(window))?;
            }
        }
    }
    comm.barrier()?;
    Ok(())
}

fn ties(comm: &Stage<'_>) -> Outcome {
    // A key lies on many ranks, and windows that look back only need rows from the right.
    for every in [1, 7, 25, 100] {
        let mut rows = Rows::new(4, 50, 1, 9);
        rows.keys.iter_mut().enumerate().for_each(|(row, key)| *key += (row / every) as i64);
        let parts = even(comm.size(), rows.len());
        for closed in [Closed::Left, Closed::Right, Closed::Both, Closed::None] {
            for period in ["1ms", "2ms"] {
                check_routes(comm, &rows, &parts, &by_time(Window::period(period)?.closed(closed)))?;
            }
        }
    }
    comm.barrier()?;
    Ok(())
}

fn groups(comm: &Stage<'_>) -> Outcome {
    for (seed, most) in [(0, 3), (1, 20), (2, 70)] {
        let mut rows = Rows::new(5, 80, 3, 9);
        let (mut numbers, mut left, mut group) = (Numbers::new(seed), 0, 0);
        for row in 0..rows.len() {
            if left == 0 {
                (left, group) = (1 + numbers.below(most), group + 1);
            }
            left -= 1;
            rows.groups[row] = group;
        }
        // Names ascend: "place 10" is less than "place 9".
        rows.groups.sort_by_key(|group| format!("place {group}"));
        let parts = even(comm.size(), rows.len());
        for window in [Window::period("10ms")?, Window::around("5ms", "1s")?, Window::rows_around(30, 2)] {
            check_routes(comm, &rows, &parts, &by_time(window).group_by(["place"]))?;
        }
    }
    comm.barrier()?;
    Ok(())
}

/// Messages of more than half a ring, and relays of them.
fn many_rows(comm: &Stage<'_>) -> Outcome {
    let rows = Rows::new(6, 40_000, 3, 50);
    let parts = even(comm.size(), rows.len());
    for route in [Route::Relay, Route::Direct] {
        for window in [Window::rows(15_001)?, Window::around("20s", "1s")?] {
            let spec = by_time(window).route(route);
            let context = rolling(&rows.table(parts[comm.rank()].clone(), 1000)?, &spec, comm)?;
            let whole = rolling(&rows.table(0..rows.len(), 1000)?, &spec, &Communicator::single())?;
            let sum = [Aggregation::new("value", Statistic::Sum).min_samples(1)];
            let own = &parts[comm.rank()];
            let expected = whole.aggregate(&sum, 1)?.slice(own.start, own.len());
            ensure!(context.aggregate(&sum, 1)? == expected, "{spec}: other sums than on one rank");
        }
    }
    comm.barrier()?;
    Ok(())
}

fn one_after_the_other(comm: &Stage<'_>) -> Outcome {
    for turn in 0..12 {
        let rows = Rows::new(turn, 30, 4, 9);
        let parts = even(comm.size(), rows.len());
        let other = comm.duplicate()?;
        let on: &Communicator = if turn % 2 == 0 { comm } else { &other };
        if mix(turn << 8 | comm.rank() as u64).is_multiple_of(3) {
            std::thread::sleep(Duration::from_micros(500));
        }
        check(on, &rows, &parts, &by_time(Window::rows_around(4, 9)).route(ROUTES[turn as usize % 3]))?;
    }
    comm.barrier()?;
    Ok(())
}

fn unsorted(comm: &Stage<'_>) -> Outcome {
    let (rank, last) = (comm.rank(), comm.size() - 1);
    // The ranks between the first and the last have no rows; a single rank descends within itself.
    let keys: &[i64] = match (rank, last) {
        (0, 0) => &[1000, 9000, 8000],
        (0, _) => &[1000, 9000],
        _ if rank == last => &[8000, 9000],
        _ => &[],
    };
    let key = Arc::new(TimestampMillisecondArray::from(keys.to_vec())) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("time", key)])?;
    let table = Table::new(batch.schema(), vec![batch])?;
    let spec = Rolling::new("time", Window::period("5ms")?);
    let error = rolling(&table, &spec, comm).err().map(|error| error.to_string()).unwrap_or_default();
    let row = if last == 0 { 2 } else { 0 };
    let expected = format!(
        "row {row} of rank {last} has time = 1970-01-01 00:00:08, after 1970-01-01 00:00:09 in row 1 of rank 0"
    );
    ensure!(error.contains(&expected), "{error:?} does not say {expected:?}");
    // The communicator is as it was.
    let rows = Rows::new(7, 20, 3, 9);
    check(comm, &rows, &even(comm.size(), 20), &spec.columns(["value"]))
}

fn null_key(comm: &Stage<'_>) -> Outcome {
    let culprit = comm.size() / 2;
    let keys = if comm.rank() == culprit { vec![Some(1), Some(2), None] } else { Vec::new() };
    let batch = RecordBatch::try_from_iter([("key", Arc::new(Int64Array::from(keys)) as ArrayRef)])?;
    let table = Table::new(batch.schema(), vec![batch])?;
    let error = rolling(&table, &Rolling::new("key", Window::rows(2)?), comm).err();
    let is_named = matches!(&error, Some(TableError::NullKey { rank, row: 2, .. }) if *rank == culprit);
    ensure!(is_named, "{error:?} does not name row 2 of rank {culprit}");
    comm.barrier()?;
    Ok(())
}

fn schemas(comm: &Stage<'_>) -> Outcome {
    let last = comm.size() - 1;
    let rows = Rows::new(8, 10, 3, 9);
    let own = rows.table(even(comm.size(), 10)[comm.rank()].clone(), 10)?;
    let window = if comm.rank() == last { "6ms" } else { "5ms" };
    let windows = rolling(&own, &by_time(Window::period(window)?), comm).err();
    let value = Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let time = own.schema().field(0).data_type().clone();
    let other = RecordBatch::try_from_iter([
        ("time", arrow_array::new_empty_array(&time)),
        ("value", value.slice(0, 0)),
    ])?;
    let table = if comm.rank() == last { Table::new(other.schema(), vec![other])? } else { own };
    let columns = rolling(&table, &by_time(Window::period("5ms")?), comm).err();
    if last > 0 {
        let is_named = matches!(&windows, Some(TableError::Windows { rank, other: 0, .. }) if *rank == last);
        ensure!(is_named, "{windows:?} does not name rank {last}");
        let is_named = matches!(&columns, Some(TableError::Schemas { rank, other: 0, .. }) if *rank == last);
        ensure!(is_named, "{columns:?} does not name rank {last}");
    }
    comm.barrier()?;
    Ok(())
}

fn deadline(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 2 {
        return Ok(());
    }
    let (patient, absent) = (comm.duplicate()?.with_deadline(Some(Duration::from_millis(200))), 1);
    let rows = Rows::new(9, 30, 3, 9);
    if comm.rank() != absent {
        let own = rows.table(even(comm.size(), 30)[comm.rank()].clone(), 10)?;
        let error = rolling(&own, &by_time(Window::period("5ms")?), &patient).err();
        let Some(TableError::Comm(CommError::Deadline { what, .. })) = &error else {
            fail!("{error:?} instead of a missed deadline");
        };
        // Other ranks may wait for one that waits for the absent one.
        let is_named = what.contains(&format!("rank {absent}")) || comm.rank() != 0 && what.contains("rank");
        ensure!(is_named, "{error:?} does not name rank {absent}");
    }
    comm.barrier()?;
    Ok(())
}
