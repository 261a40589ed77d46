//! The wrapper of each exported function: the guards against forked children, calls from callbacks, and unwinding.

use crate::pointer::OutPtr;
use crate::status::{Refusal, Status, record};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Set in a forked child of a process that had objects.
const FORKED: u32 = 1 << 31;

/// [`FORKED`], and the number of callbacks of the program that run now. Calls look at more only if it is not 0.
static GUARD: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread runs a callback of the program.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs the body of an exported function.
#[inline(always)]
pub(crate) fn call(body: impl FnOnce() -> Result<(), Refusal>) -> Status {
    if GUARD.load(Ordering::Relaxed) != 0
        && let Err(refusal) = check()
    {
        return record(&refusal);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::OK,
        Ok(Err(refusal)) => record(&refusal),
        Err(panic) => panicked(panic),
    }
}

/// Runs the body of an exported function that has one result, and stores it. The place of the result is checked first.
#[inline(always)]
pub(crate) fn call_for<T>(
    out: OutPtr<'_, T>,
    name: &'static str,
    body: impl FnOnce() -> Result<T, Refusal>,
) -> Status {
    call(|| {
        let place = out.checked(name)?;
        place.set(body()?);
        Ok(())
    })
}

#[cold]
fn check() -> Result<(), Refusal> {
    if GUARD.load(Ordering::Relaxed) & FORKED != 0 {
        return Err(Refusal::new(
            Status::FORKED,
            "this process is a forked child of a process that uses Halocline: the library's threads and connections belong \
             to the parent; call exec in the child, or fork before the first call that makes an object",
        ));
    }
    if IN_CALLBACK.get() {
        return Err(Refusal::new(
            Status::CALLBACK,
            "a callback called the library, which may hold locks meanwhile; make the call after the callback has returned",
        ));
    }
    Ok(())
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> Status {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a text".to_owned(),
    };
    // The payload's own drop could unwind.
    std::mem::forget(panic);
    record(&Refusal::new(
        Status::INTERNAL,
        format!("an assertion of the library failed: {text}; this is a bug of Halocline, please report it"),
    ))
}

/// Runs a callback of the program. Calls of the library within it are refused.
pub(crate) fn callback<R>(run: impl FnOnce() -> R) -> R {
    struct Within(bool);
    impl Drop for Within {
        fn drop(&mut self) {
            // A thread that ends may have dropped its flag.
            let _ = IN_CALLBACK.try_with(|within| within.set(self.0));
            GUARD.fetch_sub(1, Ordering::Relaxed);
        }
    }
    GUARD.fetch_add(1, Ordering::Relaxed);
    let _within = Within(IN_CALLBACK.try_with(|within| within.replace(true)).unwrap_or(false));
    run()
}

/// Makes all calls of later forked children fail. Called when the first object is made.
pub(crate) fn watch_forks() {
    static WATCH: Once = Once::new();
    extern "C" fn in_child() {
        GUARD.fetch_or(FORKED, Ordering::Relaxed);
    }
    WATCH.call_once(|| {
        // SAFETY: the handler does one atomic operation, which is allowed after a fork, and stays valid: the library is
        // linked so that it is never unloaded (`-z nodelete`). If memory for the registration is missing, forks stay unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::halocline_error_message;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: the message is a string that stays until the next call of this thread that fails.
        unsafe { CStr::from_ptr(halocline_error_message()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_is_a_status_and_a_message() {
        let status = call(|| panic!("the answer is {}", 42));
        assert_eq!(status, Status::INTERNAL);
        assert!(message().contains("the answer is 42"), "{}", message());
    }

    #[test]
    fn a_callback_that_calls_the_library_gets_an_error_and_other_threads_do_not() {
        let (within, beside) = callback(|| {
            let beside = std::thread::spawn(|| call(|| Ok(()))).join().unwrap();
            (call(|| Ok(())), beside)
        });
        assert_eq!((within, beside), (Status::CALLBACK, Status::OK));
        assert!(message().contains("callback"), "{}", message());
        assert_eq!(call(|| Ok(())), Status::OK);
    }

    #[test]
    fn a_message_belongs_to_its_thread() {
        call(|| Err(Refusal::argument("of this thread")));
        std::thread::spawn(|| {
            assert_eq!(message(), "");
            call(|| Err(Refusal::argument("of the other thread")));
        })
        .join()
        .unwrap();
        assert_eq!(message(), "of this thread");
    }
}
