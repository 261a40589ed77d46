//! Regular grids, their decompositions, and patterns.

use crate::argument::{
    Argument, ArgumentType, FilePath, Get, List, Refusal, accept, choose, entries, entry, shown_in_message,
};
use crate::comm::PyCommunicator;
use crate::domain::PyDomain;
use crate::error;
use crate::gather;
use crate::memory_resource::refuse_in_allocator;
use crate::process_local::drop_deferred;
use halocline::plan::OwnedBox;
use halocline::{Decomposition, Halo, Neighbours, Pattern, RegularGrid, agree};
use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

#[doc = doc!("RegularGrid")]
#[pyclass(frozen, eq, hash, module = "halocline", name = "RegularGrid")]
#[derive(PartialEq, Hash)]
pub(crate) struct PyRegularGrid {
    grid: RegularGrid,
    shape: Vec<usize>,
    periodic: Vec<bool>,
    #[doc = doc!("RegularGrid.domains_per_rank")]
    #[pyo3(get)]
    domains_per_rank: usize,
}

/// A communicator, or only a number of ranks.
pub(crate) enum Ranks {
    Of(Py<PyCommunicator>),
    Number(usize),
}

impl<'py> ArgumentType<'py> for Ranks {
    const PLURAL: &'static str = "halocline.Communicator objects";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        if let Ok(comm) = object.cast::<PyCommunicator>() {
            return Ok(Self::Of(comm.clone().unbind()));
        }
        let wanted = || Refusal::wanted("a halocline.Communicator or a number of ranks", object);
        usize::of(object).map(Self::Number).map_err(|_| wanted())
    }
}

impl Ranks {
    /// The number of ranks, and the communicator if it was given.
    pub(crate) fn number(self) -> PyResult<(usize, Option<Py<PyCommunicator>>)> {
        match self {
            Self::Of(comm) => Ok((comm.get().get()?.size(), Some(comm))),
            Self::Number(ranks) => Ok((ranks, None)),
        }
    }
}

/// One box of a decomposition.
struct OneBox(OwnedBox);

impl<'py> ArgumentType<'py> for OneBox {
    const PLURAL: &'static str = "boxes";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let parts = entries::<3>(object, "a box (rank, first cell, cells along each axis)")?;
        let numbers = |at| entry::<List<usize>>(&parts, at).map(|numbers| numbers.0);
        Ok(Self((entry(&parts, 0)?, numbers(1)?, numbers(2)?)))
    }
}

impl PyRegularGrid {
    fn decomposed(
        &self,
        comm: Argument<Ranks>,
        decompose: impl FnOnce(&RegularGrid, usize) -> Result<Decomposition, halocline::PatternError>,
    ) -> PyResult<PyDecomposition> {
        let (ranks, comm) = comm.get("comm")?.number()?;
        let decomposition = decompose(&self.grid, ranks).map_err(error::of)?;
        Ok(PyDecomposition { decomposition, comm })
    }
}

