//! Freeing what devices use, where that waits for the device: behind the scenes, and only while no stream waits for anybody.
//!
//! CUDA frees memory once all that the device was given is done, and holds the calls of other threads meanwhile. Were
//! one of these a rank of the process that a stream waits for, both would wait for good. So who lets streams wait for others
//! says so ([`Waiting`]); what is dropped meanwhile is freed later, by a thread of its own, in turn with those who would let streams
//! wait again. Where there is always somebody, these make a gap now and then ([`Waiting::give_way`]).

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
    /// With the time from which on who lets streams wait gives way to them for a moment.
    jobs: VecDeque<(Job, Instant)>,
    /// Streams of so many objects may wait for other threads.
    waiting: usize,
    /// So many would let streams wait, once a turn is over.
    asking: usize,
    /// So many may now, before anything more is freed.
    entering: usize,
    /// The thread is at it.
    is_freeing: bool,
    /// The process ends: what is not freed by now goes with it.
    is_ending: bool,
    /// How often a gap was made in vain since all was freed.
    gaps_in_vain: u32,
    /// When the next one may be made.
    next_gap: Option<Instant>,
    /// The thread that frees is there.
    is_served: bool,
    /// It drops what is somebody else's, and may be held there.
    is_away: bool,
    /// So much is yet to be given.
    later: usize,
    /// How many turns there were in which something was freed.
    freed: u64,
    /// How often it was when somebody has waited for it in vain.
    in_vain: Option<u64>,
}

/// Who frees and those who let streams wait take turns. Whoever changes what others may sleep for wakes all.
impl State {
    /// Whether the thread that frees has a turn.
    fn may_free(&self) -> bool {
        let is_needed = !self.jobs.is_empty() && !self.is_away && !self.is_ending;
        is_needed && self.waiting == 0 && self.entering == 0
    }

    /// Whether that thread has a turn, or takes one now, whose end wakes whoever waits for it. What is not freed when the process ends may
    /// never be.
    fn is_its_turn(&self) -> bool {
        (self.is_freeing || self.may_free()) && !self.is_ending
    }

    /// Somebody would let streams wait, and does, or sleeps until [`State::comes_in`], which is given what this returns.
    fn ask(&mut self) -> Option<u64> {
        if self.is_its_turn() {
            self.asking += 1;
            return Some(self.freed);
        }
        self.waiting += 1;
        None
    }

    /// Who has asked does let streams wait now.
    fn comes_in(&mut self, asked: u64) -> bool {
        let is_over = self.freed != asked;
        if !is_over && self.is_its_turn() {
            return false;
        }
        *(if is_over { &mut self.entering } else { &mut self.asking }) -= 1;
        self.waiting += 1;
        true
    }

    /// Streams do not wait any more. Whether to wake all.
    fn leave(&mut self) -> bool {
        self.waiting -= 1;
        self.waiting == 0 && !self.jobs.is_empty()
    }

    /// Something is to be freed. Whether to wake all.
    fn put(&mut self, job: Job) -> bool {
        self.jobs.push_back((job, Instant::now() + SOON));
        self.waiting == 0
    }

    /// What is to be freed, with which a turn begins; or nothing: the thread sleeps.
    fn take(&mut self) -> Option<Job> {
        let (job, _) = self.may_free().then(|| self.jobs.pop_front()).flatten()?;
        self.is_freeing = true;
        Some(job)
    }

    /// What else is freed in this turn.
    fn take_more(&mut self) -> Option<Job> {
        let (job, _) = (!self.is_ending).then(|| self.jobs.pop_front()).flatten()?;
        Some(job)
    }

    /// Something has been there for a while, and a gap may be made for it.
    fn is_due(&self) -> bool {
        let now = Instant::now();
        let is_late = self.jobs.front().is_some_and(|(_, due)| *due <= now);
        is_late && !self.is_ending && self.next_gap.is_none_or(|next| next <= now)
    }

    /// A turn is over: those who have waited for that come before the next. All are to be woken.
    fn end_turn(&mut self) {
        self.is_freeing = false;
        if self.jobs.is_empty() {
            self.gaps_in_vain = 0;
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
    gaps_in_vain: 0,
    next_gap: None,
    is_served: false,
    is_away: false,
    later: 0,
    freed: 0,
    in_vain: None,
});
static CHANGED: Condvar = Condvar::new();

/// Whether anything is to be freed: what exchanges look at.
static IS_BEHIND: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is the one that frees, and at it.
    static FREES: Cell<bool> = const { Cell::new(false) };
    /// What it drops once its turn is over.
    static HELD: RefCell<Vec<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(Vec::new()) };
}

/// How long something is freed before who would let streams wait has a turn.
const TURN: Duration = Duration::from_millis(2);

/// What is not freed after so long finds no gap between exchanges.
const SOON: Duration = Duration::from_millis(100);

/// How long who begins an exchange makes a gap for it at first; twice as long each time that was in vain, up to the longest.
const GAP: Duration = Duration::from_millis(50);
const LONGEST_GAP: Duration = Duration::from_millis(800);
/// Of so many parts of the time gaps take one at most.
const PARTS: u32 = 20;
/// How often it is looked whether a gap is over.
const LOOK: Duration = Duration::from_millis(1);

