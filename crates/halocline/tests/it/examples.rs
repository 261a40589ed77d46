//! The examples give the same results whatever the number of ranks.
#![allow(dead_code, reason = "the examples have a `main` each")]

#[path = "../../examples/heat_ndarray.rs"]
mod heat_ndarray;
#[path = "../../examples/mesh.rs"]
mod mesh;
#[path = "../../examples/overlap.rs"]
mod overlap;
#[path = "../../examples/tasks.rs"]
mod tasks;

use halocline::{Communicator, Error};
use ndarray::{Array2, s};

/// What each rank returns, in the order of ranks.
fn results<T: Send>(ranks: usize, run: impl Fn(&Communicator) -> Result<T, Error> + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads = Communicator::threads(ranks).into_iter();
        let threads: Vec<_> = threads.map(|comm| scope.spawn(|| run(&{ comm }))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    })
}

/// The plane after some steps, put together from all ranks.
fn heat(ranks: usize) -> Array2<f64> {
    let mut plane = Array2::from_elem(heat_ndarray::CELLS, f64::NAN);
    for (first, part) in results(ranks, |comm| heat_ndarray::run(comm, 25)) {
        let (row, column) = (first[0] as usize, first[1] as usize);
        let (rows, columns) = part.dim();
        plane.slice_mut(s![row..row + rows, column..column + columns]).assign(&part);
    }
    plane
}

#[test]
fn the_heat_equation_with_ndarray_is_the_same_on_one_rank_and_on_several() {
    let one = heat(1);
    assert!(one.iter().all(|t| t.is_finite()) && one.iter().any(|&t| t > 0.1));
    for ranks in [2, 3, 4] {
        assert_eq!(heat(ranks), one, "{ranks} ranks");
    }
}

#[test]
fn averages_along_a_row_are_the_same_on_one_rank_and_on_several() {
    let one = results(1, overlap::run).concat();
    assert_eq!((one[0], one[1], one[23]), (8.0, 1.0, 15.0));
    for ranks in [2, 3] {
        assert_eq!(results(ranks, overlap::run).concat(), one, "{ranks} ranks");
    }
}

#[test]
fn averages_on_a_mesh_are_the_same_on_one_rank_and_on_several() {
    let all = |ranks| {
        let (ids, averages): (Vec<_>, Vec<_>) = results(ranks, mesh::run).into_iter().unzip();
        (ids.concat(), averages.concat())
    };
    let one = all(1);
    assert_eq!(one.0, (0..30).collect::<Vec<_>>());
    for ranks in [2, 3] {
        assert_eq!(all(ranks), one, "{ranks} ranks");
    }
}

#[test]
fn tasks_pass_numbers_around_a_ring() {
    assert_eq!(results(3, |comm| tasks::run(comm, 4)), [2, 0, 1]);
}
