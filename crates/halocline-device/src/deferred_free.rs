//! Deferred free: frees device resources later, while no stream waits for another thread. For devices whose
//! free calls wait for the device.
//!
//! `cuMemFree` returns only once all work of the device is done. Until then it blocks the CUDA calls of
//! other threads. Suppose that a stream of one rank waits for another rank of the process, and a free blocks
//! that rank's thread: then both deadlock. Therefore:
//!
//! - A thread declares with a [`Waiting`] that its streams may wait for other threads. While any [`Waiting`]
//!   exists, nothing is freed.
//! - A drop only queues the free. The freeing thread runs the queued frees in *passes*. A pass begins while
//!   no [`Waiting`] exists, and blocks [`Waiting::begin`] until it ends. It starts no free after 2 ms.
//! - If exchanges overlap all the time, no pass can begin. Then threads *pause for frees* before they begin
//!   an exchange ([`Waiting::pause_for_frees`]).

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Each with the time from which threads pause for it.
    jobs: VecDeque<(Job, Instant)>,
    /// Number of objects whose streams may wait for other threads.
    waiting: usize,
    /// Number of threads that wait for the end of a pass before they start such streams.
    asking: usize,
    /// Number of threads whose pass is over: they may start such streams before the next pass.
    entering: usize,
    /// A pass is running.
    is_freeing: bool,
    /// The process is exiting: what is not freed by now stays allocated.
    is_ending: bool,
    /// Number of pauses without effect since the queue was last empty.
    ineffective_pauses: u32,
    /// Earliest time of the next pause.
    next_pause: Option<Instant>,
    /// The freeing thread exists.
    is_served: bool,
    /// The freeing thread is dropping a user's value, and may be blocked there.
    is_away: bool,
    /// Number of frees that are announced but not queued yet.
    later: usize,
    /// Number of passes that are over.
    freed: u64,
    /// Value of `freed` when a thread last waited without effect; none once a job was queued since.
    ineffective_at: Option<u64>,
}

/// Passes and the threads whose streams wait exclude each other. Every state change that a sleeping thread
/// may wait for wakes all.
impl State {
    /// Whether the freeing thread may start a pass.
    fn may_free(&self) -> bool {
        let is_needed = !self.jobs.is_empty() && !self.is_away && !self.is_ending;
        is_needed && self.waiting == 0 && self.entering == 0
    }

    /// Whether a thread has to wait for a pass: one is running, or the freeing thread starts one now. Its end
    /// wakes all waiting threads. After process exit begins, no thread waits: the jobs left may never run.
    fn has_pass_first(&self) -> bool {
        (self.is_freeing || self.may_free()) && !self.is_ending
    }

    /// Requests that streams may wait. `None` grants it at once; otherwise the caller sleeps until
    /// [`State::is_admitted`] returns true for the returned value.
    fn ask(&mut self) -> Option<u64> {
        if self.has_pass_first() {
            self.asking += 1;
            return Some(self.freed);
        }
        self.waiting += 1;
        None
    }

    /// Grants an earlier request, once the pass that it waits for is over.
    fn is_admitted(&mut self, asked: u64) -> bool {
        let is_over = self.freed != asked;
        if !is_over && self.has_pass_first() {
            return false;
        }
        *(if is_over { &mut self.entering } else { &mut self.asking }) -= 1;
        self.waiting += 1;
        true
    }

    /// Streams do not wait any more. Returns whether to wake all threads.
    fn leave(&mut self) -> bool {
        self.waiting -= 1;
        self.waiting == 0 && !self.jobs.is_empty()
    }

    /// Queues a job. Returns whether to wake all threads.
    fn put(&mut self, job: Job) -> bool {
        self.jobs.push_back((job, Instant::now() + DUE_AFTER));
        self.ineffective_at = None;
        self.waiting == 0
    }

    /// Starts a pass and returns its first job; `None`: the thread sleeps.
    fn take(&mut self) -> Option<Job> {
        let (job, _) = self.may_free().then(|| self.jobs.pop_front()).flatten()?;
        self.is_freeing = true;
        Some(job)
    }

    /// A further job of this pass.
    fn take_more(&mut self) -> Option<Job> {
        let (job, _) = (!self.is_ending).then(|| self.jobs.pop_front()).flatten()?;
        Some(job)
    }

    /// Whether a job has waited so long that threads pause for it.
    fn is_due(&self) -> bool {
        let now = Instant::now();
        let is_late = self.jobs.front().is_some_and(|(_, due)| *due <= now);
        is_late && !self.is_ending && self.next_pause.is_none_or(|next| next <= now)
    }

