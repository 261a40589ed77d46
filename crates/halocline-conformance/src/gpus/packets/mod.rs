//! Packets with payloads in memory of GPUs, between two ranks: values compared, then times beside the copy engine and beside MPI
//! alone, in one run. `examples/gpu_packets.rs` is the program.

mod times;
mod values;

use super::{Gpu, Gpus};
use crate::device_fixtures::Rig;
use crate::payloads::Payloads;
use crate::{Outcome, Trouble, ensure};
use halocline::Communicator;
use halocline_comm::mappings::{DeviceId, Mappings};
use halocline_comm::packet::{Packet, PacketContext, PacketError, PacketReceive, PacketSend, PacketTag};
use halocline_comm::{CommError, Endpoint, Patience};
use std::collections::HashSet;
use std::time::Duration;

/// Compares values, measures, and prints a table on rank 0. Collective over two ranks.
pub fn run(comm: &Communicator) -> Outcome {
    ensure!(comm.size() == 2, "{} ranks; start two: halocline launch -n 2 -- packets", comm.size());
    let bench = Bench::new(comm)?;
    values::check(&bench)?;
    times::measure(&bench)
}

/// A rank with its GPU, its memory for payloads, and packets to the other rank.
struct Bench<'a> {
    comm: &'a Communicator,
    gpu: &'a Gpu,
    memory: Payloads,
    context: PacketContext,
    tag: PacketTag,
    peer: usize,
    peer_device: Option<DeviceId>,
    /// GPUs of both ranks together.
    gpus: usize,
}

impl<'a> Bench<'a> {
    fn new(comm: &'a Communicator) -> Result<Self, Trouble> {
        let gpu = Gpus::get()?.of_rank(comm.rank());
        let memory = Payloads::new(comm, Some(gpu.device()))?;
        let context = PacketContext::new(comm, memory.resource())?;
        let devices = comm.all_gather(&context.device().map_or([0; 16], |id| id.0))?;
        let peer = 1 - comm.rank();
        let peer_device = devices[peer].first_chunk().filter(|id| **id != [0; 16]).map(|id| DeviceId(*id));
        let gpus = devices.into_iter().collect::<HashSet<_>>().len();
        let tag = PacketTag { operation: comm.begin(), channel: 0 };
        Ok(Self { comm, gpu, memory, context, tag, peer, peer_device, gpus })
    }

    fn say(&self, line: &str) {
        if self.comm.rank() == 0 {
            println!("{line}");
        }
    }

    /// How payloads travel between the ranks.
    fn path(&self) -> &'static str {
        match self.comm.link().bell(self.peer) {
            Some(_) => "direct",
            None => "staged",
        }
    }

    /// Requests of this rank that found a mapping, and those that were refused.
    fn mapped(&self) -> (u64, u64) {
        let stats = Mappings::of(self.comm).stats();
        (stats.hits, stats.staged)
    }

    /// Sends a packet to the other rank, receives one from there, or both.
    fn pass(&self, number: u64, send: Option<Packet>, receives: bool) -> Result<Option<Packet>, PacketError> {
        let to_peer = |packet| PacketSend::new(self.peer, self.tag, packet).to_device(self.peer_device);
        let mut send = send.map(|packet| to_peer(packet).numbered(number));
        let (mut receive, mut packet) = (None::<PacketReceive>, None);
        // No bell rings when a copy of the GPU is over: this rank polls.
        let patience = Patience { spin: Duration::from_secs(600), ..self.context.patience(None) };
        let mut step = || -> Result<bool, PacketError> {
            let is_sent = send.as_mut().map_or(Ok(true), |send| send.poll(&self.context))?;
            if receive.is_none() && receives {
                receive = PacketReceive::next(&self.context, self.peer, self.tag)?;
            }
            let Some(receive) = receive.as_mut() else { return Ok(is_sent && !receives) };
            let is_received = receive.poll(&self.context)?;
            packet = packet.take().or_else(|| receive.take());
            Ok(is_sent && is_received)
        };
        let link = self.comm.link();
        let poll = || step().map(|is_over| is_over.then_some(())).transpose();
        let what = || "a packet with a payload of a GPU".to_owned();
        patience.wait(
            link,
            poll,
            || {},
            || Duration::MAX,
            |late| match late {
                halocline_comm::Late::Interrupted => {
                    Some(Err(CommError::Interrupted { waiting: self.comm.rank(), what: what() }.into()))
                }
                _ => None,
            },
        )?;
        Ok(packet)
    }
}
