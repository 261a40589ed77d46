//! Records accesses to the bytes of a memory, and detects conflicting accesses without order.
//!
//! Exact to the byte: a memory is split into cells at the ends of accesses. A cell keeps the accesses that
//! a later one may conflict with; an access that a newer one supersedes for all later conflicts is dropped.

use super::clock::{Actor, Clock};
use std::ops::Range;

/// Kinds of access. Atomic ones (operations on words) do not conflict with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Write,
    AtomicRead,
    AtomicWrite,
}

impl Touch {
    fn is_atomic(self) -> bool {
        matches!(self, Touch::AtomicRead | Touch::AtomicWrite)
    }

    fn writes(self) -> bool {
        matches!(self, Touch::Write | Touch::AtomicWrite)
    }

    fn conflicts(self, other: Touch) -> bool {
        (self.writes() || other.writes()) && !(self.is_atomic() && other.is_atomic())
    }
}

/// One access: its actor, the actor's time, and its operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) actor: Actor,
    pub(super) at: u32,
    pub(super) op: usize,
    pub(super) touch: Touch,
}

/// The accesses to one memory.
#[derive(Debug)]
pub(super) struct Shadow(Vec<Cell>);

/// Bytes from the end of the previous cell.
#[derive(Debug, Clone)]
struct Cell {
    end: usize,
    accesses: Vec<Access>,
}

impl Shadow {
    pub(super) fn new(bytes: usize) -> Self {
        Self(vec![Cell { end: bytes, accesses: Vec::new() }])
    }

    /// Records an access by an actor that has seen `seen`. Calls `conflict` for each earlier conflicting
    /// access that the actor has not seen.
    pub(super) fn touch(
        &mut self,
        range: Range<usize>,
        new: Access,
        seen: &Clock,
        mut conflict: impl FnMut(Range<usize>, Access),
    ) {
        if range.is_empty() {
            return;
        }
        let first = self.cut(range.start);
        let last = self.cut(range.end);
        let mut start = range.start;
        for cell in &mut self.0[first..last] {
            for old in &cell.accesses {
                if old.touch.conflicts(new.touch) && seen.get(old.actor) < old.at {
                    conflict(start..cell.end, *old);
                }
            }
            let covers = |old: &Access| match new.touch {
                Touch::Write => true,
                Touch::Read => old.touch == Touch::Read && seen.get(old.actor) >= old.at,
                Touch::AtomicRead => old.touch == Touch::AtomicRead && seen.get(old.actor) >= old.at,
                Touch::AtomicWrite => old.touch.is_atomic() && seen.get(old.actor) >= old.at,
            };
            cell.accesses.retain(|old| !covers(old));
            cell.accesses.push(new);
            start = cell.end;
        }
    }

    /// Splits the cells at `at`. Returns the index of the cell that begins there, or the number of cells at
    /// their end.
    fn cut(&mut self, at: usize) -> usize {
        let index = self.0.partition_point(|cell| cell.end <= at);
        let start = if index == 0 { 0 } else { self.0[index - 1].end };
        if start == at || index == self.0.len() {
            return index;
        }
        let lower = Cell { end: at, accesses: self.0[index].accesses.clone() };
        self.0.insert(index, lower);
        index + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflicts(shadow: &mut Shadow, range: Range<usize>, new: Access, seen: &Clock) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        shadow.touch(range, new, seen, |range, _| found.push((range.start, range.end)));
        found
    }

    #[test]
    fn conflicts_are_exact_to_the_byte() {
        let mut shadow = Shadow::new(100);
        let (mut one, mut two) = (Clock::default(), Clock::default());
        one.tick(0);
        two.tick(1);
        let write = |actor| Access { actor, at: 1, op: 0, touch: Touch::Write };
        assert!(conflicts(&mut shadow, 10..20, write(0), &one).is_empty());
        assert!(conflicts(&mut shadow, 20..30, write(1), &two).is_empty());
        assert_eq!(conflicts(&mut shadow, 19..21, write(1), &two), [(19, 20)]);
        two.join(&one);
        assert!(conflicts(&mut shadow, 0..100, write(1), &two).is_empty());
    }

    #[test]
    fn words_are_no_conflict_but_plain_access_to_them_is() {
        let mut shadow = Shadow::new(8);
        let (mut one, mut two) = (Clock::default(), Clock::default());
        one.tick(0);
        two.tick(1);
        let access = |actor, touch| Access { actor, at: 1, op: 0, touch };
        assert!(conflicts(&mut shadow, 0..8, access(0, Touch::AtomicWrite), &one).is_empty());
        assert!(conflicts(&mut shadow, 0..8, access(1, Touch::AtomicWrite), &two).is_empty());
        assert_eq!(conflicts(&mut shadow, 0..4, access(1, Touch::Read), &two), [(0, 4)]);
    }
}
