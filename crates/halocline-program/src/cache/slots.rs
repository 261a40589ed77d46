//! How many builds run at the same time on a node.
//!
//! A build takes one of the node's slots, which are claims in the cache folder: builds for other cache folders are not counted. If `MAKEFLAGS` offers the job server of GNU make, it takes a
//! token there too. As every job of make has one token of its own, the first build of a process at a time needs none.

use super::claim::{Attempt, Claim, Heartbeat, Watch, attempt};
use super::key::Hash;
use super::layout::{Layout, create};
use super::process::{Machine, Process};
use super::wait::BuildOptions;
use super::{CacheError, Key};
use jobserver::{Acquired, Client};
use std::cell::RefCell;
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

thread_local! {
    /// What this thread builds, one for the other.
    static BUILDS: RefCell<Vec<Hash>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread builds this program at the moment.
pub(super) fn builds_here(key: &Key) -> bool {
    BUILDS.with_borrow(|builds| builds.contains(&key.hash))
}

/// The right to run one build in this thread. Dropping it ends it.
pub(super) struct Slot {
    /// `None`: a build of this thread waits for this one, and lends its slot.
    _own: Option<Own>,
}

struct Own {
    _claim: Claim,
    _token: Token,
}

impl Drop for Slot {
    fn drop(&mut self) {
        BUILDS.with_borrow_mut(Vec::pop);
    }
}

/// What a build waits for before it begins.
pub(super) enum Busy {
    /// The build of the same program, by this process.
    Builder(Process),
    /// One of so many slots; this process has another one.
    Slots(usize, Process),
    /// A token of make's job server.
    Token,
}

impl Busy {
    /// The error of a wait that took too long.
    pub(super) fn error(self, key: &Key, after: Duration) -> CacheError {
        let program = key.program.clone();
        match self {
            Self::Builder(Process { host, pid, .. }) => CacheError::Waiting { program, host, pid, after },
            Self::Slots(slots, Process { host, pid, .. }) => {
                CacheError::Slots { program, slots, host, pid, after }
            }
            Self::Token => CacheError::Token { program, after },
        }
    }
}

/// A slot, if one is free. A build within another one uses that one's.
pub(super) fn take(
    layout: &Layout,
    key: &Key,
    options: &BuildOptions<'_>,
    (heartbeat, watch): (Heartbeat, &mut Watch),
) -> Result<Result<Slot, Busy>, CacheError> {
    let is_first = BUILDS.with_borrow(Vec::is_empty);
    let own = match is_first {
        true => match take_own(layout, options, (heartbeat, watch))? {
            Ok(own) => Some(own),
            Err(busy) => return Ok(Err(busy)),
        },
        false => None,
    };
    BUILDS.with_borrow_mut(|builds| builds.push(key.hash));
    Ok(Ok(Slot { _own: own }))
}

fn take_own(
    layout: &Layout,
    options: &BuildOptions<'_>,
    (heartbeat, watch): (Heartbeat, &mut Watch),
) -> Result<Result<Own, Busy>, CacheError> {
    let Some(token) = Token::take() else { return Ok(Err(Busy::Token)) };
    let folder = layout.slots().join(Machine::here().to_string());
    create(&folder)?;
    let slots = options.jobs.unwrap_or_else(cores);
    let mut holder = Process::unknown();
    for slot in 0..slots {
        match attempt(&folder.join(slot.to_string()), heartbeat, watch)? {
            Attempt::Held(mut claim) => {
                claim.keep_alive(heartbeat);
                return Ok(Ok(Own { _claim: claim, _token: token }));
            }
            Attempt::By(process) => holder = process,
        }
    }
    Ok(Err(Busy::Slots(slots, holder)))
}

/// A token of make's job server.
enum Token {
    /// There is no job server.
    Free,
    /// The token of this process itself.
    Own,
    /// A further one of this process, which goes back when it is dropped.
    Taken(Option<Acquired>, u32),
}

/// Whether a build uses the token that this process has from the beginning.
static OWN_IS_USED: AtomicBool = AtomicBool::new(false);

impl Token {
    /// A token, if one is free.
    fn take() -> Option<Self> {
        let Some(server) = server() else { return Some(Self::Free) };
        if !OWN_IS_USED.swap(true, Ordering::AcqRel) {
            return Some(Self::Own);
        }
        match server.try_acquire() {
            Ok(token) => Some(Self::Taken(Some(token?), std::process::id())),
            Err(error) => {
                tracing::warn!("the job server of make is not used: {error}");
                Some(Self::Free)
            }
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        match self {
            Self::Free => {}
            Self::Own => OWN_IS_USED.store(false, Ordering::Release),
            // A forked child leaves it to its parent.
            Self::Taken(token, pid) if *pid != std::process::id() => std::mem::forget(token.take()),
            Self::Taken(..) => {}
        }
    }
}

/// The job server that `MAKEFLAGS` names, if it is open in this process.
fn server() -> Option<&'static Client> {
    static SERVER: OnceLock<Option<Client>> = OnceLock::new();
    let open = || {
        // SAFETY: descriptors that `MAKEFLAGS` names and that are pipes belong to the job server: make passes them on to its jobs.
        let found = unsafe { Client::from_env_ext(true) };
        found.client.inspect_err(|error| tracing::debug!("there is no job server of make: {error}")).ok()
    };
    SERVER.get_or_init(open).as_ref()
}

/// How many cores of the node the ranks of a job may use together. Not what this process may use: a launcher binds each rank to a core.
fn cores() -> usize {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let group = std::path::Path::new("/sys/fs/cgroup").join(own);
    let lists = [group.join("cpuset.cpus.effective"), "/sys/devices/system/cpu/online".into()];
    let listed = lists.iter().find_map(|path| count(fs::read_to_string(path).ok()?.trim()));
    let quota = fs::read_to_string(group.join("cpu.max")).ok().and_then(|text| whole_cores(&text));
    let here = || std::thread::available_parallelism().map_or(1, usize::from);
    listed.unwrap_or_else(here).min(quota.unwrap_or(usize::MAX)).max(1)
}

/// The number of cores in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let count_of = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        last.checked_sub(first).map(|more| more + 1)
    };
    list.split(',').map(count_of).sum()
}

/// The cores of a quota such as `150000 100000`, rounded up; `None` without one.
fn whole_cores(quota: &str) -> Option<usize> {
    let (time, period) = quota.trim().split_once(' ')?;
    let (time, period) = (time.parse::<usize>().ok()?, period.parse::<usize>().ok()?);
    (period > 0).then(|| time.div_ceil(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_quotas_of_cores_are_counted() {
        for (list, cores) in
            [("0", Some(1)), ("0-3", Some(4)), ("0-3,8,10-11", Some(7)), ("", None), ("3-1", None)]
        {
            assert_eq!(count(list), cores, "{list:?}");
        }
        for (quota, cores) in
            [("max 100000\n", None), ("150000 100000\n", Some(2)), ("50000 100000", Some(1)), ("1 0", None)]
        {
            assert_eq!(whole_cores(quota), cores, "{quota:?}");
        }
        assert!(cores() > 0);
    }
}
