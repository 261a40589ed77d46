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
//! `docs/internals/mappings.md` has the protocol. Limits: `HALOCLINE_MAPPINGS_ENTRIES` and `HALOCLINE_MAPPINGS_BYTES`, or
//! [`Mappings::set_limits`].

mod bounds;
mod error;
#[cfg(test)]
mod fake;
#[cfg(fuzzing)]
pub mod fuzz;
mod handles;
mod host;
mod message;
mod protocol;
mod service;
#[cfg(test)]
mod tests;

pub use bounds::{Limits, Stats};
pub use error::MappingError;
pub use halocline_device::remote::{Allocation, DeviceId, Kind, Provider, Refusal};
pub use handles::{Arrived, Mapping, Pinned, Requested, Transfer};
pub use message::MessageError;
pub use protocol::Target;

use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::transport::PeerState;
use crate::wait::{Late, Patience};
use halocline_device::Address;
use message::ProcessId;
use protocol::{Answer, Unusable, Want};
use service::Service;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

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
        let process = comm.link().pretends().map_or_else(ProcessId::own, ProcessId::pretended);
        Ok(Self::in_process(comm, process, Limits::from_environment()?))
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
        Self { comm: comm.detached(), service }
    }

    /// Adds what exports and opens the memory of a device, unless it is there.
    pub fn attach(&self, provider: Arc<dyn Provider>) {
        self.service.attach(provider);
    }

    /// Lets a rank map the allocation around `bytes` bytes at `address`, for one of its devices. Blocks until it has, unless
    /// it had before: then no message is sent and no driver called, but to ask of memory that the library has not allocated whether it
    /// is still there. Refused where the target still has memory open, for 10 s, that lay there before and was freed without a word. The
    /// caller sees to it that the memory is freed only after a [`Mappings::release`].
    pub fn map(&self, target: Target, address: Address, bytes: u64) -> Result<Pinned, MappingError> {
        self.request(target, address, bytes)?.wait()
    }

    /// Begins a [`Mappings::map`], so that several can be under way.
    pub fn request(&self, target: Target, address: Address, bytes: u64) -> Result<Requested, MappingError> {
        let begun = self.now();
        let (id, offset, kind) = self.begin(target, address, bytes, |_| Want::Map)?;
        let of = (target, address, bytes);
        Ok(Requested { mappings: self.clone(), id: Some(id), of, begun, offset, kind })
    }

    /// Lets a rank take `bytes` bytes at `address`. Does not block. They must not be written until the [`Transfer`] is over.
    /// Transfers arrive in any order: what is mapped already overtakes what is not.
    pub fn send(&self, target: Target, address: Address, bytes: u64) -> Result<Transfer, MappingError> {
        let want = |offset| Want::Data { offset, length: bytes };
        let begun = self.now();
        let (id, ..) = self.begin(target, address, bytes, want)?;
        let of = (target, address, bytes);
        Ok(Transfer { mappings: self.clone(), epoch: id, id: Some(id), of, begun })
    }

    /// Bytes that a rank, or any, has sent. Blocks until there are some.
    pub fn receive(&self, from: Option<usize>) -> Result<Arrived, MappingError> {
        const WHAT: &str = "bytes to take from mapped memory";
        let link = self.comm.link();
        link.check()?;
        let poll = || {
            let gone = (link.departures() > 0).then(|| self.comm.departed(from, WHAT)).flatten();
            // What came before it left may still be in the hands of another thread.
            let is_all = self.drive_once_gone(gone.is_some());
            let gone = gone.filter(|_| is_all).map(|error| Err(error.into()));
            self.service.arrival(from).map(Ok).or(gone)
        };
        let arrival = self.wait(self.comm.deadline(), WHAT, poll, |after| {
            CommError::Deadline { waiting: link.rank(), after, what: WHAT.to_owned() }.into()
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
            Ok(address) => {
                let kind = self.service.kind(token);
                Ok(Mapping { mappings: self.clone(), token, address, length, kind })
            }
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
        let deadline = self.comm.deadline().unwrap_or(service::RELEASE_WITHIN);
        let holders = || {
            self.drive();
            self.service.with(|protocol| protocol.holders(&ids))
        };
        let poll = || holders().is_empty().then_some(Ok(()));
        self.wait(Some(deadline), "memory to be unmapped", poll, |after| {
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

    /// Does what can be done. Whether nothing that had come is still in the hands of another thread.
    fn drive(&self) -> bool {
        self.service.drive(self.comm.link())
    }

    /// The same; where a rank that is waited for has gone and another thread is at it, that one rings once it is through.
    fn drive_once_gone(&self, is_gone: bool) -> bool {
        if is_gone {
            self.service.ring();
        }
        self.drive()
    }

    fn now(&self) -> Duration {
        self.comm.link().host().now()
    }

    /// Leaves what is to be done to the progress thread: who drops a handle does not call the driver.
    fn demand(&self) {
        self.comm.link().own_bell().demand(self.comm.link().host());
    }

    /// Makes a request; its number, the offset of the bytes in their allocation, and the kind of that.
    fn begin(
        &self,
        target: Target,
        address: Address,
        bytes: u64,
        want: impl FnOnce(u64) -> Want,
    ) -> Result<(u64, u64, Kind), MappingError> {
        let (rank, size) = (target.rank, self.comm.size());
        if rank >= size {
            return Err(CommError::NoSuchRank { rank, size }.into());
        }
        if self.comm.link().bell(rank).is_none() {
            return Err(MappingError::Apart { rank });
        }
        let Some(within) = self.service.find(address, bytes) else {
            self.service.with(|protocol| protocol.staged());
            return Err(MappingError::Refused { address, bytes, target, why: Refusal::Private });
        };
        let offset = address - within.base;
        if bytes > within.bytes - offset {
            return Err(MappingError::OutOfBounds { address, bytes, within });
        }
        let begun = self.service.request(&within, target, want(offset), self.now());
        let id = begun.map_err(|(base, pins)| MappingError::Stale { address, base, pins })?;
        self.drive();
        Ok((id, offset, within.kind))
    }

    /// Waits for the answer to a request.
    fn answer(&self, id: u64, target: Target, begun: Duration) -> Result<Answer, MappingError> {
        let link = self.comm.link();
        link.check()?;
        let poll = || {
            let has_left = link.state(target.rank) != PeerState::Present;
            // What came before it left may still be in the hands of another thread.
            let is_all = self.drive_once_gone(has_left);
            let gone = || (has_left && is_all).then_some(Err(MappingError::Gone { rank: target.rank }));
            self.service.answer(id).map(Ok).or_else(gone)
        };
        let what = format!("rank {} to map memory", target.rank);
        let too_late = |after| CommError::Deadline { waiting: link.rank(), after, what: what.clone() }.into();
        let deadline = self.comm.deadline();
        // How long memory that was freed may hold it back, since it was asked for.
        let first = service::RELEASE_WITHIN.saturating_sub(self.now().saturating_sub(begun));
        if deadline.is_some_and(|deadline| deadline <= first) {
            return self.wait(deadline, &what, poll, too_late);
        }
        match self.wait(Some(first), &what, poll, too_late) {
            Err(MappingError::Comm(CommError::Deadline { .. })) => {}
            answer => return answer,
        }
        // That may be open there for as long as an exchange that waits for this rank.
        if self.service.refuse_held_back(id, self.now()) {
            return Ok(Answer::Refused(Refusal::AlreadyOpen));
        }
        let left = deadline.map(|deadline| deadline - first);
        self.wait(left, &what, poll, |after| too_late(first + after))
    }

    fn wait<T>(
        &self,
        deadline: Option<Duration>,
        what: &str,
        mut poll: impl FnMut() -> Option<Result<T, MappingError>>,
        too_late: impl Fn(Duration) -> MappingError,
    ) -> Result<T, MappingError> {
        let link = self.comm.link();
        let mut departures = 0;
        let poll = || {
            let before = link.departures();
            let found = poll();
            if found.is_some() || before == departures {
                return found;
            }
            // So may the transport itself.
            departures = before;
            link.check().err().map(|error| Err(error.into()))
        };
        let late = |late: Late| match late {
            Late::Announce => None,
            Late::Warn { after, again } => {
                link.host().tell_late(&format!("rank {}: {}", link.rank(), too_late(after)), again);
                None
            }
            Late::Deadline(after) => Some(Err(too_late(after))),
            Late::Interrupted => {
                Some(Err(CommError::Interrupted { waiting: link.rank(), what: what.to_owned() }.into()))
            }
        };
        Patience { deadline, ..Patience::of(link) }.wait(link, poll, || {}, late)
    }
}
