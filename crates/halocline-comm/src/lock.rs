//! How mutexes are locked whose holder may yield through the host.

use crate::host::Host;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks a mutex that is held for a short time. Yields through the host meanwhile, so that a simulated thread lets others run. No
/// panic under the lock may leave its data half-changed: a poisoned one is used on.
pub fn lock_yielding<'a, T>(mutex: &'a Mutex<T>, host: &dyn Host) -> MutexGuard<'a, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(guard)) => return PoisonError::into_inner(guard),
            Err(TryLockError::WouldBlock) => host.yield_now(),
        }
    }
}
