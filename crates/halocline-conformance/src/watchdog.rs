//! A hang must be a failure: whoever does not come back in time takes the process down, with a word
//! about what it was at.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long one case may take.
pub const LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    /// What is watched, and until when.
    task: Option<(String, Instant)>,
    over: bool,
}

/// Aborts the process when a task takes longer than allowed. Dropping it ends the watch.
pub struct Watchdog {
    shared: Arc<(Mutex<State>, Condvar)>,
    limit: Duration,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// A watchdog that allows `limit` for each task.
    pub fn new(limit: Duration) -> Self {
        let shared = Arc::new((Mutex::<State>::default(), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || watch(&theirs.0, &theirs.1));
        Self { shared, limit, thread: Some(thread) }
    }

    /// The task before is done, this one begins.
    pub fn begin(&self, task: impl Into<String>) {
        self.set(|state| state.task = Some((task.into(), Instant::now() + self.limit)));
    }

    /// The task before is done, and none begins.
    pub fn rest(&self) {
        self.set(|state| state.task = None);
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.1.notify_one();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.set(|state| state.over = true);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and if it did there is nothing to undo.
            let _ = thread.join();
        }
    }
}

fn watch(state: &Mutex<State>, changed: &Condvar) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.over {
        let now = Instant::now();
        let left = match &state.task {
            Some((task, until)) if *until <= now => {
                eprintln!("HANG: {task}");
                std::process::abort();
            }
            Some((_, until)) => *until - now,
            None => Duration::from_secs(3600),
        };
        state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}
