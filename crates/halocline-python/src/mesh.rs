//! Meshes, and the domains that a partition makes of them.

use crate::error;
use crate::given::{List, Typed};
use crate::unstructured::{
    PyGraph, PyPartition, PyUnstructuredDomain, ids, indices, negative, to_numpy, vertex, vertices,
};
use halocline::{Elements, Mesh, MeshError, MeshPart, Shared, UnstructuredDomain};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[doc = doc!("Mesh")]
#[pyclass(frozen, module = "halocline", name = "Mesh")]
pub(crate) struct PyMesh(Mesh);

#[pymethods]
impl PyMesh {
    #[new]
    #[pyo3(signature = (vertices, connectivity, *, offsets = None, solid = false))]
    fn new(
        vertices: Typed<usize>,
        connectivity: &Bound<'_, PyAny>,
        offsets: Option<&Bound<'_, PyAny>>,
        solid: bool,
    ) -> PyResult<Self> {
        let Typed(vertices) = vertices;
        let mesh = match offsets {
            Some(offsets) => Mesh::mixed(vertices, indices(offsets)?, self::vertices(connectivity)?),
            None => {
                let (arity, entries) = rows(connectivity)?;
                Mesh::new(vertices, arity, entries)
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
        numbers(py, self.0.elements().connectivity())
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
    fn element_graph(&self, py: Python<'_>, common: Typed<usize>) -> PyResult<PyGraph> {
        let Typed(common) = common;
        py.detach(|| self.0.element_graph(common)).map(PyGraph).map_err(error::of)
    }

    #[doc = doc!("Mesh.domains_by_vertex")]
    fn domains_by_vertex(
        &self,
        py: Python<'_>,
        partition: &PyPartition,
        rank: Typed<usize>,
    ) -> PyResult<PyMeshDomains> {
        let Typed(rank) = rank;
        let made = py.detach(|| self.0.domains_by_vertex(&partition.0, rank)).map_err(error::of)?;
        Ok(PyMeshDomains::of(&made))
    }

    #[doc = doc!("Mesh.domains_by_element")]
    fn domains_by_element(
        &self,
        py: Python<'_>,
        partition: &PyPartition,
        rank: Typed<usize>,
    ) -> PyResult<PyMeshDomains> {
        let Typed(rank) = rank;
        let made = py.detach(|| self.0.domains_by_element(&partition.0, rank)).map_err(error::of)?;
        Ok(PyMeshDomains::of(&made))
    }

    #[doc = doc!("Mesh.halos")]
    #[pyo3(signature = (partition, part, depth, *, shared = Typed("vertex".to_owned())), text_signature = "($self, partition, part, depth, *, shared='vertex')")]
    fn halos(
        &self,
        py: Python<'_>,
        partition: &PyPartition,
        part: Typed<usize>,
        depth: Typed<usize>,
        shared: Typed<String>,
    ) -> PyResult<Py<PyMeshHalos>> {
        let Typed(part) = part;
        let Typed(depth) = depth;
        let shared = shared_of(&shared.0)?;
        made(py, || self.0.halos(&partition.0, part, depth, shared))
    }

    #[doc = doc!("Mesh.refined_part")]
    fn refined_part(
        &self,
        py: Python<'_>,
        partition: &PyPartition,
        part: Typed<usize>,
        segments: Typed<usize>,
        depth: Typed<usize>,
    ) -> PyResult<PyMeshPart> {
        let (Typed(part), Typed(segments), Typed(depth)) = (part, segments, depth);
        let part = py.detach(|| self.0.refined_part(&partition.0, part, segments, depth));
        part.map(PyMeshPart).map_err(error::of)
    }
}

#[doc = doc!("MeshPart")]
#[pyclass(frozen, module = "halocline", name = "MeshPart")]
pub(crate) struct PyMeshPart(MeshPart);

#[pymethods]
impl PyMeshPart {
    #[new]
    fn new(
        mesh: &PyMesh,
        vertices: &Bound<'_, PyAny>,
        elements: &Bound<'_, PyAny>,
        partition: &PyPartition,
        part: Typed<usize>,
        depth: Typed<usize>,
    ) -> PyResult<Self> {
        let (Typed(part), Typed(depth)) = (part, depth);
        let (mesh, of) = (mesh.0.clone(), (partition.0.clone(), part));
        MeshPart::new(mesh, ids(vertices)?, ids(elements)?, of, depth).map(Self).map_err(error::of)
    }

    #[doc = doc!("MeshPart.mesh")]
    #[getter]
    fn mesh(&self) -> PyMesh {
        PyMesh(self.0.mesh().clone())
    }

    #[doc = doc!("MeshPart.halos")]
    #[pyo3(signature = (depth, *, shared = Typed("vertex".to_owned())), text_signature = "($self, depth, *, shared='vertex')")]
    fn halos(&self, py: Python<'_>, depth: Typed<usize>, shared: Typed<String>) -> PyResult<Py<PyMeshHalos>> {
        let (Typed(depth), shared) = (depth, shared_of(&shared.0)?);
        made(py, || self.0.halos(depth, shared))
    }
}

/// What neighbours have in common, by its name.
fn shared_of(name: &str) -> PyResult<Shared> {
    match name {
        "vertex" => Ok(Shared::Vertex),
        "edge" => Ok(Shared::Edge),
        "facet" => Ok(Shared::Facet),
        other => Err(error::value(format!("elements cannot share {other:?}; choose vertex, edge or facet"))),
    }
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
        let edges = PyMeshHalos {
            edges: edges.domain().clone(),
            owned_edges: edges.owned(),
            ends: edges.vertices().iter().flatten().copied().collect(),
        };
        Ok::<_, MeshError>((domains, edges))
    });
    let (domains, edges) = made.map_err(error::of)?;
    Py::new(py, PyClassInitializer::from(domains).add_subclass(edges))
}

/// Rows of as many vertices each: those of an array of two dimensions, or of a sequence of sequences.
fn rows(connectivity: &Bound<'_, PyAny>) -> PyResult<(usize, Vec<u32>)> {
    if let Some(shape) = connectivity.getattr_opt("shape")? {
        return match shape.extract::<List<usize>>() {
            Ok(List(shape)) if shape.len() == 2 => Ok((shape[1], vertices(connectivity)?)),
            _ => Err(error::value(
                "connectivity is an array with a row for each element, or flat with offsets=",
            )),
        };
    }
    let rows = match connectivity.extract::<List<List<u32>>>() {
        Ok(List(rows)) => rows,
        Err(_) => rows_of_others(connectivity)?,
    };
    let arity = rows.first().map_or(1, |row| row.0.len());
    if let Some(row) = rows.iter().position(|row| row.0.len() != arity) {
        return Err(error::value(format!(
            "element {row} has {} vertices, element 0 has {arity}; give connectivity flat, with offsets=",
            rows[row].0.len()
        )));
    }
    Ok((arity, rows.into_iter().flat_map(|row| row.0).collect()))
}

/// Rows that are not all of vertices: with the number that is none in the error.
fn rows_of_others(connectivity: &Bound<'_, PyAny>) -> PyResult<Vec<List<u32>>> {
    let List(rows): List<List<i64>> = connectivity.extract().map_err(|error: PyErr| {
        match error.is_instance_of::<PyValueError>(connectivity.py()) {
            true => error,
            false => error::kind(
                "connectivity is an array, or a sequence, with a row of vertices for each element",
            ),
        }
    })?;
    let number = |id: i64| u64::try_from(id).map_err(|_| negative(id)).and_then(vertex);
    let of = |row: List<i64>| row.0.into_iter().map(number).collect::<PyResult<_>>().map(List);
    rows.into_iter().map(of).collect()
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
}

fn numbers<'py>(py: Python<'py>, numbers: &[u32]) -> PyResult<Bound<'py, PyAny>> {
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
        numbers(py, self.local.connectivity())
    }

    #[doc = doc!("MeshDomains.offsets")]
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        offsets(py, &self.local)
    }
}

#[doc = doc!("MeshHalos")]
#[pyclass(frozen, extends = PyMeshDomains, module = "halocline", name = "MeshHalos")]
pub(crate) struct PyMeshHalos {
    edges: UnstructuredDomain,
    #[doc = doc!("MeshHalos.owned_edges")]
    #[pyo3(get)]
    owned_edges: usize,
    ends: Vec<u32>,
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
        numbers(py, &self.ends)?.call_method1("reshape", (self.ends.len() / 2, 2))
    }
}
