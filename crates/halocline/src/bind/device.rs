//! Binding the device fields of an object: the path of each link, the addresses of its flags, and the work of each device for an
//! exchange.

use super::aware;
use super::error::BindError;
use super::flag_layout::{FlagLayout, LANES, PeerSlots, head, max_sets, slot};
use super::lanes::{self, Joined};
use super::local::Local;
use super::offer::{self, LinkEndpoint, OfDevices, Offer};
use super::pair::Pair;
use super::path_preferences::PathPreferences;
use super::peer_view::{PeerView, TransferPair};
use super::remote::{By, DeviceRegistry, Exports};
use super::remote_lanes::{self, RemoteLanes};
use super::script::Kit;
use super::{Preference, swap_offers};
use crate::agree::agree;
use crate::bound::Bound;
use crate::error::Error;
use crate::lifecycle::Engine;
use crate::link::{Direction, Link, LinkPath, MOST_SETS, SLOTS};
use crate::options::{BindOptions, LinkChoice};
use crate::set::{Part, Set};
use crate::stream::{self, BySet, LINE, Pool, Scheduled, Staging};
use halocline_comm::Endpoint;
use halocline_comm::{Communicator, Counter, Segment};
use halocline_device::host::MESSAGE_ALIGN;
use halocline_device::{Device, DeviceError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// The most bytes of a chunk of a staged message, whatever a peer asks for.
const LONGEST_CHUNK: usize = 1 << 30;

/// Binds sets of device fields. Collective; a rank may have none.
pub(super) fn bind(
    comm: &Communicator,
    sets: Vec<Local>,
    options: &BindOptions,
    (host, has_host_fields): (&Arc<Bound>, bool),
) -> Result<Arc<Scheduled>, Error> {
    let (offers, operation, addresses, staged) = (comm.begin(), comm.begin(), comm.begin(), comm.begin());
    let proof = comm.begin();
    let devices = devices_of(&sets).inspect(|devices| comm.extension::<Pool>().join(devices));
    let devices = agree(comm, devices)?;
    let (mut endpoints, own_bytes) = lay_out(&sets, options.link);
    let registry = DeviceRegistry::gather(comm, &devices)?;
    let is_alone = registry.is_alone(comm.rank()) && comm.extension::<Pool>().is_alone(&devices);
    let is_alone = is_alone || options.is_alone();
    let path_preferences = PathPreferences::new(&registry, (&devices, &sets), (options, is_alone));
    endpoints.iter_mut().for_each(|(_, endpoint)| path_preferences.enter(endpoint));
    let mut exports = Exports::default();
    let exported = match options.link {
        LinkChoice::Auto | LinkChoice::Push | LinkChoice::Pull => {
            export_fields(comm, &registry, &mut exports, (&sets, &endpoints), options.link)
        }
        _ => Ok(()),
    };
    let of_peers = endpoints.iter_mut().map(|(peer, endpoint)| {
        slots_of_peer(comm, &registry, &exports, &sets, (*peer, endpoint), options.link)
    });
    let layout =
        FlagLayout { of_peers: of_peers.collect(), max_sets: max_sets(sets.len()), lanes: devices.len() };
    // Flags first: addresses that a peer gets must exist.
    let object = comm.extension::<Pool>().next();
    let opened = match lanes::open((comm, object), &devices, (layout.clone(), sets.len()), options) {
        // Links that would use mailboxes have another path.
        Err(Error::Device(DeviceError::OutOfMemory { .. })) if options.link == LinkChoice::Auto => {
            endpoints.iter_mut().for_each(|(_, endpoint)| endpoint.on_device = false);
            let of_peers =
                layout.of_peers.iter().map(|slots| PeerSlots { mailbox: None, ..*slots }).collect();
            lanes::open((comm, object), &devices, (FlagLayout { of_peers, ..layout }, sets.len()), options)
        }
        opened => opened,
    };
    let mut opened = agree(comm, exported.and(opened))?;
    let mut exported = Ok(());
    if !matches!(options.link, LinkChoice::Mailbox | LinkChoice::Message) {
        let wanted =
            endpoints.iter().flat_map(|(peer, _)| opened.lanes.iter().map(|lane| (*peer, &lane.segment)));
        exports.look_at_words(comm, &registry, wanted.clone());
        exported = exports.add(comm, (&registry, By::FirstDevice), wanted);
    }
    let shared = endpoints.iter().any(|(peer, _)| comm.link().bell(*peer).is_some());
    let own = shared.then(|| comm.allocate(own_bytes)).transpose().map_err(Error::from);
    let own = agree(comm, exported.and(own))?;
    let words: Vec<_> = opened.lanes.iter().map(|lane| Arc::clone(&lane.segment)).collect();
    let of_devices = OfDevices { exports: &exports, words: &words };
    let theirs = swap_offers(comm, offers, &sets, &endpoints, own.as_ref(), Some(of_devices))?;
    let of = (operation, options.link);
    let linked = theirs.and_then(|theirs| link(comm, sets, endpoints, own, theirs, of, of_devices));
    let linked = linked.and_then(|made| match made.links.iter().any(|link| link.path == LinkPath::Message) {
        true if !comm.link().is_driven() => Err(Error::NotDriven),
        _ => Ok(made),
    });
    let mut made = agree(comm, linked)?;
    path_preferences.explain(&mut made.links);
    let registered = lanes::register_own(&mut opened, &made);
    agree(comm, registered)?;
    let send = |end| remote_lanes::send(comm, addresses, end, &made, &opened, &exports);
    agree(comm, made.ends.iter().try_for_each(send))
        .inspect_err(|_| comm.link().inbox().forget(addresses))?;
    let received: Vec<_> =
        made.ends.iter().map(|end| remote_lanes::receive(comm, addresses, end.peer)).collect();
    let slots = aware::prove(comm, proof, &opened, &mut made);
    let slots = agree(comm, slots)?;
    let joined = received.into_iter().collect::<Result<Vec<RemoteLanes>, Error>>().and_then(|remote| {
        for (end, remote) in made.ends.iter().zip(&remote) {
            let of_slots = end.link(&made, Direction::Send).map(|link| &mut made.links[link]);
            let of_slots = of_slots.filter(|link| link.path.has_slots_on_devices());
            of_slots.into_iter().for_each(|link| link.mapped.extend(remote.mapped));
        }
        made.remote = remote;
        lanes::join(&opened, &made, &slots, (options, is_alone))
    });
    let Joined { lanes, stages, seats, producers, registered, apart, outgoing, incoming } =
        agree(comm, joined)?;
    let sets = BySet::new(made.max_sets(), made.sets);
    let held = made.remote.into_iter().flat_map(|remote| remote.words);
    let scheduled = Arc::new(Scheduled::new(stream::Parts {
        comm: comm.detached(),
        links: made.links,
        sets,
        lanes,
        staging: (!stages.is_empty()).then(|| Staging::new(staged, stages)),
        kit: Kit { opened, outgoing, incoming, cut: options.cut() },
        seats,
        producers,
        apart,
        host: Arc::clone(host),
        has_host_fields,
        inline: options.inline,
        registered,
        pinned: exports.pinned,
        segments: made.keep.into_iter().chain(held).collect(),
        cut: options.cut(),
    }));
    for (memory, _) in scheduled.sets.iter().flat_map(|set| &set.local.memories) {
        memory.add_user(&scheduled);
    }
    let weak = Arc::downgrade(&scheduled);
    host.life.attach(Weak::clone(&weak) as Weak<dyn Engine>);
    comm.register(weak);
    Ok(scheduled)
}

/// The links and sets of an object, while the device engine is made.
pub(super) struct Made {
    pub(super) links: Vec<Link>,
    pub(super) sets: Vec<Arc<Set>>,
    pub(super) ends: Vec<End>,
    pub(super) remote: Vec<RemoteLanes>,
    /// Memory of the peers' flags and mailboxes.
    pub(super) keep: Vec<Arc<Segment>>,
}

impl Made {
    /// The number of sets for which there are flags.
    pub(super) fn max_sets(&self) -> usize {
        max_sets(self.sets.len())
    }
}

/// This rank and a peer.
pub(super) struct End {
    pub(super) peer: usize,
    /// The index of the peer.
    pub(super) number: usize,
    pub(super) endpoints: (LinkEndpoint, LinkEndpoint),
    pub(super) segments: Option<(Arc<Segment>, Arc<Segment>)>,
    /// Its links, by their indices.
    pub(super) links: Vec<usize>,
}

impl End {
    /// Whether devices of one side reach device memory of the other.
    pub(super) fn reaches_devices(&self, made: &Made) -> bool {
        self.links.iter().any(|&link| made.links[link].path.reaches_devices())
    }

    /// The index of the link of one direction.
    pub(super) fn link(&self, made: &Made, direction: Direction) -> Option<usize> {
        self.links.iter().copied().find(|&link| made.links[link].direction == direction)
    }
}

/// Makes peers map the fields that they write, or may read.
fn export_fields(
    comm: &Communicator,
    registry: &DeviceRegistry,
    exports: &mut Exports,
    (sets, endpoints): (&[Local], &[(usize, LinkEndpoint)]),
    choice: LinkChoice,
) -> Result<(), Error> {
    let is_read = choice == LinkChoice::Pull;
    let touched = |&(peer, _): &(usize, LinkEndpoint)| {
        let of_set = move |set: &'_ &Local| {
            set.bytes(peer, Direction::Receive) > 0 || is_read && set.bytes(peer, Direction::Send) > 0
        };
        let memories = sets.iter().filter(of_set).flat_map(|set| &set.memories);
        memories.map(move |(memory, _)| (peer, &memory.segment))
    };
    let memories = || sets.iter().flat_map(|set| &set.memories).map(|(memory, _)| memory);
    let all = endpoints.iter().flat_map(|(peer, _)| memories().map(move |memory| (*peer, memory)));
    exports.look(comm, registry, all);
    exports.add(comm, (registry, By::AllDevices), endpoints.iter().flat_map(touched))
}

