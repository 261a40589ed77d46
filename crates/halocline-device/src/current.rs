//! Code of other libraries that uses a device: with the device current, or later.

use crate::deferred_free;
use crate::device::Device;

impl Device {
    /// Runs `work` with this device as the thread's current device, as libraries of the CUDA runtime require. The thread has its own
    /// current device again afterwards, also if `work` changes it.
    pub fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        once(work, |work| self.driver().within(work))
    }

    /// The same for work that has nothing to do with streams under capture: see [`crate::Driver::within_beside_captures`].
    pub fn within_beside_captures<R>(&self, work: impl FnOnce() -> R) -> R {
        once(work, |work| self.driver().within_beside_captures(work))
    }

    /// Whether this is the thread's current device: see [`crate::Driver::is_current`].
    pub fn is_current(&self) -> bool {
        self.driver().is_current()
    }

    /// Makes a call that may wait for the device, as freeing does: now, or later in another thread if freeing waits for the device. Such
    /// a call is never made once the process exits.
    pub fn defer(&self, call: impl FnOnce() + Send + 'static) {
        match self.driver().frees_wait() {
            true => deferred_free::queue(call),
            false => call(),
        }
    }
}

/// The result of work that `run` runs once.
fn once<R>(work: impl FnOnce() -> R, run: impl FnOnce(&mut dyn FnMut())) -> R {
    let (mut work, mut result) = (Some(work), None);
    run(&mut || result = work.take().map(|work| work()));
    let Some(result) = result else { unreachable!("`Driver::within` runs the work once") };
    result
}
