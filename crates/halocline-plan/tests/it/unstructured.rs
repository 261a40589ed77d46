//! Unstructured patterns over simulated ranks, compared with a global oracle; and every invalid input.

use crate::simulated::{Outcome, Random, deliver, indices, resolve};
use halocline_plan::{DomainShape, PatternPlan, UnstructuredDomain, UnstructuredError as Bad};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn domain(id: u64, owned: &[u64], halo: &[u64]) -> UnstructuredDomain {
    UnstructuredDomain::new(id, owned.to_vec(), halo.to_vec())
}

fn patterns(outcomes: Vec<Outcome>) -> Vec<PatternPlan> {
    outcomes.into_iter().collect::<Result<_, _>>().expect("good domains")
}

/// Random domains, with the value that the oracle expects in each of their cells.
struct Case {
    ranks: Vec<Vec<UnstructuredDomain>>,
    expected: crate::simulated::Written,
}

#[derive(Debug, Clone, Copy)]
enum Ids {
    Dense,
    /// Anywhere in 64 bits, including both ends.
    Sparse,
    /// As many codes number them: the owner's rank in the high bits.
    ByRank,
}

fn case(seed: u64, ranks: usize, cells: usize, ids: Ids, halo_percent: usize) -> Case {
    let mut random = Random(seed);
    let mut numbers = BTreeSet::new();
    let mut domains: Vec<(usize, u64)> = Vec::new();
    for rank in 0..ranks {
        for _ in 0..random.below(4) {
            let number = if random.below(2) == 0 { random.next() } else { domains.len() as u64 };
            if numbers.insert(number) {
                domains.push((rank, number));
            }
        }
    }
    let mut owner_of: BTreeMap<u64, usize> = BTreeMap::new();
    for cell in 0..if domains.is_empty() { 0 } else { cells } {
        let owner = random.below(domains.len());
        let id = match (ids, cell) {
            (Ids::Dense, _) => 1000 + cell as u64,
            (Ids::Sparse, 0) => 0,
            (Ids::Sparse, 1) => u64::MAX,
            (Ids::Sparse, _) => random.next(),
            (Ids::ByRank, _) => (domains[owner].0 as u64) << 40 | cell as u64,
        };
        owner_of.insert(id, owner);
    }
    let mut case = Case { ranks: vec![Vec::new(); ranks], expected: BTreeMap::new() };
    for (index, &(rank, number)) in domains.iter().enumerate() {
        // (id, the domain that owns it) in a random local order.
        let here = owner_of.iter().filter(|&(_, &owner)| owner == index || random.below(100) < halo_percent);
        let mut cells: Vec<(u64, usize)> = here.map(|(&id, &owner)| (id, owner)).collect();
        let mut random = Random(seed ^ number);
        random.shuffle(&mut cells);
        let form = random.below(3);
        if form == 0 {
            cells.sort_by_key(|&(_, owner)| owner != index);
        } else if form == 1 {
            // Owners cannot express the cells of another domain of the same rank.
            cells.retain(|&(_, owner)| owner == index || domains[owner].0 != rank);
        }
        let all: Vec<u64> = cells.iter().map(|&(id, _)| id).collect();
        let is_owned = |&(_, owner): &(u64, usize)| owner == index;
        case.ranks[rank].push(match form {
            0 => {
                let (owned, halo) = all.split_at(cells.iter().filter(|cell| is_owned(cell)).count());
                domain(number, owned, halo)
            }
            1 => {
                let owners = cells.iter().map(|&(_, owner)| domains[owner].0).collect();
                UnstructuredDomain::from_owners(number, rank, all, owners)
            }
            _ => {
                let mut halo: Vec<usize> = (0..cells.len()).filter(|&at| !is_owned(&cells[at])).collect();
                random.shuffle(&mut halo);
                UnstructuredDomain::from_indices(number, all, &halo)
            }
        });
        let from = |cell: &(u64, usize)| match is_owned(cell) {
            true => vec![],
            false => vec![(domains[cell.1].1, cell.0)],
        };
        case.expected.insert(number, cells.iter().map(from).collect());
    }
    case
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_halo_cell_gets_its_owners_value_once_and_nothing_else_is_written(
        seed: u64,
        ranks in 1usize..7,
        cells in 0usize..120,
        ids in prop_oneof![Just(Ids::Dense), Just(Ids::Sparse), Just(Ids::ByRank)],
        halo_percent in 0usize..60,
    ) {
        let case = case(seed, ranks, cells, ids, halo_percent);
        let patterns = patterns(resolve(&case.ranks));
        prop_assert_eq!(deliver(&case.ranks, &patterns), case.expected);
    }
}

