//! Memory of one rank, mapped by others of the same node: exported, opened and closed once, used many times.
//!
//! Each rank has one cache for what it exports, shared by all that use its communicator: [`Mappings`]. The owner of memory
//! says who shall map it ([`Mappings::map`]), and tells the mapping's token and offset to whoever is to use it, who gets an
//! address for them ([`Mappings::resolve`]). Both sides hold what they were given: while they do, nothing of it changes,
//! and its use makes no message, no call of the driver, and takes no lock.
//!
//! ```
//! use halocline_comm::mappings::{DeviceId, Mappings, Target};
//! use halocline_comm::{Communicator, Tag};
//!
//! # use halocline_comm::MappingError;
//! let rank = |comm: Communicator| -> Result<(), MappingError> {
//!     let (mappings, peer) = (Mappings::of(&comm)?, 1 - comm.rank());
//!     let memory = comm.allocate(1 << 20)?;
//!     let address = memory.base().as_ptr().expose_provenance() as u64;
//!     let pinned = mappings.map(Target { rank: peer, device: DeviceId::HOST }, address + 64, 4096)?;
//!     let told = comm.all_gather(&pinned.token().to_le_bytes())?;
//!     let token = u64::from_le_bytes(told[peer][..].try_into().expect("8 bytes"));
//!     let mapping = mappings.resolve(peer, token, 64, 4096)?;
//!     assert_ne!(mapping.address(), address + 64);
//!     drop(mapping);
//!     comm.barrier()?;
//!     drop(pinned);
//!     mappings.release(address)
//! };
//! std::thread::scope(|threads| {
//!     let ranks = Communicator::threads(2).into_iter().map(|comm| threads.spawn(move || rank(comm)));
//!     ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap().unwrap());
//! });
//! ```
//!
//! `docs/mappings.md` has the protocol. Limits: `HALOCLINE_MAPPINGS_ENTRIES` and `HALOCLINE_MAPPINGS_BYTES`, or
//! [`Mappings::set_limits`].

#[cfg(test)]
mod fake;
#[cfg(fuzzing)]
pub mod fuzz;
mod host;
mod message;
mod protocol;
mod service;
#[cfg(test)]
mod tests;

pub use halocline_device::remote::{Allocation, DeviceId, Kind, Provider, Refusal};
pub use message::MessageError;
pub use protocol::{Limits, Stats, Target};

use crate::communicator::Communicator;
use crate::error::CommError;
use crate::transport::PeerState;
use crate::wait::{Late, Patience};
use halocline_device::Address;
use message::ProcessId;
use protocol::{Answer, Arrival, Unusable, Want};
use service::{Failed, Service};
use std::ffi::OsString;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long a release waits for others to unmap, where the communicator has no deadline.
const RELEASE_WITHIN: Duration = Duration::from_secs(10);

/// What is kept by default.
const DEFAULT: Limits = Limits { entries: 1024, bytes: u64::MAX };

/// Why memory is not mapped, or not released.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// The memory cannot be exported, or the other side cannot open it. Its bytes are to be staged.
    #[error("the {bytes} bytes at {address:#x} cannot be mapped by rank {} for {}: {why}", target.rank, target.device)]
    Refused {
        /// The first byte.
        address: Address,
        /// How many.
        bytes: u64,
        /// Who should have mapped it.
        target: Target,
        /// Why.
        why: Refusal,
    },
    /// A range that goes beyond the allocation in which it begins.
    #[error("the {bytes} bytes at {address:#x} go beyond their allocation, {} bytes from {:#x}", within.bytes, within.base)]
    OutOfBounds {
        /// The first byte.
        address: Address,
        /// How many.
        bytes: u64,
        /// The allocation.
        within: Allocation,
    },
    /// Memory that was freed while it was in use: other memory lies there now.
    #[error(
        "the memory at {base:#x} was freed while {pins} bound exchanges or transfers use it, and {address:#x} is other \
         memory; drop those first"
    )]
    Stale {
        /// The address that was asked for.
        address: Address,
        /// Where the freed memory began.
        base: Address,
        /// By how many it is used.
        pins: usize,
    },
    /// Memory that is in use cannot be released.
    #[error("the memory at {address:#x} is used by {pins} bound exchanges or transfers; drop those first")]
    InUse {
        /// The address.
        address: Address,
        /// By how many.
        pins: usize,
    },
    /// Others have not unmapped in time: the memory is not to be freed yet.
    #[error("the memory at {address:#x} is still mapped by ranks {ranks:?} after {after:?}")]
    StillMapped {
        /// The address.
        address: Address,
        /// By whom.
        ranks: Vec<usize>,
        /// How long this rank has waited.
        after: Duration,
    },
    /// The other rank is gone.
    #[error("rank {rank} is gone, has left the communicator, or takes no part in mappings any more")]
    Gone {
        /// Which.
        rank: usize,
    },
    /// The other rank is not of this node.
    #[error(
        "rank {rank} shares no memory with this one: it is of another node, or the transport has only messages"
    )]
    Apart {
        /// Which.
        rank: usize,
    },
    /// A token that means nothing here, or not from that rank.
    #[error("{token:#x} is no mapping of memory of rank {rank}")]
    NoMapping {
        /// The token.
        token: u64,
        /// Whose memory it should be.
        rank: usize,
    },
    /// Bytes beyond the end of a mapping.
    #[error("{length} bytes from {offset} go beyond mapping {token:#x}, which has {bytes}")]
    Beyond {
        /// The token.
        token: u64,
        /// The first byte.
        offset: u64,
        /// How many.
        length: u64,
        /// How many the mapping has.
        bytes: u64,
    },
    /// What the communicator says.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// The mappings of a rank: of its memory by others, and of theirs here. A clone is the same, and so is what another
