//! Grids and patterns of patches that are refused, and what the messages say.

use halocline_plan::{
    Along, Corners, Halo, PatchError, PatchGrid, PatchSide, PatternError, Pivot, Quantity, Seam,
    cubed_sphere_point,
};

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, PatternError>, expected: &str) {
    let error = result.expect_err("it is refused");
    assert_eq!(error.to_string(), expected);
}

fn grid(patches: &[[usize; 2]], seams: &[Seam]) -> Result<PatchGrid, PatternError> {
    PatchGrid::new(patches.to_vec(), seams.to_vec())
}

fn around() -> Seam {
    Seam::join(PatchSide::low(0, 1), PatchSide::high(0, 1))
}

/// As [`refused`], by an error of patches.
macro_rules! refused_patches {
    ($result:expr, $error:pat, $expected:expr $(,)?) => {
        match $result.expect_err("it is refused") {
            PatternError::Patch(error) => {
                assert!(matches!(error, $error), "{error}");
                assert_eq!(error.to_string(), $expected);
            }
            other => panic!("{other}"),
        }
    };
}

#[test]
fn patches_without_cells_or_with_too_many_are_refused() {
    refused_patches!(grid(&[], &[]), PatchError::NoPatches, "a grid of 0 patches; give at least one");
    refused_patches!(
        grid(&[[3, 3], [3, 0]], &[]),
        PatchError::Empty { .. },
        "patch 1 has 0 cells along axis 1; every axis has at least 1"
    );
    refused_patches!(
        grid(&[[1 << 40, 1 << 30]], &[]),
        PatchError::TooLarge { .. },
        "the 1 patches have more than 2^60 cells, or 2^58 along an axis; use a smaller grid"
    );
    refused_patches!(
        PatchGrid::cubed_sphere(0),
        PatchError::Empty { .. },
        "patch 0 has 0 cells along axis 0; every axis has at least 1"
    );
    refused_patches!(
        grid(&[[1 << 59, 1]], &[]),
        PatchError::TooLarge { .. },
        "the 1 patches have more than 2^60 cells, or 2^58 along an axis; use a smaller grid"
    );
    refused_patches!(
        PatchGrid::lat_lon_cap(usize::MAX),
        PatchError::TooLarge { .. },
        "the 5 patches have more than 2^60 cells, or 2^58 along an axis; use a smaller grid",
    );
}

#[test]
fn seams_that_do_not_fit_are_refused() {
    let (low, high) = (PatchSide::low, PatchSide::high);
    refused_patches!(
        grid(&[[3, 3]], &[Seam::join(low(0, 0), high(1, 0))]),
        PatchError::NoSuchSide { .. },
        "seam 0 names the high side of axis 0 of patch 1; patches are numbered 0 to 0, their axes 0 and 1",
    );
    refused_patches!(
        grid(&[[3, 3], [3, 3]], &[Seam::join(low(0, 0), high(1, 2))]),
        PatchError::NoSuchSide { .. },
        "seam 0 names the high side of axis 2 of patch 1; patches are numbered 0 to 1, their axes 0 and 1",
    );
    refused_patches!(
        grid(&[[3, 3], [3, 3]], &[Seam::join(low(0, 0), high(1, 0)), Seam::join(low(1, 1), low(0, 0))]),
        PatchError::JoinedTwice { .. },
        "the low side of axis 0 of patch 0 is in seams 0 and 1; each side is in one seam at most",
    );
    refused_patches!(
        grid(&[[3, 3]], &[Seam::join(low(0, 0), low(0, 0))]),
        PatchError::JoinedWithItself { .. },
        "seam 0 joins the low side of axis 0 of patch 0 with itself; fold it (`Seam::fold`) or make it a pole \
         (`Seam::pole`)",
    );
    refused_patches!(
        grid(&[[3, 4], [5, 4]], &[Seam::join(high(0, 1), low(1, 1))]),
        PatchError::Lengths { .. },
        "seam 0 joins the high side of axis 1 of patch 0, which is 3 cells long, with the low side of axis 1 of patch \
         1, which is 5; joined sides have as many cells",
    );
}

