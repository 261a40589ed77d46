//! The progress thread of a rank: serves what no call of the rank serves.
//!
//! It sleeps unless a peer, or this rank, demands progress, or an object is due; then it offers a turn to
//! every registered object and sleeps again. It is also the graveyard: what was dropped in flight is held here until
//! it is over.

use crate::transport::{Room, Transport};
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// Something that can be carried on by the progress thread.
pub trait Serve: Send + Sync {
    /// Does what can be done now, without waiting.
    fn serve(&self);

    /// For one that was dropped in flight: whether nothing is in flight any more.
    fn is_over(&self) -> bool;

    /// When it wants a turn although nothing has changed, by the host's clock. Asked after each turn.
    fn due(&self) -> Option<Duration> {
        None
    }
}

/// Registration with the progress thread of one rank.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    objects: Mutex<Objects>,
}

#[derive(Default)]
struct Objects {
    stop: bool,
    /// Objects that their users hold.
    live: Vec<Weak<dyn Serve>>,
    /// Objects dropped in flight, held until they are over.
    graveyard: Vec<Arc<dyn Serve>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared { objects: Mutex::default() });
        Self { shared, thread: Mutex::new(None) }
    }

    /// From now on `object` gets a turn at every demand, as long as somebody holds it.
    pub(crate) fn register(&self, transport: &Arc<dyn Transport>, object: Weak<dyn Serve>) {
        {
            let mut objects = self.shared.lock();
            objects.live.retain(|known| known.strong_count() > 0);
            objects.live.push(object);
        }
        self.start(transport);
    }

    /// Starts the thread, if it does not run yet.
    fn start(&self, transport: &Arc<dyn Transport>) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            // The bell must outlive the thread, which therefore holds the transport. `stop` ends it.
            let (shared, transport) = (Arc::clone(&self.shared), Arc::clone(transport));
            let name = format!("halocline-{}", transport.rank());
            let host = Arc::clone(&transport);
            let spawned = host.host().spawn(name, Box::new(move || run(&shared, &*transport)));
            match spawned {
                Ok(handle) => *thread = Some(handle),
                Err(error) => tracing::warn!(%error, "no progress thread: exchanges advance in calls only"),
            }
        }
    }

    /// Holds `object` until it is over; meanwhile every change wakes the thread.
    pub(crate) fn defer_drop(&self, transport: &Arc<dyn Transport>, object: Arc<dyn Serve>) {
        self.shared.lock().graveyard.push(object);
        self.start(transport);
        transport.own_bell().arm();
        transport.own_bell().demand(transport.host());
    }

    /// Ends the thread. The graveyard is empty then: what lies there holds the rank's communicator.
    pub(crate) fn stop(&self, transport: &dyn Transport) {
        self.shared.lock().stop = true;
        transport.own_bell().demand(transport.host());
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle
            && !is_current(handle.thread())
        {
            // A panic of the thread was printed when it happened.
            let _ = transport.host().join(handle);
        }
    }
}

fn is_current(thread: &Thread) -> bool {
    thread.id() == std::thread::current().id()
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    static IN_THE_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a progress thread: one that the program does not know of.
pub(crate) fn is_background() -> bool {
    IN_THE_BACKGROUND.get()
}

fn run(shared: &Shared, transport: &dyn Transport) {
    IN_THE_BACKGROUND.set(true);
    let bell = transport.own_bell();
    // Kept from turn to turn, so that a turn allocates nothing.
    let mut live: Vec<Weak<dyn Serve>> = Vec::new();
    let mut buried: Vec<Arc<dyn Serve>> = Vec::new();
    loop {
        let seen = bell.demands();
        {
            let objects = shared.lock();
            if objects.stop {
                return;
            }
            live.extend(objects.live.iter().cloned());
            buried.extend(objects.graveyard.iter().cloned());
        }
        let mut due: Option<Duration> = None;
        let mut turn = |object: &dyn Serve| {
            object.serve();
            due = [due, object.due()].into_iter().flatten().min();
        };
        for object in live.drain(..).filter_map(|object| object.upgrade()) {
            turn(&*object);
        }
        let carried_on = |object: &Arc<dyn Serve>| {
            turn(&**object);
            object.is_over()
        };
        let over: Vec<_> = buried.drain(..).filter(carried_on).collect();
        if !over.is_empty() {
            let is_over = |object: &Arc<dyn Serve>| over.iter().any(|done| Arc::ptr_eq(done, object));
            let freed: Vec<_> = {
                let mut objects = shared.lock();
                let (done, rest) = std::mem::take(&mut objects.graveyard).into_iter().partition(is_over);
                objects.graveyard = rest;
                done
            };
            freed.iter().for_each(|_| bell.disarm());
            // Dropped here, outside the lock: the last holder of an object may drop a communicator.
            drop((freed, over));
        }
        let timeout = due.map(|due| due.saturating_sub(transport.host().now()));
        match timeout {
            // To be parked for no time takes longer than what is awaited; and who gives way where there is one core waits until
            // another thread has had its share.
            Some(Duration::ZERO) if transport.room() == Room::Tight => transport.host().pause(),
            Some(Duration::ZERO) => transport.host().yield_now(),
            _ => bell.await_demand(transport.host(), seen, timeout),
        }
    }
}
