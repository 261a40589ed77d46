//! The lanes of an object: their words, and the copy tables and operations that each is given for an exchange.
//!
//! | link | `ready` | `arrived` |
//! | --- | --- | --- |
//! | push | one for each set: raised before anything waits, waited for before the table that pushes | raised by that table |
//! | pull | the same, raised by the sender, waited for before copy engines and a table pull | raised by that table, waited for by the sender |
//! | mailbox | raised by the table that unpacks, waited for two epochs later | one for each set and slot: raised by the table that packs |
//! | flags | the same | raised by the table that packs, waited for by streams; who is in one launch waits for the words of the slot, of which each set has its own |
//! | message | see `stream/staging.rs` | |
//!
//! Of words of which each set has its own, ranks that exchange different sets wait for ever, and nothing is copied that the
//! other side has not given; the watch finds that (`stream/watch.rs`).
//!
//! The first lane does all that is received: raises `ready`, waits for `arrived`, unpacks. Where all links are direct (or go as words with flags), to devices that
//! are the peers' alone, one launch of a table does all of it, waits included. Otherwise streams wait, never tables: what
//! spins on a device takes room from the work beside it, and may keep the work that it waits for from running there.

use super::aware::Slots;
use super::device::{End, FarLane, LANES, Made, WORD, head, slot, span};
use super::script::Making;
use super::slots::{Places, flags_bytes, slots_begin};
use crate::error::Error;
use crate::link::{Direction, Link, SLOTS, Way};
use crate::options::BindOptions;
use crate::set::{Part, Set};
use crate::stream::{
    BySet, Cue, Cut, LINE, Lane, OfDevice, Pool, Room, STATUS, Script, Seat, Stage, Staged, Waits, chunks,
};
use halocline_comm::{Communicator, Segment};
use halocline_device::{Address, Device, Memory, RawStream, Stream, ValueOp};
use halocline_plan::copy::CopyOp;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// The lanes of this rank, before it knows those of its peers.
pub(super) struct Opened {
    pub(super) devices: Vec<Device>,
    pub(super) lanes: Vec<Open>,
    /// This rank's mailboxes, as devices reach them.
    registered: Option<Arc<Memory>>,
}

pub(super) struct Open {
    pub(super) device: Device,
    shared: Arc<OfDevice>,
    stream: Arc<Stream>,
    /// A guard, for each peer `ready` of each set, on the first lane `arrived` of each peer's lanes, and the slots of words with flags; at the
    /// end what each lane of this rank raises.
    pub(super) words: Arc<Memory>,
}

/// What comes of it.
pub(super) struct Joined {
    pub(super) lanes: Vec<Lane>,
    pub(super) stages: Vec<Stage>,
    pub(super) seats: Vec<Seat>,
    pub(super) producers: Vec<Arc<Stream>>,
    /// Mailboxes that the devices reach.
    pub(super) registered: Vec<Arc<Memory>>,
    /// Why an exchange is more than one launch, if it is.
    pub(super) apart: Option<&'static str>,
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) incoming: Vec<Incoming>,
}

/// The words and slots of a mailbox, within one side's memory.
#[derive(Clone, Copy)]
pub(super) struct Area {
    base: Address,
    capacity: usize,
    /// For how many sets.
    room: usize,
}

impl Area {
    /// What the other side's lanes raise when slots are free.
    pub(super) fn ready(self, lane: usize) -> Address {
        self.base + (lane * LINE) as Address
    }

    /// What they raise when a slot is full: the first of the words of all sets and slots.
    pub(super) fn arrived(self, lane: usize) -> Address {
        self.base + (LANES * LINE + lane * span(SLOTS as usize * self.room)) as Address
    }

    fn slots(self) -> Places {
        let first = self.base + head(self.room) as Address;
        Places::of_all_sets(first, slot(self.capacity))
    }
}

pub(super) fn address(base: *mut u8) -> Address {
    base.addr() as Address
}

/// Links of an object whose tables wait: each has blocks of threads of its own.
const MOST_WAITS: usize = 64;

