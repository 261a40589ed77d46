//! Location of addresses, and whether a GPU can access them.

use super::api::{Access, code};
use super::gpu::CudaDriver;
use super::remote::opened;
use crate::driver::{Address, MemorySpace, Place};
use crate::error::DeviceError;
use std::ffi::{c_int, c_uint, c_void};

/// Attribute codes of addresses.
const MEMORY_TYPE: c_int = 2;
const BUFFER_ID: c_int = 7;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
const IS_LEGACY_CAPABLE: c_int = 10;
const POOL: c_int = 17;
const MAPPING_SIZE: c_int = 18;
const MAPPING_BASE: c_int = 19;
const MEMORY_HOST: c_uint = 1;
const MEMORY_DEVICE: c_uint = 2;

impl CudaDriver {
    /// Attributes of an address, as 64-bit numbers; shorter ones are in the low bytes. The error is CUDA's
    /// result.
    pub(super) fn attributes<const N: usize>(
        &self,
        address: Address,
        attributes: [c_int; N],
    ) -> Result<[u64; N], c_int> {
        let mut values = [0u64; N];
        let places: [*mut c_void; N] = std::array::from_fn(|at| (&raw mut values[at]).cast());
        // SAFETY: CUDA writes each attribute to its element of `values`, which lives through the call and is as long as the longest
        // attribute in use (64 bits). CUDA looks the address up and does not access it, so that any address may be asked for.
        let result = unsafe {
            (self.api.pointer_attributes)(N as c_uint, attributes.as_ptr(), places.as_ptr(), address)
        };
        if result == code::SUCCESS { Ok(values) } else { Err(result) }
    }

    /// As `attributes`, with the context current.
    fn ask<const N: usize>(&self, address: Address, attributes: [c_int; N]) -> Result<[u64; N], DeviceError> {
        self.attributes(address, attributes).map_err(|result| match result {
            code::INVALID_VALUE => DeviceError::NotReachable { address, bytes: 1 },
            other => self.error("cuPointerGetAttributes", other),
        })
    }

    /// The identity of the allocation that contains an address; the context is current.
    pub(super) fn id_at(&self, address: Address) -> Result<u64, DeviceError> {
        let mut id = 0u64;
        // SAFETY: CUDA writes the identity, 64 bits, to `id`. It looks the address up and does not access it, so that
        // any address may be asked for.
        let result = unsafe { (self.api.pointer_attribute)((&raw mut id).cast(), BUFFER_ID, address) };
        match result {
            code::INVALID_VALUE => Err(DeviceError::NotReachable { address, bytes: 1 }),
            other => self.check("cuPointerGetAttribute", other).map(|()| id),
        }
    }

    /// The allocation that contains an address; the context is current.
    pub(super) fn find(&self, address: Address) -> Result<Place, DeviceError> {
        let nowhere = DeviceError::NotReachable { address, bytes: 1 };
        let attributes = [MEMORY_TYPE, DEVICE_ORDINAL, BUFFER_ID, RANGE_START, RANGE_SIZE];
        let [kind, device, id, base, bytes] = self.ask(address, attributes)?;
        let space = space(kind, device).ok_or(nowhere.clone())?;
        if base == 0 || bytes == 0 {
            return Err(nowhere);
        }
        Ok(Place { space, id, base, bytes: bytes as usize })
    }

    /// The location of bytes within one allocation.
    pub(super) fn find_range(&self, address: Address, bytes: usize) -> Result<Place, DeviceError> {
        let found = self.find(address).map_err(|error| match error {
            DeviceError::NotReachable { address, .. } => DeviceError::NotReachable { address, bytes },
            other => other,
        });
        let place = found?;
        let offset = (address - place.base) as usize;
        if bytes > place.bytes - offset {
            let (base, len) = (place.base, place.bytes);
            return Err(DeviceError::OutOfBounds { address, bytes, base, len });
        }
        Ok(place)
    }

