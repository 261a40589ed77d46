//! Memory of a simulated device: access checks, allocation, freeing.

use super::call::{Call, SimDriver};
use super::memory::Spot;
use super::remote::Mapped;
use super::report::Report;
use super::shadow::Touch;
use super::state::State;
use super::stream::{Announcement, Block, Part, Signs, Table};
use crate::driver::{Address, Announced, MemorySpace, Place, Slot, TableSpec};
use crate::error::DeviceError;

impl SimDriver {
    /// Resolves bytes that this device can access.
    pub(super) fn reach(&self, state: &State, address: Address, bytes: usize) -> Result<Spot, DeviceError> {
        let spot = state.memories.find(address, bytes)?;
        if let Some(via) = spot.via {
            let Mapped { device: peer, .. } = *state.memories.mapped(via);
            let device = self.device;
            return if peer == device { Ok(spot) } else { Err(DeviceError::NoPeerAccess { device, peer }) };
        }
        match state.memories.region(spot.region).place.space {
            MemorySpace::Device(peer)
                if peer != self.device && !state.devices[self.device as usize].peers.contains(&peer) =>
            {
                Err(DeviceError::NoPeerAccess { device: self.device, peer })
            }
            MemorySpace::Device(peer)
                if peer != self.device && state.memories.region(spot.region).unshared =>
            {
                Err(DeviceError::NotShared { device: self.device, peer, address })
            }
            _ => Ok(spot),
        }
    }

    pub(super) fn reach_flag(&self, state: &State, address: Address) -> Result<Spot, DeviceError> {
        let spot = self.reach(state, address, 8)?;
        if address.is_multiple_of(8) { Ok(spot) } else { Err(DeviceError::Misaligned { address }) }
    }

