//! The CUDA devices of this machine, for reports.

use super::api::{api, code};
use super::name_of;
use crate::error::DeviceError;
use std::ffi::c_int;

/// The driver and its GPUs.
///
/// ```no_run
/// use halocline_device::cuda;
///
/// let inventory = cuda::inventory()?;
/// for (ordinal, gpu) in inventory.gpus.iter().enumerate() {
///     println!("GPU {ordinal}: {}, {} GiB", gpu.name, gpu.memory >> 30);
/// }
/// let is_reached = |from, to| inventory.links.iter().any(|link| (link.from, link.to) == (from, to) && link.access);
/// println!("GPU 0 accesses memory of GPU 1: {}", is_reached(0, 1));
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// Newest CUDA that the driver supports: major, minor.
    pub version: (i32, i32),
    /// The GPUs, by ordinal.
    pub gpus: Vec<Gpu>,
    /// How each GPU reaches each other.
    pub links: Vec<Link>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Number of its multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability: 90 for 9.0.
    pub capability: u32,
}

/// How one GPU reaches another's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Ordinal of the accessing GPU.
    pub from: u32,
    /// Ordinal of the GPU that owns the memory.
    pub to: u32,
    /// Whether peer access is possible.
    pub access: bool,
    /// Whether remote atomic operations are supported, as over NVLink.
    pub atomics: bool,
}

const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const NATIVE_ATOMICS: c_int = 3;

/// Lists the GPUs without opening them or creating contexts. Blocks for up to seconds while the driver
/// initialises.
pub fn inventory() -> Result<Inventory, DeviceError> {
    let api = api()?;
    let check = |call: &str, result: c_int| match result {
        code::SUCCESS => Ok(()),
        other => Err(DeviceError::NoCuda { why: format!("{call}: {}", api.text(other)) }),
    };
    let (mut version, mut count) = (0, 0);
    check("cuDriverGetVersion", (api.driver_version)(&mut version))?;
    check("cuDeviceGetCount", (api.device_count)(&mut count))?;
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        check("cuDeviceGet", (api.device)(&mut device, ordinal))?;
        devices.push(device);
    }
    let attribute = |attribute, device| {
        let mut value = 0;
        check("cuDeviceGetAttribute", (api.device_attribute)(&mut value, attribute, device))?;
        Ok::<u32, DeviceError>(value.max(0) as u32)
    };
    let gpu = |&device: &c_int| {
        let mut memory = 0;
        check("cuDeviceTotalMem", (api.device_memory)(&mut memory, device))?;
        let capability = 10 * attribute(MAJOR, device)? + attribute(MINOR, device)?;
        let multiprocessors = attribute(MULTIPROCESSORS, device)?;
        Ok(Gpu { name: name_of(api, device), memory: memory as u64, multiprocessors, capability })
    };
    let gpus: Result<Vec<Gpu>, DeviceError> = devices.iter().map(gpu).collect();
    let mut links = Vec::new();
    for (from, &one) in devices.iter().enumerate() {
        for (to, &other) in devices.iter().enumerate().filter(|(to, _)| *to != from) {
            let (mut access, mut atomics) = (0, 0);
            check("cuDeviceCanAccessPeer", (api.can_access_peer)(&mut access, one, other))?;
            let result = (api.peer_attribute)(&mut atomics, NATIVE_ATOMICS, one, other);
            check("cuDeviceGetP2PAttribute", result)?;
            let (from, to) = (from as u32, to as u32);
            links.push(Link { from, to, access: access != 0, atomics: atomics != 0 });
        }
    }
    Ok(Inventory { version: (version / 1000, version % 1000 / 10), gpus: gpus?, links })
}