#[pymethods]
impl PyRegularGrid {
    #[new]
    #[pyo3(signature = (shape, *, periodic = None, domains_per_rank = Argument::of(1usize)), text_signature = "(shape, *, periodic=None, domains_per_rank=1)")]
    fn new(
        py: Python<'_>,
        shape: Argument<List<usize>>,
        periodic: Option<Argument<List<bool>>>,
        domains_per_rank: Argument<usize>,
    ) -> PyResult<Self> {
        accept!(shape, periodic, domains_per_rank);
        let List(shape) = shape;
        let periodic = periodic.map_or_else(|| vec![false; shape.len()], |periodic| periodic.0);
        if periodic.len() != shape.len() {
            let (given, axes) = (periodic.len(), shape.len());
            return Err(error::value_error(format!(
                "periodic: {given} flags for {axes} axes; give one for each axis"
            )));
        }
        if domains_per_rank == 0 {
            return Err(error::value_error("domains_per_rank: a whole number from 1 is wanted, not 0"));
        }
        let grid = RegularGrid::new(&*shape).periodic(&*periodic).domains_per_rank(domains_per_rank);
        grid.check().map_err(error::of)?;
        // `check` guarantees that the product does not overflow.
        let cells: usize = shape.iter().product();
        if domains_per_rank > cells {
            let shape = PyTuple::new(py, &shape)?;
            return Err(error::value_error(format!(
                "domains_per_rank: {domains_per_rank} domains, but a grid of {shape} has {cells} cells; every domain needs one"
            )));
        }
        Ok(Self { grid, shape, periodic, domains_per_rank })
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
    fn decompose(&self, comm: Argument<Ranks>) -> PyResult<PyDecomposition> {
        self.decomposed(comm, RegularGrid::decompose)
    }

    #[doc = doc!("RegularGrid.decompose_into")]
    fn decompose_into(
        &self,
        blocks: Argument<List<usize>>,
        comm: Argument<Ranks>,
    ) -> PyResult<PyDecomposition> {
        let List(blocks) = blocks.get("blocks")?;
        self.decomposed(comm, |grid, ranks| grid.decompose_into(blocks, ranks))
    }

    #[doc = doc!("RegularGrid.decompose_at")]
    fn decompose_at(
        &self,
        cuts: Argument<List<List<usize>>>,
        comm: Argument<Ranks>,
    ) -> PyResult<PyDecomposition> {
        let List(cuts) = cuts.get("cuts")?;
        let cuts: Vec<Vec<usize>> = cuts.into_iter().map(|cuts| cuts.0).collect();
        self.decomposed(comm, |grid, ranks| grid.decompose_at(cuts, ranks))
    }

    #[doc = doc!("RegularGrid.decompose_boxes")]
    fn decompose_boxes(
        &self,
        boxes: Argument<List<OneBox>>,
        comm: Argument<Ranks>,
    ) -> PyResult<PyDecomposition> {
        let List(boxes) = boxes.get("boxes")?;
        let boxes = boxes.into_iter().map(|one| one.0).collect();
        self.decomposed(comm, |grid, ranks| grid.decompose_boxes(boxes, ranks))
    }

    /// For copies and pickles.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let options = PyDict::new(py);
        options.set_item("periodic", self.periodic(py)?)?;
        options.set_item("domains_per_rank", self.domains_per_rank)?;
        remade::<Self>(py, (self.shape(py)?,).into_pyobject(py)?, options)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let more = match self.domains_per_rank {
            1 => String::new(),
            domains => format!(", domains_per_rank={domains}"),
        };
        Ok(format!("RegularGrid({}, periodic={}{more})", self.shape(py)?, self.periodic(py)?))
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
    fn staggered(&self, py: Python<'_>, axes: Argument<List<bool>>) -> PyResult<Self> {
        let List(axes) = axes.get("axes")?;
        let decomposition = self.decomposition.staggered(axes).map_err(error::of)?;
        Ok(Self { decomposition, comm: self.comm.as_ref().map(|comm| comm.clone_ref(py)) })
    }

    #[doc = doc!("Decomposition.domains_of")]
    #[pyo3(signature = (rank, halo = None))]
    fn domains_of(&self, rank: Argument<usize>, halo: Option<Argument<Widths>>) -> PyResult<Vec<PyDomain>> {
        accept!(rank, halo);
        let halo = halo.map_or_else(|| Halo::uniform(0), |halo| halo.0);
        let pattern = self.decomposition.pattern_of(rank, &halo).map_err(error::of)?;
        Ok(pattern.domains.into_iter().map(|(id, shape)| PyDomain::of_decomposition(id, shape)).collect())
    }

    #[doc = doc!("Decomposition.pattern")]
    #[pyo3(signature = (halo, *, neighbours = Argument::of("all"), comm = None), text_signature = "($self, halo, *, neighbours='all', comm=None)")]
    fn pattern(
        &self,
        py: Python<'_>,
        halo: Argument<Widths>,
        neighbours: Argument<String>,
        comm: Option<Argument<Py<PyCommunicator>>>,
    ) -> PyResult<PyPattern> {
        let comm = communicator(py, comm, self.comm.as_ref())?;
        let halo = halo_of(halo, neighbours);
        let pattern = collective(py, &comm, "pattern", halo, |comm, halo| {
            Pattern::regular(comm, &self.decomposition, &halo)
        })?;
        Ok(PyPattern { pattern, comm })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (domains, ranks) = (self.decomposition.domains(), self.decomposition.ranks());
        Ok(format!("Decomposition({} in {domains} domains for {ranks} ranks)", self.shape(py)?))
    }
}

/// The communicator that was given, or the one that a grid was decomposed for.
pub(crate) fn communicator(
    py: Python<'_>,
    given: Option<Argument<Py<PyCommunicator>>>,
    of_grid: Option<&Py<PyCommunicator>>,
) -> PyResult<Py<PyCommunicator>> {
    given.get("comm")?.or_else(|| of_grid.map(|comm| comm.clone_ref(py))).ok_or_else(|| {
        error::value_error(
            "comm: the grid was decomposed for a number of ranks, not for a communicator; pass one: pattern(..., comm=comm)",
        )
    })
}

/// The widths of a halo.
pub(crate) struct Widths(pub(crate) Halo);

impl<'py> ArgumentType<'py> for Widths {
    const PLURAL: &'static str = "halos";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        const WANTED: &str = "a width (from 0), a width for each axis, or a pair (low, high) for each axis";
        if let Ok(width) = usize::of(object) {
            return Ok(Self(Halo::uniform(width)));
        }
        if let Ok(List(widths)) = List::<usize>::of(object) {
            return Ok(Self(Halo::per_axis(
                widths.into_iter().map(|width| (width, width)).collect::<Vec<_>>(),
            )));
        }
        let pairs = match List::<List<usize>>::of(object) {
            Ok(List(pairs)) => pairs,
            Err(Refusal::Theirs(error)) => return Err(Refusal::Theirs(error)),
            Err(_) => Vec::new(),
        };
        let pair = |List(pair): List<usize>| <[usize; 2]>::try_from(pair).ok().map(<(usize, usize)>::from);
        match pairs.into_iter().map(pair).collect::<Option<Vec<_>>>() {
            Some(widths) if !widths.is_empty() => Ok(Self(Halo::per_axis(widths))),
            _ => Err(Refusal::wrong_value(format!("{WANTED} is wanted, not {}", shown_in_message(object)))),
        }
    }
}

