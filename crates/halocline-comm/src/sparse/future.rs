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
///
/// ```
/// use halocline_comm::memory_resource::HostMemory;
/// use halocline_comm::sparse::{SparseAlltoall, SparseError};
/// use halocline_comm::Communicator;
/// use std::future::Future;
/// use std::pin::pin;
/// use std::sync::Arc;
/// use std::task::{Context, Poll, Waker};
///
/// let comm = Communicator::single();
/// let exchange = SparseAlltoall::new(&comm, &[], &[], Arc::new(HostMemory::of(&comm)))?;
/// exchange.finish();
/// exchange.wait()?;
/// // A task writes `exchange.completion().await?` instead. A rank without peers is complete at once.
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(matches!(pin!(exchange.completion()).poll(&mut context), Poll::Ready(Ok(()))));
/// # Ok::<(), SparseError>(())
/// ```
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
