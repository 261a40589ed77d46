//! Turns a hang into a failure: a rank that misses its limit ends the process with the name of its case and the stack of each
//! thread.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit of one case.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The last note of each rank of this process, and its time.
static NOTES: Mutex<BTreeMap<usize, (String, Instant)>> = Mutex::new(BTreeMap::new());

/// Notes how far a rank is in its case (a seed, for instance) for the report of a hang. Restarts the rank's time limit.
pub fn note(rank: usize, what: String) {
    notes().insert(rank, (what, Instant::now()));
}

fn notes() -> MutexGuard<'static, BTreeMap<usize, (String, Instant)>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints to standard error directly: the test harness captures `eprintln!`, and an abort loses what it has captured.
fn say(what: std::fmt::Arguments<'_>) {
    // Without standard error there is nowhere to report to.
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// The most threads that are signalled.
const THREADS: usize = 256;
/// Frames printed of each thread's stack.
const CALLS: usize = 40;

/// Prints the stack of its thread: addresses of this program, for `addr2line` with the same build, and exported symbols of other
/// libraries.
extern "C" fn say_where(_: c_int) {
    let mut calls = [std::ptr::null_mut::<c_void>(); CALLS];
    // SAFETY: both write at most `CALLS` entries. `backtrace` allocates in its first call only, which `say_threads` has made.
    unsafe {
        let count = libc::backtrace(calls.as_mut_ptr(), CALLS as c_int);
        libc::backtrace_symbols_fd(calls.as_ptr(), count, libc::STDERR_FILENO);
    }
}

/// Makes every other thread of this process print its stack.
fn say_threads() {
    let mut first = [std::ptr::null_mut::<c_void>(); 1];
    // SAFETY: writes one address; loads its library, so that later calls do not allocate.
    unsafe { libc::backtrace(first.as_mut_ptr(), 1) };
    let handler: extern "C" fn(c_int) = say_where;
    // SAFETY: the handler does what handlers may: the library it needs is loaded.
    unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
    // SAFETY: numbers of this process and thread.
    let (process, own) = unsafe { (libc::getpid(), libc::gettid()) };
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().take(THREADS);
    for task in tasks {
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse::<libc::pid_t>().ok()) else {
            continue;
        };
        if thread == own {
            continue;
        }
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        say(format_args!("thread {thread} ({}) in {}:", read("comm").trim(), read("wchan")));
        // SAFETY: a thread of this process; if it has ended, the call fails.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR2) };
        // One thread at a time, so that stacks do not mix. A thread that never handles the signal is blocked in the kernel.
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[derive(Default)]
struct State {
    /// The task that is watched, and its deadline.
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
        let thread = std::thread::spawn(move || watch(&theirs.0, &theirs.1, limit));
        Self { shared, limit, thread: Some(thread) }
    }

    /// Ends the previous task and begins this one.
    pub fn begin(&self, task: impl Into<String>) {
        self.set(|state| state.task = Some((task.into(), Instant::now() + self.limit)));
    }

    /// Ends the task.
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

fn watch(state: &Mutex<State>, changed: &Condvar, limit: Duration) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.over {
        let now = Instant::now();
        let last = notes().values().map(|(_, since)| *since + limit).max();
        let left = match &state.task {
            Some((task, until)) if last.map_or(*until, |last| last.max(*until)) <= now => {
                say(format_args!("HANG: {task}"));
                for (rank, (what, since)) in &*notes() {
                    say(format_args!("rank {rank}: {what}, since {:.1?}", since.elapsed()));
                }
                say_threads();
                std::process::abort();
            }
            Some((_, until)) => last.map_or(*until, |last| last.max(*until)) - now,
            None => Duration::from_secs(3600),
        };
        state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const HANGS: &str = "HALOCLINE_TEST_HANGS";

    #[test]
    fn a_hang_says_where_each_rank_and_thread_stands() {
        if std::env::var_os(HANGS).is_some() {
            let watchdog = Watchdog::new(Duration::from_millis(50));
            watchdog.begin("a case that hangs");
            note(1, "seed 5".to_owned());
            loop {
                std::thread::park();
            }
        }
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        let own = "watchdog::tests::a_hang_says_where_each_rank_and_thread_stands";
        let output = command.args([own, "--exact"]).env(HANGS, "1").output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        for expected in ["HANG: a case that hangs", "rank 1: seed 5, since ", "\nthread ", "(+0x"] {
            assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
        }
    }
}
