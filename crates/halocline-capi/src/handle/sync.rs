//! The atomics, the lock and the cell of the table: loom's under its model checker, the standard ones otherwise.

#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::Mutex,
    sync::atomic::{AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(super) use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

/// `std::cell::UnsafeCell` with the interface of loom's.
#[cfg(not(loom))]
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline]
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
