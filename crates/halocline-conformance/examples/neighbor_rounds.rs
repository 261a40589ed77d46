//! Times rounds of a neighbour exchange between two ranks, beside what bounds them.
//!
//! ```text
//! cargo build --release -p halocline-cli -p halocline-conformance --example neighbor_rounds --bins
//! target/release/halocline launch -n 2 -- target/release/examples/neighbor_rounds
//! HALOCLINE_NODE_AWARE=off mpirun -n 2 target/release/examples/neighbor_rounds
//! ```
//!
//! Small rounds: 64 bytes of metadata and 4 KiB each way, beside a message there and back in shared memory (a cache line), and over MPI
//! beside two `MPI_Sendrecv` of the same sizes. Large rounds: 64 MiB each way, beside both ranks copying as much at the same time, and
//! over MPI beside one `MPI_Sendrecv`. Each figure is the median over rounds in turn of the slower rank.

use halocline::neighbors::{NeighborExchange, Side, Sides};
use halocline::{Communicator, HostMemory, MemoryResource, Packet, Reduce};
use halocline_conformance::raw_mpi;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const SMALL: Size = Size { metadata: 64, payload: 4096, iterations: 4000 };
const LARGE: Size = Size { metadata: 64, payload: 64 << 20, iterations: 4 };

struct Size {
    metadata: usize,
    payload: usize,
    iterations: u32,
}

struct Bench {
    comm: Communicator,
    line: NeighborExchange,
    memory: HostMemory,
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let comm = Communicator::init()?;
    if comm.size() != 2 {
        return Err("start two ranks: halocline launch -n 2 -- PROGRAM, or mpirun -n 2 PROGRAM".into());
    }
    let memory = HostMemory::of(&comm);
    let line = NeighborExchange::line(&comm, Arc::new(memory.clone()))?;
    let bench = Bench { comm, line, memory };
    let over_mpi = bench.comm.transport() == "mpi";
    bench.row("64 B + 4 KiB", &SMALL, over_mpi, || Ok(None))?;
    let (from, mut to) = (vec![1u8; LARGE.payload], vec![0u8; LARGE.payload]);
    bench.row("64 MiB", &LARGE, over_mpi, || {
        let begin = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        Ok(Some(begin.elapsed()))
    })
}

impl Bench {
    /// Prints one line of figures on rank 0.
    fn row(
        &self,
        name: &str,
        size: &Size,
        over_mpi: bool,
        mut copy: impl FnMut() -> Outcome<Option<Duration>>,
    ) -> Outcome<()> {
        let (mut rounds, mut private, mut mpi, mut copies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let mut times = vec![self.rounds(size, true)?, self.rounds(size, false)?];
            self.comm.barrier()?;
            times.push(copy()?.unwrap_or_default());
            if over_mpi {
                let sizes: &[usize] =
                    if size.payload > 1 << 20 { &[size.payload] } else { &[size.metadata, size.payload] };
                times.push(raw_mpi::send_receive(self.comm.rank(), sizes, size.iterations)?);
            }
            let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
            let slowest = self.comm.all_reduce(times, Reduce::Max)?;
            // The first one warms up.
            if round > 0 {
                rounds.push(slowest[0]);
                private.push(slowest[1]);
                copies.push(slowest[2]);
                mpi.extend(slowest.get(3));
            }
        }
        if self.comm.rank() == 0 {
            let (round, private, copy) = (median(rounds), median(private), median(copies));
            print!("{name:14} {} ranks over {}: ", self.comm.size(), self.comm.transport());
            print!("a round {round:.2} us, from the program's own memory {private:.2} us");
            if copy > 0.0 {
                print!("; a copy on both ranks {copy:.2} us, {:.2} of its speed", copy / round);
            }
            if over_mpi {
                let mpi = median(mpi);
                print!("; MPI_Sendrecv {mpi:.2} us, a round is {:.2} of it", round / mpi);
            }
            println!();
        }
        Ok(())
    }

    /// The mean time of a round. `shared`: payloads lie in memory of the library.
    fn rounds(&self, size: &Size, shared: bool) -> Outcome<Duration> {
        let side = if self.comm.rank() == 0 { Side::Right } else { Side::Left };
        let private = vec![self.comm.rank() as u8; if shared { 0 } else { size.payload }];
        let mut taken = Duration::ZERO;
        self.comm.barrier()?;
        for round in 0..size.iterations {
            let payload = if shared { self.memory.allocate(size.payload)? } else { private.clone().into() };
            let packet = Packet::new(vec![round as u8; size.metadata], Some(payload));
            let mut packets = Sides::default();
            *packets.get_mut(side) = Some(packet);
            let begin = Instant::now();
            let came = self.line.exchange(0, packets)?;
            taken += begin.elapsed();
            let packet = came.get(side).as_ref().ok_or("no packet came")?;
            let is_right = packet.metadata[..] == vec![round as u8; size.metadata][..]
                && packet.payload.as_ref().is_some_and(|payload| payload.len() == size.payload);
            if !is_right {
                return Err(format!("round {round} brought another packet").into());
            }
        }
        Ok(taken / size.iterations)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
