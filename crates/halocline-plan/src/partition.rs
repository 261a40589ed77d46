//! Partitions: which rank owns each cell.

/// The owning rank of each cell of a global grid.
///
/// ```
/// use halocline_plan::Partition;
///
/// let blocks = Partition::block(10, 3)?;
/// assert_eq!(blocks.counts(), [4, 3, 3]);
///
/// // The owners that another program has computed.
/// let given = Partition::given(vec![0, 0, 1, 0], 2)?;
/// assert_eq!((given.owners()[2], given.counts()), (1, vec![3, 1]));
/// # Ok::<(), halocline_plan::PartitionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Partition {
    owners: Vec<usize>,
    ranks: usize,
}

impl Partition {
    /// Consecutive blocks of cells, whose sizes differ by at most one.
    pub fn block(cells: usize, ranks: usize) -> Result<Self, PartitionError> {
        check_ranks(cells, ranks)?;
        let (size, longer) = (cells / ranks, cells % ranks);
        let block = |rank| std::iter::repeat_n(rank, size + usize::from(rank < longer));
        let mut owners = Vec::new();
        owners.try_reserve_exact(cells).map_err(|_| PartitionError::Memory { cells })?;
        owners.extend((0..ranks).flat_map(block));
        Ok(Self { owners, ranks })
    }

    /// The given rank for each cell. Ranks may be left without a cell; there are fewer than 2^32 of them.
    pub fn given(owners: Vec<usize>, ranks: usize) -> Result<Self, PartitionError> {
        if u32::try_from(ranks).is_err() {
            return Err(PartitionError::TooManyRanks { ranks });
        }
        match owners.iter().position(|&owner| owner >= ranks) {
            Some(cell) => Err(PartitionError::Owner { cell, owner: owners[cell], ranks }),
            None => Ok(Self { owners, ranks }),
        }
    }

    /// A partition of owners that are known to be valid ranks.
    pub(crate) fn of_ranks(owners: Vec<usize>, ranks: usize) -> Self {
        Self { owners, ranks }
    }

    /// The owners of listed cells, in the order of the list: for a part of a mesh.
    ///
    /// # Panics
    ///
    /// If there is no such cell, as indexing a slice does.
    pub fn of_cells(&self, cells: impl IntoIterator<Item = usize>) -> Self {
        Self::of_ranks(cells.into_iter().map(|cell| self.owners[cell]).collect(), self.ranks)
    }

    /// METIS' multilevel k-way partition of a graph whose vertices are the cells. It balances the
    /// number of cells per rank and minimises edges between ranks. The seed is fixed, so the same
    /// graph gives the same partition on every rank of a machine. Ranks of small graphs may get no
    /// cell.
    ///
    /// METIS runs in one thread; concurrent calls wait for each other. While it runs, METIS handles
    /// SIGABRT and SIGTERM itself.
    ///
    /// Source: G. Karypis and V. Kumar, "Multilevel k-way partitioning scheme for irregular graphs",
    /// J. Parallel Distrib. Comput. 48 (1998).
    #[cfg(feature = "metis")]
    pub fn metis(graph: &Graph, ranks: usize) -> Result<Self, PartitionError> {
        check_ranks(graph.len(), ranks)?;
        if ranks == 1 || graph.neighbours.is_empty() {
            // METIS cannot make one part, and without edges any balanced partition is equally good.
            return Self::block(graph.len(), ranks);
        }
        let parts = metis_index("ranks", ranks)?;
        metis_index("cells", graph.len() + 1)?;
        metis_index("edges, counted from both ends,", graph.neighbours.len())?;
        let offsets: Vec<metis::Idx> = graph.offsets.iter().map(|&offset| offset as metis::Idx).collect();
        let neighbours: Vec<metis::Idx> = graph.neighbours.iter().map(|&cell| cell as metis::Idx).collect();
        let mut owners: Vec<metis::Idx> = vec![0; graph.len()];
        // METIS uses the C library's global random sequence and sets signal handlers of the
        // process.
        static METIS: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let alone = METIS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        metis::Graph::new(1, parts, &offsets, &neighbours)
            .map_err(|error| PartitionError::Metis(error.to_string()))?
            .set_option(metis::option::Seed(1))
            .part_kway(&mut owners)
            .map_err(|error| PartitionError::Metis(error.to_string()))?;
        drop(alone);
        // METIS returns no negative number; if it did, `given` would refuse it.
        let owner = |owner| usize::try_from(owner).unwrap_or(usize::MAX);
        Self::given(owners.into_iter().map(owner).collect(), ranks)
    }