    pub(super) fn table(&self, state: &State, spec: &TableSpec<'_>) -> Result<Table, DeviceError> {
        spec.check_combining()?;
        let mut parts = Vec::with_capacity(spec.parts.len());
        for part in spec.parts {
            let mut blocks = Vec::new();
            for op in part.ops {
                let buffer = |side: &'static str, buffers: &[Address], index: usize| {
                    let none = DeviceError::NoBuffer { side, index, count: buffers.len() };
                    buffers.get(index).copied().ok_or(none)
                };
                let source = buffer("source", spec.sources, op.source)?;
                let target = buffer("target", spec.targets, op.target)?;
                let mut wrong = None;
                let distance = op.sign_distance();
                let mut add = |source, target, bytes: usize, before: usize| match (source, target) {
                    (Ok(source), Ok(target)) => {
                        let signs = distance.map(|distance| Signs { distance, before });
                        blocks.push(Block { target, source, bytes, signs });
                    }
                    (Err(error), _) | (_, Err(error)) => wrong = Some(error),
                };
                op.for_each_block(|from, to, bytes| {
                    let at = |base: Address, offset: isize| base.wrapping_add_signed(offset as i64);
                    if part.slot == Slot::None {
                        let source = self.reach(state, at(source, from), bytes);
                        let target = at(target, to);
                        let target =
                            Spot::of_message(target).map_or_else(|| self.reach(state, target, bytes), Ok);
                        return add(source, target, bytes, 0);
                    }
                    let is_read = part.slot == Slot::Awaited;
                    let begins = if is_read { source } else { target };
                    let near = if is_read { at(target, to) } else { at(source, from) };
                    let within = if is_read { from } else { to };
                    let bits = near as usize | within as usize | bytes;
                    if !(bits.is_multiple_of(4) && begins.is_multiple_of(16)) {
                        let (source_address, target_address) = (at(source, from), at(target, to));
                        let none = DeviceError::LlAlignment { source_address, target_address, block: bytes };
                        return add(Err(none.clone()), Err(none), bytes, 0);
                    }
                    for offset in (0..bytes).step_by(4) {
                        let word = self.reach(state, at(begins, 2 * (within + offset as isize)), 8);
                        let near = self.reach(state, near + offset as Address, 4);
                        let (source, target) = if is_read { (word, near) } else { (near, word) };
                        add(source, target, 4, offset);
                    }
                });
                wrong.map_or(Ok(()), Err)?;
            }
            let wait = |wait: &crate::Signal| Ok((self.reach_flag(state, wait.address)?, wait.lag));
            let raise = |word: &Address| self.reach_flag(state, *word);
            let waits: Result<_, DeviceError> = part.waits.iter().map(wait).collect();
            let raises: Result<_, DeviceError> = part.raises.iter().map(raise).collect();
            let early = part.early && part.slot != Slot::Awaited;
            let announced = part.announced.map(|Announced { address, sent, differs }| {
                let words = [self.reach_flag(state, address)?, self.reach_flag(state, address + 8)?];
                Ok(Announcement { address, words, sent, differs: self.reach_flag(state, differs)? })
            });
            let announced = announced.transpose()?;
            let combined = self.combined(state, spec, part)?;
            let (waits, raises, slot) = (waits?, raises?, part.slot);
            parts.push(Part { waits, blocks, combined, raises, early, slot, announced });
        }
        let guard = spec.guard.map(|guard| self.reach_flag(state, guard)).transpose()?;
        Ok(Table { device: self.device, guard, parts })
    }

    /// Registers memory; the host accesses it first.
    pub(super) fn add(
        &self,
        space: MemorySpace,
        bytes: usize,
        given: Option<Address>,
        what: &'static str,
    ) -> Result<Place, DeviceError> {
        let Call { mut state, me } = self.call(false)?;
        if let MemorySpace::Device(device) = space
            && state.devices[device as usize].largest.is_some_and(|largest| bytes > largest)
        {
            return Err(DeviceError::OutOfMemory { space, bytes });
        }
        let place = state.memories.add(space, bytes, given)?;
        let host = state.threads[me].actor;
        let op = state.begin_op(host, what);
        let spot = Spot { region: place.id as usize - 1, offset: 0, via: None };
        state.touch(host, op, spot, bytes, Touch::Write);
        Ok(place)
    }

    /// Closes a mapping of memory of this world.
    pub(super) fn unmap(&self, index: usize) {
        let Some(Call { mut state, me }) = self.last_call() else { return };
        let host = state.threads[me].actor;
        let op = state.begin_op(host, "close of a mapping");
        if let Some(user) = state.user_of(&|spot| spot.via == Some(index)).filter(|_| !state.stopped) {
            let Mapped { region, bytes, .. } = *state.memories.mapped(index);
            let bytes = state.memories.region(region).bytes(&(0..bytes));
            let (by, user) = (state.operation(op), state.operation(user));
            state.report(Report::FreedInUse { bytes, by, user });
        }
        state.memories.unmap(index);
    }

    pub(super) fn remove(&self, base: Address, what: &'static str) {
        let Some(Call { mut state, me }) = self.last_call() else { return };
        let Some(region) = state.memories.based_at(base) else {
            let what = format!("no memory begins at {base:#x}");
            return state.report(Report::Refused { call: "free", what });
        };
        let host = state.threads[me].actor;
        let op = state.begin_op(host, what);
        let all = 0..state.memories.region(region).place.bytes;
        let queued = state
            .user_of(&|spot| spot.region == region)
            .map(|user| (state.memories.region(region).bytes(&all), user));
        let used = queued.or_else(|| state.conflict(host, op, region, all, Touch::Write));
        // A stopped run leaves unfinished work.
        let is_over = |user: usize| state.stopped || state.check(self.device).is_err() || state.is_lost(user);
        if let Some((bytes, user)) = used.filter(|(_, user)| !is_over(*user)) {
            let (by, user) = (state.operation(op), state.operation(user));
            state.report(Report::FreedInUse { bytes, by, user });
        }
        state.memories.free(region);
    }

    /// An access by the host; false if it is refused.
    pub(super) fn touch(
        &self,
        address: Address,
        bytes: usize,
        touch: Touch,
        what: &'static str,
    ) -> Option<(Call<'_>, Spot)> {
        let mut call = self.last_call()?;
        let Call { state, me } = &mut call;
        if let Some(device) = state.memories.device_of(address) {
            let thread = state.threads[*me].name.clone();
            state.report(Report::HostTouchedDevice { thread, device, address });
            return None;
        }
        match state.memories.find(address, bytes) {
            Ok(spot) => {
                let host = state.threads[*me].actor;
                let op = state.begin_op(host, what);
                state.touch(host, op, spot, bytes, touch);
                Some((call, spot))
            }
            Err(error) => {
                state.report(Report::Refused { call: what, what: error.to_string() });
                None
            }
        }
    }
}
