//! Runs a shared task on one thread at a time, without losing a request for a run.

use crate::sync::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and another thread came meanwhile: the holder runs the task once more before it releases the claim.
const AGAIN: u8 = 2;

/// Runs that the holder does for others before it leaves the rest to another thread.
const TURNS: usize = if cfg!(loom) { 1 } else { 4 };

/// The right to serve a link, taken by compare-and-swap. No thread ever waits for it.
#[derive(Debug)]
pub struct Claim(AtomicU8);

impl Default for Claim {
    fn default() -> Self {
        Self(AtomicU8::new(FREE))
    }
}

impl Claim {
    /// Runs `turn`, or makes the thread that holds the claim run it once more. All that the caller saw before is
    /// visible to a run that ends after this call began. `turn` must not wait.
    ///
    /// Frequent callers do not occupy the holder: after a few runs for others it releases the claim and
    /// calls `owes`, which makes another thread, such as the progress thread, run the task again.
    pub fn turn(&self, owes: impl FnOnce(), mut turn: impl FnMut()) {
        loop {
            match self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                // A read-modify-write even if the value is AGAIN already: it publishes what this thread saw.
                Err(seen)
                    if self.0.compare_exchange(seen, AGAIN, Ordering::Release, Ordering::Relaxed).is_ok() =>
                {
                    return;
                }
                Err(_) => {}
            }
        }
        for _ in 0..TURNS {
            turn();
            if self.0.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            self.0.swap(HELD, Ordering::Acquire);
        }
        turn();
        if self.0.swap(FREE, Ordering::AcqRel) == AGAIN {
            owes();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn frequent_callers_do_not_occupy_the_holder() {
        let claim = Claim::default();
        for _ in 0..2 {
            let (mut turns, mut owed) = (0, 0);
            let turn = || {
                turns += 1;
                assert!(turns < 100, "the claim is never released");
                claim.turn(
                    || panic!("this caller does not hold the claim"),
                    || panic!("two threads run the task"),
                );
            };
            claim.turn(|| owed += 1, turn);
            assert_eq!((turns, owed), (1 + TURNS, 1));
        }
        claim.turn(|| panic!("no other thread came"), || {});
    }
}
