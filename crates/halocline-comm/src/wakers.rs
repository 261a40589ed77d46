//! Tasks that wait for an epoch, by their wakers.
//!
//! A waker is code of somebody's executor: it is cloned, woken and dropped outside the lock.

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};
use std::sync::PoisonError;
use std::task::Waker;

/// The tasks that wait for one object.
#[derive(Debug)]
pub struct Wakers {
    /// How many wait; read without the lock, so that nobody who completes an epoch takes it in vain.
    count: AtomicU32,
    tickets: AtomicU64,
    waiting: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    epoch: u64,
    waker: Waker,
}

/// One task's place among those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

impl Default for Wakers {
    fn default() -> Self {
        Self { count: AtomicU32::new(0), tickets: AtomicU64::new(0), waiting: Mutex::new(Vec::new()) }
    }
}

impl Wakers {
    /// From now on `waker` waits for `epoch`. The caller must look once more afterwards, for an epoch that
    /// was completed before.
    pub fn enter(&self, epoch: u64, waker: &Waker) -> Ticket {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        let waiting = Waiting { ticket, epoch, waker: waker.clone() };
        {
            let mut all = self.lock();
            all.push(waiting);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        ticket
    }

    /// The task has moved: it is to be woken by another waker. Look once more afterwards.
    pub fn renew(&self, ticket: Ticket, waker: &Waker) {
        let same = |other: &Waiting| other.ticket == ticket && other.waker.will_wake(waker);
        if self.lock().iter().any(same) {
            return;
        }
        let mut waker = waker.clone();
        if let Some(waiting) = self.lock().iter_mut().find(|waiting| waiting.ticket == ticket) {
            std::mem::swap(&mut waiting.waker, &mut waker);
        }
        // The old one is dropped here, outside the lock.
    }

    /// The task waits no longer. False if it was taken before.
    pub fn leave(&self, ticket: Ticket) -> bool {
        self.take_where(|waiting| waiting.ticket == ticket).is_some()
    }

    /// One of those that wait for `epoch` or an earlier one, to be woken by the caller. The caller has made a
    /// fence ([`crate::Doorbell::changed`] does) between completing the epoch and this: either the task that
    /// enters sees the epoch, or it is seen here.
    #[inline]
    pub fn take(&self, epoch: u64) -> Option<Waker> {
        if self.is_empty() { None } else { self.take_where(|waiting| waiting.epoch <= epoch) }
    }

    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    #[cold]
    fn take_where(&self, wanted: impl Fn(&Waiting) -> bool) -> Option<Waker> {
        let mut all = self.lock();
        let at = all.iter().position(wanted)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(all.swap_remove(at).waker)
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Vec<Waiting>> {
        // No panic can happen while it is held: the list is always whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
