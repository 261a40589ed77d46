//! Binding the device fields of an object: which way each link takes, where its words lie, and what each device
//! is given for every exchange.

use super::aware;
use super::facing::{Facing, Joint};
use super::lanes::{self, Joined};
use super::local::Local;
use super::offer::{Berth, Offer};
use super::pair::Pair;
use super::remote::{By, Company, Exports, Told};
use super::script::Kit;
use super::{Preference, swap_offers};
use crate::agree::agree;
use crate::bound::Bound;
use crate::error::Error;
use crate::link::{Direction, Link, MOST_SETS, SLOTS, Way};
use crate::options::{BindOptions, CopyEngine, Flags, LinkChoice};
use crate::set::{Part, Set};
use crate::stream::{self, BySet, LINE, Pool, Scheduled, Staging};
use halocline_comm::{Communicator, Counter, Patience, Segment, Tag};
use halocline_device::host::MESSAGE_ALIGN;
use halocline_device::{Address, Device, DeviceError};
use halocline_plan::wire::{Reader, WireError, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Devices on which a rank can have fields of one object.
pub(super) const LANES: usize = 8;

/// Bytes of a chunk of a staged message at most, whatever a peer says.
const LONGEST_CHUNK: usize = 1 << 30;

/// Sets that an object can have which binds so many: as many again can be made of them, and at least as many as words of one
/// side's share a line.
pub(super) fn room(sets: usize) -> usize {
    (2 * sets).next_multiple_of(LINE / WORD).min(MOST_SETS)
}

/// Bytes in front of the slots of a mailbox: for each lane of the other side a word `ready`, then for each of them a word
/// `arrived` of each set and slot that there is room for. (The next raise of one finds its slot unpacked: what one epoch of a set has raised is not
/// taken for an earlier epoch.)
pub(super) fn head(room: usize) -> usize {
    LANES * (LINE + span(SLOTS as usize * room))
}

/// Bytes of so many words that one side raises.
pub(super) fn span(words: usize) -> usize {
    (WORD * words).next_multiple_of(LINE)
}

pub(super) const WORD: usize = size_of::<u64>();

/// What a peer's devices do for the links with this rank.
pub(super) struct FarLanes {
    pub(super) lanes: Vec<FarLane>,
    /// The words `arrived` of links that push that its first lane waits for, one for each of our lanes; then those of links that pull.
    pub(super) arrived: Address,
    /// The slots of words with flags of what we send, on its first lane.
    pub(super) slots: Address,
    /// Their memory, held.
    pub(super) words: Vec<Arc<Segment>>,
}

pub(super) struct FarLane {
    /// [`Device::id`], in the peer's process.
    pub(super) device: (usize, u32),
    /// In another process, whose words this one has mapped.
    pub(super) is_mapped: bool,
    /// Whether it sends to us, or pulls from us.
    pub(super) sends: bool,
    pub(super) pulls: bool,
    /// The words `ready`, of each set, that it waits for before it pushes; then those before it pulls.
    pub(super) ready: Address,
}

/// Binds sets of device fields. Collective; a rank may have none.
pub(super) fn bind(
    comm: &Communicator,
    sets: Vec<Local>,
    options: &BindOptions,
    host: Option<Arc<Bound>>,
) -> Result<Arc<Scheduled>, Error> {
    let (offers, operation, words, staged) = (comm.begin(), comm.begin(), comm.begin(), comm.begin());
    let proof = comm.begin();
    let devices = devices_of(&sets).inspect(|devices| comm.part::<Pool>().join(devices));
    let wanted = options.copy_engine.wanted().and_then(|engine| Ok((engine, options.flags.wanted()?)));
    let wanted = wanted.map_err(Error::Bind);
    let (devices, (wanted, flags)) = agree(comm, devices.and_then(|devices| Ok((devices, wanted?))))?;
    let (mut berths, own_bytes) = lay_out(&sets, options.link);
    let company = Company::gather(comm, &devices)?;
    let is_alone = company.is_alone(comm.rank()) && comm.part::<Pool>().is_alone(&devices);
    let is_alone = is_alone || options.is_alone();
    let asks_for_flags = matches!(flags, Flags::UpTo(_));
    let flags = match flags {
        // Only where an exchange is one launch are they faster.
        Flags::Auto
            if is_alone
                && devices.iter().all(|device| device.room() > 0)
                && company.is_near(berths.iter().map(|(peer, _)| *peer)) =>
        {
            devices.first().map_or(0, |device| device.tuned().values.flags as usize)
        }
        Flags::UpTo(bytes) => bytes.min(Flags::MOST),
        Flags::Auto | Flags::Never => 0,
    };
    // What several devices send and receive, each would have to pack a part of; and only where kernels wait is it faster.
    let no_flags = match () {
        () if flags == 0 => None,
        () if devices.len() != 1 => {
            Some("no words with flags: the fields of this rank lie on several devices")
        }
        () if options.stream_waits() => Some("no words with flags: streams wait here, as asked for"),
        () if !sets.iter().all(has_words) => Some(
            "no words with flags: fields here have elements, strides or addresses of no multiple of 4 bytes",
        ),
        () => None,
    };
    let flags = if no_flags.is_some() { 0 } else { flags };
    let no_flags = no_flags.filter(|_| asks_for_flags);
    let chunks = devices.iter().map(|device| device.tuned().values.chunk);
    let chunk = options.chunk().or(chunks.max().and_then(|chunk| usize::try_from(chunk).ok()));
    let overruled = if devices.len() > 1 {
        // Where lanes wait for each other's producers, poison would let a copy engine go on that these still need to wait.
        Some("no copy engine, as the fields of this rank lie on several devices")
    } else if comm.part::<Pool>().is_crowded(&devices) {
        // CUDA queues what is copied from a device to others of the process, whoever copies: what waits for one peer would hold
        // what another one waits for.
        Some("no copy engine, as more than two ranks of this process use devices")
    } else {
        None
    };
    for (peer, berth) in &mut berths {
        berth.chunk = chunk.unwrap_or(0);
        berth.flags = flags;
        berth.engine = match wanted {
            CopyEngine::Never => None,
            _ if overruled.is_some() => None,
            CopyEngine::Auto => company.engine(*peer),
            CopyEngine::From(bytes) => Some(bytes.max(1)),
        };
    }
    let mut exports = Exports::default();
    if matches!(options.link, LinkChoice::Auto | LinkChoice::Push | LinkChoice::Pull) {
        // What a peer writes, or may come to read.
        let touched = |&(peer, berth): &(usize, Berth)| {
            let is_read = options.link == LinkChoice::Pull
                || options.link == LinkChoice::Auto && berth.engine.is_some();
            let of_set = move |set: &'_ &Local| {
                set.bytes(peer, Direction::Receive) > 0 || is_read && set.bytes(peer, Direction::Send) > 0
            };
            let memories = sets.iter().filter(of_set).flat_map(|set| &set.memories);
            memories.map(move |(memory, _)| (peer, memory))
        };
        let all = || berths.iter().flat_map(touched);
        // All, as a link without bytes has words, too.
        let memories = || sets.iter().flat_map(|set| &set.memories).map(|(memory, _)| memory);
        exports.look(
            comm,
            &company,
            berths.iter().flat_map(|(peer, _)| memories().map(move |memory| (*peer, memory))),
        );
        let segments = all().map(|(peer, memory)| (peer, &memory.segment));
        exports.add(comm, (&company, By::AllDevices), segments);
    }
    let shared = berths.iter().any(|(peer, _)| comm.link().bell(*peer).is_some());
    let own = agree(comm, shared.then(|| comm.allocate(own_bytes)).transpose().map_err(Error::from))?;
    let theirs = swap_offers(comm, offers, &sets, &berths, own.as_ref(), (true, &exports))?;
    let of = (operation, options.link);
    let linked = theirs.and_then(|theirs| link(comm, sets, berths, own, theirs, of, &exports));
    let linked = linked.and_then(|made| match made.links.iter().any(|link| link.way == Way::Message) {
        true if !comm.link().is_driven() => Err(Error::NotDriven),
        _ => Ok(made),
    });
    let mut made = agree(comm, linked)?;
    let no_engine = overruled.filter(|_| matches!(wanted, CopyEngine::From(_)));
    for link in made.links.iter_mut().filter(|link| link.way == Way::Push) {
        let refused = link.flags == Some(0) && asks_for_flags;
        let no_flags = no_flags.or(refused.then_some("no words with flags: the peer takes none"));
        link.why = link.why.take().or(no_engine.or(no_flags).map(str::to_owned));
        link.flags = link.flags.filter(|&most| most > 0 && asks_for_flags);
    }
    // Words first: what a peer is told of must be there.
    let opened = lanes::open(comm, &devices, &made, options);
    let opened = agree(comm, opened)?;
    // All ranks of the process have said by now which devices they use.
    let is_direct = |end: &&End| end.links.iter().any(|&link| made.links[link].way.reaches_devices());
    let segments = opened.lanes.iter().map(lanes::Open::segment).collect::<Vec<_>>();
    let direct = made.ends.iter().filter(is_direct);
    let wanted = direct.flat_map(|end| segments.iter().map(|segment| (end.peer, segment)));
    exports.add(comm, (&company, By::FirstDevice), wanted);
    let tell = |end| tell(comm, words, end, &made, &opened, (&segments, &exports));
    let told = made.ends.iter().try_for_each(tell);
    agree(comm, told).inspect_err(|_| comm.link().inbox().forget(words))?;
    let heard: Vec<_> = made.ends.iter().map(|end| hear(comm, words, end.peer)).collect();
    let slots = aware::prove(comm, proof, &opened, &mut made);
    let slots = agree(comm, slots)?;
    let joined = heard.into_iter().collect::<Result<Vec<FarLanes>, Error>>().and_then(|far| {
        made.far = far;
        lanes::join(&opened, &made, &slots, (options, is_alone))
    });
    let Joined { lanes, stages, seats, producers, registered, apart, outgoing, incoming } =
        agree(comm, joined)?;
    let sets = BySet::new(made.room(), made.sets);
    let held = made.far.into_iter().flat_map(|far| far.words);
    let scheduled = Arc::new(Scheduled::new(stream::Parts {
        comm: comm.behind_the_scenes(),
        links: made.links,
        sets,
        lanes,
        staging: (!stages.is_empty()).then(|| Staging::new(staged, stages)),
        kit: Kit { opened, outgoing, incoming, cut: options.cut() },
        seats,
        producers,
        apart,
        host,
        inline: options.inline,
        patience: Patience { deadline: options.deadline, ..Patience::of(comm.link()) },
        registered,
        pinned: exports.pinned,
        segments: made.keep.into_iter().chain(held).collect(),
        cut: options.cut(),
    }));
    let weak = Arc::downgrade(&scheduled);
    comm.register(weak);
    Ok(scheduled)
}

