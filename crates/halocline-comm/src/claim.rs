//! Turns at a shared task: at most one thread at a time, and no request for a turn is lost.

use crate::sync::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and somebody came meanwhile: the holder takes another turn before it lets go.
const AGAIN: u8 = 2;

/// Turns that the holder takes for others, before it lets somebody else see to it.
const TURNS: usize = if cfg!(loom) { 1 } else { 4 };

/// Who serves a link. Claimed by compare-and-swap; nobody ever waits for it.
#[derive(Debug)]
pub struct Claim(AtomicU8);

impl Default for Claim {
    fn default() -> Self {
        Self(AtomicU8::new(FREE))
    }
}

impl Claim {
    /// Runs `turn`, or lets the thread that is at it run it once more. What the caller saw before is
    /// seen by a turn that ends after the call began. Turns must not wait.
    ///
    /// Who comes again and again does not hold the thread that is at it: after a few turns for others it lets go.
    /// Then `owes` is called, which must see to it that somebody takes another turn, such as the progress thread.
    pub fn turn(&self, owes: impl FnOnce(), mut turn: impl FnMut()) {
        loop {
            match self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                // A read-modify-write also where AGAIN stands already: it hands on what we saw.
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
    fn who_comes_again_and_again_holds_nobody() {
        let claim = Claim::default();
        for _ in 0..2 {
            let (mut turns, mut owed) = (0, 0);
            let turn = || {
                turns += 1;
                assert!(turns < 100, "it never lets go");
                claim.turn(|| panic!("it is not at it"), || panic!("two are at it"));
            };
            claim.turn(|| owed += 1, turn);
            assert_eq!((turns, owed), (1 + TURNS, 1));
        }
        claim.turn(|| panic!("nobody has come"), || {});
    }
}
