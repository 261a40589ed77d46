//! The result of comparing a run with another one, to the last bit.

use serde::Serialize;

/// The result of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Verdict {
    /// The results were compared.
    Compared {
        /// Largest difference of two values; infinite if one is not a number.
        max_abs_diff: f64,
        /// Number of cells whose bits differ.
        different: u64,
    },
    /// The results were not compared, for this reason.
    Skipped {
        #[serde(rename = "check_skipped")]
        why: String,
    },
}

impl Verdict {
    /// Whether the comparison found no difference.
    pub(crate) fn is_good(&self) -> bool {
        match self {
            Self::Compared { max_abs_diff, different } => *max_abs_diff == 0.0 && *different == 0,
            Self::Skipped { .. } => true,
        }
    }
}
