//! A request for memory that waits on shortage, then spills, then fails.

use super::{Buffer, MemoryError, MemoryResource};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::Duration;

/// A request for a buffer. It is polled, and never waits itself.
#[derive(Debug)]
pub struct Reservation {
    bytes: usize,
    /// When the wait for memory ends; set on the first shortage.
    until: Option<Duration>,
    /// The resource said that it will wake the waker.
    is_postponed: bool,
}

impl Reservation {
    /// A request for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, until: None, is_postponed: false }
    }

    /// The buffer; `None` while the resource is short of memory and its patience lasts, or postpones the request: then `waker` is
    /// woken when memory is given back, or the request can be tried again. `now`: any clock that never goes back.
    pub fn poll(
        &mut self,
        resource: &dyn MemoryResource,
        now: Duration,
        waker: &Waker,
    ) -> Result<Option<Buffer>, MemoryError> {
        let bytes = self.bytes;
        let allocate = || without_panic(bytes, || resource.allocate(bytes));
        let allocated = allocate();
        self.is_postponed = matches!(&allocated, Err(error) if error.is_postponed());
        let shortage = match allocated {
            Err(_) if self.is_postponed => {
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
        let spill = || resource.spill(bytes).unwrap_or(Err(shortage));
        without_panic(bytes, spill).map(Some)
    }

    /// When to poll again at the latest, by the clock of [`Reservation::poll`].
    pub fn due(&self) -> Option<Duration> {
        self.until.filter(|_| !self.is_postponed)
    }
}

/// Calls a resource of the program and catches its panic, which would end the progress thread.
fn without_panic(
    asked: usize,
    give: impl FnOnce() -> Result<Buffer, MemoryError>,
) -> Result<Buffer, MemoryError> {
    let panicked = |_| Err(MemoryError::Foreign { asked, why: "it panicked".to_owned() });
    catch_unwind(AssertUnwindSafe(give)).unwrap_or_else(panicked)?.checked(asked)
}
