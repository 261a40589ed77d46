//! The last exchange whose part an engine has completed, and whether the object has failed, in one word.

use std::sync::atomic::{AtomicU64, Ordering};

/// Set beside the epoch once the object has failed: no later exchange completes. One atomic operation thus decides whether an
/// exchange has completed or failed. Epochs are below 2^61.
const STOPPED: u64 = 1 << 63;

/// One engine's completed exchanges.
pub(crate) struct Completed(AtomicU64);

impl Completed {
    /// An engine that carries nothing has completed its part of every exchange.
    pub(crate) fn new(carries: bool) -> Self {
        Self(AtomicU64::new(if carries { 0 } else { STOPPED - 2 }))
    }

    /// The last completed exchange.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.0.load(Ordering::Acquire) & !STOPPED
    }

    /// Completes exchange `epoch`, which follows the last one. False after a failure.
    #[inline]
    pub(crate) fn complete(&self, epoch: u64) -> bool {
        self.0.compare_exchange(epoch - 1, epoch, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Completes all exchanges up to `epoch`, except after a failure. Returns the last completed one.
    pub(crate) fn reach(&self, epoch: u64) -> u64 {
        match self.0.fetch_max(epoch, Ordering::AcqRel) {
            stopped if stopped & STOPPED != 0 => stopped & !STOPPED,
            last => last.max(epoch),
        }
    }

    /// No exchange completes any more. Returns the last one that did; an error if this was called before.
    pub(super) fn stop(&self) -> Result<u64, ()> {
        let last = self.0.fetch_or(STOPPED, Ordering::AcqRel);
        if last & STOPPED == 0 { Ok(last) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_completes_after_a_failure() {
        let completed = Completed::new(true);
        assert!(completed.complete(1) && !completed.complete(3));
        assert_eq!(completed.reach(4), 4);
        assert_eq!(completed.stop(), Ok(4));
        assert_eq!(completed.stop(), Err(()));
        assert!(!completed.complete(5));
        assert_eq!((completed.reach(7), completed.last()), (4, 4));
    }
}
