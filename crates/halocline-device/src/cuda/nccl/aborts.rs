//! Aborts of communicators. `ncclCommAbort` returns once NCCL's threads have freed what they share with other ranks, which may take until
//! those end theirs. So each has a thread of its own. Only the end of the process waits for them: it takes CUDA's runtime away, and a
//! thread of NCCL that then still frees memory ends the process by a segmentation fault.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// The longest wait at the end of the process: another rank may hang.
const LONGEST: Duration = Duration::from_secs(10);

/// The number of aborts that have not returned.
static RUNNING: Mutex<usize> = Mutex::new(0);
static RETURNED: Condvar = Condvar::new();
/// The process that has begun them: a forked child has none of its threads.
static OWNER: OnceLock<u32> = OnceLock::new();

fn running() -> MutexGuard<'static, usize> {
    // A number is always whole.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the call of an abort, on a thread of its own if there can be one.
pub(super) fn run(abort: impl FnOnce() + Clone + Send + 'static) {
    OWNER.get_or_init(|| {
        // What is registered last runs first: NCCL, which is loaded, has registered its own before.
        // SAFETY: the function takes no arguments and does not unwind. Where it cannot be registered, the end of the process does not wait.
        unsafe { libc::atexit(wait_for_all) };
        std::process::id()
    });
    *running() += 1;
    let call = move || {
        abort();
        *running() -= 1;
        RETURNED.notify_all();
    };
    if let Err(error) = thread::Builder::new().name("halocline-abort".to_owned()).spawn(call.clone()) {
        tracing::debug!("ncclCommAbort blocks, since there is no thread for it: {error}");
        call();
    }
}

extern "C" fn wait_for_all() {
    if OWNER.get() != Some(&std::process::id()) {
        return;
    }
    // Whether or not all have returned, the process ends.
    drop(RETURNED.wait_timeout_while(running(), LONGEST, |running| *running > 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_end_waits_for_aborts_that_run() {
        let (proceed, may_proceed) = mpsc::channel::<()>();
        let may_proceed = std::sync::Arc::new(Mutex::new(may_proceed));
        let (ended, has_ended) = mpsc::channel();
        let end = ended.clone();
        run(move || {
            may_proceed.lock().unwrap().recv().unwrap();
            end.send("abort").unwrap();
        });
        let end = thread::spawn(move || {
            wait_for_all();
            ended.send("process").unwrap();
        });
        proceed.send(()).unwrap();
        assert_eq!([has_ended.recv(), has_ended.recv()], [Ok("abort"), Ok("process")]);
        end.join().unwrap();
    }
}
