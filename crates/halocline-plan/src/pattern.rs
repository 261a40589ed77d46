//! Which cells each domain sends to and receives from each other domain, as seen by one rank.

use std::sync::Arc;

/// A run of consecutive cells.
///
/// ```
/// use halocline_plan::{Cells, Run};
///
/// let Cells::Runs(runs) = Cells::from_indices([4, 5, 9]) else { panic!("cells by their indices are runs") };
/// assert_eq!(*runs, [Run { start: 4, len: 2 }, Run { start: 9, len: 1 }]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// First local cell index.
    pub start: u32,
    /// Number of cells, at least 1.
    pub len: u32,
}

/// A box of cells of a regular domain. Coordinates are relative to the domain's first owned cell,
/// so halo cells at the low side have negative coordinates.
///
/// ```
/// use halocline_plan::{BoxCells, Cells, Halo, RegularGrid};
///
/// let grid = RegularGrid::new((8, 6)).decompose(2)?;
/// let plan = grid.pattern_of(1, &Halo::uniform(1))?;
/// // Rank 1 owns the rows 4 to 7. Its halo row is the one before them.
/// let row = BoxCells { low: vec![-1, 0], extent: vec![1, 6] };
/// assert_eq!(plan.peers[0].receives[0].target, Cells::Box(row));
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BoxCells {
    /// Lowest cell.
    pub low: Vec<i64>,
    /// Cells along each axis, at least 1.
    pub extent: Vec<usize>,
}

impl BoxCells {
    /// Calls `visit` with the row-major index of each cell in an array of these extents, whose halo has these widths.
    fn for_each_index(&self, halo: &[(usize, usize)], extents: &[usize], mut visit: impl FnMut(usize)) {
        for number in 0..self.extent.iter().product() {
            let (mut rest, mut index, mut stride): (usize, usize, usize) = (number, 0, 1);
            for axis in (0..extents.len()).rev() {
                let at = self.low[axis] + halo[axis].0 as i64 + (rest % self.extent[axis]) as i64;
                rest /= self.extent[axis];
                index += at as usize * stride;
                stride *= extents[axis];
            }
            visit(index);
        }
    }
}

/// A set of cells of one domain, in the order in which they travel.
///
/// ```
/// use halocline_plan::{BoxCells, Cells};
///
/// let list = Cells::from_indices([4, 5, 9]);
/// assert_eq!(list.count(), 3);
/// let rectangle = Cells::Box(BoxCells { low: vec![0, 0], extent: vec![2, 3] });
/// assert_eq!(rectangle.count(), 6);
/// ```
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

/// How the axes of the source of a transfer map to those of its target. In a grid of 2 axes they may be swapped and
/// flipped, where a seam of a [`PatchGrid`](crate::PatchGrid) turns them; in other grids they are the same.
///
/// ```
/// use halocline_plan::{AxisMap, Halo, RegularGrid};
///
/// let grid = RegularGrid::new((8, 6)).decompose(2)?;
/// let plan = grid.pattern_of(0, &Halo::uniform(1))?;
/// assert_eq!(plan.peers[0].sends[0].map, AxisMap::IDENTITY);
///
/// // A quarter turn to the right, with rows counted upwards and columns to the right.
/// let turn = AxisMap { swapped: true, flipped: [true, false] };
/// assert_eq!([turn.source_axis(0), turn.source_axis(1)], [1, 0]);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AxisMap {
    /// Whether axis 0 of the target is axis 1 of the source, and axis 1 is axis 0.
    pub swapped: bool,
    /// For each axis of the target: whether cells along it are read backwards.
    pub flipped: [bool; 2],
}

impl AxisMap {
    /// Axis i of the source is axis i of the target.
    pub const IDENTITY: Self = Self { swapped: false, flipped: [false; 2] };

    /// The axis of the source that an axis of the target maps to.
    pub fn source_axis(&self, axis: usize) -> usize {
        axis ^ usize::from(self.swapped)
    }

    /// Whether cells along an axis of the target are read backwards.
    pub fn is_flipped(&self, axis: usize) -> bool {
        self.flipped.get(axis).is_some_and(|flipped| *flipped)
    }
}

/// Cells of one domain that fill halo cells of another domain, or of the same domain across a
/// periodic border. Both ranks know both ends, so either can do the copy.
///
/// ```
/// use halocline_plan::{Halo, RegularGrid, Transfer};
///
/// let grid = RegularGrid::new((8, 6)).decompose(2)?;
/// let plan = grid.pattern_of(0, &Halo::uniform(1))?;
/// // Domain 0 sends its last row of 6 cells to domain 1.
/// let sent: &Transfer = &plan.peers[0].sends[0];
/// assert_eq!((sent.from, sent.to), (0, 1));
/// assert_eq!((sent.source.count(), sent.target.count()), (6, 6));
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Global number of the domain that owns the cells.
    pub from: u64,
    /// Global number of the domain whose halo is filled.
    pub to: u64,
    /// The cells in `from`.
    pub source: Cells,
    /// The cells in `to`: equally many. If the map is not the identity, boxes have the extents that it gives.
    pub target: Cells,
    /// How the axes map.
    pub map: AxisMap,
    /// Whether the values change their sign, as components of vectors across some seams.
    pub is_negated: bool,
}