/// The halo of these widths and this choice of neighbours.
pub(crate) fn halo_of(halo: Argument<Widths>, neighbours: Argument<String>) -> PyResult<Halo> {
    accept!(halo, neighbours);
    let neighbours = choose(
        "neighbours",
        &neighbours,
        &[("faces", Neighbours::Faces), ("edges", Neighbours::FacesAndEdges), ("all", Neighbours::All)],
    )?;
    Ok(halo.0.neighbours(neighbours))
}

/// The result of `__reduce__`: the class makes the value again from these arguments.
pub(crate) fn remade<'py, T: PyClass>(
    py: Python<'py>,
    arguments: Bound<'py, PyTuple>,
    options: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyTuple>> {
    let make = py.import("copyreg")?.getattr("__newobj_ex__")?;
    (make, (py.get_type::<T>(), arguments, options)).into_pyobject(py)
}

/// Makes a collective call. If this rank refused its arguments (`given`), the call is an error on all ranks.
pub(crate) fn collective<A: Send, T: Send>(
    py: Python<'_>,
    comm: &Py<PyCommunicator>,
    name: &'static str,
    given: PyResult<A>,
    call: impl FnOnce(&halocline::Communicator, A) -> Result<T, halocline::Error> + Send,
) -> PyResult<T> {
    let comm = comm.get().get()?;
    collective_on(py, &comm, name, given, call)
}