    /// Ends a pass: threads that waited for it enter before the next pass. The caller wakes all.
    fn end_pass(&mut self) {
        self.is_freeing = false;
        if self.jobs.is_empty() {
            self.ineffective_pauses = 0;
        }
        self.freed += 1;
        self.entering += std::mem::take(&mut self.asking);
    }
}

static STATE: Mutex<State> = Mutex::new(State {
    jobs: VecDeque::new(),
    waiting: 0,
    asking: 0,
    entering: 0,
    is_freeing: false,
    is_ending: false,
    ineffective_pauses: 0,
    next_pause: None,
    is_served: false,
    is_away: false,
    later: 0,
    freed: 0,
    ineffective_at: None,
});
static CHANGED: Condvar = Condvar::new();

/// Whether any job is queued; exchanges poll it.
static HAS_JOBS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is the freeing thread, inside a pass.
    static FREES: Cell<bool> = const { Cell::new(false) };
    /// Values that it drops after the pass.
    static HELD: RefCell<Vec<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(Vec::new()) };
}

/// Time after which a pass starts no further job.
const PASS: Duration = Duration::from_millis(2);

/// Threads pause for a job that has waited this long.
const DUE_AFTER: Duration = Duration::from_millis(100);

/// Limit of the first pause; each pause without effect doubles it, up to the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// After a pause, threads do not pause again for this many times its duration.
const SPACING: u32 = 20;
/// Polling interval during a pause.
const POLL: Duration = Duration::from_millis(1);

/// How long an allocation that fails waits for queued frees.
const PATIENCE: Duration = Duration::from_secs(1);

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this exists, streams may wait for other threads of this process, and nothing is freed.
#[derive(Debug)]
pub struct Waiting(());

