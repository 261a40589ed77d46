//! GPUs, through the CUDA driver, which is loaded at run time. Without CUDA this crate builds and runs, and
//! opening a GPU returns the reason.
//!
//! ```no_run
//! use halocline_device::{Priority, cuda};
//!
//! let device = cuda::device(0)?;
//! let memory = device.allocate(1 << 20)?;
//! let stream = device.stream(Priority::Normal)?;
//! // SAFETY: the bytes are in the memory, which is freed after the stream is synchronised.
//! unsafe { stream.clear(memory.at(0), 1 << 20) }?;
//! stream.synchronise()?;
//! # Ok::<(), halocline_device::DeviceError>(())
//! ```
//!
//! [`device`] opens a GPU. Kernels (folder `copy`) execute copy tables; NVRTC ([`Compiler`]) compiles them when
//! the first table is uploaded, and they are cached on disk ([`cache_directory`]). A [`Program`] is a set
//! of custom kernels. `docs/internals/device-engine.md` explains the design.
//!
//! Streams share hardware queues: 8 per process, unless `CUDA_DEVICE_MAX_CONNECTIONS` (up to 32) is set
//! when CUDA starts. A stream that waits for a flag or an event blocks all later work of its queue,
//! including that of other streams. Opening the first device requests 32 queues if the variable is unset,
//! CUDA is not initialised and the process has no other thread.

mod api;
mod cache;
mod context;
mod copy_table;
mod driver;
mod gpu;
mod inventory;
mod lists;
mod looks;
mod module;
mod nccl;
mod nvrtc;
mod places;
mod program;
mod remote;
mod table;

pub use cache::directory as cache_directory;
pub use gpu::CudaDriver;
pub use inventory::{Gpu, Inventory, Link, inventory};
pub use module::{Function, Module};
pub use nccl::{Nccl, nccl};
pub use nvrtc::{Compiled, Compiler};
pub use program::{Kernel, Program};
pub use remote::provider;

use crate::device::Device;
use crate::error::DeviceError;
use std::ffi::c_char;

/// Joins files to one source, whose errors name these files and their lines.
macro_rules! joined {
    ($($file:literal),* $(,)?) => { concat!($("#line 1 \"", $file, "\"\n", include_str!($file)),*) };
}

/// The kernels of copy tables, as CUDA C++.
pub const COPY_KERNELS: &str = joined![
    "copy/table.cuh",
    "copy/memory.cuh",
    "copy/waits.cuh",
    "copy/units.cuh",
    "copy/slots.cuh",
    "copy/combine.cuh",
    "copy/kernels.cuh",
];

/// The kernels of index lists, as CUDA C++.
pub const LIST_KERNELS: &str = joined!["lists/split.cuh", "lists/jobs.cuh", "lists/kernels.cuh"];

/// The GPU with an ordinal (as `CUDA_VISIBLE_DEVICES` leaves them, from 0). May block for a second, the first time.
pub fn device(ordinal: u32) -> Result<Device, DeviceError> {
    Ok(Device::new(CudaDriver::open(ordinal)?))
}

fn name_of(api: &api::Api, device: i32) -> String {
    let mut name = [0 as c_char; 256];
    // SAFETY: CUDA writes at most `name.len() - 1` characters, a zero at the end included, into `name`.
    let result = unsafe { (api.device_name)(name.as_mut_ptr(), name.len() as i32 - 1, device) };
    let bytes: Vec<u8> = name.iter().flat_map(|c| c.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    if result == 0 { String::from_utf8_lossy(&bytes).into_owned() } else { api.text(result) }
}

/// A message of the system's loader, which may have lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
