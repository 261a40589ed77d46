//! The comparison with a run on one rank.

use super::args::{Kind, RollingArgs};
use super::input::{Part, Source};
use crate::error::CommandError;
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
        /// Results that differ by more than rounding explains.
        beyond_rounding: u64,
        /// The difference that rounding explains, or its share of each result.
        tolerance: f64,
        /// Whether `tolerance` is a share of each result: of the standard deviation.
        #[serde(rename = "tolerance_is_relative")]
        is_relative: bool,
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
            Self::Compared { beyond_rounding, .. } => *beyond_rounding == 0,
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
    let largest = |batch: &RecordBatch| {
        let values = batch.column_by_name(args.value()).map(|column| column.as_primitive::<Float64Type>());
        let finite = values.into_iter().flatten().flatten().filter(|value| value.is_finite());
        finite.fold(0f64, |largest, value| largest.max(value.abs()))
    };
    let largest = context.own().iter().map(largest).fold(0.0, f64::max);
    let rows = context.windows().map(|window| window.len()).max().unwrap_or(0);
    Ok(Tolerance::of(args.statistic, largest, rows).compare(&due, found))
}

/// What rounding explains.
#[derive(Debug, Clone, Copy)]
enum Tolerance {
    /// A difference.
    Absolute(f64),
    /// A share of the result.
    Relative(f64),
}

impl Tolerance {
    /// That of a statistic of values up to `largest` in windows of `rows` rows at most.
    fn of(statistic: Kind, largest: f64, rows: usize) -> Self {
        match statistic {
            // Values of the window, or computed of two of them.
            Kind::Min | Kind::Max | Kind::Median => Self::Absolute(0.0),
            Kind::Mean => Self::Absolute(1e-12 * largest),
            Kind::Sum => Self::Absolute(1e-12 * largest * rows as f64),
            // Values far from 0 do not make it less exact.
            Kind::Std => Self::Relative(1e-11),
        }
    }

    /// Compares the bits of results.
    fn compare(self, due: &[u64], found: &[u64]) -> Verdict {
        let (tolerance, is_relative) = match self {
            Self::Absolute(tolerance) => (tolerance, false),
            Self::Relative(tolerance) => (tolerance, true),
        };
        let lacking = due.len().abs_diff(found.len()) as u64;
        let (mut max_abs_diff, mut different, mut beyond_rounding) = (0f64, lacking, lacking);
        if lacking > 0 {
            max_abs_diff = f64::INFINITY;
        }
        for (&due_bits, &found_bits) in due.iter().zip(found).filter(|(due, found)| due != found) {
            different += 1;
            let (due, found) = (f64::from_bits(due_bits), f64::from_bits(found_bits));
            let is_null = due_bits == NULL || found_bits == NULL;
            // Both NaN, of any bits, or zeros of both signs, or infinite.
            let difference = match !is_null && (due.is_nan() && found.is_nan() || due == found) {
                true => 0.0,
                false => Some((due - found).abs())
                    .filter(|difference| !difference.is_nan())
                    .unwrap_or(f64::INFINITY),
            };
            let allowed = if is_relative { tolerance * due.abs() } else { tolerance };
            // An infinite result that is due allows no difference.
            beyond_rounding += u64::from(difference > allowed || difference.is_infinite());
            max_abs_diff = max_abs_diff.max(difference);
        }
        Verdict::Compared { max_abs_diff, different, beyond_rounding, tolerance, is_relative }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_good(tolerance: Tolerance, due: f64, found: f64) -> bool {
        tolerance.compare(&[due.to_bits()], &[found.to_bits()]).is_good()
    }

    #[test]
    fn minima_and_medians_are_equal_to_the_last_bit() {
        for statistic in [Kind::Min, Kind::Max, Kind::Median] {
            let tolerance = Tolerance::of(statistic, 1e9, 1000);
            assert!(is_good(tolerance, 1.5, 1.5) && is_good(tolerance, 0.0, -0.0));
            assert!(!is_good(tolerance, 1.5, 1.5f64.next_up()));
        }
    }

    /// Values of 1e9 with a standard deviation of 1e-6: an error of the whole deviation was within the tolerance.
    #[test]
    fn deviations_are_compared_by_their_own_size() {
        let tolerance = Tolerance::of(Kind::Std, 1e9, 1000);
        assert!(is_good(tolerance, 1e-6, 1e-6 * (1.0 + 1e-12)));
        assert!(
            !is_good(tolerance, 1e-6, 1.1e-6)
                && !is_good(tolerance, 1e-6, 0.0)
                && !is_good(tolerance, 0.0, 1e-6)
        );
    }

    #[test]
    fn results_that_are_null_nan_infinite_or_lacking_are_told_apart() {
        let tolerance = Tolerance::of(Kind::Mean, 1e300, 1);
        assert!(is_good(tolerance, f64::NAN, -f64::NAN) && !is_good(tolerance, f64::NAN, 1.0));
        assert!(
            !is_good(tolerance, f64::INFINITY, 1.0) && !is_good(tolerance, f64::INFINITY, f64::NEG_INFINITY)
        );
        assert!(!tolerance.compare(&[NULL], &[f64::NAN.to_bits()]).is_good());
        assert!(!tolerance.compare(&[NULL], &[]).is_good());
    }
}
