//! Binding: everything that can be done once. Checks the fields, describes them to the peers, chooses
//! a path for each link and lays out flags and mailboxes.

mod aware;
mod device;
mod error;
mod flag_layout;
mod further;
mod lanes;
mod local;
mod measure;
mod narrow;
mod offer;
mod ops;
mod pair;
mod path_preferences;
mod peer_view;
mod remote;
mod remote_lanes;
mod script;
mod sides;
pub(crate) mod unbound;
mod validate;

pub use error::BindError;
pub(crate) use local::{Bindable, Local, Place};
pub(crate) use narrow::narrowed;
pub(crate) use offer::Offered;
pub(crate) use ops::within;
pub(crate) use script::Kit;

use crate::agree::agree;
use crate::bound::Bound;
use crate::error::Error;
use crate::field::Field;
use crate::lifecycle::{Engines, Lifecycle};
use crate::link::{Direction, Link, LinkPath, SLOTS};
use crate::options::{BindOptions, LinkChoice};
use crate::pattern::Pattern;
use crate::set::{Part, Set};
use crate::stream::Scheduled;
use crate::trace::Name;
use halocline_comm::Endpoint;
use halocline_comm::{Communicator, Counter, Patience, Reduce, Segment};
use halocline_device::host::MESSAGE_ALIGN;
use halocline_plan::copy::CopyOp;
use offer::{LinkEndpoint, OfDevices, Offer};
use pair::Pair;
use peer_view::PeerView;
use remote::Exports;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The path that all links take if they can.
#[derive(Debug, Clone, Copy)]
struct Preference {
    path: LinkPath,
    /// If a link cannot take it, the bind fails.
    forced: bool,
}

/// A bound object and its sets.
pub(crate) type Made = (Arc<Bound>, Vec<Arc<Set>>);

/// A bound object and its sets, and its device fields, if any rank has some.
pub(crate) type Whole = (Made, Option<Arc<Scheduled>>);

/// Binds sets of fields, which share the links. Collective.
pub(crate) fn bind(
    comm: &Communicator,
    given: &[&[(&Pattern, &Field)]],
    options: &BindOptions,
) -> Result<Whole, Error> {
    let _span =
        tracing::debug_span!("bind", rank = comm.rank(), name = options.name, sets = given.len()).entered();
    let comm = &comm.within("bind");
    let options = &agree(comm, same_terms(comm, given.len(), options)?)?;
    let of_set = |set: usize, error: Error| match given.len() {
        1 => error,
        _ => Error::Set { set, error: Box::new(error) },
    };
    // Host and device fields get an engine each; both share one life.
    let of_kind = |on_device: bool| -> Result<Vec<Local>, Error> {
        let places = given.iter().enumerate().map(|(at, set)| {
            let is_of_kind = |(_, field): &&(&Pattern, &Field)| field.memory.device.is_some() == on_device;
            let fields: Vec<(&Pattern, &Field)> = set.iter().filter(is_of_kind).copied().collect();
            Local::new(comm, &fields).map_err(|error| of_set(at, error))
        });
        let sets: Vec<Local> = agree(comm, places.collect())?;
        for (at, local) in sets.iter().enumerate() {
            agree(comm, validate::validate(comm, local)?.map_err(|error| of_set(at, error)))?;
        }
        Ok(sets)
    };
    let is_on_device = |(_, field): &(&Pattern, &Field)| field.memory.device.is_some();
    let on_devices = given.iter().any(|set| set.iter().any(is_on_device));
    let on_devices = comm.all_reduce(&[u8::from(on_devices)], Reduce::Max)? != [0];
    let sets = of_kind(false)?;
    let on_devices = on_devices.then(|| of_kind(true)).transpose()?;
    let forced = |path| Preference { path, forced: true };
    let preference = match options.link {
        LinkChoice::Auto => {
            Preference { path: measure::choose(comm, &sets[0], &measure::ALL)?, forced: false }
        }
        LinkChoice::Push => forced(LinkPath::Push),
        LinkChoice::Pull => forced(LinkPath::Pull),
        LinkChoice::Message => forced(LinkPath::Message),
        _ => forced(measure::choose(comm, &sets[0], &measure::MAILBOXES)?),
    };
    let has_host_fields = sets.iter().any(|set| !set.fields.is_empty());
    let engines = Engines { host: on_devices.is_none() || has_host_fields, device: on_devices.is_some() };
    let (bound, sets) = build(comm, sets, preference, (options, engines))?;
    if bound.wants_progress() {
        let weak = Arc::downgrade(&bound);
        comm.register(weak);
    }
    if options.checked == Some(true) && on_devices.is_some() {
        tracing::warn!("rank {}: checked mode does not check fields in device memory", comm.rank());
    }
    let device_engine = |sets| device::bind(comm, sets, options, (&bound, has_host_fields));
    let scheduled = on_devices.map(device_engine).transpose()?;
    Ok(((bound, sets), scheduled))
}

