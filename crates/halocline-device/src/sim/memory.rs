//! The memories of a world: real bytes, at addresses that the host can use only if it could on real
//! hardware.

use super::clock::Clock;
use super::remote::Mapped;
use super::shadow::Shadow;
use crate::driver::{Address, MemorySpace, Place, word_at};
use crate::error::DeviceError;
use crate::remote::Refusal;
use rustix::fd::OwnedFd;
use std::alloc::Layout;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// First device address. No process has addresses with these bits, so a host access to device memory
/// faults.
pub(super) const DEVICES: Address = 1 << 56;
/// Address space of one device.
const DEVICE: Address = 1 << 44;
const DEVICE_ALIGN: usize = 256;
const PAGE: usize = 4096;

/// Bytes within one memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) region: usize,
    pub(super) offset: usize,
    /// The mapping through which it is reached, if not by the address of its memory.
    pub(super) via: Option<usize>,
}

/// One memory.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) place: Place,
    pub(super) alive: bool,
    pub(super) shadow: Shadow,
    /// Why it cannot be exported, if so.
    pub(super) private: Option<Refusal>,
    /// Whether other devices cannot access it, even with peer access.
    pub(super) unshared: bool,
    data: *mut u8,
    home: Home,
    /// The clock of the last writer of each word.
    words: Vec<(usize, Clock)>,
}

/// Origin of the bytes of a memory.
#[derive(Debug)]
enum Home {
    /// Memory of the program.
    Given,
    Heap(Layout),
    /// A memfd of this process, for others to map.
    Shared(OwnedFd),
    /// Memory of another process.
    Imported,
    /// Freed.
    Gone,
}

// SAFETY: `data` is owned by the region, or kept valid by the caller of `register`, and is not bound to a
// thread. The world's lock guards the region.
unsafe impl Send for Region {}

/// All memories, including freed ones. Ids count from 1.
#[derive(Debug, Default)]
pub(super) struct Memories {
    regions: Vec<Region>,
    /// Bytes of address space that each device has used.
    given: Vec<u64>,
    /// Memory of this world mapped as if by another process, including closed mappings.
    mapped: Vec<Mapped>,
    /// Whether other processes can map device memory.
    shares: bool,
}

impl Region {
    pub(super) fn is_imported(&self) -> bool {
        matches!(self.home, Home::Imported)
    }

    /// The descriptor by which another process maps it.
    pub(super) fn descriptor(&self) -> Option<&OwnedFd> {
        if let Home::Shared(fd) = &self.home { Some(fd) } else { None }
    }

    pub(super) fn bytes(&self, range: &Range<usize>) -> super::report::Bytes {
        super::report::Bytes { space: self.place.space, id: self.place.id, range: range.clone() }
    }

