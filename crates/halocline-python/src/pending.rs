//! One exchange in flight.

use crate::argument::Argument;
use crate::error;
use crate::ghex::ScheduledState;
use crate::host::{self, DepartureRef};
use crate::process_local::{ProcessLocal, drop_deferred};
use crate::stream::{Handles, Streams};
use crate::task::{Waiting, coroutine};
use crate::tensor::Write;
use halocline::{Pending, Stream};
use pyo3::prelude::*;
use std::sync::{Arc, OnceLock};

#[doc = doc!("Pending")]
#[pyclass(frozen, module = "halocline", name = "Pending", weakref)]
pub(crate) struct PyPending {
    pending: ProcessLocal<Pending>,
    /// None: the fields are host fields.
    streams: Option<Arc<Streams>>,
    left: DepartureRef,
    /// The rest of the exchange takes less time than to release the GIL, and peers do not need the GIL of this process.
    is_brief: bool,
    /// None: no field is a PyTorch tensor.
    write: Option<Arc<Write>>,
    /// Set for exchanges through GHEX's interface.
    scheduled_state: OnceLock<ScheduledState>,
}

/// How often a brief wait polls before it releases the GIL: about the time that releasing takes.
const POLLS: u32 = 16;

impl PyPending {
    /// An exchange of device fields, or of device and host fields.
    pub(crate) fn of_devices(
        pending: Pending,
        streams: Arc<Streams>,
        left: DepartureRef,
        write: Option<Arc<Write>>,
    ) -> Self {
        Self { streams: Some(streams), ..Self::of_host(pending, left, false, write) }
    }

    /// An exchange of host fields.
    pub(crate) fn of_host(
        pending: Pending,
        left: DepartureRef,
        is_brief: bool,
        write: Option<Arc<Write>>,
    ) -> Self {
        let scheduled_state = OnceLock::new();
        Self { pending: ProcessLocal::new(pending), streams: None, left, is_brief, write, scheduled_state }
    }

    /// Relates the exchange to the GHEX communication object that started it. A second call does nothing.
    pub(crate) fn scheduled_state(&self, scheduled_state: ScheduledState) {
        self.scheduled_state.get_or_init(|| scheduled_state);
    }

    fn end<T>(&self, py: Python<'_>, waited: PyResult<T>) -> PyResult<T> {
        if waited.is_ok()
            && let Some(scheduled_state) = self.scheduled_state.get()
        {
            scheduled_state.end();
        }
        Write::end(self.write.as_ref(), py, waited)
    }

    /// The exchange. Waits of this thread end when the communicator is closed.
    pub(crate) fn get(&self) -> PyResult<&Pending> {
        host::set_awaited_rank(&self.left);
        self.pending.get()
    }
}

pub(crate) fn schedule_wait(
    py: Python<'_>,
    pending: &Pending,
    streams: &[Arc<Stream>],
    write: Option<&Arc<Write>>,
) -> PyResult<()> {
    let waited = py.detach(|| match streams.is_empty() {
        true => pending.wait(),
        false => streams.iter().try_for_each(|stream| pending.schedule_wait(stream)),
    });
    drop_deferred(py);
    Write::end(write, py, waited.map_err(error::of))
}

#[pymethods]
impl PyPending {
    #[doc = doc!("Pending.wait")]
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let pending = self.get()?;
        let waited = if self.is_brief { pending.wait_briefly(POLLS) } else { None };
        let waited = waited.unwrap_or_else(|| py.detach(|| pending.wait()));
        drop_deferred(py);
        self.end(py, waited.map_err(error::of))
    }

    #[doc = doc!("Pending.schedule_wait")]
    #[pyo3(signature = (stream = None))]
    fn schedule_wait(&self, py: Python<'_>, stream: Option<Argument<Handles>>) -> PyResult<()> {
        let pending = self.get()?;
        let handles = Handles::of_call(stream)?;
        let streams = self.streams.as_ref().map_or(Ok(Vec::new()), |streams| streams.get(&handles))?;
        schedule_wait(py, pending, &streams, self.write.as_ref())?;
        if let Some(scheduled_state) = self.scheduled_state.get() {
            scheduled_state.schedule();
        }
        Ok(())
    }

    #[doc = doc!("Pending.is_ready")]
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        match self._is_over(py) {
            Ok(false) => Ok(false),
            over => self.end(py, over),
        }
    }

    /// `is_ready` without effect on `has_scheduled_exchange`: for `halocline/compat/ghex/_bound.py`.
    fn _is_over(&self, py: Python<'_>) -> PyResult<bool> {
        let pending = self.pending.get()?;
        let ready = py.detach(|| pending.is_ready());
        drop_deferred(py);
        ready.map_err(error::of)
    }

    #[doc = doc!("Pending.progress")]
    fn progress(&self, py: Python<'_>) -> PyResult<()> {
        self._is_over(py).map(drop)
    }

    #[doc = doc!("Pending.epoch")]
    #[getter]
    fn epoch(&self) -> PyResult<u64> {
        Ok(self.pending.get()?.epoch())
    }

    /// Implements `await`; see `halocline/_async.py`.
    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let waiting = Waiting::new(self.pending.get()?.clone(), self.write.clone());
        coroutine(py, "finished", (Py::new(py, waiting)?,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let shown = self.pending.get().map(|pending| format!("exchange {}", pending.epoch()));
        format!("Pending({})", shown.unwrap_or_else(|_| "of the parent process".to_owned()))
    }
}
