//! The bytes between all ranks.

use crate::error::CommandError;
use halocline::plan::{PatternPlan, Transfer};
use halocline::{Decomposition, Halo, PatternError};

/// Most ranks whose traffic is added up.
pub(super) const MOST_RANKS: usize = 4096;

/// Bytes from each rank to each other one, in one exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Traffic {
    /// For each rank, the ranks that it sends to in ascending order, and the bytes.
    pub(super) sends: Vec<Vec<(usize, u128)>>,
    /// Bytes over periodic borders that stay within a rank, for each.
    pub(super) within: Vec<u128>,
}

impl Traffic {
    pub(super) fn new(ranks: usize) -> Self {
        Self { sends: vec![Vec::new(); ranks], within: vec![0; ranks] }
    }

    /// The traffic of a regular grid whose cells have that many bytes.
    pub(super) fn of_grid(
        decomposition: &Decomposition,
        halo: &Halo,
        cell: u128,
    ) -> Result<Self, CommandError> {
        Self::of_plans(decomposition.ranks(), cell, |rank| decomposition.pattern_of(rank, halo))
    }

    /// The traffic of ranks with these plans, whose cells have that many bytes.
    pub(super) fn of_plans(
        ranks: usize,
        cell: u128,
        plan_of: impl Fn(usize) -> Result<PatternPlan, PatternError>,
    ) -> Result<Self, CommandError> {
        let mut traffic = Self::new(ranks);
        for rank in 0..ranks {
            let pattern = plan_of(rank)?;
            let bytes = |transfers: &[Transfer]| {
                transfers.iter().map(|transfer| transfer.target.count() as u128 * cell).sum::<u128>()
            };
            traffic.sends[rank] = pattern
                .peers
                .iter()
                .map(|peer| (peer.rank, bytes(&peer.sends)))
                .filter(|l| l.1 > 0)
                .collect();
            traffic.within[rank] = bytes(&pattern.local);
        }
        Ok(traffic)
    }

    /// Adds what one rank sends to another.
    pub(super) fn add(&mut self, from: usize, to: usize, bytes: u128) {
        match self.sends[from].binary_search_by_key(&to, |link| link.0) {
            Ok(at) => self.sends[from][at].1 += bytes,
            Err(at) => self.sends[from].insert(at, (to, bytes)),
        }
    }

    pub(super) fn ranks(&self) -> usize {
        self.sends.len()
    }

    /// Sender, receiver and bytes of each link.
    pub(super) fn links(&self) -> impl Iterator<Item = (usize, usize, u128)> {
        self.sends
            .iter()
            .enumerate()
            .flat_map(|(from, links)| links.iter().map(move |&(to, bytes)| (from, to, bytes)))
    }

    /// Bytes that go between ranks.
    pub(super) fn total(&self) -> u128 {
        self.links().map(|(_, _, bytes)| bytes).sum()
    }

    /// Bytes that each rank receives.
    pub(super) fn received(&self) -> Vec<u128> {
        let mut bytes = vec![0; self.ranks()];
        self.links().for_each(|(_, to, moved)| bytes[to] += moved);
        bytes
    }

    /// Bytes that each rank sends and receives.
    pub(super) fn of_ranks(&self) -> Vec<u128> {
        let mut bytes = vec![0; self.ranks()];
        for (from, to, moved) in self.links() {
            bytes[from] += moved;
            bytes[to] += moved;
        }
        bytes
    }

    /// The bytes of the rank with the most, sent and received, over the mean; 1 where nothing moves.
    pub(super) fn imbalance(&self) -> f64 {
        let (most, total) = (self.of_ranks().into_iter().max().unwrap_or(0), 2 * self.total());
        if total == 0 { 1.0 } else { most as f64 * self.ranks() as f64 / total as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline::RegularGrid;

    #[test]
    fn a_chain_of_ranks_has_its_ends_below_the_mean() {
        let decomposition = RegularGrid::new([8, 5]).decompose_into([4, 1], 4).unwrap();
        let traffic = Traffic::of_grid(&decomposition, &Halo::uniform(1), 8).unwrap();
        let links: Vec<_> = traffic.links().collect();
        let due = [(0, 1, 40), (1, 0, 40), (1, 2, 40), (2, 1, 40), (2, 3, 40), (3, 2, 40)];
        assert_eq!(links, due);
        assert_eq!((traffic.total(), traffic.of_ranks()), (240, vec![80, 160, 160, 80]));
        assert_eq!(traffic.imbalance(), 160.0 / 120.0);
    }

    #[test]
    fn bytes_within_a_rank_are_no_traffic() {
        let decomposition = RegularGrid::new([8, 5]).periodic([true, true]).decompose(1).unwrap();
        let traffic = Traffic::of_grid(&decomposition, &Halo::uniform(1), 1).unwrap();
        assert_eq!((traffic.total(), traffic.within[0], traffic.imbalance()), (0, 30, 1.0));
    }

    #[test]
    fn links_of_several_exchanges_add_up() {
        let mut traffic = Traffic::new(3);
        for (to, bytes) in [(2, 5), (1, 7), (2, 1)] {
            traffic.add(0, to, bytes);
        }
        assert_eq!(traffic.sends[0], [(1, 7), (2, 6)]);
    }
}
