//! Turns at a shared task: at most one thread at a time, and no request for a turn is lost.

use crate::sync::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and somebody came meanwhile: the holder takes another turn before it lets go.
const AGAIN: u8 = 2;

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
    pub fn turn(&self, mut turn: impl FnMut()) {
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
        loop {
            turn();
            if self.0.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            self.0.swap(HELD, Ordering::Acquire);
        }
    }
}
