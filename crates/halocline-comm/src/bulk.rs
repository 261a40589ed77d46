//! Bytes that follow a message only once the receiver has said where they shall lie: whoever carries them can be handed memory
//! that the host does not reach.

use crate::lent::Lent;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The bytes that a message has announced, which wait at the sender. Dropped without a place they are thrown away.
pub struct Bulk {
    from: usize,
    number: u32,
    len: usize,
    desk: Option<Arc<Desk>>,
}

impl fmt::Debug for Bulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bulk({} bytes of rank {})", self.len, self.from)
    }
}

impl Bulk {
    pub(crate) fn new((from, number): (usize, u32), len: usize, desk: &Arc<Desk>) -> Self {
        Self { from, number, len, desk: Some(Arc::clone(desk)) }
    }

    /// How many they are.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// They shall lie in this place, of as many bytes, which is dropped once they do. Never waits.
    ///
    /// # Errors
    /// The place, if it has another number of bytes.
    pub fn land(mut self, place: Lent) -> Result<(), Lent> {
        if place.len() != self.len {
            return Err(place);
        }
        self.ask(Some(place));
        Ok(())
    }

    fn ask(&mut self, place: Option<Lent>) {
        if let Some(desk) = self.desk.take() {
            let Self { from, number, len, .. } = *self;
            desk.lock().push_back(Asked { from, number, len, place });
        }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.ask(None);
    }
}

/// Bytes to be received, into a place or nowhere.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) from: usize,
    pub(crate) number: u32,
    pub(crate) len: usize,
    pub(crate) place: Option<Lent>,
}

/// What was asked for, until somebody who may calls the transport's library.
#[derive(Debug, Default)]
pub(crate) struct Desk(Mutex<VecDeque<Asked>>);

impl Desk {
    pub(crate) fn next(&self) -> Option<Asked> {
        self.lock().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Asked>> {
        // The queue is whole whenever it is let go.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a thread call a library that acts on the thread's current device.
pub trait Surround: Send + Sync {
    /// Does `work`, once, with the device current.
    fn within(&self, work: &mut dyn FnMut());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_is_announced_is_asked_for_whatever_becomes_of_it() {
        let (desk, out) = (Arc::<Desk>::default(), Arc::<AtomicUsize>::default());
        let place = |len| {
            let owner: Arc<[u64; 4]> = Arc::new([0; 4]);
            let first = NonNull::new(owner.as_ptr().cast_mut().cast()).unwrap();
            // SAFETY: `owner` keeps the bytes, which nobody else uses and which have room behind them.
            unsafe { Lent::new(first, len, &out, owner) }
        };
        let bulk = |number| Bulk::new((3, number), 8, &desk);
        drop(bulk(1));
        drop(bulk(2).land(place(7)).unwrap_err());
        bulk(4).land(place(8)).unwrap();
        let asked: Vec<_> = std::iter::from_fn(|| desk.next()).collect();
        let seen: Vec<_> =
            asked.iter().map(|one| (one.from, one.number, one.len, one.place.is_some())).collect();
        assert_eq!(seen, [(3, 1, 8, false), (3, 2, 8, false), (3, 4, 8, true)]);
        assert_eq!(out.load(Ordering::Acquire), 1);
        assert!(desk.is_empty());
    }
}
