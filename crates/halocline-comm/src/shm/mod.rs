//! Ranks as processes of one node: messages through rings in shared memory and over Unix sockets, memory in sealed memfds.
//!
//! `halocline launch` makes the job's control segment ([`Job`]) and starts the ranks, which
//! join by [`crate::Communicator::init`]. Sockets have abstract names and memory has no name, so that a process leaves nothing
//! behind however it ends. One thread in each process, asleep unless something happens, reads
//! the sockets into the inbox and watches the other processes.

mod arrivals;
mod control;
mod frame;
#[cfg(fuzzing)]
pub mod fuzz;
pub(crate) mod handover;
mod job;
mod join;
mod lifeline;
mod ring;
mod socket;
mod watch;

pub use job::{Job, JobError, JoinedJob};
pub(crate) use join::join;
pub use lifeline::{Lifeline, Tie};

use crate::bell::Doorbell;
use crate::buffers;
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::{Inbox, Message, Tag};
use crate::segment::Segment;
use crate::transport::{Cores, PeerState, Transport};
use arrivals::{Arrivals, Disorder};
use control::Control;
use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use socket::{Flushed, Outgoing};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a rank that leaves waits for peers to read its last messages.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// One process's end. Dropping it sends queued messages and tells the others.
pub(crate) struct ShmTransport {
    shared: Arc<Shared>,
    cores: Cores,
    watch: Option<JoinHandle<()>>,
}

/// State of callers and the watch thread.
struct Shared {
    rank: usize,
    size: usize,
    /// The numbers of the ranks in messages and errors: their ranks in a larger group, if this
    /// job is one node of it.
    names: Vec<usize>,
    token: String,
    control: Control,
    host: Arc<dyn Host>,
    inbox: Arc<Inbox>,
    /// The arrived messages of each rank.
    arrivals: Vec<Arrivals>,
    /// [`PeerState`] of each rank as found by the watch thread.
    states: Vec<AtomicU8>,
    departures: AtomicU64,
    stop: AtomicBool,
    /// Wakes the watch thread.
    nudge: OwnedFd,
    epoll: OwnedFd,
    outgoing: Mutex<HashMap<usize, Arc<Mutex<Outgoing>>>>,
    imports: Mutex<HashMap<(usize, u64), Weak<Segment>>>,
    /// Ranks with messages to retry after a while.
    retries: Mutex<BTreeSet<usize>>,
    /// Why this rank cannot receive any more.
    fault: OnceLock<CommError>,
}

impl ShmTransport {
    /// Joins a job whose ranks are called `names`, and waits until all others have. Messages go into
    /// `inbox`.
    pub(crate) fn join(
        job: JoinedJob,
        names: Vec<usize>,
        inbox: Arc<Inbox>,
        host: Arc<dyn Host>,
    ) -> Result<Self, CommError> {
        let fail = |what| move |errno| CommError::System { what, errno };
        let token = job.token.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let listener = socket::listen(&token, job.rank)?;
        let nudge = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(fail("create an eventfd"))?;
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
            .map_err(fail("create an epoll"))?;
        let shared = Arc::new(Shared {
            rank: job.rank,
            size: job.size,
            names,
            token,
            control: Control::map(job.control, job.size)?,
            host,
            inbox,
            arrivals: (0..job.size).map(|_| Arrivals::default()).collect(),
            states: (0..job.size).map(|_| AtomicU8::new(PRESENT)).collect(),
            departures: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            nudge,
            epoll,
            outgoing: Mutex::default(),
            imports: Mutex::default(),
            retries: Mutex::default(),
            fault: OnceLock::new(),
        });
        shared.wait_for_all()?;
        let watch = watch::Watch::new(Arc::clone(&shared), listener)?;
        let thread = std::thread::Builder::new().name("halocline-watch".into());
        let watch = thread.spawn(move || watch.run()).map_err(|error| CommError::System {
            what: "start its thread",
            errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
        })?;
        let cores = Cores::of(&crate::host::System, shared.size, shared.control.cores());
        Ok(Self { shared, cores, watch: Some(watch) })
    }
}

/// The message of bytes that no rank of this version sends.
fn with_remedy(why: impl std::fmt::Display) -> String {
    format!("{why}; run the same version of Halocline on all ranks")
}

// States of a rank, in the order in which it passes through them.
const PRESENT: u8 = 0;
/// It has dropped its communicator, and may still finish exchanges.
const LEFT: u8 = 1;
/// It has sent its last message.
const ENDED: u8 = 2;
const DEAD: u8 = 3;