/// As [`collective`], on a communicator with a deadline of the call.
pub(crate) fn collective_on<A: Send, T: Send>(
    py: Python<'_>,
    comm: &halocline::Communicator,
    name: &'static str,
    given: PyResult<A>,
    call: impl FnOnce(&halocline::Communicator, A) -> Result<T, halocline::Error> + Send,
) -> PyResult<T> {
    refuse_in_allocator("make collective calls")?;
    let comm = comm.within(name);
    let (given, refusal) = match given {
        Ok(given) => (Ok(given), None),
        Err(error) => (Err(halocline::Error::RefusedArguments(error.value(py).to_string())), Some(error)),
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
    /// Refuses a communicator that is not of the pattern's group.
    pub(crate) fn check(&self, comm: &PyCommunicator) -> PyResult<()> {
        if self.comm.get().group() == comm.group() {
            return Ok(());
        }
        Err(error::value_error(
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
        comm: Argument<Py<PyCommunicator>>,
        domains: Argument<List<Py<crate::unstructured::PyUnstructuredDomain>>>,
    ) -> PyResult<Self> {
        accept!(comm);
        let domains = domains.get("domains").map(|domains| crate::unstructured::domains(domains.0));
        let pattern =
            collective(py, &comm, "pattern", domains, |comm, domains| Pattern::unstructured(comm, &domains))?;
        Ok(Self { pattern, comm })
    }

    #[doc = doc!("Pattern.domains")]
    #[getter]
    fn domains(&self) -> Vec<PyDomain> {
        let pattern = &self.pattern;
        let all = pattern.domains().enumerate().map(|(at, domain)| {
            // As fields name it: of one component by the number in the grid, otherwise by that in the plan.
            let id = match pattern.component_of_fields() {
                Some(_) => domain.number(),
                None => pattern.plan().domains[at].0,
            };
            PyDomain::of_pattern(id, domain.shape(), (pattern, at))
        });
        all.collect()
    }

    #[doc = doc!("Pattern.component")]
    fn component(&self, py: Python<'_>, component: Argument<usize>) -> PyResult<Self> {
        let pattern = self.pattern.component(component.get("component")?).map_err(error::of)?;
        Ok(Self { pattern, comm: self.comm.clone_ref(py) })
    }

    #[doc = doc!("Pattern.shape")]
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.pattern.domains().collect::<Vec<_>>()[..] {
            [domain] => PyTuple::new(py, domain.extents()),
            all => Err(error::value_error(format!(
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
    #[pyo3(signature = (halo, *, neighbours = Argument::of("all")), text_signature = "($self, halo, *, neighbours='all')")]
    fn narrowed(
        &self,
        py: Python<'_>,
        halo: Argument<Widths>,
        neighbours: Argument<String>,
    ) -> PyResult<Self> {
        let halo = halo_of(halo, neighbours);
        let pattern =
            collective(py, &self.comm, "narrowed", halo, |comm, halo| self.pattern.narrowed(comm, &halo))?;
        Ok(Self { pattern, comm: self.comm.clone_ref(py) })
    }

    #[doc = doc!("Pattern.gather_to")]
    fn gather_to<'py>(
        &self,
        py: Python<'py>,
        root: Argument<usize>,
        fields: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let prepared = root.get("root").and_then(|root| Ok((root, gather::parts(fields)?)));
        let gathered = collective(py, &self.comm, "gather_to", prepared, |comm, (root, fields)| {
            self.pattern.gather_field_to(comm, root, fields.iter().collect::<Vec<_>>())
        });
        drop_deferred(py);
        gathered?.map(|field| gather::to_numpy(py, field)).transpose()
    }

    #[doc = doc!("Pattern.save")]
    fn save(&self, py: Python<'_>, path: Argument<FilePath>, fields: &Bound<'_, PyAny>) -> PyResult<()> {
        let prepared = path.get("path").and_then(|path| Ok((path.0, gather::parts(fields)?)));
        let saved = collective(py, &self.comm, "save", prepared, |comm, (path, fields)| {
            self.pattern.save(comm, path, fields.iter().collect::<Vec<_>>())
        });
        drop_deferred(py);
        saved
    }

    fn __repr__(&self) -> String {
        let plan = self.pattern.plan();
        format!("Pattern({} domains here, {} peers)", plan.domains.len(), plan.peers.len())
    }
}
