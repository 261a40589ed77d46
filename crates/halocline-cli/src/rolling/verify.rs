//! The comparison with a run on one rank.

use super::args::RollingArgs;
use super::input::{Part, Source};
use crate::error::CommandError;
use crate::info;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Float64Array, RecordBatch};
use halocline::Communicator;
use halocline_table::rolling;
use serde::Serialize;

/// The result of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Verdict {
    /// The results were compared.
    Compared {
        /// Largest difference of two results; infinite if only one of them is null or not a number.
        max_abs_diff: f64,
        /// Results whose bits differ.
        different: u64,
        /// The largest difference that rounding explains: 1e-12 of the largest value; of sums, times the rows of a window.
        tolerance: f64,
    },
    /// The results were not compared, for this reason.
    Skipped {
        #[serde(rename = "check_skipped")]
        why: String,
    },
}

impl Verdict {
    /// Whether the comparison found no difference beyond rounding.
    pub(super) fn is_good(&self) -> bool {
        match self {
            Self::Compared { max_abs_diff, tolerance, .. } => max_abs_diff <= tolerance,
            Self::Skipped { .. } => true,
        }
    }
}

/// The bits of a result that is null: those of a NaN that no computation gives.
const NULL: u64 = 0x7ff8_6e75_6c6c_0001;

/// The results of a batch: the bits of each.
fn bits(results: &RecordBatch) -> Vec<u64> {
    let results: &Float64Array = results.column(0).as_primitive::<Float64Type>();
    let bits = |result: Option<f64>| result.map_or(NULL, f64::to_bits);
    results.iter().map(bits).collect()
}

/// The results of all ranks on rank 0, in order; nothing elsewhere. Collective.
pub(super) fn gather(comm: &Communicator, results: &RecordBatch) -> Result<Vec<u64>, CommandError> {
    let own = bits(results);
    let bytes = || own.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let sends = if comm.rank() == 0 { Vec::new() } else { vec![(0, bytes())] };
    let mut all = if comm.rank() == 0 { own.clone() } else { Vec::new() };
    // Sorted by rank.
    for (_, bytes) in comm.sparse_exchange(sends)? {
        all.extend(bytes.as_chunks().0.iter().map(|bits| u64::from_le_bytes(*bits)));
    }
    Ok(all)
}

/// Why the comparison is skipped, if it is; the same on all ranks. Collective.
pub(super) fn skipped(
    comm: &Communicator,
    args: &RollingArgs,
    rows: u64,
) -> Result<Option<String>, CommandError> {
    if args.no_check {
        return Ok(Some("`--no-check`".to_owned()));
    }
    // Key, value, the result twice, and the bits on their way.
    let needed = rows.saturating_mul(8 * 6);
    let mut said = Vec::new();
    match info::available_memory() {
        Some(available) if comm.rank() == 0 && available < needed => {
            said = format!("it takes {needed} bytes on rank 0, where {available} are available").into_bytes();
        }
        _ => {}
    }
    let said = comm.broadcast(0, said)?;
    Ok((!said.is_empty()).then(|| String::from_utf8_lossy(&said).into_owned()))
}

/// Repeats the run on one rank, and compares its results with `found`.
pub(super) fn verify(
    source: &Source,
    args: &RollingArgs,
    found: &[u64],
    tick: impl FnMut(u64),
) -> Result<Verdict, CommandError> {
    let table = source.read(args.columns(), Part::WHOLE, tick)?;
    let context = rolling(&table, &args.rolling()?, &Communicator::single())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let due = bits(&context.aggregate(&[args.aggregation()], threads)?);
    let (mut max_abs_diff, mut different) = (0f64, 0);
    for (&due, &found) in due.iter().zip(found).filter(|(due, found)| due != found) {
        let difference = (f64::from_bits(due) - f64::from_bits(found)).abs();
        // Both NaN, of any bits.
        let is_same =
            f64::from_bits(due).is_nan() && f64::from_bits(found).is_nan() && due != NULL && found != NULL;
        max_abs_diff = max_abs_diff.max(match difference.is_nan() {
            true if is_same => 0.0,
            true => f64::INFINITY,
            false => difference,
        });
        different += 1;
    }
    if due.len() != found.len() {
        (max_abs_diff, different) = (f64::INFINITY, different + due.len().abs_diff(found.len()) as u64);
    }
    let largest = |batch: &RecordBatch| {
        let values = batch.column_by_name(args.value()).map(|column| column.as_primitive::<Float64Type>());
        let finite = values.into_iter().flatten().flatten().filter(|value| value.is_finite());
        finite.fold(0f64, |largest, value| largest.max(value.abs()))
    };
    let largest = context.own().iter().map(largest).fold(0.0, f64::max);
    let rows = context.windows().map(|window| window.len()).max().unwrap_or(0);
    let tolerance = 1e-12 * largest * if args.is_sum() { rows as f64 } else { 1.0 };
    Ok(Verdict::Compared { max_abs_diff, different, tolerance })
}
