//! Random patterns of regular grids against an oracle that holds the whole grid in one array.

use halocline_plan::{
    BoxCells, Cells, Decomposition, DomainShape, Halo, Neighbours, OwnedBox, PatternPlan, RegularGrid,
    Transfer,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

// The oracle.

/// Marks a halo cell that nothing filled.
const UNTOUCHED: i64 = -1;

/// One domain with its halo; each cell holds the number of a grid cell.
struct Array {
    first: Vec<i64>,
    owned: Vec<usize>,
    halo: Vec<(usize, usize)>,
    data: Vec<i64>,
}

impl Array {
    fn new(shape: &DomainShape, extents: &[usize]) -> Self {
        let DomainShape::Regular { first, owned, halo } = shape else { panic!("{shape:?} is not regular") };
        let (first, owned, halo) = (first.clone(), owned.clone(), halo.clone());
        let data = vec![UNTOUCHED; shape.extents().iter().product()];
        let mut array = Self { first, owned, halo, data };
        for at in cells(&vec![0; extents.len()], &array.owned) {
            let global: Vec<i64> = at.iter().zip(&array.first).map(|(a, f)| a + f).collect();
            *array.cell(&at) = number(&global, extents);
        }
        array
    }

    /// A cell, relative to the first owned one.
    fn cell(&mut self, at: &[i64]) -> &mut i64 {
        let mut index = 0;
        for ((at, owned), (low, high)) in at.iter().zip(&self.owned).zip(&self.halo) {
            let at = usize::try_from(at + *low as i64).expect("a cell above the low end");
            let extent = low + owned + high;
            assert!(at < extent, "a cell below the high end");
            index = index * extent + at;
        }
        &mut self.data[index]
    }
}

/// The row-major number of a cell of the grid.
fn number(cell: &[i64], extents: &[usize]) -> i64 {
    cell.iter().zip(extents).fold(0, |number, (cell, extent)| number * *extent as i64 + cell)
}

/// All cells of a box, row-major.
fn cells(low: &[i64], extent: &[usize]) -> Vec<Vec<i64>> {
    low.iter().zip(extent).fold(vec![vec![]], |cells, (&low, &extent)| {
        let along =
            |cell: Vec<i64>| (low..low + extent as i64).map(move |at| [cell.clone(), vec![at]].concat());
        cells.into_iter().flat_map(along).collect()
    })
}

fn box_of(cells: &Cells) -> &BoxCells {
    match cells {
        Cells::Box(cells) => cells,
        Cells::Runs(runs) => panic!("{runs:?} in a regular domain"),
    }
}

fn all_patterns(decomposition: &Decomposition, halo: &Halo) -> Vec<PatternPlan> {
    (0..decomposition.ranks()).map(|rank| decomposition.pattern_of(rank, halo).expect("a pattern")).collect()
}

/// Checks that both ranks of each pair list the same transfers in the same order, and that each pattern
/// passes its check.
fn assert_agree(patterns: &[PatternPlan]) {
    let of = |rank: usize, peer: usize| patterns[rank].peers.iter().find(|p| p.rank == peer);
    for (rank, pattern) in patterns.iter().enumerate() {
        assert_eq!(pattern.check(), Ok(()));
        assert!(pattern.peers.is_sorted_by(|a, b| a.rank < b.rank));
        for peer in &pattern.peers {
            assert_ne!(peer.rank, rank);
            assert!(!peer.sends.is_empty() || !peer.receives.is_empty());
            let theirs = of(peer.rank, rank).expect("the peer knows this rank");
            assert_eq!(peer.sends, theirs.receives);
            assert_eq!(peer.receives, theirs.sends);
        }
    }
}

/// Executes all transfers, as the receivers list them.
fn exchanged(patterns: &[PatternPlan], extents: &[usize]) -> BTreeMap<u64, Array> {
    let domains = patterns.iter().flat_map(|pattern| &pattern.domains);
    let mut arrays: BTreeMap<u64, Array> =
        domains.map(|(id, shape)| (*id, Array::new(shape, extents))).collect();
    for pattern in patterns {
        let received = pattern.peers.iter().flat_map(|peer| &peer.receives);
        for Transfer { from, to, source, target, .. } in received.chain(&pattern.local) {
            let (source, target) = (box_of(source), box_of(target));
            let sources = cells(&source.low, &source.extent);
            for (source, target) in sources.iter().zip(cells(&target.low, &target.extent)) {
                let value = *arrays.get_mut(from).expect("the source").cell(source);
                let cell = arrays.get_mut(to).expect("the target").cell(&target);
                assert_eq!(*cell, UNTOUCHED, "cell {target:?} of domain {to} is filled once");
                *cell = value;
            }
        }
    }
    arrays
}

/// The expected content of a cell after an exchange.
fn expected(array: &Array, at: &[i64], case: &Case) -> i64 {
    let beyond = |((at, owned), (low, high)): ((&i64, &usize), &(usize, usize))| {
        *at < -(*low as i64) || *at >= (owned + high) as i64
    };
    if at.iter().zip(&array.owned).zip(&case.widths).any(beyond) {
        return UNTOUCHED;
    }
    let outside =
        at.iter().zip(&array.owned).filter(|(at, owned)| **at < 0 || **at >= **owned as i64).count();
    if outside > reach(case.neighbours, at.len()) {
        return UNTOUCHED;
    }
    let mut global = Vec::new();
    for (axis, at) in at.iter().enumerate() {
        let (at, extent) = (at + array.first[axis], case.extents[axis] as i64);
        match case.periodic[axis] {
            true => global.push(at.rem_euclid(extent)),
            false if (0..extent).contains(&at) => global.push(at),
            false => return UNTOUCHED,
        }
    }
    number(&global, &case.extents)
}

fn reach(neighbours: Neighbours, axes: usize) -> usize {
    match neighbours {
        Neighbours::Faces => 1,
        Neighbours::FacesAndEdges => 2,
        Neighbours::All => axes,
    }
}

fn assert_fills_halos(decomposition: &Decomposition, case: &Case) {
    assert_filled(&all_patterns(decomposition, &case.halo()), case);
}

/// Checks that exactly the halo cells of the case are filled.
fn assert_filled(patterns: &[PatternPlan], case: &Case) {
    assert_agree(patterns);
    let mut owned = 0;
    for (domain, mut array) in exchanged(patterns, &case.extents) {
        owned += array.owned.iter().product::<usize>();
        let low: Vec<i64> = array.halo.iter().map(|(low, _)| -(*low as i64)).collect();
        let extent: Vec<usize> =
            array.owned.iter().zip(&array.halo).map(|(owned, (low, high))| low + owned + high).collect();
        for at in cells(&low, &extent) {
            let expected = expected(&array, &at, case);
            assert_eq!(*array.cell(&at), expected, "cell {at:?} of domain {domain}");
        }
    }
    assert_eq!(owned, case.extents.iter().product::<usize>());
}

// Random cases.

#[derive(Debug, Clone)]
struct Case {
    extents: Vec<usize>,
    periodic: Vec<bool>,
    widths: Vec<(usize, usize)>,
    neighbours: Neighbours,
    /// Numbers that determine a decomposition.
    choices: Vec<usize>,
}

impl Case {
    fn halo(&self) -> Halo {
        Halo::per_axis(self.widths.clone()).neighbours(self.neighbours)
    }

    fn grid(&self) -> RegularGrid {
        RegularGrid::new(self.extents.clone()).periodic(self.periodic.clone())
    }

    /// A way to distribute `domains` evenly: domains per rank and ranks.
    fn deal(&self, domains: usize) -> (usize, usize) {
        let divisors: Vec<usize> = (1..=domains).filter(|d| domains.is_multiple_of(*d)).collect();
        let per_rank = divisors[self.choices[0] % divisors.len()];
        (per_rank, domains / per_rank)
    }

    /// Up to three blocks along each axis.
    fn blocks(&self) -> Vec<usize> {
        self.extents.iter().zip(&self.choices[1..]).map(|(n, choice)| 1 + choice % (*n).min(3)).collect()
    }

    /// A recursive bisection into up to nine boxes, assigned to up to five ranks at random.
    fn boxes(&self) -> (Vec<OwnedBox>, usize) {
        let mut boxes = vec![(vec![0; self.extents.len()], self.extents.clone())];
        for choice in &self.choices[..8] {
            let at = choice % boxes.len();
            let axis = choice / 16 % self.extents.len();
            let (mut first, mut extent) = boxes[at].clone();
            if extent[axis] > 1 {
                let cut = 1 + choice / 64 % (extent[axis] - 1);
                boxes[at].1[axis] = cut;
                first[axis] += cut;
                extent[axis] -= cut;
                boxes.push((first, extent));
            }
        }
        let ranks = 1 + self.choices[8] % 5;
        let deal = |(number, (first, extent))| ((self.choices[number] / 7) % ranks, first, extent);
        (boxes.into_iter().enumerate().map(deal).collect(), ranks)
    }
}

/// Grids of 1 to 4 axes with halos up to wider than the grid, both smaller for more axes.
fn case() -> impl Strategy<Value = Case> {
    let neighbours = prop_oneof![
        Just(Neighbours::Faces),
        Just(Neighbours::FacesAndEdges),
        Just(Neighbours::All),
        Just(Neighbours::All)
    ];
    let axes = prop_oneof![Just((1_usize, 9, 20)), Just((2, 6, 9)), Just((3, 4, 5)), Just((4, 3, 3))];
    (axes, neighbours).prop_flat_map(|((axes, cells, width), neighbours): ((usize, usize, usize), _)| {
        // Mostly narrow, as halos are.
        let width = prop_oneof![0..=1_usize, 0..=2_usize, 0..=width];
        (
            prop::collection::vec(1..=cells, axes),
            prop::collection::vec(any::<bool>(), axes),
            prop::collection::vec((width.clone(), width), axes),
            prop::collection::vec(0..4096_usize, 9),
        )
            .prop_map(move |(extents, periodic, widths, choices)| Case {
                extents,
                periodic,
                widths,
                neighbours,
                choices,
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn given_blocks_fill_every_halo_cell_with_the_right_cell(case in case()) {
        let blocks = case.blocks();
        let (per_rank, ranks) = case.deal(blocks.iter().product());
        let grid = case.grid().domains_per_rank(per_rank);
        assert_fills_halos(&grid.decompose_into(blocks, ranks).expect("a decomposition"), &case);
    }

    #[test]
    fn given_cuts_fill_every_halo_cell_with_the_right_cell(case in case()) {
        let pick = |(&n, &choice): (&usize, &usize)| (1..n).filter(|cut| choice >> cut & 1 == 1).take(2).collect();
        let cuts: Vec<Vec<usize>> = case.extents.iter().zip(&case.choices[1..]).map(pick).collect();
        let (per_rank, ranks) = case.deal(cuts.iter().map(|cuts| cuts.len() + 1).product());
        let grid = case.grid().domains_per_rank(per_rank);
        assert_fills_halos(&grid.decompose_at(cuts, ranks).expect("a decomposition"), &case);
    }

    #[test]
    fn boxes_fill_every_halo_cell_with_the_right_cell(case in case()) {
        let (boxes, ranks) = case.boxes();
        assert_fills_halos(&case.grid().decompose_boxes(boxes, ranks).expect("a decomposition"), &case);
    }

    #[test]
    fn narrowed_patterns_fill_what_the_narrower_halo_has_and_nothing_else(
        case in case(),
        to in prop::collection::vec((0..4_usize, 0..4_usize), 4),
        uniform in prop::option::of(0..4_usize),
        fewer in prop_oneof![Just(Neighbours::Faces), Just(Neighbours::FacesAndEdges), Just(Neighbours::All)],
    ) {
        let (boxes, ranks) = case.boxes();
        let decomposition = case.grid().decompose_boxes(boxes, ranks).expect("a decomposition");
        let widest = case.widths.iter().map(|(low, high)| *low.max(high)).max().expect("an axis");
        let (to, uniform) = match uniform.map(|width| width.min(widest)) {
            Some(width) => (vec![(width, width); 4], Some(width)),
            None => (to, None),
        };
        let narrow = case.widths.iter().zip(&to).map(|(own, to)| (own.0.min(to.0), own.1.min(to.1)));
        let narrow = Case { widths: narrow.collect(), neighbours: case.neighbours.min(fewer), ..case.clone() };
        let halo = uniform.map_or_else(|| narrow.halo(), Halo::uniform).neighbours(fewer);
        let patterns: Vec<PatternPlan> = (0..ranks)
            .map(|rank| decomposition.narrowed_pattern_of(rank, &case.halo(), &halo).expect("a pattern"))
            .collect();
        let wide = all_patterns(&decomposition, &case.halo());
        for (narrow, wide) in patterns.iter().zip(&wide) {
            prop_assert_eq!(&narrow.domains, &wide.domains);
        }
        assert_filled(&patterns, &narrow);
    }

    #[test]
    fn staggered_points_belong_to_the_domain_of_the_cell_behind_them(
        case in case(),
        axes in prop::collection::vec(any::<bool>(), 4),
        boxes: bool,
    ) {
        let axes = &axes[..case.extents.len()];
        let cells = if boxes {
            let (boxes, ranks) = case.boxes();
            case.grid().decompose_boxes(boxes, ranks)
        } else {
            let blocks = case.blocks();
            let (per_rank, ranks) = case.deal(blocks.iter().product());
            case.grid().domains_per_rank(per_rank).decompose_into(blocks, ranks)
        };
        let cells = cells.expect("a decomposition");
        let points = cells.staggered(axes).expect("points");
        let more = |axis: usize| usize::from(axes[axis] && !case.periodic[axis]);
        let extents: Vec<usize> = case.extents.iter().enumerate().map(|(axis, n)| n + more(axis)).collect();
        prop_assert_eq!(points.extents(), &extents[..]);

        let owners = owners(&cells);
        for (point, owner) in self::owners(&points) {
            // The point at the high border has no cell behind it and belongs to the domain of the last
            // cell.
            let cell: Vec<i64> = point.iter().zip(&case.extents).map(|(at, n)| *at.min(&(*n as i64 - 1))).collect();
            prop_assert_eq!(owner, owners[&cell], "point {:?}", point);
        }
        assert_fills_halos(&points, &Case { extents, ..case });
    }

    #[test]
    fn a_found_decomposition_fills_halos_and_cuts_the_least(case in case(), ranks in 1..=6_usize, per_rank in 1..=2_usize) {
        let grid = case.grid().domains_per_rank(per_rank);
        let choices = factors(&case.extents, ranks * per_rank);
        let found = match grid.decompose(ranks) {
            Ok(found) => found,
            Err(error) => {
                prop_assert!(choices.is_empty(), "{error}");
                return Ok(());
            }
        };
        assert_fills_halos(&found, &case);
        let least = choices.into_iter().map(|blocks| {
            cut_faces(&grid.decompose_into(blocks, ranks).expect("a decomposition"), &case)
        });
        prop_assert_eq!(Some(cut_faces(&found, &case)), least.min());
    }
}

/// All numbers of blocks along each axis that make `domains` in all.
fn factors(extents: &[usize], domains: usize) -> Vec<Vec<usize>> {
    let Some((&last, others)) = extents.split_last() else {
        return if domains == 1 { vec![vec![]] } else { vec![] };
    };
    let blocks = (1..=last).filter(|blocks| domains.is_multiple_of(*blocks));
    let found = blocks.flat_map(|blocks| {
        factors(others, domains / blocks).into_iter().map(move |others| [others, vec![blocks]].concat())
    });
    found.collect()
}

/// The rank and the domain that own each cell.
fn owners(decomposition: &Decomposition) -> BTreeMap<Vec<i64>, (usize, u64)> {
    let mut owners = BTreeMap::new();
    for (rank, pattern) in all_patterns(decomposition, &Halo::uniform(0)).iter().enumerate() {
        for (domain, shape) in &pattern.domains {
            let DomainShape::Regular { first, owned, .. } = shape else { panic!("{shape:?} is not regular") };
            owners.extend(cells(first, owned).into_iter().map(|cell| (cell, (rank, *domain))));
        }
    }
    owners
}

/// Counts the pairs of neighbouring cells that different domains own; also checks that the blocks
/// along each axis differ by at most one cell.
fn cut_faces(decomposition: &Decomposition, case: &Case) -> usize {
    let mut owner = BTreeMap::new();
    let mut sizes = vec![Vec::new(); case.extents.len()];
    for pattern in all_patterns(decomposition, &Halo::uniform(0)) {
        for (domain, shape) in &pattern.domains {
            let DomainShape::Regular { first, owned, .. } = shape else { panic!("{shape:?} is not regular") };
            owner.extend(cells(first, owned).into_iter().map(|cell| (cell, *domain)));
            sizes.iter_mut().zip(owned).for_each(|(sizes, owned)| sizes.push(*owned));
        }
    }
    for sizes in sizes {
        assert!(sizes.iter().max().zip(sizes.iter().min()).is_some_and(|(max, min)| max - min <= 1));
    }
    let mut faces = 0;
    for (cell, domain) in &owner {
        for (axis, &extent) in case.extents.iter().enumerate() {
            let mut next = cell.clone();
            next[axis] += 1;
            if case.periodic[axis] {
                next[axis] %= extent as i64;
            }
            faces += usize::from(owner.get(&next).is_some_and(|other| other != domain));
        }
    }
    faces
}
