//! A series of rounds that either side may end.

use super::{received, tuple, turn};
use crate::call::in_library;
use crate::call_lock::CallLock;
use crate::error;
use crate::memory_resource::Resource;
use crate::packet_error::of_neighbor;
use crate::process_local::{Closable, Member};
use halocline::neighbors::{NeighborError, Session, Sides, Turn};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

#[doc = doc!("NeighborSession")]
#[pyclass(frozen, module = "halocline", name = "NeighborSession")]
pub(crate) struct PyNeighborSession {
    /// None once it was finished.
    session: Arc<Closable<Mutex<Option<Session>>>>,
    alone: CallLock,
    memory: Resource,
    id: u32,
}

/// A turn of a neighbour for Python.
fn came(py: Python<'_>, turn: Turn) -> PyResult<Option<Py<PyAny>>> {
    match turn {
        Turn::Last => Ok(Some(PyString::intern(py, "last").into_any().unbind())),
        turn => received(py, turn.packet()),
    }
}

impl PyNeighborSession {
    pub(super) fn new(session: Session, member: &Member, memory: Resource, id: u32) -> Self {
        let session = member.hold(Mutex::new(Some(session)));
        Self { session, alone: CallLock::new(), memory, id }
    }

    /// Makes a call on the session; none if it was finished.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Option<Session>) -> Result<T, NeighborError> + Send,
    ) -> PyResult<T> {
        let session = self.session.get()?;
        let inside = self.alone.enter(py, "a session")?;
        let call = move || call(&mut session.lock().unwrap_or_else(PoisonError::into_inner));
        let outcome = in_library(py, &self.memory, &self.session.left(), call);
        drop(inside);
        outcome?.map_err(of_neighbor)
    }

    /// Makes a call that returns what came in a round.
    fn turns<'py>(
        &self,
        py: Python<'py>,
        call: impl FnOnce(&mut Session) -> Result<Sides<Turn>, NeighborError> + Send,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let Some(sides) = self.call(py, |session| session.as_mut().map(call).transpose())? else {
            return Err(error::value_error(format!(
                "the session of operation {} was finished; open another one",
                self.id
            )));
        };
        tuple(py, Sides { left: came(py, sides.left)?, right: came(py, sides.right)? })
    }
}

#[pymethods]
impl PyNeighborSession {
    #[doc = doc!("NeighborSession.round")]
    #[pyo3(signature = (left = None, right = None))]
    fn round<'py>(
        &self,
        py: Python<'py>,
        left: Option<&Bound<'py, PyAny>>,
        right: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let turns = Sides { left: turn(left, "left")?, right: turn(right, "right")? };
        self.turns(py, |session| session.round(turns))
    }

    #[doc = doc!("NeighborSession.wait")]
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.turns(py, Session::wait)
    }

    #[doc = doc!("NeighborSession.finish")]
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |session| {
            let Some(open) = session else { return Ok(()) };
            if open.completed().is_some() {
                open.wait()?;
            }
            while !open.is_over() {
                open.round(Sides { left: Turn::Last, right: Turn::Last })?;
            }
            *session = None;
            Ok(())
        })
    }

    #[doc = doc!("NeighborSession.is_over")]
    #[getter]
    fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |session| Ok(session.as_ref().is_none_or(Session::is_over)))
    }

    #[doc = doc!("NeighborSession.id")]
    #[getter]
    fn id(&self) -> u32 {
        self.id
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match class.is_none() {
            true => self.finish(py),
            // The neighbours learn it.
            false => self.call(py, |session| {
                *session = None;
                Ok(())
            }),
        }
    }

    fn __repr__(&self) -> String {
        format!("NeighborSession(id={})", self.id)
    }
}
