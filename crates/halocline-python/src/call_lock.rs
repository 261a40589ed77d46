//! A lock for calls that may wait for other ranks while they hold it.

use crate::error;
use crate::host::ASKS_AFTER;
use halocline::comm::{Host, System};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A mutex for one call at a time. Waiting threads release the GIL, and Ctrl-C ends their wait. A signal handler or finaliser that
/// enters while its own thread holds the lock gets an error instead of a deadlock. In a forked child the holder may not exist: the child
/// checks first that the protected object is its own, or resets the lock ([`CallLock::reset`]).
pub(crate) struct CallLock(AtomicU32);

/// Flag beside the number of the holding thread: other threads wait.
const AWAITED: u32 = 1 << 31;

/// Holds the lock until it is dropped.
pub(crate) struct CallGuard<'a>(&'a CallLock);

/// A number of this thread: unique in the process and not 0.
fn own() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static OWN: u32 = COUNT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

impl CallLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Acquires the lock. `what` names the call in the error of a nested call.
    pub(crate) fn enter(&self, py: Python<'_>, what: &str) -> PyResult<CallGuard<'_>> {
        let own = own();
        loop {
            let seen = self.0.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
            let Err(seen) = seen else { return Ok(CallGuard(self)) };
            if seen & !AWAITED == own {
                return Err(error::value_error(format!(
                    "a signal handler or finaliser called {what} while the same thread was in {what}; call it after that has returned"
                )));
            }
            let awaited = seen | AWAITED;
            if self.0.compare_exchange(seen, awaited, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                py.detach(|| System.park(&self.0, awaited, Some(ASKS_AFTER)));
                py.check_signals()?;
            }
        }
    }

    /// Releases the lock in a forked child, which does not have the holding thread.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(0, Ordering::Release) & AWAITED != 0 {
            System.wake(&self.0.0);
        }
    }
}

/// The lock as a context manager of Python.
#[pyclass(frozen, module = "halocline", name = "_CallLock")]
pub(crate) struct PyCallLock {
    alone: CallLock,
    what: String,
}

#[pymethods]
impl PyCallLock {
    #[new]
    fn new(what: String) -> Self {
        Self { alone: CallLock::new(), what }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        // Released by `__exit__`.
        self.alone.enter(py, &self.what).map(std::mem::forget)
    }

    #[pyo3(signature = (*_of))]
    fn __exit__(&self, _of: &Bound<'_, pyo3::types::PyTuple>) {
        drop(CallGuard(&self.alone));
    }
}
