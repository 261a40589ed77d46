//! The job: what the launcher passes to each rank, and how a rank finds it.
//!
//! A job is a control segment in a sealed memfd, which the ranks inherit, and a random token. There is
//! no file, so that killed processes leave nothing behind. The environment of a rank has
//!
//! | variable | value |
//! | --- | --- |
//! | `HALOCLINE_RANK` | the rank, 0 to size - 1 |
//! | `HALOCLINE_SIZE` | the number of ranks |
//! | `HALOCLINE_JOB` | the token: 32 hexadecimal digits |
//! | `HALOCLINE_CONTROL_FD` | the descriptor of the control segment |
//! | `HALOCLINE_LIFELINE_FD` | the descriptor that ties the rank to its launcher ([`super::Lifeline`]); it may be unset |

use super::control::Control;
use super::lifeline::LIFELINE_FD;
use crate::error::remedy;
use halocline_device::{Variable, VariableError};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, FdFlags};
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

const RANK: &str = "HALOCLINE_RANK";
const SIZE: &str = "HALOCLINE_SIZE";
const TOKEN: &str = "HALOCLINE_JOB";
const CONTROL_FD: &str = "HALOCLINE_CONTROL_FD";

const PAGE: usize = 4096;
const BYTES_PER_RANK: usize = 128;

/// The seals of the control segment: no process can shrink it while another reads it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A job that cannot be made, or an environment that describes none.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// An impossible number of ranks.
    #[error("a job cannot have {found} ranks; start 1 to {} ranks", Job::MAX_RANKS)]
    Ranks {
        /// Ranks asked for.
        found: usize,
    },
    /// A system call failed.
    #[error("cannot {what} of the job: {errno}{}", remedy(*errno))]
    System {
        /// The step that failed.
        what: &'static str,
        /// The error of the system.
        errno: Errno,
    },
    /// The control segment cannot be mapped.
    #[error("the control segment of the job: {0}")]
    Map(String),
    /// Some variables of a job are set, one is not.
    #[error(
        "{variable} is not set, but other HALOCLINE variables of a job are; start the program with \
         `halocline launch`, or unset all of them to run alone"
    )]
    Missing {
        /// The missing variable.
        variable: &'static str,
    },
    /// A variable of the job has a malformed value.
    #[error(transparent)]
    Invalid(#[from] VariableError),
    /// The process has inherited the variables of a job, but not its descriptors.
    #[error(
        "{variable} is {fd}, but descriptor {fd} {why}: this process has inherited the variables of a job of `halocline \
         launch`, and {by} has started it without the job's descriptors; {}",
        advice()
    )]
    Inherited {
        /// The variable that names the descriptor.
        variable: &'static str,
        /// The descriptor's number.
        fd: RawFd,
        /// What is wrong with it.
        why: String,
        /// The launcher of the process.
        by: &'static str,
    },
    /// Another process with the same variables has joined before.
    #[error(
        "another process has joined the job as rank {rank} already: this one has inherited its variables; {}",
        advice()
    )]
    Taken {
        /// The rank.
        rank: usize,
    },
    /// The launcher that has started this process has died.
    #[error("the launcher of this job has died; start the job again")]
    LauncherDied,
}

/// The remedy if a process has inherited the variables of a job.
fn advice() -> String {
    format!(
        "start the ranks either by `halocline launch -n N -- program` or by `mpirun -n N program`, not one by the other, \
         and unset {RANK}, {SIZE}, {TOKEN}, {CONTROL_FD} and {LIFELINE_FD} in programs that a rank starts"
    )
}

/// The error for an unusable descriptor in a variable.
pub(super) fn unusable(variable: &'static str, fd: RawFd, why: String) -> JobError {
    let is_mpi = crate::mpi::launched().is_some();
    let by = if is_mpi { "an MPI launcher (mpirun)" } else { "another program" };
    JobError::Inherited { variable, fd, why, by }
}

halocline_plan::debug_as_text!(JobError);

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} ranks)", self.size)
    }
}

