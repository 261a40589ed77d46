//! What a simulated device finds wrong with a program.

use crate::MemorySpace;
use std::fmt;
use std::ops::Range;

/// One operation of somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Who: a thread of the host by its name, or a stream.
    pub who: String,
    /// What: a kernel by its name, else the kind of the operation.
    pub what: &'static str,
    /// Which: operations of all are counted in the order in which they began.
    pub number: usize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} (operation {})", self.what, self.who, self.number)
    }
}

/// Bytes of one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes {
    /// Where it lies.
    pub space: MemorySpace,
    /// Its identity.
    pub id: u64,
    /// Which bytes of it.
    pub range: Range<usize>,
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {:?} of memory {} ({})", self.range, self.id, self.space)
    }
}

/// Something wrong.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Report {
    /// Two operations access the same bytes, one of them writes, and nothing orders them.
    #[error("race: nothing orders {first} and {second}, at {bytes}")]
    Race {
        /// Where.
        bytes: Bytes,
        /// The one that came first this time.
        first: Operation,
        /// The other.
        second: Operation,
    },
    /// Memory was freed while work that uses it was unfinished, or nothing said that it was over.
    #[error("{by} frees {bytes}, and nothing says that {user} is over")]
    FreedInUse {
        /// Where.
        bytes: Bytes,
        /// Who freed it.
        by: Operation,
        /// Who uses it.
        user: Operation,
    },
    /// An operation came to memory that had been freed.
    #[error("{by} uses {bytes}, which was freed")]
    UsedAfterFree {
        /// Where.
        bytes: Bytes,
        /// Who.
        by: Operation,
    },
    /// The host touched memory of a device outside a copy.
    #[error("thread {thread} touched memory of device {device} at {address:#x}, outside a copy")]
    HostTouchedDevice {
        /// Which thread.
        thread: String,
        /// Whose memory.
        device: u32,
        /// Where.
        address: u64,
    },
    /// An event was waited for, or asked for, before it was recorded.
    #[error("{by}: event {event:#x} was never recorded")]
    EventNotRecorded {
        /// The call.
        by: Operation,
        /// The event's handle.
        event: usize,
    },
    /// A kernel accessed what it had not declared.
    #[error("{by} accesses {bytes} bytes at {address:#x}, which it has not declared")]
    Undeclared {
        /// The kernel.
        by: Operation,
        /// Where.
        address: u64,
        /// How much.
        bytes: usize,
    },
    /// A kernel panicked.
    #[error("{by} panicked: {message}")]
    KernelPanicked {
        /// The kernel.
        by: Operation,
        /// What it said.
        message: String,
    },
    /// A handle or an address that is none, in a call that cannot say so itself.
    #[error("{call}: {what}")]
    Refused {
        /// Which call.
        call: &'static str,
        /// Why.
        what: String,
    },
    /// Nothing can go on.
    #[error("deadlock: {}", waiting.join("; "))]
    Deadlock {
        /// Who waits for what.
        waiting: Vec<String>,
    },
    /// The program did not end within the limit.
    #[error("no end after {steps} steps: {}", waiting.join("; "))]
    Endless {
        /// The limit.
        steps: u64,
        /// Who waits for what.
        waiting: Vec<String>,
    },
    /// A thread that the world does not know called it, so that nothing can be replayed.
    #[error("thread {thread} is not of this world: start it by World::spawn or World::ranks")]
    Stranger {
        /// Its name.
        thread: String,
    },
    /// The program panicked.
    #[error("panic in thread {thread}: {message}")]
    Panicked {
        /// Which thread.
        thread: String,
        /// What it said.
        message: String,
    },
}

halocline_plan::debug_as_text!(Report);
