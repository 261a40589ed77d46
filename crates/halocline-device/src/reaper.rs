//! Freeing what devices use, where that waits for the device: behind the scenes, and only while no stream waits for anybody.
//!
//! CUDA frees memory once all that the device was given is done, and holds the calls of other threads meanwhile. Were
//! one of these a rank of the process that a stream waits for, both would wait for good. So who lets streams wait for others
//! says so ([`Waiting`]); what is dropped meanwhile is freed later, by a thread of its own, in turn with those who would let streams
//! wait again. Where there is always somebody, these make a gap now and then ([`Waiting::give_way`]).

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
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
    /// How often a gap was made in vain since one was not.
    gaps_in_vain: u32,
    /// So much is yet to be given.
    later: usize,
    /// How many turns there were in which something was freed.
    freed: u64,
    /// How often it was when somebody has waited for it in vain.
    in_vain: Option<u64>,
}

impl State {
    /// Whether the thread that frees has a turn.
    fn may_free(&self) -> bool {
        self.waiting == 0 && self.entering == 0 && !self.jobs.is_empty() && !self.is_ending
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
    later: 0,
    freed: 0,
    in_vain: None,
});
static CHANGED: Condvar = Condvar::new();

/// Whether anything is to be freed: what exchanges look at.
static IS_BEHIND: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is the one that frees.
    static FREES: Cell<bool> = const { Cell::new(false) };
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
        // The thread that frees has one, or takes one now, whose end wakes whoever waits here. What is not freed when the process ends may
        // never be.
        let has_turn = |state: &State| state.is_freeing || state.may_free();
        if has_turn(&state) && !state.is_ending {
            let seen = state.freed;
            state.asking += 1;
            while state.freed == seen && has_turn(&state) && !state.is_ending {
                state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            match state.freed == seen {
                true => state.asking -= 1,
                false => state.entering -= 1,
            }
        }
        state.waiting += 1;
        Self(())
    }

    /// Where exchanges in a row leave no gap in which what was dropped could be freed: makes one, as long as `look` says that an exchange is
    /// in flight, for 50 ms at most; or longer, up to 0.8 s, where that was in vain, but not for more than a twentieth of the time.
    pub fn give_way(mut look: impl FnMut() -> bool) {
        if !IS_BEHIND.load(Ordering::Relaxed) {
            return;
        }
        let is_due = |state: &State| {
            state.jobs.front().is_some_and(|(_, due)| *due <= Instant::now()) && !state.is_ending
        };
        let mut state = lock();
        let gap = LONGEST_GAP.min(GAP * (1 << state.gaps_in_vain.min(8)));
        let begin = Instant::now();
        while is_due(&state) && begin.elapsed() < gap {
            drop(state);
            let is_over = !look();
            state = lock();
            if is_over {
                // What others have in flight, and what is being freed.
                let is_held = |state: &mut State| !state.is_ending && (state.waiting > 0 || state.is_freeing);
                let rest = gap.saturating_sub(begin.elapsed());
                let waited = CHANGED.wait_timeout_while(state, rest, is_held);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(state);
            std::thread::yield_now();
            state = lock();
        }
        if begin.elapsed() >= gap {
            state.gaps_in_vain += 1;
            let next = Instant::now() + gap * PARTS;
            state.jobs.iter_mut().for_each(|(_, due)| *due = (*due).max(next));
        } else if state.jobs.is_empty() {
            state.gaps_in_vain = 0;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = lock();
        state.waiting -= 1;
        if state.waiting == 0 && !state.jobs.is_empty() {
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
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    let start = || {
        OWNER.get_or_init(std::process::id);
        // SAFETY: a function without arguments that may be called at the end of the process. Where there is no place for it, that is as it
        // would be without.
        unsafe { libc::atexit(end) };
        std::thread::Builder::new().name("halocline-free".into()).spawn(run).is_ok()
    };
    let is_there = *IS_THERE.get_or_init(start);
    let mut state = lock();
    if state.is_ending {
        // The driver may be gone. Not dropped either: what it holds may call that, too.
        return std::mem::forget(free);
    }
    // What frees may drop what frees more.
    if !is_there || FREES.get() {
        drop(state);
        return free();
    }
    state.jobs.push_back((Box::new(free), Instant::now() + SOON));
    IS_BEHIND.store(true, Ordering::Relaxed);
    if state.waiting == 0 {
        CHANGED.notify_all();
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
    FREES.set(true);
    let mut state = lock();
    loop {
        let next = state.may_free().then(|| state.jobs.pop_front()).flatten();
        let Some((mut job, _)) = next else {
            state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.is_freeing = true;
        let begin = Instant::now();
        loop {
            drop(state);
            // What a job drops may be a user's, whose panic has been printed by now: it must not keep everybody else waiting.
            let _ = catch_unwind(AssertUnwindSafe(job));
            state = lock();
            // The first one has waited for the device: others take less.
            let has_time = begin.elapsed() < TURN && !state.is_ending;
            match has_time.then(|| state.jobs.pop_front()).flatten() {
                Some((next, _)) => job = next,
                None => break,
            }
        }
        state.is_freeing = false;
        state.freed += 1;
        // Those who have waited for it come before the next.
        state.entering += std::mem::take(&mut state.asking);
        IS_BEHIND.store(!state.jobs.is_empty(), Ordering::Relaxed);
        CHANGED.notify_all();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    /// There is one state for all tests.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn what_panics_while_it_is_freed_keeps_nobody_waiting() {
        const DEADLINE: Duration = Duration::from_secs(10);
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (freed, seen) = channel();
        // Together, so that one run of the thread has both.
        let waiting = Waiting::begin();
        give(|| panic!("a panic of a test"));
        give(move || freed.send(()).expect("somebody listens"));
        drop(waiting);
        seen.recv_timeout(DEADLINE).expect("what was given behind a panic is freed");
        let (begun, seen) = channel();
        std::thread::spawn(move || {
            drop(Waiting::begin());
            begun.send(())
        });
        seen.recv_timeout(DEADLINE).expect("streams may wait again");
    }

    const CHILD: &str = "HALOCLINE_TEST_OF_ENDS";

    /// Runs a test again, alone in a process of its own, and says what that has printed. It ends by itself.
    fn again(name: &str) -> String {
        let me = std::env::current_exe().expect("a path");
        let mut command = std::process::Command::new(me);
        command.args(["--exact", &format!("reaper::tests::{name}"), "--nocapture"]).env(CHILD, "1");
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("it runs");
        let began = Instant::now();
        let status = loop {
            match child.try_wait().expect("it can be waited for") {
                Some(status) => break status,
                // A child's end wakes nobody here.
                None if began.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                None => {
                    child.kill().expect("it is there");
                    panic!("{name}: its process has not ended in {:?}", began.elapsed());
                }
            }
        };
        let mut said = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        assert!(status.success(), "{name}: {status}: {said}");
        said
    }

    fn is_again() -> bool {
        std::env::var_os(CHILD).is_some()
    }

    fn at_exit(last: extern "C" fn()) {
        // SAFETY: a function without arguments.
        assert_eq!(unsafe { libc::atexit(last) }, 0);
    }

    extern "C" fn last() {
        give(|| println!("too late"));
    }

    #[test]
    fn a_process_ends_once_what_is_being_freed_is_and_frees_nothing_more() {
        if is_again() {
            let (begun, seen) = channel();
            // In one run of the thread.
            let waiting = Waiting::begin();
            give(move || {
                begun.send(()).expect("somebody listens");
                while !lock().is_ending {
                    std::hint::spin_loop();
                }
                println!("whole");
            });
            give(|| println!("too late"));
            drop(waiting);
            seen.recv().expect("it is begun");
            at_exit(last);
            std::process::exit(0);
        }
        let said = again("a_process_ends_once_what_is_being_freed_is_and_frees_nothing_more");
        assert!(said.contains("whole") && !said.contains("too late"), "{said}");
    }

    /// As the drop of something of a user's that is called behind ours, and maybe behind the driver's.
    extern "C" fn afterwards() {
        assert!(lock().is_ending, "our own end was before");
        let (freed, seen) = channel();
        give(move || freed.send(()).expect("somebody listens"));
        // Nor is it dropped, which may call the driver, too.
        let is_held = seen.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout);
        drop(Waiting::begin());
        drop(later());
        catch_up();
        println!("through, held: {is_held}, {} jobs", lock().jobs.len());
    }

    #[test]
    fn what_is_given_after_the_end_is_not_freed_and_nobody_waits_for_it() {
        if is_again() {
            // Before the first one that is given, so that it is called behind our own.
            at_exit(afterwards);
            give(|| println!("whole"));
            assert!(catch_up());
            std::process::exit(0);
        }
        let said = again("what_is_given_after_the_end_is_not_freed_and_nobody_waits_for_it");
        assert!(said.contains("whole") && said.contains("through, held: true, 0 jobs"), "{said}");
    }

    extern "C" fn first() {
        give(|| println!("whole"));
        println!("through");
    }

    #[test]
    fn the_first_that_is_given_may_be_given_while_the_process_ends() {
        if is_again() {
            at_exit(first);
            std::process::exit(0);
        }
        let said = again("the_first_that_is_given_may_be_given_while_the_process_ends");
        assert!(said.contains("through"), "{said}");
    }

    static ENDING: OnceLock<Instant> = OnceLock::new();

    extern "C" fn in_time() {
        let took = ENDING.get().expect("it ends").elapsed();
        // Who lets streams wait even now waits for nothing that never ends.
        drop(Waiting::begin());
        println!("through after {} ms", took.as_millis());
    }

    #[test]
    fn a_process_ends_a_moment_later_where_a_device_never_lets_something_be_freed() {
        if is_again() {
            at_exit(in_time);
            let (begun, seen) = channel();
            give(move || {
                begun.send(()).expect("somebody listens");
                loop {
                    std::thread::park();
                }
            });
            seen.recv().expect("it is begun");
            ENDING.get_or_init(Instant::now);
            std::process::exit(0);
        }
        let said = again("a_process_ends_a_moment_later_where_a_device_never_lets_something_be_freed");
        let took = said.split("through after ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        let took = Duration::from_millis(took.unwrap_or_else(|| panic!("it did not get through: {said}")));
        assert!(took >= PATIENCE && took < 5 * PATIENCE, "{took:?}");
    }

    #[test]
    fn something_is_freed_before_streams_may_wait_again() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..100 {
            let waiting = Waiting::begin();
            let (freed, seen) = channel();
            for number in 0..3 {
                let freed = freed.clone();
                give(move || freed.send(number).expect("somebody listens"));
            }
            // As a program does whose exchanges follow each other, which the thread that frees never gets in between of.
            let mut next = Some(waiting);
            for number in 0..3 {
                drop(next.take());
                next = Some(Waiting::begin());
                // The thread may have come first, and have freed more.
                let all: Vec<i32> = seen.try_iter().collect();
                assert!(!all.is_empty() || lock().jobs.is_empty(), "nothing is freed before {number}");
            }
            drop(next);
            assert!(catch_up());
        }
    }

    #[test]
    fn many_who_let_streams_wait_and_many_who_free_take_turns() {
        const EACH: usize = 300;
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (in_flight, freed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (in_flight, freed) = (&in_flight, &freed);
                scope.spawn(move || {
                    for turn in 0..EACH {
                        Waiting::give_way(|| turn % 7 == 0);
                        let waiting = Waiting::begin();
                        in_flight.fetch_add(1, Ordering::SeqCst);
                        if (turn + thread) % 3 == 0 {
                            let (in_flight, freed) = (Arc::clone(in_flight), Arc::clone(freed));
                            give(move || {
                                assert_eq!(
                                    in_flight.load(Ordering::SeqCst),
                                    0,
                                    "freed beside streams that wait"
                                );
                                freed.fetch_add(1, Ordering::SeqCst);
                            });
                        }
                        std::thread::yield_now();
                        in_flight.fetch_sub(1, Ordering::SeqCst);
                        drop(waiting);
                    }
                });
            }
        });
        assert!(catch_up());
        assert_eq!(freed.load(Ordering::SeqCst), EACH);
        let state = lock();
        assert_eq!((state.waiting, state.asking, state.entering), (0, 0, 0));
    }

    /// Nothing would wake it: who was let in by the last turn wakes nobody, and may wait for it.
    #[test]
    fn who_comes_when_others_were_just_let_in_comes_in_with_them() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = Waiting::begin();
        give(|| {});
        // One has waited for a turn, which is over, and has not woken yet.
        lock().entering = 1;
        drop(waiting);
        let (begun, seen) = channel();
        let other = std::thread::spawn(move || {
            let waiting = Waiting::begin();
            begun.send(()).expect("somebody listens");
            drop(waiting);
        });
        let is_in = seen.recv_timeout(Duration::from_secs(5));
        lock().entering = 0;
        CHANGED.notify_all();
        other.join().expect("no panic");
        assert_eq!(is_in, Ok(()));
        assert!(catch_up());
    }

    #[test]
    fn a_gap_is_made_where_exchanges_leave_none_and_not_at_once_again() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (freed, seen) = channel();
        let mut waiting = Some(Waiting::begin());
        let give_way = |look: &mut dyn FnMut() -> bool| {
            let begin = Instant::now();
            Waiting::give_way(look);
            begin.elapsed()
        };
        give(move || freed.send(()).expect("somebody listens"));
        let mut looks = 0;
        let mut in_flight = || {
            looks += 1;
            true
        };
        give_way(&mut in_flight);
        assert_eq!(looks, 0, "it was given just now");
        while lock().jobs.front().expect("it is there").1 > Instant::now() {
            std::thread::yield_now();
        }
        assert!(give_way(&mut || true) >= GAP);
        give_way(&mut || panic!("it was tried just now"));
        lock().jobs.front_mut().expect("it is there").1 = Instant::now();
        assert!(give_way(&mut || true) >= 2 * GAP, "a longer one after one that was in vain");
        lock().jobs.front_mut().expect("it is there").1 = Instant::now();
        // Over when it is looked at for the third time.
        let mut looks = 0;
        give_way(&mut || {
            looks += 1;
            if looks == 3 {
                drop(waiting.take());
            }
            looks < 3
        });
        seen.recv_timeout(Duration::from_secs(10)).expect("it is freed");
        assert!(catch_up());
    }

    #[test]
    fn what_frees_may_drop_what_frees_more() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (freed, seen) = channel();
        give(move || {
            let (inner, at_once) = (freed.clone(), std::thread::current().id());
            give(move || inner.send(at_once == std::thread::current().id()).expect("somebody listens"));
            freed.send(true).expect("somebody listens");
        });
        let order: Vec<bool> = seen.iter().take(2).collect();
        assert_eq!(order, [true, true]);
    }

    #[test]
    fn nothing_is_freed_while_streams_wait_for_others() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (freed, seen) = channel();
        let (one, two) = (Waiting::begin(), Waiting::begin());
        for number in 0..3 {
            let freed = freed.clone();
            give(move || freed.send(number).expect("somebody listens"));
        }
        drop(one);
        assert!(seen.recv_timeout(Duration::from_millis(20)).is_err(), "freed while a stream waits");
        drop(two);
        let order: Vec<i32> = seen.iter().take(3).collect();
        assert_eq!(order, [0, 1, 2]);
        // What is still to come is waited for once, not by every allocation that finds no room.
        let held = later();
        assert!(!catch_up());
        assert!(lock().in_vain.is_some());
        assert!(!catch_up());
        drop(held);
        assert!(catch_up());
        drop(Waiting::begin());
    }
}