impl Waiting {
    /// Declares that streams may wait. If a free is queued, blocks for one pass: its first job waits for
    /// earlier device work, and further jobs start within 2 ms. Does not block while the process exits.
    pub fn begin() -> Self {
        let mut state = lock();
        if let Some(asked) = state.ask() {
            while !state.is_admitted(asked) {
                state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Self(())
    }

    /// Waits for the exchanges in flight if a free has been queued for 100 ms. It waits while `look` reports
    /// an exchange in flight, or another [`Waiting`] exists. The limit is 50 ms; each pause without effect
    /// doubles it, up to 0.8 s. The next pause comes after twenty times as long at the earliest.
    pub fn pause_for_frees(mut look: impl FnMut() -> bool) {
        if !HAS_JOBS.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock();
        if !state.is_due() {
            return;
        }
        let limit = LONGEST_PAUSE.min(PAUSE * (1 << state.ineffective_pauses.min(8)));
        let last = state.next_pause;
        let begin = Instant::now();
        // Once a pass is running, `Waiting::begin` waits for its end.
        while state.is_due() && !state.is_freeing && begin.elapsed() < limit {
            drop(state);
            let is_in_flight = look();
            state = lock();
            if !is_in_flight && state.waiting == 0 {
                break;
            }
            state = CHANGED.wait_timeout(state, POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
        let took = begin.elapsed();
        // Other threads may have paused at the same time: count the pause once.
        if took >= limit && !state.jobs.is_empty() && state.next_pause == last {
            state.ineffective_pauses += 1;
        }
        state.next_pause = state.next_pause.max(Some(Instant::now() + took * SPACING));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if lock().leave() {
            CHANGED.notify_all();
        }
    }
}

/// Announces a free that cannot be queued yet; an allocation that fails waits for it, too.
#[derive(Debug)]
pub(crate) struct Announced(());

/// Announces a free until the result is dropped.
pub(crate) fn announce() -> Announced {
    lock().later += 1;
    Announced(())
}

impl Drop for Announced {
    fn drop(&mut self) {
        lock().later -= 1;
        CHANGED.notify_all();
    }
}

/// Queues a free; frees run in order. Runs it at once if no thread can be started; never after process exit
/// began.
pub(crate) fn queue(free: impl FnOnce() + Send + 'static) {
    stop_at_exit();
    let mut state = lock();
    if state.is_ending {
        // The driver may be shut down. Leaked, because dropping may also call the driver.
        return std::mem::forget(free);
    }
    if !state.is_served
        && let Err(error) = std::thread::Builder::new().name("halocline-free".into()).spawn(run)
    {
        drop(state);
        tracing::warn!(
            "no thread can be started that frees memory of devices, which waits for them now: {error}"
        );
        return free();
    }
    state.is_served = true;
    // A free may drop values that free more.
    if FREES.get() {
        drop(state);
        return free();
    }
    HAS_JOBS.store(true, Ordering::Relaxed);
    if state.put(Box::new(free)) {
        CHANGED.notify_all();
    }
}

/// Drops a user's value that a job holds, after the pass: the drop may wait for a thread that begins an
/// exchange.
pub(crate) fn defer_drop(held: Arc<dyn Any + Send + Sync>) {
    match FREES.get() {
        true => HELD.with_borrow_mut(|all| all.push(held)),
        false => drop(held),
    }
}

/// Drops a value on a thread of its own, for callers that must not call the driver. Does not wait for a
/// pass: the value may be what keeps streams waiting.
pub(crate) fn drop_elsewhere(held: Arc<dyn Any + Send + Sync>) {
    stop_at_exit();
    if lock().is_ending {
        // The driver may be shut down.
        return std::mem::forget(held);
    }
    // The new thread takes the value out. If no thread starts, the value must not be dropped here.
    let place = Arc::new(Mutex::new(Some(held)));
    let of_thread = Arc::clone(&place);
    let empty = move || drop(of_thread.lock().unwrap_or_else(PoisonError::into_inner).take());
    if let Err(error) = std::thread::Builder::new().name("halocline-drop".into()).spawn(empty) {
        tracing::warn!("no thread can be started that drops what a graph has kept; it stays: {error}");
        std::mem::forget(place);
    }
}

/// Runs at process exit, before the driver's own handler (registered earlier): a driver call during its
/// shutdown may crash. Waits for the job in progress, at most [`PATIENCE`].
extern "C" fn end() {
    // A forked child does not have this thread.
    if OWNER.get() != Some(&std::process::id()) {
        return;
    }
    let mut state = lock();
    state.is_ending = true;
    CHANGED.notify_all();
    let ended = CHANGED.wait_timeout_while(state, PATIENCE, |state| state.is_freeing);
    drop(ended);
}

/// Has [`end`] called at the exit of the process.
fn stop_at_exit() {
    OWNER.get_or_init(|| {
        // SAFETY: `end` takes no arguments, does not unwind and stays loaded until the process ends, or the library is
        // unloaded, before which the C library calls it. Where it cannot be registered, freeing goes on until the
        // process ends.
        unsafe { libc::atexit(end) };
        std::process::id()
    });
}

/// The process that owns the thread.
static OWNER: OnceLock<u32> = OnceLock::new();

fn run() {
    let mut state = lock();
    loop {
        let Some(mut job) = state.take() else {
            state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        FREES.set(true);
        let begin = Instant::now();
        loop {
            drop(state);
            unless_it_panics(job);
            state = lock();
            // The first job has waited for the device, so further ones take less time.
            let next = if begin.elapsed() < PASS { state.take_more() } else { None };
            match next {
                Some(next) => job = next,
                None => break,
            }
        }
        FREES.set(false);
        state.end_pass();
        HAS_JOBS.store(!state.jobs.is_empty(), Ordering::Relaxed);
        CHANGED.notify_all();
        let held = HELD.take();
        if state.is_ending {
            // Leaked, like jobs queued at that time.
            std::mem::forget(held);
            continue;
        }
        if !held.is_empty() {
            state.is_away = true;
            drop(state);
            held.into_iter().for_each(|held| unless_it_panics(|| drop(held)));
            state = lock();
            state.is_away = false;
        }
    }
}

/// Runs a call that may be a user's and may panic (the panic is already printed); the thread must survive.
fn unless_it_panics(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        // Dropping the payload could panic again.
        std::mem::forget(payload);
    }
}

/// Waits for a while until all queued frees are done, unless an earlier wait had no effect and nothing was
/// queued or freed since. Returns whether all are done.
pub(crate) fn drain() -> bool {
    let mut state = lock();
    let is_behind = |state: &mut State| state.is_freeing || !state.jobs.is_empty() || state.later > 0;
    let waits = state.ineffective_at != Some(state.freed);
    if waits {
        let waited =
            CHANGED.wait_timeout_while(state, PATIENCE, |state| is_behind(state) && !state.is_ending);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    let is_late = is_behind(&mut state);
    state.ineffective_at = is_late.then_some(state.freed);
    if is_late && waits {
        let (jobs, waiting, later) = (state.jobs.len(), state.waiting, state.later);
        drop(state);
        tracing::warn!(
            "dropped memory is still allocated: {jobs} frees wait for {waiting} objects with exchanges in flight, {later} for other ranks"
        );
    }
    !is_late
}
