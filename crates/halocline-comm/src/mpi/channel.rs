//! The only module that calls MPI for messages: one communicator of the library, with the rules for which thread may call MPI
//! and when.

mod state;

use super::engine::{INTRODUCTION, Wire};
use super::error::{MpiError, ThreadLevel};
use super::posted::PostedReceives;
use super::runtime::About;
use crate::borrowed::{Borrowed, Payload};
use crate::bulk::{Bulk, BulkQueue, Surround};
use crate::inbox::Tag;
use crate::transport::Post;
use state::{Close, State};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How long a rank that leaves waits for its last messages to be sent.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// The threads that may call MPI for a [`Channel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Any thread, background threads included.
    Anyone,
    /// Any thread in a call of the program, one at a time: the program serialises its own MPI calls with calls of this
    /// library, but cannot know of background threads.
    Callers,
    /// One thread.
    Only(ThreadId),
}

impl Access {
    /// By the thread level.
    pub(super) fn of(about: &About) -> Self {
        match (about.only, about.level) {
            (Some(only), _) => Self::Only(only),
            // A program that lets this library initialise MPI does not call MPI itself.
            (None, ThreadLevel::Serialized) if !about.ours => Self::Callers,
            _ => Self::Anyone,
        }
    }

    /// Whether this thread may call MPI.
    pub(super) fn is_mine(self) -> bool {
        match self {
            Self::Anyone => true,
            Self::Callers => !crate::progress::is_background(),
            Self::Only(only) => only == std::thread::current().id(),
        }
    }
}

/// An arrival from a rank: a message, or the end of its messages.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A message, and the bulk that it announces.
    Message(Tag, Vec<u8>, Option<Bulk>),
    /// A message is complete in the receive buffer that was posted for it.
    InPlace(Tag),
    /// The rank has sent its last message.
    Closed,
}

/// A communicator of the library.
///
/// **The access rule**: a thread calls MPI only if [`Access::is_mine`] is true for it, it holds the locks `state` and, if there is
/// one, `calls`, and `State::broken` is `None`. Then MPI is up ([`super::ffi::Api`]), and no other thread uses this wire,
/// or MPI at all at MPI_THREAD_SERIALIZED: before MPI is finalised, [`close_all`] sets `broken` under these locks.
pub(super) struct Channel {
    access: Access,
    /// A second lock at MPI_THREAD_SERIALIZED.
    calls: Option<&'static Mutex<()>>,
    state: Mutex<State>,
    /// Threads that wait for the lock to send: polling threads yield to them.
    posting: AtomicU32,
    /// Messages were in flight at the last MPI call.
    carrying: AtomicBool,
    /// Messages of threads that may not call MPI, for the next thread that may.
    outbox: Mutex<VecDeque<(usize, Tag, Payload)>>,
    posted: PostedReceives,
    /// Receives of bulks that MPI does not know yet.
    bulk_queue: Arc<BulkQueue>,
    /// Makes a device current during MPI calls, once bulks use memory of a device.
    surround: OnceLock<Arc<dyn Surround>>,
    /// Ranks that are reached by MPI.
    peers: Vec<usize>,
}

/// Channels that MPI still knows: to close them before MPI is finalised, and to free those that are over.
static CHANNELS: Mutex<Vec<Arc<Channel>>> = Mutex::new(Vec::new());

/// Serialises calls at MPI_THREAD_SERIALIZED.
static CALLS: Mutex<()> = Mutex::new(());

impl Channel {
    /// The channel over a wire, to these peers.
    pub(super) fn open(wire: Box<dyn Wire>, about: &About, peers: Vec<usize>) -> Arc<Self> {
        sweep();
        let channel = Arc::new(Self {
            access: Access::of(about),
            calls: (about.level == ThreadLevel::Serialized).then_some(&CALLS),
            state: Mutex::new(State::new(wire)),
            posting: AtomicU32::new(0),
            carrying: AtomicBool::new(false),
            outbox: Mutex::default(),
            posted: PostedReceives::default(),
            bulk_queue: Arc::default(),
            surround: OnceLock::new(),
            peers,
        });
        lock(&CHANNELS).push(Arc::clone(&channel));
        channel
    }

    /// The threads that may call MPI.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Sends a message, or queues it for a thread that may call MPI. Never waits for the receiver.
    pub(super) fn post(&self, to: usize, tag: Tag, payload: Payload) -> Result<(), MpiError> {
        if !self.access.is_mine() {
            lock(&self.outbox).push_back((to, tag, payload));
            return Ok(());
        }
        // SAFETY: `send` keeps the access rule of `Channel`.
        self.send(|state| unsafe { state.send(to, tag, payload) })
    }

