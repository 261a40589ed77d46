//! The scheduled exchange: the device fields of a bound object, in the order of streams. The host never waits.
//!
//! Each device of this rank has a [`Lane`]: an internal stream, tied to the user's streams of that device by events alone,
//! and to the other lanes by words: nobody could release a wait for an event of a device that has failed. For every exchange
//! it is given the same few operations, of which only the epoch changes. `ready` and `arrived` are words in the memory of the
//! device that waits for them: epochs, raised by streams and tables of the other side.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | an exchange begins |
//! | `by_set.rs` | what there is for each set |
//! | `lane.rs` | what one device does of it |
//! | `pool.rs` | streams and events that objects share |
//! | `message.rs` | messages packed and unpacked by hand |
//! | `staging.rs` | links by messages, staged through pinned memory |
//! | `wait.rs` | waiting for it, on the host and on a stream |
//! | `watch.rs` | failure: who notices it, poison, the end of an object |

mod by_set;
mod cut;
mod lane;
mod message;
mod pool;
mod staging;
mod wait;
mod watch;

pub(crate) use by_set::BySet;
pub use cut::Cut;
pub(crate) use lane::{BEGUN, Block, Cue, DONE, LINE, Lane, STATUS, Script, Step};
pub(crate) use pool::{OfDevice, Pool, Room};
pub(crate) use staging::{Stage, Staged, Staging, chunks, offset};

use crate::bind::Kit;
use crate::bound::Bound;
use crate::error::{Error, Failure};
use crate::link::{Link, SLOTS};
use crate::set::Set;
use halocline_comm::mappings::Pinned;
use halocline_comm::{Communicator, Patience, Segment, Wakers};
use halocline_device::{Address, Device, DeviceError, Event, Memory, Stream, ValueOp, Waiting};
use message::Kept;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

/// Exchanges of one object that may be in flight.
pub(crate) const IN_FLIGHT: u64 = 64;

/// What a word becomes when all that waits for it shall go on, for good: above all epochs.
pub(crate) const POISON: u64 = 1 << 62;

/// The device fields of a bound object.
pub(crate) struct Scheduled {
    /// Memory of this rank that peers have mapped. Before what it is of.
    pinned: Vec<Pinned>,
    pub(crate) comm: Communicator,
    /// One for each peer and direction. Their counters say that a side has failed, is quiet, or closed.
    pub(crate) links: Vec<Link>,
    pub(crate) sets: BySet<Arc<Set>>,
    pub(crate) lanes: Vec<Lane>,
    /// After the lanes, whose tables use its memory.
    staging: Option<Staging>,
    /// What the scripts of further sets are made of.
    pub(crate) kit: Kit,
    seats: Vec<Seat>,
    /// Producer streams of [`crate::HaloExchange::exchange`].
    producers: Vec<Arc<Stream>>,
    /// Why an exchange is more than one launch, if it is.
    pub(crate) apart: Option<&'static str>,
    /// The host fields of the same object, if this rank has any.
    pub(crate) host: Option<Arc<Bound>>,
    /// Everything on the users' streams.
    pub(crate) inline: bool,
    patience: Patience,
    begin: Mutex<Begin>,
    /// For each set, memory that is not our own and must not have moved.
    borrowed: BySet<Vec<Borrowed>>,
    /// The last exchange given to the streams.
    epoch: AtomicU64,
    /// The last that is known to be over.
    completed: AtomicU64,
    /// Which set each is of, by its epoch: of those in flight, and of as many before them, which peers may still await.
    chosen: Vec<AtomicUsize>,
    failed: OnceLock<Arc<Failure>>,
    /// After a failure: nothing of ours runs any more, and the peers know.
    quiet: AtomicBool,
    /// Nor does any peer touch the fields any more.
    reclaimed: AtomicBool,
    /// The progress thread looks after this object.
    watched: AtomicBool,
    /// The user has dropped it, and the peers were told.
    closed: AtomicBool,
    wakers: Wakers,
    /// When the last task came to wait: host's clock, ns.
    awaited: AtomicU64,
    lateness: Mutex<Lateness>,
    /// While anything is in flight, nothing that devices use is freed.
    waiting: Mutex<Option<Waiting>>,
    /// The exchange that was not over when the devices were asked whether they have failed, and when that was.
    asked: Mutex<(u64, Duration)>,
    /// The exchange after which nothing was in flight, and since when that is known.
    idle: Mutex<(u64, Duration)>,
    /// After the lanes: mailboxes that devices reach, and the memory of all that peers have told of.
    #[expect(dead_code, reason = "held for the addresses in it")]
    registered: Vec<Arc<Memory>>,
    #[expect(dead_code, reason = "held for the addresses in it")]
    segments: Vec<Arc<Segment>>,
    #[cfg(feature = "cuts")]
    cut: Option<Cut>,
}

