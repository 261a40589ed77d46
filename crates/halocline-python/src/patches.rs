//! Grids of patches and their decompositions.

pub(crate) mod sphere;
mod transfer;

pub(crate) use transfer::PyPatchTransfer;

use crate::argument::{Argument, ArgumentType, Get, List, Refusal, accept, choose, entries, entry};
use crate::comm::PyCommunicator;
use crate::error;
use crate::grid::{PyPattern, Ranks, Widths, collective, communicator, halo_of};
use halocline::{
    Along, Corners, PatchDecomposition, PatchGrid, PatchSide, Pattern, PatternError, Pivot, Quantity, Seam,
    SeamKind,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Rows and columns.
pub(crate) struct Extents([usize; 2]);

impl<'py> ArgumentType<'py> for Extents {
    const PLURAL: &'static str = "pairs (rows, columns)";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let List(numbers) = List::<usize>::of(object)?;
        let pair = <[usize; 2]>::try_from(numbers);
        pair.map(Self).map_err(|_| Refusal::wanted("a pair (rows, columns)", object))
    }
}

/// A side: `(patch, axis, "low" or "high")`.
struct Side(PatchSide);

impl<'py> ArgumentType<'py> for Side {
    const PLURAL: &'static str = "sides";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        const WANTED: &str = "a side (patch, axis, 'low' or 'high')";
        let parts = entries::<3>(object, WANTED)?;
        let (patch, axis) = (entry(&parts, 0)?, entry(&parts, 1)?);
        let end: String = entry(&parts, 2)?;
        match &*end {
            "low" => Ok(Self(PatchSide::low(patch, axis))),
            "high" => Ok(Self(PatchSide::high(patch, axis))),
            _ => Err(Refusal::wanted(WANTED, object)),
        }
    }
}

/// A seam: its kind, and the sides.
pub(crate) struct OneSeam(Seam);

impl<'py> ArgumentType<'py> for OneSeam {
    const PLURAL: &'static str = "seams";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        const WANTED: &str =
            "a seam ('join' or 'join_reversed', side, side) or ('fold_cell', 'fold_corner' or 'pole', side)";
        let wanted = || Refusal::wanted(WANTED, object);
        let parts: Vec<Bound<'py, PyAny>> =
            object.cast::<PyTuple>().map(|tuple| tuple.iter().collect()).map_err(|_| wanted())?;
        let kind: String = parts.first().ok_or_else(wanted).and_then(|_| entry(&parts, 0))?;
        let side = |at: usize| entry::<Side>(&parts, at).map(|side| side.0);
        match (&*kind, parts.len()) {
            ("join", 3) => Ok(Self(Seam::join(side(1)?, side(2)?))),
            ("join_reversed", 3) => Ok(Self(Seam::join_reversed(side(1)?, side(2)?))),
            ("fold_cell", 2) => Ok(Self(Seam::fold(side(1)?, Pivot::Cell))),
            ("fold_corner", 2) => Ok(Self(Seam::fold(side(1)?, Pivot::Corner))),
            ("pole", 2) => Ok(Self(Seam::pole(side(1)?))),
            _ => Err(wanted()),
        }
    }
}

#[doc = doc!("PatchGrid")]
#[pyclass(frozen, eq, hash, module = "halocline", name = "PatchGrid")]
#[derive(PartialEq, Hash)]
pub(crate) struct PyPatchGrid {
    grid: PatchGrid,
}

impl PyPatchGrid {
    fn decomposed(
        &self,
        comm: Argument<Ranks>,
        decompose: impl FnOnce(&PatchGrid, usize) -> Result<PatchDecomposition, halocline::PatternError>,
    ) -> PyResult<PyPatchDecomposition> {
        let (ranks, comm) = comm.get("comm")?.number()?;
        let decomposition = decompose(&self.grid, ranks).map_err(error::of)?;
        Ok(PyPatchDecomposition { decomposition, comm })
    }
}

