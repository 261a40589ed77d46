//! Waits of threads of Python: Ctrl-C ends them.

use crate::error;
use halocline::comm::{Host, System};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// How long a signal may go unnoticed.
pub(crate) const ASKS_AFTER: Duration = Duration::from_millis(50);

thread_local! {
    /// What a signal handler of Python has raised during a wait of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// What this thread waits for, if it waits.
    static WAITS_FOR: RefCell<Option<Left>> = const { RefCell::new(None) };
}

/// Whether a rank has left its group.
pub(crate) type Left = Arc<Leaving>;

/// How a rank has left its group, if it has: the first cause stays.
#[derive(Debug, Default)]
pub(crate) struct Leaving(AtomicU8);

impl Leaving {
    const HERE: u8 = 0;
    const CLOSED: u8 = 1;
    const INTERRUPTED: u8 = 2;

    pub(crate) fn close(&self) {
        self.leave(Self::CLOSED);
    }

    /// What the rank calls from now on raises `KeyboardInterrupt`.
    pub(crate) fn interrupt(&self) {
        self.leave(Self::INTERRUPTED);
    }

    fn leave(&self, cause: u8) {
        // One that has left already stays as it is.
        let _ = self.0.compare_exchange(Self::HERE, cause, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// What a call of a rank that has left raises.
    pub(crate) fn error(&self) -> Option<PyErr> {
        match self.0.load(Ordering::Relaxed) {
            Self::HERE => None,
            Self::CLOSED => Some(error::closed(CLOSED)),
            _ => Some(PyKeyboardInterrupt::new_err("the ranks were interrupted")),
        }
    }
}

/// What whoever uses something of a rank that has left is told.
pub(crate) const CLOSED: &str = "the communicator was closed";

/// From now on waits of this thread end when this rank leaves.
#[inline]
pub(crate) fn waits_for(left: &Left) {
    WAITS_FOR.with_borrow_mut(|waits_for| match waits_for {
        Some(known) if Arc::ptr_eq(known, left) => {}
        other => *other = Some(Left::clone(left)),
    });
}

pub(crate) fn waits_for_nobody() {
    WAITS_FOR.set(None);
}

fn has_left() -> bool {
    WAITS_FOR
        .with_borrow(|left| left.as_ref().is_some_and(|left| left.0.load(Ordering::Relaxed) != Leaving::HERE))
}

/// `KeyboardInterrupt`, if the rank that this thread waits for was interrupted.
fn raised_by_interrupt() -> Option<PyErr> {
    WAITS_FOR.with_borrow(|left| {
        left.as_ref().filter(|left| left.0.load(Ordering::Relaxed) == Leaving::INTERRUPTED)?.error()
    })
}

/// The machine, whose waits ask for Python's signals.
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
        // A handler may call the package: then this thread waits for something else, or closes what it waits for here.
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

/// The machine with a clock that runs faster, for tests of what people are told after long waits.
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

/// Runs the handlers of signals that have arrived, and returns what they raise. Python runs them in its main thread alone; in a
/// forked child that is the thread that forked.
fn raised_by_signal() -> Option<PyErr> {
    match rustix::thread::gettid() == rustix::process::getpid() {
        true => Python::attach(|py| py.check_signals().err()),
        false => None,
    }
}

/// How long a signal for the whole job may come after the news that another rank has gone by it.
const SIGNALS_WITHIN: Duration = Duration::from_millis(200);

/// What a signal handler raises within [`SIGNALS_WITHIN`]. Blocks as long, in Python's main thread, without the GIL.
pub(crate) fn raised_soon() -> Option<PyErr> {
    if rustix::thread::gettid() != rustix::process::getpid() {
        return None;
    }
    let until = System.now() + SIGNALS_WITHIN;
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

/// What ended a wait of this thread that was interrupted.
pub(crate) fn interruption() -> PyErr {
    if let Some(raised) = RAISED.take() {
        return raised;
    }
    let left = WAITS_FOR.with_borrow(|left| left.as_ref().and_then(|left| left.error()));
    if left.is_some() {
        // What this thread drops now waits for others.
        waits_for_nobody();
    }
    left.unwrap_or_else(|| PyKeyboardInterrupt::new_err("the wait was interrupted"))
}

/// What comes before any error of the library: what a signal handler raises, and the interrupt of the ranks.
pub(crate) fn raised_first() -> Option<PyErr> {
    raised_by_signal().or_else(raised_by_interrupt)
}
