//! The domains of a pattern or decomposition: boxes of local indices as tuples of slices, and global coordinates.

use crate::argument::{Argument, Get, List, accept};
use crate::error;
use crate::unstructured::to_numpy;
use halocline::plan::{DomainShape, LocalBox};
use halocline::{Domain, Pattern};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};

#[doc = doc!("Domain")]
#[pyclass(frozen, module = "halocline", name = "Domain")]
pub(crate) struct PyDomain {
    #[doc = doc!("Domain.id")]
    #[pyo3(get)]
    id: u64,
    shape: DomainShape,
    /// The pattern, and the domain's position among those of the rank. `None`: of a decomposition.
    pattern: Option<(Pattern, usize)>,
}

impl PyDomain {
    pub(crate) fn of_decomposition(id: u64, shape: DomainShape) -> Self {
        Self { id, shape, pattern: None }
    }

    /// The domain at a position among those of a pattern, under the number that fields give.
    pub(crate) fn of_pattern(id: u64, shape: &DomainShape, (pattern, position): (&Pattern, usize)) -> Self {
        Self { id, shape: shape.clone(), pattern: Some((pattern.clone(), position)) }
    }

    fn in_pattern(&self) -> Option<Domain<'_>> {
        let (pattern, position) = self.pattern.as_ref()?;
        pattern.domains().nth(*position)
    }

    /// The domain if its cells have global ids.
    fn with_ids(&self) -> Option<Domain<'_>> {
        let has_ids = |domain: &Domain<'_>| match domain.shape() {
            DomainShape::Unstructured { cells, .. } => *cells == 0 || domain.global_id(0).is_some(),
            DomainShape::Regular { .. } => false,
        };
        self.in_pattern().filter(has_ids)
    }

    /// Refuses boxes where halo cells lie between the owned ones.
    fn check_boxes(&self) -> PyResult<()> {
        match self.with_ids().filter(|domain| !domain.owned_come_first()) {
            Some(domain) => Err(error::value_error(format!(
                "domain {} has halo cells before owned ones, so that neither are a slice; take domain.owned_indices",
                domain.number()
            ))),
            None => Ok(()),
        }
    }

    /// Refuses coordinates where there are no axes, and a wrong number of them.
    fn check_axes(&self, name: &str, coordinates: usize) -> PyResult<()> {
        let axes = self.shape.axes();
        match self.shape {
            DomainShape::Unstructured { .. } => Err(error::value_error(format!(
                "{name}: an unstructured domain has no coordinates; see domain.global_ids"
            ))),
            DomainShape::Regular { .. } if coordinates != axes => Err(error::value_error(format!(
                "{name}: {coordinates} numbers for {axes} axes; give one for each axis"
            ))),
            DomainShape::Regular { .. } => Ok(()),
        }
    }
}

/// The index of a box of cells in a NumPy array.
fn slices<'py>(py: Python<'py>, cells: LocalBox) -> PyResult<Bound<'py, PyTuple>> {
    let slice = |range: std::ops::Range<usize>| PySlice::new(py, range.start as isize, range.end as isize, 1);
    PyTuple::new(py, cells.into_iter().map(slice))
}

fn all_slices<'py>(py: Python<'py>, boxes: Vec<LocalBox>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    boxes.into_iter().map(|cells| slices(py, cells)).collect()
}

#[pymethods]
impl PyDomain {
    #[doc = doc!("Domain.shape")]
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.extents())
    }

    #[doc = doc!("Domain.first")]
    #[getter]
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.shape {
            DomainShape::Regular { first, .. } => PyTuple::new(py, first).map(Some),
            DomainShape::Unstructured { .. } => Ok(None),
        }
    }

    #[doc = doc!("Domain.owned_shape")]
    #[getter]
    fn owned_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.owned_cells().into_iter().map(|range| range.len()))
    }

    #[doc = doc!("Domain.halo")]
    #[getter]
    fn halo<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.shape {
            DomainShape::Regular { halo, .. } => PyTuple::new(py, halo.iter().copied()).map(Some),
            DomainShape::Unstructured { .. } => Ok(None),
        }
    }

    #[doc = doc!("Domain.owned")]
    #[getter]
    fn owned<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.check_boxes()?;
        slices(py, self.shape.owned_cells())
    }

    #[doc = doc!("Domain.interior")]
    fn interior<'py>(&self, py: Python<'py>, width: Argument<usize>) -> PyResult<Bound<'py, PyTuple>> {
        accept!(width);
        self.check_boxes()?;
        let of_shape = || self.shape.interior(width);
        slices(py, self.in_pattern().map_or_else(of_shape, |domain| domain.interior(width)))
    }

    #[doc = doc!("Domain.boundary")]
    fn boundary<'py>(&self, py: Python<'py>, width: Argument<usize>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        accept!(width);
        self.check_boxes()?;
        let of_shape = || self.shape.boundary(width);
        all_slices(py, self.in_pattern().map_or_else(of_shape, |domain| domain.boundary(width)))
    }

    #[doc = doc!("Domain.halo_boxes")]
    #[getter]
    fn halo_boxes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.check_boxes()?;
        all_slices(py, self.shape.halo_cells())
    }

    #[doc = doc!("Domain.to_global")]
    fn to_global<'py>(&self, py: Python<'py>, index: Argument<List<usize>>) -> PyResult<Bound<'py, PyTuple>> {
        let List(index) = index.get("index")?;
        self.check_axes("index", index.len())?;
        let Some(global) = self.shape.global(&index) else {
            let (index, shape) = (PyTuple::new(py, index)?, self.shape(py)?);
            return Err(error::value_error(format!("index: {index} is outside an array of shape {shape}")));
        };
        PyTuple::new(py, global)
    }

    #[doc = doc!("Domain.to_local")]
    fn to_local<'py>(
        &self,
        py: Python<'py>,
        coordinates: Argument<List<isize>>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let List(coordinates) = coordinates.get("coordinates")?;
        self.check_axes("coordinates", coordinates.len())?;
        let coordinates: Vec<i64> = coordinates.into_iter().map(|at| at as i64).collect();
        self.shape.local(&coordinates).map(|index| PyTuple::new(py, index)).transpose()
    }

    #[doc = doc!("Domain.global_ids")]
    #[getter]
    fn global_ids<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(domain) = self.with_ids() else { return Ok(None) };
        let ids: Vec<u64> = (0..).map_while(|local| domain.global_id(local)).collect();
        to_numpy(py, ids.into_iter()).map(Some)
    }

    #[doc = doc!("Domain.owned_indices")]
    #[getter]
    fn owned_indices<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(domain) = self.with_ids() else { return Ok(None) };
        to_numpy(py, domain.owned_indices().into_iter().map(|index| index as u64)).map(Some)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Domain({}, {})", self.id, self.shape(py)?))
    }
}
