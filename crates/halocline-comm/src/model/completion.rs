//! The completion of an operation: a callback is called exactly once, and a task that stays is woken, whatever happens at the
//! same time.

use super::check;
use crate::{Awaiting, Completion};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use std::task::{Poll, Wake, Waker};

/// Counts what it was called with.
#[derive(Default)]
struct Calls(AtomicU32);

fn call(calls: &Arc<Calls>) -> impl FnOnce(u32) + Send + 'static {
    let calls = Arc::clone(calls);
    move |outcome| {
        calls.0.fetch_add(outcome, Ordering::Relaxed);
    }
}

/// A success and a failure race, and a callback is registered meanwhile.
#[test]
fn a_callback_is_called_once_with_the_first_outcome() {
    check(|| {
        let shared = Arc::new((Completion::<u32>::default(), Arc::new(Calls::default())));
        let completes = |outcome| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.0.complete(outcome))
        };
        let (one, other) = (completes(1), completes(16));
        let (completion, calls) = &*shared;
        completion.on_completion(call(calls));
        let (one, other) = (one.join().unwrap(), other.join().unwrap());
        assert!(one != other, "one of them is the first");
        let outcome = if one { 1 } else { 16 };
        assert_eq!((completion.outcome(), calls.0.load(Ordering::Relaxed)), (Some(outcome), outcome));
    });
}

struct Woken(std::sync::Arc<AtomicU32>);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task polls and gives up while the operation completes: it has the outcome, or was woken, or has left in time.
#[test]
fn a_task_that_waits_is_woken_and_one_that_leaves_loses_nothing() {
    check(|| {
        let completion = Arc::new(Completion::<u32>::default());
        let completes = {
            let completion = Arc::clone(&completion);
            thread::spawn(move || assert!(completion.complete(7)))
        };
        let woken = std::sync::Arc::new(AtomicU32::new(0));
        let waker = Waker::from(std::sync::Arc::new(Woken(std::sync::Arc::clone(&woken))));
        let (mut stays, mut leaves) = (Awaiting::default(), Awaiting::default());
        let polled = completion.poll(&mut stays, &waker);
        let _ = completion.poll(&mut leaves, Waker::noop());
        completion.leave(&mut leaves);
        completes.join().unwrap();
        let times = woken.load(Ordering::Relaxed);
        assert_eq!(times, if polled == Poll::Pending { 1 } else { 0 });
        assert_eq!(completion.poll(&mut stays, &waker), Poll::Ready(7));
    });
}
