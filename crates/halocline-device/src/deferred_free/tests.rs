use super::*;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{RecvTimeoutError, channel};

/// The state is global, so tests run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_panicking_free_blocks_no_thread() {
    const DEADLINE: Duration = Duration::from_secs(10);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (freed, seen) = channel();
    // Both jobs run in one pass.
    let waiting = Waiting::begin();
    queue(|| panic!("a panic of a test"));
    queue(move || freed.send(()).expect("somebody listens"));
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

/// Runs a test again in a process of its own and returns its output.
fn again(name: &str) -> String {
    let me = std::env::current_exe().expect("a path");
    let mut command = std::process::Command::new(me);
    command.args(["--exact", &format!("deferred_free::tests::{name}"), "--nocapture"]).env(CHILD, "1");
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("it runs");
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("it can be waited for") {
            Some(status) => break status,
            // The end of a child wakes nothing here.
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
    // SAFETY: `last` takes no arguments, and a function of this program stays loaded until the process ends.
    assert_eq!(unsafe { libc::atexit(last) }, 0);
}

extern "C" fn last() {
    queue(|| println!("too late"));
}

#[test]
fn process_exit_waits_for_the_current_free_and_starts_none() {
    if is_again() {
        let (begun, seen) = channel();
        // Both jobs belong to one pass.
        let waiting = Waiting::begin();
        queue(move || {
            begun.send(()).expect("somebody listens");
            while !lock().is_ending {
                std::hint::spin_loop();
            }
            println!("whole");
        });
        queue(|| println!("too late"));
        drop(waiting);
        seen.recv().expect("it is begun");
        at_exit(last);
        std::process::exit(0);
    }
    let said = again("process_exit_waits_for_the_current_free_and_starts_none");
    assert!(said.contains("whole") && !said.contains("too late"), "{said}");
}

/// Acts like a user's destructor that runs after our exit handler, and possibly after the driver's.
extern "C" fn afterwards() {
    assert!(lock().is_ending, "our own end was before");
    let (freed, seen) = channel();
    queue(move || freed.send(()).expect("somebody listens"));
    // It is not dropped either, because dropping may call the driver.
    let is_held = seen.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout);
    drop(Waiting::begin());
    drop(announce());
    drain();
    println!("through, held: {is_held}, {} jobs", lock().jobs.len());
}

#[test]
fn frees_queued_after_process_exit_began_are_leaked() {
    if is_again() {
        // Registered before the first free, so that it runs after our handler.
        at_exit(afterwards);
        queue(|| println!("whole"));
        assert!(drain());
        std::process::exit(0);
    }
    let said = again("frees_queued_after_process_exit_began_are_leaked");
    assert!(said.contains("whole") && said.contains("through, held: true, 0 jobs"), "{said}");
}

extern "C" fn first() {
    queue(|| println!("whole"));
    println!("through");
}

#[test]
fn the_first_free_may_be_queued_during_process_exit() {
    if is_again() {
        at_exit(first);
        std::process::exit(0);
    }
    let said = again("the_first_free_may_be_queued_during_process_exit");
    assert!(said.contains("through"), "{said}");
}

static ENDING: OnceLock<Instant> = OnceLock::new();

extern "C" fn in_time() {
    let took = ENDING.get().expect("it ends").elapsed();
    // A thread that lets streams wait now does not block forever.
    drop(Waiting::begin());
    println!("through after {} ms", took.as_millis());
}

#[test]
fn process_exit_gives_up_on_a_free_that_hangs() {
    if is_again() {
        at_exit(in_time);
        let (begun, seen) = channel();
        queue(move || {
            begun.send(()).expect("somebody listens");
            loop {
                std::thread::park();
            }
        });
        seen.recv().expect("it is begun");
        ENDING.get_or_init(Instant::now);
        std::process::exit(0);
    }
    let said = again("process_exit_gives_up_on_a_free_that_hangs");
    let took = said.split("through after ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    let took = Duration::from_millis(took.unwrap_or_else(|| panic!("it did not get through: {said}")));
    assert!(took >= PATIENCE && took < 5 * PATIENCE, "{took:?}");
}

#[test]
fn one_job_is_freed_before_streams_may_wait_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..100 {
        let waiting = Waiting::begin();
        let (freed, seen) = channel();
        for number in 0..3 {
            let freed = freed.clone();
            queue(move || freed.send(number).expect("somebody listens"));
        }
        // Like a program whose exchanges follow each other at once.
        let mut next = Some(waiting);
        for number in 0..3 {
            drop(next.take());
            next = Some(Waiting::begin());
            // A pass before this one may have freed more.
            let all: Vec<i32> = seen.try_iter().collect();
            assert!(!all.is_empty() || lock().jobs.is_empty(), "nothing is freed before {number}");
        }
        drop(next);
        assert!(drain());
    }
}

