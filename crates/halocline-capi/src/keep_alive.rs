//! Memory of the program that the library holds: a callback notifies the program when it is no longer needed.

use crate::call::callback;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// A function of the program and its argument.
pub(crate) type Release = Option<unsafe extern "C" fn(*mut c_void)>;

/// Calls the program's function when it is dropped, by whichever thread drops it.
pub(crate) struct KeepAlive {
    release: Release,
    context: *mut c_void,
    /// False until the call that was given the memory succeeds: until then the memory belongs to the program.
    armed: AtomicBool,
}

// SAFETY: the header says that any thread may call the function; nothing else uses the pointer.
unsafe impl Send for KeepAlive {}
// SAFETY: a shared reference gives access to `armed` alone, which is atomic.
unsafe impl Sync for KeepAlive {}

impl KeepAlive {
    /// # Safety
    /// Once it is armed, `release` is null or may be called once with `context`, by any thread.
    pub(crate) unsafe fn new(release: Release, context: *mut c_void) -> Self {
        Self { release, context, armed: AtomicBool::new(false) }
    }

    /// The call has succeeded: the program is notified when the memory is no longer needed.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        if let Some(release) = self.release.filter(|_| *self.armed.get_mut()) {
            // SAFETY: the caller of `new` promises that it may be called once, by any thread.
            callback(|| unsafe { release(self.context) });
        }
    }
}
