//! Ranks that wait for each other in different exchanges: a cycle of waiting ranks is found, and named on all
//! of them, in place of a hang.
//!
//! Exchanges of different objects may be begun in any order, and often are. Only a rank whose thread sleeps in
//! one exchange while another rank waits for that very thread to begin a different one can be at fault; if such
//! waits form a cycle, none of them ever ends. A rank that has waited for a while sends a probe along its
//! waits (for the ranks of links that are not through); who is asked for an exchange that it has not begun,
//! because it waits itself, passes the probe on along
//! its own waits; a probe that comes back has found a cycle (Chandy, Misra, Haas 1983). A wait that was in a
//! probe's way when it passed is still there when it comes back: it could only have ended after the next one.
//!
//! Which thread would begin an exchange is a guess: the one that began the last one of that object, or has bound
//! it. Where exchanges of a rank were begun by several threads, it is none to fail objects for, and merely warned of.
//!
//! Then a verdict goes around the cycle, and only once all its ranks know it do they fail: none is left with the
//! mere news that another one has gone.

use super::Finding;
use crate::error::{Cause, Fault};
use halocline_comm::Endpoint;
use halocline_comm::{CommError, Communicator, Tag};
use halocline_plan::wire::{Reader, WireError, Writer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// How long a wait may take before it is suspected, unless a deadline is nearer.
pub(super) const GRACE: Duration = Duration::from_millis(200);

/// Rounds of a check's messages that are no epochs. A probe, a verdict that goes around, and its execution.
const PROBE: u64 = Tag::NEWS;
const VERDICT: u64 = Tag::NEWS + 1;
const EXECUTION: u64 = Tag::NEWS + 2;

/// The threads of a rank that wait in checked exchanges.
#[derive(Default)]
pub(crate) struct Board {
    waits: Mutex<Vec<Wait>>,
    /// Which have bound the objects that there are, or begun their exchanges; by the operation of the object's check.
    beginners: Mutex<Vec<(u64, ThreadId)>>,
    /// How many were suspected.
    #[cfg(test)]
    suspects: std::sync::atomic::AtomicU64,
}

/// A thread that waits.
struct Wait {
    thread: ThreadId,
    hop: Hop,
    /// The ranks of the links of its object that are not through.
    peers: Vec<usize>,
    since: Duration,
    probed: bool,
    /// The first hops of probes that were passed on, each of which is passed on once.
    passed: Vec<Hop>,
}

/// A rank that waits in an exchange of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hop {
    rank: usize,
    /// The operation of the object's check.
    operation: u64,
    epoch: u64,
    name: String,
}

impl Board {
    /// This thread begins exchanges of an object.
    fn begins(&self, operation: u64) -> ThreadId {
        let (thread, mut beginners) = (std::thread::current().id(), lock(&self.beginners));
        if !beginners.contains(&(operation, thread)) {
            beginners.push((operation, thread));
        }
        thread
    }

    /// Whether it is known which thread begins the next exchange.
    fn knows_beginner(&self) -> bool {
        let beginners = lock(&self.beginners);
        beginners.windows(2).all(|pair| pair[0].1 == pair[1].1)
    }
}