/// What the ranks know of each other's fields.
pub(super) struct Made {
    pub(super) links: Vec<Link>,
    pub(super) sets: Vec<Arc<Set>>,
    pub(super) ends: Vec<End>,
    pub(super) far: Vec<FarLanes>,
    /// Memory that the words and mailboxes of peers lie in.
    pub(super) keep: Vec<Arc<Segment>>,
}

impl Made {
    /// How many sets words have room for.
    pub(super) fn room(&self) -> usize {
        room(self.sets.len())
    }
}

/// This rank and a peer.
pub(super) struct End {
    pub(super) peer: usize,
    pub(super) berths: (Berth, Berth),
    pub(super) segments: Option<(Arc<Segment>, Arc<Segment>)>,
    /// Its links, by their numbers.
    pub(super) links: Vec<usize>,
}

impl End {
    /// The number of the link of one direction.
    pub(super) fn link(&self, made: &Made, direction: Direction) -> Option<usize> {
        self.links.iter().copied().find(|&link| made.links[link].direction == direction)
    }
}

/// Whether all fields of a set can go as words of 4 bytes.
fn has_words(local: &Local) -> bool {
    local.fields.iter().all(|field| {
        let cells = &field.cells;
        let base = local.segment_of(field).base().addr().get();
        let strides =
            cells.axes.iter().map(|axis| axis.stride).chain(cells.extra.iter().map(|&(_, stride)| stride));
        let bits =
            strides.fold(base | field.offset | cells.element.size(), |all, stride| all | stride as usize);
        bits.is_multiple_of(4)
    })
}

