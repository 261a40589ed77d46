//! The messages of one peer, from its socket and from its ring, in the order in which they were sent.

use super::ring::{Ring, RingError};
use crate::inbox::Tag;
use crate::segment::Segment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Messages that have arrived from one peer. The sender numbers its messages; the next one is at the front of the ring or of the socket.
#[derive(Default)]
pub(super) struct Arrivals {
    ring: OnceLock<Ring>,
    /// Bytes of the ring whose messages were delivered. Changes under the lock.
    read: AtomicU64,
    /// The number of the next message. The thread that holds the lock delivers.
    next: Mutex<u64>,
}

/// Why nothing more can be received from a peer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Disorder {
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("its message {found} came in the place of message {expected}")]
    Sequence { found: u64, expected: u64 },
    #[error("it has sent a second message ring")]
    Twice,
}

impl Arrivals {
    /// Begins to read the peer's ring.
    pub(super) fn attach(&self, memory: Arc<Segment>) -> Result<(), Disorder> {
        self.ring.set(Ring::map(memory)?).map_err(|_| Disorder::Twice)
    }

    /// Whether the ring has messages that are not delivered yet. Two loads: cheap enough for every poll.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.ring.get().is_some_and(|ring| ring.has_more(self.read.load(Ordering::Acquire)))
    }

    /// Delivers the messages of the ring that are due.
    pub(super) fn poll(&self, mut deliver: impl FnMut(Tag, Vec<u8>)) -> Result<(), Disorder> {
        self.drain(&mut super::lock(&self.next), &mut deliver)
    }

    /// A message has come from the socket: delivers those of the ring that were sent before it, the message by `own`, and those
    /// after it.
    pub(super) fn arrived(
        &self,
        sequence: u64,
        own: impl FnOnce(),
        mut deliver: impl FnMut(Tag, Vec<u8>),
    ) -> Result<(), Disorder> {
        let mut next = super::lock(&self.next);
        self.drain(&mut next, &mut deliver)?;
        if sequence != *next {
            return Err(Disorder::Sequence { found: sequence, expected: *next });
        }
        *next += 1;
        own();
        self.drain(&mut next, &mut deliver)
    }

    fn drain(
        &self,
        next: &mut MutexGuard<'_, u64>,
        deliver: &mut impl FnMut(Tag, Vec<u8>),
    ) -> Result<(), Disorder> {
        let Some(ring) = self.ring.get() else { return Ok(()) };
        let mut read = self.read.load(Ordering::Relaxed);
        // A message that the sender has sent after one that is still in the socket stays.
        while let Some(record) = ring.front(read)?.filter(|record| record.sequence == **next) {
            let payload = ring.take(&mut read, &record);
            **next += 1;
            deliver(record.tag(), payload);
            // Last: a thread to which `has_more` says no finds the message in the inbox.
            self.read.store(read, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_the_order_of_sending_whichever_way_they_took() {
        let (sender, arrivals) = (Ring::create().unwrap(), Arrivals::default());
        let (mut written, mut came) = (0, Vec::new());
        let tag = |operation| Tag { operation, round: 0 };
        let mut push = |number| assert!(sender.push(&mut written, number, tag(number), &[]));
        let poll = |came: &mut Vec<u64>| arrivals.poll(|tag, _| came.push(tag.operation));
        assert!(!sender.is_mapped());
        arrivals.attach(Arc::clone(sender.memory())).unwrap();
        assert!(sender.is_mapped() && !arrivals.has_more());
        // Numbers 1 and 4 take the socket.
        [0, 2, 3, 5].into_iter().for_each(&mut push);
        assert!(arrivals.has_more());
        poll(&mut came).unwrap();
        assert_eq!(came, [0]);
        for number in [1, 4] {
            let came = std::cell::RefCell::new(&mut came);
            let own = || came.borrow_mut().push(number);
            arrivals.arrived(number, own, |tag, _| came.borrow_mut().push(tag.operation)).unwrap();
        }
        assert_eq!(came, [0, 1, 2, 3, 4, 5]);
        assert!(!arrivals.has_more());
        let found = arrivals.arrived(8, || {}, |_, _| {});
        assert_eq!(found, Err(Disorder::Sequence { found: 8, expected: 6 }));
        assert_eq!(arrivals.attach(Arc::clone(sender.memory())), Err(Disorder::Twice));
    }

    #[test]
    fn a_message_that_is_being_delivered_still_counts_as_there() {
        let (sender, arrivals) = (Ring::create().unwrap(), Arrivals::default());
        arrivals.attach(Arc::clone(sender.memory())).unwrap();
        assert!(sender.push(&mut 0, 0, Tag { operation: 0, round: 0 }, &[]));
        let mut delivered = 0;
        let polled = arrivals.poll(|_, _| {
            delivered += 1;
            // Another thread that looks now must wait for this delivery, not conclude that nothing comes any more.
            assert!(arrivals.has_more());
        });
        polled.unwrap();
        assert_eq!((delivered, arrivals.has_more()), (1, false));
    }
}
