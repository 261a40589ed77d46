//! Events, from a pool: created once, reused, returned when dropped.

use crate::driver::{Driver, RawEvent};
use crate::error::DeviceError;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events of one device. Grows on demand; taking and returning one allocates nothing once there are enough. A
/// clone is the same pool.
#[derive(Clone)]
pub struct EventPool(Arc<Shared>);

struct Shared {
    driver: Arc<dyn Driver>,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    events: Vec<RawEvent>,
    made: usize,
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        // No panic can happen while it is held: it is always whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EventPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventPool({} made, {} idle)", self.made(), self.idle())
    }
}

impl EventPool {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Self(Arc::new(Shared { driver, idle: Mutex::default() }))
    }

    /// An event to be recorded. What it meant before is over: record it before anything waits for it.
    pub fn take(&self) -> Result<Event, DeviceError> {
        let reused = self.0.idle().events.pop();
        let raw = match reused {
            Some(raw) => raw,
            None => {
                let raw = self.0.driver.create_event()?;
                let mut idle = self.0.idle();
                idle.made += 1;
                // Room for all, so that returning one never allocates.
                let room = idle.made - idle.events.len();
                idle.events.reserve(room);
                raw
            }
        };
        Ok(Event { pool: Arc::clone(&self.0), raw })
    }

    /// How many events were created in all.
    pub fn made(&self) -> usize {
        self.0.idle().made
    }

    /// How many of them nobody holds.
    pub fn idle(&self) -> usize {
        self.0.idle().events.len()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for event in self.idle.get_mut().unwrap_or_else(PoisonError::into_inner).events.drain(..) {
            // SAFETY: `take` got the event from this driver, and only this drop destroys it. Nobody has it any more: an
            // `Event` in use holds the pool.
            unsafe { self.driver.destroy_event(event) };
        }
    }
}

/// A point in the work of a stream. Returned to its pool when dropped, which may be as soon as the last call that
/// names it has returned: a stream that waits for it waits for what it meant at the call.
pub struct Event {
    pool: Arc<Shared>,
    raw: RawEvent,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x})", self.raw.0)
    }
}

impl Event {
    /// Its handle.
    pub fn raw(&self) -> RawEvent {
        self.raw
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.pool.driver
    }

    /// Whether all that it means is done. Never blocks.
    pub fn query(&self) -> Result<bool, DeviceError> {
        // SAFETY: the driver of the pool made the event, and only the drop of the pool, which `self` holds, destroys
        // it.
        unsafe { self.pool.driver.query_event(self.raw) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.pool.idle().events.push(self.raw);
    }
}
