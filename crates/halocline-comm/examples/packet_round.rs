//! Times a round of packets between ranks 0 and 1: metadata and a payload of the host each way. Rank 0 prints the median and the best of
//! several batches, beside plain messages of the same lengths and one copy of the payload.
//!
//! ```text
//! halocline launch -n 2 -- target/release/examples/packet_round [payload bytes] [rounds]
//! ```

use halocline_comm::memory_resource::{HostMemory, MemoryResource};
use halocline_comm::packet::{Packet, PacketContext, PacketError, PacketReceive, PacketSend, PacketTag};
use halocline_comm::{CommError, Communicator, Endpoint, Tag, buffers};
use std::sync::Arc;
use std::time::Instant;

const METADATA: usize = 64;
const BATCHES: usize = 21;

fn round(
    context: &PacketContext,
    tag: PacketTag,
    number: u64,
    packet: Packet,
) -> Result<Packet, PacketError> {
    let peer = 1 - context.comm().rank();
    let mut send = PacketSend::new(peer, tag, packet).numbered(number);
    let (mut receive, mut packet): (Option<PacketReceive>, _) = (None, None);
    context.comm().wait_for(Some(peer), "a packet", || {
        let mut step = || -> Result<bool, PacketError> {
            let is_sent = send.poll(context)?;
            if receive.is_none() {
                receive = PacketReceive::next(context, peer, tag)?;
            }
            let Some(receive) = receive.as_mut() else { return Ok(false) };
            let is_received = receive.poll(context)?;
            packet = packet.take().or_else(|| receive.take());
            Ok(is_sent && is_received)
        };
        Ok(step().map(|is_over| is_over.then_some(())).transpose())
    })??;
    Ok(packet.unwrap_or_default())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let bytes = arguments.next().transpose()?.unwrap_or(4096);
    let rounds = arguments.next().transpose()?.unwrap_or(20_000);
    let comm = Communicator::init()?;
    if comm.size() != 2 {
        return Err("start it with two ranks: halocline launch -n 2 -- packet_round".into());
    }
    let memory = HostMemory::of(&comm);
    let context = PacketContext::new(&comm, Arc::new(memory.clone()))?;
    let tag = PacketTag { operation: comm.begin(), channel: 0 };
    let mut number = 0;
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        comm.barrier()?;
        let begun = Instant::now();
        for _ in 0..rounds.div_ceil(BATCHES) {
            number += 1;
            let mut payload = memory.allocate(bytes)?;
            if let Some(first) = payload.bytes_mut().and_then(|bytes| bytes.first_mut()) {
                *first = number as u8;
            }
            let packet = round(&context, tag, number, Packet::new(vec![1; METADATA], Some(payload)))?;
            let found = packet.payload.as_ref().and_then(|payload| payload.bytes()?.first().copied());
            if packet.metadata.len() != METADATA || found != (bytes > 0).then_some(number as u8) {
                return Err(format!("round {number} brought other bytes: {found:?}").into());
            }
        }
        times.push(begun.elapsed().as_secs_f64() * 1e6 / rounds.div_ceil(BATCHES) as f64);
    }
    let messages = messages(&comm, bytes, rounds)?;
    let copy = copies(&comm, bytes, rounds)?;
    if comm.rank() == 0 {
        times.sort_by(f64::total_cmp);
        println!(
            "{bytes} bytes: median {:.2} us a round, best {:.2}; two messages of these lengths {messages:.2} us; one copy on both \
             ranks at once {copy:.2} us ({})",
            times[BATCHES / 2],
            times[0],
            comm.transport()
        );
    }
    comm.barrier()?;
    Ok(())
}

/// The median time of a round of two plain messages each way, as long as header and payload.
fn messages(comm: &Communicator, bytes: usize, rounds: usize) -> Result<f64, CommError> {
    let (tag, peer) = (Tag { operation: comm.begin(), round: 0 }, 1 - comm.rank());
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        comm.barrier()?;
        let begun = Instant::now();
        for _ in 0..rounds.div_ceil(BATCHES) {
            for bytes in [METADATA + 72, bytes] {
                comm.send(peer, tag, vec![1; bytes])?;
            }
            for _ in 0..2 {
                buffers::put(comm.receive(Some(peer), tag, "a message")?.payload);
            }
        }
        times.push(begun.elapsed().as_secs_f64() * 1e6 / rounds.div_ceil(BATCHES) as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[BATCHES / 2])
}

/// The median time of a copy of the payload, while the other rank copies, too.
fn copies(comm: &Communicator, bytes: usize, rounds: usize) -> Result<f64, CommError> {
    let (source, mut target) = (vec![1u8; bytes], vec![2u8; bytes]);
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        comm.barrier()?;
        let begun = Instant::now();
        for _ in 0..rounds.div_ceil(BATCHES) {
            std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source));
        }
        times.push(begun.elapsed().as_secs_f64() * 1e6 / rounds.div_ceil(BATCHES) as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[BATCHES / 2])
}
