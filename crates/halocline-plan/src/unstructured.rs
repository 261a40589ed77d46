//! Unstructured domains: lists of owned and halo cells with global ids.

mod error;

pub use error::UnstructuredError;

use std::cmp::Ordering;

/// A piece of an unstructured grid on the rank that owns it: the global ids of its cells in local
/// order, and which of them are halo. The domain's number is global: no other domain of any rank
/// may have it.
///
/// The constructors accept any input, because a rank that returned an error alone would leave the
/// others waiting. Making the pattern reports invalid input on every rank. A domain may be empty
/// and has at most [`u32::MAX`] cells.
///
/// ```
/// use halocline_plan::UnstructuredDomain;
///
/// // Rank 0 owns the cells 10 and 11; cell 20 is a halo cell, which another domain owns.
/// let domain = UnstructuredDomain::new(0, vec![10, 11], vec![20]);
/// assert_eq!(domain.cells(), [10, 11, 20]);
///
/// // The same cells in another local order, from the owner of each cell.
/// let other = UnstructuredDomain::from_owners(0, 0, vec![20, 11, 10], vec![1, 0, 0]);
/// assert_eq!(other.owned_indices(), [1, 2]);
/// assert!(other.owned().eq([11, 10]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnstructuredDomain {
    id: u64,
    cells: Vec<u64>,
    halo: HaloCells,
    /// The levels given; empty if none.
    levels: Vec<usize>,
}

/// Which cells are halo, as given by the user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HaloCells {
    /// All cells from this local index on.
    From(usize),
    /// The cells at these local indices.
    At(Vec<usize>),
    /// The cells whose owner is not `rank`.
    Owners {
        /// The rank that has the domain.
        rank: usize,
        /// The rank that owns each cell.
        owners: Vec<usize>,
    },
}

impl UnstructuredDomain {
    /// A domain whose local order is all `owned` cells, then all `halo` cells, as given.
    pub fn new(id: u64, owned: Vec<u64>, halo: Vec<u64>) -> Self {
        let first = owned.len();
        let cells = [owned, halo].concat();
        Self { id, cells, halo: HaloCells::From(first), levels: Vec::new() }
    }

    /// A domain whose `cells` are in local order; those at the local indices `halo` are halo.
    pub fn from_indices(id: u64, cells: Vec<u64>, halo: &[usize]) -> Self {
        Self { id, cells, halo: HaloCells::At(halo.to_vec()), levels: Vec::new() }
    }

    /// A domain of `rank` whose `cells` are in local order, with the rank that owns each of them:
    /// the cells of `rank` are owned, all others are halo. If `owners` is wrong for a halo cell,
    /// making the pattern fails.
    ///
    /// This form cannot express a halo cell that another domain of the same rank owns.
    pub fn from_owners(id: u64, rank: usize, cells: Vec<u64>, owners: Vec<usize>) -> Self {
        Self { id, cells, halo: HaloCells::Owners { rank, owners }, levels: Vec::new() }
    }

    /// Sets the depth of the halo cells, so that the pattern can be narrowed. In local order,
    /// `ends[d]` is the end of the cells of a halo of depth `d`, including the owned ones. So
    /// `ends` ascends and its last entry is the number of cells. No halo cell lies below `ends[0]`
    /// unless it belongs to a halo of depth 0 (such as a vertex at the rim of the domain's own
    /// elements).
    ///
    /// A domain without levels has a halo of depth 1.
    pub fn with_levels(mut self, ends: Vec<usize>) -> Self {
        self.levels = ends;
        self
    }

    /// The levels given by [`UnstructuredDomain::with_levels`]; empty if none were.
    pub fn levels(&self) -> &[usize] {
        &self.levels
    }

    /// Which cells are halo, as passed to the constructor.
    pub fn halo(&self) -> &HaloCells {
        &self.halo
    }

    /// The global number of the domain.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Global ids of all cells, owned and halo, in local order.
    pub fn cells(&self) -> &[u64] {
        &self.cells
    }

    /// Global ids of the owned cells, in local order. Ignores invalid indices and owners, which the pattern refuses.
    pub fn owned(&self) -> impl Iterator<Item = u64> {
        self.owned_indices().into_iter().map(|local| self.cells[local])
    }

    /// The local indices of its owned cells, ascending.
    pub fn owned_indices(&self) -> Vec<usize> {
        let cells = 0..self.cells.len();
        match &self.halo {
            HaloCells::From(first) => cells.take_while(|local| local < first).collect(),
            HaloCells::At(halo) => {
                let mut is_owned = vec![true; self.cells.len()];
                halo.iter()
                    .for_each(|&local| is_owned.iter_mut().skip(local).take(1).for_each(|is| *is = false));
                cells.filter(|&local| is_owned[local]).collect()
            }
            HaloCells::Owners { rank, owners } => {
                cells.filter(|&local| owners.get(local) == Some(rank)).collect()
            }
        }
    }

    /// Whether the owned cells come first in the local order. The indices of halo cells are taken as those of a pattern: valid, and
    /// none of them twice.
    pub fn owned_come_first(&self) -> bool {
        match &self.halo {
            HaloCells::From(_) => true,
            HaloCells::At(halo) => halo.iter().all(|&local| local + halo.len() >= self.cells.len()),
            HaloCells::Owners { rank, owners } => owners.is_sorted_by_key(|owner| owner != rank),
        }
    }

