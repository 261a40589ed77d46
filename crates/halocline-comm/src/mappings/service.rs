//! Runs the protocol of a rank over its transport: messages, calls of providers, answers to waiting threads.
//!
//! Waiting threads drive it, and so does the progress thread when a message comes, since each is news. One thread at a time
//! drives ([`Claim`]), with no lock held while it calls a driver or posts.

mod drive;

use super::message::{Message, ProcessId};
use super::protocol::{Answer, Arrival, Effect, Known, Protocol, Target, Unmap, Want};
use super::stats::Stats;
use crate::claim::Claim;
use crate::inbox::Tag;
use crate::progress::Serve;
use crate::transport::Transport;
use crate::wait::{Late, Patience};
use drive::close;
use halocline_device::Address;
use halocline_device::remote::{Allocation, DeviceId, Exporter, Freeing, Kind, Opened, Own, Provider};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The tag of all messages of the protocol. The number is arbitrary: operations are hashed to
/// 64 bits.
pub(super) const TAG: Tag = Tag { operation: 0x6d61_7070_696e_6773, round: Tag::NEWS };

/// How long a rank that ends waits for other ranks to unmap its memory.
pub(super) const SHUT_WITHIN: Duration = Duration::from_secs(2);

/// How long a release without a deadline, and the deferred free of the library's own memory, wait for other ranks to unmap
/// it.
pub(super) const RELEASE_WITHIN: Duration = Duration::from_secs(10);

/// How often unused memory of other owners is checked for having been freed.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The allocation around an address, and its entry if there was one.
pub(super) struct Found {
    pub(super) allocation: Allocation,
    entry: Option<u64>,
}

/// The mappings of one rank.
pub(super) struct Service {
    transport: Weak<dyn Transport>,
    process: ProcessId,
    claim: Claim,
    /// A thread waits for the end of the current drive, even if that changes nothing.
    rings: AtomicBool,
    state: Arc<Mutex<State>>,
    #[expect(dead_code, reason = "registered as long as it is held")]
    listener: Arc<FreeListener>,
}

/// Is called before the library frees memory. Apart from [`Service`], since the caller may drop the last reference, and that of
/// a service waits for other ranks.
struct FreeListener {
    transport: Weak<dyn Transport>,
    state: Arc<Mutex<State>>,
}

struct State {
    protocol: Protocol,
    providers: Vec<Arc<dyn Provider>>,
    /// Mappings that the driver has opened, by token. Memory of this process is not opened.
    opened: HashMap<u64, Open>,
    /// Requests with a waiting thread, and the answers that have come.
    awaited: BTreeSet<u64>,
    answers: HashMap<u64, Answer>,
    arrivals: VecDeque<Arrival>,
    /// Memory that is freed once it is unmapped.
    freeing: Vec<DeferredFree>,
    /// The service has ended: memory is freed at once.
    is_over: bool,
    /// Ranks that messages were sent to.
    contacted: BTreeSet<usize>,
    departures: u64,
    sweep_at: Duration,
    /// The progress thread wakes at `sweep_at`.
    is_sweep_due: bool,
    /// Messages that were sent, and received ones that no rank sends.
    messages: u64,
    malformed: u64,
}

/// Memory that is freed once no rank has it mapped.
struct DeferredFree {
    entries: Vec<u64>,
    freeing: Arc<Freeing>,
    /// When the wait for other ranks ends; set once nothing here uses it.
    until: Option<Duration>,
}

struct Open {
    provider: Arc<dyn Provider>,
    kind: Kind,
    opened: Opened,
}

