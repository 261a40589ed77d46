//! Ranks as processes anywhere: messages over MPI, shared memory between the ranks of one node.
//!
//! Any MPI library works: it is loaded at run time (`library`), through one layer (`ffi`) over the
//! constants of three binary interfaces (`abi`). MPI progresses only when it is called. So waits poll
//! ([`Transport::poll`]), and one thread in each process polls at long intervals (`poller`), where MPI allows it. Ranks of
//! one node find each other (`node`) and use the shm transport; MPI carries messages between nodes.

mod abi;
mod aware;
mod channel;
mod departure;
mod engine;
mod error;
mod fault;
mod ffi;
mod frame;
#[cfg(fuzzing)]
pub mod fuzz;
mod handle;
mod joining;
mod launcher;
mod library;
mod node;
mod poller;
mod posted;
mod runtime;

pub use abi::AbiKind;
pub use aware::DEVICE;
pub use error::{MpiError, ThreadLevel, Unusable};
pub(crate) use frame::{LONGEST, TRAILER};
pub use handle::{MpiCommHandle, communicator};
pub(crate) use library::check_choice;
pub use runtime::Trial;

use crate::bell::Doorbell;
use crate::borrowed::{Borrowed, Payload};
use crate::bulk::Surround;
use crate::error::CommError;
use crate::host::Host;
use crate::inbox::{Inbox, Message, Tag};
use crate::segment::Segment;
use crate::shm::ShmTransport;
use crate::transport::{Cores, PeerState, Post, Transport};
use channel::{Access, Arrival, Channel};
use halocline_device::Variable;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The variable that says whether ranks of a node share memory: `on` or `off`.
pub const NODE_AWARE: &str = "HALOCLINE_NODE_AWARE";

/// The variable that says how many ranks of a node share memory at most, as if there were more nodes.
pub const NODE_RANKS: &str = "HALOCLINE_NODE_RANKS";

/// How many ranks an MPI launcher has started (0: only the library knows), if this process is one of them.
/// A task of srun is a rank if its step has several tasks.
pub fn launched() -> Option<usize> {
    launcher::started().map(|started| started.ranks)
}

/// The files that may be MPI libraries here, by name or path, best first: those that [`crate::Communicator::init`]
/// tries, and more.
pub fn candidates() -> Vec<PathBuf> {
    library::all_candidates()
}

/// Opens a library, initialises MPI, queries its version, and finalises it. For a process that does nothing
/// else: a library may end the process or hang.
pub fn try_out(library: &Path) -> Result<Trial, MpiError> {
    runtime::try_out(library)
}

/// The transport over all ranks that the launcher has started, or over those of a communicator of the program
/// given as a number. Collective, blocks until all ranks have called it.
pub(crate) fn join(
    program: Option<usize>,
    node_aware: Option<bool>,
    host: Arc<dyn Host>,
) -> Result<Arc<dyn Transport>, CommError> {
    let node_aware = match node_aware {
        Some(wanted) => wanted,
        None => node_aware_from_env()?,
    };
    // Before MPI is initialised: a launcher may lose what a rank prints that ends without finalising MPI.
    let (most, chosen) = (node_ranks_from_env()?, aware::chosen()?);
    let mpi = runtime::get(program.is_some())?;
    let ((mut wire, rank, size), _kept_up) = mpi.connect(program, &*host)?;
    let about = mpi.about();
    let accepts_device_memory = aware::decide(chosen, about.cuda);
    if let Some(started) = launcher::started().filter(|one| program.is_none() && size == 1 && one.ranks > 1) {
        return Err(started.mismatch(about.path.clone(), about.kind, "sees this one alone").into());
    }
    let inbox = Arc::new(Inbox::default());
    let node = node::connect(&mut *wire, rank, (node_aware, most), &inbox, &host)?;
    let mut slots = vec![None; size];
    if node.shm.is_ok() {
        for (slot, &rank) in node.ranks.iter().enumerate() {
            if let Some(place) = slots.get_mut(rank) {
                *place = Some(slot);
            }
        }
    }
    let peers: Vec<usize> = (0..size).filter(|&peer| peer != rank && slots[peer].is_none()).collect();
    let (shm, apart) = match node.shm {
        Ok(shm) => (Some(shm), "they are on different nodes".to_owned()),
        Err(why) => (None, why),
    };
    let polled = !peers.is_empty();
    let shared = Arc::new(Shared {
        rank,
        slots,
        channel: Channel::open(wire, about, peers),
        shm,
        apart,
        inbox,
        bell: Bell::default(),
        host,
        gone: (0..size).map(|_| AtomicU8::new(PRESENT)).collect(),
        departures: AtomicU64::new(0),
        fault: OnceLock::new(),
        cores: node.cores,
        polled,
        level: about.level,
        accepts_device_memory,
    });
    departure::remember(&shared);
    let poller = match polled && shared.channel.access() == Access::Anyone {
        true => Some(poller::Poller::start(Arc::clone(&shared))?),
        false => None,
    };
    Ok(Arc::new(MpiTransport { shared, poller }))
}

