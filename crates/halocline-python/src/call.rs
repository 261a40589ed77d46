//! A call into the library that may wait, allocate memory of the program, and end operations.

use crate::callbacks::run_callbacks;
use crate::host::{self, DepartureRef};
use crate::memory_resource::{CallScope, Resource};
use crate::process_local::{drop_deferred, drop_postponed};
use pyo3::prelude::*;

/// Makes a call without the GIL, in which allocators of the program may run, and `keep` with its outcome. Then runs the callbacks that are
/// due. One may raise `KeyboardInterrupt`, which replaces what `keep` returns: `keep` has to store what the program still needs.
pub(crate) fn in_library<T: Send, K>(
    py: Python<'_>,
    memory: &Resource,
    left: &DepartureRef,
    call: impl FnOnce() -> T + Send,
    keep: impl FnOnce(T) -> PyResult<K>,
) -> PyResult<K> {
    let kept = without_callbacks(py, memory, left, call, keep);
    run_callbacks(py)?;
    kept
}

/// The same for a caller that holds a lock, or returns what it cannot give again: it runs the callbacks itself.
pub(crate) fn without_callbacks<T: Send, K>(
    py: Python<'_>,
    memory: &Resource,
    left: &DepartureRef,
    call: impl FnOnce() -> T + Send,
    keep: impl FnOnce(T) -> PyResult<K>,
) -> PyResult<K> {
    let scope = CallScope::enter()?;
    host::set_awaited_rank(left);
    if let Some(on_calls) = &memory.on_calls {
        on_calls.begin_call();
    }
    let outcome = py.detach(call);
    drop(scope);
    drop_postponed(py);
    let kept = keep(outcome);
    drop_deferred(py);
    kept
}
