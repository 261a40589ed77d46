//! Tasks of asyncio that wait for an exchange.
//!
//! Whoever completes an exchange, a thread without Python maybe, wakes the task by an eventfd that its loop watches: no GIL is
//! wanted, nothing is locked, and it is of no matter whether there still is an interpreter.

use crate::error;
use crate::owned::{Owned, drop_deferred};
use crate::tensor::Write;
use halocline::{Exchanging, Pending};
use pyo3::prelude::*;
use rustix::event::EventfdFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// What wakes a task.
struct Bell(OwnedFd);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // It can only be full: then it rings already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// A task's wait for one exchange.
#[pyclass(frozen, module = "halocline")]
pub(crate) struct Waiting {
    state: Owned<Mutex<State>>,
    write: Option<Arc<Write>>,
}

struct State {
    /// None once nobody waits any more.
    exchanging: Option<Exchanging>,
    bell: Option<Arc<Bell>>,
}

impl Waiting {
    pub(crate) fn new(pending: Pending, write: Option<Arc<Write>>) -> Self {
        let exchanging = pending.into_future();
        Self { state: Owned::new(Mutex::new(State { exchanging: Some(exchanging), bell: None })), write }
    }
}

#[pymethods]
impl Waiting {
    /// The descriptor that becomes readable when it is time to poll.
    fn fileno(&self) -> PyResult<i32> {
        let mut state = self.state.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        let bell = match &state.bell {
            Some(bell) => Arc::clone(bell),
            None => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                let fd = rustix::event::eventfd(0, flags).map_err(std::io::Error::from)?;
                Arc::clone(state.bell.insert(Arc::new(Bell(fd))))
            }
        };
        Ok(bell.0.as_raw_fd())
    }

    /// Whether the exchange is over; otherwise the descriptor tells when to poll again.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        let state = self.state.get()?;
        let outcome = py.detach(|| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let State { exchanging, bell } = &mut *state;
            let waker = match bell {
                Some(bell) => {
                    // What rang so far is answered by this poll.
                    let _ = rustix::io::read(&bell.0, &mut [0u8; 8]);
                    Waker::from(Arc::clone(bell))
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

    /// Waits no longer; the exchange goes on.
    fn leave(&self, py: Python<'_>) {
        // In a forked child nobody waits.
        if let Ok(state) = self.state.get() {
            py.detach(|| state.lock().unwrap_or_else(PoisonError::into_inner).exchanging = None);
        }
    }
}
