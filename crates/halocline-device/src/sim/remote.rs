//! Sharing of simulated device memory with other processes. Within a world, where ranks simulate processes,
//! a mapping is another address of the same memory; between processes it is a memfd.

use super::World;
use super::call::SimDriver;
use super::memory::{Memories, Spot};
use super::state::State;
use crate::driver::{Address, Driver, MemorySpace};
use crate::remote::{Allocation, DeviceId, Export, Kind, Opened, Provider, Refusal};
use crate::{Device, DeviceError};
use rustix::io::Errno;

/// Number of provider calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Calls {
    /// Memory exported.
    pub exports: u64,
    /// Memory of others opened.
    pub opens: u64,
    /// Memory of others closed.
    pub closes: u64,
    /// Look-ups of allocations.
    pub looks: u64,
}

/// Memory of this world as mapped by a simulated process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapped {
    pub(super) base: Address,
    pub(super) bytes: usize,
    pub(super) region: usize,
    /// The device that accesses it.
    pub(super) device: u32,
    pub(super) is_open: bool,
}

impl World {
    /// Makes the memory that begins at an address unexportable, for a reason.
    pub fn refuse_export(&self, base: Address, why: Refusal) -> Result<(), DeviceError> {
        let mut state = self.lock();
        let spot = state.memories.find(base, 1)?;
        state.memories.region_mut(spot.region).private = Some(why);
        Ok(())
    }

    /// Makes the memory that begins at an address inaccessible to other devices, like memory of a pool.
    pub fn keep_from_peers(&self, base: Address) -> Result<(), DeviceError> {
        let mut state = self.lock();
        let spot = state.memories.find(base, 1)?;
        state.memories.region_mut(spot.region).unshared = true;
        Ok(())
    }

    /// Sets the refusals of the device's next opens of others' memory, last first.
    pub fn refuse_opens(&self, device: &Device, why: impl IntoIterator<Item = Refusal>) {
        self.lock().devices[device.ordinal() as usize].refusals.extend(why);
    }

    /// Makes exports of the device's memory slow: each lets other tasks run this often.
    pub fn delay_exports(&self, device: &Device, pauses: u32) {
        self.lock().devices[device.ordinal() as usize].export_pauses = pauses;
    }

    /// Limits the size of a device's allocations.
    pub fn refuse_allocations_beyond(&self, device: &Device, bytes: usize) {
        self.lock().devices[device.ordinal() as usize].largest = Some(bytes);
    }

    /// Number of provider calls so far.
    pub fn mapping_calls(&self) -> Calls {
        self.lock().mapping_calls
    }
}

/// The provider of one device.
pub(super) struct SimMemory {
    driver: SimDriver,
    world: World,
    device: u32,
}

/// Encodes opened memory: another address of this world's memory, or imported memory.
fn key(index: usize, is_own: bool) -> u64 {
    2 * index as u64 + u64::from(is_own)
}

fn id_of(machine: usize, device: u32) -> DeviceId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&(device + 1).to_be_bytes());
    id[4..8].copy_from_slice(&std::process::id().to_be_bytes());
    id[8..].copy_from_slice(&(machine as u64).to_be_bytes());
    DeviceId(id)
}

impl SimDriver {
    pub(super) fn identity(&self) -> DeviceId {
        id_of(self.machine(), self.ordinal())
    }
}

impl SimMemory {
    pub(super) fn new(world: World, device: u32) -> Self {
        Self { driver: SimDriver::new(world.clone(), device), world, device }
    }

    /// The memory of an allocation, if it still exists.
    fn region(&self, state: &State, allocation: &Allocation) -> Result<usize, Refusal> {
        let spot = state.memories.find(allocation.base, 1).map_err(|_| Refusal::BadHandle)?;
        let found = self.describe(&state.memories, spot).ok_or(Refusal::BadHandle)?;
        if found == *allocation { Ok(spot.region) } else { Err(Refusal::BadHandle) }
    }