    /// Sends two messages, or queues them for a thread that may call MPI. Never waits for the receiver.
    pub(super) fn post_pair(&self, to: usize, pair: [Post; 2]) -> Result<(), MpiError> {
        if !self.access.is_mine() {
            return pair
                .into_iter()
                .try_for_each(|post| self.post(to, post.tag, Payload::Owned(post.payload)));
        }
        // SAFETY: `send` keeps the access rule of `Channel`.
        self.send(|state| unsafe { state.send_pair(to, pair) })
    }

    /// Sends a message and the bulk that it announces, in memory that this MPI accepts. Only where any thread
    /// may call MPI. Never waits for the receiver.
    pub(super) fn post_bulk(
        &self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        bulk: Borrowed,
    ) -> Result<(), MpiError> {
        // SAFETY: `send` keeps the access rule of `Channel`. MPI takes this kind of memory, which `MpiTransport::post_bulk` has
        // asked by `accepts_device_memory`; any thread may call MPI then.
        self.send(|state| unsafe { state.send_bulk(to, tag, payload, bulk) })
    }

    /// Makes MPI calls that send, in a thread that may, after the messages that other threads have left.
    fn send(&self, send: impl FnOnce(&mut State) -> Result<(), MpiError>) -> Result<(), MpiError> {
        self.posting.fetch_add(1, Ordering::Relaxed);
        let _call = self.calls.map(lock);
        let mut state = lock(&self.state);
        self.posting.fetch_sub(1, Ordering::Relaxed);
        let sent = self.call(&mut state, |state| {
            // SAFETY: the access rule of `Channel` holds: the caller may call MPI, `call` has found the channel unbroken, and both
            // locks are held.
            unsafe { self.flush_outbox(state) }?;
            send(state)
        });
        state.note(sent)
    }

    /// Runs MPI calls, unless the channel is broken.
    fn call(
        &self,
        state: &mut State,
        work: impl FnOnce(&mut State) -> Result<(), MpiError>,
    ) -> Result<(), MpiError> {
        state.check()?;
        let mut work = Some(work);
        let mut outcome = Ok(());
        let mut once = || {
            if let Some(work) = work.take() {
                outcome = work(state);
            }
        };
        match self.surround.get() {
            Some(surround) => surround.within(&mut once),
            None => once(),
        }
        self.carrying.store(!state.wire.is_idle(), Ordering::Relaxed);
        outcome
    }

    /// Runs MPI calls within this from now on; the first one given stays.
    pub(super) fn surround(&self, surround: Arc<dyn Surround>) {
        // All objects make the same device current.
        let _ = self.surround.set(surround);
    }

    /// Lets MPI progress and reports what has arrived. Does nothing where this thread may not call MPI or
    /// another one does so now.
    pub(super) fn poll(&self, arrive: &mut dyn FnMut(usize, Arrival)) -> Result<(), MpiError> {
        if !self.access.is_mine() || self.posting.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let Some(_call) = self.calls.map_or(Some(None), |calls| try_lock(calls).map(Some)) else {
            return Ok(());
        };
        let Some(mut state) = try_lock(&self.state) else { return Ok(()) };
        let polled = self.call(&mut state, |state| {
            // SAFETY: the access rule of `Channel` holds: `is_mine` says so, `call` has found the channel unbroken, and both
            // locks are held.
            unsafe {
                self.flush_outbox(state).and_then(|()| state.advance(&self.posted, &self.bulk_queue, arrive))
            }
        });
        state.note(polled)
    }

    /// Posted receive buffers.
    pub(super) fn posted(&self) -> &PostedReceives {
        &self.posted
    }

    /// Whether messages were in flight at the last MPI call.
    pub(super) fn is_carrying(&self) -> bool {
        self.carrying.load(Ordering::Relaxed) || !self.bulk_queue.is_empty()
    }

    /// Sends the close messages, waits up to [`FLUSH_WITHIN`] for the sends, and leaves the rest to [`sweep`].
    pub(super) fn close(&self) {
        {
            let mut state = lock(&self.state);
            if state.close == Close::No {
                state.close = Close::Due;
            }
        }
        let start = Instant::now();
        while self.access.is_mine() && !self.close_step() && start.elapsed() < FLUSH_WITHIN {
            // Nothing wakes this thread: MPI progresses only when it is called.
            std::thread::park_timeout(Duration::from_micros(100));
        }
        sweep();
    }

    /// One step of closing, by a thread that may call MPI. True once all sends are complete.
    fn close_step(&self) -> bool {
        if !self.access.is_mine() {
            return false;
        }
        let _call = self.calls.map(lock);
        let mut state = lock(&self.state);
        if state.close == Close::No || state.check().is_err() {
            return true;
        }
        let stepped = self.call(&mut state, |state| {
            // SAFETY: the access rule of `Channel` holds: `is_mine` says so, `call` has found the channel unbroken, and both
            // locks are held.
            unsafe {
                self.flush_outbox(state)
                    .and_then(|()| state.send_close(&self.peers))
                    .and_then(|()| state.advance(&self.posted, &self.bulk_queue, &mut |_, _| ()))
            }
        });
        state.note(stepped).is_err() || (state.wire.is_drained() && self.bulk_queue.is_empty())
    }

