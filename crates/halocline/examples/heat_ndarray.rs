//! The heat equation on a periodic plane, with arrays of the crate `ndarray`. The interior is computed while the exchange
//! is in flight.
//!
//!     cargo run -p halocline --features ndarray --example heat_ndarray
//!     halocline launch -n 4 -- target/debug/examples/heat_ndarray

use halocline::{Array, BindOptions, Communicator, Decomposed, Error, HaloExchange, LocalBox, RegularGrid};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Ix2, Zip};

/// Cells of the plane.
pub const CELLS: (usize, usize) = (48, 36);

/// One explicit step in a box of cells: `around` has a cell more on each side.
fn step(around: ArrayView2<'_, f64>, after: ArrayViewMut2<'_, f64>) {
    Zip::from(after).and(around.windows((3, 3))).for_each(|after, t| {
        *after = t[[1, 1]] + 0.1 * (t[[0, 1]] + t[[2, 1]] + t[[1, 0]] + t[[1, 2]] - 4.0 * t[[1, 1]]);
    });
}

/// Runs some steps and returns the owned cells of this rank, with the global coordinates of the first.
pub fn run(comm: &Communicator, steps: usize) -> Result<(Vec<i64>, Array2<f64>), Error> {
    let pattern = RegularGrid::new(CELLS).periodic((true, true)).pattern(comm, 1)?;
    let domain = pattern.domain()?;
    let levels: [Array<f64>; 2] =
        [Array::zeros(comm, &domain.extents())?, Array::zeros(comm, &domain.extents())?];
    let first = domain.global(&[1, 1]).expect("the first owned cell");
    for ((row, column), t) in levels[0].write()?.owned_mut::<Ix2>(&domain)?.indexed_iter_mut() {
        let (x, y) = (first[0] as f64 + row as f64, first[1] as f64 + column as f64);
        *t = (x * 0.3).sin() * (y * 0.2).cos();
    }

    // The levels take turns: one is exchanged and read, the other is written.
    let sets = levels.each_ref().map(|level| [(&pattern, level)]);
    let halo = HaloExchange::bind_alternatives(comm, &sets, &BindOptions::default())?;
    for now in 0..steps {
        let (before, after) = (&levels[now % 2], &levels[(now + 1) % 2]);
        let mut after = after.write()?;
        let pending = halo.begin().set(now % 2).start()?;
        // The interior needs no halo: its windows are those of the owned cells.
        step(pending.owned(before)?.view(&domain)?, after.cells_mut(&domain, &domain.interior(1))?);
        pending.wait()?;
        let before = before.read()?;
        for cells in domain.boundary(1) {
            let around: LocalBox = cells.iter().map(|range| range.start - 1..range.end + 1).collect();
            step(before.cells(&domain, &around)?, after.cells_mut(&domain, &cells)?);
        }
    }
    let last = levels[steps % 2].read()?.owned::<Ix2>(&domain)?.to_owned();
    Ok((first, last))
}

fn main() -> Result<(), Error> {
    let comm = Communicator::init()?;
    let (first, t) = run(&comm, 100)?;
    println!("rank {}: {:?} cells from {first:?}, mean {:.6}", comm.rank(), t.dim(), t.mean().unwrap_or(0.0));
    comm.barrier()?;
    Ok(())
}
