//! An exchange in a task: the executor runs other tasks while peers are late. Any executor will do; here it is smol's.
//!
//!     halocline launch -n 2 -- target/debug/examples/tasks

use halocline::{Array, Communicator, Decomposed, Error, HaloExchange, RegularGrid};

/// Passes numbers around a ring, one cell a step; returns the number that has arrived.
pub fn run(comm: &Communicator, steps: usize) -> Result<u64, Error> {
    let pattern = RegularGrid::new((comm.size(),)).periodic((true,)).pattern(comm, 1)?;
    let cell = Array::<u64>::zeros(comm, &[3])?;
    cell.write()?[1] = comm.rank() as u64;
    let halo = HaloExchange::bind(comm, [(&pattern, &cell)])?;
    smol::block_on(async {
        for _ in 0..steps {
            halo.begin().await?;
            let mut cells = cell.write()?;
            cells[1] = cells[0];
        }
        Ok(cell.read()?[1])
    })
}

fn main() -> Result<(), Error> {
    let comm = Communicator::init()?;
    println!("rank {}: the number of rank {} has arrived", comm.rank(), run(&comm, 1)?);
    comm.barrier()?;
    Ok(())
}
