//! Domains given by global ids, graphs, partitions.

use crate::argument::{Argument, ArgumentType, Get, List, Refusal, accept, beyond_memory, try_with_capacity};
use crate::array::{Described, describe, null_address};
use crate::comm::PyCommunicator;
use crate::error;
use crate::grid::remade;
use halocline::plan::HaloCells;
use halocline::{ElementType, Graph, Partition, UnstructuredDomain};
use pyo3::exceptions::PyMemoryError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyDict, PySlice, PyTuple};

/// Ids of cells: whole numbers from 0, of a sequence or of an array of one dimension, of any strides.
pub(crate) struct Ids(pub(crate) Vec<u64>);

/// The same, as indices or ranks.
pub(crate) struct Indices(pub(crate) Vec<usize>);

/// The same, as numbers of vertices, which have 32 bits.
pub(crate) struct Vertices(pub(crate) Vec<u32>);

impl<'py> ArgumentType<'py> for Ids {
    const PLURAL: &'static str = "sequences of whole numbers";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        numbers(object, 1).map(|(_, ids)| Self(ids))
    }
}

impl<'py> ArgumentType<'py> for Indices {
    const PLURAL: &'static str = Ids::PLURAL;

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        Ids::of(object).map(|ids| Self(ids.0.into_iter().map(|id| id as usize).collect()))
    }
}

impl<'py> ArgumentType<'py> for Vertices {
    const PLURAL: &'static str = Ids::PLURAL;

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let vertex = |(at, id)| vertex(id).map_err(|refusal| refusal.at(at));
        Ids::of(object)?.0.into_iter().enumerate().map(vertex).collect::<Result<_, _>>().map(Self)
    }
}

pub(crate) fn vertex(id: u64) -> Result<u32, Refusal> {
    u32::try_from(id)
        .map_err(|_| Refusal::wrong_value(format!("a whole number below 2**32 is wanted, not {id}")))
}

/// Whole numbers from 0 of an array of so many dimensions, in C order, with its extents; or, of one dimension, those of a sequence.
pub(crate) fn numbers(
    object: &Bound<'_, PyAny>,
    dimensions: usize,
) -> Result<(Vec<usize>, Vec<u64>), Refusal> {
    use ElementType::{I8, I16, I32, I64, U8, U16, U32, U64};
    let py = object.py();
    if !object.hasattr(intern!(py, "__array_interface__"))? {
        let List(ids) = List::of(object)?;
        return Ok((vec![ids.len()], ids));
    }
    let described = describe(object).map_err(|error| Refusal::ours(py, error))?;
    let extents = &described.extents;
    if extents.len() != dimensions {
        let wanted = if dimensions == 1 { "one dimension" } else { "two dimensions" };
        let instead = if dimensions == 1 && extents.len() > 1 { "; flatten it: array.ravel()" } else { "" };
        let shape = PyTuple::new(py, extents)?;
        return Err(Refusal::wrong_value(format!(
            "an array of {wanted} is wanted, not one of shape {shape}{instead}"
        )));
    }
    let count = extents.iter().fold(1, |all: usize, &cells| all.saturating_mul(cells));
    if count == 0 {
        return Ok((described.extents, Vec::new()));
    }
    if described.base == 0 {
        return Err(Refusal::ours(py, null_address()));
    }
    if !matches!(described.element, I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64) {
        return Err(no_whole_numbers(&described));
    }
    let mut ids = try_with_capacity(count)?;
    read(object, &described, &mut ids).map_err(|refusal| match refusal {
        Refusal::Theirs(error) if error.is_instance_of::<PyMemoryError>(py) => beyond_memory(count),
        refusal => refusal,
    })?;
    Ok((described.extents, ids))
}

