//! When what happened in a recorded run, for drawings.

use super::memory::Spot;
use super::report::Operation;
use crate::driver::MemorySpace;

/// What happened when: operations in the order in which they began, and what they handed on.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// All operations.
    pub spans: Vec<Span>,
    /// What made operations wait for others.
    pub arrows: Vec<Arrow>,
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Span {
    /// Whose and what.
    pub operation: Operation,
    /// When it began, and when its last step was over, in nanoseconds of virtual time.
    pub begin: u64,
    /// See `begin`.
    pub end: u64,
    /// The word that it wrote or read.
    pub word: Option<Word>,
}

/// A word, and what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Where it lies.
    pub space: MemorySpace,
    /// In which memory.
    pub memory: u64,
    /// Where in it.
    pub offset: usize,
    /// Its value then.
    pub value: u64,
}

/// One operation came after another, by its number in [`Timeline::spans`].
#[derive(Debug, Clone, Copy)]
pub struct Arrow {
    /// The first.
    pub from: usize,
    /// The one that waited.
    pub to: usize,
    /// Through a word, else through an event.
    pub by_word: bool,
}

/// The same while it is recorded.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Begin, end and word of each operation.
    pub(super) times: Vec<(u64, u64, Option<Word>)>,
    pub(super) arrows: Vec<Arrow>,
    /// The last writer of each word, and the operation that each record of an event was.
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
