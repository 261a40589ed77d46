//! `python -m halocline`, and traces: what the command has, too.

use crate::comm::PyCommunicator;
use crate::error;
use crate::given::Given;
use crate::grid::collective;
use halocline_cli::trace::{self, Trace, TraceError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, Once, PoisonError};

/// Runs the command; the first argument is its name. `again`: how to start it again.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>, again: Vec<OsString>) -> u8 {
    py.detach(|| halocline_cli::run(args, Some(again)))
}

/// What the library has to say goes to stderr from now on: warnings, or what `HALOCLINE_LOG` asks for.
pub(crate) fn listen() -> PyResult<()> {
    static LISTEN: Once = Once::new();
    let mut outcome = Ok(());
    LISTEN.call_once(|| {
        outcome = halocline_cli::listen().map_err(|error| crate::error::value(error.to_string()))
    });
    outcome
}

/// What every rank does when, from the beginning of a `with` to its end.
#[pyclass(frozen, module = "halocline", name = "trace")]
pub(crate) struct PyTrace {
    /// Or why it is none, which is an error on all ranks.
    path: PyResult<PathBuf>,
    comm: Py<PyCommunicator>,
    running: Mutex<Option<Trace>>,
}

fn failed(error: TraceError) -> PyErr {
    match error {
        TraceError::Comm(error) => error::of(error),
        TraceError::File { path, source } => {
            error::value(format!("cannot write the trace to {}: {source}", path.display()))
        }
        other => error::value(other.to_string()),
    }
}

impl PyTrace {
    fn running(&self) -> std::sync::MutexGuard<'_, Option<Trace>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyTrace {
    #[new]
    fn new(py: Python<'_>, path: Given<PathBuf>, comm: Py<PyCommunicator>) -> Self {
        Self { path: path.get(py, "path"), comm, running: Mutex::default() }
    }

    fn __enter__(this: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        let trace = this.get();
        let path = match &trace.path {
            _ if trace.running().is_some() => Err(error::value("this trace has begun already")),
            Ok(path) => Ok(path),
            Err(refusal) => Err(refusal.clone_ref(py)),
        };
        let path = collective(py, &trace.comm, path, |_, path| Ok(path))?;
        let comm = trace.comm.get().get()?;
        trace::want();
        let begun = py.detach(|| Trace::begin(&comm, path));
        if begun.is_err() {
            trace::unwant();
        }
        *trace.running() = Some(begun.map_err(failed)?);
        Ok(this)
    }

    #[pyo3(signature = (*of))]
    fn __exit__(&self, py: Python<'_>, of: &Bound<'_, PyTuple>) -> PyResult<()> {
        let Some(running) = self.running().take() else { return Ok(()) };
        trace::unwant();
        // After an error the other ranks may wait for what this one will not do any more, before they come to the end.
        if of.iter().any(|part| !part.is_none()) {
            running.abandon();
            return Ok(());
        }
        let comm = self.comm.get().get()?;
        py.detach(|| running.finish(&comm).and_then(|written| written)).map_err(failed)
    }
}