fn position(end: &End, made: &Made) -> usize {
    made.ends.iter().take_while(|other| other.peer != end.peer).count()
}

impl Open {
    /// The words, one of each set, that this lane waits for before it pushes to a peer, or pulls from it.
    pub(super) fn ready(&self, end: &End, made: &Made, way: Way) -> Address {
        let at = 2 * position(end, made) + usize::from(way == Way::Pull);
        self.words.at(LINE + at * span(made.room()))
    }

    /// The first of the words that a peer's lanes raise, on the first lane, once they have pushed, or pulled.
    pub(super) fn arrived(&self, end: &End, made: &Made, way: Way) -> Address {
        let ready = 2 * made.ends.len() * span(made.room());
        let at = 2 * position(end, made) + usize::from(way == Way::Pull);
        self.words.at(LINE + ready + at * LANES * LINE)
    }

    /// The slots of words with flags for what a peer sends, on the first lane.
    pub(super) fn slots(&self, end: &End, made: &Made) -> Address {
        let before: usize =
            made.ends[..position(end, made)].iter().map(|other| flags_bytes(other, made)).sum();
        self.words.at(slots_begin(made) + before)
    }

    /// What another lane of this rank raises when its producers are done, and when it is done with an exchange.
    pub(super) fn given(&self, lane: usize) -> Address {
        self.words.at(self.words.place().bytes - (2 * lane + 2) * LINE)
    }

    pub(super) fn over(&self, lane: usize) -> Address {
        self.words.at(self.words.place().bytes - (2 * lane + 1) * LINE)
    }

    /// A stream that never waits.
    pub(super) fn rescue(&self) -> &Stream {
        &self.shared.rescue
    }

    /// The words, for those who raise them to hold.
    pub(super) fn segment(&self) -> Arc<Segment> {
        held(&self.words)
    }
}

impl Opened {
    /// All memory that peers reach, for them to hold.
    pub(super) fn segments(&self) -> impl Iterator<Item = Arc<Segment>> + '_ {
        self.lanes.iter().map(Open::segment).chain(self.registered.iter().map(held))
    }
}

fn held(memory: &Arc<Memory>) -> Arc<Segment> {
    let base = std::ptr::without_provenance_mut(memory.at(0) as usize);
    let base = NonNull::new(base).unwrap_or(NonNull::dangling());
    // SAFETY: nobody follows the address on the host.
    unsafe { Segment::foreign(base, memory.place().bytes, Arc::clone(memory) as _) }
}

/// Streams, events and words of this rank's devices.
pub(super) fn open(
    comm: &Communicator,
    devices: &[Device],
    made: &Made,
    options: &BindOptions,
) -> Result<Opened, Error> {
    let pool = comm.part::<Pool>();
    let object = pool.next();
    let mut lanes = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let shared = pool.of(device)?;
        let peers = made.ends.len();
        let arrived = if number == 0 { 2 * peers * LANES * LINE } else { 0 };
        let (room, ready) = (made.room(), LINE + 2 * peers * span(made.room()));
        let of_ends = made.ends.iter().filter(|_| number == 0);
        let slots: usize = of_ends.map(|end| flags_bytes(end, made)).sum();
        let bytes = ready + arrived + slots + 2 * LINE * devices.len();
        let memory = device.allocate(bytes)?;
        let value = if options.cut() == Some(Cut::Stale) { 5 } else { 0 };
        let zero = |offset: usize| ValueOp::Write {
            address: memory.at(offset),
            value: if offset == 0 { 0 } else { value },
        };
        let sets = made.sets.len();
        let of_sets = |at: usize| (0..sets).map(move |set| LINE + at * span(room) + set * WORD);
        let after = (ready..ready + arrived).chain(ready + arrived + slots..bytes).step_by(LINE);
        let words = [0].into_iter().chain((0..2 * peers).flat_map(of_sets)).chain(after);
        let zeros: Vec<ValueOp> = words.map(zero).collect();
        // SAFETY: nobody else knows the words; the stream is through before anybody does.
        unsafe { shared.rescue.values(&zeros) }?;
        // No word of a slot is of any epoch.
        let none = (slots > 0).then(|| device.allocate_pinned(slots)).transpose()?;
        if let Some(none) = &none {
            // SAFETY: as above, and pinned memory begins zeroed.
            unsafe { shared.rescue.copy(memory.at(ready + arrived), none.at(0), slots) }?;
        }
        shared.rescue.synchronise()?;
        let stream = shared.stream(object)?;
        lanes.push(Open { device: device.clone(), shared, stream, words: Arc::new(memory) });
    }
    let has_mailbox = made.links.iter().any(|link| matches!(link.way, Way::Mailbox { .. }));
    let own = made.ends.iter().find_map(|end| end.segments.as_ref()).map(|(own, _)| own);
    let registered = match (devices.first(), own) {
        (Some(device), Some(own)) if has_mailbox => Some(Arc::new(register(device, own)?)),
        _ => None,
    };
    Ok(Opened { devices: devices.to_vec(), lanes, registered })
}