#[test]
fn no_domains_make_an_empty_pattern() {
    let nothing = patterns(resolve(&[vec![], vec![], vec![]]));
    assert!(nothing.iter().all(|p| p.domains.is_empty() && p.peers.is_empty() && p.local.is_empty()));

    let empty = patterns(resolve(&[vec![domain(5, &[], &[])], vec![], vec![domain(4, &[7], &[])]]));
    assert_eq!(empty[0].domains, [(5, DomainShape::Unstructured { owned: 0, cells: 0, levels: vec![] })]);
    assert_eq!(empty[2].domains, [(4, DomainShape::Unstructured { owned: 1, cells: 1, levels: vec![] })]);
    assert!(empty.iter().all(|pattern| pattern.peers.is_empty()));
}

#[test]
fn consecutive_halo_cells_arrive_as_one_run() {
    let ranks = [vec![domain(0, &[1, 2, 3], &[4, 5, 6])], vec![domain(1, &[6, 4, 5], &[])]];
    let patterns = patterns(resolve(&ranks));
    let receive = &patterns[0].peers[0].receives[0];
    assert_eq!((indices(&receive.source), indices(&receive.target)), (vec![1, 2, 0], vec![3, 4, 5]));
    let runs = |cells: &halocline_plan::Cells| match cells {
        halocline_plan::Cells::Runs(runs) => runs.len(),
        halocline_plan::Cells::Box(_) => 0,
    };
    assert_eq!((runs(&receive.source), runs(&receive.target)), (2, 1));
}

#[test]
fn on_a_line_each_rank_talks_to_a_few_ranks_only_however_many_there_are() {
    let (ranks, cells) = (200u64, 50u64);
    let line = |rank: u64| {
        let (first, end) = (rank * cells, (rank + 1) * cells);
        let low = first.checked_sub(1);
        let high = (rank + 1 < ranks).then_some(end);
        vec![domain(
            rank,
            &(first..end).collect::<Vec<_>>(),
            &low.into_iter().chain(high).collect::<Vec<_>>(),
        )]
    };
    let ranks: Vec<_> = (0..ranks).map(line).collect();
    let mut sent: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut bytes_to: BTreeMap<usize, usize> = BTreeMap::new();
    patterns(crate::simulated::resolve_tampered(&ranks, &mut |step, from, to, bytes| {
        *sent.entry((step, from)).or_default() += 1;
        *bytes_to.entry(to).or_default() += bytes.len();
    }));
    assert!(sent.values().all(|&messages| messages <= 4), "{sent:?}");
    assert!(bytes_to.values().all(|&bytes| bytes < 2000), "{bytes_to:?}");
}

/// The error of each rank, `None` if it only learns that another rank failed.
fn errors(ranks: &[Vec<UnstructuredDomain>]) -> Vec<Option<Bad>> {
    resolve(ranks).into_iter().map(|outcome| outcome.expect_err("an error on every rank")).collect()
}