#[test]
fn nothing_is_freed_while_streams_of_many_threads_wait() {
    const EACH: usize = 300;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (in_flight, freed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (in_flight, freed) = (&in_flight, &freed);
            scope.spawn(move || {
                for round in 0..EACH {
                    Waiting::pause_for_frees(|| round % 7 == 0);
                    let waiting = Waiting::begin();
                    in_flight.fetch_add(1, Ordering::SeqCst);
                    if (round + thread) % 3 == 0 {
                        let (in_flight, freed) = (Arc::clone(in_flight), Arc::clone(freed));
                        queue(move || {
                            assert_eq!(in_flight.load(Ordering::SeqCst), 0, "freed while streams wait");
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
    assert!(drain());
    assert_eq!(freed.load(Ordering::SeqCst), EACH);
    let state = lock();
    assert_eq!((state.waiting, state.asking, state.entering), (0, 0, 0));
}

#[test]
fn an_allocation_waits_again_for_frees_that_came_after_a_wait_in_vain() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = Waiting::begin();
    queue(|| {});
    assert!(!drain(), "an exchange is in flight");
    assert!(lock().ineffective_at.is_some());
    queue(|| {});
    assert_eq!(lock().ineffective_at, None);
    drop(waiting);
    assert!(drain());
}

/// If it waited, nothing would wake it: a thread admitted by the last pass wakes no other.
#[test]
fn a_late_thread_enters_with_those_just_admitted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = Waiting::begin();
    queue(|| {});
    // One thread has waited for a pass that is over, and has not woken yet.
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
    assert!(drain());
}

#[test]
fn consecutive_exchanges_pause_once_and_not_again_at_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    (lock().next_pause, lock().ineffective_pauses) = (None, 0);
    let (freed, seen) = channel();
    let mut waiting = Some(Waiting::begin());
    let pause = |look: &mut dyn FnMut() -> bool| {
        let begin = Instant::now();
        Waiting::pause_for_frees(look);
        begin.elapsed()
    };
    queue(move || freed.send(()).expect("somebody listens"));
    let mut looks = 0;
    let mut in_flight = || {
        looks += 1;
        true
    };
    pause(&mut in_flight);
    assert_eq!(looks, 0, "the job was queued just now");
    while lock().jobs.front().expect("it is there").1 > Instant::now() {
        std::thread::yield_now();
    }
    assert!(pause(&mut || true) >= PAUSE);
    let next = lock().next_pause.expect("there was a pause");
    assert!(next > Instant::now() + PAUSE * (SPACING - 2), "pauses take a twentieth of the time");
    pause(&mut || panic!("there was a pause just now"));
    lock().next_pause = None;
    assert!(pause(&mut || true) >= 2 * PAUSE, "a pause without effect doubles the limit");
    assert_eq!(lock().ineffective_pauses, 2);
    lock().next_pause = None;
    // Over at the third poll.
    let mut looks = 0;
    pause(&mut || {
        looks += 1;
        if looks == 3 {
            drop(waiting.take());
        }
        looks < 3
    });
    seen.recv_timeout(Duration::from_secs(10)).expect("it is freed");
    assert!(drain());
    assert_eq!(lock().ineffective_pauses, 0);
}

/// Queues a job that is already old while streams wait.
fn late(free: impl FnOnce() + Send + 'static) {
    assert!(lock().waiting > 0);
    queue(free);
    let mut state = lock();
    state.next_pause = None;
    state.jobs.iter_mut().for_each(|(_, due)| *due = Instant::now());
}

#[test]
fn a_pause_ends_when_the_last_exchange_in_flight_ends() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // An exchange of another object ends at some time, which a poll notices.
    let mut other = Some(Waiting::begin());
    late(|| {});
    // A long pause, because this machine may be slow.
    lock().ineffective_pauses = 4;
    let mut looks = 0;
    let begin = Instant::now();
    Waiting::pause_for_frees(|| {
        looks += 1;
        if looks == 4 {
            drop(other.take());
        }
        false
    });
    assert!(looks >= 4 && begin.elapsed() < LONGEST_PAUSE, "{looks} looks, {:?}", begin.elapsed());
    assert!(drain());
    assert_eq!(lock().ineffective_pauses, 0);
}

#[test]
fn a_pause_ends_when_everything_is_freed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let first = Waiting::begin();
    late(|| {});
    let mut others = (Some(first), None);
    Waiting::pause_for_frees(|| {
        if others.0.take().is_some() {
            // Everything is freed and an exchange starts before the thread that pauses polls.
            assert!(drain());
            others.1 = Some(Waiting::begin());
        }
        true
    });
    drop(others);
    assert_eq!(lock().ineffective_pauses, 0);
}

#[test]
fn pauses_take_at_most_a_twentieth_of_the_time() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..6 {
        let waiting = Waiting::begin();
        late(|| {});
        Waiting::pause_for_frees(|| true);
        // Each is the first pause without effect, and delays the next one.
        assert_eq!(lock().ineffective_pauses, 1);
        queue(|| {});
        lock().jobs.iter_mut().for_each(|(_, due)| *due = Instant::now());
        Waiting::pause_for_frees(|| panic!("there was a pause just now"));
        drop(waiting);
        assert!(drain());
    }
}

#[test]
fn a_late_thread_does_not_bring_the_next_pause_forward() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = Waiting::begin();
    late(|| {});
    lock().ineffective_pauses = 0;
    std::thread::scope(|scope| {
        let mut other = None;
        Waiting::pause_for_frees(|| {
            other.get_or_insert_with(|| scope.spawn(|| Waiting::pause_for_frees(|| true)));
            true
        });
    });
    let state = lock();
    assert!(state.next_pause.expect("there was a pause") > Instant::now() + PAUSE * (SPACING - 5));
    assert_eq!(state.ineffective_pauses, 1);
    drop(state);
    drop(waiting);
    assert!(drain());
}

