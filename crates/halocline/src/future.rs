//! An exchange as a future, for any executor: nothing here runs one.
//!
//! A poll does what can be done at once. A task that finds its exchange unfinished gives way to others for
//! as long as a blocking wait would spin. Then it enters the object's [`halocline_comm::Wakers`] and arms the
//! progress thread, which carries the exchange on while nobody polls and keeps its deadline; whoever completes
//! the exchange, or finds that it fails, wakes the task.

use crate::bound::Bound;
use crate::error::Error;
use crate::exchange::Pending;
use halocline_comm::Endpoint;
use halocline_comm::{Communicator, Late, Ticket, WARN_AFTER};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// One exchange in flight, as a future: made by [`crate::HaloExchange::exchange_async`] or from a [`Pending`].
///
/// Its outcome is that of [`Pending::wait`]. It may be polled by any thread, move between executors, and be
/// polled again once it is over: then it gives its outcome again. A poll never blocks. Several may wait for
/// the same exchange.
///
/// Dropping it cancels the waiting, not the exchange: that goes on as if its [`Pending`] had been dropped, and
/// [`crate::HaloExchange::pending`] gives that back.
///
/// No device wakes a task: for one that waits for fields in memory of devices the progress thread looks, every 20 us at
/// first, every millisecond in the end.
///
/// Over MPI that only one thread may call, a poll by another thread ends with the error that says so; the
/// exchange goes on. There, and where MPI gives no thread in the background, an unfinished task polls again and
/// again in place of sleeping: nothing else would carry the exchange on.
#[must_use = "the halo is filled only once the future is over"]
pub struct Exchanging {
    begun: Result<Pending, Error>,
    vigil: Vigil,
    /// The place among those that wait for device fields.
    ticket: Option<Ticket>,
}

/// What a task knows of its own waiting.
#[derive(Default)]
pub(crate) struct Vigil {
    /// When it first found the exchange unfinished.
    since: Option<Duration>,
    /// Its place among those to be woken.
    ticket: Option<Ticket>,
}

/// Since when tasks have waited for the exchange in flight, and when to warn next; host's clock, ns.
#[derive(Default)]
pub(crate) struct Awaited {
    since: AtomicU64,
    warn_at: AtomicU64,
    /// A warning was given.
    told: AtomicBool,
}

impl Exchanging {
    pub(crate) fn new(begun: Result<Pending, Error>) -> Self {
        Self { begun, vigil: Vigil::default(), ticket: None }
    }
}

impl Future for Exchanging {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { begun, vigil, ticket } = self.get_mut();
        match begun {
            Ok(Pending { bound, epoch, scheduled: None }) => bound.poll(*epoch, vigil, context.waker()),
            Ok(Pending { bound, epoch, scheduled: Some(scheduled) }) => {
                if scheduled.host.is_some() {
                    let host = ready!(bound.poll(*epoch, vigil, context.waker()));
                    host.map_err(|error| scheduled.of_host(error))?;
                }
                scheduled.poll(*epoch, ticket, context.waker())
            }
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl Drop for Exchanging {
    fn drop(&mut self) {
        if let Ok(pending) = &self.begun {
            pending.bound.leave(&mut self.vigil);
            pending.scheduled.iter().for_each(|scheduled| scheduled.leave(&mut self.ticket));
        }
    }
}

impl fmt::Debug for Exchanging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exchanging").field(&self.begun).finish()
    }
}

impl IntoFuture for Pending {
    type Output = Result<(), Error>;
    type IntoFuture = Exchanging;

    fn into_future(self) -> Exchanging {
        Exchanging::new(Ok(self))
    }
}

impl Bound {
    /// One poll of a task that waits for exchange `epoch`.
    fn poll(&self, epoch: u64, vigil: &mut Vigil, waker: &Waker) -> Poll<Result<(), Error>> {
        let outcome = self.poll_once(epoch, vigil, waker);
        if outcome.is_ready() {
            self.leave(vigil);
        }
        outcome
    }

