//! Groups of ranks: how a program gets a communicator, duplicates it, and sets a deadline.

use crate::call::Call;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::host::{Host, System};
use crate::progress::Progress;
use crate::segment::Segment;
use crate::split::{Members, SplitTransport};
use crate::thread::ThreadTransport;
use crate::transport::Transport;
use halocline_device::Variable;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// A group of ranks. A clone is the same communicator.
///
/// All ranks make the same collective calls ([`Communicator::barrier`] and its like, and all that the layers above build on
/// them) in the same order. Where two ranks are found to make different ones, all calls fail with
/// [`CommError::Mismatch`]. Threads of one rank that make collective calls
/// independently of each other use [`Communicator::duplicate`]s.
///
/// # Errors of collective calls
/// Every collective call can fail with
/// - [`CommError::Mismatch`]: two ranks make different calls;
/// - [`CommError::Died`], [`CommError::Left`]: a rank that the call waits for has died or dropped its communicator;
/// - [`CommError::Deadline`]: the deadline has passed ([`Communicator::with_deadline`]);
/// - [`CommError::Interrupted`], and [`CommError::OutOfStep`] in every later call: the host interrupted a wait;
/// - [`CommError::Malformed`]: the message of a rank has another form;
/// - [`CommError::Mpi`], [`CommError::System`]: the transport has failed, or refuses this thread.
///
/// [`Endpoint`] has what the layers above build operations on: point-to-point messages, waits, shared memory, the progress
/// thread.
///
/// ```
/// use halocline_comm::{CommError, Communicator, Reduce};
///
/// let rank = |comm: Communicator| -> Result<(), CommError> {
///     assert_eq!(comm.size(), 4);
///     let last: usize = comm.all_reduce(comm.rank(), Reduce::Max)?;
///     assert_eq!(last, 3);
///     comm.barrier()
/// };
/// // Four threads of this process; `Communicator::init` makes the communicator of a launched process.
/// std::thread::scope(|threads| {
///     let ranks = Communicator::threads(4).into_iter().map(|comm| threads.spawn(move || rank(comm)));
///     ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().expect("no panic"))
/// })?;
/// # Ok::<(), CommError>(())
/// ```
#[derive(Clone)]
pub struct Communicator {
    pub(crate) shared: Arc<Shared>,
    /// Held by communicators of the user, not by objects of this library. The last one to be dropped makes the rank leave.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) membership: Option<Arc<Membership>>,
    pub(crate) deadline: Option<Duration>,
    /// The collective function that this communicator is used in.
    pub(crate) within: Option<&'static str>,
}

/// The user's part in the group.
pub(crate) struct Membership(Arc<Rank>);

impl Drop for Membership {
    fn drop(&mut self) {
        self.0.transport.leave();
    }
}

/// State of a communicator that its clones share.
pub(crate) struct Shared {
    /// Tells the operations of this communicator from those of its duplicates.
    pub(crate) context: u64,
    /// Operations begun so far, the same on all ranks.
    begun: AtomicU64,
    /// The subject of the wait in which a collective call was interrupted. The other ranks still wait in that call, or will.
    pub(crate) interrupted: OnceLock<String>,
    /// Two ranks were found to make different calls.
    pub(crate) mismatch: OnceLock<CommError>,
    /// The last operations that go on beside calls.
    pub(crate) lasting: Mutex<VecDeque<Call>>,
    /// The transport as the ranks of this communicator see it.
    pub(crate) link: Arc<dyn Transport>,
    /// The ranks of a split communicator.
    members: Option<Arc<Members>>,
    pub(crate) rank: Arc<Rank>,
}

impl Shared {
    fn new(
        context: u64,
        link: Arc<dyn Transport>,
        members: Option<Arc<Members>>,
        rank: Arc<Rank>,
    ) -> Arc<Self> {
        let (begun, interrupted, mismatch) = (AtomicU64::new(0), OnceLock::new(), OnceLock::new());
        let lasting = Mutex::default();
        Arc::new(Self { context, begun, interrupted, mismatch, lasting, link, members, rank })
    }
}

