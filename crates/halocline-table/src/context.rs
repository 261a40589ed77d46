//! A rank's rows with those of other ranks that their windows need.

use crate::aggregate::{Aggregation, Request};
use crate::bounds::{Gap, Rows, Sweep};
use crate::error::TableError;
use crate::exchange::{Received, Traffic, exchange};
use crate::keys::Keys;
use crate::links::MessageLinks;
use crate::message::Arrived;
use crate::relay::Place;
use crate::spec::Rolling;
use crate::summary::Summary;
use crate::table::{Sorted, Table};
use crate::window::Offsets;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{Field, Schema, SchemaRef};
use halocline_comm::Communicator;
use std::ops::Range;
use std::time::Instant;
use tracing::trace_span;

/// Brings the rows that the windows of this rank's rows need from other ranks. Collective: all ranks give the same window, and
/// tables of the same columns, whose rows ascend by group and key over the ranks in order.
///
/// One all-gather of the ends of all ranks' tables comes first. It checks that the whole table is sorted, and tells each rank the
/// number of its first row. An error of the table or the window is returned by all ranks. After it a rank waits only for ranks
/// whose rows it needs, and for those that lie between.
pub fn rolling(table: &Table, spec: &Rolling, comm: &Communicator) -> Result<Context, TableError> {
    let comm = comm.within("rolling");
    let rank = comm.rank();
    let start = Instant::now();
    let mut sorted = trace_span!("check order", rank).in_scope(|| Sorted::new(table, spec, rank));
    let checked = start.elapsed();
    let span = trace_span!("exchange rows", rank).entered();
    let mut all = Summary::new(table, &sorted, spec).gather(&comm)?;
    if Summary::lacks_types(&all) {
        let table = table.with_types_of_all(&comm)?;
        sorted = Sorted::new(&table, spec, rank);
        all = Summary::new(&table, &sorted, spec).gather(&comm)?;
    }
    let links = MessageLinks::begin(&comm);
    let key_text = |key: i64| sorted.as_ref().map_or_else(|_| key.to_string(), |own| own.key_type.text(key));
    Summary::check(&all, spec, key_text)?;
    let sorted = sorted?;
    let place = Place { rank, size: all.len(), rows: Summary::rows_of(&all, rank) };
    let total_rows = Summary::rows_of(&all, all.len()).end;
    let mut received = exchange(&links, &sorted, &all, place.clone(), spec.route)?;
    drop(span);
    (received.traffic.checked, received.traffic.exchanged) = (checked, start.elapsed() - checked);
    Ok(Context::new(sorted, received, spec, place, total_rows))
}

/// Rows of a table in order: rows of ranks before this one, its own, rows of ranks after it. The rows of other ranks are those
/// that a window of an own row reaches; they belong to the group of the own rows that they adjoin.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Rolling, Table, Window, rolling};
///
/// // Two ranks as threads: rank 0 has the times 0 and 1, rank 1 the times 2 and 3.
/// let run = |comm: Communicator| {
///     let first = 2 * comm.rank() as i64;
///     let batch = record_batch!(("time", Int64, [first, first + 1])).expect("columns of one length");
///     let table = Table::new(batch.schema(), vec![batch])?;
///     rolling(&table, &Rolling::new("time", Window::period("2i")?), &comm)
/// };
/// let ranks = Communicator::threads(2).into_iter().map(|comm| std::thread::spawn(move || run(comm)));
/// let ranks: Vec<_> = ranks.collect();
/// let contexts: Vec<_> = ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect::<Result<_, _>>()?;
///
/// // Rank 1 has one row of rank 0 before its own rows.
/// assert_eq!(contexts[1].own_rows(), 1..3);
/// assert_eq!(contexts[1].windows().collect::<Vec<_>>(), [0..2, 1..3]);
/// # Ok::<(), halocline_table::TableError>(())
/// ```
#[derive(Debug)]
pub struct Context {
    schema: SchemaRef,
    /// Of all rows, in order.
    batches: Vec<RecordBatch>,
    /// The number of the first row of each batch in the whole table.
    first_rows: Vec<u64>,
    /// The batches with own rows.
    own_batches: Range<usize>,
    own_rows: Range<usize>,
    rows: Rows,
    rank: usize,
    first_row: u64,
    total_rows: u64,
    window_rows: Option<u64>,
    traffic: Traffic,
}

/// Where the numbers of rows jump.
fn gaps(batches: &[RecordBatch], first_rows: &[u64]) -> Vec<Gap> {
    let (mut gaps, mut row, mut next) = (Vec::new(), 0, None);
    for (batch, &first) in batches.iter().zip(first_rows) {
        let missing = next.map_or(0, |next| first.saturating_sub(next) as usize);
        if missing > 0 {
            gaps.push(Gap { row, missing });
        }
        row += batch.num_rows();
        next = Some(first + batch.num_rows() as u64);
    }
    gaps
}

