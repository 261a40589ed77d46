//! The completion of an operation: its outcome, given once, to callbacks and tasks.

use crate::sync::Mutex;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::{Poll, Waker};

/// A function that gets the outcome of an operation.
type Callback<O> = Box<dyn FnOnce(O) + Send>;

/// The outcome of one operation, and its callbacks and wakers. The first outcome counts.
///
/// Each callback is called exactly once, outside of any lock: by the thread that completes the operation, or at once if the
/// operation is complete already. A panic in one of them, or of an executor, is logged: the others are called all the same.
pub struct Completion<O> {
    state: Mutex<State<O>>,
}

struct State<O> {
    outcome: Option<O>,
    callbacks: Vec<Callback<O>>,
    tasks: Vec<Task>,
    entered: u64,
}

struct Task {
    number: u64,
    waker: Waker,
}

/// A task's place among those that wait. [`Completion::leave`] gives it back.
#[derive(Debug, Default)]
pub struct Awaiting(Option<u64>);

impl Awaiting {
    /// Whether the task waits.
    pub fn is_entered(&self) -> bool {
        self.0.is_some()
    }
}

impl<O> Default for Completion<O> {
    fn default() -> Self {
        let state = State { outcome: None, callbacks: Vec::new(), tasks: Vec::new(), entered: 0 };
        Self { state: Mutex::new(state) }
    }
}

impl<O: fmt::Debug + Clone> fmt::Debug for Completion<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.outcome()).finish()
    }
}

impl<O: Clone> Completion<O> {
    /// Completes the operation, calls the callbacks and wakes the tasks. False, and nothing happens, if it was complete.
    pub fn complete(&self, outcome: O) -> bool {
        let (callbacks, tasks) = {
            let mut state = self.lock();
            if state.outcome.is_some() {
                return false;
            }
            state.outcome = Some(outcome.clone());
            (std::mem::take(&mut state.callbacks), std::mem::take(&mut state.tasks))
        };
        tasks.into_iter().for_each(|task| logged(|| task.waker.wake()));
        callbacks.into_iter().for_each(|callback| logged(|| callback(outcome.clone())));
        true
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<O> {
        self.lock().outcome.clone()
    }

    /// Calls `callback` with the outcome: once it is there, or now.
    pub fn on_completion(&self, callback: impl FnOnce(O) + Send + 'static) {
        let outcome = {
            let mut state = self.lock();
            match state.outcome.clone() {
                Some(outcome) => outcome,
                None => return state.callbacks.push(Box::new(callback)),
            }
        };
        logged(|| callback(outcome));
    }

    /// The outcome, or the task is woken once it is there.
    pub fn poll(&self, awaiting: &mut Awaiting, waker: &Waker) -> Poll<O> {
        // Wakers are code of the program: cloned and dropped outside of the lock.
        let waker = waker.clone();
        let _former = {
            let mut state = self.lock();
            if let Some(outcome) = &state.outcome {
                awaiting.0 = None;
                return Poll::Ready(outcome.clone());
            }
            let entered = awaiting.0.and_then(|number| state.tasks.iter().position(|t| t.number == number));
            match entered {
                Some(at) => Some(std::mem::replace(&mut state.tasks[at].waker, waker)),
                None => {
                    let number = state.entered;
                    state.entered += 1;
                    state.tasks.push(Task { number, waker });
                    awaiting.0 = Some(number);
                    None
                }
            }
        };
        Poll::Pending
    }

    /// Whether a task waits.
    pub fn is_awaited(&self) -> bool {
        !self.lock().tasks.is_empty()
    }

    /// Whether a task waits, or a callback.
    pub fn is_wanted(&self) -> bool {
        let state = self.lock();
        !state.tasks.is_empty() || !state.callbacks.is_empty()
    }

    /// The task waits no more. The operation goes on.
    pub fn leave(&self, awaiting: &mut Awaiting) {
        let Some(number) = awaiting.0.take() else { return };
        let _left = {
            let mut state = self.lock();
            let at = state.tasks.iter().position(|task| task.number == number);
            at.map(|at| state.tasks.swap_remove(at))
        };
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = State<O>> {
        // No code of the program runs while it is held: the state is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls code of the program. Its panic would end the thread of the library that completes the operation.
fn logged(call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("a callback of an operation, or the waker of its task, has panicked");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_outcome_reaches_callbacks_and_tasks_once() {
        let (completion, woken, called) =
            (Completion::default(), Arc::<Count>::default(), Arc::<Count>::default());
        let call = |called: &Arc<Count>| {
            let called = Arc::clone(called);
            move |outcome: u32| {
                called.0.fetch_add(outcome, Ordering::Relaxed);
            }
        };
        completion.on_completion(call(&called));
        let (mut stays, mut goes) = (Awaiting::default(), Awaiting::default());
        let waker = Waker::from(Arc::clone(&woken));
        for _ in 0..2 {
            assert_eq!(completion.poll(&mut stays, &waker), Poll::Pending);
            assert_eq!(completion.poll(&mut goes, &waker), Poll::Pending);
        }
        completion.leave(&mut goes);
        assert!(completion.is_awaited());
        assert!(completion.complete(3) && !completion.complete(5));
        completion.on_completion(call(&called));
        assert_eq!((called.0.load(Ordering::Relaxed), woken.0.load(Ordering::Relaxed)), (6, 1));
        assert_eq!(completion.poll(&mut stays, &waker), Poll::Ready(3));
    }

    #[test]
    fn a_panic_of_the_program_keeps_no_other_callback_from_its_outcome() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("an executor that panics");
            }
        }
        let (completion, called) = (Completion::default(), Arc::<AtomicU32>::default());
        let poll = completion.poll(&mut Awaiting::default(), &Waker::from(Arc::new(Panics)));
        assert_eq!(poll, Poll::Pending);
        completion.on_completion(|_| panic!("a callback that panics"));
        let counted = Arc::clone(&called);
        completion.on_completion(move |outcome: u32| {
            counted.fetch_add(outcome, Ordering::Relaxed);
        });
        assert!(completion.complete(3));
        completion.on_completion(|_| panic!("a late callback that panics"));
        assert_eq!(called.load(Ordering::Relaxed), 3);
    }
}
