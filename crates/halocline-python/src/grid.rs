//! Regular grids, their decompositions, and patterns.

use crate::comm::PyCommunicator;
use crate::error;
use crate::given::{Given, List, Numbers, Pair, Typed};
use halocline::plan::DomainShape;
use halocline::{Decomposition, Halo, Neighbours, Pattern, RegularGrid, agree};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PySlice, PyTuple};

#[doc = doc!("RegularGrid")]
#[pyclass(frozen, module = "halocline", name = "RegularGrid")]
pub(crate) struct PyRegularGrid {
    grid: RegularGrid,
    shape: Vec<usize>,
    periodic: Vec<bool>,
}

/// Ranks of a communicator, or their number alone.
struct Ranks(Option<Py<PyCommunicator>>, usize);

impl Ranks {
    fn of(comm: &Bound<'_, PyAny>) -> PyResult<Self> {
        match comm.cast::<PyCommunicator>() {
            Ok(comm) => Ok(Self(Some(comm.clone().unbind()), comm.get().get()?.size())),
            Err(_) => match comm.extract() {
                Ok(ranks) if !comm.is_instance_of::<PyBool>() => Ok(Self(None, ranks)),
                _ => Err(error::kind("a halocline.Communicator or a number of ranks is wanted")),
            },
        }
    }
}

impl PyRegularGrid {
    fn decomposed(
        &self,
        comm: &Bound<'_, PyAny>,
        decompose: impl FnOnce(&RegularGrid, usize) -> Result<Decomposition, halocline::PatternError>,
    ) -> PyResult<PyDecomposition> {
        let Ranks(comm, ranks) = Ranks::of(comm)?;
        let decomposition = decompose(&self.grid, ranks).map_err(error::of)?;
        Ok(PyDecomposition { decomposition, comm })
    }
}

#[pymethods]
impl PyRegularGrid {
    #[new]
    #[pyo3(signature = (shape, *, periodic = None, domains_per_rank = Typed(1)), text_signature = "(shape, *, periodic=None, domains_per_rank=1)")]
    fn new(
        shape: Numbers<usize>,
        periodic: Option<Numbers<bool>>,
        domains_per_rank: Typed<usize>,
    ) -> PyResult<Self> {
        let Numbers(shape) = shape;
        let Typed(domains_per_rank) = domains_per_rank;
        let periodic = periodic.map_or_else(|| vec![false; shape.len()], |periodic| periodic.0);
        if periodic.len() != shape.len() {
            let (given, axes) = (periodic.len(), shape.len());
            return Err(error::value(format!(
                "{given} flags of periodicity for {axes} axes; give one for each axis"
            )));
        }
        let grid = RegularGrid::new(&*shape).periodic(&*periodic).domains_per_rank(domains_per_rank);
        Ok(Self { grid, shape, periodic })
    }

    #[doc = doc!("RegularGrid.shape")]
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    #[doc = doc!("RegularGrid.periodic")]
    #[getter]
    fn periodic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.periodic)
    }

    #[doc = doc!("RegularGrid.decompose")]
    fn decompose(&self, comm: &Bound<'_, PyAny>) -> PyResult<PyDecomposition> {
        self.decomposed(comm, RegularGrid::decompose)
    }

    #[doc = doc!("RegularGrid.decompose_into")]
    fn decompose_into(&self, blocks: Numbers<usize>, comm: &Bound<'_, PyAny>) -> PyResult<PyDecomposition> {
        let Numbers(blocks) = blocks;
        self.decomposed(comm, |grid, ranks| grid.decompose_into(blocks, ranks))
    }

    #[doc = doc!("RegularGrid.decompose_at")]
    fn decompose_at(
        &self,
        cuts: Numbers<Numbers<usize>>,
        comm: &Bound<'_, PyAny>,
    ) -> PyResult<PyDecomposition> {
        let Numbers(cuts) = cuts;
        let cuts: Vec<Vec<usize>> = cuts.into_iter().map(|cuts| cuts.0).collect();
        self.decomposed(comm, |grid, ranks| grid.decompose_at(cuts, ranks))
    }

    #[doc = doc!("RegularGrid.decompose_boxes")]
    fn decompose_boxes(
        &self,
        boxes: List<(usize, Numbers<usize>, Numbers<usize>)>,
        comm: &Bound<'_, PyAny>,
    ) -> PyResult<PyDecomposition> {
        let List(boxes) = boxes;
        let boxes = boxes.into_iter().map(|(rank, first, cells)| (rank, first.0, cells.0)).collect();
        self.decomposed(comm, |grid, ranks| grid.decompose_boxes(boxes, ranks))
    }

    fn __repr__(&self) -> String {
        format!("RegularGrid({:?}, periodic={:?})", self.shape, self.periodic)
    }
}

