//! Patterns of regular grids with shapes written out by hand.

use halocline_plan::{
    BoxCells, Cells, Decomposition, DomainShape, Halo, Neighbours, PatternPlan, Peer, RegularGrid, Transfer,
};

fn transfer(from: u64, to: u64, source: (&[i64], &[usize]), target: &[i64]) -> Transfer {
    let cells = |low: &[i64]| Cells::Box(BoxCells { low: low.to_vec(), extent: source.1.to_vec() });
    Transfer {
        from,
        to,
        source: cells(source.0),
        target: cells(target),
        map: Default::default(),
        is_negated: false,
    }
}

#[test]
fn a_periodic_axis_over_two_ranks_tells_both_sides_of_the_same_peer_apart() {
    let decomposition = RegularGrid::new([7]).periodic([true]).decompose(2).expect("a decomposition");
    let pattern = decomposition.pattern_of(0, &Halo::uniform(1)).expect("a pattern");
    let sends = vec![transfer(0, 1, (&[3], &[1]), &[-1]), transfer(0, 1, (&[0], &[1]), &[3])];
    let receives = vec![transfer(1, 0, (&[2], &[1]), &[-1]), transfer(1, 0, (&[0], &[1]), &[4])];
    assert_eq!(pattern.peers, vec![Peer { rank: 1, sends, receives }]);
    assert_eq!(pattern.local, vec![]);
}

#[test]
fn a_periodic_axis_over_one_rank_is_filled_from_the_domain_itself() {
    let decomposition =
        RegularGrid::new([4, 3]).periodic([true, false]).decompose(1).expect("a decomposition");
    let pattern = decomposition.pattern_of(0, &Halo::uniform(1)).expect("a pattern");
    assert_eq!(pattern.peers, vec![]);
    let local =
        vec![transfer(0, 0, (&[3, 0], &[1, 3]), &[-1, 0]), transfer(0, 0, (&[0, 0], &[1, 3]), &[4, 0])];
    assert_eq!(pattern.local, local);
}

#[test]
fn asymmetric_widths_make_one_sided_peers() {
    let decomposition = RegularGrid::new([8]).decompose(4).expect("a decomposition");
    let pattern = decomposition.pattern_of(1, &Halo::per_axis([(1, 0)])).expect("a pattern");
    let from_below = Peer { rank: 0, sends: vec![], receives: vec![transfer(0, 1, (&[1], &[1]), &[-1])] };
    let to_above = Peer { rank: 2, sends: vec![transfer(1, 2, (&[1], &[1]), &[-1])], receives: vec![] };
    assert_eq!(pattern.peers, vec![from_below, to_above]);
}

#[test]
fn a_halo_wider_than_the_neighbour_comes_from_several() {
    let decomposition = RegularGrid::new([8]).decompose(4).expect("a decomposition");
    let pattern = decomposition.pattern_of(3, &Halo::uniform(5)).expect("a pattern");
    let received = pattern.peers.iter().flat_map(|peer| peer.receives.clone());
    let expected = [(0, 1, 1, -5), (1, 0, 2, -4), (2, 0, 2, -2)];
    let expected = expected.map(|(from, source, n, target)| transfer(from, 3, (&[source], &[n]), &[target]));
    assert_eq!(received.collect::<Vec<_>>(), expected);
}

#[test]
fn equal_surfaces_cut_the_first_axes_more() {
    let blocks = |grid: RegularGrid, ranks| grid.decompose(ranks).expect("a decomposition").blocks_per_axis();
    assert_eq!(blocks(RegularGrid::new([10, 10]), 2), Some(vec![2, 1]));
    assert_eq!(blocks(RegularGrid::new([10, 10, 10]), 12), Some(vec![3, 2, 2]));
    // The seam of the periodic axis would be a second cut.
    assert_eq!(blocks(RegularGrid::new([10, 10]).periodic([true, false]), 2), Some(vec![1, 2]));
    assert_eq!(blocks(RegularGrid::new([1, 1000, 1, 3]), 6), Some(vec![1, 6, 1, 1]));
}

/// The middle cell of 3 x 3 x 3, between whole layers.
fn layers() -> Decomposition {
    let boxes = [
        ([0, 0, 0], [1, 3, 3]),
        ([2, 0, 0], [1, 3, 3]),
        ([1, 0, 0], [1, 1, 3]),
        ([1, 2, 0], [1, 1, 3]),
        ([1, 1, 0], [1, 1, 1]),
        ([1, 1, 1], [1, 1, 1]),
        ([1, 1, 2], [1, 1, 1]),
    ];
    let boxes =
        boxes.into_iter().enumerate().map(|(rank, (first, extent))| (rank, first.to_vec(), extent.to_vec()));
    RegularGrid::new([3, 3, 3]).decompose_boxes(boxes.collect(), 7).expect("a decomposition")
}

