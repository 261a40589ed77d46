//! Layer 2: ranks that exchange messages and access each other's memory.
//!
//! A [`Communicator`] is a group of ranks over one [`Transport`]: threads of a process, processes of a
//! node, or processes anywhere over MPI. Programs use its collective calls. The layers above also use [`Endpoint`]: messages of any
//! tag, waits, [`Segment`]s of memory that peers can map, [`Counter`]s (flags) in them, the [`Doorbell`] that wakes threads that wait
//! for a flag ([`Wakers`] does for tasks), and the progress thread.

mod begin_lock;
mod bell;
#[cfg(not(loom))]
mod borrowed;
#[cfg(not(loom))]
pub mod buffers;
#[cfg(not(loom))]
mod bulk;
mod claim;
mod completion;
mod counter;
mod cursors;
mod host;
mod memory_hold;
mod sync;
mod wakers;

#[cfg(all(fuzzing, not(loom)))]
#[doc(hidden)]
pub mod call;
#[cfg(not(any(fuzzing, loom)))]
mod call;
#[cfg(not(loom))]
mod collective;
#[cfg(not(loom))]
mod communicator;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod inbox;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
pub mod mappings;
#[cfg(not(loom))]
pub mod memory_resource;
#[cfg(not(loom))]
pub mod mpi;
#[cfg(not(loom))]
pub mod packet;
#[cfg(not(loom))]
mod progress;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
pub mod shm;
#[cfg(not(loom))]
pub mod sparse;
#[cfg(not(loom))]
mod split;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
mod transport;
#[cfg(not(loom))]
mod values;
#[cfg(not(loom))]
mod wait;

pub use begin_lock::{BeginGuard, BeginLock};
pub use bell::Doorbell;
pub use claim::Claim;
pub use completion::{Awaiting, Completion};
pub use counter::{Counter, Seen};
pub use host::Host;
pub use memory_hold::MemoryHold;
pub use wakers::{Ticket, Wakers};

#[cfg(not(loom))]
pub use {
    borrowed::Borrowed,
    bulk::{Bulk, Surround},
    call::Call,
    collective::{Barrier, Reduce},
    communicator::Communicator,
    endpoint::Endpoint,
    error::CommError,
    host::System,
    inbox::{Inbox, Message, Tag},
    lock::lock_yielding,
    mappings::{MappingError, Mappings},
    progress::Serve,
    segment::{SEGMENT_ALIGN, Segment},
    transport::{Cores, PeerState, Post, Transport},
    values::{Number, Values},
    wait::{Late, Patience, WARN_AFTER},
};

#[cfg(all(test, loom))]
mod model;