/// Appends the elements of an array of integers to `ids`, in C order.
fn read(object: &Bound<'_, PyAny>, described: &Described, ids: &mut Vec<u64>) -> Result<(), Refusal> {
    /// The number of elements that NumPy converts at once: it bounds the memory of the copies.
    const CHUNK: usize = 1 << 16;
    let py = object.py();
    let array = py
        .import("numpy")?
        .call_method1("asarray", (object,))
        .map_err(|error| Refusal::ours(py, error::refused(py, error, "NumPy cannot read the array")))?;
    // NumPy prefers the buffer protocol, which may describe something else.
    let found = describe(&array).map_err(|error| Refusal::ours(py, error))?;
    if (found.base, found.element, &found.extents) != (described.base, described.element, &described.extents)
    {
        return Err(Refusal::wrong_type(
            "numpy.asarray reads other memory than the object's __array_interface__ describes; give an array of NumPy",
        ));
    }
    let is_signed =
        matches!(described.element, ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64);
    // A copy only if several dimensions have gaps.
    let flat = array.call_method1("reshape", (-1,))?;
    let count = flat.len()?;
    for start in (0..count).step_by(CHUNK) {
        let end = count.min(start + CHUNK);
        let chunk = flat.get_item(PySlice::new(py, start as isize, end as isize, 1))?;
        if is_signed && chunk.call_method0("min")?.lt(0)? {
            let at: usize = chunk.rich_compare(0, CompareOp::Lt)?.call_method0("argmax")?.extract()?;
            let first = chunk.get_item(at)?;
            return Err(
                Refusal::wrong_value(format!("a whole number from 0 is wanted, not {first}")).at(start + at)
            );
        }
        let bytes = chunk.call_method1("astype", ("uint64",))?.call_method0("tobytes")?;
        let bytes = bytes.cast_into::<PyBytes>().map_err(PyErr::from)?;
        let (numbers, _) = bytes.as_bytes().as_chunks::<8>();
        ids.extend(numbers.iter().map(|number| u64::from_ne_bytes(*number)));
    }
    Ok(())
}

/// The refusal of an array of another type.
fn no_whole_numbers(described: &Described) -> Refusal {
    let instead = match described.element {
        ElementType::Bool => "; of a mask give the indices: numpy.flatnonzero(mask)",
        ElementType::F16 | ElementType::F32 | ElementType::F64 | ElementType::Bf16 => {
            "; convert it: array.astype('int64')"
        }
        _ => "",
    };
    let element = match (described.element, &described.name) {
        (ElementType::Opaque(_), Some(name)) => name.clone(),
        (element, _) => element.to_string(),
    };
    Refusal::wrong_type(format!("an array of whole numbers is wanted, not of {element}{instead}"))
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
#[pyclass(frozen, eq, hash, module = "halocline", name = "UnstructuredDomain")]
#[derive(PartialEq, Hash)]
pub(crate) struct PyUnstructuredDomain(pub(crate) UnstructuredDomain);

#[pymethods]
impl PyUnstructuredDomain {
    #[new]
    fn new(id: Argument<u64>, owned: Argument<Ids>, halo: Argument<Ids>) -> PyResult<Self> {
        accept!(id, owned, halo);
        Ok(Self(UnstructuredDomain::new(id, owned.0, halo.0)))
    }

    #[doc = doc!("UnstructuredDomain.from_indices")]
    #[staticmethod]
    fn from_indices(id: Argument<u64>, cells: Argument<Ids>, halo: Argument<Indices>) -> PyResult<Self> {
        accept!(id, cells, halo);
        Ok(Self(UnstructuredDomain::from_indices(id, cells.0, &halo.0)))
    }

    #[doc = doc!("UnstructuredDomain.from_owners")]
    #[staticmethod]
    fn from_owners(
        id: Argument<u64>,
        comm: Argument<Py<PyCommunicator>>,
        cells: Argument<Ids>,
        owners: Argument<Indices>,
    ) -> PyResult<Self> {
        accept!(id, comm, cells, owners);
        let rank = comm.get().get()?.rank();
        Ok(Self(UnstructuredDomain::from_owners(id, rank, cells.0, owners.0)))
    }

    #[doc = doc!("UnstructuredDomain.with_levels")]
    fn with_levels(&self, ends: Argument<List<usize>>) -> PyResult<Self> {
        accept!(ends);
        Ok(Self(self.0.clone().with_levels(ends.0)))
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

    /// For copies and pickles.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (kind, rank, numbers) = match self.0.halo() {
            HaloCells::From(first) => ("from", 0, &[*first][..]),
            HaloCells::At(indices) => ("at", 0, &indices[..]),
            HaloCells::Owners { rank, owners } => ("owners", *rank, &owners[..]),
        };
        let halo = to_numpy(py, numbers.iter().map(|&number| number as u64))?;
        let make = py.import("halocline._core")?.getattr("_domain")?;
        (make, (self.0.id(), self.cells(py)?, kind, rank, halo, self.levels(py)?)).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        format!("UnstructuredDomain({}, {} cells)", self.0.id(), self.0.cells().len())
    }
}

