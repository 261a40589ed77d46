//! Errors that a simulated device finds in a program.

use crate::MemorySpace;
use std::fmt;
use std::ops::Range;

/// An operation of a thread or a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The thread, by its name, or the stream: the task that runs it.
    pub task: String,
    /// The name of a kernel, or the kind of the operation.
    pub what: &'static str,
    /// Number of the operation, counted over all tasks in order of their start.
    pub number: usize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} (operation {})", self.what, self.task, self.number)
    }
}

/// Bytes of one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes {
    /// Its location.
    pub space: MemorySpace,
    /// Its identity.
    pub id: u64,
    /// The bytes within it.
    pub range: Range<usize>,
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {:?} of memory {} ({})", self.range, self.id, self.space)
    }
}

/// An error in a program.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Report {
    /// Two conflicting accesses without order.
    #[error("race: nothing orders {first} and {second}, at {bytes}; order them by an event or by one stream")]
    Race {
        /// The memory.
        bytes: Bytes,
        /// The access that came first in this run.
        first: Operation,
        /// The other access.
        second: Operation,
    },
    /// Memory was freed while an operation may still use it.
    #[error(
        "{by} frees {bytes}, but nothing orders that after {user}; wait for that before the memory is freed"
    )]
    FreedInUse {
        /// The memory.
        bytes: Bytes,
        /// The operation that freed it.
        by: Operation,
        /// The operation that uses it.
        user: Operation,
    },
    /// An operation used freed memory.
    #[error("{by} uses {bytes} after it was freed; free it after its last use")]
    UsedAfterFree {
        /// The memory.
        bytes: Bytes,
        /// The operation.
        by: Operation,
    },
    /// The host accessed device memory directly.
    #[error("thread {thread} accessed memory of device {device} at {address:#x} directly; use a copy")]
    HostTouchedDevice {
        /// The thread.
        thread: String,
        /// The device.
        device: u32,
        /// The address.
        address: u64,
    },
    /// An event was waited for or queried before it was recorded.
    #[error("{by}: event {event:#x} was never recorded; record it first")]
    EventNotRecorded {
        /// The call.
        by: Operation,
        /// The event's handle.
        event: usize,
    },
    /// A kernel accessed bytes that it had not declared.
    #[error(
        "{by} accesses {bytes} bytes at {address:#x} that it did not declare; declare them at its launch"
    )]
    Undeclared {
        /// The kernel.
        by: Operation,
        /// The address.
        address: u64,
        /// Number of bytes.
        bytes: usize,
    },
    /// A kernel panicked.
    #[error("{by} panicked: {message}; correct the kernel or its arguments")]
    KernelPanicked {
        /// The kernel.
        by: Operation,
        /// The message.
        message: String,
    },
    /// An invalid handle or address in a call that cannot return an error.
    #[error("{call}: {what}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The reason.
        what: String,
    },
    /// No task can run.
    #[error("deadlock: {}; do in one task what another one waits for", waiting.join("; "))]
    Deadlock {
        /// The wait of each task.
        waiting: Vec<String>,
    },
    /// The program exceeded the step limit.
    #[error(
        "no end after {steps} steps: {}; let these tasks end, or raise `Options::steps`",
        waiting.join("; ")
    )]
    Endless {
        /// The limit.
        steps: u64,
        /// The wait of each task.
        waiting: Vec<String>,
    },
    /// A foreign thread called the world, so the run could not be replayed.
    #[error("thread {thread} does not belong to this world; start it with World::spawn or World::ranks")]
    Stranger {
        /// Its name.
        thread: String,
    },
    /// The program panicked.
    #[error("panic in thread {thread}: {message}; correct the code of that thread")]
    Panicked {
        /// The thread.
        thread: String,
        /// The message.
        message: String,
    },
}

halocline_plan::debug_as_text!(Report);
