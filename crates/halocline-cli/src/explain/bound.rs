//! The links of bound exchanges of running ranks.

use super::traffic::Traffic;
use crate::error::CommandError;
use halocline::{Communicator, Direction, HaloExchange, LinkInfo, Pattern};
use serde_json::{Value, json};

/// Maximum number of ranks that `explain` starts.
const MOST_RANKS: usize = 512;

/// Describes an exchange of this rank: its table, and its links as data. `cell`: bytes of a cell of all fields together.
pub(super) fn describe(what: &str, halo: &HaloExchange, pattern: &Pattern, cell: usize) -> Value {
    let plan = pattern.plan();
    let links = halo.links().map(|LinkInfo { peer, direction, path }| {
        let transfers = plan.peers.iter().filter(|one| one.rank == peer).flat_map(|one| match direction {
            Direction::Send => &one.sends,
            Direction::Receive => &one.receives,
        });
        let counts: Vec<usize> = transfers.map(|transfer| transfer.target.count()).collect();
        let cells: usize = counts.iter().sum();
        json!({
            "direction": if direction == Direction::Send { "to" } else { "from" },
            "rank": peer,
            "path": path.to_string(),
            "regions": counts.len(),
            "cells": cells,
            "bytes": cells * cell,
        })
    });
    let within: usize = plan.local.iter().map(|transfer| transfer.target.count() * cell).sum();
    json!({
        "explain": "bound",
        "exchange": what,
        "links": links.collect::<Vec<_>>(),
        "within_bytes": within,
        "table": halo.explain(),
    })
}

/// The descriptions of all ranks, on rank 0; nothing on other ranks. Collective.
pub(super) fn gather(comm: &Communicator, mine: &[Value]) -> Result<Vec<Vec<Value>>, CommandError> {
    let mine = Value::from(mine).to_string().into_bytes();
    let all = comm.all_gather(&mine)?;
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    let read = |(rank, bytes): (usize, Vec<u8>)| match serde_json::from_slice(&bytes) {
        Ok(Value::Array(exchanges)) => Ok(exchanges),
        _ => Err(CommandError::failed(format!(
            "rank {rank} sent a list of links that cannot be read; run the same version on all ranks"
        ))),
    };
    all.into_iter().enumerate().map(read).collect()
}

/// The bytes between ranks, from their descriptions.
pub(super) fn traffic(said: &[Vec<Value>]) -> Traffic {
    let mut traffic = Traffic::new(said.len());
    for (rank, exchange) in said.iter().enumerate().flat_map(|(rank, one)| one.iter().map(move |x| (rank, x)))
    {
        traffic.within[rank] += u128::from(exchange["within_bytes"].as_u64().unwrap_or(0));
        for link in exchange["links"].as_array().into_iter().flatten() {
            let (peer, bytes) = (link["rank"].as_u64(), link["bytes"].as_u64());
            if let (Some("to"), Some(peer), Some(bytes)) = (link["direction"].as_str(), peer, bytes)
                && (peer as usize) < said.len()
                && bytes > 0
            {
                traffic.add(rank, peer as usize, bytes.into());
            }
        }
    }
    traffic
}

/// Refuses a number of ranks that `explain` does not start.
pub(super) fn check_ranks(ranks: usize) -> Result<(), CommandError> {
    match ranks {
        1..=MOST_RANKS => Ok(()),
        _ => Err(CommandError::usage(format!(
            "{ranks} ranks to be started on this machine; give 1 to {MOST_RANKS}, or leave `--transport` out"
        ))),
    }
}
