//! Arguments and results of driver calls: addresses, handles, flags, copy tables.

use crate::error::DeviceError;
use halocline_plan::ReduceOp;
use halocline_plan::copy::{CopyOp, Gather};
use std::fmt;
use std::ops::Range;

/// An address that devices understand: device memory, or pinned host memory, whose address is the same on
/// the host (unified addressing).
///
/// ```
/// use halocline_device::{Address, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let memory = world.world().device(0)?.allocate(4096)?;
/// let first: Address = memory.at(0);
/// assert_eq!(memory.at(100), first + 100);
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
pub type Address = u64;

/// Location of memory.
///
/// ```
/// use halocline_device::{MemorySpace, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// assert_eq!(device.allocate(64)?.place().space, MemorySpace::Device(0));
/// assert_eq!(device.allocate_pinned(64)?.place().space, MemorySpace::Host);
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemorySpace {
    /// Memory of the host.
    Host,
    /// Memory of the device with this ordinal.
    Device(u32),
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemorySpace::Host => f.write_str("host memory"),
            MemorySpace::Device(ordinal) => write!(f, "memory of device {ordinal}"),
        }
    }
}

/// One allocation that devices can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its location.
    pub space: MemorySpace,
    /// Its identity, never reused in this process: memory allocated again at the same address has another
    /// identity (CUDA's buffer id).
    pub id: u64,
    /// Its first byte.
    pub base: Address,
    /// Its length in bytes.
    pub bytes: usize,
}

/// How one device reaches the memory of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connection {
    /// Both are the same device.
    SameDevice,
    /// NVLink, which supports remote atomic operations.
    NvLink,
    /// PCIe.
    Pcie,
}

/// A stream by its raw handle (`CUstream`). 0 is the default stream of the called device.
///
/// ```
/// use halocline_device::{RawStream, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// // SAFETY: 0 is the default stream, which lives as long as the device.
/// let stream = unsafe { device.borrow_stream(RawStream(0)) }?;
/// assert_eq!(stream.raw(), RawStream(0));
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawStream(pub usize);

/// An instantiated graph by its raw handle (`CUgraphExec`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawGraph(pub usize);

/// An event by its raw handle (`CUevent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawEvent(pub usize);

/// An uploaded copy table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawTable(pub usize);

/// Scheduling priority of a stream. It guarantees no order.
///
/// ```
/// use halocline_device::{Priority, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// let compute = device.stream(Priority::Normal)?;
/// // A GPU prefers the blocks of this stream when it has blocks of both to start.
/// let exchange = device.stream(Priority::Highest)?;
/// assert_ne!(compute.raw(), exchange.raw());
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// The priority of ordinary streams.
    #[default]
    Normal,
    /// The highest priority of the device.
    Highest,
}

/// A stream operation on a 64-bit flag at a multiple of 8 bytes, in pinned memory, memory of the stream's
/// device, or memory of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueOp {
    /// Writes the flag, with release semantics for all earlier work of the stream.
    Write {
        /// Address of the flag.
        address: Address,
        /// The new value.
        value: u64,
    },
    /// Blocks the stream until the flag reaches a value, with acquire semantics for the stream's later
    /// work. The comparison is cyclic: the difference, as a signed number, is not negative.
    Wait {
        /// Address of the flag.
        address: Address,
        /// The value to reach.
        at_least: u64,
    },
}

/// A flag that a part of a copy table waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Address of the flag.
    pub address: Address,
    /// Number of epochs that the flag may lag behind the launch: the wait ends at `epoch - lag`, or at 0.
    pub lag: u64,
}

/// The epoch that a launch of a copy table works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epoch {
    /// This one.
    Given(u64),
    /// The one after those that a counter in device memory has counted; the launch counts it. So one launch in a graph works for another
    /// epoch each time. Launches with the same counter follow one another. The counter is a [`Counted`].
    Counted(Address),
    /// The same one, which this launch does not count: a later launch for the same epoch does.
    Read(Address),
}

/// The lowest bits of a counter of epochs: the blocks of the current launch that have ended.
const BLOCKS: u32 = 20;

/// The value of a counter of epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted(pub u64);

