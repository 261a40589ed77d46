//! Tracks whether the memory of an exchange's fields was released to the user.

use crate::sync::{AtomicU64, Ordering};

/// The last exchange whose fields' memory was released. Each exchange, counted from 1, holds its memory from its begin until
/// [`MemoryHold::release`].
///
/// The word is twice that number. It is odd while one thread accesses the memory: threads that wait, the thread that begins
/// the next exchange and readers exclude each other.
#[derive(Debug, Default)]
pub struct MemoryHold(AtomicU64);

impl MemoryHold {
    /// Calls `give_back` unless a thread has done so. When this returns, the memory is released. `pause` is called while
    /// another thread holds the word. The exchange is over, and earlier ones were released.
    #[inline]
    pub fn release(&self, epoch: u64, pause: impl FnMut(), give_back: impl FnOnce()) {
        if self.enter(epoch, pause) {
            give_back();
            self.0.store(2 * epoch, Ordering::Release);
        }
    }

    /// Calls `look` unless the memory was released; it is not released meanwhile. The exchange was begun.
    pub fn while_held<R>(&self, epoch: u64, pause: impl FnMut(), look: impl FnOnce() -> R) -> Option<R> {
        self.enter(epoch, pause).then(|| {
            let seen = look();
            self.0.store(2 * (epoch - 1), Ordering::Release);
            seen
        })
    }

    /// Makes the word odd, unless the memory of the exchange was released.
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