    /// The clock of the last writer of a word.
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
        Self { given: vec![0; devices as usize], ..Self::default() }
    }

    /// Makes device memory mappable by other processes from now on.
    pub(super) fn share(&mut self) {
        self.shares = true;
    }

    pub(super) fn region(&self, index: usize) -> &Region {
        &self.regions[index]
    }

    pub(super) fn get(&self, index: usize) -> Option<&Region> {
        self.regions.get(index)
    }

    pub(super) fn region_mut(&mut self, index: usize) -> &mut Region {
        &mut self.regions[index]
    }

    /// Adds memory of the program, or newly allocated memory.
    pub(super) fn add(
        &mut self,
        space: MemorySpace,
        bytes: usize,
        given: Option<Address>,
    ) -> Result<Place, DeviceError> {
        let refused = DeviceError::OutOfMemory { space, bytes };
        let (data, home) = match given {
            Some(base) => (std::ptr::with_exposed_provenance_mut(base as usize), Home::Given),
            None if self.shares && space != MemorySpace::Host => {
                let (fd, data) = shared::create(bytes).map_err(|_| refused)?;
                (data, Home::Shared(fd))
            }
            None => {
                let align = if space == MemorySpace::Host { PAGE } else { DEVICE_ALIGN };
                let layout = Layout::from_size_align(bytes.max(1), align).map_err(|_| refused.clone())?;
                // SAFETY: `layout` has a size of at least 1.
                let data = unsafe { std::alloc::alloc_zeroed(layout) };
                if data.is_null() {
                    return Err(refused);
                }
                (data, Home::Heap(layout))
            }
        };
        if let MemorySpace::Device(_) = space {
            // SAFETY: `data` was allocated above with at least `bytes` bytes (given memory belongs to the
            // host), and nothing else uses it yet. A real device's fresh memory is not zero, either.
            unsafe { data.write_bytes(0xa5, bytes) };
        }
        Ok(self.enter(space, bytes, data, home))
    }

    fn enter(&mut self, space: MemorySpace, bytes: usize, data: *mut u8, home: Home) -> Place {
        let base = match space {
            MemorySpace::Host => data.expose_provenance() as Address,
            MemorySpace::Device(device) => self.give_address(device, bytes),
        };
        let place = Place { space, id: self.regions.len() as u64 + 1, base, bytes };
        let (shadow, words) = (Shadow::new(bytes), Vec::new());
        self.regions.push(Region {
            place,
            alive: true,
            shadow,
            private: None,
            unshared: false,
            data,
            home,
            words,
        });
        place
    }

    /// A new device address range.
    fn give_address(&mut self, device: u32, bytes: usize) -> Address {
        let given = &mut self.given[device as usize];
        let base = DEVICES + u64::from(device) * DEVICE + *given;
        // Gaps keep ranges from extending into the next memory.
        *given += (bytes.next_multiple_of(DEVICE_ALIGN) + DEVICE_ALIGN) as u64;
        base
    }

    /// Memory of another process, at a device address.
    pub(super) fn import(&mut self, device: u32, bytes: usize, fd: OwnedFd) -> Result<Place, Refusal> {
        let data = shared::open(bytes, &fd)?;
        Ok(self.enter(MemorySpace::Device(device), bytes, data, Home::Imported))
    }

    /// Adds another address of a memory for a device. Returns the number of the mapping and the address.
    pub(super) fn map(&mut self, region: usize, device: u32) -> (usize, Address) {
        let bytes = self.regions[region].place.bytes;
        let base = self.give_address(device, bytes);
        self.mapped.push(Mapped { base, bytes, region, device, is_open: true });
        (self.mapped.len() - 1, base)
    }

    pub(super) fn mapped(&self, index: usize) -> &Mapped {
        &self.mapped[index]
    }

    pub(super) fn unmap(&mut self, index: usize) {
        self.mapped[index].is_open = false;
    }

    /// Whether the memory, and the mapping through which it is reached, still exist.
    pub(super) fn is_there(&self, spot: Spot) -> bool {
        self.regions[spot.region].alive && spot.via.is_none_or(|via| self.mapped[via].is_open)
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

    /// Resolves a range that lies in one existing memory.
    pub(super) fn find(&self, address: Address, bytes: usize) -> Result<Spot, DeviceError> {
        let holds = |region: &Region| {
            let Place { base, bytes: len, .. } = region.place;
            region.alive && (base..base + len.max(1) as u64).contains(&address)
        };
        let own = || self.regions.iter().rposition(holds).map(|region| (region, None));
        let maps = |mapped: &Mapped| {
            mapped.is_open && (mapped.base..mapped.base + mapped.bytes as u64).contains(&address)
        };
        let mapped = || self.mapped.iter().rposition(maps).map(|via| (self.mapped[via].region, Some(via)));
        let Some((region, via)) = own().or_else(mapped) else {
            return Err(DeviceError::NotReachable { address, bytes });
        };
        let len = self.regions[region].place.bytes;
        let base = via.map_or(self.regions[region].place.base, |via| self.mapped[via].base);
        let offset = (address - base) as usize;
        if bytes > len - offset {
            return Err(DeviceError::OutOfBounds { address, bytes, base, len });
        }
        Ok(Spot { region, offset, via })
    }

    /// The device of an address, whether or not memory exists there.
    pub(super) fn device_of(&self, address: Address) -> Option<u32> {
        let device = address.checked_sub(DEVICES)? / DEVICE;
        (device < self.given.len() as u64).then_some(device as u32)
    }

    pub(super) fn pointer(&self, spot: Spot, bytes: usize) -> *mut u8 {
        let region = &self.regions[spot.region];
        assert!(region.alive && spot.offset + bytes <= region.place.bytes, "checked by the caller");
        region.data.wrapping_add(spot.offset)
    }

    /// Copies bytes between existing memories.
    pub(super) fn copy(&mut self, target: Spot, source: Spot, bytes: usize) {
        let (to, from) = (self.pointer(target, bytes), self.pointer(source, bytes));
        // SAFETY: `pointer` has checked that both ranges lie in existing memory. `copy` allows overlap. The
        // caller that issued the copy promises that nothing else uses them meanwhile.
        unsafe { std::ptr::copy(from, to, bytes) };
    }

    pub(super) fn slice(&self, spot: Spot, bytes: usize) -> &[u8] {
        // SAFETY: `pointer` has checked that the range lies in existing memory; `&self` comes from the
        // world's lock, so no other stream writes it and it is not freed. The caller that issued the work
        // promises that the host does not write it meanwhile.
        unsafe { std::slice::from_raw_parts(self.pointer(spot, bytes), bytes) }
    }

    pub(super) fn slice_mut(&mut self, spot: Spot, bytes: usize) -> &mut [u8] {
        // SAFETY: `pointer` has checked that the range lies in existing memory; `&mut self` comes from the
        // world's lock, so no other stream uses it and it is not freed. The caller that issued the work
        // promises that the host does not use it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(spot, bytes), bytes) }
    }

    /// The word at a spot. Panics if it is not aligned to 8 bytes.
    fn word(&self, spot: Spot) -> &AtomicU64 {
        let word = self.pointer(spot, 8).expose_provenance() as Address;
        assert!(word.is_multiple_of(8), "no word lies at {word:#x}");
        // SAFETY: `pointer` has checked that 8 bytes exist, and they are aligned. They stay while `&self`
        // is borrowed from the world's lock. The caller that issued work on the word promises that only
        // atomic operations access it.
        unsafe { word_at(word) }
    }

    pub(super) fn load(&self, spot: Spot) -> u64 {
        self.word(spot).load(Ordering::Acquire)
    }

    pub(super) fn store(&mut self, spot: Spot, value: u64) {
        self.word(spot).store(value, Ordering::Release);
    }
}

