//! What a call of a device can say went wrong.

use crate::Address;

/// Why a call to a device failed. The text says what was wrong, where, and what would be right.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no such device.
    #[error("there is no device {device}: there are {count}")]
    NoDevice {
        /// Which was asked for.
        device: u32,
        /// How many there are.
        count: u32,
    },
    /// A raw handle that is no stream of any device.
    #[error("{stream:#x} is no stream of any device")]
    NoStream {
        /// The handle.
        stream: usize,
    },
    /// A stream, or an event, of one device given to another.
    #[error("{what} {handle:#x} belongs to device {actual}, and was given to device {device}")]
    OtherDevice {
        /// `stream` or `event`.
        what: &'static str,
        /// The handle.
        handle: usize,
        /// Whose it is.
        actual: u32,
        /// Which was called.
        device: u32,
    },
    /// A device, or something of one, given to a device of another machine: a simulated one to a GPU, say.
    #[error(
        "the {what} belongs to another machine than the device that it was given to; give one of the same"
    )]
    OtherMachine {
        /// `device` or `event`.
        what: &'static str,
    },
    /// A raw handle that is no event of any device.
    #[error("{event:#x} is no event of any device")]
    NoEvent {
        /// The handle.
        event: usize,
    },
    /// The memory is used up.
    #[error("no {bytes} bytes are left in {space}")]
    OutOfMemory {
        /// Of which memory.
        space: crate::MemorySpace,
        /// How much was asked for.
        bytes: usize,
    },
    /// The device's memory is used up, as found by a call that says not how much it wants: for kernels, streams or events.
    #[error("device {device}: {call}: no memory is left")]
    Exhausted {
        /// Which was called.
        device: u32,
        /// The driver's function.
        call: &'static str,
    },
    /// An address that no device can reach: host memory must be pinned or registered.
    #[error("the {bytes} bytes at {address:#x} are neither memory of a device nor pinned host memory")]
    NotReachable {
        /// The first byte.
        address: Address,
        /// How many.
        bytes: usize,
    },
    /// A range that begins in memory and goes beyond its end.
    #[error("the {bytes} bytes at {address:#x} go beyond their memory, {len} bytes from {base:#x}")]
    OutOfBounds {
        /// The first byte.
        address: Address,
        /// How many.
        bytes: usize,
        /// Begin of the memory.
        base: Address,
        /// Its length in bytes.
        len: usize,
    },
    /// A value of 64 bits that does not lie at a multiple of 8.
    #[error("the 64-bit word at {address:#x} does not lie at a multiple of 8 bytes")]
    Misaligned {
        /// The address.
        address: Address,
    },
    /// A copy into or out of a slot whose words have flags, of other bytes than fours at multiples of 4.
    #[error(
        "a copy of {block} bytes from {source_address:#x} to {target_address:#x} cannot go by words with flags: blocks are of 4 bytes each, at \
         multiples of 4, and slots begin at multiples of 16"
    )]
    NoWords {
        /// The first byte read, as if the slot were the message.
        source_address: Address,
        /// The first byte written, likewise.
        target_address: Address,
        /// Bytes of a block.
        block: usize,
    },
    /// Memory of a peer that the device may not reach.
    #[error(
        "device {device} has no access to the memory of device {peer}: enable it, or stage through the host"
    )]
    NoPeerAccess {
        /// Which was called.
        device: u32,
        /// Whose memory it is.
        peer: u32,
    },
    /// Memory of a peer that its owner has not shared: of a pool, or virtual.
    #[error(
        "device {device} has no access to the memory at {address:#x} of device {peer}: it is of a pool or virtual, which whoever made \
         it shares (cuMemPoolSetAccess, cuMemSetAccess); share it, use cudaMalloc, or stage through the host"
    )]
    NotShared {
        /// Which was called.
        device: u32,
        /// Whose memory it is.
        peer: u32,
        /// The address.
        address: u64,
    },
    /// A copy operation names a buffer that was not given.
    #[error("a copy operation names {side} {index}, of {count} given")]
    NoBuffer {
        /// `source` or `target`.
        side: &'static str,
        /// Which.
        index: usize,
        /// How many were given.
        count: usize,
    },
    /// More parts of a copy table copy nothing, some of which wait, than a device can look at in turn.
    #[error("{parts} parts of a copy table copy nothing, and some of them wait: {limit} at most")]
    TooManyWaits {
        /// How many copy nothing.
        parts: usize,
        /// How many may.
        limit: usize,
    },
    /// CUDA's driver cannot be used: it is not there, too old, or finds no GPU.
    #[error("CUDA cannot be used: {why}")]
    NoCuda {
        /// What was tried, and how it failed.
        why: String,
    },
    /// Kernels cannot be compiled or loaded.
    #[error("no kernels for the GPU: {why}")]
    NoKernels {
        /// What was tried, and how it failed: where NVRTC was looked for, or what it says.
        why: String,
    },
    /// The driver does not understand what NVRTC has compiled, which is of a newer CUDA.
    #[error(
        "device {device}: the driver supports CUDA {}.{} and refuses kernels that NVRTC {}.{} has compiled ({what}); update the driver, \
         or install an NVRTC that is no newer (`pip install \"{}\"`), or name the library of one in HALOCLINE_NVRTC",
        driver.0, driver.1, nvrtc.0, nvrtc.1, wheel(*driver)
    )]
    NewerKernels {
        /// Which was to run them.
        device: u32,
        /// Version of NVRTC: major, minor.
        nvrtc: (i32, i32),
        /// The newest CUDA that the driver supports.
        driver: (i32, i32),
        /// What it says.
        what: String,
    },
    /// A stream of the right device that belongs to a context of its own, whose work cannot be ordered with ours.
    #[error(
        "stream {stream:#x} belongs to another context of device {device} than the primary one, which the CUDA runtime \
         uses: give a stream of that"
    )]
    OtherContext {
        /// The handle.
        stream: usize,
        /// Which device.
        device: u32,
    },
    /// The driver has refused a call, and can be called again.
    #[error("device {device}: {call}: {what}")]
    Refused {
        /// Which was called.
        device: u32,
        /// The driver's function.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// What that means.
        what: String,
    },
    /// The device has failed, for good: every later call says the same.
    #[error("device {device} has failed: {what}")]
    Lost {
        /// Which.
        device: u32,
        /// What was seen first.
        what: String,
    },
}

halocline_plan::debug_as_text!(DeviceError);

/// The wheels of NVRTC whose kernels a driver takes.
fn wheel((major, minor): (i32, i32)) -> String {
    let cuda = if major < 13 { format!("-cu{major}") } else { String::new() };
    format!("nvidia-cuda-nvrtc{cuda}<{major}.{}", minor + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_are_too_new_say_both_versions_and_what_would_be_right() {
        let what = "named symbol not found (CUDA_ERROR_INVALID_IMAGE, 200)".to_owned();
        let old =
            DeviceError::NewerKernels { device: 1, nvrtc: (13, 0), driver: (12, 4), what: what.clone() };
        for part in [
            "device 1",
            "CUDA 12.4",
            "NVRTC 13.0",
            "\"nvidia-cuda-nvrtc-cu12<12.5\"",
            "HALOCLINE_NVRTC",
            &what,
        ] {
            assert!(old.to_string().contains(part), "{old} does not say {part}");
        }
        let new = DeviceError::NewerKernels { device: 0, nvrtc: (13, 1), driver: (13, 0), what };
        assert!(new.to_string().contains("\"nvidia-cuda-nvrtc<13.1\""), "{new}");
    }
}
