//! The launcher's signals, read from a descriptor like everything else it waits for.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::mem::MaybeUninit;

/// Signals that end the job when they come twice.
const STOP: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
/// Signals that are only passed on; SIGTSTP (Ctrl-Z) also suspends the launcher.
const PASS: [Signal; 3] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTSTP];

/// Signals of this thread and of those it starts, blocked and readable from now on; as before once
/// dropped. Signals that the launcher was started to ignore (`nohup`, `&` in a script) stay ignored.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    /// Its number.
    pub(super) signal: i32,
    /// The kernel sent it for a key of the terminal: to every process of the foreground group, not to the
    /// launcher alone.
    pub(super) for_key: bool,
}

impl Received {
    /// The sender wants the job to end.
    pub(super) fn stops(self) -> bool {
        STOP.iter().any(|&stop| stop as i32 == self.signal)
    }
}

impl Signals {
    pub(super) fn catch() -> Result<Self, Errno> {
        let all = STOP.into_iter().chain(PASS);
        let set: SigSet = all.filter(|&signal| !is_ignored(signal)).collect();
        let errno = |errno: nix::errno::Errno| Errno::from_raw_os_error(errno as i32);
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(errno)?;
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(errno)?;
        Ok(Self { fd, before })
    }

    /// The blocked signals as they were before. A new process sets them between fork and exec.
    pub(super) fn before(&self) -> SigSet {
        self.before
    }

    /// The next signal that has come; never blocks.
    pub(super) fn next(&self) -> Option<Received> {
        let info = self.fd.read_signal().ok()??;
        let signal = info.ssi_signo as i32;
        // The kernel sends SIGHUP for a closed terminal to the session's leader only.
        Some(Received { signal, for_key: info.ssi_code == libc::SI_KERNEL && signal != libc::SIGHUP })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Cannot fail: the mask is one that the kernel gave.
        let _ = self.before.thread_set_mask();
    }
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is given; the old one is written to `action`, which is read only after success.
    unsafe {
        libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// The name of a signal, unless it is a real-time one.
pub(super) fn signal_name(signal: i32) -> Option<&'static str> {
    Some(Signal::try_from(signal).ok()?.as_str())
}