#[cfg(test)]
impl Board {
    /// How many waits have been suspected so far.
    pub(super) fn suspects(&self) -> u64 {
        self.suspects.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// One object's part.
pub(super) struct Order {
    board: Arc<Board>,
    operation: u64,
    name: String,
    grace: Duration,
    /// The thread that began the last exchange, or has bound the object: it is expected to begin the next.
    owner: Mutex<ThreadId>,
    /// The cycles that this object's exchange is known to be in: several ranks may have found one.
    verdicts: Mutex<Vec<Vec<Hop>>>,
}

impl Order {
    pub(super) fn new(comm: &Communicator, operation: u64, name: String, grace: Duration) -> Self {
        let board: Arc<Board> = comm.part();
        let owner = Mutex::new(board.begins(operation));
        Self { board, operation, name, grace, owner, verdicts: Mutex::default() }
    }

    /// This thread begins an exchange.
    pub(super) fn begin(&self) {
        *lock(&self.owner) = self.board.begins(self.operation);
    }

    /// This thread waits for exchange `epoch`, until what is returned is dropped.
    pub(super) fn wait(&self, comm: &Communicator, epoch: u64) -> Waiting<'_> {
        let hop = Hop { rank: comm.rank(), operation: self.operation, epoch, name: self.name.clone() };
        let (thread, since) = (std::thread::current().id(), comm.link().host().now());
        let (peers, probed, passed) = (Vec::new(), false, Vec::new());
        lock(&self.board.waits).push(Wait { thread, hop, peers, since, probed, passed });
        // The progress thread learns when this wait is to be suspected.
        comm.link().own_bell().demand(comm.link().host());
        Waiting { board: &self.board }
    }

    /// When a wait of this object is to be suspected.
    pub(super) fn due(&self) -> Option<Duration> {
        let waits = lock(&self.board.waits);
        let mine = waits.iter().filter(|wait| wait.hop.operation == self.operation && !wait.probed);
        mine.map(|wait| wait.since + self.grace).min()
    }

    /// Suspects, passes probes on, finds cycles. `begun`: the object's last exchange begun. Says what ends that,
    /// if it never will.
    pub(super) fn attend(&self, comm: &Communicator, begun: u64) -> Result<Option<Finding>, CommError> {
        self.suspect(comm)?;
        let take = |round| comm.link().inbox().take(Tag { operation: self.operation, round }, None);
        while let Some(probe) = take(PROBE) {
            match read(&probe.payload) {
                Ok(path) => self.pass(comm, begun, path)?,
                Err(error) => tracing::warn!("rank {} sent a malformed probe: {error}", probe.source),
            }
        }
        while let Some(verdict) = take(VERDICT) {
            if let Ok(path) = read(&verdict.payload) {
                self.learn(comm, path)?;
            }
        }
        Ok(take(EXECUTION).and_then(|_| self.verdict(comm, begun)))
    }

    /// What is known to keep exchange `epoch` from ever being over.
    pub(super) fn verdict(&self, comm: &Communicator, epoch: u64) -> Option<Finding> {
        let verdicts = lock(&self.verdicts);
        let mut places = verdicts.iter().filter_map(|path| Some((path, self.place(comm, path)?)));
        let (path, at) = places.find(|(path, at)| path[*at].epoch == epoch)?;
        Some(Finding {
            cause: Cause::Check(Fault::OtherOrder),
            direction: None,
            peer: path[(at + 1) % path.len()].rank,
            report: describe(path),
        })
    }

    fn place(&self, comm: &Communicator, path: &[Hop]) -> Option<usize> {
        path.iter().position(|hop| (hop.rank, hop.operation) == (comm.rank(), self.operation))
    }

    /// A verdict goes from rank to rank of its cycle; back at the first, all know it.
    fn learn(&self, comm: &Communicator, path: Vec<Hop>) -> Result<(), CommError> {
        let Some(at) = self.place(comm, &path) else { return Ok(()) };
        let text = write(&path);
        let send =
            |hop: &Hop, round| comm.send(hop.rank, Tag { operation: hop.operation, round }, text.clone());
        let is_known = {
            let mut verdicts = lock(&self.verdicts);
            let is_known = verdicts.contains(&path);
            if !is_known {
                verdicts.push(path.clone());
            }
            is_known
        };
        if at == 0 && is_known {
            return path.iter().try_for_each(|hop| send(hop, EXECUTION));
        }
        send(&path[(at + 1) % path.len()], VERDICT)
    }

    fn suspect(&self, comm: &Communicator) -> Result<(), CommError> {
        let now = comm.link().host().now();
        let mut suspects = Vec::new();
        for wait in lock(&self.board.waits).iter_mut() {
            if wait.hop.operation == self.operation && !wait.probed && now >= wait.since + self.grace {
                wait.probed = true;
                suspects.push((wait.hop.clone(), wait.peers.clone()));
            }
        }
        #[cfg(test)]
        self.board.suspects.fetch_add(suspects.len() as u64, std::sync::atomic::Ordering::SeqCst);
        for (hop, peers) in suspects {
            self.send(comm, &[hop], &peers)?;
        }
        Ok(())
    }

    /// A probe says that its last hop waits for this rank to begin an exchange of this object.
    fn pass(&self, comm: &Communicator, begun: u64, mut path: Vec<Hop>) -> Result<(), CommError> {
        let (Some(first), Some(last)) = (path.first().cloned(), path.last().cloned()) else { return Ok(()) };
        if begun >= last.epoch {
            return Ok(());
        }
        let owner = *lock(&self.owner);
        let knows_beginner = self.board.knows_beginner();
        let (hop, peers) = {
            let mut waits = lock(&self.board.waits);
            // Who does not wait will begin it, or will ask himself.
            let Some(wait) = waits.iter_mut().find(|wait| wait.thread == owner) else { return Ok(()) };
            if wait.hop != first {
                let known = path.iter().any(|hop| hop.rank == comm.rank()) || wait.passed.contains(&first);
                if known {
                    return Ok(());
                }
                wait.passed.push(first.clone());
            }
            (wait.hop.clone(), wait.peers.clone())
        };
        if !knows_beginner {
            tracing::warn!(
                "rank {} waits in exchange {} of {}, while rank {} waits for it in exchange {} of {}; unless another \
                 thread of this rank begins that, both wait for good",
                hop.rank,
                hop.epoch,
                hop.name,
                last.rank,
                last.epoch,
                last.name,
            );
            return Ok(());
        }
        if hop == first {
            // This rank's first hop is of another object, which takes it up from here.
            let tag = Tag { operation: hop.operation, round: VERDICT };
            return comm.send(hop.rank, tag, write(&path));
        }
        path.push(hop);
        self.send(comm, &path, &peers)
    }

    /// Asks the ranks that the last hop waits for, by messages of its object.
    fn send(&self, comm: &Communicator, path: &[Hop], peers: &[usize]) -> Result<(), CommError> {
        let Some(last) = path.last() else { return Ok(()) };
        let (tag, text) = (Tag { operation: last.operation, round: PROBE }, write(path));
        peers.iter().try_for_each(|&peer| comm.send(peer, tag, text.clone()))
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        lock(&self.board.beginners).retain(|(operation, _)| *operation != self.operation);
    }
}

/// A thread's place on the board.
pub(crate) struct Waiting<'a> {
    board: &'a Board,
}

