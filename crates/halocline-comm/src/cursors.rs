//! How far a ring of bytes between two ranks is written and read: the sender's cursor and the receiver's, which only grow.

use crate::sync::{AtomicU64, Ordering};

/// A cursor on cache lines of its own.
#[derive(Debug)]
#[repr(C, align(128))]
struct Cursor(AtomicU64);

/// The cursors of one ring. One thread at a time sends, and one receives.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cursors {
    written: Cursor,
    read: Cursor,
}

impl Default for Cursors {
    fn default() -> Self {
        Self { written: Cursor(AtomicU64::new(0)), read: Cursor(AtomicU64::new(0)) }
    }
}

impl Cursors {
    /// For the sender, which has written up to `at`: whether `bytes` more fit into a ring of `capacity` bytes. The receiver has
    /// read what they overwrite.
    pub(crate) fn has_space(&self, at: u64, bytes: u64, capacity: u64) -> bool {
        let unread = at.wrapping_sub(self.read.0.load(Ordering::Acquire));
        unread.checked_add(bytes).is_some_and(|bytes| bytes <= capacity)
    }

    /// For the sender: publishes all bytes up to `at`.
    pub(crate) fn publish(&self, at: u64) {
        self.written.0.store(at, Ordering::Release);
    }

    /// For the receiver: up to where bytes are written and visible.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written.0.load(Ordering::Acquire)
    }

    /// For the receiver: lets the sender overwrite the bytes up to `at`.
    pub(crate) fn free(&self, at: u64) {
        self.read.0.store(at, Ordering::Release);
    }
}
