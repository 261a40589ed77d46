//! Traces: the times of what every rank and every GPU does.

use crate::argument::{Argument, FilePath, Get, accept, choose};
use crate::comm::PyCommunicator;
use crate::error;
use crate::exchange::PyHaloExchange;
use crate::grid::collective;
use crate::pending::PyPending;
use crate::process_local::ProcessLocal;
use crate::stream::Handles;
use halocline_trace::device::{DeviceTrace, Moment, Stamps, TraceOver};
use halocline_trace::{Trace, TraceError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[doc = doc!("trace")]
#[pyclass(frozen, module = "halocline", name = "trace")]
pub(crate) struct PyTrace {
    /// The error is raised on all ranks when the trace begins.
    path: PyResult<PathBuf>,
    comm: Py<PyCommunicator>,
    running: Mutex<Option<Trace>>,
    devices: Mutex<Vec<Arc<ProcessLocal<DeviceTrace>>>>,
}

fn failed(error: TraceError) -> PyErr {
    match error {
        TraceError::Comm(error) => error::of(error),
        TraceError::File { .. } => error::value_error(format!("path: {error}")),
        other => error::value_error(other.to_string()),
    }
}

impl PyTrace {
    fn running(&self) -> std::sync::MutexGuard<'_, Option<Trace>> {
        lock(&self.running)
    }
}

#[pymethods]
impl PyTrace {
    #[new]
    fn new(path: Argument<FilePath>, comm: Argument<Py<PyCommunicator>>) -> PyResult<Self> {
        accept!(comm);
        let path = path.get("path").map(|path| path.0);
        Ok(Self { path, comm, running: Mutex::default(), devices: Mutex::default() })
    }

    fn __enter__(this: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        let trace = this.get();
        let path = match &trace.path {
            _ if trace.running().is_some() => {
                Err(error::value_error("this trace has begun already; make a new one"))
            }
            Ok(path) => Ok(path),
            Err(refusal) => Err(refusal.clone_ref(py)),
        };
        let path = collective(py, &trace.comm, "trace", path, |_, path| Ok(path))?;
        let comm = trace.comm.get().get()?;
        halocline_trace::want();
        let begun = py.detach(|| Trace::begin(&comm, path));
        if begun.is_err() {
            halocline_trace::unwant();
        }
        *trace.running() = Some(begun.map_err(failed)?);
        Ok(this)
    }

    #[pyo3(signature = (*of))]
    fn __exit__(&self, py: Python<'_>, of: &Bound<'_, PyTuple>) -> PyResult<()> {
        let Some(running) = self.running().take() else { return Ok(()) };
        let devices = std::mem::take(&mut *lock(&self.devices));
        halocline_trace::unwant();
        // After an error this rank must not wait: the other ranks may never reach the end of the block.
        if of.iter().any(|part| !part.is_none()) {
            running.abandon();
            devices.iter().filter_map(|device| device.get().ok()).for_each(DeviceTrace::abandon);
            return Ok(());
        }
        let finish = |device: &Arc<ProcessLocal<DeviceTrace>>| device.get()?.finish().map_err(error::of);
        let written = py.detach(|| devices.iter().try_for_each(finish));
        let comm = self.comm.get().get()?;
        py.detach(|| running.finish(&comm).and_then(|written| written)).map_err(failed)?;
        written
    }

    #[doc = doc!("trace.on_device")]
    #[pyo3(signature = (halo, stream = None, *, rounds))]
    fn on_device(
        &self,
        py: Python<'_>,
        halo: Argument<Py<PyHaloExchange>>,
        stream: Option<Argument<Handles>>,
        rounds: Argument<usize>,
    ) -> PyResult<PyDeviceTrace> {
        accept!(halo, rounds);
        if self.running().is_none() {
            return Err(error::value_error(
                "this trace has not begun, or is over: `with hc.trace(...) as trace`",
            ));
        }
        let rank = self.comm.get().get()?.rank();
        let stream = halo.get().stream(stream)?;
        let stamps = py.detach(|| Stamps::on_gpu(&stream, rounds)).map_err(error::of)?;
        let device = Arc::new(ProcessLocal::new(DeviceTrace::new(stamps, stream, rank)));
        lock(&self.devices).push(Arc::clone(&device));
        Ok(PyDeviceTrace(device))
    }
}

#[doc = doc!("DeviceTrace")]
#[pyclass(frozen, module = "halocline", name = "DeviceTrace")]
pub(crate) struct PyDeviceTrace(Arc<ProcessLocal<DeviceTrace>>);

/// The outcome of a stamp.
fn stamped(outcome: Result<Result<(), halocline::Error>, TraceOver>) -> PyResult<()> {
    outcome
        .map_err(|TraceOver| error::value_error("the trace is over; make stamps inside its `with` block"))?
        .map_err(error::of)
}

#[pymethods]
impl PyDeviceTrace {
    #[doc = doc!("DeviceTrace.stamp")]
    fn stamp(&self, py: Python<'_>, moment: Argument<String>) -> PyResult<()> {
        const MOMENTS: [(&str, Moment); 4] = [
            ("begun", Moment::Begun),
            ("interior", Moment::Interior),
            ("waited", Moment::Waited),
            ("done", Moment::Done),
        ];
        let moment = choose("moment", &moment.get("moment")?, &MOMENTS)?;
        let device = self.0.get()?;
        py.detach(|| stamped(device.stamp(moment)))
    }

    #[doc = doc!("DeviceTrace.observe")]
    fn observe(&self, py: Python<'_>, pending: Argument<Py<PyPending>>) -> PyResult<()> {
        accept!(pending);
        let pending = pending.get().get()?;
        let device = self.0.get()?;
        py.detach(|| stamped(device.observe(pending)))
    }
}
