//! Times of the events of a recorded run, for drawings.

use super::memory::Spot;
use super::report::Operation;
use crate::driver::MemorySpace;

/// Operations in order of their start, and the dependencies between them.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// All operations.
    pub spans: Vec<Span>,
    /// Dependencies between operations.
    pub arrows: Vec<Arrow>,
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Span {
    /// The operation.
    pub operation: Operation,
    /// Start and end of the last step, in nanoseconds of virtual time.
    pub begin: u64,
    /// See `begin`.
    pub end: u64,
    /// The word that it wrote or read.
    pub word: Option<Word>,
}

/// A word and its value at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Its location.
    pub space: MemorySpace,
    /// Id of the memory.
    pub memory: u64,
    /// Byte offset in the memory.
    pub offset: usize,
    /// Its value then.
    pub value: u64,
}

/// A dependency between operations, by their indices in [`Timeline::spans`].
#[derive(Debug, Clone, Copy)]
pub struct Arrow {
    /// The earlier operation.
    pub from: usize,
    /// The operation that waited.
    pub to: usize,
    /// Whether a word, instead of an event, caused the dependency.
    pub by_word: bool,
}

/// A timeline that is being recorded.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Start, end and word of each operation.
    pub(super) times: Vec<(u64, u64, Option<Word>)>,
    pub(super) arrows: Vec<Arrow>,
    /// The last writer of each word, and the operation of each record of an event.
    pub(super) writers: Vec<(Spot, usize)>,
    pub(super) records: Vec<(usize, usize)>,
}

impl Recording {
    pub(super) fn begin(&mut self, now: u64) {
        self.times.push((now, now, None));
    }

    pub(super) fn extend(&mut self, op: usize, now: u64) {
        self.times[op].1 = now;
    }

    pub(super) fn word(&mut self, op: usize, spot: Spot, word: Word, writes: bool) {
        self.times[op].2 = Some(word);
        if writes {
            self.writers.retain(|(known, _)| *known != spot);
            self.writers.push((spot, op));
        } else if let Some((_, from)) = self.writers.iter().find(|(known, _)| *known == spot) {
            self.arrows.push(Arrow { from: *from, to: op, by_word: true });
        }
    }

    pub(super) fn awaited(&mut self, record: usize, to: usize) {
        if let Some((_, from)) = self.records.iter().find(|(known, _)| *known == record) {
            self.arrows.push(Arrow { from: *from, to, by_word: false });
        }
    }
}
