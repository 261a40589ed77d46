//! Links without fields, for the unbound form, and the sets that exchanges make from the fields given to them.

use super::connect::{Buffer, Endpoints, Handshake};
use super::error::BindError;
use super::local::{Bindable, Local, Place};
use super::offer::Offer;
use super::ops::{Leg, over_link};
use super::pair::{Pair, unbound_bytes};
use super::remote::Exports;
use crate::agree::agree;
use crate::bound::Bound;
use crate::error::Error;
use crate::lifecycle::Engines;
use crate::link::{Direction, Link, Record};
use crate::options::{BindOptions, LinkChoice};
use crate::pattern::Pattern;
use crate::set::{Part, Set, UnboundPart};
use crate::trace::Name;
use halocline_comm::{Communicator, Endpoint};
use halocline_plan::copy::{CellLayout, CopyOp};
use halocline_plan::{Cells, Order, Transfer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that the first slots hold.
const FIRST: usize = 4096;

/// Makes the links of patterns. Collective.
pub(crate) fn links(
    comm: &Communicator,
    patterns: &[&Pattern],
    options: &BindOptions,
) -> Result<Arc<Bound>, Error> {
    let comm = &comm.within("PatternLinks");
    let mut ids: Vec<u64> = patterns.iter().map(|pattern| pattern.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    let same = super::same_terms(comm, options, &ids, |_| BindError::Patterns { rank: comm.rank() })?;
    let options = &agree(comm, same)?;
    agree(comm, possible(comm, patterns, options.link))?;
    let (offers, operation, checks) = (comm.begin(), comm.begin(), comm.begin());
    let peers = patterns.iter().flat_map(|pattern| &pattern.plan().peers).map(|peer| peer.rank).collect();
    // Headers and the first slots.
    let bytes = unbound_bytes(FIRST).unwrap_or(0);
    let endpoints = Endpoints::lay_out(&peers, |_| Buffer { capacity: FIRST, bytes });
    let own = match options.link {
        LinkChoice::Message => None,
        _ => agree(comm, endpoints.allocate(comm))?,
    };
    let handshake =
        Handshake { comm, sets: Vec::new(), endpoints, own: own.clone(), operation, of_devices: None };
    let theirs = handshake.swap_offers(offers)?;
    let links = agree(comm, theirs.and_then(|theirs| connect(handshake, theirs, patterns, options.link)))?;
    let nothing = Arc::new(set(&links, Local::new(comm, &[])?)?);
    let name = Name::new(operation, options.name.as_deref(), std::iter::empty());
    let life = super::life(comm, options, name, Engines::HOST);
    let checks = (options.checked == Some(true)).then_some(checks);
    let bound = Bound::new(life, links, own, &[nothing], checks);
    if bound.wants_progress() {
        comm.register(&bound);
    }
    Ok(bound)
}

/// Makes the links from the offers of the peers.
fn connect(
    handshake: Handshake<'_>,
    theirs: Vec<Offer>,
    patterns: &[&Pattern],
    choice: LinkChoice,
) -> Result<Vec<Link>, Error> {
    let Handshake { comm, endpoints, own, operation, .. } = handshake;
    let mut links = Vec::new();
    for ((peer, endpoint), offer) in endpoints.of_peers.into_iter().zip(theirs) {
        let segments = own.clone().zip(offer.own);
        if segments.is_none() && !matches!(choice, LinkChoice::Auto | LinkChoice::Message) {
            return Err(BindError::NoSharedMemory { peer }.into());
        }
        let pair = Pair {
            comm,
            peer,
            endpoints: (endpoint, offer.endpoint),
            segments,
            operation,
            sets: Vec::new(),
            exports: &Exports::default(),
            on_devices: None,
        };
        let is_used = |direction: &Direction| {
            patterns.iter().any(|pattern| transfers(pattern, peer, *direction).next().is_some())
        };
        let directions = [Direction::Receive, Direction::Send].into_iter().filter(is_used);
        for mut link in pair.unbound_links(directions)? {
            link.part = links.len();
            links.push(link);
        }
    }
    Ok(links)
}

/// Refuses what cannot be made, before anything is made.
fn possible(comm: &Communicator, patterns: &[&Pattern], choice: LinkChoice) -> Result<(), Error> {
    if matches!(choice, LinkChoice::Push | LinkChoice::Pull | LinkChoice::Nccl) {
        return Err(BindError::DirectWithoutFields { choice }.into());
    }
    for (at, pattern) in patterns.iter().enumerate() {
        super::local::check_ranks(at, pattern, comm.size())?;
    }
    Ok(())
}

fn transfers<'a>(
    pattern: &'a Pattern,
    peer: usize,
    direction: Direction,
) -> impl Iterator<Item = &'a Transfer> + 'a {
    let of_peer = pattern.plan().peers.iter().filter(move |p| p.rank == peer);
    of_peer.flat_map(move |p| match direction {
        Direction::Send => &p.sends,
        Direction::Receive => &p.receives,
    })
}

/// The set of these fields for links without fields. Local. The set holds no memory.
pub(crate) fn set(links: &[Link], local: Local) -> Result<Set, Error> {
    let parts = links.iter().map(|link| part(link, &local)).collect::<Result<_, _>>()?;
    // Their fields, whose descriptions travel with the data, tell sets apart.
    let mut set = Set::new(0, local, Arc::new(BTreeMap::new()), parts);
    set.local.forget_memories();
    set.bases.clear();
    Ok(set)
}

fn part(link: &Link, local: &Local) -> Result<Part, Error> {
    let (peer, direction) = (link.peer, link.direction);
    let records = records(local, peer, direction, false)?;
    let ops = match direction {
        Direction::Send => operations(local, peer, direction, &records).unwrap_or_default(),
        Direction::Receive => Vec::new(),
    };
    let unbound = Some(Box::new(UnboundPart::new(records)));
    Ok(Part { bytes: local.bytes(peer, direction), ops, unbound, ..Part::default() })
}

/// The fields that a peer sends or gets, as their sender describes them. A receiver knows no order, or, with `has_order`, expects that of
/// its own field.
pub(super) fn records(
    local: &Local,
    peer: usize,
    direction: Direction,
    has_order: bool,
) -> Result<Vec<Record>, Error> {
    let mut records: Vec<Record> = Vec::new();
    for (_, field, transfer) in local.exchanged(peer, direction) {
        let sender = match direction {
            Direction::Send => field.place,
            Direction::Receive => Place { domain: transfer.from, ..field.place },
        };
        let known = |record: &Record| record.is_at(sender.pattern, sender.number, sender.domain);
        if !records.iter().any(known) {
            let has_order = has_order || direction == Direction::Send;
            let order = if has_order { order(local, field)?.code() } else { 0 };
            let Place { pattern, number, domain } = sender;
            records.push(Record::new((pattern, number, domain), &field.cells, order));
        }
    }
    Ok(records)
}

fn order(local: &Local, field: &Bindable) -> Result<Order, BindError> {
    Order::of(&field.cells).ok_or_else(|| BindError::TooManyDimensions {
        field: field.place.number,
        domain: local.name_of(field.place),
        dimensions: field.cells.axes.len() + field.cells.extra.len(),
        most: Order::MOST,
    })
}

/// The copies of one side, in the order of bytes that the sender's records describe; `None` if the records are invalid.
pub(crate) fn operations(
    local: &Local,
    peer: usize,
    direction: Direction,
    records: &[Record],
) -> Option<Vec<CopyOp>> {
    let exchanged: Vec<_> = local.exchanged(peer, direction).collect();
    // In the place of the other side's layout, one that has the sender's order.
    let stand_ins = exchanged.iter().map(|(_, field, transfer)| {
        let sender = if direction == Direction::Send { field.place.domain } else { transfer.from };
        let record = records.iter().find(|r| r.is_at(field.place.pattern, field.place.number, sender))?;
        let axes = match &transfer.source {
            Cells::Box(cells) => cells.extent.clone(),
            Cells::Runs(_) => vec![1],
        };
        let extra: Vec<usize> = field.cells.extra.iter().map(|(extent, _)| *extent).collect();
        Order::from_code(record.order).layout(field.cells.element, &axes, &extra)
    });
    let stand_ins: Vec<CellLayout> = stand_ins.collect::<Option<_>>()?;
    let legs = exchanged.iter().zip(&stand_ins).map(|((index, field, transfer), theirs)| Leg {
        index: *index,
        place: field.place,
        ours: &field.cells,
        theirs,
        stands_in: true,
        transfer,
    });
    let legs: Vec<Leg<'_>> = legs.collect();
    Some(over_link(direction, &legs, |_| None).into_iter().map(|(_, op)| op).collect())
}