/// communicator of the same ranks gives.
#[derive(Clone)]
pub struct Mappings {
    comm: Communicator,
    service: Arc<Service>,
}

/// What a communicator keeps.
#[derive(Default)]
struct Part(OnceLock<Arc<Service>>);

impl Mappings {
    /// The mappings of this rank. Local; a rank maps nothing for others before it has called this. Waits take the
    /// communicator's deadline.
    pub fn of(comm: &Communicator) -> Result<Self, MappingError> {
        Ok(Self::in_process(comm, ProcessId::own(), limits_of(|variable| std::env::var_os(variable))?))
    }

    fn in_process(comm: &Communicator, process: ProcessId, limits: Limits) -> Self {
        let part = comm.part::<Part>();
        let mut is_new = false;
        let service = part.0.get_or_init(|| {
            is_new = true;
            let service = Service::new(comm.transport_of_part(), process, limits);
            service.attach(Arc::new(host::HostMemory::default()));
            Arc::new(service)
        });
        let service = Arc::clone(service);
        if is_new {
            let weak: Weak<Service> = Arc::downgrade(&service);
            comm.register(weak);
            // What came before there was anybody to serve it.
            service.drive(comm.link());
        }
        Self { comm: comm.behind_the_scenes(), service }
    }

    /// Adds what exports and opens the memory of a device, unless it is there.
    pub fn attach(&self, provider: Arc<dyn Provider>) {
        self.service.attach(provider);
    }

    /// Lets a rank map the allocation around `bytes` bytes at `address`, for one of its devices. Blocks until it has, unless
    /// it had before. The caller sees to it that the memory is freed only after a [`Mappings::release`].
    pub fn map(&self, target: Target, address: Address, bytes: u64) -> Result<Pinned, MappingError> {
        self.request(target, address, bytes)?.wait()
    }

    /// Begins a [`Mappings::map`], so that several can be under way.
    pub fn request(&self, target: Target, address: Address, bytes: u64) -> Result<Requested, MappingError> {
        let (id, offset) = self.begin(target, address, bytes, |_| Want::Map)?;
        let of = (target, address, bytes);
        Ok(Requested { mappings: self.clone(), id: Some(id), of, offset })
    }

    /// Lets a rank take `bytes` bytes at `address`. Does not block. They must not be written until the [`Transfer`] is over.
    /// Transfers arrive in any order: what is mapped already overtakes what is not.
    pub fn send(&self, target: Target, address: Address, bytes: u64) -> Result<Transfer, MappingError> {
        let want = |offset| Want::Data { offset, length: bytes };
        let (id, _) = self.begin(target, address, bytes, want)?;
        Ok(Transfer { mappings: self.clone(), epoch: id, id: Some(id), of: (target, address, bytes) })
    }

    /// Bytes that a rank, or any, has sent. Blocks until there are some.
    pub fn receive(&self, from: Option<usize>) -> Result<Arrived, MappingError> {
        let what = "bytes to take from mapped memory";
        let arrival = self.comm.wait_for(from, what, || {
            self.drive();
            Ok(self.service.arrival(from))
        })?;
        Ok(Arrived { mappings: self.clone(), arrival })
    }

