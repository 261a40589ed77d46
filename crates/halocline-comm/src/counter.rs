//! The counter of a link: an epoch that only grows, in the memory of the side that waits for it.

use crate::sync::{AtomicU64, Ordering};

/// The value that releases a wait that will never end. Epochs stay below half of it.
pub const POISON: u64 = 1 << 62;

/// What one side of a link waits for, on cache lines of its own. Exactly one other side writes it.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Counter {
    value: AtomicU64,
    cause: AtomicU64,
    closed: AtomicU64,
}

impl Default for Counter {
    fn default() -> Self {
        Self { value: AtomicU64::new(0), cause: AtomicU64::new(0), closed: AtomicU64::new(0) }
    }
}

/// What a look at a counter showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The epoch is there; everything that its writer did before is visible.
    Reached,
    /// Not yet.
    Below,
    /// The writer has failed; the word says why.
    Poisoned(u64),
    /// The writer was dropped, and this was the last epoch that it took part in.
    Closed(u64),
}

impl Counter {
    /// Publishes `epoch` and all writes before it.
    #[inline]
    pub fn raise(&self, epoch: u64) {
        debug_assert!(epoch < POISON / 2);
        self.value.store(epoch, Ordering::Release);
    }

    /// Whether `epoch` was reached.
    #[inline]
    pub fn look(&self, epoch: u64) -> Seen {
        let value = self.value.load(Ordering::Acquire);
        if value >= epoch && value < POISON { Seen::Reached } else { self.look_closer(epoch) }
    }

    fn look_closer(&self, epoch: u64) -> Seen {
        // Not the value alone: an epoch that is begun while the side fails may be raised over the poison.
        match self.cause.load(Ordering::Acquire) {
            0 => {}
            cause => return Seen::Poisoned(cause),
        }
        match self.closed.load(Ordering::Acquire) {
            0 => Seen::Below,
            // The last raise came before the close: look once more, it may have been this epoch.
            _ if self.value.load(Ordering::Acquire) >= epoch => Seen::Reached,
            last => Seen::Closed(last - 1),
        }
    }

    /// Tells the waiting side that this side has failed, and why: a word that is not 0. An epoch that
    /// another thread raises meanwhile may still be seen as reached, none after it.
    pub fn poison(&self, cause: u64) {
        debug_assert!(cause != 0);
        self.cause.store(cause, Ordering::Release);
        self.value.store(POISON, Ordering::Release);
    }

    /// Tells the waiting side that `last` was the last epoch that this side takes part in.
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
        counter.raise(2);
        assert_eq!(counter.look(3), Seen::Poisoned(7));
        assert_eq!(counter.look(u64::MAX), Seen::Poisoned(7));
    }
}
