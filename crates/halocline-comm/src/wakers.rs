//! Tasks that wait for an epoch, by their wakers.
//!
//! A waker is code of an executor: it is cloned, woken and dropped outside the lock.

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};
use std::sync::PoisonError;
use std::task::Waker;

/// The tasks that wait for one object.
#[derive(Debug)]
pub struct Wakers {
    /// The number of waiting tasks; read without the lock, so that completing an epoch takes the lock only if a task waits.
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

/// Identifies one waiting task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

impl Default for Wakers {
    fn default() -> Self {
        Self { count: AtomicU32::new(0), tickets: AtomicU64::new(0), waiting: Mutex::new(Vec::new()) }
    }
}

impl Wakers {
    /// Registers `waker` for `epoch`. The caller checks the epoch once more afterwards: it may have
    /// completed before.
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

    /// Replaces the waker of a task that has moved. Check the epoch once more afterwards.
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

    /// Removes a task. False if it was taken before.
    pub fn leave(&self, ticket: Ticket) -> bool {
        self.take_where(|waiting| waiting.ticket == ticket).is_some()
    }

    /// Takes a task that waits for `epoch` or an earlier one; the caller wakes it. The caller has issued a
    /// fence ([`crate::Doorbell::changed`] does) between completing the epoch and this: either a task that
    /// enters sees the epoch, or this call sees the task.
    #[inline]
    pub fn take(&self, epoch: u64) -> Option<Waker> {
        if self.is_empty() { None } else { self.take_where(|waiting| waiting.epoch <= epoch) }
    }

    /// Whether no task waits.
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
