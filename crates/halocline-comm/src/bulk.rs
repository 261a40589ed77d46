//! Bytes that follow a message once the receiver has posted a buffer for them (a rendezvous): both buffers may be memory of
//! devices.

use crate::borrowed::Borrowed;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The bytes that a message has announced, which wait at the sender. Dropping it without a buffer discards them.
pub struct Bulk {
    from: usize,
    number: u32,
    len: usize,
    queue: Option<Arc<BulkQueue>>,
}

impl fmt::Debug for Bulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bulk({} bytes of rank {})", self.len, self.from)
    }
}

impl Bulk {
    pub(crate) fn new((from, number): (usize, u32), len: usize, queue: &Arc<BulkQueue>) -> Self {
        Self { from, number, len, queue: Some(Arc::clone(queue)) }
    }

    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Posts a buffer to receive them into. The buffer is dropped once they are there. Never blocks.
    ///
    /// # Errors
    /// The buffer, if it has another number of bytes.
    pub fn post_receive(mut self, buffer: Borrowed) -> Result<(), Borrowed> {
        if buffer.len() != self.len {
            return Err(buffer);
        }
        self.receive(Some(buffer));
        Ok(())
    }

    fn receive(&mut self, place: Option<Borrowed>) {
        if let Some(queue) = self.queue.take() {
            let Self { from, number, len, .. } = *self;
            queue.lock().push_back(BulkReceive { from, number, len, place });
        }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.receive(None);
    }
}

/// Bytes to be received into a buffer, or discarded.
#[derive(Debug)]
pub(crate) struct BulkReceive {
    pub(crate) from: usize,
    pub(crate) number: u32,
    pub(crate) len: usize,
    pub(crate) place: Option<Borrowed>,
}

/// Receives that a thread which may call the transport's library has to start.
#[derive(Debug, Default)]
pub(crate) struct BulkQueue(Mutex<VecDeque<BulkReceive>>);

impl BulkQueue {
    pub(crate) fn next(&self) -> Option<BulkReceive> {
        self.lock().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<BulkReceive>> {
        // The queue is whole whenever the lock is released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a device current for the calls of a library that acts on the thread's current device.
pub trait Surround: Send + Sync {
    /// Does `work`, once, with the device current.
    fn within(&self, work: &mut dyn FnMut());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Tag;
    use crate::{CommError, Communicator, Endpoint};
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Up to 8 bytes.
    fn borrowed(len: usize, out: &Arc<AtomicUsize>) -> Borrowed {
        let owner: Arc<[u64; 4]> = Arc::new([0; 4]);
        let first = NonNull::new(owner.as_ptr().cast_mut().cast()).unwrap();
        // SAFETY: `owner` keeps the bytes, which nothing else uses, with space behind them.
        unsafe { Borrowed::new(first, len, out, owner) }
    }

    #[test]
    fn a_transport_that_takes_no_bulks_says_why() {
        let (comm, tag) = (Communicator::single(), Tag { operation: 1, round: 0 });
        let error = comm.link().post_bulk(0, tag, Vec::new(), borrowed(8, &Arc::default())).err();
        let reason = "messages of thread lie in memory of the host";
        let is_named =
            |error: &CommError| matches!(error, CommError::OutOfReach { rank: 0, why } if why == reason);
        assert!(error.as_ref().is_some_and(is_named), "{error:?}");
    }

    #[test]
    fn every_announced_bulk_is_received_or_discarded() {
        let (queue, out) = (Arc::<BulkQueue>::default(), Arc::<AtomicUsize>::default());
        let place = |len| borrowed(len, &out);
        let bulk = |number| Bulk::new((3, number), 8, &queue);
        drop(bulk(1));
        drop(bulk(2).post_receive(place(7)).unwrap_err());
        bulk(4).post_receive(place(8)).unwrap();
        let asked: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        let seen: Vec<_> =
            asked.iter().map(|one| (one.from, one.number, one.len, one.place.is_some())).collect();
        assert_eq!(seen, [(3, 1, 8, false), (3, 2, 8, false), (3, 4, 8, true)]);
        assert_eq!(out.load(Ordering::Acquire), 1);
        assert!(queue.is_empty());
    }
}
