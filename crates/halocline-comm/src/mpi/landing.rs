//! Where awaited messages shall lie: MPI writes them there, and nobody copies them.
//!
//! MPI says of a message only who sent it and how long it is; which one it is stands at its end. So one that is as long as
//! an awaited one of the same sender is received in that one's place. If it turns out to be another, it is copied away, and
//! the place waits on.

use super::frame::{self, TRAILER};
use crate::inbox::Tag;
use crate::lent::Lent;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The place of one awaited message.
#[derive(Debug)]
pub(super) struct Landing {
    from: usize,
    tag: Tag,
    place: Lent,
}

/// Those that wait, in the order in which they were given.
#[derive(Debug, Default)]
pub(super) struct Landings(Mutex<Vec<Landing>>);

impl Landings {
    /// A message of `tag` from a rank, as long as the place, is to lie there.
    pub(super) fn add(&self, from: usize, tag: Tag, place: Lent) {
        self.lock().push(Landing { from, tag, place });
    }

    /// Gives back the places that wait for messages such as these, but for one that MPI writes to.
    pub(super) fn remove(&self, which: impl Fn(Tag) -> bool) {
        let taken: Vec<Landing> = self.lock().extract_if(.., |landing| which(landing.tag)).collect();
        // What owns the memory may go with it, not under the lock.
        drop(taken);
    }

    /// The place for a message of so many bytes, its trailer among them.
    pub(super) fn take(&self, from: usize, bytes: usize) -> Option<Landing> {
        let mut waiting = self.lock();
        let fits = |landing: &Landing| landing.from == from && landing.place.len() + TRAILER == bytes;
        waiting.iter().position(fits).map(|at| waiting.remove(at))
    }

    /// It waits on, before all others.
    fn put_back(&self, landing: Landing) {
        self.lock().insert(0, landing);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Landing>> {
        // The list is whole whenever it is let go.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Landing {
    /// Where MPI writes to: as many bytes as the place has, and a trailer.
    pub(super) fn first(&self) -> *mut u8 {
        self.place.first().as_ptr()
    }

    /// What lies here now: the message that was awaited, or another one, with its trailer.
    pub(super) fn settle(self, landings: &Landings) -> Result<Tag, Vec<u8>> {
        let (payload, trailer) = self.place.parts();
        if frame::read(trailer) == (self.tag, payload.len() as u64) {
            return Ok(self.tag);
        }
        let mut bytes = crate::buffers::take(payload.len() + TRAILER);
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(trailer);
        landings.put_back(self);
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

    /// A place of its own memory, filled as MPI would.
    fn place(out: &Arc<AtomicUsize>) -> Lent {
        let owner: Arc<[u64; 4]> = Arc::new([0; 4]);
        let first = NonNull::new(owner.as_ptr().cast_mut().cast()).unwrap();
        // SAFETY: `owner` keeps the bytes, nobody else uses them, and there is room for a trailer behind them.
        unsafe { Lent::new(first, LEN, out, owner) }
    }

    fn write(landing: &Landing, tag: Tag, payload: [u8; LEN]) {
        let message = [&payload[..], &frame::trailer(tag, LEN)].concat();
        // SAFETY: the place has `LEN` bytes and room for a trailer behind them, as long as the message, and nobody else
        // uses them.
        unsafe { landing.first().copy_from_nonoverlapping(message.as_ptr(), message.len()) };
    }

    #[test]
    fn a_message_that_is_not_awaited_is_copied_away() {
        let (out, landings) = (Arc::default(), Landings::default());
        let tag = |round| Tag { operation: 7, round };
        landings.add(1, tag(5), place(&out));
        landings.add(1, tag(6), place(&out));
        assert!(landings.take(0, LEN + TRAILER).is_none() && landings.take(1, LEN).is_none());
        let landing = landings.take(1, LEN + TRAILER).unwrap();
        write(&landing, tag(4), *b"another!");
        let bytes = landing.settle(&landings).unwrap_err();
        assert_eq!((&bytes[..LEN], bytes.len()), (&b"another!"[..], LEN + TRAILER));
        let landing = landings.take(1, LEN + TRAILER).unwrap();
        write(&landing, tag(5), *b"awaited!");
        assert_eq!(landing.settle(&landings).unwrap(), tag(5));
        assert_eq!(out.load(Ordering::Acquire), 1);
        landings.remove(|other| other == tag(6));
        assert!(out.load(Ordering::Acquire) == 0 && landings.take(1, LEN + TRAILER).is_none());
    }
}
