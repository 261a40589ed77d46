//! All kinds of GPU memory that other libraries allocate.

use super::raw::Raw;

/// The kind of allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// `cuMemAlloc`.
    Plain,
    /// `cuMemCreate`, in adjacent pieces of 2 MiB, exportable or not.
    Virtual { passed_on: bool },
    /// From an exportable pool.
    Pool,
    /// From the default pool of the GPU.
    DefaultPool,
}

/// `CUmemAllocationProp` of memory of a device.
#[repr(C)]
struct MemoryProperties {
    kind: i32,
    handle_types: i32,
    location_type: i32,
    location: i32,
    windows: usize,
    flags: u64,
}

/// `CUmemPoolProps` of a pool of a device.
#[repr(C)]
struct PoolProperties {
    kind: i32,
    handle_types: i32,
    location_type: i32,
    location: i32,
    windows: usize,
    rest: [u64; 8],
}

const PINNED: i32 = 1;
const DEVICE: i32 = 1;
const POSIX: i32 = 1;
const READ_AND_WRITE: i32 = 3;

/// Granularity of physical memory.
pub const PIECE: usize = 2 << 20;

fn address_of<T>(value: &T) -> usize {
    std::ptr::from_ref(value).expose_provenance()
}

/// Keeps the primary context of a GPU current.
pub struct Scope<'a>(&'a Raw, u32);

impl<'a> Scope<'a> {
    pub fn new(raw: &'a Raw, ordinal: u32) -> Self {
        let primary = raw.made("cuDevicePrimaryCtxRetain", ordinal as usize, 0);
        raw.call("cuCtxPushCurrent_v2", primary, 0, 0);
        Self(raw, ordinal)
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.0.made("cuCtxPopCurrent_v2", 0, 0);
        self.0.call("cuDevicePrimaryCtxRelease_v2", self.1 as usize, 0, 0);
    }
}

/// Free bytes of a GPU, over all processes.
pub fn free(raw: &Raw, ordinal: u32) -> usize {
    let _scope = Scope::new(raw, ordinal);
    let mut total = 0usize;
    raw.made("cuMemGetInfo_v2", (&raw mut total).expose_provenance(), 0)
}

/// Maps one more physical memory at a reserved address.
pub fn map_piece(raw: &Raw, ordinal: u32, at: usize, passed_on: bool) {
    let properties = MemoryProperties {
        kind: PINNED,
        handle_types: if passed_on { POSIX } else { 0 },
        location_type: DEVICE,
        location: ordinal as i32,
        windows: 0,
        flags: 0,
    };
    let access = [DEVICE, ordinal as i32, READ_AND_WRITE];
    let memory = raw.made_of("cuMemCreate", [PIECE, address_of(&properties), 0, 0]);
    raw.call_with("cuMemMap", [at, PIECE, 0, memory, 0]);
    raw.call_with("cuMemSetAccess", [at, PIECE, address_of(&access), 1, 0]);
    raw.call("cuMemRelease", memory, 0, 0);
}

/// An allocation, freed when dropped; all GPU work on it must be over by then.
pub struct Foreign {
    raw: Raw,
    ordinal: u32,
    sort: Sort,
    pub address: usize,
    bytes: usize,
    pool: usize,
}

impl Foreign {
    pub fn new(ordinal: u32, sort: Sort, bytes: usize) -> Self {
        let raw = Raw::new();
        let scope = Scope::new(&raw, ordinal);
        let (mut bytes, mut pool) = (bytes, 0);
        let address = match sort {
            Sort::Plain => raw.made("cuMemAlloc_v2", bytes, 0),
            Sort::Virtual { passed_on } => {
                bytes = bytes.next_multiple_of(PIECE);
                let base = raw.made_of("cuMemAddressReserve", [bytes, 0, 0, 0]);
                (base..base + bytes).step_by(PIECE).for_each(|at| map_piece(&raw, ordinal, at, passed_on));
                base
            }
            Sort::Pool => {
                let properties = PoolProperties {
                    kind: PINNED,
                    handle_types: POSIX,
                    location_type: DEVICE,
                    location: ordinal as i32,
                    windows: 0,
                    rest: [0; 8],
                };
                pool = raw.made("cuMemPoolCreate", address_of(&properties), 0);
                raw.made_of("cuMemAllocFromPoolAsync", [bytes, pool, 0, 0])
            }
            Sort::DefaultPool => raw.made("cuMemAllocAsync", bytes, 0),
        };
        raw.call("cuStreamSynchronize", 0, 0, 0);
        drop(scope);
        Self { raw, ordinal, sort, address, bytes, pool }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _scope = Scope::new(&self.raw, self.ordinal);
        match self.sort {
            Sort::Plain => self.raw.call("cuMemFree_v2", self.address, 0, 0),
            Sort::Virtual { .. } => {
                self.raw.call("cuMemUnmap", self.address, self.bytes, 0);
                self.raw.call("cuMemAddressFree", self.address, self.bytes, 0);
            }
            Sort::Pool | Sort::DefaultPool => {
                self.raw.call("cuMemFreeAsync", self.address, 0, 0);
                self.raw.call("cuStreamSynchronize", 0, 0, 0);
                if self.pool != 0 {
                    self.raw.call("cuMemPoolDestroy", self.pool, 0, 0);
                }
            }
        }
    }
}