/// The devices of the fields of this rank, ascending.
fn devices_of(sets: &[Local]) -> Result<Vec<Device>, Error> {
    if sets.len() > MOST_SETS {
        let sets = sets.len();
        return Err(Error::Bind(format!(
            "{sets} sets of device fields are bound together, {MOST_SETS} can be"
        )));
    }
    let memories = sets.iter().flat_map(|local| &local.memories);
    let homes = memories.filter_map(|(memory, _)| memory.device.as_ref());
    let devices: BTreeMap<(usize, u32), &Device> =
        homes.map(|home| (home.device.id(), &home.device)).collect();
    if devices.len() > LANES {
        let count = devices.len();
        return Err(Error::Bind(format!(
            "the device fields of this rank lie on {count} devices, they can lie on {LANES}; bind several objects"
        )));
    }
    let devices: Vec<Device> = devices.into_values().cloned().collect();
    for (at, device) in devices.iter().enumerate() {
        let others = devices[at + 1..].iter().filter(|other| other.id().0 == device.id().0);
        for other in others {
            device.driver().check_peer(other.ordinal()).map_err(|error| match error {
                DeviceError::NoPeerAccess { .. } => {
                    Error::NotPeers { device: device.ordinal(), peer: other.ordinal() }
                }
                other => Error::from(other),
            })?;
        }
    }
    Ok(devices)
}

