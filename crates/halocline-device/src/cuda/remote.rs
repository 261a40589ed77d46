//! Shares memory of a GPU with other processes. Memory of `cudaMalloc` uses legacy IPC handles. Virtual
//! memory (`cuMemCreate`) uses a file descriptor for each physical memory, mapped side by side. Exportable
//! memory pools use one file descriptor of the pool, and export data of each pointer. The attributes of an
//! address determine its kind.

mod open;
pub(super) mod opened;

use super::api::{Api, IpcHandle, code};
use super::context::Current;
use super::gpu::CudaDriver;
use crate::driver::{Address, Driver};
use crate::error::DeviceError;
use crate::remote::{Allocation, DeviceId, Export, Kind, Opened, Provider, Refusal, once_nothing_waits};
use rustix::fd::{FromRawFd, OwnedFd};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Attribute codes of addresses.
const MEMORY_TYPE: c_int = 2;
const BUFFER_ID: c_int = 7;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const IS_LEGACY_CAPABLE: c_int = 10;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
const ALLOWED_HANDLE_TYPES: c_int = 14;
const POOL: c_int = 17;
const MAPPING_SIZE: c_int = 18;
const MAPPING_BASE: c_int = 19;
const MEMORY_BLOCK_ID: c_int = 20;
const MEMORY_DEVICE: c_uint = 2;

/// Handle type: file descriptor.
const POSIX: c_int = 1;
/// Lets the driver enable peer access when a handle is opened.
const LAZY_PEER_ACCESS: c_uint = 1;

/// Maximum bytes of a pool allocation: drivers of CUDA 13.0 were reported to crash when they import more
/// than 5.1 GiB.
const POOL_MOST: u64 = 4 << 30;

/// Name of a process's pool in handles.
type PoolName = [u8; 16];

/// The provider of a GPU, shared by all holders. The first call may block for a second.
pub fn provider(ordinal: u32) -> Result<Arc<dyn Provider>, DeviceError> {
    static KNOWN: Mutex<BTreeMap<u32, Weak<CudaMemory>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = known.get(&ordinal).and_then(Weak::upgrade) {
        return Ok(there);
    }
    let driver = CudaDriver::open(ordinal)?;
    let id = driver.id_of(ordinal)?;
    let made = Arc::new(CudaMemory { driver, id, opened: Mutex::default() });
    known.insert(ordinal, Arc::downgrade(&made));
    Ok(made)
}

struct CudaMemory {
    driver: Arc<CudaDriver>,
    id: DeviceId,
    opened: Mutex<Table>,
}

/// Open mappings.
#[derive(Default)]
struct Table {
    last: u64,
    mappings: HashMap<u64, Open>,
    /// Pools of other processes, and the number of their open pointers.
    pools: HashMap<PoolName, (usize, usize)>,
}

enum Open {
    Legacy(Address),
    Vmm(Address, usize),
    Pool(Address, PoolName),
}

/// One physical memory and its mapped address.
#[derive(Clone, Copy)]
struct Piece {
    base: Address,
    bytes: u64,
    id: u64,
}

impl Piece {
    /// First byte, length and combined identity of adjacent pieces.
    fn whole(pieces: &[Self]) -> Option<(Address, u64, u64)> {
        let (first, last) = (pieces.first()?, pieces.last()?);
        // A single piece keeps its own identity. The mixing step is invertible and depends on all earlier
        // bits, so reordered pieces, or pieces with adjacent numbers, get other identities.
        let mix = |id: u64| (id ^ id >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = pieces[1..].iter().fold(first.id, |id, piece| mix(id).rotate_left(31) ^ piece.id);
        Some((first.base, last.base + last.bytes - first.base, id))
    }
}

impl CudaDriver {
    pub(super) fn id_of(&self, ordinal: u32) -> Result<DeviceId, DeviceError> {
        let (mut device, mut uuid) = (0, [0; 16]);
        self.check("cuDeviceGet", (self.api.device)(&mut device, ordinal as c_int))?;
        self.check("cuDeviceGetUuid", (self.api.device_uuid)(&mut uuid, device))?;
        Ok(DeviceId(uuid))
    }
}

/// The meaning of a result for a mapping.
fn refusal(result: c_int) -> Refusal {
    match result {
        code::OUT_OF_MEMORY => Refusal::OutOfMemory,
        code::ALREADY_MAPPED => Refusal::AlreadyOpen,
        code::PEER_ACCESS_UNSUPPORTED | code::TOO_MANY_PEERS => Refusal::NoPeerAccess,
        code::INVALID_DEVICE | code::NO_DEVICE => Refusal::NoDevice,
        code::INVALID_VALUE | code::INVALID_HANDLE | code::MAP_FAILED => Refusal::BadHandle,
        other => Refusal::Other(other),
    }
}

fn check(result: c_int) -> Result<(), Refusal> {
    if result == code::SUCCESS { Ok(()) } else { Err(refusal(result)) }
}

/// Closing after driver shutdown is no failure: everything is closed.
fn check_close(result: c_int) -> Result<(), Refusal> {
    if result == code::DEINITIALIZED { Ok(()) } else { check(result) }
}

impl CudaMemory {
    fn api(&self) -> &'static Api {
        self.driver.api
    }