fn node_aware_from_env() -> Result<bool, CommError> {
    Ok(Variable::read(NODE_AWARE).map_or(Ok(true), Variable::switch)?)
}

fn node_ranks_from_env() -> Result<usize, CommError> {
    let Some(variable) = Variable::read(NODE_RANKS) else { return Ok(usize::MAX) };
    Ok(usize::try_from(variable.number(1..=u64::MAX)?).unwrap_or(usize::MAX))
}

/// One process's end. Dropping it sends queued messages and tells the others.
struct MpiTransport {
    shared: Arc<Shared>,
    poller: Option<poller::Poller>,
}

/// State of callers and the poller.
struct Shared {
    rank: usize,
    /// The rank on this node of each rank that shares memory with this one, itself included.
    slots: Vec<Option<usize>>,
    channel: Arc<Channel>,
    shm: Option<ShmTransport>,
    /// Why ranks without a slot share no memory with this one; a clause about both ranks.
    apart: String,
    inbox: Arc<Inbox>,
    /// This rank's bell if it shares no memory with other ranks.
    bell: Bell,
    host: Arc<dyn Host>,
    /// For each rank reached by MPI whether it is [`PRESENT`], has [`LEFT`], or cannot be reached any more.
    gone: Vec<AtomicU8>,
    departures: AtomicU64,
    /// Why MPI cannot be used any more.
    fault: OnceLock<MpiError>,
    cores: Cores,
    /// Whether some ranks are reached by MPI.
    polled: bool,
    level: ThreadLevel,
    /// Whether memory of devices is passed to MPI, or why not.
    accepts_device_memory: Result<(), String>,
}

/// A doorbell on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Bell(Doorbell);

const PRESENT: u8 = 0;
const LEFT: u8 = 1;
const LOST: u8 = 2;

impl Shared {
    fn own_bell(&self) -> &Doorbell {
        self.shm.as_ref().map_or(&self.bell.0, Transport::own_bell)
    }

    /// The node's transport and the rank's number there, if it is on this node.
    fn on_node(&self, rank: usize) -> Option<(&ShmTransport, usize)> {
        Some((self.shm.as_ref()?, (*self.slots.get(rank)?)?))
    }

    /// Moves messages from MPI to the inbox. True if there were any.
    fn poll(&self) -> bool {
        if !self.polled || self.fault.get().is_some() {
            return false;
        }
        let (mut arrived, mut news) = (false, false);
        let polled = self.channel.poll(&mut |source, arrival| {
            arrived = true;
            match arrival {
                Arrival::Message(tag, payload, bulk) => {
                    news |= tag.is_news();
                    self.inbox.push(Message { source, tag, payload, bulk, ..Message::default() });
                }
                Arrival::InPlace(tag) => {
                    self.inbox.push(Message { source, tag, in_place: true, ..Message::default() });
                }
                Arrival::Closed => self.depart(source),
            }
        });
        // Rung here, with no lock held.
        if arrived {
            self.own_bell().changed(&*self.host);
        }
        if news {
            self.own_bell().demand(&*self.host);
        }
        if let Err(error) = polled {
            self.break_down(error);
        }
        arrived
    }

