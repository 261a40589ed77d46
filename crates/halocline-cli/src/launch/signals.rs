//! The launcher's signals, read from a descriptor like everything else it waits for.

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::mem::{MaybeUninit, offset_of};

/// Signals that end the job when they come twice.
const STOP: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// Signals that are only passed on; SIGTSTP (Ctrl-Z) also suspends the launcher.
const PASS: [i32; 3] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGTSTP];

/// Signals of this thread and of those it starts, blocked and readable from now on; as before once
/// dropped. Signals that the launcher was started to ignore (`nohup`, `&` in a script) stay ignored.
#[derive(Debug)]
pub(super) struct Signals {
    fd: OwnedFd,
    before: SignalMask,
}

/// A thread's set of blocked signals.
#[derive(Clone, Copy)]
pub(super) struct SignalMask(libc::sigset_t);

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
        STOP.contains(&self.signal)
    }
}

impl Signals {
    pub(super) fn catch() -> Result<Self, Errno> {
        let mut set = empty_set();
        for signal in STOP.into_iter().chain(PASS) {
            if !is_ignored(signal)? {
                // SAFETY: `set` is an initialised set, `signal` a signal's number.
                unsafe { libc::sigaddset(&mut set, signal) };
            }
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let raw = unsafe { libc::signalfd(-1, &set, flags) };
        if raw < 0 {
            return Err(last_error());
        }
        // SAFETY: the descriptor was created just now and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let mut before = empty_set();
        // SAFETY: both sets are initialised; it changes the mask of the calling thread only.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        match failed {
            0 => Ok(Self { fd, before: SignalMask(before) }),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }

    /// The mask as it was before.
    pub(super) fn before(&self) -> SignalMask {
        self.before
    }

    /// The next signal that has come; never blocks.
    pub(super) fn next(&self) -> Option<Received> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        if rustix::io::read(&self.fd, &mut info) != Ok(info.len()) {
            return None;
        }
        let word = |offset: usize| Some(i32::from_ne_bytes(info.get(offset..offset + 4)?.try_into().ok()?));
        let signal = word(offset_of!(libc::signalfd_siginfo, ssi_signo))?;
        let code = word(offset_of!(libc::signalfd_siginfo, ssi_code))?;
        // The kernel sends SIGHUP for a closed terminal to the session's leader only.
        Some(Received { signal, for_key: code == libc::SI_KERNEL && signal != libc::SIGHUP })
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
        let _ = self.before.restore();
    }
}

impl SignalMask {
    /// Makes this the calling thread's mask. Safe to call between fork and exec.
    pub(super) fn restore(&self) -> std::io::Result<()> {
        // SAFETY: the set is initialised, and a null pointer means that the old mask is not returned.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            errno => Err(std::io::Error::from_raw_os_error(errno)),
        }
    }
}

impl std::fmt::Debug for SignalMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignalMask")
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset writes the whole set, and cannot fail for a valid address.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn is_ignored(signal: i32) -> Result<bool, Errno> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is given; the old one is written to `action`.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(last_error());
    }
    // SAFETY: the call succeeded and has written all of `action`.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// The name of a signal, if it is one of the classic ones.
pub(super) fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}
