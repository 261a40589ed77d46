//! A builder that is killed before each of its calls of the system that concern the cache, one run for each call.

use super::{Getter, get, names, until};
use halocline_program::cache::{Cache, Filter};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// What the tracer sees.
enum Stop {
    /// The process is about to make this call of the system.
    Call(libc::c_long),
    /// It returns from one, or got a signal, which it is to get.
    Other(i32),
    Ended,
}

/// A thread that has stopped, and why.
struct Stopped {
    thread: i32,
    stop: Stop,
}

/// Waits for the next stop of any thread of a traced process.
fn next(pid: i32) -> Stopped {
    loop {
        let mut status = 0;
        // SAFETY: the status is a place of ours.
        let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        assert!(thread > 0, "{}", std::io::Error::last_os_error());
        match libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            true if thread == pid => return Stopped { thread, stop: Stop::Ended },
            true => {}
            false => return Stopped { thread, stop: stop_of(thread, status) },
        }
    }
}

fn stop_of(thread: i32, status: i32) -> Stop {
    match libc::WSTOPSIG(status) {
        signal if signal == libc::SIGTRAP | 0x80 => {
            // SAFETY: numbers alone, which zeros are too.
            let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
            let bytes = size_of_val(&info);
            // SAFETY: the process has stopped, and the place has so many bytes.
            let found = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, bytes, &raw mut info) };
            assert!(found > 0, "{}", std::io::Error::last_os_error());
            match info.op {
                // SAFETY: the kernel says that this is an entry.
                libc::PTRACE_SYSCALL_INFO_ENTRY => Stop::Call(unsafe { info.u.entry.nr } as libc::c_long),
                _ => Stop::Other(0),
            }
        }
        // A new thread begins with a stop.
        libc::SIGTRAP | libc::SIGSTOP => Stop::Other(0),
        signal => Stop::Other(signal),
    }
}

/// Lets a traced thread go on until its next stop.
fn go_on(thread: i32, signal: i32) {
    // SAFETY: the thread has stopped.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, signal) };
}

/// The calls that change files, or publish something.
fn concerns_files(call: libc::c_long) -> bool {
    const CALLS: [libc::c_long; 9] = [
        libc::SYS_mkdirat,
        libc::SYS_renameat2,
        libc::SYS_unlinkat,
        libc::SYS_fsync,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_copy_file_range,
        libc::SYS_openat,
        libc::SYS_write,
    ];
    #[cfg(target_arch = "x86_64")]
    const OLD: [libc::c_long; 6] = [
        libc::SYS_mkdir,
        libc::SYS_rename,
        libc::SYS_unlink,
        libc::SYS_rmdir,
        libc::SYS_chmod,
        libc::SYS_open,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLD: [libc::c_long; 1] = [libc::SYS_renameat];
    CALLS.contains(&call) || OLD.contains(&call)
}

/// Lets this process trace what a command starts.
fn trace(command: &mut std::process::Command) {
    // SAFETY: both calls may be made between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Why this process may not trace others, if so.
fn refusal() -> Option<std::io::Error> {
    let mut command = std::process::Command::new("true");
    trace(&mut command);
    match command.spawn() {
        Err(error) => Some(error),
        Ok(mut child) => {
            child.kill().unwrap();
            while !matches!(next(child.id().cast_signed()).stop, Stop::Ended) {}
            None
        }
    }
}

/// Runs a builder, and kills it before the call of this number, counted from the first one that makes a folder. False if it ends before.
#[allow(clippy::zombie_processes, reason = "`next` waits for it, as for all threads that are traced")]
fn killed_before(scratch: &Path, cache: &Path, number: u32, call: usize) -> bool {
    let mut getter = Getter::new(scratch, cache, number);
    trace(&mut getter.command);
    let mut child = getter.command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let pid = child.id().cast_signed();
    let first = next(pid);
    assert!(matches!(first.stop, Stop::Other(0)), "it stops when it starts");
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE;
    // SAFETY: the process has stopped.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) };
    go_on(pid, 0);
    let mut seen = None;
    loop {
        let Stopped { thread, stop } = next(pid);
        let signal = match stop {
            Stop::Ended => return false,
            Stop::Other(signal) => signal,
            Stop::Call(made) => {
                if made == libc::SYS_mkdirat || is_mkdir(made) {
                    seen.get_or_insert(0);
                }
                if let Some(seen) = seen.as_mut().filter(|_| concerns_files(made)) {
                    if *seen == call {
                        child.kill().unwrap();
                        while !matches!(next(pid).stop, Stop::Ended) {}
                        return true;
                    }
                    *seen += 1;
                }
                0
            }
        };
        go_on(thread, signal);
    }
}

#[cfg(target_arch = "x86_64")]
fn is_mkdir(call: libc::c_long) -> bool {
    call == libc::SYS_mkdir
}

#[cfg(not(target_arch = "x86_64"))]
fn is_mkdir(_: libc::c_long) -> bool {
    false
}

#[test]
fn a_builder_killed_before_any_of_its_calls_leaves_nothing_that_is_loaded_or_that_blocks() {
    if let Some(error) = refusal() {
        println!("== SKIPPED: builders killed before each call: this process may not trace others ({error})");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    // With a limit, `tools/test` tries every seventh call.
    let step = if std::env::var_os("HALOCLINE_SEEDS").is_some() { 7 } else { 1 };
    let mut killed = 0;
    for call in (0..).step_by(step) {
        let folder = scratch.path().join(call.to_string());
        let cache = Cache::at(&folder);
        let number = 10 + call as u32;
        let was_killed = killed_before(scratch.path(), &folder, number, call);
        let contents = cache.verify().unwrap();
        assert!(contents.damaged.is_empty(), "call {call}: {:?}", contents.damaged);
        let entry = get(&cache, number).unwrap();
        assert_eq!(super::value(&entry).unwrap(), number as i32, "call {call}");
        until("all is swept", || {
            cache.clear(&Filter::all().program("no such program")).unwrap();
            ["builds", "claims", "trash"].iter().all(|name| names(&folder.join(name)).is_empty())
        });
        fs::remove_dir_all(&folder).unwrap();
        if !was_killed {
            break;
        }
        killed += 1;
    }
    println!("killed before {killed} calls");
    assert!(killed * step > 30, "{killed}");
}