/// The copies between the fields of a set and a message from or to a peer.
pub(crate) fn packing(set: &Set, peer: usize, direction: Direction) -> Result<Vec<CopyOp>, Error> {
    let peer_view = PeerView { peer, local: &set.local, theirs: &set.offered[&peer] };
    Ok(peer_view.part(direction, LinkPath::Message, &peer_view.transfer_pairs(direction)?)?.ops)
}

/// Checks that all ranks ask for the same links, number of sets and checked mode. Returns the options, completed from the
/// environment.
fn same_terms(
    comm: &Communicator,
    sets: usize,
    options: &BindOptions,
) -> Result<Result<BindOptions, Error>, Error> {
    let (rank, choice) = (comm.rank(), options.link);
    let options = options.with_environment();
    let checked = options.as_ref().is_ok_and(|options| options.checked == Some(true));
    Ok(match (same_as_rank_0(comm, &[choice.code(), sets as u64, checked.into()])?, options) {
        (_, Err(error)) => Err(error.into()),
        (Err(first), Ok(_)) => Err(match first[..] {
            [code, ..] if code != choice.code() => {
                BindError::LinkChoice { rank, choice, first: LinkChoice::from_code(code) }
            }
            [_, first, ..] if first != sets as u64 => {
                BindError::SetCount { rank, sets, first: first as usize }
            }
            _ => BindError::CheckedMode { rank, checked },
        }
        .into()),
        (Ok(()), _) if sets == 0 => Err(BindError::NoSets.into()),
        (Ok(()), Ok(options)) => Ok(options),
    })
}

/// Compares numbers with those of rank 0, which an inner error returns. Collective.
fn same_as_rank_0(comm: &Communicator, numbers: &[u64]) -> Result<Result<(), Vec<u64>>, Error> {
    let mine: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let first = comm.broadcast(0, mine.clone())?;
    let numbers = || first.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    Ok(if first == mine { Ok(()) } else { Err(numbers()) })
}

fn build(
    comm: &Communicator,
    sets: Vec<Local>,
    preference: Preference,
    (options, engines): (&BindOptions, Engines),
) -> Result<Made, Error> {
    let (offers, operation, checks) = (comm.begin(), comm.begin(), comm.begin());
    let (endpoints, own_bytes) = lay_out(&sets);
    let shared = endpoints.iter().any(|(peer, _)| comm.link().bell(*peer).is_some());
    let own = agree(comm, shared.then(|| comm.allocate(own_bytes)).transpose())?;
    let received = swap_offers(comm, offers, &sets, &endpoints, own.as_ref(), None)?;
    let made = received.and_then(|theirs| {
        connect(Handshake { comm, sets, endpoints, own: own.as_ref(), theirs, operation }, preference)
    });
    let (links, sets) = agree(comm, made)?;
    let patience = Patience { deadline: options.deadline, ..Patience::of(comm.link()) };
    let fields = sets[0].local.fields.iter().map(|field| &field.layout);
    let name = Name::new(operation, options.name.as_deref(), fields);
    let life = Lifecycle::new(comm.detached(), name, patience, engines);
    let checks = (options.checked == Some(true)).then_some(checks);
    Ok((Bound::new(life, links, own, &sets, checks), sets))
}

