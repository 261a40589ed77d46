//! How a host thread waits: a short spin, then sleep, with a warning when it takes long.

use crate::host::Host;
use crate::transport::Transport;
use std::time::Duration;

/// A wait that takes this long warns, and again after each further interval.
pub const WARN_AFTER: Duration = Duration::from_secs(30);

/// A wait that takes this long, or half of its deadline, announces itself to the rank that it waits for.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(1);

/// How long a wait spins, and when it fails.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Time of polling before the first sleep.
    pub spin: Duration,
    /// A wait fails after this time. `None`: never.
    pub deadline: Option<Duration>,
    /// Whether the wait asks the host for interruptions. A wait that cannot end by one must not ask: the interruption would be lost.
    pub is_interruptible: bool,
}

/// An event of a wait that takes long.
#[derive(Debug, Clone, Copy)]
pub enum Late {
    /// A second has passed, or half of the deadline; once a wait. Time to announce the wait to the other ranks.
    Announce,
    /// Another [`WARN_AFTER`] has passed.
    Warn {
        /// The time so far.
        after: Duration,
        /// Not the first warning of this wait.
        again: bool,
    },
    /// The deadline has passed.
    Deadline(Duration),
    /// The host interrupts the wait.
    Interrupted,
}

/// Looks between two reads of the clock.
const LOOKS: u32 = 64;

/// From one call of `before_sleep` to the next while a wait polls, or sleeps for a short time only.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// Further polls of the transport in a look while messages are in flight.
const CARRIED: u32 = 3;

/// If ranks share cores, or messages arrive only by polling, a wait yields its core for
/// this long before it sleeps.
const YIELD: Duration = Duration::from_micros(500);
/// The first and the longest sleep between two polls, if messages arrive only by polling.
const SLEEP: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

impl Patience {
    /// The values for this machine: a peer on a core of its own answers within the spin; if ranks share
    /// cores, spinning only delays the peer.
    pub fn of(transport: &dyn Transport) -> Self {
        let spin = if transport.is_oversubscribed() { 0 } else { 50 };
        Self { spin: Duration::from_micros(spin), deadline: None, is_interruptible: true }
    }

    /// How long a task polls, yielding to other tasks, before it waits for its waker.
    pub fn poll_time(&self, transport: &dyn Transport) -> Duration {
        match (transport.is_oversubscribed(), transport.is_polled()) {
            (true, _) => Duration::ZERO,
            (false, true) => YIELD,
            (false, false) => self.spin,
        }
    }

    /// Waits until `poll` or `late` returns a value. `before_sleep` is called before each long sleep, and now and then while the wait
    /// polls for long: to ask other ranks for what this one waits for. `until_due` says in which time `poll` finds something that no
    /// bell announces, such as the end of a copy: asked after the last look before a sleep. Every other change that `poll` depends on must ring the rank's bell.
    pub fn wait<T>(
        &self,
        transport: &dyn Transport,
        mut poll: impl FnMut() -> Option<T>,
        mut before_sleep: impl FnMut(),
        mut until_due: impl FnMut() -> Duration,
        mut late: impl FnMut(Late) -> Option<T>,
    ) -> T {
        if let Some(found) = poll() {
            return found;
        }
        let mut look = || {
            transport.poll();
            if self.is_carrying(transport) {
                // MPI moves some of the bytes in each call, and the rest of a look takes as long.
                (0..CARRIED).for_each(|_| transport.poll());
            }
            poll()
        };
        // A short wait does not read the clock.
        if let Some(found) = (!self.spin.is_zero()).then(|| spin(transport.host(), &mut look)).flatten() {
            return found;
        }
        self.wait_by_clock(transport, &mut look, &mut before_sleep, &mut until_due, &mut late)
    }

