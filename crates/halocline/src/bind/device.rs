//! Binding the device fields of an object: the path of each link, the addresses of its flags, and the work of each device for an
//! exchange.

use super::Preference;
use super::aware;
use super::connect::{Buffer, Connected, End, Endpoints, Handshake};
use super::error::BindError;
use super::flag_layout::{self, FlagLayout, LANES, PeerSlots, head, max_sets};
use super::lanes::{self, Joined, Opened};
use super::local::Local;
use super::nccl::{Group, Messages};
use super::offer::{LinkEndpoint, OfDevices};
use super::pair::Pair;
use super::path_preferences::PathPreferences;
use super::remote::{By, DeviceRegistry, Exports};
use super::remote_lanes::{self, RemoteLanes};
use super::script::Kit;
use super::sides::capacity;
use crate::agree::agree;
use crate::bound::Bound;
use crate::error::{Error, ReduceError};
use crate::link::{Direction, Link, LinkPath};
use crate::options::{BindOptions, LinkChoice};
use crate::stream::{self, BySet, Checks, Pool, Scheduled, Staging, Unbound};
use halocline_comm::{Communicator, Endpoint, Reduce};
use halocline_device::{Device, DeviceError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// The most bytes of a chunk of a staged message, whatever a peer asks for.
const LONGEST_CHUNK: usize = 1 << 30;

/// What all steps of a bind of device fields refer to.
struct Binding<'a> {
    comm: &'a Communicator,
    options: &'a BindOptions,
    /// The devices of the fields of this rank.
    devices: Vec<Device>,
    registry: DeviceRegistry,
    /// No other rank uses these devices.
    is_alone: bool,
}

/// Binds sets of device fields. Collective; a rank may have none.
pub(super) fn bind(
    comm: &Communicator,
    sets: Vec<Local>,
    options: &BindOptions,
    host: &Arc<Bound>,
    has_host_fields: bool,
) -> Result<Arc<Scheduled>, Error> {
    let [offers, operation, addresses, staged, proof, checks] = std::array::from_fn(|_| comm.begin());
    let binding = Binding::new(comm, &sets, options)?;
    let group = Group::join(comm, &binding.registry, &binding.devices, options)?;
    let mut endpoints = lay_out(&sets, options.link);
    let preferences =
        PathPreferences::new(&binding.registry, (&binding.devices, &sets), (options, binding.is_alone));
    endpoints.of_peers.iter_mut().for_each(|(_, endpoint)| preferences.enter(endpoint));
    let mut exports = Exports::default();
    let mut opened = binding.open(&sets, &mut endpoints, &mut exports)?;
    let exported = binding.export_words(&endpoints, &opened, &mut exports);
    let own = agree(comm, exported.and_then(|()| endpoints.allocate(comm)))?;
    let words: Vec<_> = opened.lanes.iter().map(|lane| Arc::clone(&lane.segment)).collect();
    let of_devices = OfDevices { exports: &exports, words: &words };
    let handshake = Handshake { comm, sets, endpoints, own, operation, of_devices: Some(of_devices) };
    let theirs = handshake.swap_offers(offers)?;
    let connected = theirs
        .and_then(|theirs| handshake.connect(theirs, |pair, direction| prefer(pair, direction, options)));
    let connected = connected.map(|made| complete(made, options.link, of_devices));
    let mut made = agree(comm, connected)?;
    preferences.explain(&mut made.links);
    let refuses_reduces = refuses_reduces(&binding, &made, &opened.layout)?;
    let messages = Messages::new(comm, group, &opened, &made)?;
    let joined = binding.join(&mut opened, (&mut made, &messages), &exports, [addresses, proof]);
    let checked = joined?.and_then(|joined| {
        let checks = || Checks::new(checks, &made.sets, &made.links, &opened.devices);
        Ok((joined, options.checks_devices().then(checks).transpose()?))
    });
    let (joined, checks) = agree(comm, checked)?;
    let Joined { lanes, stages, seats, producers, mut registered, apart, outgoing, incoming } = joined;
    registered.extend(messages.memories());
    let sets = BySet::new(made.max_sets(), made.sets);
    let own_and_theirs = made.ends.into_iter().filter_map(|end| end.segments);
    let held = made.remote.into_iter().flat_map(|remote| remote.words);
    let peers = made.links.iter().filter(|link| link.direction == Direction::Send).map(|link| link.peer);
    let unbound = options.is_unbound.then(|| binding.registry.keep(peers)).transpose()?.map(Unbound::new);
    let parts = stream::Parts {
        comm: comm.detached(),
        links: made.links,
        sets,
        lanes,
        staging: (!stages.is_empty()).then(|| Staging::new(staged, stages)),
        checks,
        nccl: messages.communicator(),
        kit: Kit { opened, outgoing, incoming, messages, cut: options.cut(), registry: binding.registry },
        seats,
        producers,
        apart,
        host: Arc::clone(host),
        has_host_fields,
        inline: options.inline,
        refuses_reduces,
        registered,
        pinned: exports.pinned,
        segments: own_and_theirs.flat_map(|(own, theirs)| [own, theirs]).chain(held).collect(),
        cut: options.cut(),
    };
    Ok(register(comm, host, Scheduled::new(parts, unbound)))
}

