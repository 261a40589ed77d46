//! The processes of the ranks: how they start, what they print, how they end.

use super::LaunchError;
use super::cpus::{self, Cpu};
use super::output::{Lines, Stream, Style};
use super::signals::signal_name;
use halocline_comm::shm::{Job, JobError, Lifeline, Tie};
use nix::sys::signal::SigSet;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions};
use rustix::thread::CpuSet;
use std::ffi::OsString;
use std::fmt;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The ranks whose output goes through the launcher, line by line. Other ranks inherit the launcher's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gather {
    /// All ranks.
    All,
    /// All but rank 0.
    AllButFirst,
}

/// Starts the ranks of one job.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    job: &'a Job,
    lifeline: &'a Lifeline,
    program: OsString,
    args: &'a [OsString],
    gather: Gather,
    /// The CPUs to share out; `None` to let the ranks float.
    cpus: Option<Vec<Cpu>>,
    mask: SigSet,
    files: Rlimit,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// A rank's process. Killed, with what it started, and reaped when dropped.
#[derive(Debug)]
pub(super) struct RankProcess {
    pub(super) rank: usize,
    /// Not reaped while this value lives: so the process id, and that of the group, are not used again.
    child: Child,
    pid: Pid,
    pidfd: OwnedFd,
    /// Has the kernel kill it with the launcher.
    tie: Tie,
    /// It leads a process group of its own.
    leads_group: bool,
    /// How it ended; `None` while it runs.
    pub(super) ended: Option<Ended>,
    /// Its output, until it has ended or the output has no reader.
    pub(super) pipes: Vec<Pipe>,
}

/// The reading end of one stream of a rank. Reading never blocks.
#[derive(Debug)]
pub(super) struct Pipe {
    fd: OwnedFd,
    pub(super) stream: Stream,
    lines: Lines,
}

impl<'a> Launcher<'a> {
    pub(super) fn new(
        (job, lifeline): (&'a Job, &'a Lifeline),
        program: OsString,
        args: &'a [OsString],
        gather: Gather,
        bind: bool,
        mask: SigSet,
    ) -> Self {
        // If the mask cannot be read (the machine has more CPUs than it holds), the ranks float.
        let cpus = bind.then(|| cpus::usable().ok()).flatten();
        let files = allow_files_for(job.size());
        Self { job, lifeline, program, args, gather, cpus, mask, files }
    }

    /// Starts rank `rank`; returns when its program runs.
    pub(super) fn start_rank(&self, rank: usize, style: Style) -> Result<RankProcess, LaunchError> {
        let inherits = rank == 0 && self.gather == Gather::AllButFirst;
        let mut command = Command::new(&self.program);
        command.args(self.args);
        self.job.prepare(rank, &mut command);
        // Ranks lead process groups, so that what they start is stopped with them. Only the group of the
        // launcher may read from its terminal, though: there, rank 0 stays in it.
        let leads_group = rank != 0 || !std::io::stdin().is_terminal();
        let tie = self.lifeline.tie(&mut command, leads_group).map_err(|error| match error {
            JobError::System { errno: Errno::MFILE, .. } => self.no_files(rank),
            other => other.into(),
        })?;
        command.envs(crate::device::of_ranks());
        command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
        if !inherits {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        self.on_start(&mut command, rank);
        let child = command.spawn().map_err(|source| self.start_error(rank, source))?;
        RankProcess::new(rank, (child, tie, leads_group), style).map_err(|error| match error {
            LaunchError::System { errno: Errno::MFILE, .. } => self.no_files(rank),
            other => other,
        })
    }

    fn no_files(&self, rank: usize) -> LaunchError {
        let ranks = self.job.size();
        LaunchError::Files { rank, ranks, needed: files_for(ranks) }
    }

    /// Sets up the new process between fork and exec.
    fn on_start(&self, command: &mut Command, rank: usize) {
        let (mask, files) = (self.mask, self.files);
        let share = self.cpus.as_deref().and_then(|cpus| cpus::share(cpus, rank, self.job.size()));
        let affinity = share.map(|cpus| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(cpu.id));
            set
        });
        let prepare = move || {
            if let Some(affinity) = &affinity {
                rustix::thread::sched_setaffinity(None, affinity)?;
            }
            rustix::process::setrlimit(Resource::Nofile, files)?;
            Ok(mask.thread_set_mask()?)
        };
        // SAFETY: between fork and exec the closure makes system calls that are safe there, neither
        // allocates nor locks, and touches no memory but its own captures.
        unsafe { command.pre_exec(prepare) };
    }

    fn start_error(&self, rank: usize, source: std::io::Error) -> LaunchError {
        let program = self.program.to_string_lossy().into_owned();
        match source.kind() {
            std::io::ErrorKind::NotFound => LaunchError::NotFound { program },
            _ if Errno::from_io_error(&source) == Some(Errno::MFILE) => self.no_files(rank),
            _ => LaunchError::Start { rank, program, source },
        }
    }
}