impl Waiting<'_> {
    /// These are the ranks of the links that are not through.
    pub(crate) fn is_for(&self, peers: impl Iterator<Item = usize>) {
        let thread = std::thread::current().id();
        let mut waits = lock(&self.board.waits);
        if let Some(wait) = waits.iter_mut().rfind(|wait| wait.thread == thread) {
            wait.peers.clear();
            wait.peers.extend(peers);
            wait.peers.sort_unstable();
            wait.peers.dedup();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let thread = std::thread::current().id();
        let mut waits = lock(&self.board.waits);
        if let Some(at) = waits.iter().rposition(|wait| wait.thread == thread) {
            waits.swap_remove(at);
        }
    }
}

fn describe(path: &[Hop]) -> String {
    let hops = path.iter().enumerate().map(|(at, hop)| {
        let next = path[(at + 1) % path.len()].rank;
        format!("rank {} waits in exchange {} of {} for rank {next}", hop.rank, hop.epoch, hop.name)
    });
    format!(
        "ranks exchange in different orders: {}; exchanges that are waited for one after the other must come in \
         the same order on all ranks",
        hops.collect::<Vec<_>>().join(", ")
    )
}

fn write(path: &[Hop]) -> Vec<u8> {
    let mut w = Writer::new();
    w.size(path.len());
    for hop in path {
        w.size(hop.rank);
        w.u64(hop.operation);
        w.u64(hop.epoch);
        w.u32s(&hop.name.chars().map(u32::from).collect::<Vec<_>>());
    }
    w.finish()
}

fn read(message: &[u8]) -> Result<Vec<Hop>, WireError> {
    let mut reader = Reader::new(message);
    let mut path = Vec::new();
    for _ in 0..reader.count(32)? {
        let (rank, operation, epoch) = (reader.size()?, reader.u64()?, reader.u64()?);
        let name = reader.u32s()?.into_iter().filter_map(char::from_u32).collect();
        path.push(Hop { rank, operation, epoch, name });
    }
    reader.finish()?;
    Ok(path)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves the data half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
