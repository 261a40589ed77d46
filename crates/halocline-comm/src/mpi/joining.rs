//! Communicators of our own that are being made. That waits for the last rank, for as long as it takes. A thread that is wanted back
//! before leaves it; it goes on, and is taken up by the next join over the same communicator.

use super::abi::Abi;
use super::error::MpiError;
use super::ffi::Api;
use crate::error::CommError;
use crate::host::Host;
use crate::sync::AtomicU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Who waits gives way to others for so long,
const YIELD: Duration = Duration::from_micros(500);
/// then sleeps so long between two looks: first, and at most.
const NAP: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// What was left before it ended, by the communicator.
pub(super) struct Joining<A: Abi>(Mutex<Vec<(A::Handle, Duplicates<A>)>>);

/// Duplicates of one communicator, made one after the other.
struct Duplicates<A: Abi> {
    made: Vec<A::Handle>,
    begun: Option<Begun<A>>,
}

/// One that is being made: MPI writes its handle to where it is, until the request is done.
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
    /// MPI is up, `comm` a communicator of it.
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
            // SAFETY: by our caller.
            if !unsafe { duplicates.next(api, comm, host)? } {
                lock().push((comm, duplicates));
                // SAFETY: by our caller.
                let (waiting, _) = unsafe { api.place(comm)? };
                let what = "the ranks of its MPI communicator".to_owned();
                return Err(CommError::Interrupted { waiting, what });
            }
        }
    }
}

impl<A: Abi> Duplicates<A> {
    /// Makes one more. False: the thread is wanted back.
    ///
    /// # Safety
    /// As for [`Joining::duplicate_twice`].
    unsafe fn next(&mut self, api: &Api<A>, comm: A::Handle, host: &dyn Host) -> Result<bool, MpiError> {
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => {
                let mut duplicate = Box::new(comm);
                // SAFETY: by our caller; the handle's place stays until the request is done.
                let request = unsafe { api.begin_duplicate(comm, &mut duplicate)? };
                Begun { duplicate, request }
            }
        };
        let (start, mut nap) = (host.now(), NAP.0);
        let asks_after = host.asks_after().unwrap_or(Duration::MAX);
        let mut ask_at = asks_after;
        loop {
            // SAFETY: by our caller; the request is not done yet.
            match unsafe { api.is_done(&mut begun.request) } {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    // MPI may still write there.
                    Box::leak(begun.duplicate);
                    return Err(error);
                }
            }
            let waited = host.now().saturating_sub(start);
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
                host.park(&AtomicU32::new(0), 0, Some(nap));
                nap = NAP.1.min(2 * nap);
            }
        }
        // SAFETY: by our caller; it was made just now.
        unsafe { api.return_errors(*begun.duplicate)? };
        self.made.push(*begun.duplicate);
        Ok(true)
    }
}