/// A job about to be started: the launcher's side.
pub struct Job {
    control: Arc<OwnedFd>,
    slots: Control,
    token: [u8; 16],
    size: usize,
}

/// The job that started this process: a rank's side.
#[derive(Debug)]
pub struct JoinedJob {
    /// The rank of this process, below `size`.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// The job's random name.
    pub token: [u8; 16],
    /// The control segment: a memfd of [`Job::segment_bytes`] bytes, sealed, closed on exec.
    pub control: OwnedFd,
}

impl Job {
    /// The most ranks that a job can have.
    pub const MAX_RANKS: usize = 4096;

    /// Size in bytes of the control segment for `ranks` ranks: a page, and a slot for each rank, in
    /// whole pages.
    pub const fn segment_bytes(ranks: usize) -> usize {
        (PAGE + BYTES_PER_RANK * ranks).next_multiple_of(PAGE)
    }

    /// Makes the zeroed control segment and the token of a job of `ranks` ranks (1 to
    /// [`Job::MAX_RANKS`]). Does not block.
    pub fn create(ranks: usize) -> Result<Self, JobError> {
        if !(1..=Self::MAX_RANKS).contains(&ranks) {
            return Err(JobError::Ranks { found: ranks });
        }
        let fail = |what| move |errno| JobError::System { what, errno };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let control =
            rustix::fs::memfd_create("halocline-job", flags).map_err(fail("create the control memfd"))?;
        rustix::fs::ftruncate(&control, Self::segment_bytes(ranks) as u64)
            .map_err(fail("size the control memfd"))?;
        rustix::fs::fcntl_add_seals(&control, SEALS).map_err(fail("seal the control memfd"))?;
        let shared = control.try_clone().map_err(|error| JobError::System {
            what: "keep the control memfd",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
        })?;
        let slots = Control::map(shared, ranks).map_err(|error| JobError::Map(error.to_string()))?;
        Ok(Self { control: Arc::new(control), slots, token: random_token()?, size: ranks })
    }

    /// Publishes that the process of a rank has ended, so that no rank waits for it to join.
    pub fn ended(&self, rank: usize) {
        self.slots.ended(rank);
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The job's random name.
    pub fn token(&self) -> &[u8; 16] {
        &self.token
    }

    /// The control segment.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Makes `command` start rank `rank` of this job: sets its environment, and lets only this
    /// command inherit the control segment. A `rank` that the job does not have
    /// is refused by the started process.
    pub fn prepare(&self, rank: usize, command: &mut Command) {
        let mut token = String::with_capacity(32);
        for byte in self.token {
            // Writing to a String cannot fail.
            let _ = write!(token, "{byte:02x}");
        }
        command
            .env(RANK, rank.to_string())
            .env(SIZE, self.size.to_string())
            .env(TOKEN, token)
            .env(CONTROL_FD, self.control.as_raw_fd().to_string());
        let control = Arc::clone(&self.control);
        let inherit = move || Ok(rustix::io::fcntl_setfd(&*control, FdFlags::empty())?);
        // SAFETY: between fork and exec the closure makes one system call. It neither allocates nor locks, and touches
        // no memory but its capture, which `command` keeps alive.
        unsafe { command.pre_exec(inherit) };
    }

    /// The job that this process is a rank of, or `None` if the environment names none.
    /// Can be called any number of times: the descriptor in the environment stays open (and is closed
    /// on exec from now on), each call returns another one.
    pub fn from_env() -> Result<Option<JoinedJob>, JobError> {
        join(|variable| std::env::var_os(variable))
    }
}

fn random_token() -> Result<[u8; 16], JobError> {
    let mut token = [0; 16];
    // The kernel returns up to 256 bytes at once, without interruption.
    let got = rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| JobError::System { what: "draw the random token", errno })?;
    if got != token.len() {
        return Err(JobError::System { what: "draw the random token", errno: Errno::AGAIN });
    }
    Ok(token)
}