    fn poll_once(&self, epoch: u64, vigil: &mut Vigil, waker: &Waker) -> Poll<Result<(), Error>> {
        if let Some(outcome) = self.proven(epoch) {
            return Poll::Ready(outcome);
        }
        let link = self.comm.link();
        link.poll();
        self.advance(epoch);
        if let Some(outcome) = self.proven(epoch) {
            return Poll::Ready(outcome);
        }
        if self.waits_for_messages(epoch) {
            link.check()?;
        }
        let now = link.host().now();
        let since = *vigil.since.get_or_insert(now);
        let is_lively = now.saturating_sub(since) < self.patience.lively(link);
        match vigil.ticket {
            None if is_lively => {}
            None => vigil.ticket = Some(self.enter(epoch, now, waker)),
            Some(ticket) => self.wakers.renew(ticket, waker),
        }
        // Whatever came before the task could be woken.
        self.advance(epoch);
        self.look_after_peers();
        self.keep_deadline(epoch);
        if let Some(outcome) = self.proven(epoch) {
            return Poll::Ready(outcome);
        }
        if is_lively || !link.is_driven() {
            waker.wake_by_ref();
        } else {
            self.demand(epoch);
        }
        Poll::Pending
    }

    /// A task goes to sleep for exchange `epoch`.
    fn enter(&self, epoch: u64, now: Duration, waker: &Waker) -> Ticket {
        let bell = self.comm.link().own_bell();
        if self.wakers.is_empty() {
            self.awaited.begin(now);
        }
        bell.arm();
        let ticket = self.wakers.enter(epoch, waker);
        // The progress thread learns when this object is due.
        bell.demand(self.comm.link().host());
        ticket
    }

    /// A task waits no longer.
    fn leave(&self, vigil: &mut Vigil) {
        if vigil.ticket.take().is_some_and(|ticket| self.wakers.leave(ticket)) {
            self.comm.link().own_bell().disarm();
        }
    }

    /// Exchanges up to `epoch` are over. After [`halocline_comm::Doorbell::changed`]; [`Bound::wake`] comes later.
    #[inline]
    pub(crate) fn to_wake(&self, epoch: u64) {
        if !self.wakers.is_empty() {
            self.over.fetch_max(epoch, Ordering::Release);
        }
    }

    /// Wakes the tasks that wait for exchanges that are over. Under no claim: a task may run where it is woken.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.over.load(Ordering::Relaxed) != 0 {
            self.wake_until(self.over.swap(0, Ordering::Acquire));
        }
    }

    fn wake_until(&self, epoch: u64) {
        while let Some(waker) = self.wakers.take(epoch) {
            self.comm.link().own_bell().disarm();
            wake(&self.comm, waker);
        }
    }
}

/// Wakes a task. An executor that panics here must not take the caller with it.
pub(crate) fn wake(comm: &Communicator, waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::warn!("rank {}: a waker has panicked; its task may sleep on", comm.rank());
    }
}

impl Awaited {
    fn begin(&self, now: Duration) {
        let now = now.as_nanos() as u64;
        self.since.store(now, Ordering::Relaxed);
        self.warn_at.store(now + WARN_AFTER.as_nanos() as u64, Ordering::Relaxed);
        self.told.store(false, Ordering::Relaxed);
    }

    /// When tasks that still wait have waited so long that somebody should know.
    pub(crate) fn due(&self) -> Duration {
        Duration::from_nanos(self.warn_at.load(Ordering::Relaxed))
    }

    /// The warning that is due, if one is: it is given once.
    pub(crate) fn late(&self, comm: &Communicator) -> Option<Late> {
        let now = comm.link().host().now();
        if now < self.due() {
            return None;
        }
        self.warn_at.store((now + WARN_AFTER).as_nanos() as u64, Ordering::Relaxed);
        let after = now.saturating_sub(Duration::from_nanos(self.since.load(Ordering::Relaxed)));
        Some(Late::Warn { after, again: self.told.swap(true, Ordering::Relaxed) })
    }
}
