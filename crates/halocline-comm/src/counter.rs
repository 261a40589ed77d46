//! The flag of a link: an epoch that only grows, in the memory of the side that polls it.

use crate::sync::{AtomicU64, Ordering};

/// A flag that one side of a link polls, on cache lines of its own. Only the other side writes it,
/// possibly from several threads when it fails or closes.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Counter {
    /// The last epoch reached.
    value: AtomicU64,
    /// Why the writer has failed; 0 while it has not. Separate from the value, so that neither hides the other.
    poison: AtomicU64,
    /// The last epoch that the writer takes part in, plus 1; 0 while it goes on.
    closed: AtomicU64,
    /// The number of the set of fields that the epochs exchange: even epochs, odd epochs.
    about: [AtomicU64; 2],
}

impl Default for Counter {
    fn default() -> Self {
        Self {
            value: AtomicU64::new(0),
            poison: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            about: Default::default(),
        }
    }
}

/// The state of a flag for one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The epoch is reached; everything that the writer did before is visible.
    Reached,
    /// Not yet.
    Below,
    /// The writer has failed before this epoch; the word says why.
    Poisoned(u64),
    /// The writer was dropped, and this was the last epoch that it took part in.
    Closed(u64),
}

impl Counter {
    /// Publishes `epoch` and all writes before it.
    #[inline]
    pub fn raise(&self, epoch: u64) {
        self.value.store(epoch, Ordering::Release);
    }

    /// Before a raise: sets what this epoch, and every second one after it, is about. After it: publishes a further step of this
    /// epoch, and all writes before it. The polling side must have read the value of two epochs before. Call it only when the value
    /// changes: the other side polls this cache line, and each write between two reads costs a round trip.
    pub fn say(&self, epoch: u64, about: u64) {
        self.about[(epoch & 1) as usize].store(about, Ordering::Release);
    }

    /// The set of fields of `epoch`, which is reached. Everything that the writer did before it set the counter is visible.
    #[inline]
    pub fn about(&self, epoch: u64) -> u64 {
        self.about[(epoch & 1) as usize].load(Ordering::Acquire)
    }

    /// Whether `epoch` was reached.
    #[inline]
    pub fn look(&self, epoch: u64) -> Seen {
        if self.value.load(Ordering::Acquire) >= epoch { Seen::Reached } else { self.look_closer(epoch) }
    }

    fn look_closer(&self, epoch: u64) -> Seen {
        let poison = self.poison.load(Ordering::Acquire);
        let closed = self.closed.load(Ordering::Acquire);
        if (poison, closed) == (0, 0) {
            return Seen::Below;
        }
        // The last raise came before poison and close: check once more, it may have been this epoch.
        if self.value.load(Ordering::Acquire) >= epoch {
            return Seen::Reached;
        }
        if poison != 0 { Seen::Poisoned(poison) } else { Seen::Closed(closed - 1) }
    }

    /// Reports to the polling side that this side has failed, and why (not 0).
    pub fn poison(&self, cause: u64) {
        self.poison.store(cause, Ordering::Release);
    }

    /// Reports to the polling side that `last` was the last epoch of this side.
    pub fn close(&self, last: u64) {
        self.closed.store(last + 1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_poison_survives_an_epoch_that_is_raised_meanwhile() {
        let counter = Counter::default();
        counter.raise(1);
        counter.poison(7);
        assert_eq!(counter.look(1), Seen::Reached);
        counter.raise(2);
        assert_eq!(counter.look(3), Seen::Poisoned(7));
        assert_eq!(counter.look(u64::MAX), Seen::Poisoned(7));
    }
}
