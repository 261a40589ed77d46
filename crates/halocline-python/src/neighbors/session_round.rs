//! A round of a session, in flight or over.

use super::session::PyNeighborSession;
use crate::call::in_library;
use crate::host::DepartureRef;
use crate::memory_resource::Resource;
use crate::packet_error::of_neighbor;
use crate::process_local::{DropMayBlock, ProcessLocal};
use crate::task::{self, Failed, Waiting, coroutine};
use halocline::comm::CommError;
use halocline::neighbors::{Completed, NeighborError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};

impl DropMayBlock for Completed {}

/// The packets received in a round of a session, once a call has taken them from the session.
#[derive(Default)]
pub(super) struct Outcome {
    /// Where the round was in flight when its call returned.
    completed: Option<ProcessLocal<Completed>>,
    taken: OnceLock<Result<Py<PyTuple>, NeighborError>>,
    /// The program has got it.
    is_given: AtomicBool,
}

impl Outcome {
    pub(super) fn in_flight(completed: Completed) -> Arc<Self> {
        Arc::new(Self { completed: Some(ProcessLocal::new(completed)), ..Self::default() })
    }

    /// Of a round that is over already.
    pub(super) fn of(came: Py<PyTuple>) -> Arc<Self> {
        Arc::new(Self { taken: OnceLock::from(Ok(came)), ..Self::default() })
    }

    /// Keeps what a wait has taken. An interrupted one has left the round in flight.
    pub(super) fn keep(&self, came: Result<Py<PyTuple>, NeighborError>) -> PyResult<()> {
        match came {
            Err(interrupted @ NeighborError::Comm(CommError::Interrupted { .. })) => {
                Err(of_neighbor(interrupted))
            }
            came => {
                // Only the first counts: a session has one round in flight.
                let _ = self.taken.set(came);
                Ok(())
            }
        }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.get().is_some()
    }

    /// Whether packets are here that the program has not got.
    pub(super) fn is_due(&self) -> bool {
        matches!(self.taken.get(), Some(Ok(_))) && !self.is_given()
    }

    pub(super) fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }

    /// The received packets, for the program.
    pub(super) fn give(&self, py: Python<'_>) -> Option<PyResult<Py<PyTuple>>> {
        let taken = self.taken.get()?;
        self.is_given.store(true, Ordering::Relaxed);
        Some(taken.as_ref().map(|came| came.clone_ref(py)).map_err(|error| of_neighbor(error.clone())))
    }

    fn completed(&self) -> PyResult<Option<Completed>> {
        self.completed.as_ref().map(|completed| completed.get().cloned()).transpose()
    }
}

#[doc = doc!("SessionRound")]
#[pyclass(frozen, module = "halocline", name = "SessionRound", weakref)]
pub(crate) struct PySessionRound {
    session: Py<PyNeighborSession>,
    outcome: Arc<Outcome>,
    memory: Resource,
    left: DepartureRef,
}

impl PySessionRound {
    pub(super) fn new(session: &Bound<'_, PyNeighborSession>, outcome: Arc<Outcome>) -> Self {
        let (memory, left) = session.get().context();
        Self { session: session.clone().unbind(), outcome, memory, left }
    }

    fn waiting(&self) -> PyResult<Waiting> {
        let completed = self.outcome.completed()?;
        let operation = Box::pin(async move {
            match completed {
                Some(completed) => completed.await.map_err(Failed::Neighbor),
                None => Ok(()),
            }
        });
        Ok(Waiting::of_packets(operation, self.memory.clone(), DepartureRef::clone(&self.left)))
    }
}

#[pymethods]
impl PySessionRound {
    #[doc = doc!("SessionRound.wait")]
    pub(super) fn wait(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.session.get().wait_for(py, &self.outcome)
    }

    #[doc = doc!("SessionRound.is_ready")]
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(completed) = self.outcome.completed()? else { return Ok(true) };
        let ask = move || match pin!(completed).poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Pending => Ok(false),
            std::task::Poll::Ready(ended) => ended.map(|()| true),
        };
        in_library(py, &self.memory, &self.left, ask, |ready| ready.map_err(of_neighbor))
    }

    #[doc = doc!("SessionRound.add_done_callback")]
    fn add_done_callback(this: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, round) = (this.py(), this.get());
        let completed = round.outcome.completed()?;
        task::add_done_callback(function, this, round.waiting()?, |done| {
            let register = move || match completed {
                Some(completed) => completed.on_completion(|_| done()),
                None => done(),
            };
            in_library(py, &round.memory, &round.left, register, Ok)
        })
    }

    #[doc = doc!("SessionRound.session")]
    #[getter]
    fn session(&self, py: Python<'_>) -> Py<PyNeighborSession> {
        self.session.clone_ref(py)
    }

    fn __await__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, waiting) = (this.py(), this.get().waiting()?);
        coroutine(py, "result", (Py::new(py, waiting)?, this.getattr("wait")?))?.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        format!("SessionRound(id={})", self.session.get().operation())
    }
}