/// Sends this rank's offer to each peer, and takes theirs. An outer error is the same on all ranks.
fn swap_offers(
    comm: &Communicator,
    operation: u64,
    sets: &[Local],
    endpoints: &[(usize, LinkEndpoint)],
    own: Option<&Arc<Segment>>,
    of_devices: Option<OfDevices<'_>>,
) -> Result<Result<Vec<Offer>, Error>, Error> {
    let sent = endpoints.iter().try_for_each(|(peer, endpoint)| {
        let own = own.filter(|_| comm.link().bell(*peer).is_some());
        offer::send(comm, (*peer, operation), sets, *endpoint, own, of_devices)
    });
    // No rank waits for an offer that could not be sent.
    agree(comm, sent).inspect_err(|_| comm.link().inbox().forget(operation))?;
    // All offers are taken, even if one is wrong: none is left in the inbox.
    let received: Vec<_> = endpoints
        .iter()
        .map(|(peer, _)| offer::receive(comm, (*peer, operation), of_devices.is_some()))
        .collect();
    Ok(received.into_iter().collect())
}

/// Flags and mailboxes for every peer, and the bytes of the segment that holds them.
fn lay_out(sets: &[Local]) -> (Vec<(usize, LinkEndpoint)>, usize) {
    let peers: BTreeSet<usize> = sets.iter().flat_map(Local::peers).collect();
    let line = size_of::<Counter>();
    let mut mailbox = (2 * line * peers.len()).next_multiple_of(MESSAGE_ALIGN);
    let mut endpoints = Vec::new();
    for (at, &peer) in peers.iter().enumerate() {
        let received = sets.iter().map(|set| set.bytes(peer, Direction::Receive));
        let capacity = received.max().unwrap_or(0);
        let (send_counter, receive_counter) = (2 * at * line, (2 * at + 1) * line);
        endpoints.push((
            peer,
            LinkEndpoint { send_counter, receive_counter, mailbox, capacity, ..LinkEndpoint::default() },
        ));
        mailbox += SLOTS as usize * capacity.next_multiple_of(MESSAGE_ALIGN);
    }
    (endpoints, mailbox)
}

/// What the links and sets of an object are made from.
struct Handshake<'a> {
    comm: &'a Communicator,
    sets: Vec<Local>,
    /// The peers, and this rank's side of the links with each.
    endpoints: Vec<(usize, LinkEndpoint)>,
    own: Option<&'a Arc<Segment>>,
    /// The offer of each peer.
    theirs: Vec<Offer>,
    operation: u64,
}

fn connect(handshake: Handshake<'_>, preference: Preference) -> Result<(Vec<Link>, Vec<Arc<Set>>), Error> {
    let Handshake { comm, sets, endpoints, own, theirs, operation } = handshake;
    // For each set, the fields of each peer.
    let mut offered: Vec<BTreeMap<usize, Offered>> = sets.iter().map(|_| BTreeMap::new()).collect();
    let mut ends = Vec::new();
    for ((peer, endpoint), offer) in endpoints.into_iter().zip(theirs) {
        if offer.sets.len() != sets.len() {
            return Err(offer::of_other_sets(peer));
        }
        offered.iter_mut().zip(offer.sets).for_each(|(peers, set)| drop(peers.insert(peer, set)));
        ends.push((peer, (endpoint, offer.endpoint), own.cloned().zip(offer.own)));
    }
    let mut links = Vec::new();
    let mut parts: Vec<Vec<Part>> = sets.iter().map(|_| Vec::new()).collect();
    for (peer, endpoints, segments) in ends {
        let peer_views =
            sets.iter().zip(&offered).map(|(local, peers)| PeerView { peer, local, theirs: &peers[&peer] });
        let exports = &Exports::default();
        let pair = Pair {
            comm,
            peer,
            endpoints,
            segments,
            operation,
            sets: peer_views.collect(),
            exports,
            on_devices: None,
        };
        for (mut link, of_sets) in pair.links(preference)? {
            link.part = links.len();
            links.push(link);
            parts.iter_mut().zip(of_sets).for_each(|(parts, part)| parts.push(part));
        }
    }
    let made = sets.into_iter().zip(offered).zip(parts);
    let made = made.enumerate().map(|(number, ((local, offered), parts))| {
        Arc::new(Set::new(number, local, Arc::new(offered), parts))
    });
    Ok((links, made.collect()))
}
