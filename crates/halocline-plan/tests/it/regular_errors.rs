//! Refused regular grids, decompositions and halos, and the error messages.

use halocline_plan::{Halo, OwnedBox, PatternError, RegularGrid};

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, PatternError>, error: PatternError, says: &str) {
    let found = result.expect_err("an error");
    assert_eq!(found, error);
    assert!(found.to_string().contains(says), "{found}");
}

#[test]
fn an_impossible_grid_is_refused() {
    refused(RegularGrid::new([]).decompose(1), PatternError::GridAxes(0), "0 axes");
    refused(RegularGrid::new([2; 5]).decompose(1), PatternError::GridAxes(5), "5 axes; grids have 1 to 4");
    refused(RegularGrid::new([4, 0]).decompose(1), PatternError::EmptyAxis { axis: 1 }, "axis 1");
    let extents = vec![1 << 30, 1 << 31];
    refused(
        RegularGrid::new(extents.clone()).decompose(1),
        PatternError::GridTooLarge { extents },
        "[1073741824, 2147483648]",
    );
    refused(
        RegularGrid::new([usize::MAX, usize::MAX]).decompose(1),
        PatternError::GridTooLarge { extents: vec![usize::MAX; 2] },
        "more cells than 2^60",
    );
}

#[test]
fn a_list_of_another_length_than_axes_is_refused() {
    let grid = RegularGrid::new([4, 4]);
    let count = |what, given| PatternError::AxisCount { what, given, axes: 2 };
    refused(grid.clone().periodic([true]).decompose(1), count("flags of periodicity", 1), "grid of 2 axes");
    refused(grid.decompose_into([1, 2, 2], 4), count("numbers of blocks", 3), "3 numbers of blocks");
    refused(grid.decompose_at([vec![2]], 2), count("lists of cuts", 1), "1 lists of cuts");
    let decomposition = grid.decompose(2).expect("a decomposition");
    refused(decomposition.pattern_of(0, &Halo::per_axis([(1, 1)])), count("halo widths", 1), "1 halo widths");
    let boxes = |first, extent| grid.decompose_boxes(vec![(0, first, extent)], 1);
    refused(boxes(vec![0], vec![4, 4]), count("coordinates of a box's first cell", 1), "first cell");
    refused(boxes(vec![0, 0], vec![4]), count("extents of a box", 1), "extents of a box");
}

#[test]
fn invalid_numbers_of_ranks_are_refused() {
    let grid = RegularGrid::new([3, 3]);
    refused(grid.decompose(0), PatternError::Zero { what: "ranks" }, "0 ranks");
    refused(grid.decompose_boxes(vec![], 0), PatternError::Zero { what: "ranks" }, "0 ranks");
    let none = grid.clone().domains_per_rank(0);
    refused(none.decompose(1), PatternError::Zero { what: "domains per rank" }, "0 domains per rank");
    refused(
        grid.clone().domains_per_rank(2).decompose(5),
        PatternError::MoreRanksThanCells { ranks: 5, domains_per_rank: 2, extents: vec![3, 3], cells: 9 },
        "only 9 cells",
    );
    refused(
        grid.clone().domains_per_rank(usize::MAX).decompose(2),
        PatternError::TooManyDomains { ranks: 2, domains_per_rank: usize::MAX, most: u32::MAX as usize },
        "2 ranks",
    );
    let decomposition = grid.decompose(3).expect("a decomposition");
    refused(
        decomposition.pattern_of(3, &Halo::uniform(1)),
        PatternError::NoSuchRank { rank: 3, ranks: 3 },
        "rank 3 of a decomposition for 3 ranks",
    );
}

#[test]
fn ranks_without_factors_that_fit_are_refused_and_the_nearest_that_fit_are_named() {
    let no_factors = |extents: &[usize], per_rank, ranks, fitting: &[usize], says| {
        let grid = RegularGrid::new(extents).domains_per_rank(per_rank);
        let (domains, extents, fitting) = (ranks * per_rank, extents.to_vec(), fitting.to_vec());
        refused(grid.decompose(ranks), PatternError::NoFactors { domains, extents, ranks, fitting }, says);
    };
    no_factors(&[3, 3], 1, 5, &[4, 6], "5 domains cannot be blocks of a grid of [3, 3]");
    no_factors(&[3, 3], 1, 8, &[6, 9], "6 or 9 ranks would do");
    no_factors(&[4, 4], 2, 5, &[4, 6], "4 or 6 ranks would do");
    no_factors(
        &[1000, 1000],
        1,
        999_500,
        &[],
        "no number of ranks near 999500 would do; give a list of boxes",
    );
}

#[test]
fn a_decomposition_that_does_not_match_the_ranks_is_refused() {
    let error = |ranks, domains_per_rank, domains| PatternError::BlocksForRanks {
        blocks: vec![4, 4],
        count: 16,
        ranks,
        domains_per_rank,
        domains,
    };
    let grid = RegularGrid::new([8, 8]);
    refused(grid.decompose_into([4, 4], 8), error(8, 1, 8), "[4, 4] = 16 blocks does not match 8 ranks");
    let cuts = vec![vec![1, 2, 3]; 2];
    refused(grid.domains_per_rank(3).decompose_at(cuts, 5), error(5, 3, 15), "which own 15");
}

#[test]
fn blocks_and_cuts_that_an_axis_cannot_have_are_refused() {
    let grid = RegularGrid::new([8, 3]);
    let blocks = |blocks| PatternError::BlocksOnAxis { axis: 1, blocks, cells: 3 };
    refused(grid.decompose_into([1, 4], 4), blocks(4), "4 blocks along axis 1");
    refused(grid.decompose_into([1, 0], 4), blocks(0), "1 to 3 blocks");
    let cut = |cut, after| PatternError::Cut { axis: 0, cut, after, cells: 8 };
    refused(grid.decompose_at([vec![0], vec![]], 2), cut(0, 0), "axis 0 at cell 0");
    refused(grid.decompose_at([vec![8], vec![]], 2), cut(8, 0), "below 8");
    refused(grid.decompose_at([vec![5, 5], vec![]], 3), cut(5, 5), "above 5");
}

