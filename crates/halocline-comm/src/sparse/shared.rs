//! The state of one operation that the threads of a rank share. Its locks are never held across a call of the program: one each
//! for the insertions, the engine (one thread at a time drives it), the outcome, and the waker of the progress thread.

use super::control::Control;
use super::engine::Engine;
use super::registry::Registry;
use super::{Role, SparseError, SparseStatistics};
use crate::call::Call;
use crate::claim::Claim;
use crate::communicator::Communicator;
use crate::completion::Completion;
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::lock::lock_yielding;
use crate::memory_resource::MemoryResource;
use crate::packet::{Packet, PacketContext, PacketTag};
use crate::progress::Serve;
use crate::wait::Late;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Shared {
    pub(super) context: PacketContext,
    pub(super) call: Call,
    /// Among the sparse all-to-alls of the communicator.
    pub(super) number: u64,
    pub(super) tag: PacketTag,
    deadline: Option<Duration>,
    pub(super) sources: Vec<usize>,
    pub(super) destinations: Vec<usize>,
    claim: Claim,
    inserts: Mutex<Inserts>,
    engine: Mutex<Engine>,
    outcome: Mutex<Outcome>,
    /// The outcome, once [`Shared::settle`] has read it.
    pub(super) completion: Completion<Result<(), SparseError>>,
    arming: Mutex<Arming>,
    pub(super) registry: Arc<Registry>,
    /// When the first task began to wait.
    task_since: Mutex<Option<Duration>>,
}

/// Packets that the engine has not taken yet.
#[derive(Default)]
pub(super) struct Inserts {
    /// Each with the index of its destination.
    pub(super) packets: VecDeque<(usize, Packet)>,
    pub(super) is_finished: bool,
}

/// The results.
#[derive(Default)]
pub(super) struct Outcome {
    /// The packets of each source.
    pub(super) packets: Vec<Vec<Packet>>,
    pub(super) is_complete: bool,
    pub(super) error: Option<SparseError>,
    pub(super) statistics: SparseStatistics,
}

/// Every message wakes the progress thread while the operation is in flight, has been left to it, and no thread waits for it.
#[derive(Default)]
struct Arming {
    /// The program has finished or dropped it, and may compute now. Before, its own calls carry the operation on.
    is_left: bool,
    waiters: usize,
    is_over: bool,
    is_dropped: bool,
    is_armed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of the program's code cannot happen while one is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ranks in ascending order.
pub(super) fn checked(
    named: &[usize],
    role: Role,
    rank: usize,
    size: usize,
) -> Result<Vec<usize>, SparseError> {
    let mut ranks = named.to_vec();
    ranks.sort_unstable();
    if let Some(&peer) = ranks.iter().find(|peer| **peer >= size) {
        return Err(SparseError::NoSuchPeer { peer, role, size });
    }
    if ranks.contains(&rank) {
        return Err(SparseError::Itself { rank, role });
    }
    match ranks.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(SparseError::Duplicate { peer: pair[0], role }),
        None => Ok(ranks),
    }
}

/// Ends an operation that this rank cannot begin. It does not know which ranks name it, and may leave at once: it notifies all of them, and
/// those that do not name it discard the message.
fn give_up(comm: &Communicator, tag: PacketTag, registry: &Registry, error: &SparseError) {
    let abort = Control::Abort(error.failure(comm.rank()));
    for rank in (0..comm.size()).filter(|rank| *rank != comm.rank()) {
        for control in [&abort, &Control::Closed] {
            // A rank that cannot be reached needs no word.
            let _ = comm.send(rank, tag.control(), control.encode());
        }
    }
    registry.end(tag.operation);
    comm.link().inbox().forget(tag.operation);
}

impl Shared {
    pub(super) fn begin(
        comm: &Communicator,
        resource: Arc<dyn MemoryResource>,
        sources: &[usize],
        destinations: &[usize],
    ) -> Result<Arc<Self>, SparseError> {
        let (rank, size) = (comm.rank(), comm.size());
        let call = Call::lasting(comm, "SparseAlltoall");
        let tag = PacketTag { operation: call.operation(), channel: 0 };
        let registry = Registry::of(comm);
        let number = registry.begin(tag.operation);
        // From here on a rank that fails has taken part in the count of operations, and tells the others.
        let failed = |error: SparseError| {
            give_up(comm, tag, &registry, &error);
            error
        };
        let context = PacketContext::new(comm, resource).map_err(|error| failed(error.into()))?;
        let sources = checked(sources, Role::Source, rank, size).map_err(failed)?;
        let destinations = checked(destinations, Role::Destination, rank, size).map_err(failed)?;
        let packets = sources.iter().map(|_| Vec::new()).collect();
        let shared = Arc::new(Self {
            engine: Mutex::new(Engine::new(&sources, &destinations, &registry)),
            outcome: Mutex::new(Outcome { packets, ..Outcome::default() }),
            context,
            call,
            number,
            tag,
            deadline: comm.deadline,
            sources,
            destinations,
            claim: Claim::default(),
            inserts: Mutex::default(),
            completion: Completion::default(),
            arming: Mutex::default(),
            registry,
            task_since: Mutex::default(),
        });
        shared.context.comm().register(&shared);
        Ok(shared)
    }

