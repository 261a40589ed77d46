//! `halocline info`: the machine as ranks see it, and which transports work on it.
//!
//! Each system feature that the shm transport needs is tried separately, so that the report names what a sandbox or an old kernel
//! lacks. MPI libraries and GPUs are searched for and tried, too.

mod cuda;
mod mpi;

pub(crate) use mpi::try_out;

use crate::launch::{Cpu, format_list, parse_list, usable};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The report.
#[derive(Debug)]
pub(crate) struct Info {
    processor: Option<String>,
    online: Option<BTreeSet<usize>>,
    usable: Result<Vec<Cpu>, Errno>,
    caches: Vec<Cache>,
    memory: BTreeMap<String, u64>,
    shm: Vec<Check>,
    mpi: mpi::Libraries,
    cuda: cuda::Cuda,
}

/// Caches of one level, kind and size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Cache {
    level: u32,
    kind: String,
    bytes: u64,
    instances: usize,
}

/// A system feature that a transport needs.
#[derive(Debug)]
struct Check {
    name: &'static str,
    outcome: Result<(), Errno>,
}

impl Info {
    /// Examines the machine. Blocks for file reads and system calls, and until child processes have tried the MPI libraries.
    pub(crate) fn gather() -> Self {
        let online = read("/sys/devices/system/cpu/online").and_then(|text| parse_list(&text));
        Self {
            processor: processor(),
            caches: caches(online.iter().flatten().copied()),
            online,
            usable: usable(),
            memory: memory(),
            shm: shm_checks(),
            mpi: mpi::gather(),
            cuda: cuda::gather(),
        }
    }

    /// The report as one JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let usable = self.usable.as_deref().unwrap_or_default();
        let ids = usable.iter().map(|cpu| cpu.id).collect::<BTreeSet<_>>();
        let checks: Vec<Value> = self.shm.iter().map(Check::to_json).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "processor": self.processor,
            "cores": {
                "online": self.online,
                "usable": self.usable.is_ok().then_some(ids),
                "sockets": count(usable, |cpu| cpu.package),
                "numa_nodes": count(usable, |cpu| cpu.node),
            },
            "caches": self.caches,
            "memory": {
                "total_bytes": self.memory.get("MemTotal"),
                "available_bytes": self.memory.get("MemAvailable"),
            },
            "transports": {
                "thread": {"works": true},
                "shm": {"works": self.shm_works(), "checks": checks},
                "mpi": self.mpi.to_json(),
            },
            "cuda": self.cuda.to_json(),
        })
    }

    /// The report as a table.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("halocline {}\n\n", env!("CARGO_PKG_VERSION"));
        let mut row = |name: &str, value: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:<12}{value}");
        };
        row("processor", self.processor.as_deref().unwrap_or("unknown"));
        row("cores", &self.cores_text());
        let caches = self.caches.iter().map(Cache::to_text).collect::<Vec<_>>().join(", ");
        row("caches", if caches.is_empty() { "not reported by the system" } else { &caches });
        row("memory", &self.memory_text());
        row("transports", "thread  works");
        if self.shm_works() {
            let names: Vec<&str> = self.shm.iter().map(|check| check.name).collect();
            row("", &format!("shm     works ({})", names.join(", ")));
        } else {
            row("", "shm     does not work here:");
        }
        for check in &self.shm {
            if let Err(errno) = check.outcome {
                row("", &format!("          {}: {errno}", check.name));
            }
        }
        let mut lead = "mpi     ";
        for line in self.mpi.to_text() {
            row("", &format!("{lead}{line}"));
            lead = "        ";
        }
        for (number, line) in self.cuda.to_text().iter().enumerate() {
            row(if number == 0 { "GPUs" } else { "" }, line);
        }
        text
    }

    fn shm_works(&self) -> bool {
        self.shm.iter().all(|check| check.outcome.is_ok())
    }

    fn cores_text(&self) -> String {
        let online = match &self.online {
            Some(online) => format!("{} online ({})", online.len(), format_list(online.iter().copied())),
            None => "online ones not reported by the system".into(),
        };
        let usable = match &self.usable {
            Ok(cpus) => format!(
                "{} usable here ({}) on {} and {}",
                cpus.len(),
                format_list(cpus.iter().map(|cpu| cpu.id)),
                plural(count(cpus, |cpu| cpu.package), "socket"),
                plural(count(cpus, |cpu| cpu.node), "NUMA node"),
            ),
            Err(errno) => format!("usable ones unknown: {errno}"),
        };
        format!("{online}, {usable}")
    }

    fn memory_text(&self) -> String {
        match (self.memory.get("MemTotal"), self.memory.get("MemAvailable")) {
            (Some(&total), Some(&available)) => {
                format!("{}, {} available", binary_size(total), binary_size(available))
            }
            _ => "not reported by the system".into(),
        }
    }
}

impl Cache {
    fn to_text(&self) -> String {
        let kind = match self.kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        format!("L{}{kind} {} x {}", self.level, binary_size(self.bytes), self.instances)
    }
}

