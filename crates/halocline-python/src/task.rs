//! asyncio tasks that wait for an exchange.
//!
//! The thread that completes an exchange may not be attached to Python. It wakes the task by an eventfd that the event loop watches, which
//! needs neither the GIL nor a lock nor a running interpreter.

use crate::error;
use crate::process_local::{ProcessLocal, drop_deferred};
use crate::tensor::Write;
use halocline::{Exchanging, Pending};
use pyo3::prelude::*;
use rustix::event::EventfdFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use std::future::Future;
use std::pin::Pin;
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

/// A task's wait for one exchange.
#[pyclass(frozen, module = "halocline")]
pub(crate) struct Waiting {
    state: ProcessLocal<Mutex<State>>,
    write: Option<Arc<Write>>,
}

struct State {
    /// None once the task no longer waits.
    exchanging: Option<Exchanging>,
    event_fd: Option<Arc<EventFd>>,
}

impl Waiting {
    pub(crate) fn new(pending: Pending, write: Option<Arc<Write>>) -> Self {
        let exchanging = pending.into_future();
        Self {
            state: ProcessLocal::new(Mutex::new(State { exchanging: Some(exchanging), event_fd: None })),
            write,
        }
    }
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

    /// Whether the exchange is over; if not, poll again when the descriptor is readable.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        let state = self.state.get()?;
        let outcome = py.detach(|| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let State { exchanging, event_fd } = &mut *state;
            let waker = match event_fd {
                Some(event_fd) => {
                    // This poll answers all earlier wakes.
                    let _ = rustix::io::read(&event_fd.0, &mut [0u8; 8]);
                    Waker::from(Arc::clone(event_fd))
                }
                None => Waker::noop().clone(),
            };
            let Some(exchanging) = exchanging else { return Ok(true) };
            match Pin::new(exchanging).poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => Ok(false),
                Poll::Ready(outcome) => outcome.map(|()| true),
            }
        });
        drop_deferred(py);
        match outcome.map_err(error::of) {
            Ok(false) => Ok(false),
            over => Write::end(self.write.as_ref(), py, over),
        }
    }

    /// Stops waiting; the exchange continues.
    fn leave(&self, py: Python<'_>) {
        // A forked child has no waiting task.
        if let Ok(state) = self.state.get() {
            py.detach(|| state.lock().unwrap_or_else(PoisonError::into_inner).exchanging = None);
        }
    }
}