/// Why some rank cannot reduce, if so, else prepares the devices for reduces. Collective.
fn refuses_reduces(
    binding: &Binding<'_>,
    made: &Connected,
    layout: &FlagLayout,
) -> Result<Option<ReduceError>, Error> {
    let comm = binding.comm;
    let cannot = |link: &Link| matches!(link.path, LinkPath::Pull | LinkPath::Nccl);
    let lacks_slot = |end: &End| {
        let link = end.link(made, Direction::Send);
        let by_devices = |&link: &usize| made.links[link].path.reaches_devices() && capacity(made, link) > 0;
        link.filter(by_devices).is_some() && layout.of_peers[end.number].reduce.is_none()
    };
    let by_links = binding.options.is_unbound || made.links.iter().any(cannot);
    let own = if by_links { 2 } else { u8::from(made.ends.iter().any(lacks_slot)) };
    match comm.all_reduce(&[own], Reduce::Max)?[..] {
        [0] => {}
        [1] => return Ok(Some(ReduceError::NoMemory)),
        _ => return Ok(Some(ReduceError::Links)),
    }
    let prepared = prepare_to_combine(&binding.devices, made.sets.iter().map(|set| &set.local));
    agree(comm, prepared).map(|()| None)
}

/// Loads the kernels that combine elements of the fields.
pub(super) fn prepare_to_combine<'a>(
    devices: &[Device],
    sets: impl Iterator<Item = &'a Local>,
) -> Result<(), Error> {
    let elements: Vec<_> = sets.flat_map(|set| &set.fields).map(|field| field.cells.element).collect();
    Ok(devices.iter().try_for_each(|device| device.driver().prepare_to_combine(&elements))?)
}

/// Makes a device engine known to the memory of its fields, to the object's life and to the progress thread.
fn register(comm: &Communicator, host: &Bound, scheduled: Scheduled) -> Arc<Scheduled> {
    let scheduled = Arc::new(scheduled);
    for (memory, _) in scheduled.sets.iter().flat_map(|set| &set.local.memories) {
        memory.add_user(&scheduled);
    }
    let weak: Weak<Scheduled> = Arc::downgrade(&scheduled);
    host.life.attach(weak);
    comm.register(&scheduled);
    scheduled
}

impl<'a> Binding<'a> {
    /// Agrees on the devices of all ranks. Collective.
    fn new(comm: &'a Communicator, sets: &[Local], options: &'a BindOptions) -> Result<Self, Error> {
        let devices = devices_of(sets).inspect(|devices| comm.extension::<Pool>().join(devices));
        let devices = agree(comm, devices)?;
        let registry = DeviceRegistry::gather(comm, &devices)?;
        let is_alone = registry.is_alone(comm.rank()) && comm.extension::<Pool>().is_alone(&devices);
        let is_alone = is_alone || options.is_alone();
        Ok(Self { comm, options, devices, registry, is_alone })
    }

