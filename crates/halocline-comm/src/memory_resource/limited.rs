//! A limit on another resource, and where to spill.

use super::account::MemoryAccount;
use super::{Buffer, MemoryError, MemoryKind, MemoryResource, MemoryStatistics};
use halocline_device::Device;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A memory resource with a limit. Clones share the limit.
///
/// On shortage a receiver waits for [`Limited::with_patience`], one second by default, until buffers are returned. It does not wait
/// if the limit can never hold the bytes. Then it spills if [`Limited::spilling`] named a resource.
/// Then it fails with [`MemoryError::Shortage`].
///
/// ```
/// use halocline_comm::memory_resource::{HostMemory, Limited, MemoryError, MemoryResource};
/// use halocline_comm::Communicator;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let host = Arc::new(HostMemory::of(&Communicator::single()));
/// // Receivers wait 100 ms for memory below the limit, then take memory beyond it.
/// let limited =
///     Limited::new(host.clone(), 1000).with_patience(Duration::from_millis(100)).spilling(host);
/// let held = limited.allocate(800)?;
/// assert!(limited.allocate(300).is_err_and(|error| error.is_shortage()));
/// let spilled = limited.spill(300).expect("a resource to spill to")?;
/// assert_eq!((limited.statistics().in_use, limited.statistics().spilled), (800, 300));
/// # Ok::<(), MemoryError>(())
/// ```
#[derive(Clone)]
pub struct Limited {
    inner: Arc<dyn MemoryResource>,
    account: Arc<MemoryAccount>,
    patience: Duration,
    spill: Option<Arc<dyn MemoryResource>>,
}

impl Limited {
    /// At most `bytes` bytes of `inner` at once.
    pub fn new(inner: Arc<dyn MemoryResource>, bytes: usize) -> Self {
        let account = MemoryAccount::with_limit(inner.kind(), bytes);
        Self { inner, account, patience: Duration::from_secs(1), spill: None }
    }

    /// The same with another time to wait on shortage.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same with a resource, usually of the host, for what the limit does not hold.
    pub fn spilling(self, to: Arc<dyn MemoryResource>) -> Self {
        Self { spill: Some(to), ..self }
    }
}

impl MemoryResource for Limited {
    fn kind(&self) -> MemoryKind {
        self.inner.kind()
    }

    fn device(&self) -> Option<&Device> {
        self.inner.device()
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, MemoryError> {
        self.account.count(bytes, || self.inner.allocate(bytes))
    }

    fn adopt(&self, message: Vec<u8>) -> Result<Buffer, Vec<u8>> {
        match self.account.charge(message.len()) {
            Ok(charge) => Ok(self.inner.adopt(message)?.charged(charge)),
            Err(_) => Err(message),
        }
    }

    fn spill(&self, bytes: usize) -> Option<Result<Buffer, MemoryError>> {
        let spilled = self.spill.as_ref()?.allocate(bytes);
        if spilled.is_ok() {
            self.account.add_spilled(bytes);
        }
        Some(spilled)
    }

    fn patience(&self, bytes: usize) -> Duration {
        if bytes <= self.account.limit() { self.patience } else { Duration::ZERO }
    }

    fn watch(&self, waker: &Waker) {
        self.account.watch(waker);
        // The shortage may be its own.
        self.inner.watch(waker);
    }

    fn trim(&self) {
        self.inner.trim();
        if let Some(spill) = &self.spill {
            spill.trim();
        }
    }

    fn statistics(&self) -> MemoryStatistics {
        self.account.statistics()
    }
}
