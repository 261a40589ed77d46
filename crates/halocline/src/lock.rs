//! How mutexes are locked: no panic under a lock of this crate leaves its data half-changed, so that a poisoned one is used on.

use halocline_comm::Host;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex that is held for a short time. Yields through the host meanwhile, so that a simulated thread lets others run.
pub(crate) fn lock_yielding<'a, T>(mutex: &'a Mutex<T>, host: &dyn Host) -> MutexGuard<'a, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
            Err(TryLockError::WouldBlock) => host.yield_now(),
        }
    }
}
