//! How a host thread waits: a short spin, then sleep, with a word of warning when it takes long.

use crate::transport::Transport;
use std::time::Duration;

/// After how long without progress a wait warns whom it waits for.
pub const WARN_AFTER: Duration = Duration::from_secs(30);

/// After how long a wait tells the rank that it waits for, or after half of its deadline.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(1);

/// How long to spin, when to give up.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Time spent looking before the first sleep.
    pub spin: Duration,
    /// When a wait fails, counted from its beginning. `None`: never.
    pub deadline: Option<Duration>,
    /// Whether the wait asks the host for interruptions. One that cannot end by them does not ask: the answer would be lost.
    pub is_interruptible: bool,
}

/// A wait that takes long.
#[derive(Debug, Clone, Copy)]
pub enum Late {
    /// A second has passed, or half of the deadline, once a wait: those that are waited for may be told.
    Announce,
    /// Another [`WARN_AFTER`] has passed.
    Warn {
        /// How long it has taken.
        after: Duration,
        /// It was warned of before.
        again: bool,
    },
    /// The deadline has passed.
    Deadline(Duration),
    /// The host says that the wait is to be given up.
    Interrupted,
}

/// Looks at the counters between two looks at the clock.
const LOOKS: u32 = 64;

/// Where ranks share cores, and where messages come only to those who poll, a wait gives way to others for
/// so long before it sleeps,
const YIELD: Duration = Duration::from_micros(500);
/// and who must poll then sleeps only so long at first, and at last, between two polls.
const NAP: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

impl Patience {
    /// What suits the machine: a peer on a core of its own answers within the spin; where ranks share
    /// cores, spinning only keeps the peer from running.
    pub fn of(transport: &dyn Transport) -> Self {
        let spin = if transport.is_crowded() { 0 } else { 50 };
        Self { spin: Duration::from_micros(spin), deadline: None, is_interruptible: true }
    }

    /// How long a task looks again and again, giving way to other tasks, before it waits to be woken.
    pub fn lively(&self, transport: &dyn Transport) -> Duration {
        match (transport.is_crowded(), transport.is_polled()) {
            (true, _) => Duration::ZERO,
            (false, true) => YIELD,
            (false, false) => self.spin,
        }
    }

    /// Waits until `poll` gives something; `late` may end the wait, too. `before_sleep` is called once
    /// before each sleep. Every change that `poll` waits for must ring the rank's bell.
    pub fn wait<T>(
        &self,
        transport: &dyn Transport,
        mut poll: impl FnMut() -> Option<T>,
        mut before_sleep: impl FnMut(),
        mut late: impl FnMut(Late) -> Option<T>,
    ) -> T {
        if let Some(found) = poll() {
            return found;
        }
        let host = transport.host();
        let polled = transport.is_polled();
        let gives_way = polled || transport.is_crowded();
        let mut look = || {
            transport.poll();
            poll()
        };
        if !self.spin.is_zero() {
            // What comes at once is not kept waiting by looks at the clock.
            for _ in 0..LOOKS {
                if let Some(found) = look() {
                    return found;
                }
                host.pause();
            }
        }
        let start = host.now();
        // Ranks with one deadline have told each other when it passes.
        let announce_at = self.deadline.map_or(ANNOUNCE_AFTER, |deadline| ANNOUNCE_AFTER.min(deadline / 2));
        let (mut announce_at, mut warn_at, mut nap) = (announce_at, WARN_AFTER, NAP.0);
        let asks_after = host.asks_after().filter(|_| self.is_interruptible).unwrap_or(Duration::MAX);
        let mut ask_at = asks_after;
        loop {
            let mut waited = host.now().saturating_sub(start);
            while waited < self.spin {
                for _ in 0..LOOKS {
                    if let Some(found) = look() {
                        return found;
                    }
                    host.pause();
                }
                waited = host.now().saturating_sub(start);
            }
            if self.deadline.is_some_and(|deadline| waited >= deadline) {
                // Who was away himself, stopped by somebody, finds what came meanwhile.
                if let Some(end) = look().or_else(|| late(Late::Deadline(waited))) {
                    return end;
                }
            }
            if waited >= announce_at {
                announce_at = Duration::MAX;
                if let Some(end) = late(Late::Announce) {
                    return end;
                }
            }
            if waited >= warn_at {
                let again = warn_at > WARN_AFTER;
                warn_at = waited + WARN_AFTER;
                if let Some(end) = late(Late::Warn { after: waited, again }) {
                    return end;
                }
            }
            if waited >= ask_at {
                ask_at = waited + asks_after;
                if host.is_interrupted()
                    && let Some(end) = late(Late::Interrupted)
                {
                    return end;
                }
            }
            if gives_way && waited < YIELD {
                host.yield_now();
                if let Some(found) = look() {
                    return found;
                }
                continue;
            }
            before_sleep();
            let until =
                self.deadline.map_or(warn_at, |deadline| deadline.min(warn_at)).min(ask_at).min(announce_at);
            let mut longest = until.saturating_sub(waited);
            if polled {
                longest = longest.min(nap);
                nap = NAP.1.min(2 * nap);
            }
            let mut found = None;
            transport.own_bell().sleep(host, Some(longest), || {
                found = look();
                found.is_some()
            });
            if let Some(found) = found.or_else(&mut look) {
                return found;
            }
        }
    }
}
