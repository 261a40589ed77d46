//! Ranks that talk to each other: how one gets a communicator, and point-to-point messages on it.

use crate::call::{self, Call};
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::host::{Host, System};
use crate::inbox::{Message, Tag};
use crate::progress::{Progress, Serve};
use crate::segment::Segment;
use crate::thread::ThreadTransport;
use crate::transport::{PeerState, Transport};
use crate::wait::{Late, Patience};
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// A group of ranks. A clone is the same communicator.
///
/// Collective calls ([`Communicator::barrier`] and its like, and all that the floors above build on
/// them) are made by all ranks in the same order; where two ranks are found to make different ones, all calls fail with
/// [`CommError::Mismatch`]. Threads of one rank that want to make them
/// independently of each other use [`Communicator::duplicate`]s.
#[derive(Clone)]
pub struct Communicator {
    shared: Arc<Shared>,
    /// Held by what the user holds, not by objects of ours: the last to go says that the rank leaves.
    #[expect(dead_code, reason = "held for what its end says")]
    membership: Option<Arc<Membership>>,
    deadline: Option<Duration>,
    /// The collective call of a floor above that this one is used in.
    pub(crate) within: Option<&'static str>,
}

/// The user's part in the group.
struct Membership(Arc<Node>);

impl Drop for Membership {
    fn drop(&mut self) {
        self.0.transport.leave();
    }
}

struct Shared {
    /// Tells the operations of this communicator from those of its duplicates.
    context: u64,
    /// Operations begun so far, the same on all ranks.
    begun: AtomicU64,
    /// What this rank waited for when a collective call was interrupted. The other ranks still wait in that call, or will.
    interrupted: OnceLock<String>,
    /// Two ranks were found to make different calls.
    mismatch: OnceLock<CommError>,
    node: Arc<Node>,
}

impl Shared {
    fn new(context: u64, node: Arc<Node>) -> Self {
        Self {
            context,
            begun: AtomicU64::new(0),
            interrupted: OnceLock::new(),
            mismatch: OnceLock::new(),
            node,
        }
    }
}

/// What all duplicates of one rank share.
struct Node {
    transport: Arc<dyn Transport>,
    progress: Progress,
    /// What the floors above keep once a rank.
    parts: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        // What the parts say at their end still goes out.
        let parts = std::mem::take(self.parts.get_mut().unwrap_or_else(PoisonError::into_inner));
        drop(parts);
        self.progress.stop(&*self.transport);
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator({}, rank {} of {})", self.transport(), self.rank(), self.size())
    }
}

impl Communicator {
    /// The communicator of this process: `shm` if `halocline launch` started it as a rank of a job, `mpi`
    /// if an MPI launcher did, otherwise one rank alone. Waits until all ranks of the job have called it.
    /// Once a process (over MPI: any number of times, by all ranks).
    pub fn init() -> Result<Self, CommError> {
        Self::init_by_name("auto")
    }

    /// As [`Communicator::init`], by the name of the transport: `auto`, `thread` (one rank alone), `shm` or
    /// `mpi`.
    pub fn init_by_name(name: &str) -> Result<Self, CommError> {
        Self::init_on(name, Arc::new(System))
    }

    /// As [`Communicator::init_by_name`], with the waits under the control of `host`.
    pub fn init_on(name: &str, host: Arc<dyn Host>) -> Result<Self, CommError> {
        let single = |host| Self::threads_on(1, host).swap_remove(0);
        let mpi = |host| crate::mpi::join(None, None, host).map(Self::over);
        match name {
            "thread" => Ok(single(host)),
            "auto" | "shm" => match crate::shm::join(Arc::clone(&host))? {
                Some(transport) => Ok(Self::over(transport)),
                None if name == "shm" => Err(CommError::NotLaunched),
                None if crate::mpi::launched().is_some() => mpi(host),
                None => Ok(single(host)),
            },
            "mpi" => mpi(host),
            other => Err(CommError::NoSuchTransport(other.to_owned())),
        }
    }

    /// The ranks of `MPI_COMM_WORLD`. Initialises MPI unless the program has, and then finalises it when the
    /// process ends. Ranks of one node share memory, unless `node_aware` (by default what the variable
    /// `HALOCLINE_NODE_AWARE` says, `on` or `off`) is false on one of them. Blocks until all ranks have
    /// called it.
    pub fn init_mpi(node_aware: Option<bool>) -> Result<Self, CommError> {
        Ok(Self::over(crate::mpi::join(None, node_aware, Arc::new(System))?))
    }

