//! A request for memory that waits on shortage, then spills, then fails.

use super::{Buffer, MemoryError, MemoryResource};
use std::task::Waker;
use std::time::Duration;

/// A request for a buffer. It is polled, and never waits itself.
#[derive(Debug)]
pub struct Reservation {
    bytes: usize,
    /// When the wait for memory ends; set on the first shortage.
    until: Option<Duration>,
}

impl Reservation {
    /// A request for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, until: None }
    }

    /// The buffer; `None` while the resource is short of memory and its patience lasts, or postpones the request: then `waker` is
    /// woken when memory is given back, or the request can be tried again. `now`: any clock that never goes back.
    pub fn poll(
        &mut self,
        resource: &dyn MemoryResource,
        now: Duration,
        waker: &Waker,
    ) -> Result<Option<Buffer>, MemoryError> {
        let allocate = || resource.allocate(self.bytes).and_then(|buffer| buffer.checked(self.bytes));
        let shortage = match allocate() {
            Err(error) if error.is_postponed() => {
                resource.watch(waker);
                return Ok(None);
            }
            Err(error) if error.is_shortage() => error,
            done => return done.map(Some),
        };
        let until = *self.until.get_or_insert(now.saturating_add(resource.patience(self.bytes)));
        if now < until {
            resource.watch(waker);
            // Memory may have been given back just before.
            match allocate() {
                Err(error) if error.is_shortage() || error.is_postponed() => return Ok(None),
                done => return done.map(Some),
            }
        }
        match resource.spill(self.bytes) {
            Some(spilled) => spilled.and_then(|buffer| buffer.checked(self.bytes)).map(Some),
            None => Err(shortage),
        }
    }

    /// When to poll again at the latest, by the clock of [`Reservation::poll`].
    pub fn due(&self) -> Option<Duration> {
        self.until
    }
}
