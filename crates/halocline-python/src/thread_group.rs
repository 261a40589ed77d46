//! Ranks that are threads of this process.

use crate::argument::{Argument, Get};
use crate::comm::{PyCommunicator, new_group, prepare};
use crate::error;
use crate::host::{FastClock, PythonHost};
use crate::process_local::Member;
use halocline::Communicator;
use halocline::comm::Host;
use pyo3::prelude::*;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The most ranks of a thread group: far more than a process can have threads.
const MOST_THREADS: usize = 1 << 16;

/// Ranks that are threads.
#[pyclass(frozen, module = "halocline")]
pub(crate) struct ThreadGroup {
    members: Vec<Weak<Member>>,
    /// Empty once they were handed out.
    ranks: Mutex<Vec<Py<PyCommunicator>>>,
}

#[pymethods]
impl ThreadGroup {
    /// `clock_speed`: for tests, how much faster the clock of waits runs.
    #[new]
    #[pyo3(signature = (n, *, clock_speed = None))]
    fn new(py: Python<'_>, n: Argument<usize>, clock_speed: Option<NonZero<u32>>) -> PyResult<Self> {
        let size = n.get("n")?;
        if size == 0 {
            return Err(error::value_error("n: a group of 0 threads; it needs at least 1"));
        }
        if size > MOST_THREADS {
            return Err(error::value_error(format!(
                "n: {size} threads are too many; a group has at most {MOST_THREADS}"
            )));
        }
        prepare(py)?;
        let host: Arc<dyn Host> = match clock_speed {
            None => Arc::new(PythonHost),
            Some(speed) => Arc::new(FastClock { speed: speed.get() }),
        };
        let group = new_group();
        let ranks = Communicator::threads_on(size, host);
        let ranks: Vec<_> = ranks.into_iter().map(|comm| PyCommunicator::first(comm, group)).collect();
        let members = ranks.iter().map(|rank| Arc::downgrade(rank.member())).collect();
        let ranks = ranks.into_iter().map(|rank| Py::new(py, rank)).collect::<PyResult<_>>()?;
        Ok(Self { members, ranks: Mutex::new(ranks) })
    }

    /// The ranks at the first call, an empty list later and after an interrupt. A rank leaves the group when its last reference goes.
    #[getter]
    fn ranks(&self) -> Vec<Py<PyCommunicator>> {
        std::mem::take(&mut *self.ranks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes all ranks; their present and later calls raise `KeyboardInterrupt`. Returns whether the ranks had been handed out.
    fn interrupt(&self, py: Python<'_>) -> bool {
        let kept = self.ranks();
        let members: Vec<_> = self.members.iter().filter_map(Weak::upgrade).collect();
        // Mark all ranks first: closing one ends waits of the others.
        members.iter().for_each(|member| member.interrupt());
        members.iter().for_each(|member| member.close(py));
        kept.is_empty()
    }
}
