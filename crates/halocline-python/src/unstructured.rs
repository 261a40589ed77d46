//! Domains given by global ids, graphs, partitions.

use crate::array::describe;
use crate::comm::PyCommunicator;
use crate::error;
use crate::given::{List, Numbers, Typed, room};
use halocline::{ElementType, Graph, Partition, UnstructuredDomain};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

pub(crate) fn negative(id: i64) -> PyErr {
    error::value(format!("{id} is no id or index: they count from 0"))
}

/// Whole numbers from 0, of a sequence or of an array of integers (of any strides), in C order.
pub(crate) fn ids(given: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if !given.hasattr("__array_interface__")? {
        if let Ok(count) = given.len() {
            room::<u64>(count)?;
        }
        if let Ok(List(ids)) = given.extract::<List<u64>>() {
            return Ok(ids);
        }
        if let Some(first) =
            given.extract::<List<i64>>().ok().and_then(|ids| ids.0.into_iter().find(|&id| id < 0))
        {
            return Err(negative(first));
        }
        return Err(error::kind("a sequence or array of whole numbers is wanted"));
    }
    let described = describe(given)?;
    let layout = described.layout();
    // One that repeats elements (a broadcast one) is no layout, and need not be one to be read.
    let strides = match (&described.strides, layout) {
        (Some(strides), _) if strides.len() == described.extents.len() => strides.clone(),
        (None, Ok(layout)) => layout.strides().to_vec(),
        (Some(strides), _) => {
            let (strides, axes) = (strides.len(), described.extents.len());
            return Err(error::value(format!("the array has {axes} axes and {strides} strides")));
        }
        (None, Err(error)) => return Err(error),
    };
    let count = described.extents.iter().fold(1, |all: usize, &cells| all.saturating_mul(cells));
    if count > 0 && described.base == 0 {
        return Err(error::value("the array says that it lies at address 0"));
    }
    let mut ids = room(count)?;
    let mut put = |address: usize| {
        macro_rules! number {
            ($type:ty) => {
                // SAFETY: the array holds an element of this type there, as its owner says, and is held by the caller;
                // it may lie at any address.
                i128::from(unsafe { std::ptr::without_provenance::<$type>(address).read_unaligned() })
            };
        }
        let id = match described.element {
            ElementType::I8 => number!(i8),
            ElementType::U8 => number!(u8),
            ElementType::I16 => number!(i16),
            ElementType::U16 => number!(u16),
            ElementType::I32 => number!(i32),
            ElementType::U32 => number!(u32),
            ElementType::I64 => number!(i64),
            ElementType::U64 => number!(u64),
            other => return Err(error::kind(format!("whole numbers are wanted, not an array of {other}"))),
        };
        ids.push(u64::try_from(id).map_err(|_| negative(id as i64))?);
        Ok(())
    };
    for_each(described.base, &described.extents, &strides, &mut put)?;
    Ok(ids)
}

fn for_each(
    base: usize,
    extents: &[usize],
    strides: &[isize],
    put: &mut impl FnMut(usize) -> PyResult<()>,
) -> PyResult<()> {
    match (extents.split_first(), strides.split_first()) {
        (Some((&extent, extents)), Some((&stride, strides))) => (0..extent).try_for_each(|at| {
            for_each(base.wrapping_add_signed(stride.wrapping_mul(at as isize)), extents, strides, put)
        }),
        _ => put(base),
    }
}

pub(crate) fn indices(given: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    Ok(ids(given)?.into_iter().map(|id| id as usize).collect())
}

pub(crate) fn vertices(given: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    ids(given)?.into_iter().map(vertex).collect()
}

pub(crate) fn vertex(id: u64) -> PyResult<u32> {
    u32::try_from(id).map_err(|_| error::value(format!("{id} is more than 32 bits can number")))
}

/// An array of NumPy that nobody can write.
pub(crate) fn to_numpy<'py>(
    py: Python<'py>,
    numbers: impl ExactSizeIterator<Item = u64>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut bytes = Vec::with_capacity(8 * numbers.len());
    numbers.for_each(|number| bytes.extend_from_slice(&number.to_ne_bytes()));
    py.import("numpy")?.call_method1("frombuffer", (PyBytes::new(py, &bytes), "uint64"))
}

#[doc = doc!("UnstructuredDomain")]
#[pyclass(frozen, module = "halocline", name = "UnstructuredDomain")]
pub(crate) struct PyUnstructuredDomain(pub(crate) UnstructuredDomain);

