//! Patterns narrowed to fewer levels, and refused arguments.

use crate::simulated::{Random, deliver, resolve};
use halocline_plan::{
    Halo, Neighbours, PatternError, PatternPlan, RegularGrid, UnstructuredDomain, UnstructuredError,
};
use proptest::prelude::*;

/// Narrows the patterns of all ranks; delivers the messages directly.
fn narrowed(patterns: &[PatternPlan], depth: usize) -> Result<Vec<PatternPlan>, PatternError> {
    let mut received = vec![Vec::new(); patterns.len()];
    let mut ends = Vec::new();
    for (rank, pattern) in patterns.iter().enumerate() {
        let (own, messages) = pattern.depth_ends(&Halo::uniform(depth))?;
        ends.push(own);
        messages.into_iter().for_each(|(to, bytes)| received[to].push((rank, bytes)));
    }
    let of_rank =
        |((pattern, ends), received): ((&PatternPlan, _), &Vec<_>)| pattern.narrowed(ends, received);
    let all = patterns.iter().zip(&ends).zip(&received).map(of_rank);
    all.collect::<Result<_, _>>().map_err(PatternError::from)
}

/// Random domains, two on each rank, whose halo cells come in levels.
fn levelled(seed: u64, cells: usize, ranks: usize, depth: usize) -> Vec<Vec<UnstructuredDomain>> {
    let mut random = Random(seed);
    let domains = 2 * ranks;
    let owners: Vec<usize> = (0..cells).map(|_| random.below(domains)).collect();
    let of_domain = |domain: usize, random: &mut Random| {
        let owned: Vec<u64> = (0..cells).filter(|&c| owners[c] == domain).map(|c| c as u64).collect();
        let mut halo: Vec<u64> = (0..cells).filter(|&c| owners[c] != domain).map(|c| c as u64).collect();
        random.shuffle(&mut halo);
        halo.truncate(random.below(halo.len() + 1));
        let mut ends: Vec<usize> = (0..depth).map(|_| owned.len() + random.below(halo.len() + 1)).collect();
        ends.push(owned.len() + halo.len());
        ends.sort_unstable();
        UnstructuredDomain::new(domain as u64, owned, halo).with_levels(ends)
    };
    (0..ranks).map(|rank| [2 * rank, 2 * rank + 1].map(|d| of_domain(d, &mut random)).into()).collect()
}