    /// The owner of each cell.
    pub fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Number of cells that each rank owns.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.ranks];
        self.owners.iter().for_each(|&owner| counts[owner] += 1);
        counts
    }
}

/// Neighbour relation of the cells. Symmetric; no cell is its own neighbour, and none is listed
/// twice.
///
/// ```
/// use halocline_plan::Graph;
///
/// // A line of four cells.
/// let graph = Graph::new(&[0, 1, 3, 5, 6], &[1, 0, 2, 1, 3, 2])?;
/// assert_eq!(graph.len(), 4);
/// assert_eq!(graph.neighbours(1), [0, 2]);
/// # Ok::<(), halocline_plan::PartitionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Graph {
    /// Where the neighbours of each cell begin, with one final entry for the end.
    offsets: Vec<usize>,
    /// Below the number of cells; ascending for each cell.
    neighbours: Vec<u32>,
}

impl Graph {
    /// A graph in compressed sparse row format: the neighbours of cell `c` are
    /// `neighbours[offsets[c]..offsets[c + 1]]`. Drops repeated neighbours and self-loops.
    ///
    /// Errors: invalid offsets, a neighbour that is no cell, or an edge listed at one end only.
    pub fn new(offsets: &[usize], neighbours: &[u32]) -> Result<Self, PartitionError> {
        if offsets.first() != Some(&0) || offsets.last() != Some(&neighbours.len()) || !offsets.is_sorted() {
            return Err(PartitionError::Offsets { neighbours: neighbours.len() });
        }
        let cells = offsets.len() - 1;
        let rows = || offsets.windows(2).map(|ends| &neighbours[ends[0]..ends[1]]);
        for (cell, row) in rows().enumerate() {
            if let Some(&neighbour) = row.iter().find(|&&neighbour| neighbour as usize >= cells) {
                return Err(PartitionError::Neighbour { cell, neighbour, cells });
            }
        }
        let graph = Self::from_rows(rows().map(<[u32]>::to_vec));
        match graph.one_way_edge() {
            Some((cell, neighbour)) => Err(PartitionError::OneWay { cell, neighbour }),
            None => Ok(graph),
        }
    }

    /// A graph of rows that are symmetric and in range.
    pub(crate) fn from_rows(rows: impl IntoIterator<Item = Vec<u32>>) -> Self {
        let (mut offsets, mut neighbours) = (vec![0], Vec::new());
        for (cell, mut row) in rows.into_iter().enumerate() {
            row.sort_unstable();
            row.dedup();
            neighbours.extend(row.into_iter().filter(|&neighbour| neighbour as usize != cell));
            offsets.push(neighbours.len());
        }
        Self { offsets, neighbours }
    }