#[test]
fn boxes_that_do_not_fit_the_grid_or_the_ranks_are_refused() {
    let decompose = |boxes: Vec<OwnedBox>| RegularGrid::new([4, 4]).decompose_boxes(boxes, 2);
    let whole = (0, vec![0, 0], vec![4, 4]);
    refused(
        decompose(vec![whole.clone(), (2, vec![0, 0], vec![1, 1])]),
        PatternError::BoxRank { number: 1, rank: 2, ranks: 2 },
        "box 1 belongs to rank 2",
    );
    let outside = |first, extent| PatternError::BoxOutside { number: 0, axis: 1, first, extent, cells: 4 };
    refused(
        decompose(vec![(0, vec![0, 2], vec![4, 3])]),
        outside(2, 3),
        "box 0 has 3 cells from cell 2 along axis 1",
    );
    refused(decompose(vec![(0, vec![0, 2], vec![4, 0])]), outside(2, 0), "at least 1");
    let far = (0, vec![0, usize::MAX], vec![4, 2]);
    refused(decompose(vec![far]), outside(usize::MAX, 2), "lies inside the grid");
}

#[test]
fn boxes_that_overlap_are_refused_by_name() {
    let quarter = |row, column| (0, vec![row, column], vec![2, 2]);
    let boxes = vec![quarter(0, 0), quarter(0, 2), quarter(2, 0), (0, vec![1, 2], vec![3, 2])];
    refused(
        RegularGrid::new([4, 4]).decompose_boxes(boxes, 1),
        PatternError::BoxesOverlap { one: 1, other: 3, cell: vec![1, 2] },
        "boxes 1 and 3 both own cell [1, 2]",
    );
    // Many overlapping boxes are checked as fast as others.
    let same = vec![(0, vec![0, 0], vec![4, 4]); 20_000];
    let error = RegularGrid::new([4, 4]).decompose_boxes(same, 1).expect_err("an overlap");
    assert!(matches!(error, PatternError::BoxesOverlap { one: 0, .. }), "{error}");
}

#[test]
fn boxes_that_leave_a_cell_are_refused_by_name() {
    let uncovered = |boxes: Vec<OwnedBox>, cell: &[i64], says: &str| {
        let (cell, count) = (cell.to_vec(), boxes.len());
        let result = RegularGrid::new([4, 4]).decompose_boxes(boxes, 1);
        refused(result, PatternError::CellInNoBox { cell, boxes: count }, says);
    };
    uncovered(vec![], &[0, 0], "cell [0, 0] is in none of the 0 boxes");
    uncovered(vec![(0, vec![1, 0], vec![3, 4])], &[0, 0], "none of the 1 boxes");
    let low = (0, vec![0, 0], vec![2, 4]);
    uncovered(vec![low.clone()], &[2, 0], "cell [2, 0]");
    let (left, right) = ((0, vec![2, 0], vec![2, 1]), (0, vec![2, 2], vec![1, 2]));
    uncovered(vec![low.clone(), left.clone(), right.clone()], &[2, 1], "cell [2, 1]");
    uncovered(vec![low, left, right, (0, vec![2, 1], vec![2, 1])], &[3, 2], "cell [3, 2]");
}

#[test]
fn oversized_halos_are_refused() {
    let decomposition =
        RegularGrid::new([4, 1]).periodic([true, true]).decompose(2).expect("a decomposition");
    let widths = vec![(usize::MAX, usize::MAX); 2];
    refused(
        decomposition.pattern_of(1, &Halo::uniform(usize::MAX)),
        PatternError::HaloTooLarge { domain: 1, owned: vec![2, 1], widths },
        "domain 1 of [2, 1] cells",
    );
    let pieces =
        |width| PatternError::TooManyPieces { domain: 0, widths: vec![(width, width); 2], most: 1 << 20 };
    refused(decomposition.pattern_of(0, &Halo::uniform(1000)), pieces(1000), "around domain 0");
    refused(
        decomposition.pattern_of(0, &Halo::uniform(1 << 28)),
        pieces(1 << 28),
        "more than 1048576 domains",
    );
    let boxes = vec![(0, vec![0, 0], vec![4, 1])];
    let boxes = RegularGrid::new([4, 1]).periodic([true, true]).decompose_boxes(boxes, 1).expect("one box");
    refused(boxes.pattern_of(0, &Halo::uniform(2000)), pieces(2000), "narrower halos");
    refused(boxes.pattern_of(0, &Halo::uniform(1 << 28)), pieces(1 << 28), "narrower halos");
}

#[test]
fn an_axis_is_staggered_once_and_each_has_a_flag() {
    let cells = RegularGrid::new([4, 4]).decompose(1).expect("a decomposition");
    let count = PatternError::AxisCount { what: "flags of staggered axes", given: 1, axes: 2 };
    refused(cells.staggered([true]), count, "give one for each axis");
    let faces = cells.staggered([false, true]).expect("faces");
    refused(faces.staggered([true, true]), PatternError::StaggeredTwice { axis: 1 }, "axis 1");
    assert_eq!(faces.staggered([true, false]), cells.staggered([true, true]));
    let huge = RegularGrid::new([1 << 60]).decompose(1).expect("a decomposition");
    refused(huge.staggered([true]), PatternError::GridTooLarge { extents: vec![(1 << 60) + 1] }, "2^60");
}
