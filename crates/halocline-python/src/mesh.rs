//! Meshes, and the domains that a partition makes of them.

use crate::argument::{Argument, ArgumentType, Get, List, Refusal, accept, choose};
use crate::error;
use crate::grid::remade;
use crate::unstructured::{
    Ids, Indices, PyGraph, PyPartition, PyUnstructuredDomain, Vertices, numbers, to_numpy, vertex,
};
use halocline::{Elements, IconHalos, Mesh, MeshEdges, MeshError, MeshPart, Shared, UnstructuredDomain};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

#[doc = doc!("Mesh")]
#[pyclass(frozen, eq, hash, module = "halocline", name = "Mesh")]
#[derive(PartialEq, Hash)]
pub(crate) struct PyMesh(pub(crate) Mesh);

#[pymethods]
impl PyMesh {
    #[new]
    #[pyo3(signature = (vertices, connectivity, *, offsets = None, solid = Argument::of(false)), text_signature = "(vertices, connectivity, *, offsets=None, solid=False)")]
    fn new(
        vertices: Argument<usize>,
        connectivity: &Bound<'_, PyAny>,
        offsets: Option<Argument<Indices>>,
        solid: Argument<bool>,
    ) -> PyResult<Self> {
        accept!(vertices, offsets, solid);
        let mesh = match offsets {
            Some(offsets) => {
                let entries = Argument::<Vertices>::from(connectivity).get("connectivity")?;
                Mesh::mixed(vertices, offsets.0, entries.0)
            }
            None => {
                let rows = Argument::<Connectivity>::from(connectivity).get("connectivity")?;
                Mesh::new(vertices, rows.arity, rows.entries)
            }
        };
        let solid = |mesh: Mesh| if solid { mesh.solid() } else { Ok(mesh) };
        mesh.and_then(solid).map(Self).map_err(error::of)
    }

    #[doc = doc!("Mesh.vertices")]
    #[getter]
    fn vertices(&self) -> usize {
        self.0.vertices()
    }

    #[doc = doc!("Mesh.elements")]
    #[getter]
    fn elements(&self) -> usize {
        self.0.elements().len()
    }

