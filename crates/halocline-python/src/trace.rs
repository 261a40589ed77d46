//! Traces: what every rank, and every GPU, does when.

use crate::comm::PyCommunicator;
use crate::error;
use crate::exchange::{PyHaloExchange, PyPending};
use crate::given::{FilePath, Get, Given, choose, named};
use crate::grid::collective;
use crate::owned::Owned;
use crate::stream::Handles;
use halocline::Stream;
use halocline_cli::trace::device::{Moment, Stamps};
use halocline_cli::trace::{self, Trace, TraceError};
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
    /// Or why it is none, which is an error on all ranks.
    path: PyResult<PathBuf>,
    comm: Py<PyCommunicator>,
    running: Mutex<Option<Trace>>,
    devices: Mutex<Vec<Arc<Stamped>>>,
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
        lock(&self.running)
    }
}

#[pymethods]
impl PyTrace {
    #[new]
    fn new(path: Given<FilePath>, comm: Given<Py<PyCommunicator>>) -> PyResult<Self> {
        named!(comm);
        let path = path.get("path").map(|path| path.0);
        Ok(Self { path, comm, running: Mutex::default(), devices: Mutex::default() })
    }

    fn __enter__(this: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        let trace = this.get();
        let path = match &trace.path {
            _ if trace.running().is_some() => Err(error::value("this trace has begun already")),
            Ok(path) => Ok(path),
            Err(refusal) => Err(refusal.clone_ref(py)),
        };
        let path = collective(py, &trace.comm, "trace", path, |_, path| Ok(path))?;
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
        let devices = std::mem::take(&mut *lock(&self.devices));
        trace::unwant();
        // After an error the other ranks may wait for what this one will not do any more, before they come to the end.
        if of.iter().any(|part| !part.is_none()) {
            running.abandon();
            devices.iter().for_each(|device| device.abandon());
            return Ok(());
        }
        let written = py.detach(|| devices.iter().try_for_each(|device| device.write_down()));
        let comm = self.comm.get().get()?;
        py.detach(|| running.finish(&comm).and_then(|written| written)).map_err(failed)?;
        written
    }

    #[doc = doc!("trace.on_device")]
    #[pyo3(signature = (halo, stream = None, *, rounds))]
    fn on_device(
        &self,
        py: Python<'_>,
        halo: Given<Py<PyHaloExchange>>,
        stream: Option<Given<Handles>>,
        rounds: Given<usize>,
    ) -> PyResult<PyDeviceTrace> {
        named!(halo, rounds);
        if self.running().is_none() {
            return Err(error::value("this trace has not begun, or is over: `with hc.trace(...) as trace`"));
        }
        let rank = self.comm.get().get()?.rank();
        let stream = halo.get().stream(stream)?;
        let stamps = py.detach(|| Stamps::on_gpu(&stream, rounds)).map_err(error::of)?;
        let stamped = Arc::new(Stamped { stamps: Owned::new(Mutex::new(Some(stamps))), stream, rank });
        lock(&self.devices).push(Arc::clone(&stamped));
        Ok(PyDeviceTrace(stamped))
    }
}

#[doc = doc!("DeviceTrace")]
#[pyclass(frozen, module = "halocline", name = "DeviceTrace")]
pub(crate) struct PyDeviceTrace(Arc<Stamped>);

struct Stamped {
    /// None once the trace is over.
    stamps: Owned<Mutex<Option<Stamps>>>,
    stream: Arc<Stream>,
    rank: usize,
}

impl Stamped {
    fn with(&self, stamp: impl FnOnce(&mut Stamps, &Stream) -> Result<(), halocline::Error>) -> PyResult<()> {
        match &mut *lock(self.stamps.get()?) {
            Some(stamps) => stamp(stamps, &self.stream).map_err(error::of),
            None => Err(error::value("the trace is over")),
        }
    }

    /// Ends it, and waits for nothing: not for peers for whom the stream may wait. The memory of the stamps is lost.
    fn abandon(&self) {
        if let Some(stamps) = self.stamps.get().ok().and_then(|stamps| lock(stamps).take()) {
            std::mem::forget(stamps);
        }
    }

    /// Into the trace. Waits for the stream.
    fn write_down(&self) -> PyResult<()> {
        let stamps = lock(self.stamps.get()?).take();
        stamps.map_or(Ok(()), |stamps| stamps.write_down(self.rank, &self.stream)).map_err(error::of)
    }
}

#[pymethods]
impl PyDeviceTrace {
    #[doc = doc!("DeviceTrace.stamp")]
    fn stamp(&self, py: Python<'_>, moment: Given<String>) -> PyResult<()> {
        const MOMENTS: [(&str, Moment); 4] = [
            ("begun", Moment::Begun),
            ("interior", Moment::Interior),
            ("waited", Moment::Waited),
            ("done", Moment::Done),
        ];
        let moment = choose("moment", &moment.get("moment")?, &MOMENTS)?;
        py.detach(|| {
            self.0.with(|stamps, stream| match moment {
                Moment::Done => stamps.next(stream),
                moment => stamps.at(moment, stream),
            })
        })
    }

    #[doc = doc!("DeviceTrace.observe")]
    fn observe(&self, py: Python<'_>, pending: Given<Py<PyPending>>) -> PyResult<()> {
        named!(pending);
        let pending = pending.get().get()?;
        py.detach(|| self.0.with(|stamps, _| stamps.observe(pending)))
    }
}
