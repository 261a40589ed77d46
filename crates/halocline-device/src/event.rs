//! A pool of events, which are created once and reused.

use crate::driver::{Driver, RawEvent};
use crate::error::DeviceError;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events of one device. The pool grows on demand; in the steady state taking and returning an event
/// allocates nothing. Clones refer to the same pool.
///
/// ```
/// use halocline_device::sim;
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let events = world.world().device(0)?.events();
/// drop(events.take()?);
/// // The event has returned to the pool, which gives it again.
/// let event = events.take()?;
/// assert_eq!((events.made(), events.idle()), (1, 0));
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct EventPool(Arc<Shared>);

struct Shared {
    driver: Arc<dyn Driver>,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    events: Vec<Arc<Pooled>>,
    made: usize,
}

/// An event of a pool, and the number of [`Event`]s that refer to it. No `Event` refers to an idle one.
struct Pooled {
    raw: RawEvent,
    users: AtomicUsize,
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        // No panic can occur while the lock is held, so the state is always consistent.
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

    /// Takes an event. It may still hold an old record: record it before anything waits for it.
    pub fn take(&self) -> Result<Event, DeviceError> {
        let reused = self.0.idle().events.pop();
        let pooled = match reused {
            Some(pooled) => pooled,
            None => self.create()?,
        };
        pooled.users.store(1, Ordering::Relaxed);
        Ok(Event { pool: Arc::clone(&self.0), pooled })
    }

    /// Creates events until this many are idle. CUDA may block the creation of an event while another thread waits in a driver call.
    pub fn reserve(&self, count: usize) -> Result<(), DeviceError> {
        while self.idle() < count {
            let pooled = self.create()?;
            self.0.idle().events.push(pooled);
        }
        Ok(())
    }

    fn create(&self) -> Result<Arc<Pooled>, DeviceError> {
        let raw = self.0.driver.create_event()?;
        let mut idle = self.0.idle();
        idle.made += 1;
        // Reserve space for all events, so that returning one never allocates.
        let missing = idle.made - idle.events.len();
        idle.events.reserve(missing);
        Ok(Arc::new(Pooled { raw, users: AtomicUsize::new(0) }))
    }

    /// Number of events created.
    pub fn made(&self) -> usize {
        self.0.idle().made
    }

    /// Number of events in the pool.
    pub fn idle(&self) -> usize {
        self.0.idle().events.len()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for event in self.idle.get_mut().unwrap_or_else(PoisonError::into_inner).events.drain(..) {
            // SAFETY: `take` got the event from this driver, and only this drop destroys it. No `Event`
            // uses it any more, because an `Event` holds the pool.
            unsafe { self.driver.destroy_event(event.raw) };
        }
    }
}

/// A point in the work of a stream, returned to its pool when its last clone is dropped. It may be dropped
/// as soon as the last call that uses it has returned: a stream waits for the record at the time of that
/// call. Clones refer to the same event; cloning allocates nothing.
///
/// ```
/// use halocline_device::{Priority, sim};
///
/// // A simulated device; `cuda::device(0)?` opens a GPU.
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// let stream = device.stream(Priority::Normal)?;
///
/// let event = device.events().take()?;
/// stream.record(&event)?;
/// stream.synchronise()?;
/// // All work before the event is done.
/// assert!(event.query()?);
/// # Ok::<(), halocline_device::DeviceError>(())
/// ```
pub struct Event {
    pool: Arc<Shared>,
    pooled: Arc<Pooled>,
}

impl Clone for Event {
    fn clone(&self) -> Self {
        self.pooled.users.fetch_add(1, Ordering::Relaxed);
        Self { pool: Arc::clone(&self.pool), pooled: Arc::clone(&self.pooled) }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x})", self.raw().0)
    }
}

impl Event {
    /// Its handle.
    pub fn raw(&self) -> RawEvent {
        self.pooled.raw
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.pool.driver
    }

    /// Whether the recorded work is done. Never blocks.
    pub fn query(&self) -> Result<bool, DeviceError> {
        // SAFETY: the driver of the pool made the event, and only the drop of the pool, which `self` holds, destroys
        // it.
        unsafe { self.pool.driver.query_event(self.raw()) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.pooled.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pool.idle().events.push(Arc::clone(&self.pooled));
        }
    }
}