#[doc = doc!("Decomposition")]
#[pyclass(frozen, module = "halocline", name = "Decomposition")]
pub(crate) struct PyDecomposition {
    pub(crate) decomposition: Decomposition,
    comm: Option<Py<PyCommunicator>>,
}

#[pymethods]
impl PyDecomposition {
    #[doc = doc!("Decomposition.ranks")]
    #[getter]
    fn ranks(&self) -> usize {
        self.decomposition.ranks()
    }

    #[doc = doc!("Decomposition.shape")]
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.decomposition.extents())
    }

    #[doc = doc!("Decomposition.domains")]
    #[getter]
    fn domains(&self) -> u64 {
        self.decomposition.domains()
    }

    #[doc = doc!("Decomposition.blocks_per_axis")]
    #[getter]
    fn blocks_per_axis<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.decomposition.blocks_per_axis().map(|blocks| PyTuple::new(py, blocks)).transpose()
    }

    #[doc = doc!("Decomposition.staggered")]
    fn staggered(&self, py: Python<'_>, axes: Numbers<bool>) -> PyResult<Self> {
        let Numbers(axes) = axes;
        let decomposition = self.decomposition.staggered(axes).map_err(error::of)?;
        Ok(Self { decomposition, comm: self.comm.as_ref().map(|comm| comm.clone_ref(py)) })
    }

    #[doc = doc!("Decomposition.domains_of")]
    #[pyo3(signature = (rank, halo = None))]
    fn domains_of(&self, rank: Typed<usize>, halo: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<PyDomain>> {
        let Typed(rank) = rank;
        let halo = halo.map_or_else(|| Ok(Halo::uniform(0)), |halo| halo_of(halo, "all"))?;
        let pattern = self.decomposition.pattern_of(rank, &halo).map_err(error::of)?;
        Ok(pattern.domains.into_iter().map(|(id, shape)| PyDomain { id, shape }).collect())
    }

    #[doc = doc!("Decomposition.pattern")]
    #[pyo3(signature = (halo, *, neighbours = Given::of("all"), comm = None), text_signature = "($self, halo, *, neighbours='all', comm=None)")]
    fn pattern(
        &self,
        py: Python<'_>,
        halo: &Bound<'_, PyAny>,
        neighbours: Given<String>,
        comm: Option<Py<PyCommunicator>>,
    ) -> PyResult<PyPattern> {
        let Some(comm) = comm.or_else(|| self.comm.as_ref().map(|comm| comm.clone_ref(py))) else {
            return Err(error::value(
                "the grid was decomposed for a number of ranks; say which communicator they are: pattern(..., comm=comm)",
            ));
        };
        let halo = neighbours.get(py, "neighbours").and_then(|neighbours| halo_of(halo, &neighbours));
        let pattern =
            collective(py, &comm, halo, |comm, halo| Pattern::regular(comm, &self.decomposition, &halo))?;
        Ok(PyPattern { pattern, comm })
    }

    fn __repr__(&self) -> String {
        let (extents, domains) = (self.decomposition.extents(), self.decomposition.domains());
        format!("Decomposition({extents:?} in {domains} domains for {} ranks)", self.decomposition.ranks())
    }
}

/// The halo that is meant.
pub(crate) fn halo_of(halo: &Bound<'_, PyAny>, neighbours: &str) -> PyResult<Halo> {
    let neighbours = match neighbours {
        "faces" => Neighbours::Faces,
        "edges" => Neighbours::FacesAndEdges,
        "all" => Neighbours::All,
        other => {
            return Err(error::value(format!(
                "there are no neighbours {other:?}; choose faces, edges or all"
            )));
        }
    };
    let both = |width: usize| (width, width);
    let halo = if !halo.is_instance_of::<PyBool>()
        && let Ok(width) = halo.extract::<usize>()
    {
        Halo::uniform(width)
    } else if let Ok(widths) = halo.extract::<Numbers<usize>>() {
        Halo::per_axis(widths.0.into_iter().map(both).collect::<Vec<_>>())
    } else if let Ok(widths) = halo.extract::<Numbers<Pair>>() {
        Halo::per_axis(widths.0.into_iter().map(|Pair(low, high)| (low, high)).collect::<Vec<_>>())
    } else {
        return Err(error::value(format!(
            "a halo is a width (from 0), one for each axis, or a pair (low, high) for each axis, not {halo}"
        )));
    };
    Ok(halo.neighbours(neighbours))
}

/// A collective call with arguments that this rank may have refused: then it is an error on all ranks.
pub(crate) fn collective<A: Send, T: Send>(
    py: Python<'_>,
    comm: &Py<PyCommunicator>,
    given: PyResult<A>,
    call: impl FnOnce(&halocline::Communicator, A) -> Result<T, halocline::Error> + Send,
) -> PyResult<T> {
    let comm = comm.get().get()?;
    let (given, refusal) = match given {
        Ok(given) => (Ok(given), None),
        Err(error) => (Err(halocline::Error::Bind(error.value(py).to_string())), Some(error)),
    };
    let outcome = py.detach(|| agree(&comm, given).and_then(|given| call(&comm, given)));
    match refusal {
        Some(refusal) => Err(refusal),
        None => outcome.map_err(error::of),
    }
}