fn register(device: &Device, segment: &Arc<Segment>) -> Result<Memory, Error> {
    let base = segment.base().as_ptr().expose_provenance() as Address;
    // SAFETY: the segment is held.
    Ok(unsafe { device.register(base, segment.len(), Arc::clone(segment) as _) }?)
}

/// Which lane reads the source of an operation: that of its device.
pub(super) fn lane_of(set: &Set, field: usize, devices: &[Device]) -> usize {
    let memory = &set.local.memories[set.local.fields[field].memory].0;
    let home = memory.device.as_ref().map(|home| &home.device);
    devices.iter().position(|device| Some(device) == home).unwrap_or(0)
}

/// Which lane does an operation of a link: that of the device whose field of this rank it reads, or, pulling, writes.
pub(super) fn lane_for(set: &Set, link: &Link, op: &CopyOp, devices: &[Device]) -> usize {
    lane_of(set, if link.way == Way::Pull { op.target } else { op.source }, devices)
}

/// Whether a lane sends to a peer, or pulls from it.
pub(super) fn moves(
    made: &Made,
    end: &End,
    (lane, direction): (usize, Direction),
    devices: &[Device],
) -> bool {
    let Some(at) = end.link(made, direction) else { return false };
    let link = &made.links[at];
    if (direction == Direction::Receive) != (link.way == Way::Pull) {
        return false;
    }
    if link.way == Way::Message {
        return lane == 0;
    }
    let of_set = |set: &'_ Arc<Set>| -> Vec<usize> {
        set.parts[at].ops.iter().map(|op| lane_for(set, link, op, devices)).collect()
    };
    let lanes = || made.sets.iter().flat_map(of_set);
    // Where there is nothing to copy the first lane still says so.
    lanes().any(|of| of == lane) || (lane == 0 && lanes().next().is_none())
}

/// A word that one side raises and the other waits for.
#[derive(Clone, Copy)]
pub(super) enum Word {
    /// The same for all sets.
    One(Address),
    /// The first of as many as there are sets.
    Each(Address),
    /// The first of as many as there are sets and slots.
    Slots(Address),
}

impl Word {
    /// Of a set, in epochs of a parity.
    pub(super) fn of(self, set: usize, parity: usize) -> Address {
        match self {
            Self::One(address) => address,
            Self::Each(first) => first + (WORD * set) as Address,
            Self::Slots(first) => first + (WORD * (SLOTS as usize * set + parity)) as Address,
        }
    }

    /// A wait for it, in exchanges of a set.
    pub(super) fn wait(self, set: usize, lag: u64) -> Cue {
        Cue::Wait([self.of(set, 0), self.of(set, 1)], lag)
    }

    /// That of each of so many sets, in even epochs and in odd ones.
    fn each(self, sets: usize) -> Vec<[Address; SLOTS as usize]> {
        (0..sets).map(|set| [self.of(set, 0), self.of(set, 1)]).collect()
    }
}

