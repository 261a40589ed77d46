//! Lets one thread at a time begin an exchange, and none once it has failed and is over.

use crate::sync::{AtomicU8, Ordering};

const LOCKED: u8 = 1;
const CLOSED: u8 = 2;

/// A try-lock that can be closed for good. Lock and close are bits of one word. So if one thread locks while another
/// closes and then checks the lock, at least one sees the other, without a fence.
#[derive(Debug, Default)]
pub struct BeginLock(AtomicU8);

impl BeginLock {
    /// Locks it, unless it is locked or closed.
    #[inline]
    pub fn try_lock(&self) -> Option<BeginGuard<'_>> {
        let locked = self.0.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        locked.is_ok().then(|| BeginGuard(self))
    }

    /// Makes later locks fail. A thread that holds the lock keeps it until the guard is dropped.
    pub fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::Release);
    }

    /// Whether it is closed and not locked. Then it is never locked again, and all that its holders did, and all that was done
    /// before the close, is visible.
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
