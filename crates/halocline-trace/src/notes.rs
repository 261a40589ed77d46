//! The record of a rank, up to a limit.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The most entries of a rank, about 100 MB.
pub(super) const MOST: usize = 1 << 17;

/// A span from its entry to its exit, or an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) rank: usize,
    pub(super) name: String,
    pub(super) target: &'static str,
    /// Start by the monotonic clock, ns.
    pub(super) begin: u64,
    /// End of a span; `None` for an event.
    pub(super) end: Option<u64>,
    pub(super) thread: u64,
    pub(super) fields: Map<String, Value>,
}

/// The record of a rank.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) entries: Vec<Entry>,
    /// The names of the rank's threads.
    pub(super) threads: BTreeMap<u64, String>,
    most: usize,
    /// Entries that are not in the trace.
    pub(super) left_out: u64,
    /// Time by the monotonic clock, ns, from which on the record is incomplete.
    pub(super) full_at: Option<u64>,
}

impl Notes {
    /// A record of at most this many entries of the host.
    pub(super) fn new(most: usize) -> Self {
        Self { entries: Vec::new(), threads: BTreeMap::new(), most, left_out: 0, full_at: None }
    }

    /// Adds an entry of the host; `thread_name` names its thread.
    pub(super) fn add(&mut self, entry: Entry, thread_name: impl FnOnce() -> String) {
        if self.entries.len() >= self.most {
            self.left_out += 1;
            self.ends(entry.begin);
        } else {
            self.add_of_device(entry, thread_name);
        }
    }

    /// Adds an entry of a device, which has a limit of its own.
    pub(super) fn add_of_device(&mut self, entry: Entry, thread_name: impl FnOnce() -> String) {
        self.threads.entry(entry.thread).or_insert_with(thread_name);
        self.entries.push(entry);
    }

    /// The record is incomplete from this moment on.
    pub(super) fn ends(&mut self, moment: u64) {
        self.full_at = Some(self.full_at.map_or(moment, |full_at| full_at.min(moment)));
    }

    /// Leaves out all entries that do not satisfy the condition.
    pub(super) fn retain(&mut self, keeps: impl Fn(&Entry) -> bool) {
        let before = self.entries.len();
        self.entries.retain(keeps);
        self.left_out += (before - self.entries.len()) as u64;
        let threads: BTreeSet<u64> = self.entries.iter().map(|entry| entry.thread).collect();
        self.threads.retain(|thread, _| threads.contains(thread));
    }
}