#[test]
fn a_box_that_covers_faces_edges_and_corners_sends_the_fewest_boxes() {
    let from_layer = |neighbours| {
        let pattern = layers().pattern_of(5, &Halo::uniform(1).neighbours(neighbours)).expect("a pattern");
        pattern.peers[0].receives.clone()
    };
    assert_eq!(from_layer(Neighbours::All), [transfer(0, 5, (&[0, 0, 0], &[1, 3, 3]), &[-1, -1, -1])]);
    assert_eq!(from_layer(Neighbours::Faces), [transfer(0, 5, (&[0, 1, 1], &[1, 1, 1]), &[-1, 0, 0])]);
    let cross = [
        transfer(0, 5, (&[0, 0, 1], &[1, 1, 1]), &[-1, -1, 0]),
        transfer(0, 5, (&[0, 1, 0], &[1, 1, 3]), &[-1, 0, -1]),
        transfer(0, 5, (&[0, 2, 1], &[1, 1, 1]), &[-1, 1, 0]),
    ];
    assert_eq!(from_layer(Neighbours::FacesAndEdges), cross);
}

#[test]
fn a_rank_without_boxes_has_an_empty_pattern() {
    let decomposition =
        RegularGrid::new([4]).decompose_boxes(vec![(2, vec![0], vec![4])], 3).expect("one box");
    let pattern = decomposition.pattern_of(1, &Halo::uniform(2)).expect("a pattern");
    assert_eq!(pattern, PatternPlan { domains: vec![], peers: vec![], local: vec![] });
}

#[test]
fn one_rank_of_a_million_gets_its_pattern_alone() {
    let grid = RegularGrid::new([100_000, 100_000, 128]);
    let decomposition = grid.decompose(1_000_000).expect("a decomposition");
    assert_eq!(decomposition.blocks_per_axis(), Some(vec![1000, 1000, 1]));
    assert_eq!(decomposition.domains(), 1_000_000);
    let pattern = decomposition.pattern_of(500_500, &Halo::uniform(2)).expect("a pattern");
    let shape = DomainShape::Regular {
        first: vec![50_000, 50_000, 0],
        owned: vec![100, 100, 128],
        halo: vec![(2, 2); 3],
    };
    assert_eq!(pattern.domains, vec![(500_500, shape)]);
    let peers: Vec<usize> = pattern.peers.iter().map(|peer| peer.rank).collect();
    assert_eq!(peers, [499_499, 499_500, 499_501, 500_499, 500_501, 501_499, 501_500, 501_501]);
    assert_eq!(
        pattern.peers[1].receives,
        [transfer(499_500, 500_500, (&[98, 0, 0], &[2, 100, 128]), &[-2, 0, 0])]
    );
    assert_eq!(pattern.check(), Ok(()));
}

#[test]
fn memory_does_not_grow_with_the_ranks() {
    // A list of two billion of anything would not fit.
    let decomposition =
        RegularGrid::new([1 << 40]).periodic([true]).decompose(1 << 31).expect("a decomposition");
    let pattern = decomposition.pattern_of((1 << 31) - 1, &Halo::uniform(1)).expect("a pattern");
    let peers: Vec<usize> = pattern.peers.iter().map(|peer| peer.rank).collect();
    assert_eq!(peers, [0, (1 << 31) - 2]);
}

#[test]
fn a_list_of_many_boxes_is_checked_and_searched_quickly() {
    // 40 000 boxes: anything quadratic would take minutes here.
    let (rows, columns) = (200, 200);
    let boxes = (0..rows * columns).map(|i| (i, vec![i / columns * 2, i % columns * 3], vec![2, 3]));
    let grid = RegularGrid::new([rows * 2, columns * 3]).periodic([true, true]);
    let decomposition = grid.decompose_boxes(boxes.collect(), rows * columns).expect("a decomposition");
    for rank in (0..rows * columns).step_by(8) {
        let pattern = decomposition.pattern_of(rank, &Halo::uniform(1)).expect("a pattern");
        assert_eq!(pattern.peers.len(), 8);
    }
}
