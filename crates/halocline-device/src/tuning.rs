//! Constants that decide how copies are cut, and which messages are sent as words with flags.
//!
//! They change speed alone: an exchange is right with any values.

/// The values that code depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Of a hundred multiprocessors, how many have a block that waits for peers and then writes to them. The others are left to
    /// the copies within the rank, and to whatever else runs there. 1 to 70 (all objects of a process together have 80).
    pub waiting: u32,
    /// Of a hundred multiprocessors, how many have a block that copies within the rank while other work may run beside the exchange, and at
    /// most how many have a block that waits ([`TablePart::beside`](crate::TablePart::beside)). 1 to 1600.
    pub beside: u32,
    /// Accesses of one item, at most: what a block of threads does at a time. 512 to 65,536.
    pub item: u32,
    /// Items for each multiprocessor, where there is little to copy. 1 to 16.
    pub items: u32,
    /// A part of one region with up to so many accesses has one block: several blocks would have to count each other's ends. 0 to 65,536.
    pub alone: u32,
    /// Up to how many bytes a message between devices goes as words with flags ([`Slot`](crate::Slot)); 0: none. At most 1 MiB.
    pub flags: u32,
    /// Bytes of a message staged through memory of the host that are worth a message of their own.
    pub chunk: u64,
}

impl Tuning {
    /// Of GPUs: measured on H200s with NVLink (compute capability 9.0), and used for all. Words with flags are a twentieth faster up to
    /// 2 KiB, and not from 8 KiB on.
    pub const HOPPER: Self =
        Self { waiting: 60, beside: 50, item: 4096, items: 2, alone: 1024, flags: 2048, chunk: 4 << 20 };

    /// Of simulated devices, which use words with flags where a bind asks for them.
    pub const SIMULATED: Self = Self { flags: 0, ..Self::HOPPER };
}
