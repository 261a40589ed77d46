//! Errors of device calls.

use crate::Address;
use halocline_plan::{ElementType, ReduceOp};

/// Why a call to a device failed.
///
/// ```
/// use halocline_device::{DeviceError, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
///
/// // Memory of the program that is neither allocated by the device nor pinned.
/// let values = [0.0_f64; 8];
/// let first = values.as_ptr().addr() as u64;
/// let Err(DeviceError::NotReachable { address, .. }) = device.place_of(first) else { panic!("it is not pinned") };
/// assert_eq!(address, first);
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device does not exist.
    #[error("device {device} does not exist; the {count} devices here are numbered from 0")]
    NoDevice {
        /// The ordinal requested.
        device: u32,
        /// The number of devices.
        count: u32,
    },
    /// A raw handle that is not a stream of any device.
    #[error("{stream:#x} is not a stream of any device; pass a live stream")]
    NoStream {
        /// The handle.
        stream: usize,
    },
    /// A stream or an event passed to another device than its own.
    #[error(
        "{what} {handle:#x} belongs to device {actual}, but was passed to device {device}; pass one of that device"
    )]
    OtherDevice {
        /// `stream` or `event`.
        what: &'static str,
        /// The handle.
        handle: usize,
        /// The device that it belongs to.
        actual: u32,
        /// The device called.
        device: u32,
    },
    /// A device or an event passed to a device of another machine, for example a simulated one to a GPU.
    #[error("the {what} belongs to another machine than the device called; pass one of the same machine")]
    OtherMachine {
        /// `device` or `event`.
        what: &'static str,
    },
    /// A raw handle that is not an event of any device.
    #[error("{event:#x} is not an event of any device; pass a live event")]
    NoEvent {
        /// The handle.
        event: usize,
    },
    /// Out of memory.
    #[error(
        "out of memory: cannot allocate {bytes} bytes of {space}; free memory there, or use smaller fields"
    )]
    OutOfMemory {
        /// The memory.
        space: crate::MemorySpace,
        /// Bytes requested.
        bytes: usize,
    },
    /// The device is out of memory, as reported by a call without a size: for kernels, streams or events.
    #[error("device {device}: {call}: out of device memory; free some of it")]
    Exhausted {
        /// The device called.
        device: u32,
        /// The driver's function.
        call: &'static str,
    },
    /// An address that no device can reach.
    #[error(
        "the {bytes} bytes at {address:#x} are neither device memory nor pinned host memory; pin or register host memory"
    )]
    NotReachable {
        /// The first byte.
        address: Address,
        /// Number of bytes.
        bytes: usize,
    },
    /// A range that begins inside an allocation and ends beyond it.
    #[error(
        "the {bytes} bytes at {address:#x} end beyond their allocation of {len} bytes at {base:#x}; give a range \
         within it"
    )]
    OutOfBounds {
        /// The first byte.
        address: Address,
        /// Number of bytes.
        bytes: usize,
        /// Start of the allocation.
        base: Address,
        /// Its length in bytes.
        len: usize,
    },
    /// A 64-bit flag at an address that is no multiple of 8.
    #[error("the 64-bit flag at {address:#x} is not at a multiple of 8 bytes; give an aligned address")]
    Misaligned {
        /// The address.
        address: Address,
    },
    /// Elements that change their signs, at an address that is no multiple of the size of their numbers.
    #[error(
        "elements that change their signs begin at {address:#x}, but their numbers have {bytes} bytes; give fields whose \
         addresses and strides are multiples of that"
    )]
    MisalignedSigns {
        /// The address.
        address: Address,
        /// Bytes of a number.
        bytes: usize,
    },
    /// A copy to or from an LL slot whose blocks are not aligned 4-byte words.
    #[error(
        "the LL protocol cannot copy blocks of {block} bytes from {source_address:#x} to {target_address:#x}: it copies words of 4 bytes; \
     make block sizes and addresses multiples of 4 and slot addresses multiples of 16, or copy without a slot"
    )]
    LlAlignment {
        /// The first byte read, with addresses of a slot as if it were the message.
        source_address: Address,
        /// The first byte written, likewise.
        target_address: Address,
        /// Bytes per block.
        block: usize,
    },
    /// A copy table combines elements by an operation that they do not have.
    #[error("elements of {element} have no {op}; choose one of {}", ReduceOp::names_for(*.element))]
    NoOperation {
        /// The operation.
        op: ReduceOp,
        /// The type of the elements.
        element: ElementType,
    },
    /// A copy table that combines elements has operations, LL slots, bases or announcements, too.
    #[error(
        "part {part} of a copy table combines elements, but the table has operations, LL slots, bases or announcements; upload two \
         tables, or copy by combining with replace"
    )]
    CombinesApart {
        /// The first part that combines.
        part: usize,
    },
    /// An index list of elements that no device makes.
    #[error("device {device} makes no such index list: {what}")]
    NoList {
        /// The device called.
        device: u32,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// No peer access to the device's memory.
    #[error(
        "device {device} has no access to the memory of device {peer}; enable peer access, or stage through the host"
    )]
    NoPeerAccess {
        /// The device called.
        device: u32,
        /// The device that owns the memory.
        peer: u32,
    },
    /// Memory of a pool, or virtual memory, whose owner has not granted access.
    #[error(
        "device {device} has no access to the memory at {address:#x} of device {peer}, which is of a pool or virtual; grant access \
     (cuMemPoolSetAccess, cuMemSetAccess), use cudaMalloc, or stage through the host"
    )]
    NotShared {
        /// The device called.
        device: u32,
        /// The device that owns the memory.
        peer: u32,
        /// The address.
        address: u64,
    },
    /// A copy operation refers to a buffer that was not passed.
    #[error(
        "a copy operation refers to {side} {index}, but {count} were passed; pass a buffer for each index"
    )]
    NoBuffer {
        /// `source` or `target`.
        side: &'static str,
        /// Index of the buffer.
        index: usize,
        /// Number of buffers passed.
        count: usize,
    },
    /// A copy table with waiting parts has too many parts without copies.
    #[error(
        "a copy table with parts that wait has {parts} parts that copy nothing; the limit is {limit}: split the table"
    )]
    TooManyWaits {
        /// Number of parts that copy nothing.
        parts: usize,
        /// The limit.
        limit: usize,
    },
    /// The CUDA driver is missing, too old, or finds no GPU.
    #[error("CUDA cannot be used: {why}; check the GPU and its driver with `nvidia-smi`")]
    NoCuda {
        /// The failed attempts and their errors.
        why: String,
    },
    /// Compiling or loading kernels failed.
    #[error(
        "the kernels of Halocline cannot be compiled or loaded for this GPU: {why}; `halocline info` shows the GPUs, \
         their driver and NVRTC"
    )]
    NoKernels {
        /// The places searched for NVRTC, or the compiler's log.
        why: String,
    },
    /// The driver is older than the NVRTC that compiled the kernels.
    #[error(
    "device {device}: the driver supports CUDA {}.{} and refuses kernels compiled by NVRTC {}.{} ({what}); update the driver, \
     install an NVRTC that is no newer (`pip install \"{}\"`), or name its library in HALOCLINE_NVRTC",
    driver.0, driver.1, nvrtc.0, nvrtc.1, wheel(*driver)
    )]
    NewerKernels {
        /// The device that should run them.
        device: u32,
        /// Version of NVRTC: major, minor.
        nvrtc: (i32, i32),
        /// The newest CUDA that the driver supports.
        driver: (i32, i32),
        /// The driver's message.
        what: String,
    },
    /// A stream of another context than the device's primary one. Its work cannot be ordered with ours.
    #[error(
        "stream {stream:#x} belongs to a context of device {device} other than the primary one; pass a stream of the primary \
     context, which the CUDA runtime uses"
    )]
    OtherContext {
        /// The handle.
        stream: usize,
        /// The device.
        device: u32,
    },
    /// NCCL, which carries messages between devices, is missing or too old.
    #[error(
        "device {device} has no NCCL: {why}; install NCCL 2.14 or later, name its file in HALOCLINE_NCCL, or choose another path for \
         the links"
    )]
    NoMessages {
        /// The device.
        device: u32,
        /// The places searched, or why what was found cannot be used.
        why: String,
    },
    /// A call of NCCL has failed.
    #[error("device {device}: {call}: {what}; NCCL_DEBUG=WARN in the environment tells more")]
    Messages {
        /// The device.
        device: u32,
        /// NCCL's function.
        call: &'static str,
        /// What it says.
        what: String,
    },
    /// The driver refused a call; later calls may succeed.
    #[error(
        "device {device}: {call}: {what}; check the streams and the memory that were passed, or report this with the \
         output of `halocline info`"
    )]
    Refused {
        /// The device called.
        device: u32,
        /// The driver's function.
        call: &'static str,
        /// The result code.
        code: i32,
        /// Its meaning.
        what: String,
    },
    /// The device has failed permanently; every later call returns this error.
    #[error("device {device} has failed: {what}; restart the process")]
    Lost {
        /// The device.
        device: u32,
        /// The first failure seen.
        what: String,
    },
}

halocline_plan::debug_as_text!(DeviceError);

/// The NVRTC wheels whose kernels a driver accepts.
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
