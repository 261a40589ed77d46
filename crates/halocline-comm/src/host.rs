//! Clock, park and wake behind one trait: a test can run ranks, progress threads and waits under a scheduler of its own.

use crate::sync::AtomicU32;
use std::io::Write;
use std::thread::JoinHandle;
use std::time::Duration;

/// The services that a wait needs of the machine.
///
/// ```
/// use halocline_comm::{CommError, Communicator, Host, System};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
/// use std::time::Duration;
///
/// /// A host for a program that can ask its waits to end, for example after Ctrl-C.
/// #[derive(Default)]
/// struct Stoppable {
///     stop: AtomicBool,
/// }
///
/// impl Host for Stoppable {
///     fn now(&self) -> Duration {
///         System.now()
///     }
///
///     fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
///         System.park(word, expected, timeout);
///     }
///
///     fn wake(&self, word: &AtomicU32) {
///         System.wake(word);
///     }
///
///     fn asks_after(&self) -> Option<Duration> {
///         Some(Duration::from_millis(1))
///     }
///
///     fn is_interrupted(&self) -> bool {
///         self.stop.load(Ordering::Relaxed)
///     }
/// }
///
/// let host = Arc::new(Stoppable::default());
/// let ranks = Communicator::threads_on(2, host.clone());
/// host.stop.store(true, Ordering::Relaxed);
/// // Rank 1 makes no call.
/// assert!(matches!(ranks[0].barrier(), Err(CommError::Interrupted { waiting: 0, .. })));
/// ```
pub trait Host: Send + Sync {
    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;

    /// Sleeps while `word` holds `expected`, until a [`Host::wake`] of the same word or the timeout.
    /// May return early for no reason. Never sleeps if `word` has another value on entry.
    fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>);

    /// Wakes all threads parked on `word`, in every process that maps it.
    fn wake(&self, word: &AtomicU32);

    /// How many cores this thread may run on.
    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Yields this core to other threads.
    fn yield_now(&self) {
        std::thread::yield_now();
    }

    /// A pause of a few nanoseconds between two polls of a flag.
    fn pause(&self) {
        std::hint::spin_loop();
    }

    /// Starts a thread of the library.
    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name).spawn(body)
    }

    /// The interval at which a wait calls [`Host::is_interrupted`]; `None`: never.
    fn asks_after(&self) -> Option<Duration> {
        None
    }

    /// Whether the wait of this thread is to end with [`crate::CommError::Interrupted`].
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Reports that a wait takes long; `again`: not for the first time. By default through `tracing`; if the program has no
    /// subscriber, once on standard error, so that a program that hangs is not silent.
    fn tell_late(&self, text: &str, again: bool) {
        if tracing::dispatcher::has_been_set() {
            tracing::warn!("{text}");
        } else if !again {
            // Standard error may be closed.
            let _ = std::io::stderr().write_all(format!("halocline: {text}\n").as_bytes());
        }
    }

    /// Waits for the end of a thread that [`Host::spawn`] started.
    fn join(&self, thread: JoinHandle<()>) -> std::thread::Result<()> {
        thread.join()
    }
}

/// The machine itself: the monotonic clock and futexes that work across processes.
///
/// ```
/// use halocline_comm::{CommError, Communicator, Host, System};
/// use std::sync::Arc;
///
/// // The host of all communicators that name none.
/// let comm = Communicator::threads_on(1, Arc::new(System)).remove(0);
/// let begin = System.now();
/// comm.barrier()?;
/// assert!(System.now() >= begin);
/// # Ok::<(), CommError>(())
/// ```
#[cfg(not(loom))]
#[derive(Debug, Default, Clone, Copy)]
pub struct System;

#[cfg(not(loom))]
impl Host for System {
    fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        use rustix::thread::futex::{Flags, Timespec, wait};
        let timeout =
            timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
        // On every outcome (woken, value changed, interrupted, timed out) the caller checks again.
        let _ = wait(word, Flags::empty(), expected, timeout.as_ref());
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name).spawn(|| {
            // The kernel may delay a wake-up by the timer slack, 50 us by default: longer than this thread sleeps.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1000));
            body();
        })
    }

    fn wake(&self, word: &AtomicU32) {
        use rustix::thread::futex::{Flags, wake};
        // Fails only for an invalid address, which a reference excludes.
        let _ = wake(word, Flags::empty(), i32::MAX as u32);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::process::Command;

    /// Tells the test binary, started by this test, how to set up tracing.
    const VARIABLE: &str = "HALOCLINE_TEST_TELLS";

    /// Standard error of a process that reports a late wait.
    fn reported(how: &str) -> String {
        let name = "host::tests::a_late_wait_is_reported_once_on_standard_error_without_a_subscriber";
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", name, "--nocapture", "--quiet"]).env(VARIABLE, how);
        let output = process.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    #[test]
    fn a_late_wait_is_reported_once_on_standard_error_without_a_subscriber() {
        if let Ok(how) = std::env::var(VARIABLE) {
            if how == "subscribed" {
                let none = tracing::subscriber::NoSubscriber::default();
                tracing::subscriber::set_global_default(none).unwrap();
            }
            [false, true, true].into_iter().for_each(|again| System.tell_late("rank 0 has waited", again));
            return;
        }
        assert_eq!(reported("alone"), "halocline: rank 0 has waited\n");
        assert_eq!(reported("subscribed"), "");
    }
}
