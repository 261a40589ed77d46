//! Version counters of PyTorch's tensors. Autograd saves tensors for the backward pass, and refuses those whose counter has changed
//! since. PyTorch does not see what an exchange writes, so this module increments the counters twice: when an exchange begins, and
//! when a wait for it ends, since a tensor may be saved between the two. Arrays of other libraries have no counter.

use crate::array::{Described, is_instance};
use crate::error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The tensors that are exchanged together.
type Tensors = Arc<[Py<PyAny>]>;

/// Whether an array is a tensor of PyTorch, whose counter can be raised.
pub(crate) fn is_tensor(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_tensor = is_instance(array, "torch", "Tensor")?;
    if is_tensor { increment_version(array.py()).map(|_| true) } else { Ok(false) }
}

fn increment_version(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let found = FUNCTION.get_or_try_init(py, || {
        let module = py.import("torch.autograd.graph")?;
        let function = module.getattr_opt("increment_version")?.map(Bound::unbind);
        function.ok_or_else(|| {
            error::type_error(
                "this PyTorch has no torch.autograd.graph.increment_version, which reports writes to autograd; use \
                 PyTorch 2.1 or later, or exchange the tensor's memory as an array of NumPy or CuPy",
            )
        })
    });
    found.map(|function| function.bind(py))
}

fn increment(py: Python<'_>, tensors: &[Py<PyAny>]) -> PyResult<()> {
    let increment = increment_version(py)?;
    tensors.iter().try_for_each(|tensor| increment.call1((tensor,)).map(drop))
}

/// Increments the counter of an array that was written, if it is a tensor.
pub(crate) fn written(array: &Bound<'_, PyAny>, described: &Described) -> PyResult<()> {
    if described.is_tensor { increment(array.py(), &[array.clone().unbind()]) } else { Ok(()) }
}

/// The tensors that one exchange writes.
pub(crate) struct Write {
    tensors: Tensors,
    /// A wait for the exchange has returned: tensors that autograd saves from then on are valid.
    is_over: AtomicBool,
}

impl Write {
    /// Increments the counters; call it before the exchange begins. None: there are no tensors.
    #[inline]
    pub(crate) fn begin(py: Python<'_>, tensors: Vec<Py<PyAny>>) -> PyResult<Option<Arc<Self>>> {
        if tensors.is_empty() { Ok(None) } else { Self::of(py, tensors.into()).map(Some) }
    }

    fn of(py: Python<'_>, tensors: Tensors) -> PyResult<Arc<Self>> {
        increment(py, &tensors)?;
        Ok(Arc::new(Self { tensors, is_over: AtomicBool::new(false) }))
    }

    /// Increments the counters once more; call it after a wait, whatever its outcome is: an exchange that has failed may have written,
    /// and one whose wait was interrupted may still write.
    #[inline]
    pub(crate) fn end<T>(write: Option<&Arc<Self>>, py: Python<'_>, waited: PyResult<T>) -> PyResult<T> {
        if let Some(write) = write
            && !write.is_over.load(Ordering::Relaxed)
        {
            let incremented = increment(py, &write.tensors);
            write.is_over.store(waited.is_ok(), Ordering::Relaxed);
            return waited.and_then(|value| incremented.map(|()| value));
        }
        waited
    }
}

/// The tensors that the last exchange of an object writes, for waits that name no exchange.
#[derive(Default)]
pub(crate) struct Last {
    write: Mutex<Option<Arc<Write>>>,
    /// Whether there ever was one.
    is_used: AtomicBool,
}

impl Last {
    #[inline]
    pub(crate) fn set(&self, write: Option<&Arc<Write>>) {
        if write.is_some() || self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
            let before = std::mem::replace(&mut *self.lock(), write.cloned());
            // Dropping a tensor may run any Python code, so no lock is held.
            drop(before);
        }
    }

    pub(crate) fn get(&self) -> Option<Arc<Write>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Write>>> {
        self.write.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tensors of each set of fields that is bound. None: there are none.
#[derive(Clone)]
pub(crate) struct Versions(Option<Sets>);

#[derive(Clone)]
struct Sets {
    tensors: Vec<Tensors>,
    /// Of all handles of the object.
    last: Arc<Last>,
}

impl Versions {
    /// Of the tensors of each set.
    pub(crate) fn new(sets: Vec<Vec<Py<PyAny>>>) -> Self {
        let is_needed = sets.iter().any(|set| !set.is_empty());
        Self(
            is_needed.then(|| Sets {
                tensors: sets.into_iter().map(Tensors::from).collect(),
                last: Arc::default(),
            }),
        )
    }

    /// Those of one set alone.
    pub(crate) fn alternative(&self, set: usize) -> Self {
        let of_set = |sets: &Sets| Sets {
            tensors: sets.tensors.get(set).cloned().into_iter().collect(),
            last: Arc::clone(&sets.last),
        };
        Self(self.0.as_ref().map(of_set))
    }

    /// As [`Write::begin`], of the tensors of a set.
    #[inline]
    pub(crate) fn begin(&self, py: Python<'_>, set: usize) -> PyResult<Option<Arc<Write>>> {
        let Some(sets) = &self.0 else { return Ok(None) };
        let tensors = sets.tensors.get(set).filter(|tensors| !tensors.is_empty());
        tensors.map(|tensors| Write::of(py, Arc::clone(tensors))).transpose()
    }

    /// Increments the counters of the first set, after something else than an exchange wrote it.
    pub(crate) fn increment(&self, py: Python<'_>) -> PyResult<()> {
        let first = self.0.as_ref().and_then(|sets| sets.tensors.first());
        first.map_or(Ok(()), |tensors| increment(py, tensors))
    }

    /// Call it once the exchange has begun: later waits that name no exchange are for this one.
    #[inline]
    pub(crate) fn begun(&self, write: Option<&Arc<Write>>) {
        if let Some(sets) = &self.0 {
            sets.last.set(write);
        }
    }

    /// The tensors that the exchange begun last writes.
    #[inline]
    pub(crate) fn last(&self) -> Option<Arc<Write>> {
        self.0.as_ref().and_then(|sets| sets.last.get())
    }
}
