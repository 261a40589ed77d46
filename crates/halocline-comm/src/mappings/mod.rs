//! Memory of one rank, mapped by other ranks of the same node: exported, opened and closed once, used many times.
//!
//! Each rank has one cache for its exports, shared by all users of its communicators: [`Mappings`]. The owner of memory
//! lets a rank map it ([`Mappings::map`]) and sends the mapping's token and offset to that rank, which gets an
//! address for them ([`Mappings::resolve`]). While both sides hold their handles, the mapping does not change, and
//! its use sends no message, calls no driver and takes no lock.
//!
//! ```
//! use halocline_comm::mappings::{DeviceId, Mappings, Target};
//! use halocline_comm::{Communicator, Tag};
//!
//! # use halocline_comm::MappingError;
//! let rank = |comm: Communicator| -> Result<(), MappingError> {
//!     let (mappings, peer) = (Mappings::of(&comm), 1 - comm.rank());
//!     let memory = comm.allocate(1 << 20)?;
//!     let address = memory.base().as_ptr().expose_provenance() as u64;
//!     let pinned = mappings.map(Target { rank: peer, device: DeviceId::HOST }, address + 64, 4096)?;
//!     let tokens = comm.all_gather(&pinned.token().to_le_bytes())?;
//!     let token = u64::from_le_bytes(tokens[peer][..].try_into().expect("8 bytes"));
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
//! `docs/internals/mappings.md` has the protocol.

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
mod stats;
#[cfg(test)]
mod tests;

pub use error::MappingError;
pub use halocline_device::remote::{Allocation, DeviceId, Kind, Provider, Refusal};
pub use handles::{Arrived, Kept, Mapping, Pinned, Requested, Transfer};
pub use message::MessageError;
pub use protocol::Target;
pub use stats::Stats;

use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::transport::PeerState;
use crate::wait::{Late, Patience};
use halocline_device::Address;
use message::ProcessId;
use protocol::{Answer, Protocol, Unusable, Want};
use service::Service;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The mappings of a rank: of its memory by other ranks, and of theirs here. All communicators of a rank share one cache;
/// ranks are numbered as in the communicator of [`Mappings::of`].
#[derive(Clone)]
pub struct Mappings {
    comm: Communicator,
    service: Arc<Service>,
}

/// The extension of a communicator.
#[derive(Default)]
struct Cache(OnceLock<Arc<Service>>);

impl Mappings {
    /// The mappings of this rank. Local; a rank maps nothing for others before it has called this. Waits have the
    /// communicator's deadline.
    pub fn of(comm: &Communicator) -> Self {
        let process = comm.link().emulated_process().map_or_else(ProcessId::own, ProcessId::emulated);
        Self::in_process(comm, process)
    }

    fn in_process(comm: &Communicator, process: ProcessId) -> Self {
        let cache = comm.extension::<Cache>();
        let mut is_new = false;
        let service = cache.0.get_or_init(|| {
            is_new = true;
            let service = Service::new(comm.weak_transport(), process);
            service.attach(Arc::new(host::HostMemory::default()));
            Arc::new(service)
        });
        let service = Arc::clone(service);
        if is_new {
            comm.register(&service);
        }
        Self { comm: comm.detached(), service }
    }

    /// Adds the provider of a device, unless the device has one.
    pub fn attach(&self, provider: Arc<dyn Provider>) {
        self.service.attach(provider);
    }

    /// Lets a rank map the allocation around `bytes` bytes at `address`, for one of its devices. Blocks until it has. If it
    /// has the mapping already, no message is sent, and the driver is only asked whether foreign memory still exists.
    /// Refused if the target keeps former memory at this address open for more than 10 s. The
    /// caller frees the memory only after a [`Mappings::release`].
    pub fn map(&self, target: Target, address: Address, bytes: u64) -> Result<Pinned, MappingError> {
        self.request(target, address, bytes)?.wait()
    }

    /// Begins a [`Mappings::map`], so that several can be in progress.
    pub fn request(&self, target: Target, address: Address, bytes: u64) -> Result<Requested, MappingError> {
        let begun = self.now();
        let (id, offset, kind) = self.begin(target, address, bytes, |_| Want::Map)?;
        let of = (target, address, bytes);
        Ok(Requested { mappings: self.clone(), id: Some(id), of, begun, offset, kind })
    }

