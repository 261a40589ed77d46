//! Ready-made statistics of windows, computed by several threads.

use crate::bounds::{Rows, Sweep};
use crate::error::TableError;
use crate::kernel::extreme::{Extreme, Ordered};
use crate::kernel::feed::{Feed, Value};
use crate::kernel::quantile::{Interpolation, Quantile};
use crate::kernel::sum::{Count, FloatSum, IntegerSum};
use crate::kernel::variance::Variance;
use crate::kernel::{Block, End, Kernel, Sliding, State};
use crate::output::{Kind, Output, Part, Target};
use arrow_array::ArrayRef;
use arrow_schema::DataType;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A statistic of a window: of the values that are not null, as in polars.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Aggregation, Rolling, Statistic, Table, Window, rolling};
///
/// let batch = record_batch!(("row", Int64, [0, 1, 2]), ("level", Float64, [2.0, 3.0, 7.0]))?;
/// let table = Table::new(batch.schema(), vec![batch])?;
/// let context = rolling(&table, &Rolling::new("row", Window::rows_around(1, 0)), &Communicator::single())?;
///
/// let largest = Aggregation::new("level", Statistic::Max).min_samples(1);
/// let variance = Aggregation::new("level", Statistic::Var { ddof: 1 });
/// let result = context.aggregate(&[largest, variance], 1)?;
/// let expected = record_batch!(
///     ("level_max", Float64, [2.0, 3.0, 7.0]),
///     ("level_var", Float64, [None, Some(0.5), Some(8.0)])
/// )?;
/// assert_eq!(result, expected);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Statistic {
    /// The sum; of no value 0. Of integers: 64 bits, wrapping.
    Sum,
    /// The mean.
    Mean,
    /// The smallest value; NaN if one is.
    Min,
    /// The largest value; NaN if one is.
    Max,
    /// The number of values that are not null. Of any column.
    Count,
    /// The variance; `ddof` is subtracted from the number of values in the denominator.
    Var {
        /// Usually 1.
        ddof: u8,
    },
    /// The standard deviation.
    Std {
        /// Usually 1.
        ddof: u8,
    },
    /// The value of the first row; null if that is null.
    First,
    /// The value of the last row; null if that is null.
    Last,
    /// The quantile `q`, from 0 to 1. NaN counts as larger than all numbers.
    Quantile {
        /// Which.
        q: f64,
        /// How a quantile between two values is interpolated.
        interpolation: Interpolation,
    },
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sum => f.write_str("sum"),
            Self::Mean => f.write_str("mean"),
            Self::Min => f.write_str("min"),
            Self::Max => f.write_str("max"),
            Self::Count => f.write_str("count"),
            Self::Var { .. } => f.write_str("var"),
            Self::Std { .. } => f.write_str("std"),
            Self::First => f.write_str("first"),
            Self::Last => f.write_str("last"),
            Self::Quantile { q, .. } => write!(f, "quantile_{q}"),
        }
    }
}

/// A statistic of a column.
///
/// ```
/// use arrow_array::record_batch;
/// use halocline_comm::Communicator;
/// use halocline_table::{Aggregation, Rolling, Statistic, Table, Window, rolling};
///
/// let batch = record_batch!(("time", Int64, [0, 1, 9]), ("level", Float64, [2.0, 3.0, 7.0]))?;
/// let table = Table::new(batch.schema(), vec![batch])?;
/// let context = rolling(&table, &Rolling::new("time", Window::period("5i")?), &Communicator::single())?;
///
/// // Windows with fewer than two values give null.
/// let mean = Aggregation::new("level", Statistic::Mean).min_samples(2).named("smooth");
/// let result = context.aggregate(&[mean], 1)?;
/// assert_eq!(result, record_batch!(("smooth", Float64, [None, Some(2.5), None]))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregation {
    pub(crate) column: String,
    pub(crate) statistic: Statistic,
    pub(crate) name: String,
    min_samples: Option<usize>,
}

impl Aggregation {
    /// The result is named `COLUMN_STATISTIC`.
    pub fn new(column: impl Into<String>, statistic: Statistic) -> Self {
        let column = column.into();
        let name = format!("{column}_{statistic}");
        Self { column, statistic, name, min_samples: None }
    }

