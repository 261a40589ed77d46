//! Whether the user computes while exchanges are in flight. If so, progress is worth a wake-up: peers
//! would otherwise wait until the user comes back.

use halocline_comm::Host;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Waits in a row that found everything there; from the first number on the time between begin and wait
/// is looked at, too, and from the second on the user overlaps.
const TIMED_FROM: u32 = 4;
const USUAL_FROM: u32 = 8;

/// What one bound object knows of its user. Only a guess hangs on it: relaxed throughout.
#[derive(Debug, Default)]
pub(crate) struct Overlap {
    /// Waits in a row that found everything there at their first look.
    waits: AtomicU32,
    /// When the exchange in flight was begun, in nanoseconds; 0 where that does not matter.
    begun: AtomicU64,
}

impl Overlap {
    /// An exchange was begun; `unfinished` if it waits for peers.
    #[inline]
    pub(crate) fn begun(&self, host: &dyn Host, unfinished: bool) {
        let timed = unfinished && self.waits.load(Ordering::Relaxed) >= TIMED_FROM;
        self.begun.store(if timed { host.now().as_nanos() as u64 } else { 0 }, Ordering::Relaxed);
    }

    /// A wait found everything there at its first look. A user who came back within the spin has not
    /// computed: it was luck, and no peer would have gained by a wake-up.
    #[inline]
    pub(crate) fn found_at_once(&self, host: &dyn Host, spin: Duration) {
        let waits = self.waits.load(Ordering::Relaxed);
        if waits < TIMED_FROM {
            self.waits.store(waits + 1, Ordering::Relaxed);
            return;
        }
        let begun = self.begun.load(Ordering::Relaxed);
        if begun != 0 {
            let away = host.now().saturating_sub(Duration::from_nanos(begun));
            let next = if away > spin { (waits + 1).min(USUAL_FROM) } else { 0 };
            self.waits.store(next, Ordering::Relaxed);
        }
    }

    /// A wait had to wait.
    #[inline]
    pub(crate) fn waited(&self) {
        self.waits.store(0, Ordering::Relaxed);
    }

    /// Whether the user computes while exchanges are in flight.
    #[inline]
    pub(crate) fn is_usual(&self) -> bool {
        self.waits.load(Ordering::Relaxed) >= USUAL_FROM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(50);

    /// A clock that is set.
    #[derive(Default)]
    struct Clock(AtomicU64);

    impl Host for Clock {
        fn now(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn park(&self, _: &AtomicU32, _: u32, _: Option<Duration>) {}

        fn wake(&self, _: &AtomicU32) {}
    }

    fn exchange(overlap: &Overlap, clock: &Clock, away: u64) {
        clock.0.fetch_add(1, Ordering::Relaxed);
        overlap.begun(clock, true);
        clock.0.fetch_add(away, Ordering::Relaxed);
        overlap.found_at_once(clock, SPIN);
    }

    #[test]
    fn a_user_who_computes_meanwhile_overlaps_until_a_wait_waits() {
        let (overlap, clock) = (Overlap::default(), Clock::default());
        (0..USUAL_FROM - 1).for_each(|_| exchange(&overlap, &clock, 1000));
        assert!(!overlap.is_usual());
        (0..10).for_each(|_| exchange(&overlap, &clock, 1000));
        assert!(overlap.is_usual());
        overlap.waited();
        assert!(!overlap.is_usual());
    }

    #[test]
    fn a_user_who_comes_back_at_once_does_not_overlap() {
        let (overlap, clock) = (Overlap::default(), Clock::default());
        for turn in 0..1000 {
            // Put aside by the machine now and then.
            exchange(&overlap, &clock, if turn % 7 == 0 { 3000 } else { 2 });
            assert!(!overlap.is_usual());
        }
    }

    #[test]
    fn exchanges_that_are_over_at_once_say_nothing() {
        let (overlap, clock) = (Overlap::default(), Clock::default());
        for _ in 0..100 {
            overlap.begun(&clock, false);
            overlap.found_at_once(&clock, SPIN);
        }
        assert!(!overlap.is_usual());
    }
}
