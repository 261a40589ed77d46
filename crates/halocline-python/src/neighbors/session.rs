//! A series of rounds that either side may end.

use super::session_round::{Outcome, PySessionRound};
use super::{received, tuple, turn};
use crate::call::without_callbacks;
use crate::call_lock::CallLock;
use crate::callbacks::run_callbacks;
use crate::error;
use crate::host::DepartureRef;
use crate::memory_resource::Resource;
use crate::packet_error::of_neighbor;
use crate::process_local::{Closable, Member};
use crate::task::coroutine;
use halocline::neighbors::{Completed, NeighborError, Session, Sides, Turn};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

#[doc = doc!("NeighborSession")]
#[pyclass(frozen, module = "halocline", name = "NeighborSession", weakref)]
pub(crate) struct PyNeighborSession {
    /// None once it was finished.
    session: Arc<Closable<Mutex<Option<Session>>>>,
    alone: CallLock,
    /// Of the last round that was started, unless its call has returned what came.
    last: Mutex<Option<Arc<Outcome>>>,
    memory: Resource,
    id: u32,
}

/// A round that a call has begun.
enum Begun {
    Over(Sides<Turn>),
    /// In flight, and why its wait has ended.
    InFlight(Completed, Option<NeighborError>),
}

/// A turn of a neighbour for Python.
fn came(py: Python<'_>, turn: Turn) -> PyResult<Option<Py<PyAny>>> {
    match turn {
        Turn::Last => Ok(Some(PyString::intern(py, "last").into_any().unbind())),
        turn => received(py, turn.packet()),
    }
}

fn turns(py: Python<'_>, sides: Sides<Turn>) -> PyResult<Py<PyTuple>> {
    tuple(py, Sides { left: came(py, sides.left)?, right: came(py, sides.right)? }).map(Bound::unbind)
}

/// The packets that a round sends.
fn sent(left: Option<&Bound<'_, PyAny>>, right: Option<&Bound<'_, PyAny>>) -> PyResult<Sides<Turn>> {
    Ok(Sides { left: turn(left, "left")?, right: turn(right, "right")? })
}

const LAST: fn() -> Sides<Turn> = || Sides { left: Turn::Last, right: Turn::Last };

impl PyNeighborSession {
    pub(super) fn new(session: Session, member: &Member, memory: Resource, id: u32) -> Self {
        let session = member.hold(Mutex::new(Some(session)));
        Self { session, alone: CallLock::new(), last: Mutex::default(), memory, id }
    }

    pub(super) fn operation(&self) -> u32 {
        self.id
    }

    /// The state that waits for its rounds need.
    pub(super) fn context(&self) -> (Resource, DepartureRef) {
        (self.memory.clone(), self.session.left())
    }

    /// Makes a call on the session, alone, and `keep` with its outcome. Then runs the callbacks that are due; they may use the session.
    fn call<T: Send, K>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Option<Session>) -> Result<T, NeighborError> + Send,
        keep: impl FnOnce(Result<T, NeighborError>) -> PyResult<K>,
    ) -> PyResult<K> {
        let session = self.session.get()?;
        let inside = self.alone.enter(py, "a session")?;
        let call = move || call(&mut session.lock().unwrap_or_else(PoisonError::into_inner));
        let kept = without_callbacks(py, &self.memory, &self.session.left(), call, keep);
        drop(inside);
        run_callbacks(py)?;
        kept
    }

    fn finished(&self) -> PyErr {
        error::value_error(format!("the session of operation {} was finished; open another one", self.id))
    }

    fn last(&self) -> Option<Arc<Outcome>> {
        // No code of Python runs while it is held.
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_last(&self, outcome: Option<&Arc<Outcome>>) {
        let former = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *last, outcome.cloned())
        };
        drop(former);
    }

    /// Begins a round by `begin`. Its outcome is the last of the session.
    fn begin(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&mut Session) -> Result<Begun, NeighborError> + Send,
    ) -> PyResult<Arc<Outcome>> {
        let last = self.last();
        let begin = |session: &mut Option<Session>| match (session, last) {
            (None, _) => Ok(None),
            // The packets of the last round would be lost.
            (Some(_), Some(last)) if last.is_due() => Err(NeighborError::Busy { id: self.id }),
            (Some(session), _) => begin(session).map(Some),
        };
        self.call(py, begin, |begun| match begun.map_err(of_neighbor)? {
            None => Err(self.finished()),
            Some(Begun::Over(came)) => {
                let outcome = Outcome::of(turns(py, came)?);
                self.set_last(Some(&outcome));
                Ok(outcome)
            }
            Some(Begun::InFlight(completed, why)) => {
                let outcome = Outcome::in_flight(completed);
                self.set_last(Some(&outcome));
                why.map_or(Ok(()), |why| outcome.keep(Err(why)))?;
                Ok(outcome)
            }
        })
    }

    /// The outcome of a round, for the program. Waits for it.
    pub(super) fn wait_for(&self, py: Python<'_>, outcome: &Outcome) -> PyResult<Py<PyTuple>> {
        if !outcome.is_taken() {
            // Another thread may take it before this one is alone.
            let take = |session: &mut Option<Session>| match session {
                _ if outcome.is_taken() => Ok(None),
                None => Ok(None),
                Some(session) => session.wait().map(Some),
            };
            self.call(py, take, |taken| match taken {
                Ok(None) => Ok(()),
                Ok(Some(came)) => outcome.keep(Ok(turns(py, came)?)),
                Err(error) => outcome.keep(Err(error)),
            })?;
        }
        outcome.give(py).unwrap_or_else(|| Err(self.finished()))
    }
}