    fn one_way_edge(&self) -> Option<(usize, usize)> {
        (0..self.len()).find_map(|cell| {
            let has =
                |other: u32, cell| self.neighbours(other as usize).iter().any(|&at| at as usize == cell);
            let lacking = self.neighbours(cell).iter().find(|&&other| !has(other, cell))?;
            Some((cell, *lacking as usize))
        })
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// True if the graph has no cell.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Start of the neighbours of each cell in [`Graph::all_neighbours`], with one final entry for
    /// the end.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// The neighbours of all cells, cell after cell.
    pub fn all_neighbours(&self) -> &[u32] {
        &self.neighbours
    }

    /// The neighbours of `cell`, ascending; empty for a cell that the graph does not have.
    pub fn neighbours(&self, cell: usize) -> &[u32] {
        match self.offsets.get(cell..).and_then(|ends| ends.get(..2)) {
            Some(ends) => &self.neighbours[ends[0]..ends[1]],
            None => &[],
        }
    }
}

fn check_ranks(cells: usize, ranks: usize) -> Result<(), PartitionError> {
    match ranks {
        0 => Err(PartitionError::NoRanks),
        ranks if ranks > cells => Err(PartitionError::MoreRanksThanCells { ranks, cells }),
        _ => Ok(()),
    }
}

#[cfg(feature = "metis")]
fn metis_index(what: &'static str, count: usize) -> Result<metis::Idx, PartitionError> {
    metis::Idx::try_from(count).map_err(|_| PartitionError::TooLarge { what, count })
}

/// An invalid partition or graph.
///
/// ```
/// use halocline_plan::{Partition, PartitionError};
///
/// let error = Partition::given(vec![0, 1, 2, 0], 2).expect_err("rank 2 of 2, counted from 0");
/// assert_eq!(error, PartitionError::Owner { cell: 2, owner: 2, ranks: 2 });
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// No ranks.
    #[error("a partition over 0 ranks; give at least 1 rank")]
    NoRanks,
    /// Fewer cells than ranks.
    #[error("{ranks} ranks for {cells} cells; use at most one rank for each cell")]
    MoreRanksThanCells {
        /// Ranks asked for.
        ranks: usize,
        /// Cells there are.
        cells: usize,
    },
    /// More ranks than 32 bits can number.
    #[error("a partition over {ranks} ranks, but at most 2^32 - 1 can be numbered; use fewer ranks")]
    TooManyRanks {
        /// Ranks asked for.
        ranks: usize,
    },
    /// Allocation of the owners failed.
    #[error("out of memory: cannot allocate the owners of {cells} cells; partition fewer cells")]
    Memory {
        /// Number of cells.
        cells: usize,
    },
    /// An owner that is not a rank.
    #[error(
        "cell {cell} is assigned to rank {owner}, but there are {ranks} ranks, counted from 0; assign each cell to one of them"
    )]
    Owner {
        /// The cell.
        cell: usize,
        /// The owner given.
        owner: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// Offsets that are not valid for compressed rows.
    #[error(
        "the offsets are no compressed rows: begin them with 0, never descend, and end with the {neighbours} entries of the neighbours"
    )]
    Offsets {
        /// Neighbours given.
        neighbours: usize,
    },
    /// A neighbour that is not a cell.
    #[error(
        "cell {cell} has {neighbour} as a neighbour, but there are {cells} cells, counted from 0; correct the \
         neighbours, or give all cells"
    )]
    Neighbour {
        /// The cell.
        cell: usize,
        /// Its neighbour.
        neighbour: u32,
        /// Number of cells.
        cells: usize,
    },
    /// An edge listed at one of its cells only.
    #[error(
        "cell {cell} lists cell {neighbour} as a neighbour, but cell {neighbour} does not list cell {cell}; list each edge at both its cells"
    )]
    OneWay {
        /// The cell that has the edge.
        cell: usize,
        /// The cell that lacks it.
        neighbour: usize,
    },
    /// A coordinate that is not finite.
    #[error("cell {cell} has a coordinate that is not finite; correct it")]
    Coordinate {
        /// The cell.
        cell: usize,
    },
    /// The number of weights differs from the number of cells.
    #[error("{weights} weights for {cells} cells; give one for each cell, or none")]
    WeightCount {
        /// Weights given.
        weights: usize,
        /// Cells given.
        cells: usize,
    },
    /// A weight that is negative or not finite.
    #[error("cell {cell} weighs {weight}; weights are finite and not negative")]
    Weight {
        /// The cell.
        cell: usize,
        /// Its weight.
        weight: String,
    },
    /// A number beyond METIS' 32-bit integers.
    #[error("{count} {what} exceed METIS' 32-bit integers; use another partitioner")]
    TooLarge {
        /// The counted things.
        what: &'static str,
        /// How many there are.
        count: usize,
    },
    /// METIS failed.
    #[error("METIS: {0}; free memory, or use another partitioner")]
    Metis(String),
}

crate::debug_as_text!(PartitionError);

#[cfg(all(test, feature = "metis"))]
mod tests {
    use super::*;

    #[test]
    fn more_than_metis_counts_is_refused() {
        assert_eq!(metis_index("cells", i32::MAX as usize), Ok(i32::MAX));
        let count = i32::MAX as usize + 1;
        assert_eq!(metis_index("cells", count), Err(PartitionError::TooLarge { what: "cells", count }));
    }
}