impl Check {
    fn to_json(&self) -> Value {
        let error = self.outcome.err().map(|errno| errno.to_string());
        json!({"name": self.name, "works": error.is_none(), "error": error})
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn count(cpus: &[Cpu], part: impl Fn(&Cpu) -> usize) -> usize {
    cpus.iter().map(part).collect::<BTreeSet<_>>().len()
}

/// A count and its noun, in the plural unless it is 1.
pub(crate) fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Bytes in a binary unit.
pub(crate) fn binary_size(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    if size.fract() == 0.0 { format!("{size} {unit}") } else { format!("{size:.1} {unit}") }
}

fn processor() -> Option<String> {
    let text = read("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Processor, cores and memory in one line.
pub(crate) fn machine() -> String {
    let cores = usable().map_or(0, |cpus| cpus.len());
    let memory = memory().get("MemTotal").copied().unwrap_or(0);
    let processor = processor().unwrap_or_else(|| "unknown processor".to_owned());
    format!("{processor}, {}, {}", plural(cores, "core"), binary_size(memory))
}

/// Bytes of memory that programs can still allocate, if the system reports it.
pub(crate) fn available_memory() -> Option<u64> {
    memory().get("MemAvailable").copied()
}

fn memory() -> BTreeMap<String, u64> {
    let parse = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_string(), value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024))
    };
    read("/proc/meminfo").unwrap_or_default().lines().filter_map(parse).collect()
}

/// The caches of these CPUs, each counted once, however many CPUs share it.
fn caches(cpus: impl Iterator<Item = usize>) -> Vec<Cache> {
    let mut seen = BTreeSet::new();
    for cpu in cpus {
        for index in 0.. {
            let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
            let get = |name: &str| Some(read(&format!("{directory}/{name}"))?.trim().to_string());
            let (Some(level), Some(kind)) = (get("level").and_then(|text| text.parse().ok()), get("type"))
            else {
                break;
            };
            let bytes = get("size").and_then(|text| parse_size(&text)).unwrap_or(0);
            seen.insert((Cache { level, kind, bytes, instances: 0 }, get("shared_cpu_list")));
        }
    }
    let mut counted: BTreeMap<Cache, usize> = BTreeMap::new();
    for (cache, _) in seen {
        *counted.entry(cache).or_default() += 1;
    }
    counted.into_iter().map(|(cache, instances)| Cache { instances, ..cache }).collect()
}

/// A size as /sys writes it: `48K`.
fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (end, 'K') => (text.get(..end)?, 1 << 10),
        (end, 'M') => (text.get(..end)?, 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn shm_checks() -> Vec<Check> {
    let check = |name, outcome| Check { name, outcome };
    vec![
        check("sealed memfd", sealed_memfd()),
        check("descriptor passing", descriptor_passing()),
        check("futex", futex()),
        check("pidfd", pidfd()),
        check("abstract Unix socket", abstract_socket()),
    ]
}

fn sealed_memfd() -> Result<(), Errno> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let fd = rustix::fs::memfd_create("halocline-info", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, 4096)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    match rustix::fs::ftruncate(&fd, 0) {
        Err(_) => Ok(()),
        // A seal that does not hold.
        Ok(()) => Err(Errno::NOTSUP),
    }
}

fn descriptor_passing() -> Result<(), Errno> {
    use rustix::io::{IoSlice, IoSliceMut};
    use rustix::net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    };
    use std::mem::MaybeUninit;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let fds = [rustix::fd::AsFd::as_fd(&ours)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut sent = SendAncillaryBuffer::new(&mut space);
    sent.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(&ours, &[IoSlice::new(b"x")], &mut sent, SendFlags::NOSIGNAL)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    rustix::net::recvmsg(&theirs, &mut [IoSliceMut::new(&mut byte)], &mut received, flags)?;
    let passed = received.drain().any(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next().is_some(),
        _ => false,
    });
    if passed { Ok(()) } else { Err(Errno::NOTSUP) }
}

fn futex() -> Result<(), Errno> {
    use rustix::thread::futex::{Flags, wait, wake};
    let word = std::sync::atomic::AtomicU32::new(0);
    wake(&word, Flags::empty(), 1)?;
    // A futex whose word has another value does not sleep, and says so.
    match wait(&word, Flags::empty(), 1, None) {
        Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
        Ok(()) => Err(Errno::NOTSUP),
    }
}

fn pidfd() -> Result<(), Errno> {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    pidfd_open(getpid(), PidfdFlags::empty()).map(drop)
}

fn abstract_socket() -> Result<(), Errno> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let address =
        SocketAddr::from_abstract_name(format!("halocline-info-{}", std::process::id())).map_err(errno)?;
    let _listener = UnixListener::bind_addr(&address).map_err(errno)?;
    UnixStream::connect_addr(&address).map(drop).map_err(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_in_binary_units() {
        assert_eq!(parse_size("48K"), Some(48 << 10));
        assert_eq!(parse_size("2M"), Some(2 << 20));
        assert_eq!(parse_size("K"), None);
        assert_eq!(binary_size(48 << 10), "48 KiB");
        assert_eq!(binary_size(3 << 29), "1.5 GiB");
        assert_eq!(binary_size(7), "7 B");
    }

    #[test]
    fn a_check_that_fails_is_named_with_the_reason() {
        let mut info = Info::gather();
        info.shm = vec![
            Check { name: "pidfd", outcome: Err(Errno::NOSYS) },
            Check { name: "futex", outcome: Ok(()) },
        ];
        let text = info.to_text();
        assert!(text.contains("shm     does not work here") && text.contains("pidfd: "), "{text}");
        assert_eq!(info.to_json()["transports"]["shm"]["works"], json!(false));
        assert_eq!(info.to_json()["transports"]["shm"]["checks"][1]["works"], json!(true));
    }
}