    /// Checks everything that one rank can check; the domain is on rank `rank` of `ranks`.
    pub(crate) fn check(&self, rank: usize, ranks: usize) -> Result<CheckedDomain, UnstructuredError> {
        check_count(self.id, self.cells.len())?;
        self.check_levels()?;
        let is_halo = self.halo_mask(rank, ranks)?;
        // Local indices fit in 32 bits: checked above.
        let mut by_id: Vec<(u64, u32)> = (0..).zip(&self.cells).map(|(local, &id)| (id, local)).collect();
        by_id.sort_unstable();
        for pair in by_id.windows(2) {
            let [(id, first), (other, second)] = [pair[0], pair[1]];
            if id == other {
                return Err(self.twice(id, first, second, &is_halo));
            }
        }
        by_id.retain(|&(_, local)| !is_halo[local as usize]);
        let halo: Vec<u32> = (0..).zip(&is_halo).filter(|&(_, &halo)| halo).map(|(local, _)| local).collect();
        let given = match &self.halo {
            HaloCells::Owners { owners, .. } => {
                Some(halo.iter().map(|&local| owners[local as usize]).collect())
            }
            _ => None,
        };
        let halo = halo.into_iter().map(|local| (local, self.cells[local as usize])).collect();
        let (cells, levels) = (self.cells.len(), self.levels.clone());
        Ok(CheckedDomain { id: self.id, cells, owned: by_id, halo, given, levels })
    }

    fn check_levels(&self) -> Result<(), UnstructuredError> {
        let cells = self.cells.len();
        match self.levels.last() {
            Some(&last) if last != cells || !self.levels.is_sorted() => {
                Err(UnstructuredError::Levels { domain: self.id, ends: self.levels.clone(), cells })
            }
            _ => Ok(()),
        }
    }

    fn halo_mask(&self, rank: usize, ranks: usize) -> Result<Vec<bool>, UnstructuredError> {
        let (domain, cells) = (self.id, self.cells.len());
        match &self.halo {
            HaloCells::From(first) => Ok((0..cells).map(|local| local >= *first).collect()),
            HaloCells::At(indices) => {
                let mut is_halo = vec![false; cells];
                for (position, &index) in indices.iter().enumerate() {
                    match is_halo.get_mut(index) {
                        None => {
                            return Err(UnstructuredError::HaloIndex { domain, position, index, cells });
                        }
                        Some(true) => {
                            let first = indices.iter().position(|&other| other == index).unwrap_or(position);
                            return Err(UnstructuredError::HaloIndexTwice { domain, index, first, position });
                        }
                        Some(halo) => *halo = true,
                    }
                }
                Ok(is_halo)
            }
            HaloCells::Owners { rank: given, owners } => {
                if *given != rank {
                    return Err(UnstructuredError::OtherRank { domain, given: *given, rank });
                }
                if owners.len() != cells {
                    return Err(UnstructuredError::OwnerCount { domain, cells, owners: owners.len() });
                }
                match owners.iter().position(|&owner| owner >= ranks) {
                    Some(local) => Err(UnstructuredError::OwnerRange {
                        domain,
                        local,
                        id: self.cells[local],
                        owner: owners[local],
                        ranks,
                    }),
                    None => Ok(owners.iter().map(|&owner| owner != rank).collect()),
                }
            }
        }
    }

    fn twice(&self, id: u64, first: u32, second: u32, is_halo: &[bool]) -> UnstructuredError {
        let domain = self.id;
        match is_halo[first as usize].cmp(&is_halo[second as usize]) {
            Ordering::Less => UnstructuredError::HaloOwned { domain, id, owned: first, halo: second },
            Ordering::Greater => UnstructuredError::HaloOwned { domain, id, owned: second, halo: first },
            Ordering::Equal if is_halo[first as usize] => {
                UnstructuredError::HaloTwice { domain, id, first, second }
            }
            Ordering::Equal => UnstructuredError::OwnedTwice { domain, id, first, second },
        }
    }
}

fn check_count(domain: u64, cells: usize) -> Result<(), UnstructuredError> {
    if u32::try_from(cells).is_err() {
        return Err(UnstructuredError::TooManyCells { domain, cells });
    }
    Ok(())
}

/// A domain that has passed the checks of one rank.
#[derive(Debug)]
pub(crate) struct CheckedDomain {
    pub id: u64,
    /// Owned and halo cells.
    pub cells: usize,
    /// Global id and local index of each owned cell, ascending by id.
    pub owned: Vec<(u64, u32)>,
    /// Local index and global id of each halo cell, ascending by local index.
    pub halo: Vec<(u32, u64)>,
    /// The owner of each halo cell, if the user gave it.
    pub given: Option<Vec<usize>>,
    /// The end of each halo depth in local order, if the user gave it.
    pub levels: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_of_more_cells_than_local_indices_is_refused() {
        assert_eq!(check_count(3, u32::MAX as usize), Ok(()));
        let cells = u32::MAX as usize + 1;
        assert_eq!(check_count(3, cells), Err(UnstructuredError::TooManyCells { domain: 3, cells }));
    }
}
