//! Kills ranks when their launcher dies, by any signal, also ranks behind a shell.
//!
//! The launcher holds the writing end of a pipe; ranks inherit the reading end. Nothing is ever written. When the launcher
//! dies, the kernel closes the writing end and sends SIGKILL to the owner of each open reading end (`F_SETOWN`, `F_SETSIG`,
//! `O_ASYNC`). Owners are the process group that the launcher starts for a rank, and each rank that has joined, in any
//! group. This needs no thread.

use super::job::{JobError, number, unusable};
use halocline_device::Variable;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::PipeFlags;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// The variable that holds the descriptor of the reading end.
pub(super) const LIFELINE_FD: &str = "HALOCLINE_LIFELINE_FD";

/// `F_SETSIG`, the same number on all architectures of Linux.
const SET_SIGNAL: libc::c_int = 10;

/// The launcher's end. Tied processes are killed once it is dropped or its process dies.
#[derive(Debug)]
pub struct Lifeline {
    reading: OwnedFd,
    /// Held, and never written.
    _writing: OwnedFd,
}

/// The tie of one rank to the launcher.
#[derive(Debug)]
pub struct Tie(Arc<OwnedFd>);

/// The processes to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This process.
    Process,
    /// The process group that this process leads.
    Group,
}

impl Lifeline {
    /// A lifeline of this process.
    pub fn new() -> Result<Self, JobError> {
        let (reading, writing) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .map_err(|errno| JobError::System { what: "make the lifeline", errno })?;
        Ok(Self { reading, _writing: writing })
    }

    /// Ties the process that `command` starts to this one; with `leads_group`, the process group that it then
    /// leads.
    pub fn tie(&self, command: &mut Command, leads_group: bool) -> Result<Tie, JobError> {
        let end = Arc::new(reopen(self.reading.as_fd())?);
        command.env(LIFELINE_FD, end.as_raw_fd().to_string());
        let inherited = Arc::clone(&end);
        let prepare = move || {
            let owner = if leads_group { Owner::Group } else { Owner::Process };
            if leads_group {
                rustix::process::setpgid(None, None)?;
            }
            rustix::io::fcntl_setfd(&*inherited, FdFlags::empty())?;
            Ok(kill_at_end(inherited.as_fd(), owner)?)
        };
        // SAFETY: between fork and exec the closure makes system calls that are safe there, neither allocates nor locks, and
        // touches no memory but its own capture, which `command` keeps alive.
        unsafe { command.pre_exec(prepare) };
        Ok(Tie(end))
    }
}

impl Tie {
    /// Ends the tie: processes that the rank has left running may outlive the launcher.
    pub fn cut(&self) {
        // Cannot fail for a descriptor that is open. It clears O_ASYNC for all processes that have inherited the end.
        let _ = rustix::fs::fcntl_setfl(&*self.0, OFlags::empty());
    }
}

/// Makes the kernel kill this process with its launcher, if the environment names one.
pub(super) fn die_with_launcher() -> Result<(), JobError> {
    /// Open until the process ends.
    static END: OnceLock<OwnedFd> = OnceLock::new();
    let Some(variable) = Variable::read(LIFELINE_FD).filter(|_| END.get().is_none()) else { return Ok(()) };
    let fd = number(variable, 0..=RawFd::MAX as usize)? as RawFd;
    let end = adopt(fd)?;
    die_at_end(end.as_fd())?;
    // Another thread may have set an equal one.
    let _ = END.set(end);
    Ok(())
}

/// Makes the kernel kill this process once the writing end is closed.
fn die_at_end(end: BorrowedFd<'_>) -> Result<(), JobError> {
    kill_at_end(end, Owner::Process).map_err(|errno| match errno {
        Errno::SRCH => JobError::LauncherDied,
        errno => JobError::System { what: "watch the launcher", errno },
    })
}