/// Reports its drop.
struct Owner(Box<dyn FnMut() + Send + Sync>);

impl Drop for Owner {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_users_destructor_may_wait_for_an_exchange_and_panic() {
    static MINE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (dropped, seen) = channel();
    let mine = MINE.lock().expect("nobody panics with it");
    let waiting = Waiting::begin();
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(Owner(Box::new(move || {
        drop(MINE.lock());
        drop(Waiting::begin());
        dropped.send(()).expect("somebody listens");
        std::panic::panic_any(Owner(Box::new(|| panic!("a panic of a payload"))));
    })));
    queue(move || defer_drop(owner));
    drop(waiting);
    // If the pass dropped the owner, this would wait for the pass, and the pass for `mine`.
    drop(Waiting::begin());
    // It does not wait for a later pass either.
    while !lock().is_away {
        std::thread::yield_now();
    }
    let (freed, seen_freed) = channel();
    queue(move || freed.send(()).expect("somebody listens"));
    drop(Waiting::begin());
    drop(mine);
    seen.recv_timeout(Duration::from_secs(10)).expect("it is dropped");
    seen_freed.recv_timeout(Duration::from_secs(10)).expect("it is freed");
    // The thread continues.
    let (freed, seen) = channel();
    queue(|| std::panic::panic_any(Owner(Box::new(|| panic!("a panic of a payload")))));
    queue(move || freed.send(()).expect("somebody listens"));
    seen.recv_timeout(Duration::from_secs(10)).expect("what was given behind a panic is freed");
    drop(Waiting::begin());
}

#[test]
fn a_free_may_queue_more_frees() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (freed, seen) = channel();
    queue(move || {
        let (inner, at_once) = (freed.clone(), std::thread::current().id());
        queue(move || inner.send(at_once == std::thread::current().id()).expect("somebody listens"));
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
        queue(move || freed.send(number).expect("somebody listens"));
    }
    drop(one);
    assert!(seen.recv_timeout(Duration::from_millis(20)).is_err(), "freed while a stream waits");
    drop(two);
    let order: Vec<i32> = seen.iter().take(3).collect();
    assert_eq!(order, [0, 1, 2]);
    // An announced free is waited for once, not by every failing allocation.
    let held = announce();
    assert!(!drain());
    assert!(lock().ineffective_at.is_some());
    assert!(!drain());
    drop(held);
    assert!(drain());
    drop(Waiting::begin());
}
