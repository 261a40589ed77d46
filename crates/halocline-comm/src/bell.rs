//! The doorbell of a rank: how those who change a counter wake the threads that sleep for it.
//!
//! A rank has one bell, in memory that its peers can reach. Whoever raises a counter of the rank
//! looks at the bell afterwards and makes a system call only if somebody sleeps. Two kinds of
//! thread sleep: callers in a wait, and the progress thread. Progress is rung for every change only
//! while *armed* (its rank went off to compute with something unfinished), otherwise on demand: a
//! peer that is about to sleep rings the progress of those it waits for, once an epoch.

use crate::host::Host;
use crate::sync::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// Sleepers and wake-ups of one rank. To be placed on a cache line of its own, which peers only read
/// while nobody sleeps.
#[derive(Debug)]
#[repr(C)]
pub struct Doorbell {
    /// Threads asleep, or about to sleep, in a wait.
    sleepers: AtomicU32,
    /// Changes with every ring; what sleepers park on.
    rings: AtomicU32,
    /// Objects that want their progress thread woken at every change.
    armed: AtomicU32,
    /// What the progress thread parks on.
    demands: AtomicU32,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self {
            sleepers: AtomicU32::new(0),
            rings: AtomicU32::new(0),
            armed: AtomicU32::new(0),
            demands: AtomicU32::new(0),
        }
    }
}

impl Doorbell {
    /// Wakes whoever sleeps for something that this thread has changed just before.
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

    /// As [`Doorbell::changed`], for a message that was put into the rank's inbox; news demand progress.
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
    #[cold]
    pub fn demand(&self, host: &dyn Host) {
        self.demands.fetch_add(1, Ordering::Release);
        host.wake(&self.demands);
    }

    /// Sleeps until rung, unless `ready` says that there is nothing to sleep for any more. May return
    /// early for no reason.
    pub fn sleep(&self, host: &dyn Host, timeout: Option<Duration>, ready: impl FnOnce() -> bool) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Read before `ready` looks: a ring that comes after the look changes what we park on.
        let rings = self.rings.load(Ordering::Acquire);
        if !ready() {
            host.park(&self.rings, rings, timeout);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// From now on every change wakes the progress thread. The caller must look at its counters once
    /// more afterwards, for a change that came before.
    pub fn arm(&self) {
        self.armed.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes back one [`Doorbell::arm`].
    pub fn disarm(&self) {
        self.armed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Where the progress thread stands; to be read before it looks for work.
    pub(crate) fn demands(&self) -> u32 {
        self.demands.load(Ordering::Acquire)
    }

    /// The progress thread sleeps until a demand that came after it read `seen`, or for so long.
    pub(crate) fn await_demand(&self, host: &dyn Host, seen: u32, timeout: Option<Duration>) {
        host.park(&self.demands, seen, timeout);
    }
}
