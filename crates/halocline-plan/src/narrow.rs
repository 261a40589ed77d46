//! Narrowed patterns: the same domains and arrays, with the transfers of a narrower halo.
//!
//! A regular pattern is narrowed from its decomposition, without communication. In an unstructured
//! pattern both ends of each transfer know the cells at both ends, but only the receiver knows
//! their depth. The receiver sends its peers the local index at which the requested depth ends in
//! each of its domains.
//! are: it tells its peers where, in the local order of each of its domains, the wanted depth ends.

use crate::directory::{Message, Messages};
use crate::wire::WireError;
use crate::{
    Cells, Decomposition, DomainShape, Halo, PatternError, PatternPlan, Peer, Transfer, UnstructuredError,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

impl Decomposition {
    /// The pattern of `rank` that fills the narrower halo `to` ([`Halo::narrowed`]) within the halo
    /// of [`pattern_of(rank, halo)`](Decomposition::pattern_of). The shapes of the domains remain
    /// those of the wide halo, so the same arrays fit. No communication.
    pub fn narrowed_pattern_of(
        &self,
        rank: usize,
        halo: &Halo,
        to: &Halo,
    ) -> Result<PatternPlan, PatternError> {
        let axes = self.extents().len();
        self.pattern_within(rank, &halo.narrowed(to, axes)?, &halo.widths(axes)?)
    }
}

impl PatternPlan {
    /// The first step to narrow an unstructured pattern to the depth `to`: the end of that depth in
    /// each domain of this rank, and the messages that send these ends to the peers.
    ///
    /// Errors: a halo with axes or faces, or a domain whose halo is less deep.
    pub fn depth_ends(&self, to: &Halo) -> Result<(DepthEnds, Messages), PatternError> {
        let depth = to.depth()?;
        let mut ends = BTreeMap::new();
        for (domain, shape) in &self.domains {
            ends.insert(*domain, end_of(*domain, shape, depth)?);
        }
        let of_peer = |peer: &Peer| {
            let mut domains: Vec<u64> = peer.receives.iter().map(|transfer| transfer.to).collect();
            domains.dedup();
            let ends = domains.into_iter().filter_map(|domain| Some((domain, *ends.get(&domain)?)));
            (peer.rank, Ends(ends.collect()).encode())
        };
        let receiving = self.peers.iter().filter(|peer| !peer.receives.is_empty());
        let messages = receiving.map(of_peer).collect();
        Ok((DepthEnds { depth, ends }, messages))
    }

    /// The second step: the pattern that fills the cells below the ends. Takes the messages of the
    /// peers. The order of cells, domains and transfers is unchanged; transfers without cells are
    /// dropped.
    pub fn narrowed(
        &self,
        ends: &DepthEnds,
        received: &[(usize, Vec<u8>)],
    ) -> Result<PatternPlan, UnstructuredError> {
        let mut theirs: BTreeMap<usize, BTreeMap<u64, u64>> = BTreeMap::new();
        for (from, bytes) in received {
            let Ends(list) = Ends::decode(bytes).map_err(|what| wrong(*from, what))?;
            theirs.insert(*from, list.into_iter().collect());
        }
        let mut peers = Vec::new();
        for Peer { rank, sends, receives } in &self.peers {
            let their = theirs.remove(rank).unwrap_or_default();
            let missing = |transfer: &&Transfer| !their.contains_key(&transfer.to);
            if sends.iter().any(|transfer| missing(&transfer)) {
                let what = WireError::Content("it does not name all domains that are filled from here");
                return Err(wrong(*rank, what));
            }
            let peer =
                Peer { rank: *rank, sends: below(sends, &their), receives: below(receives, &ends.ends) };
            if !peer.sends.is_empty() || !peer.receives.is_empty() {
                peers.push(peer);
            }
        }
        if let Some(&rank) = theirs.keys().next() {
            return Err(wrong(rank, WireError::Content("nothing is filled from here")));
        }
        let mut domains = self.domains.clone();
        for (domain, shape) in &mut domains {
            if let DomainShape::Unstructured { levels, cells, .. } = shape {
                let end = ends.ends.get(domain).map_or(0, |&end| end as usize);
                match levels.is_empty() && end < *cells {
                    // The remainder of a domain that has one level because none were given.
                    true => levels.push(end),
                    false => levels.truncate(ends.depth + 1),
                }
            }
        }
        Ok(PatternPlan { domains, peers, local: below(&self.local, &ends.ends) })
    }
}

/// The local index at which a halo depth ends, for each domain of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepthEnds {
    depth: usize,
    ends: BTreeMap<u64, u64>,
}

/// The local index at which a depth ends.
fn end_of(domain: u64, shape: &DomainShape, depth: usize) -> Result<u64, PatternError> {
    let DomainShape::Unstructured { owned, cells, levels } = shape else {
        let (cells, shape) = (format!("a halo of depth {depth}"), format!("{shape:?}"));
        return Err(PatternError::WrongCells { domain, cells, shape });
    };
    let deeper = |has| PatternError::NarrowedDeeper { domain, depth, has };
    let end = match (levels.as_slice(), depth) {
        ([], _) if owned == cells => *cells,
        // Halo cells may be at any index.
        ([], 0) => 0,
        ([], 1) => *cells,
        ([], _) => return Err(deeper(1)),
        (ends, depth) => *ends.get(depth).ok_or_else(|| deeper(ends.len() - 1))?,
    };
    Ok(end as u64)
}

/// The cells of each transfer whose target lies below the end of its domain.
fn below(transfers: &[Transfer], ends: &BTreeMap<u64, u64>) -> Vec<Transfer> {
    let cut = |transfer: &Transfer| {
        let end = ends.get(&transfer.to).copied().unwrap_or(0);
        let (Cells::Runs(sources), Cells::Runs(targets)) = (&transfer.source, &transfer.target) else {
            return None;
        };
        let indices = |runs: &[crate::Run]| {
            runs.iter().flat_map(|run| run.start..run.start + run.len).collect::<Vec<u32>>()
        };
        let pairs = || indices(sources).into_iter().zip(indices(targets));
        let kept = || pairs().filter(|&(_, target)| u64::from(target) < end);
        kept().next()?;
        let source = Cells::from_indices(kept().map(|(source, _)| source));
        let target = Cells::from_indices(kept().map(|(_, target)| target));
        Some(Transfer { source, target, ..transfer.clone() })
    };
    transfers.iter().filter_map(cut).collect()
}

/// A receiver's message: its domains, each with the end of the requested depth.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ends(Vec<(u64, u64)>);

impl Message for Ends {
    const NAME: &'static str = "ends of a depth";
    const KIND: [u8; 4] = *b"ends";
}

fn wrong(from: usize, what: WireError) -> UnstructuredError {
    UnstructuredError::Message { from, name: Ends::NAME, what }
}