/// Counters and mailboxes for every peer, and the bytes of the segment that holds them.
fn lay_out(sets: &[Local], choice: LinkChoice) -> (Vec<(usize, Berth)>, usize) {
    let peers: BTreeSet<usize> = sets.iter().flat_map(Local::peers).collect();
    let line = size_of::<Counter>();
    let mut end = (2 * line * peers.len()).next_multiple_of(MESSAGE_ALIGN.max(LINE));
    let has_mailbox = matches!(choice, LinkChoice::Auto | LinkChoice::Mailbox);
    let mut berths = Vec::new();
    for (at, &peer) in peers.iter().enumerate() {
        let received = sets.iter().map(|set| set.bytes(peer, Direction::Receive)).max();
        let capacity = received.filter(|_| has_mailbox).unwrap_or(0);
        let (send_counter, receive_counter) = (2 * at * line, (2 * at + 1) * line);
        berths.push((
            peer,
            Berth { send_counter, receive_counter, mailbox: end, capacity, engine: None, flags: 0, chunk: 0 },
        ));
        if has_mailbox {
            end += head(room(sets.len())) + SLOTS as usize * slot(capacity);
        }
    }
    (berths, end)
}

/// Bytes from one slot to the next.
pub(super) fn slot(capacity: usize) -> usize {
    capacity.next_multiple_of(MESSAGE_ALIGN.max(LINE))
}

