//! Which collective call a message belongs to, so that ranks that make different calls learn it and are told which.
//!
//! Collective calls are counted: each takes a number, the same on all ranks as long as all make the same calls in one order. A message
//! of a call's number whose kind is another one proves that its sender makes another call in this place. The first rank that finds
//! such a message tells all others, and the communicator fails every call from then on: nothing says which of the calls were meant.
//! Where two calls begin with a wait on both ranks there is no such message: a wait that takes a while announces its call to the rank that
//! it waits for.

#[cfg(fuzzing)]
pub mod fuzz;
#[cfg(test)]
mod tests;

use crate::collective::{put, take};
use crate::communicator::{Communicator, mix};
use crate::endpoint::Endpoint;
use crate::error::CommError;
use crate::inbox::{Message, Tag};

/// Rounds of these messages, and of no others, begin with this: bits 63 and 62.
const MARK: u64 = 0b01 << 62;
/// Below it come the kind of the call, and so many bits of a round of the call.
const ROUND: u32 = 32;
const KINDS: u64 = (1 << 30) - 1;
/// Rounds that are no data: the sender waits in this call; two ranks make different calls.
const ANNOUNCED: u64 = u32::MAX as u64;
const MISMATCH: u64 = ANNOUNCED - 1;

/// Between the names of a call and of a part of it.
const PART: char = '\u{1f}';
/// Bytes of a name, whose length travels in one.
const LONGEST: usize = u8::MAX as usize;

/// A collective call in progress on this rank, or something else that waits for another one.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Its number, hashed.
    operation: u64,
    /// Which call it is: a hash of its name. 0: no collective call.
    kind: u64,
    name: String,
}

impl Call {
    /// The next collective call: `method`, or what that is a part of.
    pub(crate) fn begin(comm: &Communicator, method: &str) -> Self {
        let name = comm.within.map_or_else(|| method.to_owned(), |within| format!("{within}{PART}{method}"));
        let hash = name.bytes().fold(1, |hash, byte| mix(hash ^ u64::from(byte)));
        Self { operation: comm.begin(), kind: (hash & KINDS).max(1), name }
    }

    /// What is no collective call: `operation` is no call's number.
    pub(crate) fn other(operation: u64, name: String) -> Self {
        Self { operation, kind: 0, name }
    }

    fn tag(&self, round: u64) -> Tag {
        Tag { operation: self.operation, round: MARK | self.kind << ROUND | round }
    }

    /// Sends a message, with the name of the call behind it.
    pub(crate) fn send(
        &self,
        comm: &Communicator,
        to: usize,
        round: u64,
        data: &[u8],
    ) -> Result<(), CommError> {
        let name = &self.name.as_bytes()[..self.name.len().min(LONGEST)];
        let mut payload = Vec::with_capacity(data.len() + name.len() + 1 + Communicator::ROOM);
        payload.extend_from_slice(data);
        payload.extend_from_slice(name);
        payload.push(name.len() as u8);
        comm.send(to, self.tag(round), payload)
    }

    /// Takes a message of the call, if it has come.
    pub(crate) fn take(
        &self,
        comm: &Communicator,
        round: u64,
        from: Option<usize>,
        what: &str,
    ) -> Result<Option<Message>, CommError> {
        let Some(mut message) = comm.link().inbox().take(self.tag(round), from) else { return Ok(None) };
        let Some((data, _)) = split(&message.payload) else {
            return Err(CommError::Malformed { from: message.source, what: what.to_owned() });
        };
        message.payload.truncate(data.len());
        Ok(Some(message))
    }

    /// Waits for a message of the call.
    pub(crate) fn receive(
        &self,
        comm: &Communicator,
        from: usize,
        round: u64,
        what: &str,
    ) -> Result<Message, CommError> {
        comm.wait_in(self, Some(from), what, || self.take(comm, round, Some(from), what))
    }