#[pymethods]
impl PyUnstructuredDomain {
    #[new]
    fn new(id: Typed<u64>, owned: &Bound<'_, PyAny>, halo: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Typed(id) = id;
        Ok(Self(UnstructuredDomain::new(id, ids(owned)?, ids(halo)?)))
    }

    #[doc = doc!("UnstructuredDomain.from_indices")]
    #[staticmethod]
    fn from_indices(id: Typed<u64>, cells: &Bound<'_, PyAny>, halo: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Typed(id) = id;
        Ok(Self(UnstructuredDomain::from_indices(id, ids(cells)?, &indices(halo)?)))
    }

    #[doc = doc!("UnstructuredDomain.from_owners")]
    #[staticmethod]
    fn from_owners(
        id: Typed<u64>,
        comm: &PyCommunicator,
        cells: &Bound<'_, PyAny>,
        owners: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let Typed(id) = id;
        let rank = comm.get()?.rank();
        Ok(Self(UnstructuredDomain::from_owners(id, rank, ids(cells)?, indices(owners)?)))
    }

    #[doc = doc!("UnstructuredDomain.with_levels")]
    fn with_levels(&self, ends: Numbers<usize>) -> Self {
        let Numbers(ends) = ends;
        Self(self.0.clone().with_levels(ends))
    }

    #[doc = doc!("UnstructuredDomain.levels")]
    #[getter]
    fn levels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.levels())
    }

    #[doc = doc!("UnstructuredDomain.id")]
    #[getter]
    fn id(&self) -> u64 {
        self.0.id()
    }

    #[doc = doc!("UnstructuredDomain.cells")]
    #[getter]
    fn cells<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_numpy(py, self.0.cells().iter().copied())
    }

    fn __repr__(&self) -> String {
        format!("UnstructuredDomain({}, {} cells)", self.0.id(), self.0.cells().len())
    }
}

/// Domains of the library, of those of Python.
pub(crate) fn domains(given: Vec<Py<PyUnstructuredDomain>>) -> Vec<UnstructuredDomain> {
    given.iter().map(|domain| domain.get().0.clone()).collect()
}

#[doc = doc!("Graph")]
#[pyclass(frozen, module = "halocline", name = "Graph")]
pub(crate) struct PyGraph(pub(crate) Graph);

#[pymethods]
impl PyGraph {
    #[new]
    fn new(offsets: &Bound<'_, PyAny>, neighbours: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(Graph::new(&indices(offsets)?, &vertices(neighbours)?).map_err(error::of)?))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[doc = doc!("Graph.neighbours")]
    fn neighbours<'py>(&self, py: Python<'py>, cell: Typed<usize>) -> PyResult<Bound<'py, PyAny>> {
        let (Typed(cell), cells) = (cell, self.0.len());
        if cell >= cells {
            return Err(error::value(format!("there is no cell {cell}; the graph has {cells}, from 0")));
        }
        to_numpy(py, self.0.neighbours(cell).iter().map(|&cell| cell.into()))
    }
}

#[doc = doc!("Partition")]
#[pyclass(frozen, module = "halocline", name = "Partition")]
pub(crate) struct PyPartition(pub(crate) Partition);

#[pymethods]
impl PyPartition {
    #[new]
    fn new(owners: &Bound<'_, PyAny>, ranks: Typed<usize>) -> PyResult<Self> {
        let Typed(ranks) = ranks;
        Ok(Self(Partition::given(indices(owners)?, ranks).map_err(error::of)?))
    }

    #[doc = doc!("Partition.block")]
    #[staticmethod]
    fn block(cells: Typed<usize>, ranks: Typed<usize>) -> PyResult<Self> {
        let Typed(cells) = cells;
        let Typed(ranks) = ranks;
        Ok(Self(Partition::block(cells, ranks).map_err(error::of)?))
    }

    #[doc = doc!("Partition.metis")]
    #[staticmethod]
    fn metis(py: Python<'_>, graph: &PyGraph, ranks: Typed<usize>) -> PyResult<Self> {
        let Typed(ranks) = ranks;
        Ok(Self(py.detach(|| Partition::metis(&graph.0, ranks)).map_err(error::of)?))
    }

    #[doc = doc!("Partition.ranks")]
    #[getter]
    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    #[doc = doc!("Partition.owners")]
    #[getter]
    fn owners<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_numpy(py, self.0.owners().iter().map(|&owner| owner as u64))
    }

    #[doc = doc!("Partition.counts")]
    #[getter]
    fn counts(&self) -> PyResult<Vec<usize>> {
        room::<[usize; 2]>(self.0.ranks())?;
        Ok(self.0.counts())
    }
}