fn link(
    comm: &Communicator,
    sets: Vec<Local>,
    berths: Vec<(usize, Berth)>,
    own: Option<Arc<Segment>>,
    theirs: Vec<Offer>,
    (operation, choice): (u64, LinkChoice),
    exports: &Exports,
) -> Result<Made, Error> {
    let mut made = Made {
        links: Vec::new(),
        sets: Vec::new(),
        ends: Vec::new(),
        far: Vec::new(),
        keep: own.iter().cloned().collect(),
    };
    let mut offered: Vec<BTreeMap<usize, _>> = sets.iter().map(|_| BTreeMap::new()).collect();
    for ((peer, berth), offer) in berths.into_iter().zip(theirs) {
        if offer.sets.len() != sets.len() {
            return Err(Error::Bind(format!("rank {peer} offers {} sets of fields", offer.sets.len())));
        }
        offered.iter_mut().zip(offer.sets).for_each(|(peers, set)| drop(peers.insert(peer, set)));
        let segments = own.clone().zip(offer.own);
        made.keep.extend(segments.iter().map(|(_, theirs)| Arc::clone(theirs)));
        made.ends.push(End { peer, berths: (berth, offer.berth), segments, links: Vec::new() });
    }
    let mut parts: Vec<Vec<Part>> = sets.iter().map(|_| Vec::new()).collect();
    for end in &mut made.ends {
        let pairs = sets.iter().zip(&offered);
        let facings: Vec<Facing<'_>> =
            pairs.map(|(local, peers)| Facing { peer: end.peer, local, theirs: &peers[&end.peer] }).collect();
        facings.iter().try_for_each(Facing::check_bytes)?;
        let (peer, berths, segments) = (end.peer, end.berths, end.segments.clone());
        let pair = Pair { comm, peer, berths, segments, operation, sets: facings, exports, of_devices: true };
        for direction in [Direction::Receive, Direction::Send] {
            let joints: Vec<Vec<Joint<'_>>> =
                pair.sets.iter().map(|set| set.joints(direction)).collect::<Result<_, _>>()?;
            if joints.iter().all(Vec::is_empty) {
                continue;
            }
            let engine = berths.0.engine.zip(berths.1.engine).map(|(ours, theirs)| ours.max(theirs).max(1));
            let suits = |from: usize| {
                let mut of_sets = pair.sets.iter().zip(&joints);
                of_sets.any(|(set, joints)| set.suits_engine(direction, joints, from))
            };
            let pays = choice == LinkChoice::Auto && engine.is_some_and(suits);
            let flags = Some(berths.0.flags.min(berths.1.flags))
                .filter(|_| berths.0.flags > 0 && choice == LinkChoice::Auto);
            let bytes = || pair.sets.iter().map(|set| set.local.bytes(peer, direction));
            // Who exchanges a set without bytes would find everything there.
            let is_small = flags.is_some_and(|most| bytes().all(|bytes| (1..=most).contains(&bytes)));
            let wish = match () {
                () if pays => Preference { way: Way::Pull, forced: false },
                () if is_small => Preference { way: Way::Flags, forced: false },
                () => wish(choice),
            };
            let (mut link, of_sets) = pair.scheduled(direction, &joints, wish)?;
            link.part = made.links.len();
            link.chunk = berths.0.chunk.max(berths.1.chunk).min(LONGEST_CHUNK);
            link.engine = engine.filter(|_| link.way == Way::Pull);
            link.flags = flags.filter(|_| matches!(link.way, Way::Push | Way::Flags));
            link.mapped = match (direction, link.way) {
                (_, Way::Mailbox { .. } | Way::Message) => BTreeSet::new(),
                (Direction::Receive, Way::Push | Way::Flags) | (Direction::Send, Way::Pull) => {
                    exports.kinds(peer)
                }
                _ => {
                    let fields = pair.sets.iter().flat_map(|set| set.theirs.fields.values());
                    fields.filter_map(|field| field.mapped).collect()
                }
            };
            end.links.push(made.links.len());
            made.links.push(link);
            parts.iter_mut().zip(of_sets).for_each(|(parts, part)| parts.push(part));
        }
    }
    let all = sets.into_iter().zip(offered).zip(parts).enumerate();
    made.sets = all
        .map(|(number, ((local, offered), parts))| {
            Arc::new(Set::new(number, local, Arc::new(offered), parts))
        })
        .collect();
    Ok(made)
}

/// Direct, unless something else is asked for or memory is out of reach.
fn wish(choice: LinkChoice) -> Preference {
    match choice {
        LinkChoice::Auto => Preference { way: Way::Push, forced: false },
        LinkChoice::Push => Preference { way: Way::Push, forced: true },
        LinkChoice::Pull => Preference { way: Way::Pull, forced: true },
        LinkChoice::Mailbox => Preference { way: Way::Mailbox { streaming: false }, forced: true },
        LinkChoice::Message => Preference { way: Way::Message, forced: true },
    }
}

