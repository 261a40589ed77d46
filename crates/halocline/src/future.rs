//! An exchange as a future, for any executor: this module runs none.
//!
//! A poll does what can be done at once. A task that finds its host fields unfinished yields to other tasks for as long as a
//! blocking wait would spin. Then it waits to be woken ([`crate::lifecycle`]) and arms the progress thread, which carries the
//! exchange on between polls and keeps its deadline.

use crate::error::Error;
use crate::exchange::Pending;
use crate::lifecycle::Engine;
use crate::stream::Scheduled;
use halocline_comm::{Endpoint, Serve, Ticket};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// One exchange in flight, as a future: made from [`crate::HaloExchange::begin`] or a [`Pending`] by `.await` or `into_future`.
///
/// Its outcome is that of [`Pending::wait`]. Any thread may poll it, it may move between executors, and a poll
/// after its end returns the outcome again. A poll never blocks. Several futures may wait for the same exchange.
///
/// Dropping it cancels the waiting, not the exchange: that goes on as if its [`Pending`] had been dropped, and
/// [`crate::HaloExchange::pending`] gives that back.
///
/// No device wakes a task: for fields in device memory the progress thread looks, every 20 us at first, every
/// millisecond in the end.
///
/// Over MPI that only one thread may call, a poll by another thread returns an error that says so; the
/// exchange goes on. There, and where MPI allows no background thread, an unfinished task polls again and
/// again instead of sleeping: nothing else would carry the exchange on.
///
/// ```
/// use halocline::{Array, Communicator, Decomposed, Exchanging, HaloExchange, RegularGrid};
///
/// let comm = Communicator::single();
/// let pattern = RegularGrid::new([3]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
/// let t = Array::<f64>::zeros(&comm, &[5])?;
/// t.write()?.copy_from_slice(&[0.0, 1.0, 2.0, 3.0, 0.0]);
/// let halo = HaloExchange::bind(&comm, [(&pattern, &t)])?;
/// let exchanging: Exchanging = halo.begin().into_future();
/// smol::block_on(exchanging)?;
/// assert_eq!(t.read()?[..], [3.0, 1.0, 2.0, 3.0, 1.0]);
/// # Ok::<(), halocline::Error>(())
/// ```
#[must_use = "the halo is filled only once the future is over"]
pub struct Exchanging {
    begun: Result<Pending, Error>,
    waiting: Waiting,
    /// For [`Pending::host`].
    waiting_for_host: Waiting,
}

/// What a task knows of its own waiting.
#[derive(Default)]
struct Waiting {
    /// When it first found the exchange unfinished.
    since: Option<Duration>,
    /// Its place among the tasks to be woken.
    ticket: Option<Ticket>,
}

impl Exchanging {
    pub(crate) fn new(begun: Result<Pending, Error>) -> Self {
        // No host waits for a captured exchange.
        let begun = begun.and_then(|pending| pending.check_begun().map(|()| pending));
        Self { begun, waiting: Waiting::default(), waiting_for_host: Waiting::default() }
    }
}

impl Future for Exchanging {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { begun, waiting, waiting_for_host } = self.get_mut();
        let pending = match begun {
            Ok(pending) => pending,
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        if let Some(host) = &pending.host {
            ready!(host.poll_to_end(waiting_for_host, context.waker()))?;
        }
        pending.poll_to_end(waiting, context.waker())
    }
}

impl Drop for Exchanging {
    fn drop(&mut self) {
        if let Ok(pending) = &self.begun {
            pending.bound.life.leave(&mut self.waiting.ticket);
            if let Some(host) = &pending.host {
                host.bound.life.leave(&mut self.waiting_for_host.ticket);
            }
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

impl Pending {
    /// The outcome of both engines' parts. A part that has failed decides at once.
    fn outcome(&self) -> Option<Result<(), Error>> {
        let host = self.bound.final_outcome(self.epoch);
        match (&self.scheduled, host) {
            (Some(scheduled), Some(Ok(()))) => scheduled.final_outcome(self.epoch),
            (_, host) => host,
        }
    }

    /// Does for both parts what can be done at once.
    fn advance(&self) {
        self.bound.advance(self.epoch);
        if let Some(scheduled) = &self.scheduled {
            scheduled.serve();
        }
    }

    /// As [`Pending::poll`]. At the end the task is woken no more.
    fn poll_to_end(&self, waiting: &mut Waiting, waker: &Waker) -> Poll<Result<(), Error>> {
        let outcome = self.poll(waiting, waker);
        if outcome.is_ready() {
            self.bound.life.leave(&mut waiting.ticket);
        }
        outcome
    }

    fn poll(&self, waiting: &mut Waiting, waker: &Waker) -> Poll<Result<(), Error>> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        let (bound, epoch) = (&self.bound, self.epoch);
        let link = bound.life.comm.link();
        link.poll();
        self.advance();
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        if bound.waits_for_messages(epoch) && link.ended().is_none() {
            link.check()?;
        }
        let now = link.host().now();
        let since = *waiting.since.get_or_insert(now);
        let is_lively = bound.outcome(epoch).is_none()
            && waiting.ticket.is_none()
            && now.saturating_sub(since) < bound.life.patience.poll_time(link);
        if !is_lively {
            bound.life.enter(epoch, &mut waiting.ticket, waker);
        }
        // The exchange may be over since before the task could be woken.
        self.advance();
        bound.look_for_departed_peers();
        bound.keep_time(epoch, false);
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        // In checked mode a last look at its cells may follow an exchange that is over. Nothing wakes the task for that.
        let is_over =
            |scheduled: &Arc<Scheduled>| scheduled.checks.is_some() && scheduled.outcome(epoch).is_some();
        let is_looked_at = bound.outcome(epoch).is_some() && self.scheduled.as_ref().is_some_and(is_over);
        if is_lively || is_looked_at || !link.is_driven() {
            waker.wake_by_ref();
        } else {
            bound.demand(epoch);
        }
        Poll::Pending
    }
}
