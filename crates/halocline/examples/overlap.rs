//! A three-point average along a periodic row, a slice of it on each rank: the interior is computed while the exchange is in
//! flight.
//!
//!     halocline launch -n 4 -- target/debug/examples/overlap

use halocline::{Array, Communicator, Decomposed, Error, HaloExchange, RegularGrid};

/// Averages the numbers 0, 1, … along the row; returns this rank's cells.
pub fn run(comm: &Communicator) -> Result<Vec<f64>, Error> {
    let pattern = RegularGrid::new((24,)).periodic((true,)).pattern(comm, 1)?;
    let domain = pattern.domain()?;
    let owned = domain.owned()[0].clone();
    let row = Array::<f64>::zeros(comm, &domain.extents())?;
    for (cell, value) in row.write()?[owned.clone()].iter_mut().enumerate() {
        *value = (domain.global(&[owned.start + cell]).expect("an owned cell")[0]) as f64;
    }
    let halo = HaloExchange::bind(comm, [(&pattern, &row)])?;

    let mut averages = vec![0.0; domain.extents()[0]];
    let pending = halo.exchange()?;
    {
        // Only owned cells can be read now.
        let cells = pending.owned(&row)?;
        for cell in domain.interior(1)[0].clone() {
            averages[cell] = cells[cell - 1..cell + 2].iter().sum::<f64>() / 3.0;
        }
    }
    pending.wait()?;
    let cells = row.read()?;
    for cell in domain.boundary(1).into_iter().flat_map(|cells| cells[0].clone()) {
        averages[cell] = cells[cell - 1..cell + 2].iter().sum::<f64>() / 3.0;
    }
    Ok(averages[owned].to_vec())
}

fn main() -> Result<(), Error> {
    let comm = Communicator::init()?;
    println!("rank {}: {:?}", comm.rank(), run(&comm)?);
    comm.barrier()?;
    Ok(())
}