    /// The ranks of a communicator of the program, which has initialised MPI: its `MPI_Comm` as a number
    /// (mpi4py: `comm.handle`). It is duplicated: messages never meet the program's. Collective over its
    /// ranks. Drop what comes of it before `MPI_Finalize`; later use is an error.
    ///
    /// With `MPI_THREAD_SERIALIZED` the program does not call MPI during calls of this library; with less,
    /// only the thread that initialised MPI uses the communicator.
    ///
    /// # Safety
    /// `handle` is an intra-communicator of the MPI library that the process has loaded, and MPI is not finalised
    /// during the call.
    pub unsafe fn from_mpi(handle: usize, node_aware: Option<bool>) -> Result<Self, CommError> {
        // SAFETY: the caller promises that `handle` is an intra-communicator of the loaded MPI library and that MPI is
        // not finalised during the call.
        unsafe { Self::from_mpi_on(handle, node_aware, Arc::new(System)) }
    }

    /// As [`Communicator::from_mpi`], with the waits under the control of `host`.
    ///
    /// # Safety
    /// `handle` is an intra-communicator of the MPI library that the process has loaded, and MPI is not finalised
    /// during the call.
    pub unsafe fn from_mpi_on(
        handle: usize,
        node_aware: Option<bool>,
        host: Arc<dyn Host>,
    ) -> Result<Self, CommError> {
        Ok(Self::over(crate::mpi::join(Some(handle), node_aware, host)?))
    }

    /// `size` ranks that are threads of this process: move each into its thread.
    pub fn threads(size: usize) -> Vec<Self> {
        Self::threads_on(size, Arc::new(System))
    }

    /// As [`Communicator::threads`], with the waits under the control of `host`.
    pub fn threads_on(size: usize, host: Arc<dyn Host>) -> Vec<Self> {
        Self::over_ends(ThreadTransport::group(size, host, None))
    }

    /// The same for ranks that pretend to be processes: they do not reach each other's segments that are private, but by
    /// [`crate::mappings`].
    pub fn threads_apart(size: usize, host: Arc<dyn Host>, is_private: fn(&Segment) -> bool) -> Vec<Self> {
        Self::over_ends(ThreadTransport::group(size, host, Some(is_private)))
    }

    fn over_ends(ends: Vec<ThreadTransport>) -> Vec<Self> {
        ends.into_iter().map(|end| Self::over(Arc::new(end))).collect()
    }

    /// One rank alone.
    pub fn single() -> Self {
        Self::threads(1).swap_remove(0)
    }

    /// The communicator of this rank over its end of any transport.
    pub fn over(transport: Arc<dyn Transport>) -> Self {
        let node = Arc::new(Node { transport, progress: Progress::new(), parts: Mutex::default() });
        let membership = Some(Arc::new(Membership(Arc::clone(&node))));
        let shared = Arc::new(Shared::new(0, node));
        Self { shared, membership, deadline: None, within: None }
    }

    /// A communicator of the same ranks whose operations never meet those of this one. Collective;
    /// does not communicate.
    pub fn duplicate(&self) -> Result<Self, CommError> {
        self.check()?;
        let context = self.begin();
        let node = Arc::clone(&self.shared.node);
        let shared = Arc::new(Shared::new(context, node));
        Ok(Self { shared, ..self.clone() })
    }

    /// The same communicator, whose collective calls fail when one takes longer than `deadline`, on this
    /// rank; what the others wait for then does not come from it. None: no deadline, the default.
    pub fn with_deadline(&self, deadline: Option<Duration>) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same communicator for the parts of a collective call of a floor above. Warnings, and the errors of ranks that make
    /// different calls, give this name.
    pub fn within(&self, call: &'static str) -> Self {
        Self { within: Some(call), ..self.clone() }
    }

    /// As [`Communicator::within`], unless it is for the parts of another call already.
    pub fn or_within(&self, call: &'static str) -> Self {
        self.within(self.within.unwrap_or(call))
    }

    /// The same communicator for an object that lives on behind the scenes: it does not keep the rank
    /// from leaving.
    pub fn detached(&self) -> Self {
        Self { membership: None, ..self.clone() }
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.link().rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.link().size()
    }

