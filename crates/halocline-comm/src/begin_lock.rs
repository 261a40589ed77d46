//! Who may begin an exchange: one thread at a time, and none once it has failed and is over.

use crate::sync::{AtomicU8, Ordering};

const LOCKED: u8 = 1;
const CLOSED: u8 = 2;

/// A try-lock that can be closed for good. Both are bits of one word, so that of two threads, one that locks and one that
/// closes and then looks whether it is locked, at least one sees the other, without any fence.
#[derive(Debug, Default)]
pub struct BeginLock(AtomicU8);

impl BeginLock {
    /// Locks it, unless it is locked or closed.
    #[inline]
    pub fn try_lock(&self) -> Option<BeginGuard<'_>> {
        let locked = self.0.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        locked.is_ok().then(|| BeginGuard(self))
    }

    /// From now on nobody locks it. Who has locked it keeps it until the guard is dropped.
    pub fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::Release);
    }

    /// Whether it is closed and not locked: it never is again, and all that its holders did, and what was done before it was
    /// closed, is visible.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }
}

/// Unlocks when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct BeginGuard<'a>(&'a BeginLock);

impl Drop for BeginGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_and(!LOCKED, Ordering::Release);
    }
}
