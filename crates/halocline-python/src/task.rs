//! Awaiting an operation in a task of asyncio; see `halocline/_async.py`.
//!
//! The thread that completes an operation, a wait of another thread or the progress thread, may not be attached to Python. It wakes the
//! task by an eventfd that the event loop watches, which needs neither the GIL nor a lock nor a running interpreter.

use crate::argument::shown_in_message;
use crate::call::in_library;
use crate::callbacks::{Callback, run_callbacks};
use crate::error;
use crate::host::DepartureRef;
use crate::memory_resource::Resource;
use crate::packet_error::{of_neighbor, of_sparse};
use crate::process_local::{ProcessLocal, drop_deferred};
use crate::tensor::Write;
use halocline::Pending;
use halocline::neighbors::NeighborError;
use halocline::sparse::SparseError;
use pyo3::prelude::*;
use rustix::event::EventfdFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Wakes a task: an eventfd.
struct EventFd(OwnedFd);

impl Wake for EventFd {
    fn wake(self: Arc<Self>) {
        // Fails only if the counter is full: then the descriptor is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// An operation of the library that ends.
pub(crate) type Operation = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send>>;

/// How an operation has failed. It becomes an exception without a lock: that may run signal handlers of the program.
pub(crate) enum Failed {
    Fields(halocline::Error),
    Neighbor(NeighborError),
    Sparse(SparseError),
}

impl Failed {
    fn exception(self) -> PyErr {
        match self {
            Self::Fields(error) => error::of(error),
            Self::Neighbor(error) => of_neighbor(error),
            Self::Sparse(error) => of_sparse(error),
        }
    }
}

/// How an operation is polled.
enum Kind {
    /// An exchange of fields.
    Fields { write: Option<Arc<Write>> },
    /// An exchange of packets.
    Packets { memory: Resource, left: DepartureRef },
}

/// A task's wait for one operation.
#[pyclass(frozen, module = "halocline")]
pub(crate) struct Waiting {
    state: ProcessLocal<Mutex<State>>,
    kind: Kind,
    /// Set once the callback of this wait was queued.
    is_queued: Arc<AtomicBool>,
}

struct State {
    /// None once it is over, or the task no longer waits.
    operation: Option<Operation>,
    event_fd: Option<Arc<EventFd>>,
}

impl Waiting {
    pub(crate) fn new(pending: Pending, write: Option<Arc<Write>>) -> Self {
        let exchanging = pending.into_future();
        Self::on(Box::pin(async move { exchanging.await.map_err(Failed::Fields) }), Kind::Fields { write })
    }

    /// For an exchange of packets.
    pub(crate) fn of_packets(operation: Operation, memory: Resource, left: DepartureRef) -> Self {
        Self::on(operation, Kind::Packets { memory, left })
    }

    fn on(operation: Operation, kind: Kind) -> Self {
        let state = State { operation: Some(operation), event_fd: None };
        Self { state: ProcessLocal::new(Mutex::new(state)), kind, is_queued: Arc::default() }
    }
}

/// Refuses what is no callback.
pub(crate) fn check_callback(function: &Bound<'_, PyAny>) -> PyResult<()> {
    match function.is_callable() {
        true => Ok(()),
        false => {
            let shown = shown_in_message(function);
            Err(error::type_error(format!("function: a callable is wanted, not {shown}")))
        }
    }
}

/// Calls `function(argument)` once the operation of `waiting` is over. `register` gives the library what to call then, on any thread.
pub(crate) fn add_done_callback(
    function: &Bound<'_, PyAny>,
    argument: &Bound<'_, PyAny>,
    waiting: Waiting,
    register: impl FnOnce(Box<dyn FnOnce() + Send>) -> PyResult<()>,
) -> PyResult<()> {
    let is_queued = Arc::clone(&waiting.is_queued);
    check_callback(function)?;
    let callback = Callback { function: function.clone().unbind(), argument: argument.clone().unbind() };
    register(Box::new(move || {
        callback.queue();
        is_queued.store(true, Ordering::Release);
    }))?;
    let py = function.py();
    coroutine(py, "deliver", (Py::new(py, waiting)?,)).map(drop)
}

/// Does what is possible. True once the operation is over.
fn poll(state: &Mutex<State>, memory: Option<&Resource>) -> Result<bool, Failed> {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let State { operation, event_fd } = &mut *state;
    let waker = match event_fd {
        Some(event_fd) => {
            // This poll answers all earlier wakes.
            let _ = rustix::io::read(&event_fd.0, &mut [0u8; 8]);
            Waker::from(Arc::clone(event_fd))
        }
        None => Waker::noop().clone(),
    };
    let Some(running) = operation else { return Ok(true) };
    if let Some(on_calls) = memory.and_then(|memory| memory.on_calls.as_ref()) {
        on_calls.notify(&waker);
    }
    let Poll::Ready(outcome) = running.as_mut().poll(&mut Context::from_waker(&waker)) else {
        return Ok(false);
    };
    *operation = None;
    outcome.map(|()| true)
}

#[pymethods]
impl Waiting {
    /// The descriptor that becomes readable when it is time to poll.
    fn fileno(&self) -> PyResult<i32> {
        let mut state = self.state.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        let event_fd = match &state.event_fd {
            Some(event_fd) => Arc::clone(event_fd),
            None => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                let fd = rustix::event::eventfd(0, flags).map_err(std::io::Error::from)?;
                Arc::clone(state.event_fd.insert(Arc::new(EventFd(fd))))
            }
        };
        Ok(event_fd.0.as_raw_fd())
    }

    /// Whether the operation is over; if not, poll again when the descriptor is readable.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        let state = self.state.get()?;
        match &self.kind {
            Kind::Packets { memory, left } => {
                let poll = || poll(state, Some(memory));
                in_library(py, memory, left, poll, |outcome| outcome.map_err(Failed::exception))
            }
            Kind::Fields { write } => {
                let outcome = py.detach(|| poll(state, None));
                drop_deferred(py);
                match outcome.map_err(Failed::exception) {
                    Ok(false) => Ok(false),
                    over => Write::end(write.as_ref(), py, over),
                }
            }
        }
    }

    /// Runs the callbacks that are due. Whether that of this wait was among them, now or before.
    fn deliver(&self, py: Python<'_>) -> PyResult<bool> {
        let is_queued = self.is_queued.load(Ordering::Acquire);
        run_callbacks(py)?;
        Ok(is_queued)
    }

    /// Stops waiting; the operation continues.
    fn leave(&self, py: Python<'_>) {
        // A forked child has no waiting task.
        if let Ok(state) = self.state.get() {
            py.detach(|| state.lock().unwrap_or_else(PoisonError::into_inner).operation = None);
        }
    }
}

/// A coroutine of `halocline/_async.py`.
pub(crate) fn coroutine<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: pyo3::sync::PyOnceLock<Py<PyModule>> = pyo3::sync::PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("halocline._async").map(Bound::unbind))?;
    module.bind(py).getattr(name)?.call1(arguments)
}
