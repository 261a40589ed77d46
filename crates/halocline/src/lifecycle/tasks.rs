//! Tasks that wait for an exchange, and who wakes them: the thread that completes the exchange, or the progress thread.

use super::Lifecycle;
use halocline_comm::{Endpoint, Ticket, Wakers};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Tasks {
    wakers: Wakers,
    /// When the last task began to wait: nanoseconds of the host's clock.
    last_came: AtomicU64,
}

impl Lifecycle {
    /// Whether any task waits.
    #[inline]
    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.wakers.is_empty()
    }

    /// When the last task began to wait.
    pub(crate) fn last_task_came(&self) -> Duration {
        Duration::from_nanos(self.tasks.last_came.load(Ordering::Relaxed))
    }

    /// A task waits for exchange `epoch`: under its `ticket`, or a new one. The caller looks once more afterwards, for an exchange
    /// that was over before.
    pub(crate) fn enter(&self, epoch: u64, ticket: &mut Option<Ticket>, waker: &Waker) {
        if let Some(ticket) = *ticket {
            return self.tasks.wakers.renew(ticket, waker);
        }
        let (bell, host) = (self.comm.link().own_bell(), self.comm.link().host());
        self.tasks.last_came.store(host.now().as_nanos() as u64, Ordering::Relaxed);
        bell.arm();
        *ticket = Some(self.tasks.wakers.enter(epoch, waker));
        // The progress thread asks the engines again when they are due.
        bell.demand(host);
    }

    /// A task waits no longer.
    pub(crate) fn leave(&self, ticket: &mut Option<Ticket>) {
        if ticket.take().is_some_and(|ticket| self.tasks.wakers.leave(ticket)) {
            self.comm.link().own_bell().disarm();
        }
    }

    /// Wakes the tasks whose exchanges are over or have failed. Not under a claim: a task may run where it is woken. A thread that
    /// completes an exchange calls this after [`halocline_comm::Doorbell::changed`].
    #[inline]
    pub(crate) fn wake(&self) {
        if self.has_tasks() {
            self.wake_finished();
        }
    }

    #[cold]
    fn wake_finished(&self) {
        let over = if self.failure().is_some() {
            u64::MAX
        } else {
            self.host.completed.last().min(self.device.completed.last())
        };
        while let Some(waker) = self.tasks.wakers.take(over) {
            self.comm.link().own_bell().disarm();
            // An executor that panics here must not take the caller with it.
            if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                tracing::warn!("rank {}: a waker panicked; its task may never run again", self.comm.rank());
            }
        }
    }
}