    /// Lets a rank read `bytes` bytes at `address`. Does not block. They must not be written until the [`Transfer`] is over.
    /// Transfers arrive in any order: memory that is mapped already overtakes other memory.
    pub fn send(&self, target: Target, address: Address, bytes: u64) -> Result<Transfer, MappingError> {
        let want = |offset| Want::Data { offset, length: bytes };
        let begun = self.now();
        let (id, ..) = self.begin(target, address, bytes, want)?;
        let of = (target, address, bytes);
        Ok(Transfer { mappings: self.clone(), epoch: id, id: Some(id), of, begun })
    }

    /// Receives bytes from one rank, or from any. Blocks.
    pub fn receive(&self, from: Option<usize>) -> Result<Arrived, MappingError> {
        const WHAT: &str = "bytes to take from mapped memory";
        let link = self.comm.link();
        link.check()?;
        let source = from.map(|rank| self.outer(rank)).transpose()?;
        let poll = || {
            let gone = (link.departures() > 0).then(|| self.comm.departed(from, WHAT)).flatten();
            // Another thread may still process a message from before it left.
            let is_all = self.drive_once_gone(gone.is_some());
            let gone = gone.filter(|_| is_all).map(|error| Err(error.into()));
            self.service.arrival(source).map(Ok).or(gone)
        };
        let arrival = self.wait(self.comm.deadline, WHAT, poll, |after| {
            CommError::Deadline { waiting: link.rank(), after, what: WHAT.to_owned() }.into()
        })?;
        Ok(Arrived { mappings: self.clone(), arrival })
    }

    /// The address of `length` bytes of memory that rank `owner` lets this one map. It stays valid as long as the returned
    /// handle. Sends no message and calls no driver.
    pub fn resolve(
        &self,
        owner: usize,
        token: u64,
        offset: u64,
        length: u64,
    ) -> Result<Mapping, MappingError> {
        let number = self.outer(owner)?;
        // Another thread that drives just now may have sent `MAPPED` for it: it is in the table then.
        let resolve = |protocol: &mut Protocol| {
            let address = protocol.resolve(number, token, offset, length)?;
            Ok((address, protocol.mapped_for(token)))
        };
        match self.service.with(resolve) {
            Ok((address, device)) => {
                let kind = self.service.kind(token);
                Ok(Mapping { mappings: self.clone(), token, address, length, kind, device })
            }
            Err(Unusable::NoMapping) => Err(MappingError::NoMapping { token, rank: owner }),
            Err(Unusable::Beyond(bytes)) => Err(MappingError::Beyond { token, offset, length, bytes }),
        }
    }

    /// Keeps memory of a rank open here if it dies, until the handle is dropped.
    pub fn keep(&self, owner: usize) -> Result<Kept, MappingError> {
        let owner = self.outer(owner)?;
        self.service.with(|protocol| protocol.keep(owner));
        Ok(Kept { mappings: self.clone(), owner })
    }

    /// Makes all ranks unmap the allocation around an address, and waits until they have: then it can be
    /// freed. Memory that no rank has mapped is released at once. Blocks for 10 s at most, or for the
    /// communicator's deadline.
    pub fn release(&self, address: Address) -> Result<(), MappingError> {
        let found = self.service.with(|protocol| protocol.release(address));
        let ids = found.map_err(|pins| MappingError::InUse { address, pins })?;
        let deadline = self.comm.deadline.unwrap_or(service::RELEASE_WITHIN);
        let holders = || {
            self.drive();
            self.service.with(|protocol| protocol.holders(&ids))
        };
        let poll = || holders().is_empty().then_some(Ok(()));
        self.wait(Some(deadline), "memory to be unmapped", poll, |after| {
            let numbers = self.service.with(|protocol| protocol.holders(&ids));
            let ranks = numbers.into_iter().filter_map(|number| self.comm.inner_rank(number)).collect();
            MappingError::StillMapped { address, ranks, after }
        })
    }

    /// Limits how many unused allocations of this rank stay mapped by others; 1024 unless set. 0: each is unmapped when its
    /// transfer ends. Excess is unmapped at once; does not block.
    pub fn set_limit(&self, limit: usize) {
        self.service.with(|protocol| protocol.set_limit(limit));
        self.drive();
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.service.with(|protocol| protocol.limit())
    }