    /// Records that a rank has left; all its messages are in the inbox.
    fn depart(&self, rank: usize) {
        if let Some(state) = self.gone.get(rank) {
            state.store(LEFT, Ordering::Release);
            self.departures.fetch_add(1, Ordering::Release);
        }
    }
}

/// The most bytes of a message that another one carries.
const LONGEST_CARRIED: usize = 16 << 10;

impl MpiTransport {
    /// Sends a message to a rank that is reached by MPI.
    fn send(&self, to: usize, tag: Tag, payload: Payload) -> Result<(), CommError> {
        self.hand_over(to, |channel| channel.post(to, tag, payload))
    }

    fn hand_over(
        &self,
        to: usize,
        post: impl FnOnce(&Channel) -> Result<(), MpiError>,
    ) -> Result<(), CommError> {
        let shared = &*self.shared;
        if to >= self.size() {
            return Err(CommError::NoSuchRank { rank: to, size: self.size() });
        }
        if let Some(error) = shared.fault.get() {
            return Err(error.clone().into());
        }
        if self.state(to) != PeerState::Present {
            return Ok(());
        }
        post(&shared.channel).map_err(|error| {
            shared.break_down(error.clone());
            shared.cause_of(&error)
        })
    }
}

// SAFETY: MPI delivers bytes and their sender; memory is shared only over the shm transport inside the node, which keeps the contract; what
// is borrowed is held until the request that uses it is complete.
unsafe impl Transport for MpiTransport {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn rank(&self) -> usize {
        self.shared.rank
    }

    fn size(&self) -> usize {
        self.shared.slots.len()
    }

    fn post(
        &self,
        to: usize,
        tag: Tag,
        payload: Vec<u8>,
        segments: &[Arc<Segment>],
    ) -> Result<(), CommError> {
        let shared = &*self.shared;
        if let Some((shm, slot)) = shared.on_node(to) {
            return shm.post(slot, tag, payload, segments);
        }
        if to == shared.rank {
            let segments = segments.to_vec();
            shared.inbox.push(Message { source: to, tag, payload, segments, ..Message::default() });
            shared.own_bell().delivered(&*shared.host, tag.is_news());
            return Ok(());
        }
        if !segments.is_empty() && to < self.size() {
            return Err(CommError::OutOfReach { rank: to, why: shared.apart.clone() });
        }
        self.send(to, tag, Payload::Owned(payload))
    }

    fn post_pair(&self, to: usize, pair: [Post; 2]) -> Result<(), CommError> {
        // Only MPI takes longer for two messages than for one, and the first one is copied behind the second.
        let is_long = pair[0].payload.len() > LONGEST_CARRIED;
        if is_long || self.shared.on_node(to).is_some() || to == self.shared.rank {
            return pair.into_iter().try_for_each(|post| self.post(to, post.tag, post.payload, &[]));
        }
        self.hand_over(to, |channel| channel.post_pair(to, pair))
    }

    fn post_borrowed(&self, to: usize, tag: Tag, payload: Borrowed) -> Result<(), CommError> {
        // Only MPI sends from the buffer itself.
        if self.shared.on_node(to).is_some() || to == self.shared.rank {
            return self.post(to, tag, payload.copied(), &[]);
        }
        self.send(to, tag, Payload::Borrowed(payload))
    }

    fn post_receive(&self, from: usize, tag: Tag, buffer: Borrowed) {
        if self.shared.on_node(from).is_none() && from != self.shared.rank {
            self.shared.channel.posted().add(from, tag, buffer);
        }
    }

    fn cancel_receives(&self, from: Option<usize>, which: &dyn Fn(Tag) -> bool) {
        self.shared.channel.posted().remove(from, which);
    }

