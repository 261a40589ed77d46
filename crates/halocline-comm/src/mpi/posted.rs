//! Posted receive buffers: MPI writes messages directly into them, without a copy.
//!
//! MPI reports only sender and length of a message; its tag is in the trailer. A message as long as
//! a posted one of the same sender is received into that buffer. If the trailer has another tag, the message is copied out, and
//! the buffer stays posted.

use super::frame::{self, TRAILER};
use crate::borrowed::Borrowed;
use crate::inbox::Tag;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The buffer of one expected message.
#[derive(Debug)]
pub(super) struct PostedReceive {
    from: usize,
    tag: Tag,
    place: Borrowed,
}

/// Posted receives.
#[derive(Debug, Default)]
pub(super) struct PostedReceives(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In the order of posting.
    waiting: Vec<PostedReceive>,
    /// Senders and tags of those that MPI is writing to, unless they were cancelled meanwhile.
    taken: Vec<(usize, Tag)>,
}

impl State {
    /// MPI writes to it no more: whether it was not cancelled meanwhile.
    fn untake(&mut self, from: usize, tag: Tag) -> bool {
        let at = self.taken.iter().position(|other| *other == (from, tag));
        at.map(|at| self.taken.swap_remove(at)).is_some()
    }
}

impl PostedReceives {
    /// Posts a buffer for a message of `tag` from a rank, as long as the buffer.
    pub(super) fn add(&self, from: usize, tag: Tag, place: Borrowed) {
        self.lock().waiting.push(PostedReceive { from, tag, place });
    }

    /// Cancels the receives of these tags from a rank, or from all. One that MPI is writing to is not posted again, if the message
    /// has another tag.
    pub(super) fn remove(&self, from: Option<usize>, which: impl Fn(Tag) -> bool) {
        let is_meant = |sender: usize, tag: Tag| from.is_none_or(|from| from == sender) && which(tag);
        let cancelled: Vec<PostedReceive> = {
            let mut state = self.lock();
            state.taken.retain(|(from, tag)| !is_meant(*from, *tag));
            state.waiting.extract_if(.., |receive| is_meant(receive.from, receive.tag)).collect()
        };
        // Outside the lock: this may drop the owner of the memory.
        drop(cancelled);
    }

    /// Takes a buffer for a message of so many bytes, trailer included.
    pub(super) fn take(&self, from: usize, bytes: usize) -> Option<PostedReceive> {
        let mut state = self.lock();
        let fits = |receive: &PostedReceive| receive.from == from && receive.place.len() + TRAILER == bytes;
        let receive = state.waiting.iter().position(fits).map(|at| state.waiting.remove(at))?;
        state.taken.push((receive.from, receive.tag));
        Some(receive)
    }

    /// Posts it again, before all others, unless it was cancelled meanwhile.
    fn put_back(&self, receive: PostedReceive) {
        let mut state = self.lock();
        if state.untake(receive.from, receive.tag) {
            state.waiting.insert(0, receive);
        } else {
            // The receive is dropped after the lock: its owner may be dropped with it.
            drop(state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The list is whole whenever the lock is released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PostedReceive {
    /// The address that MPI writes to: the buffer, then a trailer.
    pub(super) fn first(&self) -> *mut u8 {
        self.place.first().as_ptr()
    }

    /// The received message: the expected one, or the bytes of another one, trailer included.
    pub(super) fn complete(self, posted: &PostedReceives) -> Result<Tag, Vec<u8>> {
        let (payload, trailer) = self.place.parts();
        if frame::read(trailer) == (self.tag, payload.len() as u64) {
            posted.lock().untake(self.from, self.tag);
            return Ok(self.tag);
        }
        let mut bytes = crate::buffers::take(payload.len() + TRAILER);
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(trailer);
        posted.put_back(self);
        Err(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LEN: usize = 8;

    /// A buffer of its own memory.
    fn place(out: &Arc<AtomicUsize>) -> Borrowed {
        let owner: Arc<[u64; 4]> = Arc::new([0; 4]);
        let first = NonNull::new(owner.as_ptr().cast_mut().cast()).unwrap();
        // SAFETY: `owner` keeps the bytes, nothing else uses them, and a trailer fits behind them.
        unsafe { Borrowed::new(first, LEN, out, owner) }
    }

    fn write(receive: &PostedReceive, tag: Tag, payload: [u8; LEN]) {
        let message = [&payload[..], &frame::trailer(tag, LEN)].concat();
        // SAFETY: the buffer has `LEN` bytes and a trailer behind them, as long as the message, and nothing else
        // uses them.
        unsafe { receive.first().copy_from_nonoverlapping(message.as_ptr(), message.len()) };
    }

    #[test]
    fn a_message_with_another_tag_is_copied_out() {
        let (out, posted) = (Arc::default(), PostedReceives::default());
        let tag = |round| Tag { operation: 7, round };
        posted.add(1, tag(5), place(&out));
        posted.add(1, tag(6), place(&out));
        assert!(posted.take(0, LEN + TRAILER).is_none() && posted.take(1, LEN).is_none());
        let receive = posted.take(1, LEN + TRAILER).unwrap();
        write(&receive, tag(4), *b"another!");
        let bytes = receive.complete(&posted).unwrap_err();
        assert_eq!((&bytes[..LEN], bytes.len()), (&b"another!"[..], LEN + TRAILER));
        let receive = posted.take(1, LEN + TRAILER).unwrap();
        write(&receive, tag(5), *b"expected");
        assert_eq!(receive.complete(&posted).unwrap(), tag(5));
        assert_eq!(out.load(Ordering::Acquire), 1);
        // Cancelled while MPI writes another message there.
        let receive = posted.take(1, LEN + TRAILER).unwrap();
        write(&receive, tag(4), *b"another!");
        posted.remove(Some(1), |other| other == tag(6));
        assert_eq!(out.load(Ordering::Acquire), 1);
        receive.complete(&posted).unwrap_err();
        assert!(out.load(Ordering::Acquire) == 0 && posted.take(1, LEN + TRAILER).is_none());
    }

    #[test]
    fn a_receive_is_cancelled_for_its_sender_alone() {
        let (out, posted) = (Arc::default(), PostedReceives::default());
        let tag = Tag { operation: 7, round: 5 };
        [1, 2, 3].into_iter().for_each(|from| posted.add(from, tag, place(&out)));
        let writing = posted.take(3, LEN + TRAILER).unwrap();
        posted.remove(Some(1), |other| other == tag);
        assert_eq!(out.load(Ordering::Acquire), 2);
        // The one that MPI was writing to stays posted.
        write(&writing, Tag { operation: 7, round: 4 }, *b"another!");
        writing.complete(&posted).unwrap_err();
        assert!(posted.take(1, LEN + TRAILER).is_none());
        assert!(posted.take(2, LEN + TRAILER).is_some() && posted.take(3, LEN + TRAILER).is_some());
    }
}
