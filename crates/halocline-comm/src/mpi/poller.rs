//! The thread that polls MPI while no call of the program does, so that messages progress while the rank
//! computes.

use super::Shared;
use crate::error::CommError;
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Pauses between two polls: short after an arrival, longer when nothing arrives. A waiting thread polls
/// itself.
const SHORT: Duration = Duration::from_micros(50);
const LONG: Duration = Duration::from_millis(2);

/// The running thread.
pub(super) struct Poller {
    shared: Arc<Shared>,
    stop: Arc<AtomicU32>,
    thread: JoinHandle<()>,
}

impl Poller {
    /// Starts it.
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self, CommError> {
        let stop = Arc::new(AtomicU32::new(0));
        let (theirs, until) = (Arc::clone(&shared), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("halocline-mpi".into());
        let thread = thread.spawn(move || run(&theirs, &until)).map_err(|error| CommError::System {
            what: "start its thread",
            errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
        })?;
        Ok(Self { shared, stop, thread })
    }

    /// Ends it.
    pub(super) fn stop(self) {
        self.stop.store(1, Ordering::Release);
        self.shared.host.wake(&self.stop);
        // The last holder of a communicator may be the progress thread, but never this one.
        // A panic of the thread was printed when it happened.
        let _ = self.thread.join();
    }
}

fn run(shared: &Shared, stop: &AtomicU32) {
    let mut pause = SHORT;
    while stop.load(Ordering::Acquire) == 0 && shared.fault.get().is_none() {
        pause = if shared.poll() { SHORT } else { LONG.min(2 * pause) };
        shared.host.park(stop, 0, Some(pause));
    }
}