/// State that all duplicates and splits of one rank share.
pub(crate) struct Rank {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) progress: Progress,
    /// State that the layers above keep once a rank.
    extensions: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Rank {
    /// The one `T` of this rank, made at first use.
    pub(crate) fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut extensions = self.extensions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = extensions.iter().find_map(|known| Arc::clone(known).downcast().ok());
        known.unwrap_or_else(|| {
            let made = Arc::new(T::default());
            extensions.push(Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
            made
        })
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Before the progress thread ends: what they send when they are dropped still goes out.
        drop(std::mem::take(self.extensions.get_mut().unwrap_or_else(PoisonError::into_inner)));
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
    /// Call it once a process (over MPI: any number of times, on all ranks).
    /// Refuses malformed values of all `HALOCLINE_*` variables, also of those that the transport does not read.
    pub fn init() -> Result<Self, CommError> {
        Self::init_by_name("auto")
    }

    /// As [`Communicator::init`], by the name of the transport: `auto`, `thread` (one rank alone), `shm` or
    /// `mpi`.
    pub fn init_by_name(name: &str) -> Result<Self, CommError> {
        Self::init_on(name, Arc::new(System))
    }

    /// As [`Communicator::init_by_name`], with waits on a clock and futexes of the caller.
    #[doc(hidden)]
    pub fn init_on(name: &str, host: Arc<dyn Host>) -> Result<Self, CommError> {
        Variable::check_all()?;
        // Joining MPI refuses the library itself, with the reason of the loader.
        if name != "mpi" {
            crate::mpi::check_choice()?;
        }
        let single = |host| Self::threads_on(1, host).swap_remove(0);
        let mpi = |host| crate::mpi::join(None, None, host).map(Self::over_transport);
        match name {
            "thread" => Ok(single(host)),
            "auto" | "shm" => match crate::shm::join(Arc::clone(&host))? {
                Some(transport) => Ok(Self::over_transport(transport)),
                None if name == "shm" => Err(CommError::NotLaunched),
                None if crate::mpi::launched().is_some() => mpi(host),
                None => Ok(single(host)),
            },
            "mpi" => mpi(host),
            other => Err(CommError::NoSuchTransport(other.to_owned())),
        }
    }

    /// The ranks of `MPI_COMM_WORLD`. Initialises MPI unless the program has, and then finalises it when the
    /// process ends. Ranks of one node share memory, unless `node_aware` (by default the variable
    /// `HALOCLINE_NODE_AWARE`, `on` or `off`) is false on one of them. Blocks until all ranks have
    /// called it.
    pub fn init_mpi(node_aware: Option<bool>) -> Result<Self, CommError> {
        Variable::check_all()?;
        Ok(Self::over_transport(crate::mpi::join(None, node_aware, Arc::new(System))?))
    }

    /// The ranks of a communicator of the program, which has initialised MPI: its `MPI_Comm` as a number
    /// (mpi4py: `comm.handle`). It is duplicated, so that messages of the library and of the program never mix. Collective over its
    /// ranks. Drop the communicator and its duplicates before `MPI_Finalize`; later use is an error.
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

    /// As [`Communicator::from_mpi`], with waits on a clock and futexes of the caller.
    ///
    /// # Safety
    /// `handle` is an intra-communicator of the MPI library that the process has loaded, and MPI is not finalised
    /// during the call.
    #[doc(hidden)]
    pub unsafe fn from_mpi_on(
        handle: usize,
        node_aware: Option<bool>,
        host: Arc<dyn Host>,
    ) -> Result<Self, CommError> {
        Variable::check_all()?;
        Ok(Self::over_transport(crate::mpi::join(Some(handle), node_aware, host)?))
    }

    /// `size` ranks that are threads of this process: move each into its thread.
    pub fn threads(size: usize) -> Vec<Self> {
        Self::threads_on(size, Arc::new(System))
    }

    /// As [`Communicator::threads`], with waits on a clock and futexes of the caller.
    #[doc(hidden)]
    pub fn threads_on(size: usize, host: Arc<dyn Host>) -> Vec<Self> {
        Self::over_threads(ThreadTransport::group(size, host, None))
    }

    pub(crate) fn over_threads(ends: Vec<ThreadTransport>) -> Vec<Self> {
        ends.into_iter().map(|end| Self::over_transport(Arc::new(end))).collect()
    }

    /// One rank alone.
    pub fn single() -> Self {
        Self::threads(1).swap_remove(0)
    }

    pub(crate) fn over_transport(transport: Arc<dyn Transport>) -> Self {
        let link = Arc::clone(&transport);
        let rank = Arc::new(Rank { transport, progress: Progress::new(), extensions: Mutex::default() });
        let membership = Some(Arc::new(Membership(Arc::clone(&rank))));
        Self { shared: Shared::new(0, link, None, rank), membership, deadline: None, within: None }
    }

    /// A communicator of the same ranks whose operations never mix with those of this one. Collective; never blocks and sends
    /// no message.
    ///
    /// # Errors
    /// [`CommError::Mismatch`] and [`CommError::OutOfStep`] after an earlier call has failed with it or was interrupted;
    /// [`CommError::Mpi`] and [`CommError::System`] if the transport has failed or refuses this thread.
    pub fn duplicate(&self) -> Result<Self, CommError> {
        self.check()?;
        let Shared { link, members, rank, .. } = &*self.shared;
        let (link, members, rank) = (Arc::clone(link), members.clone(), Arc::clone(rank));
        Ok(Self { shared: Shared::new(self.begin(), link, members, rank), ..self.clone() })
    }

    /// A communicator of some ranks of this one, which have agreed on `context`.
    pub(crate) fn over_members(&self, context: u64, members: Members) -> Self {
        let (members, rank) = (Arc::new(members), Arc::clone(&self.shared.rank));
        let link = Arc::new(SplitTransport::new(Arc::clone(&rank.transport), Arc::clone(&members)));
        Self { shared: Shared::new(context, link, Some(members), rank), ..self.clone() }
    }

    /// The same communicator, whose collective calls fail on this rank when one takes longer than `deadline`. The other ranks
    /// do not get this rank's messages of a call that has failed. `None`: no deadline, the default.
    pub fn with_deadline(&self, deadline: Option<Duration>) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// How long a collective call may take on this rank; `None`: as long as it takes.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// The same communicator for the parts of a collective function of the program. Warnings, and the errors of ranks that make
    /// different calls, give the name of the function.
    pub fn within(&self, function: &'static str) -> Self {
        Self { within: Some(function), ..self.clone() }
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

    /// Zeroed memory that as many peers as possible can reach. Not collective; never waits for another rank.
    ///
    /// # Errors
    /// [`CommError::Memory`] or [`CommError::OutOfMemory`] if there is no memory; [`CommError::ShortSegment`] if the transport
    /// returns less.
    #[doc(hidden)]
    pub fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        let segment = self.link().allocate(bytes)?;
        match segment.len() {
            found if found < bytes => {
                Err(CommError::ShortSegment { transport: self.transport(), asked: bytes, found })
            }
            _ => Ok(segment),
        }
    }

    /// The number of the next operation ([`Endpoint::begin`]).
    pub(crate) fn next_operation(&self) -> u64 {
        let serial = self.shared.begun.fetch_add(1, Ordering::Relaxed) + 1;
        // A duplicate's context is itself such a number, so that a tree of duplicates is hashed to 64
        // bits. Two operations of a job collide with a probability of their number squared over 2^65.
        mix(self.shared.context ^ mix(serial))
    }

    /// The transport's number of a rank.
    pub(crate) fn outer_rank(&self, rank: usize) -> Option<usize> {
        self.shared.members.as_ref().map_or(Some(rank), |members| members.outer(rank))
    }

    /// The rank that has a number of the transport; `None` if it is no member.
    pub(crate) fn inner_rank(&self, number: usize) -> Option<usize> {
        self.shared.members.as_ref().map_or(Some(number), |members| members.inner(number))
    }

    /// The transport of all ranks. This communicator may have only some of them.
    pub(crate) fn outer_link(&self) -> &dyn Transport {
        &*self.shared.rank.transport
    }

    /// This rank's end of the transport, for an extension, which must not keep it alive.
    pub(crate) fn weak_transport(&self) -> Weak<dyn Transport> {
        Arc::downgrade(&self.shared.rank.transport)
    }
}

/// A bijection of 64 bits that spreads close numbers (the finaliser of splitmix64).
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
