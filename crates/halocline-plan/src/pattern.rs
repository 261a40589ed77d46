//! Which cells each domain sends to and receives from which other domain, seen from one rank.

use std::sync::Arc;

/// A run of consecutive cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// First local cell index.
    pub start: u32,
    /// Number of cells, at least 1.
    pub len: u32,
}

/// A box of cells of a regular domain. Coordinates count from the domain's first owned cell, so halo
/// cells at the low side have negative ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BoxCells {
    /// Lowest cell.
    pub low: Vec<i64>,
    /// Cells along each axis, none of them 0.
    pub extent: Vec<usize>,
}

/// A set of cells of one domain, in the order in which they travel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Cells {
    /// A box of a regular grid, in row-major order of its axes.
    Box(BoxCells),
    /// Local cell indices of an unstructured domain, as maximal runs of consecutive indices.
    Runs(Arc<[Run]>),
}

impl Cells {
    /// Runs of consecutive indices, merged to the longest.
    pub fn from_indices(indices: impl IntoIterator<Item = u32>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for start in indices {
            match runs.last_mut() {
                Some(run) if run.start + run.len == start => run.len += 1,
                _ => runs.push(Run { start, len: 1 }),
            }
        }
        Self::Runs(runs.into())
    }

    /// Number of cells.
    pub fn count(&self) -> usize {
        match self {
            Self::Box(cells) => cells.extent.iter().product(),
            Self::Runs(runs) => runs.iter().map(|run| run.len as usize).sum(),
        }
    }
}

/// How the axes of the source map to those of the destination. Only the identity is made today; a
/// permuted or flipped one is what the seams of a cubed sphere and a tripolar grid need.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum AxisMap {
    /// Axis i of the source is axis i of the destination.
    #[default]
    Identity,
}

/// Cells of one domain that fill halo cells of another (or of the same one, over a periodic border).
/// Both ends are known to both ranks, so that either of them can do the copying.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Global number of the domain that owns the cells.
    pub from: u64,
    /// Global number of the domain whose halo is filled.
    pub to: u64,
    /// The cells in `from`.
    pub source: Cells,
    /// The cells in `to`: as many, in the same order.
    pub target: Cells,
    /// How the axes map.
    pub map: AxisMap,
}

/// All transfers with one other rank. Both ranks list them in the same order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peer {
    /// The other rank.
    pub rank: usize,
    /// What this rank sends to it.
    pub sends: Vec<Transfer>,
    /// What it sends to this rank.
    pub receives: Vec<Transfer>,
}

/// What a domain of this rank looks like to its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DomainShape {
    /// A piece of a regular grid.
    Regular {
        /// First owned cell in the global grid.
        first: Vec<i64>,
        /// Owned cells along each axis.
        owned: Vec<usize>,
        /// Halo width along each axis, low and high side.
        halo: Vec<(usize, usize)>,
    },
    /// A list of cells.
    Unstructured {
        /// Owned cells.
        owned: usize,
        /// All cells, owned and halo.
        cells: usize,
        /// The end, in local order, of the cells that a halo of depth 0, 1, … has; empty if the domain does
        /// not say, and has a halo of depth 1 then.
        levels: Vec<usize>,
    },
}

impl DomainShape {
    /// Axes that a layout must have: the grid's, or one for an unstructured domain.
    pub fn axes(&self) -> usize {
        match self {
            Self::Regular { owned, .. } => owned.len(),
            Self::Unstructured { .. } => 1,
        }
    }

    /// Extents of the smallest array that holds owned and halo cells.
    pub fn extents(&self) -> Vec<usize> {
        match self {
            Self::Regular { owned, halo, .. } => {
                owned.iter().zip(halo).map(|(n, (low, high))| low + n + high).collect()
            }
            Self::Unstructured { cells, .. } => vec![*cells],
        }
    }
}

/// Which cells the domains of one rank send and receive. Pure data: every rank builds its own part,
/// and the parts fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Domains of this rank, with their global numbers, ascending.
    pub domains: Vec<(u64, DomainShape)>,
    /// Ranks that this rank exchanges with, ascending, this rank excluded.
    pub peers: Vec<Peer>,
    /// Transfers between domains of this rank.
    pub local: Vec<Transfer>,
}

impl Pattern {
    /// The shape of domain `id`, if this rank owns it.
    pub fn domain(&self, id: u64) -> Option<&DomainShape> {
        let at = self.domains.binary_search_by_key(&id, |(domain, _)| *domain).ok()?;
        Some(&self.domains[at].1)
    }
}
