//! What [`Mappings`] gives out, and what dropping it means.

use super::protocol::{Answer, Arrival, Target};
use super::{MappingError, Mappings};
use halocline_device::Address;
use halocline_device::remote::Kind;
use std::time::Duration;

/// Who is to map which bytes.
pub(super) type Of = (Target, Address, u64);

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
    pub(super) mappings: Mappings,
    pub(super) id: Option<u64>,
    pub(super) of: Of,
    pub(super) begun: Duration,
    pub(super) offset: u64,
    pub(super) kind: Kind,
}

impl Requested {
    /// Blocks until the other rank has mapped it, or cannot.
    pub fn wait(mut self) -> Result<Pinned, MappingError> {
        let Some(id) = self.id else { return Err(MappingError::Gone { rank: self.of.0.rank }) };
        match self.mappings.answer(id, self.of.0, self.begun)? {
            Answer::Mapped { entry, token } => {
                self.id = None;
                let (mappings, offset, bytes) = (self.mappings.clone(), self.offset, self.of.2);
                Ok(Pinned { mappings, entry, token, offset, bytes, kind: self.kind })
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
    pub(super) mappings: Mappings,
    pub(super) entry: u64,
    pub(super) token: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) kind: Kind,
}

impl Pinned {
    /// How the memory gets into another process; into this one, by its address.
    pub fn kind(&self) -> Kind {
        self.kind
    }

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
    pub(super) mappings: Mappings,
    pub(super) token: u64,
    pub(super) address: Address,
    pub(super) length: u64,
    pub(super) kind: Option<Kind>,
}

impl Mapping {
    /// How it came here; `None` if it is memory of this very process.
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

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

    /// Blocks until the bytes were taken. With limits of 0 nothing of them is mapped any more then.
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

/// Bytes of another rank, mapped here to be taken. Dropping it says that they were: what reads them must be over.
pub struct Arrived {
    pub(super) mappings: Mappings,
    pub(super) arrival: Arrival,
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
