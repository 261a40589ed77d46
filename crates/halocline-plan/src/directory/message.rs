//! The four messages of the directory and their encoding. Decoders accept any bytes and return
//! either a well-formed message or a [`WireError`].

use crate::wire::{self, WireError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A message of one step of the directory.
pub trait Message: Serialize + DeserializeOwned {
    /// Name of the message in errors.
    const NAME: &'static str;

    /// The first bytes of the message, so that no step decodes a message of another step.
    const KIND: [u8; 4];

    /// Refuses content that no rank sends.
    fn check(&self) -> Result<(), WireError> {
        Ok(())
    }

    /// The message as bytes.
    fn encode(&self) -> Vec<u8> {
        wire::encode(&(Self::KIND, self))
    }

    /// Decodes a message: see [`wire::decode`].
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let rest = bytes.strip_prefix(&Self::KIND);
        let rest = rest.ok_or(WireError::Content("it does not begin like this kind of message"))?;
        let message: Self = wire::decode(rest)?;
        message.check().map(|()| message)
    }
}

/// Step A, to the home of the ids: the cells that the sender owns, and the cells whose owners it
/// needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lookup {
    /// Domains of the sender.
    pub domains: Vec<u64>,
    /// The sender's domains and the ids of their owned cells.
    pub owned: Vec<(u64, Vec<u64>)>,
    /// Ids of halo cells whose owners the sender requests.
    pub queries: Vec<u64>,
}

/// The owner of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The rank, never [`usize::MAX`].
    pub rank: usize,
    /// The domain of that rank.
    pub domain: u64,
}

/// Consecutive queries with one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRun {
    /// Number of queries, at least 1.
    pub count: u64,
    /// Their owner, `None` if no rank registered them.
    pub owner: Option<Owner>,
}

/// A cell or domain that the receiver of a [`Reply`] claims and another rank, or the same one
/// again, claims as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clash {
    /// The cell `id`, which the receiver registered for `domain`.
    Cell {
        /// Global id of the cell.
        id: u64,
        /// The receiver's domain.
        domain: u64,
        /// The other owner.
        other: Owner,
    },
    /// A domain that another rank also has.
    Domain {
        /// Number of the domain.
        domain: u64,
        /// The other rank.
        other: usize,
    },
}

/// Step B, from a home: answers to the queries in their order, and at most one clash of each kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Claims that contradict those of another rank.
    pub clashes: Vec<Clash>,
    /// Owners of the queried ids.
    pub owners: Vec<OwnerRun>,
}

/// Step C, to an owner: the cells that the sender needs, one part for each pair of domains, in
/// ascending order of (`to`, `from`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Request {
    /// The pairs of domains, at least one.
    pub parts: Vec<RequestPart>,
}

/// The cells that one domain of the sender needs from one domain of the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestPart {
    /// The sender's domain.
    pub to: u64,
    /// The receiver's domain.
    pub from: u64,
    /// Global ids of the cells, at least one.
    pub ids: Vec<u64>,
    /// Local indices of the same cells in `to`, ascending, below [`u32::MAX`].
    pub targets: Vec<u32>,
}

/// Step D, from an owner: for each part of the request, in its order, the local indices of the cells
/// in the owner's domain, each below [`u32::MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The parts of the request.
    pub parts: Vec<Vec<u32>>,
}

// A domain has at most `u32::MAX` cells, so `start + len` of every run fits in 32 bits.
fn check_indices(indices: &[u32]) -> Result<(), WireError> {
    refuse(indices.contains(&u32::MAX), "a local index exceeds what a domain can have")
}

fn refuse(is_wrong: bool, why: &'static str) -> Result<(), WireError> {
    if is_wrong { Err(WireError::Content(why)) } else { Ok(()) }
}

impl Message for Lookup {
    const NAME: &'static str = "lookup";
    const KIND: [u8; 4] = *b"look";
}

impl Message for Reply {
    const NAME: &'static str = "reply";
    const KIND: [u8; 4] = *b"repl";

    fn check(&self) -> Result<(), WireError> {
        refuse(self.owners.iter().any(|run| run.count == 0), "it answers a run of no queries")
    }
}

impl Message for Request {
    const NAME: &'static str = "request";
    const KIND: [u8; 4] = *b"requ";

    fn check(&self) -> Result<(), WireError> {
        for RequestPart { ids, targets, .. } in &self.parts {
            check_indices(targets)?;
            let is_odd = ids.is_empty() || ids.len() != targets.len();
            refuse(is_odd, "it does not name one halo cell for each id")?;
            let is_sorted = targets.is_sorted_by(|a, b| a < b);
            refuse(!is_sorted, "its halo cells are not in ascending order")?;
        }
        refuse(self.parts.is_empty(), "it asks for nothing")?;
        let is_sorted = self.parts.is_sorted_by(|a, b| (a.to, a.from) < (b.to, b.from));
        refuse(!is_sorted, "its pairs of domains are not in ascending order")
    }
}

impl Message for Answer {
    const NAME: &'static str = "answer";
    const KIND: [u8; 4] = *b"answ";

    fn check(&self) -> Result<(), WireError> {
        self.parts.iter().try_for_each(|indices| check_indices(indices))
    }
}
