//! Completion as a future.

use super::SparseError;
use super::shared::Shared;
use crate::completion::Awaiting;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Resolves once the operation is complete or has failed, also by the communicator's deadline. It never blocks the executor, and
/// holds no lock while it is suspended. Dropping it leaves the operation as it is.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Completion {
    shared: Arc<Shared>,
    awaiting: Awaiting,
}

impl Completion {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, awaiting: Awaiting::default() }
    }
}

impl Future for Completion {
    type Output = Result<(), SparseError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, awaiting } = self.get_mut();
        shared.drive();
        let is_new = !awaiting.is_entered();
        let polled = shared.completion.poll(awaiting, context.waker());
        if is_new && polled.is_pending() {
            shared.note_task();
        }
        polled
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.shared.completion.leave(&mut self.awaiting);
    }
}
