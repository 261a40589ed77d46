//! The threads of a world: one baton passes between them, and the holder advances the streams.

use super::live::HOST;
use super::report::Report;
use super::state::{Next, State, Waits};
use super::{Guard, World, message};
use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::Duration;

thread_local! {
    /// The address of this thread's world, and the index of the thread there.
    static THREAD: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
    /// Text and location of this thread's last panic.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The panic payload that ends a thread of a stopped run.
struct Stopped;

/// How long a thread waits for the baton, in real time, without progress.
const STUCK: Duration = Duration::from_secs(60);

/// Text of this thread's last panic, if it belongs to a world.
pub(super) fn panic_text() -> Option<String> {
    PANIC.with_borrow_mut(Option::take)
}

/// Panics within a world become reports and print nothing.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match THREAD.get() {
            Some(_) => PANIC.set(Some(info.to_string())),
            None => usual(info),
        }));
    });
}

impl World {
    /// Runs threads that act as the ranks of a program; each gets its number. Returns their results, `None`
    /// for one that panicked, when all have ended.
    pub fn ranks<T: Send>(&self, count: usize, rank: impl Fn(usize) -> T + Sync) -> Vec<Option<T>> {
        std::thread::scope(|scope| {
            let begin = |number: usize| {
                let (index, rank) = (self.lock().add_thread(format!("rank {number}")), &rank);
                (index, scope.spawn(move || self.run_thread(index, || rank(number))))
            };
            let ranks: Vec<_> = (0..count).map(begin).collect();
            let end = |(index, handle): (usize, std::thread::ScopedJoinHandle<'_, Option<T>>)| {
                self.await_end(index);
                handle.join().ok().flatten()
            };
            ranks.into_iter().map(end).collect()
        })
    }