    /// The device's context is current while the result exists.
    fn enter(&self) -> Result<Current, Refusal> {
        self.driver.primary().make_current_beside_captures().map_err(refusal)
    }

    fn opened(&self) -> MutexGuard<'_, Table> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attributes of an address, if known.
    fn ask<const N: usize>(&self, address: Address, attributes: [c_int; N]) -> Option<[u64; N]> {
        self.driver.attributes(address, attributes).ok()
    }

    /// The allocation around an address, and the ordinal of its device.
    fn describe(&self, address: Address, bytes: u64) -> Option<(u32, Allocation)> {
        let attributes = [
            MEMORY_TYPE,
            IS_MANAGED,
            DEVICE_ORDINAL,
            BUFFER_ID,
            RANGE_START,
            RANGE_SIZE,
            POOL,
            IS_LEGACY_CAPABLE,
        ];
        let [memory, managed, ordinal, id, base, length, pool, legacy] = self.ask(address, attributes)?;
        let is_flag = |value: u64| value as u8 != 0;
        if memory as c_uint != MEMORY_DEVICE || is_flag(managed) || base == 0 || length == 0 {
            return None;
        }
        let ordinal = ordinal as u32;
        let device =
            if ordinal == self.driver.ordinal { self.id } else { self.driver.id_of(ordinal).ok()? };
        let allocation = |kind| Allocation { base, bytes: length, id, device, kind };
        if pool != 0 {
            return Some((ordinal, allocation(Kind::Pool)));
        }
        if is_flag(legacy) {
            return Some((ordinal, allocation(Kind::Legacy)));
        }
        let pieces = self.pieces(address, bytes);
        let (base, mut length, id) = Piece::whole(&pieces)?;
        if pieces.len() > Export::MOST_DESCRIPTORS {
            // The length includes unexportable memory, so that the export fails.
            length = length.max(address.saturating_add(bytes) - base);
        }
        Some((ordinal, Allocation { base, bytes: length, id, device, kind: Kind::Vmm }))
    }

