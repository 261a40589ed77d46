//! A ring of cells. Each rank owns a part, in device memory of any origin.

use crate::numbers::mix;
use crate::{Outcome, Trouble, ensure};
use halocline::device::{Address, Memory, Priority};
use halocline::{
    BindOptions, Communicator, Decomposed, Device, ElementType, Error, Field, Halo, HaloExchange, Layout,
    Pattern, RegularGrid, Stream,
};
use halocline_comm::mappings::Kind;
use std::any::Any;
use std::sync::Arc;

/// Device memory of any origin.
pub struct DeviceMemory {
    /// Its name.
    pub name: &'static str,
    /// Its first byte.
    pub address: Address,
    /// Frees it on drop.
    pub owner: Arc<dyn Any + Send + Sync>,
    /// How other processes can map it; none if they cannot.
    pub kind: Option<Kind>,
}

/// Cells of a rank, and of its halo at each end.
const OWNED: usize = 600;
const WIDTH: usize = 40;

/// The part of one rank.
pub struct Ring {
    pattern: Pattern,
    field: Field,
    stream: Stream,
    staged: Memory,
    address: Address,
    rank: usize,
    total: usize,
}

impl Ring {
    /// Bytes that it takes.
    pub const BYTES: usize = 8 * (OWNED + 2 * WIDTH);

    /// A part in memory at `address`, of which there are [`Ring::BYTES`]. Collective.
    pub fn new(
        comm: &Communicator,
        device: &Device,
        address: Address,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, Trouble> {
        let total = OWNED * comm.size();
        let grid = RegularGrid::new([total]).periodic([true]);
        let pattern = grid.decompose(comm.size())?.pattern(comm, Halo::uniform(WIDTH))?;
        let layout = Layout::c_order(ElementType::U64, &[OWNED + 2 * WIDTH])?;
        // SAFETY: so many bytes, which the owner keeps; only the exchanges and copies of this ring use them, in turn.
        let field = unsafe { Field::from_device(device, address, layout, owner) }?;
        let (stream, staged) = (device.stream(Priority::Normal)?, device.allocate_pinned(Self::BYTES)?);
        Ok(Self { pattern, field, stream, staged, address, rank: comm.rank(), total })
    }

    /// Binds it. Collective.
    pub fn bind(&self, comm: &Communicator, options: &BindOptions) -> Result<HaloExchange, Error> {
        HaloExchange::bind_with(comm, [(&self.pattern, &self.field)], options)
    }

    /// Its first byte.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The stream that its steps are given to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Cell `at` of the array in a step.
    fn value(&self, step: u64, at: usize) -> u64 {
        let cell = (OWNED * self.rank + self.total + at - WIDTH) % self.total;
        mix(step ^ mix(cell as u64))
    }

    /// Fills the owned cells for a step, and all others with what belongs to none.
    pub fn fill(&self, step: u64) -> Outcome {
        let owned = WIDTH..WIDTH + OWNED;
        // SAFETY: copies from and to it are over; the device's memory is this ring's, with no exchange in flight.
        unsafe {
            let bytes = self.staged.bytes_mut(0..Self::BYTES);
            for (at, cell) in bytes.chunks_exact_mut(8).enumerate() {
                let value = if owned.contains(&at) { self.value(step, at) } else { !step };
                cell.copy_from_slice(&value.to_le_bytes());
            }
            self.stream.copy(self.address, self.staged.at(0), Self::BYTES)?;
        }
        Ok(self.stream.synchronise()?)
    }

    /// Checks that all cells are those of a step.
    pub fn check(&self, step: u64) -> Outcome {
        // SAFETY: the copy is over before the bytes are read.
        let bytes = unsafe {
            self.stream.copy(self.staged.at(0), self.address, Self::BYTES)?;
            self.stream.synchronise()?;
            self.staged.bytes(0..Self::BYTES)
        };
        let cells = bytes.as_chunks().0.iter().map(|cell| u64::from_le_bytes(*cell));
        let wrong: Vec<usize> =
            cells.enumerate().filter(|(at, cell)| *cell != self.value(step, *at)).map(|(at, _)| at).collect();
        ensure!(wrong.is_empty(), "step {step}: {} cells are wrong, first {:?}", wrong.len(), wrong.first());
        Ok(())
    }

    /// One step.
    pub fn step(&self, halo: &HaloExchange, step: u64) -> Outcome {
        self.fill(step)?;
        halo.schedule_exchange(&[&self.stream])?.schedule_wait(&self.stream)?;
        self.check(step)?;
        // A peer may have begun to write for the next one.
        Ok(halo.wait()?)
    }
}