/// Files that a launcher of `ranks` ranks opens: two pipes, a pidfd and a tie a rank, and some for the rest.
fn files_for(ranks: usize) -> u64 {
    4 * ranks as u64 + 64
}

/// Lets this process open what a launcher of `ranks` ranks needs, if it may; returns the limit as it was,
/// for the ranks.
fn allow_files_for(ranks: usize) -> Rlimit {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let needed = files_for(ranks);
    if before.current.is_some_and(|current| current < needed) {
        let current = Some(before.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // If it is refused, opening fails later, and says so.
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum: before.maximum });
    }
    before
}

impl RankProcess {
    fn new(
        rank: usize,
        (mut child, tie, leads_group): (Child, Tie, bool),
        style: Style,
    ) -> Result<Self, LaunchError> {
        let pid = Pid::from_child(&child);
        let stdout = child.stdout.take().map(|fd| (OwnedFd::from(fd), Stream::Stdout));
        let stderr = child.stderr.take().map(|fd| (OwnedFd::from(fd), Stream::Stderr));
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(errno) => {
                // Neither can fail: the process is our child and is not reaped.
                let _ = child.kill();
                let _ = child.wait();
                return Err(LaunchError::System { what: "open a pidfd", errno });
            }
        };
        let mut process = Self { rank, child, pid, pidfd, tie, leads_group, ended: None, pipes: Vec::new() };
        for (fd, stream) in stdout.into_iter().chain(stderr) {
            rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)
                .map_err(|errno| LaunchError::System { what: "set up a pipe", errno })?;
            process.pipes.push(Pipe { fd, stream, lines: Lines::new(rank, stream, style) });
        }
        Ok(process)
    }

    /// Sends a signal to the rank, if it runs, and to what it has started in its process group.
    pub(super) fn signal(&self, signal: Signal) {
        // The id is still ours (see `child`). The call fails for a rank that has gained privileges that
        // we have not, which cannot be helped.
        let _ = match self.leads_group {
            true => rustix::process::kill_process_group(self.pid, signal),
            false => rustix::process::kill_process(self.pid, signal),
        };
    }

    /// It is in the launcher's process group, and has what the terminal sends to that.
    pub(super) fn shares_group(&self) -> bool {
        !self.leads_group
    }

    /// Notes how the process ended, if it has; it stays unreaped.
    pub(super) fn look(&mut self) -> Result<(), LaunchError> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options)
            .map_err(|errno| LaunchError::System { what: "wait for a rank", errno })?;
        self.ended = status.and_then(|status| match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Ended::Exited(code)),
            (None, signal) => signal.map(Ended::Killed),
        });
        Ok(())
    }
}

impl AsFd for RankProcess {
    /// The pidfd: readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        match self.ended {
            // Processes that the rank has left running may go on.
            Some(Ended::Exited(0)) => self.tie.cut(),
            _ => self.signal(Signal::KILL),
        }
        // Cannot fail: the process is our child and is not reaped.
        let _ = self.child.wait();
    }
}

impl Pipe {
    /// Reads once, up to the size of `buffer`, and appends whole lines to `out`. False at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8], out: &mut Vec<u8>) -> bool {
        match rustix::io::read(&self.fd, &mut *buffer) {
            Ok(0) => {
                self.lines.finish(out);
                false
            }
            Ok(count) => {
                self.lines.feed(buffer.get(..count).unwrap_or_default(), out);
                true
            }
            // Nothing there after all; every other error cannot happen to a pipe of ours.
            Err(_) => true,
        }
    }

    /// Reads what the rank has left in the pipe, and no more: what it started may still write.
    pub(super) fn drain(mut self, buffer: &mut [u8], out: &mut Vec<u8>) {
        let mut left = rustix::io::ioctl_fionread(&self.fd).unwrap_or(0) as usize;
        while left > 0 {
            let most = left.min(buffer.len());
            match rustix::io::read(&self.fd, buffer.get_mut(..most).unwrap_or_default()) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    self.lines.feed(buffer.get(..count).unwrap_or_default(), out);
                    left -= count;
                }
            }
        }
        self.lines.finish(out);
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Ended {
    /// The exit code by which a shell would tell it.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code as u8,
            Self::Killed(signal) => 128_u8.wrapping_add(signal as u8),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(code) => write!(f, "ended with exit code {code}"),
            Self::Killed(signal) => match signal_name(signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}