    #[doc = doc!("Mesh.connectivity")]
    #[getter]
    fn connectivity<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array_of(py, self.0.elements().connectivity())
    }

    #[doc = doc!("Mesh.offsets")]
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        offsets(py, self.0.elements())
    }

    #[doc = doc!("Mesh.vertex_graph")]
    fn vertex_graph(&self, py: Python<'_>) -> PyResult<PyGraph> {
        py.detach(|| self.0.vertex_graph()).map(PyGraph).map_err(error::of)
    }

    #[doc = doc!("Mesh.element_graph")]
    fn element_graph(&self, py: Python<'_>, common: Argument<usize>) -> PyResult<PyGraph> {
        accept!(common);
        py.detach(|| self.0.element_graph(common)).map(PyGraph).map_err(error::of)
    }

    #[doc = doc!("Mesh.domains_by_vertex")]
    fn domains_by_vertex(
        &self,
        py: Python<'_>,
        partition: Argument<Py<PyPartition>>,
        rank: Argument<usize>,
    ) -> PyResult<PyMeshDomains> {
        accept!(partition, rank);
        let partition = &partition.get().0;
        let made = py.detach(|| self.0.domains_by_vertex(partition, rank)).map_err(of_rank)?;
        Ok(PyMeshDomains::of(&made))
    }

    #[doc = doc!("Mesh.domains_by_element")]
    fn domains_by_element(
        &self,
        py: Python<'_>,
        partition: Argument<Py<PyPartition>>,
        rank: Argument<usize>,
    ) -> PyResult<PyMeshDomains> {
        accept!(partition, rank);
        let partition = &partition.get().0;
        let made = py.detach(|| self.0.domains_by_element(partition, rank)).map_err(of_rank)?;
        Ok(PyMeshDomains::of(&made))
    }

    #[doc = doc!("Mesh.halos")]
    #[pyo3(signature = (partition, part, depth, *, shared = Argument::of("vertex")), text_signature = "($self, partition, part, depth, *, shared='vertex')")]
    fn halos(
        &self,
        py: Python<'_>,
        partition: Argument<Py<PyPartition>>,
        part: Argument<usize>,
        depth: Argument<usize>,
        shared: Argument<String>,
    ) -> PyResult<Py<PyMeshHalos>> {
        accept!(partition, part, depth);
        let shared = shared_of(shared)?;
        made(py, || self.0.halos(&partition.get().0, part, depth, shared))
    }

    #[doc = doc!("Mesh.icon_halos")]
    fn icon_halos(
        &self,
        py: Python<'_>,
        partition: Argument<Py<PyPartition>>,
        part: Argument<usize>,
    ) -> PyResult<Py<PyMeshHalos>> {
        accept!(partition, part);
        let halos = py.detach(|| self.0.icon_halos(&partition.get().0, part)).map_err(error::of)?;
        Py::new(py, PyMeshHalos::of_icon(&halos, halos.edges().vertices()))
    }

    #[doc = doc!("Mesh.refined_part")]
    fn refined_part(
        &self,
        py: Python<'_>,
        partition: Argument<Py<PyPartition>>,
        part: Argument<usize>,
        segments: Argument<usize>,
        depth: Argument<usize>,
    ) -> PyResult<PyMeshPart> {
        accept!(partition, part, segments, depth);
        let part = py.detach(|| self.0.refined_part(&partition.get().0, part, segments, depth));
        part.map(PyMeshPart).map_err(error::of)
    }

    #[doc = doc!("Mesh.solid")]
    #[getter]
    fn solid(&self) -> bool {
        self.0.is_solid()
    }

    /// For copies and pickles.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let elements = self.0.elements();
        let options = PyDict::new(py);
        options.set_item("solid", self.solid())?;
        let connectivity = match elements.arity() {
            Some(arity) => self.connectivity(py)?.call_method1("reshape", (elements.len(), arity))?,
            None => {
                options.set_item("offsets", self.offsets(py)?)?;
                self.connectivity(py)?
            }
        };
        remade::<Self>(py, (self.vertices(), connectivity).into_pyobject(py)?, options)
    }

    fn __repr__(&self) -> String {
        format!("Mesh({})", counts(&self.0))
    }
}

/// The exception of a method whose argument `rank` is the part.
fn of_rank(error: MeshError) -> PyErr {
    match error {
        MeshError::Rank { .. } => error::value_error(format!("rank: {error}")),
        other => error::of(other),
    }
}

fn counts(mesh: &Mesh) -> String {
    format!("{} vertices, {} elements", mesh.vertices(), mesh.elements().len())
}

#[doc = doc!("MeshPart")]
#[pyclass(frozen, module = "halocline", name = "MeshPart")]
pub(crate) struct PyMeshPart(MeshPart);

#[pymethods]
impl PyMeshPart {
    #[new]
    fn new(
        mesh: Argument<Py<PyMesh>>,
        vertices: Argument<Ids>,
        elements: Argument<Ids>,
        partition: Argument<Py<PyPartition>>,
        part: Argument<usize>,
        depth: Argument<usize>,
    ) -> PyResult<Self> {
        accept!(mesh, vertices, elements, partition, part, depth);
        let (mesh, of) = (mesh.get().0.clone(), (partition.get().0.clone(), part));
        MeshPart::new(mesh, vertices.0, elements.0, of, depth).map(Self).map_err(error::of)
    }

    #[doc = doc!("MeshPart.mesh")]
    #[getter]
    fn mesh(&self) -> PyMesh {
        PyMesh(self.0.mesh().clone())
    }

    #[doc = doc!("MeshPart.halos")]
    #[pyo3(signature = (depth, *, shared = Argument::of("vertex")), text_signature = "($self, depth, *, shared='vertex')")]
    fn halos(
        &self,
        py: Python<'_>,
        depth: Argument<usize>,
        shared: Argument<String>,
    ) -> PyResult<Py<PyMeshHalos>> {
        accept!(depth);
        let shared = shared_of(shared)?;
        made(py, || self.0.halos(depth, shared))
    }