/// Tells a peer which lanes there are and where their words lie.
fn tell(
    comm: &Communicator,
    operation: u64,
    end: &End,
    made: &Made,
    opened: &lanes::Opened,
    (segments, exports): (&[Arc<Segment>], &Exports),
) -> Result<(), Error> {
    let mut w = Writer::new();
    w.size(opened.lanes.len());
    for (number, lane) in opened.lanes.iter().enumerate() {
        let (machine, ordinal) = lane.device.id();
        w.size(machine);
        w.u64(ordinal.into());
        let moves = |direction| lanes::moves(made, end, (number, direction), &opened.devices);
        w.u64(u64::from(moves(Direction::Send)) | u64::from(moves(Direction::Receive)) << 1);
        w.u64(lane.ready(end, made, Way::Push));
        match exports.of(end.peer, &segments[number]) {
            None => w.u64(0),
            Some(Ok(told)) => {
                w.u64(1);
                w.u64(lane.words.at(0));
                told.write(&mut w);
            }
            Some(Err(why)) => {
                let peer = end.peer;
                return Err(Error::Bind(format!(
                    "rank {peer} cannot map the words of a device: {why}; bind with `LinkChoice::Mailbox`"
                )));
            }
        }
    }
    w.u64(opened.lanes.first().map_or(0, |lane| lane.arrived(end, made, Way::Push)));
    w.u64(opened.lanes.first().map_or(0, |lane| lane.slots(end, made)));
    let segments: Vec<_> =
        opened.segments().filter(|segment| comm.link().reach(end.peer, segment).is_ok()).collect();
    Ok(comm.link().post(end.peer, Tag { operation, round: 0 }, w.finish(), &segments)?)
}

fn hear(comm: &Communicator, operation: u64, peer: usize) -> Result<FarLanes, Error> {
    let message = comm.receive(Some(peer), Tag { operation, round: 0 }, "the lanes of a bind")?;
    let malformed = |error| Error::Bind(format!("rank {peer} sent malformed lanes: {error}"));
    let (mut far, mapped) = read_lanes(&message.payload).map_err(malformed)?;
    far.words = message.segments.clone();
    for (lane, (base, told)) in mapped {
        let (words, _) = told.import(comm, peer).map_err(|error| Error::Bind(error.to_string()))?;
        let here =
            |address: Address| address.wrapping_sub(base).wrapping_add(words.base().addr().get() as Address);
        if lane == 0 {
            far.arrived = here(far.arrived);
            far.slots = here(far.slots);
        }
        far.lanes[lane].ready = here(far.lanes[lane].ready);
        far.lanes[lane].is_mapped = true;
        far.words.push(words);
    }
    Ok(far)
}

/// The words of a lane that are mapped here: where they begin there, and what is told of them.
type MappedWords = (usize, (Address, Told));

fn read_lanes(payload: &[u8]) -> Result<(FarLanes, Vec<MappedWords>), WireError> {
    let mut r = Reader::new(payload);
    let count = r.count(40)?;
    if count > LANES {
        return Err(WireError::Content("it has more devices than there can be"));
    }
    let (mut lanes, mut mapped) = (Vec::new(), Vec::new());
    for number in 0..count {
        let machine = r.size()?;
        let device = (machine, u32::try_from(r.u64()?).map_err(|_| WireError::Content("no such device"))?);
        let moves = r.u64()?;
        let (sends, pulls) = (moves & 1 != 0, moves & 2 != 0);
        lanes.push(FarLane { device, is_mapped: false, sends, pulls, ready: r.u64()? });
        if r.u64()? != 0 {
            mapped.push((number, (r.u64()?, Told::read(&mut r)?)));
        }
    }
    let (arrived, slots) = (r.u64()?, r.u64()?);
    r.finish()?;
    Ok((FarLanes { lanes, arrived, slots, words: Vec::new() }, mapped))
}

impl FarLanes {
    /// Words lie in the memory that came with them.
    pub(super) fn holds(&self, address: Address, bytes: usize) -> bool {
        let bytes = bytes as Address;
        self.words.iter().any(|segment| {
            let base = segment.base().addr().get() as Address;
            let len = segment.len() as Address;
            address >= base
                && (address - base).checked_add(bytes).is_some_and(|end| end <= len)
                && address.is_multiple_of(WORD as Address)
        })
    }
}
