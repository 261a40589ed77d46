//! The current device of a thread, as in CUDA: the first one, until the thread selects another.

use super::World;
use crate::device::Device;
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Restores the thread's current device when dropped.
pub(super) struct Restored(u32);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

pub(super) fn select(device: u32) -> Restored {
    Restored(CURRENT.replace(device))
}

pub(super) fn is_current(device: u32) -> bool {
    CURRENT.get() == device
}

impl World {
    /// Makes a device the current one of this thread, as `cudaSetDevice` does.
    pub fn select(&self, device: &Device) {
        std::mem::forget(select(device.ordinal()));
    }
}