    #[doc = doc!("MeshPart.icon_halos")]
    fn icon_halos(&self, py: Python<'_>) -> PyResult<Py<PyMeshHalos>> {
        let halos = py.detach(|| self.0.icon_halos()).map_err(error::of)?;
        Py::new(py, PyMeshHalos::of_icon(&halos, halos.edges().vertices()))
    }

    fn __repr__(&self) -> String {
        format!("MeshPart({} here)", counts(self.0.mesh()))
    }
}

/// The shared entity that makes two elements neighbours, by its name.
fn shared_of(shared: Argument<String>) -> PyResult<Shared> {
    const SHARED: [(&str, Shared); 3] =
        [("vertex", Shared::Vertex), ("edge", Shared::Edge), ("facet", Shared::Facet)];
    choose("shared", &shared.get("shared")?, &SHARED)
}

/// Halos of a mesh, with edges.
fn made<'a>(
    py: Python<'_>,
    make: impl FnOnce() -> Result<halocline::MeshHalos<'a>, MeshError> + Send,
) -> PyResult<Py<PyMeshHalos>> {
    let made = py.detach(|| {
        let halos = make()?;
        let edges = halos.edges()?;
        let domains = PyMeshDomains {
            vertices: halos.vertices().clone(),
            elements: halos.elements().clone(),
            owned_vertices: halos.owned_vertices(),
            owned_elements: halos.owned_elements(),
            local: halos.local_elements().clone(),
        };
        let edges = PyMeshHalos::of_edges(&edges, edges.vertices());
        Ok::<_, MeshError>((domains, edges))
    });
    let (domains, edges) = made.map_err(error::of)?;
    Py::new(py, PyClassInitializer::from(domains).add_subclass(edges))
}

/// Rows of as many vertices each: those of an array of two dimensions, or of a sequence of sequences.
struct Connectivity {
    arity: usize,
    entries: Vec<u32>,
}

impl<'py> ArgumentType<'py> for Connectivity {
    const PLURAL: &'static str = "rows of vertices";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let by_offsets = "or give connectivity flat, with offsets=";
        if object.hasattr(intern!(object.py(), "__array_interface__"))? {
            if object.getattr(intern!(object.py(), "ndim"))?.eq(1)? {
                return Err(Refusal::wrong_value(format!(
                    "an array with a row for each element is wanted, not one of one dimension; reshape it, {by_offsets}"
                )));
            }
            let (extents, entries) = numbers(object, 2)?;
            let entries = entries.into_iter().map(vertex).collect::<Result<_, _>>()?;
            return Ok(Self { arity: extents[1], entries });
        }
        let List(rows) = List::<List<u32>>::of(object)?;
        let arity = rows.first().map_or(1, |row| row.0.len());
        if let Some(row) = rows.iter().position(|row| row.0.len() != arity) {
            return Err(Refusal::wrong_value(format!(
                "element {row} has {} vertices, element 0 has {arity}; give all as many, {by_offsets}",
                rows[row].0.len()
            )));
        }
        Ok(Self { arity, entries: rows.into_iter().flat_map(|row| row.0).collect() })
    }
}

#[doc = doc!("MeshDomains")]
#[pyclass(frozen, subclass, module = "halocline", name = "MeshDomains")]
pub(crate) struct PyMeshDomains {
    vertices: UnstructuredDomain,
    elements: UnstructuredDomain,
    #[doc = doc!("MeshDomains.owned_vertices")]
    #[pyo3(get)]
    owned_vertices: usize,
    #[doc = doc!("MeshDomains.owned_elements")]
    #[pyo3(get)]
    owned_elements: usize,
    local: Elements,
}

impl PyMeshDomains {
    fn of(made: &halocline::MeshDomains) -> Self {
        Self {
            vertices: made.vertices().clone(),
            elements: made.elements().clone(),
            owned_vertices: made.owned_vertices(),
            owned_elements: made.owned_elements(),
            local: made.local_elements().clone(),
        }
    }