    /// The adjacent physical memories that hold `bytes` bytes; at most one more than can be exported.
    fn pieces(&self, address: Address, bytes: u64) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut at, end) = (address, address.saturating_add(bytes.max(1)));
        while at < end && pieces.len() <= Export::MOST_DESCRIPTORS {
            let found = self.ask(at, [MAPPING_BASE, MAPPING_SIZE, MEMORY_BLOCK_ID]);
            let Some([base, bytes, id]) = found.filter(|[base, bytes, _]| *base != 0 && *bytes != 0) else {
                break;
            };
            pieces.push(Piece { base, bytes, id });
            at = base + bytes;
        }
        pieces
    }

    fn export_legacy(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: CUDA writes the 64 bytes of `handle`. It looks the address up and does not access it.
        check(unsafe { (self.api().ipc_handle)(&mut handle, allocation.base) })?;
        Ok(Export { handle: handle.0.to_vec(), descriptors: Vec::new() })
    }

    fn export_vmm(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        let pieces = self.pieces(allocation.base, allocation.bytes);
        if pieces.len() > Export::MOST_DESCRIPTORS {
            return Err(Refusal::TooManyPieces);
        }
        let mut export = Export::default();
        for piece in pieces {
            let [types] = self.ask(piece.base, [ALLOWED_HANDLE_TYPES]).ok_or(Refusal::BadHandle)?;
            if types & POSIX as u64 == 0 {
                return Err(Refusal::NoHandleType);
            }
            let (mut memory, mut fd): (u64, c_int) = (0, -1);
            // SAFETY: CUDA looks the address up and writes one handle to `memory`, which holds the physical memory
            // until it is released.
            check(unsafe { (self.api().retain_memory)(&mut memory, piece.base) })?;
            // SAFETY: `memory` was retained above. CUDA writes one descriptor to `fd`: that is what a handle of the
            // type `POSIX` is.
            let exported = unsafe { (self.api().export_memory)((&raw mut fd).cast(), memory, POSIX, 0) };
            // SAFETY: `memory` was retained above, once, and is not used afterwards.
            unsafe { (self.api().release_memory)(memory) };
            check(exported)?;
            export.descriptors.push(own(fd)?);
            export.handle.extend_from_slice(&piece.bytes.to_le_bytes());
        }
        Ok(export)
    }

    fn export_pool(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        if allocation.bytes > POOL_MOST {
            return Err(Refusal::TooLarge);
        }
        let [pool] = self.ask(allocation.base, [POOL]).ok_or(Refusal::BadHandle)?;
        let (mut fd, mut data): (c_int, _) = (-1, [0u8; 64]);
        // SAFETY: `pool` is what CUDA has just returned as the pool of the allocation, and a pool lives as long as
        // memory of it. CUDA writes one descriptor to `fd`: that is what a handle of the type `POSIX` is.
        let exported = unsafe { (self.api().export_pool)((&raw mut fd).cast(), pool as usize, POSIX, 0) };
        if exported != code::SUCCESS {
            return Err(Refusal::DefaultPool);
        }
        let descriptors = vec![own(fd)?];
        // A pointer can be exported only after its pool.
        // SAFETY: CUDA writes a `CUmemPoolPtrExportData`, which has 64 bytes, to `data`. It looks the address up and
        // does not access it.
        check(unsafe { (self.api().export_pointer)((&raw mut data).cast(), allocation.base) })?;
        let handle = [&data[..], &random_number().to_le_bytes(), &pool.to_le_bytes()].concat();
        Ok(Export { handle, descriptors })
    }
}

/// A descriptor that the driver created.
fn own(fd: c_int) -> Result<OwnedFd, Refusal> {
    if fd < 0 {
        return Err(Refusal::BadHandle);
    }
    // SAFETY: CUDA opened the descriptor for the caller of the export, which alone owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // A child program must not keep the memory alive.
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
        .map_err(|errno| Refusal::Other(errno.raw_os_error()))?;
    Ok(fd)
}

/// Distinguishes processes in pool names.
fn random_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| RandomState::new().build_hasher().finish())
}

// SAFETY: bounds and identities come from the driver. An opened mapping is verified against the announced
// allocation, and stays mapped until it is closed.
unsafe impl Provider for CudaMemory {
    fn device(&self) -> DeviceId {
        self.id
    }

    fn find(&self, address: Address, bytes: u64) -> Option<Allocation> {
        let _current = self.enter().ok()?;
        let (ordinal, allocation) = self.describe(address, bytes)?;
        (ordinal == self.driver.ordinal).then_some(allocation)
    }

    /// One driver call, or one for each physical memory of virtual memory; attributes need no context.
    fn still(&self, allocation: &Allocation) -> bool {
        let Allocation { base, bytes, id, kind, .. } = *allocation;
        match kind {
            Kind::Vmm => Piece::whole(&self.pieces(base, bytes)) == Some((base, bytes, id)),
            _ => self.ask(base, [BUFFER_ID, RANGE_START, RANGE_SIZE]) == Some([id, base, bytes]),
        }
    }

    fn export(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        let _current = self.enter()?;
        match allocation.kind {
            Kind::Legacy => self.export_legacy(allocation),
            Kind::Vmm => self.export_vmm(allocation),
            Kind::Pool => self.export_pool(allocation),
            Kind::Memfd | Kind::Simulated => Err(Refusal::BadHandle),
        }
    }

