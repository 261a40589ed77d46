//! Runs the protocol of a rank over its transport: messages, calls of providers, answers to waiting threads.
//!
//! Waiting threads drive it, and so does the progress thread when a message comes, since each is news. One thread at a time
//! drives ([`Claim`]), with no lock held while it calls a driver or posts.

use super::bounds::{Limits, Stats};
use super::host::refusal;
use super::message::{Descriptor, Message, MessageError, ProcessId};
use super::protocol::{Answer, Arrival, Effect, Protocol, Target, Unmap, Want};
use crate::claim::Claim;
use crate::inbox::Tag;
use crate::progress::Serve;
use crate::segment::Segment;
use crate::transport::{PeerState, Transport};
use crate::wait::{Late, Patience};
use halocline_device::Address;
use halocline_device::remote::{
    Allocation, DeviceId, Export, Exporter, Freeing, Kind, Opened, Own, Provider, Refusal, once_nothing_waits,
};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
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
    pub(super) fn new(transport: Weak<dyn Transport>, process: ProcessId, limits: Limits) -> Self {
        let state = State {
            protocol: Protocol::new(process, limits),
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
    pub(super) fn find(&self, address: Address, bytes: u64) -> Option<Allocation> {
        let (known, providers) = {
            let state = self.lock();
            (state.protocol.around(address, bytes), state.providers.clone())
        };
        let is_there = |of: &Allocation| providers.iter().any(|by| by.device() == of.device && by.still(of));
        let known = known.filter(|(allocation, is_own)| *is_own || is_there(allocation));
        let holds = |found: &Allocation| {
            found.base <= address && found.base.checked_add(found.bytes).is_some_and(|end| address < end)
        };
        let look = || providers.iter().find_map(|provider| provider.find(address, bytes).filter(holds));
        known.map(|(allocation, _)| allocation).or_else(look)
    }

    /// Requests a mapping of an allocation. Fails with base and pins of freed memory that is in use there.
    pub(super) fn request(
        &self,
        allocation: &Allocation,
        target: Target,
        want: Want,
        now: Duration,
    ) -> Result<u64, (Address, usize)> {
        if !self.with(|protocol| protocol.knows(allocation)) {
            // Freed memory is closed before new memory at its address is opened.
            let freed = self.sweep();
            if let Some((stale, pins)) = freed.into_iter().find(|(freed, _)| freed.overlaps(allocation)) {
                return Err((stale.base, pins));
            }
        }
        let mut state = self.lock();
        let known = state.protocol.lookup(allocation)?;
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

    /// Does all work that is possible now, or leaves it to a thread that drives: then false. Blocks only for driver calls that
    /// open or close.
    pub(super) fn drive(&self, transport: &dyn Transport) -> bool {
        let mut is_done = false;
        let owes = || transport.own_bell().demand(transport.host());
        self.claim.turn(owes, || {
            is_done = true;
            let mut has_changed = false;
            loop {
                let departed = self.departed(transport);
                let mut is_busy = !departed.is_empty();
                // All messages of a rank are in the inbox before its departure shows.
                while let Some(message) = transport.inbox().take(TAG, None) {
                    self.receive(transport, message);
                    is_busy = true;
                }
                departed.into_iter().for_each(|rank| self.with(|protocol| protocol.is_gone(rank)));
                while let Some(effect) = self.with(|protocol| protocol.out.pop_front()) {
                    self.carry_out(transport, effect);
                    is_busy = true;
                }
                if !is_busy {
                    break;
                }
                has_changed = true;
            }
            self.free(transport);
            if has_changed || self.rings.swap(false, Ordering::AcqRel) {
                transport.own_bell().changed(transport.host());
            }
        });
        is_done
    }

    /// Makes the next drive ring, even if it changes nothing.
    pub(super) fn ring(&self) {
        self.rings.store(true, Ordering::Release);
    }

    /// Frees memory that no rank has mapped, or that ranks have not unmapped in time: the driver keeps it until they close it.
    fn free(&self, transport: &dyn Transport) {
        let mut state = self.lock();
        let State { freeing, protocol, .. } = &mut *state;
        if freeing.is_empty() {
            return;
        }
        let now = transport.host().now();
        let is_due = |deferred: &mut DeferredFree| match protocol.unmap_state(&deferred.entries) {
            Unmap::InUse => false,
            Unmap::Unmapping => now >= *deferred.until.get_or_insert(now + RELEASE_WITHIN),
            Unmap::Over => true,
        };
        let due: Vec<DeferredFree> = freeing.extract_if(.., |deferred| is_due(deferred)).collect();
        let holders: Vec<Vec<usize>> =
            due.iter().map(|deferred| protocol.holders(&deferred.entries)).collect();
        drop(state);
        for (deferred, ranks) in due.iter().zip(holders).filter(|(_, ranks)| !ranks.is_empty()) {
            tracing::warn!(
                "rank {}: {:?}: ranks {ranks:?} have it mapped {RELEASE_WITHIN:?} after it was dropped; it is freed once they \
                 close it",
                transport.rank(),
                deferred.freeing
            );
        }
    }

    /// Ranks that have ended or died, if there may be new ones.
    fn departed(&self, transport: &dyn Transport) -> Vec<usize> {
        let now = transport.departures();
        if std::mem::replace(&mut self.lock().departures, now) == now {
            return Vec::new();
        }
        let is_over = |rank: &usize| matches!(transport.state(*rank), PeerState::Ended | PeerState::Dead);
        (0..transport.size()).filter(is_over).collect()
    }

    fn receive(&self, transport: &dyn Transport, message: crate::inbox::Message) {
        let from = message.source;
        let mut state = self.lock();
        let decoded = Message::decode(&message.payload);
        let now = transport.host().now();
        let attached = message.missing.map_or(Ok(message.segments), |why| Err(refusal(&why)));
        let taken = decoded.and_then(|decoded| state.protocol.receive(from, decoded, attached, now));
        let Err(error) = taken else { return };
        tracing::error!(
            "rank {}: a message about mappings from rank {from} is refused: {error}",
            transport.rank()
        );
        state.malformed += 1;
        if let MessageError::Wire(_) = error {
            // Its content is lost: neither side waits for it.
            state.protocol.is_gone(from);
            state.protocol.out.push_back(Effect::Post { to: from, message: Message::Gone });
        }
    }

    fn carry_out(&self, transport: &dyn Transport, effect: Effect) {
        match effect {
            Effect::Post { to, message } => self.post(transport, to, &message, &[]),
            Effect::Offer { entry, target, allocation } => match self.export(&allocation) {
                Ok(Export { handle, descriptors }) => {
                    let descriptor = Descriptor { process: self.process, allocation, handle };
                    let message = Message::Offer { entry, device: target.device, descriptor };
                    let attached: Vec<_> =
                        descriptors.into_iter().map(|fd| Segment::handle(None, fd)).collect();
                    self.post(transport, target.rank, &message, &attached);
                }
                Err(why) => self.with(|protocol| protocol.failed(entry, target, why)),
            },
            Effect::Open { token, device, descriptor, attached } => {
                let provider = self.lock().provider(device);
                let outcome = provider
                    .ok_or(Refusal::NoDevice)
                    .and_then(|provider| self.open(token, provider, &descriptor, &attached?));
                self.with(|protocol| protocol.opened(token, outcome));
            }
            Effect::Close { token } => {
                let opened = self.lock().opened.remove(&token);
                let (state, weak) = (Arc::clone(&self.state), Weak::clone(&self.transport));
                close(transport.rank(), opened, move |is_here| {
                    lock(&state).protocol.closed(token);
                    if !is_here && let Some(transport) = weak.upgrade() {
                        // `UNMAPPED` is to be sent, and a thread may wait for this.
                        transport.own_bell().demand(transport.host());
                        transport.own_bell().changed(transport.host());
                    }
                });
            }
            Effect::Answer { request, answer } => {
                let mut state = self.lock();
                if state.awaited.contains(&request) {
                    state.answers.insert(request, answer);
                } else if let Answer::Mapped { entry, .. } = answer {
                    state.protocol.unpin(entry, transport.host().now());
                }
            }
            Effect::Arrived(arrival) => self.lock().arrivals.push_back(arrival),
        }
    }

    fn post(&self, transport: &dyn Transport, to: usize, message: &Message, attached: &[Arc<Segment>]) {
        {
            let mut state = self.lock();
            state.contacted.insert(to);
            state.messages += 1;
        }
        if let Err(error) = transport.post(to, TAG, message.encode(), attached) {
            tracing::error!(
                "rank {}: a message about mappings to rank {to} is lost: {error}",
                transport.rank()
            );
            self.with(|protocol| protocol.is_gone(to));
        }
    }

    /// The export is not cached: a descriptor would keep freed memory alive.
    fn export(&self, allocation: &Allocation) -> Result<Export, Refusal> {
        let provider = self.lock().provider(allocation.device).ok_or(Refusal::NoDevice)?;
        let found = provider.find(allocation.base, allocation.bytes);
        if found != Some(*allocation) {
            // The memory was freed after the request; the address has been reused.
            return Err(Refusal::BadHandle);
        }
        provider.export(allocation)
    }

    fn open(
        &self,
        token: u64,
        provider: Arc<dyn Provider>,
        descriptor: &Descriptor,
        attached: &[Arc<Segment>],
    ) -> Result<Address, Refusal> {
        let Descriptor { process, allocation, handle } = descriptor;
        if *process == self.process {
            return provider.adopt(allocation).map(|()| allocation.base);
        }
        let copies = attached
            .iter()
            .filter_map(|segment| segment.descriptor())
            .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0));
        let descriptors = copies.collect::<Result<_, Errno>>()?;
        let opened = provider.open(allocation, Export { handle: handle.clone(), descriptors })?;
        let address = opened.address;
        self.lock().opened.insert(token, Open { provider, kind: allocation.kind, opened });
        Ok(address)
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

/// Closes a mapping, then calls `then`: in this call, or in another thread if closing waits for device work.
fn close(rank: usize, open: Option<Open>, then: impl FnOnce(bool) + Send + 'static) {
    let Some(Open { provider, opened, .. }) = open else { return then(true) };
    let waits = provider.close_waits(&opened);
    let close = move || {
        // SAFETY: this provider opened the mapping, and `opened` is taken out of `State::opened`, so that it is closed
        // once. The protocol closes only mappings without a pin, and code that uses an address of a mapping holds a pin.
        if let Err(why) = unsafe { provider.close(opened) } {
            tracing::error!("rank {rank}: a mapping cannot be closed: {why}");
        }
        then(!waits);
    };
    if waits { once_nothing_waits(close) } else { close() }
}

impl Serve for Service {
    fn serve(&self) {
        let Some(transport) = self.transport.upgrade() else { return };
        let now = transport.host().now();
        let is_due = {
            let mut state = self.lock();
            let is_due = now >= state.sweep_at && state.protocol.has_unused();
            if is_due {
                state.sweep_at = now + SWEEP_EVERY;
            }
            is_due
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
        let state = self.lock();
        let sweep = state.protocol.has_unused().then_some(state.sweep_at);
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
            patience.wait(transport, is_over, || {}, late);
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