/// What two sides of a link do: all that the tables and operations of a lane are made of.
pub(super) struct Outgoing {
    pub(super) lane: usize,
    pub(super) link: usize,
    pub(super) way: Way,
    /// Waited for, no further behind than `lag`.
    pub(super) ready: Word,
    pub(super) lag: u64,
    /// Raised: the peer's, or, of a staged message, `packed` of each chunk.
    pub(super) arrived: Word,
    /// The peer's slots.
    pub(super) slots: Option<Places>,
    /// Our own.
    pub(super) stage: Option<usize>,
}

pub(super) struct Incoming {
    pub(super) link: usize,
    pub(super) way: Way,
    /// Of each of the peer's lanes that send, or pull from here: raised, and waited for.
    pub(super) words: Vec<(Word, Word)>,
    /// Our slots.
    pub(super) slots: Option<Places>,
    /// Those of a staged message.
    pub(super) stage: Option<usize>,
}

impl Outgoing {
    /// Where it shows how far the peer is.
    fn seat(&self, sets: usize) -> Seat {
        let waits = match self.stage {
            Some(stage) => Waits::Stage(stage),
            None => Waits::Word { lane: self.lane, of_sets: self.ready.each(sets), lag: self.lag },
        };
        Seat { link: self.link, waits }
    }
}

impl Incoming {
    fn seats(&self, sets: usize) -> Vec<Seat> {
        let seat = |waits| Seat { link: self.link, waits };
        match self.stage {
            Some(stage) => vec![seat(Waits::Stage(stage))],
            None => {
                let word = |arrived: &Word| Waits::Word { lane: 0, of_sets: arrived.each(sets), lag: 0 };
                self.words.iter().map(|(_, arrived)| seat(word(arrived))).collect()
            }
        }
    }
}

/// Tables and operations of all lanes. `is_alone`: no other rank uses this rank's devices.
pub(super) fn join(
    opened: &Opened,
    made: &Made,
    slots: &Slots,
    (options, is_alone): (&BindOptions, bool),
) -> Result<Joined, Error> {
    let registered = reach_all(opened, made)?;
    let mut outgoing = Vec::new();
    let mut incoming = Vec::new();
    let mut stages: Vec<Stage> = Vec::new();
    for (end, far) in made.ends.iter().zip(&made.far) {
        for direction in [Direction::Send, Direction::Receive] {
            let Some(link) = end.link(made, direction) else { continue };
            for lane in 0..opened.lanes.len() {
                if moves(made, end, (lane, direction), &opened.devices) {
                    stages.extend(stage(opened, made, slots, (end.peer, link))?);
                    let staged = (stages.last(), stages.len());
                    outgoing.push(send(opened, made, (end, far), (link, lane), staged, options)?);
                }
            }
            // What the other side moves, or what is unpacked here.
            if (direction == Direction::Send) == (made.links[link].way == Way::Pull)
                && !opened.lanes.is_empty()
            {
                stages.extend(stage(opened, made, slots, (end.peer, link))?);
                incoming.push(receive(opened, made, (end, far), (link, stages.len()))?);
            }
        }
    }
    let room = made.room();
    let of_senders = outgoing.iter().map(|out| out.seat(room));
    let seats = of_senders.chain(incoming.iter().flat_map(|into| into.seats(room))).collect();
    let mut apart = apart(opened, made, options, is_alone);
    let in_one = apart.is_none();
    let mut lanes = Vec::new();
    for (number, open) in opened.lanes.iter().enumerate() {
        let status = open.device.allocate_pinned(STATUS)?;
        let mut making = Making {
            opened,
            links: &made.links,
            number,
            outgoing: outgoing.iter().filter(|out| out.lane == number).collect(),
            incoming: incoming.iter().filter(|_| number == 0).collect(),
            stages: &stages,
            status: &status,
            cut: options.cut(),
            in_one,
            inline: options.inline,
        };
        let mut scripts = making.scripts(&made.sets)?;
        let waiting = scripts.iter().map(Script::waiting_blocks).max().unwrap_or(0);
        let taken = in_one.then(|| Room::take(open.device.id(), open.device.room(), waiting)).flatten();
        if in_one && taken.is_none() {
            apart = Some(match open.device.room() {
                0 => "kernels of this device have a time limit, or it has one multiprocessor",
                _ => {
                    "what its blocks would wait on has no room beside those of the other objects of this process"
                }
            });
            making.in_one = false;
            scripts = making.scripts(&made.sets)?;
        }
        let (poisoned, scripts) =
            (BySet::new(room, making.poisoned(&made.sets, &[])), BySet::new(room, scripts));
        let of = (open.device.clone(), Arc::clone(&open.shared), Arc::clone(&open.stream));
        lanes.push(Lane::new(of, Arc::clone(&open.words), status, scripts, (poisoned, taken)));
    }
    let producers = producers(opened, options)?;
    Ok(Joined { producers, lanes, stages, seats, registered, apart, outgoing, incoming })
}