    fn open(&self, allocation: &Allocation, export: Export) -> Result<Opened, Refusal> {
        let _current = self.enter()?;
        let open = match allocation.kind {
            Kind::Legacy => {
                let handle = IpcHandle(export.handle[..].try_into().map_err(|_| Refusal::BadHandle)?);
                let mut address = 0;
                // SAFETY: `handle` is passed by value, and CUDA checks it. CUDA writes one address to `address`.
                check(unsafe { (self.api().open_ipc)(&mut address, handle, LAZY_PEER_ACCESS) })?;
                Open::Legacy(address)
            }
            Kind::Vmm => self.open_vmm(allocation, &export)?,
            Kind::Pool => self.open_pool(allocation.bytes, &export)?,
            Kind::Memfd | Kind::Simulated => return Err(Refusal::NoPeerAccess),
        };
        let (Open::Legacy(address) | Open::Vmm(address, _) | Open::Pool(address, _)) = open;
        if !self.holds(&open, allocation.bytes) {
            if let Open::Legacy(address) = open {
                let (api, primary) = (self.api(), Arc::clone(self.driver.primary()));
                once_nothing_waits(move || {
                    if let Ok(_current) = primary.make_current_beside_captures() {
                        // SAFETY: `open_ipc` returned `address`, it is closed once, and it was not returned
                        // to the caller.
                        let closed = check(unsafe { (api.close_ipc)(address) });
                        if let Err(why) = closed {
                            tracing::error!("memory that is shorter than announced cannot be closed: {why}");
                        }
                    }
                });
            } else {
                self.close_open(open)?;
            }
            return Err(Refusal::BadHandle);
        }
        opened::note(self.driver.ordinal, address, allocation.bytes);
        let mut table = self.opened();
        table.last += 1;
        let key = table.last;
        table.mappings.insert(key, open);
        Ok(Opened { address, key })
    }

    unsafe fn close(&self, opened: Opened) -> Result<(), Refusal> {
        let open = self.opened().mappings.remove(&opened.key).ok_or(Refusal::BadHandle)?;
        opened::forget(self.driver.ordinal, opened.address);
        let _current = match self.driver.primary().make_current_beside_captures() {
            Err(code::DEINITIALIZED) => return Ok(()),
            current => current.map_err(refusal)?,
        };
        self.close_open(open)
    }

    /// Measured: closing memory of `cudaMalloc` waits; closing virtual memory and pools does not.
    fn close_waits(&self, opened: &Opened) -> bool {
        matches!(self.opened().mappings.get(&opened.key), Some(Open::Legacy(_)))
    }

    fn adopt(&self, allocation: &Allocation) -> Result<(), Refusal> {
        let _current = self.enter()?;
        let found = self.describe(allocation.base, allocation.bytes);
        let (ordinal, _) = found.filter(|(_, found)| found == allocation).ok_or(Refusal::BadHandle)?;
        if ordinal == self.driver.ordinal {
            return Ok(());
        }
        // Pools and virtual memory are shared by their creator.
        if !self.driver.lets_reach(allocation.base, allocation.bytes as usize, self.driver.ordinal) {
            return Err(Refusal::NoPeerAccess);
        }
        self.driver.enable_peer(ordinal).map_err(|error| match error {
            DeviceError::Refused { code, .. } => refusal(code),
            _ => Refusal::NoPeerAccess,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn other_pieces_in_the_same_place_make_another_identity() {
        let whole = |ids: &[u64]| {
            let piece = |(at, &id)| Piece { base: 0x1000 + 0x100 * at as u64, bytes: 0x100, id };
            Piece::whole(&ids.iter().enumerate().map(piece).collect::<Vec<_>>()).expect("there are pieces").2
        };
        assert_eq!(whole(&[5]), 5);
        // Consecutive numbers, as drivers use.
        let pairs: BTreeSet<u64> =
            (0..300).flat_map(|one| (0..300).map(move |other| whole(&[one, other]))).collect();
        assert_eq!(pairs.len(), 300 * 300);
        // Two of 130 that change places.
        let ids: Vec<u64> = (1..=130).collect();
        let mut seen = BTreeSet::from([whole(&ids)]);
        for (one, other) in (0..130).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let mut ids = ids.clone();
            ids.swap(one, other);
            assert!(seen.insert(whole(&ids)), "pieces {other} and {one}");
        }
    }
}