#[test]
fn an_id_without_an_owner_is_named_on_the_requesting_rank() {
    let ranks = [vec![domain(0, &[1], &[2])], vec![domain(1, &[2], &[1, 77])], vec![]];
    let nobody = Bad::OwnedByNobody { domain: 1, local: 2, id: 77 };
    assert_eq!(errors(&ranks), [None, Some(nobody.clone()), None]);
    let expected = "domain 1: its halo cell 2 has id 77, which no domain of any rank owns; let one domain own it, or leave it \
                    out of the halo";
    assert_eq!(nobody.to_string(), expected);
}

#[test]
fn an_id_that_two_own_is_named_on_both() {
    let ranks = [vec![domain(10, &[1, 5], &[])], vec![], vec![domain(12, &[9, 5], &[1])]];
    let both = |rank, domain, other, other_domain| {
        Some(Bad::OwnedByTwo { id: 5, rank, domain, other, other_domain })
    };
    assert_eq!(errors(&ranks), [both(0, 10, 2, 12), None, both(2, 12, 0, 10)]);

    let same_rank = [vec![domain(10, &[1, 5], &[]), domain(11, &[5], &[])], vec![]];
    assert_eq!(errors(&same_rank), [both(0, 10, 0, 11), None]);
}

#[test]
fn a_number_that_two_domains_have_is_named_on_both() {
    let ranks = [vec![], vec![domain(3, &[1], &[])], vec![domain(3, &[2], &[])]];
    let twice = |rank, other| Some(Bad::DomainTwice { domain: 3, rank, other });
    assert_eq!(errors(&ranks), [None, twice(1, 2), twice(2, 1)]);

    let same_rank = [vec![domain(3, &[1], &[]), domain(3, &[], &[])]];
    assert_eq!(errors(&same_rank), [twice(0, 0)]);
}

#[test]
fn a_domain_that_contradicts_itself_is_refused() {
    let check = |bad: UnstructuredDomain, expected: Bad| {
        assert_eq!(errors(&[vec![domain(0, &[9], &[])], vec![bad]]), [None, Some(expected)]);
    };
    check(domain(1, &[4, 5, 6], &[7, 5]), Bad::HaloOwned { domain: 1, id: 5, owned: 1, halo: 4 });
    check(domain(1, &[4, 5, 4], &[]), Bad::OwnedTwice { domain: 1, id: 4, first: 0, second: 2 });
    check(domain(1, &[4], &[9, 9]), Bad::HaloTwice { domain: 1, id: 9, first: 1, second: 2 });

    let indices = |halo: &[usize]| UnstructuredDomain::from_indices(1, vec![9, 4], halo);
    let position = 1;
    check(indices(&[0, 2]), Bad::HaloIndex { domain: 1, position, index: 2, cells: 2 });
    check(indices(&[0, 0]), Bad::HaloIndexTwice { domain: 1, index: 0, first: 0, position });
    // Interleaved, halo cell first.
    let mixed = UnstructuredDomain::from_indices(1, vec![9, 4, 9], &[0]);
    check(mixed, Bad::HaloOwned { domain: 1, id: 9, owned: 2, halo: 0 });
}

#[test]
fn wrong_owners_are_refused() {
    let check = |bad: UnstructuredDomain, expected: Bad| {
        let ranks = [vec![domain(0, &[9], &[])], vec![bad], vec![domain(2, &[8], &[])]];
        assert_eq!(errors(&ranks), [None, Some(expected), None]);
    };
    let owners =
        |rank, owners: &[usize]| UnstructuredDomain::from_owners(1, rank, vec![8, 4, 9], owners.to_vec());
    check(owners(1, &[2, 1, 2]), Bad::WrongOwner { domain: 1, local: 2, id: 9, given: 2, owner: 0 });
    check(owners(1, &[2, 1, 3]), Bad::OwnerRange { domain: 1, local: 2, id: 9, owner: 3, ranks: 3 });
    check(owners(1, &[2, 1]), Bad::OwnerCount { domain: 1, cells: 3, owners: 2 });
    check(owners(0, &[2, 1, 0]), Bad::OtherRank { domain: 1, given: 0, rank: 1 });
}