    /// The name of the transport.
    pub fn transport(&self) -> &'static str {
        self.link().name()
    }

    /// Zeroed memory that as many peers as possible can reach.
    pub fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        let segment = self.link().allocate(bytes)?;
        match segment.len() {
            found if found < bytes => {
                Err(CommError::ShortSegment { transport: self.transport(), asked: bytes, found })
            }
            _ => Ok(segment),
        }
    }

    /// The number of a new operation, the same on all ranks if all begin theirs in the same order.
    /// Numbers of different communicators of one group differ.
    pub fn begin(&self) -> u64 {
        let serial = self.shared.begun.fetch_add(1, Ordering::Relaxed) + 1;
        // A duplicate's context is itself such a number, so that a tree of duplicates is hashed to 64
        // bits; two of a job's operations meet with a probability of their number squared over 2^65.
        mix(self.shared.context ^ mix(serial))
    }

    /// Tells the operations of this communicator from those of its duplicates.
    pub(crate) fn context(&self) -> u64 {
        self.shared.context
    }

    /// The error of all calls of this communicator, once ranks were found to make different ones.
    pub(crate) fn mismatch(&self) -> &OnceLock<CommError> {
        &self.shared.mismatch
    }

    /// Bytes that a payload had better have room for beyond its own: then no transport needs to move it.
    pub const ROOM: usize = crate::mpi::TRAILER;

    /// The most bytes of a [`crate::Bulk`].
    pub const LONGEST_BULK: usize = crate::mpi::LONGEST;

    /// Refuses operations that this thread may not begin, that the other ranks would take for an interrupted one, or that come
    /// after different ones.
    pub(crate) fn check(&self) -> Result<(), CommError> {
        self.link().check()?;
        call::told(self)?;
        match self.shared.interrupted.get() {
            Some(what) => Err(CommError::OutOfStep { rank: self.rank(), what: what.clone() }),
            None => Ok(()),
        }
    }

    /// Waits for a message of `tag`. `what` is said in errors and warnings. Fails when the sender is
    /// gone, and when any rank has died: what this rank waits for would lack that rank's part.
    pub fn receive(&self, from: Option<usize>, tag: Tag, what: &str) -> Result<Message, CommError> {
        self.wait_for(from, what, || Ok(self.link().inbox().take(tag, from)))
    }

    /// Whether a message of `tag` has arrived, and of how many bytes. Never blocks.
    pub fn probe(&self, from: Option<usize>, tag: Tag) -> Option<usize> {
        self.link().poll();
        self.link().inbox().probe(tag, from)
    }

    /// Waits until `poll` gives something. It is asked again whenever a message or a signal comes.
    /// `from`: the rank that is waited for; with `None` it is up to `poll` to see that one has left.
    pub fn wait_for<T>(
        &self,
        from: Option<usize>,
        what: &str,
        poll: impl FnMut() -> Result<Option<T>, CommError>,
    ) -> Result<T, CommError> {
        self.wait_as(None, from, what, poll)
    }

    /// The same within a collective call: ends if another rank makes another one in its place.
    pub(crate) fn wait_in<T>(
        &self,
        call: &Call,
        from: Option<usize>,
        what: &str,
        poll: impl FnMut() -> Result<Option<T>, CommError>,
    ) -> Result<T, CommError> {
        self.wait_as(Some(call), from, what, poll)
    }

    fn wait_as<T>(
        &self,
        call: Option<&Call>,
        from: Option<usize>,
        what: &str,
        mut poll: impl FnMut() -> Result<Option<T>, CommError>,
    ) -> Result<T, CommError> {
        self.check()?;
        let patience = Patience { deadline: self.deadline, ..Patience::of(self.link()) };
        let (mut departures, mut announced) = (0, false);
        // What was found before this thread went to sleep.
        let failed = Cell::new(None);
        // A rank that has left may have done so because of different calls, of which it has told before.
        let cause = |error: CommError| {
            call.and_then(|call| call.check(self).err()).unwrap_or_else(|| self.root(error, what))
        };
        let ended = patience.wait(
            self.link(),
            || {
                let before = self.link().departures();
                match poll() {
                    Ok(None) => {}
                    Ok(Some(found)) => return Some(Ok(found)),
                    Err(error) => return Some(Err(cause(error))),
                }
                if let Some(error) = failed.take() {
                    return Some(Err(error));
                }
                if before == departures {
                    return None;
                }
                // All that a departed rank had sent was in the inbox before its departure showed, so
                // this last look decides.
                departures = before;
                let gone = self.link().check().err().or_else(|| self.departed(from, what))?;
                Some(poll().and_then(|found| found.ok_or(gone)).map_err(cause))
            },
            || failed.set(call.and_then(|call| call.check(self).err())),
            |late| match late {
                Late::Announce => {
                    call?.announce(self, from?);
                    announced = true;
                    None
                }
                Late::Warn { after, again } => {
                    let within = self.within.map_or(String::new(), |call| format!("in {call} "));
                    let awaited = match from {
                        None => "other ranks".to_owned(),
                        Some(rank) => self.describe_waits(&[rank]),
                    };
                    let (rank, after) = (self.rank(), after.as_secs());
                    let text = format!("rank {rank} has waited {after} s {within}for {what} from {awaited}");
                    self.link().host().tell_late(&text, again);
                    None
                }
                Late::Deadline(after) => {
                    Some(Err(CommError::Deadline { waiting: self.rank(), after, what: what.to_owned() }))
                }
                Late::Interrupted => {
                    let what = self.shared.interrupted.get_or_init(|| what.to_owned()).clone();
                    Some(Err(CommError::Interrupted { waiting: self.rank(), what }))
                }
            },
        );
        if let (true, Some(call), Some(rank)) = (announced, call, from) {
            call.retract(self, rank);
        }
        ended
    }

    /// Tells a rank that this one waits for it in something that is no collective call, or, without a name, that the wait is over: for
    /// the warning of that rank, if it waits, too. `operation`: a number of its own ([`Communicator::begin`]).
    pub fn announce(&self, to: usize, operation: u64, what: String) {
        Call::other(operation, what).announce(self, to);
    }

    /// Ranks that are waited for, with what they themselves wait in for this one as far as they have said so.
    pub fn describe_waits(&self, ranks: &[usize]) -> String {
        let describe = |&rank: &usize| match self.link().inbox().waits_in(rank) {
            None => format!("rank {rank}"),
            Some(call) => format!("rank {rank} (which waits in {call})"),
        };
        ranks.iter().map(describe).collect::<Vec<_>>().join(", ")
    }

    /// A rank that leaves because another has died is not the one to name.
    fn root(&self, error: CommError, what: &str) -> CommError {
        match error {
            CommError::Left { .. } => self.departed(None, what).unwrap_or(error),
            other => other,
        }
    }

    /// The error for a rank that is gone, if `from` has left or any rank has died.
    pub(crate) fn departed(&self, from: Option<usize>, what: &str) -> Option<CommError> {
        let (waiting, what) = (self.rank(), what.to_owned());
        if let Some(rank) = (0..self.size()).find(|&rank| self.link().state(rank) == PeerState::Dead) {
            return Some(CommError::Died { rank, waiting, what });
        }
        let others = || (0..self.size()).filter(|&rank| rank != waiting);
        let rank = match from {
            Some(rank) => Some(rank).filter(|&rank| self.has_left(rank)),
            // Nobody is left who could send.
            None => others().next().filter(|_| others().all(|rank| self.has_left(rank))),
        };
        rank.map(|rank| CommError::Left { rank, waiting, what })
    }

    /// Whether `rank` has given up its communicator. What it had sent is in the inbox then.
    pub fn has_left(&self, rank: usize) -> bool {
        matches!(self.link().state(rank), PeerState::Left | PeerState::Ended)
    }

    /// Lets the progress thread serve `object` at every demand, as long as somebody holds it.
    pub fn register(&self, object: Weak<dyn Serve>) {
        self.shared.node.progress.register(&self.shared.node.transport, object);
    }

    /// Holds `object`, which was dropped in flight, until it is over.
    pub fn defer_drop(&self, object: Arc<dyn Serve>) {
        self.shared.node.progress.defer_drop(&self.shared.node.transport, object);
    }

    /// The one `T` of this rank, made when first asked for: what all its objects of a kind know together.
    pub fn part<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut parts = self.shared.node.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = parts.iter().find_map(|part| Arc::clone(part).downcast().ok());
        known.unwrap_or_else(|| {
            let part = Arc::new(T::default());
            parts.push(Arc::clone(&part) as Arc<dyn Any + Send + Sync>);
            part
        })
    }

    /// This rank's end of the transport, for a part, which must not keep it.
    pub(crate) fn transport_of_part(&self) -> Weak<dyn Transport> {
        Arc::downgrade(&self.shared.node.transport)
    }

    /// When its calls fail.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// How long a wait looks at a counter before it sleeps.
    pub fn spin(&self) -> Duration {
        Patience::of(self.link()).spin
    }
}

impl Endpoint for Communicator {
    #[inline]
    fn link(&self) -> &dyn Transport {
        &*self.shared.node.transport
    }
}

/// A bijection of 64 bits that spreads close numbers (the finaliser of splitmix64).
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
