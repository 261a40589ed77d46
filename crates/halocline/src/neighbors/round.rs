//! A round in flight, as its user holds it.

use super::engine::Shared;
use super::{NeighborError, Packet, Sides, Turn};
use halocline_comm::{Awaiting, Completion, Endpoint};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// What the handle of a round and the engine share.
pub(super) struct Core {
    pub(super) id: u32,
    /// Rounds of the operation so far, this one included.
    pub(super) count: u64,
    pub(super) completion: Completion<Result<(), NeighborError>>,
    result: Mutex<Option<Sides<Turn>>>,
    /// The result was taken, or nobody will take it.
    is_released: AtomicBool,
}

impl Core {
    pub(super) fn new(id: u32, count: u64) -> Arc<Self> {
        let (result, is_released) = (Mutex::new(None), AtomicBool::new(false));
        Arc::new(Self { id, count, completion: Completion::default(), result, is_released })
    }

    /// Before the completion. Nobody takes the result of a round whose handle was dropped.
    pub(super) fn put(&self, came: Sides<Turn>) {
        let unwanted = {
            let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
            match self.is_released.load(Ordering::Acquire) {
                true => Some(came),
                false => result.replace(came),
            }
        };
        // Outside of the lock: memory of the program is given back.
        drop(unwanted);
    }

    /// The handle is dropped.
    fn release(&self) {
        self.is_released.store(true, Ordering::Release);
        let unwanted = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(unwanted);
    }

    /// Whether the id can be used again.
    pub(super) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire) && self.completion.outcome().is_some()
    }

    fn take(&self) -> Result<Sides<Turn>, NeighborError> {
        match self.completion.outcome() {
            None => return Err(NeighborError::InFlight { id: self.id }),
            Some(outcome) => outcome?,
        }
        self.is_released.store(true, Ordering::Release);
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.ok_or(NeighborError::Taken { id: self.id })
    }
}

/// A round in flight. Dropping it changes nothing for the neighbours: the round goes on, and its result is dropped.
///
/// A round can be awaited (`round.await`), which drops it with the future. [`Round::completed`] gives a future that can be dropped
/// without it.
///
/// ```
/// use halocline::neighbors::{NeighborError, NeighborExchange, Sides};
/// use halocline::{Communicator, HostMemory, Packet};
/// use std::sync::Arc;
///
/// let comm = Communicator::single();
/// let ring = NeighborExchange::ring(&comm, Arc::new(HostMemory::of(&comm)))?;
/// let round = ring.start(7, Sides { left: None, right: Some(Packet::new(vec![1], None)) })?;
/// // The program computes here, while the packets travel.
/// assert_eq!(round.id(), 7);
/// let came = round.wait()?; // or `round.await?` in a task
/// assert_eq!(came.left.expect("a packet").metadata, [1]);
/// # Ok::<(), NeighborError>(())
/// ```
#[must_use = "the packets of the neighbours come with it"]
pub struct Round {
    shared: Arc<Shared>,
    core: Arc<Core>,
}

impl Round {
    pub(super) fn new(shared: &Arc<Shared>, core: Arc<Core>) -> Self {
        Self { shared: Arc::clone(shared), core }
    }

    /// Lets the progress thread carry the round on, so that it is over also without a wait.
    pub(super) fn carry_on(&self) {
        self.shared.arm(&self.core);
    }

    /// The operation.
    pub fn id(&self) -> u32 {
        self.core.id
    }

    /// Waits until the packets of both neighbours are here and the memory of those sent was given back, and takes the result.
    /// Fails if the round fails, or after the communicator's deadline. An interrupted wait leaves the round in flight.
    pub fn wait(self) -> Result<Sides<Option<Packet>>, NeighborError> {
        self.wait_until_complete()?;
        self.take()
    }

    /// As [`Round::wait`], without giving up the handle: [`Round::take`] has the result.
    pub fn wait_until_complete(&self) -> Result<(), NeighborError> {
        self.shared.wait(&self.core)
    }

    pub(super) fn take_turns(&self) -> Result<Sides<Turn>, NeighborError> {
        self.core.take()
    }

    /// Whether the round is over. Does what is possible; never blocks.
    pub fn is_complete(&self) -> Result<bool, NeighborError> {
        self.shared.context.comm().link().poll();
        self.shared.advance();
        // A copy may have begun.
        self.shared.demand_if_due();
        self.core.completion.outcome().map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// Takes the packets once the round is over. They are given once.
    pub fn take(&self) -> Result<Sides<Option<Packet>>, NeighborError> {
        Ok(self.core.take()?.map(Turn::packet))
    }

    /// Calls `callback` with the outcome, exactly once: when the round is over, on the thread that finds it over, which may be the
    /// progress thread; at once if it is over already. The callback must not block; a panic in it is logged.
    pub fn on_completion(&self, callback: impl FnOnce(Result<(), NeighborError>) + Send + 'static) {
        self.core.completion.on_completion(callback);
    }

    /// Resolves once the round is over. Dropping it leaves the round in flight, and its result can still be taken.
    pub fn completed(&self) -> Completed {
        let (shared, core) = (Arc::clone(&self.shared), Arc::clone(&self.core));
        Completed { shared, core, awaiting: Awaiting::default() }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.core.release();
        self.shared.arm(&self.core);
        self.shared.forget_released(&self.core);
    }
}

impl IntoFuture for Round {
    type Output = Result<Sides<Option<Packet>>, NeighborError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.completed().await?;
            self.take()
        })
    }
}

/// Resolves once a round is over. It never blocks the executor, and holds no lock while it is suspended.
///
/// ```
/// use halocline::neighbors::{NeighborError, NeighborExchange, Sides};
/// use halocline::{Communicator, HostMemory, Packet};
/// use std::sync::Arc;
///
/// let comm = Communicator::single();
/// let ring = NeighborExchange::ring(&comm, Arc::new(HostMemory::of(&comm)))?;
/// let round = ring.start(0, Sides { left: None, right: Some(Packet::new(vec![1], None)) })?;
/// smol::block_on(round.completed())?;
/// // The round remains, and gives the packets.
/// assert_eq!(round.take()?.left.expect("a packet").metadata, [1]);
/// # Ok::<(), NeighborError>(())
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct Completed {
    shared: Arc<Shared>,
    core: Arc<Core>,
    awaiting: Awaiting,
}

impl Completed {
    /// As [`Round::on_completion`].
    pub fn on_completion(&self, callback: impl FnOnce(Result<(), NeighborError>) + Send + 'static) {
        self.core.completion.on_completion(callback);
    }
}

/// A clone is a future of its own.
impl Clone for Completed {
    fn clone(&self) -> Self {
        let (shared, core) = (Arc::clone(&self.shared), Arc::clone(&self.core));
        Self { shared, core, awaiting: Awaiting::default() }
    }
}

impl Future for Completed {
    type Output = Result<(), NeighborError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, core, awaiting } = self.get_mut();
        let link = shared.context.comm().link();
        link.poll();
        shared.advance();
        let polled = core.completion.poll(awaiting, context.waker());
        if polled.is_pending() && !link.is_driven() {
            // No other thread may receive the messages.
            context.waker().wake_by_ref();
        }
        polled
    }
}

impl Drop for Completed {
    fn drop(&mut self) {
        self.core.completion.leave(&mut self.awaiting);
    }
}
