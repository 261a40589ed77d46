//! Processes that build: their names in the cache folder, and whether they still run.
//!
//! No clock decides whether a process of this host runs: its number and its start time do, counted since the boot.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process, or a thread of one, as the name of a file says it: `PID-START-NAMESPACE-BOOT-SERIAL-HOST`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Clock ticks from the boot to its start; 0 if unknown.
    start: u64,
    machine: Machine,
    /// Tells the builds of one process apart.
    serial: u64,
    pub(super) host: Box<str>,
}

/// Where a process number means a process: a boot of a kernel, and a namespace of process numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Machine {
    /// The first half of the kernel's boot id; 0 if unknown.
    pub(super) boot: u64,
    namespace: u64,
}

/// Whether a process runs, as far as this host knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Runs,
    Ended,
    /// It is of another host, or of another container.
    Unknown,
}

impl Machine {
    /// The one that this process runs on.
    pub(super) fn here() -> Self {
        static HERE: OnceLock<u64> = OnceLock::new();
        let boot = *HERE.get_or_init(|| {
            let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
            u64::from_str_radix(&digits, 16).unwrap_or(0)
        });
        // Not kept: a process may enter a namespace, and its children may be in another.
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino());
        Self { boot, namespace }
    }

    /// Whether process numbers of this machine mean nothing elsewhere.
    fn is_known(self) -> bool {
        self.boot != 0 && self.namespace != 0
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.boot, self.namespace)
    }
}

impl Process {
    /// This process, under a name that no other build has.
    pub(super) fn this() -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let pid = std::process::id();
        Self {
            pid,
            start: stat(pid).map_or(0, |stat| stat.start),
            machine: Machine::here(),
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            host: host_name(),
        }
    }

    /// An unknown process.
    pub(super) fn unknown() -> Self {
        Self {
            pid: 0,
            start: 0,
            machine: Machine { boot: 0, namespace: 0 },
            serial: 0,
            host: "unknown".into(),
        }
    }

    pub(super) fn name(&self) -> String {
        let Self { pid, start, machine: Machine { boot, namespace }, serial, host } = self;
        format!("{pid}-{start}-{namespace}-{boot:016x}-{serial}-{host}")
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut fields = name.splitn(6, '-');
        let mut number = || fields.next()?.parse().ok();
        let (pid, start, namespace): (u64, u64, u64) = (number()?, number()?, number()?);
        let boot = u64::from_str_radix(fields.next()?, 16).ok()?;
        let serial = fields.next()?.parse().ok()?;
        let host = fields.next()?.into();
        Some(Self {
            pid: u32::try_from(pid).ok()?,
            start,
            machine: Machine { boot, namespace },
            serial,
            host,
        })
    }

    pub(super) fn life(&self) -> Life {
        let here = Machine::here();
        if self.machine != here || !here.is_known() || self.start == 0 {
            return Life::Unknown;
        }
        match stat(self.pid) {
            // A zombie runs nothing any more.
            Some(stat) if stat.start == self.start && !matches!(stat.state, b'Z' | b'X') => Life::Runs,
            Some(_) => Life::Ended,
            // `/proc` may hide processes of other users.
            None => match rustix::process::Pid::from_raw(self.pid.cast_signed()) {
                Some(pid) if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) => {
                    Life::Ended
                }
                _ => Life::Unknown,
            },
        }
    }
}

/// The content of `/proc/PID/stat`.
struct Stat {
    state: u8,
    start: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = match fs::read(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                tracing::debug!("cannot read the state of process {pid}: {error}");
            }
            return None;
        }
    };
    // The name of the program, in parentheses, may contain anything.
    let after = text.iter().rposition(|&byte| byte == b')')? + 2;
    let text = std::str::from_utf8(text.get(after..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // The start time is field 22, the state is field 3.
    Some(Stat { state, start: fields.nth(18)?.parse().ok()? })
}

/// The name of this host, as part of a file name.
pub(super) fn host_name() -> Box<str> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name: String = name.chars().filter(|c| !c.is_control() && *c != '/').take(64).collect();
    if name.is_empty() { "unknown".into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_read_from_its_name() {
        let this = Process::this();
        assert_eq!(Process::parse(&this.name()), Some(this.clone()));
        let host = "a-host.with-dashes";
        let other = Process { host: host.into(), ..this.clone() };
        assert_eq!(Process::parse(&other.name()).unwrap().host.as_ref(), host);
        assert_ne!(Process::this().name(), this.name());
        for name in ["", "1", "1-2-3-4-5", "x-2-3-4-5-host", "1-2-3-zz-5-host", "99999999999-2-3-4-5-h"] {
            assert_eq!(Process::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_known_whatever_the_clock_says() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let of_child = Process { pid: child.id(), start: stat(child.id()).unwrap().start, ..Process::this() };
        assert_eq!((Process::this().life(), of_child.life()), (Life::Runs, Life::Runs));
        child.kill().unwrap();
        // It has ended before anyone waits for it: it is a zombie at the latest now.
        let exited = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), exited).unwrap();
        assert_eq!(of_child.life(), Life::Ended);
        child.wait().unwrap();
        assert_eq!(of_child.life(), Life::Ended);
    }

    #[test]
    fn a_number_that_another_process_has_now_is_not_taken_for_the_first() {
        let this = Process::this();
        let earlier = Process { start: this.start - 1, ..this.clone() };
        assert_eq!(earlier.life(), Life::Ended);
    }

    #[test]
    fn processes_of_other_hosts_boots_and_containers_are_unknown() {
        let this = Process::this();
        let machine = this.machine;
        for machine in [
            Machine { boot: machine.boot ^ 1, ..machine },
            Machine { boot: 0, ..machine },
            Machine { namespace: machine.namespace + 1, ..machine },
        ] {
            assert_eq!(Process { machine, ..this.clone() }.life(), Life::Unknown);
        }
    }
}