/// Why exchanges cannot be one launch, as far as that is known before there are tables: who spins on a device takes room from the work
/// beside it: little, and only as long as all objects together leave enough; and what it waits for must not have to run there.
fn apart(opened: &Opened, made: &Made, options: &BindOptions, is_alone: bool) -> Option<&'static str> {
    if options.stream_waits() {
        Some("`stream_waits`, or HALOCLINE_STREAM_WAITS, asks for that")
    } else if opened.lanes.len() != 1 {
        Some("the fields of this rank lie on several devices")
    } else if made.links.iter().any(|link| link.way == Way::Pull) {
        Some("links are pulled, by copy engines or as asked for")
    } else if made.links.iter().any(|link| !link.way.reaches_devices()) {
        Some("not all links are direct")
    } else if made.links.len() > MOST_WAITS {
        Some("it has more than 64 links")
    } else if !is_alone {
        Some("another rank uses the device, too")
    } else {
        matches!(options.cut(), Some(Cut::HaloRead | Cut::ReadyFirst)).then_some("a test leaves an order out")
    }
}

/// Lets every device reach the words, fields and mailboxes that it reads or writes.
fn reach_all(opened: &Opened, made: &Made) -> Result<Vec<Arc<Memory>>, Error> {
    let mut registered: Vec<Arc<Memory>> = opened.registered.iter().cloned().collect();
    for lane in &opened.lanes {
        let (machine, ordinal) = lane.device.id();
        opened
            .devices
            .iter()
            .filter(|own| **own != lane.device)
            .try_for_each(|own| lane.device.enable_peer(own))?;
        let is_direct = |end: &End| end.links.iter().any(|&link| made.links[link].way.reaches_devices());
        let far = made.ends.iter().zip(&made.far).filter(|(end, _)| is_direct(end));
        for (end, far) in far {
            let here = far.lanes.iter().filter(|far| !far.is_mapped).map(|far| far.device);
            let others = here.filter(|&far| far != (machine, ordinal));
            for (far_machine, peer) in others {
                if far_machine != machine {
                    return Err(Error::Bind(format!(
                        "rank {} has fields on a device of another machine than device {ordinal} here (a simulated one or a \
                         GPU); bind with `LinkChoice::Mailbox` or `Message`",
                        end.peer
                    )));
                }
                lane.device.driver().enable_peer(peer)?;
            }
        }
    }
    let Some(device) = opened.devices.first() else { return Ok(registered) };
    for end in &made.ends {
        let is_mailbox = |&link: &usize| matches!(made.links[link].way, Way::Mailbox { .. });
        let Some((_, theirs)) = end.segments.as_ref().filter(|_| end.links.iter().any(is_mailbox)) else {
            continue;
        };
        // A rank of this process has registered its own.
        if device.place_of(theirs.base().as_ptr().expose_provenance() as Address).is_err() {
            registered.push(Arc::new(register(device, theirs)?));
        }
    }
    Ok(registered)
}