#[pymethods]
impl PyPatchGrid {
    #[new]
    fn new(patches: Argument<List<Extents>>, seams: Argument<List<OneSeam>>) -> PyResult<Self> {
        accept!(patches, seams);
        let patches = patches.0.into_iter().map(|extents| extents.0).collect();
        let grid = PatchGrid::new(patches, seams.0.into_iter().map(|seam| seam.0).collect());
        Ok(Self { grid: grid.map_err(error::of)? })
    }

    #[doc = doc!("PatchGrid.cubed_sphere")]
    #[staticmethod]
    fn cubed_sphere(n: Argument<usize>) -> PyResult<Self> {
        Ok(Self { grid: PatchGrid::cubed_sphere(n.get("n")?).map_err(error::of)? })
    }

    #[doc = doc!("PatchGrid.lat_lon_cap")]
    #[staticmethod]
    fn lat_lon_cap(n: Argument<usize>) -> PyResult<Self> {
        Ok(Self { grid: PatchGrid::lat_lon_cap(n.get("n")?).map_err(error::of)? })
    }

    #[doc = doc!("PatchGrid.tripolar")]
    #[staticmethod]
    fn tripolar(shape: Argument<Extents>, pivot: Argument<String>) -> PyResult<Self> {
        accept!(shape, pivot);
        let pivot = choose("pivot", &pivot, &[("cell", Pivot::Cell), ("corner", Pivot::Corner)])?;
        Ok(Self { grid: PatchGrid::tripolar(shape.0, pivot).map_err(error::of)? })
    }

    #[doc = doc!("PatchGrid.latitude_longitude")]
    #[staticmethod]
    fn latitude_longitude(shape: Argument<Extents>) -> PyResult<Self> {
        let Extents(shape) = shape.get("shape")?;
        Ok(Self { grid: PatchGrid::latitude_longitude(shape).map_err(error::of)? })
    }

    #[doc = doc!("PatchGrid.corners_through")]
    fn corners_through(&self, axis: Argument<usize>) -> PyResult<Self> {
        let axis = axis.get("axis")?;
        let grid = self.grid.clone().corners(Corners::ThroughAxis(axis)).map_err(error::of)?;
        Ok(Self { grid })
    }

    #[doc = doc!("PatchGrid.shapes")]
    #[getter]
    fn shapes(&self) -> Vec<(usize, usize)> {
        self.grid.extents().iter().map(|&[rows, columns]| (rows, columns)).collect()
    }

    #[doc = doc!("PatchGrid.seams")]
    #[getter]
    fn seams<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.grid.seams().iter().map(|seam| seam_tuple(py, seam)).collect()
    }

    #[doc = doc!("PatchGrid.decompose")]
    fn decompose(&self, comm: Argument<Ranks>) -> PyResult<PyPatchDecomposition> {
        self.decomposed(comm, PatchGrid::decompose)
    }

    #[doc = doc!("PatchGrid.decompose_into")]
    fn decompose_into(
        &self,
        blocks: Argument<List<Extents>>,
        comm: Argument<Ranks>,
    ) -> PyResult<PyPatchDecomposition> {
        let List(blocks) = blocks.get("blocks")?;
        let blocks: Vec<[usize; 2]> = blocks.into_iter().map(|blocks| blocks.0).collect();
        self.decomposed(comm, |grid, ranks| grid.decompose_into(&blocks, ranks))
    }

    /// For copies and pickles.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let seams = self.seams(py)?;
        let axis = match self.grid.corner_fill() {
            Corners::Open => None,
            Corners::ThroughAxis(axis) => Some(axis),
        };
        let make = py.import("halocline._core")?.getattr("_patch_grid")?;
        (make, (self.shapes(), seams, axis)).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        let patches = self.grid.extents();
        format!("PatchGrid({} patches, {} seams)", patches.len(), self.grid.seams().len())
    }
}