impl Service {
    pub(super) fn new(transport: Weak<dyn Transport>, process: ProcessId) -> Self {
        let state = State {
            protocol: Protocol::new(process),
            providers: Vec::new(),
            opened: HashMap::new(),
            awaited: BTreeSet::new(),
            answers: HashMap::new(),
            arrivals: VecDeque::new(),
            freeing: Vec::new(),
            is_over: false,
            contacted: BTreeSet::new(),
            departures: 0,
            sweep_at: Duration::ZERO,
            is_sweep_due: false,
            messages: 0,
            malformed: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let listener =
            Arc::new(FreeListener { transport: Weak::clone(&transport), state: Arc::clone(&state) });
        let weak: Weak<FreeListener> = Arc::downgrade(&listener);
        halocline_device::remote::register_exporter(weak);
        Self { transport, process, claim: Claim::default(), rings: AtomicBool::default(), state, listener }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a provider, unless its device has one.
    pub(super) fn attach(&self, provider: Arc<dyn Provider>) {
        let mut state = self.lock();
        if state.provider(provider.device()).is_none() {
            state.providers.push(provider);
        }
    }

    /// The allocation around an address. For memory with an entry the driver is not called, except to check that foreign memory
    /// still exists.
    pub(super) fn find(&self, address: Address, bytes: u64) -> Option<Found> {
        let (known, providers) = {
            let state = self.lock();
            (state.protocol.around(address, bytes), state.providers.clone())
        };
        let is_there = |of: &Allocation| providers.iter().any(|by| by.device() == of.device && by.still(of));
        let known = known.filter(|known| known.is_own || is_there(&known.allocation));
        let holds = |found: &Allocation| {
            found.base <= address && found.base.checked_add(found.bytes).is_some_and(|end| address < end)
        };
        let look = || providers.iter().find_map(|provider| provider.find(address, bytes).filter(holds));
        match known {
            Some(Known { id, allocation, .. }) => Some(Found { allocation, entry: Some(id) }),
            None => look().map(|allocation| Found { allocation, entry: None }),
        }
    }

    /// Requests a mapping of an allocation. Fails with base and pins of freed memory that is in use there.
    pub(super) fn request(
        &self,
        found: &Found,
        target: Target,
        want: Want,
        now: Duration,
    ) -> Result<u64, (Address, usize)> {
        let allocation = &found.allocation;
        let current = |protocol: &Protocol| found.entry.filter(|id| protocol.is_current(*id, allocation));
        if self.with(|protocol| current(protocol).is_none()) {
            // Freed memory is closed before new memory at its address is opened.
            let freed = self.sweep();
            if let Some((stale, pins)) = freed.into_iter().find(|(freed, _)| freed.overlaps(allocation)) {
                return Err((stale.base, pins));
            }
        }
        let mut state = self.lock();
        let known = match current(&state.protocol) {
            None => state.protocol.lookup(allocation)?,
            known => known,
        };
        // Under the lock that the free listener takes, too.
        let id = known.unwrap_or_else(|| state.protocol.insert(*allocation, Own::covers(allocation)));
        let request = state.protocol.request(id, target, want, now);
        state.awaited.insert(request);
        Ok(request)
    }

    /// The answer to a request, if it has come.
    pub(super) fn answer(&self, request: u64) -> Option<Answer> {
        let mut state = self.lock();
        let answer = state.answers.remove(&request)?;
        state.awaited.remove(&request);
        Some(answer)
    }

    /// Refuses a request that waits until former memory at its address is unmapped. True if it did wait for that.
    pub(super) fn refuse_held_back(&self, request: u64, now: Duration) -> bool {
        let mut state = self.lock();
        let refuses = state.protocol.refuse_held_back(request, now);
        if refuses {
            state.awaited.remove(&request);
        }
        refuses
    }

    /// Discards the answer to a request, or withdraws it.
    pub(super) fn forget(&self, request: u64, now: Duration) {
        let mut state = self.lock();
        state.awaited.remove(&request);
        match state.answers.remove(&request) {
            Some(Answer::Mapped { entry, .. }) => state.protocol.unpin(entry, now),
            Some(_) => {}
            None => drop(state.protocol.withdraw(request, now)),
        }
    }

    /// Takes the oldest bytes that have come from a rank.
    pub(super) fn arrival(&self, from: Option<usize>) -> Option<Arrival> {
        let mut state = self.lock();
        let at = state.arrivals.iter().position(|arrival| from.is_none_or(|rank| rank == arrival.from))?;
        state.arrivals.remove(at)
    }

    /// How the driver has opened a mapping; `None` for memory of this process.
    pub(super) fn kind(&self, token: u64) -> Option<Kind> {
        self.lock().opened.get(&token).map(|open| open.kind)
    }

    /// Whether the progress thread has something to do: messages to send, mappings to close, memory to free or to check.
    pub(super) fn has_work(&self) -> bool {
        let state = self.lock();
        let is_unswept = !state.is_sweep_due && state.protocol.has_unused();
        !state.protocol.out.is_empty() || !state.freeing.is_empty() || is_unswept
    }

    /// Runs a step of the protocol.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Protocol) -> T) -> T {
        change(&mut self.lock().protocol)
    }

    pub(super) fn stats(&self) -> Stats {
        let state = self.lock();
        Stats { messages: state.messages, malformed: state.malformed, ..state.protocol.stats() }
    }

    /// Retires foreign memory that was freed. Returns freed memory that is in use, with the number of its pins.
    fn sweep(&self) -> Vec<(Allocation, usize)> {
        let (mut known, providers) = {
            let state = self.lock();
            (state.protocol.sweepable(), state.providers.clone())
        };
        // Without the lock. Memory that is freed meanwhile is noticed the next time; new memory is another allocation.
        known.retain(|allocation| {
            let provider = providers.iter().find(|provider| provider.device() == allocation.device);
            provider.and_then(|by| by.find(allocation.base, allocation.bytes)) != Some(*allocation)
        });
        self.with(|protocol| protocol.sweep(|allocation| !known.contains(allocation)))
    }
}

impl State {
    fn provider(&self, device: DeviceId) -> Option<Arc<dyn Provider>> {
        self.providers.iter().find(|provider| provider.device() == device).cloned()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The protocol changes in one step, so that a panic leaves no half change.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Serve for Service {
    fn serve(&self) {
        let Some(transport) = self.transport.upgrade() else { return };
        let now = transport.host().now();
        let is_due = {
            let mut state = self.lock();
            let is_due = now >= state.sweep_at;
            if is_due {
                state.sweep_at = now + SWEEP_EVERY;
            }
            is_due && state.protocol.has_unused()
        };
        if is_due {
            self.sweep();
        }
        self.drive(&*transport);
    }

    fn is_over(&self) -> bool {
        true
    }

    fn due(&self) -> Option<Duration> {
        let mut state = self.lock();
        // Memory in use may be unused then: its drop need not wake the progress thread.
        state.is_sweep_due = state.protocol.has_foreign();
        let sweep = state.is_sweep_due.then_some(state.sweep_at);
        state.freeing.iter().filter_map(|deferred| deferred.until).chain(sweep).min()
    }
}

impl Exporter for FreeListener {
    fn before_free(&self, freeing: &Arc<Freeing>) {
        {
            let mut state = lock(&self.state);
            let Freeing { device, base, id, .. } = **freeing;
            let is_it = |of: &Allocation| (of.device, of.base, of.id) == (device, base, id);
            let entries = state.protocol.give_up(is_it);
            if state.protocol.unmap_state(&entries) == Unmap::Over || state.is_over {
                return;
            }
            state.freeing.push(DeferredFree { entries, freeing: Arc::clone(freeing), until: None });
        }
        // The thread that drops memory does not wait.
        if let Some(transport) = self.transport.upgrade() {
            transport.own_bell().demand(transport.host());
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(transport) = self.transport.upgrade() {
            let transport = &*transport;
            self.with(Protocol::close);
            let patience =
                Patience { deadline: Some(SHUT_WITHIN), is_interruptible: false, ..Patience::of(transport) };
            let is_over = || {
                self.drive(transport);
                // No thread will read them.
                let arrivals = std::mem::take(&mut self.lock().arrivals);
                arrivals.iter().for_each(|arrival| self.with(|protocol| protocol.end_use(arrival.token)));
                self.drive(transport);
                self.with(|protocol| protocol.is_over()).then_some(())
            };
            let late = |late: Late| match late {
                Late::Announce | Late::Warn { .. } | Late::Interrupted => None,
                Late::Deadline(after) => {
                    let ranks = self.with(|protocol| protocol.holders(&protocol.entries()));
                    let left = match ranks.is_empty() {
                        true => {
                            "its imports are closed once no exchange of this process is in flight".to_owned()
                        }
                        false => format!("ranks {ranks:?} have not unmapped its memory"),
                    };
                    tracing::warn!("rank {} has been ending for {after:?}: {left}", transport.rank());
                    Some(())
                }
            };
            patience.wait(transport, is_over, || {}, || Duration::MAX, late);
            let contacted = std::mem::take(&mut self.lock().contacted);
            let gone = contacted.into_iter().map(|to| Effect::Post { to, message: Message::Gone });
            self.with(|protocol| protocol.out.extend(gone));
            self.drive(transport);
        }
        let left: Vec<u64> = self.lock().opened.keys().copied().collect();
        for token in left {
            let opened = self.lock().opened.remove(&token);
            close(0, opened, |_| {});
        }
        let mut state = self.lock();
        state.is_over = true;
        let freeing = std::mem::take(&mut state.freeing);
        // Freed in this thread, outside the lock.
        drop(state);
        drop(freeing);
    }
}