    /// Makes peers map the fields, as far as the links need that, then makes the flags and slots of the devices here. Collective.
    fn open(
        &self,
        sets: &[Local],
        endpoints: &mut Endpoints,
        exports: &mut Exports,
    ) -> Result<Opened, Error> {
        let Self { comm, options, devices, registry, .. } = self;
        let of_peers = &mut endpoints.of_peers;
        let exported = match options.link {
            LinkChoice::Auto | LinkChoice::Push | LinkChoice::Pull => {
                export_fields(comm, registry, exports, (sets, of_peers), options.link)
            }
            _ => Ok(()),
        };
        let slots = of_peers
            .iter_mut()
            .map(|(peer, endpoint)| slots_of_peer(comm, registry, exports, sets, (*peer, endpoint), options));
        let (max_sets, lanes) = (max_sets(sets.len()), devices.len());
        let layout = FlagLayout { of_peers: slots.collect(), max_sets, lanes };
        // Flags first: addresses that a peer gets must exist.
        let opened = match lanes::open(comm, devices, (layout.clone(), sets.len()), options) {
            // Links that would use mailboxes have another path, and there are no reduces.
            Err(Error::Device(DeviceError::OutOfMemory { .. })) if options.link == LinkChoice::Auto => {
                of_peers.iter_mut().for_each(|(_, endpoint)| endpoint.on_device = false);
                let without = |slots: &PeerSlots| PeerSlots { mailbox: None, reduce: None, ..*slots };
                let layout = FlagLayout { of_peers: layout.of_peers.iter().map(without).collect(), ..layout };
                lanes::open(comm, devices, (layout, sets.len()), options)
            }
            opened => opened,
        };
        agree(comm, exported.and(opened))
    }

    /// Makes peers map the flags of the devices here, if the links may need that.
    fn export_words(
        &self,
        endpoints: &Endpoints,
        opened: &Opened,
        exports: &mut Exports,
    ) -> Result<(), Error> {
        if matches!(self.options.link, LinkChoice::Mailbox | LinkChoice::Message | LinkChoice::Nccl) {
            return Ok(());
        }
        let of_peer = |&(peer, _): &(usize, _)| opened.lanes.iter().map(move |lane| (peer, &lane.segment));
        let wanted = endpoints.of_peers.iter().flat_map(of_peer);
        exports.look_at_words(self.comm, &self.registry, wanted.clone());
        exports.add(self.comm, (&self.registry, By::FirstDevice), wanted)
    }