impl Context {
    fn new(sorted: Sorted, received: Received, spec: &Rolling, place: Place, total_rows: u64) -> Self {
        let count = |pieces: &[Arrived]| pieces.iter().map(|piece| piece.keys.len()).sum::<usize>();
        let (before, after, own) = (count(&received.before), count(&received.after), sorted.rows());
        let pieces = |pieces: &[Arrived]| {
            pieces.iter().flat_map(|piece| piece.keys.pieces().to_vec()).collect::<Vec<_>>()
        };
        let (keys_before, keys_after) = (pieces(&received.before), pieces(&received.after));
        let own_keys = sorted.keys.pieces().iter().cloned();
        let keys = Keys::new(keys_before.into_iter().chain(own_keys).chain(keys_after));
        let mut group_ends = sorted.group_ends;
        group_ends.iter_mut().for_each(|end| *end += before);
        if let Some(last) = group_ends.last_mut() {
            *last += after;
        }
        let (mut batches, mut first_rows) = (Vec::new(), Vec::new());
        let mut append = |rows: crate::message::NumberedRows| {
            batches.extend(rows.batches);
            first_rows.extend(rows.first_rows);
            batches.len()
        };
        received.before.into_iter().for_each(|piece| _ = append(piece.rows));
        let own_start = append(Default::default());
        let own_end = append(crate::message::NumberedRows::of(
            &sorted.batches,
            place.rows.start,
            std::slice::from_ref(&(0..own)),
        ));
        received.after.into_iter().for_each(|piece| _ = append(piece.rows));
        let gaps = match sorted.offsets {
            Offsets::Rows { .. } => gaps(&batches, &first_rows),
            Offsets::Keys { .. } => Vec::new(),
        };
        Self {
            schema: sorted.schema,
            batches,
            first_rows,
            own_batches: own_start..own_end,
            own_rows: before..before + own,
            rows: Rows { keys, group_ends, offsets: sorted.offsets, gaps },
            rank: place.rank,
            first_row: place.rows.start,
            total_rows,
            window_rows: spec.window.row_count(),
            traffic: received.traffic,
        }
    }

    /// The columns: the key, the groups and those of [`Rolling::columns`], in the order of the table.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// All rows, in order.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// For each of [`Context::batches`] the number of its first row in the whole table, counted from 0. The rows of a batch follow each
    /// other. Those of two batches may not, where an offset moves windows off their rows.
    pub fn first_rows(&self) -> &[u64] {
        &self.first_rows
    }

    /// Rows of ranks before this one.
    pub fn before(&self) -> &[RecordBatch] {
        &self.batches[..self.own_batches.start]
    }

    /// This rank's rows.
    pub fn own(&self) -> &[RecordBatch] {
        &self.batches[self.own_batches.clone()]
    }

    /// Rows of ranks after this one.
    pub fn after(&self) -> &[RecordBatch] {
        &self.batches[self.own_batches.end..]
    }

    /// Where this rank's rows lie among those of [`Context::batches`].
    pub fn own_rows(&self) -> Range<usize> {
        self.own_rows.clone()
    }

    /// For each row of [`Context::batches`] whether it is this rank's.
    pub fn mask(&self) -> BooleanArray {
        let mut mask = BooleanBufferBuilder::new(self.rows.keys.len());
        mask.append_n(self.own_rows.start, false);
        mask.append_n(self.own_rows.len(), true);
        mask.append_n(self.rows.keys.len() - self.own_rows.end, false);
        BooleanArray::new(mask.finish(), None)
    }

    /// The number of this rank's first row in the whole table, counted from 0.
    pub fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Rows of the whole table.
    pub fn total_rows(&self) -> u64 {
        self.total_rows
    }

    /// Counts of the exchange.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The windows of this rank's rows, as ranges of rows of [`Context::batches`], for statistics of the program's own. Empty
    /// windows may lie anywhere.
    pub fn windows(&self) -> impl Iterator<Item = Range<usize>> {
        const BLOCK: usize = 1024;
        let mut sweep = Sweep::new(&self.rows, self.own_rows.clone());
        let blocks = std::iter::from_fn(move || {
            let mut windows = Vec::with_capacity(BLOCK);
            sweep.next(BLOCK, &mut windows);
            (!windows.is_empty()).then_some(windows)
        });
        blocks.flatten()
    }

    /// Statistics of the windows of this rank's rows, one column for each, computed by `threads` threads. Local: the other ranks
    /// need not call it.
    pub fn aggregate(&self, aggregations: &[Aggregation], threads: usize) -> Result<RecordBatch, TableError> {
        let mut statistics = Vec::new();
        for aggregation in aggregations {
            let column = &aggregation.column;
            let index = self.schema.index_of(column).map_err(|_| {
                let names: Vec<String> =
                    self.schema.fields().iter().map(|field| format!("{:?}", field.name())).collect();
                TableError::NotThere { column: column.clone(), columns: names.join(", ") }
            })?;
            let pieces = self.batches.iter().map(|batch| batch.column(index).clone()).collect();
            statistics.push((aggregation.clone(), pieces, self.schema.field(index).data_type().clone()));
        }
        let _span = trace_span!("aggregate", rank = self.rank).entered();
        let (range, window_rows) = (self.own_rows.clone(), self.window_rows);
        let columns = Request { rows: &self.rows, range, threads, window_rows }.compute(&statistics)?;
        let named = aggregations.iter().zip(&columns);
        let fields: Vec<Field> = named
            .map(|(of, column)| Field::new(&of.name, arrow_array::Array::data_type(column).clone(), true))
            .collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(self.own_rows.len()));
        RecordBatch::try_new_with_options(Schema::new(fields).into(), columns, &options).map_err(|why| {
            TableError::Arrow {
                rank: self.rank,
                what: "collect the statistics".to_owned(),
                why: why.to_string(),
            }
        })
    }
}