#[test]
fn folds_and_poles_need_an_even_number_of_cells_around() {
    for pivot in [Pivot::Cell, Pivot::Corner] {
        refused_patches!(
            PatchGrid::tripolar([4, 7], pivot),
            PatchError::OddFold { .. },
            "the high side of axis 0 of patch 0 is folded and has 7 cells; the number must be even, so that each cell \
             has a partner",
        );
    }
    refused_patches!(
        PatchGrid::latitude_longitude([4, 7]),
        PatchError::OddFold { is_pole: true, .. },
        "the low side of axis 0 of patch 0 is a pole and has 7 cells; the number must be even, so that each cell has a partner",
    );
    refused_patches!(
        grid(&[[4, 6]], &[Seam::pole(PatchSide::low(0, 0))]),
        PatchError::OpenFold { .. },
        "the low side of axis 0 of patch 0 is a pole, but axis 1 of the patch is not periodic; join its two \
         sides with each other, not reversed (`Seam::join`)",
    );
    assert!(grid(&[[4, 6]], &[around(), Seam::pole(PatchSide::low(0, 0))]).is_ok());
}

#[test]
fn one_row_is_not_folded_at_both_sides() {
    let (low, high) = (PatchSide::low(0, 0), PatchSide::high(0, 0));
    let both = [around(), Seam::fold(low, Pivot::Cell), Seam::fold(high, Pivot::Cell)];
    refused_patches!(
        grid(&[[1, 8]], &both),
        PatchError::FoldedTwice { .. },
        "patch 0 has 1 cell along axis 0 and is folded about it at both sides; give it 2 cells or more, or one fold",
    );
    assert!(grid(&[[2, 8]], &both).is_ok());
    assert!(
        grid(&[[1, 8]], &[around(), Seam::fold(low, Pivot::Cell), Seam::fold(high, Pivot::Corner)]).is_ok()
    );
}

#[test]
fn corners_are_filled_only_where_three_patches_meet() {
    refused_patches!(
        PatchGrid::latitude_longitude([4, 6]).and_then(|grid| grid.corners(Corners::ThroughAxis(0))),
        PatchError::NoThreePatchCorners,
        "the grid has no corner of three patches with cells behind it; leave corners open (`Corners::Open`)",
    );
    refused_patches!(
        PatchGrid::cubed_sphere(4).and_then(|grid| grid.corners(Corners::ThroughAxis(2))),
        PatchError::CornerAxis { .. },
        "corners filled through axis 2; patches have axes 0 and 1",
    );
    assert!(PatchGrid::lat_lon_cap(4).and_then(|grid| grid.corners(Corners::ThroughAxis(1))).is_ok());
    // Behind the corner of an L no cell is reached on either way.
    let (low, high) = (PatchSide::low, PatchSide::high);
    let arms = [Seam::join(high(0, 1), low(1, 1)), Seam::join(high(0, 0), low(2, 0))];
    for axis in [0, 1] {
        refused_patches!(
            grid(&[[3, 3]; 3], &arms).and_then(|grid| grid.corners(Corners::ThroughAxis(axis))),
            PatchError::NoThreePatchCorners,
            "the grid has no corner of three patches with cells behind it; leave corners open (`Corners::Open`)",
        );
    }
    // Joined at their ends, too, the arms make it a corner of three patches.
    let joined = [&arms[..], &[Seam::join(high(1, 0), high(2, 1))]].concat();
    assert!(grid(&[[3, 3]; 3], &joined).and_then(|grid| grid.corners(Corners::ThroughAxis(0))).is_ok());
}

