//! How mutexes are locked: no panic under a lock of this crate leaves its data half-changed, so that a poisoned one is used on.

pub(crate) use halocline_comm::lock_yielding;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
