//! Bytes in use of a resource, its limit, and those that wait for memory.

use super::{Buffer, MemoryError, MemoryKind, MemoryStatistics};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Counts the bytes that a memory resource of the program has in use, for its [`MemoryResource::statistics`].
///
/// ```
/// use halocline_comm::memory_resource::{Buffer, MemoryAccount, MemoryError, MemoryKind};
///
/// let account = MemoryAccount::new(MemoryKind::Host);
/// let buffer = account.count(100, || Ok(Buffer::from(vec![0; 100])))?;
/// assert_eq!((buffer.len(), account.statistics().in_use), (100, 100));
/// drop(buffer);
/// assert_eq!((account.statistics().in_use, account.statistics().peak), (0, 100));
/// # Ok::<(), MemoryError>(())
/// ```
///
/// [`MemoryResource::statistics`]: super::MemoryResource::statistics
// Nothing is called while its lock is held.
#[derive(Debug)]
pub struct MemoryAccount {
    kind: MemoryKind,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    peak: usize,
    allocations: u64,
    spilled: u64,
    /// Requests that the limit refused.
    refusals: u64,
    waiting: Vec<Waker>,
}

/// Bytes of one buffer, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    account: Arc<MemoryAccount>,
    bytes: usize,
    /// Until a buffer has the bytes: the refusals before.
    reserved_at: Option<u64>,
}

impl MemoryAccount {
    /// An account of a resource of that kind of memory.
    pub fn new(kind: MemoryKind) -> Arc<Self> {
        Self::with_limit(kind, usize::MAX)
    }

    /// Counts the `bytes` bytes of the buffer that `allocate` returns until that buffer is dropped.
    pub fn count(
        self: &Arc<Self>,
        bytes: usize,
        allocate: impl FnOnce() -> Result<Buffer, MemoryError>,
    ) -> Result<Buffer, MemoryError> {
        let charge = self.charge(bytes)?;
        Ok(allocate()?.charged(charge))
    }

    pub(super) fn with_limit(kind: MemoryKind, limit: usize) -> Arc<Self> {
        Arc::new(Self { kind, limit, state: Mutex::default() })
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic can happen while it is held: the counts are always consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves so many bytes for a buffer, unless the limit is reached.
    pub(super) fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, MemoryError> {
        let mut state = self.lock();
        let total = state.in_use.checked_add(bytes).filter(|total| *total <= self.limit);
        let Some(total) = total else {
            state.refusals += 1;
            let (kind, in_use, limit) = (self.kind, state.in_use, self.limit);
            return Err(MemoryError::Shortage { kind, asked: bytes, in_use, limit });
        };
        state.in_use = total;
        Ok(Charge { account: Arc::clone(self), bytes, reserved_at: Some(state.refusals) })
    }

    pub(super) fn add_spilled(&self, bytes: usize) {
        self.lock().spilled += bytes as u64;
    }

    /// Wakes `waker` once bytes are given back, as [`MemoryResource::watch`](super::MemoryResource::watch) has to.
    pub fn watch(&self, waker: &Waker) {
        let waker = waker.clone();
        let mut state = self.lock();
        if !state.waiting.iter().any(|known| known.will_wake(&waker)) {
            state.waiting.push(waker);
        }
    }

    /// What it has counted.
    pub fn statistics(&self) -> MemoryStatistics {
        let State { in_use, peak, allocations, spilled, .. } = *self.lock();
        MemoryStatistics { kind: self.kind, in_use, peak, allocations, spilled }
    }
}

impl Charge {
    /// A buffer has the bytes.
    pub(super) fn count(&mut self) {
        self.reserved_at = None;
        let mut state = self.account.lock();
        state.peak = state.peak.max(state.in_use);
        state.allocations += 1;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.account.lock();
            state.in_use -= self.bytes;
            // Without a buffer, the bytes were missing for requests that came meanwhile only. Others would try in vain again, also
            // the one that could not make this buffer.
            if self.reserved_at == Some(state.refusals) {
                return;
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