    fn describe(&self, memories: &Memories, spot: Spot) -> Option<Allocation> {
        let region = memories.region(spot.region);
        let MemorySpace::Device(device) = region.place.space else { return None };
        let is_own = spot.via.is_none() && !region.is_imported() && region.place.bytes > 0;
        let (base, bytes, id) = (region.place.base, region.place.bytes as u64, region.place.id);
        let device = id_of(self.driver.machine(), device);
        is_own.then_some(Allocation { base, bytes, id, device, kind: Kind::Simulated })
    }
}

// SAFETY: the world keeps bounds and identity of each allocation, checks them when it opens one, and holds an opened one until it is
// closed.
unsafe impl Provider for SimMemory {
    fn device(&self) -> DeviceId {
        self.driver.identity()
    }

    /// No other task runs, because the caller holds locks.
    fn find(&self, address: Address, _bytes: u64) -> Option<Allocation> {
        let mut state = self.world.lock();
        state.mapping_calls.looks += 1;
        let found = self.describe(&state.memories, state.memories.find(address, 1).ok()?)?;
        (found.device == self.device()).then_some(found)
    }

    fn export(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        let pauses = self.world.lock().devices[self.device as usize].export_pauses;
        (0..pauses).for_each(|_| self.world.pause());
        let mut state = self.world.lock();
        let region = self.region(&state, allocation)?;
        state.mapping_calls.exports += 1;
        let (memory, handle) = (state.memories.region(region), (region as u64).to_le_bytes().to_vec());
        if let Some(why) = memory.private {
            return Err(why);
        }
        let copies = memory.descriptor().into_iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0));
        let descriptors = copies.collect::<Result<_, Errno>>()?;
        Ok(Export { handle, descriptors })
    }

    fn open(&self, allocation: &Allocation, mut export: Export) -> Result<Opened, Refusal> {
        let mut call = self.driver.call(false).map_err(|_| Refusal::NoDevice)?;
        let state = &mut *call.state;
        if let Some(why) = state.devices[self.device as usize].refusals.pop() {
            return Err(why);
        }
        let region = u64::from_le_bytes(export.handle[..].try_into().map_err(|_| Refusal::BadHandle)?);
        // Same process and world; other processes describe their own memory.
        if allocation.device.0[4..] == self.device().0[4..] {
            let region = region as usize;
            let is_there = state.memories.get(region).is_some_and(|memory| memory.alive);
            let found =
                is_there.then(|| self.describe(&state.memories, Spot { region, offset: 0, via: None }));
            if found.flatten() != Some(*allocation) {
                return Err(Refusal::BadHandle);
            }
            let (index, address) = state.memories.map(region, self.device);
            state.mapping_calls.opens += 1;
            return Ok(Opened { address, key: key(index, false) });
        }
        let (Some(fd), Ok(bytes)) = (export.descriptors.pop(), usize::try_from(allocation.bytes)) else {
            return Err(Refusal::BadHandle);
        };
        let place = state.memories.import(self.device, bytes, fd)?;
        state.mapping_calls.opens += 1;
        Ok(Opened { address: place.base, key: key(place.id as usize - 1, true) })
    }

    unsafe fn close(&self, opened: Opened) -> Result<(), Refusal> {
        let index = (opened.key / 2) as usize;
        self.world.lock().mapping_calls.closes += 1;
        match opened.key % 2 {
            0 => self.driver.unmap(index),
            _ => self.driver.remove(opened.address, "close of a mapping"),
        }
        Ok(())
    }

    fn adopt(&self, allocation: &Allocation) -> Result<(), Refusal> {
        let mut state = self.world.lock();
        let region = self.region(&state, allocation)?;
        if let MemorySpace::Device(peer) = state.memories.region(region).place.space {
            state.devices[self.device as usize].peers.push(peer);
        }
        Ok(())
    }
}