/// The mailboxes of this rank and of a peer, for each other.
fn areas(made: &Made, end: &End, link: usize) -> Result<Option<(Area, Area)>, Error> {
    let Way::Mailbox { .. } = made.links[link].way else { return Ok(None) };
    let broken = || Error::Bind(format!("rank {} offers a mailbox outside its memory", end.peer));
    let (own, theirs) = end.segments.as_ref().ok_or_else(broken)?;
    let area = |segment: &Arc<Segment>, berth: super::offer::Berth| {
        let room = made.room();
        let bytes = slot(berth.capacity).checked_mul(SLOTS as usize)?.checked_add(head(room))?;
        let end = berth.mailbox.checked_add(bytes).filter(|&end| end <= segment.len())?;
        let base = address(segment.base().as_ptr()) + berth.mailbox as Address;
        (end > 0 && berth.mailbox.is_multiple_of(LINE)).then_some(Area {
            base,
            capacity: berth.capacity,
            room,
        })
    };
    let both = area(own, end.berths.0).zip(area(theirs, end.berths.1)).ok_or_else(broken)?;
    let bytes = |set: &Arc<Set>| set.parts[link].bytes;
    let room = if made.links[link].direction == Direction::Send { both.1 } else { both.0 };
    if made.sets.iter().map(bytes).any(|bytes| bytes > room.capacity) {
        return Err(broken());
    }
    Ok(Some(both))
}

/// The most bytes that a link's message has.
pub(super) fn capacity(made: &Made, link: usize) -> usize {
    made.sets.iter().map(|set| set.parts[link].bytes).max().unwrap_or(0)
}

/// The staging memory of a link by messages.
fn stage(
    opened: &Opened,
    made: &Made,
    slots: &Slots,
    (peer, link): (usize, usize),
) -> Result<Option<Stage>, Error> {
    if made.links[link].way != Way::Message {
        return Ok(None);
    }
    let capacity = capacity(made, link);
    let far = slots.get(&link).cloned();
    let bytes = Stage::WORDS + if far.is_some() { 0 } else { Stage::slots(capacity) };
    let memory = opened.devices[0].allocate_pinned(bytes)?;
    let sets = made.sets.iter().map(|set| staged(set, &made.links[link], &made.links));
    let sends = made.links[link].direction == Direction::Send;
    Ok(Some(Stage::new((link, peer, sends), (memory, far), capacity, BySet::new(made.room(), sets))))
}

/// The message of a set over a link.
pub(super) fn staged(set: &Set, link: &Link, links: &[Link]) -> Staged {
    let chunks = split(&set.parts[link.part], link.chunk).into_iter().map(|(bytes, _)| bytes).collect();
    let answers = |other: &&Link| other.peer == link.peer && other.direction != link.direction;
    let comes_back = links.iter().filter(answers).any(|other| set.parts[other.part].bytes > 0);
    Staged { chunks, acknowledged: !comes_back }
}

/// The chunks of a message: which bytes, and what moves them.
pub(super) fn split(part: &Part, chunk: usize) -> Vec<(Range<usize>, Vec<CopyOp>)> {
    let mut chunks: Vec<_> = chunks(part.bytes, chunk).into_iter().map(|bytes| (bytes, Vec::new())).collect();
    let mut begin = 0;
    for op in &part.ops {
        let end = begin + op.bytes();
        for (bytes, ops) in chunks.iter_mut().filter(|(bytes, _)| bytes.start < end && bytes.end > begin) {
            ops.extend(op.section(bytes.start.max(begin) - begin..bytes.end.min(end) - begin));
        }
        begin = end;
    }
    chunks
}

