//! The steady state: what an exchange costs besides copying. This module has the pairs of ranks that `tests/steady.rs` runs, and
//! the part that counts system calls in a process of its own.
//!
//! Covers the paths that reach the peer's memory. Messages make system calls or allocations by their nature.

use crate::fixtures::{Grid, by};
use crate::{Outcome, Trouble, ensure, fail};
use halocline::{
    Array, Communicator, Error, Field, HaloExchange, LinkChoice, Pattern, PatternLinks, Pending, ReduceOp,
};
use halocline_comm::{Host, System};
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kind of exchange.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Two sets of fields in turn, bound with such links.
    Bound(LinkChoice),
    /// Two fields in turn, given to each exchange.
    Unbound,
    /// As bound, in reverse: sums of halo cells.
    Reduce(LinkChoice),
}

/// The kinds that make no system call in the steady state.
pub const KINDS: [Kind; 7] = [
    Kind::Bound(LinkChoice::Push),
    Kind::Bound(LinkChoice::Pull),
    Kind::Bound(LinkChoice::Mailbox),
    Kind::Unbound,
    Kind::Reduce(LinkChoice::Push),
    Kind::Reduce(LinkChoice::Pull),
    Kind::Reduce(LinkChoice::Mailbox),
];

/// Exchanges before anything is counted.
pub const WARM_UP: u64 = 50;

/// One rank of a periodic line, with two arrays that take turns.
pub struct End {
    arrays: [Array<u64>; 2],
    exchange: Exchange,
    rank: u64,
    ranks: u64,
}

enum Exchange {
    Bound(HaloExchange),
    Unbound(PatternLinks, Pattern),
    Reduce(HaloExchange),
}

impl End {
    /// Binds on `comm`. Collective.
    pub fn new(comm: &Communicator, kind: Kind) -> Result<Self, Trouble> {
        let pattern: Pattern = Grid::new(comm.size(), &[2 * comm.size()], &[true], 1)?.pattern(comm)?;
        let arrays = [Array::zeros(comm, &[4])?, Array::zeros(comm, &[4])?];
        let bind = |link| {
            let sets: [&[(&Pattern, &Field)]; 2] = [&[(&pattern, &arrays[0])], &[(&pattern, &arrays[1])]];
            HaloExchange::bind_alternatives(comm, &sets, &by(link))
        };
        let exchange = match kind {
            Kind::Bound(link) => Exchange::Bound(bind(link)?),
            Kind::Reduce(link) => Exchange::Reduce(bind(link)?),
            Kind::Unbound => Exchange::Unbound(PatternLinks::new(comm, &[&pattern])?, pattern),
        };
        Ok(Self { arrays, exchange, rank: comm.rank() as u64, ranks: comm.size() as u64 })
    }

    fn array(&self, step: u64) -> &Array<u64> {
        &self.arrays[(step % 2) as usize]
    }

    /// New owned cells for a step; for a reduce new halo cells, too.
    pub fn fill(&self, step: u64) -> Result<(), Error> {
        let mut cells = self.array(step).write()?;
        (cells[1], cells[2]) = (value(self.rank, step), value(self.rank, step) + 1);
        if let Exchange::Reduce(_) = &self.exchange {
            (cells[0], cells[3]) = (value(self.rank, step) + 2, value(self.rank, step) + 3);
        }
        Ok(())
    }

    /// Begins the exchange of a step.
    pub fn exchange(&self, step: u64) -> Result<Pending, Error> {
        match &self.exchange {
            Exchange::Bound(halo) => halo.begin().set((step % 2) as usize).start(),
            Exchange::Reduce(halo) => halo.begin().set((step % 2) as usize).reduce(ReduceOp::Sum).start(),
            Exchange::Unbound(links, pattern) => links.exchange(&[(pattern, self.array(step))]),
        }
    }