    /// Checks that bytes lie in a known allocation.
    pub(super) fn know(&self, address: Address, bytes: usize) -> Result<(), DeviceError> {
        // The driver returns no ordinal for a GPU that is not visible to this process.
        if opened::holds(self.ordinal, address, bytes) {
            return Ok(());
        }
        self.find_range(address, bytes).map(drop)
    }

    /// Checks that this device can access bytes.
    pub(super) fn reach(&self, address: Address, bytes: usize) -> Result<(), DeviceError> {
        if opened::holds(self.ordinal, address, bytes) {
            return Ok(());
        }
        let place = self.find_range(address, bytes)?;
        self.reach_space(place.space)?;
        match place.space {
            MemorySpace::Device(peer) if peer != self.ordinal => {
                let device = self.ordinal;
                let is_let = self.lets_reach(address, bytes, device);
                if is_let { Ok(()) } else { Err(DeviceError::NotShared { device, peer, address }) }
            }
            _ => Ok(()),
        }
    }

    /// Whether memory of a GPU is accessible to another GPU that has peer access; the context is current.
    pub(super) fn lets_reach(&self, address: Address, bytes: usize, by: u32) -> bool {
        let Ok([pool, is_plain]) = self.attributes(address, [POOL, IS_LEGACY_CAPABLE]) else { return false };
        let access = Access::of(by);
        if pool != 0 {
            let mut flags = 0;
            // SAFETY: CUDA has just named `pool` as the pool of `address`, and a pool lives as long as memory of it: the caller
            // of this method has that memory. CUDA writes one number to `flags` and reads `access`; both live through the call.
            let result = unsafe { (self.api.pool_access)(&mut flags, pool as usize, &access) };
            return result == code::SUCCESS && flags == Access::ALL;
        }
        // Each physical memory of virtual memory has its own access rights; other memory has no such
        // attributes.
        let (mut at, end) = (address, address.saturating_add(bytes.max(1) as u64));
        while is_plain as u8 == 0 && at < end {
            let found = self.attributes(at, [MAPPING_BASE, MAPPING_SIZE]);
            let Some([base, length]) = found.ok().filter(|found| !found.contains(&0)) else { return true };
            let mut flags = 0;
            let result = (self.api.access)(&mut flags, &access, at);
            if result != code::SUCCESS || flags != Access::ALL as u64 {
                return false;
            }
            at = base.saturating_add(length);
        }
        true
    }

    /// A faster check for a flag: it is aligned to 8 bytes, so it lies in one allocation.
    pub(super) fn reach_flag(&self, address: Address) -> Result<(), DeviceError> {
        if address.is_multiple_of(8) && opened::holds(self.ordinal, address, 8) {
            return Ok(());
        }
        let nowhere = || DeviceError::NotReachable { address, bytes: 8 };
        let found = self.ask(address, [MEMORY_TYPE, DEVICE_ORDINAL]);
        let [kind, device] = found.map_err(|error| match error {
            DeviceError::NotReachable { .. } => nowhere(),
            other => other,
        })?;
        self.reach_space(space(kind, device).ok_or_else(nowhere)?)?;
        if address.is_multiple_of(8) { Ok(()) } else { Err(DeviceError::Misaligned { address }) }
    }

    fn reach_space(&self, space: MemorySpace) -> Result<(), DeviceError> {
        match space {
            MemorySpace::Device(peer) if peer != self.ordinal && !self.reaches(peer) => {
                Err(DeviceError::NoPeerAccess { device: self.ordinal, peer })
            }
            _ => Ok(()),
        }
    }
}

/// Decodes the location that the driver returns.
fn space(kind: u64, device: u64) -> Option<MemorySpace> {
    match kind as c_uint {
        MEMORY_HOST => Some(MemorySpace::Host),
        MEMORY_DEVICE => u32::try_from(device as c_int).ok().map(MemorySpace::Device),
        _ => None,
    }
}
