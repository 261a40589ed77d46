//! Homes: the rank that records the owner of an id.

use super::{Asked, Clash, Directory, Lookup, Message, Messages, Owner, OwnerRun, Replied, Reply, Result};
use super::{decode_all, encode_all};
use crate::UnstructuredError;
use crate::wire::WireError;
use std::collections::BTreeMap;

/// The mapping of blocks of ids to ranks.
///
/// For dense ids, each rank has one block of equal length, in order, so ids numbered along the
/// ranks have few homes per rank. For ids with large gaps this would load some homes heavily and
/// others not at all; small blocks scattered over the ranks are used instead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Homes {
    low: u64,
    /// Ids in a block, at least 1.
    block: u64,
    ranks: usize,
    scattered: bool,
}

/// Ids count as dense if at least one in this many of their range is used. No home then holds more
/// than this many times its share.
const DENSE: u128 = 16;
/// Ids in a scattered block.
const SCATTERED_BLOCK: u64 = 64;

impl Homes {
    /// Homes of `count` ids in `low..=high`.
    pub fn new(low: u64, high: u64, count: u64, ranks: usize) -> Self {
        // A range can hold 2^64 ids, one more than 64 bits can count.
        let span = u128::from(high.saturating_sub(low)) + 1;
        if span > DENSE * u128::from(count) {
            return Self { low, block: SCATTERED_BLOCK, ranks, scattered: true };
        }
        let block = span.div_ceil(ranks.max(1) as u128);
        Self { low, block: u64::try_from(block).unwrap_or(u64::MAX), ranks, scattered: false }
    }

    /// The home of `id`. Ids outside the range have one, too.
    pub fn of(&self, id: u64) -> usize {
        let block = id.saturating_sub(self.low) / self.block;
        if self.scattered {
            return (spread(block) % self.ranks.max(1) as u64) as usize;
        }
        block.min(self.ranks.saturating_sub(1) as u64) as usize
    }
}

