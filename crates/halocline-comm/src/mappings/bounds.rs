//! Limits of the cache, and its statistics.

use crate::error::CommError;
use halocline_device::{Variable, VariableError};
use std::ffi::OsString;

/// How much unused memory stays mapped by other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Allocations. 0: each is unmapped when its transfer ends.
    pub entries: usize,
    /// Bytes of these allocations.
    pub bytes: u64,
}

impl Limits {
    /// The limits in the environment, or the default.
    pub fn from_environment() -> Result<Self, CommError> {
        Ok(limits_of(|name| std::env::var_os(name))?)
    }

    /// Whether so much is within the limits.
    pub(super) fn hold(&self, entries: usize, bytes: u64) -> bool {
        entries <= self.entries && bytes <= self.bytes
    }
}

/// Statistics of the mappings of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests for memory of this rank that needed no offer of their own.
    pub hits: u64,
    /// Mappings of memory of this rank that other ranks have opened.
    pub opens: u64,
    /// Allocations evicted because of the limits.
    pub evictions: u64,
    /// Requests that were refused: their bytes are staged.
    pub staged: u64,
    /// Allocations of this rank that are exported now, without those that are being unmapped.
    pub entries: usize,
    /// Entries that are in use.
    pub pinned: usize,
    /// Bytes of this rank that others have mapped.
    pub bytes_held: u64,
    /// Mappings of other ranks' memory that are open here now.
    pub mapped: usize,
    /// Their bytes.
    pub bytes_mapped: u64,
    /// Messages about mappings that this rank has sent. While bound objects exchange there are none.
    pub messages: u64,
    /// Messages that were refused because no rank sends them.
    pub malformed: u64,
}

/// The default limits.
pub(super) const DEFAULT: Limits = Limits { entries: 1024, bytes: u64::MAX };

/// The limits in an environment.
pub(super) fn limits_of(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Limits, VariableError> {
    let number = |name: &'static str, default: u64| {
        Variable::given(name, lookup(name)).map_or(Ok(default), |variable| variable.number(0..=u64::MAX))
    };
    let entries = number("HALOCLINE_MAPPINGS_ENTRIES", DEFAULT.entries as u64)?;
    let bytes = number("HALOCLINE_MAPPINGS_BYTES", DEFAULT.bytes)?;
    Ok(Limits { entries: usize::try_from(entries).unwrap_or(usize::MAX), bytes })
}