    /// Starts a thread of this world. Join it with [`World::join`].
    pub fn spawn(
        &self,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let (world, index) = (self.clone(), self.lock().add_thread(name.clone()));
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            world.run_thread(index, body);
        });
        let mut state = self.lock();
        match &spawned {
            Ok(handle) => state.threads[index].handle = Some(handle.thread().clone()),
            Err(_) => state.threads[index].waits = Waits::Left,
        }
        spawned
    }

    /// Waits for the end of a thread of [`World::spawn`].
    pub fn join(&self, handle: JoinHandle<()>) -> std::thread::Result<()> {
        let id = handle.thread().id();
        let is = |handle: &std::thread::Thread| handle.id() == id;
        let index = self.lock().threads.iter().position(|thread| thread.handle.as_ref().is_some_and(is));
        if let Some(index) = index {
            self.await_end(index);
        }
        handle.join()
    }

    /// Virtual time since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.lock().now)
    }

    /// Lets other tasks run, like a thread that polls a word.
    pub fn pause(&self) {
        if let Some(me) = self.me() {
            let state = self.turn(self.lock(), me, true);
            self.end_if_stopped(state);
        }
    }

    /// Sleeps while `word` holds `expected`, until it is woken or the timeout expires.
    pub fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let Some(me) = self.me() else { return };
        let mut state = self.turn(self.lock(), me, false);
        if word.load(Ordering::Acquire) == expected && !state.stopped {
            let until = timeout.map(|timeout| state.now.saturating_add(timeout.as_nanos() as u64));
            state.threads[me].waits = Waits::Word(std::ptr::from_ref(word).addr(), until);
            state = self.turn(state, me, false);
        }
        self.end_if_stopped(state);
    }

    /// Wakes all threads parked on `word`; their later work is ordered after the work of this thread so
    /// far.
    pub fn wake(&self, word: &AtomicU32) {
        let Some(me) = self.me() else { return };
        let mut state = self.turn(self.lock(), me, false);
        let (word, waker) = (std::ptr::from_ref(word).addr(), state.threads[me].actor);
        for thread in 0..state.threads.len() {
            if matches!(state.threads[thread].waits, Waits::Word(parked, _) if parked == word) {
                state.threads[thread].waits = Waits::No;
                let woken = state.threads[thread].actor;
                state.join_actor(woken, waker);
            }
        }
        state.tick(waker);
    }

    /// The number of the calling thread; reports a foreign thread.
    pub(super) fn me(&self) -> Option<usize> {
        if self.lock().live {
            return Some(HOST);
        }
        let index = THREAD.get().filter(|(world, _)| *world == self.address());
        if index.is_none() {
            let thread = std::thread::current();
            let thread = thread.name().unwrap_or("without a name").to_owned();
            self.lock().report(Report::Stranger { thread });
        }
        index.map(|(_, me)| me)
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Lets other tasks run until the calling thread is selected again.
    pub(super) fn turn<'a>(&'a self, mut state: Guard<'a>, me: usize, giving_way: bool) -> Guard<'a> {
        if state.live {
            return self.pass(state);
        }
        let mut giving_way = giving_way.then_some(me);
        loop {
            match state.next(giving_way) {
                Next::Thread(next) if next == me => break,
                Next::Thread(next) => {
                    hand_over(state, me, next);
                    state = self.await_baton(me);
                    break;
                }
                Next::Stream(stream) => state.step(stream),
                Next::Nobody => break,
            }
            giving_way = None;
        }
        state.threads[me].waits = Waits::No;
        state
    }

    /// Blocks the calling thread until a condition holds.
    pub(super) fn wait<'a>(&'a self, mut state: Guard<'a>, me: usize, what: Waits) -> Guard<'a> {
        if state.live {
            return self.wait_live(state, what);
        }
        state.threads[me].waits = what;
        self.turn(state, me, false)
    }

    /// Waits until another thread passes the baton. The state is unlocked all that time, so that no thread wakes to wait for it.
    fn await_baton(&self, me: usize) -> Guard<'_> {
        let (mut steps, mut since) = (None, std::time::Instant::now());
        loop {
            std::thread::park_timeout(STUCK / 4);
            let state = self.lock();
            if state.current == me {
                return state;
            }
            if steps != Some(state.steps) {
                (steps, since) = (Some(state.steps), std::time::Instant::now());
            } else if since.elapsed() > STUCK {
                let holder = &state.threads[state.current].name;
                eprintln!("the simulation is stuck: thread {holder} blocks outside of its world");
                std::process::abort();
            }
        }
    }

    fn await_end(&self, index: usize) {
        let left = |state: &State| state.threads[index].waits == Waits::Left;
        let Some(me) = self.me() else { return };
        let mut state = self.lock();
        while !left(&state) {
            state = self.wait(state, me, Waits::End(index));
        }
        let (mine, theirs) = (state.threads[me].actor, state.threads[index].actor);
        state.join_actor(mine, theirs);
    }

    fn end_if_stopped(&self, state: Guard<'_>) {
        let stopped = state.stopped;
        drop(state);
        if stopped && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(Stopped));
        }
    }

    /// Runs the body of a thread from its first baton to its end.
    fn run_thread<T>(&self, index: usize, body: impl FnOnce() -> T) -> Option<T> {
        let mut state = self.lock();
        state.threads[index].handle = Some(std::thread::current());
        let is_current = state.current == index;
        drop(state);
        if !is_current {
            drop(self.await_baton(index));
        }
        let ended = self.play(index, body);
        let mut state = self.lock();
        state.threads[index].waits = Waits::Left;
        loop {
            match state.next(None) {
                Next::Thread(next) => {
                    hand_over(state, index, next);
                    break;
                }
                Next::Stream(stream) => state.step(stream),
                Next::Nobody => break,
            }
        }
        ended
    }

    /// Runs a body as a thread of this world; reports its panic.
    fn play<T>(&self, index: usize, body: impl FnOnce() -> T) -> Option<T> {
        let before = THREAD.replace(Some((self.address(), index)));
        let ended = std::panic::catch_unwind(AssertUnwindSafe(body));
        THREAD.set(before);
        match ended {
            Ok(ended) => Some(ended),
            Err(panic) if panic.is::<Stopped>() => None,
            Err(panic) => {
                let mut state = self.lock();
                let thread = state.threads[index].name.clone();
                state.report(Report::Panicked { thread, message: message(&*panic) });
                None
            }
        }
    }

    /// Runs the main thread of a run until all streams are idle, and all threads have left or are parked
    /// forever. The latter serve leaked resources, and are then ended.
    pub(super) fn play_main(&self, body: impl FnOnce()) {
        keep_panics();
        let index = self.lock().add_thread("main".to_owned());
        self.lock().threads[index].handle = Some(std::thread::current());
        let ended = self.play(index, body);
        let mut state = self.lock();
        if ended.is_none() {
            state.stopped = true;
        }
        state = self.wait(state, index, Waits::Quiet);
        state.stopped = true;
        while state.threads.iter().enumerate().any(|(at, other)| at != index && other.waits != Waits::Left) {
            state = self.turn(state, index, true);
        }
    }
}

/// Passes the baton to another thread, and wakes it once the state is unlocked.
fn hand_over(mut state: Guard<'_>, me: usize, next: usize) {
    state.current = next;
    if state.options.ordered_threads {
        let (mine, theirs) = (state.threads[me].actor, state.threads[next].actor);
        state.join_actor(theirs, mine);
        state.tick(mine);
    }
    let handle = state.threads[next].handle.clone();
    drop(state);
    if let Some(handle) = handle {
        handle.unpark();
    }
}
