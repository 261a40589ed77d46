//! Waits of Python threads. Ctrl-C and closing a communicator end them.

use crate::error;
use halocline::comm::{Host, System};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// How often a wait checks for Python's signals.
pub(crate) const ASKS_AFTER: Duration = Duration::from_millis(50);

thread_local! {
    /// The exception that a signal handler raised during a wait of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// The departure state of the rank that calls of this thread act for.
    static WAITS_FOR: RefCell<Option<DepartureRef>> = const { RefCell::new(None) };
}

/// Shared departure state of a rank.
pub(crate) type DepartureRef = Arc<Departure>;

/// Whether and how a rank of this process has left its group. The first cause stays.
#[derive(Debug, Default)]
pub(crate) struct Departure(AtomicU8);

impl Departure {
    const HERE: u8 = 0;
    const CLOSED: u8 = 1;
    const INTERRUPTED: u8 = 2;

    pub(crate) fn close(&self) {
        self.leave(Self::CLOSED);
    }

    /// Later calls of the rank raise `KeyboardInterrupt`.
    pub(crate) fn interrupt(&self) {
        self.leave(Self::INTERRUPTED);
    }

    fn leave(&self, cause: u8) {
        // Fails if the rank has left already: the first cause stays.
        let _ = self.0.compare_exchange(Self::HERE, cause, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The exception for calls of a rank that has left.
    pub(crate) fn error(&self) -> Option<PyErr> {
        match self.0.load(Ordering::Relaxed) {
            Self::HERE => None,
            Self::CLOSED => Some(error::closed(CLOSED)),
            _ => Some(PyKeyboardInterrupt::new_err("the ranks were interrupted")),
        }
    }
}

/// The text of `ClosedError`.
pub(crate) const CLOSED: &str = "the communicator was closed";

/// Makes later waits of this thread end when the rank leaves.
#[inline]
pub(crate) fn set_awaited_rank(left: &DepartureRef) {
    WAITS_FOR.with_borrow_mut(|waits_for| match waits_for {
        Some(known) if Arc::ptr_eq(known, left) => {}
        other => *other = Some(DepartureRef::clone(left)),
    });
}

pub(crate) fn clear_awaited_rank() {
    WAITS_FOR.set(None);
}

fn has_left() -> bool {
    WAITS_FOR.with_borrow(|left| {
        left.as_ref().is_some_and(|left| left.0.load(Ordering::Relaxed) != Departure::HERE)
    })
}

/// `KeyboardInterrupt`, if the rank that this thread waits for was interrupted.
fn raised_by_interrupt() -> Option<PyErr> {
    WAITS_FOR.with_borrow(|left| {
        left.as_ref().filter(|left| left.0.load(Ordering::Relaxed) == Departure::INTERRUPTED)?.error()
    })
}

/// The system host; its waits check for Python's signals.
#[derive(Debug)]
pub(crate) struct PythonHost;

impl Host for PythonHost {
    fn now(&self) -> Duration {
        System.now()
    }

    fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        System.park(word, expected, timeout);
    }

    fn wake(&self, word: &AtomicU32) {
        System.wake(word);
    }

    fn asks_after(&self) -> Option<Duration> {
        Some(ASKS_AFTER)
    }

    fn is_interrupted(&self) -> bool {
        if has_left() {
            return true;
        }
        // A handler may call the package, and wait for another rank or close this one.
        let waits_for = WAITS_FOR.take();
        let raised = raised_by_signal();
        WAITS_FOR.set(waits_for);
        if raised.is_some() {
            RAISED.set(raised);
            return true;
        }
        has_left()
    }
}

/// A host whose clock runs faster, for tests of the warnings after long waits.
#[derive(Debug)]
pub(crate) struct FastClock {
    pub(crate) speed: u32,
}

impl Host for FastClock {
    fn now(&self) -> Duration {
        PythonHost.now() * self.speed
    }

    fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        PythonHost.park(word, expected, timeout.map(|timeout| timeout / self.speed));
    }

    fn wake(&self, word: &AtomicU32) {
        PythonHost.wake(word);
    }

    fn asks_after(&self) -> Option<Duration> {
        PythonHost.asks_after()
    }

    fn is_interrupted(&self) -> bool {
        PythonHost.is_interrupted()
    }
}

/// Whether this is the thread in which Python runs signal handlers: the main thread, or in a forked child the thread that forked.
fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Runs the handlers of signals that have arrived, and returns what they raise.
fn raised_by_signal() -> Option<PyErr> {
    if !is_main_thread() {
        return None;
    }
    Python::attach(|py| py.check_signals().err())
}

/// How much later than the news that a peer has left a signal for the whole job may come, and its exception still replaces the error.
/// A launcher signals one rank after the other, so a peer may leave before this rank is signalled. A later signal is one like any other.
const SIGNAL_GRACE: Duration = Duration::from_millis(200);

/// Waits up to [`SIGNAL_GRACE`] for a signal, without the GIL, and returns what its handler raises. Only in Python's main thread, which runs
/// the handlers.
pub(crate) fn raised_within_grace() -> Option<PyErr> {
    if !is_main_thread() {
        return None;
    }
    let until = System.now() + SIGNAL_GRACE;
    loop {
        let left = until.saturating_sub(System.now());
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        // Ends at once when this thread receives a signal.
        let slept = Python::attach(|py| py.detach(|| rustix::event::poll(&mut [], Some(&timeout))));
        let raised = raised_by_signal();
        if raised.is_some() || left.is_zero() || slept.is_ok() {
            return raised;
        }
    }
}

/// The exception for an interrupted wait of this thread.
pub(crate) fn interruption() -> PyErr {
    if let Some(raised) = RAISED.take() {
        return raised;
    }
    let left = WAITS_FOR.with_borrow(|left| left.as_ref().and_then(|left| left.error()));
    if left.is_some() {
        // Drops that follow in this thread may wait.
        clear_awaited_rank();
    }
    left.unwrap_or_else(|| PyKeyboardInterrupt::new_err("the wait was interrupted"))
}

/// The exception for calls of the rank that this thread waits for, if it has left. An operation may fail first because of that.
pub(crate) fn departure() -> Option<PyErr> {
    WAITS_FOR.with_borrow(|left| left.as_ref()?.error())
}

/// The exception that replaces any error of the library: of a signal handler, or of an interrupted thread group.
pub(crate) fn raised_first() -> Option<PyErr> {
    raised_by_signal().or_else(raised_by_interrupt)
}