fn send(
    opened: &Opened,
    made: &Made,
    (end, far): (&End, &super::device::FarLanes),
    (link, lane): (usize, usize),
    (stage, stages): (Option<&Stage>, usize),
    options: &BindOptions,
) -> Result<Outgoing, Error> {
    let way = made.links[link].way;
    if let (Way::Message, Some(stage)) = (way, stage) {
        let lag = if options.cut() == Some(Cut::Staging) { SLOTS + 1 } else { SLOTS };
        let (ready, arrived) = (Word::One(stage.sent()), Word::One(stage.raised(0)));
        let stage = Some(stages - 1);
        return Ok(Outgoing { lane, link, way, ready, lag, arrived, slots: None, stage });
    }
    let out = match areas(made, end, link)? {
        Some((own, theirs)) => {
            let lag = if options.cut() == Some(Cut::Slot) { SLOTS + 1 } else { SLOTS };
            let (ready, arrived) = (Word::One(own.ready(lane)), Word::Slots(theirs.arrived(lane)));
            Outgoing { lane, link, way, ready, lag, arrived, slots: Some(theirs.slots()), stage: None }
        }
        None => {
            if !far.holds(far.arrived, 2 * LANES * LINE) {
                return Err(Error::Bind(format!("rank {} offers words outside its memory", end.peer)));
            }
            let ready = opened.lanes[lane].ready(end, made, way);
            let first = if way == Way::Pull { LANES } else { 0 };
            let arrived = Word::One(far.arrived + ((first + lane) * LINE) as Address);
            if way == Way::Flags {
                let slots = Places::of_flags(far.slots, capacity(made, link));
                if !far.holds(far.slots, slots.bytes(made.room()))
                    || !far.slots.is_multiple_of(LINE as Address)
                {
                    return Err(Error::Bind(format!("rank {} offers slots outside its memory", end.peer)));
                }
                let lag = if options.cut() == Some(Cut::Slot) { SLOTS + 1 } else { SLOTS };
                let (ready, slots) = (Word::One(ready), Some(slots));
                return Ok(Outgoing { lane, link, way, ready, lag, arrived, slots, stage: None });
            }
            let (ready, lag) = (Word::Each(ready), u64::from(options.cut() == Some(Cut::Overtaking)));
            Outgoing { lane, link, way, ready, lag, arrived, slots: None, stage: None }
        }
    };
    Ok(out)
}

fn receive(
    opened: &Opened,
    made: &Made,
    (end, far): (&End, &super::device::FarLanes),
    (link, stages): (usize, usize),
) -> Result<Incoming, Error> {
    let way = made.links[link].way;
    if way == Way::Message {
        return Ok(Incoming { link, way, words: Vec::new(), slots: None, stage: Some(stages - 1) });
    }
    let is_pulled = way == Way::Pull;
    let senders = far.lanes.iter().enumerate();
    let senders = senders.filter(|(_, lane)| if is_pulled { lane.pulls } else { lane.sends });
    let (words, slots): (Vec<_>, _) = match areas(made, end, link)? {
        Some((own, theirs)) => {
            let word = |(lane, _)| (Word::One(theirs.ready(lane)), Word::Slots(own.arrived(lane)));
            (senders.map(word).collect(), Some(own.slots()))
        }
        None => {
            let first = opened.lanes[0].arrived(end, made, way);
            let bytes = span(made.room());
            let word = |(lane, far_lane): (usize, &FarLane)| {
                if !far.holds(far_lane.ready, 2 * bytes) {
                    return Err(Error::Bind(format!("rank {} offers words outside its memory", end.peer)));
                }
                let ready = far_lane.ready + if is_pulled { bytes as Address } else { 0 };
                let ready = if way == Way::Flags { Word::One(ready) } else { Word::Each(ready) };
                Ok((ready, Word::One(first + (lane * LINE) as Address)))
            };
            let slots = || Places::of_flags(opened.lanes[0].slots(end, made), capacity(made, link));
            (senders.map(word).collect::<Result<_, _>>()?, (way == Way::Flags).then(slots))
        }
    };
    Ok(Incoming { link, way, words, slots, stage: None })
}

/// The streams that an exchange comes after where it is not told.
fn producers(opened: &Opened, options: &BindOptions) -> Result<Vec<Arc<Stream>>, Error> {
    if options.streams.is_empty() {
        // SAFETY: 0 is the default stream, which lives as long as its device.
        let default = |device: &Device| unsafe { device.borrow_stream(RawStream(0)) }.map(Arc::new);
        return Ok(opened.devices.iter().map(default).collect::<Result<_, _>>()?);
    }
    for (at, stream) in options.streams.iter().enumerate() {
        if !opened.devices.contains(stream.device()) {
            let device = stream.device().ordinal();
            let devices = opened.devices.iter().map(Device::ordinal).collect();
            return Err(Error::StreamDevice { stream: at, device, devices });
        }
    }
    Ok(options.streams.clone())
}