    /// The address of `length` bytes of memory that rank `owner` has let this one map. It stays valid as long as what is
    /// returned. No message, no call of a driver.
    pub fn resolve(
        &self,
        owner: usize,
        token: u64,
        offset: u64,
        length: u64,
    ) -> Result<Mapping, MappingError> {
        // Its `MAPPED` may have been sent by another thread that drives just now: it is in the table then.
        match self.service.with(|protocol| protocol.resolve(owner, token, offset, length)) {
            Ok(address) => Ok(Mapping { mappings: self.clone(), token, address, length }),
            Err(Unusable::NoMapping) => Err(MappingError::NoMapping { token, rank: owner }),
            Err(Unusable::Beyond(bytes)) => Err(MappingError::Beyond { token, offset, length, bytes }),
        }
    }

    /// Makes everybody unmap the allocation around an address, and waits until they have: it can be freed then, and is
    /// really free. Memory that nobody has mapped is released at once. Blocks for 10 s at most, or as long as the
    /// communicator's deadline says.
    pub fn release(&self, address: Address) -> Result<(), MappingError> {
        let found = self.service.with(|protocol| protocol.release(address));
        let ids = found.map_err(|pins| MappingError::InUse { address, pins })?;
        let deadline = self.comm.deadline().unwrap_or(RELEASE_WITHIN);
        let holders = || {
            self.drive();
            self.service.with(|protocol| protocol.holders(&ids))
        };
        let poll = || holders().is_empty().then_some(Ok(()));
        self.wait(Some(deadline), poll, |after| {
            let ranks = self.service.with(|protocol| protocol.holders(&ids));
            MappingError::StillMapped { address, ranks, after }
        })
    }

    /// How much that nothing uses stays mapped. What is too much is unmapped at once; does not block.
    pub fn set_limits(&self, limits: Limits) {
        self.service.with(|protocol| protocol.set_limits(limits));
        self.drive();
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.service.with(|protocol| protocol.limits())
    }

    /// What has been done, and what there is now.
    pub fn stats(&self) -> Stats {
        self.service.stats()
    }

    fn drive(&self) {
        self.service.drive(self.comm.link());
    }

    fn now(&self) -> Duration {
        self.comm.link().host().now()
    }

    /// Leaves what is to be done to the progress thread: closing may wait for a device.
    fn demand(&self) {
        self.comm.link().own_bell().demand(self.comm.link().host());
    }

    /// Makes a request; its number, and the offset of the bytes in their allocation.
    fn begin(
        &self,
        target: Target,
        address: Address,
        bytes: u64,
        want: impl FnOnce(u64) -> Want,
    ) -> Result<(u64, u64), MappingError> {
        let (rank, size) = (target.rank, self.comm.size());
        if rank >= size {
            return Err(CommError::NoSuchRank { rank, size }.into());
        }
        if self.comm.link().bell(rank).is_none() {
            return Err(MappingError::Apart { rank });
        }
        let refused = |why| MappingError::Refused { address, bytes, target, why };
        let Some(found) = self.service.find(address) else {
            self.service.with(|protocol| protocol.staged());
            return Err(refused(Refusal::Private));
        };
        let within = found.0;
        let offset = address - within.base;
        if bytes > within.bytes - offset {
            return Err(MappingError::OutOfBounds { address, bytes, within });
        }
        let begun = self.service.request(&found, target, want(offset), self.now());
        let id = begun.map_err(|failed| match failed {
            Failed::Refused(why) => refused(why),
            Failed::Stale(base, pins) => MappingError::Stale { address, base, pins },
        })?;
        self.drive();
        Ok((id, offset))
    }

    /// Waits for the answer to a request.
    fn answer(&self, id: u64, target: Target) -> Result<Answer, MappingError> {
        let link = self.comm.link();
        link.check()?;
        let poll = || {
            let has_left = link.state(target.rank) != PeerState::Present;
            self.drive();
            let gone = || has_left.then_some(Err(MappingError::Gone { rank: target.rank }));
            self.service.answer(id).map(Ok).or_else(gone)
        };
        self.wait(self.comm.deadline(), poll, |after| {
            let what = format!("rank {} to map memory", target.rank);
            MappingError::Comm(CommError::Deadline { waiting: link.rank(), after, what })
        })
    }

    fn wait<T>(
        &self,
        deadline: Option<Duration>,
        poll: impl FnMut() -> Option<Result<T, MappingError>>,
        too_late: impl Fn(Duration) -> MappingError,
    ) -> Result<T, MappingError> {
        let link = self.comm.link();
        let late = |late: Late| match late {
            Late::Warn(after) => {
                tracing::warn!("rank {}: {}", link.rank(), too_late(after));
                None
            }
            Late::Deadline(after) => Some(Err(too_late(after))),
        };
        Patience { deadline, ..Patience::of(link) }.wait(link, poll, || {}, late)
    }
}

