//! Completion as a future.

use super::SparseError;
use super::shared::Shared;
use crate::wakers::Ticket;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Resolves once the operation is complete or has failed, also by the communicator's deadline. It never blocks the executor, and holds no lock while it is
/// suspended. Dropping it leaves the operation as it is.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Completion {
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
}

impl Completion {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, ticket: None }
    }

    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.wakers.leave(ticket);
        }
    }
}

impl Future for Completion {
    type Output = Result<(), SparseError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.shared.is_complete();
        if let Ok(false) = outcome {
            match self.ticket {
                Some(ticket) => self.shared.wakers.renew(ticket, context.waker()),
                None => {
                    self.ticket = Some(self.shared.wakers.enter(1, context.waker()));
                    self.shared.note_task();
                }
            }
            // It may have completed just before.
            outcome = self.shared.is_complete();
        }
        match outcome {
            Ok(false) => Poll::Pending,
            done => {
                self.leave();
                Poll::Ready(done.map(drop))
            }
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.leave();
    }
}