impl Shared {
    /// The number of a rank in messages and errors.
    fn name_of(&self, rank: usize) -> usize {
        self.names.get(rank).copied().unwrap_or(rank)
    }

    fn ring_all(&self) {
        for slot in self.control.slots() {
            slot.bell.changed(&*self.host);
        }
    }

    fn own_bell(&self) -> &Doorbell {
        self.control.bell(self.rank)
    }

    /// Records that a rank has left or died, and wakes the threads that wait for it.
    fn depart(&self, rank: usize, state: u8) {
        self.states[rank].store(state, Ordering::Release);
        self.departures.fetch_add(1, Ordering::Release);
        self.own_bell().changed(&*self.host);
        self.own_bell().demand(&*self.host);
    }

    /// This rank cannot receive any more: ends all waits.
    fn stop_receiving(&self, error: CommError) {
        tracing::error!("rank {}: {error}", self.rank);
        // The first fault is as good as any other.
        let _ = self.fault.set(error);
        self.departures.fetch_add(1, Ordering::Release);
        self.own_bell().changed(&*self.host);
    }

    /// Arranges for the messages that a flush could not send.
    fn flushed(&self, to: usize, outgoing: &mut Outgoing, flushed: Flushed) -> Result<(), CommError> {
        match flushed {
            Flushed::All => Ok(()),
            Flushed::Blocked => watch::await_writable(&self.epoll, to, outgoing),
            // The kernel lacks a resource, and no event tells when it is free; or the receiver is
            // gone, which the watch thread reports after it has read all its messages.
            Flushed::Refused(_) | Flushed::Broken => {
                lock(&self.retries).insert(to);
                self.nudge();
                Ok(())
            }
        }
    }

    /// A connection with a rank is broken. If the rank is alive, it counts as dead, so that waits for it end.
    fn lose(&self, rank: usize, why: &str) {
        let gone = |slot: &control::Slot| slot.has_left();
        if self.is_present(rank) && !self.control.slot(rank).is_some_and(gone) {
            tracing::error!("rank {}: rank {rank} counts as dead from now on: {why}", self.rank);
            self.depart(rank, DEAD);
        }
    }

    /// Moves the messages of all rings to the inbox.
    fn poll_rings(&self) {
        for (from, arrivals) in self.arrivals.iter().enumerate() {
            if arrivals.has_more() {
                let polled = arrivals.poll(|tag, payload| self.deliver(from, tag, payload));
                self.in_order(from, polled);
            }
        }
    }

    /// Puts a message without memory into the inbox.
    fn deliver(&self, from: usize, tag: Tag, payload: Vec<u8>) {
        let source = self.name_of(from);
        self.inbox.push(Message { source, tag, payload, ..Message::default() });
        self.own_bell().delivered(&*self.host, tag.is_news());
    }

    /// Nothing more can be received from a rank whose messages are in disorder.
    fn in_order(&self, from: usize, outcome: Result<(), Disorder>) {
        if let Err(why) = outcome {
            self.lose(from, &with_remedy(why));
        }
    }

    fn nudge(&self) {
        // Fails only if the counter is full; then the thread is about to wake anyway.
        let _ = rustix::io::write(&self.nudge, &1u64.to_ne_bytes());
    }

    /// The sending end to a peer, connected at first use.
    fn outgoing(&self, to: usize) -> Result<Arc<Mutex<Outgoing>>, CommError> {
        let mut outgoing = lock(&self.outgoing);
        if let Some(known) = outgoing.get(&to) {
            return Ok(Arc::clone(known));
        }
        let made = Outgoing::connect(&self.token, self.rank, to)?;
        watch::await_hang_up(&self.epoll, to, &made)?;
        let made = Arc::new(Mutex::new(made));
        outgoing.insert(to, Arc::clone(&made));
        Ok(made)
    }