    /// The part of [`Patience::wait`] that reads the clock: spins until the spin time has passed, yields the core, then sleeps.
    fn wait_by_clock<T>(
        &self,
        transport: &dyn Transport,
        look: &mut impl FnMut() -> Option<T>,
        before_sleep: &mut impl FnMut(),
        until_due: &mut impl FnMut() -> Duration,
        late: &mut impl FnMut(Late) -> Option<T>,
    ) -> T {
        let host = transport.host();
        let start = host.now();
        let (mut due, mut pace) = (Due::new(self, host), Pace::new(self, transport));
        loop {
            let waited = host.now().saturating_sub(start);
            // With a core for each rank, this thread polls as long as messages in flight move only while somebody does.
            let spins = waited < self.spin || self.is_carrying(transport);
            if let Some(found) = spins.then(|| spin(host, look)).flatten() {
                return found;
            }
            if let Some(end) = due.call(host, waited, look, late) {
                return end;
            }
            let most = if spins || pace.is_yielding(waited) { Duration::ZERO } else { until_due() };
            // What other ranks do for this one need not wait for what is in flight here.
            if most > ASK_EVERY || waited >= pace.asks_at {
                before_sleep();
                pace.asks_at = waited + ASK_EVERY;
            }
            let found = if most.is_zero() {
                match waited < self.spin {
                    true => host.pause(),
                    false => host.yield_now(),
                }
                look()
            } else {
                let longest = pace.next_sleep(due.next().saturating_sub(waited));
                sleep(transport, longest, look, until_due)
            };
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Whether this thread polls for messages in flight: it has a core of its own, and they move only while it does.
    #[inline]
    fn is_carrying(&self, transport: &dyn Transport) -> bool {
        !self.spin.is_zero() && transport.is_carrying()
    }
}

/// When a wait yields its core, sleeps, and asks other ranks.
struct Pace {
    /// Messages arrive only by polling.
    polled: bool,
    /// The wait yields its core for [`YIELD`] before it sleeps.
    yields: bool,
    /// The time of the next call of `before_sleep`, counted from the start of the wait.
    asks_at: Duration,
    /// The longest next sleep, if messages arrive only by polling.
    longest_sleep: Duration,
}

impl Pace {
    fn new(patience: &Patience, transport: &dyn Transport) -> Self {
        let polled = transport.is_polled();
        let yields = polled || transport.is_oversubscribed();
        let asks_at = if yields { patience.spin.max(YIELD) } else { patience.spin };
        Self { polled, yields, asks_at, longest_sleep: SLEEP.0 }
    }

    #[inline]
    fn is_yielding(&self, waited: Duration) -> bool {
        self.yields && waited < YIELD
    }

    /// Shortens a sleep to `longest_sleep`, if messages arrive only by polling. Each sleep may be twice as long as the one before.
    fn next_sleep(&mut self, longest: Duration) -> Duration {
        if !self.polled {
            return longest;
        }
        let sleep = longest.min(self.longest_sleep);
        self.longest_sleep = SLEEP.1.min(2 * self.longest_sleep);
        sleep
    }
}

/// Looks [`LOOKS`] times.
fn spin<T>(host: &dyn Host, look: &mut impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..LOOKS {
        if let Some(found) = look() {
            return Some(found);
        }
        host.pause();
    }
    None
}

/// Sleeps until the rank's bell rings, for `longest` or [`Patience::wait`]'s `until_due` at most. Looks once more before, when the bell
/// can no longer be missed, and after it.
fn sleep<T>(
    transport: &dyn Transport,
    longest: Duration,
    look: &mut impl FnMut() -> Option<T>,
    until_due: &mut impl FnMut() -> Duration,
) -> Option<T> {
    let mut found = None;
    transport.own_bell().sleep_for(transport.host(), || {
        found = look();
        if found.is_some() { Duration::ZERO } else { longest.min(until_due()) }
    });
    found.or_else(look)
}

/// When the callback of a wait is due next, counted from the start of the wait.
struct Due {
    /// [`Duration::MAX`]: never.
    deadline: Duration,
    announce: Duration,
    warning: Duration,
    interrupt: Duration,
    /// From one look for an interrupt to the next.
    asks_after: Duration,
}

impl Due {
    fn new(patience: &Patience, host: &dyn Host) -> Self {
        // Ranks with the same deadline announce before it passes.
        let announce = patience.deadline.map_or(ANNOUNCE_AFTER, |deadline| ANNOUNCE_AFTER.min(deadline / 2));
        let asks_after = host.asks_after().filter(|_| patience.is_interruptible).unwrap_or(Duration::MAX);
        let deadline = patience.deadline.unwrap_or(Duration::MAX);
        Self { deadline, announce, warning: WARN_AFTER, interrupt: asks_after, asks_after }
    }

    fn next(&self) -> Duration {
        self.deadline.min(self.announce).min(self.warning).min(self.interrupt)
    }

    /// Makes the calls that are due.
    fn call<T>(
        &mut self,
        host: &dyn Host,
        waited: Duration,
        look: &mut impl FnMut() -> Option<T>,
        late: &mut impl FnMut(Late) -> Option<T>,
    ) -> Option<T> {
        if waited >= self.deadline {
            // If this thread was stopped meanwhile, the message may have come.
            if let Some(end) = look().or_else(|| late(Late::Deadline(waited))) {
                return Some(end);
            }
        }
        if waited >= self.announce {
            self.announce = Duration::MAX;
            if let Some(end) = late(Late::Announce) {
                return Some(end);
            }
        }
        if waited >= self.warning {
            let again = self.warning > WARN_AFTER;
            self.warning = waited + WARN_AFTER;
            if let Some(end) = late(Late::Warn { after: waited, again }) {
                return Some(end);
            }
        }
        if waited >= self.interrupt {
            self.interrupt = waited + self.asks_after;
            return host.is_interrupted().then(|| late(Late::Interrupted)).flatten();
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::communicator::Communicator;
    use crate::endpoint::Endpoint;
    use std::cell::Cell;

    /// No bell rings at the end of what a look begins, also the last look before a sleep.
    #[test]
    fn a_wait_sleeps_no_longer_than_what_a_look_has_begun() {
        let comm = Communicator::single();
        let link = comm.link();
        let now = || link.host().now();
        let patience = Patience { spin: Duration::ZERO, deadline: None, is_interruptible: false };
        for first in 0..8 {
            let (looks, end) = (Cell::new(0), Cell::new(None));
            let poll = || {
                if looks.replace(looks.get() + 1) == first {
                    end.set(Some(now() + Duration::from_millis(1)));
                }
                end.get().filter(|end| now() >= *end)
            };
            // Asked before each sleep and after its look, which may begin it.
            let asked = Cell::new(0);
            let until_due = || match end.get() {
                Some(end) => end.saturating_sub(now()),
                None if asked.replace(asked.get() + 1) % 2 == 0 => Duration::MAX,
                None => Duration::from_micros(10),
            };
            let late = |late| panic!("it sleeps, and what look {first} has begun is over: {late:?}");
            patience.wait(link, poll, || {}, until_due, late);
        }
    }

    #[test]
    fn other_ranks_are_asked_before_each_long_sleep_and_seldom_before_short_ones() {
        let comm = Communicator::single();
        let link = comm.link();
        let patience = Patience { spin: Duration::ZERO, deadline: None, is_interruptible: false };
        let asked = |interval: Duration, looks: u32| {
            let (looked, asked) = (Cell::new(0), Cell::new(0));
            let poll = || (looked.replace(looked.get() + 1) == looks).then_some(());
            patience.wait(link, poll, || asked.set(asked.get() + 1), || interval, |_| None);
            asked.get()
        };
        // Two looks for each sleep, after the first one.
        assert_eq!(asked(Duration::from_millis(2), 9), 5);
        assert!((1..100).contains(&asked(Duration::from_micros(1), 300)));
    }
}
