//! Whether the memory of an exchange's fields was given back to the user.

use crate::sync::{AtomicU64, Ordering};

/// The exchange whose fields' memory was given back last. Each exchange, counted from 1, holds its memory from its begin until
/// [`MemoryHold::release`].
///
/// The word is twice that number, and odd while one thread works on what the exchange holds: threads that wait, one that begins
/// the next exchange and those that look take turns.
#[derive(Debug, Default)]
pub struct MemoryHold(AtomicU64);

impl MemoryHold {
    /// Calls `give_back` unless that was done. When this returns it was, by this thread or another. `pause` is called while
    /// another thread is at it. The exchange is over, and those before it were released.
    #[inline]
    pub fn release(&self, epoch: u64, pause: impl FnMut(), give_back: impl FnOnce()) {
        if self.enter(epoch, pause) {
            give_back();
            self.0.store(2 * epoch, Ordering::Release);
        }
    }

    /// Calls `look` unless the memory was given back; it is not meanwhile. The exchange was begun.
    pub fn while_held<R>(&self, epoch: u64, pause: impl FnMut(), look: impl FnOnce() -> R) -> Option<R> {
        self.enter(epoch, pause).then(|| {
            let seen = look();
            self.0.store(2 * (epoch - 1), Ordering::Release);
            seen
        })
    }

    /// Makes the word odd, unless the memory of the exchange was given back.
    #[inline]
    fn enter(&self, epoch: u64, mut pause: impl FnMut()) -> bool {
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word >= 2 * epoch {
                return false;
            }
            let is_free = word.is_multiple_of(2);
            if is_free
                && self.0.compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            pause();
        }
    }
}