/// The slots that a peer may need after the flags, as far as this side knows.
fn slots_of_peer(
    comm: &Communicator,
    registry: &DeviceRegistry,
    exports: &Exports,
    sets: &[Local],
    (peer, endpoint): (usize, &mut LinkEndpoint),
    choice: LinkChoice,
) -> PeerSlots {
    let received = || sets.iter().map(|set| set.bytes(peer, Direction::Receive));
    let most = received().max().unwrap_or(0);
    // An exchange of a set without bytes would never wait.
    let is_small = received().all(|bytes| (1..=endpoint.ll).contains(&bytes));
    let written = || {
        let fields =
            sets.iter().flat_map(|set| set.exchanged(peer, Direction::Receive).map(move |of| (set, of.1)));
        fields.map(|(set, field)| set.segment_of(field))
    };
    let is_wanted = match choice {
        #[cfg(feature = "cuts")]
        LinkChoice::DeviceMailbox => true,
        LinkChoice::Auto => written().any(|segment| exports.reach(comm, peer, segment).is_err()),
        _ => false,
    };
    // Another process must map it, for one device.
    let is_here = || written().all(|segment| comm.link().reach(peer, segment).is_ok());
    let can_be = comm.link().bell(peer).is_some() && (registry.maps_for_one_device(peer) || is_here());
    endpoint.on_device = is_wanted && can_be;
    PeerSlots { ll: is_small.then_some(most), mailbox: endpoint.on_device.then_some(most) }
}