    /// Whether the halo is what the neighbours wrote or, after a reduce, was added to their owned cells.
    pub fn is_right(&self, step: u64) -> Result<bool, Error> {
        let cells = self.array(step).read()?;
        let (before, after) = ((self.rank + self.ranks - 1) % self.ranks, (self.rank + 1) % self.ranks);
        if let Exchange::Reduce(_) = &self.exchange {
            let own = value(self.rank, step);
            let (first, last) = (own + value(before, step) + 3, own + 1 + value(after, step) + 2);
            return Ok(cells[..] == [0, first, last, 0]);
        }
        Ok((cells[0], cells[3]) == (value(before, step) + 1, value(after, step)))
    }

    /// One step of a rank that blocks.
    pub fn step(&self, step: u64) -> Outcome {
        self.fill(step)?;
        self.exchange(step)?.wait()?;
        ensure!(self.is_right(step)?, "rank {}, step {step}: the halo is wrong", self.rank);
        Ok(())
    }

    /// Whether both of two ranks vote for something, which the halo tells.
    fn agree(&self, vote: bool, step: u64) -> Result<bool, Error> {
        self.array(step).write()?.fill(vote.into());
        self.exchange(step)?.wait()?;
        Ok(vote && self.array(step).read()?[0] == 1)
    }
}

fn value(rank: u64, step: u64) -> u64 {
    1_000_000 * rank + 10 * step
}

/// Two ranks, bound by two threads and then driven by one: every wait succeeds at its first poll, however busy the machine is.
pub fn pair(host: Arc<dyn Host>, kind: Kind) -> Result<[End; 2], Trouble> {
    let ranks: Vec<_> = Communicator::threads_on(2, host)
        .into_iter()
        .map(|comm| std::thread::spawn(move || End::new(&comm, kind)))
        .collect();
    let mut ends = Vec::new();
    for rank in ranks {
        ends.push(rank.join().unwrap_or_else(|_| Err(Trouble::new("a rank has panicked in bind")))?);
    }
    ends.try_into().or_else(|_| fail!("two ranks have two ends"))
}

/// One step of both ranks by this thread.
pub fn step_of_pair(ends: &[End; 2], step: u64) -> Outcome {
    let [first, second] = ends;
    first.fill(step)?;
    second.fill(step)?;
    let pending = [first.exchange(step)?, second.exchange(step)?];
    pending[0].wait()?;
    pending[1].wait()?;
    ensure!(first.is_right(step)? && second.is_right(step)?, "step {step}: a halo is wrong");
    Ok(())
}

/// Futex calls of this thread since [`trap_calls`].
static FUTEXES: AtomicU32 = AtomicU32::new(0);

/// More bytes than a report has: it is written while system calls are trapped, where a heap that grows would make one.
const REPORT: usize = 4096;

/// Counts system calls of exchanges and prints the result: `thread` drives a pair of ranks by one thread, `shm` is one of two processes
/// of a job. Any system call but futex ends the process with the number of the call as a message.
pub fn main(transport: &str) -> ExitCode {
    let counted = match transport {
        "thread" => count_on_threads(),
        "shm" => count_on_processes(),
        other => Err(Trouble::new(format!("there is no transport {other:?} here"))),
    };
    match counted {
        // System calls are still trapped, and a normal exit would make some.
        Ok(report) => end(&report, 0),
        Err(trouble) => end(&format!("{trouble}\n"), 1),
    }
}

fn count_on_threads() -> Result<String, Trouble> {
    let mut pairs = Vec::new();
    for kind in KINDS {
        let ends = pair(Arc::new(System), kind)?;
        (0..WARM_UP).try_for_each(|step| step_of_pair(&ends, step))?;
        pairs.push(ends);
    }
    let mut report = String::with_capacity(REPORT);
    trap_calls()?;
    for ends in &pairs {
        (WARM_UP..WARM_UP + 1000).try_for_each(|step| step_of_pair(ends, step))?;
    }
    let futexes = FUTEXES.load(Ordering::Relaxed);
    std::mem::forget(pairs);
    writeln!(report, "futex calls in {} x 1000 exchanges: {futexes}", KINDS.len())?;
    Ok(report)
}

