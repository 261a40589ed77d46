//! State that the packets of an operation share.

use super::copy::{Copier, Copiers};
use super::parts::PART;
use super::send::EVENT_POLL;
use super::staged::STAGED_PART;
use super::{Packet, PacketError};
use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::mappings::{DeviceId, Mappings};
use crate::memory_resource::{Buffer, HostMemory, MemoryResource};
use crate::progress::Serve;
use crate::transport::Transport;
use crate::wait::Patience;
use halocline_device::{Device, DeviceError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

/// How long a wait polls the events of a device before it sleeps: as long as copies of some 100 MiB between devices take.
const DEVICE_SPIN: Duration = Duration::from_millis(1);

/// The communicator, the memory for received payloads and the mappings that the packets of an operation use.
pub struct PacketContext {
    comm: Communicator,
    mappings: Mappings,
    resource: Arc<dyn MemoryResource>,
    host: HostMemory,
    waker: Waker,
    part: usize,
    copiers: Arc<Copiers>,
}

impl PacketContext {
    /// Received payloads lie in memory of `resource`. Local. The context does not keep the rank from leaving.
    pub fn new(comm: &Communicator, resource: Arc<dyn MemoryResource>) -> Result<Self, PacketError> {
        let mappings = Mappings::of(comm);
        if let Some(device) = resource.device()
            && let Some(provider) = device.driver().provider()?
        {
            mappings.attach(provider);
        }
        let waker = Waker::from(Arc::new(Bell(comm.weak_transport())));
        let (copiers, host) = (comm.extension(), HostMemory::of(comm));
        Ok(Self { comm: comm.detached(), mappings, resource, host, waker, part: PART, copiers })
    }

    /// An empty message for so many bytes that this rank sends.
    pub(super) fn message(&self, bytes: usize) -> Result<Vec<u8>, PacketError> {
        let message = crate::buffers::try_take(bytes + Communicator::SPARE);
        let from = self.comm.rank();
        message.map_err(|error| PacketError::Memory { from, bytes: bytes as u64, error: error.into() })
    }

    /// The communicator.
    pub fn comm(&self) -> &Communicator {
        &self.comm
    }

    /// Where received payloads lie.
    pub fn resource(&self) -> &dyn MemoryResource {
        &*self.resource
    }

    /// The device of this rank that can map a peer's memory: senders of device payloads must know it
    /// ([`PacketSend::to_device`](crate::packet::PacketSend::to_device)).
    pub fn device(&self) -> Option<DeviceId> {
        self.resource.device()?.driver().uuid()
    }

    /// How a wait for packets goes, with a deadline. It polls for longer where a device may copy payloads: no bell rings when an
    /// event has happened.
    pub fn patience(&self, deadline: Option<Duration>) -> Patience {
        let patience = Patience { deadline, ..Patience::of(self.comm.link()) };
        match self.resource.device() {
            Some(_) if !patience.spin.is_zero() => Patience { spin: DEVICE_SPIN, ..patience },
            _ => patience,
        }
    }

    /// The same with other parts, on all ranks.
    #[cfg(test)]
    pub(super) fn in_parts_of(self, part: usize) -> Self {
        Self { part, ..self }
    }

    /// Bytes of a part of a payload that messages carry.
    pub(super) fn part(&self) -> usize {
        self.part
    }

    /// Bytes of a part of a payload on a device that messages carry.
    pub(super) fn staged_part(&self) -> usize {
        self.part.min(STAGED_PART)
    }

    pub(super) fn host(&self) -> &HostMemory {
        &self.host
    }

    pub(super) fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// The copies of a device.
    pub(super) fn copier(&self, device: &Device) -> Result<Arc<Copier>, DeviceError> {
        self.copiers.of(device, &self.host)
    }

    /// Drops a packet that was refused. Never blocks: memory that a stream still writes is kept until it does no more.
    pub fn discard(&self, packet: Packet) {
        let is_unready = |payload: &Buffer| payload.is_ready() == Ok(false);
        if let Some(payload) = packet.payload.filter(is_unready) {
            let unready = Unready { comm: self.comm.clone(), payload: Mutex::new(Some(payload)) };
            self.comm.defer_drop(Arc::new(unready));
        }
    }

    /// Rings this rank when memory is given back.
    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn now(&self) -> Duration {
        self.comm.link().host().now()
    }

    /// Whether this rank shares memory with another.
    pub(super) fn shares_memory(&self, rank: usize) -> bool {
        self.comm.link().bell(rank).is_some()
    }

    pub(super) fn check_rank(&self, rank: usize) -> Result<(), CommError> {
        let size = self.comm.size();
        if rank < size { Ok(()) } else { Err(CommError::NoSuchRank { rank, size }) }
    }
}

/// A payload that nobody wants any more, and that a stream still writes.
struct Unready {
    comm: Communicator,
    payload: Mutex<Option<Buffer>>,
}

impl Unready {
    fn payload(&self) -> MutexGuard<'_, Option<Buffer>> {
        // No panic can happen while it is held.
        self.payload.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Serve for Unready {
    fn serve(&self) {
        // Dropped outside of the lock: its owner may be the program's.
        let _over = self.payload().take_if(|payload| payload.is_ready() != Ok(false));
    }

    fn is_over(&self) -> bool {
        self.payload().is_none()
    }

    fn due(&self) -> Option<Duration> {
        self.payload().as_ref().map(|_| self.comm.link().host().now() + EVENT_POLL)
    }
}

/// Wakes the threads of a rank.
struct Bell(Weak<dyn Transport>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(transport) = self.0.upgrade() {
            transport.own_bell().changed(transport.host());
            transport.own_bell().demand(transport.host());
        }
    }
}
