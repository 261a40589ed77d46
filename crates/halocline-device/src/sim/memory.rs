//! The memories of a world: real bytes, at addresses that the host can use only where a real device's host could.

use super::clock::Clock;
use super::shadow::Shadow;
use crate::driver::{Address, MemorySpace, Place, word_at};
use crate::error::DeviceError;
use std::alloc::Layout;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Addresses of devices begin here: no address of a process has these bits, so that a host that dereferences one
/// is killed by the machine.
const DEVICES: Address = 1 << 56;
/// Address space of one device.
const DEVICE: Address = 1 << 44;
const DEVICE_ALIGN: usize = 256;
const PAGE: usize = 4096;

/// Bytes within one memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) region: usize,
    pub(super) offset: usize,
}

/// One memory.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) place: Place,
    pub(super) alive: bool,
    pub(super) shadow: Shadow,
    data: *mut u8,
    /// How it was allocated; none for memory of the program.
    layout: Option<Layout>,
    /// What the last writer of each word had seen.
    words: Vec<(usize, Clock)>,
}

// SAFETY: plain bytes, accessed by whoever holds the baton.
unsafe impl Send for Region {}

/// All memories, also those that were freed. Their ids count from 1.
#[derive(Debug, Default)]
pub(super) struct Memories {
    regions: Vec<Region>,
    /// Bytes of address space that each device has given.
    given: Vec<u64>,
}

impl Region {
    pub(super) fn bytes(&self, range: &Range<usize>) -> super::report::Bytes {
        super::report::Bytes { space: self.place.space, id: self.place.id, range: range.clone() }
    }

    /// What the last writer of a word had seen.
    pub(super) fn word(&self, offset: usize) -> Option<&Clock> {
        self.words.iter().find(|(at, _)| *at == offset).map(|(_, clock)| clock)
    }

    pub(super) fn set_word(&mut self, offset: usize, clock: &Clock) {
        match self.words.iter_mut().find(|(at, _)| *at == offset) {
            Some((_, known)) => known.clone_from(clock),
            None => self.words.push((offset, clock.clone())),
        }
    }
}

impl Memories {
    pub(super) fn new(devices: u32) -> Self {
        Self { regions: Vec::new(), given: vec![0; devices as usize] }
    }

    pub(super) fn region(&self, index: usize) -> &Region {
        &self.regions[index]
    }

    pub(super) fn region_mut(&mut self, index: usize) -> &mut Region {
        &mut self.regions[index]
    }

    /// Bytes of the program's, or fresh ones.
    pub(super) fn add(
        &mut self,
        space: MemorySpace,
        bytes: usize,
        given: Option<Address>,
    ) -> Result<Place, DeviceError> {
        let refused = DeviceError::OutOfMemory { space, bytes };
        let align = if space == MemorySpace::Host { PAGE } else { DEVICE_ALIGN };
        let (data, layout) = match given {
            Some(base) => (std::ptr::with_exposed_provenance_mut(base as usize), None),
            None => {
                let layout = Layout::from_size_align(bytes.max(1), align).map_err(|_| refused.clone())?;
                // SAFETY: the layout has a size of at least 1.
                let data = unsafe { std::alloc::alloc_zeroed(layout) };
                if data.is_null() {
                    return Err(refused);
                }
                (data, Some(layout))
            }
        };
        let base = match space {
            MemorySpace::Host => data.expose_provenance() as Address,
            MemorySpace::Device(device) => {
                // SAFETY: fresh bytes of that size. Not zero, as on a real device.
                unsafe { data.write_bytes(0xa5, bytes) };
                let given = &mut self.given[device as usize];
                let base = DEVICES + u64::from(device) * DEVICE + *given;
                // A gap, so that no range reaches from one memory into the next.
                *given += (bytes.next_multiple_of(DEVICE_ALIGN) + DEVICE_ALIGN) as u64;
                base
            }
        };
        let place = Place { space, id: self.regions.len() as u64 + 1, base, bytes };
        let shadow = Shadow::new(bytes);
        self.regions.push(Region { place, alive: true, shadow, data, layout, words: Vec::new() });
        Ok(place)
    }

    /// The memory that begins at an address.
    pub(super) fn based_at(&self, base: Address) -> Option<usize> {
        self.regions.iter().rposition(|region| region.alive && region.place.base == base)
    }

    pub(super) fn free(&mut self, index: usize) {
        let region = &mut self.regions[index];
        region.alive = false;
        region.release();
    }

    /// Where a range lies, if it lies in one memory that is there.
    pub(super) fn find(&self, address: Address, bytes: usize) -> Result<Spot, DeviceError> {
        let holds = |region: &Region| {
            let Place { base, bytes: len, .. } = region.place;
            region.alive && (base..base + len.max(1) as u64).contains(&address)
        };
        let Some(region) = self.regions.iter().rposition(holds) else {
            return Err(DeviceError::NotReachable { address, bytes });
        };
        let Place { base, bytes: len, .. } = self.regions[region].place;
        let offset = (address - base) as usize;
        if bytes > len - offset {
            return Err(DeviceError::OutOfBounds { address, bytes, base, len });
        }
        Ok(Spot { region, offset })
    }

    /// Whose address it is, were it memory: also one that was freed, or never given.
    pub(super) fn device_of(&self, address: Address) -> Option<u32> {
        let device = address.checked_sub(DEVICES)? / DEVICE;
        (device < self.given.len() as u64).then_some(device as u32)
    }

    fn pointer(&self, spot: Spot, bytes: usize) -> *mut u8 {
        let region = &self.regions[spot.region];
        assert!(region.alive && spot.offset + bytes <= region.place.bytes, "checked by the caller");
        region.data.wrapping_add(spot.offset)
    }

    /// Copies bytes between memories that are there.
    pub(super) fn copy(&mut self, target: Spot, source: Spot, bytes: usize) {
        let (to, from) = (self.pointer(target, bytes), self.pointer(source, bytes));
        // SAFETY: both are valid for `bytes`: checked by `pointer`. They may overlap.
        unsafe { std::ptr::copy(from, to, bytes) };
    }

    pub(super) fn slice(&self, spot: Spot, bytes: usize) -> &[u8] {
        // SAFETY: valid for `bytes`, checked by `pointer`; whoever holds the baton alone accesses it.
        unsafe { std::slice::from_raw_parts(self.pointer(spot, bytes), bytes) }
    }

    pub(super) fn slice_mut(&mut self, spot: Spot, bytes: usize) -> &mut [u8] {
        // SAFETY: as in `slice`.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(spot, bytes), bytes) }
    }

    pub(super) fn load(&self, spot: Spot) -> u64 {
        let word = self.pointer(spot, 8).expose_provenance() as Address;
        // SAFETY: 8 valid bytes, at a multiple of 8: checked when the operation was given.
        unsafe { word_at(word) }.load(Ordering::Acquire)
    }

    pub(super) fn store(&mut self, spot: Spot, value: u64) {
        let word = self.pointer(spot, 8).expose_provenance() as Address;
        // SAFETY: as in `load`.
        unsafe { word_at(word) }.store(value, Ordering::Release);
    }
}

impl Region {
    fn release(&mut self) {
        if let Some(layout) = self.layout.take() {
            // SAFETY: allocated with this layout, once; `alive` is false, or the world is over.
            unsafe { std::alloc::dealloc(self.data, layout) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.release();
    }
}
