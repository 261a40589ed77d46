//! Upper limits of any transfer: plain stores of a kernel into a peer's memory, and the copy engine.

use super::super::Gpu;
use crate::{Outcome, Trouble, fail};
use halocline::device::{Memory, Stream, cuda};
use halocline::{Communicator, Device};
use halocline_comm::mappings::{Mapping, Mappings, Pinned, Target};

/// Blocks for each multiprocessor that stores are tried with.
pub(super) const SHARES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// Memory of the next rank, mapped here, and memory of this rank that the previous one has mapped.
pub(in super::super) struct Remote {
    source: Memory,
    mapping: Mapping,
    _pinned: Pinned,
    _target: Memory,
}

impl Remote {
    /// So many bytes of each rank's device. Collective.
    pub(in super::super) fn new(comm: &Communicator, device: &Device, bytes: usize) -> Result<Self, Trouble> {
        let mappings = Mappings::of(comm);
        let provider = cuda::provider(device.ordinal())?;
        let own = provider.device();
        mappings.attach(provider);
        let devices = comm.all_gather(&own.0)?;
        let (rank, size) = (comm.rank(), comm.size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let Some(id) = devices[previous].first_chunk() else { fail!("no device of rank {previous}") };
        let (source, target) = (device.allocate(bytes)?, device.allocate(bytes)?);
        let whom = Target { rank: previous, device: halocline_comm::mappings::DeviceId(*id) };
        let pinned = mappings.map(whom, target.at(0), bytes as u64)?;
        let gathered = [pinned.token(), pinned.offset()].map(u64::to_le_bytes).concat();
        let gathered = comm.all_gather(&gathered)?;
        let word = |at: usize| gathered[next].get(at..).and_then(|bytes| bytes.first_chunk()).copied();
        let (Some(token), Some(offset)) = (word(0), word(8)) else { fail!("no token of rank {next}") };
        let (token, offset) = (u64::from_le_bytes(token), u64::from_le_bytes(offset));
        let mapping = mappings.resolve(next, token, offset, bytes as u64)?;
        Ok(Self { source, mapping, _pinned: pinned, _target: target })
    }

    /// Gives a stream a kernel that stores so many bytes in the next rank's memory.
    pub(super) fn store(&self, gpu: &Gpu, stream: &Stream, bytes: usize, share: f64) -> Outcome {
        // SAFETY: both ends have as many bytes as were mapped, and live until the stream is through. The target is
        // there for this alone.
        Ok(unsafe { gpu.stores(stream, (self.mapping.address(), self.source.at(0)), bytes, share) }?)
    }

    /// Gives a stream a copy of so many bytes to the next rank's memory.
    pub(in super::super) fn copy(&self, stream: &Stream, bytes: usize) -> Outcome {
        // SAFETY: both ends have as many bytes as were mapped, and live until the stream is through. The target is
        // there for this alone.
        Ok(unsafe { stream.copy(self.mapping.address(), self.source.at(0), bytes) }?)
    }
    /// Gives a stream a copy of so many bytes from the next rank's memory.
    pub(in super::super) fn fetch(&self, stream: &Stream, bytes: usize) -> Outcome {
        // SAFETY: both ends have as many bytes as were mapped, and live until the stream is through. Both are there for
        // this alone.
        Ok(unsafe { stream.copy(self.source.at(0), self.mapping.address(), bytes) }?)
    }
}