#[test]
fn halos_reach_one_patch_far_at_most() -> Result<(), PatternError> {
    let tiles = PatchGrid::cubed_sphere(3)?.decompose(6)?;
    assert!(tiles.pattern_of(0, &Quantity::cells(), &Halo::uniform(3)).is_ok());
    refused_patches!(
        tiles.pattern_of(0, &Quantity::cells(), &Halo::uniform(4)),
        PatchError::HaloTooWide { .. },
        "a halo 4 cells wide at the high side of axis 1 of patch 0 reaches through the patch behind it; it can be at \
         most 3 wide there",
    );
    let orca = PatchGrid::tripolar([4, 8], Pivot::Cell)?.decompose(1)?;
    assert!(orca.pattern_of(0, &Quantity::cells(), &Halo::uniform(3)).is_ok());
    refused_patches!(
        orca.pattern_of(0, &Quantity::cells(), &Halo::uniform(4)),
        PatchError::HaloTooWide { .. },
        "a halo 4 cells wide at the high side of axis 0 of patch 0 reaches through the patch behind it; it can be at \
         most 3 wide there",
    );
    // The face behind the last one that a fold reaches is the border of the grid, which has no value.
    let v_points = Quantity::scalar([Along::HighFaces, Along::Centre]);
    for (pivot, most) in [(Pivot::Corner, 3), (Pivot::Cell, 2)] {
        let grid = PatchGrid::tripolar([4, 8], pivot)?.decompose(1)?;
        assert!(grid.pattern_of(0, &v_points, &Halo::uniform(most)).is_ok());
        let error = grid.pattern_of(0, &v_points, &Halo::uniform(most + 1)).expect_err("too wide");
        assert!(
            matches!(error, PatternError::Patch(PatchError::HaloTooWide { most: at_most, .. }) if at_most == most),
            "{error}"
        );
    }
    Ok(())
}

#[test]
fn the_widest_halo_is_that_of_the_component_behind_the_seam() -> Result<(), PatternError> {
    use Along::{Centre, Faces, HighFaces};
    // Component 0 of one patch continues as component 1 of the other.
    let turned = grid(&[[4, 4]; 2], &[Seam::join(PatchSide::high(0, 0), PatchSide::high(1, 1))])?;
    let quantity = Quantity::vector([HighFaces, Centre], [Centre, Faces]);
    let cut = turned.decompose(1)?;
    // Faces of patch 1 begin at its low side, high faces of patch 0 do not.
    assert!(cut.pattern_of(0, &quantity, &Halo::per_axis([(0, 4), (0, 3)])).is_ok());
    refused_patches!(
        cut.pattern_of(0, &quantity, &Halo::per_axis([(0, 4), (0, 4)])),
        PatchError::HaloTooWide { .. },
        "a halo 4 cells wide at the high side of axis 1 of patch 1 reaches through the patch behind it; it can be at most 3 wide there",
    );
    Ok(())
}

#[test]
fn values_that_a_seam_turns_into_others_need_both_components() -> Result<(), PatternError> {
    let tiles = PatchGrid::cubed_sphere(4)?.decompose(1)?;
    let faces = Quantity::scalar([Along::Faces, Along::Centre]);
    refused_patches!(
        tiles.pattern_of(0, &faces, &Halo::uniform(1)),
        PatchError::Places { .. },
        "across the high side of axis 0 of patch 0, values at faces along axis 0 and centres along axis 1 meet places \
         where the quantity has no values; for components that the seam turns into each other give both (`Quantity::vector`)",
    );
    Ok(())
}

#[test]
fn values_that_no_patch_holds_are_refused() -> Result<(), PatternError> {
    use Along::{Centre, HighFaces, LowFaces};
    // Neither patch has the faces on the side that both share.
    let pair =
        grid(&[[4, 4], [4, 4]], &[Seam::join(PatchSide::low(0, 1), PatchSide::low(1, 1))])?.decompose(1)?;
    refused_patches!(
        pair.pattern_of(0, &Quantity::scalar([Centre, HighFaces]), &Halo::uniform(1)),
        PatchError::NotHeld { .. },
        "no patch holds the values at centres along axis 0 and high faces along axis 1 on the low side of axis 1 of patch 0; \
         use `Along::Faces` along axis 1, whose values lie on both sides",
    );
    let velocity = |faces| Quantity::vector([faces, Centre], [Centre, faces]);
    // High faces leave out the south pole, low faces the north pole.
    let globe = PatchGrid::latitude_longitude([4, 8])?.decompose(1)?;
    for (faces, words, pole) in [(HighFaces, "high", "low"), (LowFaces, "low", "high")] {
        refused(
            globe.pattern_of(0, &velocity(faces), &Halo::uniform(1)),
            &format!(
                "no patch holds the values at {words} faces along axis 0 and centres along axis 1 on the {pole} side of axis 0 of \
                 patch 0; use `Along::Faces` along axis 0, whose values lie on both sides"
            ),
        );
    }
    assert!(globe.pattern_of(0, &Quantity::c_grid(), &Halo::uniform(1)).is_ok());
    // The line of a fold about corners is the high face of the last row; that of a fold about cells is no face.
    for (faces, pivot) in [(HighFaces, Pivot::Corner), (HighFaces, Pivot::Cell), (LowFaces, Pivot::Cell)] {
        let grid = PatchGrid::tripolar([4, 8], pivot)?.decompose(1)?;
        assert!(grid.pattern_of(0, &velocity(faces), &Halo::uniform(1)).is_ok(), "{faces:?}, {pivot:?}");
    }
    Ok(())
}