    /// Exchanges the addresses of flags with the peers, and makes the work of each device. Collective; an outer error is the same on all
    /// ranks.
    fn join(
        &self,
        opened: &mut Opened,
        (made, messages): (&mut Connected, &Messages),
        exports: &Exports,
        [addresses, proof]: [u64; 2],
    ) -> Result<Result<Joined, Error>, Error> {
        let comm = self.comm;
        agree(comm, lanes::register_own(opened, made))?;
        let send = |end| remote_lanes::send(comm, addresses, end, made, opened, exports);
        agree(comm, made.ends.iter().try_for_each(send))
            .inspect_err(|_| comm.link().inbox().forget(addresses))?;
        let received: Vec<_> =
            made.ends.iter().map(|end| remote_lanes::receive(comm, addresses, end.peer)).collect();
        let slots = agree(comm, aware::prove(comm, proof, opened, made))?;
        Ok(received.into_iter().collect::<Result<Vec<RemoteLanes>, Error>>().and_then(|remote| {
            for (end, remote) in made.ends.iter().zip(&remote) {
                let of_slots = end.link(made, Direction::Send).map(|link| &mut made.links[link]);
                let of_slots = of_slots.filter(|link| link.path.has_slots_on_devices());
                of_slots.into_iter().for_each(|link| link.mapped.extend(remote.mapped));
            }
            made.remote = remote;
            lanes::join(opened, (made, messages), &slots, (self.options, self.is_alone))
        }))
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
    options: &BindOptions,
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
    let is_wanted = match options.link {
        _ if options.is_unbound => true,
        #[cfg(feature = "cuts")]
        LinkChoice::DeviceMailbox => true,
        LinkChoice::Auto => written().any(|segment| exports.reach(comm, peer, segment).is_err()),
        _ => false,
    };
    // Another process must map it, for one device.
    let is_here = || written().all(|segment| comm.link().reach(peer, segment).is_ok());
    let can_be = comm.link().bell(peer).is_some() && (registry.maps_for_one_device(peer) || is_here());
    endpoint.on_device = is_wanted && can_be;
    let ll = is_small.then_some(most);
    PeerSlots {
        ll,
        mailbox: endpoint.on_device.then_some(most),
        reduce: halo_in_reduces(comm, sets, peer, options),
    }
}

/// Bytes of a peer's halo that it packs into memory of a device here in a reduce, if the link from here may be one between devices.
fn halo_in_reduces(comm: &Communicator, sets: &[Local], peer: usize, options: &BindOptions) -> Option<usize> {
    let by_host = matches!(
        options.link,
        LinkChoice::Pull | LinkChoice::Mailbox | LinkChoice::Message | LinkChoice::Nccl
    );
    let has_slot = !options.is_unbound && !by_host && comm.link().bell(peer).is_some();
    sets.iter().map(|set| set.bytes(peer, Direction::Send)).max().filter(|&most| has_slot && most > 0)
}

/// The devices of the fields of this rank, ascending.
fn devices_of(sets: &[Local]) -> Result<Vec<Device>, Error> {
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

/// Flags and mailboxes for every peer.
fn lay_out(sets: &[Local], choice: LinkChoice) -> Endpoints {
    let peers = sets.iter().flat_map(Local::peers).collect();
    let has_mailbox = matches!(choice, LinkChoice::Auto | LinkChoice::Mailbox);
    Endpoints::lay_out(&peers, |peer| {
        let received = sets.iter().map(|set| set.bytes(peer, Direction::Receive)).max();
        let capacity = received.filter(|_| has_mailbox).unwrap_or(0);
        let bytes = head(max_sets(sets.len())) + flag_layout::host_slots(capacity);
        Buffer { capacity, bytes: if has_mailbox { bytes } else { 0 } }
    })
}

/// The limit of the LL protocol on the links between two ranks, if both sides may want it.
fn ll_limit((ours, theirs): (LinkEndpoint, LinkEndpoint), choice: LinkChoice) -> Option<usize> {
    (ours.ll > 0 && choice == LinkChoice::Auto).then(|| ours.ll.min(theirs.ll))
}

/// The path that a link takes if it can: LL for small messages, else the one asked for.
fn prefer(pair: &Pair<'_>, direction: Direction, options: &BindOptions) -> Preference {
    if options.is_unbound {
        return Preference { path: LinkPath::DeviceMailbox, forced: true };
    }
    let mut bytes = pair.sets.iter().map(|set| set.local.bytes(pair.peer, direction));
    // An exchange of a set without bytes would never wait.
    match ll_limit(pair.endpoints, options.link) {
        Some(most) if bytes.all(|bytes| (1..=most).contains(&bytes)) => {
            Preference { path: LinkPath::Ll, forced: false }
        }
        _ => preference(options.link),
    }
}

/// Completes the links for devices: chunks, the limit of the LL protocol, how memory is mapped.
fn complete(
    mut made: Connected,
    choice: LinkChoice,
    OfDevices { exports, words }: OfDevices<'_>,
) -> Connected {
    for End { peer, endpoints, links, .. } in &made.ends {
        for &link in links {
            let link = &mut made.links[link];
            link.chunk = endpoints.0.chunk.max(endpoints.1.chunk).min(LONGEST_CHUNK);
            link.ll =
                ll_limit(*endpoints, choice).filter(|_| matches!(link.path, LinkPath::Push | LinkPath::Ll));
            link.mapped = match (link.direction, link.path) {
                (Direction::Receive, LinkPath::Push) | (Direction::Send, LinkPath::Pull) => {
                    let memories = made.sets.iter().flat_map(|set| &set.local.memories);
                    memories.filter_map(|(memory, _)| exports.kind(*peer, &memory.segment)).collect()
                }
                (Direction::Send, LinkPath::Push) | (Direction::Receive, LinkPath::Pull) => {
                    let fields = made.sets.iter().flat_map(|set| set.offered[peer].fields.values());
                    fields.filter_map(|field| field.mapped).collect()
                }
                (Direction::Receive, LinkPath::Ll | LinkPath::DeviceMailbox) => {
                    words.first().and_then(|words| exports.kind(*peer, words)).into_iter().collect()
                }
                // The peer sends the addresses of its flags, and how to map them, once there are links.
                _ => BTreeSet::new(),
            };
        }
    }
    made
}

/// The path of a choice: direct, unless the choice names another one.
fn preference(choice: LinkChoice) -> Preference {
    match choice {
        LinkChoice::Auto => Preference { path: LinkPath::Push, forced: false },
        LinkChoice::Push => Preference { path: LinkPath::Push, forced: true },
        LinkChoice::Pull => Preference { path: LinkPath::Pull, forced: true },
        #[cfg(feature = "cuts")]
        LinkChoice::DeviceMailbox => Preference { path: LinkPath::DeviceMailbox, forced: true },
        LinkChoice::Mailbox => Preference { path: LinkPath::Mailbox { streaming: false }, forced: true },
        LinkChoice::Message => Preference { path: LinkPath::Message, forced: true },
        LinkChoice::Nccl => Preference { path: LinkPath::Nccl, forced: true },
    }
}