impl Region {
    fn release(&mut self) {
        match std::mem::replace(&mut self.home, Home::Gone) {
            // SAFETY: `add` allocated `data` with this layout. `Home::Gone` in its place keeps it from being freed
            // again, and `pointer` gives nothing of a region that is not alive.
            Home::Heap(layout) => unsafe { std::alloc::dealloc(self.data, layout) },
            Home::Shared(_) | Home::Imported => shared::unmap(self.data, self.place.bytes),
            Home::Given | Home::Gone => {}
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.release();
    }
}

/// Device memory shared by processes: memfds, which vanish when the processes are killed.
mod shared {
    use super::PAGE;
    use crate::remote::Refusal;
    use rustix::fd::OwnedFd;
    use rustix::fs::{MemfdFlags, SealFlags};
    use rustix::mm::{MapFlags, ProtFlags};

    /// Prevents truncation of memory that others have mapped.
    const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

    fn size(bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(PAGE)
    }

    pub(super) fn create(bytes: usize) -> rustix::io::Result<(OwnedFd, *mut u8)> {
        let size = size(bytes).ok_or(rustix::io::Errno::NOMEM)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("halocline-simulated", flags)?;
        rustix::fs::ftruncate(&fd, size as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        let data = map(size, &fd)?;
        Ok((fd, data))
    }

    /// Maps memory whose size another process states.
    pub(super) fn open(bytes: usize, fd: &OwnedFd) -> Result<*mut u8, Refusal> {
        let size = size(bytes).ok_or(Refusal::BadHandle)?;
        let sealed = rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SEALS));
        let is_so_long = rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_size as u64 == size as u64);
        if !sealed || !is_so_long {
            return Err(Refusal::BadHandle);
        }
        Ok(map(size, fd)?)
    }

    fn map(size: usize, fd: &OwnedFd) -> rustix::io::Result<*mut u8> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses an address that nothing else has, so that no memory of the process is replaced.
        Ok(unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, prot, flags, fd, 0)? }.cast())
    }

    pub(super) fn unmap(data: *mut u8, bytes: usize) {
        let size = size(bytes).unwrap_or(PAGE);
        // SAFETY: `map` mapped `data` with this size. `Region::release` alone calls this, once: `Home::Gone` replaces
        // the home of the region, and `pointer` gives nothing of it any more.
        let unmapped = unsafe { rustix::mm::munmap(data.cast(), size) };
        debug_assert!(unmapped.is_ok());
    }
}
