//! The device engine: the device fields of a bound object, in the order of streams. The host waits for no peer.
//!
//! Each device of this rank has a [`Lane`], which works on an internal stream. Events order that with the user's streams of that device; flags order
//! it with the other lanes, because a failed device never completes an event. Each exchange gives the lane the same few operations
//! with another epoch. (A captured exchange has its epoch from a counter on the device.) `ready` (the grant) and `arrived` are flags in the memory of the device that waits for them: epochs, set by
//! streams and copy tables of the other side.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | the engine's state |
//! | `begin.rs` | the begin of an exchange |
//! | `by_set.rs` | a list with one entry for each set |
//! | `checks.rs` | checked mode |
//! | `flag_set.rs` | which flags an exchange or a reduce uses |
//! | `reduce.rs` | reduces |
//! | `capture.rs` | exchanges that are captured into graphs |
//! | `given.rs` | fields that are given to an exchange |
//! | `lane.rs` | one device's part of an exchange |
//! | `script.rs` | the work of a lane for an exchange of one set |
//! | `shared.rs` | the order of exchanges of one memory by several objects |
//! | `pool.rs` | streams and events that objects share |
//! | `sm_budget.rs` | how many thread blocks of a device wait at the same time |
//! | `message.rs` | messages packed and unpacked by hand |
//! | `staging.rs` | links by messages, staged through pinned memory |
//! | `stage.rs` | the memory of one side of such a link |
//! | `wait.rs` | waiting for an exchange, on the host and on a stream |
//! | `watch.rs` | failure, poison, deadlines, the end of an object |

mod begin;
mod by_set;
mod capture;
mod check_slot;
mod checks;
mod cut;
mod flag_set;
mod given;
mod lane;
mod message;
mod pool;
mod reduce;
mod script;
mod shared;
mod sm_budget;
mod stage;
mod staging;
mod wait;
mod watch;

pub(crate) use by_set::BySet;
pub(crate) use checks::{Checks, Looks};
pub use cut::Cut;
pub(crate) use flag_set::{FlagSet, begun, status};
pub(crate) use given::{Given, Layouts, Sent, Slot, Unbound, WORDS, Work, describe, mix};
pub(crate) use lane::{DIFFERS, DONE, LINE, Lane};
pub(crate) use pool::{OfDevice, Pool};
pub(crate) use script::{Cue, Messages, Script, Step};
pub(crate) use stage::{Stage, Staged, chunks, offset};
pub(crate) use staging::Staging;

use crate::bind::{Kit, Word};
use crate::bound::Bound;
use crate::error::ReduceError;
use crate::lifecycle::{Engine, Lateness};
use crate::link::Link;
use crate::set::Set;
pub(crate) use capture::{Captured, is_captured};
use halocline_comm::mappings::{Mappings, Pinned, Stats};
use halocline_comm::{Communicator, Segment};
use halocline_device::{
    Address, Capture, Device, DeviceCommunicator, DeviceError, Event, Memory, Stream, ValueOp, Waiting,
};
use message::Kept;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Exchanges of one object that may be in flight.
pub(crate) const IN_FLIGHT: u64 = 64;

/// The flag value that ends every wait for the flag: above all epochs.
pub(crate) const POISON: u64 = 1 << 62;

/// What a bind makes for the device fields of an object.
pub(crate) struct Parts {
    /// Memory of this rank that peers have mapped. Dropped before that memory.
    pub(crate) pinned: Vec<Pinned>,
    pub(crate) comm: Communicator,
    /// One for each peer and direction. Their host flags signal that a side has failed, is quiet, or closed.
    pub(crate) links: Vec<Link>,
    pub(crate) sets: BySet<Arc<Set>>,
    pub(crate) lanes: Vec<Lane>,
    /// After the lanes, whose tables use its memory.
    pub(crate) staging: Option<Staging>,
    /// Carries the messages of links by NCCL. Other objects use it, too.
    pub(crate) nccl: Option<Arc<DeviceCommunicator>>,
    /// In checked mode. After the lanes, whose tables use its memory.
    pub(crate) checks: Option<Checks>,
    /// What the scripts of further sets are made from.
    pub(crate) kit: Kit,
    pub(crate) seats: Vec<Seat>,
    /// Producer streams of [`crate::HaloExchange::exchange`].
    pub(crate) producers: Vec<Arc<Stream>>,
    /// Why some rank cannot reduce.
    pub(crate) refuses_reduces: Option<ReduceError>,
    /// Why an exchange is more than one launch, if it is.
    pub(crate) apart: Option<&'static str>,
    /// The host engine of the same object, and the life that both share.
    pub(crate) host: Arc<Bound>,
    /// This rank has host fields, too.
    pub(crate) has_host_fields: bool,
    /// Exchanges run on the users' streams.
    pub(crate) inline: bool,
    /// Dropped after the lanes: mailboxes that devices reach, and segments of peers, held for the addresses in them.
    #[expect(dead_code, reason = "held for the addresses in it")]
    pub(crate) registered: Vec<Arc<Memory>>,
    #[expect(dead_code, reason = "held for the addresses in it")]
    pub(crate) segments: Vec<Arc<Segment>>,
    /// A piece of order that a test leaves out.
    pub(crate) cut: Option<Cut>,
}

