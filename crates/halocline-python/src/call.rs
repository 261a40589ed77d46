//! A call into the library that may wait, allocate memory of the program, and end operations.

use crate::callbacks::run_callbacks;
use crate::host::{self, DepartureRef};
use crate::memory_resource::{CallScope, Resource};
use crate::process_local::drop_deferred;
use pyo3::prelude::*;

/// Makes a call without the GIL, in which allocators of the program may run. Then runs the callbacks that are due.
pub(crate) fn in_library<T: Send>(
    py: Python<'_>,
    memory: &Resource,
    left: &DepartureRef,
    call: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    let scope = CallScope::enter()?;
    host::set_awaited_rank(left);
    if let Some(on_calls) = &memory.on_calls {
        on_calls.begin_call();
    }
    let outcome = py.detach(call);
    drop(scope);
    drop_deferred(py);
    run_callbacks(py)?;
    Ok(outcome)
}
