//! An unstructured mesh: triangles partitioned over the ranks, each averaged with its neighbours across edges.
//!
//!     halocline launch -n 3 -- target/debug/examples/mesh

use halocline::{Array, Communicator, Error, HaloExchange, Pattern, UnstructuredDomain};

/// Triangles of a closed strip: triangle `i` shares edges with `i - 1` and `i + 1`.
const TRIANGLES: u64 = 30;

/// Returns the global ids of this rank's triangles and their averages.
pub fn run(comm: &Communicator) -> Result<(Vec<u64>, Vec<f64>), Error> {
    let (rank, size) = (comm.rank() as u64, comm.size() as u64);
    let (first, end) = (TRIANGLES * rank / size, TRIANGLES * (rank + 1) / size);
    let owned: Vec<u64> = (first..end).collect();
    // The halo: the neighbours that other ranks own.
    let mut halo = vec![(first + TRIANGLES - 1) % TRIANGLES, end % TRIANGLES];
    halo.retain(|id| !owned.contains(id));
    let pattern = Pattern::unstructured(comm, &[UnstructuredDomain::new(rank, owned.clone(), halo)])?;
    let domain = pattern.domain()?;
    let cells = domain.extents()[0];

    let t = Array::<f64>::zeros(comm, &[cells])?;
    for (cell, value) in t.write()?.iter_mut().take(owned.len()).enumerate() {
        *value = domain.global_id(cell).map_or(0.0, |id| (id * id) as f64);
    }
    HaloExchange::bind(comm, [(&pattern, &t)])?.exchange()?.wait()?;

    let t = t.read()?;
    let at = |id: u64| {
        t[(0..cells).find(|&cell| domain.global_id(cell) == Some(id)).expect("a neighbour is there")]
    };
    let around = |id: u64| at((id + TRIANGLES - 1) % TRIANGLES) + at(id) + at((id + 1) % TRIANGLES);
    let averages = owned.iter().map(|&id| around(id) / 3.0).collect();
    Ok((owned, averages))
}

fn main() -> Result<(), Error> {
    let comm = Communicator::init()?;
    println!("rank {}: {:?}", comm.rank(), run(&comm)?);
    comm.barrier()?;
    Ok(())
}