/// Where it shows how far the peer of a link is.
pub(crate) struct Seat {
    pub(crate) link: usize,
    pub(crate) waits: Waits,
}

/// An allocation that is not our own, by an address in it.
struct Borrowed {
    device: Device,
    address: Address,
    id: u64,
    /// The first field in it.
    field: usize,
}

impl Borrowed {
    /// Each allocation of a set's fields once, however many of them lie in it.
    fn of(set: &Set) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (memory, field) in &set.local.memories {
            let Some(home) = memory.device.as_ref().filter(|home| home.foreign) else { continue };
            let is_known = |known: &Self| known.id == home.place.id && known.device == home.device;
            if !memory.segment.is_empty() && !all.iter().any(is_known) {
                let address = memory.segment.base().addr().get() as Address;
                all.push(Self { device: home.device.clone(), address, id: home.place.id, field: *field });
            }
        }
        all
    }
}

/// What a link waits for.
pub(crate) enum Waits {
    /// A lane: for a word, that of the set and of even epochs or odd ones, so many epochs behind.
    Word { lane: usize, of_sets: Vec<[Address; SLOTS as usize]>, lag: u64 },
    /// The host, with a staged message.
    Stage(usize),
}

/// What changes when an exchange begins. Whoever holds it gives work to the streams.
struct Begin {
    /// For each exchange in flight, what says on each lane that it is over; by its epoch.
    flights: Vec<Vec<Option<Flight>>>,
    /// Events of exchanges up to this one were returned.
    retired: u64,
    /// The last exchange was not given whole: the object is about to fail.
    is_broken: bool,
    scratch: Vec<ValueOp>,
    messages: Vec<Kept>,
}

/// A lane's part of an exchange that streams were given.
struct Flight {
    /// Behind it,
    done: Event,
    /// on this stream ([`Stream::id`]), if it is a user's.
    on: Option<u64>,
}

impl Flight {
    /// Whatever the stream is given from now on comes later: of itself, where it is the same one.
    fn precede(&self, stream: &Stream) -> Result<(), DeviceError> {
        match self.on.is_some() && self.on == stream.id() {
            true => Ok(()),
            false => stream.wait(&self.done),
        }
    }
}

/// Since when the streams wait.
#[derive(Default)]
struct Lateness {
    /// The exchange that is awaited, whether they have reached it, and since when that is known; before that, when it was
    /// looked at.
    epoch: u64,
    has_begun: bool,
    since: Duration,
    warn_at: Duration,
}

/// What bind makes of an object's device fields.
pub(crate) struct Parts {
    pub(crate) comm: Communicator,
    pub(crate) links: Vec<Link>,
    pub(crate) sets: BySet<Arc<Set>>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) staging: Option<Staging>,
    pub(crate) kit: Kit,
    pub(crate) seats: Vec<Seat>,
    pub(crate) producers: Vec<Arc<Stream>>,
    pub(crate) apart: Option<&'static str>,
    pub(crate) host: Option<Arc<Bound>>,
    pub(crate) inline: bool,
    pub(crate) patience: Patience,
    pub(crate) registered: Vec<Arc<Memory>>,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) pinned: Vec<Pinned>,
    pub(crate) cut: Option<Cut>,
}

