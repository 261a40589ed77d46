//! Grid files of ICON, and icosahedral grids.

use crate::argument::{Argument, FilePath, Get, accept};
use crate::error;
use crate::mesh::{PyMesh, PyMeshHalos, array_of};
use crate::unstructured::{Ids, PyPartition};
use halocline::{IconGrid, IconGridError, IconGridPart, IcosahedralGrid};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[doc = doc!("IconGrid")]
#[pyclass(frozen, module = "halocline", name = "IconGrid")]
pub(crate) struct PyIconGrid(IconGrid);

#[pymethods]
impl PyIconGrid {
    #[new]
    fn new(py: Python<'_>, path: Argument<FilePath>) -> PyResult<Self> {
        accept!(path);
        py.detach(|| IconGrid::open(&path.0)).map(Self).map_err(error::of)
    }

    #[doc = doc!("IconGrid.cells")]
    #[getter]
    fn cells(&self) -> usize {
        self.0.cells()
    }

    #[doc = doc!("IconGrid.edges")]
    #[getter]
    fn edges(&self) -> usize {
        self.0.edges()
    }

    #[doc = doc!("IconGrid.vertices")]
    #[getter]
    fn vertices(&self) -> usize {
        self.0.vertices()
    }

    #[doc = doc!("IconGrid.mesh")]
    fn mesh(&self, py: Python<'_>) -> PyResult<PyMesh> {
        py.detach(|| self.0.mesh()).map(PyMesh).map_err(error::of)
    }

    #[doc = doc!("IconGrid.part")]
    fn part(
        &self,
        py: Python<'_>,
        partition: Argument<Py<PyPartition>>,
        part: Argument<usize>,
    ) -> PyResult<Py<PyIconGridPart>> {
        accept!(partition, part);
        let read = py.detach(|| self.0.part(&partition.get().0, part)).map_err(error::of)?;
        let halos = PyMeshHalos::of_icon(read.halos(), read.edge_vertices());
        Py::new(py, halos.add_subclass(PyIconGridPart(read)))
    }

    #[doc = doc!("IconGrid.read")]
    fn read<'py>(
        &self,
        py: Python<'py>,
        name: Argument<String>,
        ids: Argument<Ids>,
    ) -> PyResult<Bound<'py, PyAny>> {
        accept!(name, ids);
        let values = py.detach(|| self.0.read(&name, &ids.0)).map_err(of_name)?;
        let array = array_of_floats(py, &values)?;
        match values.len() == ids.0.len() {
            true => Ok(array),
            false => array.call_method1("reshape", (ids.0.len(), values.len() / ids.0.len())),
        }
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn array_of_floats<'py>(py: Python<'py>, values: &[f64]) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    py.import("numpy")?.call_method1("frombuffer", (PyBytes::new(py, &bytes), "float64"))
}

/// The exception of a method whose argument `name` is the variable.
fn of_name(error: IconGridError) -> PyErr {
    use IconGridError as E;
    match error {
        E::NoVariable { .. } | E::Shape { .. } | E::Type { .. } => {
            error::value_error(format!("name: {error}"))
        }
        other => error::of(other),
    }
}

#[doc = doc!("IconGridPart")]
#[pyclass(frozen, extends = PyMeshHalos, module = "halocline", name = "IconGridPart")]
pub(crate) struct PyIconGridPart(IconGridPart);

#[pymethods]
impl PyIconGridPart {
    #[doc = doc!("IconGridPart.cell_edges")]
    #[getter]
    fn cell_edges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let edges = self.0.cell_edges();
        array_of(py, edges.as_flattened())?.call_method1("reshape", (edges.len(), 3))
    }

    #[doc = doc!("IconGridPart.edge_cells")]
    #[getter]
    fn edge_cells<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let number = |cell: &Option<u32>| cell.map_or(-1, i64::from);
        let cells = self.0.edge_cells();
        let bytes: Vec<u8> = cells.as_flattened().iter().map(number).flat_map(i64::to_ne_bytes).collect();
        let numpy = py.import("numpy")?;
        let array = numpy.call_method1("frombuffer", (PyBytes::new(py, &bytes), "int64"))?;
        array.call_method1("reshape", (cells.len(), 2))
    }

    fn __repr__(slf: PyRef<'_, Self>) -> String {
        let halos = slf.as_super();
        format!("IconGridPart({})", halos.counts(halos.as_super()))
    }
}

#[doc = doc!("IcosahedralGrid")]
#[pyclass(frozen, module = "halocline", name = "IcosahedralGrid")]
pub(crate) struct PyIcosahedralGrid {
    mesh: Py<PyMesh>,
    points: Vec<[f64; 3]>,
}

#[pymethods]
impl PyIcosahedralGrid {
    #[new]
    fn new(py: Python<'_>, bisections: Argument<usize>) -> PyResult<Self> {
        accept!(bisections);
        let grid = py.detach(|| IcosahedralGrid::new(bisections)).map_err(error::of)?;
        let (mesh, points) = grid.into_parts();
        Ok(Self { mesh: Py::new(py, PyMesh(mesh))?, points })
    }

    #[doc = doc!("IcosahedralGrid.mesh")]
    #[getter]
    fn mesh(&self, py: Python<'_>) -> Py<PyMesh> {
        self.mesh.clone_ref(py)
    }

    #[doc = doc!("IcosahedralGrid.points")]
    #[getter]
    fn points<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let points = array_of_floats(py, self.points.as_flattened())?;
        points.call_method1("reshape", (self.points.len(), 3))
    }

    fn __repr__(&self) -> String {
        format!(
            "IcosahedralGrid({} cells, {} vertices)",
            self.mesh.get().0.elements().len(),
            self.points.len()
        )
    }
}
