//! Redistribution: every cell arrives at its destination, and the round trip is the identity.

use crate::simulated::{Random, indices, resolve_started};
use halocline_plan::{
    Cells, Decomposition, DomainShape, Halo, OwnedBox, PatternError, PatternPlan, RedistributeError,
    Redistribution, RegularGrid, Side, Transfer, UnstructuredDomain, UnstructuredError,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The content of each cell of each domain of a pattern; cells of regular domains by their coordinates.
type Values = BTreeMap<u64, BTreeMap<Vec<i64>, u64>>;

fn cells(cells: &Cells) -> Vec<Vec<i64>> {
    let Cells::Box(cells) = cells else {
        return indices(cells).into_iter().map(|index| vec![index as i64]).collect();
    };
    cells.low.iter().zip(&cells.extent).fold(vec![vec![]], |all, (&low, &extent)| {
        let along =
            |cell: Vec<i64>| (low..low + extent as i64).map(move |at| [cell.clone(), vec![at]].concat());
        all.into_iter().flat_map(along).collect()
    })
}

/// Executes all transfers, each once; checks that both ranks of each pair list the same ones.
fn moved(patterns: &[PatternPlan], values: &Values) -> Values {
    let mut arrived = Values::new();
    for (rank, pattern) in patterns.iter().enumerate() {
        assert_eq!(pattern.check_redistribution(), Ok(()));
        for peer in &pattern.peers {
            assert!(peer.rank != rank && !(peer.sends.is_empty() && peer.receives.is_empty()));
            let theirs = patterns[peer.rank].peers.iter().find(|theirs| theirs.rank == rank).expect("a peer");
            assert_eq!((&peer.sends, &peer.receives), (&theirs.receives, &theirs.sends));
        }
        let received = pattern.peers.iter().flat_map(|peer| &peer.receives).chain(&pattern.local);
        for Transfer { from, to, source, target, .. } in received {
            for (source, target) in cells(source).into_iter().zip(cells(target)) {
                let value = values[from][&source];
                let before = arrived.entry(*to).or_default().insert(target, value);
                assert_eq!(before, None, "one cell of domain {to} filled twice");
            }
        }
    }
    arrived
}

/// The owned cells of the domains of one side, each with its number in the grid.
fn owned(patterns: &[PatternPlan], side: Side, extents: &[usize]) -> Values {
    let mut values = Values::new();
    for (number, shape) in patterns.iter().flat_map(|pattern| &pattern.domains) {
        let DomainShape::Regular { first, owned, .. } = shape else { panic!("{shape:?} is not regular") };
        if Side::of(*number).0 == side {
            let all =
                Cells::Box(halocline_plan::BoxCells { low: vec![0; owned.len()], extent: owned.clone() });
            let of_cell = |cell: Vec<i64>| {
                let at = cell.iter().zip(first).zip(extents);
                let id = at.fold(0, |id, ((at, first), &extent)| id * extent as u64 + (at + first) as u64);
                (cell, id)
            };
            values.insert(*number, cells(&all).into_iter().map(of_cell).collect());
        }
    }
    values
}

/// A random decomposition of a grid: blocks, cuts or boxes.
fn decomposition(extents: &[usize], ranks: usize, seed: u64) -> Decomposition {
    let mut random = Random(seed);
    let grid = RegularGrid::new(extents).periodic(vec![random.below(2) == 0; extents.len()]);
    if let Ok(found) = grid.clone().domains_per_rank(1 + random.below(3)).decompose(ranks)
        && random.below(2) == 0
    {
        return found;
    }
    let mut boxes: Vec<OwnedBox> = vec![(random.below(ranks), vec![0; extents.len()], extents.to_vec())];
    for _ in 0..random.below(8) {
        let (at, axis, owner) = (random.below(boxes.len()), random.below(extents.len()), random.below(ranks));
        let (_, mut first, mut extent) = boxes[at].clone();
        if extent[axis] > 1 {
            let cut = 1 + random.below(extent[axis] - 1);
            boxes[at].2[axis] = cut;
            first[axis] += cut;
            extent[axis] -= cut;
            boxes.push((owner, first, extent));
        }
    }
    grid.decompose_boxes(boxes, ranks).expect("a decomposition")
}

/// Random domains over `ids`, each cell in one, several on each rank; other cells may be halo.
fn domains(seed: u64, ids: &[u64], ranks: usize, with_halo: bool) -> Vec<Vec<UnstructuredDomain>> {
    let mut random = Random(seed);
    let count = ranks * (1 + random.below(3));
    let mut owned = vec![Vec::new(); count];
    for &id in ids {
        owned[random.below(count)].push(id);
    }
    let mut all = vec![Vec::new(); ranks];
    for (number, owned) in owned.into_iter().enumerate() {
        let mut local: Vec<(u64, bool)> = owned.iter().map(|&id| (id, false)).collect();
        let others = ids.iter().filter(|id| with_halo && !owned.contains(id) && random.below(5) == 0);
        local.extend(others.map(|&id| (id, true)).collect::<Vec<_>>());
        random.shuffle(&mut local);
        let halo: Vec<usize> = (0..local.len()).filter(|&at| local[at].1).collect();
        let cells = local.into_iter().map(|(id, _)| id).collect();
        let domain = UnstructuredDomain::from_indices(7 * number as u64, cells, &halo);
        all[random.below(ranks)].push(domain);
    }
    all
}

/// The patterns of both directions, or the errors of the ranks that have one.
fn both_ways(
    from: &[Vec<UnstructuredDomain>],
    to: &[Vec<UnstructuredDomain>],
) -> Result<[Vec<PatternPlan>; 2], Vec<PatternError>> {
    let ranks = from.len();
    let sides = (0..ranks).map(|rank| Redistribution::new(rank, ranks, &from[rank], &to[rank]));
    let sides: Vec<Redistribution> = sides.collect::<Result<_, _>>().map_err(|error| vec![error])?;
    let way = |side: Side| {
        let started = sides.iter().map(|rank| rank.directory(side)).collect::<Result<Vec<_>, _>>();
        let started = started.map_err(|error| vec![error])?;
        let outcomes = resolve_started(started.into_iter().map(Ok).collect(), &mut |_, _, _, _| {});
        let own = |(rank, outcome): (&Redistribution, &Result<_, Option<UnstructuredError>>)| {
            outcome.as_ref().err()?.clone().map(|error| rank.named(side, error))
        };
        let errors: Vec<PatternError> = sides.iter().zip(&outcomes).filter_map(own).collect();
        outcomes.into_iter().collect::<Result<Vec<_>, _>>().map_err(|_| errors)
    };
    Ok([way(Side::First)?, way(Side::Second)?])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn decompositions_there_and_back_is_the_identity(
        extents in prop::collection::vec(1usize..8, 1..4),
        ranks in 1usize..5,
        seeds: (u64, u64),
    ) {
        let (from, to) = (decomposition(&extents, ranks, seeds.0), decomposition(&extents, ranks, seeds.1));
        let patterns: Vec<PatternPlan> = (0..ranks)
            .map(|rank| {
                let halo = Halo::uniform(2);
                from.redistribution_of(rank, &halo, &to, &Halo::uniform(0)).expect("a pattern")
            })
            .collect();
        let (first, second) = (owned(&patterns, Side::First, &extents), owned(&patterns, Side::Second, &extents));
        prop_assert_eq!(&moved(&patterns, &first), &second);
        let back: Vec<PatternPlan> = patterns.iter().map(PatternPlan::reversed).collect();
        prop_assert_eq!(&moved(&back, &second), &first);
    }

    #[test]
    fn partitions_there_and_back_is_the_identity(seed: u64, cells in 0usize..60, ranks in 1usize..5) {
        let mut random = Random(seed);
        let ids: Vec<u64> = (0..cells).map(|_| random.next()).collect();
        let (from, to) = (domains(seed ^ 1, &ids, ranks, true), domains(seed ^ 2, &ids, ranks, true));
        let [there, back] = both_ways(&from, &to).expect("patterns");
        // The owned cells of a side are those named by the patterns of its direction.
        let mut first = Values::new();
        for Transfer { from: number, source, .. } in
            there.iter().flat_map(|p| p.peers.iter().flat_map(|peer| &peer.receives).chain(&p.local))
        {
            let of = from.iter().flatten().find(|d| Side::First.number(d.id()) == Ok(*number)).expect("a domain");
            for cell in indices(source) {
                first.entry(*number).or_default().insert(vec![cell as i64], of.cells()[cell]);
            }
        }
        prop_assert_eq!(first.values().map(BTreeMap::len).sum::<usize>(), cells);
        let second = moved(&there, &first);
        for (number, values) in &second {
            let of = to.iter().flatten().find(|d| Side::Second.number(d.id()) == Ok(*number)).expect("a domain");
            for (cell, id) in values {
                prop_assert_eq!(of.cells()[cell[0] as usize], *id);
            }
        }
        prop_assert_eq!(&moved(&back, &second), &first);
        let reversed: Vec<PatternPlan> = there.iter().map(PatternPlan::reversed).collect();
        prop_assert_eq!(&moved(&reversed, &second), &first);
    }

    #[test]
    fn a_cell_that_is_dropped_or_doubled_is_named(
        seed: u64,
        cells in 1usize..40,
        ranks in 1usize..5,
        first: bool,
        double: bool,
    ) {
        let mut random = Random(seed);
        let ids: Vec<u64> = (0..cells as u64).map(|cell| 3 * cell + 1).collect();
        let victim = ids[random.below(cells)];
        let (whole, mut bad) = (domains(seed ^ 1, &ids, ranks, false), domains(seed ^ 2, &ids, ranks, false));
        match double {
            true => bad[ranks - 1].push(UnstructuredDomain::new(99, vec![victim], vec![])),
            false => {
                for domain in bad.iter_mut().flatten() {
                    let left = domain.cells().iter().copied().filter(|id| *id != victim).collect();
                    *domain = UnstructuredDomain::new(domain.id(), left, vec![]);
                }
            }
        }
        let errors = match first {
            true => both_ways(&bad, &whole),
            false => both_ways(&whole, &bad),
        };
        let errors = errors.expect_err("an error");
        prop_assert!(!errors.is_empty());
        let at = if first { Side::First } else { Side::Second };
        for error in errors {
            match error {
                PatternError::Redistribute(RedistributeError::Doubled { side, id, domain, other_domain, .. }) => {
                    prop_assert!(double && side == at && id == victim && [domain, other_domain].contains(&99));
                }
                PatternError::Redistribute(RedistributeError::OnOneSide { id, side, other, rank, domain }) => {
                    prop_assert!(!double && side == at.other() && other == at && id == victim);
                    prop_assert!(whole[rank].iter().any(|d| d.id() == domain && d.cells().contains(&victim)));
                }
                other => prop_assert!(false, "{}", other),
            }
        }
    }
}

#[test]
fn invalid_redistributions_are_refused() {
    let grid =
        |extents: [usize; 2], ranks| RegularGrid::new(extents).decompose(ranks).expect("a decomposition");
    let none = Halo::uniform(0);
    let moved = |from: &Decomposition, to: &Decomposition, rank| {
        from.redistribution_of(rank, &none, to, &none).map(drop)
    };
    let grids = RedistributeError::Grids { from: vec![4, 4], to: vec![4, 5] };
    assert_eq!(moved(&grid([4, 4], 2), &grid([4, 5], 2), 0), Err(grids.into()));
    let ranks = RedistributeError::Ranks { from: 2, to: 4 };
    assert_eq!(moved(&grid([4, 4], 2), &grid([4, 4], 4), 0), Err(ranks.into()));
    let rank = PatternError::NoSuchRank { rank: 2, ranks: 2 };
    assert_eq!(moved(&grid([4, 4], 2), &grid([4, 4], 2), 2), Err(rank));
    let cells = (1 << 20) + 1;
    let one = RegularGrid::new([cells]).decompose(1).expect("a decomposition");
    let many = RegularGrid::new([cells]).domains_per_rank(cells).decompose(1).expect("a decomposition");
    let pieces = RedistributeError::TooManyPieces { domain: 0, most: 1 << 20 };
    assert_eq!(moved(&one, &many, 0), Err(pieces.into()));
    let domain = UnstructuredDomain::new(1 << 63, vec![], vec![]);
    let number = RedistributeError::DomainNumber { domain: 1 << 63 };
    assert_eq!(Redistribution::new(0, 1, &[domain], &[]).map(drop), Err(number.into()));
    let doubled = UnstructuredDomain::new(4, vec![7, 7], vec![]);
    let error = UnstructuredError::OwnedTwice { domain: 4, id: 7, first: 0, second: 1 };
    let error = RedistributeError::Domain { side: Side::Second, error: Box::new(error) };
    assert_eq!(Redistribution::new(0, 1, &[], &[doubled]).map(drop), Err(error.into()));
    let twice = || vec![UnstructuredDomain::new(4, vec![], vec![]); 2];
    let error = RedistributeError::DomainTwice { side: Side::Second, domain: 4, rank: 0, other: 0 };
    assert_eq!(both_ways(&[vec![]], &[twice()]).map(drop), Err(vec![error.into()]));
}
