//! Index lists: the cells of each rank, unique ids.

use crate::argument::{Argument, Get, List, accept};
use crate::array::{field_of, field_to_read};
use crate::comm::PyCommunicator;
use crate::error;
use crate::process_local::ProcessLocal;
use crate::stream::{Handle, borrow};
use crate::unstructured::PyUnstructuredDomain;
use halocline::device::MemorySpace;
use halocline::{Error, Field, IndexLists, Stream};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

#[doc = doc!("IndexLists")]
#[pyclass(frozen, module = "halocline", name = "IndexLists")]
pub(crate) struct PyIndexLists(ProcessLocal<Mutex<IndexLists>>);

/// The stream of a call, if the array lies in memory of a GPU; the null stream by default.
fn stream_for(field: &Field, stream: Option<Argument<Handle>>) -> PyResult<Option<Stream>> {
    let handle = stream.get("stream")?.map_or(0, |Handle(handle)| handle);
    match field.space() {
        MemorySpace::Device(ordinal) => borrow(handle, ordinal).map(Some),
        MemorySpace::Host => Ok(None),
    }
}

fn to_read(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Field> {
    field_to_read(array).map_err(|error| error::prefixed(array.py(), error, name))
}

fn to_write(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Field> {
    let field = field_of(array, &mut Vec::new());
    field.map(|field| field.into_owned()).map_err(|error| error::prefixed(array.py(), error, name))
}

impl PyIndexLists {
    /// Calls the object without the GIL, one thread at a time.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut IndexLists) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let lists = self.0.get()?;
        py.detach(|| call(&mut lists.lock().unwrap_or_else(PoisonError::into_inner))).map_err(error::of)
    }
}

#[pymethods]
impl PyIndexLists {
    #[new]
    fn new() -> Self {
        Self(ProcessLocal::new(Mutex::new(IndexLists::new())))
    }

    #[doc = doc!("IndexLists.owned")]
    #[pyo3(signature = (owners, size, ranks, indices, *, stream = None))]
    fn owned(
        &self,
        py: Python<'_>,
        owners: &Bound<'_, PyAny>,
        size: Argument<usize>,
        ranks: Argument<List<usize>>,
        indices: &Bound<'_, PyAny>,
        stream: Option<Argument<Handle>>,
    ) -> PyResult<()> {
        accept!(size, ranks);
        let (owners, indices) = (to_read(owners, "owners")?, to_write(indices, "indices")?);
        let stream = stream_for(&owners, stream)?;
        self.with(py, |lists| lists.owned(&owners, size, &ranks.0, &indices, stream.as_ref()))
    }

    #[doc = doc!("IndexLists.unique")]
    #[pyo3(signature = (ids, unique, *, stream = None))]
    fn unique(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        unique: &Bound<'_, PyAny>,
        stream: Option<Argument<Handle>>,
    ) -> PyResult<()> {
        let (ids, unique) = (to_read(ids, "ids")?, to_write(unique, "unique")?);
        let stream = stream_for(&ids, stream)?;
        self.with(py, |lists| lists.unique(&ids, &unique, stream.as_ref()))
    }

    #[doc = doc!("IndexLists.counts")]
    fn counts(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.with(py, |lists| lists.counts())
    }

    #[doc = doc!("IndexLists.domain")]
    #[pyo3(signature = (id, comm, ids, owners, *, stream = None))]
    fn domain(
        &self,
        py: Python<'_>,
        id: Argument<u64>,
        comm: Argument<Py<PyCommunicator>>,
        ids: &Bound<'_, PyAny>,
        owners: &Bound<'_, PyAny>,
        stream: Option<Argument<Handle>>,
    ) -> PyResult<PyUnstructuredDomain> {
        accept!(id, comm);
        let (rank, size) = {
            let comm = comm.get().get()?;
            (comm.rank(), comm.size())
        };
        let (ids, owners) = (to_read(ids, "ids")?, to_read(owners, "owners")?);
        let stream = stream_for(&ids, stream)?;
        let domain = self.with(py, |lists| lists.domain(id, rank, size, &ids, &owners, stream.as_ref()))?;
        Ok(PyUnstructuredDomain(domain))
    }

    fn __repr__(&self) -> &'static str {
        "IndexLists()"
    }
}