/// The devices of the fields of this rank, ascending.
fn devices_of(sets: &[Local]) -> Result<Vec<Device>, Error> {
    if sets.len() > MOST_SETS {
        return Err(BindError::TooManySets { sets: sets.len(), most: MOST_SETS }.into());
    }
    let memories = sets.iter().flat_map(|local| &local.memories);
    let homes = memories.filter_map(|(memory, _)| memory.device.as_ref());
    let devices: BTreeMap<(usize, u32), &Device> =
        homes.map(|home| (home.device.id(), &home.device)).collect();
    if devices.len() > LANES {
        return Err(BindError::TooManyDevices { devices: devices.len(), most: LANES }.into());
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

/// Flags and mailboxes for every peer, and the bytes of the segment that holds them.
fn lay_out(sets: &[Local], choice: LinkChoice) -> (Vec<(usize, LinkEndpoint)>, usize) {
    let peers: BTreeSet<usize> = sets.iter().flat_map(Local::peers).collect();
    let line = size_of::<Counter>();
    let mut end = (2 * line * peers.len()).next_multiple_of(MESSAGE_ALIGN.max(LINE));
    let has_mailbox = matches!(choice, LinkChoice::Auto | LinkChoice::Mailbox);
    let mut endpoints = Vec::new();
    for (at, &peer) in peers.iter().enumerate() {
        let received = sets.iter().map(|set| set.bytes(peer, Direction::Receive)).max();
        let capacity = received.filter(|_| has_mailbox).unwrap_or(0);
        let (send_counter, receive_counter) = (2 * at * line, (2 * at + 1) * line);
        endpoints.push((
            peer,
            LinkEndpoint { send_counter, receive_counter, mailbox: end, capacity, ..LinkEndpoint::default() },
        ));
        if has_mailbox {
            end += head(max_sets(sets.len())) + SLOTS as usize * slot(capacity);
        }
    }
    (endpoints, end)
}

fn link(
    comm: &Communicator,
    sets: Vec<Local>,
    endpoints: Vec<(usize, LinkEndpoint)>,
    own: Option<Arc<Segment>>,
    theirs: Vec<Offer>,
    (operation, choice): (u64, LinkChoice),
    of_devices: OfDevices<'_>,
) -> Result<Made, Error> {
    let mut obstacles = Vec::new();
    let mut made = Made {
        links: Vec::new(),
        sets: Vec::new(),
        ends: Vec::new(),
        remote: Vec::new(),
        keep: own.iter().cloned().collect(),
    };
    let mut offered: Vec<BTreeMap<usize, _>> = sets.iter().map(|_| BTreeMap::new()).collect();
    for ((peer, endpoint), offer) in endpoints.into_iter().zip(theirs) {
        if offer.sets.len() != sets.len() {
            return Err(offer::of_other_sets(peer));
        }
        offered.iter_mut().zip(offer.sets).for_each(|(peers, set)| drop(peers.insert(peer, set)));
        let segments = own.clone().zip(offer.own);
        made.keep.extend(segments.iter().map(|(_, theirs)| Arc::clone(theirs)));
        let number = made.ends.len();
        obstacles.push(of_devices.obstacle(comm, peer).or(offer.words));
        made.ends.push(End {
            peer,
            number,
            endpoints: (endpoint, offer.endpoint),
            segments,
            links: Vec::new(),
        });
    }
    let mut parts: Vec<Vec<Part>> = sets.iter().map(|_| Vec::new()).collect();
    for (end, words) in made.ends.iter_mut().zip(&obstacles) {
        let pairs = sets.iter().zip(&offered);
        let peer_views: Vec<PeerView<'_>> = pairs
            .map(|(local, peers)| PeerView { peer: end.peer, local, theirs: &peers[&end.peer] })
            .collect();
        peer_views.iter().try_for_each(PeerView::check_bytes)?;
        let (peer, endpoints, segments) = (end.peer, end.endpoints, end.segments.clone());
        let (exports, words) = (of_devices.exports, words.as_deref());
        let pair = Pair {
            comm,
            peer,
            endpoints,
            segments,
            operation,
            sets: peer_views,
            exports,
            on_devices: Some(words),
        };
        for direction in [Direction::Receive, Direction::Send] {
            let transfer_pairs: Vec<Vec<TransferPair<'_>>> =
                pair.sets.iter().map(|set| set.transfer_pairs(direction)).collect::<Result<_, _>>()?;
            if transfer_pairs.iter().all(Vec::is_empty) {
                continue;
            }
            let ll = Some(endpoints.0.ll.min(endpoints.1.ll))
                .filter(|_| endpoints.0.ll > 0 && choice == LinkChoice::Auto);
            let bytes = || pair.sets.iter().map(|set| set.local.bytes(peer, direction));
            // An exchange of a set without bytes would never wait.
            let is_small = ll.is_some_and(|most| bytes().all(|bytes| (1..=most).contains(&bytes)));
            let wish = match () {
                () if is_small => Preference { path: LinkPath::Ll, forced: false },
                () => wish(choice),
            };
            let (mut link, of_sets) = pair.scheduled(direction, &transfer_pairs, wish)?;
            link.part = made.links.len();
            link.chunk = endpoints.0.chunk.max(endpoints.1.chunk).min(LONGEST_CHUNK);
            link.ll = ll.filter(|_| matches!(link.path, LinkPath::Push | LinkPath::Ll));
            link.mapped = match (direction, link.path) {
                (Direction::Receive, LinkPath::Push) | (Direction::Send, LinkPath::Pull) => {
                    let memories = pair.sets.iter().flat_map(|set| &set.local.memories);
                    memories.filter_map(|(memory, _)| exports.kind(peer, &memory.segment)).collect()
                }
                (Direction::Send, LinkPath::Push) | (Direction::Receive, LinkPath::Pull) => {
                    let fields = pair.sets.iter().flat_map(|set| set.theirs.fields.values());
                    fields.filter_map(|field| field.mapped).collect()
                }
                (Direction::Receive, LinkPath::Ll | LinkPath::DeviceMailbox) => {
                    of_devices.words.first().and_then(|words| exports.kind(peer, words)).into_iter().collect()
                }
                // The peer sends the addresses of its flags, and how to map them, once there are links.
                _ => BTreeSet::new(),
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
        LinkChoice::Auto => Preference { path: LinkPath::Push, forced: false },
        LinkChoice::Push => Preference { path: LinkPath::Push, forced: true },
        LinkChoice::Pull => Preference { path: LinkPath::Pull, forced: true },
        #[cfg(feature = "cuts")]
        LinkChoice::DeviceMailbox => Preference { path: LinkPath::DeviceMailbox, forced: true },
        LinkChoice::Mailbox => Preference { path: LinkPath::Mailbox { streaming: false }, forced: true },
        LinkChoice::Message => Preference { path: LinkPath::Message, forced: true },
    }
}