/// A domain as its `__reduce__` tells it.
#[pyfunction(name = "_domain")]
pub(crate) fn domain(
    id: Argument<u64>,
    cells: Argument<Ids>,
    kind: Argument<String>,
    rank: Argument<usize>,
    halo: Argument<Indices>,
    levels: Argument<List<usize>>,
) -> PyResult<PyUnstructuredDomain> {
    accept!(id, cells, kind, rank, halo, levels);
    let (Ids(cells), Indices(halo), List(levels)) = (cells, halo, levels);
    let domain = match (&*kind, &halo[..]) {
        ("from", &[first]) if first <= cells.len() => {
            let (owned, halo) = cells.split_at(first);
            UnstructuredDomain::new(id, owned.to_vec(), halo.to_vec())
        }
        ("at", halo) => UnstructuredDomain::from_indices(id, cells, halo),
        ("owners", _) => UnstructuredDomain::from_owners(id, rank, cells, halo),
        _ => return Err(error::value_error("this is no pickle of an UnstructuredDomain")),
    };
    Ok(PyUnstructuredDomain(domain.with_levels(levels)))
}

/// Domains of the library, of those of Python.
pub(crate) fn domains(given: Vec<Py<PyUnstructuredDomain>>) -> Vec<UnstructuredDomain> {
    given.iter().map(|domain| domain.get().0.clone()).collect()
}

#[doc = doc!("Graph")]
#[pyclass(frozen, eq, hash, module = "halocline", name = "Graph")]
#[derive(PartialEq, Hash)]
pub(crate) struct PyGraph(pub(crate) Graph);

#[pymethods]
impl PyGraph {
    #[new]
    fn new(offsets: Argument<Indices>, neighbours: Argument<Vertices>) -> PyResult<Self> {
        accept!(offsets, neighbours);
        Ok(Self(Graph::new(&offsets.0, &neighbours.0).map_err(error::of)?))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[doc = doc!("Graph.neighbours")]
    fn neighbours<'py>(&self, py: Python<'py>, cell: Argument<usize>) -> PyResult<Bound<'py, PyAny>> {
        accept!(cell);
        let cells = self.0.len();
        if cell >= cells {
            return Err(error::value_error(format!(
                "cell: there is no cell {cell}; the graph has {cells} cells, which count from 0"
            )));
        }
        to_numpy(py, self.0.neighbours(cell).iter().map(|&cell| cell.into()))
    }

    /// For copies and pickles.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let offsets = to_numpy(py, self.0.offsets().iter().map(|&offset| offset as u64))?;
        let neighbours = to_numpy(py, self.0.all_neighbours().iter().map(|&cell| cell.into()))?;
        remade::<Self>(py, (offsets, neighbours).into_pyobject(py)?, PyDict::new(py))
    }

    fn __repr__(&self) -> String {
        format!("Graph({} cells, {} edges)", self.0.len(), self.0.all_neighbours().len() / 2)
    }
}

#[doc = doc!("Partition")]
#[pyclass(frozen, eq, hash, module = "halocline", name = "Partition")]
#[derive(PartialEq, Hash)]
pub(crate) struct PyPartition(pub(crate) Partition);

#[pymethods]
impl PyPartition {
    #[new]
    fn new(owners: Argument<Indices>, ranks: Argument<usize>) -> PyResult<Self> {
        accept!(owners, ranks);
        Ok(Self(Partition::given(owners.0, ranks).map_err(error::of)?))
    }

    #[doc = doc!("Partition.block")]
    #[staticmethod]
    fn block(cells: Argument<usize>, ranks: Argument<usize>) -> PyResult<Self> {
        accept!(cells, ranks);
        Ok(Self(Partition::block(cells, ranks).map_err(error::of)?))
    }

    #[doc = doc!("Partition.metis")]
    #[staticmethod]
    fn metis(py: Python<'_>, graph: Argument<Py<PyGraph>>, ranks: Argument<usize>) -> PyResult<Self> {
        accept!(graph, ranks);
        Ok(Self(py.detach(|| Partition::metis(&graph.get().0, ranks)).map_err(error::of)?))
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
        try_with_capacity::<[usize; 2]>(self.0.ranks()).map_err(|refusal| refusal.of("counts"))?;
        Ok(self.0.counts())
    }

    /// For copies and pickles.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        remade::<Self>(py, (self.owners(py)?, self.ranks()).into_pyobject(py)?, PyDict::new(py))
    }

    fn __repr__(&self) -> String {
        format!("Partition({} cells, {} ranks)", self.0.owners().len(), self.0.ranks())
    }
}