#[doc = doc!("Pattern")]
#[pyclass(frozen, module = "halocline", name = "Pattern")]
pub(crate) struct PyPattern {
    pub(crate) pattern: Pattern,
    pub(crate) comm: Py<PyCommunicator>,
}

impl PyPattern {
    /// Refuses a communicator of other ranks than those of the pattern.
    pub(crate) fn check(&self, comm: &PyCommunicator) -> PyResult<()> {
        if self.comm.get().group() == comm.group() {
            return Ok(());
        }
        Err(error::value(
            "the pattern was made with another communicator; use that one, or a duplicate of it",
        ))
    }
}

#[pymethods]
impl PyPattern {
    #[doc = doc!("Pattern.unstructured")]
    #[staticmethod]
    fn unstructured(
        py: Python<'_>,
        comm: Py<PyCommunicator>,
        domains: Given<List<Py<crate::unstructured::PyUnstructuredDomain>>>,
    ) -> PyResult<Self> {
        let domains = domains.get(py, "domains").map(|domains| crate::unstructured::domains(domains.0));
        let pattern = collective(py, &comm, domains, |comm, domains| Pattern::unstructured(comm, &domains))?;
        Ok(Self { pattern, comm })
    }

    #[doc = doc!("Pattern.domains")]
    #[getter]
    fn domains(&self) -> Vec<PyDomain> {
        let domains = self.pattern.plan().domains.iter();
        domains.map(|(id, shape)| PyDomain { id: *id, shape: shape.clone() }).collect()
    }

    #[doc = doc!("Pattern.shape")]
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.pattern.plan().domains[..] {
            [(_, shape)] => PyTuple::new(py, shape.extents()),
            all => Err(error::value(format!(
                "this rank has {} domains of the pattern; see pattern.domains for their shapes",
                all.len()
            ))),
        }
    }

    #[doc = doc!("Pattern.peers")]
    #[getter]
    fn peers(&self) -> Vec<(usize, usize, usize)> {
        let cells =
            |transfers: &[halocline::plan::Transfer]| transfers.iter().map(|t| t.source.count()).sum();
        let peers = self.pattern.plan().peers.iter();
        peers.map(|peer| (peer.rank, cells(&peer.sends), cells(&peer.receives))).collect()
    }

    #[doc = doc!("Pattern.narrowed")]
    #[pyo3(signature = (halo, *, neighbours = Given::of("all")), text_signature = "($self, halo, *, neighbours='all')")]
    fn narrowed(&self, py: Python<'_>, halo: &Bound<'_, PyAny>, neighbours: Given<String>) -> PyResult<Self> {
        let halo = neighbours.get(py, "neighbours").and_then(|neighbours| halo_of(halo, &neighbours));
        let pattern = collective(py, &self.comm, halo, |comm, halo| self.pattern.narrowed(comm, &halo))?;
        Ok(Self { pattern, comm: self.comm.clone_ref(py) })
    }

    fn __repr__(&self) -> String {
        let plan = self.pattern.plan();
        let domains: Vec<u64> = plan.domains.iter().map(|(id, _)| *id).collect();
        format!("Pattern(domains {domains:?} here, {} peers)", plan.peers.len())
    }
}

#[doc = doc!("Domain")]
#[pyclass(frozen, module = "halocline", name = "Domain")]
pub(crate) struct PyDomain {
    #[doc = doc!("Domain.id")]
    #[pyo3(get)]
    id: u64,
    shape: DomainShape,
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

    #[doc = doc!("Domain.owned")]
    #[getter]
    fn owned<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.shape {
            DomainShape::Regular { owned, .. } => PyTuple::new(py, owned),
            DomainShape::Unstructured { owned, .. } => PyTuple::new(py, [owned]),
        }
    }

    #[doc = doc!("Domain.halo")]
    #[getter]
    fn halo<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.shape {
            DomainShape::Regular { halo, .. } => PyTuple::new(py, halo.iter().copied()).map(Some),
            DomainShape::Unstructured { .. } => Ok(None),
        }
    }

    #[doc = doc!("Domain.interior")]
    #[getter]
    fn interior<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let slice = |low: usize, cells: usize| PySlice::new(py, low as isize, (low + cells) as isize, 1);
        match &self.shape {
            DomainShape::Regular { owned, halo, .. } => {
                PyTuple::new(py, owned.iter().zip(halo).map(|(&owned, &(low, _))| slice(low, owned)))
            }
            DomainShape::Unstructured { owned, .. } => PyTuple::new(py, [slice(0, *owned)]),
        }
    }

    fn __repr__(&self) -> String {
        format!("Domain({}, {:?})", self.id, self.shape.extents())
    }
}
