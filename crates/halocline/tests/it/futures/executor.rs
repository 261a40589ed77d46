//! Executors: of one future on a thread, and of many tasks on any number of threads.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// What a hand-written executor sleeps on.
#[derive(Default)]
pub(super) struct Alarm {
    rung: Mutex<usize>,
    changed: Condvar,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

impl Alarm {
    pub(super) fn rings(&self) -> usize {
        *self.rung.lock().unwrap()
    }

    /// Sleeps until it has rung more often than `seen`, for as long as no test may take.
    pub(super) fn sleep(&self, seen: usize) {
        let (rung, limit) = (self.rung.lock().unwrap(), Duration::from_secs(60));
        let (rung, slept) = self.changed.wait_timeout_while(rung, limit, |rung| *rung == seen).unwrap();
        assert!(!slept.timed_out(), "the task was not woken; {} rings", *rung);
    }
}

/// Runs one future on this thread.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let alarm = Arc::new(Alarm::default());
    let (waker, mut future) = (Waker::from(Arc::clone(&alarm)), pin!(future));
    loop {
        let seen = alarm.rings();
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => alarm.sleep(seen),
        }
    }
}

/// A task of a [`Queue`].
pub(super) struct Task {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    queue: Arc<Queue>,
}

/// A hand-written executor of many tasks on any number of threads.
#[derive(Default)]
pub(super) struct Queue {
    ready: Mutex<VecDeque<Arc<Task>>>,
    changed: Condvar,
    unfinished: AtomicUsize,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.queue.ready.lock().unwrap().push_back(Arc::clone(&self));
        self.queue.changed.notify_all();
    }
}

impl Queue {
    pub(super) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        self.unfinished.fetch_add(1, Ordering::SeqCst);
        let task = Task { future: Mutex::new(Some(Box::pin(future))), queue: Arc::clone(self) };
        Arc::new(task).wake();
    }

    pub(super) fn run(&self) {
        loop {
            let task = {
                let mut ready = self.ready.lock().unwrap();
                loop {
                    if self.unfinished.load(Ordering::SeqCst) == 0 {
                        return;
                    }
                    match ready.pop_front() {
                        Some(task) => break task,
                        None => ready = self.changed.wait(ready).unwrap(),
                    }
                }
            };
            let mut slot = task.future.lock().unwrap();
            let Some(mut future) = slot.take() else { continue };
            let waker = Waker::from(Arc::clone(&task));
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => *slot = Some(future),
                Poll::Ready(()) => {
                    self.unfinished.fetch_sub(1, Ordering::SeqCst);
                    let _ready = self.ready.lock().unwrap();
                    self.changed.notify_all();
                }
            }
        }
    }
}
