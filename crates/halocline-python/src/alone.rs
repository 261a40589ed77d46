//! What one thread of Python does at a time, and may wait for other ranks meanwhile.

use crate::error;
use crate::host::ASKS_AFTER;
use halocline::comm::{Host, System};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lets one thread in at a time. The others wait without the GIL, and Ctrl-C ends that. A signal handler (or a finaliser) that comes
/// while its own thread is in is refused: it would wait for what goes on after it. A forked child, which may find a thread in that it
/// does not have, asks first whether what this is of is its own, or resets it ([`Alone::reset`]).
pub(crate) struct Alone(AtomicU32);

/// Beside the number of the thread that is in: others wait.
const AWAITED: u32 = 1 << 31;

/// While it lives, no other thread gets in.
pub(crate) struct Inside<'a>(&'a Alone);

/// The number of this thread: not 0, and no other's.
fn own() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static OWN: u32 = COUNT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

impl Alone {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// `what` is called, for the error of who calls it amid its own call.
    pub(crate) fn enter(&self, py: Python<'_>, what: &str) -> PyResult<Inside<'_>> {
        let own = own();
        loop {
            let seen = self.0.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
            let Err(seen) = seen else { return Ok(Inside(self)) };
            if seen & !AWAITED == own {
                return Err(error::value(format!(
                    "{what} is called by a signal handler or a finaliser amid {what} of the same thread, which has to end first"
                )));
            }
            let awaited = seen | AWAITED;
            if self.0.compare_exchange(seen, awaited, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                py.detach(|| System.park(&self.0, awaited, Some(ASKS_AFTER)));
                py.check_signals()?;
            }
        }
    }

    /// In a forked child: whoever was in is not here.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(0, Ordering::Release) & AWAITED != 0 {
            System.wake(&self.0.0);
        }
    }
}

/// The same for Python, as a context manager.
#[pyclass(frozen, module = "halocline", name = "_Alone")]
pub(crate) struct PyAlone {
    alone: Alone,
    what: String,
}

#[pymethods]
impl PyAlone {
    #[new]
    fn new(what: String) -> Self {
        Self { alone: Alone::new(), what }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        // Left by `__exit__`.
        self.alone.enter(py, &self.what).map(std::mem::forget)
    }

    #[pyo3(signature = (*_of))]
    fn __exit__(&self, _of: &Bound<'_, pyo3::types::PyTuple>) {
        drop(Inside(&self.alone));
    }
}
