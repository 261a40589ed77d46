//! What fills which halo cells of patches.

use halocline::PatchDecomposition;
use halocline::plan::{BoxCells, Cells, Transfer};
use pyo3::prelude::*;

/// A number for each axis of a patch.
type Pair<T> = (T, T);

#[doc = doc!("PatchTransfer")]
#[pyclass(frozen, module = "halocline", name = "PatchTransfer")]
pub(crate) struct PyPatchTransfer {
    #[doc = doc!("PatchTransfer.source_domain")]
    #[pyo3(get)]
    source_domain: u64,
    #[doc = doc!("PatchTransfer.target_domain")]
    #[pyo3(get)]
    target_domain: u64,
    #[doc = doc!("PatchTransfer.source_rank")]
    #[pyo3(get)]
    source_rank: usize,
    #[doc = doc!("PatchTransfer.target_rank")]
    #[pyo3(get)]
    target_rank: usize,
    #[doc = doc!("PatchTransfer.source_component")]
    #[pyo3(get)]
    source_component: u64,
    #[doc = doc!("PatchTransfer.target_component")]
    #[pyo3(get)]
    target_component: u64,
    #[doc = doc!("PatchTransfer.source")]
    #[pyo3(get)]
    source: Pair<i64>,
    #[doc = doc!("PatchTransfer.target")]
    #[pyo3(get)]
    target: Pair<i64>,
    #[doc = doc!("PatchTransfer.shape")]
    #[pyo3(get)]
    shape: Pair<usize>,
    #[doc = doc!("PatchTransfer.swapped")]
    #[pyo3(get)]
    swapped: bool,
    #[doc = doc!("PatchTransfer.flipped")]
    #[pyo3(get)]
    flipped: Pair<bool>,
    #[doc = doc!("PatchTransfer.negated")]
    #[pyo3(get)]
    negated: bool,
}

impl PyPatchTransfer {
    /// A transfer of a plan, whose domains are numbered with `components` for each block.
    pub(super) fn of(transfer: &Transfer, cut: &PatchDecomposition, components: u64) -> Option<Self> {
        let (Cells::Box(source), Cells::Box(target)) = (&transfer.source, &transfer.target) else {
            return None;
        };
        let (source_domain, target_domain) = (transfer.from / components, transfer.to / components);
        let low = |cells: &BoxCells| <[i64; 2]>::try_from(&*cells.low).ok().map(Pair::from);
        Some(Self {
            source_domain,
            target_domain,
            source_rank: cut.owner(source_domain),
            target_rank: cut.owner(target_domain),
            source_component: transfer.from % components,
            target_component: transfer.to % components,
            source: low(source)?,
            target: low(target)?,
            shape: <[usize; 2]>::try_from(&*target.extent).ok()?.into(),
            swapped: transfer.map.swapped,
            flipped: transfer.map.flipped.into(),
            negated: transfer.is_negated,
        })
    }
}

#[pymethods]
impl PyPatchTransfer {
    fn __repr__(&self) -> String {
        let Self { source_domain, target_domain, shape: (rows, columns), .. } = self;
        format!("PatchTransfer(({rows}, {columns}) from domain {source_domain} to domain {target_domain})")
    }
}