/// Opens a reading end of this process behind an inherited descriptor.
fn adopt(fd: RawFd) -> Result<OwnedFd, JobError> {
    // SAFETY: the number is not -1 and goes to system calls only, which check it themselves. If it is closed, or another
    // file by now, they fail, and that file at most gets closed on exec.
    let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
    let refused = |errno| unusable(LIFELINE_FD, fd, format!("cannot be used: {errno}"));
    let about = rustix::fs::fstat(inherited).map_err(refused)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Fifo {
        return Err(unusable(LIFELINE_FD, fd, "is not a pipe".to_owned()));
    }
    rustix::io::fcntl_setfd(inherited, FdFlags::CLOEXEC).map_err(refused)?;
    reopen(inherited)
}

/// Opens the reading end again, with an owner of its own.
fn reopen(end: BorrowedFd<'_>) -> Result<OwnedFd, JobError> {
    let path = format!("/proc/self/fd/{}", end.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| JobError::System { what: "open the lifeline", errno })
}

/// Makes the kernel send SIGKILL to the owner once the writing end is closed; `SRCH` if it is closed already. Safe to call between
/// fork and exec.
fn kill_at_end(end: BorrowedFd<'_>, owner: Owner) -> rustix::io::Result<()> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let owner = if owner == Owner::Group { -own } else { own };
    for (command, value) in [(libc::F_SETOWN, owner), (SET_SIGNAL, libc::SIGKILL)] {
        // SAFETY: the descriptor is open, and both commands take a number.
        if unsafe { libc::fcntl(end.as_raw_fd(), command, value) } == -1 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
    }
    rustix::fs::fcntl_setfl(end, OFlags::ASYNC | OFlags::NONBLOCK)?;
    // If the pipe was closed before, it sends no signal.
    let mut poll = [PollFd::new(&end, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut poll, Some(&now))?;
    if poll[0].revents().contains(PollFlags::HUP) { Err(Errno::SRCH) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Stdio};

    /// A shell that has started a process, with the pidfd of that process.
    fn start(lifeline: &Lifeline, leads_group: bool) -> (Child, Tie, OwnedFd) {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait; true"]).stdout(Stdio::piped());
        let tie = lifeline.tie(&mut command, leads_group).unwrap();
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = rustix::process::Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        (child, tie, rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap())
    }

    fn has_ended(process: &OwnedFd, within: i64) -> bool {
        let mut poll = [PollFd::new(process, PollFlags::IN)];
        rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: within, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_group_is_killed_with_the_lifeline() {
        let lifeline = Lifeline::new().unwrap();
        let (mut shell, _tie, sleeper) = start(&lifeline, true);
        drop(lifeline);
        assert!(has_ended(&sleeper, 30));
        assert_eq!(shell.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn one_process_is_killed_and_its_group_is_not() {
        let lifeline = Lifeline::new().unwrap();
        let (mut shell, _tie, sleeper) = start(&lifeline, false);
        drop(lifeline);
        assert_eq!(shell.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(!has_ended(&sleeper, 0));
        rustix::process::pidfd_send_signal(&sleeper, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn a_cut_tie_lets_processes_outlive_the_lifeline() {
        let lifeline = Lifeline::new().unwrap();
        let (mut shell, tie, sleeper) = start(&lifeline, true);
        tie.cut();
        drop(lifeline);
        assert!(shell.try_wait().unwrap().is_none() && !has_ended(&sleeper, 0));
        rustix::process::pidfd_send_signal(&sleeper, rustix::process::Signal::KILL).unwrap();
        assert!(shell.wait().unwrap().success());
    }

    #[test]
    fn an_ended_lifeline_is_found_at_once() {
        let lifeline = Lifeline::new().unwrap();
        let end = reopen(lifeline.reading.as_fd()).unwrap();
        drop(lifeline);
        // Another test's process may hold the writing end until it executes its program.
        let mut poll = [PollFd::new(&end, PollFlags::empty())];
        assert_eq!(rustix::event::poll(&mut poll, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })), Ok(1));
        assert_eq!(die_at_end(end.as_fd()), Err(JobError::LauncherDied));
    }

    #[test]
    fn a_descriptor_that_is_no_pipe_is_refused_and_named() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let text = adopt(file.as_raw_fd()).unwrap_err().to_string();
        assert!(text.contains("HALOCLINE_LIFELINE_FD is") && text.contains("is not a pipe"), "{text}");
    }
}
