//! Callbacks of operations. The thread that finds an operation over may not run Python code: it queues the callback, and the next call
//! from Python runs it.

use crate::process_local::generation;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A stack of callbacks to run. Lock-free: a forked child could find a lock held by a thread that it does not have.
static QUEUED: AtomicPtr<Queued> = AtomicPtr::new(std::ptr::null_mut());

struct Queued {
    callback: Callback,
    /// The process that queued it.
    born: u32,
    next: *mut Queued,
}

/// A function of the program, and its argument.
pub(crate) struct Callback {
    pub(crate) function: Py<PyAny>,
    pub(crate) argument: Py<PyAny>,
}

impl Callback {
    /// Queues the call. Needs neither the GIL nor a lock.
    pub(crate) fn queue(self) {
        push(Queued { callback: self, born: generation(), next: std::ptr::null_mut() });
    }
}

fn push(queued: Queued) {
    let last = Box::into_raw(Box::new(queued));
    let mut next = QUEUED.load(Ordering::Relaxed);
    loop {
        // SAFETY: `last` is a unique box until the exchange publishes it; afterwards the thread that swaps the stack out owns it.
        unsafe { (*last).next = next };
        match QUEUED.compare_exchange(next, last, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => next = other,
        }
    }
}

/// Runs the callbacks that are queued, in the order of their completion. An exception of one is reported as `sys.unraisablehook` does; what
/// is no `Exception` (`KeyboardInterrupt`) is returned, and the rest stays queued.
pub(crate) fn run_callbacks(py: Python<'_>) -> PyResult<()> {
    if QUEUED.load(Ordering::Relaxed).is_null() {
        return Ok(());
    }
    let mut last = QUEUED.swap(std::ptr::null_mut(), Ordering::Acquire);
    let mut queued = Vec::new();
    while !last.is_null() {
        // SAFETY: each entry was made by `Box::into_raw`, and the swap gave this call sole ownership of the list.
        let entry = *unsafe { Box::from_raw(last) };
        last = entry.next;
        queued.push(entry);
    }
    while let Some(entry) = queued.pop() {
        if entry.born != generation() {
            // The parent process runs it. Its objects must not be dropped here.
            std::mem::forget(entry);
            continue;
        }
        let Callback { function, argument } = entry.callback;
        match function.call1(py, (argument,)) {
            Ok(_) => {}
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, Some(function.bind(py)));
            }
            Err(error) => {
                queued.into_iter().for_each(push);
                return Err(error);
            }
        }
    }
    Ok(())
}