/// A seam as the constructor takes it.
fn seam_tuple<'py>(py: Python<'py>, seam: &Seam) -> PyResult<Bound<'py, PyTuple>> {
    let side = |side: PatchSide| (side.patch, side.axis, if side.is_high { "high" } else { "low" });
    let [one, other] = seam.sides().map(side);
    match seam.kind() {
        SeamKind::Join { is_reversed: false } => ("join", one, other).into_pyobject(py),
        SeamKind::Join { is_reversed: true } => ("join_reversed", one, other).into_pyobject(py),
        SeamKind::Fold(Pivot::Cell) => ("fold_cell", one).into_pyobject(py),
        SeamKind::Fold(Pivot::Corner) => ("fold_corner", one).into_pyobject(py),
        SeamKind::Pole => ("pole", one).into_pyobject(py),
    }
}

/// Makes a grid of the arguments that `__reduce__` gives.
#[pyfunction(name = "_patch_grid")]
pub(crate) fn patch_grid(
    patches: Argument<List<Extents>>,
    seams: Argument<List<OneSeam>>,
    axis: Option<Argument<usize>>,
) -> PyResult<PyPatchGrid> {
    let grid = PyPatchGrid::new(patches, seams)?;
    match axis {
        Some(axis) => grid.corners_through(axis),
        None => Ok(grid),
    }
}

#[doc = doc!("PatchDecomposition")]
#[pyclass(frozen, module = "halocline", name = "PatchDecomposition")]
pub(crate) struct PyPatchDecomposition {
    decomposition: PatchDecomposition,
    comm: Option<Py<PyCommunicator>>,
}

/// The patch of a block, its first cell, and its rows and columns.
type Block = (usize, (usize, usize), (usize, usize));

/// What a field holds, by name or as the places of each component.
pub(crate) struct What(Quantity);

impl<'py> ArgumentType<'py> for What {
    const PLURAL: &'static str = "quantities";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        const WANTED: &str = "'cells', 'corners', 'cell_vectors', 'c_grid', 'd_grid', or a list with a pair of 'centre', \
                              'faces', 'high_faces' or 'low_faces' for each component, such as [('high_faces', 'centre')]";
        let wanted = || Refusal::wanted(WANTED, object);
        if let Ok(name) = String::of(object) {
            return Ok(Self(match &*name {
                "cells" => Quantity::cells(),
                "corners" => Quantity::corners(),
                "cell_vectors" => Quantity::cell_vectors(),
                "c_grid" => Quantity::c_grid(),
                "d_grid" => Quantity::d_grid(),
                _ => return Err(wanted()),
            }));
        }
        let along = |name: &String| match &**name {
            "centre" => Ok(Along::Centre),
            "faces" => Ok(Along::Faces),
            "high_faces" => Ok(Along::HighFaces),
            "low_faces" => Ok(Along::LowFaces),
            _ => Err(wanted()),
        };
        let List(components) = List::<List<String>>::of(object).map_err(|refusal| match refusal {
            Refusal::Theirs(error) => Refusal::Theirs(error),
            _ => wanted(),
        })?;
        let place = |List(place): &List<String>| match &place[..] {
            [rows, columns] => Ok([along(rows)?, along(columns)?]),
            _ => Err(wanted()),
        };
        match &components[..] {
            [scalar] => Ok(Self(Quantity::scalar(place(scalar)?))),
            [first, second] => Ok(Self(Quantity::vector(place(first)?, place(second)?))),
            _ => Err(wanted()),
        }
    }
}

impl PyPatchDecomposition {
    fn no_domain(&self, domain: u64) -> PyErr {
        let domains = self.decomposition.domains();
        error::value_error(format!("domain: there is no {domain} of {domains} domains"))
    }
}

#[pymethods]
impl PyPatchDecomposition {
    #[doc = doc!("PatchDecomposition.ranks")]
    #[getter]
    fn ranks(&self) -> usize {
        self.decomposition.ranks()
    }

    #[doc = doc!("PatchDecomposition.domains")]
    #[getter]
    fn domains(&self) -> u64 {
        self.decomposition.domains()
    }

    #[doc = doc!("PatchDecomposition.blocks")]
    #[getter]
    fn blocks(&self) -> Vec<(usize, usize)> {
        let patches = 0..self.decomposition.grid().extents().len();
        patches.map(|patch| self.decomposition.blocks(patch).into()).collect()
    }

