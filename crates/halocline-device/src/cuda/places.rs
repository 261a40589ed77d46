//! Where addresses lie, and whether a GPU reaches them.

use super::api::code;
use super::driver::CudaDriver;
use super::remote::has_opened;
use crate::driver::{Address, MemorySpace, Place};
use crate::error::DeviceError;
use std::ffi::{c_int, c_uint, c_void};

/// Attributes of addresses.
const MEMORY_TYPE: c_int = 2;
const BUFFER_ID: c_int = 7;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
const MEMORY_HOST: c_uint = 1;
const MEMORY_DEVICE: c_uint = 2;

impl CudaDriver {
    /// Asks for attributes of an address; the context is current.
    fn ask<const N: usize>(
        &self,
        address: Address,
        attributes: [c_int; N],
        values: [*mut c_void; N],
    ) -> Result<(), DeviceError> {
        // SAFETY: the callers give each attribute a value of its type to be written to. Any address may be asked for.
        let result = unsafe {
            (self.api.pointer_attributes)(N as c_uint, attributes.as_ptr(), values.as_ptr(), address)
        };
        match result {
            code::INVALID_VALUE => Err(DeviceError::NotReachable { address, bytes: 1 }),
            other => self.check("cuPointerGetAttributes", other),
        }
    }

    /// Where an address lies; the context is current.
    pub(super) fn find(&self, address: Address) -> Result<Place, DeviceError> {
        let nowhere = DeviceError::NotReachable { address, bytes: 1 };
        let (mut kind, mut device, mut id): (c_uint, c_int, u64) = (0, 0, 0);
        let (mut base, mut bytes): (u64, usize) = (0, 0);
        let attributes = [MEMORY_TYPE, DEVICE_ORDINAL, BUFFER_ID, RANGE_START, RANGE_SIZE];
        let values: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut device).cast(),
            (&raw mut id).cast(),
            (&raw mut base).cast(),
            (&raw mut bytes).cast(),
        ];
        self.ask(address, attributes, values)?;
        let space = space(kind, device).ok_or(nowhere.clone())?;
        if base == 0 || bytes == 0 {
            return Err(nowhere);
        }
        Ok(Place { space, id, base, bytes })
    }

    /// Where bytes lie, if they lie in one allocation.
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

    /// Refuses bytes that this device cannot reach by itself.
    pub(super) fn reach(&self, address: Address, bytes: usize) -> Result<(), DeviceError> {
        let place = self.find_range(address, bytes)?;
        self.reach_space(place.space)
    }

    /// The same for a word, in less time: it lies at a multiple of 8 bytes, so it is in one memory.
    pub(super) fn reach_word(&self, address: Address) -> Result<(), DeviceError> {
        let nowhere = || DeviceError::NotReachable { address, bytes: 8 };
        let (mut kind, mut device): (c_uint, c_int) = (0, 0);
        let values = [(&raw mut kind).cast(), (&raw mut device).cast()];
        self.ask(address, [MEMORY_TYPE, DEVICE_ORDINAL], values).map_err(|error| match error {
            DeviceError::NotReachable { .. } => nowhere(),
            other => other,
        })?;
        self.reach_space(space(kind, device).ok_or_else(nowhere)?)?;
        if address.is_multiple_of(8) { Ok(()) } else { Err(DeviceError::Misaligned { address }) }
    }

    fn reach_space(&self, space: MemorySpace) -> Result<(), DeviceError> {
        match space {
            MemorySpace::Device(peer)
                if peer != self.ordinal && !has_opened(self.ordinal, peer) && !self.has_peer(peer) =>
            {
                Err(DeviceError::NoPeerAccess { device: self.ordinal, peer })
            }
            _ => Ok(()),
        }
    }
}

/// What the driver says of where memory lies.
fn space(kind: c_uint, device: c_int) -> Option<MemorySpace> {
    match kind {
        MEMORY_HOST => Some(MemorySpace::Host),
        MEMORY_DEVICE => u32::try_from(device).ok().map(MemorySpace::Device),
        _ => None,
    }
}