#[pymethods]
impl PyNeighborSession {
    #[doc = doc!("NeighborSession.round")]
    #[pyo3(signature = (left = None, right = None))]
    fn round(
        &self,
        py: Python<'_>,
        left: Option<&Bound<'_, PyAny>>,
        right: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyTuple>> {
        let sends = sent(left, right)?;
        let outcome = self.begin(py, |session| {
            let was_in_flight = session.completed().is_some();
            match (session.round(sends), session.completed()) {
                (Err(why), Some(completed)) if !was_in_flight => Ok(Begun::InFlight(completed, Some(why))),
                (came, _) => came.map(Begun::Over),
            }
        })?;
        self.wait_for(py, &outcome)
    }

    #[doc = doc!("NeighborSession.start")]
    #[pyo3(signature = (left = None, right = None))]
    fn start(
        this: &Bound<'_, Self>,
        left: Option<&Bound<'_, PyAny>>,
        right: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PySessionRound> {
        Self::start_round(this, sent(left, right)?)
    }

    #[doc = doc!("NeighborSession.wait")]
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        if let Some(last) = self.last().filter(|last| !last.is_given()) {
            return self.wait_for(py, &last);
        }
        let is_open = |session: &mut Option<Session>| Ok(session.is_some());
        match self.call(py, is_open, |open| open.map_err(of_neighbor))? {
            true => Err(of_neighbor(NeighborError::Taken { id: self.id })),
            false => Err(self.finished()),
        }
    }

    #[doc = doc!("NeighborSession.finish")]
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let finish = |session: &mut Option<Session>| {
            let Some(open) = session else { return Ok(()) };
            if open.completed().is_some() {
                open.wait()?;
            }
            while !open.is_over() {
                open.round(LAST())?;
            }
            *session = None;
            Ok(())
        };
        self.call(py, finish, |finished| {
            finished.map_err(of_neighbor)?;
            self.set_last(None);
            Ok(())
        })
    }

    #[doc = doc!("NeighborSession.finish_async")]
    fn finish_async<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutine(this.py(), "finish", (this,))
    }

    #[doc = doc!("NeighborSession.is_over")]
    #[getter]
    fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        let ask = |session: &mut Option<Session>| Ok(session.as_ref().is_none_or(Session::is_over));
        self.call(py, ask, |over| over.map_err(of_neighbor))
    }

    #[doc = doc!("NeighborSession.id")]
    #[getter]
    fn id(&self) -> u32 {
        self.id
    }

    /// The round whose outcome the program has not got, or another one, in which this rank sends nothing; none at the end.
    fn _next_round(this: &Bound<'_, Self>) -> PyResult<Option<PySessionRound>> {
        let session = this.get();
        if let Some(last) = session.last().filter(|last| !last.is_given()) {
            return Ok(Some(PySessionRound::new(this, last)));
        }
        match session.is_over(this.py())? {
            true => Ok(None),
            false => Self::start_round(this, LAST()).map(Some),
        }
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(this: &Bound<'_, Self>) -> PyResult<Option<Py<PyTuple>>> {
        let round = Self::_next_round(this)?;
        round.map(|round| round.wait(this.py())).transpose()
    }

    fn __aiter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __anext__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutine(this.py(), "next_round", (this,))
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
            false => self._give_up(py),
        }
    }

    /// Drops the session; the neighbours learn it.
    fn _give_up(&self, py: Python<'_>) -> PyResult<()> {
        let drop_it = |session: &mut Option<Session>| {
            *session = None;
            Ok(())
        };
        self.call(py, drop_it, |dropped| {
            self.set_last(None);
            dropped.map_err(of_neighbor)
        })
    }

    fn __aenter__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutine(this.py(), "entered", (this,))
    }

    fn __aexit__<'py>(
        this: &Bound<'py, Self>,
        class: &Bound<'py, PyAny>,
        _error: &Bound<'py, PyAny>,
        _traceback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        coroutine(this.py(), "left", (this, class))
    }

    fn __repr__(&self) -> String {
        format!("NeighborSession(id={})", self.id)
    }
}

impl PyNeighborSession {
    fn start_round(this: &Bound<'_, Self>, sends: Sides<Turn>) -> PyResult<PySessionRound> {
        let (session, py) = (this.get(), this.py());
        let id = session.id;
        let outcome = session.begin(py, |session| {
            session.start(sends)?;
            // Just started.
            let completed = session.completed().ok_or(NeighborError::Taken { id })?;
            Ok(Begun::InFlight(completed, None))
        })?;
        Ok(PySessionRound::new(this, outcome))
    }
}