    /// Whether all ranks have closed this channel, or it is broken; frees the communicator.
    fn is_over(&self) -> bool {
        if !self.access.is_mine() {
            return false;
        }
        self.close_step();
        let _call = self.calls.map(lock);
        let mut state = lock(&self.state);
        if state.broken.is_some() {
            return state.close != Close::No;
        }
        let drained = state.wire.is_drained() && self.bulk_queue.is_empty();
        let over = state.close == Close::Sent && drained && state.gone == self.peers.len();
        if over {
            // SAFETY: the access rule of `Channel` holds: `is_mine` says so, `broken` is none, and both locks are held.
            // Nothing is in flight: all peers have closed, which is their last message, and ours are sent.
            // `broken` keeps the wire from being used again.
            if let Err(error) = unsafe { state.wire.free() } {
                tracing::warn!("{error}");
            }
            state.broken = Some(MpiError::Finalized);
        }
        over
    }

    /// Closes the channel before MPI is finalised; MPI is not called afterwards.
    fn finalize(&self) {
        self.close();
        let _call = self.calls.map(lock);
        lock(&self.state).broken.get_or_insert(MpiError::Finalized);
    }

    /// # Safety
    /// The access rule of [`Channel`] holds.
    unsafe fn flush_outbox(&self, state: &mut State) -> Result<(), MpiError> {
        while let Some(receive) = self.bulk_queue.next() {
            // SAFETY: the caller keeps the access rule of `Channel`. A message of `receive.from` has announced the bytes, and
            // the maker of the place promises that MPI accepts its kind of memory.
            unsafe { state.wire.receive_bulk(receive)? };
        }
        loop {
            let Some((to, tag, payload)) = lock(&self.outbox).pop_front() else { return Ok(()) };
            // SAFETY: the caller keeps the access rule of `Channel`. `MpiTransport::hand_over` has checked the rank before
            // it came into the outbox.
            unsafe { state.send(to, tag, payload)? };
        }
    }
}

/// Frees the channels that all ranks have closed.
fn sweep() {
    // No lock is held during MPI calls, and no channel is missing from the list before it is over.
    let channels = lock(&CHANNELS).clone();
    let over: Vec<_> = channels.into_iter().filter(|channel| channel.is_over()).collect();
    lock(&CHANNELS).retain(|channel| !over.iter().any(|done| Arc::ptr_eq(done, channel)));
}

/// Closes all channels, since MPI is about to be finalised.
pub(super) fn close_all() {
    let channels = lock(&CHANNELS).clone();
    channels.iter().for_each(|channel| channel.finalize());
}

/// Exchanges introductions with the ranks of this node, before a wire becomes a channel. Collective, blocks.
pub(super) fn introduce(
    wire: &mut dyn Wire,
    mine: &[u8; INTRODUCTION],
) -> Result<Vec<[u8; INTRODUCTION]>, MpiError> {
    let _call = lock(&CALLS);
    // SAFETY: `Mpi::connect` has just made the wire, in this thread, which has found that it may call MPI. No channel has
    // the wire yet, so that no other thread uses it, and `CALLS` serialises MPI calls where that is required.
    unsafe { wire.introduce(mine) }
}

/// Splits the ranks that introduce themselves to each other. Collective over them, blocks.
pub(super) fn split_node(wire: &mut dyn Wire, group: i32) -> Result<(), MpiError> {
    let _call = lock(&CALLS);
    // SAFETY: `Mpi::connect` has just made the wire, in this thread, which has found that it may call MPI. No channel has
    // the wire yet, so that no other thread uses it, and `CALLS` serialises MPI calls where that is required.
    unsafe { wire.split_node(group) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves the data half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::Communicator;
    use crate::endpoint::Endpoint;
    use crate::progress::Serve;
    use std::sync::mpsc;

    /// Reports what a progress thread may do.
    struct ReportAccess(Mutex<mpsc::Sender<[bool; 3]>>);

    impl Serve for ReportAccess {
        fn serve(&self) {
            let accesses = [Access::Anyone, Access::Callers, Access::Only(std::thread::current().id())];
            // The test reads one answer.
            let _ = lock(&self.0).send(accesses.map(Access::is_mine));
        }

        fn is_over(&self) -> bool {
            true
        }
    }

    #[test]
    fn background_threads_call_mpi_only_where_any_thread_may() {
        assert!([Access::Anyone, Access::Callers].into_iter().all(Access::is_mine));
        let (sender, answers) = mpsc::channel();
        let comm = Communicator::single();
        comm.defer_drop(Arc::new(ReportAccess(Mutex::new(sender))));
        assert_eq!(answers.recv().unwrap(), [true, false, true]);
    }
}
