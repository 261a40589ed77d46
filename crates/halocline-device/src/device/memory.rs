//! Memory of a device.

use super::*;

/// Memory that devices can access, freed when dropped: all work that uses it must be done by then. Dropping
/// never blocks. If freeing waits for the device, it is deferred; memory that other processes have mapped
/// is freed once they have unmapped it ([`remote::Exporter`]).
///
/// ```
/// use halocline_device::{MemorySpace, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
///
/// let pinned = device.allocate_pinned(4096)?;
/// assert_eq!(pinned.place().space, MemorySpace::Host);
/// // SAFETY: nothing else accesses the word at byte 8.
/// let value = unsafe {
///     pinned.store(8, 7);
///     pinned.load(8)
/// };
/// assert_eq!(value, 7);
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct Memory {
    pub(super) device: Device,
    pub(super) place: Place,
    pub(super) kind: Kind,
    /// Owner of registered memory.
    pub(super) held: Option<Arc<dyn Any + Send + Sync>>,
    /// Mark of device memory that other processes can map.
    pub(super) own: Option<remote::Own>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Device,
    Pinned,
    Registered,
}

impl Memory {
    /// Its location and identity.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The address of the byte at `offset`.
    pub fn at(&self, offset: usize) -> Address {
        self.place.base + offset as u64
    }

    /// Loads the word at byte `offset` of pinned memory with acquire semantics. Panics if there is no such
    /// word.
    ///
    /// # Safety
    /// Only atomic operations, streams and copy tables write the word.
    pub unsafe fn load(&self, offset: usize) -> u64 {
        self.check_word(offset);
        // SAFETY: `check_word` has found the word in this pinned memory, at a multiple of 8 bytes. The caller promises
        // that nothing but atomic operations, streams and copy tables writes it.
        unsafe { self.device.0.load(self.at(offset)) }
    }

    /// Stores the word at byte `offset` of pinned memory with release semantics. Panics if there is no such
    /// word.
    ///
    /// # Safety
    /// Only atomic operations, streams and copy tables write the word.
    pub unsafe fn store(&self, offset: usize, value: u64) {
        self.check_word(offset);
        // SAFETY: `check_word` has found the word in this pinned memory, at a multiple of 8 bytes. The caller promises
        // that nothing but atomic operations, streams and copy tables writes it.
        unsafe { self.device.0.store(self.at(offset), value) }
    }

    /// The address at which a library that takes device memory may read, or write, these bytes; `None` if
    /// no library takes memory of this kind of device ([`Driver::handed_over`]). Panics if the range is out
    /// of bounds.
    pub fn handed_over(&self, range: Range<usize>, writes: bool) -> Option<NonNull<u8>> {
        assert!(
            range.start <= range.end && range.end <= self.place.bytes,
            "no bytes {range:?} in {:?}",
            self.place
        );
        self.device.0.handed_over(self.at(range.start), range.len(), writes)
    }

    fn check_word(&self, offset: usize) {
        let fits = offset.checked_add(8).is_some_and(|end| end <= self.place.bytes);
        let host = self.place.space == MemorySpace::Host;
        assert!(host && fits && self.at(offset).is_multiple_of(8), "no word of pinned memory at {offset}");
    }

    /// Bytes of pinned memory for the host to read. Panics if the range is out of bounds.
    ///
    /// # Safety
    /// Nothing writes them while the slice lives.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        let first = self.check_bytes(&range, false);
        // SAFETY: `check_bytes` has found the range in this pinned memory, which the host may read (contract of
        // `Driver`) and which lives as long as `self`. The caller promises that nothing writes it while the slice
        // lives.
        unsafe { std::slice::from_raw_parts(first, range.len()) }
    }

    /// Bytes of pinned memory for the host to write. Panics if the range is out of bounds.
    ///
    /// # Safety
    /// Nothing else accesses them while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "who may write is the caller's promise")]
    pub unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        let first = self.check_bytes(&range, true);
        // SAFETY: `check_bytes` has found the range in this pinned memory, which the host may write (contract of
        // `Driver`) and which lives as long as `self`. The caller promises that nothing else accesses it while the
        // slice lives.
        unsafe { std::slice::from_raw_parts_mut(first, range.len()) }
    }

    fn check_bytes(&self, range: &Range<usize>, writes: bool) -> *mut u8 {
        let host = self.place.space == MemorySpace::Host;
        assert!(
            host && range.start <= range.end && range.end <= self.place.bytes,
            "no bytes {range:?} of pinned memory in {:?}",
            self.place
        );
        self.device.0.host_access(self.at(range.start), range.len(), writes);
        std::ptr::with_exposed_provenance_mut(self.at(range.start) as usize)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (base, kind, held) = (self.place.base, self.kind, self.held.take());
        let free = move |driver: &dyn Driver| {
            // SAFETY: the driver returned `base` from the call that `kind` names, and only the drop of its
            // `Memory` frees it. Nothing uses the memory: callers that issue work on it promise to keep it
            // until the work is done, and memory mapped by other processes is freed only once they have
            // unmapped it.
            unsafe {
                match kind {
                    Kind::Device => driver.free(base),
                    Kind::Pinned => driver.free_pinned(base),
                    Kind::Registered => driver.unregister(base),
                }
            }
            held.into_iter().for_each(deferred_free::defer_drop);
        };
        let Some(own) = self.own.take() else { return self.device.free(free) };
        let (device, later) = (self.device.clone(), self.device.0.frees_wait().then(deferred_free::announce));
        remote::free_once_unmapped(own, move || {
            device.free(free);
            drop(later);
        });
    }
}
