//! The first step between peers: checks that both bind the same number of fields of each pattern that connects them. Each
//! rank then knows its peers, so that no rank waits for an offer that will never be sent.

use super::error::BindError;
use super::local::Local;
use crate::error::Error;
use halocline_comm::Communicator;
use halocline_plan::wire::{Reader, WireError, Writer};
use std::collections::{BTreeMap, HashMap};

/// How many fields of each pattern a rank binds, by the pattern's id.
type Counts = HashMap<u64, usize>;

/// Compares the counts with all peers. Collective; the inner result is this rank's own.
pub(super) fn validate(comm: &Communicator, local: &Local) -> Result<Result<(), Error>, Error> {
    let mut peers: BTreeMap<usize, Counts> = BTreeMap::new();
    for (pattern, &count) in local.patterns.iter().zip(&local.counts) {
        for peer in &pattern.plan().peers {
            peers.entry(peer.rank).or_default().insert(pattern.id(), count);
        }
    }
    let sends = peers.iter().map(|(&peer, counts)| (peer, write(counts))).collect();
    let received = comm.sparse_exchange(sends)?;
    Ok(compare(comm.rank(), local, &mut peers, &received).map_err(Error::from))
}

fn compare(
    rank: usize,
    local: &Local,
    peers: &mut BTreeMap<usize, Counts>,
    received: &[(usize, Vec<u8>)],
) -> Result<(), BindError> {
    for (peer, message) in received {
        let theirs = read(message).map_err(|error| BindError::Malformed {
            peer: *peer,
            what: "count of fields",
            error,
        })?;
        let ours = peers.remove(peer).unwrap_or_default();
        for (id, ours) in &ours {
            equal(local.index_of(*id), (rank, *ours), (*peer, theirs.get(id).copied().unwrap_or(0)))?;
        }
        if let Some((_, &peer_fields)) = theirs.iter().find(|(id, _)| !ours.contains_key(id)) {
            return Err(BindError::PatternNotBound { rank, peer: *peer, peer_fields });
        }
    }
    match peers.iter().find_map(|(peer, counts)| Some((peer, counts.iter().next()?))) {
        None => Ok(()),
        Some((&peer, (&id, &ours))) => equal(local.index_of(id), (rank, ours), (peer, 0)),
    }
}

fn equal(
    pattern: usize,
    (rank, fields): (usize, usize),
    (peer, peer_fields): (usize, usize),
) -> Result<(), BindError> {
    match fields == peer_fields {
        true => Ok(()),
        false => Err(BindError::RankFields { pattern, rank, fields, peer, peer_fields }),
    }
}

fn write(counts: &Counts) -> Vec<u8> {
    let mut w = Writer::new();
    w.size(counts.len());
    for (&id, &count) in counts {
        w.u64(id);
        w.size(count);
    }
    w.finish()
}

fn read(message: &[u8]) -> Result<Counts, WireError> {
    let mut reader = Reader::new(message);
    let mut counts = Counts::new();
    for _ in 0..reader.count(16)? {
        counts.insert(reader.u64()?, reader.size()?);
    }
    reader.finish()?;
    Ok(counts)
}