/// Patches 0 and 1 side by side, patch 2 of one row of cells behind the turned side of patch 0, around an axis.
fn narrow_behind_a_corner(cells: usize) -> Result<PatchGrid, PatternError> {
    let (low, high) = (PatchSide::low, PatchSide::high);
    let seams = [
        Seam::join(high(0, 1), low(1, 1)),
        Seam::join(high(0, 0), low(2, 1)),
        Seam::join(low(2, 0), high(2, 0)),
    ];
    grid(&[[4, 1], [4, cells], [1, 4]], &seams)
}

#[test]
fn halos_across_many_narrow_patches_are_refused() -> Result<(), PatternError> {
    const MANY: usize = 1_000_000;
    let halo = |width| Halo::per_axis([(1, 1), (0, width)]);
    let cut = narrow_behind_a_corner(MANY)?.decompose_into(&[[1, 1]; 3], 3)?;
    refused_patches!(
        cut.pattern_of(0, &Quantity::cells(), &halo(MANY)),
        PatchError::TooManySeams { .. },
        "a halo of widths [(1, 1), (0, 1000000)] around patch 0 reaches across more than 16 seams; make it narrower, or the \
         patches behind its corners larger",
    );
    for rank in [1, 2] {
        let error = cut.pattern_of(rank, &Quantity::cells(), &halo(MANY)).expect_err("it is refused");
        assert!(
            matches!(error, PatternError::Patch(PatchError::TooManySeams { .. })),
            "rank {rank}: {error}"
        );
    }
    let few = narrow_behind_a_corner(8)?.decompose_into(&[[1, 1]; 3], 3)?;
    for rank in 0..3 {
        assert!(few.pattern_of(rank, &Quantity::cells(), &halo(8)).is_ok());
    }
    Ok(())
}

#[test]
fn points_at_which_very_many_patches_meet_are_refused() -> Result<(), PatternError> {
    let around = |patches: usize| {
        let seam =
            |patch| Seam::join_reversed(PatchSide::high(patch, 1), PatchSide::low((patch + 1) % patches, 0));
        grid(&vec![[2, 2]; patches], &(0..patches).map(seam).collect::<Vec<_>>())?
            .decompose_into(&vec![[1, 1]; patches], 1)
    };
    assert!(around(12)?.pattern_of(0, &Quantity::corners(), &Halo::uniform(1)).is_ok());
    let many = around(1000)?;
    refused_patches!(
        many.pattern_of(0, &Quantity::corners(), &Halo::uniform(1)),
        PatchError::TooManyPlaces { .. },
        "a value in or around patch 0 has more than 96 places: too many patches meet at one point; join fewer there, or use \
         values at the centres of cells",
    );
    Ok(())
}

