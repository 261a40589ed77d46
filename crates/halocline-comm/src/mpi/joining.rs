//! Duplicates communicators without blocking the thread in MPI: the duplication waits for the last rank. An interrupted thread
//! leaves it pending, and the next join over the same communicator continues it.

use super::abi::Abi;
use super::error::MpiError;
use super::ffi::Api;
use super::runtime::keep_up;
use crate::error::CommError;
use crate::host::Host;
use crate::sync::AtomicU32;
use crate::wait::WARN_AFTER;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A waiting thread yields its core for this long before it sleeps.
const YIELD: Duration = Duration::from_micros(500);
/// The first and the longest sleep between two polls.
const SLEEP: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// Pending duplications, by the communicator.
pub(super) struct Joining<A: Abi>(Mutex<Vec<(A::Handle, Duplicates<A>)>>);

/// Duplicates of one communicator, made one after the other.
struct Duplicates<A: Abi> {
    made: Vec<A::Handle>,
    begun: Option<Begun<A>>,
}

/// A pending duplicate: MPI may write its handle until the request is done.
struct Begun<A: Abi> {
    duplicate: Box<A::Handle>,
    request: A::Handle,
}

impl<A: Abi> Joining<A> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Two duplicates of a communicator, whose errors are returned, not fatal. Collective, waits for all ranks.
    ///
    /// # Safety
    /// MPI is initialised, the program does not finalise it meanwhile, and its thread level lets this thread call it. `comm`
    /// is a communicator of it.
    pub(super) unsafe fn duplicate_twice(
        &self,
        api: &Api<A>,
        comm: A::Handle,
        host: &dyn Host,
    ) -> Result<[A::Handle; 2], CommError> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = {
            let mut left = lock();
            let at = left.iter().position(|(of, _)| *of == comm);
            at.map(|at| left.swap_remove(at).1)
        };
        let mut duplicates = left.unwrap_or(Duplicates { made: Vec::new(), begun: None });
        loop {
            if let [first, second] = duplicates.made[..] {
                return Ok([first, second]);
            }
            // SAFETY: the caller promises that MPI is initialised, that the program does not finalise it meanwhile, that this
            // thread may call it, and that `comm` is a communicator of it.
            if !unsafe { duplicates.next(api, comm, host)? } {
                lock().push((comm, duplicates));
                let _kept_up = keep_up(api)?;
                // SAFETY: MPI is up: `keep_up` keeps this library from finalising it, and the caller promises that the program
                // does not, that this thread may call it, and that `comm` is a communicator of it.
                let (waiting, _) = unsafe { api.place(comm)? };
                let what = "the ranks of its MPI communicator".to_owned();
                return Err(CommError::Interrupted { waiting, what });
            }
        }
    }
}

impl<A: Abi> Duplicates<A> {
    /// Makes one more. False: the host interrupts the wait.
    ///
    /// # Safety
    /// MPI is initialised, the program does not finalise it meanwhile, and its thread level lets this thread call it. `comm`
    /// is a communicator of it, the same one at each call.
    unsafe fn next(&mut self, api: &Api<A>, comm: A::Handle, host: &dyn Host) -> Result<bool, MpiError> {
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => {
                let mut duplicate = Box::new(comm);
                let _kept_up = keep_up(api)?;
                // SAFETY: MPI is up: `keep_up` keeps this library from finalising it, and the caller promises that the program
                // does not, that this thread may call it, and that `comm` is a communicator of it. `Begun` keeps the handle
                // in its box until the request is done; where that fails, the box is leaked.
                let request = unsafe { api.begin_duplicate(comm, &mut duplicate)? };
                Begun { duplicate, request }
            }
        };
        let (start, mut interval) = (host.now(), SLEEP.0);
        let asks_after = host.asks_after().unwrap_or(Duration::MAX);
        let (mut ask_at, mut warn_at) = (asks_after, WARN_AFTER);
        loop {
            // SAFETY: MPI is up: `keep_up` keeps this library from finalising it, and the caller promises that the program does
            // not and that this thread may call it. The request was not done before: one that is done ends the loop.
            match keep_up(api).and_then(|_kept_up| unsafe { api.is_done(&mut begun.request) }) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    // MPI may still write there.
                    Box::leak(begun.duplicate);
                    return Err(error);
                }
            }
            let waited = host.now().saturating_sub(start);
            if waited >= warn_at {
                let text =
                    format!("init has waited {} s for a rank that has not called it", waited.as_secs());
                host.tell_late(&text, warn_at > WARN_AFTER);
                warn_at += WARN_AFTER;
            }
            if waited >= ask_at {
                ask_at = waited + asks_after;
                if host.is_interrupted() {
                    self.begun = Some(begun);
                    return Ok(false);
                }
            }
            if waited < YIELD {
                host.yield_now();
            } else {
                host.park(&AtomicU32::new(0), 0, Some(interval));
                interval = SLEEP.1.min(2 * interval);
            }
        }
        let _kept_up = keep_up(api)?;
        // SAFETY: MPI is up: `keep_up` keeps this library from finalising it, and the caller promises that the program does not
        // and that this thread may call it. The duplicate is a communicator: its request is done.
        unsafe { api.return_errors(*begun.duplicate)? };
        self.made.push(*begun.duplicate);
        Ok(true)
    }
}