    /// Maps announced memory, unless it is mapped.
    fn import(
        &self,
        from: usize,
        announced: frame::Announced,
        fd: OwnedFd,
    ) -> Result<Arc<Segment>, CommError> {
        let mut imports = lock(&self.imports);
        let key = (from, announced.id);
        if let Some(known) = imports.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let len = usize::try_from(announced.len).unwrap_or(usize::MAX);
        let segment = match announced.len {
            Segment::HANDLE => Segment::handle(Some(announced.id), fd),
            _ => Segment::import(announced.id, len, fd)?,
        };
        imports.retain(|_, known| known.strong_count() > 0);
        imports.insert(key, Arc::downgrade(&segment));
        Ok(segment)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks can leave the data half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: segments are sealed memfds, mapped at both sides; frames name sender and length and come over a socket or a ring of that sender; a rank is
// dead once the kernel has closed its socket, when its mappings are gone, too.
unsafe impl Transport for ShmTransport {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn rank(&self) -> usize {
        self.shared.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    fn post(
        &self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        segments: &[Arc<Segment>],
    ) -> Result<(), CommError> {
        let shared = &*self.shared;
        if to >= shared.size {
            return Err(CommError::NoSuchRank { rank: to, size: shared.size });
        }
        if to == shared.rank {
            let source = shared.name_of(to);
            shared.inbox.push(Message {
                source,
                tag,
                payload,
                segments: segments.to_vec(),
                ..Message::default()
            });
            shared.own_bell().delivered(&*shared.host, tag.is_news());
            return Ok(());
        }
        if matches!(self.state(to), PeerState::Ended | PeerState::Dead) {
            return Ok(());
        }
        let outgoing = shared.outgoing(to)?;
        let mut outgoing = lock(&outgoing);
        let in_ring = outgoing.push(tag, &payload, segments)?;
        buffers::put(payload);
        if in_ring {
            drop(outgoing);
            shared.control.bell(to).delivered(&*shared.host, tag.is_news());
            return Ok(());
        }
        let flushed = outgoing.flush();
        shared.flushed(to, &mut outgoing, flushed)
    }

    fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        Segment::shared(bytes)
    }

    fn reach(&self, _peer: usize, segment: &Segment) -> Result<(), String> {
        match segment.descriptor() {
            Some(_) => Ok(()),
            None => Err("its memory belongs to this process alone; allocate it as an `Array`".to_owned()),
        }
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        self.shared.control.slot(rank).map(|slot| &slot.bell)
    }

    fn leave(&self) {
        self.depart(LEFT);
    }

    fn own_bell(&self) -> &Doorbell {
        self.shared.own_bell()
    }

    fn state(&self, rank: usize) -> PeerState {
        let shared = &*self.shared;
        let Some(state) = shared.states.get(rank) else { return PeerState::Dead };
        let state = state.load(Ordering::Acquire);
        if shared.control.slot(rank).is_some_and(|slot| slot.departure() > state) {
            // The watch thread reads what it has sent before it says so.
            shared.nudge();
        }
        match state {
            PRESENT => PeerState::Present,
            LEFT => PeerState::Left,
            ENDED => PeerState::Ended,
            _ => PeerState::Dead,
        }
    }

    fn departures(&self) -> u64 {
        self.shared.departures.load(Ordering::Acquire) + u64::from(self.shared.control.departures())
    }

    fn host(&self) -> &dyn Host {
        &*self.shared.host
    }

    fn cores(&self) -> Cores {
        self.cores
    }

    fn poll(&self) {
        self.shared.poll_rings();
    }

    fn fault(&self) -> Option<CommError> {
        self.shared.fault.get().cloned()
    }
}

impl ShmTransport {
    /// Whether this rank or another one has found that a rank has died or cannot communicate any more.
    pub(crate) fn has_failed(&self) -> bool {
        let shared = &*self.shared;
        let is_dead = |rank: usize| self.state(rank) == PeerState::Dead;
        shared.control.has_failed() || shared.fault.get().is_some() || (0..shared.size).any(is_dead)
    }

    /// Publishes to all ranks that a rank has failed.
    pub(crate) fn fail(&self) {
        self.shared.control.fail();
    }

    /// Tells the other ranks that this one ends: it finishes nothing that is in flight.
    pub(crate) fn end(&self) {
        self.depart(ENDED);
    }

    fn depart(&self, how: u8) {
        self.flush();
        let shared = &*self.shared;
        shared.control.depart(shared.rank, how);
        shared.ring_all();
    }

    /// Sends queued messages to peers that read.
    fn flush(&self) {
        let shared = &*self.shared;
        let peers: Vec<_> = lock(&shared.outgoing).values().cloned().collect();
        let start = shared.host.now();
        for peer in peers {
            let left = FLUSH_WITHIN.saturating_sub(shared.host.now().saturating_sub(start));
            lock(&peer).flush_within(left);
        }
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        self.leave();
        let shared = &*self.shared;
        shared.stop.store(true, Ordering::Release);
        shared.nudge();
        if let Some(watch) = self.watch.take()
            && watch.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was printed when it happened.
            let _ = watch.join();
        }
    }
}
