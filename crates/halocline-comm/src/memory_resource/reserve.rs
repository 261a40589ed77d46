//! A request for memory that waits on shortage, then spills, then fails.

use super::{Buffer, MemoryError, MemoryResource};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

/// When a request asks again for the first time, if nothing wakes it. Then after twice as long a wait each, so that a pool that the program
/// fills without waking anybody is asked seldom, and a request waits at most twice as long as it has to.
const FIRST_AGAIN: Duration = Duration::from_millis(1);

/// A request for a buffer. It is polled, and never waits itself.
#[derive(Debug)]
pub struct Reservation {
    bytes: usize,
    /// Set on the first shortage.
    wait: Option<Wait>,
    /// The resource said that it will wake the waker.
    is_postponed: bool,
}

/// A wait for memory, by the clock of [`Reservation::poll`].
#[derive(Debug)]
struct Wait {
    began: Duration,
    /// When patience ends.
    until: Duration,
    /// When to ask again if nothing is given back.
    again: Duration,
    given_back: Arc<GivenBack>,
}

/// Wakes who waits for memory, and notes that some was given back.
#[derive(Debug)]
struct GivenBack {
    is_so: AtomicBool,
    waker: Waker,
}

impl Wake for GivenBack {
    fn wake(self: Arc<Self>) {
        self.is_so.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

impl Wait {
    /// Whether a poll asks the resource again.
    fn asks(&self, now: Duration, waker: &Waker) -> bool {
        let news = &self.given_back;
        now >= self.again || news.is_so.load(Ordering::Acquire) || !news.waker.will_wake(waker)
    }
}

impl Reservation {
    /// A request for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, wait: None, is_postponed: false }
    }

    /// The buffer; `None` while the resource is short of memory and its patience lasts, or postpones the request: then `waker` is
    /// woken when memory is given back, or the request can be tried again. `now`: any clock that never goes back.
    pub fn poll(
        &mut self,
        resource: &dyn MemoryResource,
        now: Duration,
        waker: &Waker,
    ) -> Result<Option<Buffer>, MemoryError> {
        if !self.is_postponed && self.wait.as_ref().is_some_and(|wait| !wait.asks(now, waker)) {
            return Ok(None);
        }
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
        if let Some(given_back) = self.wait_on(resource, now, waker) {
            resource.watch(&given_back.into());
            // Memory may have been given back just before.
            match allocate() {
                Err(error) if error.is_shortage() || error.is_postponed() => return Ok(None),
                done => return done.map(Some),
            }
        }
        let spill = || resource.spill(bytes).unwrap_or(Err(shortage));
        without_panic(bytes, spill).map(Some)
    }

    /// Begins the wait for memory, or goes on with it; `None` when patience has ended.
    fn wait_on(
        &mut self,
        resource: &dyn MemoryResource,
        now: Duration,
        waker: &Waker,
    ) -> Option<Arc<GivenBack>> {
        let new = || Arc::new(GivenBack { is_so: AtomicBool::new(false), waker: waker.clone() });
        let (began, until, given_back) = match self.wait.take() {
            Some(wait) if wait.given_back.waker.will_wake(waker) => (wait.began, wait.until, wait.given_back),
            Some(wait) => (wait.began, wait.until, new()),
            None => (now, now.saturating_add(resource.patience(self.bytes)), new()),
        };
        given_back.is_so.store(false, Ordering::Release);
        let again = now.saturating_add(now.saturating_sub(began).max(FIRST_AGAIN)).min(until);
        self.wait = Some(Wait { began, until, again, given_back: Arc::clone(&given_back) });
        (now < until).then_some(given_back)
    }

    /// When to poll again at the latest, by the clock of [`Reservation::poll`].
    pub fn due(&self) -> Option<Duration> {
        self.wait.as_ref().filter(|_| !self.is_postponed).map(|wait| wait.again)
    }
}

/// Calls a resource of the program and catches its panic, which would end the progress thread.
fn without_panic(
    asked: usize,
    give: impl FnOnce() -> Result<Buffer, MemoryError>,
) -> Result<Buffer, MemoryError> {
    let panicked = |_| Err(MemoryError::Faulty { asked, why: "it panicked".to_owned() });
    catch_unwind(AssertUnwindSafe(give)).unwrap_or_else(panicked)?.checked(asked)
}