/// All transfers with one other rank. Both ranks list them in the same order.
///
/// ```
/// use halocline_plan::{Halo, Peer, RegularGrid};
///
/// let grid = RegularGrid::new((8, 6)).decompose(2)?;
/// let plan = grid.pattern_of(0, &Halo::uniform(1))?;
/// let peer: &Peer = &plan.peers[0];
/// assert_eq!(peer.rank, 1);
/// // The peer lists the same transfers.
/// assert_eq!(peer.sends, grid.pattern_of(1, &Halo::uniform(1))?.peers[0].receives);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peer {
    /// The other rank.
    pub rank: usize,
    /// Transfers that this rank sends to the peer.
    pub sends: Vec<Transfer>,
    /// Transfers that this rank receives from the peer.
    pub receives: Vec<Transfer>,
}

/// Extents of a domain of this rank and its halo.
///
/// ```
/// use halocline_plan::{Halo, RegularGrid};
///
/// let grid = RegularGrid::new((8, 6)).decompose(2)?;
/// // Rank 1 owns the rows 4 to 7.
/// let (_, shape) = &grid.pattern_of(1, &Halo::uniform(1))?.domains[0];
/// assert_eq!(shape.extents(), [6, 8]);
/// assert_eq!(shape.owned_cells(), [1..5, 1..7]);
/// // The stencil of an interior cell reads no halo cell.
/// assert_eq!(shape.interior(1), [2..4, 2..6]);
/// assert_eq!(shape.global(&[1, 1]), Some(vec![4, 0]));
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
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
        /// The end, in local order, of a halo of depth 0, 1, …. Empty if the domain does not define
        /// depths; its halo then has depth 1.
        levels: Vec<usize>,
    },
}

impl DomainShape {
    /// Number of axes that a layout must have: those of the grid, or one for an unstructured
    /// domain.
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

/// The cells that the domains of one rank send and receive. Every rank builds its own part, and the
/// parts match.
///
/// ```
/// use halocline_plan::{Halo, RegularGrid};
///
/// // In a program, `pattern.plan()` returns the plan of its rank.
/// let grid = RegularGrid::new((8, 6)).decompose(2)?;
/// let plan = grid.pattern_of(0, &Halo::uniform(1))?;
/// let received = plan.peers.iter().flat_map(|peer| &peer.receives);
/// assert_eq!(received.map(|transfer| transfer.target.count()).sum::<usize>(), 6);
/// // The array of domain 0 has 6 rows of 8 cells. The 6 owned cells of row 4 are copied.
/// let degree = plan.degree(0).expect("a domain of this rank");
/// assert_eq!(degree[4 * 8..5 * 8], [0, 1, 1, 1, 1, 1, 1, 0]);
/// # Ok::<(), halocline_plan::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternPlan {
    /// Domains of this rank, with their global numbers, ascending.
    pub domains: Vec<(u64, DomainShape)>,
    /// Ranks that this rank exchanges with, ascending, this rank excluded.
    pub peers: Vec<Peer>,
    /// Transfers between domains of this rank.
    pub local: Vec<Transfer>,
}

impl PatternPlan {
    /// For each cell of domain `id`, owned and halo, in row-major order of [`DomainShape::extents`]: how many halo cells copy it. `None`
    /// if this rank does not own the domain.
    pub fn degree(&self, id: u64) -> Option<Vec<u32>> {
        let shape = self.domain(id)?;
        let extents = shape.extents();
        let mut degree = vec![0; extents.iter().product()];
        let sent = self.peers.iter().flat_map(|peer| &peer.sends).chain(&self.local);
        for transfer in sent.filter(|transfer| transfer.from == id) {
            match (&transfer.source, shape) {
                (Cells::Runs(runs), _) => {
                    let cells = runs.iter().flat_map(|run| run.start..run.start + run.len);
                    cells.for_each(|cell| degree[cell as usize] += 1);
                }
                (Cells::Box(cells), DomainShape::Regular { halo, .. }) => {
                    cells.for_each_index(halo, &extents, |at| degree[at] += 1);
                }
                // A list of cells has no boxes.
                (Cells::Box(_), DomainShape::Unstructured { .. }) => {}
            }
        }
        Some(degree)
    }

    /// The shape of domain `id`, if this rank owns it.
    pub fn domain(&self, id: u64) -> Option<&DomainShape> {
        let at = self.domains.binary_search_by_key(&id, |(domain, _)| *domain).ok()?;
        Some(&self.domains[at].1)
    }
}