impl Counted {
    /// After so many epochs.
    pub fn after(epochs: u64) -> Self {
        Self(epochs << BLOCKS)
    }

    /// The epochs that are over.
    pub fn epochs(self) -> u64 {
        self.0 >> BLOCKS
    }

    /// Whether some blocks of a launch have ended, and others have not.
    pub fn is_within_launch(self) -> bool {
        self != Self::after(self.epochs())
    }
}

/// The most blocks of a launch with a counter.
pub(crate) const MOST_COUNTED_BLOCKS: u32 = 1 << BLOCKS;

/// A graph under capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// Identifies the capture; never reused in this process.
    pub id: u64,
    /// The graph by its raw handle (`CUgraph`), until the capture ends.
    pub graph: usize,
}

/// The work of one launch of a copy table: all parts, in any order and concurrently.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableSpec<'a> {
    /// The parts.
    pub parts: &'a [TablePart<'a>],
    /// The buffers that operations read, indexed by [`CopyOp::source`]: element (0, 0, …) of a field, or
    /// the first byte of a message.
    pub sources: &'a [Address],
    /// The buffers that operations write, indexed by [`CopyOp::target`].
    pub targets: &'a [Address],
    /// A word that is 0 until the exchange fails. A part that finds it set neither copies nor raises flags.
    /// It checks the guard when it begins and while it waits, which ends the wait; a part without copies also before it raises flags. If
    /// streams wait for the same flags, the writer of the guard also poisons those: it writes values of 2^60 or more beyond the awaited
    /// ones. A part released by poison neither copies nor raises flags.
    pub guard: Option<Address>,
    /// Memory that each launch gives anew. Buffers there have the addresses of [`Base::address`], others their own.
    pub bases: &'a [Base],
}

/// Memory whose place each launch of a table gives: the table is made once, for a layout.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Base {
    /// The address of the base, modulo [`Base::LINE`]: tables depend on it.
    pub residue: u64,
    /// The valid bytes around it.
    pub bytes: Range<i64>,
}

impl TableSpec<'_> {
    /// Checks that a table whose parts combine has neither bases nor slots.
    pub(crate) fn check_combining(&self) -> Result<(), DeviceError> {
        let is_special = |part: &TablePart<'_>| {
            !part.ops.is_empty() || part.slot != Slot::None || part.announced.is_some()
        };
        let has_special = !self.bases.is_empty() || self.parts.iter().any(is_special);
        match self.parts.iter().position(|part| part.combines.is_some()).filter(|_| has_special) {
            Some(part) => Err(DeviceError::CombinesApart { part }),
            None => Ok(()),
        }
    }
}

impl TablePart<'_> {
    /// Whether it neither copies nor combines.
    pub(crate) fn is_bare(&self) -> bool {
        let combines = self
            .combines
            .is_some_and(|combining| combining.gathers.iter().any(|gather| gather.elements() > 0));
        !combines && self.ops.iter().all(|op| op.bytes() == 0)
    }
}

impl Base {
    /// The most of a table.
    pub const MOST: usize = 64;

    /// The alignment of the copies of tables.
    pub const LINE: u64 = 128;

    /// The bit of addresses that count from a base, and the first bit of its number.
    const MARK: u64 = 1 << 63;
    const NUMBER: u32 = 48;
    /// The number of the base that a receiver announces.
    const ANNOUNCED_NUMBER: usize = 127;

    /// The base that the receiver of a part announces ([`Announced`]), a multiple of [`Base::LINE`].
    pub const ANNOUNCED: Address = Self::first(Self::ANNOUNCED_NUMBER);

    /// In the middle of its range, so that bytes on both sides have its number.
    const fn first(number: usize) -> Address {
        Self::MARK | (number as u64) << Self::NUMBER | 1 << (Self::NUMBER - 1)
    }

    /// The address of base `number`, which it stands for in a table.
    pub fn address(&self, number: usize) -> Address {
        Self::first(number) + self.residue % Self::LINE
    }

    /// The number of the base that an address counts from, and the distance from that; `None` for other addresses.
    pub(crate) fn of(address: Address) -> Option<(usize, i64)> {
        let number = (address >> Self::NUMBER) as usize & Self::ANNOUNCED_NUMBER;
        (address & Self::MARK != 0).then(|| (number, address.wrapping_sub(Self::first(number)) as i64))
    }

