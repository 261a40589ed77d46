//! Recursive coordinate bisection.

use crate::simulated::Random;
use halocline_plan::{Partition, PartitionError};
use proptest::prelude::*;

/// Random points, many of them coinciding.
fn points(seed: u64, cells: usize, steps: usize) -> Vec<[f64; 3]> {
    let mut random = Random(seed);
    (0..cells).map(|_| std::array::from_fn(|_| random.below(steps) as f64 - 3.0)).collect()
}

/// The parts by the definition, cell by cell: sort, cut, recurse.
fn by_definition(
    points: &[[f64; 3]],
    mut cells: Vec<usize>,
    first: usize,
    ranks: usize,
    owners: &mut [usize],
) {
    if ranks == 1 {
        cells.iter().for_each(|&cell| owners[cell] = first);
        return;
    }
    let along = |axis: usize| cells.iter().map(move |&cell| points[cell][axis]);
    let spread = |axis| along(axis).fold(f64::MIN, f64::max) - along(axis).fold(f64::MAX, f64::min);
    let axis = (0..3).fold(0, |best, axis| if spread(axis) > spread(best) { axis } else { best });
    cells.sort_by(|&a, &b| points[a][axis].partial_cmp(&points[b][axis]).expect("numbers").then(a.cmp(&b)));
    let low = ranks / 2;
    let sizes: Vec<usize> = (0..ranks).map(|rank| (cells.len() + ranks - 1 - rank) / ranks).collect();
    let above = cells.split_off(sizes[..low].iter().sum());
    by_definition(points, cells, first, low, owners);
    by_definition(points, above, first + low, ranks - low, owners);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn parts_are_those_of_the_definition_and_even(seed: u64, cells in 0usize..80, steps in 1usize..40, ranks in 1usize..12) {
        let points = points(seed, cells, steps);
        let partition = Partition::bisection(&points, None, ranks).expect("a partition");
        let mut owners = vec![0; cells];
        by_definition(&points, (0..cells).collect(), 0, ranks, &mut owners);
        prop_assert_eq!(partition.owners(), owners);
        let counts = partition.counts();
        prop_assert!(counts.iter().max().zip(counts.iter().min()).is_some_and(|(max, min)| max - min <= 1));
        // Equal weights are like no weights.
        let weighted = Partition::bisection(&points, Some(&vec![0.0; cells]), ranks);
        prop_assert_eq!(weighted, Ok(partition));
    }

    #[test]
    fn weights_are_halved_to_within_the_cell_at_the_cut(seed: u64, cells in 2usize..60) {
        let points = points(seed, cells, 1000);
        let mut random = Random(seed ^ 5);
        let weights: Vec<f64> = (0..cells).map(|_| random.below(5) as f64).collect();
        let partition = Partition::bisection(&points, Some(&weights), 2).expect("a partition");
        let counts = partition.counts();
        prop_assert!(counts.iter().all(|&count| count > 0));
        let of = |rank| (0..cells).filter(|&c| partition.owners()[c] == rank).map(|c| weights[c]).sum::<f64>();
        let most = weights.iter().copied().fold(0.0, f64::max);
        let forced = counts.contains(&1);
        prop_assert!((of(0) - of(1)).abs() <= most || forced, "{} against {}", of(0), of(1));
    }

    #[test]
    fn every_part_gets_a_cell_where_there_are_enough(seed: u64, ranks in 1usize..10, more in 0usize..20) {
        let points = points(seed, ranks + more, 50);
        let mut random = Random(seed);
        let weights: Vec<f64> = points.iter().map(|_| [0.0, 1e-300, 1.0, 1e300][random.below(4)]).collect();
        let partition = Partition::bisection(&points, Some(&weights), ranks).expect("a partition");
        prop_assert!(partition.counts().iter().all(|&count| count > 0), "{:?}", partition.counts());
    }
}

#[test]
fn three_parts_of_a_line_follow_the_weights() {
    let points: Vec<[f64; 1]> = (0..9).rev().map(|x| [f64::from(x)]).collect();
    let owners =
        |weights: Option<&[f64]>| Partition::bisection(&points, weights, 3).map(|p| p.owners().to_vec());
    assert_eq!(owners(None), Ok(vec![2, 2, 2, 1, 1, 1, 0, 0, 0]));
    let heavy = [9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0];
    assert_eq!(owners(Some(&heavy)), Ok(vec![2, 1, 1, 1, 0, 0, 0, 0, 0]));
}

#[test]
fn invalid_points_and_weights_are_refused() {
    let points = [[0.0, 1.0], [f64::NAN, 0.0]];
    assert_eq!(Partition::bisection(&points, None, 2), Err(PartitionError::Coordinate { cell: 1 }));
    assert_eq!(Partition::bisection(&points[..1], None, 0), Err(PartitionError::NoRanks));
    let count = PartitionError::WeightCount { weights: 2, cells: 1 };
    assert_eq!(Partition::bisection(&points[..1], Some(&[1.0, 1.0]), 1), Err(count));
    for weight in [-1.0, f64::NAN, f64::INFINITY] {
        let refused = PartitionError::Weight { cell: 0, weight: weight.to_string() };
        assert_eq!(Partition::bisection(&points[..1], Some(&[weight]), 1), Err(refused));
    }
    // No axes and huge spreads are valid.
    assert_eq!(Partition::bisection(&[[]; 3], None, 2).map(|p| p.counts()), Ok(vec![2, 1]));
    let far = [[f64::MAX, 0.0], [f64::MIN, 1.0]];
    assert_eq!(Partition::bisection(&far, None, 2).map(|p| p.owners().to_vec()), Ok(vec![1, 0]));
}