/// Spreads close numbers over 64 bits (the finaliser of MurmurHash3).
fn spread(number: u64) -> u64 {
    let z = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let z = (z ^ (z >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    z ^ (z >> 33)
}

/// The homes of cells and those of domains.
#[derive(Debug, Clone, Copy)]
pub(super) struct HomesOf {
    pub cells: Homes,
    pub domains: Homes,
}

/// Waits, as a home, for the lookups of the other ranks.
#[derive(Debug)]
pub struct Registered {
    me: Directory,
    homes: HomesOf,
    asked: Asked,
    own: Option<Lookup>,
}

impl Registered {
    pub(super) fn new(me: Directory, homes: HomesOf, asked: Asked, own: Option<Lookup>) -> Self {
        Self { me, homes, asked, own }
    }

    /// Takes the lookups that all ranks sent to this home. Replies with the owners of their halo
    /// cells and with claims that clash.
    pub fn reply(self, received: &[(usize, Vec<u8>)]) -> Result<(Replied, Messages)> {
        let Self { me, homes, asked, own } = self;
        let lookups = decode_all(me.rank, own, received)?;
        for (&from, lookup) in &lookups {
            check_home(&homes, me.rank, from, lookup)?;
        }
        let registry = Registry::new(&lookups);
        let mut replies: BTreeMap<usize, Reply> = BTreeMap::new();
        for (rank, clash) in domain_clashes(&lookups).into_iter().chain(registry.clashes()) {
            replies.entry(rank).or_default().clashes.push(clash);
        }
        for (&rank, lookup) in lookups.iter().filter(|(_, lookup)| !lookup.queries.is_empty()) {
            replies.entry(rank).or_default().owners = registry.owners(&lookup.queries);
        }
        let own = replies.remove(&me.rank);
        let messages = encode_all(&replies);
        Ok((Replied { me, asked, own }, messages))
    }
}

fn check_home(homes: &HomesOf, rank: usize, from: usize, lookup: &Lookup) -> Result<()> {
    let owned = lookup.owned.iter().flat_map(|(_, ids)| ids);
    let here = owned.chain(&lookup.queries).all(|&id| homes.cells.of(id) == rank)
        && lookup.domains.iter().all(|&domain| homes.domains.of(domain) == rank);
    if here {
        return Ok(());
    }
    let what = WireError::Content("it names ids whose home is another rank");
    Err(UnstructuredError::Message { from, name: Lookup::NAME, what })
}

/// For each rank that has a domain of another rank, the lowest such domain.
fn domain_clashes(lookups: &BTreeMap<usize, Lookup>) -> BTreeMap<usize, Clash> {
    let mut domains: Vec<(u64, usize)> = Vec::new();
    for (&rank, lookup) in lookups {
        domains.extend(lookup.domains.iter().map(|&domain| (domain, rank)));
    }
    domains.sort_unstable();
    let mut clashes = BTreeMap::new();
    for pair in domains.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        for (mine, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            clashes.entry(mine.1).or_insert(Clash::Domain { domain: mine.0, other: other.1 });
        }
    }
    clashes
}

/// All ids whose home is this rank, with their owners.
struct Registry {
    owners: Vec<Owner>,
    /// Id and index in `owners`, ascending.
    cells: Vec<(u64, usize)>,
}

impl Registry {
    fn new(lookups: &BTreeMap<usize, Lookup>) -> Self {
        let (mut owners, mut cells) = (Vec::new(), Vec::new());
        for (&rank, lookup) in lookups {
            for (domain, ids) in &lookup.owned {
                cells.extend(ids.iter().map(|&id| (id, owners.len())));
                owners.push(Owner { rank, domain: *domain });
            }
        }
        cells.sort_unstable();
        Self { owners, cells }
    }

    /// For each rank that owns a cell with a second owner, the lowest such cell.
    fn clashes(&self) -> BTreeMap<usize, Clash> {
        let mut clashes = BTreeMap::new();
        for pair in self.cells.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let id = pair[0].0;
            let [a, b] = [self.owners[pair[0].1], self.owners[pair[1].1]];
            for (mine, other) in [(a, b), (b, a)] {
                clashes.entry(mine.rank).or_insert(Clash::Cell { id, domain: mine.domain, other });
            }
        }
        clashes
    }

    fn owners(&self, queries: &[u64]) -> Vec<OwnerRun> {
        let mut runs: Vec<OwnerRun> = Vec::new();
        for query in queries {
            let at = self.cells.binary_search_by_key(query, |&(id, _)| id).ok();
            let owner = at.map(|at| self.owners[self.cells[at].1]);
            match runs.last_mut() {
                Some(run) if run.owner == owner => run.count += 1,
                _ => runs.push(OwnerRun { count: 1, owner }),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_of_dense_ids_are_blocks_in_order() {
        let ends = Homes::new(0, u64::MAX, u64::MAX, 3);
        assert_eq!([0, u64::MAX / 2, u64::MAX].map(|id| ends.of(id)), [0, 1, 2]);
        let few = Homes::new(10, 14, 5, 5);
        assert_eq!([10, 11, 12, 13, 14].map(|id| few.of(id)), [0, 1, 2, 3, 4]);
        assert_eq!([0, 99].map(|id| few.of(id)), [0, 4]);
        assert_eq!(Homes::new(7, 7, 1, 4).of(7), 0);
        assert_eq!(Homes::new(0, u64::MAX, 9, 1).of(u64::MAX), 0);
    }

    #[test]
    fn an_outlier_does_not_make_one_rank_the_home_of_all() {
        let homes = Homes::new(0, u64::MAX, 100_001, 8);
        let mut loads = [0; 8];
        (0..100_000).chain([u64::MAX]).for_each(|id| loads[homes.of(id)] += 1);
        assert!(loads.iter().all(|&load| load < 2 * 100_001 / 8), "{loads:?}");
    }

    #[test]
    fn ranks_without_a_cell_still_agree_on_homes() {
        assert!(Homes::new(u64::MAX, 0, 0, 4).of(3) < 4);
    }
}