/// The device fields of a bound object.
pub(crate) struct Scheduled {
    parts: Parts,
    begin: Mutex<Begin>,
    /// For each set, memory of the user that must not have moved.
    borrowed: BySet<Vec<Borrowed>>,
    /// The flags of each exchange and reduce, by its epoch: of those in flight, and of as many before them, which peers may still wait for.
    chosen: Vec<AtomicUsize>,
    /// After a failure: nothing of this rank runs any more, and the peers were notified.
    quiet: AtomicBool,
    /// No peer accesses the fields any more, either.
    reclaimed: AtomicBool,
    /// Another object exchanges a memory of this one, or did.
    pub(crate) shares: AtomicBool,
    /// The progress thread serves this object.
    watched: AtomicBool,
    /// Held while an exchange is in flight: keeps the process from freeing device memory.
    waiting: Mutex<Option<Waiting>>,
    /// How many physical allocations of virtual memory were checked.
    looked: AtomicUsize,
    /// The exchange that was unfinished when the devices were last asked for a failure, and the time of that.
    asked: Mutex<(u64, Duration)>,
    /// The clock of the exchange after which none was in flight.
    idle: Lateness,
    /// For exchanges of given fields. After the lanes, whose tables use its memory.
    pub(crate) unbound: Option<Unbound>,
    /// Exchanges captured so far.
    captures: AtomicU64,
    /// After a failure: the last epoch that the device has begun, and when that was seen first.
    last_begun: Mutex<Option<(u64, Duration)>>,
}

impl Deref for Scheduled {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// Shows how far the peer of a link is.
pub(crate) struct Seat {
    pub(crate) link: usize,
    pub(crate) waits: Waits,
}

/// An allocation of the user, by an address in it.
struct Borrowed {
    device: Device,
    address: Address,
    id: u64,
    /// The first field in it.
    field: usize,
    /// The field begins there. Other pieces of virtual memory come after all of these.
    is_first: bool,
}

/// Physical allocations of virtual memory begin at multiples of this (the least granularity of `cuMemGetAllocationGranularity`).
const PIECE: Address = 2 << 20;

impl Borrowed {
    /// Each allocation of a set's fields once, however many of them lie in it; of virtual memory each physical one.
    fn of(set: &Set) -> Vec<Self> {
        let (mut all, mut known) = (Vec::new(), BTreeSet::new());
        for (memory, field) in &set.local.memories {
            let Some(home) = memory.device.as_ref().filter(|home| home.foreign) else { continue };
            if memory.segment.is_empty() {
                continue;
            }
            let (device, first) = (&home.device, memory.segment.base().addr().get() as Address);
            let end = first + memory.segment.len() as Address;
            let pieces = (first / PIECE + 1..end.div_ceil(PIECE)).map(|piece| piece * PIECE);
            // An address that has no identity is no allocation of its own.
            let ids = pieces.filter_map(|address| Some((address, device.identity(address).ok()?, false)));
            for (address, id, is_first) in std::iter::once((first, home.place.id, true)).chain(ids) {
                if known.insert((device.id(), id)) {
                    all.push(Self { device: device.clone(), address, id, field: *field, is_first });
                }
            }
        }
        all.sort_by_key(|one| !one.is_first);
        all
    }
}

/// Where a link's progress shows.
pub(crate) enum Waits {
    /// A lane waits for a flag, `lag` epochs behind, and in a reduce for another one.
    Word { lane: usize, word: Word, lag: u64, in_reduce: Option<Word> },
    /// The host waits for a staged message.
    Stage(usize),
    /// A stream waits for a message of NCCL: it may be that of any peer.
    Nccl,
}

/// State that a begin changes. Only its holder gives work to the streams.
struct Begin {
    /// For each exchange in flight, by its epoch, the event of each lane.
    flights: Vec<Vec<Option<Flight>>>,
    /// Events of exchanges up to this one were returned.
    retired: u64,
    /// The last exchange was given in part: the object is about to fail.
    is_broken: bool,
    scratch: Vec<ValueOp>,
    messages: Vec<Kept>,
    captured: Option<Captured>,
    /// The last graph that was made to keep the object.
    kept: Option<Capture>,
}

/// A lane's part of an exchange in flight.
struct Flight {
    /// Recorded after it,
    done: Event,
    /// on this stream ([`Stream::id`]),
    on: Option<u64>,
    /// which is a user's, or an internal one.
    is_users: bool,
}

impl Flight {
    /// Orders later work of a user's stream after it. On the same stream it is ordered already.
    fn precede(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.precede_on(stream, if self.is_users { stream.id() } else { None })
    }

