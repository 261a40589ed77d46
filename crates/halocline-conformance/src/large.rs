//! A payload longer than an MPI count can say, between two neighbours.

use crate::{Outcome, ensure, fail};
use halocline::neighbors::{NeighborExchange, Sides};
use halocline::{Communicator, HostMemory, MemoryResource, Packet};
use std::sync::Arc;

const BYTES: usize = (2 << 30) + 4097;
const PART: usize = 4096;

/// Rank 0 sends over 2 GiB to rank 1, which compares them: from memory of the library, or of the program. Takes 9 GiB of memory.
pub fn rank(comm: &Communicator) -> Outcome {
    let memory = HostMemory::of(comm);
    let line = NeighborExchange::line(comm, Arc::new(memory.clone()))?;
    for is_shared in [true, false] {
        let mut packets = Sides::default();
        if comm.rank() == 0 {
            let mut payload = if is_shared { memory.allocate(BYTES)? } else { vec![0; BYTES].into() };
            let Some(bytes) = payload.bytes_mut() else { fail!("memory of the host has no bytes") };
            bytes.chunks_mut(PART).enumerate().for_each(|(at, part)| part.fill(at as u8));
            packets.right = Some(Packet::new(Vec::new(), Some(payload)));
        }
        let came = line.exchange(0, packets)?;
        if comm.rank() == 1 {
            let payload = came.left.and_then(|packet| packet.payload);
            let bytes = payload.as_ref().and_then(|payload| payload.bytes()).unwrap_or_default();
            ensure!(bytes.len() == BYTES, "{} bytes came of {BYTES}", bytes.len());
            let is_wrong = |(at, part): &(usize, &[u8])| part.iter().any(|byte| *byte != *at as u8);
            let wrong = bytes.chunks(PART).enumerate().find(is_wrong);
            ensure!(wrong.is_none(), "part {:?} is wrong", wrong.map(|(at, _)| at));
        }
    }
    comm.barrier()?;
    Ok(())
}