impl Scheduled {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { comm, links, sets, lanes, seats, producers, apart, host, inline, patience, .. } = parts;
        let longest = lanes.iter().flat_map(|lane| lane.scripts.iter().map(Script::longest));
        let begin = Begin {
            flights: (0..IN_FLIGHT).map(|_| lanes.iter().map(|_| None).collect()).collect(),
            retired: 0,
            is_broken: false,
            scratch: Vec::with_capacity(longest.max().unwrap_or(0)),
            messages: Vec::new(),
        };
        #[cfg(not(feature = "cuts"))]
        let _ = parts.cut;
        let borrowed = BySet::new(sets.room(), sets.iter().map(|set| Borrowed::of(set)));
        Self {
            pinned: parts.pinned,
            comm,
            links,
            sets,
            lanes,
            staging: parts.staging,
            kit: parts.kit,
            seats,
            producers,
            apart,
            host,
            inline,
            patience,
            borrowed,
            begin: Mutex::new(begin),
            epoch: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            chosen: (0..2 * IN_FLIGHT).map(|_| AtomicUsize::new(0)).collect(),
            failed: OnceLock::new(),
            quiet: AtomicBool::new(false),
            reclaimed: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wakers: Wakers::default(),
            awaited: AtomicU64::new(0),
            lateness: Mutex::default(),
            waiting: Mutex::default(),
            asked: Mutex::default(),
            idle: Mutex::default(),
            registered: parts.registered,
            segments: parts.segments,
            #[cfg(feature = "cuts")]
            cut: parts.cut,
        }
    }

    /// The staged links.
    pub(crate) fn stages(&self) -> &[Stage] {
        self.staging.as_ref().map_or(&[], |staging| &staging.stages)
    }

    /// Adds sets, for which there is all else already.
    pub(crate) fn add(&self, sets: Vec<Arc<Set>>) {
        let longest = self.lanes.iter().flat_map(|lane| lane.scripts.iter().map(Script::longest)).max();
        let mut begin = self.enter();
        let more = longest.unwrap_or(0).saturating_sub(begin.scratch.len());
        begin.scratch.reserve(more);
        self.borrowed.extend(sets.iter().map(|set| Borrowed::of(set)));
        self.sets.extend(sets);
    }

    /// Whether a test leaves this piece of order out.
    #[inline]
    fn is_cut(&self, cut: Cut) -> bool {
        #[cfg(feature = "cuts")]
        return self.cut == Some(cut);
        #[cfg(not(feature = "cuts"))]
        {
            let _ = cut;
            false
        }
    }

    /// The last exchange begun.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The set that an exchange is of; of one of the last.
    fn set_of(&self, epoch: u64) -> usize {
        self.chosen[(epoch % (2 * IN_FLIGHT)) as usize].load(Ordering::Acquire)
    }

    /// As [`Scheduled::begin`], after the producer streams that were bound.
    pub(crate) fn begin_bound(&self, set: &Arc<Set>) -> Result<u64, Error> {
        self.begin(set, self.producers.iter().map(|stream| &**stream))
    }

    /// Begins an exchange of a set, of which the host fields are given, after all work that the streams were given before.
    /// Waits for nobody but a thread that begins an exchange of this object, and, if nothing of it is in flight, for what is being freed
    /// ([`halocline_device::Device::let_wait`]).
    pub(crate) fn begin<'a>(
        &'a self,
        host_set: &Arc<Set>,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<u64, Error> {
        streams.clone().enumerate().try_for_each(|(at, stream)| self.check_stream(at, stream))?;
        // Sets of host and device fields have the same numbers.
        let set = host_set.number;
        let mut begin = self.enter();
        self.check_failure()?;
        self.check_memories(set).inspect_err(|error| self.end_by_device(error.to_string()))?;
        let epoch = self.epoch() + 1;
        self.make_room(epoch)?;
        if let Some(host) = &self.host {
            host.begin(host_set, &[])?;
        }
        self.chosen[(epoch % (2 * IN_FLIGHT)) as usize].store(set, Ordering::Release);
        {
            let mut waiting = self.waiting();
            if waiting.is_none() {
                *waiting = self.lanes.iter().find_map(|lane| lane.device.let_wait());
            }
            // Before anything is given: whoever looks after the object from now on looks at this exchange, too.
            self.epoch.store(epoch, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        // Where others are in flight, already now: a queue that is full holds this thread until the host has carried on what
        // streams wait for.
        if self.completed.load(Ordering::Acquire) + 1 < epoch {
            self.be_watched();
        }
        // Objects share streams: on all lanes in one order, or each waits behind the other.
        let pool = self.comm.part::<Pool>();
        let order = (self.lanes.len() > 1).then(|| pool.enter(&self.comm));
        let given = match self.check_failure() {
            Ok(()) => self.give(&mut begin, (set, epoch), streams.clone()).map_err(Some),
            Err(_) => Err(None),
        };
        if given.is_err() {
            begin.is_broken = true;
            self.give_up(&mut begin, epoch, streams);
        }
        drop(order);
        drop(begin);
        self.be_watched();
        match given {
            Ok(()) => {}
            Err(Some(error)) => return Err(self.lose(error)),
            Err(None) => return self.check_failure().map(|()| epoch),
        }
        Ok(epoch)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is in flight any more, unless somebody has begun an exchange meanwhile.
    fn let_free(&self) {
        let mut waiting = self.waiting();
        if self.completed.load(Ordering::Acquire) >= self.epoch() || self.quiet.load(Ordering::Acquire) {
            *waiting = None;
        }
    }

    /// Waits until nobody else begins an exchange here, or ties a stream to one: both are short.
    fn enter(&self) -> MutexGuard<'_, Begin> {
        loop {
            match self.begin.try_lock() {
                Ok(begin) => return begin,
                // What a panic interrupts has not counted yet.
                Err(TryLockError::Poisoned(begin)) => return begin.into_inner(),
                Err(TryLockError::WouldBlock) => self.comm.link().host().yield_now(),
            }
        }
    }

    /// A stream of one of the object's devices, whose work is done, and not captured.
    fn check_stream(&self, at: usize, stream: &Stream) -> Result<(), Error> {
        let device = stream.device().ordinal();
        if self.lanes.is_empty() {
            return Ok(());
        }
        if self.lane_of(stream).is_some() {
            return match stream.is_capturing()? {
                false => Ok(()),
                true => Err(Error::Capturing { stream: at }),
            };
        }
        let devices = self.lanes.iter().map(|lane| lane.device.ordinal()).collect();
        Err(Error::StreamDevice { stream: at, device, devices })
    }

    fn check_failure(&self) -> Result<(), Error> {
        self.failed.get().map_or(Ok(()), |failure| Err(Error::Failed(Arc::clone(failure))))
    }

    /// Memory that is not our own still is what was bound.
    fn check_memories(&self, set: usize) -> Result<(), Error> {
        for Borrowed { device, address, id, field } in &self.borrowed[set] {
            if device.identity(*address) != Ok(*id) {
                // A device that has failed says nothing about memory.
                let lost = device.failure().map(Error::from);
                return Err(lost.unwrap_or(Error::MemoryMoved { field: *field }));
            }
        }
        Ok(())
    }

    fn make_room(&self, epoch: u64) -> Result<(), Error> {
        let is_full = |completed: u64| epoch - 1 - completed >= IN_FLIGHT;
        if is_full(self.completed.load(Ordering::Acquire)) && is_full(self.look()) {
            let oldest = self.completed.load(Ordering::Acquire) + 1;
            return Err(Error::TooManyInFlight { limit: IN_FLIGHT, oldest });
        }
        // What the host carries on is behind by what is in flight at most, but where exchanges leave it nothing to do.
        while self.staging.as_ref().is_some_and(|staging| staging.oldest() + 2 * IN_FLIGHT <= epoch + SLOTS) {
            self.check_failure()?;
            self.carry_on();
            self.comm.link().host().yield_now();
        }
        Ok(())
    }

    fn give<'a>(
        &'a self,
        begin: &mut Begin,
        (set, epoch): (usize, u64),
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) -> Result<(), DeviceError> {
        self.retire(begin);
        let Begin { flights, scratch, .. } = begin;
        let (before, at) = (((epoch - 1) % IN_FLIGHT) as usize, (epoch % IN_FLIGHT) as usize);
        let chosen = |number| self.chosen(number, streams.clone());
        if self.is_cut(Cut::HaloRead) {
            for (number, lane) in self.lanes.iter().enumerate() {
                let Script { before, raised, .. } = &lane.scripts[set];
                lane.cue(chosen(number), &before[..*raised], epoch, scratch)?;
            }
        }
        for stream in streams.clone().filter(|_| !self.is_cut(Cut::Producer)) {
            let Some(lane) = self.lane_of(stream).filter(|&lane| chosen(lane).raw() != stream.raw()) else {
                continue;
            };
            let given = self.lanes[lane].shared.events.take()?;
            stream.record(&given)?;
            chosen(lane).wait(&given)?;
            if let Some(flight) = flights[before][lane].as_ref().filter(|_| self.is_cut(Cut::Event)) {
                stream.record(&flight.done)?;
            }
        }
        for (number, lane) in self.lanes.iter().enumerate() {
            let stream = chosen(number);
            self.follow(stream, flights[before][number].as_ref())?;
            let done = lane.shared.events.take()?;
            let be_watched = || self.be_watched();
            lane.give(stream, (set, epoch), scratch, &done, (|cut| self.is_cut(cut), be_watched))?;
            flights[at][number] = Some(Flight { done, on: self.inline.then(|| stream.id()).flatten() });
        }
        Ok(())
    }

    /// Exchange `epoch` counts as begun, but is not given whole: streams that still work say that they are through.
    fn give_up<'a>(
        &'a self,
        begin: &mut Begin,
        epoch: u64,
        streams: impl Iterator<Item = &'a Stream> + Clone,
    ) {
        for (number, lane) in self.lanes.iter().enumerate() {
            let before = begin.flights[((epoch - 1) % IN_FLIGHT) as usize][number].as_ref();
            let stream = self.chosen(number, streams.clone());
            let given =
                self.follow(stream, before).and_then(|()| lane.give_up(stream, epoch, &mut begin.scratch));
            let given = given.or_else(|error| {
                // The user's stream takes nothing any more: what was given before is what is left.
                tracing::debug!("rank {}: {error}", self.comm.rank());
                before.map_or(Ok(()), |before| before.precede(&lane.stream))?;
                lane.give_up(&lane.stream, epoch, &mut begin.scratch)
            });
            if let Err(error) = given {
                // A device that has failed keeps nobody waiting.
                tracing::debug!("rank {}: {error}", self.comm.rank());
            }
        }
    }

    /// The stream that a lane's part of an exchange is given to.
    fn chosen<'a>(&'a self, lane: usize, mut streams: impl Iterator<Item = &'a Stream>) -> &'a Stream {
        let of = |stream: &&Stream| self.lane_of(stream) == Some(lane);
        let users = if self.inline { streams.find(of) } else { None };
        users.unwrap_or(&self.lanes[lane].stream)
    }

    /// The lane of a stream's device.
    fn lane_of(&self, stream: &Stream) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.device == *stream.device())
    }

    /// On a user's stream: after the exchange before, which may have been given to another one.
    fn follow(&self, stream: &Stream, before: Option<&Flight>) -> Result<(), DeviceError> {
        before.filter(|_| self.inline).map_or(Ok(()), |before| before.precede(stream))
    }

    /// Returns the events of exchanges that are over.
    fn retire(&self, begin: &mut Begin) {
        let completed = self.completed.load(Ordering::Acquire);
        while begin.retired < completed {
            begin.retired += 1;
            begin.flights[(begin.retired % IN_FLIGHT) as usize]
                .iter_mut()
                .for_each(|flight| drop(flight.take()));
        }
    }
}