/// Who is to map which bytes.
type Of = (Target, Address, u64);

fn refused((target, address, bytes): Of, answer: Answer) -> MappingError {
    match answer {
        Answer::Refused(why) | Answer::Done(Some(why)) => {
            MappingError::Refused { address, bytes, target, why }
        }
        _ => MappingError::Gone { rank: target.rank },
    }
}

/// A [`Mappings::map`] under way. Dropping it withdraws it.
pub struct Requested {
    mappings: Mappings,
    id: Option<u64>,
    of: Of,
    offset: u64,
}

impl Requested {
    /// Blocks until the other rank has mapped it, or cannot.
    pub fn wait(mut self) -> Result<Pinned, MappingError> {
        let Some(id) = self.id else { return Err(MappingError::Gone { rank: self.of.0.rank }) };
        match self.mappings.answer(id, self.of.0)? {
            Answer::Mapped { entry, token } => {
                self.id = None;
                let (mappings, offset, bytes) = (self.mappings.clone(), self.offset, self.of.2);
                Ok(Pinned { mappings, entry, token, offset, bytes })
            }
            other => Err(refused(self.of, other)),
        }
    }
}

impl Drop for Requested {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.mappings.service.forget(id, self.mappings.now());
            self.mappings.demand();
        }
    }
}

/// Memory of this rank that another one has mapped, and keeps mapped as long as this lives.
pub struct Pinned {
    mappings: Mappings,
    entry: u64,
    token: u64,
    offset: u64,
    bytes: u64,
}

impl Pinned {
    /// What the other rank calls the mapping.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Where the bytes that were asked for begin in it.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many they are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let now = self.mappings.now();
        self.mappings.service.with(|protocol| protocol.unpin(self.entry, now));
        self.mappings.demand();
    }
}

/// Memory of another rank, mapped here as long as this lives. What uses it on a device must be over when it is dropped.
pub struct Mapping {
    mappings: Mappings,
    token: u64,
    address: Address,
    length: u64,
}

impl Mapping {
    /// The address of its first byte here.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many bytes may be used.
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.mappings.service.with(|protocol| protocol.let_go(self.token));
        self.mappings.demand();
    }
}

/// Bytes that another rank may take. Dropping it waits for nothing; the bytes stay in use until they were taken.
pub struct Transfer {
    mappings: Mappings,
    epoch: u64,
    id: Option<u64>,
    of: Of,
}

impl Transfer {
    /// Its number, the same at both ends.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Blocks until the bytes were taken. With limits of 0 nothing of them is mapped any more then.
    pub fn wait(mut self) -> Result<(), MappingError> {
        let Some(id) = self.id else { return Ok(()) };
        let answer = self.mappings.answer(id, self.of.0)?;
        self.id = None;
        match answer {
            Answer::Done(None) => Ok(()),
            other => Err(refused(self.of, other)),
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.mappings.service.forget(id, self.mappings.now());
        }
    }
}

/// Bytes of another rank, mapped here to be taken. Dropping it says that they were: what reads them must be over.
pub struct Arrived {
    mappings: Mappings,
    arrival: Arrival,
}

impl Arrived {
    /// Whose they are.
    pub fn from(&self) -> usize {
        self.arrival.from
    }

    /// The number of the transfer, the same at both ends.
    pub fn epoch(&self) -> u64 {
        self.arrival.epoch
    }

    /// The address of the first byte here.
    pub fn address(&self) -> Address {
        self.arrival.address
    }

    /// How many.
    pub fn length(&self) -> u64 {
        self.arrival.length
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.mappings.service.with(|protocol| protocol.taken(&self.arrival));
        self.mappings.demand();
    }
}

fn limits_of(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Limits, CommError> {
    let number = |variable: &'static str, default: u64| match lookup(variable) {
        None => Ok(default),
        Some(found) => match found.to_str().and_then(|text| text.parse().ok()) {
            Some(number) => Ok(number),
            None => {
                Err(CommError::Variable { variable, found, expected: "a whole number, 0 to keep nothing" })
            }
        },
    };
    let entries = number("HALOCLINE_MAPPINGS_ENTRIES", DEFAULT.entries as u64)?;
    let bytes = number("HALOCLINE_MAPPINGS_BYTES", DEFAULT.bytes)?;
    Ok(Limits { entries: usize::try_from(entries).unwrap_or(usize::MAX), bytes })
}
