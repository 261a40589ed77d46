//! Checked mode: the areas of one exchange in flight, and which comparisons are made.

use super::LINE;
use crate::check::{Area, Manifest, Spots};
use halocline_device::{Device, DeviceError, Event, Memory};
use std::time::Duration;

/// The areas of an exchange, and which comparisons are made.
#[derive(Default)]
pub(super) struct Slot {
    /// 0: no exchange has it.
    pub(super) epoch: u64,
    pub(super) set: usize,
    /// Of each lane.
    pub(super) memories: Vec<Memory>,
    /// By link.
    pub(super) manifests: Vec<Option<Manifest>>,
    /// The peers have this rank's manifests.
    pub(super) is_told: bool,
    /// The halo is what the peers have sent.
    pub(super) is_right: bool,
    /// For each lane, recorded after the copy to [`Area::Last`].
    pub(super) last: Vec<Option<Event>>,
    /// [`Area::Last`] was compared, or is not waited for any more.
    pub(super) is_compared: bool,
    /// Since when the host has waited for the copy to [`Area::Last`].
    pub(super) waited_since: Option<Duration>,
}

impl Slot {
    /// Whether no copy to [`Area::Last`] is unfinished. On a failed device none runs.
    pub(super) fn is_looked(&self) -> bool {
        self.last.iter().flatten().all(|event| event.query().unwrap_or(true))
    }

    /// Whether everything is compared.
    pub(super) fn is_settled(&self) -> bool {
        self.is_compared || self.last.iter().all(Option::is_none)
    }

    /// Whether the next exchange may have it.
    pub(super) fn is_free(&self) -> bool {
        self.epoch == 0 || self.is_right && self.is_settled() && self.is_looked()
    }

    /// Makes areas of the size that a set needs, if they are smaller. No exchange uses them.
    pub(super) fn reserve(&mut self, spots: &Spots<'_>, devices: &[Device]) -> Result<(), DeviceError> {
        for (number, device) in devices.iter().enumerate() {
            let bytes = Area::COUNT * spots.bytes(number);
            match self.memories.get_mut(number) {
                Some(memory) if memory.place().bytes >= bytes => {}
                Some(memory) => *memory = device.allocate_pinned(bytes)?,
                None => self.memories.push(device.allocate_pinned(bytes.max(LINE))?),
            }
        }
        Ok(())
    }

    pub(super) fn begin(&mut self, epoch: u64, set: usize, (links, lanes): (usize, usize)) {
        (self.epoch, self.set) = (epoch, set);
        (self.is_told, self.is_right, self.is_compared, self.waited_since) = (false, false, false, None);
        self.manifests.clear();
        self.manifests.resize_with(links, || None);
        self.last.clear();
        self.last.resize_with(lanes, || None);
    }
}
