//! The progress thread of a rank: serves exchanges while no call of the rank does.
//!
//! It sleeps until a peer, or this rank, demands progress, or an object is due. Then it serves
//! every registered object once and sleeps again. It also holds objects that were dropped in flight until
//! they are over.

use crate::transport::{Cores, Transport};
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// An object that the progress thread serves.
pub trait Serve: Send + Sync {
    /// Does the work that is possible now, without waiting.
    fn serve(&self);

    /// For an object that was dropped in flight: whether nothing is in flight any more.
    fn is_over(&self) -> bool;

    /// When to serve it next although nothing has changed, by the host's clock. Called after each [`Serve::serve`].
    fn due(&self) -> Option<Duration> {
        None
    }
}

/// The progress thread of one rank.
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
    detached: Vec<Arc<dyn Serve>>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared { objects: Mutex::default() });
        Self { shared, thread: Mutex::new(None) }
    }

    /// Serves `object` at every demand, as long as it is held elsewhere.
    pub(crate) fn register(&self, transport: &Arc<dyn Transport>, object: Weak<dyn Serve>) {
        {
            let mut objects = self.shared.lock();
            objects.live.retain(|known| known.strong_count() > 0);
            objects.live.push(object);
        }
        self.start(transport);
    }

    /// Starts the thread, unless it runs.
    fn start(&self, transport: &Arc<dyn Transport>) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            // The thread holds the transport, since it sleeps on its bell. `stop` ends it.
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

    /// Holds `object` until it is over. Every change wakes the thread meanwhile.
    pub(crate) fn defer_drop(&self, transport: &Arc<dyn Transport>, object: Arc<dyn Serve>) {
        self.shared.lock().detached.push(object);
        self.start(transport);
        transport.own_bell().arm();
        transport.own_bell().demand(transport.host());
    }

    /// Ends the thread. No object is held then: each holds the rank's communicator.
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
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a progress thread, which the program does not know.
pub(crate) fn is_background() -> bool {
    IS_BACKGROUND.get()
}

fn run(shared: &Shared, transport: &dyn Transport) {
    IS_BACKGROUND.set(true);
    let bell = transport.own_bell();
    // Reused, so that the loop allocates nothing.
    let mut live: Vec<Weak<dyn Serve>> = Vec::new();
    let mut detached: Vec<Arc<dyn Serve>> = Vec::new();
    loop {
        let seen = bell.demands();
        {
            let objects = shared.lock();
            if objects.stop {
                return;
            }
            live.extend(objects.live.iter().cloned());
            detached.extend(objects.detached.iter().cloned());
        }
        transport.poll();
        let mut due: Option<Duration> = None;
        let mut serve = |object: &dyn Serve| {
            object.serve();
            due = [due, object.due()].into_iter().flatten().min();
        };
        for object in live.drain(..).filter_map(|object| object.upgrade()) {
            serve(&*object);
        }
        let carried_on = |object: &Arc<dyn Serve>| {
            serve(&**object);
            object.is_over()
        };
        let over: Vec<_> = detached.drain(..).filter(carried_on).collect();
        if !over.is_empty() {
            let is_over = |object: &Arc<dyn Serve>| over.iter().any(|done| Arc::ptr_eq(done, object));
            let freed: Vec<_> = {
                let mut objects = shared.lock();
                let (done, rest) = std::mem::take(&mut objects.detached).into_iter().partition(is_over);
                objects.detached = rest;
                done
            };
            freed.iter().for_each(|_| bell.disarm());
            // Dropped here, outside the lock: the last holder of an object may drop a communicator.
            drop((freed, over));
        }
        let timeout = due.map(|due| due.saturating_sub(transport.host().now()));
        match timeout {
            // Parking takes longer than the awaited event. A yield with one core for each rank would wait for the time slice of
            // another thread.
            Some(Duration::ZERO) if transport.cores() == Cores::OnePerRank => transport.host().pause(),
            Some(Duration::ZERO) => transport.host().yield_now(),
            _ => bell.await_demand(transport.host(), seen, timeout),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Serve;
    use crate::communicator::Communicator;
    use crate::endpoint::Endpoint;
    use std::sync::{Arc, Mutex};
    use std::thread::{ThreadId, current};

    /// Notes who serves it.
    #[derive(Default)]
    struct Noting(Mutex<Vec<ThreadId>>);

    impl Serve for Noting {
        fn serve(&self) {
            self.0.lock().unwrap().push(current().id());
        }

        fn is_over(&self) -> bool {
            true
        }
    }

    /// What a faster peer has sent and demanded before is seen.
    #[test]
    fn an_object_is_served_when_it_is_registered() {
        let (comm, object) = (Communicator::single(), Arc::new(Noting::default()));
        comm.register(&object);
        assert!(object.0.lock().unwrap().contains(&current().id()));
    }
}