fn patterns(ranks: &[Vec<UnstructuredDomain>]) -> Vec<PatternPlan> {
    resolve(ranks).into_iter().map(|outcome| outcome.expect("a pattern")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fewer_levels_fill_the_cells_of_those_levels_and_no_others(
        seed: u64,
        cells in 0usize..60,
        ranks in 1usize..5,
        depth in 0usize..4,
    ) {
        let domains = levelled(seed, cells, ranks, depth);
        let wide = patterns(&domains);
        let (full, mut wider) = (deliver(&domains, &wide), wide.clone());
        for to in (0..=depth).rev() {
            // Narrowing step by step equals narrowing at once.
            let once = narrowed(&wide, to).expect("a narrower pattern");
            wider = narrowed(&wider, to).expect("a narrower pattern");
            prop_assert_eq!(&once, &wider);
            for (domain, cells) in deliver(&domains, &once) {
                let given = domains.iter().flatten().find(|given| given.id() == domain).expect("a domain");
                for (local, written) in cells.iter().enumerate() {
                    let kept = local < given.levels()[to];
                    let expected = if kept { full[&domain][local].clone() } else { vec![] };
                    prop_assert_eq!(written, &expected, "domain {} cell {} depth {}", domain, local, to);
                }
            }
        }
        if domains.iter().flatten().any(|domain| !domain.cells().is_empty()) {
            let deeper = narrowed(&wider, depth + 1).expect_err("no such depth");
            let is_deeper = matches!(deeper, PatternError::NarrowedDeeper { .. });
            prop_assert!(is_deeper, "{}", deeper);
        }
    }
}

#[test]
fn a_domain_without_levels_has_one() {
    let ranks = vec![
        vec![UnstructuredDomain::from_indices(0, vec![9, 0, 1], &[0])],
        vec![UnstructuredDomain::new(1, vec![9], vec![1])],
        vec![UnstructuredDomain::new(2, vec![7], vec![])],
    ];
    let wide = patterns(&ranks);
    assert_eq!(narrowed(&wide, 1), Ok(wide.clone()));
    let none = narrowed(&wide, 0).expect("a pattern of depth 0");
    assert!(none.iter().all(|pattern| pattern.peers.is_empty() && pattern.local.is_empty()));
    let deeper = |domain, depth, has| Err(PatternError::NarrowedDeeper { domain, depth, has });
    assert_eq!(narrowed(&wide, 2), deeper(0, 2, 1));
    assert_eq!(narrowed(&none, 1), deeper(0, 1, 0));
}

#[test]
fn invalid_levels_are_refused() {
    for ends in [vec![1, 2], vec![3, 2, 3], vec![4]] {
        let domain = UnstructuredDomain::new(5, vec![1, 2], vec![3]).with_levels(ends.clone());
        let error = UnstructuredError::Levels { domain: 5, ends, cells: 3 };
        assert_eq!(resolve(&[vec![domain]]), [Err(Some(error))]);
    }
}

#[test]
fn narrowing_to_a_wider_halo_is_refused() {
    let decomposition = RegularGrid::new([12, 12]).decompose(4).expect("a decomposition");
    let narrow = |to: Halo| {
        let wide = Halo::per_axis([(2, 1), (0, 0)]);
        decomposition.narrowed_pattern_of(0, &wide, &to).map(|pattern| pattern.peers.len())
    };
    assert_eq!(narrow(Halo::uniform(1)), Ok(1));
    assert_eq!(narrow(Halo::uniform(0)), Ok(0));
    let wider = |axis, width, widest| Err(PatternError::NarrowedWider { axis, width, widest });
    assert_eq!(narrow(Halo::uniform(3)), wider(None, 3, 2));
    assert_eq!(narrow(Halo::per_axis([(2, 2), (0, 0)])), wider(Some(0), 2, 1));
    assert_eq!(narrow(Halo::per_axis([(1, 1), (0, 1)])), wider(Some(1), 1, 0));
    let axes = PatternError::AxisCount { what: "halo widths", given: 1, axes: 2 };
    assert_eq!(narrow(Halo::per_axis([(1, 1)])), Err(axes));
}

#[test]
fn unstructured_halos_have_no_axes() {
    let pattern = &patterns(&[vec![UnstructuredDomain::new(0, vec![1], vec![])]])[0];
    for to in [Halo::per_axis([(1, 1)]), Halo::uniform(1).neighbours(Neighbours::Faces)] {
        assert_eq!(pattern.depth_ends(&to).map(drop), Err(PatternError::NarrowedByAxis));
    }
    let grid = RegularGrid::new([4]).decompose(1).and_then(|d| d.pattern_of(0, &Halo::uniform(1)));
    assert!(matches!(
        grid.expect("a pattern").depth_ends(&Halo::uniform(1)),
        Err(PatternError::WrongCells { .. })
    ));
}

#[test]
fn messages_that_name_other_domains_are_refused() {
    let ranks = levelled(3, 40, 2, 1);
    let pattern = &patterns(&ranks)[0];
    let (ends, messages) = pattern.depth_ends(&Halo::uniform(1)).expect("ends");
    let own: Vec<(usize, Vec<u8>)> = messages;
    // No message; a message that names this rank's own domains; a truncated one; one from an unknown
    // sender.
    let stranger = own.iter().map(|(_, bytes)| (7, bytes.clone())).collect();
    let short = own.iter().map(|(rank, bytes)| (*rank, bytes[..bytes.len() - 1].to_vec())).collect();
    for received in [vec![], own.clone(), short, stranger] {
        let refused = pattern.narrowed(&ends, &received);
        assert!(matches!(refused, Err(UnstructuredError::Message { .. })), "{refused:?}");
    }
}