    /// The same for a stream with this [`Stream::id`].
    fn precede_on(&self, stream: &Stream, id: Option<u64>) -> Result<(), DeviceError> {
        match id.is_some() && self.on == id {
            true => Ok(()),
            false => stream.wait(&self.done),
        }
    }
}

impl Scheduled {
    /// The statistics of this rank's mappings, if this object uses any.
    pub(crate) fn mappings(&self) -> Option<Stats> {
        let is_used = !self.pinned.is_empty() || self.links.iter().any(|link| !link.mapped.is_empty());
        // The cache exists then.
        is_used.then(|| Mappings::of(&self.comm).stats())
    }

    pub(crate) fn new(parts: Parts, unbound: Option<Unbound>) -> Self {
        let Parts { sets, lanes, .. } = &parts;
        let longest = lanes.iter().flat_map(|lane| lane.scripts.iter().map(Script::longest));
        let begin = Begin {
            flights: (0..IN_FLIGHT).map(|_| lanes.iter().map(|_| None).collect()).collect(),
            retired: 0,
            is_broken: false,
            scratch: Vec::with_capacity(longest.max().unwrap_or(0)),
            messages: Vec::new(),
            captured: None,
            kept: None,
        };
        Self {
            borrowed: BySet::new(sets.max_sets(), sets.iter().map(|set| Borrowed::of(set))),
            parts,
            begin: Mutex::new(begin),
            chosen: (0..2 * IN_FLIGHT).map(|_| AtomicUsize::new(0)).collect(),
            quiet: AtomicBool::new(false),
            reclaimed: AtomicBool::new(false),
            shares: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            waiting: Mutex::default(),
            looked: AtomicUsize::new(0),
            asked: Mutex::default(),
            idle: Lateness::default(),
            unbound,
            captures: AtomicU64::new(0),
            last_begun: Mutex::default(),
        }
    }

    /// The staged links.
    pub(crate) fn stages(&self) -> &[Stage] {
        self.staging.as_ref().map_or(&[], |staging| &staging.stages)
    }

    /// Adds sets, whose scripts are there already.
    pub(crate) fn add(&self, sets: Vec<Arc<Set>>) {
        let longest = self.lanes.iter().flat_map(|lane| lane.scripts.iter().map(Script::longest)).max();
        let mut begin = self.enter();
        let more = longest.unwrap_or(0).saturating_sub(begin.scratch.len());
        begin.scratch.reserve(more);
        self.borrowed.extend(sets.iter().map(|set| Borrowed::of(set)));
        self.sets.extend(sets);
    }

    /// Whether a test leaves out this piece of order.
    #[inline]
    fn is_cut(&self, cut: Cut) -> bool {
        cfg!(feature = "cuts") && self.cut == Some(cut)
    }

    /// The last exchange that is known to be over.
    fn completed(&self) -> u64 {
        self.life().device.completed.last()
    }

    /// The last exchange begun.
    pub(crate) fn epoch(&self) -> u64 {
        self.life().epoch()
    }

    /// The operation of one of the last 128 epochs.
    fn operation_of(&self, epoch: u64) -> FlagSet {
        FlagSet::of(self.number_of(epoch), self.sets.max_sets())
    }

    /// The number of its [`FlagSet`].
    fn number_of(&self, epoch: u64) -> usize {
        self.chosen[(epoch % (2 * IN_FLIGHT)) as usize].load(Ordering::Acquire)
    }
}