    /// Names the result.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Windows with fewer values that are not null give null. By default 1, and in windows of rows the number of their rows, as in
    /// polars; with 0 the sum of no value is 0. The count has no such limit unless one is given; the first and the last value
    /// never have one.
    pub fn min_samples(mut self, values: usize) -> Self {
        self.min_samples = Some(values);
        self
    }

    fn needs(&self, window_rows: Option<u64>) -> usize {
        let default = match self.statistic {
            Statistic::Count | Statistic::First | Statistic::Last => 0,
            _ => window_rows.map_or(1, |rows| usize::try_from(rows).unwrap_or(usize::MAX)),
        };
        self.min_samples.unwrap_or(default)
    }
}

/// The statistics of the windows of some rows.
pub(crate) struct Request<'a> {
    pub(crate) rows: &'a Rows,
    /// The rows whose windows are computed.
    pub(crate) range: Range<usize>,
    pub(crate) threads: usize,
    /// The rows of a window of rows.
    pub(crate) window_rows: Option<u64>,
}

/// Rows whose windows are found together: their bounds stay in the cache.
const BLOCK: usize = 2048;

impl Request<'_> {
    /// One array for each statistic, whose column is given as pieces.
    pub(crate) fn compute(
        &self,
        statistics: &[(Aggregation, Vec<ArrayRef>, DataType)],
    ) -> Result<Vec<ArrayRef>, TableError> {
        if self.threads == 0 {
            return Err(TableError::NoThreads);
        }
        let count = self.range.len();
        let mut outputs = Vec::new();
        for (aggregation, _, data_type) in statistics {
            outputs.push(Output::new(kind(aggregation, data_type)?, count));
        }
        let threads = self.threads.min(count.div_ceil(BLOCK)).max(1);
        // A multiple of 8: no two threads write bits of one byte.
        let each = count.div_ceil(threads).next_multiple_of(8).max(8);
        let mut parts: Vec<Vec<Part<'_>>> = outputs.iter_mut().map(|output| output.split(each)).collect();
        let mut tasks = Vec::new();
        let mut start = self.range.start;
        while start < self.range.end {
            let range = start..self.range.end.min(start + each);
            start = range.end;
            let jobs = statistics.iter().zip(&mut parts).filter_map(|((aggregation, pieces, _), parts)| {
                let part = if parts.is_empty() { None } else { Some(parts.remove(0)) };
                part.map(|part| job(aggregation, pieces, aggregation.needs(self.window_rows), part))
            });
            tasks.push((range, jobs.collect()));
        }
        self.run_all(tasks);
        drop(parts);
        let finished = outputs.into_iter().zip(statistics);
        Ok(finished
            .map(|(output, (aggregation, _, data_type))| output.finish(&result_type(aggregation, data_type)))
            .collect())
    }

    /// Runs the tasks on as many threads, or fewer where the system refuses some.
    fn run_all(&self, tasks: Vec<(Range<usize>, Vec<Job<'_>>)>) {
        let helpers = tasks.len().saturating_sub(1);
        let tasks = Mutex::new(tasks);
        let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let work = || {
            while let Some((range, jobs)) = next() {
                self.run(range, jobs);
            }
        };
        std::thread::scope(|scope| {
            let spawn = |_: &usize| std::thread::Builder::new().spawn_scoped(scope, work).is_ok();
            let started = (0..helpers).take_while(spawn).count();
            if started < helpers {
                tracing::warn!("computes windows on {} threads: the system refuses more", started + 1);
            }
            work();
        });
    }

    fn run(&self, range: Range<usize>, mut jobs: Vec<Job<'_>>) {
        let mut sweep = Sweep::new(self.rows, range);
        let mut windows = Vec::with_capacity(BLOCK);
        loop {
            sweep.next(BLOCK, &mut windows);
            if windows.is_empty() {
                return;
            }
            jobs.iter_mut().for_each(|job| job(&windows));
        }
    }
}

/// Computes a statistic of the next windows.
type Job<'a> = Box<dyn FnMut(&[Range<usize>]) + Send + 'a>;