/// How long an allocation that finds no room waits for what is to be freed.
const PATIENCE: Duration = Duration::from_secs(1);

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, streams may wait for what other threads of this process have yet to do: nothing is freed.
#[derive(Debug)]
pub struct Waiting(());

impl Waiting {
    /// Waits for a turn of freeing, if anything is to be freed: for one thing, which waits for work that was given to devices before, and
    /// for what else can be freed in 2 ms; not while the process ends.
    pub fn begin() -> Self {
        let mut state = lock();
        if let Some(asked) = state.ask() {
            while !state.comes_in(asked) {
                state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Self(())
    }

    /// Where exchanges in a row leave no gap in which what was dropped could be freed: makes one, as long as `look` says that an exchange is
    /// in flight, or others are, for 50 ms at most; or longer, up to 0.8 s, where that was in vain. The next one is made after twenty times as long.
    pub fn give_way(mut look: impl FnMut() -> bool) {
        if !IS_BEHIND.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock();
        if !state.is_due() {
            return;
        }
        let gap = LONGEST_GAP.min(GAP * (1 << state.gaps_in_vain.min(8)));
        let last = state.next_gap;
        let begin = Instant::now();
        // Until it is freed, or is being freed: then whoever begins an exchange waits for that.
        while state.is_due() && !state.is_freeing && begin.elapsed() < gap {
            drop(state);
            let is_in_flight = look();
            state = lock();
            if !is_in_flight && state.waiting == 0 {
                break;
            }
            state = CHANGED.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        let took = begin.elapsed();
        // Others may have made the same one.
        if took >= gap && !state.jobs.is_empty() && state.next_gap == last {
            state.gaps_in_vain += 1;
        }
        state.next_gap = state.next_gap.max(Some(Instant::now() + took * PARTS));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if lock().leave() {
            CHANGED.notify_all();
        }
    }
}

/// Something is to be freed that cannot be yet: who finds no memory waits for that, too.
#[derive(Debug)]
pub(crate) struct Later(());

/// Says so, until what is returned is dropped.
pub(crate) fn later() -> Later {
    lock().later += 1;
    Later(())
}

impl Drop for Later {
    fn drop(&mut self) {
        lock().later -= 1;
        CHANGED.notify_all();
    }
}

/// Frees something behind the scenes, in the order of these calls; at once where there can be no thread; never once the process ends.
pub(crate) fn give(free: impl FnOnce() + Send + 'static) {
    OWNER.get_or_init(|| {
        // SAFETY: `end` takes no arguments, does not unwind and stays loaded until the process ends, or the library is
        // unloaded, before which the C library calls it. Where it cannot be registered, freeing goes on until the
        // process ends.
        unsafe { libc::atexit(end) };
        std::process::id()
    });
    let mut state = lock();
    if state.is_ending {
        // The driver may be gone. Not dropped either: what it holds may call that, too.
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
    // What frees may drop what frees more.
    if FREES.get() {
        drop(state);
        return free();
    }
    IS_BEHIND.store(true, Ordering::Relaxed);
    if state.put(Box::new(free)) {
        CHANGED.notify_all();
    }
}

/// Drops something of somebody else's that a job of [`give`] has held: once the turn is over, as it may wait for who would begin an exchange.
pub(crate) fn drop_behind(held: Arc<dyn Any + Send + Sync>) {
    match FREES.get() {
        true => HELD.with_borrow_mut(|all| all.push(held)),
        false => drop(held),
    }
}

/// At the end of the process, before the driver's own (which was loaded before anything was freed): a call of the thread while the driver
/// takes itself down may be a crash. Waits for what is being freed, but for no more than [`PATIENCE`].
extern "C" fn end() {
    // A child that was forked has no such thread.
    if OWNER.get() != Some(&std::process::id()) {
        return;
    }
    let mut state = lock();
    state.is_ending = true;
    CHANGED.notify_all();
    let ended = CHANGED.wait_timeout_while(state, PATIENCE, |state| state.is_freeing);
    drop(ended);
}

/// The process whose thread it is.
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
            // The first one has waited for the device: others take less.
            let next = if begin.elapsed() < TURN { state.take_more() } else { None };
            match next {
                Some(next) => job = next,
                None => break,
            }
        }
        FREES.set(false);
        state.end_turn();
        IS_BEHIND.store(!state.jobs.is_empty(), Ordering::Relaxed);
        CHANGED.notify_all();
        let held = HELD.take();
        if state.is_ending {
            // As what is given then.
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

/// What is called here may be a user's, whose panic has been printed by now: it must not keep everybody else waiting.
fn unless_it_panics(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        // Dropped, it might panic again.
        std::mem::forget(payload);
    }
}

/// Waits for a while until all that was given before is freed, unless that was in vain and nothing was freed since. Returns
/// whether all is.
pub(crate) fn catch_up() -> bool {
    let mut state = lock();
    let is_behind = |state: &mut State| state.is_freeing || !state.jobs.is_empty() || state.later > 0;
    if state.in_vain != Some(state.freed) {
        let waited =
            CHANGED.wait_timeout_while(state, PATIENCE, |state| is_behind(state) && !state.is_ending);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    let is_late = is_behind(&mut state);
    state.in_vain = is_late.then_some(state.freed);
    !is_late
}