#[test]
fn decompositions_that_do_not_fit_are_refused() -> Result<(), PatternError> {
    let tiles = PatchGrid::cubed_sphere(4)?;
    refused(tiles.decompose(0), "a decomposition with 0 ranks; give at least 1");
    refused(tiles.decompose_into(&[[1, 1]; 6], 0), "a decomposition with 0 ranks; give at least 1");
    refused_patches!(
        tiles.decompose(97),
        PatchError::MoreRanksThanCells { .. },
        "97 ranks for patches of 96 cells; every rank needs at least one, so use at most 96 ranks",
    );
    // A prime number of ranks, and one cell more than blocks there may be.
    let square = PatchGrid::new(vec![[1 << 16; 2]], Vec::new())?;
    refused_patches!(
        square.decompose(4_294_967_291),
        PatchError::NoBlocks { .. },
        "the 1 patches, of 4294967296 cells, cannot be cut for 4294967291 ranks: no numbers of blocks fit their extents; give \
         the blocks of each patch (`PatchGrid::decompose_into`), or use fewer ranks",
    );
    refused(
        PatchGrid::cubed_sphere(1 << 28)?.decompose(400_000_000_000_000_000),
        "400000000000000000 ranks of 1 domains each are more than 4294967295 domains; use fewer",
    );
    for ranks in [1 << 63, usize::MAX, (1 << 61) - 1] {
        let result = tiles.decompose(ranks);
        assert!(matches!(result, Err(PatternError::Patch(PatchError::MoreRanksThanCells { .. }))));
    }
    refused_patches!(
        tiles.decompose_into(&[[1, 1]; 5], 1),
        PatchError::BlocksForPatches { .. },
        "5 numbers of blocks for 6 patches; give one pair for each patch",
    );
    refused_patches!(
        tiles.decompose_into(&[[1, 5]; 6], 1),
        PatchError::BlocksOnAxis { .. },
        "5 blocks along axis 1 of patch 0, which has 4 cells; it can have 1 to 4 blocks",
    );
    refused_patches!(
        tiles.decompose_into(&[[1, 1]; 6], 7),
        PatchError::FewerDomainsThanRanks { .. },
        "6 blocks for 7 ranks; every rank needs at least one, so give more blocks or fewer ranks",
    );
    refused(
        tiles.decompose(6)?.pattern_of(6, &Quantity::cells(), &Halo::uniform(1)),
        "rank 6 of a decomposition for 6 ranks, numbered from 0; give a rank below 6",
    );
    refused(
        tiles.decompose(6)?.pattern_of(0, &Quantity::cells(), &Halo::per_axis([(1, 1)])),
        "1 halo widths for a grid of 2 axes; give one for each axis",
    );
    Ok(())
}

#[test]
fn points_that_no_tile_has_are_refused() {
    refused_patches!(
        cubed_sphere_point(6, [0.5; 2]),
        PatchError::NoSuchTile { tile: 6 },
        "there is no tile 6; the cubed sphere has tiles 0 to 5",
    );
    refused_patches!(
        cubed_sphere_point(3, [0.5, 1.5]),
        PatchError::OutsideOfTile { tile: 3, axis: 1, .. },
        "the coordinate along axis 1 of a point of tile 3 is 1.5; it is 0 at the low side and 1 at the high side, and must be \
         above -0.5 and below 1.5, where the projection ends",
    );
    for at in [-0.5, 1.5, 7.0, f64::NAN, f64::INFINITY] {
        assert!(
            cubed_sphere_point(0, [at, 0.5]).is_err() && cubed_sphere_point(0, [0.5, at]).is_err(),
            "{at}"
        );
    }
    assert!([-0.49, 0.0, 1.0, 1.49].into_iter().all(|at| cubed_sphere_point(5, [at; 2]).is_ok()));
}

#[test]
fn billions_of_ranks_are_weighed_at_once() -> Result<(), PatternError> {
    let ranks = 6 << 29;
    let cut = PatchGrid::cubed_sphere(36_864)?.decompose(ranks)?;
    // Blocks of two cells: a rank has four of them at most, of 2.5 on average.
    assert_eq!((cut.domains(), cut.blocks(5)), (6 * 36_864 * 18_432, [36_864, 18_432]));
    assert_eq!(cut.domains_of(ranks - 1), cut.domains() - 1..cut.domains());
    Ok(())
}

#[test]
fn a_rank_that_there_is_not_has_no_domains() -> Result<(), PatternError> {
    let halves = PatchGrid::cubed_sphere(4)?.decompose(4)?;
    assert_eq!(halves.domains_of(3), 9..12);
    for rank in [4, 5, usize::MAX] {
        assert!(halves.domains_of(rank).is_empty(), "{rank}");
    }
    Ok(())
}
