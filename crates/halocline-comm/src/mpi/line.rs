//! The one way to MPI: a communicator of our own behind a gate that admits those who may call MPI, one at
//! a time, as long as MPI is up.

use super::engine::{Came, INTRODUCTION, Wire};
use super::error::{MpiError, ThreadLevel};
use super::frame::{Assembly, Kind, LONGEST, NUMBERS, TRAILER, announce, announced, split, trailer};
use super::landing::Landings;
use super::runtime::About;
use crate::bulk::{Bulk, Desk, Surround};
use crate::inbox::Tag;
use crate::lent::{Lent, Payload};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How long a rank that leaves tries to get its last messages through.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// Who may call MPI for a [`Line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Any thread; those that poll in the background, too.
    Anyone,
    /// Any thread in a call of the program, one at a time: the program keeps its own calls apart from
    /// those, and cannot know of a thread in the background.
    Callers,
    /// One thread.
    Only(ThreadId),
}

impl Access {
    /// What the thread level allows.
    pub(super) fn of(about: &About) -> Self {
        match (about.only, about.level) {
            (Some(only), _) => Self::Only(only),
            // Whoever initialises MPI by us does not call it.
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

/// What comes from a rank.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A message, and the bytes that it announces.
    Message(Tag, Vec<u8>, Option<Bulk>),
    /// A message that was awaited lies in its place.
    Landed(Tag),
    /// It sends nothing any more.
    Farewell,
}

/// A communicator of our own.
///
/// **The gate** is passed by a thread that [`Access::is_mine`] admits, that holds `state`, and `calls` where there is one,
/// and that has found `State::broken` to be none. Then MPI is up ([`super::ffi::Api`]), and no other thread uses this wire,
/// or MPI at all where it takes one call at a time: before MPI is finalised, [`close_all`] sets `broken` under these locks.
pub(super) struct Line {
    access: Access,
    /// Held beside the line's own lock where MPI takes one call at a time.
    calls: Option<&'static Mutex<()>>,
    state: Mutex<State>,
    /// Threads that have something to send and want the lock: those that merely poll, again and again, let
    /// them go first.
    posting: AtomicU32,
    /// Messages were on their way when MPI was called last.
    carrying: AtomicBool,
    /// What threads that may not call MPI have to send, for the next one that may.
    outbox: Mutex<VecDeque<(usize, Tag, Payload)>>,
    /// Where awaited messages shall lie.
    landings: Landings,
    /// Bulks that were asked for, and not of MPI yet.
    desk: Arc<Desk>,
    /// What calls of MPI take place in, once bulks lie in memory of a device.
    surround: OnceLock<Arc<dyn Surround>>,
    /// Ranks that we talk to by MPI.
    peers: Vec<usize>,
}

struct State {
    wire: Box<dyn Wire>,
    assembly: Assembly,
    /// Of each peer, the number of the next bulk.
    numbers: HashMap<usize, u32>,
    /// Peers that have said farewell.
    gone: usize,
    /// The user has given up the communicator, or MPI comes to its end.
    farewell: Farewell,
    /// Why the line is of no use any more. Then MPI is not called.
    broken: Option<MpiError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Farewell {
    NotYet,
    Due,
    Said,
}

/// Lines that MPI still knows: for its end, and to give back those that are over.
static LINES: Mutex<Vec<Arc<Line>>> = Mutex::new(Vec::new());

/// Admits one call at a time where MPI says MPI_THREAD_SERIALIZED.
static CALLS: Mutex<()> = Mutex::new(());

impl Line {
    /// The line over a wire, to these peers.
    pub(super) fn open(wire: Box<dyn Wire>, about: &About, peers: Vec<usize>) -> Arc<Self> {
        sweep();
        let state = State {
            wire,
            assembly: Assembly::default(),
            numbers: HashMap::new(),
            gone: 0,
            farewell: Farewell::NotYet,
            broken: None,
        };
        let line = Arc::new(Self {
            access: Access::of(about),
            calls: (about.level == ThreadLevel::Serialized).then_some(&CALLS),
            state: Mutex::new(state),
            posting: AtomicU32::new(0),
            carrying: AtomicBool::new(false),
            outbox: Mutex::default(),
            landings: Landings::default(),
            desk: Arc::default(),
            surround: OnceLock::new(),
            peers,
        });
        lock(&LINES).push(Arc::clone(&line));
        line
    }

    /// Who may call MPI.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Hands over a message, or keeps it for a thread that may call MPI. Never waits for the receiver.
    pub(super) fn post(&self, to: usize, tag: Tag, payload: Payload) -> Result<(), MpiError> {
        if !self.access.is_mine() {
            lock(&self.outbox).push_back((to, tag, payload));
            return Ok(());
        }
        self.posting.fetch_add(1, Ordering::Relaxed);
        let _call = self.calls.map(lock);
        let mut state = lock(&self.state);
        self.posting.fetch_sub(1, Ordering::Relaxed);
        let sent = self.call(&mut state, |state| {
            // SAFETY: the gate of `Line` is passed: `is_mine` says so, `call` has found the line unbroken, and both
            // locks are held.
            unsafe { self.flush_outbox(state).and_then(|()| state.send(to, tag, payload)) }
        });
        state.note(sent)
    }

    /// Hands over a message and bytes that it announces, wherever they lie: memory that this MPI takes. Only where any thread
    /// may call MPI. Never waits for the receiver.
    pub(super) fn post_bulk(
        &self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        bulk: Lent,
    ) -> Result<(), MpiError> {
        self.posting.fetch_add(1, Ordering::Relaxed);
        let _call = self.calls.map(lock);
        let mut state = lock(&self.state);
        self.posting.fetch_sub(1, Ordering::Relaxed);
        let sent = self.call(&mut state, |state| {
            // SAFETY: the gate of `Line` is passed: `call` has found the line unbroken, both locks are held, and any
            // thread may call MPI, which `MpiTransport::post_bulk` has asked by `takes_devices`. That says, too, that
            // MPI takes this kind of memory.
            unsafe { self.flush_outbox(state).and_then(|()| state.send_bulk(to, tag, payload, bulk)) }
        });
        state.note(sent)
    }

    /// A turn at MPI, if the line is of use.
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

    /// From now on calls of MPI take place within this; the first one given stays.
    pub(super) fn surround(&self, surround: Arc<dyn Surround>) {
        // Another object's is as good.
        let _ = self.surround.set(surround);
    }

    /// Lets MPI get on and gives what has arrived. Does nothing where this thread may not call MPI or
    /// another one is at it.
    pub(super) fn poll(&self, arrive: &mut dyn FnMut(usize, Arrival)) -> Result<(), MpiError> {
        if !self.access.is_mine() || self.posting.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let Some(_call) = self.calls.map_or(Some(None), |calls| try_lock(calls).map(Some)) else {
            return Ok(());
        };
        let Some(mut state) = try_lock(&self.state) else { return Ok(()) };
        let polled = self.call(&mut state, |state| {
            // SAFETY: the gate of `Line` is passed: `is_mine` says so, `call` has found the line unbroken, and both
            // locks are held.
            unsafe {
                self.flush_outbox(state).and_then(|()| state.advance(&self.landings, &self.desk, arrive))
            }
        });
        state.note(polled)
    }

    /// Where awaited messages shall lie.
    pub(super) fn landings(&self) -> &Landings {
        &self.landings
    }

    /// Whether messages are on their way, as far as the last call of MPI has seen.
    pub(super) fn is_carrying(&self) -> bool {
        self.carrying.load(Ordering::Relaxed) || !self.desk.is_empty()
    }

    /// Says farewell, gets through what was sent, within limits, and leaves the rest to [`sweep`].
    pub(super) fn close(&self) {
        {
            let mut state = lock(&self.state);
            if state.farewell == Farewell::NotYet {
                state.farewell = Farewell::Due;
            }
        }
        let start = Instant::now();
        while self.access.is_mine() && !self.tidy() && start.elapsed() < FLUSH_WITHIN {
            // Nobody wakes us: MPI gets on when it is called, and peers when they are.
            std::thread::park_timeout(Duration::from_micros(100));
        }
        sweep();
    }

    /// One turn at closing, by a thread that may call MPI. True once all that we sent is through.
    fn tidy(&self) -> bool {
        if !self.access.is_mine() {
            return false;
        }
        let _call = self.calls.map(lock);
        let mut state = lock(&self.state);
        if state.farewell == Farewell::NotYet || state.check().is_err() {
            return true;
        }
        let tidied = self.call(&mut state, |state| {
            // SAFETY: the gate of `Line` is passed: `is_mine` says so, `call` has found the line unbroken, and both
            // locks are held.
            unsafe {
                self.flush_outbox(state)
                    .and_then(|()| state.say_farewell(&self.peers))
                    .and_then(|()| state.advance(&self.landings, &self.desk, &mut |_, _| ()))
            }
        });
        state.note(tidied).is_err() || (state.wire.is_drained() && self.desk.is_empty())
    }

    /// Whether this line is over at all ranks, or of no use; gives the communicator back.
    fn is_over(&self) -> bool {
        if !self.access.is_mine() {
            return false;
        }
        self.tidy();
        let _call = self.calls.map(lock);
        let mut state = lock(&self.state);
        if state.broken.is_some() {
            return state.farewell != Farewell::NotYet;
        }
        let drained = state.wire.is_drained() && self.desk.is_empty();
        let over = state.farewell == Farewell::Said && drained && state.gone == self.peers.len();
        if over {
            // SAFETY: the gate of `Line` is passed: `is_mine` says so, `broken` is none, and both locks are held.
            // Nothing is under way: all peers have said farewell, which is their last message, and ours are sent.
            // `broken` keeps the wire from being used again.
            if let Err(error) = unsafe { state.wire.free() } {
                tracing::warn!("{error}");
            }
            state.broken = Some(MpiError::Finalized);
        }
        over
    }

    /// MPI comes to its end: farewell, and never a call again.
    fn finalize(&self) {
        self.close();
        let _call = self.calls.map(lock);
        lock(&self.state).broken.get_or_insert(MpiError::Finalized);
    }

    /// # Safety
    /// The gate of [`Line`] is passed.
    unsafe fn flush_outbox(&self, state: &mut State) -> Result<(), MpiError> {
        while let Some(asked) = self.desk.next() {
            // SAFETY: the caller has passed the gate of `Line`. A message of `asked.from` has announced the bytes, and
            // whoever made the place has said that MPI takes its kind of memory.
            unsafe { state.wire.receive_bulk(asked)? };
        }
        loop {
            let Some((to, tag, payload)) = lock(&self.outbox).pop_front() else { return Ok(()) };
            // SAFETY: the caller has passed the gate of `Line`. `MpiTransport::hand_over` has checked the rank before
            // it came into the outbox.
            unsafe { state.send(to, tag, payload)? };
        }
    }
}

impl State {
    fn check(&self) -> Result<(), MpiError> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// What fails once is of no use any more.
    fn note(&mut self, outcome: Result<(), MpiError>) -> Result<(), MpiError> {
        if let Err(error) = &outcome {
            self.broken.get_or_insert_with(|| error.clone());
        }
        outcome
    }

    /// # Safety
    /// The gate of [`Line`] is passed. `to` is a rank of the communicator.
    unsafe fn send(&mut self, to: usize, tag: Tag, payload: Payload) -> Result<(), MpiError> {
        let payload = match payload {
            Payload::Lent(lent) if lent.bytes().len() + TRAILER <= LONGEST => {
                let trailer = trailer(tag, lent.bytes().len());
                let whole = Payload::Lent(lent.extended(trailer));
                // SAFETY: the caller has passed the gate of `Line` and gives a rank of the communicator.
                return unsafe { self.wire.send(to, Kind::Last, whole) };
            }
            Payload::Lent(lent) => lent.copied(),
            Payload::Owned(bytes) => bytes,
        };
        for (kind, part) in split(tag, payload, LONGEST) {
            // SAFETY: the caller has passed the gate of `Line` and gives a rank of the communicator.
            unsafe { self.wire.send(to, kind, Payload::Owned(part))? };
        }
        Ok(())
    }

    /// # Safety
    /// The gate of [`Line`] is passed. `to` is a rank of the communicator. MPI takes the kind of memory that the bulk
    /// lies in.
    unsafe fn send_bulk(
        &mut self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        bulk: Lent,
    ) -> Result<(), MpiError> {
        let number = self.numbers.entry(to).or_default();
        let payload = announce(payload, *number, bulk.len());
        // SAFETY: the caller has passed the gate of `Line`, gives a rank of the communicator, and promises that MPI
        // takes this kind of memory.
        unsafe { self.wire.send_bulk(to, *number, bulk)? };
        *number = (*number + 1) % NUMBERS;
        for (kind, part) in split(tag, payload, LONGEST) {
            let kind = if kind == Kind::Last { Kind::Bulk } else { kind };
            // SAFETY: the caller has passed the gate of `Line` and gives a rank of the communicator.
            unsafe { self.wire.send(to, kind, Payload::Owned(part))? };
        }
        Ok(())
    }

    /// # Safety
    /// The gate of [`Line`] is passed. `peers` are ranks of the communicator.
    unsafe fn say_farewell(&mut self, peers: &[usize]) -> Result<(), MpiError> {
        if self.farewell == Farewell::Due {
            self.farewell = Farewell::Said;
            for &peer in peers {
                // SAFETY: the caller has passed the gate of `Line` and gives ranks of the communicator.
                unsafe { self.wire.send(peer, Kind::Farewell, Payload::Owned(Vec::new()))? };
            }
        }
        Ok(())
    }

    /// # Safety
    /// The gate of [`Line`] is passed.
    unsafe fn advance(
        &mut self,
        landings: &Landings,
        desk: &Arc<Desk>,
        arrive: &mut dyn FnMut(usize, Arrival),
    ) -> Result<(), MpiError> {
        let Self { wire, assembly, gone, .. } = self;
        let mut malformed = None;
        let mut take = |from: usize, kind: Kind, came: Came| match (kind, came) {
            (_, Came::Landed(tag)) => arrive(from, Arrival::Landed(tag)),
            (Kind::Part, Came::Bytes(bytes)) => assembly.part(from, bytes),
            (Kind::Last, Came::Bytes(bytes)) => match assembly.last(from, bytes) {
                Some((tag, payload)) => arrive(from, Arrival::Message(tag, payload, None)),
                None => malformed = Some(MpiError::Malformed { from, what: "a message without its end" }),
            },
            (Kind::Bulk, Came::Bytes(bytes)) => {
                let whole = assembly.last(from, bytes);
                let read =
                    whole.and_then(|(tag, mut payload)| Some((announced(&mut payload)?, tag, payload)));
                match read {
                    Some(((number, len), tag, payload)) => {
                        let bulk = Bulk::new((from, number), len, desk);
                        arrive(from, Arrival::Message(tag, payload, Some(bulk)));
                    }
                    None => {
                        malformed = Some(MpiError::Malformed { from, what: "an announcement of nothing" })
                    }
                }
            }
            (Kind::Farewell, Came::Bytes(_)) => {
                *gone += 1;
                arrive(from, Arrival::Farewell);
            }
        };
        // SAFETY: the caller has passed the gate of `Line`.
        unsafe { wire.advance(landings, &mut take)? };
        malformed.map_or(Ok(()), Err)
    }
}

/// Gives back the lines that are over at all ranks.
fn sweep() {
    // No lock is held during calls, and no line is missing from the list before it is over.
    let lines = lock(&LINES).clone();
    let over: Vec<_> = lines.into_iter().filter(|line| line.is_over()).collect();
    lock(&LINES).retain(|line| !over.iter().any(|done| Arc::ptr_eq(done, line)));
}

/// Ends all lines, since MPI comes to its end.
pub(super) fn close_all() {
    let lines = lock(&LINES).clone();
    lines.iter().for_each(|line| line.finalize());
}

/// Introductions of the ranks of this node, before a wire becomes a line. Collective, blocks.
pub(super) fn introduce(
    wire: &mut dyn Wire,
    mine: &[u8; INTRODUCTION],
) -> Result<Vec<[u8; INTRODUCTION]>, MpiError> {
    let _call = lock(&CALLS);
    // SAFETY: `Mpi::connect` has just made the wire, in this thread, which has found that it may call MPI. No line has
    // the wire yet, so that no other thread uses it, and `CALLS` keeps other calls away where MPI takes one at a time.
    unsafe { wire.introduce(mine) }
}

/// Narrows the circle of those who introduce themselves. Collective over them, blocks.
pub(super) fn narrow(wire: &mut dyn Wire, group: i32) -> Result<(), MpiError> {
    let _call = lock(&CALLS);
    // SAFETY: `Mpi::connect` has just made the wire, in this thread, which has found that it may call MPI. No line has
    // the wire yet, so that no other thread uses it, and `CALLS` keeps other calls away where MPI takes one at a time.
    unsafe { wire.narrow(group) }
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
    use crate::progress::Serve;
    use std::sync::mpsc;

    /// Says what a progress thread may do.
    struct Asks(Mutex<mpsc::Sender<[bool; 3]>>);

    impl Serve for Asks {
        fn serve(&self) {
            let accesses = [Access::Anyone, Access::Callers, Access::Only(std::thread::current().id())];
            // Nobody listens to a second answer.
            let _ = lock(&self.0).send(accesses.map(Access::is_mine));
        }

        fn is_over(&self) -> bool {
            true
        }
    }

    #[test]
    fn threads_in_the_background_call_mpi_only_where_any_thread_may() {
        assert!([Access::Anyone, Access::Callers].into_iter().all(Access::is_mine));
        let (sender, answers) = mpsc::channel();
        let comm = Communicator::single();
        comm.defer_drop(Arc::new(Asks(Mutex::new(sender))));
        assert_eq!(answers.recv().unwrap(), [true, false, true]);
    }
}
