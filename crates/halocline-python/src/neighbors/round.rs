//! One round in flight.

use super::{received, tuple};
use crate::call::in_library;
use crate::host::DepartureRef;
use crate::memory_resource::Resource;
use crate::packet_error::of_neighbor;
use crate::process_local::{DropMayBlock, ProcessLocal};
use crate::task::{self, Failed, Waiting, coroutine};
use halocline::Packet;
use halocline::neighbors::{NeighborError, Round, Sides};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::OnceLock;

#[doc = doc!("NeighborRound")]
#[pyclass(frozen, module = "halocline", name = "NeighborRound", weakref)]
pub(crate) struct PyNeighborRound {
    round: ProcessLocal<Round>,
    memory: Resource,
    left: DepartureRef,
    /// The received packets, once a wait has taken them.
    result: OnceLock<Py<PyTuple>>,
}

impl DropMayBlock for Round {}

impl PyNeighborRound {
    pub(super) fn new(round: Round, memory: Resource, left: DepartureRef) -> Self {
        Self { round: ProcessLocal::new(round), memory, left, result: OnceLock::new() }
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Round) -> Result<T, NeighborError> + Send,
    ) -> PyResult<T> {
        self.call_and_keep(py, call, Ok)
    }

    /// Makes a call, and `keep` with its result, before a callback can raise.
    fn call_and_keep<T: Send, K>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Round) -> Result<T, NeighborError> + Send,
        keep: impl FnOnce(T) -> PyResult<K>,
    ) -> PyResult<K> {
        let round = self.round.get()?;
        in_library(py, &self.memory, &self.left, || call(round), |done| keep(done.map_err(of_neighbor)?))
    }

    fn waiting(&self) -> PyResult<Waiting> {
        let completed = self.round.get()?.completed();
        let operation = Box::pin(async move { completed.await.map_err(Failed::Neighbor) });
        Ok(Waiting::of_packets(operation, self.memory.clone(), DepartureRef::clone(&self.left)))
    }

    /// The packets that a wait has taken. Of several threads that wait one takes them.
    fn keep(&self, py: Python<'_>, came: Sides<Option<Packet>>) -> PyResult<Py<PyTuple>> {
        let came = Sides { left: received(py, came.left)?, right: received(py, came.right)? };
        let came = tuple(py, came)?.unbind();
        Ok(self.result.get_or_init(|| came).clone_ref(py))
    }
}

#[pymethods]
impl PyNeighborRound {
    #[doc = doc!("NeighborRound.wait")]
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        loop {
            if let Some(result) = self.result.get() {
                return Ok(result.clone_ref(py));
            }
            let take = |round: &Round| {
                round.wait_until_complete()?;
                match round.take() {
                    // Another thread that waits has it, and is about to keep it.
                    Err(NeighborError::Taken { .. }) => Ok(None),
                    taken => taken.map(Some),
                }
            };
            let keep = |came: Option<_>| came.map(|came| self.keep(py, came)).transpose();
            if let Some(result) = self.call_and_keep(py, take, keep)? {
                return Ok(result);
            }
            py.detach(std::thread::yield_now);
            py.check_signals()?;
        }
    }

    #[doc = doc!("NeighborRound.is_ready")]
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, Round::is_complete)
    }

    #[doc = doc!("NeighborRound.add_done_callback")]
    fn add_done_callback(this: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, round) = (this.py(), this.get());
        task::add_done_callback(function, this, round.waiting()?, |done| {
            round.call(py, |round| {
                round.on_completion(|_| done());
                Ok(())
            })
        })
    }

    #[doc = doc!("NeighborRound.id")]
    #[getter]
    fn id(&self) -> PyResult<u32> {
        Ok(self.round.get()?.id())
    }

    fn __await__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, waiting) = (this.py(), this.get().waiting()?);
        coroutine(py, "result", (Py::new(py, waiting)?, this.getattr("wait")?))?.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let id = self.id().map(|id| format!("id={id}"));
        format!("NeighborRound({})", id.unwrap_or_else(|_| "of the parent process".to_owned()))
    }
}