    /// The statistics.
    pub fn stats(&self) -> Stats {
        self.service.stats()
    }

    /// Does the work that is possible now. False if another thread still processes messages.
    fn drive(&self) -> bool {
        self.service.drive(self.comm.outer_link())
    }

    /// The same; if the awaited rank is gone and another thread drives, that thread rings when it is done.
    fn drive_once_gone(&self, is_gone: bool) -> bool {
        if is_gone {
            self.service.ring();
        }
        self.drive()
    }

    /// The transport's number of a rank, by which the service knows it.
    fn outer(&self, rank: usize) -> Result<usize, MappingError> {
        let number = self.comm.outer_rank(rank).filter(|_| rank < self.comm.size());
        Ok(number.ok_or(CommError::NoSuchRank { rank, size: self.comm.size() })?)
    }

    fn now(&self) -> Duration {
        self.comm.link().host().now()
    }

    /// Leaves the work to the progress thread, if there is any: dropping a handle does not call the driver.
    fn demand(&self) {
        if !self.service.has_work() {
            return;
        }
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
        let rank = target.rank;
        let number = self.outer(rank)?;
        if self.comm.link().bell(rank).is_none() {
            return Err(MappingError::Apart { rank });
        }
        let Some(found) = self.service.find(address, bytes) else {
            self.service.with(|protocol| protocol.staged());
            return Err(MappingError::Refused { address, bytes, target, why: Refusal::Private });
        };
        let within = found.allocation;
        let offset = address - within.base;
        if bytes > within.bytes - offset {
            return Err(MappingError::OutOfBounds { address, bytes, within });
        }
        let holder = Target { rank: number, ..target };
        let begun = self.service.request(&found, holder, want(offset), self.now());
        let id = begun.map_err(|(base, pins)| MappingError::Stale { address, base, pins })?;
        self.drive();
        Ok((id, offset, within.kind))
    }

    /// The answer to a request, if it has come; a refusal if freed memory has delayed the request too long.
    fn answer_now(&self, id: u64, rank: usize, begun: Duration) -> Option<Result<Answer, MappingError>> {
        // A rank that has left still serves what it dropped in flight.
        let is_gone = matches!(self.comm.link().state(rank), PeerState::Ended | PeerState::Dead);
        // Another thread may still process a message from before it ended.
        let is_all = self.drive_once_gone(is_gone);
        if let Some(answer) = self.service.answer(id) {
            return Some(Ok(answer));
        }
        if is_gone && is_all {
            return Some(Err(MappingError::Gone { rank }));
        }
        let is_late = self.now().saturating_sub(begun) >= service::RELEASE_WITHIN;
        let is_refused = is_late && self.service.refuse_held_back(id, self.now());
        is_refused.then_some(Ok(Answer::Refused(Refusal::AlreadyOpen)))
    }

    /// Waits for the answer to a request.
    fn answer(&self, id: u64, target: Target, begun: Duration) -> Result<Answer, MappingError> {
        let link = self.comm.link();
        link.check()?;
        let poll = || {
            let has_left = link.state(target.rank) != PeerState::Present;
            // Another thread may still process a message from before it left.
            let is_all = self.drive_once_gone(has_left);
            let gone = || (has_left && is_all).then_some(Err(MappingError::Gone { rank: target.rank }));
            self.service.answer(id).map(Ok).or_else(gone)
        };
        let what = format!("rank {} to map memory", target.rank);
        let too_late = |after| CommError::Deadline { waiting: link.rank(), after, what: what.clone() }.into();
        let deadline = self.comm.deadline;
        // How long freed memory may delay the request.
        let first = service::RELEASE_WITHIN.saturating_sub(self.now().saturating_sub(begun));
        if deadline.is_some_and(|deadline| deadline <= first) {
            return self.wait(deadline, &what, poll, too_late);
        }
        match self.wait(Some(first), &what, poll, too_late) {
            Err(MappingError::Comm(CommError::Deadline { .. })) => {}
            answer => return answer,
        }
        // An exchange that waits for this rank may keep that memory open there.
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
            // Check whether the transport itself has failed.
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
        Patience { deadline, ..Patience::of(link) }.wait(link, poll, || {}, || Duration::MAX, late)
    }
}