/// Steps in a row between two looks at the count.
const WINDOW: u64 = 20;
/// The most looks: a machine with other work may let the two ranks run at the same time only now and then.
const WINDOWS: u64 = 2000;

fn count_on_processes() -> Result<String, Trouble> {
    let comm = Communicator::init()?;
    let mut ends = Vec::new();
    for kind in KINDS {
        let end = End::new(&comm, kind)?;
        (0..WARM_UP).try_for_each(|step| end.step(step))?;
        ends.push(end);
    }
    let votes = End::new(&comm, Kind::Bound(LinkChoice::Push))?;
    comm.barrier()?;
    let mut report = String::with_capacity(REPORT);
    trap_calls()?;
    for (end, kind) in ends.iter().zip(KINDS) {
        // If the system preempts the peer for longer than the spin, a wait sleeps. So the window with the fewest calls counts, and the
        // ranks look until each has seen one without calls.
        let mut quietest = u32::MAX;
        for window in 0..WINDOWS {
            let before = FUTEXES.load(Ordering::Relaxed);
            let first = WARM_UP + window * WINDOW;
            (first..first + WINDOW).try_for_each(|step| end.step(step))?;
            quietest = quietest.min(FUTEXES.load(Ordering::Relaxed) - before);
            if votes.agree(quietest == 0, window)? {
                break;
            }
        }
        writeln!(report, "futex calls in the quietest {WINDOW} exchanges by {kind:?}: {quietest}")?;
    }
    std::mem::forget((ends, votes, comm));
    Ok(report)
}

/// Traps every later system call of this thread except those of [`end`]: futex calls are counted and return at once, as if the value
/// had changed; any other ends the process.
fn trap_calls() -> Outcome {
    // SAFETY: the handler makes no call but those that the filter lets through, and touches atomics only.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut())
    };
    ensure!(installed == 0, "cannot handle signals: {}", std::io::Error::last_os_error());
    let allowed = [libc::SYS_write, libc::SYS_exit_group, libc::SYS_rt_sigreturn];
    let statement = |code: u32, jt: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    // The number of the call is the first word of what a filter sees.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (at, call) in allowed.into_iter().enumerate() {
        let to_allow = (allowed.len() - at) as u8;
        program.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to_allow, call as u32));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_TRAP));
    program.push(statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `filter` describes `program`, which lives until the calls return.
    let filtered = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
    };
    // The program is freed by a call-free deallocation: it is small.
    ensure!(filtered, "cannot filter calls: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Counts a trapped call and lets it return.
extern "C" fn handler(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid context to a handler with SA_SIGINFO, to be changed at will.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    #[cfg(target_arch = "x86_64")]
    let (number, result) = {
        let register = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
        (*register, register)
    };
    #[cfg(target_arch = "aarch64")]
    let (number, result) = (context.uc_mcontext.regs[8] as i64, &mut context.uc_mcontext.regs[0]);
    if number != libc::SYS_futex {
        say(b"a system call in an exchange, number ");
        let digits = [100, 10, 1].map(|unit| b'0' + (number / unit % 10) as u8);
        say(&digits);
        say(b"\n");
        // SAFETY: `_exit` takes no pointers and may be called in a signal handler.
        unsafe { libc::_exit(9) };
    }
    FUTEXES.fetch_add(1, Ordering::Relaxed);
    *result = -libc::EAGAIN as _;
}

fn say(bytes: &[u8]) {
    // SAFETY: the slice is valid. A failed write is ignored.
    unsafe { libc::write(1, bytes.as_ptr().cast(), bytes.len()) };
}

/// Prints a message and ends the process without any other system call.
fn end(report: &str, code: libc::c_int) -> ! {
    say(report.as_bytes());
    // SAFETY: `_exit` takes no pointers and may be called in a signal handler.
    unsafe { libc::_exit(code) }
}
