//! Sets of smaller width over the links of wider ones: the peers' fields and copies are known already.

use super::error::BindError;
use super::further;
use super::local::Local;
use super::offer::Offered;
use super::peer_view::PeerView;
use crate::agree::{agree, same_as_rank_0};
use crate::bound::Bound;
use crate::error::Error;
use crate::link::{Direction, Link};
use crate::pattern::Pattern;
use crate::set::{Part, Set};
use crate::stream::Scheduled;
use halocline_comm::Communicator;
use halocline_plan::Halo;
use halocline_plan::wire::{Reader, WireError, Writer};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a set is made from.
struct Parted {
    local: Local,
    /// The fields of each peer.
    offered: BTreeMap<usize, Offered>,
    /// What travels over each link.
    parts: Vec<Part>,
}

/// The sets with only that part of their halos that belongs to `to`; also those of device fields with the same numbers. Collective.
pub(crate) fn narrowed(
    bound: &Bound,
    scheduled: Option<&Scheduled>,
    sets: &[Arc<Set>],
    to: &Halo,
) -> Result<Vec<Arc<Set>>, Error> {
    let comm = &bound.life.comm.within("narrowed");
    let parted = parts(comm, &bound.links, sets, to)?;
    let first = bound.sets.load(Ordering::Relaxed);
    if let Some(scheduled) = scheduled {
        let there: Vec<Arc<Set>> = sets.iter().map(|set| Arc::clone(&scheduled.sets[set.number])).collect();
        let there = numbered(first, parts(comm, &scheduled.links, &there, to)?);
        let further = agree(comm, further::make(scheduled, there))?;
        further::add(scheduled, further);
    }
    bound.sets.fetch_add(sets.len(), Ordering::Relaxed);
    Ok(numbered(first, parted))
}

fn numbered(first: usize, parted: Vec<Parted>) -> Vec<Arc<Set>> {
    let set = |(number, Parted { local, offered, parts })| {
        Arc::new(Set::new(number, local, Arc::new(offered), parts))
    };
    (first..).zip(parted).map(set).collect()
}

/// What travels over the links of the sets' object. Collective.
fn parts(comm: &Communicator, links: &[Link], sets: &[Arc<Set>], to: &Halo) -> Result<Vec<Parted>, Error> {
    let wide: BTreeMap<u64, &Pattern> =
        sets.iter().flat_map(|set| &set.local.patterns).map(|pattern| (pattern.id(), pattern)).collect();
    agree(comm, same_patterns(comm, sets.len(), wide.keys())?)?;
    let mut narrow = HashMap::new();
    for (id, pattern) in wide {
        narrow.insert(id, pattern.narrowed(comm, to)?);
    }
    let locals = sets.iter().map(|set| {
        let patterns: Vec<Pattern> =
            set.local.patterns.iter().map(|pattern| narrow[&pattern.id()].clone()).collect();
        set.local.again(comm, &patterns, &set.local.memories())
    });
    let locals: Vec<Local> = agree(comm, locals.collect())?;
    let mut offered: Vec<BTreeMap<usize, Offered>> = sets
        .iter()
        .map(|set| set.offered.iter().map(|(&peer, o)| (peer, o.under(&narrow))).collect())
        .collect();
    agree(comm, compare_bytes(comm, &locals, &mut offered)?)?;
    let made = sets.iter().zip(locals.into_iter().zip(offered)).map(|(set, (local, offered))| {
        let parts = links.iter().map(|link| {
            let peer_view = PeerView { peer: link.peer, local: &local, theirs: &offered[&link.peer] };
            let part =
                peer_view.part(link.direction, link.path, &peer_view.transfer_pairs(link.direction)?)?;
            // The link's buffers hold no more.
            assert!(part.bytes <= set.parts[link.part].bytes, "a narrowed pattern is a part of the wide one");
            Ok(part)
        });
        let parts = parts.collect::<Result<Vec<Part>, Error>>()?;
        Ok::<_, Error>(Parted { local, offered, parts })
    });
    agree(comm, made.collect())
}

/// Checks that all ranks have bound the same patterns: narrowing one is collective.
fn same_patterns<'a>(
    comm: &Communicator,
    sets: usize,
    ids: impl Iterator<Item = &'a u64>,
) -> Result<Result<(), Error>, Error> {
    let numbers: Vec<u64> = ids.copied().chain([sets as u64]).collect();
    let same = same_as_rank_0(comm, &numbers)?;
    Ok(same.map_err(|_| BindError::NarrowedPatterns { rank: comm.rank() }.into()))
}

/// Exchanges with each peer the number of bytes that travel between the two, and compares. Collective.
fn compare_bytes(
    comm: &Communicator,
    locals: &[Local],
    offered: &mut [BTreeMap<usize, Offered>],
) -> Result<Result<(), Error>, Error> {
    let peers: Vec<usize> = offered.first().map_or(Vec::new(), |peers| peers.keys().copied().collect());
    let message = |peer| {
        let mut w = Writer::new();
        for local in locals {
            w.size(local.bytes(peer, Direction::Send));
            w.size(local.bytes(peer, Direction::Receive));
        }
        (peer, w.finish())
    };
    let received = comm.sparse_exchange(peers.into_iter().map(message).collect())?;
    let mut take = |peer: usize, message: &[u8]| -> Result<(), WireError> {
        let mut reader = Reader::new(message);
        for theirs in offered.iter_mut().filter_map(|peers| peers.get_mut(&peer)) {
            (theirs.sends, theirs.receives) = (reader.size()?, reader.size()?);
        }
        reader.finish()
    };
    let taken = received.iter().try_for_each(|(peer, message)| {
        take(*peer, message)
            .map_err(|error| BindError::Malformed { peer: *peer, what: "count of bytes", error }.into())
    });
    let peer_views = locals.iter().zip(offered.iter()).flat_map(|(local, offered)| {
        offered.iter().map(move |(&peer, theirs)| PeerView { peer, local, theirs })
    });
    Ok(taken.and_then(|()| peer_views.into_iter().try_for_each(|peer_view| peer_view.check_bytes())))
}