    /// The offset that a launch adds to addresses relative to base `number`, which lies at `given`.
    pub(crate) fn added(&self, number: usize, given: Address) -> u64 {
        given.wrapping_sub(self.address(number))
    }

    /// Whether a launch may give this address.
    pub(crate) fn fits(&self, given: Address) -> bool {
        given % Self::LINE == self.residue % Self::LINE
    }
}

/// The announcement of a receiver to a part that sends: two words, valid once the waits of the part are over. The first is the base of
/// the message, [`Base::ANNOUNCED`], the second says what the receiver expects. If that is not `sent`, the part neither copies nor raises
/// flags, and writes the address of the announcement to the word `differs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// The address of the two words.
    pub address: Address,
    /// The word that describes the message that the part sends.
    pub sent: u64,
    /// The address of the word.
    pub differs: Address,
}

/// A flag at least this far beyond the awaited value is poison and ends the wait ([`TableSpec::guard`]).
pub(crate) const POISON: i64 = 1 << 60;

/// Which side of a part's operations is a slot of the LL (low-latency) protocol. Each 64-bit word of a slot
/// carries 4 data bytes and the epoch, so the reader needs no separate flag (as in NCCL's LL protocol).
///
/// A slot is twice as long as its message: word n holds bytes 4n to 4n + 3 of the message in its lower
/// half, and the lowest 32 bits of the writing launch's epoch in its upper half. A slot begins at a
/// multiple of 16 bytes and is zeroed. Operations give offsets within the message. On the other side, and
/// in the message, blocks begin at multiples of 4 bytes and have multiples of 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slot {
    /// No side is.
    #[default]
    None,
    /// The part writes a slot.
    Written,
    /// The part reads a slot: it copies each word once it carries the epoch of the launch. While it waits
    /// it polls the guard, and a set guard ends it without raising flags.
    Awaited,
}

/// Elements that a part of a copy table combines instead of copying.
///
/// ```
/// use halocline_device::{Combining, TablePart};
/// use halocline_plan::ReduceOp;
/// use halocline_plan::copy::{CopyOp, Gather};
///
/// // Bytes of two messages are added to those of a buffer, always in this order.
/// let gathers = Gather::all(&[CopyOp::of_bytes(0, 0, 64), CopyOp::of_bytes(1, 0, 64)]);
/// let part = TablePart { combines: Some(Combining { op: ReduceOp::Sum, gathers: &gathers }), ..TablePart::default() };
/// assert!(part.ops.is_empty());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Combining<'a> {
    /// How a target is combined with each of its sources: `target = op(target, source)`, one after the other, in elements of
    /// [`Gather::element`], which have the operation. The result is that of [`crate::host::Combine`] to the bit, except which NaN it is.
    pub op: ReduceOp,
    /// The elements. Each is a target once in the part. Their buffers are those of the table.
    pub gathers: &'a [Gather],
}

/// One link of a copy table: waits, then copies or combines, then raises flags.
#[derive(Debug, Clone, Copy, Default)]
pub struct TablePart<'a> {
    /// Flags that the part waits for before it copies.
    pub waits: &'a [Signal],
    /// Operations that the part executes.
    pub ops: &'a [CopyOp],
    /// Flags that are set to the epoch of the launch once all copies of the part are visible.
    pub raises: &'a [Address],
    /// Sources may be read from the start of the launch, before the waits.
    pub early: bool,
    /// Other device work runs concurrently: few blocks execute the part, one piece after the other. Not for
    /// a part that raises flags without waiting.
    pub beside: bool,
    /// Whether the part writes or reads a slot. An early part never reads one.
    pub slot: Slot,
    /// The announcement of the receiver to a part that has bytes.
    pub announced: Option<Announced>,
    /// In a table with bases: the thread blocks of the part before this one execute it, after that. Both wait or raise flags.
    pub follows: bool,
    /// What the part combines. Such a part is not early, and its table has neither operations nor bases.
    pub combines: Option<Combining<'a>>,
}