/// The type that a statistic of a column computes with. An error if the column has no such statistic.
fn kind(aggregation: &Aggregation, data_type: &DataType) -> Result<Kind, TableError> {
    let Aggregation { column, statistic, .. } = aggregation;
    if let Statistic::Quantile { q, .. } = statistic
        && !(0.0..=1.0).contains(q)
    {
        return Err(TableError::Quantile { quantile: q.to_string() });
    }
    let of_column = match data_type {
        DataType::Float64 | DataType::Float32 => Some(Kind::Float),
        signed if signed.is_signed_integer() => Some(Kind::Signed),
        unsigned if unsigned.is_unsigned_integer() => Some(Kind::Unsigned),
        _ => None,
    };
    match statistic {
        Statistic::Count => Ok(Kind::Unsigned),
        _ if of_column.is_none() => {
            let (column, found) = (column.clone(), data_type.to_string());
            Err(TableError::ValueType { column, found, statistic: statistic.to_string() })
        }
        Statistic::Mean | Statistic::Var { .. } | Statistic::Std { .. } | Statistic::Quantile { .. } => {
            Ok(Kind::Float)
        }
        _ => Ok(of_column.unwrap_or(Kind::Float)),
    }
}

/// The type of a result: sums of integers have 64 bits.
fn result_type(aggregation: &Aggregation, data_type: &DataType) -> DataType {
    match (aggregation.statistic, data_type) {
        (Statistic::Count, _) => DataType::UInt64,
        (Statistic::Sum, signed) if signed.is_signed_integer() => DataType::Int64,
        (Statistic::Sum, unsigned) if unsigned.is_unsigned_integer() => DataType::UInt64,
        (Statistic::Sum | Statistic::Min | Statistic::Max | Statistic::First | Statistic::Last, own) => {
            own.clone()
        }
        (_, DataType::Float32) => DataType::Float32,
        _ => DataType::Float64,
    }
}

fn job<'a>(aggregation: &Aggregation, pieces: &'a [ArrayRef], needs: usize, part: Part<'a>) -> Job<'a> {
    match (aggregation.statistic, part) {
        (Statistic::Sum, Part::Signed(to)) => sliding(IntegerSum::<i64>::default(), needs, pieces, to),
        (Statistic::Sum, Part::Unsigned(to)) => sliding(IntegerSum::<u64>::default(), needs, pieces, to),
        (Statistic::Count, Part::Unsigned(to)) => sliding(Count, needs, pieces, to),
        (statistic, Part::Signed(to)) => ordered(statistic, needs, pieces, to),
        (statistic, Part::Unsigned(to)) => ordered(statistic, needs, pieces, to),
        (statistic, Part::Float(to)) => match statistic {
            Statistic::Sum => sliding(FloatSum::default(), needs, pieces, to),
            Statistic::Mean => sliding(FloatSum::mean(), needs, pieces, to),
            Statistic::Var { ddof } => sliding(Variance::new(ddof, false), needs, pieces, to),
            Statistic::Std { ddof } => sliding(Variance::new(ddof, true), needs, pieces, to),
            Statistic::Quantile { q, interpolation } => {
                run(Quantile::new(q, interpolation, needs), pieces, to)
            }
            statistic => ordered(statistic, needs, pieces, to),
        },
    }
}

fn ordered<'a, T: Value + Ordered>(
    statistic: Statistic,
    needs: usize,
    pieces: &'a [ArrayRef],
    to: Target<'a, T>,
) -> Job<'a> {
    match statistic {
        Statistic::Min => sliding(Extreme::<T, false>::default(), needs, pieces, to),
        Statistic::Max => sliding(Extreme::<T, true>::default(), needs, pieces, to),
        statistic => run(End { is_last: matches!(statistic, Statistic::Last) }, pieces, to),
    }
}

fn sliding<'a, T: Value, S: State<T> + 'a>(
    state: S,
    needs: usize,
    pieces: &'a [ArrayRef],
    to: Target<'a, S::Out>,
) -> Job<'a> {
    run(Sliding::new(state, needs), pieces, to)
}

fn run<'a, T: Value, K: Kernel<T> + 'a>(
    mut kernel: K,
    pieces: &'a [ArrayRef],
    mut to: Target<'a, K::Out>,
) -> Job<'a>
where
    K::Out: Send,
{
    let mut feed = Feed::<T>::new(pieces);
    Box::new(move |windows| {
        let reads = kernel.reads(windows, feed.rows());
        let span = &feed.span(reads.clone());
        to.fill(windows.len(), |out, valid| kernel.run(Block { windows, reads, span, out, valid }));
    })
}
