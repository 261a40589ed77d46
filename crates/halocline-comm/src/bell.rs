//! The doorbell of a rank: wakes its threads that sleep until a counter changes.
//!
//! A rank has one bell, in memory that its peers can reach. A thread that raises a counter of the rank
//! checks the bell afterwards, and makes a system call only if a thread sleeps. Two kinds of
//! thread sleep: callers in a wait, and the progress thread. Every change wakes the progress thread only
//! while it is *armed* (the rank computes with an exchange unfinished). Otherwise a
//! peer that is about to sleep demands progress of the ranks that it waits for, once an epoch.

use crate::host::Host;
use crate::sync::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// Sleepers and wake-ups of one rank. It has a cache line of its own, which peers only read while no thread sleeps and none is
/// armed.
#[derive(Debug)]
#[repr(C)]
pub struct Doorbell {
    /// Threads asleep, or about to sleep, in a wait.
    sleepers: AtomicU32,
    /// Changes with every ring; sleepers park on it.
    rings: AtomicU32,
    /// Objects that want their progress thread woken at every change.
    armed: AtomicU32,
    /// Changes with every demand; the progress thread parks on it.
    demands: AtomicU32,
    /// 1 while the progress thread sleeps, or is about to.
    parked: AtomicU32,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self {
            sleepers: AtomicU32::new(0),
            rings: AtomicU32::new(0),
            armed: AtomicU32::new(0),
            demands: AtomicU32::new(0),
            parked: AtomicU32::new(0),
        }
    }
}

impl Doorbell {
    /// Wakes the threads that sleep until this change, which this thread has just made.
    ///
    /// The fence pairs with the one in [`Doorbell::sleep`] and [`Doorbell::arm`]: either this thread
    /// sees the sleeper, or the sleeper sees the change.
    #[inline]
    pub fn changed(&self, host: &dyn Host) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.ring(host);
        }
        if self.armed.load(Ordering::Relaxed) != 0 {
            self.demand(host);
        }
    }

    /// As [`Doorbell::changed`], for a message in the rank's inbox; news demand progress.
    #[cfg(not(loom))]
    pub(crate) fn delivered(&self, host: &dyn Host, is_news: bool) {
        self.changed(host);
        if is_news {
            self.demand(host);
        }
    }

    #[cold]
    fn ring(&self, host: &dyn Host) {
        self.rings.fetch_add(1, Ordering::Release);
        host.wake(&self.rings);
    }

    /// Wakes the progress thread of the rank.
    ///
    /// The fence pairs with the one in `Doorbell::await_demand`: either this thread sees that the other one sleeps, or that sees
    /// the demand.
    #[cold]
    pub fn demand(&self, host: &dyn Host) {
        self.demands.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) != 0 {
            host.wake(&self.demands);
        }
    }

    /// Sleeps until rung, unless `ready` is true. May return early for no reason.
    pub fn sleep(&self, host: &dyn Host, timeout: Option<Duration>, ready: impl FnOnce() -> bool) {
        let longest = timeout.unwrap_or(Duration::MAX);
        self.sleep_for(host, || if ready() { Duration::ZERO } else { longest });
    }

    /// Sleeps until rung. `look` looks for what the thread sleeps for, once it counts as a sleeper, and returns how long it may sleep:
    /// not at all if that is zero, without an end if it is [`Duration::MAX`]. May return early for no reason.
    pub fn sleep_for(&self, host: &dyn Host, look: impl FnOnce() -> Duration) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Read before `look` is called: a later ring changes the word that this thread parks on.
        let rings = self.rings.load(Ordering::Acquire);
        let longest = look();
        if !longest.is_zero() {
            host.park(&self.rings, rings, (longest < Duration::MAX).then_some(longest));
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes every change wake the progress thread. The caller checks its counters once
    /// more afterwards, for a change that came before.
    pub fn arm(&self) {
        self.armed.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Undoes one [`Doorbell::arm`].
    pub fn disarm(&self) {
        self.armed.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number of demands so far; read before looking for work.
    pub(crate) fn demands(&self) -> u32 {
        self.demands.load(Ordering::Acquire)
    }

    /// Puts the progress thread to sleep until a demand after it read `seen`, or until the timeout.
    pub(crate) fn await_demand(&self, host: &dyn Host, seen: u32, timeout: Option<Duration>) {
        self.parked.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        host.park(&self.demands, seen, timeout);
        self.parked.store(0, Ordering::Relaxed);
    }
}