    #[doc = doc!("PatchDecomposition.block")]
    #[pyo3(signature = (domain, quantity = None, component = Argument::of(0usize)), text_signature = "($self, domain, quantity='cells', component=0)")]
    fn block(
        &self,
        domain: Argument<u64>,
        quantity: Option<Argument<What>>,
        component: Argument<usize>,
    ) -> PyResult<Block> {
        accept!(domain, quantity, component);
        let quantity = quantity.map_or_else(Quantity::cells, |What(quantity)| quantity);
        let components = quantity.components();
        if component >= components {
            return Err(error::value_error(format!(
                "component: there is no {component} of {components} components"
            )));
        }
        let block = self.decomposition.values(domain, &quantity, component);
        let block = block.ok_or_else(|| self.no_domain(domain))?;
        Ok((block.patch, block.first.into(), block.extents.into()))
    }

    #[doc = doc!("PatchDecomposition.owner")]
    fn owner(&self, domain: Argument<u64>) -> PyResult<usize> {
        let domain = domain.get("domain")?;
        match domain < self.decomposition.domains() {
            true => Ok(self.decomposition.owner(domain)),
            false => Err(self.no_domain(domain)),
        }
    }

    #[doc = doc!("PatchDecomposition.domains_of")]
    fn domains_of(&self, rank: Argument<usize>) -> PyResult<Vec<u64>> {
        let (rank, ranks) = (rank.get("rank")?, self.decomposition.ranks());
        match rank < ranks {
            true => Ok(self.decomposition.domains_of(rank).collect()),
            false => Err(error::of(PatternError::NoSuchRank { rank, ranks })),
        }
    }

    #[doc = doc!("PatchDecomposition.transfers")]
    #[pyo3(signature = (rank, halo, quantity = None, *, neighbours = Argument::of("all")), text_signature = "($self, rank, halo, quantity='cells', *, neighbours='all')")]
    fn transfers(
        &self,
        rank: Argument<usize>,
        halo: Argument<Widths>,
        quantity: Option<Argument<What>>,
        neighbours: Argument<String>,
    ) -> PyResult<Vec<PyPatchTransfer>> {
        accept!(rank, quantity);
        let halo = halo_of(halo, neighbours)?;
        let quantity = quantity.map_or_else(Quantity::cells, |What(quantity)| quantity);
        let plan = self.decomposition.pattern_of(rank, &quantity, &halo).map_err(error::of)?;
        let with_peers = plan.peers.iter().flat_map(|peer| peer.sends.iter().chain(&peer.receives));
        let components = quantity.components() as u64;
        let of = |transfer| PyPatchTransfer::of(transfer, &self.decomposition, components);
        Ok(with_peers.chain(&plan.local).filter_map(of).collect())
    }

    #[doc = doc!("PatchDecomposition.pattern")]
    #[pyo3(signature = (halo, quantity = None, *, neighbours = Argument::of("all"), comm = None), text_signature = "($self, halo, quantity='cells', *, neighbours='all', comm=None)")]
    fn pattern(
        &self,
        py: Python<'_>,
        halo: Argument<Widths>,
        quantity: Option<Argument<What>>,
        neighbours: Argument<String>,
        comm: Option<Argument<Py<PyCommunicator>>>,
    ) -> PyResult<PyPattern> {
        let comm = communicator(py, comm, self.comm.as_ref())?;
        let given = quantity.get("quantity").and_then(|quantity| {
            let quantity = quantity.map_or_else(Quantity::cells, |What(quantity)| quantity);
            Ok((quantity, halo_of(halo, neighbours)?))
        });
        let pattern = collective(py, &comm, "pattern", given, |comm, (quantity, halo)| {
            Pattern::patches(comm, &self.decomposition, &quantity, &halo)
        })?;
        Ok(PyPattern { pattern, comm })
    }

    fn __repr__(&self) -> String {
        let (domains, ranks) = (self.decomposition.domains(), self.decomposition.ranks());
        format!("PatchDecomposition({domains} domains for {ranks} ranks)")
    }
}
