//! Constants of a GPU's architecture: how copies are split into items, and which messages use the LL
//! protocol. They affect speed only; any values give correct exchanges.

/// Constants of one kind of device, from [`Device::tuning`](crate::Device::tuning).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Percentage of multiprocessors with a block that waits for peers and then writes to them. The others
    /// serve the copies within the rank and other kernels. Launches that can run at the same time have 80
    /// together.
    pub(crate) waiting: u32,
    /// Percentage of multiprocessors with a block that copies within the rank while other work may run
    /// beside the exchange; also the maximum for blocks that wait
    /// ([`TablePart::beside`](crate::TablePart::beside)).
    pub(crate) beside: u32,
    /// Maximum number of accesses of one item, the work unit of a block of threads.
    pub(crate) item: u32,
    /// Items per multiprocessor if there is little to copy.
    pub(crate) items: u32,
    /// Maximum number of accesses of a one-region part that gets a single block; several blocks would have
    /// to count each other's completion.
    pub(crate) alone: u32,
    /// Maximum bytes of a message between devices that uses the LL (low-latency) protocol
    /// ([`Slot`](crate::Slot)); 0 if no message does unless a bind requests it.
    pub ll: u32,
    /// Bytes of each chunk of a message that is staged through host memory.
    pub chunk: u64,
}

impl Tuning {
    /// GPUs: measured on H200s with NVLink (compute capability 9.0), used for all. The LL protocol is 5 %
    /// faster up to 2 KiB, and not faster from 8 KiB.
    pub(crate) const HOPPER: Self =
        Self { waiting: 60, beside: 50, item: 4096, items: 2, alone: 1024, ll: 2048, chunk: 4 << 20 };

    /// Simulated devices, which use the LL protocol only if a bind requests it.
    pub(crate) const SIMULATED: Self = Self { ll: 0, ..Self::HOPPER };
}
