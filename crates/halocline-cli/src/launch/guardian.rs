//! A process that kills the rest of a job when the job fails or the launcher dies.
//!
//! The launcher signals the process group of each rank. With a killed launcher the kernel kills these groups and each rank that has joined
//! ([`Lifeline`](halocline_comm::shm::Lifeline)). A program that starts its own process group (`timeout`, `setsid`, a shell with job
//! control) is in none of these groups. The guardian finds such processes by the job's token in their environment.

use super::supervise::timespec;
use super::{LaunchError, TERMINATE};
use halocline_comm::shm::Job;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::num::NonZero;
use std::time::Duration;

/// The guardian's name in `/proc`. A guardian spares other guardians: each has a job of its own to end.
const NAME: &std::ffi::CStr = c"halocline-guard";

/// A running guardian. Dropping it kills the processes of the job that still run, and returns when they have ended.
#[derive(Debug)]
pub(super) struct Guardian {
    pid: Pid,
    /// A byte means: kill nothing. Its end without a byte means: kill. `None` once closed.
    writing: Option<OwnedFd>,
}

impl Guardian {
    /// Forks the guardian of a job. Call it before the lifeline exists: the guardian must not hold the lifeline's writing end.
    pub(super) fn start(job: &Job) -> Result<Self, LaunchError> {
        let failed = |errno| LaunchError::System { what: "start the guardian of the job", errno };
        let token: String = job.token().iter().map(|byte| format!("{byte:02x}")).collect();
        let variable = format!("HALOCLINE_JOB={token}").into_bytes();
        let (reading, writing) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        // SAFETY: no other thread of this process runs (`launch::run` and `launch::run_self` require that), so the child finds no lock
        // held that it needs.
        match unsafe { libc::fork() } {
            0 => {
                // Its own writing end would keep the pipe open. Listing the others takes a descriptor, which may be the last one.
                drop(writing);
                watch(&reading, &variable)
            }
            child => match Pid::from_raw(child) {
                Some(pid) if child > 0 => Ok(Self { pid, writing: Some(writing) }),
                _ => Err(failed(last_error())),
            },
        }
    }

    /// Ends the guardian without killing anything: what the ranks have left in the background runs on.
    pub(super) fn spare(self) {
        // Fails only if the guardian was killed, and then nothing would be killed anyway.
        let _ = self.writing.as_ref().map(|writing| rustix::io::write(writing, b"x"));
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.writing = None;
        // Cannot fail: the guardian is our child and is not reaped.
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// The guardian's life: waits for a byte or for the end of the pipe, which also comes with the launcher's death.
fn watch(reading: &OwnedFd, variable: &[u8]) -> ! {
    // A signal to the launcher's session or process group must not end the guardian; SIGKILL to the launcher alone does not reach it.
    let _ = rustix::process::setsid();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: to ignore a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let _ = rustix::thread::set_name(NAME);
    close_all_but(reading.as_raw_fd());
    let mut byte = [0];
    let read = loop {
        match rustix::io::read(reading, &mut byte) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    if read == Ok(0) {
        kill_job(variable);
    }
    // SAFETY: the process ends at once, without destructors or exit handlers of the launcher's copy.
    unsafe { libc::_exit(0) }
}

/// Closes the launcher's files: readers of its output must see the end when the launcher ends.
fn close_all_but(kept: i32) {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = files.flatten().filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|&fd| fd != kept) {
        // SAFETY: this process uses no other file from here on, and ends without dropping anything.
        unsafe { libc::close(fd) };
    }
}

/// Kills every process whose environment has the variable, and waits until they have ended.
fn kill_job(variable: &[u8]) {
    loop {
        // A process may have started another one before it was killed, so the last pass finds none.
        let killed = kill_all(variable);
        if killed.is_empty() || !killed.iter().all(has_ended) {
            return;
        }
    }
}

/// Waits for the end of a killed process. False if the system holds it for longer than a killed process needs to end.
fn has_ended(process: &OwnedFd) -> bool {
    rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timespec(TERMINATE))) == Ok(1)
}

/// One pass over all processes: kills those whose environment has the variable, and returns their pidfds.
fn kill_all(variable: &[u8]) -> Vec<OwnedFd> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids =
        processes.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter_map(|pid| kill(pid, variable)).collect()
}

/// Kills one process if its environment has the variable. The environment of a process that has ended is empty.
fn kill(pid: Pid, variable: &[u8]) -> Option<OwnedFd> {
    // Opened first: the descriptor stays that of the process whose environment is read.
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let number = pid.as_raw_nonzero();
    let environment = environment(number)?;
    let name = std::fs::read(format!("/proc/{number}/comm")).ok()?;
    let is_of_job = environment.split(|&byte| byte == 0).any(|entry| entry == variable);
    (is_of_job && name.trim_ascii_end() != NAME.to_bytes()).then_some(())?;
    rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).ok()?;
    Some(pidfd)
}

/// The environment of a process. It reads as empty while the process loads a program (`execve`): then it is read again, up to 50 ms.
fn environment(pid: NonZero<i32>) -> Option<Vec<u8>> {
    /// As much as Linux gives a program. One call reads all: between two the process may load another program.
    const MOST: usize = 6 << 20;
    let mut environment = vec![0; MOST];
    for _ in 0..50 {
        let file = std::fs::File::open(format!("/proc/{pid}/environ")).ok()?;
        let length = rustix::io::read(file, &mut environment[..]).ok()?;
        // A process that has ended has no program either.
        if length > 0 || std::fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            environment.truncate(length);
            return Some(environment);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_loads_a_program_keeps_its_environment() {
        // It loads itself again and again.
        let again = "exec sh -c \"$AGAIN\"";
        let variables = [("AGAIN", again), ("HALOCLINE_JOB", "a-job")];
        let mut child = Command::new("sh").args(["-c", again]).envs(variables).spawn().unwrap();
        let pid = Pid::from_child(&child).as_raw_nonzero();
        let has_variable = |_| {
            let environment = environment(pid).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|entry| entry == b"HALOCLINE_JOB=a-job")
        };
        let always = (0..2000).all(has_variable);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(always);
    }
}