fn join(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Option<JoinedJob>, JobError> {
    let find = |variable| Variable::given(variable, lookup(variable));
    if [RANK, SIZE, TOKEN, CONTROL_FD].into_iter().all(|variable| find(variable).is_none()) {
        return Ok(None);
    }
    let get = |variable| find(variable).ok_or(JobError::Missing { variable });
    let size = number(get(SIZE)?, 1..=Job::MAX_RANKS)?;
    let rank = number(get(RANK)?, 0..=size - 1)?;
    let token = get(TOKEN)?.parse("32 hexadecimal digits", parse_token)?;
    let fd = number(get(CONTROL_FD)?, 0..=RawFd::MAX as usize)? as RawFd;
    let control = adopt(fd, size).map_err(|why| unusable(CONTROL_FD, fd, why))?;
    Ok(Some(JoinedJob { rank, size, token, control }))
}

pub(super) fn number(variable: Variable, range: RangeInclusive<usize>) -> Result<usize, VariableError> {
    let number = variable.number(*range.start() as u64..=*range.end() as u64)?;
    Ok(number as usize)
}

fn parse_token(text: &str) -> Option<[u8; 16]> {
    let is_token = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_token).map(u128::to_be_bytes)
}

/// A descriptor of this process for the control segment behind `fd`, or why it is none.
fn adopt(fd: RawFd, size: usize) -> Result<OwnedFd, String> {
    // SAFETY: `fd` is not -1, and is given to system calls only, which check it. If it is closed, or another file by
    // now, they fail, and do not change that file.
    let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
    let stat = rustix::fs::fstat(inherited).map_err(|errno| format!("cannot be used: {errno}"))?;
    let seals = rustix::fs::fcntl_get_seals(inherited).map_err(|_| "is not a memfd".to_string())?;
    if !seals.contains(SEALS) {
        return Err("is not sealed against shrinking, growing and sealing".into());
    }
    let expected = Job::segment_bytes(size);
    if stat.st_size as u64 != expected as u64 {
        return Err(format!("has {} bytes, a job of {size} ranks has {expected}", stat.st_size));
    }
    let refused = |errno| format!("cannot be used: {errno}");
    rustix::io::fcntl_setfd(inherited, FdFlags::CLOEXEC).map_err(refused)?;
    rustix::io::fcntl_dupfd_cloexec(inherited, 3).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::process::Stdio;

    /// The variables that `prepare` sets.
    fn environment(job: &Job, rank: usize) -> HashMap<String, OsString> {
        let mut command = Command::new("true");
        job.prepare(rank, &mut command);
        let set = command.get_envs().filter_map(|(key, value)| Some((key.to_str()?.into(), value?.into())));
        set.collect()
    }

    fn join_with(environment: &HashMap<String, OsString>) -> Result<Option<JoinedJob>, JobError> {
        join(|variable| environment.get(variable).cloned())
    }

    #[test]
    fn the_segment_has_a_page_and_a_slot_for_each_rank_in_whole_pages() {
        assert_eq!(Job::segment_bytes(1), 8192);
        assert_eq!(Job::segment_bytes(32), 8192);
        assert_eq!(Job::segment_bytes(33), 12288);
    }

    #[test]
    fn a_job_of_no_ranks_or_of_absurdly_many_is_refused() {
        for found in [0, Job::MAX_RANKS + 1, usize::MAX] {
            assert_eq!(Job::create(found).map(|_| ()), Err(JobError::Ranks { found }));
        }
    }

    #[test]
    fn what_the_launcher_sets_is_what_the_rank_finds() {
        let job = Job::create(3).unwrap();
        for _ in 0..2 {
            let joined = join_with(&environment(&job, 2)).unwrap().unwrap();
            assert_eq!((joined.rank, joined.size, &joined.token), (2, 3, job.token()));
            let (ours, theirs) =
                (rustix::fs::fstat(job.control()).unwrap(), rustix::fs::fstat(&joined.control).unwrap());
            assert_eq!((theirs.st_ino, theirs.st_size), (ours.st_ino, 8192));
            assert!(rustix::io::fcntl_getfd(&joined.control).unwrap().contains(FdFlags::CLOEXEC));
        }
        assert_ne!(job.token(), Job::create(3).unwrap().token());
    }

    #[test]
    fn without_any_variable_there_is_no_job() {
        assert!(join_with(&HashMap::new()).unwrap().is_none());
        let empty = [RANK, SIZE, TOKEN, CONTROL_FD].map(|name| (name.to_owned(), OsString::new()));
        assert!(join_with(&HashMap::from(empty)).unwrap().is_none());
    }

    #[test]
    fn a_missing_variable_is_named() {
        let job = Job::create(2).unwrap();
        for variable in [RANK, SIZE, TOKEN, CONTROL_FD] {
            let mut environment = environment(&job, 0);
            environment.remove(variable);
            assert_eq!(join_with(&environment).unwrap_err(), JobError::Missing { variable });
            environment.insert(variable.into(), OsString::new());
            assert_eq!(join_with(&environment).unwrap_err(), JobError::Missing { variable });
        }
    }

    #[test]
    fn a_variable_that_cannot_be_is_named_with_its_value_and_what_is_right() {
        let job = Job::create(2).unwrap();
        let wrong = [
            (RANK, "2", "0 to 1"),
            (RANK, "-1", "0 to 1"),
            (RANK, "+1", "0 to 1"),
            (SIZE, "0", "1 to 4096"),
            (SIZE, "99999999999999999999999", "1 to 4096"),
            (SIZE, "two", "1 to 4096"),
            (TOKEN, "abc", "32 hexadecimal digits"),
            (TOKEN, "+0000000000000000000000000000000", "32 hexadecimal digits"),
            (CONTROL_FD, "-1", "0 to 2147483647"),
            (CONTROL_FD, "4294967295", "0 to 2147483647"),
        ];
        for (variable, value, right) in wrong {
            let mut environment = environment(&job, 0);
            environment.insert(variable.into(), value.into());
            let error = join_with(&environment).unwrap_err();
            assert!(matches!(&error, JobError::Invalid(error) if error.name() == variable), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(variable) && text.contains(&format!("{value:?}")) && text.contains(right),
                "{text}"
            );
        }
    }

    #[test]
    fn a_descriptor_that_is_not_the_control_segment_is_refused() {
        let job = Job::create(2).unwrap();
        let refuse = |fd: RawFd, why: &str| {
            let mut environment = environment(&job, 0);
            environment.insert(CONTROL_FD.into(), fd.to_string().into());
            let error = join_with(&environment).unwrap_err();
            let is_named = |error: &JobError| {
                matches!(error, JobError::Inherited { variable: CONTROL_FD, fd: named, why: reason, .. }
                    if *named == fd && reason.contains(why))
            };
            assert!(is_named(&error), "{error}");
        };
        refuse(RawFd::MAX, "cannot be used");
        let file = std::fs::File::open("/dev/null").unwrap();
        refuse(file.as_raw_fd(), "is not a memfd");
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let unsealed = rustix::fs::memfd_create("unsealed", flags).unwrap();
        rustix::fs::ftruncate(&unsealed, 8192).unwrap();
        refuse(unsealed.as_raw_fd(), "is not sealed");
        let larger = Job::create(100).unwrap();
        refuse(larger.control.as_raw_fd(), "has 20480 bytes, a job of 2 ranks has 8192");
    }

    #[test]
    fn only_the_started_rank_inherits_the_segment() {
        let job = Job::create(2).unwrap();
        let path = format!("/proc/self/fd/{}", job.control.as_raw_fd());
        let list = || {
            let mut command = Command::new("readlink");
            command.arg(&path).stdin(Stdio::null());
            command
        };
        let mut rank = list();
        job.prepare(1, &mut rank);
        let seen = rank.output().unwrap();
        assert!(String::from_utf8_lossy(&seen.stdout).contains("memfd:halocline-job"), "{seen:?}");
        let seen = list().output().unwrap();
        assert!(!String::from_utf8_lossy(&seen.stdout).contains("halocline-job"), "{seen:?}");
    }
}
