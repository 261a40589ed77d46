//! Statistics of the cache.

/// Statistics of the mappings of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests for memory of this rank that needed no offer of their own.
    pub hits: u64,
    /// Mappings of memory of this rank that other ranks have opened.
    pub opens: u64,
    /// Allocations evicted because of the limit.
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
