//! Detects whether the user computes while exchanges are in flight. If so, the progress thread is woken to carry them on: peers
//! would otherwise wait until the user's next call.

use halocline_comm::Host;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Successive waits that found their exchange over at the first look. From `TIMED_FROM` on the time between begin and wait is
/// measured; from `USUAL_FROM` on the user counts as computing.
const TIMED_FROM: u32 = 4;
const USUAL_FROM: u32 = 8;

/// The statistics of one bound object. They decide only on speed: all accesses are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Overlap {
    /// Successive waits that found their exchange over at the first look.
    waits: AtomicU32,
    /// When the exchange in flight was begun, in nanoseconds; 0 if that is not measured.
    begun: AtomicU64,
    /// The exchange in flight was left to the progress thread.
    handed_on: AtomicBool,
    /// Nanoseconds of the last begin that copied by itself.
    alone: AtomicU64,
    /// Nanoseconds of the begin that handed the exchange in flight on.
    spent: AtomicU64,
    /// How many exchanges are not handed on after one for which it did not pay; doubles each time in a row.
    pause: AtomicU32,
}

impl Overlap {
    /// An exchange was begun; `unfinished` if it waits for peers.
    #[inline]
    pub(crate) fn begun(&self, host: &dyn Host, unfinished: bool) {
        let timed = unfinished && self.waits.load(Ordering::Relaxed) >= TIMED_FROM;
        self.handed_on.store(false, Ordering::Relaxed);
        self.begun.store(if timed { host.now().as_nanos() as u64 } else { 0 }, Ordering::Relaxed);
    }

    /// A begin copied by itself, in that time.
    pub(crate) fn did_alone(&self, took: Duration) {
        self.alone.store(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// A begin left the copying to the progress thread, in that time.
    pub(crate) fn handed_on(&self, took: Duration) {
        self.spent.store(took.as_nanos() as u64, Ordering::Relaxed);
        self.handed_on.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_handed_on(&self) -> bool {
        self.handed_on.load(Ordering::Relaxed)
    }

    /// The wait for an exchange that was handed on took that long. If that saved no time, the next exchanges are not handed
    /// on: the progress thread's core is busy, asleep, or too far away.
    pub(crate) fn judge(&self, waited: Duration) {
        let spent = self.spent.load(Ordering::Relaxed) + waited.as_nanos() as u64;
        self.handed_on.store(false, Ordering::Relaxed);
        if spent < self.alone.load(Ordering::Relaxed) {
            self.pause.store(0, Ordering::Relaxed);
        } else {
            let pause = (2 * self.pause.load(Ordering::Relaxed)).clamp(1, USUAL_FROM);
            self.pause.store(pause, Ordering::Relaxed);
            self.waits.store(USUAL_FROM - pause, Ordering::Relaxed);
        }
    }

    /// A wait found its exchange over at the first look. A user that waits within the spin time has not computed, and no peer
    /// would have gained by a wake-up.
    #[inline]
    pub(crate) fn found_at_once(&self, host: &dyn Host, spin: Duration) {
        if self.is_handed_on() {
            return;
        }
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

    /// A wait found its exchange unfinished.
    #[inline]
    pub(crate) fn waited(&self) {
        if !self.is_handed_on() {
            self.waits.store(0, Ordering::Relaxed);
        }
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
    use crate::{Array, BindOptions, Communicator, Decomposed, Halo, HaloExchange, RegularGrid};
    use halocline_comm::Cores;
    use halocline_comm::Endpoint;

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

    /// An exchange as the bound object does it: handed on if that is usual. Says whether it was.
    fn large(overlap: &Overlap, clock: &Clock, waited: u64) -> bool {
        if overlap.is_usual() {
            overlap.handed_on(Duration::from_micros(5));
            overlap.judge(Duration::from_micros(waited));
            return true;
        }
        overlap.did_alone(Duration::from_micros(100));
        exchange(overlap, clock, 1000);
        false
    }

    #[test]
    fn what_is_handed_on_goes_on_to_be_as_long_as_it_spares_time() {
        let (overlap, clock) = (Overlap::default(), Clock::default());
        let handed: Vec<bool> = (0..40).map(|_| large(&overlap, &clock, 20)).collect();
        assert_eq!(handed.iter().filter(|handed| **handed).count(), 40 - USUAL_FROM as usize);
        // The thread that it goes to does not come any more: it is tried less and less.
        let late: Vec<usize> = (0..40).filter(|_| large(&overlap, &clock, 100)).collect();
        assert_eq!(late, [0, 2, 5, 10, 19, 28, 37]);
        // It comes again.
        let back: Vec<usize> = (0..12).filter(|_| large(&overlap, &clock, 20)).collect();
        assert_eq!(back.len(), 6);
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

    /// Through the whole object: its halo is right, whichever thread copies, and its memory comes back however it ends.
    #[test]
    fn large_exchanges_of_a_user_who_computes_are_handed_on() {
        let comm = Communicator::single();
        if comm.link().cores() != Cores::Spare {
            eprintln!("skipped: there is one core, and none is left over for a progress thread");
            return;
        }
        let grid = RegularGrid::new([64, 64, 64]).periodic([true; 3]);
        let pattern = grid.decompose(1).unwrap().pattern(&comm, Halo::uniform(1)).unwrap();
        let arrays = [0, 1].map(|_| Array::<u64>::zeros(&comm, &[66; 3]).unwrap());
        // Checked mode would take minutes.
        let options = BindOptions::default().checked(false);
        let fields = [(&pattern, &*arrays[0]), (&pattern, &*arrays[1])];
        let halo = HaloExchange::bind_with(&comm, fields, &options).unwrap();
        let mut handed_on = 0;
        for step in 1..200_u64 {
            arrays.iter().for_each(|array| array.write().unwrap().fill(step << 32));
            // A corner, whose copy is the halo's opposite corner.
            let corner = (66 + 1) * 66 + 1;
            arrays.iter().for_each(|array| array.write().unwrap()[corner] = step);
            let pending = halo.exchange().unwrap();
            handed_on += u64::from(halo.bound().overlap.is_handed_on());
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_micros(100) {
                std::hint::spin_loop();
            }
            match step % 50 {
                // In these cases the user comes back to it later, or never.
                0 => drop(pending),
                1 => while !pending.is_ready().unwrap() {},
                _ => pending.wait().unwrap(),
            }
            while !halo.reclaim() {
                std::thread::yield_now();
            }
            for array in &arrays {
                assert_eq!(array.read().unwrap()[66 * 66 * 66 - 1], step);
            }
        }
        assert!(handed_on > 0);
        drop(halo);
        arrays.iter().for_each(|array| array.write().unwrap().fill(0));
    }
}
