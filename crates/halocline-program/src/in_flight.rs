//! Objects to release once a stream has passed a call: arrays that a call keeps, and the states of dropped programs.
//!
//! Later calls release it, so that no thread has to wait. What no later call releases is held until the process ends.

use halocline_device::{Device, Event};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An object to release after an event.
struct InFlight {
    device: Device,
    passed: Arc<Event>,
    release: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InFlight({:?}, {:?})", self.device, self.passed)
    }
}

/// Oldest first. No call of a device is made while it is locked.
static ALL: Mutex<VecDeque<InFlight>> = Mutex::new(VecDeque::new());

/// How many there are, so that calls without any take no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn all() -> MutexGuard<'static, VecDeque<InFlight>> {
    // No code of others runs while it is locked, so that it is whole even if a thread panicked.
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `release` once the event has passed.
pub(crate) fn after(device: &Device, passed: Arc<Event>, release: impl FnOnce() + Send + 'static) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    all().push_back(InFlight { device: device.clone(), passed, release: Box::new(release) });
}

/// Releases what the streams of a device have passed. Never waits for the device.
pub(crate) fn release(device: &Device) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    while let Some(first) = take_first(device) {
        // After a failure of the device nothing runs any more.
        if first.passed.query() == Ok(false) {
            all().push_front(first);
            return;
        }
        COUNT.fetch_sub(1, Ordering::Relaxed);
        (first.release)();
    }
}

fn take_first(device: &Device) -> Option<InFlight> {
    let mut all = all();
    let at = all.iter().position(|in_flight| in_flight.device == *device)?;
    all.remove(at)
}

/// Ends a state once its stream has passed its last call, if there was one. `end` may wait for the device.
pub(crate) fn end_state(device: &Device, last_call: Option<Arc<Event>>, end: impl FnOnce() + Send + 'static) {
    let end = {
        let device = device.clone();
        move || {
            let on = device.clone();
            device.defer(move || on.within_beside_captures(end));
        }
    };
    match last_call {
        Some(passed) if passed.query() == Ok(false) => after(device, passed, end),
        _ => end(),
    }
}