    fn counts(&self) -> String {
        let (vertices, elements) = (self.vertices.cells().len(), self.elements.cells().len());
        let (owned_vertices, owned_elements) = (self.owned_vertices, self.owned_elements);
        format!(
            "{owned_vertices} of {vertices} vertices owned, {owned_elements} of {elements} elements owned"
        )
    }
}

pub(crate) fn array_of<'py>(py: Python<'py>, numbers: &[u32]) -> PyResult<Bound<'py, PyAny>> {
    to_numpy(py, numbers.iter().map(|&number| number.into()))
}

/// Where the vertices of each element begin in the connectivity, and where those of the last end.
fn offsets<'py>(py: Python<'py>, elements: &Elements) -> PyResult<Bound<'py, PyAny>> {
    let mut end = 0;
    let ends = elements.iter().map(|vertices| {
        end += vertices.len() as u64;
        end
    });
    let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
    to_numpy(py, offsets.into_iter())
}

#[pymethods]
impl PyMeshDomains {
    #[doc = doc!("MeshDomains.vertices")]
    #[getter]
    fn vertices(&self) -> PyUnstructuredDomain {
        PyUnstructuredDomain(self.vertices.clone())
    }

    #[doc = doc!("MeshDomains.elements")]
    #[getter]
    fn elements(&self) -> PyUnstructuredDomain {
        PyUnstructuredDomain(self.elements.clone())
    }

    #[doc = doc!("MeshDomains.connectivity")]
    #[getter]
    fn connectivity<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array_of(py, self.local.connectivity())
    }

    #[doc = doc!("MeshDomains.offsets")]
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        offsets(py, &self.local)
    }

    fn __repr__(&self) -> String {
        format!("MeshDomains({})", self.counts())
    }
}

#[doc = doc!("MeshHalos")]
#[pyclass(frozen, subclass, extends = PyMeshDomains, module = "halocline", name = "MeshHalos")]
pub(crate) struct PyMeshHalos {
    edges: UnstructuredDomain,
    #[doc = doc!("MeshHalos.owned_edges")]
    #[pyo3(get)]
    owned_edges: usize,
    ends: Vec<u32>,
}

impl PyMeshHalos {
    /// `ends` are the local vertices of each local edge.
    fn of_edges(edges: &MeshEdges, ends: &[[u32; 2]]) -> Self {
        Self { edges: edges.domain().clone(), owned_edges: edges.owned(), ends: ends.as_flattened().to_vec() }
    }

    /// The object of halos of ICON; `ends` are the local vertices of each local edge.
    pub(crate) fn of_icon(halos: &IconHalos, ends: &[[u32; 2]]) -> PyClassInitializer<Self> {
        let domains = PyMeshDomains {
            vertices: halos.vertices().clone(),
            elements: halos.cells().clone(),
            owned_vertices: halos.owned_vertices(),
            owned_elements: halos.owned_cells(),
            local: halos.local_cells().clone(),
        };
        PyClassInitializer::from(domains).add_subclass(Self::of_edges(halos.edges(), ends))
    }

    pub(crate) fn counts(&self, domains: &PyMeshDomains) -> String {
        format!("{}, {} of {} edges owned", domains.counts(), self.owned_edges, self.edges.cells().len())
    }
}

#[pymethods]
impl PyMeshHalos {
    #[doc = doc!("MeshHalos.edges")]
    #[getter]
    fn edges(&self) -> PyUnstructuredDomain {
        PyUnstructuredDomain(self.edges.clone())
    }

    #[doc = doc!("MeshHalos.edge_vertices")]
    #[getter]
    fn edge_vertices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array_of(py, &self.ends)?.call_method1("reshape", (self.ends.len() / 2, 2))
    }

    fn __repr__(slf: PyRef<'_, Self>) -> String {
        format!("MeshHalos({})", slf.counts(slf.as_super()))
    }
}