    /// Takes part in [`Shared::begin`] of the other ranks, and tells them the refusal.
    pub(super) fn refuse(comm: &Communicator, refusal: &SparseError) {
        let tag = PacketTag { operation: Call::lasting(comm, "SparseAlltoall").operation(), channel: 0 };
        let registry = Registry::of(comm);
        registry.begin(tag.operation);
        give_up(comm, tag, &registry, refusal);
    }

    pub(super) fn inserts(&self) -> MutexGuard<'_, Inserts> {
        lock(&self.inserts)
    }

    pub(super) fn outcome(&self) -> MutexGuard<'_, Outcome> {
        lock(&self.outcome)
    }

    /// Its holder may yield through the host.
    pub(super) fn engine(&self) -> MutexGuard<'_, Engine> {
        lock_yielding(&self.engine, self.context.comm().link().host())
    }

    fn named(&self, peer: usize, role: Role) -> Result<usize, SparseError> {
        let known = if role == Role::Source { &self.sources } else { &self.destinations };
        known.binary_search(&peer).map_err(|_| SparseError::NotNamed { peer, role, known: known.clone() })
    }

    pub(super) fn insert(&self, destination: usize, packet: Packet) -> Result<(), SparseError> {
        let mut packet = Some(packet);
        let inserted = self.try_insert(destination, &mut packet);
        // It was refused.
        packet.into_iter().for_each(|packet| self.context.discard(packet));
        inserted
    }

    /// Takes the packet unless it is refused.
    fn try_insert(&self, destination: usize, packet: &mut Option<Packet>) -> Result<(), SparseError> {
        let index = self.named(destination, Role::Destination)?;
        if let Some(error) = self.outcome().error.clone() {
            return Err(error);
        }
        {
            let mut inserts = self.inserts();
            if inserts.is_finished {
                return Err(SparseError::Finished { destination });
            }
            inserts.packets.extend(packet.take().map(|packet| (index, packet)));
        }
        self.drive();
        if self.engine().awaits_content() {
            self.demand_if_due();
        }
        Ok(())
    }

    pub(super) fn finish(&self) {
        self.inserts().is_finished = true;
        self.arm(|arming| arming.is_left = true);
        self.drive();
        self.demand_if_due();
    }

    /// Both, without leaving the operation to the progress thread in between.
    pub(super) fn finish_and_wait(&self) -> Result<(), SparseError> {
        self.inserts().is_finished = true;
        self.wait()
    }

    /// When the progress thread has to look. It asks ranks that have not begun where tasks or callbacks wait, and after a drop.
    fn due_unwatched(&self) -> Option<Duration> {
        let now = self.context.comm().link().host().now();
        let asks = self.completion.is_wanted() || lock(&self.arming).is_dropped;
        self.engine().due(now, asks)
    }

    /// No bell rings when a device has done its work or a time has come: the progress thread looks.
    pub(super) fn demand_if_due(&self) {
        if self.due().is_some() {
            let link = self.context.comm().link();
            link.own_bell().demand(link.host());
        }
    }

    /// How long a wait may sleep: no bell rings when a device has done its work or a time has come.
    fn until_due(&self) -> Duration {
        let now = self.context.comm().link().host().now();
        self.engine().due(now, true).map_or(Duration::MAX, |due| due.saturating_sub(now))
    }

    pub(super) fn is_complete(&self) -> Result<bool, SparseError> {
        self.drive();
        // A copy may have begun.
        self.demand_if_due();
        self.status()
    }

    /// A task waits from now on: the deadline counts for it, too.
    pub(super) fn note_task(&self) {
        if self.deadline.is_some() {
            let now = self.context.comm().link().host().now();
            lock(&self.task_since).get_or_insert(now);
        }
        self.demand_if_due();
    }

    /// The end of the deadline of a waiting task.
    fn task_deadline(&self) -> Option<Duration> {
        let since = (*lock(&self.task_since))?;
        Some(since.saturating_add(self.deadline?)).filter(|_| self.completion.is_awaited())
    }

    fn status(&self) -> Result<bool, SparseError> {
        let outcome = self.outcome();
        outcome.error.clone().map_or(Ok(outcome.is_complete), Err)
    }

    pub(super) fn extract(&self, source: usize) -> Result<Vec<Packet>, SparseError> {
        let index = self.named(source, Role::Source)?;
        if !self.is_complete()? {
            return Err(SparseError::NotComplete { missing: self.missing() });
        }
        Ok(std::mem::take(&mut self.outcome().packets[index]))
    }

    pub(super) fn statistics(&self) -> SparseStatistics {
        self.outcome().statistics
    }

    pub(super) fn missing(&self) -> String {
        self.engine().missing()
    }

    pub(super) fn wait(&self) -> Result<(), SparseError> {
        if !self.inserts().is_finished {
            return Err(SparseError::NotFinished);
        }
        let link = self.context.comm().link();
        self.context.comm().check()?;
        let patience = self.context.patience(self.deadline);
        self.arm(|arming| (arming.waiters, arming.is_left) = (arming.waiters + 1, true));
        let poll = || {
            self.drive();
            self.status().map(|is_complete| is_complete.then_some(())).transpose()
        };
        let ended = patience.wait(link, poll, || {}, || self.until_due(), |late| self.late(late));
        self.arm(|arming| arming.waiters -= 1);
        if ended.is_err() {
            // Handles messages that came while nothing was armed.
            self.drive();
            self.demand_if_due();
        }
        ended
    }

    fn late(&self, late: Late) -> Option<Result<(), SparseError>> {
        let comm = self.context.comm();
        let waiting = comm.rank();
        match late {
            Late::Announce => None,
            Late::Warn { after, again } => {
                let (missing, after) = (self.missing(), after.as_secs());
                let text =
                    format!("rank {waiting} has waited {after} s in a sparse all-to-all for {missing}");
                comm.link().host().tell_late(&text, again);
                None
            }
            Late::Deadline(after) => {
                let missing = self.missing();
                self.fail(SparseError::Deadline { waiting, after, missing });
                // It may have failed, or completed, otherwise just before.
                Some(self.status().map(drop))
            }
            Late::Interrupted => {
                let what = "a sparse all-to-all".to_owned();
                Some(Err(CommError::Interrupted { waiting, what }.into()))
            }
        }
    }

    /// Fails unless it is complete.
    fn fail(&self, error: SparseError) {
        self.engine().fail(self, error);
        self.settle();
        self.drive();
    }

    /// Does what is possible now, in this thread or in the one that does so already.
    pub(super) fn drive(&self) {
        let link = self.context.comm().link();
        let mut has_settled = false;
        let owes = || link.own_bell().demand(link.host());
        self.claim.turn(owes, || has_settled |= self.engine().step(self));
        if has_settled {
            self.settle();
        }
    }

    /// Wakes those that wait for the end.
    fn settle(&self) {
        let is_over = self.engine().is_over();
        self.arm(|arming| arming.is_over |= is_over);
        let link = self.context.comm().link();
        link.own_bell().changed(link.host());
        match self.status() {
            Ok(false) => {}
            ended => {
                // The program may keep it for long, and ranks that this one does not name may wait for an answer.
                self.registry.end(self.tag.operation);
                self.completion.complete(ended.map(drop));
            }
        }
    }

    /// Whether a thread waits, and looks at what is due.
    fn is_watched(&self) -> bool {
        lock(&self.arming).waiters > 0
    }

    fn arm(&self, change: impl FnOnce(&mut Arming)) {
        let bell = self.context.comm().link().own_bell();
        let mut arming = lock(&self.arming);
        change(&mut arming);
        let wants = arming.is_left && arming.waiters == 0 && !arming.is_over;
        if wants != arming.is_armed {
            arming.is_armed = wants;
            if wants { bell.arm() } else { bell.disarm() }
        }
    }

    /// The user has dropped it.
    pub(super) fn detach(self: &Arc<Self>) {
        if !self.inserts().is_finished {
            self.fail(SparseError::Dropped);
        }
        self.arm(|arming| (arming.is_left, arming.is_dropped) = (true, true));
        self.drive();
        self.demand_if_due();
        if !self.is_over() {
            let detached: Arc<Self> = Arc::clone(self);
            self.context.comm().defer_drop(detached);
        }
    }
}

impl Serve for Shared {
    fn serve(&self) {
        // A waiting thread drives the operation itself. If this thread held the turn and lost its core, that one could not go on.
        if !self.is_watched() {
            self.drive();
            if self.is_watched() && self.until_due() < Duration::MAX {
                // That thread came meanwhile, and may sleep.
                let link = self.context.comm().link();
                link.own_bell().changed(link.host());
            }
        }
        let Some(end) = self.task_deadline() else { return };
        if self.context.comm().link().host().now() >= end && matches!(self.status(), Ok(false)) {
            self.late(Late::Deadline(self.deadline.unwrap_or_default()));
        }
    }

    fn is_over(&self) -> bool {
        self.engine().is_over()
    }

    fn due(&self) -> Option<Duration> {
        let due = if self.is_watched() { None } else { self.due_unwatched() };
        let deadline = self.task_deadline().filter(|_| matches!(self.status(), Ok(false)));
        due.into_iter().chain(deadline).min()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.arm(|arming| arming.is_over = true);
        self.context.comm().link().inbox().forget(self.tag.operation);
    }
}
