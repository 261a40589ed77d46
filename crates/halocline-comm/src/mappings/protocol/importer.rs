//! The importer's side: a table of the mappings that are open here, without a policy.

use super::{Attached, Effect, Protocol, post};
use crate::mappings::message::{Descriptor, Message, MessageError};
use halocline_device::Address;
use halocline_device::remote::{DeviceId, Refusal};

/// Bytes of another rank that are ready to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) from: usize,
    pub(crate) epoch: u64,
    pub(crate) token: u64,
    pub(crate) address: Address,
    pub(crate) length: u64,
}

/// Memory of another rank, open here.
pub(super) struct Import {
    pub(super) owner: usize,
    entry: u64,
    device: DeviceId,
    pub(super) bytes: u64,
    address: Address,
    uses: usize,
    pub(super) phase: Phase,
    /// Transfers that ended after `UNMAP` had come.
    ended: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Opening,
    Open,
    /// `UNMAP` has come; closes once nothing uses it.
    Ending,
    Closing,
}

/// A mapping that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    NoMapping,
    Beyond(u64),
}

impl Protocol {
    pub(super) fn offered(
        &mut self,
        (owner, entry): (usize, u64),
        device: DeviceId,
        descriptor: Descriptor,
        attached: Attached,
    ) -> Result<(), MessageError> {
        let known = |import: &Import| (import.owner, import.entry, import.device) == (owner, entry, device);
        if self.imports.values().any(known) {
            return Err(MessageError::Repeated { entry, device });
        }
        let token = self.fresh();
        let (bytes, address, uses) = (descriptor.allocation.bytes, 0, 0);
        let (phase, ended) = (Phase::Opening, Vec::new());
        self.imports.insert(token, Import { owner, entry, device, bytes, address, uses, phase, ended });
        self.out.push_back(Effect::Open { token, device, descriptor, attached });
        Ok(())
    }

    /// The result of an [`Effect::Open`].
    pub(crate) fn opened(&mut self, token: u64, outcome: Result<Address, Refusal>) {
        let Some(import) = self.imports.get_mut(&token) else { return };
        let (to, entry, device) = (import.owner, import.entry, import.device);
        match outcome {
            Ok(address) if import.phase == Phase::Opening => {
                (import.address, import.phase) = (address, Phase::Open);
                self.out.push_back(post(to, Message::Mapped { entry, device, token, address }));
            }
            Ok(_) => self.close_if_unused(token),
            Err(why) => {
                self.imports.remove(&token);
                self.out.push_back(post(to, Message::MapFailed { entry, device, why }));
            }
        }
    }

    /// An [`Effect::Close`] is done.
    pub(crate) fn closed(&mut self, token: u64) {
        let Some(import) = self.imports.remove(&token) else { return };
        let unmapped = Message::Unmapped { entry: import.entry, device: import.device };
        self.out.push_back(post(import.owner, unmapped));
        let done = |epoch| post(import.owner, Message::Done { epoch, refused: None });
        self.out.extend(import.ended.into_iter().map(done));
    }

    /// The address of bytes of a mapping, which stays open until [`Protocol::end_use`].
    pub(crate) fn resolve(
        &mut self,
        owner: usize,
        token: u64,
        offset: u64,
        length: u64,
    ) -> Result<Address, Unusable> {
        let known = |import: &&mut Import| import.owner == owner && import.phase == Phase::Open;
        let import = self.imports.get_mut(&token).filter(known).ok_or(Unusable::NoMapping)?;
        if offset.checked_add(length).is_none_or(|end| end > import.bytes) {
            return Err(Unusable::Beyond(import.bytes));
        }
        import.uses += 1;
        Ok(import.address + offset)
    }

    /// The device of this rank that a mapping is for.
    pub(crate) fn mapped_for(&self, token: u64) -> Option<DeviceId> {
        Some(self.imports.get(&token)?.device)
    }

    /// Ends one use of a mapping.
    pub(crate) fn end_use(&mut self, token: u64) {
        if let Some(import) = self.imports.get_mut(&token) {
            import.uses -= 1;
            self.close_if_unused(token);
        }
    }

    /// The bytes of an arrival have been read.
    pub(crate) fn taken(&mut self, arrival: &Arrival) {
        match self.imports.get_mut(&arrival.token) {
            Some(import) if import.phase != Phase::Open => import.ended.push(arrival.epoch),
            _ => {
                self.out.push_back(post(arrival.from, Message::Done { epoch: arrival.epoch, refused: None }))
            }
        }
        self.end_use(arrival.token);
    }

    pub(super) fn data(
        &mut self,
        (from, entry, token): (usize, u64, u64),
        (offset, length): (u64, u64),
        epoch: u64,
        last: bool,
    ) -> Result<(), MessageError> {
        if self.imports.get(&token).is_none_or(|import| import.entry != entry) {
            return Err(MessageError::NoMapping { token });
        }
        let resolved = self.resolve(from, token, offset, length);
        if last && resolved != Err(Unusable::NoMapping) {
            self.end(token);
        }
        match resolved {
            Ok(address) => {
                self.out.push_back(Effect::Arrived(Arrival { from, epoch, token, address, length }));
                Ok(())
            }
            Err(Unusable::NoMapping) => Err(MessageError::NoMapping { token }),
            Err(Unusable::Beyond(_)) => {
                let refused = Some(Refusal::BadHandle);
                self.out.push_back(post(from, Message::Done { epoch, refused }));
                Ok(())
            }
        }
    }

    pub(super) fn unmap(&mut self, from: usize, token: u64) -> Result<(), MessageError> {
        match self.imports.get(&token) {
            Some(import) if import.owner != from || import.phase == Phase::Opening => {
                return Err(MessageError::NoMapping { token });
            }
            // Unknown: this rank ends and has closed it already.
            _ => self.end(token),
        }
        Ok(())
    }

    /// From now on the end of a rank does not close its memory here, until [`Protocol::end_keep`].
    pub(crate) fn keep(&mut self, owner: usize) {
        *self.kept.entry(owner).or_default() += 1;
    }

    /// Ends one [`Protocol::keep`].
    pub(crate) fn end_keep(&mut self, owner: usize) {
        if let Some(count) = self.kept.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.kept.remove(&owner);
                if self.gone.contains(&owner) {
                    self.end_all_of(owner);
                }
            }
        }
    }

    /// Ends all mappings of an owner.
    pub(super) fn end_all_of(&mut self, owner: usize) {
        let imports = self.imports.iter().filter(|(_, import)| import.owner == owner);
        let tokens: Vec<u64> = imports.map(|(token, _)| *token).collect();
        tokens.into_iter().for_each(|token| self.end(token));
    }

    pub(super) fn end(&mut self, token: u64) {
        if let Some(import) = self.imports.get_mut(&token) {
            match import.phase {
                // Closes once it is open.
                Phase::Opening => import.phase = Phase::Ending,
                Phase::Open => {
                    import.phase = Phase::Ending;
                    self.close_if_unused(token);
                }
                Phase::Ending | Phase::Closing => {}
            }
        }
    }

    fn close_if_unused(&mut self, token: u64) {
        if let Some(import) = self.imports.get_mut(&token)
            && import.phase == Phase::Ending
            && import.uses == 0
        {
            import.phase = Phase::Closing;
            self.out.push_back(Effect::Close { token });
        }
    }
}
