//! The handles that [`Mappings`] returns, and the meaning of their drops.

use super::protocol::{Answer, Arrival, Target};
use super::service::RELEASE_WITHIN;
use super::{DeviceId, MappingError, Mappings};
use halocline_device::Address;
use halocline_device::remote::Kind;
use std::time::Duration;

/// The target and the bytes of a request.
pub(super) type Of = (Target, Address, u64);

fn refused((target, address, bytes): Of, answer: Answer) -> MappingError {
    match answer {
        Answer::Refused(why) | Answer::Done(Some(why)) => {
            MappingError::Refused { address, bytes, target, why }
        }
        _ => MappingError::Gone { rank: target.rank },
    }
}

/// A [`Mappings::map`] in progress. Dropping it withdraws the request.
pub struct Requested {
    pub(super) mappings: Mappings,
    pub(super) id: Option<u64>,
    pub(super) of: Of,
    pub(super) begun: Duration,
    pub(super) offset: u64,
    pub(super) kind: Kind,
}

impl Requested {
    /// Blocks until the other rank has mapped it or refuses.
    pub fn wait(mut self) -> Result<Pinned, MappingError> {
        let Some(id) = self.id else { return Err(MappingError::Gone { rank: self.of.0.rank }) };
        let answer = self.mappings.answer(id, self.of.0, self.begun)?;
        self.pinned(answer)
    }

    /// The answer of the other rank, if it has come. Never blocks. Memory that is mapped already is answered at once. The
    /// rank's bell rings when the answer comes.
    pub fn poll(&mut self) -> Option<Result<Pinned, MappingError>> {
        let Some(id) = self.id else { return Some(Err(MappingError::Gone { rank: self.of.0.rank })) };
        let answer = self.mappings.answer_now(id, self.of.0.rank, self.begun)?;
        Some(answer.and_then(|answer| self.pinned(answer)))
    }

    /// When to poll at the latest although no bell has rung: freed memory delays a request only so long.
    pub(crate) fn due(&self) -> Duration {
        self.begun + RELEASE_WITHIN
    }

    fn pinned(&mut self, answer: Answer) -> Result<Pinned, MappingError> {
        match answer {
            Answer::Mapped { entry, token, address } => {
                self.id = None;
                let (mappings, offset, bytes) = (self.mappings.clone(), self.offset, self.of.2);
                let address = address.wrapping_add(offset);
                Ok(Pinned { mappings, entry, token, address, offset, bytes, kind: self.kind })
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

/// Memory of this rank that another rank keeps mapped as long as this lives.
pub struct Pinned {
    pub(super) mappings: Mappings,
    pub(super) entry: u64,
    pub(super) token: u64,
    pub(super) address: Address,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) kind: Kind,
}

impl Pinned {
    /// How another process maps the memory.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The other rank's name for the mapping, to pass to [`Mappings::resolve`] there.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The address of the requested bytes in the other rank's process. Only that rank and its device may use it.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The offset of the requested bytes in the mapping.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The number of bytes.
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

/// Memory of another rank, mapped here as long as this lives. Device work that uses it must be over when it is dropped.
pub struct Mapping {
    pub(super) mappings: Mappings,
    pub(super) token: u64,
    pub(super) address: Address,
    pub(super) length: u64,
    pub(super) kind: Option<Kind>,
    pub(super) device: Option<DeviceId>,
}

impl Mapping {
    /// How it was mapped; `None` for memory of this process.
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// The device of this rank that it was mapped for; [`DeviceId::HOST`] for the host.
    pub fn device(&self) -> Option<DeviceId> {
        self.device
    }

    /// The address of its first byte here.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The number of usable bytes.
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.mappings.service.with(|protocol| protocol.end_use(self.token));
        self.mappings.demand();
    }
}

/// Memory of a rank that is mapped here stays so as long as this lives, even if that rank ends: for device work that writes to it and that
/// the host does not follow. What the rank itself has unmapped is closed all the same.
pub struct Kept {
    pub(super) mappings: Mappings,
    pub(super) owner: usize,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.mappings.service.with(|protocol| protocol.end_keep(self.owner));
        self.mappings.demand();
    }
}

/// Bytes that another rank may read. Dropping it does not wait; the bytes stay in use until they were read.
pub struct Transfer {
    pub(super) mappings: Mappings,
    pub(super) epoch: u64,
    pub(super) id: Option<u64>,
    pub(super) of: Of,
    pub(super) begun: Duration,
}

impl Transfer {
    /// Its number, the same at both ends.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Blocks until the bytes were read. With a limit of 0 they are unmapped then, too.
    pub fn wait(mut self) -> Result<(), MappingError> {
        let Some(id) = self.id else { return Ok(()) };
        let answer = self.mappings.answer(id, self.of.0, self.begun)?;
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

/// Bytes of another rank, mapped here to be read. Dropping it reports that they were read: all reads must be over.
pub struct Arrived {
    pub(super) mappings: Mappings,
    pub(super) arrival: Arrival,
}

impl Arrived {
    /// The sender.
    pub fn from(&self) -> usize {
        // Bytes of a rank that is no member of a split communicator are numbered as the transport does.
        self.mappings.comm.inner_rank(self.arrival.from).unwrap_or(self.arrival.from)
    }

    /// The number of the transfer, the same at both ends.
    pub fn epoch(&self) -> u64 {
        self.arrival.epoch
    }

    /// The address of the first byte here.
    pub fn address(&self) -> Address {
        self.arrival.address
    }

    /// The number of bytes.
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
