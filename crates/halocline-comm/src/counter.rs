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
        if value >= epoch && value < POISON { Seen::Reached } else { self.look_closer(epoch, value) }
    }

    fn look_closer(&self, epoch: u64, value: u64) -> Seen {
        if value >= POISON {
            return Seen::Poisoned(self.cause.load(Ordering::Relaxed));
        }
        match self.closed.load(Ordering::Acquire) {
            0 => Seen::Below,
            // The last raise came before the close: look once more, it may have been this epoch.
            _ if self.value.load(Ordering::Acquire) >= epoch => Seen::Reached,
            last => Seen::Closed(last - 1),
        }
    }

    /// Tells the waiting side that this side has failed, and why. Nothing is raised afterwards.
    pub fn poison(&self, cause: u64) {
        self.cause.store(cause, Ordering::Relaxed);
        self.value.store(POISON, Ordering::Release);
    }

    /// Tells the waiting side that `last` was the last epoch that this side takes part in.
    pub fn close(&self, last: u64) {
        self.closed.store(last + 1, Ordering::Release);
    }
}