    fn accepts_device_memory(&self, peer: usize) -> Result<(), String> {
        if self.shared.on_node(peer).is_some() || peer == self.shared.rank {
            return Err("messages within a node lie in memory of the host".to_owned());
        }
        if !self.is_driven() {
            return Err(format!("no thread in the background may call MPI at {}", self.shared.level));
        }
        self.shared.accepts_device_memory.clone()
    }

    fn post_bulk(&self, to: usize, tag: Tag, payload: Vec<u8>, bulk: Borrowed) -> Result<(), CommError> {
        let longest = LONGEST;
        let short = (bulk.len() <= longest)
            .then_some(())
            .ok_or_else(|| format!("a bulk has at most {longest} bytes"));
        let taken = self.accepts_device_memory(to).and(short);
        taken.map_err(|why| CommError::OutOfReach { rank: to, why })?;
        self.hand_over(to, |channel| channel.post_bulk(to, tag, payload, bulk))
    }

    fn surround(&self, surround: Arc<dyn Surround>) {
        self.shared.channel.surround(surround);
    }

    fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<Segment>, CommError> {
        match &self.shared.shm {
            Some(shm) => shm.allocate(bytes),
            None => Segment::heap(bytes).ok_or(CommError::OutOfMemory(bytes)),
        }
    }

    fn reach(&self, peer: usize, segment: &Segment) -> Result<(), String> {
        match self.shared.on_node(peer) {
            Some((shm, slot)) => shm.reach(slot, segment),
            None => Err(self.shared.apart.clone()),
        }
    }

    fn bell(&self, rank: usize) -> Option<&Doorbell> {
        if rank == self.shared.rank {
            return Some(self.shared.own_bell());
        }
        self.shared.on_node(rank).and_then(|(shm, slot)| shm.bell(slot))
    }

    fn leave(&self) {
        self.shared.tell_node(ShmTransport::leave);
    }

    fn own_bell(&self) -> &Doorbell {
        self.shared.own_bell()
    }

    fn state(&self, rank: usize) -> PeerState {
        if let Some((shm, slot)) = self.shared.on_node(rank) {
            return shm.state(slot);
        }
        match self.shared.gone.get(rank).map(|state| state.load(Ordering::Acquire)) {
            Some(PRESENT) => PeerState::Present,
            // The close message is the last one that it sends.
            Some(LEFT) => PeerState::Ended,
            _ => PeerState::Dead,
        }
    }

    fn departures(&self) -> u64 {
        let shared = &*self.shared;
        shared.departures.load(Ordering::Acquire) + shared.shm.as_ref().map_or(0, Transport::departures)
    }

    fn host(&self) -> &dyn Host {
        &*self.shared.host
    }

    fn cores(&self) -> Cores {
        self.shared.cores
    }

    fn is_polled(&self) -> bool {
        self.shared.polled
    }

    fn poll(&self) {
        if let Some(shm) = &self.shared.shm {
            shm.poll();
        }
        self.shared.poll();
    }

    fn is_carrying(&self) -> bool {
        let Shared { polled, channel, fault, .. } = &*self.shared;
        *polled && channel.is_carrying() && fault.get().is_none() && channel.access().is_mine()
    }

    fn is_driven(&self) -> bool {
        !self.shared.polled || self.poller.is_some()
    }

    fn broken(&self) -> Option<CommError> {
        self.shared.fault.get().map(|error| self.shared.cause_of(error))
    }

    fn fault(&self) -> Option<CommError> {
        self.broken().or_else(|| self.shared.shm.as_ref().and_then(Transport::fault))
    }

    fn check(&self) -> Result<(), CommError> {
        let shared = &*self.shared;
        self.fault().map_or(Ok(()), Err)?;
        if shared.polled && !shared.channel.access().is_mine() {
            return Err(MpiError::Thread { level: shared.level }.into());
        }
        Ok(())
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        if let Some(shm) = &self.shared.shm {
            self.shared.note_failure(shm);
        }
        // Discards unread messages: their senders keep bulks until then.
        self.shared.inbox.clear();
        self.shared.channel.close();
        if let Some(poller) = self.poller.take() {
            poller.stop();
        }
    }
}
