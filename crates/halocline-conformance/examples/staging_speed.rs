//! What the host's part of a staged exchange between two ranks over MPI reaches, one exchange at a time: messages both ways,
//! packed by a device that does everything at once, until all is sent; beside the same by MPI alone. On GPUs: `gpu_staging`.
//!
//! `HALOCLINE_NODE_AWARE=off mpirun -n 2 staging_speed [busy] [MIB...]`; `busy`: this thread waits as one does that waits for a GPU,
//! without sleeping and without carrying anything on.

use halocline::device::Priority;
use halocline::{
    BindOptions, Communicator, Decomposed, DeviceArray, Halo, HaloExchange, LinkChoice, RegularGrid,
};
use halocline_comm::Endpoint;
use halocline_conformance::instant::Instant;
use halocline_conformance::raw_mpi;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let comm = Communicator::init()?;
    let is_busy = std::env::args().any(|argument| argument == "busy");
    if comm.rank() == 0 {
        let cores = std::thread::available_parallelism()?;
        println!("{:?}: {cores} cores for this rank", comm.link().cores());
    }
    let mut sizes = std::env::args()
        .skip(1)
        .filter(|size| size != "busy")
        .map(|size| size.parse())
        .collect::<Result<Vec<f64>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![0.25, 1.0, 2.0, 6.5, 16.0, 64.0];
    }
    for mega in sizes {
        let cells = (mega * 1048576.0 / 8.0) as usize;
        let (_driver, device) = Instant::device();
        let grid = RegularGrid::new([2 * cells]);
        let pattern = grid.decompose(2)?.pattern(&comm, Halo::uniform(cells))?;
        let (_, shape) = &pattern.plan().domains[0];
        let array = DeviceArray::<u64>::zeros(&device, &shape.extents())?;
        let options = BindOptions::default().link(LinkChoice::Message);
        let halo = HaloExchange::bind_with(&comm, &[(&pattern, &array)], &options)?;
        let stream = device.stream(Priority::Normal)?;
        let times = (2000.0 / mega) as usize;
        comm.barrier()?;
        let start = std::time::Instant::now();
        for _ in 0..times {
            let pending = halo.schedule_exchange(&[&stream])?;
            if !is_busy {
                pending.wait()?;
            }
            while !halo.reclaim() {
                match is_busy {
                    true => std::hint::spin_loop(),
                    false => std::thread::sleep(std::time::Duration::from_micros(50)),
                }
            }
        }
        let (out, mut into) = (vec![1; 8 * cells], vec![0; 8 * cells]);
        let us = start.elapsed().as_micros() as f64 / times as f64;
        let alone = raw_mpi::both_ways(comm.rank(), &out, &mut into, 1, times.max(5))?.as_secs_f64() * 1e6;
        if comm.rank() == 0 {
            let rate = |us: f64| mega * 1.048576e6 / us / 1e3;
            println!(
                "{mega:6.2} MiB: {us:9.1} us, {:.2} GB/s a direction; MPI alone {:.2}",
                rate(us),
                rate(alone)
            );
        }
        drop(halo);
        comm.barrier()?;
    }
    Ok(())
}