    /// Tells a rank that this one waits for it in this call.
    pub(crate) fn announce(&self, comm: &Communicator, to: usize) {
        // A rank that cannot be told gives a poorer warning, and nothing else.
        let _ = self.send(comm, to, ANNOUNCED, &[]);
    }

    /// Tells it that the wait is over.
    pub(crate) fn retract(&self, comm: &Communicator, to: usize) {
        // As in `announce`: a message without a name.
        let _ = Self { name: String::new(), ..self.clone() }.send(comm, to, ANNOUNCED, &[]);
    }

    /// Fails if another rank makes another call in the place of this one.
    pub(crate) fn check(&self, comm: &Communicator) -> Result<(), CommError> {
        told(comm)?;
        let is_other = |tag: Tag| {
            let kind = tag.round >> ROUND & KINDS;
            tag.operation == self.operation && tag.round >> 62 == MARK >> 62 && kind != self.kind
        };
        let Some((rank, payload)) = comm.link().inbox().find(is_other) else { return Ok(()) };
        let theirs = split(&payload).map_or_else(|| "another call".to_owned(), |(_, name)| name);
        let calls = [(comm.rank(), &*self.name), (rank, &*theirs)];
        for other in (0..comm.size()).filter(|&other| other != comm.rank()) {
            // A rank that cannot be reached any more makes no calls.
            let _ = comm.send(other, mismatch_tag(comm), write(calls));
        }
        Err(comm.mismatch().get_or_init(|| mismatch(calls)).clone())
    }
}

/// Fails once another rank has found different calls.
pub(crate) fn told(comm: &Communicator) -> Result<(), CommError> {
    let known = comm.mismatch();
    if known.get().is_none()
        && let Some(message) = comm.link().inbox().take(mismatch_tag(comm), None)
    {
        let from = message.source;
        let malformed = || CommError::Malformed { from, what: "different collective calls".to_owned() };
        known.get_or_init(|| read(&message.payload).unwrap_or_else(malformed));
    }
    known.get().map_or(Ok(()), |error| Err(error.clone()))
}

fn mismatch_tag(comm: &Communicator) -> Tag {
    Tag { operation: mix(!comm.context()), round: MARK | MISMATCH }
}

/// Whether a message only says what its sender waits in, or that this is over.
pub(crate) fn is_announcement(tag: Tag) -> bool {
    tag.round & !(KINDS << ROUND) == MARK | ANNOUNCED
}

/// The data of a message and the name of its call.
pub(crate) fn split(payload: &[u8]) -> Option<(&[u8], String)> {
    let (&length, rest) = payload.split_last()?;
    let (data, name) = rest.split_at_checked(rest.len().checked_sub(length.into())?)?;
    Some((data, String::from_utf8_lossy(name).into_owned()))
}

/// What a call is part of, or itself.
pub(crate) fn outer(name: &str) -> &str {
    name.split_once(PART).map_or(name, |(outer, _)| outer)
}

fn mismatch(mut calls: [(usize, &str); 2]) -> CommError {
    calls.sort_unstable();
    let [a, b] = calls.map(|(_, name)| name);
    let [call, other_call] = match outer(a) == outer(b) {
        false => [a, b].map(|name| outer(name).to_owned()),
        // Different parts of one call: one before has failed on one of the ranks alone.
        true => [a, b].map(|name| name.replace(PART, ", ")),
    };
    CommError::Mismatch { rank: calls[0].0, call, other: calls[1].0, other_call }
}

fn write(calls: [(usize, &str); 2]) -> Vec<u8> {
    let mut told = Vec::new();
    calls.iter().for_each(|(rank, name)| put(&mut told, *rank, name.as_bytes()));
    told
}

fn read(mut told: &[u8]) -> Option<CommError> {
    let mut one = || take(&mut told).map(|(rank, name)| (rank, String::from_utf8_lossy(name).into_owned()));
    let (a, b) = (one()?, one()?);
    Some(mismatch([(a.0, &a.1), (b.0, &b.1)]))
}
