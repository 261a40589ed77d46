//! Runs over ranks that are threads, compared with runs without exchanges.

use super::grid::{self, Grid, Nemo, Tripolar};
use super::norms::Norms;
use super::problem::{Bell, Problem};
use super::simulation::{Steps, simulate};
use super::verify::{verify, whole};
use crate::geometry::{angle, lon_lat, on_sphere};
use crate::ranks::as_threads;
use crate::verdict::Verdict;
use std::path::Path;

fn of(text: &str) -> Box<dyn Grid> {
    grid::make(&text.parse().unwrap()).unwrap()
}

/// The values of all cells after a run over so many ranks.
fn run(case: (&dyn Grid, &Problem), ranks: usize, days: f64) -> (Steps, Vec<f64>) {
    let results = as_threads(ranks, |comm| {
        let outcome = simulate(comm, case, days, |_| {}, || {})?;
        let gathered = outcome.pattern.gather_to::<f64>(comm, 0, &outcome.field.fields)?;
        let values = gathered.map(|values| values.read().map(|values| values.to_vec())).transpose()?;
        Ok((outcome.steps, values))
    });
    let (steps, values) = results.unwrap().swap_remove(0);
    (steps, values.unwrap())
}

fn is_equal_on_all_ranks(name: &str, case: (&dyn Grid, &Problem), days: f64) {
    for ranks in [1, 2, 3, 4, 7] {
        let (steps, values) = run(case, ranks, days);
        let verdict = verify(case, steps, &values, || {});
        assert_eq!(verdict, Verdict::Compared { max_abs_diff: 0.0, different: 0 }, "{name} on {ranks} ranks");
        let norms = Norms::new(case.0, case.1, &values, days);
        assert!(norms.is_conserved(), "{name} on {ranks} ranks: {norms:?}");
    }
}

#[test]
fn a_bell_crosses_edges_and_corners_of_the_cubed_sphere_as_without_exchanges() {
    // In a day and a half it covers three tiles.
    is_equal_on_all_ranks("cubed", (&*of("cubed:8"), &Problem::rotation(45.0)), 1.5);
    is_equal_on_all_ranks("smallest", (&*of("cubed:4"), &Problem::rotation(-120.0)), 3.0);
}

#[test]
fn a_bell_crosses_parts_of_the_icosahedral_grid_as_without_exchanges() {
    is_equal_on_all_ranks("icosahedral", (&*of("icosahedral:3"), &Problem::rotation(45.0)), 0.5);
    is_equal_on_all_ranks("smallest", (&*of("icosahedral:2"), &Problem::rotation(0.0)), 3.0);
}

#[test]
fn heat_crosses_the_fold_as_without_exchanges() {
    is_equal_on_all_ranks("with land", (&*of("tripolar:24x32"), &Problem::diffusion()), 1.0);
    // The cells at the ends of the fold share two sides with the same neighbour.
    let open = Tripolar::new(12, 10).without_land();
    is_equal_on_all_ranks("without land", (&open, &Problem::diffusion()), 3.0);
}

#[test]
fn heat_does_not_show_the_fold() {
    let (grid, problem, days) = (of("tripolar:36x48"), Problem::diffusion(), 4.0);
    let (_, values) = run((&*grid, &problem), 2, days);
    let error = |cell: usize| match grid.is_land(cell) {
        true => 0.0,
        false => (values[cell] - problem.exact(grid.polygon(cell).centre(), days)).abs(),
    };
    let most = |rows: std::ops::Range<usize>| (48 * rows.start..48 * rows.end).map(error).fold(0.0, f64::max);
    // The bell lies on the last rows. The row at the fold is no worse than those below it.
    let (at_fold, below) = (most(35..36), most(0..35));
    assert!(at_fold < 1.1 * below, "{at_fold} at the fold, {below} below");
    assert!(below < 0.02 * problem.bell().height, "{below}");
}

/// NEMO's grid ORCA2.
fn orca2() -> Nemo {
    Nemo::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/orca2/orca2.nc")).unwrap()
}

#[test]
fn heat_crosses_the_fold_of_orca2_as_without_exchanges() {
    let grid = orca2();
    is_equal_on_all_ranks("orca2", (&grid, &Problem::diffusion()), 0.2);
}

/// In open water the solution is known. Land is left out but for the surroundings of the poles of the grid, and the south, where the
/// grid's cells of land lie elsewhere.
#[test]
fn heat_does_not_show_the_fold_of_orca2() {
    let poles = [on_sphere(80.0, 50.0), on_sphere(-100.0, 70.0)];
    let is_land = |centre| lon_lat(centre).1 < 48.0 || poles.iter().any(|&pole| angle(centre, pole) < 0.09);
    let grid = orca2().with_land(is_land);
    let Problem::Diffusion { bell, spread } = Problem::diffusion() else { unreachable!("heat spreads") };
    // Beside the fold and on both of its banks, away from both poles.
    let bell = Bell { centre: on_sphere(20.0, 85.0), ..bell };
    let (problem, days) = (Problem::Diffusion { bell, spread }, 4.0);
    let (_, values) = run((&grid, &problem), 2, days);
    let most = |rows: std::ops::Range<usize>| {
        let water = (180 * rows.start..180 * rows.end).filter(|&cell| !grid.is_land(cell));
        let error = |cell: usize| (values[cell] - problem.exact(grid.polygon(cell).centre(), days)).abs();
        water.map(error).fold(0.0, f64::max)
    };
    let (at_fold, below) = (most(146..148), most(0..146));
    assert!(at_fold < 1.1 * below, "{at_fold} at the fold, {below} below");
    assert!(below < 0.02 * problem.bell().height, "{below}");
}

#[test]
fn errors_fall_with_the_size_of_the_cells() {
    let error = |text: &str, problem: &Problem| {
        let grid = of(text);
        Norms::new(&*grid, problem, &run((&*grid, problem), 1, 1.0).1, 1.0).l2
    };
    for [coarse, fine] in [["cubed:12", "cubed:24"], ["icosahedral:2", "icosahedral:3"]] {
        let problem = Problem::rotation(45.0);
        let errors = [error(coarse, &problem), error(fine, &problem)];
        assert!(errors[1] < 0.5 * errors[0], "{coarse}: {errors:?}");
    }
    let problem = Problem::diffusion();
    let errors = [error("tripolar:18x24", &problem), error("tripolar:36x48", &problem)];
    assert!(errors[1] < 0.5 * errors[0], "tripolar: {errors:?}");
}

#[test]
fn a_constant_stays_constant() {
    for (text, problem) in [
        ("cubed:6", Problem::rotation(45.0)),
        ("icosahedral:2", Problem::rotation(45.0)),
        ("tripolar:18x24", Problem::diffusion()),
    ] {
        let grid = of(text);
        let part = whole(&*grid, &problem);
        let mut rates = Vec::new();
        part.rates(&vec![3.0; grid.cells()], &mut Vec::new(), &mut rates);
        assert_eq!(rates.len(), grid.cells());
        assert!(rates.iter().all(|rate| rate.abs() < 1e-12), "{text}");
    }
}
